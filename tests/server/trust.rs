//! Who may take part: servers of a replica set and nodes of a cluster know each other by a password and by certificates, and let nobody
//! else in.

use crate::{
    certificates::{Authority, certificates},
    harness::{Client, Folder, Redis, Server, Set, bulk, free_port, is_error, number, ok, wait_until},
};
use holdfast_resp::Reply;
use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    thread,
    time::Duration,
};

/// Options of servers that speak TLS to each other, with what lies in a folder.
fn tls_options(folder: &Folder, option: &str) -> Vec<String> {
    let [cert, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|name| folder.join(name));
    let words = [option, "yes", "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    words.map(str::to_owned).to_vec()
}

fn bus_port(set: &Set, at: usize) -> u16 {
    let option = set.options[at].iter().position(|word| word == "--replica-set-port").expect("it is set");
    set.options[at][option + 1].parse().expect("a port")
}

/// What a server says to who sends this to its port for other servers; `None`: it ends the connection, and nothing else.
fn answer(port: u16, sent: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    stream.write_all(sent).expect("it takes it");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) | Err(_) if said.is_empty() => None,
        _ => Some(said),
    }
}

fn log_of(set: &Set, at: usize) -> String {
    set.servers[at].as_ref().expect("it runs").log()
}

#[test]
fn servers_of_a_set_speak_tls_and_know_a_password() {
    let (folder, _) = certificates();
    let mut set = Set::new(3);
    for options in &mut set.options {
        options.extend(tls_options(&folder, "--tls-replication"));
        options.extend(["--masterauth", "secret"].map(str::to_owned));
    }
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (leader, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
    // Without TLS, it is not even told what is wrong.
    let plain = [&b"HFset04\n"[..], &[7; 32]].concat();
    let said = answer(bus_port(&set, leader), &plain).unwrap_or_default();
    assert!(said.len() < 32, "{said:?}");
    drop(set.kill(leader));
    let (_, mut client) = set.leader();
    assert_eq!(client.call("GET a"), bulk("1"));
}

/// Whoever does not know the password is told nothing, and takes no part.
#[test]
fn a_server_with_another_password_takes_no_part() {
    let mut set = Set::new(3);
    for (at, options) in set.options.iter_mut().enumerate() {
        let password = if at == 2 { "guessed" } else { "secret" };
        options.extend(["--masterauth", password].map(str::to_owned));
    }
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    wait_until(|| log_of(&set, 2), || log_of(&set, 2).contains("it has another password (masterauth)"));
    wait_until(|| log_of(&set, 0), || log_of(&set, 0).contains("it has another password (masterauth)"));
    for at in 0..3 {
        let reply = set.client(at).expect("it runs").call("SET a 1");
        assert!(is_error(&reply, "MASTERDOWN "), "{reply:?}");
    }
    // A proof that is another server's own, or none, is not taken: both nonces are in it.
    let port = bus_port(&set, 0);
    let nonce = [&b"HFset04\n"[..], &[7; 32]].concat();
    let said = answer(port, &[&nonce[..], &[0; 32], &[0; 100]].concat()).expect("its nonce and proof");
    assert_eq!(said.len(), 64);
    let again = answer(port, &[&nonce[..], &said[32..], &[0; 100]].concat()).expect("its nonce and proof");
    assert_eq!(again.len(), 64);
    assert_ne!(said[32..], again[32..]);
    assert_eq!(answer(port, &[&b"HFbus04\n"[..], &[7; 32]].concat()), None);
    let folder = set.kill(2);
    let word = set.options[2].len() - 1;
    set.options[2][word] = "secret".into();
    set.start_in(2, folder);
    let (_, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
}

/// A certificate of somebody else's is not taken. New ones are, once those who run were told.
#[test]
fn certificates_of_servers_are_exchanged_while_they_run() {
    let (folder, _) = certificates();
    let mut set = Set::new(3);
    set.options.iter_mut().for_each(|options| options.extend(tls_options(&folder, "--tls-replication")));
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (leader, mut client) = set.leader();
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
    let away = (leader + 1) % 3;
    let data = set.kill(away);
    let authority = Authority::new();
    fs::write(folder.join("ca.crt"), authority.0.pem()).unwrap();
    authority.sign(&folder, "server", "another name");
    set.start_in(away, data);
    wait_until(|| log_of(&set, away), || log_of(&set, away).contains("cannot speak to 127.0.0.1"));
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(number(&client.call("WAIT 2 300")), Some(1));
    for at in (0..3).filter(|at| *at != away) {
        set.servers[at].as_ref().expect("it runs").signal("HUP");
    }
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2), "{}", log_of(&set, away));
}

