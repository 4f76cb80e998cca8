//! Who gets memory (I-7): copies of items yield to what grows beside them, without a thread's help; and what is used stays, be it copies or pages.

use fastrand::Rng;
use holdfast_store::{HomeMethod, Options, SimIo, Stats, Store, hash::Expiry};
use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const LIMIT: u64 = 16 << 20;

fn open(options: Options) -> Store {
    let options = Options {
        partitions: 8,
        heap_bytes_max: 64 << 20,
        memory_bytes_max: LIMIT as usize,
        background: false,
        ..options
    };
    Store::open_on(Arc::new(SimIo::new(1)), options).expect("a new store")
}

fn set(store: &Store, n: u32, len: usize) {
    let key = n.to_le_bytes();
    store.begin_keys([&key[..]]).set(0, &key, &vec![7; len], false).expect("room");
}

fn commit(store: &Store) {
    store.log().commit_once().expect("a sound medium");
}

/// Bytes of RAM for heap, index and copies.
fn taken(stats: &Stats) -> u64 {
    stats.heap_resident_bytes + stats.index_bytes + stats.cache_bytes
}

/// As the collection is in one partition, the copies of the others, in which nothing happens, must go.
#[test]
fn copies_in_idle_partitions_yield_to_a_collection_that_grows() {
    let store = open(Options::default());
    for n in 0..100_000 {
        set(&store, n, 200);
        if n % 1000 == 0 {
            commit(&store);
        }
    }
    commit(&store);
    let before = store.stats();
    assert!(before.cache_bytes > LIMIT / 2, "{} bytes of copies", before.cache_bytes);
    for round in 0..600u32 {
        let members: Vec<Vec<u8>> =
            (0..100).map(|n| format!("a member of some length {n:03}, {round}").into_bytes()).collect();
        let mut txn = store.begin_keys([&b"set"[..]]);
        txn.set_add(0, b"set", members.iter().map(Vec::as_slice)).expect("room");
        drop(txn);
        commit(&store);
        let stats = store.stats();
        assert!(taken(&stats) < LIMIT + (1 << 20), "{} bytes in round {round}", taken(&stats));
    }
    let after = store.stats();
    assert!(after.heap_resident_bytes > before.heap_resident_bytes + (3 << 20));
    assert!(after.cache_bytes < before.cache_bytes - (2 << 20));
    for n in (0..100_000u32).step_by(1000) {
        let (found, _) =
            store.get(0, &n.to_le_bytes(), |value| value.map(<[u8]>::len)).expect("a sound medium");
        assert_eq!(found, Some(200));
    }
}

#[test]
fn a_value_that_would_drive_out_all_others_is_not_copied() {
    let store = open(Options::default());
    (0..1000).for_each(|n| set(&store, n, 200));
    commit(&store);
    let before = store.stats();
    set(&store, 1000, 4 << 20);
    commit(&store);
    let after = store.stats();
    assert_eq!((after.cache_copies, after.cache_bytes), (before.cache_copies, before.cache_bytes));
    let read = || store.get(0, &1000u32.to_le_bytes(), |value| value.map(<[u8]>::len));
    assert_eq!(read().expect("a sound medium").0, Some(4 << 20));
    assert_eq!(store.stats().cache_copies, before.cache_copies);

    let unlimited = open(Options::default());
    unlimited.set_memory_bytes_max(usize::MAX);
    set(&unlimited, 0, 4 << 20);
    assert_eq!(unlimited.stats().cache_copies, 1);
}

/// What is not in memory is read from the heap's home, which must have what was changed last before that leaves memory.
#[test]
fn pages_leave_memory_when_their_home_has_what_was_changed() {
    const FIELDS: u32 = 40_000;
    let options =
        Options { partitions: 1, home: Some(HomeMethod::Latb), background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(SimIo::on_scm(1)), options).expect("a new store");
    store.attach();
    let store = Arc::new(store);
    let set = |n: u32, value: u32| {
        let value = [value; 25].map(u32::to_le_bytes).concat();
        let mut txn = store.begin_keys([&b"hash"[..]]);
        txn.hash_set(0, b"hash", [(&n.to_le_bytes()[..], &value[..])], Expiry::Keep).expect("room");
    };
    (0..FIELDS).for_each(|n| set(n, 0));
    commit(&store);
    // After how many steps which field is looked at, and the value that it must have.
    let look = Arc::new(Mutex::new((0, 0, 0)));
    let (weak, looks) = (Arc::downgrade(&store), look.clone());
    store.on_step(move |_| {
        let mut look = looks.lock().expect("no holder panics");
        look.0 = u32::saturating_sub(look.0, 1);
        let (left, n, value) = *look;
        drop(look);
        if left == 1 {
            let store = weak.upgrade().expect("an open store");
            let mut txn = store.begin_keys([&b"hash"[..]]);
            let found = txn.hash_get(0, b"hash", &u32::to_le_bytes(n)).expect("a hash").expect("a field");
            assert!(found.as_ref().starts_with(&u32::to_le_bytes(value)), "the {value}th value of {n}");
        }
    });
    for round in 1..100 {
        let n = round * 997 % FIELDS;
        set(n, round);
        *look.lock().expect("no holder panics") = (1 + round, n, round);
        store.freeze(u64::MAX).expect("a sound medium");
        assert!(store.stats().heap_absent_bytes > 1 << 20, "the hash has left memory");
    }
}

