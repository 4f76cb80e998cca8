//! Sockets of threads that wait: TCP, Unix, or TLS, for which a thread passes bytes between a socket within the process and the server, so that
//! all else is as without.

use crate::admin::log::log;
use socket2::{Domain, Socket, Type};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::Duration,
};
use tokio::{io::copy_bidirectional, runtime::Builder};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// A connected socket.
pub enum BlockingSocket {
    /// TCP.
    Tcp(TcpStream),
    /// Unix, or the near end of TLS.
    Unix(UnixStream),
}

/// Connects to the first address of a host that answers, from `source` if it is given.
///
/// # Errors
/// None does, or `source` is none of this machine's.
pub fn connect_tcp(
    host: &str,
    port: u16,
    source: Option<IpAddr>,
    patience: Duration,
) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connect = || {
            let socket = socket_to(address, source)?;
            socket.connect_timeout(&address.into(), patience)?;
            socket.set_tcp_nodelay(true)?;
            Ok(socket.into())
        };
        match connect() {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A socket that is to be connected to an address, from `source` if it is given.
///
/// # Errors
/// `source` is none of this machine's, or of another family.
pub fn socket_to(address: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(socket)
}

/// Shakes hands with the server at the other end of `socket`, which may be silent for so long. What is written to the socket that this
/// returns gets there.
///
/// # Errors
/// It does not speak TLS, or is not who it must be.
pub fn open_tls(
    connector: TlsConnector,
    name: ServerName<'static>,
    socket: TcpStream,
    patience: Duration,
) -> io::Result<BlockingSocket> {
    let (ours, theirs) = UnixStream::pair()?;
    let (sender, shaken) = mpsc::channel();
    socket.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    thread::Builder::new().name("tls".into()).spawn(move || {
        runtime.block_on(async {
            let open = async {
                let socket = tokio::net::TcpStream::from_std(socket)?;
                Ok((tokio::net::UnixStream::from_std(theirs)?, connector.connect(name, socket).await?))
            };
            let opened: io::Result<_> = open.await;
            let (opened, result) = match opened {
                Ok(opened) => (Some(opened), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Both ends are seen by those who read and write there.
            let _ = sender.send(result);
            if let Some((mut inside, mut server)) = opened
                && let Err(error) = copy_bidirectional(&mut inside, &mut server).await
                && error.kind() == ErrorKind::InvalidData
            {
                log!(Warning, "TLS: {error}");
            }
        });
    })?;
    let silent = |_| io::Error::new(ErrorKind::TimedOut, "the server does not answer as one of TLS does");
    shaken.recv_timeout(patience).map_err(silent)??;
    Ok(BlockingSocket::Unix(ours))
}

impl BlockingSocket {
    /// Another handle of the same socket.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<BlockingSocket> {
        Ok(match self {
            BlockingSocket::Tcp(socket) => BlockingSocket::Tcp(socket.try_clone()?),
            BlockingSocket::Unix(socket) => BlockingSocket::Unix(socket.try_clone()?),
        })
    }

    /// How long a read, and a write, may wait.
    ///
    /// # Errors
    /// Either is zero.
    pub fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        let (read, write) = (Some(read), Some(write));
        match self {
            BlockingSocket::Tcp(socket) => {
                socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write))
            }
            BlockingSocket::Unix(socket) => {
                socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write))
            }
        }
    }

    /// Ends the connection for all who have it.
    pub fn shut_down(&self) {
        // It may be shut down already.
        let _ = match self {
            BlockingSocket::Tcp(socket) => socket.shutdown(Shutdown::Both),
            BlockingSocket::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Read for BlockingSocket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            BlockingSocket::Tcp(socket) => socket.read(out),
            BlockingSocket::Unix(socket) => socket.read(out),
        }
    }
}

impl Write for BlockingSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            BlockingSocket::Tcp(socket) => socket.write(bytes),
            BlockingSocket::Unix(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