/// Also when slots move from one to the other.
#[test]
fn nodes_of_a_cluster_speak_tls_and_know_a_password() {
    let (folder, _) = certificates();
    let start = |password: &str| {
        let [bus, tls] = [free_port(), free_port()].map(|port| port.to_string());
        let mut options = tls_options(&folder, "--tls-cluster");
        let more = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--tls-port", &tls];
        options.extend(
            [&more[..], &["--masterauth", password, "--requirepass", password]]
                .concat()
                .iter()
                .map(|&word| word.to_owned()),
        );
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (server, port) = Server::start_with_port(&options);
        let mut client = server.client();
        assert_eq!(client.call(&format!("AUTH {password}")), ok());
        (server, client, port, bus)
    };
    let info = |client: &mut Client| {
        let Reply::Bulk(text) = client.call("CLUSTER INFO") else { panic!("no text") };
        String::from_utf8(text).expect("UTF-8")
    };
    let (first, mut client, ..) = start("secret");
    let (_second, mut other, port, bus) = start("secret");
    let (_third, _, wrong_port, wrong_bus) = start("guessed");
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {wrong_port} {wrong_bus}")), ok());
    wait_until(|| first.log(), || first.log().contains("it has another password (masterauth)"));
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")), ok());
    wait_until(|| first.log(), || info(&mut client).contains("cluster_known_nodes:2"));
    assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
    wait_until(|| first.log(), || info(&mut client).contains("cluster_state:ok"));
    assert_eq!(client.call("SET a 1"), ok());
    let Reply::Bulk(to) = other.call("CLUSTER MYID") else { panic!("no name") };
    let to = String::from_utf8(to).expect("UTF-8");
    assert_eq!(client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 16383 NODE {to}")), ok());
    wait_until(|| first.log(), || other.call("GET a") == bulk("1"));
}

/// A primary that speaks TLS only, and asks for a certificate, has a replica here.
#[test]
fn a_replica_follows_its_primary_by_tls() {
    let (folder, authority) = certificates();
    authority.sign(&folder, "primary", "somewhere else");
    let [cert, key, ca] = ["primary.crt", "primary.key", "ca.crt"].map(|name| folder.join(name));
    let tls = free_port().to_string();
    let redis = Redis::start(
        Folder::new(),
        &["--tls-port", &tls, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca],
    );
    assert_eq!(redis.client().call("SET a 1"), ok());
    let options = tls_options(&folder, "--tls-replication");
    let server = Server::start(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let mut client = server.client();
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {tls}")), ok());
    wait_until(|| server.log(), || client.call("GET a") == bulk("1"));
    assert_eq!(redis.client().call("SET a 2"), ok());
    wait_until(|| server.log(), || client.call("GET a") == bulk("2"));
    // One without TLS is none of ours.
    let port = redis.port();
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {port}")), ok());
    wait_until(|| server.log(), || client.info("master_link_status") == "down");
    assert_eq!(redis.client().call("SET a 3"), ok());
    thread::sleep(Duration::from_millis(300));
    assert_eq!(client.call("GET a"), bulk("2"));
}
