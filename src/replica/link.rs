//! The connection to the primary: greeting, resuming, and reading with an eye on orders.

use super::backlog::Backlog;
use crate::{
    config::Opt,
    server::{
        Server,
        replication::{Order, Primary},
    },
    transport::{blocking::BlockingSocket, trust::Trust},
};
use holdfast_resp::write_command;
use std::{
    io::{self, ErrorKind, Read, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// How often a reader that gets nothing looks up.
const TICK: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Bytes of a line at most.
const LINE_MAX: usize = 64 << 10;

/// The sending side, which several threads use.
pub type Sender = Arc<Mutex<BlockingSocket>>;

/// A connection to the primary.
pub struct Link {
    server: Arc<Server>,
    order: Order,
    socket: BlockingSocket,
    sender: Sender,
    /// What has arrived and is not used.
    pub input: Vec<u8>,
    /// What has arrived behind that, if it is kept elsewhere.
    backlog: Option<Backlog>,
    heard: Instant,
    patience: Duration,
}

/// Where the primary goes on.
pub enum Resumed {
    /// Behind the position that it was asked for; in another history that is the same so far, if it names one.
    Continued(Option<String>),
    /// With a copy of its data.
    Anew {
        /// The history of its data.
        id: String,
        /// How much of that is in the copy.
        offset: u64,
    },
}

impl Link {
    /// Connects, and says who asks.
    ///
    /// # Errors
    /// The primary does not answer, or refuses.
    pub fn open(server: &Arc<Server>, order: &Order, primary: &Primary) -> io::Result<Link> {
        let config = &server.config;
        let patience = Duration::from_secs(config.number(Opt::ReplTimeout) as u64);
        let trust = Trust::new(Opt::TlsReplication);
        trust.configure(config).map_err(io::Error::other)?;
        let socket = trust.open(&primary.host, primary.port, patience)?;
        socket.set_patience(TICK, patience)?;
        let sender = Arc::new(Mutex::new(socket.try_clone()?));
        let (server, order, heard) = (server.clone(), order.clone(), Instant::now());
        let mut link =
            Link { server, order, socket, sender, input: Vec::new(), backlog: None, heard, patience };
        link.greet()?;
        Ok(link)
    }

    /// What is sent by several threads.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    fn greet(&mut self) -> io::Result<()> {
        let server = self.server.clone();
        let config = &server.config;
        let (user, password) = (config.text(Opt::MasterUser), config.text(Opt::MasterAuth));
        if !password.is_empty() {
            let login = [&b"AUTH"[..], user.as_bytes(), password.as_bytes()];
            let login = login.iter().filter(|arg| !arg.is_empty()).copied().collect::<Vec<_>>();
            self.call(&login)?;
        }
        self.call(&[b"PING"])?;
        let announced = match config.number(Opt::ReplicaAnnouncePort) {
            0 => config.number(Opt::Port),
            port => port,
        };
        self.call(&[b"REPLCONF", b"listening-port", announced.to_string().as_bytes()])?;
        let address = config.text(Opt::ReplicaAnnounceIp);
        if !address.is_empty() {
            self.call(&[b"REPLCONF", b"ip-address", address.as_bytes()])?;
        }
        self.call(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        Ok(())
    }

    /// Asks the primary to go on behind a position, a history and an offset, or, without one, with a copy.
    ///
    /// # Errors
    /// The primary cannot, or what it says is not understood.
    pub fn resume(&mut self, position: Option<(String, u64)>) -> io::Result<Resumed> {
        let (id, next) =
            position.map_or_else(|| ("?".into(), "-1".into()), |(id, at)| (id, (at + 1).to_string()));
        let reply = self.call(&[b"PSYNC", id.as_bytes(), next.as_bytes()])?;
        let words: Vec<&str> = reply.split(' ').collect();
        match words[..] {
            ["CONTINUE"] => Ok(Resumed::Continued(None)),
            ["CONTINUE", id] => Ok(Resumed::Continued(Some(id.to_owned()))),
            ["FULLRESYNC", id, offset] if id.len() == 40 => {
                let offset = offset.parse().map_err(|_| unknown(&reply))?;
                Ok(Resumed::Anew { id: id.to_owned(), offset })
            }
            _ => Err(unknown(&reply)),
        }
    }

    /// Sends a command; its reply is a line. One that is an error is an error.
    fn call(&mut self, args: &[&[u8]]) -> io::Result<String> {
        self.send(args)?;
        let line = self.line()?;
        let name = String::from_utf8_lossy(args[0]);
        match line.split_at_checked(1) {
            Some(("+", reply)) => Ok(reply.to_owned()),
            Some(("-", error)) => Err(io::Error::other(format!("{name} is refused: {error}"))),
            _ => Err(unknown(&line)),
        }
    }

    /// Sends a command whose reply, if there is one, is not waited for.
    pub fn send(&mut self, args: &[&[u8]]) -> io::Result<()> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.send_bytes(&request)
    }

    /// Sends bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sender.lock().expect("no holder panics").write_all(bytes)
    }

    /// The next line that is not empty: empty ones say that the primary is alive.
    pub fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                let line = line.trim_ascii_end();
                if !line.is_empty() {
                    return Ok(String::from_utf8_lossy(line).into_owned());
                }
            } else if self.input.len() > LINE_MAX {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the primary sends a line that is too long",
                ));
            } else {
                while self.read()? == 0 {}
            }
        }
    }

    /// Reads more; how much, 0 if nothing has come for a short while.
    ///
    /// # Errors
    /// The primary has closed the connection or been silent for too long, or another one is to be followed.
    pub fn read(&mut self) -> io::Result<usize> {
        if !self.server.replication.holds(&self.order) {
            return Err(io::Error::new(ErrorKind::Interrupted, "it is to follow another one"));
        }
        let start = self.input.len();
        self.input.resize(start + CHUNK, 0);
        let read = match &mut self.backlog {
            Some(backlog) => match backlog.read(&mut self.input[start..]) {
                Ok(0) => {
                    self.backlog = None;
                    // The time until now was not the primary's.
                    self.heard = Instant::now();
                    self.socket.read(&mut self.input[start..])
                }
                read => read,
            },
            None => self.socket.read(&mut self.input[start..]),
        };
        self.input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the primary has closed the connection")),
            Ok(len) => {
                self.heard = Instant::now();
                Ok(len)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                if self.heard.elapsed() > self.patience {
                    return Err(io::Error::new(ErrorKind::TimedOut, "the primary is silent"));
                }
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps what arrives from now on in a file in the data folder, until it is read.
    ///
    /// # Errors
    /// That is not possible.
    pub fn keep_backlog(&mut self) -> io::Result<()> {
        let socket = self.socket.try_clone()?;
        self.backlog = Some(Backlog::begin(socket, &self.server.replication.dir())?);
        Ok(())
    }
}

fn unknown(reply: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the primary says what is not understood: {reply}"))
}
