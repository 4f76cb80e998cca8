//! What the tests of the typed operations share: a store on a simulated machine that restarts now and then, random
//! choices from a seed.

use holdfast_store::{Options, SimIo, Store, Txn, collections::Limits};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

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
    /// Whether there is no memory for what is only looked at.
    is_short: bool,
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
        let is_short = rng.chance(3);
        let mut world = World { sim: SimIo::new(rng.next()), options, store: None, is_short };
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
        if self.is_short {
            store.set_memory_bytes_max(1);
        }
        self.store = Some(store);
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// A transaction over all keys, with what is frozen at hand.
    pub fn begin_all(&self) -> Txn<'_> {
        let store = self.store();
        if self.is_short {
            // With next to no cache, what is in it may be gone when something else comes in.
            store.forget_copies();
        }
        let (mut fetched, mut cursor) = (Vec::new(), 0);
        loop {
            let step = store.scan(0, cursor, 100);
            for cold in step.cold {
                let name = store.fetch(cold);
                let name = name.key().expect("a sound medium");
                let cold = store.begin_keys([name]).cold(0, [name]);
                fetched.extend(cold.into_iter().map(|cold| store.fetch(cold)));
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
        let mut txn = store.begin_all();
        txn.supply(fetched);
        txn
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
        count(&store);
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
        if rng.chance(30) {
            self.store().freeze(1 + rng.below(1 << 20)).expect("a sound medium");
        }
        let restarts = rng.chance(400);
        if restarts {
            self.restart(rng);
        }
        restarts
    }
}

/// What all worlds froze and thawed.
static FROZEN: AtomicU64 = AtomicU64::new(0);
static THAWED: AtomicU64 = AtomicU64::new(0);

fn count(store: &Store) {
    let stats = store.stats();
    FROZEN.fetch_add(stats.freezes, Relaxed);
    THAWED.fetch_add(stats.thaws, Relaxed);
}

impl Drop for World {
    fn drop(&mut self) {
        count(self.store());
    }
}

/// Runs a test with several seeds: as many as `HOLDFAST_SEEDS` says, or with the one that `HOLDFAST_SEED` names. As many
/// values, and more, must have been thawed for each seed: none if they are strings, which are items like others then.
pub fn with_seeds(seeds: u64, thaws_min: u64, test: fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    if let Some(seed) = number("HOLDFAST_SEED") {
        return test(seed);
    }
    let seeds = number("HOLDFAST_SEEDS").unwrap_or(seeds);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| test(seed)) {
            eprintln!("replay with HOLDFAST_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    let (frozen, thawed) = (FROZEN.load(Relaxed), THAWED.load(Relaxed));
    assert!(frozen > 20 * seeds && frozen > thawed, "{frozen} frozen, {thawed} thawed");
    assert!(thawed >= thaws_min * seeds, "{frozen} frozen, {thawed} thawed");
}
