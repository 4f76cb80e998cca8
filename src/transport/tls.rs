//! TLS: its configuration from the options, and the handshake.
//!
//! The configuration is made anew when one of its options changes; connections keep the one that they began with.

use crate::{
    admin::log::log,
    config::{Config, Opt},
};
use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use std::{
    fs, io,
    path::Path,
    sync::{Arc, RwLock},
    time::Duration,
};
use tokio::{net::TcpStream, time};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite,
        SupportedProtocolVersion,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier},
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};

/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The current configuration; none without a `tls-port`.
#[derive(Default)]
pub struct Tls(RwLock<Option<Arc<ServerConfig>>>);

impl Tls {
    /// Makes a new configuration for connections from now on. An error, which is logged, leaves the old one.
    pub fn configure(&self, config: &Config) -> Result<(), String> {
        let new = match config.number(Opt::TlsPort) {
            0 => None,
            _ => Some(Arc::new(configure(config).inspect_err(|e| log!(Warning, "TLS: {e}"))?)),
        };
        *self.0.write().expect("no holder panics") = new;
        Ok(())
    }
}

/// Shakes hands with the client at the other end of `stream`.
pub async fn accept(tls: &Tls, stream: TcpStream) -> io::Result<Box<TlsStream<TcpStream>>> {
    let config = tls.0.read().expect("no holder panics").clone();
    let config = config.ok_or_else(|| io::Error::other("TLS is not configured"))?;
    let handshake = TlsAcceptor::from(config).accept(stream);
    match time::timeout(HANDSHAKE_MAX, handshake).await {
        Ok(accepted) => accepted.map(Box::new),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")),
    }
}

fn configure(config: &Config) -> Result<ServerConfig, String> {
    let mut tls = configure_server(config, &config.choice(Opt::TlsAuthClients))?;
    tls.ignore_client_order = config.is_on(Opt::TlsPreferServerCiphers);
    tls.session_storage = match config.number(Opt::TlsSessionCacheSize) {
        size if size > 0 && config.is_on(Opt::TlsSessionCaching) => {
            ServerSessionMemoryCache::new(size as usize)
        }
        _ => Arc::new(NoServerSessionStorage {}),
    };
    Ok(tls)
}

/// For other servers, with whom each end shows a certificate: as who accepts, and as who connects. `verifier` makes who verifies
/// the certificates of those who accept.
pub fn configure_peers(
    config: &Config,
    verifier: impl FnOnce(Arc<WebPkiServerVerifier>) -> Arc<dyn ServerCertVerifier>,
) -> Result<(ServerConfig, ClientConfig), String> {
    let acceptor = configure_server(config, "yes")?;
    let provider = provider(config)?;
    let inner = WebPkiServerVerifier::builder_with_provider(authorities(config)?, provider.clone());
    let inner = inner.build().map_err(|e| e.to_string())?;
    let own = (Opt::TlsCertFile, Opt::TlsKeyFile, Opt::TlsKeyFilePass);
    let (chain, key) = match config.text(Opt::TlsClientCertFile).is_empty() {
        true => identity(config, own)?,
        false => {
            identity(config, (Opt::TlsClientCertFile, Opt::TlsClientKeyFile, Opt::TlsClientKeyFilePass))?
        }
    };
    let connector = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols(&config.text(Opt::TlsProtocols))?)
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier(inner))
        .with_client_auth_cert(chain, key)
        .map_err(|e| format!("certificate and key: {e}"))?;
    Ok((acceptor, connector))
}

/// For those who connect, who must show a certificate, or may, or need not: `yes`, `optional` or `no`.
fn configure_server(config: &Config, clients: &str) -> Result<ServerConfig, String> {
    let (chain, key) = identity(config, (Opt::TlsCertFile, Opt::TlsKeyFile, Opt::TlsKeyFilePass))?;
    let provider = provider(config)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&protocols(&config.text(Opt::TlsProtocols))?)
        .map_err(|e| e.to_string())?;
    let builder = if clients == "no" {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities(config)?, provider);
        let verifier = if clients == "optional" { verifier.allow_unauthenticated() } else { verifier };
        builder.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
    };
    builder.with_single_cert(chain, key).map_err(|e| format!("certificate and key: {e}"))
}

fn provider(config: &Config) -> Result<Arc<CryptoProvider>, String> {
    let cipher_suites = cipher_suites(&config.text(Opt::TlsCiphers), &config.text(Opt::TlsCiphersuites))?;
    Ok(Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() }))
}

/// What the files of these options hold: certificates, their key, and its passphrase.
fn identity(config: &Config, (cert, key, pass): (Opt, Opt, Opt)) -> Result<Identity, String> {
    let chain = certificates(&config.text(cert), cert.spec().name)?;
    let file = config.text(key);
    let name = key.spec().name;
    let key = private_key(&file, &config.text(pass));
    Ok((chain, key.map_err(|e| format!("cannot read the key of '{name}' {file}: {e}"))?))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The key in a file, by its passphrase if it has one.
fn private_key(file: &str, passphrase: &str) -> Result<PrivateKeyDer<'static>, String> {
    const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    let bytes = fs::read(file).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(
            "it is encrypted in the format of old; make a new file: openssl pkcs8 -topk8 -in FILE -out NEW"
                .into(),
        );
    }
    let place = text.find(BEGIN).and_then(|from| Some(from..from + text[from..].find(END)? + END.len()));
    let Some(place) = place else {
        return PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| e.to_string());
    };
    if passphrase.is_empty() {
        return Err("it is encrypted, and 'tls-key-file-pass' is empty".into());
    }
    let (_, encrypted) = SecretDocument::from_pem(&text[place]).map_err(|e| e.to_string())?;
    let key = EncryptedPrivateKeyInfo::try_from(encrypted.as_bytes()).and_then(|key| key.decrypt(passphrase));
    let key = key.map_err(|e| format!("the passphrase of 'tls-key-file-pass' does not open it ({e})"))?;
    Ok(PrivateKeyDer::Pkcs8(key.as_bytes().to_vec().into()))
}

