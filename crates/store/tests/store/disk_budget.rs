//! The budget of bytes that the data folder may take.

use crate::open;
use holdfast_io::Io;
use holdfast_store::{Admission, Error, Options, SimIo, Store, Txn, hash::Expiry};
use std::sync::Arc;

const MEDIUM: u64 = 1 << 30;
const BUDGET: u64 = 24 << 20;
const SEGMENT: u32 = 64 << 10;
const VALUE: usize = 3000;

fn open_on(sim: &SimIo, disk_bytes_max: u64) -> Store {
    sim.set_capacity(MEDIUM);
    open_as_it_is(sim, disk_bytes_max)
}

fn open_as_it_is(sim: &SimIo, disk_bytes_max: u64) -> Store {
    open_with(sim, 64 << 20, disk_bytes_max)
}

fn open_with(sim: &SimIo, log_bytes_max: u64, disk_bytes_max: u64) -> Store {
    let options = Options {
        partitions: 4,
        segment_size: Some(SEGMENT),
        log_bytes_max,
        disk_bytes_max,
        heap_bytes_max: 64 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    store.attach();
    store
}

/// Bytes that the folder takes.
fn used(sim: &SimIo) -> u64 {
    MEDIUM - sim.free_bytes().expect("the power is on").expect("it tells")
}

/// What the threads do when room is short.
fn make_room(store: &Store) {
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    while store.sweep() {}
    store.checkpoint().expect("a sound medium");
    while store.clean().expect("a sound medium") {}
}

/// Writes something, once room was made for it; false if there is none.
fn grow(store: &Store, mut write: impl FnMut() -> Result<(), Error>) -> bool {
    // The maintenance thread looks all the time.
    store.clean().expect("a sound medium");
    (0..4).any(|_| {
        let written = match store.admit(4 * VALUE) {
            Admission::Ok => write(),
            refusal => Err(Error::NotAdmitted(refusal)),
        };
        match written {
            Ok(()) => return true,
            Err(Error::NotAdmitted(_)) => make_room(store),
            Err(error) => panic!("{error}"),
        }
        false
    })
}

fn set(store: &Store, number: u32) -> bool {
    grow(store, || store.set(0, &key(number), &value(number)).map(drop))
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; VALUE]
}

/// Sets keys from a number on until that is refused; returns where it was. The folder never takes more than `most`.
fn fill(sim: &SimIo, store: &Store, from: u32, most: u64) -> u32 {
    (from..)
        .find(|&number| {
            let is_set = set(store, number);
            assert!(used(sim) <= most, "{} bytes after {number} keys", used(sim));
            !is_set
        })
        .expect("it is full some time")
}

fn remove(store: &Store, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let removed = open::run(store, &[&key(number)], |txn| Ok(txn.remove(0, &key(number))));
        assert!(removed.expect("deletes have room").0, "{number}");
        if store.admit_removal(1000) != Admission::Ok {
            make_room(store);
        }
    }
}

fn check(store: &Store, mut numbers: impl Iterator<Item = u32>) {
    assert!(numbers.all(|number| {
        open::run(store, &[&key(number)], |txn| {
            Ok(txn.get(0, &key(number))?.is_some_and(|found| found == value(number)))
        })
        .expect("it is read")
        .0
    }));
    store.check().expect("a sound store");
}

#[test]
fn strings_fill_the_budget_and_deleting_them_makes_room() {
    let sim = SimIo::new(1);
    let store = open_on(&sim, BUDGET);
    let count = fill(&sim, &store, 0, BUDGET);
    assert!(u64::from(count) * VALUE as u64 > BUDGET / 2, "{count} values fill it");
    assert_eq!(store.disk_usage().bytes_max, BUDGET);
    assert!(store.disk_usage().bytes.abs_diff(used(&sim)) < 64 << 10, "{:?}", store.disk_usage());
    check(&store, 0..count);
    remove(&store, (0..count).step_by(2));
    let more = fill(&sim, &store, count, BUDGET);
    assert!(more - count > count / 3, "{} of {count}", more - count);
    check(&store, (1..count).step_by(2).chain(count..more));
    // It is as full after a restart.
    store.close().expect("a sound medium");
    drop(store);
    let store = open_on(&sim, BUDGET);
    let again = fill(&sim, &store, more, BUDGET);
    assert!(again - more < count / 8, "{}", again - more);
    check(&store, (1..count).step_by(2).chain(count..again));
}

/// What collections take grows in the heap's file.
#[test]
fn collections_fill_the_budget_and_deleting_them_makes_room() {
    let sim = SimIo::new(1);
    let store = open_on(&sim, BUDGET);
    let fill = |from: u32| {
        (from..)
            .find(|&number| {
                let (name, field) = (key(number / 100), number.to_le_bytes());
                let is_set = grow(&store, || {
                    let value = value(number);
                    let put =
                        |txn: &mut Txn| txn.hash_set(0, &name, [(&field[..], &value[..])], Expiry::Clear);
                    open::run(&store, &[&name], put).map(drop)
                });
                assert!(used(&sim) <= BUDGET, "{} bytes after {number} fields", used(&sim));
                !is_set
            })
            .expect("it is full some time")
    };
    let count = fill(0);
    assert!(u64::from(count) * VALUE as u64 > BUDGET / 5, "{count} fields fill it");
    remove(&store, 0..count / 200);
    let more = fill(count.next_multiple_of(100));
    assert!(more - count > count / 4, "{} of {count}", more - count);
    store.check().expect("a sound store");
}

