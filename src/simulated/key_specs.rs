//! The key specifications of every command name all keys that its handler looks at: random calls, in a store in which each
//! key lies in a partition of its own, so that a key that is not named is one whose partition is not locked.

use super::{
    World,
    random_commands::{self, EXCLUDED, KEYS},
};
use crate::{commands::ROWS, exec::handler::Handler};
use holdfast_fuzz::Rng;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};
use std::{collections::BTreeSet, env};

/// Calls of each command.
const CALLS: u64 = 150;

/// A value of each type.
const VALUES: [&[&str]; 8] = [
    &["set", "s", "10"],
    &["rpush", "l", "a", "b", "c"],
    &["hset", "h", "a", "1", "b", "2"],
    &["sadd", "e", "a", "b", "1"],
    &["zadd", "z", "1", "a", "2", "b"],
    &["xadd", "x", "1-1", "a", "b"],
    &["pfadd", "p", "a", "b"],
    &["setbit", "b", "7", "1"],
];

#[test]
fn key_specifications_name_all_keys() {
    let seed = env::var("HOLDFAST_SEED").map_or(1, |text| text.parse().expect("a number"));
    eprintln!("HOLDFAST_SEED={seed}");
    let mut rng = Rng::new(seed);
    let options = Options {
        partitions: 256,
        segment_size: Some(1 << 20),
        heap_bytes_max: 1 << 30,
        background: false,
        ..Options::default()
    };
    let mut world = World::start(&SimIo::new(seed), &options, &[]).expect("the power is on");
    let partitions: BTreeSet<u16> =
        KEYS.iter().map(|key| world.store().partition_of(key.as_bytes())).collect();
    assert_eq!(partitions.len(), KEYS.len(), "two keys share a partition");
    let (mut commands, mut never) = (0, Vec::new());
    for (id, command) in ROWS.table.all() {
        if !matches!(ROWS.row(id).handler, Handler::Keyed(_)) || EXCLUDED.contains(&command.name) {
            continue;
        }
        let mut reaches = false;
        for _ in 0..CALLS {
            world.session = World::session(&world.worker.server);
            if rng.one_in(8) {
                world.call(&["flushall"]).expect("the power is on");
                VALUES.iter().for_each(|value| drop(world.call(value).expect("the power is on")));
            }
            let words = random_commands::call(&mut rng, command);
            if words.is_empty() || words[0].is_empty() {
                continue;
            }
            let (reply, _) = world.call(&words).expect("the power is on");
            let Reply::Error(text) = &reply else {
                reaches = true;
                continue;
            };
            // It has looked at the key.
            reaches |= text.starts_with(b"WRONGTYPE") || text.starts_with(b"NOGROUP");
            let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert!(!text.starts_with(b"ERR internal error"), "{}: {}", shown.join(" "), text.escape_ascii());
        }
        commands += 1;
        if !reaches {
            never.push(command.name);
        }
    }
    assert!(
        commands > 150 && never.len() < commands / 8,
        "of {commands} commands these never look at a key: {never:?}"
    );
}
