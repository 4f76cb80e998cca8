//! What commands write is reserved (I-16): each command that writes, made from the command table, on values so large that
//! a copy, a conversion or a removal of many elements is more than its arguments tell. A transaction that writes more than
//! it has reserved fails an assertion. So are changes of many elements of collections in one block, each of which may move the others.

use super::{World, power_cut::seeds, random_commands};
use crate::{command::Flags, commands::ROWS};
use holdfast_fuzz::Rng;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo, Type};

/// Seeds of changes of many elements.
const SEEDS: u64 = 25;
/// Elements of a collection, and calls of a command.
const ELEMENTS: usize = 3000;
const CALLS: u64 = 12;
/// How often the values are made anew.
const CALLS_A_VALUE: u64 = 3;

/// A value of each type, and the names under which commands find them: `w` is by the usual limits too large for its encoding.
const KEYS: [(&str, &str); 8] = [
    ("s", "SET"),
    ("b", "SETRANGE"),
    ("l", "RPUSH"),
    ("h", "HSET"),
    ("e", "SADD"),
    ("z", "ZADD"),
    ("x", "XADD"),
    ("p", "PFADD"),
];

fn make(world: &mut World, command: &str, key: &str) {
    let text = |n: usize| format!("{}{n}", "v".repeat(n % 40));
    let mut call: Vec<String> = vec![command.into(), key.into()];
    match command {
        "SET" => call.push("x".repeat(300_000)),
        "SETRANGE" => {
            world.call(&["SET".into(), key.into(), "y".repeat(300_000)]).expect("no cut");
            call.extend(["5".into(), "z".into()]);
        }
        "XADD" => {
            for n in 0..ELEMENTS {
                let entry = [command.into(), key.into(), "*".into(), text(n), text(n + 1)];
                world.call(&entry).expect("no cut");
            }
            world.call(&["XGROUP", "CREATE", key, "group", "0"]).expect("no cut");
            call = ["XREADGROUP", "GROUP", "group", "alice", "STREAMS", key, ">"].map(String::from).into();
        }
        "ZADD" => call.extend((0..ELEMENTS).flat_map(|n| [(n * 7919 % ELEMENTS).to_string(), text(n)])),
        "HSET" => call.extend((0..ELEMENTS).flat_map(|n| [text(n), text(n + 1)])),
        _ => call.extend((0..ELEMENTS).map(text)),
    }
    let (reply, _) = world.call(&call).expect("no cut");
    assert!(!matches!(reply, Reply::Error(_)), "{command} {reply:?}");
}

/// Has each key a value as it was made, in the heap or frozen.
fn restore(world: &mut World, rng: &mut Rng) {
    for (key, _) in KEYS {
        world.call(&["COPY", &format!("{key}:made"), key, "REPLACE"]).expect("no cut");
    }
    if rng.one_in(3) {
        world.store().freeze(u64::MAX).expect("a sound medium");
    }
    world.store().log().commit_once().expect("a sound medium");
    world.store().checkpoint().expect("a sound medium");
    world.store().clean().expect("a sound medium");
}

fn play(seed: u64, settings: &[(&str, &str)]) {
    let options = Options { partitions: 4, background: false, heap_bytes_max: 1 << 30, ..Options::default() };
    let mut world = World::start(&SimIo::new(seed), &options, settings).expect("the power is on");
    for (key, command) in KEYS {
        make(&mut world, command, &format!("{key}:made"));
    }
    assert_eq!(world.store().begin_all().type_of(0, b"z:made"), Some(Type::Zset));
    let mut rng = Rng::new(seed);
    let is_called = |name: &str| !random_commands::EXCLUDED.contains(&name) && !name.starts_with("debug");
    let commands = ROWS.table.all().map(|(_, command)| command);
    for command in commands.filter(|c| c.flags.has(Flags::WRITE) && is_called(c.name)) {
        for number in 0..CALLS {
            if number % CALLS_A_VALUE == 0 {
                restore(&mut world, &mut rng);
            }
            let call = random_commands::call(&mut rng, command);
            if call.first().is_some_and(|name| !name.is_empty()) {
                world.run(&call).expect("no cut");
            }
        }
    }
    world.store().check().expect("a sound store");
}

/// Changes of [`change_many`], and how many there are by the same limits.
const CHANGES: u64 = 150;
/// Bytes of their elements, and what these come to in one command at most.
const LENGTHS: [usize; 8] = [1, 10, 40, 62, 300, 1000, 4000, 20_000];
const BYTES: usize = 300_000;
/// Elements of a command, fewer than that.
const COUNTS: [u64; 4] = [3, 20, 140, 1200];

