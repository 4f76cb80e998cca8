//! `Store::get`, `Store::get_many` and `Store::get_directly` see what a transaction for each key sees.

use crate::{
    history::FAR,
    open,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{EXPECTED_MAX, Error, Got, Lsn, Options, SimIo, Store, hash::Expiry};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

const KEYS: usize = 5 * EXPECTED_MAX + 3;

fn name(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// The value of a key, if it takes no transaction to read it.
fn read_directly(store: &Store, key: &[u8]) -> Option<(Option<Vec<u8>>, Lsn)> {
    let mut fetched = None;
    loop {
        let (expected, now_ms) = (store.derive(key), store.now_ms());
        match store.get_directly(0, key, expected, now_ms, fetched.as_ref(), <[u8]>::to_vec)? {
            Got::Value(value, lsn) => return Some((Some(value), lsn)),
            Got::Cold(cold) => assert!(fetched.replace(store.fetch(cold)).is_none(), "it was fetched"),
        }
    }
}

#[test]
fn many_keys_are_read_as_each_alone() {
    let sim = SimIo::new(1);
    let options =
        Options { partitions: 4, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let open = || Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    let store = open();
    let (past, future) = (store.now_ms() - 1, store.now_ms() + 1_000_000);
    let names: Vec<Vec<u8>> = (0..KEYS).map(name).collect();
    for (number, key) in names.iter().enumerate().filter(|(number, _)| number % 7 != 0) {
        let write = |txn: &mut holdfast_store::Txn| {
            txn.set(0, key, &[b'x'; 300][..number * 3], false)?;
            match number % 7 {
                1 => txn.set_expiry(0, key, Some(past)).map(drop),
                2 => txn.set_expiry(0, key, Some(future)).map(drop),
                _ => Ok(()),
            }
        };
        open::run(&store, &[key], write).expect("room");
    }
    // One key twice, and one that is none.
    let mut keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    keys.push(keys[5]);
    keys.push(b"");
    let compare = |store: &Store| {
        let read = || keys.iter().map(|key| read_directly(store, key)).collect::<Vec<_>>();
        let directly = read();
        let fetched = store.stats().cache_misses;
        assert_eq!(read(), directly);
        assert_eq!(store.stats().cache_misses, fetched, "what was fetched is in the cache");
        let one = |key: &&[u8]| store.get(0, key, |value| value.map(<[u8]>::to_vec)).expect("sound");
        let ones: Vec<_> = keys.iter().map(one).collect();
        let mut seen = Vec::new();
        let wait_lsn = store.get_many(0, &keys, |at, value| seen.push((at, value.map(<[u8]>::to_vec))));
        let alone = |key: &&[u8]| {
            let read = |txn: &mut holdfast_store::Txn| Ok(txn.get(0, key)?.map(<[u8]>::to_vec));
            open::run(store, &[key], read).expect("sound")
        };
        let alone: Vec<_> = keys.iter().map(alone).collect();
        let found = alone.iter().filter(|(value, _)| value.is_some()).count();
        assert!(found > KEYS / 2 && found < KEYS);
        assert_eq!(ones, alone);
        assert!(directly.iter().flatten().count() > KEYS / 2);
        assert!(
            directly
                .iter()
                .zip(&alone)
                .all(|(directly, alone)| directly.as_ref().is_none_or(|read| read == alone))
        );
        assert_eq!(wait_lsn, Ok(alone.iter().map(|(_, lsn)| *lsn).max().expect("there are keys")));
        assert_eq!(seen, alone.into_iter().map(|(value, _)| value).enumerate().collect::<Vec<_>>());
    };
    compare(&store);
    forget(&store);
    compare(&store);
    store.close().expect("a sound medium");
    // Nothing is in the cache now, and then what was just fetched.
    let store = open();
    compare(&store);
    let fetched = store.stats().cache_misses;
    assert!(fetched > KEYS as u64 / 2);
    compare(&store);
    assert_eq!(store.stats().cache_misses, fetched);

    let fields = [(&b"field"[..], &b"value"[..])];
    open::run(&store, &[b"hash"], |txn| txn.hash_set(0, b"hash", fields, Expiry::Clear)).expect("room");
    assert_eq!(store.get(0, b"hash", |_| ()), Err(Error::WrongType));
    let mut seen = 0;
    assert_eq!(store.get_many(0, &[keys[3], b"hash", keys[4]], |_, _| seen += 1), Err(Error::WrongType));
    assert_eq!(seen, 1);
}

/// Changes that came between, and how many values had to be fetched.
static CHANGED: AtomicU64 = AtomicU64::new(0);
static FETCHED: AtomicU64 = AtomicU64::new(0);

/// What may come between: changes to keys, and what moves them or lets them go.
struct Others {
    rng: Rng,
    keys: u64,
    /// Strings by key; `None`: another type.
    model: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether they are at it.
    are_active: bool,
}

impl Others {
    fn change(&mut self, store: &Store) {
        let rng = &mut self.rng;
        let key = name(rng.below(self.keys) as usize);
        let len_max = [3, 100, 900, 12_000, 150_000][rng.below(5) as usize];
        match rng.below(10) {
            0..5 => {
                let value = vec![rng.next() as u8; rng.below(len_max) as usize];
                store.set(0, &key, &value).expect("room");
                self.model.insert(key, Some(value));
            }
            5 => {
                store.begin_keys([&key[..]]).remove(0, &key);
                self.model.remove(&key);
            }
            6..8 => {
                let mut txn = store.begin_keys([&key[..]]);
                txn.set_expiry(0, &key, (!rng.chance(3)).then_some(FAR)).expect("room");
            }
            8 if rng.chance(10) => {
                let mut txn = store.begin_keys([&key[..]]);
                txn.remove(0, &key);
                txn.hash_set(0, &key, [(&b"f"[..], &b"v"[..])], Expiry::Clear).expect("room");
                self.model.insert(key, None);
            }
            8 if rng.chance(4) => {
                open::commit_all(store);
                store.checkpoint().expect("a sound medium");
                while store.clean().expect("a sound medium") {}
            }
            8 => drop(store.clean().expect("a sound medium")),
            _ => forget(store),
        }
        // No thread does so, and a write would wait for it.
        if store.log().stats().pending_bytes > 1 << 20 {
            store.log().commit_once().expect("a sound medium");
        }
    }
}

/// Has the cache let go of all values.
fn forget(store: &Store) {
    open::commit_all(store);
    store.forget_copies();
}

/// Reads many keys while others change them. What is seen of each must be what it has at that moment, whatever was fetched before.
fn history(seed: u64) {
    let mut rng = Rng(seed);
    let keys = 1 + rng.below(1000);
    let options = Options {
        partitions: 4,
        segment_size: Some(256 << 10),
        log_bytes_max: 256 << 20,
        heap_bytes_max: 16 << 20,
        memory_bytes_max: [1 << 20, 16 << 20][rng.below(2) as usize],
        background: false,
        ..Options::default()
    };
    let sim = SimIo::new(seed);
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    store.attach();
    let store = Arc::new(store);
    let others = Others { rng: Rng(!seed), keys, model: BTreeMap::new(), are_active: false };
    let others = Arc::new(Mutex::new(others));
    let (theirs, weak): (_, Weak<Store>) = (others.clone(), Arc::downgrade(&store));
    let come_between = Arc::new(move |one_in: u64, changes: u64| {
        // Locked: it is they who have come here, or a value is being looked at.
        if let (Some(mut others), Some(store)) = (theirs.try_lock(), weak.upgrade())
            && others.are_active
            && others.rng.chance(one_in)
        {
            (0..changes).for_each(|_| others.change(&store));
            CHANGED.fetch_add(changes, Relaxed);
        }
    });
    let to_read = come_between.clone();
    store.on_step(move |_| come_between(10, 1));
    // What is read may be elsewhere by then, and others in its file.
    sim.before_read(move || to_read(100, 40));
    for round in 0..12 {
        for _ in 0..keys / 2 {
            others.lock().change(&store);
        }
        forget(&store);
        let mut wanted: Vec<Vec<u8>> = (0..keys as usize + 20).map(name).collect();
        let is_quiet = round % 4 == 0;
        if !is_quiet {
            others.lock().are_active = true;
            wanted = (0..rng.below(2 * keys)).map(|_| name(rng.below(keys + 20) as usize)).collect();
        }
        let wanted: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
        let (before, mut seen) = (store.stats().cache_misses, 0);
        let result = store.get_many(0, &wanted, |at, value| {
            assert_eq!(at, seen, "in order");
            let others = others.lock();
            let expected = others.model.get(wanted[at]).map(|value| value.as_deref().expect("a string"));
            assert!(value == expected, "{:?}", String::from_utf8_lossy(wanted[at]));
            seen += 1;
        });
        let fetched = store.stats().cache_misses - before;
        FETCHED.fetch_add(fetched, Relaxed);
        let mut others = others.lock();
        others.are_active = false;
        match result {
            Ok(_) => assert_eq!(seen, wanted.len()),
            Err(error) => {
                assert_eq!(error, Error::WrongType);
                assert_eq!(others.model.get(wanted[seen]), Some(&None));
            }
        }
        if is_quiet && seen == wanted.len() {
            assert_eq!(fetched, others.model.len() as u64, "each is fetched once");
        }
    }
    store.check().expect("a sound store");
}

#[test]
fn many_keys_are_read_as_they_are_when_they_are_seen() {
    let seeds = with_seeds(40, history);
    let (changed, fetched) = (CHANGED.load(Relaxed), FETCHED.load(Relaxed));
    assert!(seeds < 40 || changed > 5000 && fetched > 25_000, "{changed} changes between, {fetched} fetched");
}
