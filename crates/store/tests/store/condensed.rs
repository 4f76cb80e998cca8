//! The file `redo`, which a start reads instead of a part of the log.

use crate::{
    open, oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_io::{Durability, Fault, Io};
use holdfast_store::{Options, SimIo, Store, hash::Expiry, list::End};
use std::sync::Arc;

const FILE: &str = "redo";
const BLOCK: u64 = 4096;

fn options() -> Options {
    Options {
        partitions: 4,
        segment_size: Some(64 << 10),
        log_bytes_max: 256 << 20,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimIo) -> Store {
    let store = Store::open_on(Arc::new(sim.clone()), options()).expect("a store that starts");
    store.attach();
    store
}

/// Sets keys, one batch each.
fn set(store: &Store, keys: std::ops::Range<u32>, value: u8) {
    for key in keys {
        store.set(0, &key.to_le_bytes(), &[value; 100]).expect("room");
    }
}

fn condense(store: &Store) {
    open::commit_all(store);
    store.condense();
}

/// How many batches a start on the same files replays, which makes of them what the store has in memory.
fn replayed(store: &Store, sim: &SimIo) -> u64 {
    assert!(oracle::compare(store, sim, &options()));
    open(&sim.fork()).recovery().replayed_batches
}

/// All of the file.
fn file(sim: &SimIo) -> Vec<u8> {
    sim.snapshot(FILE)
}

fn write_file(sim: &SimIo, bytes: &[u8]) {
    let file = sim.open(FILE, true).expect("the power is on");
    file.set_len(0).and_then(|()| file.write_at(&[bytes], 0, Durability::Durable)).expect("room");
}

#[test]
fn what_is_condensed_is_not_replayed() {
    let sim = SimIo::new(1);
    let store = open(&sim);
    set(&store, 0..300, 1);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1, "since the store was made");
    store.checkpoint().expect("a sound medium");
    set(&store, 0..300, 2);
    condense(&store);
    set(&store, 0..50, 3);
    condense(&store);
    // Nothing new.
    condense(&store);
    set(&store, 50..60, 4);
    assert_eq!(replayed(&store, &sim), 1 + 10);
    // What comes while a checkpoint is still to come is behind that.
    store.checkpoint().expect("a sound medium");
    assert_eq!(replayed(&store, &sim), 0);
    set(&store, 0..20, 5);
    assert_eq!(replayed(&store, &sim), 20);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1);
    let sim = sim.crash();
    drop(store);
    let store = open(&sim);
    assert_eq!(store.recovery().replayed_batches, 1);
    // Until the next checkpoint nothing more is condensed, since what was replayed is not kept.
    set(&store, 0..20, 6);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 21);
    store.check().expect("a sound store");
}

/// One byte in each sector of it is changed in turn, and it ends at each block: the log has all of it.
#[test]
fn a_damaged_file_is_passed_over() {
    let sim = SimIo::new(2);
    let store = open(&sim);
    for round in 0..3u8 {
        set(&store, 0..400, round);
        condense(&store);
    }
    let sound = file(&sim);
    assert!(sound.len() as u64 >= 6 * BLOCK, "{} bytes", sound.len());
    let mut seen = [0; 4];
    for at in (0..sound.len()).step_by(512).chain((8..80).step_by(4)) {
        let fork = sim.fork();
        fork.flip_bit(FILE, at as u64, (at % 8) as u32);
        let batches = replayed(&store, &fork);
        assert!(batches == 1 || batches % 400 <= 1, "{at}: {batches} batches");
        seen[batches as usize / 400] += 1;
    }
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
    for len in (0..sound.len()).step_by(BLOCK as usize) {
        let fork = sim.fork();
        write_file(&fork, &sound[..len]);
        replayed(&store, &fork);
    }
    sim.remove(FILE).expect("it is there");
    assert_eq!(replayed(&store, &sim), 1200);
}

/// A file that somebody has put back.
#[test]
fn a_file_of_another_checkpoint_is_passed_over() {
    let sim = SimIo::new(3);
    let store = open(&sim);
    set(&store, 0..100, 1);
    condense(&store);
    let old = file(&sim);
    store.checkpoint().expect("a sound medium");
    set(&store, 0..100, 2);
    condense(&store);
    write_file(&sim, &old);
    assert_eq!(replayed(&store, &sim), 100);
}

