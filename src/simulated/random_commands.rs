//! Random commands, made from the command table and the syntax of each: no panic, no reply that is not one, no command
//! that does not end, no growth beyond the limits, and a sound store at the end.
//!
//! `HOLDFAST_FUZZ_SECONDS=3600` runs the long form, `HOLDFAST_SEED=n` one seed.

use super::World;
use crate::{
    command::{
        Command,
        syntax::{self, Argument, Kind},
    },
    commands::ROWS,
};
use holdfast_fuzz::{Rng, fuzz};
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};
use std::time::{Duration, Instant};

/// Commands in a life.
const COMMANDS: u64 = 1000;
/// RAM that the store may take, in bytes, and the longest argument.
const MEMORY: usize = 16 << 20;
/// A reply that is longer is not sent: `client-output-buffer-limit`.
const REPLY_MAX: usize = 4 << 20;
/// How long a command may take, on a machine that does much else.
const TIME_MAX: Duration = Duration::from_secs(20);

/// What is not called: it ends or holds up the process by design, needs another server or files, makes as much as it is
/// told to, fills the output of this test, or leaves a connection that no other command can use.
pub const EXCLUDED: [&str; 19] = [
    "shutdown",
    "debug|panic",
    "debug|segfault",
    "debug|sleep",
    "debug|log",
    "debug|reload",
    "debug|loadaof",
    "debug|populate",
    "migrate",
    "replicaof",
    "slaveof",
    "sync",
    "psync",
    "monitor",
    "client|pause",
    "client|reply",
    "config|set",
    "config|rewrite",
    "acl|save",
];

/// Words that mean something to some command, and some that do not.
const WORDS: [&str; 40] = [
    "",
    "a",
    "b",
    "c",
    "member",
    "1",
    "-1",
    "0",
    "1.5",
    "-inf",
    "+inf",
    "nan",
    "(1",
    "[a",
    "-",
    "+",
    "*",
    "$",
    ">",
    "1-1",
    "0-0",
    "5-*",
    "u8",
    "i64",
    "#1",
    "BYTE",
    "BIT",
    "MATCH",
    "COUNT",
    "*[ac]?",
    "group",
    "alice",
    "default",
    "on",
    ">secret",
    "~k*",
    "+@all",
    "ON",
    "return 1",
    "return redis.call('incr', KEYS[1])",
];
pub const KEYS: [&str; 9] = ["s", "l", "h", "e", "z", "x", "p", "b", "none"];
const INTEGERS: [i64; 14] = [0, 1, -1, 2, 3, 10, -10, 100, 1000, 65536, 1 << 31, i64::MAX, i64::MIN, 1 << 53];

fn value(rng: &mut Rng, argument: &Argument) -> Vec<u8> {
    let pick = |rng: &mut Rng, from: &[&str]| from[rng.index(from.len())].as_bytes().to_vec();
    // Sometimes what is not expected.
    match if rng.one_in(20) { Kind::String } else { argument.kind } {
        Kind::Key => pick(rng, &KEYS),
        // Mostly few: numbers of keys, cursors, counts.
        Kind::Integer if rng.one_in(2) => rng.below(4).to_string().into(),
        Kind::Integer | Kind::UnixTime => INTEGERS[rng.index(INTEGERS.len())].to_string().into(),
        Kind::Double => format!("{}.{}", rng.below(200) as i64 - 100, rng.below(100)).into(),
        _ if rng.one_in(8) => rng.bytes(300),
        _ => pick(rng, &WORDS),
    }
}

/// Adds what stands for an argument.
fn add(rng: &mut Rng, argument: &Argument, words: &mut Vec<Vec<u8>>) {
    if argument.is_optional && rng.one_in(2) {
        return;
    }
    let times = if argument.is_multiple { 1 + rng.below(3) } else { 1 };
    for time in 0..times {
        if let Some(token) = argument.token.filter(|_| time == 0 || argument.repeats_token) {
            words.push(token.into());
        }
        match argument.kind {
            Kind::PureToken => {}
            Kind::Block => argument.parts.iter().for_each(|part| add(rng, part, words)),
            Kind::OneOf => {
                let at = rng.index(argument.parts.len());
                add(rng, &argument.parts[at], words);
            }
            _ => words.push(value(rng, argument)),
        }
    }
}

/// A random call of a command.
pub fn call(rng: &mut Rng, command: &Command) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = command.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    syntax::parse(command.syntax).iter().for_each(|argument| add(rng, argument, &mut words));
    if rng.one_in(10) {
        let at = rng.index(words.len());
        match rng.below(3) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at].clone()),
            _ => rng.mutate(&mut words[at]),
        }
    }
    words
}

/// A call of any command that may be called.
pub fn any(rng: &mut Rng) -> Vec<Vec<u8>> {
    let commands: Vec<&Command> = ROWS
        .table
        .all()
        .filter(|(id, command)| !ROWS.table.is_container(*id) && !EXCLUDED.contains(&command.name))
        .map(|(_, command)| command)
        .collect();
    let command = commands[rng.index(commands.len())];
    call(rng, command)
}

fn life(rng: &mut Rng) {
    let options = Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: 64 << 20,
        heap_bytes_max: 64 << 20,
        memory_bytes_max: MEMORY,
        background: false,
        ..Options::default()
    };
    let output_max = format!("normal {REPLY_MAX} 0 0");
    let bulk_max = MEMORY.to_string();
    let settings = [("proto-max-bulk-len", bulk_max.as_str()), ("client-output-buffer-limit", &output_max)];
    let sim = SimIo::new(rng.draw());
    let mut world = World::start(&sim, &options, &settings).expect("the power is on");
    for _ in 0..COMMANDS {
        if rng.one_in(100) {
            world.session = World::session(&world.worker.server);
        }
        let words = match world.session.multi.is_some() && rng.one_in(4) {
            true => vec![b"exec".to_vec()],
            false => any(rng),
        };
        if words.is_empty() || words[0].is_empty() {
            continue;
        }
        let started = Instant::now();
        let (out, _) = world.run(&words).expect("the power is on");
        let shown = || words.iter().map(|word| word.escape_ascii().to_string() + " ").collect::<String>();
        assert!(started.elapsed() < TIME_MAX, "{:?} for {}", started.elapsed(), shown());
        let mut rest = &out[..];
        while !rest.is_empty() {
            match Reply::parse(rest) {
                Ok(Some((_, len))) => rest = &rest[len..],
                // Its client is disconnected.
                Ok(None) | Err(_) if out.len() >= REPLY_MAX => break,
                other => panic!("{other:?} in the reply to {}: {}", shown(), out.escape_ascii()),
            }
        }
        if rng.one_in(50) {
            world.maintain().expect("the power is on");
        }
    }
    world.store().check().expect("a sound store");
    let resident = world.store().stats().heap_resident_bytes;
    assert!(resident < 2 * MEMORY as u64, "{resident} bytes of heap");
}

#[test]
fn no_command_does_harm() {
    fuzz(life);
}
