//! Power cuts at any moment, with any subset of the unflushed sectors surviving.
//!
//! Random histories run against a simulated machine. After each cut, what is recovered must be exactly the state
//! after some prefix of the committed batches, and this prefix must hold everything that was acknowledged.

use crate::{
    history::{CHANGED, State, apply, dump, get, is_cut, random_key, random_ops, run_batch},
    lives::{another_compression, any_compression, any_folders, any_heap_below, any_home, any_machine},
    oracle::{self, Snapshot},
    seeds::{Rng, with_seeds},
};
use holdfast_store::{Admission, Options, Store};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn options(rng: &mut Rng) -> Options {
    Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        // Few segments make the cleaner work hard.
        log_bytes_above_max: 8 * (64 << 10),
        log_bytes_max: (64 << 10) * if rng.chance(2) { 12 + rng.below(12) } else { 64 },
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.chance(2) { 256 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    }
}

/// One life of a machine after another, each ended by a power cut or an orderly close.
fn history(seed: u64) {
    let mut rng = Rng(seed);
    let mut sim = any_machine(seed);
    let options = options(&mut rng);
    let keys_max = if rng.chance(2) { 50 } else { 1500 };
    let keys = 1 + rng.below(keys_max);
    // The state after each batch since the last start that is not yet known to be acknowledged, oldest first.
    let mut states = vec![State::new()];
    // The heap after each of the last batches before the cut.
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for life in 0..1 + rng.below(5) {
        let home = any_home(&sim, seed, life);
        let heap_below = any_heap_below(seed, life);
        let compression = any_compression(seed, life);
        let options = Options { compression, home, heap_below, ..options.clone() };
        let is_armed = rng.chance(3);
        if is_armed {
            // Some of these cuts come while the data folder is being made or recovered.
            sim.crash_after(1 + rng.below(20));
        }
        let io = oracle::folders(&sim, any_folders(seed, life));
        let store = match io.and_then(|io| Store::open_on(io, options.clone())) {
            Ok(store) => store,
            Err(why) => {
                assert!(sim.is_power_cut(&why), "the store does not open: {why}");
                CUT_OPENINGS.fetch_add(1, Relaxed);
                sim = sim.crash();
                continue;
            }
        };
        let recovered = dump(&store);
        let Some(at) = states.iter().position(|state| *state == recovered) else {
            panic!("recovered {} keys, a state that no acknowledged prefix leads to", recovered.len());
        };
        let mut now = states.swap_remove(at);
        states = vec![now.clone()];
        let tail = store.log().tail();
        if let Some(snapshot) = snapshots.drain(..).find(|snapshot| snapshot.tail == tail) {
            snapshot.compare(&store);
            COMPARED_AFTER_CUTS.fetch_add(1, Relaxed);
        }
        store.check().expect("a sound store after recovery");
        store.attach();
        if !is_armed && rng.chance(2) {
            sim.crash_after(1 + rng.below(400));
        }
        let mut waiting: Vec<u64> = Vec::new();
        LIVES_AT_HOME.fetch_add(home.is_some().into(), Relaxed);
        let mut alive = true;
        let mut full = 0;
        let batches = if rng.chance(4) { 8000 } else { 400 };
        for _ in 0..rng.below(batches) {
            let mut ops = random_ops(&mut rng, keys);
            if store.admit(200_000) != Admission::Ok {
                // As a server would: nothing is written until there is room.
                alive &= store.log().commit_once().is_ok();
                while store.sweep() {}
                alive &= store.checkpoint().is_ok() && store.clean().is_ok();
                full += 1;
                if full % 100 == 0 {
                    // All that is there may need more than the budget.
                    store.set_disk_bytes_max(u64::MAX);
                }
                assert!(full < 10_000, "the cleaner makes no room");
                if alive {
                    continue;
                }
                break;
            }
            let Some(wait_lsn) = run_batch(&store, &mut ops) else { break };
            ops.iter().for_each(|op| apply(&mut now, op));
            states.push(now.clone());
            waiting.push(wait_lsn);
            store.log().store_ahead();
            // In its home the heap changes without the log.
            if home.is_none() && sim.operations_left().is_some_and(|left| left < 10) {
                snapshots.push(Snapshot::of(&store));
            }
            if rng.chance(3) {
                let key = random_key(&mut rng, keys);
                match get(&store, 0, &key) {
                    Ok(value) => {
                        let expected = now.get(&(0, key)).map(|v| (*v.0).clone());
                        assert_eq!(value, expected);
                    }
                    Err(why) => {
                        assert!(is_cut(&why.to_string()), "{why}");
                        alive = false;
                    }
                }
            }
            if rng.chance(12) {
                alive &= store.freeze(1 + rng.below(100_000)).is_ok();
            }
            if rng.chance(4) {
                alive &= store.log().commit_once().is_ok();
            }
            if rng.chance(20) {
                store.condense();
            }
            if rng.chance(60) {
                // A checkpoint writes what memory holds, and so takes away what was not as it would be replayed.
                alive &= !rng.chance(3) || oracle::compare(&store, &sim, &options);
                alive &= store.checkpoint().is_ok();
            }
            if rng.chance(50) {
                let bytes = if rng.chance(2) { u64::MAX } else { (4 + rng.below(6)) << 20 };
                store.set_disk_bytes_max(bytes);
            }
            if rng.chance(20) {
                alive &= store.clean().is_ok();
            }
            if rng.chance(10) {
                store.sweep();
            }
            if rng.chance(100) {
                store.set_compression(another_compression(seed, &mut rng));
            }
            let durable = store.log().durable();
            let acknowledged = waiting.iter().take_while(|&&wait_lsn| wait_lsn <= durable).count();
            states.drain(..acknowledged);
            waiting.drain(..acknowledged);
            if !alive {
                break;
            }
        }
        alive &= alive && oracle::compare(&store, &sim, &options);
        if alive && rng.chance(3) && store.close().is_ok() {
            states = vec![now];
        }
        let stats = store.stats();
        FREED.fetch_add(stats.freed_segments, Relaxed);
        MOVED.fetch_add(stats.moved_bytes, Relaxed);
        FROZEN.fetch_add(stats.freezes, Relaxed);
        EVICTED.fetch_add(stats.heap_pages_evicted, Relaxed);
        COMPRESSED.fetch_add(stats.compression.bytes_before, Relaxed);
        THAWED.fetch_add(stats.thaws, Relaxed);
        sim = sim.crash();
    }
}

