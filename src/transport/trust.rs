//! How servers that belong together make sure of each other, before one of them sends anything: by certificates, if they speak TLS, and by
//! a password that all of them know, the option `masterauth`.
//!
//! Neither tells the other one the password. Each draws a nonce, and proves by HMAC-SHA256 (RFC 2104) over both nonces that it knows
//! it:
//!
//! | from | bytes | what |
//! |---|---|---|
//! | who connects | 8 | the preface, which says what the connection is for |
//! | | 32 | its nonce |
//! | who accepts | 32 | its nonce |
//! | | 32 | its proof |
//! | who connects | 32 | its proof |
//!
//! Without a password both know the empty one. Certificates are to be signed by an authority of `tls-ca-cert-file` or `tls-ca-cert-dir`, at both
//! ends; which name they have does not matter, as with Redis.

use super::{
    blocking::{BlockingSocket, connect_tcp, open_tls, socket_to},
    tls,
};
use crate::config::{Config, Opt};
use hmac::{Hmac, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    sync::{Arc, RwLock},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream, lookup_host},
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        CertificateError, DigitallySignedStruct, Error, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};

/// A connection to a server that is one of ours.
pub trait Link: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Link for T {}

/// What a server knows of the others.
pub struct Trust {
    /// The option that says whether they speak TLS.
    is_tls: Opt,
    means: RwLock<Arc<Means>>,
}

/// The current options. Connections keep those that they began with.
#[derive(Default)]
struct Means {
    password: String,
    tls: Option<(TlsAcceptor, TlsConnector)>,
    /// From where others are connected to, if that is said.
    source: Option<IpAddr>,
}

/// At which end of a connection a server is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Connects,
    Accepts,
}

type Bytes32 = [u8; 32];

impl Trust {
    /// With TLS if the option `is_tls` says so. Nothing is known before it is [configured](Trust::configure).
    pub fn new(is_tls: Opt) -> Trust {
        Trust { is_tls, means: RwLock::default() }
    }

    /// Goes by the options as they are now.
    ///
    /// # Errors
    /// A certificate or a key cannot be used; all is as it was.
    pub fn configure(&self, config: &Config) -> Result<(), String> {
        let tls = config.is_on(self.is_tls).then(|| {
            let (acceptor, connector) = tls::configure_peers(config, |inner| Arc::new(AnyName(inner)))?;
            Ok::<_, String>((Arc::new(acceptor).into(), Arc::new(connector).into()))
        });
        let source = config.text(Opt::BindSourceAddr).parse().ok();
        let means = Means { password: config.text(Opt::MasterAuth), tls: tls.transpose()?, source };
        *self.means.write().expect("no holder panics") = Arc::new(means);
        Ok(())
    }

    /// Whether nobody who reaches the port is turned away.
    pub fn is_open(&self) -> bool {
        let means = self.means();
        means.password.is_empty() && means.tls.is_none()
    }

    fn means(&self) -> Arc<Means> {
        self.means.read().expect("no holder panics").clone()
    }

    /// Makes sure of who has connected.
    ///
    /// # Errors
    /// It is none of ours, or wants something else than `preface` says.
    pub async fn accept(&self, preface: &[u8; 8], stream: TcpStream) -> io::Result<Box<dyn Link>> {
        let means = self.means();
        let mut stream: Box<dyn Link> = match &means.tls {
            None => Box::new(stream),
            Some((acceptor, _)) => Box::new(acceptor.accept(stream).await?),
        };
        let (mut wanted, mut theirs) = ([0; 8], Bytes32::default());
        stream.read_exact(&mut wanted).await?;
        if wanted != *preface {
            return Err(refused(
                "it is none of those who belong together, or speaks TLS, and this one does not",
            ));
        }
        stream.read_exact(&mut theirs).await?;
        let ours = nonce();
        let proof = |end| means.proof(end, preface, &theirs, &ours);
        stream.write_all(&[ours, proof(End::Accepts).finalize().into_bytes().into()].concat()).await?;
        stream.flush().await?;
        let mut known = Bytes32::default();
        stream.read_exact(&mut known).await?;
        proof(End::Connects).verify_slice(&known).map_err(|_| refused(ANOTHER_PASSWORD))?;
        Ok(stream)
    }

