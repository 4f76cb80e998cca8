//! Values that are not in memory: what is read from the medium is right, in order, and read once.

use crate::harness::{Client, Folder, Rng, Server, array, bulk, is_error, ok, seed};
use holdfast_resp::{Reply, write_command};

const KEYS: usize = 3000;

/// How the server reads.
const WAYS: [&[&str]; 2] = [&["--io-uring", "yes"], &["--io-uring", "no"]];

fn key(n: usize) -> String {
    format!("key:{n}")
}

/// Of most lengths, from nothing to several blocks; some reach into the next segment.
fn value(n: usize) -> String {
    let len = match n % 50 {
        0 => 70_000,
        rest => rest * 37 % 1500,
    };
    format!("{n}:").repeat(len / 4)
}

/// A stopped server's folder with all keys.
fn filled() -> Folder {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    for first in (0..KEYS).step_by(100) {
        let calls: Vec<_> = (first..first + 100).map(|n| vec!["SET".to_owned(), key(n), value(n)]).collect();
        assert!(pipeline(&mut client, &calls).iter().all(|reply| *reply == ok()));
    }
    server.stop()
}

/// Sends commands at once; their replies.
fn pipeline(client: &mut Client, calls: &[Vec<String>]) -> Vec<Reply> {
    let mut requests = Vec::new();
    calls.iter().for_each(|call| write_command(&mut requests, call));
    client.send(&requests);
    calls.iter().map(|_| client.reply()).collect()
}

/// Items that were read from the medium.
fn reads(client: &mut Client) -> usize {
    client.info("cache_misses").parse().expect("a number")
}

#[test]
fn what_was_asked_before_a_half_close_is_read_and_answered() {
    let server = Server::start_in(filled(), WAYS[0]);
    for some in (0..KEYS).collect::<Vec<_>>().chunks(40).take(20) {
        let mut client = server.client();
        let calls = some.iter().map(|&n| format!("GET {}\r\n", key(n))).collect::<String>();
        client.send(calls.as_bytes());
        client.finish();
        for &n in some {
            assert_eq!(client.try_reply(), Some(bulk(value(n))), "key {n}");
        }
        assert_eq!(client.try_reply(), None);
    }
}

#[test]
fn pipelines_of_cold_values_are_answered_in_order_and_read_once() {
    let mut folder = filled();
    let mut rng = Rng(seed());
    for way in WAYS {
        let server = Server::start_in(folder, way);
        let mut clients = [server.client(), server.client()];
        // Two clients want the same at the same time.
        let mut order: Vec<usize> = (0..KEYS).collect();
        for at in (1..KEYS).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for some in order.chunks(20) {
            let mut calls: Vec<Vec<String>> = Vec::new();
            let mut expected = Vec::new();
            for &n in some {
                let (call, reply) = match n % 5 {
                    0 => (
                        vec!["GETRANGE".into(), key(n), "1".into(), "9".into()],
                        bulk(range(&value(n), 1, 9)),
                    ),
                    1 => (vec!["STRLEN".into(), key(n)], Reply::Int(value(n).len() as i64)),
                    2 => {
                        let other = some[0];
                        let reply = array([bulk(value(n)), Reply::Null, bulk(value(other))]);
                        (vec!["MGET".into(), key(n), "missing".into(), key(other)], reply)
                    }
                    _ => (vec!["GET".into(), key(n)], bulk(value(n))),
                };
                calls.push(call);
                expected.push(reply);
            }
            for client in &mut clients {
                let mut requests = Vec::new();
                calls.iter().for_each(|call| write_command(&mut requests, call));
                client.send(&requests);
            }
            for client in &mut clients {
                for (call, expected) in calls.iter().zip(&expected) {
                    assert_eq!(client.reply(), *expected, "{call:?}");
                }
            }
        }
        // Each client of a worker of its own may read an item before the other has put it into the cache.
        let reads = reads(&mut clients[0]);
        assert!((KEYS..=2 * KEYS).contains(&reads), "{way:?}: {reads} reads of {KEYS} values");
        folder = server.stop();
    }
}

/// A command that is tried again, since what it wants is not in memory, has looked for its keys once.
#[test]
fn each_look_up_of_a_key_counts_once() {
    for way in WAYS {
        let server = Server::start_in(filled(), way);
        let mut client = server.client();
        let counts = |client: &mut Client| ["keyspace_hits", "keyspace_misses"].map(|name| client.info(name));
        for n in 0..100 {
            assert_eq!(client.call_args(&["GET", &key(3 * n)]), bulk(value(3 * n)));
            let values = array([bulk(value(3 * n + 1)), Reply::Null, bulk(value(3 * n))]);
            assert_eq!(client.call_args(&["MGET", &key(3 * n + 1), "missing", &key(3 * n)]), values);
            // In Redis commands that write do not count.
            assert_eq!(client.call_args(&["GETDEL", &key(3 * n + 2)]), bulk(value(3 * n + 2)));
        }
        assert_eq!(counts(&mut client), ["300", "100"], "{way:?}");
        let calls = [vec!["MULTI".to_owned()], vec!["GET".into(), key(900)], vec!["GET".into(), key(901)]];
        pipeline(&mut client, &calls);
        assert_eq!(client.call("EXEC"), array([bulk(value(900)), bulk(value(901))]));
        assert_eq!(counts(&mut client), ["302", "100"], "{way:?}");
    }
}

