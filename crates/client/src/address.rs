//! Where a server is, and how TLS is spoken with it.

use crate::error::Error;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{fmt, path::PathBuf, sync::Arc};

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
}
