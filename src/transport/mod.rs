//! Bytes to and from clients: sockets and TLS, and the way to who accepts connections. It knows nothing of commands.

pub mod acceptor;
pub mod blocking;
pub mod stream;
pub mod tls;
pub mod trust;
