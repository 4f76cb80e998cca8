//! REPLICAOF: a replica of a real Redis has what that has, whatever breaks in between; of a primary that is played by the test, it takes no
//! more than is whole and right.

use crate::harness::{
    Client, Folder, Redis, Rng, Server, assert_sound, bulk, free_port, is_error, number, ok, program, run,
    sample::{assert_same, known_to_redis, make_data, state},
    seed, show, wait_until,
};
use holdfast_resp::{Reply, write_command};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

fn replica_of(port: u16) -> String {
    format!("127.0.0.1 {port}")
}

/// Waits until a server follows its primary.
fn wait_until_linked(server: &Server) {
    let mut client = server.client();
    wait_until(|| format!("the link\n{}", server.log()), || client.info("master_link_status") == "up");
}

/// Waits until a replica has executed all that its primary has written.
fn wait_until_equal(primary: &mut Client, server: &Server) {
    let mut client = server.client();
    // What the primary sends by itself moves its offset, too.
    wait_until(
        || format!("the primary's offset\n{}", server.log()),
        || client.info("slave_repl_offset") == primary.info("master_repl_offset"),
    );
}

#[test]
fn a_replica_has_what_its_primary_has() {
    let mut rng = Rng(seed());
    for diskless in ["yes", "no"] {
        let options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        let redis = Redis::start(Folder::new(), &options);
        let mut primary = redis.client();
        make_data(&mut primary, &mut rng, true);
        let server = Server::start(&["--replicaof", &replica_of(redis.port())]);
        // Others write while the data are copied, and on.
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (mut client, is_over) = (redis.client(), is_over.clone());
            thread::spawn(move || {
                let mut n = 0;
                while !is_over.load(Relaxed) || n < 500 {
                    n += 1;
                    for call in [
                        format!("INCRBY counter {n}"),
                        format!("RPUSH written {n}"),
                        format!("SET brief:{n} value PX {}", 1 + n % 5),
                        "EVAL redis.call('incr','counter')return(redis.call('lpop','written')) 0".to_owned(),
                    ] {
                        let reply = client.call(&call);
                        assert!(!is_error(&reply, ""), "{call}: {reply:?}");
                    }
                    ["MULTI", "SELECT 9", "SADD members %", "SELECT 0", "PUBLISH c m", "EXEC"]
                        .iter()
                        .for_each(|call| {
                            client.call(&call.replace('%', &n.to_string()));
                        });
                }
            })
        };
        wait_until_linked(&server);
        thread::sleep(Duration::from_millis(200));
        is_over.store(true, Relaxed);
        writer.join().unwrap();
        // A replica lets expire only what its primary does, and it says when.
        primary.call("SELECT 0");
        wait_until(
            || "all brief keys expire, and are removed".into(),
            || {
                let Reply::Array(keys) = primary.call("KEYS *") else { panic!("names of keys") };
                primary.call("DBSIZE") == Reply::Int(keys.len() as i64)
                    && !keys.iter().any(|key| show(key).starts_with("brief"))
            },
        );
        wait_until_equal(&mut primary, &server);
        let mut client = server.client();
        let expected = known_to_redis(state(&mut primary));
        assert_same(&known_to_redis(state(&mut client)), &expected);
        assert_eq!(number(&primary.call("WAIT 1 10000")), Some(1));
        let (is_same, told) = compare(&redis, &server, &[]);
        assert!(is_same && told.ends_with("different: 0\nok\n"), "{told}");

        let Reply::Array(role) = client.call("ROLE") else { panic!("an array") };
        let role: Vec<String> = role.iter().map(show).collect();
        assert_eq!(role[..4], ["slave", "127.0.0.1", &format!(":{}", redis.port()), "connected"], "{role:?}");
        for call in ["SET a b", "EVAL redis.call('set','a','b') 0", "FLUSHALL"] {
            let reply = client.call(call);
            assert!(
                show(&reply).contains("READONLY You can't write against a read only replica."),
                "{reply:?}"
            );
        }
        client.call("MULTI");
        assert!(is_error(&client.call("SET a b"), "READONLY"));
        assert!(is_error(&client.call("EXEC"), "EXECABORT"));

        assert_eq!(client.call("REPLICAOF NO ONE"), ok());
        assert_eq!(client.info("role"), "master");
        assert_eq!(known_to_redis(state(&mut client)), expected);
        assert_eq!(client.call("SET a b"), ok());
        primary.call("SET a c");
        let folder = server.stop();
        assert_sound(&folder);
        let again = Server::start_in(folder, &[]);
        assert_eq!((again.client().info("role"), again.client().call("GET a")), ("master".into(), bulk("b")));
    }
}

