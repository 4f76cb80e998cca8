//! Executing commands: a worker's thread takes what a client has sent through the checks that come before every command, begins
//! its transaction, and calls its handler.
//!
//! A [`turn`] is what commands executed one after the other share; [`dispatch`] takes one through, by way of [`check`],
//! [`admit`] and [`locking`], and with it what comes behind it in a pipeline and is alike (`alike.rs`); a handler sees it as a
//! [`call`]. It knows handlers by the [rows](handler::Rows) that it is given, and connections not at all.

pub mod admit;
mod ahead;
mod alike;
pub mod answer;
pub mod call;
pub mod check;
pub mod cluster;
mod direct;
pub mod dispatch;
mod ending;
mod fetcher;
pub mod handler;
pub mod invocation;
pub mod keyspace;
pub mod locking;
pub mod script;
pub mod turn;
pub mod uses;
pub mod worker;
