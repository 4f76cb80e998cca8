//! A client's socket, TCP with or without TLS, or Unix.

use crate::transport::tls::{self, Tls};
use std::{
    future::poll_fn,
    io,
    os::fd::AsFd,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// A connected socket that a worker's runtime drives.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TCP with TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// Unix.
    Unix(UnixStream),
}

/// A connected socket on its way from the listener to its worker.
pub enum Socket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// TCP on which the client is to speak TLS.
    Tls(std::net::TcpStream),
    /// Unix.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Registers a socket, which must be non-blocking, with the runtime of this thread, and makes it safe if it is to be.
    pub async fn open(socket: Socket, tls: &Tls) -> io::Result<Stream> {
        Ok(match socket {
            Socket::Tcp(socket) => Stream::Tcp(TcpStream::from_std(socket)?),
            Socket::Tls(socket) => Stream::Tls(tls::accept(tls, TcpStream::from_std(socket)?).await?),
            Socket::Unix(socket) => Stream::Unix(UnixStream::from_std(socket)?),
        })
    }

    /// The same socket once more, for another process; `None`: what TLS knows of the connection cannot leave this one.
    pub fn duplicate(&self) -> Option<io::Result<Socket>> {
        match self {
            Stream::Tcp(stream) => Some(stream.as_fd().try_clone_to_owned().map(|fd| Socket::Tcp(fd.into()))),
            Stream::Unix(stream) => {
                Some(stream.as_fd().try_clone_to_owned().map(|fd| Socket::Unix(fd.into())))
            }
            Stream::Tls(_) => None,
        }
    }

    /// Appends what has arrived to `buf`, as much as its capacity has room for. 0: the peer has closed.
    pub fn poll_read(&mut self, cx: &mut Context, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        // These futures keep no state, so one per poll is right.
        match self {
            Stream::Tcp(stream) => Future::poll(pin!(stream.read_buf(buf)), cx),
            Stream::Tls(stream) => match Future::poll(pin!(stream.read_buf(buf)), cx) {
                // A client that does not say goodbye is gone all the same.
                Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
                read => read,
            },
            Stream::Unix(stream) => Future::poll(pin!(stream.read_buf(buf)), cx),
        }
    }

    /// Sends a part of `bytes`.
    pub fn poll_write(&mut self, cx: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Ready when all that was written is with the operating system.
    pub fn poll_flush(&mut self, cx: &mut Context) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Says goodbye, if the client takes it now.
    pub async fn close(&mut self) {
        if let Stream::Tls(stream) = self {
            poll_fn(|cx| {
                // A client that is gone needs no goodbye.
                let _ = Pin::new(&mut *stream).poll_shutdown(cx);
                Poll::Ready(())
            })
            .await;
        }
    }
}
