//! A client's socket, TCP or Unix.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::{TcpStream, UnixStream},
};

/// A connected socket that a worker's runtime drives.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

/// A connected socket on its way from the listener to its worker.
pub enum Socket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// Unix.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Registers a socket, which must be non-blocking, with the runtime of this thread.
    pub fn register(socket: Socket) -> io::Result<Stream> {
        Ok(match socket {
            Socket::Tcp(socket) => Stream::Tcp(TcpStream::from_std(socket)?),
            Socket::Unix(socket) => Stream::Unix(UnixStream::from_std(socket)?),
        })
    }

    /// Appends what has arrived to `buf`, as much as its capacity has room for. 0: the peer has closed.
    pub fn poll_read(&mut self, cx: &mut Context, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        // These futures keep no state, so one per poll is right.
        match self {
            Stream::Tcp(stream) => Future::poll(pin!(stream.read_buf(buf)), cx),
            Stream::Unix(stream) => Future::poll(pin!(stream.read_buf(buf)), cx),
        }
    }

    /// Sends a part of `bytes`.
    pub fn poll_write(&mut self, cx: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }
}
