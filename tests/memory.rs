//! More data than memory, and more writes than disk.

mod harness;

use harness::{Client, Rng, Server, check, number, ok, seed};
use holdfast_resp::{Reply, write_command};

const MIB: u64 = 1 << 20;
/// Bytes of a value.
const VALUE: usize = 2000;
/// Memory of a server beside what `maxmemory` limits: program, threads, buffers, and the index of these tests.
const BASE: u64 = 64 * MIB;

fn key(n: u64) -> String {
    format!("key:{n}")
}

/// A value that is right for one key and one version of it only.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{n}:{version}:").into_bytes();
    let mut rng = Rng(n << 32 | version);
    while value.len() < VALUE {
        value.extend_from_slice(&rng.draw().to_le_bytes());
    }
    value
}

fn write(client: &mut Client, keys: impl Iterator<Item = u64>, version: u64) {
    let keys: Vec<u64> = keys.collect();
    for chunk in keys.chunks(500) {
        let mut requests = Vec::new();
        for &n in chunk {
            write_command(&mut requests, &[b"SET", key(n).as_bytes(), &value(n, version)]);
        }
        client.send(&requests);
        chunk.iter().for_each(|_| assert_eq!(client.reply(), ok()));
    }
}

#[test]
fn data_may_be_larger_than_memory() {
    let mut rng = Rng(seed());
    let limit = 32 * MIB;
    let keys = 4 * limit / VALUE as u64;
    let mut server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    write(&mut server.client(), 0..keys, 0);
    for _ in 0..2 {
        let mut client = server.client();
        assert_eq!(number(&client.call("DBSIZE")), Some(keys), "nothing is evicted but copies");
        for _ in 0..200 {
            let chunk: Vec<u64> = (0..50).map(|_| rng.below(keys)).collect();
            let mut requests = Vec::new();
            chunk.iter().for_each(|&n| write_command(&mut requests, &["GET", &key(n)]));
            client.send(&requests);
            for n in chunk {
                assert!(client.reply() == Reply::Bulk(value(n, 0)), "{}", key(n));
            }
        }
        let resident = server.resident_bytes();
        eprintln!("{} MiB of values, {} MiB resident", keys * VALUE as u64 / MIB, resident / MIB);
        assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}");
        server = server.restart(Server::stop);
    }
    let (is_sound, text) = check(&server.stop());
    assert!(is_sound, "{text}");
}

#[test]
fn overwriting_for_long_fills_neither_memory_nor_disk() {
    let mut rng = Rng(seed());
    let limit = 16 * MIB;
    let keys = 64 * MIB / VALUE as u64;
    let server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    let mut client = server.client();
    let mut versions = vec![0; keys as usize];
    write(&mut client, 0..keys, 0);
    for version in 1..20 {
        let chosen: Vec<u64> = (0..keys / 2).map(|_| rng.below(keys)).collect();
        chosen.iter().for_each(|&n| versions[n as usize] = version);
        write(&mut client, chosen.into_iter(), version);
    }
    let (disk, resident) = (server.folder().disk_bytes(), server.resident_bytes());
    eprintln!("{} MiB of values, {} MiB on disk, {} MiB resident", 64, disk / MIB, resident / MIB);
    assert!(disk < 10 * 64 * MIB, "{disk} bytes on disk");
    assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}");
    let server = server.restart(Server::kill);
    let mut client = server.client();
    for n in (0..keys).step_by(7) {
        let expected = Reply::Bulk(value(n, versions[n as usize]));
        let found = client.call(&format!("GET {}", key(n)));
        // Under `no` the newest writes may be gone, but not whole keys.
        assert!(
            found == expected || found.as_bytes().is_some_and(|value| value.len() >= VALUE),
            "{}",
            key(n)
        );
    }
    let (is_sound, text) = check(&server.stop());
    assert!(is_sound, "{text}");
}