/// Passes on what two sides say to each other, and breaks off each time that the primary has said so much.
fn cutting_proxy(to: u16, mut bytes_until_cut: impl FnMut() -> usize + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            let (mut requests, mut served) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut requests, &mut served);
                let _ = served.shutdown(Shutdown::Both);
            });
            let mut left = bytes_until_cut();
            let mut chunk = [0; 4096];
            while left > 0 {
                let len = chunk.len().min(left);
                match server.read(&mut chunk[..len]) {
                    Ok(read) if read > 0 && client.write_all(&chunk[..read]).is_ok() => left -= read,
                    _ => break,
                }
            }
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    });
    port
}

#[test]
fn a_link_that_breaks_anywhere_is_resumed_there() {
    let mut rng = Rng(seed());
    let options = ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb"];
    let redis = Redis::start(Folder::new(), &options);
    let mut primary = redis.client();
    make_data(&mut primary, &mut rng, true);
    // The copy comes whole; what follows is cut in the middle of commands and transactions.
    let mut cuts = 0;
    let port = cutting_proxy(redis.port(), move || {
        cuts += 1;
        match cuts {
            1 => 100_000_000,
            2..8 => 500 + rng.below(3000) as usize,
            _ => usize::MAX,
        }
    });
    let server = Server::start(&["--replicaof", &replica_of(port)]);
    wait_until_linked(&server);
    let (mut client, mut n) = (server.client(), 0);
    primary.call("SELECT 0");
    // Breaks the first link.
    primary.call("CLIENT KILL TYPE replica");
    while number(&Reply::Bulk(primary.info("sync_partial_ok").into())) < Some(6) {
        n += 1;
        assert!(n < 100_000, "{}", server.log());
        for call in ["MULTI", "INCR counter", "RPUSH list %", "EXEC", "APPEND string %"] {
            primary.call(&call.replace('%', &n.to_string()));
        }
        if n % 10 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    wait_until_linked(&server);
    wait_until_equal(&mut primary, &server);
    assert_eq!(primary.info("sync_full"), "1");
    assert_same(&known_to_redis(state(&mut client)), &known_to_redis(state(&mut primary)));
    assert_eq!(client.call("GET counter"), bulk(n.to_string()));
}

#[test]
fn what_the_primary_was_told_survives_a_kill() {
    let redis = Redis::start(Folder::new(), &["--repl-diskless-sync-delay", "0"]);
    let mut primary = redis.client();
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call("SET own value"), ok());
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {}", redis.port())), ok());
    let again = client.call(&format!("REPLICAOF 127.0.0.1 {}", redis.port()));
    assert_eq!(again, Reply::Simple(b"OK Already connected to specified master".to_vec()));
    wait_until_linked(&server);
    assert_eq!(client.call("DBSIZE"), Reply::Int(0));
    for n in 0..300 {
        primary.call(&format!("RPUSH list {n}"));
    }
    assert_eq!(number(&primary.call("WAIT 1 10000")), Some(1));
    let folder = server.kill();
    drop(redis);
    let server = Server::start_in(folder, &[]);
    let mut client = server.client();
    assert_eq!((client.call("LLEN list"), client.info("role")), (Reply::Int(300), "slave".into()));
    assert_eq!(client.info("master_link_status"), "down");
    assert!(is_error(&client.call("RPUSH list x"), "READONLY"));
    ["MULTI", "LLEN list"].iter().for_each(|call| {
        client.call(call);
    });
    server.client().call("CONFIG SET replica-serve-stale-data no");
    assert!(is_error(&client.call("EXEC"), "EXECABORT Transaction discarded because of: MASTERDOWN"));
    assert!(is_error(&client.call("LLEN list"), "MASTERDOWN Link with MASTER is down"));
    // Somebody else is promoted; then this one is.
    assert_eq!(client.call("REPLICAOF localhost 1"), ok());
    assert_eq!(
        client.call("CONFIG GET replicaof"),
        Reply::Array(vec![bulk("replicaof"), bulk("localhost 1")])
    );
    assert_eq!(client.call("REPLICAOF NO ONE"), ok());
    assert_eq!(client.call("RPUSH list x"), Reply::Int(301));
    let server = server.restart(Server::kill);
    let mut client = server.client();
    assert_eq!((client.call("LLEN list"), client.info("role")), (Reply::Int(301), "master".into()));
    for (call, error) in [
        ("REPLICAOF localhost x", "ERR Invalid master port"),
        ("REPLICAOF localhost 65536", "ERR Invalid master port"),
        ("REPLICAOF localhost", "ERR wrong number of arguments"),
    ] {
        assert!(is_error(&client.call(call), error), "{call}");
    }
}

