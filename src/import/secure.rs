//! TLS of a client.

use crate::transport::blocking::{BlockingSocket, open_tls};
use std::{
    fs,
    io::{self, ErrorKind},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// Where the certificates of authorities lie on common systems.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// How a connection is made safe: names of files, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secure {
    /// Certificates of those who may sign the server's; those of the system if there is none.
    pub ca_file: Option<PathBuf>,
    /// The client's certificates.
    pub cert_file: Option<PathBuf>,
    /// The client's key.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must have, if it is not its host's.
    pub name: Option<String>,
}

impl Secure {
    /// Shakes hands with the server at the other end of `socket`, which may be silent for so long. What is written to the socket that this
    /// returns gets there.
    pub fn open(&self, host: &str, socket: TcpStream, patience: Duration) -> io::Result<BlockingSocket> {
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
        open_tls(Arc::new(self.config()?).into(), name, socket, patience)
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let file = self
            .ca_file
            .as_deref()
            .or_else(|| AUTHORITIES.map(Path::new).into_iter().find(|path| path.exists()));
        let file = file.ok_or_else(|| {
            io::Error::new(
                ErrorKind::NotFound,
                "there are no certificates of authorities: name a file by --cacert",
            )
        })?;
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|e| wrong(file, e))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| wrong(cert, e))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err(io::Error::new(ErrorKind::InvalidInput, "--cert and --key go together")),
        }
    }
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(file).map_err(|e| wrong(file, e))?;
    CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|e| wrong(file, e))
}

fn wrong(file: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", file.display()))
}