/// Two folders with the same past, of which each has gone on in its own way up to the same LSN.
#[test]
fn a_file_of_another_history_is_passed_over() {
    let sim = SimIo::new(4);
    let store = open(&sim);
    set(&store, 0..10, 1);
    open::commit_all(&store);
    drop(store);
    let [one, other] = [sim.fork(), sim.fork()];
    let stores = [&one, &other].map(|sim| {
        let store = open(sim);
        store.checkpoint().expect("a sound medium");
        store
    });
    for (store, value) in stores.iter().zip([2, 3]) {
        set(store, 0..10, value);
        condense(store);
    }
    assert_eq!(stores[0].log().tail(), stores[1].log().tail());
    set(&stores[1], 0..10, 4);
    write_file(&other, &file(&one));
    assert_eq!(replayed(&stores[1], &other), 20);
}

/// Extents change hands between partitions, and batches are of several of them.
#[test]
fn what_changes_hands_is_condensed_in_order() {
    with_seeds(4, |seed| {
        let (mut rng, sim) = (Rng(seed), SimIo::new(seed));
        let store = open(&sim);
        // What is of one partition only changes hands, too.
        let (mut condensed, widest) = (0, if rng.chance(2) { 1 } else { 3 });
        for _ in 0..150 {
            let names: Vec<Vec<u8>> =
                (0..1 + rng.below(widest)).map(|_| format!("key {}", rng.below(12)).into_bytes()).collect();
            let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
            open::run(&store, &keys, |txn| {
                for key in &keys {
                    match rng.below(5) {
                        0 => drop(txn.remove(0, key)),
                        1 => txn.set(0, key, &[1; 300], false)?,
                        2 => {
                            txn.remove(0, key);
                            txn.list_push(0, key, End::Back, [&[2; 60][..]; 900], true)?;
                        }
                        _ => {
                            txn.remove(0, key);
                            let fields: Vec<String> = (0..3000).map(|n| format!("field {n}")).collect();
                            let pairs = fields.iter().map(|field| (field.as_bytes(), &b"value"[..]));
                            txn.hash_set(0, key, pairs, Expiry::Clear)?;
                        }
                    }
                }
                Ok(())
            })
            .expect("room");
            if rng.chance(2) {
                while store.sweep() {}
            }
            match rng.below(6) {
                0 if rng.chance(4) => store.checkpoint().expect("a sound medium"),
                // Seldom, so that much happens in between.
                0 | 1 if rng.chance(4) => {
                    condense(&store);
                    condensed += u64::from(open(&sim.fork()).recovery().replayed_batches <= 1);
                }
                _ => {}
            }
            if rng.chance(10) {
                assert!(oracle::compare(&store, &sim, &options()));
            }
        }
        assert!(oracle::compare(&store, &sim, &options()));
        assert!(condensed > 0, "nothing was condensed");
        store.check().expect("a sound store");
    });
}

/// More is changed than may be kept until it is condensed.
#[test]
fn what_is_too_much_to_keep_is_replayed() {
    let sim = SimIo::new(5);
    let options = Options { memory_bytes_max: 1 << 20, ..options() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    set(&store, 0..50, 1);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1);
    set(&store, 0..4000, 2);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1 + 4000);
    set(&store, 0..50, 3);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1 + 4050, "not before the next checkpoint");
    store.checkpoint().expect("a sound medium");
    set(&store, 0..50, 4);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1);
}

/// What was lost is not to be forgotten because a checkpoint was begun.
#[test]
fn what_was_too_much_to_keep_is_replayed_after_a_failed_checkpoint() {
    let sim = SimIo::new(7);
    let options = Options { memory_bytes_max: 1 << 20, ..options() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    set(&store, 0..50, 1);
    condense(&store);
    set(&store, 0..4000, 2);
    sim.fault(Fault::write("heap").with_error(libc::ENOSPC));
    store.checkpoint().expect_err("it has no room");
    sim.clear_faults();
    set(&store, 0..50, 3);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1 + 4050);
}

/// A medium that does not take the file.
#[test]
fn a_failure_does_no_harm() {
    let sim = SimIo::new(6);
    let store = open(&sim);
    set(&store, 0..50, 1);
    sim.fault(Fault::write(FILE));
    condense(&store);
    assert_eq!(replayed(&store, &sim), 50);
    set(&store, 0..50, 2);
    condense(&store);
    store.checkpoint().expect("a sound medium");
    set(&store, 0..50, 3);
    condense(&store);
    assert_eq!(replayed(&store, &sim), 1);
}
