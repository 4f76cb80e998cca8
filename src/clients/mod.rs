//! What all threads may know of a connection, and the list of all clients.

pub mod client;
pub mod list;
