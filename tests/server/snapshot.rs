//! SYNC of who wants a snapshot only: the real `redis-cli --rdb` gets a file of one moment that a real Redis loads, and whatever ends
//! early on either side leaves nothing behind.

use crate::harness::{
    self, Client, Folder, PATIENCE, Redis, Rng, Server, assert_sound, bulk, ok, run, seed, show, text,
    transfers::{call, check_moment, int, is_between, under_load},
    wait_until,
};
use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Output},
};

/// redis-cli over the server's Unix socket.
fn redis_cli(server: &Server, args: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["-s", &server.folder().join("socket")]).args(args).output().expect("redis-cli is installed")
}

/// The file that redis-cli makes.
fn snapshot(server: &Server, option: &str, file: &str) {
    let output = redis_cli(server, &[option, file]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("Transfer finished with success"), "{told}");
}

/// A connection that has asked for a snapshot, and reads nothing of it.
fn ask(server: &Server, command: &str) -> UnixStream {
    let mut stream = UnixStream::connect(server.folder().join("socket")).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
        .write_all(format!("REPLCONF rdb-only 1 capa eof\r\n{command}\r\n").as_bytes())
        .expect("it is sent");
    stream
}

/// Everything that comes until the other end closes, without newlines before it.
fn all_of(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the server closes");
    let rest = bytes.strip_prefix(b"+OK\r\n").expect("REPLCONF is answered");
    rest[rest.iter().take_while(|byte| **byte == b'\n').count()..].to_vec()
}

/// The file in what has come; `None` if it did not come to its end.
fn file_in(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"$EOF:").expect("a transfer with a mark");
    let (mark, rest) = rest.split_at(40);
    rest.strip_prefix(b"\r\n").expect("the end of the line").strip_suffix(mark)
}

/// A transfer that has begun; nothing is read of the file.
fn begin(server: &Server) -> UnixStream {
    let mut stream = ask(server, "SYNC");
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.starts_with(b"$EOF:") || !line.ends_with(b"\n") {
        if line.ends_with(b"\n") {
            line.clear();
        }
        stream.read_exact(&mut byte).expect("the transfer begins");
        line.push(byte[0]);
    }
    stream
}

/// The rest of such a transfer is not all of the file, which would end as no file does by chance.
fn ends_early(mut stream: UnixStream) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the server closes");
    assert!(bytes.starts_with(b"REDIS00"));
    let end = &bytes[bytes.len() - 40..];
    assert!(
        !end.iter().all(u8::is_ascii_hexdigit) || end.iter().all(u8::is_ascii_digit),
        "it ends with a mark"
    );
}

/// Values that no buffer between server and client holds.
fn fill(server: &Server) {
    let mut client = server.client();
    for n in 0..40 {
        call(&mut client, &["SET", &format!("large:{n}"), &n.to_string().repeat(500_000)]);
    }
}

/// The processes that the server has started.
fn children(server: &Server) -> Vec<u32> {
    let list = format!("/proc/{}/task", server.pid());
    let threads = fs::read_dir(list).expect("it runs");
    let of_thread = |entry: std::io::Result<fs::DirEntry>| {
        // A thread may end meanwhile.
        fs::read_to_string(entry.expect("an entry").path().join("children")).unwrap_or_default()
    };
    let all: Vec<String> = threads.map(of_thread).collect();
    all.iter().flat_map(|pids| pids.split_whitespace()).map(|pid| pid.parse().expect("a number")).collect()
}

#[test]
fn what_redis_cli_gets_under_load_is_one_moment() {
    let (mut rng, version) = (Rng(seed()), Redis::rdb_version());
    // The log goes around, and values and pages leave memory.
    let options =
        ["--maxmemory", "24mb", "--log-max-size", "256mb", "--compression", "lz4", "--rdb-version", version];
    let server = Server::start(&options);
    let mut files = Vec::new();
    let all = under_load(&server, &mut rng, |now| {
        let mut client = server.client();
        for _ in 0..4 {
            let (folder, before) = (Folder::new(), now());
            snapshot(&server, "--rdb", &folder.join("dump.rdb"));
            files.push((folder, before, now()));
            call(&mut client, &["BGSAVE"]);
        }
        // All that were acknowledged meanwhile went on.
        let ((_, before, _), after) = (&files[0], now());
        assert!(before.iter().zip(&after).all(|(from, to)| from < to), "{before:?} {after:?}");
    });
    let mut client = server.client();
    assert_eq!((int(&mut client, "DBSIZE") > 100, check_moment(&mut client)), (true, all));
    wait_until(|| "the moment is kept no more".into(), || client.info("backup_in_progress") == "0");
    assert_eq!((client.info("backups_ended"), client.info("backups_lost")), ("4".into(), "0".into()));
    assert!(children(&server).is_empty());
    for (folder, before, after) in files {
        let redis = Redis::start(folder, &[]);
        let found = check_moment(&mut redis.client());
        assert!(is_between(&found, &before, &after), "{found:?} is not between {before:?} and {after:?}");
    }
    assert_sound(&server.stop());
}