/// A command that changes many elements of a small collection.
fn change(rng: &mut Rng) -> Vec<String> {
    let len = LENGTHS[rng.index(LENGTHS.len())];
    let end = COUNTS[rng.index(COUNTS.len())];
    let count = (1 + rng.below(end)).min((BYTES / len) as u64);
    let (first, step, is_reversed) = (rng.below(50), 1 + rng.below(3), rng.one_in(2));
    let mut numbers: Vec<u64> = (0..count).map(|n| first + n * step).collect();
    if is_reversed {
        numbers.reverse();
    }
    let name = |n: u64| format!("{n}{}", "n".repeat(if len < 300 { len } else { 0 }));
    let member = |n: u64| format!("{n}{}", "m".repeat(len));
    let score = |n: u64| if is_reversed { format!("-{n}") } else { n.to_string() };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let number = rng.below(3);
    let [hash, set, zset, ints, list, stream] =
        ["hash", "set", "zset", "ints", "list", "stream"].map(|kind| format!("{kind}{number}"));
    let fields = count.to_string();
    let mut call = match rng.below(20) {
        0..4 => words(&["HSET", &hash]),
        4 => words(&["HPEXPIRE", &hash, &(1u64 << (30 + rng.below(10))).to_string(), "FIELDS", &fields]),
        5 => words(&["HPERSIST", &hash, "FIELDS", &fields]),
        6 => words(&["HDEL", &hash]),
        7 => words(&["SADD", &set]),
        8 => words(&["SREM", &set]),
        9 | 10 => words(&["ZADD", &zset]),
        11 => words(&["ZREM", &zset]),
        12 => words(&["RPUSH", &list]),
        13 => words(&["LPUSH", &list]),
        14 => return words(&["LREM", &list, "0", &member(first)]),
        15..19 => words(&["XADD", &stream, "*"]),
        _ => words(&["SADD", &ints]),
    };
    for n in numbers {
        match (&call[0][..], call[1] == ints) {
            ("HSET" | "XADD", _) => call.extend([name(n), "v".repeat(len)]),
            ("ZADD", _) => call.extend([score(n), member(n)]),
            ("SADD", true) => call.push((n * n * len as u64).to_string()),
            ("SADD" | "SREM" | "ZREM" | "RPUSH" | "LPUSH", _) => call.push(member(n)),
            _ => call.push(name(n)),
        }
    }
    call
}

/// By limits of any size; and what was written makes the same data again.
fn change_many(seed: u64) {
    let mut rng = Rng::new(seed);
    let options = Options { partitions: 4, background: false, heap_bytes_max: 1 << 30, ..Options::default() };
    let limit = |rng: &mut Rng| ["0", "64", "128", "1000", "1000000"][rng.index(5)];
    let names = [
        "hash-max-listpack-entries",
        "hash-max-listpack-value",
        "set-max-listpack-entries",
        "set-max-listpack-value",
        "set-max-intset-entries",
        "zset-max-listpack-entries",
        "zset-max-listpack-value",
    ];
    let mut settings = names.map(|name| (name, limit(&mut rng))).to_vec();
    settings.push(("list-max-listpack-size", ["-5", "-2", "1", "128"][rng.index(4)]));
    settings.push(("stream-node-max-bytes", ["0", "4096", "1000000"][rng.index(3)]));
    let sim = SimIo::new(seed);
    let mut world = World::start(&sim, &options, &settings).expect("the power is on");
    for _ in 0..CHANGES {
        let call = change(&mut rng);
        let (reply, _) = world.call(&call).expect("no cut");
        assert!(!matches!(reply, Reply::Error(_)), "{} {}: {reply:?}", call[0], call[1]);
        if rng.one_in(10) {
            world.maintain().expect("no cut");
        }
        if rng.one_in(20) {
            world.call(&["DEL", &call[1]]).expect("no cut");
        }
    }
    world.store().check().expect("a sound store");
    world.store().log().commit_once().expect("a sound medium");
    let before = world.call(&["DEBUG", "DIGEST"]).expect("no cut");
    drop(world);
    let mut world = World::start(&sim, &options, &settings).expect("the power is on");
    let after = world.call(&["DEBUG", "DIGEST"]).expect("no cut");
    assert_eq!(before.0, after.0, "{settings:?}");
    world.store().check().expect("a sound store");
}

#[test]
fn no_change_of_many_elements_writes_more_than_it_has_reserved() {
    for seed in seeds(SEEDS) {
        eprintln!("HOLDFAST_SEED={seed}");
        change_many(seed);
    }
}

#[test]
fn no_command_writes_more_than_it_has_reserved() {
    play(1, &[]);
}

/// Limits of the encodings under which a collection in one block is large.
#[test]
fn no_command_writes_more_than_it_has_reserved_by_other_limits() {
    let limits = [
        ("hash-max-listpack-entries", "100000"),
        ("zset-max-listpack-entries", "2000"),
        ("set-max-listpack-entries", "100000"),
        ("set-max-intset-entries", "100000"),
        ("list-max-listpack-size", "2000"),
        ("stream-node-max-entries", "5"),
    ];
    play(2, &limits);
}
