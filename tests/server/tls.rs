//! TLS: who gets in with which certificates, how certificates are exchanged, and that all bytes arrive.

use crate::{
    certificates::{Authority, certificates},
    harness::{self, Folder, PATIENCE, Server, free_port, ok, text, wait_until},
};
use holdfast_resp::{Reply, write_command};
use std::{
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    process::Command,
    sync::Arc,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};

/// A server that listens for TLS only, beside the socket of the tests; and its port.
fn start(folder: Folder, options: &[&str]) -> (Server, u16) {
    let port = free_port();
    let path = |name| folder.join(name);
    let (port_text, cert, key, ca) =
        (port.to_string(), path("server.crt"), path("server.key"), path("ca.crt"));
    let mut all = vec!["--bind", "127.0.0.1", "--tls-port", &port_text];
    all.extend(["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca]);
    all.extend(options);
    (Server::start_in(folder, &all), port)
}

/// A client that speaks TLS.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
}

impl Client {
    /// With the client's certificate in `folder`, or none.
    fn connect(
        port: u16,
        folder: &Folder,
        has_certificate: bool,
        version: &'static SupportedProtocolVersion,
    ) -> io::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        let config = if has_certificate {
            let chain = vec![CertificateDer::from_pem_file(folder.join("client.crt")).unwrap()];
            builder.with_client_auth_cert(
                chain,
                PrivateKeyDer::from_pem_file(folder.join("client.key")).unwrap(),
            )
        } else {
            Ok(builder.with_no_client_auth())
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config.unwrap()), name).unwrap();
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream: StreamOwned::new(connection, socket), input: Vec::new() })
    }

    fn try_call(&mut self, args: &[&[u8]]) -> io::Result<Reply> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.stream.write_all(&request)?;
        self.stream.flush()?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, length)) = Reply::parse(&self.input).expect("a valid reply") {
                self.input.drain(..length);
                return Ok(reply);
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.input.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// The bytes of the server's certificate.
    fn server_certificate(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

fn ping(client: io::Result<Client>) -> bool {
    let pong = Reply::Simple(b"PONG".to_vec());
    client.and_then(|mut client| client.try_call(&[b"PING"])).is_ok_and(|reply| reply == pong)
}

#[test]
fn certificates_of_clients_are_demanded_as_the_option_says() {
    let (folder, _authority) = certificates();
    let (server, port) = start(folder, &[]);
    let folder = server.folder();
    let connect = |has_certificate| Client::connect(port, folder, has_certificate, &TLS13);
    let mut admin = server.client();
    assert_eq!(admin.info("tcp_port"), port.to_string());
    assert_eq!(admin.info("listener0"), format!("name=tls,bind=127.0.0.1,port={port}"));
    assert!(admin.info("listener1").starts_with("name=unix,bind=/"));
    for (option, without) in [("yes", false), ("optional", true), ("no", true)] {
        assert_eq!(admin.call(&format!("config set tls-auth-clients {option}")), ok());
        assert!(ping(connect(true)), "{option}");
        assert_eq!(ping(connect(false)), without, "{option}");
    }
    // A certificate that somebody else has signed.
    assert_eq!(admin.call("config set tls-auth-clients optional"), ok());
    Authority::new().sign(folder, "client", "client");
    assert!(!ping(connect(true)));
}

#[test]
fn all_bytes_arrive_by_either_version() {
    let (folder, _authority) = certificates();
    let (server, port) = start(folder, &["--tls-auth-clients", "no"]);
    for version in [&TLS12, &TLS13] {
        let mut client = Client::connect(port, server.folder(), false, version).unwrap();
        let value: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(7919) >> 8) as u8).collect();
        assert_eq!(client.try_call(&[b"SET", b"key", &value]).unwrap(), ok());
        client.stream.write_all(&b"GET key\r\n".repeat(8)).unwrap();
        for _ in 0..8 {
            assert!(client.reply().unwrap() == Reply::Bulk(value.clone()));
        }
        assert_eq!(client.try_call(&[b"QUIT"]).unwrap(), ok());
        // The server says goodbye; without it this would be an error.
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(server.client().call("config set tls-protocols TLSv1.3"), ok());
    assert!(!ping(Client::connect(port, server.folder(), false, &TLS12)));
    assert!(ping(Client::connect(port, server.folder(), false, &TLS13)));
}

#[test]
fn certificates_are_exchanged_while_the_server_runs() {
    let (folder, authority) = certificates();
    let (server, port) = start(folder, &["--tls-auth-clients", "no"]);
    let folder = server.folder();
    let connect = || {
        let mut client = Client::connect(port, folder, false, &TLS13).unwrap();
        assert_eq!(client.try_call(&[b"ECHO", b"a"]).unwrap(), Reply::Bulk(b"a".to_vec()));
        client
    };
    let mut old = connect();
    authority.sign(folder, "server2", "localhost");
    let mut admin = server.client();
    let (cert, key) = (folder.join("server2.crt"), folder.join("server2.key"));
    // A certificate whose key is another one is refused, and so is none.
    for wrong in [&cert, "/nonexistent"] {
        let reply = admin.call(&format!("config set tls-cert-file {wrong}"));
        assert!(harness::is_error(
            &reply,
            "ERR CONFIG SET failed (possibly related to argument 'tls-cert-file')"
        ));
        assert_eq!(connect().server_certificate(), old.server_certificate());
    }
    assert_eq!(admin.call(&format!("config set tls-cert-file {cert} tls-key-file {key}")), ok());
    assert_ne!(connect().server_certificate(), old.server_certificate());
    assert_eq!(old.try_call(&[b"ECHO", b"b"]).unwrap(), Reply::Bulk(b"b".to_vec()));
}

/// As a program that renews certificates does: new files in the place of the old ones.
#[test]
fn a_hang_up_loads_certificates_again() {
    let (folder, authority) = certificates();
    let (server, port) = start(folder, &["--tls-auth-clients", "no"]);
    let folder = server.folder();
    let certificate = || {
        let mut client = Client::connect(port, folder, false, &TLS13).unwrap();
        assert_eq!(client.try_call(&[b"ECHO", b"a"]).unwrap(), Reply::Bulk(b"a".to_vec()));
        client.server_certificate()
    };
    let old = certificate();
    authority.sign(folder, "server", "localhost");
    assert_eq!(certificate(), old);
    server.signal("HUP");
    wait_until(|| server.log(), || certificate() != old);

    let new = certificate();
    fs::write(folder.join("server.crt"), "no certificate").unwrap();
    server.signal("HUP");
    let told = "TLS: the certificates that were loaded before stay in use";
    wait_until(|| server.log(), || server.log().contains(told));
    assert!(server.log().contains("'tls-cert-file' "), "{}", server.log());
    assert_eq!(certificate(), new);
}

#[test]
fn what_is_no_tls_is_disconnected() {
    let (folder, _authority) = certificates();
    let (server, port) = start(folder, &[]);
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    // An alert may come before the end.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+"));
    wait_until(|| server.log(), || server.log().contains("Error accepting a client connection"));
    assert!(ping(Client::connect(port, server.folder(), true, &TLS13)));
}

#[test]
fn what_is_wrong_with_the_options_is_named() {
    let (folder, _authority) = certificates();
    let (cert, key) = (folder.join("server.crt"), folder.join("server.key"));
    let encrypted = encrypt(&folder, "encrypted.key", &[]);
    for (options, message) in [
        (&["--tls-cert-file", &cert][..], "option 'tls-port': cannot read the key of 'tls-key-file'"),
        (&["--tls-cert-file", &key, "--tls-key-file", &key], "there are none"),
        (
            &["--tls-cert-file", &cert, "--tls-key-file", &key],
            "either 'tls-ca-cert-file' or 'tls-ca-cert-dir' must be",
        ),
        (
            &[
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
                "--tls-auth-clients",
                "no",
                "--tls-ciphers",
                "RC4",
            ],
            "'tls-ciphers': there is no RC4; there are ECDHE-ECDSA-AES128-GCM-SHA256, ",
        ),
        (
            &["--tls-cert-file", &cert, "--tls-key-file", &encrypted, "--tls-auth-clients", "no"],
            "it is encrypted, and 'tls-key-file-pass' is empty",
        ),
        (
            &[
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &encrypted,
                "--tls-auth-clients",
                "no",
                "--tls-key-file-pass",
                "wrong",
            ],
            "the passphrase of 'tls-key-file-pass' does not open it",
        ),
    ] {
        let data = folder.join("data");
        let mut args = vec!["serve", "--port", "0", "--tls-port", "1", "--dir", &data];
        args.extend(options);
        let output = harness::run(&args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(message), "{text}");
    }
}

/// A key that openssl has encrypted, beside the one in the folder.
fn encrypt(folder: &Folder, name: &str, options: &[&str]) -> String {
    let (key, encrypted) = (folder.join("server.key"), folder.join(name));
    let output = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-in", &key, "-out", &encrypted, "-passout", "pass:secret words"])
        .args(options)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    encrypted
}

#[test]
fn a_key_may_have_a_passphrase() {
    for options in
        [&["-v2", "aes-256-cbc"][..], &["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512"], &["-scrypt"]]
    {
        let (folder, _) = certificates();
        let encrypted = encrypt(&folder, "encrypted.key", options);
        // Other things may lie in the file as well.
        let text =
            [fs::read_to_string(folder.join("server.crt")).unwrap(), fs::read_to_string(&encrypted).unwrap()];
        fs::write(&encrypted, text.concat()).unwrap();
        let (server, port) =
            start(folder, &["--tls-key-file", &encrypted, "--tls-key-file-pass", "secret words"]);
        let mut client = Client::connect(port, server.folder(), true, &TLS13).unwrap();
        assert_eq!(client.try_call(&[b"PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn the_program_connects_by_tls() {
    let (folder, _authority) = certificates();
    let (server, port) = start(folder, &[]);
    let (other, other_port) = start(certificates_of(server.folder()), &[]);
    let path = |name: &str| server.folder().join(name);
    let (ca, cert, key) = (path("ca.crt"), path("client.crt"), path("client.key"));
    let (address, other_address) = (format!("localhost:{port}"), format!("localhost:{other_port}"));
    let flags = ["--tls", "--cacert", &ca, "--cert", &cert, "--key", &key];
    let program = |args: &[&str], flags: &[&str]| harness::program(&[args, flags].concat());
    assert_eq!(server.client().call("SET key value"), ok());
    // A value that does not fit any buffer.
    assert_eq!(server.client().call(&format!("SET long {}", "x".repeat(5_000_000))), ok());
    assert_eq!(program(&["ping", &address], &flags), (true, "PONG\n".into()));
    let (is_done, told) = program(&["top", &address, "--once"], &flags);
    assert!(is_done && told.contains("Throughput"), "{told}");
    for args in [
        &["backup", "--from", &address, &path("backups")][..],
        &["export", "--from", &address, &path("dump.rdb")],
        &["import", &path("dump.rdb"), "--to", &other_address],
        &["compare", &address, &other_address],
    ] {
        let (is_done, told) = program(args, &flags);
        assert!(is_done, "{args:?}: {told}");
    }
    assert_eq!(text(&other.client().call("GET key")), "value");
    // Who is not trusted, on either side.
    let stranger = Authority::new();
    fs::write(path("stranger.crt"), stranger.0.pem()).unwrap();
    for (flags, message) in [
        (
            &["--tls", "--cacert", &path("stranger.crt"), "--cert", &cert, "--key", &key][..],
            "invalid peer certificate",
        ),
        (&["--tls", "--cacert", &ca, "--cert", &cert, "--key", &key, "--sni", "elsewhere"], "elsewhere"),
        // By TLS 1.3 the client hears of that only when it reads.
        (&["--tls", "--cacert", &ca], &address),
        (&["--tls", "--cacert", &ca, "--cert", &cert], "--cert and --key go together"),
        (&["--tls", "--cacert", &path("nowhere")], "nowhere: No such file"),
        (&[], &address),
    ] {
        let (is_done, told) = program(&["ping", &address], flags);
        assert!(!is_done && told.contains(message), "{flags:?}: {told}");
    }
}

/// A new folder with the certificates of another one.
fn certificates_of(other: &Folder) -> Folder {
    let folder = Folder::new();
    for name in ["ca.crt", "server.crt", "server.key"] {
        fs::copy(other.join(name), folder.join(name)).unwrap();
    }
    folder
}