#[test]
fn a_budget_that_is_lowered_is_met_once_enough_is_deleted() {
    let sim = SimIo::new(1);
    let store = open_on(&sim, u64::MAX);
    for number in 0..5000 {
        assert!(set(&store, number));
    }
    make_room(&store);
    let before = used(&sim);
    let budget = before / 3 * 2;
    store.set_disk_bytes_max(budget);
    // It is heeded when room is looked for next.
    make_room(&store);
    assert!(!set(&store, 9999));
    // Some are taken away from segments of all ages.
    let is_kept = |number: &u32| number.is_multiple_of(4);
    remove(&store, (0..5000).filter(|number| !is_kept(number)));
    make_room(&store);
    assert!(used(&sim) <= budget, "{} of {budget}, before {before}", used(&sim));
    assert!(set(&store, 9999));
    check(&store, (0..5000).filter(is_kept));
    let count = fill(&sim, &store, 5000, budget);
    assert!(count > 5100, "{count}");
    // And raised, it is heeded, too.
    store.set_disk_bytes_max(before);
    assert!(set(&store, 9999));
    let more = fill(&sim, &store, count, before);
    assert!(u64::from(more - count) * VALUE as u64 > (before - budget) / 2, "{}", more - count);
    check(&store, (0..5000).filter(is_kept).chain(5000..more));
}

#[test]
fn a_log_of_more_than_it_may_have_at_a_start_is_emptied() {
    for (bytes_max, files_max) in [(4 << 20, u64::MAX), (64 << 20, (4 << 20) / u64::from(SEGMENT))] {
        let sim = SimIo::new(1);
        let store = open_on(&sim, u64::MAX);
        for number in 0..5000 {
            assert!(set(&store, number));
        }
        store.close().expect("a sound medium");
        drop(store);
        let store = open_with(&sim, bytes_max, u64::MAX);
        store.log().set_open_files_max(files_max).expect("a sound medium");
        assert!(!set(&store, 9999));
        // Some are taken away from segments of all ages.
        let is_kept = |number: &u32| number.is_multiple_of(8);
        remove(&store, (0..5000).filter(|number| !is_kept(number)));
        make_room(&store);
        let usage = store.log().usage();
        assert!(usage.bytes <= 4 << 20 && usage.bytes_max == 4 << 20, "{usage:?}");
        assert!(set(&store, 9999));
        check(&store, (0..5000).filter(is_kept).chain([9999]));
    }
}

#[test]
fn a_budget_below_what_is_there_at_a_start_refuses_writes_and_takes_deletes() {
    let sim = SimIo::new(1);
    let store = open_on(&sim, u64::MAX);
    let count = 2000;
    for number in 0..count {
        assert!(set(&store, number));
    }
    store.close().expect("a sound medium");
    drop(store);
    let store = open_on(&sim, 1 << 20);
    assert!(!set(&store, 9999));
    check(&store, 0..count);
    remove(&store, 0..count);
    make_room(&store);
    // Less than what a log needs: it stays as small as it can be.
    assert!(!set(&store, 9999));
    assert!(used(&sim) < 3 << 20, "{}", used(&sim));
    store.set_disk_bytes_max(BUDGET);
    assert!(set(&store, 9999));
}

/// Whatever grows, and however long the thread that looks after room does not run: without a checkpoint nothing is ever freed.
#[test]
fn a_full_medium_has_room_for_a_checkpoint() {
    for value_len in [40, 400, VALUE] {
        let sim = SimIo::new(1);
        sim.set_capacity(BUDGET);
        let store = open_as_it_is(&sim, u64::MAX);
        let fill = |from: u32| {
            let refused = (from..).find(|&number| {
                let (name, value) = (key(number / 100), vec![number as u8; value_len]);
                if store.admit(2 * value_len) != Admission::Ok {
                    // It may only be behind.
                    store.log().wait_durable(store.log().tail()).expect("a sound medium");
                }
                let put = |txn: &mut Txn| {
                    txn.hash_set(0, &name, [(&number.to_le_bytes()[..], &value[..])], Expiry::Clear)
                };
                match store.admit(2 * value_len) {
                    Admission::Ok => open::run(&store, &[&name], put).is_err(),
                    refusal => refusal == Admission::Full,
                }
            });
            store.log().wait_durable(store.log().tail()).expect("a sound medium");
            store.log().look_for_room();
            refused.expect("it is full some time")
        };
        let count = fill(0);
        store.checkpoint().expect("it has room");
        remove(&store, 0..count / 100);
        make_room(&store);
        assert!(fill(count) > count + count / 4, "{value_len}");
        store.checkpoint().expect("it has room");
        store.check().expect("a sound store");
    }
}
