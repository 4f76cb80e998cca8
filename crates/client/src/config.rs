//! What a client is told at the start.

use crate::{error::Error, transport::Network};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port. A name is looked up at each attempt to connect, which may take its time; a number is not.
    Tcp {
        /// Name or number of the host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `HOST:PORT`, `[IPv6]:PORT`, or the path of a Unix socket, which has a `/`.
    pub fn parse(text: &str) -> Result<Address, Error> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let invalid = Error::Invalid("an address is HOST:PORT, or the path of a Unix socket");
        let Some((host, port)) = text.rsplit_once(':') else { return Err(invalid) };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match (bare.unwrap_or(host), port.parse()) {
            ("", _) | (_, Err(_)) => Err(invalid),
            (host, Ok(port)) => Ok(Address::Tcp { host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The certificates of those who may have signed the server's, as a PEM file.
    pub ca_file: PathBuf,
    /// The client's own certificate and key, as PEM files, if the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it is another one than the host's.
    pub server_name: Option<String>,
}

impl Tls {
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let failed = |what: &PathBuf, e: &dyn fmt::Display| Error::Setup(format!("{}: {e}", what.display()));
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(&self.ca_file);
        for certificate in certificates.map_err(|e| failed(&self.ca_file, &e))? {
            let certificate = certificate.map_err(|e| failed(&self.ca_file, &e))?;
            roots.add(certificate).map_err(|e| failed(&self.ca_file, &e))?;
        }
        if roots.is_empty() {
            return Err(failed(&self.ca_file, &"it has no certificate"));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::Setup(e.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| failed(certificate, &e))?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|e| failed(key, &e))?;
        builder.with_client_auth_cert(chain, key_der).map_err(|e| failed(certificate, &e))
    }
}

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
    /// The password.
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
    /// Bytes of one reply, where each element counts for 64 beside its own bytes: 1 GiB.
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
        match (self.protocol, self.password.as_deref()) {
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
    fn addresses_are_read_strictly() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.into(), port });
        assert_eq!(Address::parse("localhost:6379"), tcp("localhost", 6379));
        assert_eq!(Address::parse("[::1]:1"), tcp("::1", 1));
        assert_eq!(Address::parse("/tmp/s"), Ok(Address::Unix("/tmp/s".into())));
        for text in ["", "host", ":1", "host:", "host:65536", "host:-1"] {
            assert!(matches!(Address::parse(text), Err(Error::Invalid(_))), "{text}");
        }
        for text in ["localhost:6379", "[::1]:1", "/tmp/s"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

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
        (config.user, config.password) = (None, None);
        assert_eq!(said(&config), (String::new(), 0));
    }
}
