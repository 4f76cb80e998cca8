//! More data than memory, and more writes than disk.

use crate::harness::{
    Client, EndOnDrop, Rng, Server, assert_sound, is_error, noise, number, ok, seed, wait_until,
};
use holdfast_resp::{Reply, write_command};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;
/// Memory of a server beside what `maxmemory` limits: the program, what the allocator keeps, and log buffers that fill
/// faster than the cache makes room for them.
const BASE: u64 = 96 * MIB;

fn key(n: u64) -> String {
    format!("key:{n}")
}

/// A value that is right for one key and one version of it only.
fn value(n: u64, version: u64, len: usize) -> Vec<u8> {
    let mut value = format!("{n}:{version}:").into_bytes();
    value.extend_from_slice(&noise(n << 32 | version, len.saturating_sub(value.len())));
    value
}

/// Bytes of memory that a server has had at most.
fn most_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    field.expect("VmHWM").trim().parse::<u64>().expect("a number") * 1024
}

/// Sets keys to values of a version, a few hundred kilobytes at a time.
fn write(client: &mut Client, keys: &[u64], version: u64, len: usize) {
    for chunk in keys.chunks((500_000 / len).max(1)) {
        let mut requests = Vec::new();
        for &n in chunk {
            write_command(&mut requests, &[b"SET", key(n).as_bytes(), &value(n, version, len)]);
        }
        client.send(&requests);
        chunk.iter().for_each(|_| assert_eq!(client.reply(), ok()));
    }
}

/// It is not laid out as a whole to be written where memory is short.
#[test]
fn a_long_string_takes_no_more_memory_while_it_leaves_memory() {
    let server = Server::start(&["--maxmemory", "100mb"]);
    let mut client = server.client();
    for part in 0..48 {
        let length = Reply::Int((part + 1) << 20);
        let offset = (part << 20).to_string();
        let bytes = noise(part as u64, 1 << 20);
        assert_eq!(client.call_args(&[b"SETRANGE", &b"long"[..], offset.as_bytes(), &bytes]), length);
    }
    let (fields, value) = (Vec::from_iter((0..20).map(|field| field.to_string())), "x".repeat(150));
    for first in (0..15_000).step_by(100) {
        let mut sent = Vec::new();
        for n in first..first + 100 {
            let name = format!("hash:{n}");
            let mut words = vec!["HSET", &name];
            fields.iter().for_each(|field| words.extend([&field[..], &value]));
            write_command(&mut sent, &words);
        }
        client.send(&sent);
        (0..100).for_each(|_| assert_eq!(client.reply(), Reply::Int(20)));
    }
    let most = most_bytes(&server);
    assert!(most < 100 * MIB + 48 * MIB, "it had {most} bytes of memory");
    assert_eq!(client.call("GETRANGE long 5242880 5242899"), Reply::Bulk(noise(5, 20)));
}

#[test]
fn data_may_be_larger_than_memory() {
    const VALUE: usize = 16 << 10;
    let mut rng = Rng(seed());
    let limit = 128 * MIB;
    let keys = 4 * limit / VALUE as u64;
    let mut server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    write(&mut server.client(), &Vec::from_iter(0..keys), 0, VALUE);
    for _ in 0..2 {
        let mut client = server.client();
        assert_eq!(number(&client.call("DBSIZE")), Some(keys), "nothing is evicted but copies");
        for _ in 0..200 {
            let chunk: Vec<u64> = (0..50).map(|_| rng.below(keys)).collect();
            let mut requests = Vec::new();
            chunk.iter().for_each(|&n| write_command(&mut requests, &["GET", &key(n)]));
            client.send(&requests);
            for n in chunk {
                assert!(client.reply() == Reply::Bulk(value(n, 0, VALUE)), "{}", key(n));
            }
        }
        let resident = server.resident_bytes();
        eprintln!("{} MiB of values, {} MiB resident", keys * VALUE as u64 / MIB, resident / MIB);
        assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}");
        server = server.restart(Server::stop);
    }
    assert_sound(&server.stop());
}

/// What is freed in the background is waited for before a write is refused.
/// A control group of processes, where a test may make one. It goes once nobody is in it.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// One whose processes have so many bytes of memory together.
    fn with_memory(bytes: u64) -> Option<ControlGroup> {
        // Of version 1, and of version 2.
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(top, limit)| {
            let path = Path::new(top).join(format!("holdfast-test-{}", process::id()));
            fs::create_dir(&path).ok()?;
            let group = ControlGroup(path);
            group.write(limit, bytes).ok()?;
            Some(group)
        })
    }

    fn write(&self, file: &str, number: u64) -> io::Result<()> {
        // Not made, where there is none.
        let file = File::options().write(true).open(self.0.join(file));
        file.and_then(|mut file| file.write_all(number.to_string().as_bytes()))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        wait_until(|| format!("{} is in use", self.0.display()), || fs::remove_dir(&self.0).is_ok());
    }
}

