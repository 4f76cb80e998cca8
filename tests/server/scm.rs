//! Storage-class memory as the medium, emulated by files: nothing that was acknowledged is lost, commits take few fences, and what is
//! written is counted.

use crate::harness::{self, Client, Folder, Server, assert_sound, bulk, ok, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

const EMULATED: [&str; 2] = ["--medium", "emulated"];

fn stat(client: &mut Client, name: &str) -> i64 {
    let Reply::Array(flat) = client.call("SCM STATS") else { panic!("a flat array") };
    let at = flat.iter().position(|field| *field == bulk(name)).expect("a figure of this name");
    match flat[at + 1] {
        Reply::Int(figure) => figure,
        ref other => panic!("{name}: {other:?}"),
    }
}

/// Sends so many SETs at once, and takes their replies.
fn set(client: &mut Client, numbers: std::ops::Range<u64>) {
    let mut requests = Vec::new();
    numbers.clone().for_each(|n| write_command(&mut requests, &["SET", &format!("key:{n}"), &n.to_string()]));
    client.send(&requests);
    numbers.for_each(|_| assert_eq!(client.reply(), ok()));
}

#[test]
fn acknowledged_writes_survive_a_kill_on_any_medium() {
    let mut folder = Folder::new();
    // The bytes are the same on a drive.
    for (round, options) in (0..).zip([&EMULATED[..], &EMULATED, &[], &EMULATED]) {
        let server = Server::start_in(folder, options);
        let mut client = server.client();
        for n in 0..round * 500 {
            assert_eq!(client.call(&format!("GET key:{n}")), bulk(n.to_string()), "round {round}");
        }
        let all = round * 500..(round + 1) * 500;
        (all.start..all.start + 100).for_each(|n| set(&mut client, n..n + 1));
        (all.start + 100..all.end).step_by(50).for_each(|n| set(&mut client, n..n + 50));
        for call in ["RPUSH list", "SADD set", "HSET hash f", "ZADD zset 1", "APPEND string"] {
            assert!(matches!(client.call(&format!("{call} {round}")), Reply::Int(_)), "{call}");
        }
        assert_eq!(client.call("LLEN list"), Reply::Int(round as i64 + 1));
        folder = server.kill();
        assert_sound(&folder);
    }
}

/// Options for a heap that is changed by a method.
fn by(method: &str) -> Vec<&str> {
    [&EMULATED[..], &["--scm-method", method]].concat()
}

#[test]
fn acknowledged_writes_survive_a_kill_by_any_method_and_the_next() {
    let mut folder = Folder::new();
    let methods = ["cow", "latb", "latb", "lat", "lat", "cow", "own", "latb", "own", "lat", "cow", "cow"];
    for (round, method) in (0..).zip(methods) {
        let server = Server::start_in(folder, &by(method));
        let mut client = server.client();
        assert_eq!(client.info("scm_method"), method);
        for n in (0..round * 200).step_by(7) {
            assert_eq!(client.call(&format!("GET key:{n}")), bulk(n.to_string()), "round {round}, {method}");
        }
        set(&mut client, round * 200..round * 200 + 120);
        for n in 0..round {
            assert_eq!(
                client.call(&format!("HGET hash f:{n}")),
                bulk(n.to_string()),
                "round {round}, {method}"
            );
            assert_eq!(client.call(&format!("ZSCORE zset m:{n}")), bulk(n.to_string()));
        }
        client.call(&format!("HSET hash f:{round} {round}"));
        client.call(&format!("ZADD zset {round} m:{round}"));
        for call in ["MULTI", "RPUSH list a", "SADD set x", "EXEC"] {
            client.call(&format!(
                "{call}{}",
                if call.contains(' ') { round.to_string() } else { String::new() }
            ));
        }
        // Deletions, expiries and large values too.
        client.call_args(&["SET", "large", &"v".repeat(300_000 + round as usize)]);
        client.call("PEXPIRE key:1 100000000");
        client.call("SET gone 1");
        client.call("DEL gone");
        let rest = round * 200 + 120..(round + 1) * 200;
        let kills_at_rest = round % 3 == 0;
        set(&mut client, rest.clone());
        if !kills_at_rest {
            // Without waiting for the replies.
            let mut requests = Vec::new();
            (0..200).for_each(|n| write_command(&mut requests, &["HSET", "unanswered", &n.to_string(), "1"]));
            client.send(&requests);
        }
        folder = server.kill();
        assert_sound(&folder);
        let server = Server::start_in(folder, &by(method));
        let mut client = server.client();
        for (call, count) in [("LLEN list", round + 1), ("SCARD set", round + 1), ("HLEN hash", round + 1)] {
            assert_eq!(client.call(call), Reply::Int(count as i64), "round {round}, {method}");
        }
        assert_eq!(client.call("STRLEN large"), Reply::Int(300_000 + round as i64));
        assert_eq!(client.call("EXISTS gone"), Reply::Int(0));
        folder = if round % 2 == 0 { server.stop() } else { server.kill() };
    }
}

#[test]
fn each_method_takes_the_fences_and_stores_that_it_needs() {
    // How many fences and stores for so many stores to the heap's home.
    type Needs = fn(i64) -> (i64, i64);
    let methods: [(&str, Needs); 4] = [
        ("cow", |stores| (stores + 2, 2 * stores + 1)),
        ("lat", |stores| (2, stores)),
        ("latb", |stores| (3, stores + 2)),
        ("none", |stores| (1, stores)),
    ];
    for (method, needs) in methods {
        let server =
            Server::start(&[&by(method)[..], &["--workers", "1", "--scm-allow-unsafe", "yes"]].concat());
        let mut client = server.client();
        // Stores that a command needs, and lines that these touch, which is how many are made but by `cow`.
        let calls = [
            ("SET key %", 1, 1),
            ("INCRBY number %", 1, 1),
            ("HSET hash f %", 1, 1),
            ("ZADD zset % m", 1, 1),
            ("LPUSH list:@ x%", 3, 2),
            ("SADD set:@ x%", 3, 2),
            ("GET key", 0, 0),
            ("HGET hash f", 0, 0),
            ("ZRANGE zset 0 -1", 0, 0),
        ];
        for (call, single, lines) in calls {
            let stores = if method == "cow" { single } else { lines };
            let call = |key: i64, n: i64| call.replace('@', &key.to_string()).replace('%', &n.to_string());
            (0..4).for_each(|key| drop(client.call(&call(key, 1))));
            let mut one = |key: i64, n: i64| {
                assert_eq!(client.call("SCM START"), ok());
                let reply = client.call(&call(key, n));
                assert!(!harness::is_error(&reply, ""), "{reply:?}");
                client.call("SCM STOP");
                ["fences", "stores", "streams"].map(|name| stat(&mut client, name))
            };
            // The least of some: others may write meanwhile, and a list may lie in more lines than it fills.
            let found = (2..18).map(|n| one(n % 4, n)).min().expect("some");
            let (fences, all_stores) = if stores == 0 { (0, 0) } else { needs(stores) };
            let streams = i64::from(stores != 0);
            assert_eq!(found, [fences, all_stores, streams], "{} by {method}", call(0, 0));
        }
    }
}

/// The figures of a command in `SCM COMMANDS`; empty: it is not there.
fn of_command(client: &mut Client, command: &str) -> HashMap<String, i64> {
    let name = |field: &Reply| match field {
        Reply::Bulk(name) => String::from_utf8(name.to_vec()).expect("a name"),
        other => panic!("{other:?}"),
    };
    let Reply::Array(flat) = client.call("SCM COMMANDS") else { panic!("a flat array") };
    let found = flat.chunks(2).find(|pair| pair[0] == bulk(command));
    let Some([_, Reply::Array(figures)]) = found else { return HashMap::new() };
    figures
        .chunks(2)
        .map(|pair| match pair {
            [field, Reply::Int(figure)] => (name(field), *figure),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn what_was_written_is_told_by_command() {
    // Fences of a SET, of an EXEC with two, and of commits of loop turns, in each of which was one of these.
    for (method, set, exec, commits) in
        [("cow", 3, 3, 0), ("lat", 0, 0, 8), ("latb", 0, 0, 12), ("own", 0, 0, 4)]
    {
        let server = Server::start(&[&by(method)[..], &["--workers", "1"]].concat());
        let mut client = server.client();
        client.call("SET key 0");
        let one = |client: &mut Client| {
            assert_eq!(client.call("SCM START"), ok());
            for n in 1..=3 {
                assert_eq!(client.call(&format!("SET key {n}")), ok());
            }
            ["MULTI", "SET key 4", "SET key 5", "EXEC", "GET key"].iter().for_each(|call| {
                client.call(call);
            });
            assert!(matches!(client.call("EVAL return(redis.call('get',KEYS[1])) 1 key"), Reply::Bulk(_)));
            assert_eq!(client.call("SCM STOP"), ok());
            client.call("SET key 6");
            let figures = of_command(client, "set");
            let counted = ["transactions", "nested", "fences"].map(|name| figures[name]);
            assert_eq!(counted, [3, 2, 3 * set], "{method}: {figures:?}");
            let figures = of_command(client, "exec");
            let counted = ["transactions", "nested", "fences"].map(|name| figures[name]);
            assert_eq!(counted, [1, 0, exec], "{method}: {figures:?}");
            let figures = of_command(client, "get");
            let counted = ["transactions", "nested", "fences"].map(|name| figures[name]);
            assert_eq!(counted, [1, 1, 0], "{method}: {figures:?}");
            let found = of_command(client, "(commits)")["fences"];
            assert!(found >= commits, "{found} by {method}");
            assert!(method != "cow" || found == commits, "each of them commits by itself");
            let told = ["transactions_opened", "transactions_closed", "nested_commands"]
                .map(|name| stat(client, name));
            assert_eq!(told, [6, 6, 3], "{method}");
            client.call("SCM RESET");
            assert!(of_command(client, "set").is_empty());
            found
        };
        // The least of some tries: a segment may be made ready meanwhile, or the log's end marked.
        let found = (0..4).map(|_| one(&mut client)).min().expect("some");
        assert_eq!(found, commits, "fences of commits by {method}");
    }
    let server = Server::start(&[]);
    assert!(harness::is_error(&server.client().call("SCM COMMANDS"), "ERR The data folder does not lie on"));
}

#[test]
fn methods_are_refused_where_they_do_not_apply() {
    let start = |folder: &Folder, options: &[&str]| {
        let dir = folder.join("data");
        let out = harness::run(&[&["serve", "--port", "0", "--dir", &dir], options].concat());
        assert!(!out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let text = start(&Folder::new(), &["--scm-method", "cow"]);
    assert!(text.contains("scm-method cow needs memory that persists"), "{text}");
    let text = start(&Folder::new(), &by("none"));
    assert!(text.contains("it needs scm-allow-unsafe yes"), "{text}");
    let server = Server::start(&by("latb"));
    let mut client = server.client();
    assert_eq!(client.call("SET key value"), ok());
    assert!(harness::is_error(&client.call("BACKUP BEGIN"), "ERR With this scm-method"));
    let folder = server.kill();
    let text = start(&folder, &[]);
    assert!(text.contains("start with the option medium as before"), "{text}");
    let server = Server::start_in(folder, &EMULATED);
    assert_eq!(server.client().call("GET key"), bulk("value"));
    // As it was on a drive, which a stopped server may be started on.
    let server = server.restart(Server::stop);
    let folder = server.stop();
    let server = Server::start_in(folder, &[]);
    assert_eq!(server.client().call("GET key"), bulk("value"));
}

#[test]
fn a_commit_is_one_fence_and_a_look_is_none() {
    let server = Server::start(&[&EMULATED[..], &["--workers", "1"]].concat());
    let mut client = server.client();
    // The least of some tries: a segment may be made ready meanwhile, or the log's end marked.
    let mut fences = |work: &mut dyn FnMut(&mut Client, u32)| {
        let mut one = |number| {
            assert_eq!(client.call("SCM START"), ok());
            work(&mut client, number);
            assert_eq!(client.call("SCM STOP"), ok());
            stat(&mut client, "fences")
        };
        (0..4).map(&mut one).min().expect("some")
    };
    for call in
        ["SET key", "INCRBY key", "HSET hash f", "LPUSH list", "SADD set", "ZADD zset 1", "APPEND key"]
    {
        assert_eq!(fences(&mut |client, n| drop(client.call(&format!("{call} {}", 1 << n)))), 1, "{call}");
    }
    for call in ["GET key", "HGET hash f", "LRANGE list 0 -1", "SISMEMBER set m", "ZSCORE zset m", "PING"] {
        assert_eq!(fences(&mut |client, _| drop(client.call(call))), 0, "{call}");
    }
    let pipeline = fences(&mut |client, _| (0..100).for_each(|n| set(client, n * 16..n * 16 + 16)));
    // One for each sixteen, or a few more where a pipeline arrives in parts.
    assert!((100..130).contains(&pipeline), "{pipeline} fences for 100 pipelines");
    let transaction = fences(&mut |client, _| {
        for call in ["MULTI", "SET a 1", "LPUSH b 1", "SADD c 1", "EXEC"] {
            client.call(call);
        }
    });
    assert_eq!(transaction, 1);
    // Whole lines, each of them once: of all that is appended, and the one that a commit has begun and the next one goes on with.
    for call in ["SET key", "INCRBY key", "HSET hash f", "LPUSH list", "SADD set", "ZADD zset 1"] {
        const CALLS: i64 = 20;
        let mut surplus = |round: i64| {
            let appended =
                |client: &mut Client| client.info("log_bytes_appended").parse::<i64>().expect("a number");
            let before = appended(&mut client);
            client.call("SCM START");
            (0..CALLS).for_each(|n| drop(client.call(&format!("{call} {}", 1000 + round * CALLS + n))));
            client.call("SCM STOP");
            let lines = stat(&mut client, "lines");
            assert_eq!(stat(&mut client, "bytes"), 64 * lines, "{call}");
            assert!(lines >= CALLS, "{call}: {lines} lines");
            lines - (appended(&mut client) - before) / 64
        };
        // The least of some, as above.
        let surplus = (0..4).map(&mut surplus).min().expect("some");
        assert!(surplus <= CALLS + 1, "{call}: {surplus} lines more than were appended");
    }
    // What was counted stays until it is asked to go.
    set(&mut client, 0..10);
    assert!(stat(&mut client, "fences") >= 1);
    assert_eq!(stat(&mut client, "counting"), 0);
    assert_eq!(client.call("SCM RESET"), ok());
    for name in ["fences", "bytes", "lines", "counting", "delay_ns"] {
        assert_eq!(stat(&mut client, name), 0, "{name}");
    }
}

#[test]
fn an_emulation_takes_the_time_that_it_is_told() {
    const LINE: Duration = Duration::from_micros(30);
    let options = ["--scm-line-ns", "30000", "--log-max-size", "64mb"];
    let server = Server::start(&[&EMULATED[..], &options].concat());
    let mut client = server.client();
    let mut one = |n| {
        client.call("SCM START");
        let began = Instant::now();
        set(&mut client, n..n + 1);
        let took = began.elapsed();
        client.call("SCM STOP");
        (stat(&mut client, "lines") as u32, took)
    };
    // Others may write meanwhile: what is least is the SET alone.
    let (lines, took) = (0..20).map(&mut one).min().expect("some");
    assert!((1..=4).contains(&lines), "{lines} lines");
    assert!(took >= LINE * lines, "{took:?} for {lines} lines");
    assert!(stat(&mut client, "delay_ns") > 0);
    assert!(stat(&mut client, "overshoot_ns_max") <= stat(&mut client, "overshoot_ns"));
    assert_eq!(client.call("GET key:0"), bulk("0"));
}

#[test]
fn writes_without_a_reply_are_durable_soon() {
    let server = Server::start(&[&EMULATED[..], &["--appendfsync", "everysec"]].concat());
    let mut client = server.client();
    set(&mut client, 0..100);
    wait_until(
        || "all is durable".into(),
        || client.call("WAITAOF 1 0 100") == Reply::Array(vec![Reply::Int(1), Reply::Int(0)]),
    );
    let server = server.restart(Server::kill);
    assert_eq!(server.client().call("DBSIZE"), Reply::Int(100));
}

#[test]
fn what_does_not_apply_is_told() {
    let server = Server::start(&[]);
    let told = server.client().call("SCM STATS");
    assert!(harness::is_error(&told, "ERR The data folder does not lie on storage-class memory"), "{told:?}");
    let help = server.client().call("SCM HELP");
    assert!(matches!(help, Reply::Array(lines) if lines.len() > 8));
    let folder = server.stop();
    let out = harness::run(&["serve", "--port", "0", "--dir", &folder.join("data"), "--medium", "dax"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && text.contains("it is not on memory that persists"), "{text}");
    let out = harness::run(&["serve", "--port", "0", "--medium", "tape"]);
    assert!(!out.status.success());
}