#[test]
fn an_idle_server_sends_what_it_holds() {
    let server = Server::start(&["--rdb-version", Redis::rdb_version()]);
    let mut client = server.client();
    harness::sample::make_data(&mut client, &mut Rng(seed()), true);
    let library = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";
    assert_eq!(client.call_args(&["FUNCTION", "LOAD", library]), bulk("lib"));
    let expected = harness::sample::known_to_redis(harness::sample::state(&mut client));

    let folder = Folder::new();
    snapshot(&server, "--rdb", &folder.join("dump.rdb"));
    let redis = Redis::start(folder, &[]);
    assert_eq!(harness::sample::known_to_redis(harness::sample::state(&mut redis.client())), expected);
    assert_eq!(show(&redis.client().call("FCALL answer 0")), ":42");

    // Only the functions.
    let folder = Folder::new();
    snapshot(&server, "--functions-rdb", &folder.join("dump.rdb"));
    let redis = Redis::start(folder, &[]);
    assert_eq!(show(&redis.client().call("FCALL answer 0")), ":42");
    assert_eq!(int(&mut redis.client(), "DBSIZE"), 0);

    // By PSYNC it is the same behind another line.
    let bytes = all_of(ask(&server, "PSYNC ? -1"));
    let line = bytes.split_inclusive(|byte| *byte == b'\n').next().expect("a line");
    let words = String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((&words[0][..], words[1].len()), ("+FULLRESYNC", 40), "{words:?}");
    assert_eq!(words[1], client.info("master_replid"));
    assert!(file_in(&bytes[line.len()..]).expect("all of it").starts_with(b"REDIS00"));

    // Each of them was a full copy, also where a part was asked for.
    let counted = |client: &mut Client| {
        ["sync_full", "sync_partial_ok", "sync_partial_err"].map(|name| client.info(name))
    };
    assert_eq!(counted(&mut client), ["3", "0", "0"]);
    let bytes = all_of(ask(&server, &format!("PSYNC {} 1", words[1])));
    assert!(bytes.starts_with(b"+FULLRESYNC "));
    assert_eq!(counted(&mut client), ["4", "0", "1"]);
    assert_eq!(client.call("CONFIG RESETSTAT"), ok());
    assert_eq!(counted(&mut client), ["0", "0", "0"]);
}

#[test]
fn who_is_no_reader_of_snapshots_is_refused() {
    let server = Server::start(&[]);
    server.client().run_script(
        "SYNC => -ERR This server has no replicas. It sends a snapshot to who asks for no more than that by REPLCONF rdb-only 1, as redis-cli --rdb does
         PSYNC ? -1 => -ERR This server has no replicas. It sends a snapshot to who asks for no more than that by REPLCONF rdb-only 1, as redis-cli --rdb does
         REPLCONF listening-port 6380 capa eof capa psync2 => +OK
         REPLCONF rdb-only 2 => -ERR value is out of range, value must between 0 and 1
         REPLCONF rdb-only => -ERR syntax error
         REPLCONF rdb-filter-only keys => -ERR Unsupported rdb-filter-only option: keys
         REPLCONF colour blue => -ERR Unrecognized REPLCONF option: colour
         SYNC => -ERR This server has no replicas. It sends a snapshot to who asks for no more than that by REPLCONF rdb-only 1, as redis-cli --rdb does",
    );
    server.client().run_script(
        "REPLCONF rdb-only 1 => +OK
         SYNC => -ERR The length of a snapshot is not known before its end, so it goes to clients only that know a mark there: REPLCONF capa eof
         MULTI => +OK
         SYNC => -ERR Command not allowed inside a transaction
         DISCARD => +OK
         SET key value => +OK",
    );
    // A real replica is told why.
    let (server, port) = Server::start_with_port(&[]);
    let folder = Folder::new();
    let log = folder.join("redis.log");
    let redis = Redis::start(folder, &["--replicaof", &format!("127.0.0.1 {port}")]);
    wait_until(
        || "the replica is told".into(),
        || fs::read_to_string(&log).unwrap_or_default().contains("This server has no replicas"),
    );
    assert_eq!(redis.client().info("master_link_status"), "down");
    assert_eq!(server.client().call("PING"), holdfast_resp::Reply::Simple(b"PONG".to_vec()));
}