/// It took all the memory that there was, and was killed for it.
#[test]
fn without_maxmemory_data_may_be_larger_than_memory() {
    const VALUE: usize = 16 << 10;
    let group = ControlGroup::with_memory(256 * MIB);
    let server = Server::start(&[]);
    let mut client = server.client();
    let limit = |client: &mut Client| client.info("mem_limit").parse::<u64>().expect("a number");
    let of_machine = limit(&mut client);
    assert!(of_machine > 0 && of_machine < 1 << 50, "{of_machine}");
    assert_eq!(client.call("CONFIG SET maxmemory 1gb"), ok());
    assert_eq!(limit(&mut client), 1 << 30);
    if let Some(group) = &group {
        group.write("cgroup.procs", server.pid().into()).expect("a process may be moved there");
    }
    assert_eq!(client.call("CONFIG SET maxmemory 0"), ok());
    let expected = if group.is_some() { 192 * MIB } else { of_machine };
    assert_eq!(limit(&mut client), expected);
    if group.is_none() {
        return println!("no control group can be made here");
    }
    // No key goes for a limit that nobody has named.
    assert_eq!(client.call("CONFIG SET maxmemory-policy allkeys-lru"), ok());
    let keys = Vec::from_iter(0..25_000);
    write(&mut client, &keys, 1, VALUE);
    assert_eq!(client.call("DBSIZE"), Reply::Int(25_000));
    for n in (0..25_000).step_by(97) {
        assert!(client.call(&format!("GET {}", key(n))) == Reply::Bulk(value(n, 1, VALUE)), "key {n}");
    }
}

#[test]
fn there_is_room_as_soon_as_something_large_is_gone() {
    let server = Server::start(&["--maxmemory", "16mb", "--appendfsync", "no"]);
    let mut client = server.client();
    // The index stays in memory.
    for remove in ["FLUSHDB", "FLUSHALL"] {
        for first in (0..).step_by(1000) {
            let mut words = vec!["MSET".to_owned()];
            words.extend((first..first + 1000).flat_map(|key| [key.to_string(), "v".into()]));
            let reply = client.call_args(&words);
            if is_error(&reply, "OOM") {
                break;
            }
            assert_eq!(reply, ok());
        }
        client.call(remove);
        assert_eq!(client.call("SET key value"), ok(), "{remove}");
    }
}

/// Garbage is let be up to 256 MiB, and a checkpoint comes every few hundred MiB; beyond that the log does not grow.
#[test]
fn overwriting_for_long_fills_neither_memory_nor_disk() {
    const VALUE: usize = 64 << 10;
    let mut rng = Rng(seed());
    let (limit, keys) = (128 * MIB, 3000);
    let server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    let mut client = server.client();
    let mut versions = vec![0; keys as usize];
    write(&mut client, &Vec::from_iter(0..keys), 0, VALUE);
    let (mut written, mut disk, mut resident) = (keys * VALUE as u64, 0, 0);
    for version in 1..30 {
        let chosen: Vec<u64> = (0..keys / 2).map(|_| rng.below(keys)).collect();
        chosen.iter().for_each(|&n| versions[n as usize] = version);
        write(&mut client, &chosen, version, VALUE);
        written += chosen.len() as u64 * VALUE as u64;
        disk = server.folder().disk_bytes().max(disk);
        resident = server.resident_bytes().max(resident);
    }
    eprintln!("{} MiB written, {} MiB on disk, {} MiB resident", written / MIB, disk / MIB, resident / MIB);
    assert!(disk < 1800 * MIB && written > 2800 * MIB, "{disk} bytes on disk");
    assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}");
    assert_eq!(client.call("CONFIG SET appendfsync always"), ok());
    write(&mut client, &[0], 0, VALUE);
    versions[0] = 0;
    let server = server.restart(Server::kill);
    let mut client = server.client();
    for n in 0..keys {
        let found = client.call(&format!("GET {}", key(n)));
        assert!(found == Reply::Bulk(value(n, versions[n as usize], VALUE)), "{}", key(n));
    }
    assert_sound(&server.stop());
}

/// How much a test of memory writes: the sizes of the long form if it is asked for.
struct Sizes {
    limit: u64,
    strings: u64,
    fields: u64,
    len: usize,
}

