//! Values that are compressed on disk: they take less of it, all come back whatever the option is then, and damage is found.

use crate::harness::{self, Client, Rng, Server, assert_sound, bulk, is_error, ok, seed, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{fs, ops::Range};

const KEYS: u64 = 40_000;

fn key(n: u64) -> String {
    format!("user:{n:06}")
}

/// Like what web services keep.
fn value(n: u64, round: u64) -> String {
    let item = |at: u64| {
        format!(r#"{{"id":{},"name":"user {n}","visits":{},"email":"user{n}@example.org"}}"#, n + at, round)
    };
    (0..1 + n % 12).map(item).collect::<Vec<_>>().join(",")
}

fn pipeline(client: &mut Client, calls: &[Vec<String>]) -> Vec<Reply> {
    let mut requests = Vec::new();
    calls.iter().for_each(|call| write_command(&mut requests, call));
    client.send(&requests);
    calls.iter().map(|_| client.reply()).collect()
}

fn fill(client: &mut Client, round: u64) {
    for first in (0..KEYS).step_by(500) {
        let calls: Vec<_> =
            (first..first + 500).map(|n| vec!["SET".into(), key(n), value(n, round)]).collect();
        assert!(pipeline(client, &calls).iter().all(|reply| *reply == ok()));
    }
}

fn check(client: &mut Client, round: u64, numbers: impl Iterator<Item = u64>) {
    let numbers: Vec<u64> = numbers.collect();
    for numbers in numbers.chunks(500) {
        let calls: Vec<_> = numbers.iter().map(|&n| vec!["GET".into(), key(n)]).collect();
        for (&n, reply) in numbers.iter().zip(pipeline(client, &calls)) {
            assert_eq!(reply, bulk(value(n, round)), "{}", key(n));
        }
    }
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().expect("a number")
}

#[test]
fn values_take_less_of_the_disk_and_come_back_by_any_option() {
    let mut rng = Rng(seed());
    // Half of the data does not fit into memory.
    let options = |codec| ["--compression", codec, "--maxmemory", "48mb", "--log-max-size", "256mb"];
    let plain = {
        let server = Server::start(&options("no"));
        let mut client = server.client();
        fill(&mut client, 1);
        assert_eq!(number(&mut client, "compression_bytes_before"), 0);
        number(&mut client, "log_live_bytes")
    };
    let server = Server::start(&options("lz4"));
    let mut client = server.client();
    fill(&mut client, 1);
    let live = number(&mut client, "log_live_bytes");
    assert!(live * 2 < plain, "{live} bytes compressed, {plain} without");
    let (before, after) =
        (number(&mut client, "compression_bytes_before"), number(&mut client, "compression_bytes_after"));
    assert!(before > 2 * after && after < live, "{before} bytes became {after}, and {live} are live");
    // What is not in memory is expanded as it is read, and parts of it are parts of the value.
    check(&mut client, 1, 0..KEYS);
    for _ in 0..100 {
        let n = rng.below(KEYS);
        let (key, value) = (key(n), value(n, 1));
        assert_eq!(client.call_args(&["STRLEN", &key]), Reply::Int(value.len() as i64));
        assert_eq!(client.call_args(&["GETRANGE", &key, "3", "30"]), bulk(&value[3..31]));
    }
    // A value of its own transaction, before and after it is replaced.
    let (first, second) = (value(11, 7), value(11, 8));
    for call in [
        &["MULTI"][..],
        &["SET", "own", &first],
        &["GET", "own"],
        &["APPEND", "own", &second],
        &["STRLEN", "own"],
    ] {
        client.call_args(call);
    }
    let Reply::Array(replies) = client.call("EXEC") else { panic!("an array") };
    let len = Reply::Int((first.len() + second.len()) as i64);
    assert_eq!(replies, [ok(), bulk(first), len.clone(), len]);
    let mut folder = server.kill();
    for (round, codec) in [(2, "no"), (3, "zstd")] {
        let server = Server::start_in(folder, &options(codec));
        let mut client = server.client();
        check(&mut client, round - 1, (0..KEYS).step_by(3));
        // Twice, so that the cleaner moves what is compressed and what is not.
        fill(&mut client, round);
        fill(&mut client, round);
        check(&mut client, round, (0..KEYS).step_by(7));
        folder = server.kill();
        assert_sound(&folder);
    }
    let server = Server::start_in(folder, &options("no"));
    check(&mut server.client(), 3, 0..KEYS);
}

#[test]
fn collections_that_are_frozen_are_compressed() {
    let server = Server::start(&["--compression", "zstd", "--maxmemory", "24mb"]);
    let mut client = server.client();
    let fields = |n: u64| {
        (0..20).flat_map(move |field| [format!("field:{field}"), format!("a value of {n}, {field}")])
    };
    const HASHES: u64 = 60_000;
    for first in (0..HASHES).step_by(500) {
        let call = |n: u64| ["HSET".into(), format!("hash:{n}")].into_iter().chain(fields(n)).collect();
        let calls: Vec<Vec<String>> = (first..first + 500).map(call).collect();
        assert!(pipeline(&mut client, &calls).iter().all(|reply| *reply == Reply::Int(20)));
    }
    // How many freeze and how many pages leave memory instead depends on when checkpoints end.
    let frozen = number(&mut client, "mem_frozen_keys");
    assert!(frozen > HASHES / 60, "{frozen} hashes are frozen");
    let bytes = number(&mut client, "mem_frozen_log_bytes");
    assert!(bytes / frozen < 300, "{bytes} bytes for {frozen} hashes of more than 600");
    let folder = server.kill();
    let server = Server::start_in(folder, &["--maxmemory", "24mb"]);
    let mut client = server.client();
    for n in (0..HASHES).step_by(37) {
        let expected: Vec<Reply> = fields(n).map(bulk).collect();
        assert_eq!(client.call_args(&["HGETALL", &format!("hash:{n}")]), Reply::Array(expected), "hash {n}");
    }
}

#[test]
fn a_damaged_value_is_named() {
    let server = Server::start(&["--compression", "lz4"]);
    let mut client = server.client();
    fill(&mut client, 1);
    let folder = server.stop();
    assert_sound(&folder);
    // A bit of a value, some way into the log.
    let log = fs::read_dir(folder.join("data/log")).expect("a log");
    let first = log.map(|entry| entry.expect("an entry").file_name()).min().expect("a segment");
    let name = format!("data/log/{}", first.to_str().expect("a name in hex"));
    let bytes = folder.read(&name);
    let key_at = (0..bytes.len()).rfind(|&at| bytes[at..].starts_with(b"user:000777")).expect("the key");
    folder.flip_bit(&name, key_at as u64 + 40, 3);
    let (is_sound, told) = harness::check(&folder);
    assert!(!is_sound && told.contains("item checksum"), "{told}");
}

#[test]
fn it_is_turned_on_and_off_while_the_server_runs() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let text = value(11, 1);
    let set = |client: &mut Client, is_compressed: bool| {
        let before = number(client, "compression_bytes_before");
        assert_eq!(client.call_args(&["SET", "key", &text]), ok());
        let compressed = number(client, "compression_bytes_before") - before;
        assert_eq!(compressed, if is_compressed { text.len() as u64 } else { 0 });
    };
    set(&mut client, false);
    for codec in ["lz4", "zstd compression-level 19", "zstd"] {
        assert_eq!(client.call(&format!("CONFIG SET compression {codec}")), ok());
        assert_eq!(number(&mut client, "compression_active"), 1);
        set(&mut client, true);
        assert_eq!(client.call("CONFIG SET compression-min-bytes 100kb"), ok());
        set(&mut client, false);
        assert_eq!(client.call("CONFIG SET compression-min-bytes 64"), ok());
        set(&mut client, true);
        assert_eq!(client.call("CONFIG SET compression no"), ok());
        assert_eq!(number(&mut client, "compression_active"), 0);
        set(&mut client, false);
    }
    for wrong in ["compression gzip", "compression-level 20", "compression-level 0"] {
        assert!(is_error(&client.call(&format!("CONFIG SET {wrong}")), "ERR CONFIG SET failed"), "{wrong}");
    }
    assert_eq!(client.call("CONFIG SET compression zstd"), ok());
    set(&mut client, true);
    let folder = server.kill();
    let told = assert_sound(&folder);
    assert!(told.contains("items: 1, ") && told.contains(" 1 compressed"), "{told}");
    let server = Server::start_in(folder, &[]);
    assert_eq!(server.client().call("GET key"), bulk(&text));
}

/// A value too small to have much in common with itself.
fn small(n: u64) -> String {
    format!("{{\"customer\":{n},\"currency\":\"EUR\",\"state\":\"delivered\",\"total\":{}}}", n * 7919)
}

fn set_small(client: &mut Client, numbers: Range<u64>) {
    for first in numbers.step_by(500) {
        let calls: Vec<_> = (first..first + 500).map(|n| vec!["SET".into(), key(n), small(n)]).collect();
        assert!(pipeline(client, &calls).iter().all(|reply| *reply == ok()));
    }
}

/// So many give enough samples for a dictionary: each fourth is one.
const SAMPLED: u64 = 70_000;

#[test]
fn small_values_share_a_dictionary() {
    let server = Server::start(&["--compression", "zstd"]);
    let mut client = server.client();
    set_small(&mut client, 0..SAMPLED);
    wait_until(|| "a dictionary is made".into(), || number(&mut client, "compression_dictionaries") == 1);
    let sizes = |client: &mut Client| {
        ["before", "after"].map(|at| number(client, &format!("compression_bytes_{at}")))
    };
    let [before, after] = sizes(&mut client);
    set_small(&mut client, 0..10_000);
    let [before, after] = [sizes(&mut client)[0] - before, sizes(&mut client)[1] - after];
    assert!(before > 500_000 && after * 2 < before, "{after} of {before}");
    drop(client);
    let folder = server.kill();
    assert_sound(&folder);
    let server = Server::start_in(folder, &[]);
    let mut client = server.client();
    for first in (0..10_000).step_by(500) {
        let calls: Vec<_> = (first..first + 500).map(|n| vec!["GET".into(), key(n)]).collect();
        let read = pipeline(&mut client, &calls);
        assert!(read.iter().zip(first..).all(|(reply, n)| *reply == bulk(small(n))));
    }
}

#[test]
fn a_dictionary_that_cannot_be_kept_is_told() {
    let server = Server::start(&["--compression", "zstd"]);
    // Where its file would go.
    fs::create_dir(server.folder().join("data/dictionary-1")).expect("a folder");
    let mut client = server.client();
    set_small(&mut client, 0..SAMPLED);
    let told = "A dictionary for small values is not used, as it cannot be kept: write dictionary-1: ";
    wait_until(|| "the failure is told".into(), || server.log().contains(told));
    assert_eq!(number(&mut client, "compression_dictionary_failures"), 1);
    assert_eq!(number(&mut client, "compression_dictionaries"), 0);
    set_small(&mut client, 0..500);
    assert_eq!(client.call_args(&["GET", &key(499)]), bulk(small(499)));
}
