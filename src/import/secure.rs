//! TLS of a client. A thread passes bytes between a socket within the process and the server, so that all else is as without TLS.

use std::{
    fs,
    io::{self, ErrorKind},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tokio::{io::copy_bidirectional, runtime::Builder};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
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
    pub fn open(&self, host: &str, socket: TcpStream, patience: Duration) -> io::Result<UnixStream> {
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
        let connector = TlsConnector::from(Arc::new(self.config()?));
        let (ours, theirs) = UnixStream::pair()?;
        let (sender, shaken) = mpsc::channel();
        socket.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_io().build()?;
        thread::Builder::new().name("tls".into()).spawn(move || {
            runtime.block_on(async {
                let open = async {
                    let socket = tokio::net::TcpStream::from_std(socket)?;
                    Ok((tokio::net::UnixStream::from_std(theirs)?, connector.connect(name, socket).await?))
                };
                let opened: io::Result<_> = open.await;
                let (opened, result) = match opened {
                    Ok(opened) => (Some(opened), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                // Both ends are seen by those who read and write there.
                let _ = sender.send(result);
                if let Some((mut inside, mut server)) = opened {
                    let _ = copy_bidirectional(&mut inside, &mut server).await;
                }
            });
        })?;
        let silent = |_| io::Error::new(ErrorKind::TimedOut, "the server does not answer as one of TLS does");
        shaken.recv_timeout(patience).map_err(silent)??;
        Ok(ours)
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
