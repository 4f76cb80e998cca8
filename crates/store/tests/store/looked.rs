//! What a command will use is looked for before it runs: then nothing is waited for while it does.

use crate::{
    history::FAR,
    open,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{
    Options, SimIo, Store, Txn, Use,
    hash::Expiry,
    list::End,
    stream::{Id, NewId},
    zset::AddOptions,
};
use std::{
    ops::Bound::Included,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

const ELEMENTS: u64 = 3000;

/// Changes, and pages that were fetched for them and waited for.
type Counts = [AtomicU64; 3];

static REMOVALS: Counts = [const { AtomicU64::new(0) }; 3];
static ADDITIONS: Counts = [const { AtomicU64::new(0) }; 3];
static GARBAGE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn element(number: u64) -> Vec<u8> {
    format!("an element that takes a block {number}").into_bytes()
}

/// Nothing is in memory when it is opened, and nothing is read but what somebody uses.
fn start(io: &Arc<SimIo>) -> Store {
    let options =
        Options { partitions: 1, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    Store::open_on(io.clone(), options).expect("a store")
}

/// Looks for what is used of a key until that is in memory, and then uses it.
fn use_of(counts: &Counts, store: &Store, key: &[u8], uses: &[Use], change: impl Fn(&mut Txn)) {
    loop {
        let cold = store.begin_all().absent(0, [key], uses, true, 4096).expect("a sound medium");
        if cold.is_empty() {
            break;
        }
        counts[1].fetch_add(cold.len() as u64, Relaxed);
        store.fetch_all(&cold);
    }
    let before = store.stats().heap_page_faults;
    open::run(store, &[key], |txn| {
        change(txn);
        Ok(())
    })
    .expect("room");
    counts[0].fetch_add(1, Relaxed);
    counts[2].fetch_add(store.stats().heap_page_faults - before, Relaxed);
}

/// Removes nearly all elements in random order, so that buckets and leaves merge. Now and then nothing is in memory.
fn removals(seed: u64) {
    let (mut rng, io) = (Rng(seed), Arc::new(SimIo::new(seed)));
    let mut store = start(&io);
    let scores: Vec<f64> = (0..ELEMENTS).map(|_| rng.below(1 << 30) as f64).collect();
    for (number, &score) in (0..).zip(&scores) {
        let member = element(number);
        let member = &member[..];
        open::run(&store, &[b"set", b"hash", b"zset"], |txn| {
            txn.set_add(0, b"set", [member])?;
            txn.hash_set(0, b"hash", [(member, member)], Expiry::Clear)?;
            txn.zset_add(0, b"zset", AddOptions::default(), [(member, score)])
        })
        .expect("room");
    }
    for step in 0..ELEMENTS {
        if step % 20 == 0 {
            store.close().expect("an orderly end");
            store = start(&io);
        }
        let number = rng.below(ELEMENTS);
        let (member, score) = (element(number), scores[number as usize]);
        let member = &member[..];
        match rng.below(4) {
            0 => use_of(&REMOVALS, &store, b"set", &[Use::Element(member)], |txn| {
                txn.set_remove(0, b"set", [member]).expect("room");
            }),
            1 => use_of(&REMOVALS, &store, b"hash", &[Use::Element(member)], |txn| {
                txn.hash_remove(0, b"hash", [member]).expect("room");
            }),
            2 => use_of(&REMOVALS, &store, b"zset", &[Use::Place(member, None)], |txn| {
                txn.zset_remove(0, b"zset", [member]).expect("room");
            }),
            _ => {
                let (min, max) = (Included(score), Included(score + 1e6));
                let uses = Use::Scores { min, max, reverse: false, count: u64::MAX };
                use_of(&REMOVALS, &store, b"zset", &[uses], |txn| {
                    let zset = txn.zset_at(0, b"zset").expect("a sorted set").expect("some are left");
                    let ranks = zset.ranks_by_score(min, max);
                    txn.zset_remove_ranks(0, b"zset", ranks).expect("room");
                });
            }
        }
    }
    store.check().expect("a sound store");
}

/// Fields are added to small hashes, which move as they grow. They are not frozen, since one field of each expires; now and then nothing is
/// in memory.
fn growth(seed: u64) {
    const KEYS: u64 = 1500;
    let (mut rng, io) = (Rng(seed), Arc::new(SimIo::new(seed)));
    let store = start(&io);
    let key = |number: u64| format!("hash {number}").into_bytes();
    for number in 0..KEYS {
        let key = key(number);
        open::run(&store, &[&key], |txn| {
            txn.hash_set(0, &key, [(&b"expires"[..], &b"x"[..])], Expiry::At(FAR))
        })
        .expect("room");
    }
    for step in 0..8 * KEYS {
        let key = key(rng.below(KEYS));
        let (name, value) = (element(rng.below(20)), vec![b'v'; rng.below(60) as usize]);
        let (name, value) = (&name[..], &value[..]);
        let set = |txn: &mut Txn| {
            txn.hash_set(0, &key, [(name, value)], Expiry::Keep).expect("room");
        };
        // Blocks of all sizes are freed first.
        if step < 6 * KEYS {
            open::run(&store, &[&key], |txn| {
                set(txn);
                Ok(())
            })
            .expect("room");
            continue;
        }
        if step % 100 == 0 {
            open::commit_all(&store);
            store.checkpoint().expect("a sound medium");
            store.freeze(u64::MAX).expect("a sound medium");
        }
        use_of(&ADDITIONS, &store, &key, &[Use::Field(name, value)], set);
    }
    store.check().expect("a sound store");
}

/// Collections of all types, large and small, that are removed, or flushed, while nothing is in memory; they are freed in slices.
fn garbage(seed: u64) {
    let (mut rng, io) = (Rng(seed), Arc::new(SimIo::new(seed)));
    let mut store = start(&io);
    let empty = store.stats().heap_allocated_bytes;
    let large: [&[u8]; 7] = [b"set", b"hash", b"fields", b"zset", b"list", b"stream", b"string"];
    for number in 0..ELEMENTS {
        let member = element(number);
        let member = &member[..];
        let value = vec![b'v'; rng.below(if number % 100 == 0 { 20_000 } else { 200 }) as usize];
        open::run(&store, &large, |txn| {
            txn.set_add(0, b"set", [member])?;
            txn.hash_set(0, b"hash", [(member, &value[..])], Expiry::Clear)?;
            txn.hash_set(0, b"fields", [(member, member)], Expiry::At(FAR + number))?;
            txn.zset_add(0, b"zset", AddOptions::default(), [(member, rng.below(1 << 30) as f64)])?;
            txn.list_push(0, b"list", End::Back, [&value[..]], true)?;
            let id = NewId::Exactly(Id::new(number + 1, 0));
            txn.stream_add(0, b"stream", id, [(member, member)].into_iter(), None, true)?
                .expect("a stream")
                .expect("an ID");
            txn.string_write(0, b"string", number as usize * 1000, member)
        })
        .expect("room");
    }
    for group in 0..20 {
        let group = element(group);
        open::run(&store, &[b"stream"], |txn| {
            txn.stream_add_group(0, b"stream", &group, Some(Id::MIN), None, false)?;
            for consumer in 0..10 {
                txn.stream_read_new(0, b"stream", &group, &element(consumer), 100, false, |_| ())?;
            }
            Ok(())
        })
        .expect("room");
    }
    for number in 0..1000 {
        let key = format!("small {number}").into_bytes();
        open::run(&store, &[&key], |txn| txn.hash_set(0, &key, [(&key[..], &key[..])], Expiry::At(FAR)))
            .expect("room");
    }
    for is_flushed in [false, true] {
        if is_flushed {
            assert!(store.begin_all().flush(0));
        }
        for key in large.iter().filter(|_| !is_flushed) {
            assert!(store.begin_keys([*key]).remove(0, key));
            while rng.below(3) > 0 {
                store.sweep();
            }
        }
        open::commit_all(&store);
        store.close().expect("an orderly end");
        store = start(&io);
        let before = store.stats();
        while store.sweep() {
            open::commit_all(&store);
        }
        let after = store.stats();
        // Small hashes are left, or nothing is.
        let left = after.heap_allocated_bytes - empty;
        assert!(if is_flushed { left == 0 } else { left < 200_000 }, "{left} bytes are left");
        GARBAGE[0].fetch_add(after.heap_pages_fetched - before.heap_pages_fetched, Relaxed);
        GARBAGE[1].fetch_add(after.heap_page_faults - before.heap_page_faults, Relaxed);
    }
    store.check().expect("a sound store");
}

/// More pages were fetched than there were changes, and for one change of so many, at most, a page was waited for.
fn assert_waited_for(counts: &Counts, one_in: u64) {
    let [changes, fetched, waited] = counts.each_ref().map(|count| count.load(Relaxed));
    println!("{changes} changes: {fetched} pages were fetched, {waited} waited for");
    assert!(fetched > changes, "{changes} changes: {fetched} pages were fetched");
    assert!(waited * one_in <= changes, "{changes} changes: {waited} pages were waited for");
}

#[test]
fn what_grows_waits_for_nothing() {
    with_seeds(2, growth);
    // A block that has become too large for what is in it moves, too.
    assert_waited_for(&ADDITIONS, 100);
}

#[test]
fn removals_wait_for_nothing() {
    with_seeds(3, removals);
    // Inner nodes merge as well, and nodes of hash tables shrink into new blocks.
    assert_waited_for(&REMOVALS, 1000);
}

#[test]
fn garbage_is_freed_without_waiting() {
    with_seeds(3, garbage);
    let [fetched, waited] = GARBAGE.each_ref().map(|count| count.load(Relaxed));
    println!("{fetched} pages were fetched, {waited} waited for");
    // Those of the index are not looked for.
    assert!(fetched > 500 && waited * 20 < fetched, "{fetched} pages were fetched, {waited} waited for");
}
