//! Connections: who accepts them, the event loop of each worker that serves them, and what they read and write.

pub mod bus;
mod connection;
pub mod event_loop;
mod handle;
mod large_buffer;
pub mod listener;
mod lookahead;
mod output;
mod shared;
