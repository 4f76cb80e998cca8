//! What is replayed is what was there, to the last byte of the heap, after any batch (I-14).
//!
//! Batches do a lot here, mostly to few keys: what an entry of the index, or a block, holds for a moment within a batch, and
//! then not any more, is what redo is forgotten for.

use crate::{
    history::FAR,
    oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{
    Error, Options, SimIo, Store, Txn,
    hash::Expiry,
    list::End,
    stream::{Id, NewId, Trim, TrimTo},
};
use std::sync::Arc;

/// Does one thing to one or two keys, whatever they hold.
fn change(txn: &mut Txn, rng: &mut Rng, keys: u64) -> Result<(), Error> {
    let name = |rng: &mut Rng| format!("key:{}", rng.below(keys)).into_bytes();
    // What is large or of many elements is always the same few keys, so that they grow.
    let few = |kind: &str, rng: &mut Rng| format!("{kind}:{}", rng.below(3)).into_bytes();
    let text = |rng: &mut Rng| vec![rng.next() as u8; rng.below(60) as usize];
    let element = |rng: &mut Rng| rng.below(400).to_string().into_bytes();
    let db = txn.database(rng.below(2) as u8);
    match rng.below(40) {
        0..14 => txn.set(db, &name(rng), &text(rng), rng.chance(2)),
        14..19 => {
            txn.remove(db, &name(rng));
            Ok(())
        }
        19 => txn.set_expiry(db, &name(rng), (!rng.chance(3)).then(|| FAR + rng.below(1000))).map(drop),
        20 => txn.rename(db, &name(rng), db, &name(rng)).map(drop),
        21 => txn.copy(db, &name(rng), db, &name(rng)).map(drop),
        22 => txn.hash_set(db, &name(rng), [(&b"field"[..], &b"value"[..])], Expiry::Keep).map(drop),
        23 | 24 => {
            let expiry = if rng.chance(4) { Expiry::At(FAR + rng.below(100)) } else { Expiry::Keep };
            txn.hash_set(db, &few("hash", rng), [(&element(rng)[..], &text(rng)[..])], expiry).map(drop)
        }
        25 => txn.hash_remove(db, &few("hash", rng), [&element(rng)[..]]).map(drop),
        26 | 27 => {
            let end = if rng.chance(2) { End::Front } else { End::Back };
            txn.list_push(db, &few("list", rng), end, [&text(rng)[..]], true).map(drop)
        }
        28 => txn.list_pop(db, &few("list", rng), End::Front, 1 + rng.below(3), |_| {}).map(drop),
        29 => txn.set_add(db, &few("set", rng), [&element(rng)[..]]).map(drop),
        30 => txn.set_remove(db, &few("set", rng), [&element(rng)[..]]).map(drop),
        31 | 32 => {
            let score = rng.below(50) as f64;
            txn.zset_add(db, &few("zset", rng), Default::default(), [(&element(rng)[..], score)]).map(drop)
        }
        33 => txn.zset_remove(db, &few("zset", rng), [&element(rng)[..]]).map(drop),
        34 => {
            let value = text(rng);
            let fields = [(&b"field"[..], &value[..])].into_iter();
            txn.stream_add(db, &few("stream", rng), NewId::At(1), fields, None, true).map(drop)
        }
        35 => {
            let trim = Trim { to: TrimTo::Len(rng.below(100)), whole_leaves: rng.chance(2), limit: 0 };
            txn.stream_trim(db, &few("stream", rng), &trim).map(drop)
        }
        36 => {
            let key = few("stream", rng);
            txn.stream_add_group(db, &key, b"group", Some(Id::MIN), None, false)?;
            txn.stream_read_new(db, &key, b"group", b"c", 3, false, |_| {}).map(drop)
        }
        37 => txn.string_write(db, &few("text", rng), rng.below(20_000) as usize, &text(rng)).map(drop),
        38 => {
            let key = few("hash", rng);
            txn.remove(db, &key);
            Ok(())
        }
        _ if rng.chance(300) => {
            assert!(txn.flush(rng.below(2) as u8));
            Ok(())
        }
        _ => txn.set(db, &few("text", rng), &vec![7; 15_000 + rng.below(5000) as usize], false),
    }
}

fn history(seed: u64) {
    let mut rng = Rng(seed);
    let sim = SimIo::new(seed);
    let options = Options {
        partitions: 1,
        segment_size: Some(256 << 10),
        log_bytes_max: 256 << 20,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim.clone()), options.clone()).expect("the store opens");
    store.attach();
    let keys_max = if rng.chance(2) { 100 } else { 10_000 };
    let keys = 1 + rng.below(keys_max);
    for _ in 0..30 {
        let ops_max = [3, 100, 4000][rng.below(3) as usize];
        let mut txn = store.begin_all();
        for _ in 0..1 + rng.below(ops_max) {
            match change(&mut txn, &mut rng, keys) {
                // What is on the medium only can be read while no other thread is there to wait.
                Err(Error::Cold(cold)) => txn.supply(vec![store.fetch(cold)]),
                Ok(()) | Err(Error::WrongType) => {}
                Err(other) => panic!("{other}"),
            }
        }
        txn.commit();
        match rng.below(12) {
            0 => store.checkpoint().expect("a sound medium"),
            1 => drop(store.clean().expect("a sound medium")),
            2 | 3 => drop(store.freeze(1 + rng.below(100_000)).expect("a sound medium")),
            4..7 => drop(store.sweep()),
            7..9 => {
                store.log().commit_once().expect("a sound medium");
                store.condense();
            }
            _ => {}
        }
        assert!(oracle::compare(&store, &sim, &options));
    }
    store.check().expect("a sound store");
}

#[test]
fn what_is_replayed_is_what_was_there() {
    with_seeds(8, history);
}
