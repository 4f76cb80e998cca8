//! Listening sockets. New connections go to the workers in turn and stay there.

use crate::{
    admin::log::log,
    clients::client::Client,
    config::{Config, Opt},
    server::{Server, mailbox::Message},
    transport::stream::Socket,
};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket as RawSocket, TcpKeepalive, Type};
use std::{
    fs, io,
    io::{ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll},
    time::Duration,
};

/// What a client is told for whom there is no place.
pub const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// What a client of another machine is told while nobody needs a password.
pub const PROTECTED: &[u8] = b"-DENIED Holdfast is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface. If you \
want to connect from external computers, you may adopt one of the following solutions: 1) Just disable protected mode \
sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting from the same host the \
server is running, however MAKE SURE it is not publicly accessible from internet if you do so. 2) Alternatively you can \
just disable the protected mode by editing the configuration file, and setting the protected mode option to 'no', and \
then restarting the server. 3) If you started the server manually just for testing, restart it with the \
'--protected-mode no' option. 4) Set up an authentication password for the default user. NOTE: You only need to do one \
of the above things in order for the server to start accepting connections from the outside.\r\n";

/// How long to wait after accepting has failed, as it does while the process has no file descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Where a server listens, by its options.
#[derive(Clone, PartialEq, Eq)]
struct Addresses {
    bind: String,
    port: u16,
    tls_port: u16,
}

impl Addresses {
    fn of(config: &Config) -> Addresses {
        let port = |opt| config.number(opt) as u16;
        Addresses { bind: config.text(Opt::Bind), port: port(Opt::Port), tls_port: port(Opt::TlsPort) }
    }

    /// As options, with the path of a Unix socket.
    fn options(&self, path: String) -> [(&'static str, String); 4] {
        let Addresses { bind, port, tls_port } = self;
        let [port, tls_port] = [port, tls_port].map(u16::to_string);
        [("bind", bind.clone()), ("port", port), ("tls-port", tls_port), ("unixsocket", path)]
    }

    fn listen(&self, backlog: i32) -> Result<Vec<(TcpListener, Wrap)>, String> {
        let tcp = listen_on_port(Opt::Bind, &self.bind, self.port, backlog)?;
        let tls = listen_on_port(Opt::Bind, &self.bind, self.tls_port, backlog)?;
        let tcp = tcp.into_iter().map(|listener| (listener, Wrap::Tcp));
        let tls = tls.into_iter().map(|listener| (listener, Wrap::Tls));
        Ok(tcp.chain(tls).collect())
    }
}

/// What a connection that was accepted becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrap {
    Tcp,
    Tls,
}

impl Wrap {
    fn wrap(self, stream: std::net::TcpStream) -> Socket {
        match self {
            Wrap::Tcp => Socket::Tcp(stream),
            Wrap::Tls => Socket::Tls(stream),
        }
    }
}

/// The sockets that a server listens on.
pub struct Listeners {
    addresses: Addresses,
    tcp: Vec<(TcpListener, Wrap)>,
    unix: Option<UnixSocket>,
}

struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Whether another process goes on with it.
    is_left: bool,
}