/// A value that is read ahead of the command that wants it was not in memory.
#[test]
fn each_look_up_of_a_value_is_a_hit_or_a_miss() {
    let mut folder = filled();
    for way in WAYS {
        let server = Server::start_in(folder, way);
        let mut client = server.client();
        let hits = |client: &mut Client| client.info("cache_hits").parse::<usize>().expect("a number");
        for round in 1..=2 {
            for first in (0..1000).step_by(50) {
                let calls: Vec<_> = (first..first + 50).map(|n| vec!["GET".to_owned(), key(n)]).collect();
                let replies = pipeline(&mut client, &calls);
                assert!(replies.iter().zip(first..).all(|(reply, n)| *reply == bulk(value(n))));
            }
            assert_eq!((reads(&mut client), hits(&mut client)), (1000, 1000 * (round - 1)), "{way:?}");
        }
        folder = server.stop();
    }
}

/// With ten times more data than memory, copies leave memory soon: what was read for a command of a window is there when it runs.
#[test]
fn a_cold_value_of_a_window_is_read_once() {
    const VALUES: usize = 40_000;
    const WINDOW: usize = 32;
    const WINDOWS: usize = 300;
    let text = |n: usize| format!("{n:04096}");
    let mut rng = Rng(seed());
    for way in WAYS {
        let options = [&["--appendfsync", "no", "--maxmemory", "16mb", "--workers", "2"], way].concat();
        let server = Server::start(&options);
        let mut client = server.client();
        for first in (0..VALUES).step_by(100) {
            let calls: Vec<_> =
                (first..first + 100).map(|n| vec!["SET".to_owned(), key(n), text(n)]).collect();
            assert!(pipeline(&mut client, &calls).iter().all(|reply| *reply == ok()));
        }
        let before = reads(&mut client);
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for _ in 0..WINDOWS {
            let windows: Vec<Vec<usize>> = clients
                .iter_mut()
                .map(|client| {
                    let some: Vec<_> = (0..WINDOW).map(|_| rng.below(VALUES as u64) as usize).collect();
                    let mut requests = Vec::new();
                    some.iter().for_each(|n| write_command(&mut requests, &["GET", &key(*n)]));
                    client.send(&requests);
                    some
                })
                .collect();
            for (client, some) in clients.iter_mut().zip(&windows) {
                assert!(some.iter().all(|n| client.reply() == bulk(text(*n))));
            }
        }
        let gets = clients.len() * WINDOW * WINDOWS;
        let (reads, hits) =
            (reads(&mut client) - before, client.info("cache_hits").parse::<usize>().unwrap());
        assert!(reads > gets / 2, "{reads} reads: the values are in memory");
        assert!(reads + hits <= gets, "{way:?}: {reads} reads and {hits} hits for {gets} GETs");
    }
}

fn range(value: &str, from: usize, to: usize) -> &str {
    value.get(from..value.len().min(to + 1)).unwrap_or_default()
}

#[test]
fn a_value_that_is_overwritten_behind_the_read_ahead_is_the_new_one() {
    for way in WAYS {
        let server = Server::start_in(filled(), way);
        let mut client = server.client();
        for n in (0..KEYS).step_by(10) {
            let calls = [
                vec!["GET".to_owned(), key(n)],
                vec!["SET".to_owned(), key(n + 1), "new".to_owned()],
                vec!["GET".to_owned(), key(n + 1)],
                vec!["APPEND".to_owned(), key(n + 2), "more".to_owned()],
                vec!["GET".to_owned(), key(n + 2)],
                vec!["DEL".to_owned(), key(n + 3)],
                vec!["GET".to_owned(), key(n + 3)],
                vec!["RENAME".to_owned(), key(n + 4), key(n + 5)],
                vec!["GET".to_owned(), key(n + 5)],
            ];
            let more = value(n + 2) + "more";
            let expected = [
                bulk(value(n)),
                ok(),
                bulk("new"),
                Reply::Int(more.len() as i64),
                bulk(&more),
                Reply::Int(1),
                Reply::Null,
                ok(),
                bulk(value(n + 4)),
            ];
            assert_eq!(pipeline(&mut client, &calls), expected, "at {n}");
        }
    }
}

/// Only the reply about a damaged value is an error, whatever is read with it.
#[test]
fn a_damaged_value_fails_its_own_reply() {
    for way in WAYS {
        let folder = filled();
        let log = folder.read("data/log/00000000");
        let wanted = value(104);
        let offset =
            log.windows(wanted.len()).position(|bytes| bytes == wanted.as_bytes()).expect("the value");
        folder.flip_bit("data/log/00000000", offset as u64 + 3, 5);
        let server = Server::start_in(folder, way);
        let calls: Vec<_> = (101..108).map(|n| vec!["GET".to_owned(), key(n)]).collect();
        for (n, reply) in (101..108).zip(pipeline(&mut server.client(), &calls)) {
            if n == 104 {
                assert!(is_error(&reply, "ERR corrupt: log/00000000 at offset "), "{reply:?}");
            } else {
                assert_eq!(reply, bulk(value(n)));
            }
        }
    }
}
