//! A log or a medium that is full: writes are refused, all else goes on, and deleting makes room.

use crate::harness::{self, Client, Folder, Rng, Server, assert_sound, is_error, ok, seed, wait_until};
use holdfast_resp::{Reply, write_command};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::{
    fs,
    io::Write,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const VALUE: usize = 16 << 10;

fn key(n: u64) -> String {
    format!("key:{n}")
}

/// A value that is right for one key only.
fn value(n: u64) -> Vec<u8> {
    let mut value = format!("{n}:").into_bytes();
    // All at once: `resize` goes byte by byte where nothing is optimized.
    value.extend_from_slice(&[n as u8; VALUE]);
    value.truncate(VALUE);
    value
}

/// Sends a command for each key, some at a time, and calls `f` with the replies.
fn each(
    client: &mut Client,
    keys: &[u64],
    command: impl Fn(u64) -> Vec<Vec<u8>>,
    mut f: impl FnMut(u64, Reply),
) {
    for chunk in keys.chunks(32) {
        let mut requests = Vec::new();
        chunk.iter().for_each(|&n| write_command(&mut requests, &command(n)));
        client.send(&requests);
        chunk.iter().for_each(|&n| f(n, client.reply()));
    }
}

fn set(n: u64) -> Vec<Vec<u8>> {
    vec![b"SET".to_vec(), key(n).into_bytes(), value(n)]
}

fn get(n: u64) -> Vec<Vec<u8>> {
    vec![b"GET".to_vec(), key(n).into_bytes()]
}

fn del(n: u64) -> Vec<Vec<u8>> {
    vec![b"DEL".to_vec(), key(n).into_bytes()]
}

/// Sets keys until that is refused; returns those that are set.
fn fill(client: &mut Client) -> Vec<u64> {
    let (mut kept, mut refused) = (Vec::new(), false);
    for first in (0..1 << 16).step_by(32) {
        each(client, &Vec::from_iter(first..first + 32), set, |n, reply| match reply {
            Reply::Error(why) => {
                assert!(why.starts_with(b"OOM command not allowed: the disk is full"), "{why:?}");
                refused = true;
            }
            reply => {
                assert_eq!(reply, ok());
                kept.push(n);
            }
        });
        if refused {
            return kept;
        }
    }
    panic!("a gibibyte of values, and it is not full");
}

/// Fills a server, and sees that reads and deletes go on, and that deletes make room.
fn fills_and_empties(server: &Server, bytes_min: u64) -> Vec<u64> {
    let mut client = server.client();
    let kept = fill(&mut client);
    assert!(kept.len() as u64 * VALUE as u64 > bytes_min, "{} values fill it", kept.len());
    let is_right = |n, reply| assert!(reply == Reply::Bulk(value(n)), "{}", key(n));
    each(&mut client, &kept, get, is_right);
    let (deleted, mut kept): (Vec<u64>, Vec<u64>) = kept.into_iter().partition(|n| n % 2 == 0);
    each(&mut client, &deleted, del, |n, reply| assert_eq!(reply, Reply::Int(1), "{}", key(n)));
    // The cleaner needs a moment, and again if it is slower than who writes; then there is room for most of it again.
    let deadline = Instant::now() + harness::PATIENCE;
    let again = &deleted[..deleted.len() / 2];
    let mut missing = again.to_vec();
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "deleting makes no room");
        let mut refused = Vec::new();
        each(&mut client, &missing, set, |n, reply| match reply {
            Reply::Error(why) if why.starts_with(b"OOM command not allowed: the disk is full") => {
                refused.push(n)
            }
            reply => assert_eq!(reply, ok(), "{}", key(n)),
        });
        missing = refused;
        thread::sleep(Duration::from_millis(10));
    }
    kept.extend(again);
    each(&mut client, &kept, get, is_right);
    kept
}

#[test]
fn a_full_log_is_read_and_emptied_and_written_again() {
    let mut server = Server::start(&["--log-max-size", "256mb", "--maxmemory", "64mb"]);
    let kept = fills_and_empties(&server, 190 << 20);
    let why = "Refusing writes that make data grow: the log takes ";
    wait_until(|| format!("it is told: {}", server.log()), || server.log().contains(why));
    server = server.restart(Server::kill);
    each(&mut server.client(), &kept, get, |n, reply| assert!(reply == Reply::Bulk(value(n)), "{}", key(n)));
    assert_sound(&server.stop());
}

