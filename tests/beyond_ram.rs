//! A collection that is larger than `maxmemory`: it is all there, memory stays within the limit, and a crash takes nothing.

mod harness;

use harness::{Client, Folder, Rng, Server, bulk, seed};
use holdfast_resp::{Reply, write_command};
use std::collections::HashMap;

const LIMIT: u64 = 64 << 20;
const OPTIONS: &[&str] = &["--maxmemory", "64mb", "--workers", "2"];
const FIELDS: u64 = 600_000;

fn field(n: u64) -> String {
    format!("field:{n:08}")
}

/// Fields are written again and again; their last round is in their value.
fn value(n: u64, round: u64) -> String {
    format!("{round}:{n}:{}", "x".repeat((n % 400) as usize))
}

/// Sends commands at once; their replies.
fn pipeline(client: &mut Client, calls: &[Vec<String>]) -> Vec<Reply> {
    let mut requests = Vec::new();
    calls.iter().for_each(|call| write_command(&mut requests, call));
    client.send(&requests);
    calls.iter().map(|_| client.reply()).collect()
}

fn set(client: &mut Client, fields: impl Iterator<Item = (u64, u64)>) {
    let calls: Vec<_> =
        fields.map(|(n, round)| vec!["HSET".into(), "huge".into(), field(n), value(n, round)]).collect();
    for reply in pipeline(client, &calls) {
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

fn check(client: &mut Client, rounds: &HashMap<u64, u64>, fields: &[u64]) {
    let calls: Vec<_> = fields.iter().map(|&n| vec!["HGET".into(), "huge".into(), field(n)]).collect();
    for (&n, reply) in fields.iter().zip(pipeline(client, &calls)) {
        assert_eq!(reply, bulk(value(n, rounds.get(&n).copied().unwrap_or(0))), "field {n}");
    }
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().expect("a number")
}

/// What the program may hold beside data, in bytes, until data may be less for it.
const BESIDE: u64 = 32 << 20;

/// The RAM of the whole process.
fn assert_within(client: &mut Client) {
    let resident = number(client, "used_memory_rss");
    assert!(resident < LIMIT + BESIDE, "{} MiB are resident", resident >> 20);
}

#[test]
fn a_hash_outgrows_memory_and_survives_a_kill() {
    let mut rng = Rng(seed());
    let mut rounds = HashMap::new();
    let mut folder: Option<Folder> = None;
    for life in 0..3 {
        let server = match folder.take() {
            None => Server::start(OPTIONS),
            Some(folder) => Server::start_in(folder, OPTIONS),
        };
        let mut client = server.client();
        if life == 0 {
            for first in (0..FIELDS).step_by(500) {
                set(&mut client, (first..first + 500).map(|n| (n, 0)));
            }
            let heap = number(&mut client, "mem_heap_allocated");
            assert!(heap > 2 * LIMIT, "{heap} bytes are no more than memory");
        }
        assert_eq!(client.call("HLEN huge"), Reply::Int(FIELDS as i64));
        // Reads and writes all over it, while pages leave and come back.
        for round in 0..20 {
            let some: Vec<u64> = (0..200).map(|_| rng.below(FIELDS)).collect();
            check(&mut client, &rounds, &some);
            let changed: Vec<(u64, u64)> =
                (0..200).map(|_| (rng.below(FIELDS), life * 100 + round)).collect();
            rounds.extend(changed.iter().copied());
            set(&mut client, changed.into_iter());
            assert_within(&mut client);
        }
        let evicted = number(&mut client, "heap_pages_evicted");
        assert!(life > 0 || evicted > 5000, "{evicted} pages have left memory");
        assert!(number(&mut client, "mem_heap_absent") > LIMIT, "most of it is not in memory");
        folder = Some(server.kill());
    }
    let server = Server::start_in(folder.expect("the last server's"), OPTIONS);
    let mut client = server.client();
    let all: Vec<u64> = (0..FIELDS).collect();
    all.chunks(500).for_each(|some| check(&mut client, &rounds, some));
    assert_within(&mut client);
}
