//! A client that sends what it is told to, and reads replies.

use super::PATIENCE;
use holdfast_resp::{Reply, write_command};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    time::Duration,
};

/// A connection.
pub struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// Where the first reply that was not returned begins in `input`.
    head: usize,
}

impl Client {
    /// Connects to a Unix socket.
    pub fn connect(path: &str) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, input: Vec::new(), head: 0 })
    }

    /// Sends a command, words separated by spaces, and returns the reply.
    pub fn call(&mut self, command: &str) -> Reply {
        self.try_call(command).expect("the server answers")
    }

    /// Sends a command and returns the reply.
    pub fn call_args<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_call_args(args).expect("the server answers")
    }

    /// Sends a command, words separated by spaces, and returns the reply, or `None` if the server closes the connection.
    pub fn try_call(&mut self, command: &str) -> Option<Reply> {
        self.try_call_args(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends a command and returns the reply, or `None` if the server closes the connection.
    pub fn try_call_args<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Option<Reply> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.try_send(&request).ok()?;
        self.try_reply()
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    /// Sends bytes, unless the server closes the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("the connection is open")
    }

    /// The next reply, or `None` if the server closes the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, length)) = Reply::parse(&self.input[self.head..]).expect("a valid reply") {
                self.head += length;
                return Some(reply);
            }
            self.input.drain(..self.head);
            self.head = 0;
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return None;
                }
                Err(e) => panic!("no reply: {e}"),
            }
        }
    }

    /// Whether the server has nothing to say for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
        let mut chunk = [0; 1];
        let said = self.stream.read(&mut chunk);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        // The first byte of a reply, or none if the connection is closed.
        self.input.extend(chunk.iter().take(*said.as_ref().unwrap_or(&0)));
        said.is_err()
    }

    /// Closes the sending half.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("it is open");
    }

    /// A field of INFO.
    pub fn info(&mut self, field: &str) -> String {
        let info = text(&self.call("info everything"));
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO has no {field}")).to_owned()
    }
}

/// `+OK`.
pub fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A bulk string.
pub fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(text.as_ref().to_vec())
}

/// An array.
pub fn array(items: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(items.into_iter().collect())
}

/// An array of bulk strings.
pub fn bulks<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Reply {
    array(items.into_iter().map(bulk))
}

/// What is inside an array.
pub fn items(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// An error.
pub fn error(text: &str) -> Reply {
    Reply::Error(text.as_bytes().to_vec())
}

/// Whether a reply is an error whose text begins so.
pub fn is_error(reply: &Reply, start: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(start.as_bytes()))
}

/// The port at which keys are, as MOVED and ASK say it.
pub fn redirected_to(why: &str) -> Option<u16> {
    why.rsplit(':').next()?.parse().ok()
}

/// The text of a bulk string or verbatim string.
pub fn text(reply: &Reply) -> String {
    String::from_utf8(reply.as_bytes().expect("a text").to_vec()).expect("UTF-8")
}

/// The number that a reply is, or that a string begins with.
pub fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Int(n) => u64::try_from(*n).ok(),
        reply => {
            let text = std::str::from_utf8(reply.as_bytes()?).ok()?;
            text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        }
    }
}
