//! The share of GETs that memory answers, of an embedded store that holds more than that, beside what caches of as many values would
//! have had of the same GETs: one that drops the value used longest ago (exact LRU), and TinyLFU (Einziger et al., ACM TOS
//! 2017) as the library `moka` has it.
//!
//! ```text
//! hits --keys 400000 --memory 50000000 zipf:0.99 gauss:0.1 uniform loop:0.15 scan:0.99 shift:0.99 trace.txt
//! ```
//! `--value`: bytes of a value (512); `--memory`: the store's memory, in bytes; `--gets`: how many (four times as many as keys), of which the
//! second half counts. What is no pattern is a file with a number in each line, which is asked for as it is, repeated if it is short. Prints a line for each.

use holdfast_bench::patterns::{Numbers, Pattern};
use holdfast_store::{Admission, Appendfsync, Options, Store};
use lexopt::{Arg, Parser, ValueExt};
use lru::LruCache;
use moka::{policy::EvictionPolicy, sync::Cache};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{
    collections::HashMap,
    error::Error,
    fs, iter,
    num::NonZero,
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Threads that ask, each for one value at a time.
const THREADS: usize = 16;
/// GETs after which TinyLFU does what it has put off.
const TIDY_EVERY: usize = 64;

struct Arguments {
    keys: u64,
    memory: usize,
    value: usize,
    gets: Option<u64>,
    names: Vec<String>,
}

impl Arguments {
    fn parse() -> Result<Arguments> {
        let mut arguments =
            Arguments { keys: 400_000, memory: 50_000_000, value: 512, gets: None, names: Vec::new() };
        let mut parser = Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("keys") => arguments.keys = parser.value()?.parse()?,
                Arg::Long("memory") => arguments.memory = parser.value()?.parse()?,
                Arg::Long("value") => arguments.value = parser.value()?.parse()?,
                Arg::Long("gets") => arguments.gets = Some(parser.value()?.parse()?),
                Arg::Value(name) => arguments.names.push(name.string()?),
                _ => return Err(argument.unexpected().into()),
            }
        }
        if arguments.names.is_empty() || arguments.keys == 0 {
            return Err("patterns or files are wanted, and keys".into());
        }
        Ok(arguments)
    }

    /// What is asked for in turn, and how many different keys there are.
    fn numbers(&self, name: &str) -> Result<(Vec<u32>, u64)> {
        if !Path::new(name).is_file() {
            let mut numbers = Numbers::new(name.parse::<Pattern>()?, self.keys, 1, Rc::default())?;
            let gets = self.gets.unwrap_or(4 * self.keys);
            return Ok(((0..gets).map(|_| numbers.draw() as u32).collect(), self.keys));
        }
        let (mut known, mut numbers) = (HashMap::new(), Vec::new());
        for line in fs::read_to_string(name)?.lines() {
            let new = known.len() as u32;
            numbers.push(*known.entry(line.trim().to_owned()).or_insert(new));
        }
        let gets = self.gets.map_or(numbers.len(), |gets| gets as usize);
        Ok((numbers.into_iter().cycle().take(gets).collect(), known.len() as u64))
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// The share of hits in the second half, and how many values the memory has at the end.
fn measure(arguments: &Arguments, numbers: &[u32], keys: u64) -> Result<(f64, usize)> {
    let folder = tempfile::tempdir()?;
    let options =
        Options { appendfsync: Appendfsync::No, memory_bytes_max: arguments.memory, ..Options::default() };
    let store = Store::open(folder.path(), options)?;
    store.attach();
    let mut random = SmallRng::seed_from_u64(1);
    for number in 0..keys as u32 {
        while store.log().admit(2 * arguments.value + 4096) != Admission::Ok {
            thread::sleep(Duration::from_millis(1));
        }
        let value: Vec<u8> = iter::repeat_with(|| random.random()).take(arguments.value).collect();
        store.set(0, &name(number), &value)?;
        store.log().kick();
    }
    let (first, second) = numbers.split_at(numbers.len() / 2);
    let ask = |numbers: &[u32]| {
        let before = store.stats();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(&number) = numbers.get(next.fetch_add(1, Relaxed)) {
                        let found = store.get(0, &name(number), |value| value.is_some());
                        assert!(found.expect("a sound medium").0, "key {number}");
                    }
                });
            }
        });
        let after = store.stats();
        (after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses)
    };
    ask(first);
    let (hits, misses) = ask(second);
    let copies = store.stats().cache_copies as usize;
    store.close()?;
    Ok((hits as f64 / (hits + misses).max(1) as f64, copies))
}

/// The share of hits in the second half with a cache, which tells of each number whether it has it, and takes it in.
fn share(numbers: &[u32], mut has: impl FnMut(u32) -> bool) -> f64 {
    let hits: Vec<bool> = numbers.iter().map(|&number| has(number)).collect();
    let counted = &hits[numbers.len() / 2..];
    counted.iter().filter(|hit| **hit).count() as f64 / counted.len().max(1) as f64
}

fn lru(numbers: &[u32], capacity: NonZero<usize>) -> f64 {
    let mut cache = LruCache::new(capacity);
    share(numbers, |number| cache.put(number, ()).is_some())
}

fn tiny_lfu(numbers: &[u32], capacity: NonZero<usize>) -> f64 {
    let cache = Cache::builder()
        .max_capacity(capacity.get() as u64)
        .eviction_policy(EvictionPolicy::tiny_lfu())
        .build();
    let mut asked = 0;
    share(numbers, |number| {
        let has = cache.get(&number).is_some();
        if !has {
            cache.insert(number, ());
        }
        asked += 1;
        if asked % TIDY_EVERY == 0 {
            cache.run_pending_tasks();
        }
        has
    })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse()?;
    for name in &arguments.names {
        let (numbers, keys) = arguments.numbers(name)?;
        let (ours, copies) = measure(&arguments, &numbers, keys)?;
        let capacity = NonZero::new(copies).ok_or("memory has no room for a value")?;
        let (lru, tiny_lfu) = (lru(&numbers, capacity), tiny_lfu(&numbers, capacity));
        println!(
            "{name}: {keys} keys, {} GETs, {copies} values in memory; hits {ours:.3}, exact LRU {lru:.3}, TinyLFU {tiny_lfu:.3}",
            numbers.len()
        );
    }
    Ok(())
}
