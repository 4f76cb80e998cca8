//! What the tests of the typed operations share: a store on a simulated machine that restarts now and then, random
//! choices from a seed.

use holdfast_store::{Options, SimIo, Store, collections::Limits};
use std::sync::Arc;

/// Numbers that look random and follow from a seed (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// One of `0..n` as a text: short, long or an integer.
    pub fn text(&mut self, n: u64) -> Vec<u8> {
        let number = self.below(n);
        match number % 4 {
            0 => format!("text {number}"),
            1 => format!("{number:0100}"),
            _ => (number as i64 - 100).to_string(),
        }
        .into_bytes()
    }
}

/// A machine with a store.
pub struct World {
    pub sim: SimIo,
    options: Options,
    store: Option<Store>,
}

impl World {
    pub fn new(rng: &mut Rng) -> World {
        let options = Options {
            partitions: 1 << rng.below(3),
            segment_size: Some(256 << 10),
            log_bytes_max: 256 << 20,
            heap_bytes_max: 64 << 20,
            background: false,
            ..Options::default()
        };
        let mut world = World { sim: SimIo::new(rng.next()), options, store: None };
        world.open(rng);
        world
    }

    fn open(&mut self, rng: &mut Rng) {
        let store = Store::open_on(Arc::new(self.sim.clone()), self.options.clone()).expect("a store");
        let mut limits = Limits::default();
        if rng.chance(2) {
            // So that all encodings come up.
            limits.hash_max_listpack_entries = rng.below(20) as usize;
            limits.set_max_intset_entries = rng.below(20) as usize;
            limits.set_max_listpack_entries = rng.below(20) as usize;
            limits.zset_max_listpack_entries = rng.below(20) as usize;
            limits.list_max_listpack_size = 1 + rng.below(20) as i32;
            limits.stream_node_max_entries = rng.below(20) as usize;
            limits.stream_node_max_bytes = rng.below(1000) as usize;
        }
        store.set_limits(limits);
        store.attach();
        self.store = Some(store);
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// Makes everything durable and restarts, mostly by a power cut.
    pub fn restart(&mut self, rng: &mut Rng) {
        let store = self.store.take().expect("it is open");
        while store.log().durable() < store.log().tail() {
            store.log().commit_once().expect("a sound medium");
        }
        if rng.chance(3) {
            store.close().expect("a sound medium");
        }
        drop(store);
        self.sim = self.sim.crash();
        self.open(rng);
        self.store().check().expect("a sound store after a restart");
    }

    /// Does now and then what a store does beside its transactions. True if it was a restart.
    pub fn disturb(&mut self, rng: &mut Rng) -> bool {
        if rng.chance(20) {
            self.store().log().commit_once().expect("a sound medium");
        }
        if rng.chance(200) {
            self.store().checkpoint().expect("a sound medium");
            self.store().clean().expect("a sound medium");
        }
        let restarts = rng.chance(400);
        if restarts {
            self.restart(rng);
        }
        restarts
    }
}

/// Runs a test with several seeds: as many as `HOLDFAST_SEEDS` says, or with the one that `HOLDFAST_SEED` names.
pub fn with_seeds(count: u64, test: fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    if let Some(seed) = number("HOLDFAST_SEED") {
        return test(seed);
    }
    for seed in 0..number("HOLDFAST_SEEDS").unwrap_or(count) {
        if let Err(panic) = std::panic::catch_unwind(|| test(seed)) {
            eprintln!("replay with HOLDFAST_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