/// What commands write besides their arguments has room, too, before the first of them is executed.
#[test]
fn a_transaction_has_room_for_all_its_commands_or_for_none() {
    let server = Server::start(&["--log-max-size", "64mb"]);
    let mut client = server.client();
    let kept = fill(&mut client);
    let element = "x".repeat(3000);
    let push = ["RPUSH", "list"].into_iter().chain([&element[..]; 4]);
    let [watch, multi, exec] = [vec!["WATCH", "list"], vec!["MULTI"], vec!["EXEC"]];
    let commands: [Vec<&str>; 5] = [watch, multi, vec!["INCR", "count"], push.collect(), exec];
    let (mut done, mut refused) = (0, 0);
    for n in kept {
        each(&mut client, &[n], del, |n, reply| assert_eq!(reply, Reply::Int(1), "{}", key(n)));
        // Once the cleaner has made room, until there is none again.
        let before = done;
        loop {
            let replies = commands.each_ref().map(|command| client.call_args(command));
            let Reply::Array(replies) = &replies[4] else {
                assert!(is_error(&replies[4], "OOM") || is_error(&replies[4], "EXECABORT"), "{replies:?}");
                break;
            };
            done += 1;
            assert_eq!(replies[..], [Reply::Int(done), Reply::Int(4 * done)]);
        }
        refused += u32::from(done > before);
        if refused > 5 {
            return;
        }
    }
    panic!("{done} transactions were executed, and {refused} times there was room for some");
}

/// Calls a command, again as long as it says that the disk is full.
fn persist(client: &mut Client, command: &[&str]) -> Reply {
    let deadline = Instant::now() + harness::PATIENCE;
    loop {
        match client.call_args(command) {
            Reply::Error(why) if why.starts_with(b"OOM command not allowed: the disk is full") => {
                assert!(Instant::now() < deadline, "{command:?} finds no room");
                thread::sleep(Duration::from_millis(10));
            }
            reply => return reply,
        }
    }
}

/// What a command makes of a value is more than its arguments: it is refused before it leaves no room for deletes.
#[test]
fn copies_of_a_large_value_are_refused_before_they_fill_the_log() {
    let mut server = Server::start(&["--log-max-size", "64mb"]);
    let large = "x".repeat(14 << 20);
    let mut client = server.client();
    assert_eq!(client.call_args(&["SET", "large", large.as_str()]), ok());
    let copies = ["one", "two", "three", "four", "five"];
    let mut is_there = |key: &&&str| match client.call_args(&["COPY", "large", key]) {
        Reply::Int(1) => true,
        Reply::Error(why) => {
            assert!(why.starts_with(b"OOM command not allowed: the disk is full"), "{why:?}");
            false
        }
        other => panic!("{other:?}"),
    };
    let there: Vec<&str> = copies.iter().filter(&mut is_there).copied().collect();
    assert!((2..=3).contains(&there.len()), "{there:?}");
    for command in [
        vec!["APPEND", "large", "y"],
        vec!["SETRANGE", "large", "5", "y"],
        vec!["BITOP", "NOT", "new", "large"],
        vec!["EVAL", "return redis.call('COPY', KEYS[1], KEYS[2])", "2", "large", "new"],
    ] {
        match client.call_args(&command) {
            Reply::Error(why) => assert!(why.starts_with(b"OOM command not allowed"), "{command:?}: {why:?}"),
            other => panic!("{command:?}: {other:?}"),
        }
    }
    // MULTI fails as a whole.
    for command in [vec!["MULTI"], vec!["SET", "small", "1"], vec!["COPY", "large", "new"]] {
        client.call_args(&command);
    }
    let reply = client.call_args(&["EXEC"]);
    assert!(is_error(&reply, "EXECABORT"), "{reply:?}");
    assert_eq!(client.call_args(&["EXISTS", "small", "new"]), Reply::Int(0));
    // What lets no value grow counts none.
    for command in [vec!["MULTI"], vec!["PERSIST", "large"], vec!["SET", "small", "1"]] {
        client.call_args(&command);
    }
    assert_eq!(client.call_args(&["EXEC"]), Reply::Array(vec![Reply::Int(0), ok()]));
    drop(client);
    // It is as full after a restart.
    server = server.restart(Server::kill);
    let mut client = server.client();
    assert_eq!(persist(&mut client, &["SET", "small", "2"]), ok());
    assert_eq!(persist(&mut client, &["DEL", "large"]), Reply::Int(1));
    assert_eq!(persist(&mut client, &["SET", "large", &large]), ok());
    for key in there {
        assert_eq!(client.call_args(&["STRLEN", key]), Reply::Int(large.len() as i64));
        assert_eq!(persist(&mut client, &["DEL", key]), Reply::Int(1));
    }
    assert_eq!(persist(&mut client, &["COPY", "large", "one"]), Reply::Int(1));
    drop(client);
    assert_sound(&server.stop());
}