#[test]
fn the_version_of_the_format_is_that_of_the_values() {
    let server = Server::start(&[]);
    let mut client = server.client();
    call(&mut client, &["SET", "key", "value"]);
    let version = |server: &Server| {
        let bytes = all_of(ask(server, "SYNC"));
        String::from_utf8_lossy(&file_in(&bytes).expect("all of it")[..9]).into_owned()
    };
    assert_eq!(version(&server), "REDIS0011");
    assert_eq!(client.call("CONFIG SET rdb-version 10"), ok());
    assert_eq!(version(&server), "REDIS0010");
    assert_eq!(client.call("CONFIG SET rdb-version auto"), ok());
    call(&mut client, &["HSET", "hash", "field", "value"]);
    assert_eq!(version(&server), "REDIS0011");
    call(&mut client, &["HEXPIRE", "hash", "100000", "FIELDS", "1", "field"]);
    assert_eq!(version(&server), "REDIS0012");
    assert_eq!(client.call("CONFIG SET rdb-version 11"), ok());
    let told = String::from_utf8(all_of(ask(&server, "SYNC"))).expect("a text");
    assert!(
        told.starts_with("-ERR ") && told.contains("the value of the key \"hash\" needs version 12"),
        "{told}"
    );
}

#[test]
fn one_snapshot_is_sent_at_a_time_and_holds_up_nobody() {
    let server = Server::start(&["--repl-timeout", "2"]);
    fill(&server);
    let mut client = server.client();
    let stalled = begin(&server);
    assert_eq!(client.info("backup_in_progress"), "1");
    let told = String::from_utf8(all_of(ask(&server, "SYNC"))).expect("a text");
    assert_eq!(told, "-ERR A backup is under way, or another client gets a snapshot\r\n");
    assert!(harness::is_error(&client.call("BACKUP BEGIN"), "ERR Another backup is under way"));
    let before = server.settled_bytes();
    for n in 0..200 {
        call(&mut client, &["SET", &format!("key:{n}"), "value"]);
    }
    assert!(server.resident_bytes() < before + (8 << 20), "what it sends is not the server's memory");
    // It is closed when it has taken nothing for long, and another one can have it.
    wait_until(|| "it is given up".into(), || client.info("backup_in_progress") == "0");
    ends_early(stalled);
    assert!(server.log().contains("it has taken nothing for 2 seconds (repl-timeout)"), "{}", server.log());
    let bytes = all_of(ask(&server, "SYNC"));
    assert!(file_in(&bytes).expect("all of it").len() > 20 << 20);
}

#[test]
fn what_ends_early_leaves_nothing_and_is_no_whole_file() {
    let server = Server::start(&["--log-max-size", "128mb"]);
    fill(&server);
    let mut client = server.client();
    let is_over = |client: &mut Client| {
        wait_until(|| "the moment is kept no more".into(), || client.info("backup_in_progress") == "0");
        wait_until(|| "the process has ended".into(), || children(&server).is_empty());
    };
    // The client goes, by itself or not.
    drop(begin(&server));
    is_over(&mut client);
    let stream = begin(&server);
    let list = text(&client.call("CLIENT LIST"));
    let line = list.lines().find(|line| line.contains("cmd=sync")).expect("it is in the list");
    let id = line.split(' ').next().and_then(|word| word.strip_prefix("id=")).expect("its number");
    assert_eq!(client.call(&format!("CLIENT KILL ID {id}")), holdfast_resp::Reply::Int(1));
    is_over(&mut client);
    drop(stream);
    // The process goes.
    let stream = begin(&server);
    let pid = children(&server)[0].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
    ends_early(stream);
    is_over(&mut client);
    assert!(server.log().contains("signal: 9"), "{}", server.log());
    // Writers need the room of what is kept.
    let stream = begin(&server);
    let value = "x".repeat(1 << 20);
    wait_until(
        || "it yields".into(),
        || {
            for n in 0..20 {
                call(&mut client, &["SET", &format!("large:{n}"), &value]);
            }
            client.info("backups_lost") == "1"
        },
    );
    ends_early(stream);
    is_over(&mut client);
    // The server goes.
    let stream = begin(&server);
    let pid = children(&server)[0];
    let folder = server.kill();
    ends_early(stream);
    wait_until(
        || "the process has ended".into(),
        || fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z ")),
    );
    assert_sound(&folder);
    let names = fs::read_dir(folder.join("data"))
        .expect("the folder")
        .map(|entry| entry.expect("a file").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    let server = Server::start_in(folder, &[]);
    assert_eq!(int(&mut server.client(), "DBSIZE"), 40);
    assert!(
        names.iter().all(|name| ["heap", "in-use", "lock", "log", "superblock"].contains(&&name[..])),
        "{names:?}"
    );
}

#[test]
fn nobody_else_calls_what_the_server_does() {
    let output = run(&["export-moment", "nowhere", "auto", "keys"]);
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!output.status.success() && told.contains("no plan"), "{told}");
}
