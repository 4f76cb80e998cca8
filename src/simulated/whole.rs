//! A command for which there is no room changes nothing, however many keys or elements it names: commands of every kind on a heap or a
//! log that is nearly full. What can be read afterwards is what could be read before, byte for byte.
//!
//! `HOLDFAST_SEEDS=1000` runs the long form, `HOLDFAST_SEED=n` one seed.

use super::{
    World,
    power_cut::{State, calls::Template, seeds, state, templates},
};
use holdfast_fuzz::Rng;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};

/// The database with what fills heap or log; the states that are compared do not have it.
const FILLER: &str = "9";
/// How often what fills it is changed, and calls after each change.
const ROUNDS: u64 = 12;
const CALLS: u64 = 25;
/// Keys beyond which the calls begin with none again.
const KEYS_MAX: usize = 1000;

/// What of it is full.
#[derive(Clone, Copy, PartialEq)]
enum Full {
    Heap,
    Log,
}

fn call(world: &mut World, words: &[impl AsRef<[u8]>]) -> Reply {
    let (reply, _) = world.call(words).expect("the power is on");
    world.store().log().commit_once().expect("a sound medium");
    reply
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(why) if why.starts_with(b"OOM"))
}

/// Fills what is to be full, up to a remainder that differs from time to time.
fn fill(world: &mut World, full: Full, rng: &mut Rng) {
    call(world, &["select", FILLER]);
    for _ in 0..20_000 {
        let (key, size) =
            (rng.below(1000).to_string(), 1 + rng.below(if full == Full::Log { 40_000 } else { 4000 }));
        let value = "f".repeat(size as usize);
        let reply = match full {
            Full::Heap => call(world, &["hset", &key, &rng.below(100).to_string(), &value]),
            Full::Log => call(world, &["set", &rng.draw().to_string(), &value]),
        };
        if is_refused(&reply) {
            call(world, &["select", "0"]);
            return;
        }
    }
    panic!("it is never full");
}

/// Removes some of that.
fn make_room(world: &mut World, rng: &mut Rng) {
    call(world, &["select", FILLER]);
    for _ in 0..1 + rng.below(30) {
        if let Reply::Bulk(key) = call(world, &["randomkey"]) {
            call(world, &[b"del".as_slice(), &key]);
        }
    }
    world.maintain().expect("the power is on");
    call(world, &["select", "0"]);
}

/// A call with many keys or elements, some of them large.
fn many(rng: &mut Rng) -> Vec<Vec<u8>> {
    let command =
        ["mset", "msetnx", "sadd", "hset", "zadd", "rpush", "lpush", "pfadd", "geoadd"][rng.index(9)];
    let mut words: Vec<String> = vec![command.into()];
    if !command.starts_with("mset") {
        words.push(format!("{}:{}", &command[..2], rng.below(3)));
    }
    let most = if rng.one_in(4) { 6000 } else { 100 };
    let long = rng.below(most);
    for _ in 0..1 + rng.below(120) {
        let name = format!("{}{}", rng.below(3000), "m".repeat(rng.below(1 + long) as usize));
        match command {
            "mset" | "msetnx" | "hset" => words.extend([name, "v".repeat(rng.below(1 + long) as usize)]),
            "zadd" => words.extend([rng.below(50).to_string(), name]),
            "geoadd" => words.extend([rng.below(100).to_string(), rng.below(80).to_string(), name]),
            _ => words.push(name),
        }
    }
    words.into_iter().map(String::into_bytes).collect()
}

fn options(full: Full, rng: &mut Rng) -> Options {
    let (log_bytes_max, heap_bytes_max) = match full {
        Full::Heap => (64 << 20, 6 << 20),
        Full::Log => (4 << 20, 64 << 20),
    };
    Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(if full == Full::Heap { 1 << 20 } else { 64 << 10 }),
        log_bytes_max,
        heap_bytes_max,
        background: false,
        ..Options::default()
    }
}

/// Plays one history; returns how many calls were refused.
fn history(seed: u64, full: Full, templates: &[Template]) -> u64 {
    let mut rng = Rng::new(seed);
    let mut world = World::start(&SimIo::new(seed), &options(full, &mut rng), &[]).expect("the power is on");
    let mut refused = 0;
    let mut before = state(&mut world).expect("the power is on");
    for _ in 0..ROUNDS {
        fill(&mut world, full, &mut rng);
        for _ in 0..CALLS {
            let words = match rng.one_in(2) {
                true => many(&mut rng),
                false => templates[rng.index(templates.len())].fill(0, &mut |end| rng.below(end)),
            };
            let reply = call(&mut world, &words);
            let after = state(&mut world).expect("the power is on");
            if is_refused(&reply) {
                refused += 1;
                assert!(
                    after == before,
                    "{} was refused, and has changed {:?}",
                    shown(&words),
                    differing(&before, &after)
                );
            }
            before = after;
        }
        make_room(&mut world, &mut rng);
        if before.len() > KEYS_MAX {
            call(&mut world, &["flushdb"]);
        }
        before = state(&mut world).expect("the power is on");
    }
    world.store().check().expect("a sound store");
    refused
}

fn shown(words: &[Vec<u8>]) -> String {
    let shown = words.iter().map(|word| word[..word.len().min(20)].escape_ascii().to_string() + " ");
    shown.take(9).collect()
}

fn differing<'s>(before: &'s State, after: &'s State) -> Vec<&'s str> {
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    keys.filter(|key| before.get(*key) != after.get(*key)).map(|key| &key[..key.len().min(20)]).collect()
}

fn play(full: Full) {
    let mut templates = templates();
    // A script that an error ends has done what came before.
    templates.retain(|template| !["eval", "evalsha", "fcall"].iter().any(|name| template.is_of(name)));
    let mut refused = 0;
    for seed in seeds(8) {
        eprintln!("HOLDFAST_SEED={seed}");
        refused += history(seed, full, &templates);
    }
    assert!(refused > 0, "there was always room");
}

#[test]
fn what_finds_no_room_in_the_heap_changes_nothing() {
    play(Full::Heap);
}

#[test]
fn what_finds_no_room_in_the_log_changes_nothing() {
    play(Full::Log);
}
