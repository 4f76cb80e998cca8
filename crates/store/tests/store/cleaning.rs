//! Cleaning at the edges.

use crate::open;
use holdfast_io::{Fault, Io};
use holdfast_store::{Admission, Error, Options, SimIo, Store, Txn, hash::Expiry};
use std::sync::Arc;

#[test]
fn a_segment_that_the_log_ends_with_is_kept() {
    let sim = SimIo::new(1);
    let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let options = Options { segment_size: Some(64 << 10), ..options };
    let open = || Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    let store = open();
    store.attach();
    // What a hash writes is dead once it is in a checkpoint. It goes on until a batch ends just where a segment does.
    let mut random = fastrand::Rng::with_seed(1);
    let mut len;
    loop {
        len = random.usize(..60);
        let fields = [(&b"field"[..], &[b'x'; 60][..len])];
        open::run(&store, &[b"h"], |txn| txn.hash_set(0, b"h", fields, Expiry::Clear)).expect("room");
        store.log().wait_durable(store.log().tail()).expect("a sound medium");
        let segments = store.log().segments();
        if segments.last().is_some_and(|last| last.end_lsn == store.log().tail()) {
            break;
        }
        if segments.len() > 4 {
            store.checkpoint().expect("a sound medium");
            while store.clean().expect("a sound medium") {}
        }
    }
    store.checkpoint().expect("a sound medium");
    while store.clean().expect("a sound medium") {}
    drop(store);

    let store = open();
    let read = |txn: &mut Txn| Ok(txn.hash_get(0, b"h", b"field")?.map(|value| value.to_vec()));
    let (value, _) = open::run(&store, &[b"h"], read).expect("a sound value");
    assert_eq!(value, Some(vec![b'x'; len]));
    store.check().expect("a sound store");
}

const SEGMENT: u64 = 64 << 10;
const OLD: usize = 4096;

