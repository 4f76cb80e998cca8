//! The operator is told once when writes begin to be refused, and once when that ends.

use super::World;
use crate::admin::refusals::CAUSES;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};

const SEGMENT: u64 = 256 << 10;

const MEMORY: usize = 2 << 20;

fn options(log_segments: u64) -> Options {
    Options {
        partitions: 1,
        segment_size: Some(SEGMENT as u32),
        log_bytes_max: log_segments * SEGMENT,
        memory_bytes_max: MEMORY,
        background: false,
        ..Options::default()
    }
}

/// Sets keys, or adds to a list, until that is refused; returns the error.
fn write_until_refused(world: &mut World, command: &str) -> String {
    for n in 0..10_000 {
        let key = if command == "set" { format!("key{n}") } else { "list".into() };
        let (reply, _) = world.call(&[command, &key, &"x".repeat(5000)]).expect("the power is on");
        if let Reply::Error(text) = reply {
            return String::from_utf8(text).expect("UTF-8");
        }
        world.store().log().commit_once().expect("a full log is no failure");
        // Memory is judged anew.
        world.store().set_memory_bytes_max(MEMORY);
    }
    panic!("nothing is refused");
}

fn told(world: &World) -> Vec<String> {
    world.worker.server.refusals.lines(world.store())
}

/// Commands refused, by cause.
fn counted(world: &World) -> [u64; 3] {
    CAUSES.map(|cause| world.worker.server.refusals.counted(cause))
}

fn call(world: &mut World, words: &[&str]) {
    let (reply, _) = world.call(words).expect("the power is on");
    assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
}

/// One line, and no other while all stays as it is.
fn begins(world: &mut World, write: &str) -> String {
    let lines = told(world);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for _ in 0..20 {
        write_until_refused(world, write);
        assert_eq!(told(world), [""; 0]);
    }
    // Nothing is refused when nobody writes, but nobody could.
    (0..20).for_each(|_| assert_eq!(told(world), [""; 0]));
    line.clone()
}

fn ends(world: &World) -> String {
    let lines: Vec<String> = (0..20).flat_map(|_| told(world)).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    line.clone()
}

#[test]
fn a_full_log_or_medium_is_told_once_and_so_is_its_end() {
    for (segments, medium, is_told, why) in [
        (16, 1 << 30, true, "of 4194304 that it may (log-max-size)"),
        (1000, 4 << 20, true, " bytes of the medium are free"),
        (1000, 4 << 20, false, "the medium says that it is full, but not how much of it is free"),
    ] {
        let sim = SimIo::new(1);
        sim.set_capacity(medium);
        if !is_told {
            sim.hide_free_bytes();
        }
        let mut world = World::start(&sim, &options(segments), &[]).expect("the power is on");
        assert_eq!(told(&world), [""; 0]);
        assert!(write_until_refused(&mut world, "set").contains("the disk is full"));
        let line = begins(&mut world, "set");
        assert_eq!(counted(&world), [21, 0, 0]);
        assert!(line.starts_with("Refusing writes that make data grow: the log takes "), "{line}");
        assert!(line.contains(why), "{line}");
        call(&mut world, &["flushall"]);
        sim.set_capacity(1 << 30);
        (0..100).for_each(|_| world.maintain().expect("the power is on"));
        let line = ends(&world);
        assert!(line.starts_with("No longer refusing writes that make data grow: the log takes "), "{line}");
    }
}

#[test]
fn full_memory_is_told_once_and_so_is_its_end() {
    let mut world = World::start(&SimIo::new(1), &options(1000), &[]).expect("the power is on");
    assert!(write_until_refused(&mut world, "rpush").starts_with("OOM command not allowed when used memory"));
    let line = begins(&mut world, "rpush");
    assert_eq!(counted(&world), [0, 21, 0]);
    assert!(line.starts_with("Refusing writes that make data grow: data take "), "{line}");
    assert!(line.ends_with(" bytes of memory, of 2097152 that they may (maxmemory)"), "{line}");
    call(&mut world, &["del", "list"]);
    world.maintain().expect("the power is on");
    assert!(ends(&world).starts_with("No longer refusing writes that make data grow: data take "));
}

#[test]
fn a_log_that_has_failed_is_told_before_anybody_writes() {
    let sim = SimIo::new(1);
    let mut world = World::start(&sim, &options(1000), &[]).expect("the power is on");
    assert_eq!(told(&world), [""; 0]);
    sim.fault(holdfast_io::Fault::write("log/"));
    call(&mut world, &["set", "key", "value"]);
    world.store().log().commit_once().expect_err("the medium has a fault");
    let line = told(&world).concat();
    assert!(
        line.starts_with("Refusing all writes: the log has failed, until a restart: write log/"),
        "{line}"
    );
    assert!(write_until_refused(&mut world, "set").starts_with("MISCONF"));
    assert_eq!(counted(&world), [0, 0, 1]);
    (0..20).for_each(|_| assert_eq!(told(&world), [""; 0]));
}