impl UnixSocket {
    fn register(&self) -> io::Result<tokio::net::UnixListener> {
        tokio::net::UnixListener::from_std(self.listener.try_clone()?)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if !self.is_left {
            // If it is gone already, all the better.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listeners {
    /// Opens what the options name; the error says which address it is about.
    pub fn open(config: &Config) -> Result<Listeners, String> {
        let addresses = Addresses::of(config);
        let tcp = addresses.listen(config.number(Opt::TcpBacklog) as i32)?;
        let path = config.text(Opt::UnixSocket);
        let unix = if path.is_empty() {
            None
        } else {
            let permissions = config.number(Opt::UnixSocketPerm) as u32;
            let socket = listen_unix(Path::new(&path), permissions);
            Some(socket.map_err(|e| format!("cannot listen on the Unix socket {path}: {e}"))?)
        };
        if tcp.is_empty() && unix.is_none() {
            return Err(
                "nothing to listen on: port and tls-port are 0 or no address could be bound, and unixsocket is not set"
                    .into(),
            );
        }
        Ok(Listeners { addresses, tcp, unix })
    }

    /// The sockets, and where they listen, for another process: names and values.
    pub fn lend(&self) -> (Vec<(&'static str, String)>, Vec<BorrowedFd<'_>>) {
        let is_tls = self.tcp.iter().map(|(_, wrap)| if *wrap == Wrap::Tls { "tls" } else { "tcp" });
        let kinds: Vec<&str> = is_tls.chain(self.unix.iter().map(|_| "unix")).collect();
        let path = self.unix.as_ref().map_or(String::new(), |unix| unix.path.display().to_string());
        let mut options = self.addresses.options(path).to_vec();
        options.push(("listeners", kinds.join(" ")));
        let tcp = self.tcp.iter().map(|(listener, _)| listener.as_fd());
        (options, tcp.chain(self.unix.iter().map(|unix| unix.listener.as_fd())).collect())
    }

    /// Takes over what another process has lent, each socket of a kind; the options must be its own.
    pub fn adopt<'k>(
        config: &Config,
        lent: &dyn Fn(&str) -> String,
        kinds: impl Iterator<Item = &'k str>,
        sockets: impl Iterator<Item = OwnedFd>,
    ) -> Result<Listeners, String> {
        let addresses = Addresses::of(config);
        let path = config.text(Opt::UnixSocket);
        for (name, own) in addresses.options(path.clone()) {
            if lent(name) != own {
                return Err(format!(
                    "option '{name}' is '{own}', and '{}' in the process that serves: where a server listens changes by CONFIG SET, or by \
                     a restart",
                    lent(name)
                ));
            }
        }
        let mut listeners = Listeners { addresses, tcp: Vec::new(), unix: None };
        for (kind, socket) in kinds.zip(sockets) {
            match kind {
                "tcp" => listeners.tcp.push((socket.into(), Wrap::Tcp)),
                "tls" => listeners.tcp.push((socket.into(), Wrap::Tls)),
                "unix" => {
                    let (listener, path) = (socket.into(), PathBuf::from(&path));
                    // Until it serves, it is not the one to remove it.
                    listeners.unix = Some(UnixSocket { listener, path, is_left: true });
                }
                kind => return Err(format!("sockets of the kind '{kind}' are not known")),
            }
        }
        Ok(listeners)
    }

    /// Listens no more.
    pub fn close(&mut self) {
        self.tcp.clear();
        self.unix = None;
    }

    /// Whether another process listens from now on, and this one leaves the Unix socket where it is.
    pub fn leave(&mut self, is_left: bool) {
        self.unix.iter_mut().for_each(|unix| unix.is_left = is_left);
    }

    /// Where the server can be reached, for the log.
    pub fn describe(&self) -> String {
        let tls_port = self.addresses.tls_port;
        let addresses = self.tcp.iter().filter_map(|(listener, _)| listener.local_addr().ok());
        let tcp =
            addresses.map(|addr| format!("{addr}{}", if addr.port() == tls_port { " (TLS)" } else { "" }));
        let unix = self.unix.iter().map(|socket| socket.path.display().to_string());
        tcp.chain(unix).collect::<Vec<_>>().join(", ")
    }

    /// Accepts clients until it is dropped.
    pub async fn accept(&mut self, server: &Server) -> io::Result<()> {
        let mut registered = register(&self.tcp)?;
        let mut requests = server.acceptor.begin();
        // While nobody accepted, another address may have been asked for.
        if let Err(what) = self.move_to(Addresses::of(&server.config), &mut registered, server) {
            log!(Warning, "{what}");
        }
        let unix_listener = self.unix.as_ref().map(UnixSocket::register).transpose()?;
        let mut next_worker = 0;
        std::future::poll_fn::<(), _>(|cx| {
            while let Poll::Ready(Some(answer)) = requests.poll_recv(cx) {
                let moved = self.move_to(Addresses::of(&server.config), &mut registered, server);
                // Who has asked waits for it.
                let _ = answer.send(moved);
            }
            poll_each(cx, &registered, &unix_listener, &mut |socket, from| {
                admit(server, &mut next_worker, socket, from, self.unix.as_ref());
            })
        })
        .await;
        Ok(())
    }

    /// Listens at other addresses, or, if that fails, goes on with those so far. They must be given up before: an address may be a
    /// part of another one.
    fn move_to(
        &mut self,
        wanted: Addresses,
        registered: &mut Registered,
        server: &Server,
    ) -> Result<(), String> {
        if wanted == self.addresses {
            return Ok(());
        }
        let backlog = server.config.number(Opt::TcpBacklog) as i32;
        registered.clear();
        self.tcp.clear();
        let mut listen = |addresses: &Addresses| {
            self.tcp = addresses.listen(backlog)?;
            *registered = register(&self.tcp).map_err(|e| e.to_string())?;
            Ok(())
        };
        match listen(&wanted) {
            Ok(()) => {
                self.addresses = wanted;
                Ok(())
            }
            Err(what) => {
                let back: Result<(), String> = listen(&self.addresses.clone());
                if let Err(what) = back {
                    log!(Warning, "cannot go back to where clients were accepted: {what}");
                }
                Err(what)
            }
        }
    }

    /// Gives each client to `take`, with whether it comes from another machine, until it is dropped.
    pub async fn accept_each(self, mut take: impl FnMut(Socket, bool)) -> io::Result<()> {
        let tcp = register(&self.tcp)?;
        let unix_listener = self.unix.as_ref().map(UnixSocket::register).transpose()?;
        std::future::poll_fn::<(), _>(|cx| {
            poll_each(cx, &tcp, &unix_listener, &mut |socket, from| {
                let is_remote = from.is_remote();
                if let Socket::Tcp(socket) | Socket::Tls(socket) = &socket {
                    tune(socket, 0);
                }
                take(socket, is_remote);
            })
        })
        .await;
        Ok(())
    }
}

/// Where a client is, and where it was accepted; `None`: at the Unix socket.
struct Peer(Option<(SocketAddr, String)>);

impl Peer {
    fn is_remote(&self) -> bool {
        self.0.as_ref().is_some_and(|(peer, _)| !peer.ip().to_canonical().is_loopback())
    }
}

/// Accepts all clients that wait.
fn poll_each(
    cx: &mut Context,
    tcp: &Registered,
    unix: &Option<tokio::net::UnixListener>,
    take: &mut dyn FnMut(Socket, Peer),
) -> Poll<()> {
    for (listener, wrap) in tcp {
        while let Poll::Ready(accepted) = listener.poll_accept(cx) {
            let Ok((stream, peer)) = accepted.inspect_err(report) else { return retry(cx) };
            let local = stream.local_addr().map_or_else(|_| String::new(), |addr| addr.to_string());
            if let Ok(stream) = stream.into_std() {
                take(wrap.wrap(stream), Peer(Some((peer, local))));
            }
        }
    }
    if let Some(listener) = unix {
        while let Poll::Ready(accepted) = listener.poll_accept(cx) {
            let Ok((stream, _)) = accepted.inspect_err(report) else { return retry(cx) };
            if let Ok(stream) = stream.into_std() {
                take(Socket::Unix(stream), Peer(None));
            }
        }
    }
    Poll::Pending
}

type Registered = Vec<(tokio::net::TcpListener, Wrap)>;

fn register(listeners: &[(TcpListener, Wrap)]) -> io::Result<Registered> {
    let register = |(listener, wrap): &(TcpListener, Wrap)| {
        Ok((tokio::net::TcpListener::from_std(listener.try_clone()?)?, *wrap))
    };
    listeners.iter().map(register).collect()
}

fn report(error: &io::Error) {
    log!(Warning, "cannot accept a client: {error}");
}

/// Polls again in a while.
fn retry(cx: &Context) -> Poll<()> {
    let waker = cx.waker().clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(ACCEPT_RETRY).await;
        waker.wake();
    });
    Poll::Pending
}

