//! The seam between connections and what carries their bytes: TCP, Unix sockets, TLS over TCP. Others (shared memory,
//! RDMA) bring a [`Network`] of their own.

use crate::{
    address::{Address, Tls},
    error::Error,
};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::{
    io::{self, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Duration,
};

/// How long a connection may be idle until the system asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Carries bytes to and fro. Neither reading nor writing may block.
pub trait Transport: Read + Write + Send {
    /// Becomes readable when there is something to read, and writable as [`Transport::wants_write`] needs it.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Once the descriptor is writable for the first time: whether the connection was made.
    fn connected(&self) -> io::Result<()>;

    /// Writes some of the slices. A connection that is gone is an error, and must not be a signal, which ends programs that have not
    /// asked for another answer to SIGPIPE.
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(slices)
    }

    /// Whether to wait until the descriptor is writable, if `unsent` says whether the caller has more to write.
    fn wants_write(&self, unsent: bool) -> bool {
        unsent
    }

    /// Whether it holds bytes back that the descriptor knows nothing of.
    fn buffers(&self) -> bool {
        false
    }
}

/// Makes connections.
pub trait Network: Send {
    /// Begins to connect, for the `attempt`-th time in a row, and does not wait for the result.
    fn connect(&mut self, address: &Address, attempt: u32) -> io::Result<Box<dyn Transport>>;
}

fn send(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

impl Transport for TcpStream {
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self, slices)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn connected(&self) -> io::Result<()> {
        self.take_error()?.map_or(Ok(()), Err)
    }
}

impl Transport for UnixStream {
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self, slices)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn connected(&self) -> io::Result<()> {
        self.take_error()?.map_or(Ok(()), Err)
    }
}

/// What TLS writes to, which must not lead to a signal either.
struct Unsignalled(TcpStream);

impl Read for Unsignalled {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Unsignalled {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        send(&self.0, &[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        send(&self.0, bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// TLS over TCP. The handshake is made while reading and writing.
struct TlsStream(StreamOwned<ClientConnection, Unsignalled>);

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Transport for TlsStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.sock.0.as_fd()
    }

    fn connected(&self) -> io::Result<()> {
        self.0.sock.0.connected()
    }

    fn wants_write(&self, unsent: bool) -> bool {
        // While the other end has to speak, what is unsent waits for that.
        self.0.conn.wants_write() || unsent && !self.0.conn.is_handshaking()
    }

    fn buffers(&self) -> bool {
        true
    }
}

/// Sockets of the system.
pub(crate) struct Sockets {
    tls: Option<(Arc<rustls::ClientConfig>, Option<ServerName<'static>>)>,
}

impl Sockets {
    pub fn new(tls: Option<&Tls>) -> Result<Sockets, Error> {
        let tls = tls.map(|tls| {
            let name = tls.server_name.clone().map(ServerName::try_from).transpose();
            let name = name.map_err(|e| Error::Setup(format!("the server's name: {e}")))?;
            Ok((Arc::new(tls.client_config()?), name))
        });
        Ok(Sockets { tls: tls.transpose()? })
    }
}

impl Network for Sockets {
    fn connect(&mut self, address: &Address, attempt: u32) -> io::Result<Box<dyn Transport>> {
        match address {
            Address::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                begin(&socket, &SockAddr::unix(path)?)?;
                Ok(Box::new(UnixStream::from(socket)))
            }
            Address::Tcp { host, port } => {
                let found: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
                // The next address of those that the name has, after one that failed.
                let Some(at) = found.get(attempt as usize % found.len().max(1)) else {
                    return Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")));
                };
                let socket = Socket::new(Domain::for_address(*at), Type::STREAM, None)?;
                socket.set_tcp_nodelay(true)?;
                socket.set_tcp_keepalive(
                    &TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3),
                )?;
                begin(&socket, &SockAddr::from(*at))?;
                let stream = TcpStream::from(socket);
                let Some((config, name)) = &self.tls else { return Ok(Box::new(stream)) };
                let name = match name {
                    Some(name) => name.clone(),
                    None => ServerName::try_from(host.clone()).map_err(io::Error::other)?,
                };
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Ok(Box::new(TlsStream(StreamOwned::new(session, Unsignalled(stream)))))
            }
        }
    }
}

fn begin(socket: &Socket, address: &SockAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(address) {
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(()),
        result => result,
    }
}
