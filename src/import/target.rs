//! The server that takes the data, as its client: commands are sent without waiting for their replies, up to a limit, and a
//! thread looks at each reply.

use super::{
    secure::Secure,
    source::{Place, Stopped},
};
use crate::transport::blocking::{BlockingSocket, connect_tcp};
use holdfast_resp::{Reply, write_command};
use std::{
    fmt,
    io::{self, BufWriter, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Commands whose replies may be awaited at the same time.
const WINDOW: usize = 10_000;
/// Bytes that are sent at once, unless a command is longer.
const BUFFER: usize = 64 << 10;
/// Bytes of a key or a reply that an error shows.
const SHOWN: usize = 200;
/// How long a server may be silent. A large value takes its time.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// The same by TLS.
    Tls(String, u16, Box<Secure>),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The same by TLS; a Unix socket needs none.
    pub fn secured(self, secure: Secure) -> Address {
        match self {
            Address::Tcp(host, port) => Address::Tls(host, port, Box::new(secure)),
            address => address,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// `HOST:PORT`, or a path, in which there is a `/`.
    fn from_str(text: &str) -> Result<Address, String> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() => {
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                Ok(Address::Tcp(host.to_owned(), port))
            }
            _ => Err(format!("'{text}' is neither HOST:PORT nor the path of a Unix socket")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) | Address::Tls(host, port, _) if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Address::Tcp(host, port) | Address::Tls(host, port, _) => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Who connects.
#[derive(Clone, Default)]
pub struct Login {
    /// The user; the default user if there is none.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
}

impl Address {
    /// Connects to a server that may be silent for so long.
    pub fn connect(&self, patience: Duration) -> io::Result<Connection> {
        let socket = match self {
            Address::Tcp(host, port) => BlockingSocket::Tcp(connect_tcp(host, *port, None, patience)?),
            Address::Tls(host, port, secure) => {
                secure.open(host, connect_tcp(host, *port, None, patience)?, patience)?
            }
            Address::Unix(path) => BlockingSocket::Unix(UnixStream::connect(path)?),
        };
        socket.set_patience(patience, patience)?;
        Ok(Connection::over(socket))
    }
}

/// Replies as they arrive.
struct Replies {
    socket: BlockingSocket,
    input: Vec<u8>,
    /// Where the next one begins.
    next: usize,
}

impl Replies {
    fn read(&mut self) -> io::Result<Reply> {
        loop {
            let parsed = Reply::parse(&self.input[self.next..]);
            if let Some((reply, len)) = parsed.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))? {
                self.next += len;
                return Ok(reply);
            }
            self.input.drain(..self.next);
            self.next = 0;
            let start = self.input.len();
            self.input.resize(start + BUFFER, 0);
            let read = self.socket.read(&mut self.input[start..]);
            self.input.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A connection.
pub struct Connection {
    replies: Replies,
}

impl Connection {
    /// One over a socket that is connected.
    pub fn over(socket: BlockingSocket) -> Connection {
        Connection { replies: Replies { socket, input: Vec::new(), next: 0 } }
    }

    /// How long each read and each write may wait from now on.
    ///
    /// # Errors
    /// It is zero.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.replies.socket.set_patience(patience, patience)
    }

    /// Sends a command and waits for the reply; one that is an error is an error.
    pub fn call(&mut self, args: &[&[u8]]) -> io::Result<Reply> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.replies.socket.write_all(&request)?;
        match self.replies.read()? {
            Reply::Error(text) => Err(io::Error::other(String::from_utf8_lossy(&text).into_owned())),
            reply => Ok(reply),
        }
    }

    /// Sends commands, each of which has a [`Connection::reply`].
    pub fn ask(&mut self, requests: &[u8]) -> io::Result<()> {
        self.replies.socket.write_all(requests)
    }

    /// The reply to the next of the commands that were sent, also if it is an error.
    pub fn reply(&mut self) -> io::Result<Reply> {
        self.replies.read()
    }

    /// Sends so many commands at once and waits for all replies. The first one that is an error is the error.
    pub fn send(&mut self, request: &[u8], commands: usize) -> io::Result<()> {
        self.replies.socket.write_all(request)?;
        let mut refused = Ok(());
        for _ in 0..commands {
            if let (Reply::Error(text), Ok(())) = (self.replies.read()?, &refused) {
                refused = Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        refused
    }

    /// Says who it is.
    pub fn log_in(mut self, login: &Login) -> io::Result<Connection> {
        match (&login.user, &login.password) {
            (Some(user), Some(password)) => {
                drop(self.call(&[b"AUTH", user.as_bytes(), password.as_bytes()])?)
            }
            (None, Some(password)) => drop(self.call(&[b"AUTH", password.as_bytes()])?),
            (Some(user), None) => drop(self.call(&[b"AUTH", user.as_bytes(), b""])?),
            (None, None) => {}
        }
        Ok(self)
    }

    /// Whether there is no key in any database.
    pub fn is_empty(&mut self) -> io::Result<bool> {
        let info = self.call(&[b"INFO", b"keyspace"])?;
        let text = info.as_bytes().unwrap_or_default();
        Ok(!text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"db")))
    }

    /// Has the server end in order.
    pub fn shut_down(mut self) -> io::Result<()> {
        match self.call(&[b"SHUTDOWN"]) {
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// From now on sends commands without waiting, until `failed` is set, which it sets itself if anything fails.
    pub fn pipeline(self, failed: Arc<AtomicBool>) -> io::Result<Pipeline> {
        let socket = self.replies.socket.try_clone()?;
        let (expected, inbox) = sync_channel(WINDOW);
        let (replies, seen) = (self.replies, failed.clone());
        let check = move || check(replies, &inbox, &seen);
        let checker = thread::Builder::new().name("replies".into()).spawn(check)?;
        let socket = BufWriter::with_capacity(BUFFER, socket);
        Ok(Pipeline { socket, expected, checker, failed, request: Vec::new() })
    }
}

/// What a reply must be.
pub struct Expected {
    /// What was sent, for the error.
    pub what: What,
    /// The reply.
    pub reply: Outcome,
}

/// What was sent.
pub enum What {
    /// Something of a key.
    Key {
        /// Its name.
        name: Vec<u8>,
        /// Whether all of it was sent then.
        is_last: bool,
    },
    /// The command at this place.
    Command(Place),
    /// Anything else.
    Other(&'static str),
}

/// A reply that is as it must be.
pub enum Outcome {
    /// OK.
    Ok,
    /// This number.
    Number(i64),
    /// Anything but an error.
    Any,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Key { name, .. } => {
                let more = if name.len() > SHOWN { "..." } else { "" };
                write!(f, "the key \"{}\"{more}", name[..name.len().min(SHOWN)].escape_ascii())
            }
            What::Command(place) => write!(f, "the command {place}"),
            What::Other(what) => f.write_str(what),
        }
    }
}

/// What has become of that which was sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Why no more was taken, if so.
    pub failure: Option<String>,
    /// Keys that have arrived, with all of their values.
    pub keys: u64,
    /// Whether some replies never came, so that more may have arrived.
    pub is_unknown: bool,
}

/// Looks at the replies to all that is sent. Once one is not as expected, `failed` is set, so that no more is sent; likewise if the
/// connection fails, which is shut then.
fn check(mut replies: Replies, inbox: &Receiver<Expected>, failed: &AtomicBool) -> Sent {
    let mut sent = Sent::default();
    while let Ok(Expected { what, reply: expected }) = inbox.recv() {
        let reply = match replies.read() {
            Ok(reply) => reply,
            Err(error) => {
                failed.store(true, Relaxed);
                replies.socket.shut_down();
                sent.failure.get_or_insert(error.to_string());
                sent.is_unknown = true;
                return sent;
            }
        };
        match compare(&reply, &what, &expected) {
            Ok(()) => sent.keys += u64::from(matches!(what, What::Key { is_last: true, .. })),
            Err(failure) => {
                sent.failure.get_or_insert(failure);
                failed.store(true, Relaxed);
            }
        }
    }
    sent
}

/// Whether a reply is as expected; the error says why not.
fn compare(reply: &Reply, what: &What, expected: &Outcome) -> Result<(), String> {
    match (error_in(reply), expected) {
        (Some(text), _) => Err(format!("{what} is refused: {text}")),
        (None, Outcome::Any) => Ok(()),
        (None, Outcome::Ok) if *reply == Reply::Simple(b"OK".to_vec()) => Ok(()),
        (None, Outcome::Ok) if *reply == Reply::Null => Err(format!("{what} is there already")),
        (None, Outcome::Number(number)) if *reply == Reply::Int(*number) => Ok(()),
        (None, Outcome::Number(_)) => Err(format!("{what} has an element twice, or was there already")),
        (None, Outcome::Ok) => Err(format!("{what}: an unexpected reply, {reply:?}")),
    }
}

/// The error that a reply is, or has in it.
fn error_in(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Error(text) => Some(String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned()),
        Reply::Array(replies) | Reply::Set(replies) => replies.iter().find_map(error_in),
        _ => None,
    }
}

/// A connection on which commands are sent without waiting, until something fails.
pub struct Pipeline {
    socket: BufWriter<BlockingSocket>,
    expected: SyncSender<Expected>,
    checker: JoinHandle<Sent>,
    failed: Arc<AtomicBool>,
    request: Vec<u8>,
}

impl Pipeline {
    /// Sends a command.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A], what: What, reply: Outcome) -> Result<(), Stopped> {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        write_command(&mut request, args);
        let sent = self.send_bytes(&request, what, reply);
        if request.capacity() <= 4 * BUFFER {
            self.request = request;
        }
        sent
    }

    /// Sends a command that is written already.
    pub fn send_bytes(&mut self, bytes: &[u8], what: What, reply: Outcome) -> Result<(), Stopped> {
        if self.failed.load(Relaxed) {
            return Err(Stopped);
        }
        if let Err(full) = self.expected.try_send(Expected { what, reply }) {
            // What its replies are awaited of must have been sent.
            self.socket.flush().map_err(|_| Stopped)?;
            let (TrySendError::Full(expected) | TrySendError::Disconnected(expected)) = full;
            self.expected.send(expected).map_err(|_| Stopped)?;
        }
        self.socket.write_all(bytes).map_err(|_| Stopped)
    }

    /// Waits for all replies.
    pub fn finish(mut self) -> Sent {
        let flushed = self.socket.flush();
        drop(self.expected);
        let mut sent = self.checker.join().expect("a panic ends the process");
        // Dropping it would flush once more, in vain.
        drop(self.socket.into_parts());
        if let Err(error) = flushed {
            sent.failure.get_or_insert(error.to_string());
        }
        sent
    }
}