/// A primary that the test plays: one connection at a time.
struct Played {
    listener: TcpListener,
    stream: Option<TcpStream>,
    input: Vec<u8>,
}

/// An RDB file without keys.
const EMPTY: &[u8] = b"REDIS0010\xff\0\0\0\0\0\0\0\0";

impl Played {
    fn new() -> Played {
        Played { listener: TcpListener::bind("127.0.0.1:0").unwrap(), stream: None, input: Vec::new() }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The next command that the replica sends.
    fn command(&mut self) -> Vec<String> {
        loop {
            let start = self.input.iter().position(|byte| *byte != b'\n').unwrap_or(self.input.len());
            self.input.drain(..start);
            if let Some((Reply::Array(words), len)) = Reply::parse(&self.input).expect("a command") {
                self.input.drain(..len);
                return words
                    .iter()
                    .map(|word| String::from_utf8(word.as_bytes().unwrap().to_vec()).unwrap())
                    .collect();
            }
            let mut chunk = [0; 4096];
            let read = self.stream.as_mut().unwrap().read(&mut chunk).expect("the replica speaks");
            assert!(read > 0, "the replica has closed the connection");
            self.input.extend_from_slice(&chunk[..read]);
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Writes a command; how long it is.
    fn write(&mut self, command: &str) -> u64 {
        let mut bytes = Vec::new();
        write_command(&mut bytes, &command.split(' ').collect::<Vec<_>>());
        self.say(&bytes);
        bytes.len() as u64
    }

    /// Takes the next connection up to its PSYNC, which is returned.
    fn greet(&mut self) -> Vec<String> {
        // One link at a time.
        self.stream = None;
        self.stream = Some(self.listener.accept().unwrap().0);
        self.input.clear();
        self.stream.as_ref().unwrap().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        loop {
            let command = self.command();
            match &command[0][..] {
                "PSYNC" => return command,
                "PING" => self.say(b"+PONG\r\n"),
                _ => self.say(b"+OK\r\n"),
            }
        }
    }

    /// Takes the next connection, which wants a copy, and sends this one.
    fn copy(&mut self, rdb: &[u8]) {
        assert_eq!(self.greet(), ["PSYNC", "?", "-1"]);
        self.say(b"\n\n");
        self.say(format!("+FULLRESYNC {} 1000\r\n\n${}\r\n", "a".repeat(40), rdb.len()).as_bytes());
        self.say(rdb);
    }

    /// The next acknowledgement.
    fn acknowledged(&mut self) -> u64 {
        let command = self.command();
        assert_eq!(command[..2], ["REPLCONF", "ACK"]);
        command[2].parse().expect("a number")
    }

    fn wait_for_acknowledgement_of(&mut self, offset: u64) {
        while self.acknowledged() < offset {}
    }
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn what_is_acknowledged_was_executed() {
    let mut primary = Played::new();
    let server = Server::start(&["--replicaof", &replica_of(primary.port())]);
    primary.copy(EMPTY);
    primary.wait_for_acknowledgement_of(1000);
    let mut offset = 1000;
    let mut client = server.client();
    for n in 1..=200 {
        offset += primary.write(&format!("SET key {n}"));
        let asked = primary.write("REPLCONF GETACK *");
        // What was asked for before is in it, and what the clock has had sent is not more.
        let mut told = primary.acknowledged();
        while told < offset {
            told = primary.acknowledged();
        }
        assert!(told <= offset + asked);
        assert_eq!(client.call("GET key"), bulk(n.to_string()));
        offset += asked;
    }
    // What waits to be executed is not acknowledged.
    assert_eq!(client.call("CLIENT PAUSE 2500"), ok());
    let before = offset;
    offset += primary.write("SET key 200");
    assert_eq!([primary.acknowledged(), primary.acknowledged()], [before; 2]);
    primary.wait_for_acknowledgement_of(offset);
    // A part of a command, or of a transaction, is not acknowledged.
    offset += primary.write("MULTI") + primary.write("SET key x");
    primary.say(b"*3\r\n$3\r\nSET\r\n$3\r\nke");
    thread::sleep(Duration::from_millis(1500));
    primary.wait_for_acknowledgement_of(offset);
    assert_eq!(primary.acknowledged(), offset);
    assert_eq!(client.call("GET key"), bulk("200"));
    // The link breaks, and the primary has become another one with the same history.
    assert_eq!(primary.greet(), ["PSYNC", &"a".repeat(40), &(offset + 1).to_string()]);
    primary.say(format!("+CONTINUE {}\r\n", "b".repeat(40)).as_bytes());
    offset += primary.write("INCR counter") + primary.write("EXEC");
    primary.wait_for_acknowledgement_of(offset);
    assert_eq!((client.call("GET key"), client.call("GET counter")), (bulk("x"), bulk("1")));
    assert_eq!(client.info("master_replid"), "b".repeat(40));
    // What the primary has room for is taken.
    client.call("CONFIG SET maxmemory 1");
    for call in ["SET large value", "MULTI", "RPUSH list element", "EXEC"] {
        offset += primary.write(call);
    }
    primary.wait_for_acknowledgement_of(offset);
    for call in ["WAIT 0 0", "WAITAOF 0 0 0", "FAILOVER"] {
        assert!(show(&client.call(call)).contains("replica"), "{call}");
    }
    assert_eq!(client.call("REPLICAOF NO ONE"), ok());
    assert!(is_error(&client.call("SET large value"), "OOM"));
    assert_eq!((client.call("GET large"), client.call("LLEN list")), (bulk("value"), Reply::Int(1)));
}

#[test]
fn a_replica_connects_from_the_address_that_it_is_told() {
    let options = ["--repl-diskless-sync-delay", "0", "--protected-mode", "no"];
    let redis = Redis::start(Folder::new(), &options);
    let primary = replica_of(redis.port());
    let server = Server::start(&["--replicaof", &primary, "--bind-source-addr", "127.0.0.2"]);
    wait_until_linked(&server);
    assert!(redis.client().info("slave0").starts_with("ip=127.0.0.2,"));
    let mut client = server.client();
    let refused = client.call("CONFIG SET bind-source-addr localhost");
    assert!(is_error(&refused, "ERR CONFIG SET failed"), "{refused:?}");
    // The next link is from there.
    assert_eq!(client.call("CONFIG SET bind-source-addr 127.0.0.3"), ok());
    assert_eq!(redis.client().call("CLIENT KILL TYPE replica"), Reply::Int(1));
    wait_until(|| server.log(), || redis.client().info("connected_slaves") == "1");
    assert!(redis.client().info("slave0").starts_with("ip=127.0.0.3,"));
}

#[test]
fn what_the_primary_keeps_does_not_expire() {
    let mut primary = Played::new();
    let server = Server::start(&["--replicaof", &replica_of(primary.port())]);
    primary.copy(EMPTY);
    let at = now_ms() + 300;
    let mut offset = 1000;
    for call in [
        &format!("SET string value PXAT {at}")[..],
        "RPUSH list a",
        &format!("PEXPIREAT list {at}"),
        "HSET hash field value other value",
        &format!("HPEXPIREAT hash {at} FIELDS 1 field"),
        // What has expired at the primary's clock only.
        &format!("SET past value PXAT {}", now_ms() - 1000),
    ] {
        offset += primary.write(call);
    }
    primary.wait_for_acknowledgement_of(offset);
    let mut client = server.client();
    wait_until(|| "they expire".into(), || client.call("GET string") == Reply::Null);
    // They count as gone, however one looks, and are there still.
    for (call, reply) in [
        ("EXISTS string list past", Reply::Int(0)),
        ("HGETALL hash", Reply::Array(vec![bulk("other"), bulk("value")])),
        ("LRANGE list 0 -1", Reply::Array(vec![])),
        ("DBSIZE", Reply::Int(4)),
    ] {
        assert_eq!(client.call(call), reply, "{call}");
    }
    assert_eq!(client.call("EVAL return(redis.call('exists',KEYS[1],KEYS[2])) 2 string list"), Reply::Int(0));
    ["MULTI", "GET string", "LLEN list", "EXEC"].iter().for_each(|call| {
        client.call(call);
    });
    thread::sleep(Duration::from_millis(300));
    for call in
        ["APPEND string s", "PERSIST string", "PERSIST list", "HPERSIST hash FIELDS 1 field", "PERSIST past"]
    {
        offset += primary.write(call);
    }
    primary.wait_for_acknowledgement_of(offset);
    for (call, reply) in [
        ("GET string", bulk("values")),
        ("LRANGE list 0 -1", Reply::Array(vec![bulk("a")])),
        ("HLEN hash", Reply::Int(2)),
        ("GET past", bulk("value")),
    ] {
        assert_eq!(client.call(call), reply, "{call}");
    }
}

#[test]
fn what_is_not_whole_or_not_right_changes_nothing() {
    let mut primary = Played::new();
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..100 {
        assert_eq!(client.call(&format!("SET key:{n} value")), ok());
    }
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), ok());
    // Refusals, and replies that nobody gives.
    for reply in [
        "-NOMASTERLINK Can't SYNC while not connected with my master\r\n",
        "+FULLRESYNC x\r\n",
        "+WHAT\r\n",
        ":1\r\n",
    ] {
        assert_eq!(primary.greet(), ["PSYNC", "?", "-1"]);
        primary.say(reply.as_bytes());
    }
    // A copy that is cut off, one whose mark never comes, and one that is damaged.
    let mark = "m".repeat(40);
    let full = [&b"REDIS0010\xfe\0\0\x03key\x05value\xff"[..], &[0; 8]].concat();
    let mut damaged = full.clone();
    *damaged.last_mut().unwrap() = 1;
    let copies = [
        [&b"$100\r\n"[..], &full].concat(),
        [format!("$EOF:{mark}\r\n").as_bytes(), &full, &mark.as_bytes()[1..]].concat(),
        [format!("${}\r\n", full.len()).as_bytes(), &damaged].concat(),
        [format!("${}\r\n", full.len() + 1).as_bytes(), &full, b"x"].concat(),
        [format!("${}\r\n", full.len() - 1).as_bytes(), &full[..full.len() - 1]].concat(),
        b"$\r\n".to_vec(),
        b"*1\r\n".to_vec(),
    ];
    for copy in copies {
        assert_eq!(primary.greet(), ["PSYNC", "?", "-1"]);
        primary.say(format!("+FULLRESYNC {} 0\r\n", "a".repeat(40)).as_bytes());
        primary.say(&copy);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(primary.greet(), ["PSYNC", "?", "-1"]);
    assert_eq!((client.call("DBSIZE"), client.call("GET key:99")), (Reply::Int(100), bulk("value")));
    assert!(!server.folder().path().join("data/replica-incoming.rdb").exists());
    // A copy that ends by its mark, of which parts come before.
    primary.say(format!("+FULLRESYNC {} 7\r\n$EOF:{mark}\r\n", "a".repeat(40)).as_bytes());
    let bytes = [&full[..], mark.as_bytes()].concat();
    for part in bytes.chunks(7) {
        primary.say(part);
        thread::sleep(Duration::from_millis(5));
    }
    // It goes on when it is told that the copy has come, of which nothing is durable then.
    assert_eq!([primary.acknowledged(), primary.acknowledged()], [0, 7]);
    assert_eq!((client.call("DBSIZE"), client.call("GET key")), (Reply::Int(1), bulk("value")));
    // A command that is refused would leave other data than the primary's.
    let offset = 7 + primary.write("SET other value");
    primary.wait_for_acknowledgement_of(offset);
    primary.write("INCR other");
    primary.write("SET third value");
    primary.stream.as_ref().unwrap().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(primary.greet(), ["PSYNC", "?", "-1"]);
    assert!(server.log().contains("value is not an integer or out of range"), "{}", server.log());
    // So would bytes that are no command.
    primary.say(format!("+FULLRESYNC {} 7\r\n${}\r\n", "a".repeat(40), full.len()).as_bytes());
    primary.say(&full);
    primary.wait_for_acknowledgement_of(7);
    primary.say(b"*x\r\n");
    assert_eq!(primary.greet(), ["PSYNC", "?", "-1"]);
    assert_sound(&server.stop());
}

/// An RDB file with so many strings.
fn strings(count: u32) -> Vec<u8> {
    let mut file = b"REDIS0010\xfe\0".to_vec();
    for n in 0..count {
        let name = format!("key:{n}");
        file.extend([0, name.len() as u8]);
        file.extend(name.as_bytes());
        file.extend([1, b'v']);
    }
    file.push(255);
    file.extend([0; 8]);
    file
}

#[test]
fn a_primary_need_not_keep_what_it_writes_while_a_copy_is_loaded() {
    let mut primary = Played::new();
    let server = Server::start(&["--replicaof", &replica_of(primary.port())]);
    let mut client = server.client();
    primary.copy(&strings(600_000));
    wait_until(|| "the copy is being loaded".into(), || is_error(&client.call("GET key:0"), "LOADING"));
    let (mut offset, value) = (1000, "x".repeat(100_000));
    for n in 0..400 {
        offset += primary.write(&format!("SET written:{n} {value}"));
        offset += primary.write("INCR counter");
    }
    assert!(is_error(&client.call("GET key:0"), "LOADING"), "40 MB were taken meanwhile");
    primary.wait_for_acknowledgement_of(offset);
    offset += primary.write("INCR counter");
    primary.wait_for_acknowledgement_of(offset);
    assert_eq!(client.call("DBSIZE"), Reply::Int(600_000 + 400 + 1));
    assert_eq!(
        (client.call("GET counter"), client.call("STRLEN written:399")),
        (bulk("401"), Reply::Int(100_000))
    );
    assert!(!server.folder().path().join("data/replica-backlog").exists());
}

#[test]
fn a_copy_that_a_kill_has_cut_off_is_not_served() {
    let mut primary = Played::new();
    let server = Server::start(&["--replicaof", &replica_of(primary.port())]);
    let mut client = server.client();
    primary.copy(&strings(300_000));
    wait_until(|| "the copy is being loaded".into(), || is_error(&client.call("GET key:0"), "LOADING"));
    assert_eq!(client.info("ready"), "0");
    let folder = server.kill();
    let port = primary.port();
    drop(primary);
    let server = Server::start_in(folder, &["--replicaof", &replica_of(port)]);
    let mut client = server.client();
    thread::sleep(Duration::from_millis(1100));
    for call in ["GET key:0", "DBSIZE"] {
        assert!(is_error(&client.call(call), "LOADING"), "{call}");
    }
    // Another primary has all of it.
    let mut primary = Played::new();
    client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    primary.copy(&strings(1000));
    primary.wait_for_acknowledgement_of(1000);
    assert_eq!((client.call("DBSIZE"), client.info("ready")), (Reply::Int(1000), "1".into()));
}

#[test]
fn half_a_copy_is_not_served() {
    let server = Server::start(&[]);
    assert_eq!(server.client().call("SET key value"), ok());
    let folder = server.stop();
    fs::write(folder.path().join("data/replica-of"), format!("127.0.0.1 {}\nloading\n", free_port()))
        .unwrap();
    let server = Server::start_in(folder, &[]);
    let mut client = server.client();
    for call in ["GET key", "SET key value", "DBSIZE", "EVAL return(1) 0"] {
        assert!(is_error(&client.call(call), "LOADING Redis is loading the dataset in memory"), "{call}");
    }
    assert!(is_error(&client.call("REPLICAOF NO ONE"), "ERR REPLICAOF is not carried out: only a part of"));
    // With a primary it gets all of the data.
    let mut primary = Played::new();
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), ok());
    primary.copy(EMPTY);
    primary.wait_for_acknowledgement_of(1000);
    assert_eq!(client.call("DBSIZE"), Reply::Int(0));
    assert_eq!(client.call("REPLICAOF NO ONE"), ok());
    // A file that names nobody is not passed over.
    let folder = server.stop();
    fs::write(folder.path().join("data/replica-of"), "127.0.0.1\n").unwrap();
    let mut server = Server::spawn(folder, &[]);
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("replica-of"), "{}", server.log());
}

