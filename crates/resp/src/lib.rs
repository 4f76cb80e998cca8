//! RESP2 and RESP3, the protocol of Redis, for both ends of a connection.
//!
//! A server feeds what it has read to a [`Parser`], which finds commands in place and copies nothing, and answers
//! through a [`Writer`] into a buffer of its own. A client writes with [`write_command`] and reads with [`Reply`].
//!
//! ```
//! use holdfast_resp::{Limits, Parser, Proto, Writer};
//!
//! let mut input = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n".to_vec();
//! let mut parser = Parser::new();
//! let consumed = parser.parse(&mut input, &Limits::default()).unwrap();
//! assert_eq!(consumed, Some(input.len()));
//!
//! let args = parser.args(&input);
//! let mut out = Vec::new();
//! Writer::new(&mut out, Proto::Resp2).bulk(args.at(1));
//! assert_eq!(out, b"$2\r\nhi\r\n");
//! ```

mod args;
mod double;
mod integer;
mod line;
mod reply;
mod request;
mod writer;

pub use args::{Args, OwnedArgs, Span};
pub use double::{parse_double, write_double};
pub use integer::parse_int;
pub use line::{UnbalancedQuotes, split_line};
pub use reply::{BadReply, Reply, skip_reply, write_command};
pub use request::{Limits, Parser, ProtocolError, Upcoming};
pub use writer::{Deferred, Proto, Writer};