/// Gives a new connection to a worker, or refuses it.
fn admit(server: &Server, next_worker: &mut usize, socket: Socket, from: Peer, unix: Option<&UnixSocket>) {
    let is_remote = from.is_remote();
    let (addr, laddr) = from.0.map_or_else(
        || {
            let name = format!("{}:0", unix.expect("it came there").path.display());
            (name.clone(), name)
        },
        |(peer, local)| (peer.to_string(), local),
    );
    server.accepted.fetch_add(1, Relaxed);
    let config = &server.config;
    let refusal = if server.clients.count() as i64 >= config.number(Opt::MaxClients) {
        Some(TOO_MANY)
    } else if is_remote && config.is_on(Opt::ProtectedMode) && !server.acl.requires_auth() {
        Some(PROTECTED)
    } else {
        None
    };
    if let Some(text) = refusal {
        server.refused.fetch_add(1, Relaxed);
        return refuse(socket, text);
    }
    let (fd, is_unix) = match &socket {
        Socket::Tcp(socket) | Socket::Tls(socket) => {
            tune(socket, config.number(Opt::TcpKeepalive));
            (socket.as_raw_fd(), false)
        }
        Socket::Unix(socket) => (socket.as_raw_fd(), true),
    };
    let worker = *next_worker % server.workers.len();
    *next_worker = worker + 1;
    let client = std::sync::Arc::new(Client::new(server.clients.new_id(), addr, laddr, worker, fd, is_unix));
    server.clients.add(client.clone());
    server.send(worker, Message::Accept(socket, client));
}