/// The heap's checkpoints need room on the medium, too.
#[test]
fn a_full_medium_is_read_and_emptied_and_written_again() {
    // A store to a mapping for which there is no memory would end the server.
    // Where the heap is changed in place, deletes come to the cleaner's ears without the log.
    for medium in [&["block"][..], &["emulated"], &["emulated", "--scm-method", "latb"]] {
        let options = [&["--maxmemory", "64mb", "--medium"], medium].concat();
        match Server::start_on_small_medium(200 << 20, &options) {
            Some(server) => drop(fills_and_empties(&server, 130 << 20)),
            None => eprintln!("not tested: nothing may be mounted here"),
        }
    }
}

/// Others take all room of the medium, so that no checkpoint can make any in the log.
#[test]
fn writes_are_refused_and_nothing_is_done_in_vain_while_others_fill_the_medium() {
    let Some(server) = Server::start_on_small_medium(400 << 20, &[]) else {
        eprintln!("not tested: nothing may be mounted here");
        return;
    };
    let mut client = server.client();
    let small = |n| vec![b"SET".to_vec(), key(n).into_bytes(), value(n)[..500].to_vec()];
    let keys = Vec::from_iter(0..60_000);
    each(&mut client, &keys, small, |_, reply| assert_eq!(reply, ok()));
    // The mount is the server's own.
    let filler = format!("/proc/{}/root{}", server.pid(), server.folder().join("data/filler"));
    let mut file = fs::File::create(&filler).expect("a file beside the data");
    while file.write_all(&[1; 1 << 16]).is_ok() {}
    let is_refused = |reply: &Reply| is_error(reply, "OOM command not allowed: the disk is full");
    let mut refused = 0;
    for _ in 0..100 {
        each(&mut client, &keys, small, |_, reply| refused += u32::from(is_refused(&reply)));
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "the medium is full");
    let pages = |client: &mut Client| {
        client.info("checkpoint_pages_written").parse::<u64>().expect("a number of pages")
    };
    let before = pages(&mut client);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        each(&mut client, &[1 << 20], set, |_, reply| assert!(is_refused(&reply), "{reply:?}"));
        thread::sleep(Duration::from_millis(1));
    }
    let heap = client.info("mem_heap_allocated").parse::<u64>().expect("bytes") / 4096;
    let written = pages(&mut client) - before;
    assert!(written <= 3 * heap, "{written} pages were written of a heap of {heap}");
    let is_right = |n, reply| assert!(reply == Reply::Bulk(value(n)[..500].into()), "{}", key(n));
    each(&mut client, &keys, get, is_right);
    fs::remove_file(&filler).expect("it was made");
    drop(file);
    wait_until(|| "there is room again".into(), || client.call("SET room 1") == ok());
}

#[test]
fn a_medium_that_does_not_tell_how_much_is_free_is_not_full() {
    // A tmpfs without a limit counts no blocks.
    match Server::start_on_small_medium(0, &[]) {
        Some(server) => assert_eq!(server.client().call("set key value"), ok()),
        None => eprintln!("not tested: nothing may be mounted here"),
    }
}

