//! Keys visited one after another by who copies everything: each once, with the heap's pages in bounded memory.

use crate::open;
use holdfast_store::{OpenError, Options, SimIo, Store, hash::Expiry};
use std::{collections::BTreeMap, sync::Arc};

const MEMORY: usize = 2 << 20;

fn options(memory_bytes_max: usize) -> Options {
    Options { partitions: 8, background: false, memory_bytes_max, ..Options::default() }
}

fn commit(store: &Store) {
    store.log().commit_once().expect("a sound medium");
}

/// The values that the keys hold, and the most bytes that the heap held meanwhile.
fn visited(store: &Store) -> (BTreeMap<Vec<u8>, Vec<u8>>, u64) {
    let (mut found, mut most) = (BTreeMap::new(), 0);
    store
        .visit_keys::<OpenError>(0, |txn, key| {
            let value = match key.starts_with(b"string") {
                true => txn.get(0, key).expect("it comes with its key").expect("it is there").to_vec(),
                false => {
                    for field in 0..30u8 {
                        let field = txn.hash_get(0, key, &[field]).expect("it is a hash");
                        assert_eq!(field.map(|text| text.len()), Some(300));
                    }
                    let field = txn.hash_get(0, key, b"last").expect("it is a hash");
                    field.expect("it is there").to_vec()
                }
            };
            assert!(found.insert(key.to_vec(), value).is_none(), "it is visited once");
            // Without a lock: the key's partition is locked.
            most = most.max(store.memory_of_data().0 as u64);
            Ok(())
        })
        .expect("a sound medium");
    (found, most)
}

#[test]
fn the_heap_outgrows_the_memory_of_who_visits_it() {
    let sim = SimIo::new(1);
    let store = Store::open_on(Arc::new(sim.clone()), options(usize::MAX)).expect("a store");
    let mut expected = BTreeMap::new();
    let fill = |name: String, expected: &mut BTreeMap<_, _>| {
        let (key, last) = (name.clone().into_bytes(), format!("last of {name}").into_bytes());
        let text = [b'x'; 300];
        open::run(&store, &[&key], |txn| {
            for field in 0..30u8 {
                txn.hash_set(0, &key, [(&[field][..], &text[..])], Expiry::Clear)?;
            }
            txn.hash_set(0, &key, [(&b"last"[..], &last[..])], Expiry::Clear).map(drop)
        })
        .expect("room");
        commit(&store);
        expected.insert(key, last);
    };
    (0..1500).for_each(|number| fill(format!("hash {number}"), &mut expected));
    for number in 0..3000 {
        let key = format!("string {number}").into_bytes();
        store.set(0, &key, &key).expect("room");
        expected.insert(key.clone(), key);
    }
    commit(&store);
    store.checkpoint().expect("a sound medium");
    // What no checkpoint has cannot leave, and is not much.
    (1500..1520).for_each(|number| fill(format!("hash {number}"), &mut expected));
    assert!(store.stats().heap_resident_bytes > 6 * MEMORY as u64);

    let (found, _) = visited(&store);
    assert!(found == expected);
    drop(store);
    let store = Store::open_on(Arc::new(sim.crash()), options(MEMORY)).expect("a store");
    store.verify_heap().expect("a sound heap");
    for _ in 0..2 {
        let (found, most) = visited(&store);
        assert!(found == expected);
        assert!(most < 2 * MEMORY as u64, "{most} bytes of the heap in memory, of {MEMORY} that may be");
    }
    assert!(store.stats().heap_pages_evicted > 2000);
}
