//! Sending values to another server, as a client of it. All of this may wait and is for a thread of its own.

use holdfast_resp::{Reply, write_command};
use holdfast_store::Error;
use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Bytes of a reply at most: it is a line.
const REPLY_MAX: usize = 64 << 10;

/// How far a MIGRATE has come.
pub struct Migration {
    /// What was sent, by the index of its key among the arguments: the value and when it expires. Without a value, the
    /// key was to be removed there.
    pub sent: Vec<(usize, Option<Sent>)>,
    /// How often it was sent.
    pub rounds: u32,
    /// For each of them whether the other server did it, and what went wrong.
    pub done: Vec<bool>,
    /// What went wrong with all of it.
    pub failure: Option<Failure>,
}

/// What was sent of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Sent {
    /// The value, serialized.
    pub payload: Vec<u8>,
    /// When it expires, in Unix milliseconds.
    pub expires: Option<u64>,
}

/// Another server.
pub struct Target {
    host: String,
    port: u16,
    timeout: Duration,
}

impl Target {
    /// A server by the arguments of MIGRATE. A port that is none leads nowhere.
    pub fn new(host: &[u8], port: &[u8], timeout: Duration) -> Target {
        let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
        Target { host: String::from_utf8_lossy(host).into_owned(), port, timeout }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        for address in (&self.host[..], self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(self.timeout))?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// What went wrong.
pub enum Failure {
    /// Nothing was sent.
    Here(Error),
    /// There is no connection.
    Connect,
    /// It broke, or the time was over, before all was sent.
    Write,
    /// It broke, or the time was over, before all replies had come.
    Read,
    /// The other server replied with this error, the first one if there were more.
    Refused(Vec<u8>),
}

/// Commands for another server.
pub struct Request {
    bytes: Vec<u8>,
    /// For each command whether it is about a key; the others make sure that it means what it should.
    commands: Vec<bool>,
    /// Whether the other server may not own the keys' slot yet.
    asks: bool,
}

impl Request {
    /// Says who one is, and selects a database. From one node of a cluster to another it `asks`.
    pub fn new(user: Option<&[u8]>, password: Option<&[u8]>, db: i64, asks: bool) -> Request {
        let mut request = Request { bytes: Vec::new(), commands: Vec::new(), asks };
        match (user, password) {
            (Some(user), Some(password)) => request.push(&[b"AUTH", user, password], false),
            (None, Some(password)) => request.push(&[b"AUTH", password], false),
            _ => {}
        }
        request.push(&[b"SELECT", db.to_string().as_bytes()], false);
        request
    }

    /// A key with its value; `ttl` in milliseconds, 0: without an expiry.
    pub fn restore(&mut self, key: &[u8], ttl: u64, payload: &[u8], replace: bool) {
        let ttl = ttl.to_string();
        let name: &[u8] = if self.asks { b"RESTORE-ASKING" } else { b"RESTORE" };
        let args: [&[u8]; 5] = [name, key, ttl.as_bytes(), payload, b"REPLACE"];
        self.push(&args[..4 + usize::from(replace)], true);
    }

    /// A key that is to be gone.
    pub fn delete(&mut self, key: &[u8]) {
        if self.asks {
            self.push(&[b"ASKING"], false);
        }
        self.push(&[b"DEL", key], true);
    }

    fn push(&mut self, args: &[&[u8]], is_about_key: bool) {
        write_command(&mut self.bytes, args);
        self.commands.push(is_about_key);
    }

    /// Sends all: for each command about a key whether it was done, and what went wrong.
    pub fn send(&self, target: &Target) -> (Vec<bool>, Option<Failure>) {
        let mut done = Vec::new();
        let Ok(mut stream) = target.connect() else { return (done, Some(Failure::Connect)) };
        if stream.write_all(&self.bytes).is_err() {
            return (done, Some(Failure::Write));
        }
        let (mut input, mut failure) = (Vec::new(), None);
        let mut may_go_on = true;
        for is_about_key in &self.commands {
            let Ok(reply) = read_reply(&mut stream, &mut input) else {
                return (done, failure.or(Some(Failure::Read)));
            };
            let refused = match reply {
                Reply::Error(why) => Some(Failure::Refused(why)),
                _ => None,
            };
            if *is_about_key {
                // In another database, or as another user, it was not what was meant.
                done.push(refused.is_none() && may_go_on);
            } else {
                may_go_on &= refused.is_none();
            }
            failure = failure.or(refused);
        }
        (done, failure)
    }
}

fn read_reply(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<Reply> {
    loop {
        if let Some((reply, len)) = Reply::parse(input).map_err(io::Error::other)? {
            input.drain(..len);
            return Ok(reply);
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => input.extend_from_slice(&chunk[..read]),
        }
        if input.len() > REPLY_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
