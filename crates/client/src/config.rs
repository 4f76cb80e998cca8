//! What a client is told at the start.

use crate::{
    address::{Address, Tls},
    error::Error,
    transport::Network,
};
use std::time::Duration;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The older one, for servers that know no HELLO.
    Resp2,
    /// The newer one, with types of its own for maps, sets, numbers and so on.
    Resp3,
}

/// What a client is told at the start.
pub struct Config {
    /// The servers. Keys are spread over them by hash slot, in equal ranges, until a server says otherwise.
    pub servers: Vec<Address>,
    /// The protocol: RESP3.
    pub protocol: Protocol,
    /// The user's name; the default user's if there is only a password.
    pub user: Option<String>,
    /// The password; empty if there is only a user.
    pub password: Option<String>,
    /// The connections' name, as CLIENT LIST shows it.
    pub name: Option<String>,
    /// The database: 0.
    pub database: u32,
    /// TLS, for addresses that are no Unix socket.
    pub tls: Option<Tls>,
    /// Requests that are in flight or whose results were not taken: 65,536.
    pub requests_max: usize,
    /// Bytes of requests in flight and of results that were not taken: 1 GiB. A single request may be larger if
    /// there is no other.
    pub bytes_max: usize,
    /// Bytes of one reply, where each element counts for 64 beside its own bytes: 1 GiB. A larger one is
    /// [`crate::Error::TooLarge`].
    pub reply_bytes_max: usize,
    /// How long a request may take, from when it was handed over: 30 s.
    pub request_timeout: Option<Duration>,
    /// How long a connection may take to be made, until it is tried again: 5 s.
    pub connect_timeout: Duration,
    /// Times that a request is sent again, after lost connections and redirections together: 5.
    pub resends_max: u32,
    /// Whether a thread of the client's own makes progress. If not, progress is made in calls only.
    pub thread: bool,
    /// What carries the bytes; sockets if there is none.
    pub network: Option<Box<dyn Network>>,
}

impl Config {
    /// For servers at these addresses (see [`Address::parse`]).
    pub fn new<A: AsRef<str>>(servers: impl IntoIterator<Item = A>) -> Result<Config, Error> {
        let servers = servers.into_iter().map(|text| Address::parse(text.as_ref()));
        Ok(Config {
            servers: servers.collect::<Result<_, _>>()?,
            protocol: Protocol::Resp3,
            user: None,
            password: None,
            name: None,
            database: 0,
            tls: None,
            requests_max: 65_536,
            bytes_max: 1 << 30,
            reply_bytes_max: 1 << 30,
            request_timeout: Some(Duration::from_secs(30)),
            connect_timeout: Duration::from_secs(5),
            resends_max: 5,
            thread: false,
            network: None,
        })
    }

    /// What is said on each new connection, and for how many replies.
    pub(crate) fn greeting(&self) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut replies = 0;
        let mut say = |args: &[&str]| {
            holdfast_resp::write_command(&mut out, args);
            replies += 1;
        };
        let user = self.user.as_deref().unwrap_or("default");
        // A user without a password (nopass) may give any.
        let password = self.password.as_deref().or(self.user.as_ref().map(|_| ""));
        match (self.protocol, password) {
            (Protocol::Resp3, Some(password)) => say(&["HELLO", "3", "AUTH", user, password]),
            (Protocol::Resp3, None) => say(&["HELLO", "3"]),
            (Protocol::Resp2, Some(password)) if self.user.is_none() => say(&["AUTH", password]),
            (Protocol::Resp2, Some(password)) => say(&["AUTH", user, password]),
            (Protocol::Resp2, None) => {}
        }
        if let Some(name) = &self.name {
            say(&["CLIENT", "SETNAME", name]);
        }
        if self.database != 0 {
            say(&["SELECT", &self.database.to_string()]);
        }
        (out, replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_says_what_the_connection_needs() {
        let mut config = Config::new(["h:1"]).unwrap();
        let said = |config: &Config| {
            let (out, replies) = config.greeting();
            (
                String::from_utf8(out)
                    .unwrap()
                    .split("\r\n")
                    .filter(|l| !l.starts_with(['$', '*']))
                    .collect::<Vec<_>>()
                    .join(" "),
                replies,
            )
        };
        assert_eq!(said(&config), ("HELLO 3 ".into(), 1));
        config.password = Some("p".into());
        config.name = Some("n".into());
        config.database = 2;
        assert_eq!(said(&config), ("HELLO 3 AUTH default p CLIENT SETNAME n SELECT 2 ".into(), 3));
        config.protocol = Protocol::Resp2;
        (config.name, config.database) = (None, 0);
        assert_eq!(said(&config), ("AUTH p ".into(), 1));
        config.user = Some("u".into());
        assert_eq!(said(&config), ("AUTH u p ".into(), 1));
        config.password = None;
        assert_eq!(said(&config), ("AUTH u  ".into(), 1));
        config.protocol = Protocol::Resp3;
        assert_eq!(said(&config), ("HELLO 3 AUTH u  ".into(), 1));
        (config.protocol, config.user) = (Protocol::Resp2, None);
        assert_eq!(said(&config), (String::new(), 0));
    }
}
