//! GETs of an embedded store that holds more than its memory, by threads that each wait for one value at a time, or for many at once.
//!
//! `cargo run --release -p holdfast-bench --bin cold -- FOLDER KEYS MEMORY VALUE THREADS SECONDS [AT_ONCE]`: keys of 16 bytes, drawn evenly; memory and
//! values in bytes. What is in the folder from an earlier run is read again. Prints the reads a second.

use holdfast_store::{Admission, Appendfsync, Options, Store};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{
    hint::black_box,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("a folder for the data"));
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).expect("five numbers");
    let (keys, memory, value, threads, seconds) = (number(), number(), number(), number(), number());
    let at_once = arguments.next().map_or(1, |text| text.parse::<u64>().expect("a number of keys"));
    let options =
        Options { appendfsync: Appendfsync::No, memory_bytes_max: memory as usize, ..Options::default() };
    let store = Store::open(folder, options).expect("a store");
    store.attach();
    let name = |number: u64| format!("key:{number:012}").into_bytes();
    if store.get(0, &name(keys - 1), |value| value.is_none()).expect("sound").0 {
        let mut bytes = vec![0; value as usize];
        SmallRng::seed_from_u64(1).fill(&mut bytes[..]);
        for number in 0..keys {
            while store.log().admit(2 * value as usize + 4096) != Admission::Ok {
                thread::sleep(Duration::from_millis(1));
            }
            store.set(0, &name(number), &bytes).expect("room");
            store.log().kick();
        }
    }
    let (read, until) = (AtomicU64::new(0), Instant::now() + Duration::from_secs(seconds));
    thread::scope(|scope| {
        for seed in 0..threads {
            let (store, read) = (&store, &read);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed);
                while Instant::now() < until {
                    let names: Vec<_> = (0..at_once).map(|_| name(random.random_range(0..keys))).collect();
                    let keys: Vec<_> = names.iter().map(|name| &name[..]).collect();
                    let mut seen = 0;
                    let mut see = |value: Option<&[u8]>| seen += usize::from(black_box(value).is_some());
                    match keys[..] {
                        [key] => store.get(0, key, see).map(drop),
                        _ => store.get_many(0, &keys, |_, value| see(value)).map(drop),
                    }
                    .expect("sound");
                    assert_eq!(seen, keys.len(), "all are there");
                    read.fetch_add(at_once, Relaxed);
                }
            });
        }
    });
    println!("{}", read.load(Relaxed) / seconds);
    store.close().expect("an orderly end");
}