/// Each segment is an open file: clients and the log share those that the process may have.
#[test]
fn as_many_segments_as_files_may_be_open_are_written_and_emptied() {
    let options = ["--log-max-size", "512mb", "--maxmemory", "64mb"];
    let start =
        |folder| Server::start_by_sh("ulimit -n 400; exec \"$@\"", folder, &options).expect("it serves");
    let server = start(Folder::new());
    let mut client = server.client();
    // Half of what is left of them for both, 128 being kept for other uses.
    assert_eq!(client.info("maxclients"), "136");
    fills_and_empties(&server, 100 << 20);
    assert!(server.open_files() < 136 + 128, "{} open files", server.open_files());
    assert!(
        server.log().contains("the process may not have more files open (ulimit -n)"),
        "{}",
        server.log()
    );
    match client.call("CONFIG SET maxclients 137") {
        Reply::Error(why) => {
            let why = String::from_utf8_lossy(&why).into_owned();
            assert!(why.ends_with("the specified number of clients, try with 136"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    fill(&mut client);
    assert_eq!(client.call("CONFIG SET maxclients 100"), ok());
    fill(&mut client);
    drop(client);
    // What there is counts first.
    let server = start(server.stop());
    let clients: u64 = server.client().info("maxclients").parse().expect("a number");
    assert!((90..120).contains(&clients), "{clients}");
    assert_sound(&server.stop());
}

/// The same by surprise, such as when others have taken them.
#[test]
fn without_another_open_file_writes_wait_for_one() {
    let server = Server::start(&["--log-max-size", "512mb"]);
    let mut client = server.client();
    let process = Pid::from_raw(server.pid() as i32);
    let limit =
        Rlimit { current: Some(server.open_files() + 20), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(process, Resource::Nofile, limit).expect("its files may be limited");
    // One at a time: what is admitted before it is known that there is no room for it waits, too.
    let mut kept = Vec::new();
    let refusal = loop {
        match client.call_args(&set(kept.len() as u64)) {
            reply if reply == ok() => kept.push(kept.len() as u64),
            reply => break reply,
        }
    };
    let is_refusal = matches!(&refusal, Reply::Error(why) if why.starts_with(b"OOM command not allowed: the disk is full"));
    assert!(is_refusal, "{refusal:?}");
    assert!(kept.len() * VALUE < 100 << 20, "{} values", kept.len());
    let is_told = || server.log().contains("the process may not have more files open (ulimit -n)");
    wait_until(|| server.log(), is_told);
    each(&mut client, &kept, get, |n, reply| assert!(reply == Reply::Bulk(value(n)), "{}", key(n)));
    prlimit(process, Resource::Nofile, before).expect("its files may be limited");
    wait_until(|| server.log(), || client.call("SET again value") == ok());
    assert!(fill(&mut client).len() * VALUE > 300 << 20, "the log is as large as it may be");
    assert_sound(&server.stop());
}

/// What is read is not in memory, and is being moved at times.
#[test]
fn values_are_there_while_the_cleaner_moves_them() {
    let keys = (150 << 20) / VALUE as u64;
    let server = Server::start(&["--log-max-size", "256mb", "--maxmemory", "32mb", "--appendfsync", "no"]);
    each(&mut server.client(), &Vec::from_iter(0..keys), set, |_, reply| assert_eq!(reply, ok()));
    let (writing, seed) = (AtomicBool::new(true), seed());
    thread::scope(|scope| {
        for reader in 1..3 {
            let (mut client, mut rng, writing) = (server.client(), Rng(seed + reader), &writing);
            scope.spawn(move || {
                while writing.load(Relaxed) {
                    let n = rng.below(keys);
                    assert!(client.call_args(&get(n)) == Reply::Bulk(value(n)), "{}", key(n));
                }
            });
        }
        let (mut client, mut rng) = (server.client(), Rng(seed));
        let chosen: Vec<u64> = (0..2 * keys).map(|_| rng.below(keys)).collect();
        each(&mut client, &chosen, set, |_, reply| assert_eq!(reply, ok()));
        writing.store(false, Relaxed);
    });
}

/// What small files, and growth between two looks at it, may take beyond the budget.
const DISK_SLACK: u64 = 8 << 20;

#[test]
fn a_budget_for_the_data_folder_is_kept_and_can_be_changed() {
    let mut server = Server::start(&["--maxdisk", "120mb", "--maxmemory", "64mb"]);
    let fits = |server: &Server, budget: u64| server.folder().disk_bytes() <= budget + DISK_SLACK;
    let mut kept = fills_and_empties(&server, 80 << 20);
    assert!(fits(&server, 120 << 20), "{} bytes", server.folder().disk_bytes());
    let mut client = server.client();
    assert_eq!(client.info("maxdisk"), (120 << 20).to_string());
    assert!(client.info("disk_used_bytes").parse::<u64>().expect("a number") > 80 << 20);
    wait_until(|| format!("it is told: {}", server.log()), || server.log().contains("(maxdisk)"));
    // Less than there is: nothing grows until enough is deleted.
    assert_eq!(client.call("CONFIG SET maxdisk 60mb"), ok());
    let refused = |client: &mut Client| matches!(client.call_args(&set(0)), Reply::Error(_));
    wait_until(|| "it refuses writes".into(), || refused(&mut client));
    let deleted = kept.split_off(kept.len() / 4);
    each(&mut client, &deleted, del, |n, reply| assert_eq!(reply, Reply::Int(1), "{}", key(n)));
    let bytes = || server.folder().disk_bytes();
    wait_until(|| format!("it takes {} bytes", bytes()), || fits(&server, 60 << 20));
    assert_eq!(persist(&mut client, &["SET", "small", "1"]), ok());
    // More is heeded at once, too.
    assert_eq!(client.call("CONFIG SET maxdisk 0"), ok());
    let more = &deleted[..deleted.len() / 2];
    for &n in more {
        let [name, value] = [key(n).into_bytes(), value(n)];
        wait_until(|| "there is room".into(), || client.call_args(&[&b"SET"[..], &name, &value]) == ok());
    }
    drop(client);
    server = server.restart(Server::kill);
    kept.extend(more);
    each(&mut server.client(), &kept, get, |n, reply| assert!(reply == Reply::Bulk(value(n)), "{}", key(n)));
    assert_sound(&server.stop());
}
