//! Lua 5.1 as scripts of Redis see it: an interpreter in a sandbox, with the libraries that Redis gives them (`cjson`, `cmsgpack`,
//! `bit`, `struct`), and the tables `redis` and `server`, through which they call a [`Host`].
//!
//! It knows nothing of a server: what runs commands, checks rights and ends scripts that take too long is the host.

mod api;
mod arguments;
mod bit;
mod cjson;
mod cmsgpack;
mod guards;
mod host;
mod interpreter;
mod number;
mod pack;
mod program;
mod reply;
mod sandbox;

pub use api::sha1;
pub use host::{Host, LogLevel, NewFunction, Scratch};
pub use interpreter::Ref;
pub use program::{Interpreter, MEMORY_MAX, Program};