    /// Connects to a server's port for clients, and makes sure of whom it was that took the connection, who may be silent for so long: by the
    /// certificate only, if they speak TLS.
    ///
    /// # Errors
    /// It does not answer, does not speak TLS, or is none of ours.
    pub fn open(&self, host: &str, port: u16, patience: Duration) -> io::Result<BlockingSocket> {
        let means = self.means();
        let socket = connect_tcp(host, port, means.source, patience)?;
        match &means.tls {
            None => Ok(BlockingSocket::Tcp(socket)),
            Some((_, connector)) => {
                let name = ServerName::from(socket.peer_addr()?.ip());
                open_tls(connector.clone(), name, socket, patience)
            }
        }
    }

    /// Connects to the first address of a host that answers.
    ///
    /// # Errors
    /// None does.
    pub async fn reach(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let source = self.means().source;
        let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((host, port)).await? {
            let connect = async {
                let socket = socket_to(address, source)?;
                socket.set_nonblocking(true)?;
                socket.set_tcp_nodelay(true)?;
                TcpSocket::from_std_stream(socket.into()).connect(address).await
            };
            match connect.await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Whether they speak TLS.
    pub fn is_tls(&self) -> bool {
        self.means().tls.is_some()
    }

    /// Makes sure of whom it was that took a connection.
    ///
    /// # Errors
    /// It is none of ours.
    pub async fn connect(&self, preface: &[u8; 8], stream: TcpStream) -> io::Result<Box<dyn Link>> {
        let means = self.means();
        let mut stream: Box<dyn Link> = match &means.tls {
            None => Box::new(stream),
            Some((_, connector)) => {
                let name = ServerName::from(stream.peer_addr()?.ip());
                Box::new(connector.connect(name, stream).await?)
            }
        };
        let ours = nonce();
        stream.write_all(&[&preface[..], &ours].concat()).await?;
        stream.flush().await?;
        let (mut theirs, mut known) = (Bytes32::default(), Bytes32::default());
        stream.read_exact(&mut theirs).await?;
        stream.read_exact(&mut known).await?;
        let proof = |end| means.proof(end, preface, &ours, &theirs);
        proof(End::Accepts).verify_slice(&known).map_err(|_| refused(ANOTHER_PASSWORD))?;
        stream.write_all(&proof(End::Connects).finalize().into_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    }
}

const ANOTHER_PASSWORD: &str =
    "it has another password (masterauth), or speaks TLS, and only one of the two does";

impl Means {
    fn proof(&self, end: End, preface: &[u8; 8], connects: &Bytes32, accepts: &Bytes32) -> Hmac<Sha256> {
        let key = self.password.as_bytes();
        let mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("a key may have any length");
        mac.chain_update([end as u8]).chain_update(preface).chain_update(connects).chain_update(accepts)
    }
}

fn nonce() -> Bytes32 {
    let mut nonce = Bytes32::default();
    getrandom(&mut nonce, GetRandomFlags::empty()).expect("Linux has getrandom since 3.17");
    nonce
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Takes a certificate that one of our authorities has signed, whatever name it has.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer,
        intermediates: &[CertificateDer],
        name: &ServerName,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // It is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::runtime;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use std::{fs, future::poll_fn, path::Path, pin::pin, time::Instant};
    use tempfile::TempDir;
    use tokio::{net::TcpListener, time::timeout};
    use tokio_rustls::rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, pem::PemObject},
    };

    const PREFACE: &[u8; 8] = b"testing\n";
    /// How long an end that has gone on is waited for in vain.
    const SILENCE: Duration = Duration::from_secs(5);

    /// Certificates of a server, and of who has signed them.
    fn certificates() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["server".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "server");
        let certificate = params.signed_by(&key, &authority).unwrap();
        let files =
            [("ca.crt", authority.pem()), ("own.crt", certificate.pem()), ("own.key", key.serialize_pem())];
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    fn config(password: &str, folder: Option<&Path>) -> Config {
        let config = Config::default();
        let set = |opt, word: &str| config.set(opt, &[word]).unwrap();
        set(Opt::MasterAuth, password);
        if let Some(folder) = folder {
            set(Opt::TlsReplication, "yes");
            let files =
                [(Opt::TlsCertFile, "own.crt"), (Opt::TlsKeyFile, "own.key"), (Opt::TlsCaCertFile, "ca.crt")];
            files.iter().for_each(|&(opt, name)| set(opt, folder.join(name).to_str().unwrap()));
        }
        config
    }

    fn trust(password: &str, folder: Option<&Path>) -> Trust {
        let trust = Trust::new(Opt::TlsReplication);
        trust.configure(&config(password, folder)).unwrap();
        trust
    }

    /// Connects two ends, and has each do its part. What comes of the first is told.
    fn meet<T>(
        judge: impl AsyncFnOnce(TcpStream) -> io::Result<T>,
        other: impl AsyncFnOnce(TcpStream) -> io::Result<()>,
        judge_accepts: bool,
    ) -> io::Result<T> {
        runtime::local().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connected = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let (judges, others) = if judge_accepts { (accepted, connected) } else { (connected, accepted) };
            let (mut judge, mut other) = (pin!(judge(judges)), pin!(other(others)));
            let mut is_over = false;
            let both = poll_fn(|cx| {
                // What comes of it is the other end's to say.
                is_over = is_over || other.as_mut().poll(cx).is_ready();
                judge.as_mut().poll(cx)
            });
            timeout(SILENCE, both).await.expect("it judges")
        })
    }

    #[test]
    fn ends_that_know_the_same_meet_and_others_do_not() {
        let (one, two) = (certificates(), certificates());
        let known = [("", None), ("a", None), ("b", None), ("a", Some(one.path())), ("a", Some(two.path()))];
        for accepting in known {
            for connecting in known {
                let (accepts, connects) =
                    (trust(accepting.0, accepting.1), trust(connecting.0, connecting.1));
                let accepted = meet(
                    async |stream| accepts.accept(PREFACE, stream).await.map(drop),
                    async |stream| connects.connect(PREFACE, stream).await.map(drop),
                    true,
                );
                assert_eq!(accepted.is_ok(), accepting == connecting, "{accepted:?}");
            }
        }
    }

    /// One that judges by itself: the other end takes whatever it gets.
    #[test]
    fn each_end_judges_by_itself() {
        let accepts = trust("a", None);
        let lenient = async |mut stream: TcpStream| {
            stream.write_all(&[&PREFACE[..], &[1; 32]].concat()).await?;
            let mut said = [0; 64];
            stream.read_exact(&mut said).await?;
            stream.write_all(&said[32..]).await
        };
        let began = Instant::now();
        let accepted = meet(async |stream| accepts.accept(PREFACE, stream).await.map(drop), lenient, true);
        assert_eq!(accepted.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let connects = trust("a", None);
        let lenient = async |mut stream: TcpStream| {
            let mut said = [0; 40];
            stream.read_exact(&mut said).await?;
            stream.write_all(&[[2; 32], [3; 32]].concat()).await
        };
        let connected =
            meet(async |stream| connects.connect(PREFACE, stream).await.map(drop), lenient, false);
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(began.elapsed() < SILENCE);
    }

    /// Another purpose is refused before anything is told.
    #[test]
    fn who_wants_something_else_is_told_nothing() {
        let (accepts, connects) = (trust("a", None), trust("a", None));
        let accepted = meet(
            async |stream| accepts.accept(b"another\n", stream).await.map(drop),
            async |stream| connects.connect(PREFACE, stream).await.map(drop),
            true,
        );
        assert_eq!(accepted.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_certificate_is_asked_for_at_either_end() {
        let (own, stranger) = (certificates(), certificates());
        // Shows none.
        let nobody = || {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(own.path().join("ca.crt")).unwrap()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        };
        let accepts = trust("a", Some(own.path()));
        let knows = trust("a", None);
        let accepted = meet(
            async |stream| accepts.accept(PREFACE, stream).await.map(drop),
            async |stream| {
                let name = ServerName::try_from("server").unwrap();
                let mut stream = nobody().connect(name, stream).await?;
                // It does know the password.
                let ours = [1; 32];
                stream.write_all(&[&PREFACE[..], &ours].concat()).await?;
                let mut theirs = Bytes32::default();
                stream.read_exact(&mut theirs).await?;
                let proof = knows.means().proof(End::Connects, PREFACE, &ours, &theirs);
                stream.write_all(&proof.finalize().into_bytes()).await
            },
            true,
        );
        accepted.expect_err("it has shown no certificate");
        // Shows one of somebody else's, and asks for none.
        let connects = trust("a", Some(own.path()));
        let connected = meet(
            async |stream| connects.connect(PREFACE, stream).await.map(drop),
            async |stream| {
                let chain = vec![CertificateDer::from_pem_file(stranger.path().join("own.crt")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(stranger.path().join("own.key")).unwrap();
                let provider = Arc::new(ring::default_provider());
                let builder =
                    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
                let server = builder.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
                let mut stream = TlsAcceptor::from(Arc::new(server)).accept(stream).await?;
                let mut said = [0; 40];
                stream.read_exact(&mut said).await?;
                let ours = [2; 32];
                let theirs = said[8..].try_into().unwrap();
                let proof = knows.means().proof(End::Accepts, PREFACE, &theirs, &ours);
                stream.write_all(&[ours, proof.finalize().into_bytes().into()].concat()).await
            },
            false,
        );
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
