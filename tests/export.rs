//! `holdfast export`: what comes out of a data folder is what was in it, as another server of ours and a real Redis see it.

mod harness;

use harness::{Client, Folder, Rng, Server, is_error, long_form, run, seed, show, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// The databases that are used.
const DATABASES: [&str; 3] = ["0", "9", "15"];
/// 2100, in milliseconds.
const LATE_MS: u64 = 4_102_444_800_000;

fn start_in(folder: Folder) -> Server {
    Server::start_in(folder, &["--appendfsync", "no"])
}

/// Runs the program; whether it ended well, and what it printed.
fn program(args: &[&str]) -> (bool, String) {
    let output = run(args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    (output.status.success(), text)
}

fn export(folder: &Folder, file: &str, more: &[&str]) -> (bool, String) {
    program(&[&["export", &folder.join("data"), file], more].concat())
}

/// Makes random data of all types, some of them frozen. If they are for a Redis, no fields expire, and scores have a short form in
/// binary: others it does not always print as short as they could be, and it computes digests from what it prints.
fn make_data(client: &mut Client, rng: &mut Rng, for_redis: bool) {
    let mut requests = Vec::new();
    let mut count = 0;
    let mut call = |words: &[String]| {
        write_command(&mut requests, words);
        count += 1;
    };
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    for n in 0..rng.below(3) {
        let source = format!(
            "#!lua name=library{n}\nredis.register_function('f{n}', function(keys, args) return {n} end)"
        );
        call(&["FUNCTION".into(), "LOAD".into(), source]);
    }
    for db in DATABASES {
        call(&words(&format!("SELECT {db}")));
        for n in 0..rng.below(30) {
            // Lengths around the limits of what Redis packs, and values that are not text.
            let len = [0, 1, 5, 63, 64, 65, 300, 20_000][rng.below(8) as usize];
            let long: String = (0..len).map(|_| char::from(b' ' + rng.below(95) as u8)).collect();
            let elements = [1, 2, 20, 130, 600][rng.below(5) as usize];
            let kind = rng.below(6);
            let key = format!(
                "{}:{n}:{}",
                ["string", "list", "set", "zset", "hash", "stream"][kind as usize],
                rng.below(10)
            );
            let value = |rng: &mut Rng| match rng.below(4) {
                0 => rng.below(100_000).to_string(),
                1 => format!("-{}", rng.draw() >> 2),
                2 => format!("\r\n*1\r\n$4\r\nPING\r\n{}", rng.below(1000)),
                _ => format!("value \u{fc} {}", rng.draw()),
            };
            match kind {
                0 if rng.one_in(2) => call(&["SET".into(), key.clone(), long]),
                0 => call(&["SET".into(), key.clone(), value(rng)]),
                1 | 2 => {
                    let mut args =
                        vec![if kind == 1 { "RPUSH" } else { "SADD" }.to_owned(), key.clone(), long];
                    args.extend((0..elements).map(|_| value(rng)));
                    call(&args);
                }
                3 => {
                    let mut args = words("ZADD");
                    args.extend([key.clone(), "-inf".into(), long]);
                    for _ in 0..elements {
                        let score = match rng.below(3) {
                            0 => rng.below(100).to_string(),
                            1 if !for_redis => format!("{:e}", f64::from_bits(rng.draw() >> 2)),
                            _ => (rng.below(1 << 20) as f64 / -1024.0).to_string(),
                        };
                        args.extend([score, value(rng)]);
                    }
                    call(&args);
                }
                4 => {
                    let mut args = vec!["HSET".to_owned(), key.clone(), "field".into(), long];
                    (0..elements).for_each(|n| args.extend([format!("field:{n}"), value(rng)]));
                    call(&args);
                    if !for_redis && rng.one_in(2) {
                        call(&words(&format!(
                            "HPEXPIREAT {key} {} FIELDS 1 field",
                            LATE_MS + rng.below(1000)
                        )));
                    }
                }
                _ => {
                    for n in 1..=elements {
                        let mut args = words(&format!("XADD {key} {}-{} name", n * 10, rng.below(5)));
                        args.push(value(rng));
                        if rng.one_in(5) {
                            args.extend(["other".into(), value(rng)]);
                        }
                        call(&args);
                    }
                    call(&words(&format!("XGROUP CREATE {key} readers {}", rng.below(elements * 10))));
                    call(&words(&format!("XGROUP CREATE {key} others $")));
                    call(&words(&format!("XGROUP CREATECONSUMER {key} others idle")));
                    for consumer in ["ada", "bob"] {
                        let count = 1 + rng.below(elements);
                        call(&words(&format!(
                            "XREADGROUP GROUP readers {consumer} COUNT {count} STREAMS {key} >"
                        )));
                    }
                    call(&words(&format!("XDEL {key} 10-0 20-1 {elements}0-2")));
                    if rng.one_in(4) {
                        call(&words(&format!("XTRIM {key} MAXLEN 1")));
                    }
                }
            }
            if rng.one_in(3) {
                call(&words(&format!("PEXPIREAT {key} {}", LATE_MS + rng.below(1000))));
            }
        }
    }
    client.send(&requests);
    for number in 0..count {
        let reply = client.reply();
        assert!(!is_error(&reply, ""), "command {number}: {reply:?}");
    }
    if rng.one_in(2) {
        // Now collections lie frozen in the log, and nothing is in memory.
        client.call("DEBUG RELOAD");
    }
}

/// Everything that a client can see of the data. How a stream's nodes are laid out is nobody's business.
fn state(client: &mut Client) -> Vec<String> {
    let Reply::Array(libraries) = client.call("FUNCTION LIST WITHCODE") else { panic!("libraries") };
    let mut seen: Vec<String> = libraries.iter().map(show).collect();
    // Redis has them in any order.
    seen.sort();
    seen.push(show(&client.call("DEBUG DIGEST")));
    for db in DATABASES {
        client.call(&format!("SELECT {db}"));
        let Reply::Array(keys) = client.call("KEYS *") else { panic!("names of keys") };
        let mut keys: Vec<String> = keys.iter().map(show).collect();
        keys.sort();
        for key in keys {
            seen.push(format!("{db} {key} {}", show(&client.call(&format!("PEXPIRETIME {key}")))));
            if key.starts_with("hash") {
                seen.push(show(&client.call(&format!("HPEXPIRETIME {key} FIELDS 2 field field:0"))));
            }
            if key.starts_with("stream") {
                let Reply::Array(told) = client.call(&format!("XINFO STREAM {key} FULL COUNT 0")) else {
                    panic!("{key} is a stream");
                };
                let pairs = told.chunks(2).filter(|pair| !show(&pair[0]).starts_with("radix-tree"));
                seen.extend(pairs.map(|pair| format!("{} {}", show(&pair[0]), show(&pair[1]))));
            }
        }
    }
    client.call("SELECT 0");
    seen
}

#[test]
fn what_is_exported_and_imported_is_the_same() {
    let mut rng = Rng(seed());
    for round in 0..long_form("HOLDFAST_EXPORT_ROUNDS", 12) {
        let server = start_in(Folder::new());
        make_data(&mut server.client(), &mut rng, false);
        let expected = state(&mut server.client());
        // What a crash leaves is read as well as what an orderly end does.
        let folder = if rng.one_in(2) {
            server.client().call("WAITAOF 1 0 0");
            server.kill()
        } else {
            server.stop()
        };
        let file = folder.join("dump.rdb");
        let (is_done, text) = export(&folder, &file, &[]);
        assert!(is_done && text.ends_with("ok\n"), "round {round}: {text}");
        let other = Folder::new();
        let (is_done, text) = program(&["import", &file, "--dir", &other.join("data")]);
        assert!(is_done, "round {round}: {text}");
        assert_eq!(state(&mut start_in(other).client()), expected, "round {round}");
        // The folder is as it was.
        assert_eq!(state(&mut start_in(folder).client()), expected, "round {round}");
    }
}

/// A real Redis, which the program that checks RDB files is when it is called so. It does not outlive the test.
struct Redis {
    process: Child,
    folder: Folder,
}

impl Redis {
    fn command() -> Command {
        let mut command = Command::new("redis-check-rdb");
        command.arg0("redis-server");
        command
    }

    /// The version of RDB files that it loads.
    fn rdb_version() -> &'static str {
        let output = Redis::command().arg("--version").output().expect("redis-check-rdb is installed");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let version = text.split("v=").nth(1).unwrap_or_else(|| panic!("no version: {text}"));
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().expect("a number"));
        let version = (numbers.next().expect("a number"), numbers.next().expect("a number"));
        if version >= (7, 2) { "11" } else { "10" }
    }

    /// Starts it with the file `dump.rdb` of the folder.
    fn start(folder: Folder) -> Redis {
        let log = fs::File::create(folder.join("redis.log")).expect("the log");
        let mut command = Redis::command();
        command.args(["--port", "0", "--unixsocket", &folder.join("redis"), "--dir", &folder.join("")]);
        command.args(["--enable-debug-command", "yes", "--save", ""]).stdin(Stdio::null());
        let process = command.stdout(log).spawn().expect("it runs");
        let mut redis = Redis { process, folder };
        wait_until(
            || "Redis serves".into(),
            || {
                let log = || fs::read_to_string(redis.folder.join("redis.log")).unwrap_or_default();
                assert_eq!(redis.process.try_wait().expect("its state"), None, "{}", log());
                log().contains("eady to accept connections")
            },
        );
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What is told of a stream without when its consumers were last active, which no server knew before 7.2.
fn without_activity(line: &str) -> String {
    let mut parts = line.split("active-time ");
    let first = parts.next().expect("a first part").to_owned();
    parts.fold(first, |seen, part| seen + part.split_once(' ').expect("more than that is told").1)
}

#[test]
fn a_real_redis_loads_what_is_exported() {
    let (mut rng, version) = (Rng(seed()), Redis::rdb_version());
    for round in 0..4 {
        let server = start_in(Folder::new());
        make_data(&mut server.client(), &mut rng, true);
        let expected = state(&mut server.client());
        let folder = server.stop();
        let (is_done, text) = export(&folder, &folder.join("dump.rdb"), &["--rdb-version", version]);
        assert!(is_done, "{text}");
        let redis = Redis::start(folder);
        let mut client = Client::connect(&redis.folder.join("redis")).expect("a connection");
        // Before 7.4 it knows of no fields that expire.
        let is_known = |line: &String| !line.starts_with("-ERR unknown command") && line != "[:-1 :-1]";
        let known = |state: Vec<String>| -> Vec<String> {
            let known = state.into_iter().filter(is_known);
            known.map(|line| if version == "10" { without_activity(&line) } else { line }).collect()
        };
        assert_eq!(known(state(&mut client)), known(expected), "round {round}");
    }
}

#[test]
fn what_has_expired_is_left_out() {
    let server = start_in(Folder::new());
    server.client().run_script(
        "DEBUG SET-ACTIVE-EXPIRE 0 => +OK
         SET stays value => +OK
         HSET half field value other value => :2
         HSET all field value => :1
         SET expired value PX 1 => +OK
         HPEXPIRE half 1 FIELDS 1 field => [:1]
         HPEXPIRE all 1 FIELDS 1 field => [:1]
         WAITAOF 1 0 0 => [:1 :0]",
    );
    let (folder, other) = (server.kill(), Folder::new());
    let file = other.join("dump.rdb");
    // Nothing is left that needs a newer version.
    let (is_done, text) = export(&folder, &file, &[]);
    assert_eq!((is_done, &text[..]), (true, "version of the format: 11\nkeys: 2\nok\n"));
    let (is_done, text) = program(&["import", &file, "--dir", &other.join("data")]);
    assert!(is_done, "{text}");
    start_in(other).client().run_script(
        "DBSIZE => :2
         GET stays => value
         HGETALL half => [other value]",
    );
}

#[test]
fn what_cannot_be_exported_is_told_and_nothing_is_left() {
    let server = start_in(Folder::new());
    let mut client = server.client();
    client.call("HSET hash field value other value");
    client.call(&format!("HPEXPIREAT hash {LATE_MS} FIELDS 1 field"));
    client.call(&format!("SET string {}", "x".repeat(50_000)));
    let file = server.folder().join("dump.rdb");
    let left = |folder: &Folder| {
        fs::read_dir(folder.path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_str().is_some_and(|name| name.starts_with("dump.rdb")))
    };

    // A server uses the folder.
    let (is_done, text) = export(server.folder(), &file, &[]);
    assert!(!is_done && text.contains("in use by another process") && !left(server.folder()), "{text}");

    // The format is too old.
    let folder = server.stop();
    let (is_done, text) = export(&folder, &file, &["--rdb-version", "11"]);
    assert!(!is_done && text.contains("the value of the key \"hash\" needs version 12"), "{text}");
    assert!(!left(&folder));
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(is_done && text.starts_with("version of the format: 12\nkeys: 2\n"), "{text}");

    // There is a file, or another export.
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("dump.rdb is there already"), "{text}");
    fs::rename(&file, folder.join("dump.rdb.exporting")).unwrap();
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("dump.rdb.exporting is in the way"), "{text}");
    fs::remove_file(folder.join("dump.rdb.exporting")).unwrap();

    // The value is damaged.
    let segment = fs::read_dir(folder.join("data/log")).unwrap().map(|entry| entry.unwrap().file_name());
    let segment = segment.map(|name| format!("data/log/{}", name.to_str().unwrap()));
    let places = segment.filter_map(|name| {
        let at = folder.read(&name).windows(1000).position(|bytes| bytes.iter().all(|byte| *byte == b'x'))?;
        Some((name, at as u64))
    });
    let places: Vec<_> = places.collect();
    assert!(!places.is_empty());
    for (name, at) in places {
        folder.flip_bit(&name, at + 20_000, 3);
    }
    let (is_done, text) = export(&folder, &file, &[]);
    assert!(!is_done && text.contains("is damaged") && !left(&folder), "{text}");

    let (is_done, text) = program(&["export", &folder.join("none"), &file]);
    assert!(!is_done && text.contains("none is not a data folder"), "{text}");
    let (is_done, text) = export(&folder, &file, &["--rdb-version", "9"]);
    assert!(!is_done && text.contains("see holdfast export --help"), "{text}");
}