/// What the store did by itself in all histories.
static FREED: AtomicU64 = AtomicU64::new(0);
static MOVED: AtomicU64 = AtomicU64::new(0);
static FROZEN: AtomicU64 = AtomicU64::new(0);
static THAWED: AtomicU64 = AtomicU64::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);
/// Bytes of values that were compressed.
static COMPRESSED: AtomicU64 = AtomicU64::new(0);
/// Cuts that came while a store was opened.
static CUT_OPENINGS: AtomicU64 = AtomicU64::new(0);
/// Lives with the heap in its home.
static LIVES_AT_HOME: AtomicU64 = AtomicU64::new(0);
/// Heaps that were compared, byte for byte, after a cut.
static COMPARED_AFTER_CUTS: AtomicU64 = AtomicU64::new(0);

#[test]
fn every_acknowledged_batch_survives_a_power_cut_whole() {
    const SEEDS: u64 = 100;
    if with_seeds(SEEDS, history) < SEEDS {
        return;
    }
    let (freed, moved) = (FREED.load(Relaxed), MOVED.load(Relaxed));
    assert!(freed > 500 && moved > 25_000, "the cleaner freed {freed} segments and moved {moved} bytes only");
    let (frozen, thawed) = (FROZEN.load(Relaxed), THAWED.load(Relaxed));
    assert!(thawed > 1000 && frozen > thawed, "{frozen} collections were frozen, and {thawed} thawed only");
    let evicted = EVICTED.load(Relaxed);
    assert!(evicted > 5000, "{evicted} pages only left memory");
    let compressed = COMPRESSED.load(Relaxed);
    assert!(compressed > 1 << 20, "{compressed} bytes of values only were compressed");
    let cut = CUT_OPENINGS.load(Relaxed);
    assert!(cut > 30, "{cut} cuts only while a store was opened");
    let (compared, all) = (COMPARED_AFTER_CUTS.load(Relaxed), oracle::COMPARED.get());
    assert!(compared > 20 && all > 200, "{compared} heaps only were compared after cuts, {all} in all");
    let at_home = LIVES_AT_HOME.load(Relaxed);
    assert!(at_home > 15, "{at_home} lives only had the heap in its home");
    let changed = CHANGED.get();
    assert!(changed > 200, "{changed} changes only of strings in the heap");
}
