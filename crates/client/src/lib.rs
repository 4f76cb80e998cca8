//! A client of Holdfast and Redis that lets its caller go on while requests are on their way. It needs no runtime, and
//! is the core of the libraries for C, C++, Fortran and Python.
//!
//! ```no_run
//! use holdfast_client::{Client, Command, Config, Target};
//!
//! let client = Client::new(Config::new(["127.0.0.1:6379"])?)?;
//! let set = client.iset(b"grid", Box::new(vec![0u8; 1 << 20]))?;
//! // ... compute ...
//! client.wait(set, None)?;
//! client.take(set)?;
//! let get = client.iget(b"grid", Target::Vec(vec![0; 1 << 20]))?;
//! client.wait(get, None)?;
//! let grid = client.take_into(get)?.buffer;
//! client.call(Command::new("HSET").arg("h").arg("field").arg(b"\0\xff"))?;
//! # Ok::<(), holdfast_client::Error>(())
//! ```
//!
//! # A request
//!
//! [`Client::submit`] takes a request in, under a number ([`RequestId`]). From then on it is in one of three states:
//!
//! ```text
//!            the last byte is handed to the system,
//! submit     and there is one server            a reply, or an error
//!   ──▶ Queued ─────────────────▶ BufferFree ────────────────▶ Done ──▶ take, release
//!          │                           │ ▲                      ▲
//!          └─── nothing was lent ──────┼─┘                      │
//!          └───────────────────────────┴── a reply, an error ───┘
//! ```
//!
//! Who has which bytes:
//!
//! | bytes | until when they are the library's |
//! |---|---|
//! | an argument that was copied ([`Command::arg`], [`Client::bset`], keys) | never: they are the caller's when the call returns |
//! | an argument that was lent ([`Command::lent`], [`Client::iset`]) | until [`State::BufferFree`] |
//! | the buffer for the reply ([`Command::into`], [`Client::iget`]) | until [`State::Done`] |
//!
//! The library keeps a request's bytes until the reply has come, since it may have to send them again. Only where there
//! is one server, which has not said that it is a node of a cluster, are lent ones dropped once they are sent. If it then says that another one has the key
//! (MOVED), the request ends with [`Error::Redirected`]: it was not executed, and the caller, who has the bytes, may
//! send it again. With several servers, a node, or after the first MOVED, what was lent is kept until the request is done.
//!
//! # A lost connection
//!
//! A server executes a request when it has all its bytes. So it matters whether the last byte was handed to the system:
//!
//! | the request | what happens |
//! |---|---|
//! | not sent, or in part | it was not executed. It is sent again on the next connection, in its old place |
//! | sent in full, read-only ([`Command::read_only`]) | it is sent again: a second execution changes nothing |
//! | sent in full, any other | [`Error::Lost`], [`Executed::Unknown`]: the reply was lost, or the request was |
//! | replied to with MOVED or ASK | it was not executed. It is sent to the server that was named; after MOVED that is asked for all slots |
//!
//! A connection on which nothing was on its way for 5 ms is looked at before a request is sent on it, so that a server
//! that went away meanwhile makes nothing unknown.
//!
//! A request that was sent, even in part, is sent again [`Config::resends_max`] times at most.
//!
//! A request that takes longer than [`Config::request_timeout`], or is cancelled, ends likewise: with [`Executed::No`]
//! if no byte of it was sent, and then none will be; else with `Unknown`. Its reply, if one comes, is dropped. What was
//! lent is the caller's again in any case.
//!
//! # A connection
//!
//! ```text
//!   Down ──▶ Connecting ──▶ Greeting ──▶ Up
//!    ▲            │             │         │
//!    └────────────┴─────────────┴─────────┘
//! ```
//!
//! * *Down*: requests queue up. The first of them opens the connection; after a failure it waits 10 ms, then twice as
//!   long each time up to 1 s, whatever is asked for meanwhile. After the loss of a connection that has brought a reply
//!   the first attempt is made at once; after that of another one it waits likewise, from 2 ms on.
//! * *Connecting*, and for TLS a part of *Greeting*: for [`Config::connect_timeout`] at most.
//! * *Greeting*: `HELLO 3 AUTH …`, `CLIENT SETNAME`, `SELECT`, whose replies are awaited before anything else is sent.
//!   An error ends all requests that wait, with [`Error::Refused`].
//!   A server that says of itself that it is a node of a cluster is asked who has which slots, once, before any request is sent; see below.
//! * *Up*: requests are sent in the order in which they came, and replied to in this order.
//!
//! A request that may take any time ([`Command::untimed`]) has a connection of its own meanwhile, lest others wait behind it. If it
//! is called off, that connection is closed, which is the only way to have the server let go of it.
//!
//! A server that owes a reply when a request times out, and has sent nothing for half of the time-out, is taken for gone; so is
//! one that has sent nothing for the whole time-out while it owes a reply for which nobody waits any more. Requests that may take any time are waited for. Requests to different servers are in no order, nor are those that are sent elsewhere by MOVED.
//!
//! # Progress
//!
//! Nothing happens behind the caller's back: bytes are sent and replies are read in calls, by whoever waits or tests, or
//! by a thread if [`Config::thread`] asks for one. Waiting is done by the system; nobody spins. A request is sent at
//! once if its server has nothing else to do for this client, if it lends bytes, or if 32 KiB are to be sent;
//! others are sent together, at the next call that makes progress, or by [`Client::flush`]. So is the first of several if others followed
//! the first one the last time before anybody made progress: to send it alone would cost as much as to send them all. Where the
//! descriptor is asked for ([`Client::event_fd`]) it is sent alone all the same. Those with a loop of their own watch
//! [`Client::event_fd`].
//!
//! # Limits
//!
//! Requests ([`Config::requests_max`]), of which 256 may take any time ([`Command::untimed`]), bytes of requests on their way and results that were not taken
//! ([`Config::bytes_max`]), bytes of one reply ([`Config::reply_bytes_max`]). Beyond the first three, [`Client::submit`]
//! returns [`Error::Full`] and has done nothing: take a result, or make progress, and try again.
//!
//! Commands that change what a connection is (MULTI, SUBSCRIBE, SELECT, HELLO …) are refused, since a connection is
//! shared by all requests and may be another one a moment later. Messages that a server sends unasked are dropped.
//!
//! # Several servers
//!
//! Keys are spread over the servers of [`Config::servers`] by hash slot, in equal ranges and in their order, as in a
//! Redis Cluster just made of them; a server that answers MOVED changes that for its slot. The first key of a command is its
//! argument 1, unless [`Command::key`] says otherwise.
//!
//! The first server that is reached says in its reply to HELLO whether it is a node of a cluster. If so it is asked for CLUSTER SLOTS, and what was submitted
//! waits for that, for [`Config::connect_timeout`] at most, and goes to the nodes that have the keys. One server alone is asked for nothing more. Over RESP2, and over a Unix socket, of which
//! other nodes may not be within reach, MOVED tells instead.
//!
//! While requests wait for a server that cannot be reached, another one is asked for CLUSTER SLOTS, and one more after 50 ms, 100 ms and so on up to 1 s:
//! replicas, and servers of [`Config::servers`] of which nothing is known yet, too. As soon as another node has the slots, what waits goes there. Commands without a key go to the first server, or
//! to another node if that cannot be reached.
//!
//! The servers of a replica set that are no nodes of a cluster are not followed. The client cannot tell them from servers that have a part of the
//! keys each, whose keys must not go elsewhere. Give it the leader's address alone; another one replies `-READONLY`. With `cluster-enabled yes`
//! a replica set is a node, whose leader the client finds.
//!
//! # Files
//!
//! ```text
//! client      who waits, and who makes progress
//! core        which server a request goes to, and when its time is over
//! connection  one server: its link, and what arrives
//! poller      what the system waits for
//! outbox      what was not replied to, with its bytes
//! request     all requests by number
//! transport   sockets, TLS; the seam for others
//! decoder     replies, in pieces
//! address, command, config, slots, error
//! ```

#![forbid(unsafe_code)]

mod address;
mod client;
mod command;
mod config;
mod connection;
mod core;
mod decoder;
mod error;
mod outbox;
mod poller;
mod request;
mod slots;
mod transport;

pub use address::{Address, Tls};
pub use client::{Client, Filled};
pub use command::{COPIED_MAX, Command, Lent, Target};
pub use config::{Config, Protocol};
pub use decoder::{Decoded, Decoder, Gap};
pub use error::{Error, Executed};
pub use holdfast_resp::Reply;
pub use request::{RequestId, State};
pub use slots::{SLOTS, hash_slot};
pub use transport::{Network, Transport};
