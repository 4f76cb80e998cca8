//! What commands write is reserved (I-16): each command that writes, made from the command table, on values so large that
//! a copy, a conversion or a removal of many elements is more than its arguments tell. A transaction that writes more than
//! it has reserved fails an assertion.

use super::{World, random_commands};
use crate::{command::Flags, commands::ROWS};
use holdfast_fuzz::Rng;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo, Type};

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
