//! GET and SET of the embedded store, by one thread: one key after another, and many at once.
//!
//! `cargo run --release -p holdfast-bench --bin embedded -- FOLDER [KEYS] [OPERATIONS]`

use holdfast_store::{Appendfsync, Options, Store};
use std::{hint::black_box, path::PathBuf, time::Instant};

/// Keys that are read at once.
const MANY: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("a folder for the data"));
    let mut number = |default| arguments.next().map_or(default, |a| a.parse().expect("a number"));
    let (keys, operations): (u64, u64) = (number(1_000_000), number(5_000_000));
    let options = Options { appendfsync: Appendfsync::No, ..Options::default() };
    let store = Store::open(folder.join("embedded-bench"), options).expect("a store");
    let value = [b'x'; 100];
    let mut state = 1u64;
    let mut next_key = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("key:{:012}", (state >> 33) % keys).into_bytes()
    };
    for n in 0..keys {
        set(&store, format!("key:{n:012}").as_bytes(), &value);
    }
    let names: Vec<Vec<u8>> = (0..1 << 20).map(|_| next_key()).collect();
    let name = |n: u64| &names[n as usize & (names.len() - 1)];
    for _ in 0..3 {
        report("SET", operations, || (0..operations).for_each(|n| set(&store, name(n), &value)));
        report("GET", operations, || {
            for n in 0..operations {
                let there = store.get(0, name(n), |value| black_box(value).is_some()).expect("cached").0;
                assert!(there);
            }
        });
        report("GET, many at once", operations, || {
            for first in (0..operations).step_by(MANY) {
                let keys: [&[u8]; MANY] = std::array::from_fn(|at| &name(first + at as u64)[..]);
                let seen = |_: usize, value: Option<&[u8]>| {
                    black_box(value.expect("there"));
                };
                store.get_many(0, &keys, seen).expect("cached");
            }
        });
    }
    store.close().expect("an orderly end");
}

fn set(store: &Store, key: &[u8], value: &[u8]) {
    store.set(0, key, value).expect("room");
    store.log().kick();
}

fn report(what: &str, operations: u64, run: impl FnOnce()) {
    let started = Instant::now();
    run();
    println!("{what} {:.2} M/s", operations as f64 / started.elapsed().as_secs_f64() / 1e6);
}