/// What a script has begun it ends, as long as it writes no more than is kept back for that: about half a segment.
#[test]
fn a_full_log_stops_no_script_half_way() {
    full_log_stops_script(0, 20_000);
    full_log_stops_script(0, 150_000);
}

/// Nor if others have run meanwhile.
#[test]
fn a_full_log_stops_no_slow_script_half_way() {
    full_log_stops_script(200_000, 20_000);
}

/// Executes a script with so many turns of a loop between two writes, of which the second one is of up to so many bytes, until it is refused for
/// long; then there is room to remove what others have written.
fn full_log_stops_script(turns: u32, bytes: usize) {
    let mut world = World::start(&SimIo::new(1), &options(16), &[]).expect("the power is on");
    let script = format!(
        "redis.call('set', KEYS[1], 1) for turn = 1, {turns} do end redis.call('set', KEYS[2], ARGV[1]) return 2"
    );
    for n in 0..1000 {
        let keys = ["first", "second"].map(|key| format!("{key}{n}"));
        let value = "x".repeat(1000 + n * 7919 % bytes);
        let (reply, _) =
            world.call(&["eval", &script, "2", &keys[0], &keys[1], &value]).expect("the power is on");
        let (found, _) = world.call(&["exists", &keys[0], &keys[1]]).expect("the power is on");
        world.store().log().commit_once().expect("a full log is no failure");
        if reply == Reply::Int(2) {
            assert_eq!(found, Reply::Int(2));
            continue;
        }
        assert!(matches!(&reply, Reply::Error(why) if why.starts_with(b"OOM")), "{reply:?}");
        assert_eq!(found, Reply::Int(0), "half of a script: {reply:?}");
        if n > 500 {
            for n in 0..n {
                call(&mut world, &["del", &format!("first{n}"), &format!("second{n}")]);
            }
            return;
        }
    }
    panic!("nothing is refused");
}

/// Nor a transaction that copies what takes more than its arguments.
#[test]
fn a_full_log_stops_no_copy_half_way() {
    // What is copied, and what it may take besides, is less than half of a segment.
    let options = Options { segment_size: Some(1 << 20), log_bytes_max: 16 << 20, ..options(16) };
    let mut world = World::start(&SimIo::new(1), &options, &[]).expect("the power is on");
    for n in 0..30 {
        call(&mut world, &["zadd", "large", "1", &format!("{n}{}", "x".repeat(5000))]);
    }
    let mut refused = 0;
    for n in 0..1000 {
        let keys = ["first", "second"].map(|key| format!("{key}{n}"));
        call(&mut world, &["multi"]);
        call(&mut world, &["set", &keys[0], &"x".repeat(n * 37 % 5000)]);
        call(&mut world, &["copy", "large", &keys[1]]);
        let (reply, _) = world.call(&["exec"]).expect("the power is on");
        let (found, _) = world.call(&["exists", &keys[0], &keys[1]]).expect("the power is on");
        world.store().log().commit_once().expect("a full log is no failure");
        if let Reply::Array(replies) = &reply {
            assert_eq!(replies[1], Reply::Int(1), "half of a transaction");
            continue;
        }
        assert_eq!(found, Reply::Int(0), "{reply:?}");
        refused += 1;
    }
    assert!(refused > 500, "{refused} are refused");
}

#[test]
fn what_transactions_and_scripts_are_refused_counts_too() {
    let mut world = World::start(&SimIo::new(1), &options(16), &[]).expect("the power is on");
    write_until_refused(&mut world, "set");
    assert_eq!(counted(&world), [1, 0, 0]);
    let large = "x".repeat(20_000);
    call(&mut world, &["multi"]);
    call(&mut world, &["set", "key", &large]);
    let (reply, _) = world.call(&["exec"]).expect("the power is on");
    assert!(matches!(&reply, Reply::Error(why) if why.starts_with(b"EXECABORT")), "{reply:?}");
    assert_eq!(counted(&world), [2, 0, 0]);
    let script = "return redis.pcall('set', KEYS[1], ARGV[1])";
    let (reply, _) = world.call(&["eval", script, "1", "key", &large]).expect("the power is on");
    assert!(matches!(&reply, Reply::Error(why) if why.starts_with(b"OOM")), "{reply:?}");
    assert_eq!(counted(&world), [3, 0, 0]);
}