/// Compares a Redis with a server; whether they are the same, and what is told.
fn compare(redis: &Redis, server: &Server, more: &[&str]) -> (bool, String) {
    let (from, to) = (format!("localhost:{}", redis.port()), server.folder().join("socket"));
    program(&[&["compare", &from, &to], more].concat())
}

#[test]
fn many_keys_are_compared_small_and_large() {
    // It does not tell when keys expire, as a Redis before 7.0.
    let old = ["--rename-command", "PEXPIRETIME", ""];
    let (redis, server) = (Redis::start(Folder::new(), &old), Server::start(&[]));
    let (mut client, mut other) = (redis.client(), server.client());
    let long = "x".repeat(100_000);
    for client in [&mut client, &mut other] {
        for n in 0..1500 {
            let call = match n % 5 {
                0 => format!("RPUSH key:{n} a b {n}"),
                1 => format!("HSET key:{n} a b c {n}"),
                2 => format!("SET key:{n} {n} EX 1000"),
                // Several of them have more than is asked for at once.
                3 => format!("SET key:{n} {}{n}", "y".repeat(20 * n)),
                _ => format!("ZADD key:{n} 1 a {n} b"),
            };
            client.call(&call);
        }
        client.call(&format!("SET long {long}"));
        let members: Vec<String> = (0..70_000).map(|n| n.to_string()).collect();
        client.call(&format!("SADD large {}", members.join(" ")));
    }
    let (is_same, told) = compare(&redis, &server, &[]);
    let same = "db0: 1502 keys, and 1502\ncompared: 1502 keys\ndifferent: 0\nok\n";
    assert!(is_same && told.starts_with(same), "{told}");
    for change in ["APPEND long x", "SREM large 7", "LSET key:505 0 b", "SETRANGE key:1103 9000 x"] {
        other.call(change);
    }
    let (is_same, told) = compare(&redis, &server, &[]);
    assert!(!is_same && told.contains("compared: 1502 keys\ndifferent: 4\n"), "{told}");
    for key in ["long", "large", "key:505", "key:1103"] {
        assert!(told.contains(&format!("\"{key}\": another value")), "{told}");
    }
}