impl Sizes {
    fn new() -> Sizes {
        match std::env::var_os("HOLDFAST_MEMORY_FULL") {
            Some(_) => Sizes { limit: 400 * MIB, strings: 6_000_000, fields: 2_400_000, len: 60 },
            None => Sizes { limit: 128 * MIB, strings: 140_000, fields: 80_000, len: 1000 },
        }
    }
}

/// Sends `count` commands, some hundred kilobytes at a time; how many were refused for lack of memory.
fn send_all(client: &mut Client, count: u64, size: usize, mut make: impl FnMut(u64, &mut Vec<u8>)) -> u64 {
    let (mut refused, mut done) = (0, 0);
    while done < count {
        let many = (300_000 / size as u64).min(count - done);
        let mut requests = Vec::new();
        (done..done + many).for_each(|n| make(n, &mut requests));
        client.send(&requests);
        for _ in 0..many {
            let reply = client.reply();
            let is_refused = is_error(&reply, "OOM");
            assert!(is_refused || !matches!(reply, Reply::Error(_)), "{reply:?}");
            refused += u64::from(is_refused);
        }
        done += many;
    }
    refused
}

/// Copies yield at once: to a limit that is halved while they come in, and to a collection that grows. Memory is looked at all
/// the time.
#[test]
fn memory_is_within_its_limit_at_every_moment() {
    /// The program, and what is free in the first extents of the partitions.
    const PROGRAM: u64 = 24 * MIB;
    let sizes = Sizes::new();
    let server = Server::start(&["--maxmemory", &sizes.limit.to_string(), "--appendfsync", "no"]);
    let (limit, done) = (AtomicU64::new(sizes.limit), AtomicBool::new(false));
    let value = vec![b'v'; sizes.len];
    let write = |client: &mut Client, count| {
        let set = |n, to: &mut Vec<u8>| write_command(to, &[b"SET", key(n).as_bytes(), &value]);
        send_all(client, count, sizes.len + 60, set)
    };
    let bound = |limit: u64| limit / 100 * 115 + PROGRAM;
    let watch = || {
        let mut peak = 0;
        while !done.load(SeqCst) {
            // Before the look: the limit may be lower by the time of it, and memory too.
            let bytes = bound(limit.load(SeqCst));
            let resident = server.resident_bytes();
            assert!(
                resident <= bytes.max(bound(limit.load(SeqCst))),
                "{resident} bytes resident, {bytes} are the limit"
            );
            peak = resident.max(peak);
            thread::sleep(Duration::from_millis(if sizes.limit > 128 * MIB { 100 } else { 10 }));
        }
        peak
    };
    let set_limit = |client: &mut Client, bytes: u64| {
        assert_eq!(client.call(&format!("CONFIG SET maxmemory {bytes}")), ok());
        limit.store(bytes, SeqCst);
    };
    thread::scope(|scope| {
        let end = EndOnDrop(&done);
        let watcher = scope.spawn(watch);
        let mut client = server.client();
        assert_eq!(write(&mut client, sizes.strings), 0);
        let is_halved = AtomicBool::new(false);
        let written = thread::scope(|scope| {
            let end = EndOnDrop(&is_halved);
            let load = scope.spawn(|| {
                let (mut client, mut written) = (server.client(), 0);
                while !is_halved.load(Relaxed) {
                    assert_eq!(write(&mut client, sizes.strings / 50), 0);
                    written += sizes.strings / 50;
                }
                written
            });
            set_limit(&mut client, sizes.limit / 2);
            thread::sleep(Duration::from_millis(300));
            drop(end);
            load.join().expect("a client that writes")
        });
        let halved = server.resident_bytes();
        limit.store(sizes.limit, SeqCst);
        set_limit(&mut client, sizes.limit);
        assert_eq!(write(&mut client, sizes.strings), 0);
        let full = server.resident_bytes();
        let hset = |n: u64, to: &mut Vec<u8>| {
            write_command(to, &[b"HSET", b"hash", key(n).as_bytes(), &value]);
        };
        let refused = send_all(&mut client, sizes.fields, sizes.len + 60, hset);
        let grown = server.resident_bytes();
        if sizes.limit == 128 * MIB {
            assert_eq!(refused, 0, "the hash alone has room");
            assert!(full > 100 * MIB, "{full} bytes resident before the hash");
        }
        drop(end);
        let peak = watcher.join().expect("a bound that is kept");
        eprintln!(
            "limit {} MiB: resident {} MiB at most, {} halved ({written} written), {} full, {} with the hash ({refused} refused)",
            sizes.limit / MIB,
            peak / MIB,
            halved / MIB,
            full / MIB,
            grown / MIB
        );
    });
}
