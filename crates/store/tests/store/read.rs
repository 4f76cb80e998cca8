//! `Store::get`, `Store::get_many` and `Store::get_directly` see what a transaction for each key sees.

use crate::open;
use holdfast_store::{EXPECTED_MAX, Error, Got, Lsn, Options, SimIo, Store, hash::Expiry};
use std::sync::Arc;

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
    while store.log().durable() < store.log().tail() {
        store.log().commit_once().expect("a sound medium");
    }
    store.forget_copies();
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