fn certificates(file: &str, option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |what: String| format!("cannot read the certificates of '{option}' {file}: {what}");
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|e| failed(e.to_string()));
    all.and_then(|all| if all.is_empty() { Err(failed("there are none".into())) } else { Ok(all) })
}

/// Those who may sign the certificates of others.
fn authorities(config: &Config) -> Result<Arc<RootCertStore>, String> {
    let (file, folder) = (config.text(Opt::TlsCaCertFile), config.text(Opt::TlsCaCertDir));
    if file.is_empty() && folder.is_empty() {
        return Err("either 'tls-ca-cert-file' or 'tls-ca-cert-dir' must be specified unless 'tls-auth-clients' is no".into());
    }
    let mut roots = RootCertStore::empty();
    let mut add = |file: &str, option: &str| {
        for certificate in certificates(file, option)? {
            roots.add(certificate).map_err(|e| format!("a certificate of '{option}' {file}: {e}"))?;
        }
        Ok::<_, String>(())
    };
    if !file.is_empty() {
        add(&file, "tls-ca-cert-file")?;
    }
    if !folder.is_empty() {
        let entries = fs::read_dir(Path::new(&folder))
            .map_err(|e| format!("cannot read the folder of 'tls-ca-cert-dir' {folder}: {e}"))?;
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            // Other things may lie there as well.
            if let Err(e) = add(&entry.path().to_string_lossy(), "tls-ca-cert-dir") {
                log!(Verbose, "TLS: {e}");
            }
        }
    }
    Ok(Arc::new(roots))
}

fn protocols(names: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for name in names.split_whitespace() {
        versions.push(match name.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &TLS12,
            "tlsv1.3" => &TLS13,
            "tlsv1" | "tlsv1.1" => {
                return Err(format!("'tls-protocols': {name} is not secure and not supported"));
            }
            _ => {
                return Err(format!(
                    "'tls-protocols': '{name}' is no protocol; there are TLSv1.2 and TLSv1.3"
                ));
            }
        });
    }
    Ok(if versions.is_empty() { vec![&TLS12, &TLS13] } else { versions })
}

/// OpenSSL's names of the cipher suites of TLS 1.2.
const TLS12_NAMES: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
/// Those of TLS 1.3.
const TLS13_NAMES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// The suites that the options name, in their order; all where nothing is said.
fn cipher_suites(tls12: &str, tls13: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut suites = chosen(tls13, TLS13_NAMES, "tls-ciphersuites")?;
    suites.extend(chosen(tls12, TLS12_NAMES, "tls-ciphers")?);
    Ok(suites)
}

fn chosen(
    list: &str,
    names: &[(&str, CipherSuite)],
    option: &str,
) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut wanted = Vec::new();
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        if matches!(name, "DEFAULT" | "ALL" | "HIGH") {
            wanted.extend(names.iter().map(|(_, suite)| *suite));
        } else if let Some((_, suite)) = names.iter().find(|(known, _)| *known == name) {
            wanted.push(*suite);
        } else if !name.starts_with(['!', '-', '@']) {
            // What is excluded is weak, and not there anyway.
            let known: Vec<&str> = names.iter().map(|(known, _)| *known).collect();
            return Err(format!("'{option}': there is no {name}; there are {}", known.join(", ")));
        }
    }
    if wanted.is_empty() {
        wanted.extend(names.iter().map(|(_, suite)| *suite));
    }
    let all = ring::default_provider().cipher_suites;
    let mut suites: Vec<SupportedCipherSuite> = Vec::new();
    for suite in wanted.iter().filter_map(|wanted| all.iter().find(|suite| suite.suite() == *wanted)) {
        if !suites.contains(suite) {
            suites.push(*suite);
        }
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_openssl_names() {
        assert_eq!(cipher_suites("", "").unwrap().len(), 9);
        assert_eq!(cipher_suites("DEFAULT:!MEDIUM", "TLS_AES_256_GCM_SHA384").unwrap().len(), 7);
        let two = "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305";
        let suites = chosen(two, TLS12_NAMES, "tls-ciphers").unwrap();
        assert_eq!(suites.len(), 2);
        assert_eq!(suites[0].suite(), CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256);
        assert!(chosen("RC4-SHA", TLS12_NAMES, "tls-ciphers").is_err());
    }

    #[test]
    fn a_handshake_that_stalls_is_given_up() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], key.into());
        let tls = Tls(RwLock::new(Some(Arc::new(config.unwrap()))));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let start = time::Instant::now();
            let error = accept(&tls, stream).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() >= HANDSHAKE_MAX);
        });
    }

    #[test]
    fn protocols_by_name() {
        assert_eq!(protocols("").unwrap().len(), 2);
        assert_eq!(protocols("TLSv1.3").unwrap(), [&TLS13]);
        assert!(protocols("TLSv1.2 TLSv1.1").is_err() && protocols("SSLv3").is_err());
    }
}