/// Sets the first fields of a hash, a hundred at a time, each to a hundred times a byte.
fn set_fields(store: &Store, count: u32, byte: impl Fn(u32) -> u8) {
    for first in (0..count).step_by(100) {
        let set = store.run(&[b"hash"], |_, writes| {
            writes.hash_set(0, b"hash", (first..first + 100).map(|n| (n.to_le_bytes(), [byte(n); 100])));
            Ok(())
        });
        set.expect("room");
    }
}

fn check_field(store: &Store, n: u32, byte: u8) {
    let mut txn = store.begin_keys([&b"hash"[..]]);
    let value = txn.hash_get(0, b"hash", &n.to_le_bytes()).expect("a hash").expect("a field");
    assert_eq!(value.as_ref(), [byte; 100]);
}

/// Strings and a hash, each of which memory would hold, and both of which it does not: it holds what is used.
#[test]
fn memory_goes_to_what_is_used() {
    const MEMORY: usize = 32 << 20;
    const FIELDS: u32 = 250_000;
    const KEYS: u32 = 14_000;
    /// By then memory has followed.
    const TIME: Duration = Duration::from_secs(60);
    let options = Options { partitions: 4, memory_bytes_max: MEMORY, ..Options::default() };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a new store");
    for n in 0..KEYS {
        store.set(0, &n.to_le_bytes(), &[7; 1000]).expect("room");
    }
    set_fields(&store, FIELDS, |n| n as u8);
    let rng = RefCell::new(Rng::with_seed(7));
    let draw = |count: u32| (0..count).map(|_| rng.borrow_mut().u32(0..count)).collect::<Vec<_>>();
    let look_at_strings = || {
        for n in draw(KEYS) {
            let len =
                store.get(0, &n.to_le_bytes(), |value| value.map(<[u8]>::len)).expect("a sound medium").0;
            assert_eq!(len, Some(1000));
        }
    };
    // What lies together of the hash, and is as much as memory may have of it at most.
    let look_at_fields = || {
        for n in draw(FIELDS / 5 * 3) {
            check_field(&store, n, n as u8);
        }
    };
    let reads = |look: &dyn Fn()| {
        let count = || {
            let stats = store.stats();
            stats.cache_misses + stats.heap_pages_fetched + stats.heap_page_faults
        };
        let before = count();
        look();
        count() - before
    };
    let (strings, fields): (&dyn Fn(), &dyn Fn()) = (&look_at_strings, &look_at_fields);
    for (what, look) in [("strings", strings), ("fields", fields), ("strings", strings)] {
        let first = reads(look);
        assert!(first > 1000, "{first} reads: many of the {what} are not in memory");
        let (started, mut rounds, mut last, mut in_memory) = (Instant::now(), 0, first, 0);
        // It may be there for a moment by chance.
        while in_memory < 5 {
            let stats = store.stats();
            let (heap, copies) = (stats.heap_resident_bytes >> 10, stats.cache_bytes >> 10);
            assert!(
                started.elapsed() < TIME,
                "{last} of {first} reads after {rounds} rounds: memory does not come to the {what}, {heap} KiB are the heap's, {copies} are copies'"
            );
            last = reads(look);
            in_memory = if last > first / 20 { 0 } else { in_memory + 1 };
            rounds += 1;
        }
        println!("{what}: {first} reads at first, {rounds} rounds");
    }
}

/// What has changed leaves memory only after a checkpoint, and the medium takes none. What is read meanwhile does not stay.
#[test]
fn what_is_read_leaves_memory_while_what_has_changed_cannot() {
    const MEMORY: usize = 16 << 20;
    const FIELDS: u32 = 200_000;
    const CHANGED: u32 = 100_000;
    let sim = SimIo::new(1);
    let options = Options { partitions: 4, memory_bytes_max: MEMORY, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a new store");
    set_fields(&store, FIELDS, |_| 1);
    store.checkpoint().expect("a sound medium");
    sim.hold_writes("heap");
    // More than may stay, and less than has to wait for room.
    set_fields(&store, CHANGED, |_| 2);
    let begun = Instant::now();
    while sim.held_writes() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody wants a checkpoint");
        thread::sleep(Duration::from_millis(1));
    }
    let mut most = 0;
    for first in (CHANGED..FIELDS).step_by(100) {
        for n in first..first + 100 {
            check_field(&store, n, 1);
        }
        most = most.max(store.stats().heap_resident_bytes);
        thread::sleep(Duration::from_millis(1));
    }
    sim.release_writes();
    store.close().expect("a sound medium");
    println!("at most {} KiB in memory", most >> 10);
    assert!(most < MEMORY as u64 * 5 / 4, "{most} bytes are in memory");
}
