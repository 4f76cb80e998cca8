//! What the tests of the typed operations share: histories of a few keys, in a store on a simulated machine that restarts
//! now and then, against a model.

use crate::{
    open, oracle,
    seeds::{self, Rng},
};
use holdfast_store::{Limits, Options, SimIo, Store, Txn};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The model: what is behind each key.
pub type State<V> = BTreeMap<Vec<u8>, V>;

/// The keys of a history.
pub fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..4).map(|number| format!("key {number}").into_bytes())
}

/// One of them.
pub fn key(rng: &mut Rng) -> Vec<u8> {
    keys().nth(rng.below(4) as usize).expect("one of four")
}

/// A history: `step` does something with a transaction over all keys and with the model. Whether they agree is compared by
/// `compare`, key by key, after each restart. In the end `empty` has each key's value go, in the way that its type has.
pub fn play<V>(
    seed: u64,
    steps: u64,
    step: impl Fn(&mut Rng, &World, &mut Txn, &mut State<V>),
    mut compare: impl FnMut(&mut Txn, &[u8], Option<&V>),
    empty: impl Fn(&mut Txn, &[u8]),
) {
    let rng = &mut Rng(seed);
    let mut world = World::new(rng);
    let mut state = State::new();
    let mut compare = |world: &World, state: &State<V>| {
        let mut txn = world.begin_all();
        keys().for_each(|key| compare(&mut txn, &key, state.get(&key)));
    };
    for _ in 0..steps {
        step(rng, &world, &mut world.begin_all(), &mut state);
        if world.disturb(rng) {
            compare(&world, &state);
        }
    }
    world.store().check().expect("a sound store");
    world.restart(rng);
    compare(&world, &state);
    keys().for_each(|key| empty(&mut world.begin_all(), &key));
    while world.store().sweep() {}
    assert!(world.store().is_empty());
    world.store().check().expect("a sound store");
}

impl Rng {
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
                fetched.extend(store.fetch_all(&cold));
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
    fn restart(&mut self, rng: &mut Rng) {
        let store = self.store.take().expect("it is open");
        open::commit_all(&store);
        assert!(oracle::compare(&store, &self.sim, &self.options));
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
    fn disturb(&mut self, rng: &mut Rng) -> bool {
        while rng.chance(4) && self.store().sweep() {}
        if rng.chance(20) {
            self.store().log().commit_once().expect("a sound medium");
        }
        if rng.chance(40) {
            self.store().condense();
        }
        if rng.chance(200) {
            assert!(oracle::compare(self.store(), &self.sim, &self.options));
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

/// Runs a test with several seeds. As many values, and more, must have been thawed for each: none if they are strings, which
/// are items like others when they are frozen.
pub fn with_seeds(seeds: u64, thaws_min: u64, test: fn(u64)) {
    let ran = seeds::with_seeds(seeds, test);
    if ran < seeds {
        return;
    }
    let (frozen, thawed) = (FROZEN.load(Relaxed), THAWED.load(Relaxed));
    // Each thaw undoes a freeze.
    assert!(frozen > 20 * ran && frozen >= thawed, "{frozen} frozen, {thawed} thawed");
    assert!(thawed >= thaws_min * ran, "{frozen} frozen, {thawed} thawed");
}