#[test]
fn what_differs_is_found() {
    let (redis, server) = (Redis::start(Folder::new(), &[]), Server::start(&[]));
    let (mut client, mut other) = (redis.client(), server.client());
    let fill = [
        "SET string value",
        "SET number 1",
        "RPUSH list a b c",
        "SADD set a b c",
        "HSET hash field value other value",
        "ZADD zset 0.1 a -0 b inf c",
        "XADD stream 1-1 field value",
        "SET expires value PXAT 4102444800000",
        "SELECT 9",
        "SET string other",
        "SELECT 0",
    ];
    for call in fill {
        client.call(call);
        other.call(call);
    }
    let (is_same, told) = compare(&redis, &server, &[]);
    assert_eq!(
        (is_same, &told[..]),
        (true, "db0: 8 keys, and 8\ndb9: 1 keys, and 1\ncompared: 9 keys\ndifferent: 0\nok\n")
    );
    for (change, undo, what) in [
        ("SET string valuE", "SET string value", "\"string\": another value"),
        ("DEL string", "SET string value", "\"string\": type string, and none"),
        ("RENAME string \x01", "RENAME \x01 string", "\"string\": type string, and none"),
        ("LSET list 1 a", "LSET list 1 b", "\"list\": another value"),
        ("SADD set d", "SREM set d", "\"set\": another value"),
        ("HSET hash field valu", "HSET hash field value", "\"hash\": another value"),
        ("ZADD zset 0.2 a", "ZADD zset 0.1 a", "\"zset\": another value"),
        ("XADD stream 1-2 f v", "XDEL stream 1-2", "\"stream\": another value"),
        (
            "PEXPIREAT expires 4102444800001",
            "PEXPIREAT expires 4102444800000",
            "\"expires\": another time to expire",
        ),
        ("PERSIST expires", "PEXPIREAT expires 4102444800000", "\"expires\": another time to expire"),
    ] {
        other.call(change);
        let (is_same, told) = compare(&redis, &server, &[]);
        assert!(!is_same && told.contains(what) && told.contains("different: 1\n"), "{change}: {told}");
        other.call(undo);
    }
    other.call("SET more value");
    let (is_same, told) = compare(&redis, &server, &["--sample", "0"]);
    assert!(!is_same && told.contains("db0: 8 keys, and 9") && told.contains("compared: 0 keys"), "{told}");
    other.call("CONFIG SET requirepass secret");
    let (is_same, told) = compare(&redis, &server, &[]);
    assert!(!is_same && told.contains("NOAUTH"), "{told}");
    let (_, told) = compare(&redis, &server, &["--to-password", "secret"]);
    assert!(told.contains("ERR AUTH") || told.contains("compared: 9 keys"), "{told}");
    client.call("CONFIG SET requirepass other");
    let (_, told) = compare(&redis, &server, &["--password", "other", "--to-password", "secret"]);
    assert!(told.contains("compared: 9 keys"), "{told}");
    for wrong in [
        &["compare"][..],
        &["compare", "a:1"],
        &["compare", "a:1", "b:2", "c:3"],
        &["compare", "a:1", "b:2", "--sample", "x"],
    ] {
        let output = run(wrong);
        assert!(
            !output.status.success()
                && String::from_utf8_lossy(&output.stderr).contains("holdfast compare --help")
        );
    }
}
