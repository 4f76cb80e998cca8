//! Random data of all types, and everything that clients can see of data.

use super::{Client, Redis, Rng, is_error, items, show, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{thread, time::Duration};

/// The databases that are used.
pub const DATABASES: [&str; 3] = ["0", "9", "15"];
/// 2100, in milliseconds.
pub const LATE_MS: u64 = 4_102_444_800_000;

/// Makes random data of all types, some of them frozen. If they are for a Redis, no fields expire, and scores have a short form in
/// binary and none of them needs an exponent: before 7.2 it does not print others as it does since, and it computes digests from what it
/// prints.
pub fn make_data(client: &mut Client, rng: &mut Rng, for_redis: bool) {
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
                            _ => (rng.below(1 << 20) as f64 / -512.0).to_string(),
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

/// Waits until what expires within some milliseconds is removed.
pub fn wait_until_expired(client: &mut Client) {
    thread::sleep(Duration::from_millis(50));
    let has_none = || Reply::Int(items(&client.call("KEYS *")).len() as i64) == client.call("DBSIZE");
    wait_until(|| "what has expired is removed".into(), has_none);
}

/// Everything that a client can see of the data. How a stream's nodes are laid out is nobody's business.
pub fn state(client: &mut Client) -> Vec<String> {
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
            seen.push(format!("{key} {}", show(&client.call(&format!("DEBUG DIGEST-VALUE {key}")))));
            let kind = show(&client.call(&format!("TYPE {key}")));
            if kind == "hash" {
                seen.push(show(&client.call(&format!("HPEXPIRETIME {key} FIELDS 2 field field:0"))));
            }
            if kind == "stream" {
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

/// Two states are the same; shows where they are not.
pub fn assert_same(found: &[String], expected: &[String]) {
    let pairs = found.iter().zip(expected).filter(|(found, expected)| found != expected);
    pairs.for_each(|(found, expected)| println!("{found}\n  is not {expected}"));
    assert!(found == expected, "{} lines, and not {}", found.len(), expected.len());
}

/// What is told of a stream without when its consumers were last active, which no server knew before 7.2.
fn without_activity(line: &str) -> String {
    let mut parts = line.split("active-time ");
    let first = parts.next().expect("a first part").to_owned();
    parts.fold(first, |seen, part| seen + part.split_once(' ').expect("more than that is told").1)
}

/// What a Redis may know of the state: one before 7.4 knows of no fields that expire, one before 7.2 not when consumers were active.
pub fn known_to_redis(state: Vec<String>) -> Vec<String> {
    let version = Redis::rdb_version();
    let is_known = |line: &String| !line.starts_with("-ERR unknown command") && line != "[:-1 :-1]";
    let known = state.into_iter().filter(is_known);
    known.map(|line| if version == "10" { without_activity(&line) } else { line }).collect()
}
