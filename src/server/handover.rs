//! Connections on their way to the process that takes over from this one: what a connection is, as bytes and a socket.
//!
//! The two processes may be of different versions, so what is sent are names and values, as a command of RESP: a name that is not known
//! is refused, and a value that is missing is the default.

use crate::transport::stream::Socket;
use holdfast_resp::{Limits, Parser, write_command};
use std::{
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// A connection between two commands.
#[derive(Debug, Default, PartialEq)]
pub struct Connected {
    /// Its number.
    pub id: u64,
    /// The peer, as CLIENT LIST shows it.
    pub addr: String,
    /// The server's end.
    pub laddr: String,
    /// Whether the socket is a Unix socket.
    pub is_unix: bool,
    /// Its user; `None`: it has not said who it is, and must.
    pub user: Option<Vec<u8>>,
    /// Chosen by SELECT.
    pub db: usize,
    /// Whether it has chosen RESP3.
    pub is_resp3: bool,
    /// CLIENT REPLY: see [`crate::session::Replies`].
    pub replies: u8,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO.
    pub lib_name: Vec<u8>,
    /// The same.
    pub lib_ver: Vec<u8>,
    /// CLIENT NO-EVICT and NO-TOUCH: bits of [`crate::clients::client::flag`].
    pub flags: u16,
    /// Commands that bring about the rest of its state, whose replies it has had.
    pub setup: Vec<u8>,
    /// MULTI has met an error, so that EXEC must refuse.
    pub is_aborted: bool,
    /// It watches keys: EXEC must find them changed, since nobody has looked meanwhile.
    pub has_watched: bool,
    /// For how long the first command of the input may still wait.
    pub waits: Option<Duration>,
    /// What was read and not executed.
    pub input: Vec<u8>,
    /// What is to be sent to it.
    pub output: Vec<u8>,
    /// Whether it is closed then.
    pub is_closing: bool,
}

impl Connected {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let number = |number: u128| number.to_string().into_bytes();
        let flag = |is_set: bool| if is_set { b"1".to_vec() } else { Vec::new() };
        let waits = self.waits.map_or(Vec::new(), |waits| number(waits.as_micros()));
        let mut args = vec![b"client".to_vec()];
        for (name, value) in [
            ("id", number(self.id.into())),
            ("addr", self.addr.clone().into_bytes()),
            ("laddr", self.laddr.clone().into_bytes()),
            ("unix", flag(self.is_unix)),
            ("user", self.user.clone().unwrap_or_default()),
            ("anonymous", flag(self.user.is_none())),
            ("db", number(self.db as u128)),
            ("resp3", flag(self.is_resp3)),
            ("replies", number(self.replies.into())),
            ("name", self.name.clone()),
            ("lib-name", self.lib_name.clone()),
            ("lib-ver", self.lib_ver.clone()),
            ("flags", number(self.flags.into())),
            ("setup", self.setup.clone()),
            ("aborted", flag(self.is_aborted)),
            ("watched", flag(self.has_watched)),
            ("waits-us", waits),
            ("input", self.input.clone()),
            ("output", self.output.clone()),
            ("closing", flag(self.is_closing)),
        ] {
            if !value.is_empty() {
                args.extend([name.as_bytes().to_vec(), value]);
            }
        }
        let mut bytes = Vec::new();
        write_command(&mut bytes, &args);
        bytes
    }

    /// From bytes; the error says what is not understood.
    pub fn decode(bytes: &[u8]) -> Result<Connected, String> {
        let args = decode(bytes)?;
        let mut connected = Connected { user: Some(Vec::new()), ..Connected::default() };
        for pair in args.get(1..).unwrap_or_default().chunks(2) {
            let [name, value] = pair else { return Err("a name without a value".into()) };
            let (name, value) = (String::from_utf8_lossy(name), value.clone());
            let text = || String::from_utf8_lossy(&value).into_owned();
            let number = || text().parse::<u64>().map_err(|_| format!("{name} is no number: {}", text()));
            match &*name {
                "id" => connected.id = number()?,
                "addr" => connected.addr = text(),
                "laddr" => connected.laddr = text(),
                "unix" => connected.is_unix = true,
                "user" => connected.user = Some(value),
                "anonymous" => connected.user = None,
                "db" => connected.db = number()? as usize,
                "resp3" => connected.is_resp3 = true,
                "replies" => connected.replies = number()? as u8,
                "name" => connected.name = value,
                "lib-name" => connected.lib_name = value,
                "lib-ver" => connected.lib_ver = value,
                "flags" => connected.flags = number()? as u16,
                "setup" => connected.setup = value,
                "aborted" => connected.is_aborted = true,
                "watched" => connected.has_watched = true,
                "waits-us" => connected.waits = Some(Duration::from_micros(number()?)),
                "input" => connected.input = value,
                "output" => connected.output = value,
                "closing" => connected.is_closing = true,
                _ => return Err(format!("of a connection, '{name}' is not known")),
            }
        }
        Ok(connected)
    }

    /// The socket of the connection, from its descriptor.
    pub fn socket(&self, fd: OwnedFd) -> Socket {
        if self.is_unix { Socket::Unix(UnixStream::from(fd)) } else { Socket::Tcp(TcpStream::from(fd)) }
    }
}

/// The arguments of a command of RESP that is there as a whole.
pub fn decode(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (mut bytes, mut parser) = (bytes.to_vec(), Parser::new());
    let limits = Limits { max_bulk_len: i64::MAX, unauthenticated: false };
    match parser.parse(&mut bytes, &limits) {
        Ok(Some(length)) if length == bytes.len() => {
            Ok(parser.args(&bytes).iter().map(<[u8]>::to_vec).collect())
        }
        _ => Err("no message".into()),
    }
}

/// The descriptor of a plain socket; `None`: the state of TLS stays with its process.
pub fn descriptor(socket: &Socket) -> Option<BorrowedFd<'_>> {
    match socket {
        Socket::Tcp(socket) => Some(socket.as_fd()),
        Socket::Unix(socket) => Some(socket.as_fd()),
        Socket::Tls(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_arrives() {
        let user = Some(b"somebody".to_vec());
        let full = Connected {
            id: u64::MAX,
            addr: "127.0.0.1:1234".into(),
            laddr: "127.0.0.1:6379".into(),
            is_unix: true,
            user: user.clone(),
            db: 15,
            is_resp3: true,
            replies: 3,
            name: b"name".to_vec(),
            lib_name: b"lib".to_vec(),
            lib_ver: b"1.0".to_vec(),
            flags: 1 << 6,
            setup: b"*1\r\n$5\r\nMULTI\r\n".to_vec(),
            is_aborted: true,
            has_watched: true,
            waits: Some(Duration::from_micros(1_234_567)),
            input: vec![0, 13, 10, 255],
            output: vec![7; 100_000],
            is_closing: true,
        };
        for connected in [full, Connected { user, ..Connected::default() }, Connected::default()] {
            let bytes = connected.encode();
            assert_eq!(Connected::decode(&bytes), Ok(connected));
            assert!(Connected::decode(&bytes[..bytes.len() - 1]).is_err());
        }
        let mut other = Vec::new();
        write_command(&mut other, &["client", "shoe-size", "44"]);
        assert!(Connected::decode(&other).unwrap_err().contains("'shoe-size' is not known"));
    }
}