/// A store in which segment 1 holds nothing that lives but values of the keys that are returned, all of partition 0, whose
/// batches no other segment shares; and a key of partition 1.
fn with_a_segment_of_keys(sim: &SimIo) -> (Store, Vec<Vec<u8>>, Vec<u8>) {
    let options = Options {
        partitions: 2,
        segment_size: Some(SEGMENT as u32),
        log_bytes_max: 32 * SEGMENT,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    store.attach();
    let mut names = (0..).map(|number: u32| format!("key {number}").into_bytes());
    let keys: Vec<_> = names.by_ref().filter(|key| store.partition_of(key) == 0).take(8).collect();
    let other = names.find(|key| store.partition_of(key) == 1).expect("one in two is");
    // Into the next segment, and on by some.
    let fill = |segment: u64| {
        let start = segment * (SEGMENT - 4096);
        while store.log().tail() < start + 8192 {
            set(&store, &other, &[b'x'; OLD]);
        }
    };
    fill(1);
    keys.iter().for_each(|key| set(&store, key, &[b'o'; OLD]));
    fill(2);
    set(&store, &other, b"short");
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    store.checkpoint().expect("a sound medium");
    (store, keys, other)
}

fn set(store: &Store, key: &[u8], value: &[u8]) {
    open::run(store, &[key], |txn| txn.set(0, key, value, false)).expect("room");
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    open::run(store, &[key], |txn| Ok(txn.get(0, key)?.map(<[u8]>::to_vec))).expect("a sound value").0
}

/// What a transaction makes garbage lives until it is committed: the cleaner must not give its segment away before.
#[test]
fn what_an_open_transaction_has_replaced_survives_a_power_cut() {
    let sim = SimIo::new(1);
    let (store, keys, other) = with_a_segment_of_keys(&sim);
    let mut open = store.begin(&[0]);
    keys.iter().for_each(|key| open.set(0, key, b"new", false).expect("room"));
    while store.clean().expect("a sound medium") {}
    // Files that were freed are written again.
    for _ in 0..3 * SEGMENT / OLD as u64 {
        set(&store, &other, &[b'y'; OLD]);
        store.log().commit_once().expect("a sound medium");
    }
    let sim = sim.crash();
    drop(open);
    drop(store);

    let options = Options { background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(sim), options).expect("a sound store");
    keys.iter().for_each(|key| assert_eq!(get(&store, key), Some(vec![b'o'; OLD])));
    store.check().expect("a sound store");
}

/// The batch that has emptied a segment is durable before the segment is given away, wherever the power is cut.
#[test]
fn a_segment_is_not_given_away_before_that_is_durable_which_has_emptied_it() {
    let mut cut_at = 0;
    loop {
        cut_at += 1;
        let sim = SimIo::new(cut_at);
        let (store, keys, other) = with_a_segment_of_keys(&sim);
        keys.iter().for_each(|key| set(&store, key, b"new"));
        sim.crash_after(cut_at);
        let run = || {
            // Reading still works when the power is cut, so that it might go on for ever.
            while store.clean()? && sim.free_bytes().is_ok() {}
            for _ in 0..2 * SEGMENT / OLD as u64 {
                set(&store, &other, &[b'y'; OLD]);
            }
            store.log().commit_once()
        };
        let is_cut = run().is_err();
        let sim = sim.crash();
        drop(store);

        let options = Options { background: false, ..Options::default() };
        let store = Store::open_on(Arc::new(sim), options).expect("a sound store");
        for key in &keys {
            let value = get(&store, key);
            assert!(value == Some(vec![b'o'; OLD]) || value == Some(b"new".to_vec()), "{value:?}");
        }
        store.check().expect("a sound store");
        if !is_cut {
            return;
        }
    }
}

/// Live bytes are not known before all entries are counted, so nothing is given away until then.
#[test]
fn nothing_is_given_away_while_a_store_is_loaded() {
    let sim = SimIo::new(1);
    let (store, keys, other) = with_a_segment_of_keys(&sim);
    drop(store);
    let options = Options { background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(sim), options).expect("a sound store");
    store.checkpoint().expect("a sound medium");
    assert!(!store.clean().expect("a sound medium"));
    for _ in 0..2 * SEGMENT / OLD as u64 {
        set(&store, &other, &[b'y'; OLD]);
    }
    keys.iter().for_each(|key| assert_eq!(get(&store, key), Some(vec![b'o'; OLD])));
    store.check().expect("a sound store");
}

/// Redo that the last checkpoint has not got is needed, though nothing that lives is beside it.
#[test]
fn what_is_newer_than_the_last_checkpoint_is_kept() {
    let sim = SimIo::new(1);
    let (store, _, other) = with_a_segment_of_keys(&sim);
    let fields = |number: u32| (number.to_le_bytes(), [number as u8; 100]);
    let end = store.log().tail() + 2 * SEGMENT;
    let mut count = 0;
    while store.log().tail() < end {
        let (name, value) = fields(count);
        let field = [(&name[..], &value[..])];
        open::run(&store, &[b"h"], |txn| txn.hash_set(0, b"h", field, Expiry::Clear)).expect("room");
        count += 1;
    }
    while store.clean().expect("a sound medium") {}
    for _ in 0..2 * SEGMENT / OLD as u64 {
        set(&store, &other, &[b'y'; OLD]);
    }
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    let sim = sim.crash();
    drop(store);
    let store = Store::open_on(Arc::new(sim), Options { background: false, ..Options::default() });
    let store = store.expect("a sound store");
    for number in 0..count {
        let (name, value) = fields(number);
        let read = |txn: &mut Txn| Ok(txn.hash_get(0, b"h", &name)?.map(|value| value.to_vec()));
        assert_eq!(open::run(&store, &[b"h"], read).expect("a sound value").0, Some(value.to_vec()));
    }
    store.check().expect("a sound store");
}

/// A segment may share an item with others that is larger than the room that is left: it stays where it is, and others are
/// emptied.
#[test]
fn an_item_larger_than_the_room_is_not_moved() {
    let options = Options {
        partitions: 1,
        segment_size: Some(SEGMENT as u32),
        log_bytes_max: 24 * SEGMENT,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    store.attach();
    let name = |number: u32| format!("key {number}").into_bytes();
    let settle = || {
        store.log().wait_durable(store.log().tail()).expect("what is appended has room");
        store.checkpoint().expect("a sound medium");
        while store.clean().expect("what is moved has room") {}
    };
    // It begins and ends in segments that are garbage but for its ends.
    let huge = vec![b'h'; 8 * SEGMENT as usize];
    (0..10).for_each(|_| set(&store, b"garbage", &[b'g'; OLD]));
    set(&store, b"huge", &huge);
    (0..10).for_each(|_| set(&store, b"garbage", &[b'g'; OLD]));
    let mut count = 0;
    while store.admit(OLD + 256) == Admission::Ok {
        set(&store, &name(count), &[b'v'; OLD]);
        settle();
        count += 1;
    }
    assert!(count > 60, "{count}");
    let copied = open::run(&store, &[b"huge", b"copy"], |txn| txn.copy(0, b"huge", 0, b"copy"));
    assert!(matches!(copied, Err(Error::NotAdmitted(_))), "{copied:?}");
    // One in three goes, and there is room for half as many.
    for number in (0..count).step_by(3) {
        assert_eq!(store.admit_removal(256), Admission::Ok);
        assert!(open::run(&store, &[&name(number)], |txn| Ok(txn.remove(0, &name(number)))).expect("room").0);
        settle();
    }
    for number in (0..count / 2).step_by(3) {
        assert_eq!(store.admit(OLD + 256), Admission::Ok, "{number} of {count}");
        set(&store, &name(number), &[b'w'; OLD]);
        settle();
    }
    assert_eq!(get(&store, b"huge"), Some(huge));
    store.check().expect("a sound store");
}

/// A large value lies in many segments. When it is gone its batch is not read for each of them.
#[test]
fn the_segments_of_a_large_value_that_is_gone_are_freed_by_one_look_at_most() {
    for has_neighbours in [false, true] {
        let sim = SimIo::new(1);
        let options = Options {
            partitions: 1,
            segment_size: Some(SEGMENT as u32),
            log_bytes_max: 64 * SEGMENT,
            heap_bytes_max: 16 << 20,
            background: false,
            ..Options::default()
        };
        let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
        store.attach();
        let settle = || {
            store.log().wait_durable(store.log().tail()).expect("a sound medium");
            store.checkpoint().expect("a sound medium");
        };
        let huge = vec![b'h'; 30 * SEGMENT as usize];
        let neighbour = [b'n'; OLD];
        if has_neighbours {
            set(&store, b"before", &neighbour);
        }
        set(&store, b"huge", &huge);
        if has_neighbours {
            set(&store, b"behind", &neighbour);
        }
        (0..2 * SEGMENT / OLD as u64).for_each(|_| set(&store, b"garbage", &[b'g'; OLD]));
        set(&store, b"huge", b"is gone");
        settle();
        // Some looks at all of its 30 segments; one for each would be 900 reads.
        let looks = if has_neighbours { 8 * 30 } else { 2 * 30 };
        sim.fault(Fault::read("log/").after(looks).sticky());
        while store.clean().expect("so many reads are enough") {}
        sim.clear_faults();
        let kept = store.log().segments().len();
        assert!(kept < 8, "{kept} segments are kept");
        if has_neighbours {
            store.forget_copies();
            assert_eq!(get(&store, b"before"), Some(neighbour.to_vec()));
            assert_eq!(get(&store, b"behind"), Some(neighbour.to_vec()));
        }
        assert_eq!(get(&store, b"huge"), Some(b"is gone".to_vec()));
        store.check().expect("a sound store");
    }
}