/// Ends the connection of a new client, and tells it why.
pub fn refuse(socket: Socket, text: &[u8]) {
    // A new socket has room for it; if not, the client is told nothing.
    let _ = match socket {
        Socket::Tcp(mut socket) => socket.write_all(text),
        // It would not understand.
        Socket::Tls(_) => Ok(()),
        Socket::Unix(mut socket) => socket.write_all(text),
    };
}

/// Sends small replies at once, and finds out about dead peers.
fn tune(socket: &std::net::TcpStream, keepalive_s: i64) {
    // Failures here cost comfort only, and happen if the peer is gone already.
    let _ = socket.set_nodelay(true);
    if keepalive_s > 0 {
        let probe = Duration::from_secs(keepalive_s as u64);
        // As Redis: three probes within another such time.
        let keepalive =
            TcpKeepalive::new().with_time(probe).with_interval((probe / 3).max(Duration::from_secs(1)));
        let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive.with_retries(3));
    }
}

fn parse_address(option: Opt, name: &str) -> Result<IpAddr, String> {
    match name {
        "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => name
            .parse()
            .map_err(|_| format!("option '{}': '{name}' is not an IP address", option.spec().name)),
    }
}

/// Whether this machine does not have the address, or the family.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
        || matches!(
            Errno::from_io_error(error),
            Some(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::PFNOSUPPORT)
        )
}

/// Listens on a port of all addresses, `bind`, that an option has; on none if the port is 0.
pub fn listen_on_port(option: Opt, bind: &str, port: u16, backlog: i32) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    for name in bind.split_whitespace() {
        let (optional, name) = match name.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let address = SocketAddr::new(parse_address(option, name)?, port);
        match listen(address, backlog) {
            Ok(listener) => listeners.push(listener),
            Err(e) if optional && is_missing(&e) => {}
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                return Err(format!("cannot listen on {address}: the port is in use by another process"));
            }
            Err(e) => return Err(format!("cannot listen on {address}: {e}")),
        }
    }
    Ok(listeners)
}

fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // IPv4 has sockets of its own.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn listen_unix(path: &Path, permissions: u32) -> io::Result<UnixSocket> {
    // A socket that nobody listens on is left over from a server that was killed. All else that is there is somebody's.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_left = |e: io::Error| e.kind() == ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(is_left) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    if permissions != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(permissions))?;
    }
    Ok(UnixSocket { listener, path: path.to_owned(), is_left: false })
}
