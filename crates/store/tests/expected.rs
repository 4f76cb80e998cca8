//! `Store::expect`: transactions over keys that were looked at before, in any order and some more than once.

use holdfast_store::{EXPECTED_MAX, Options, SimIo, Store};
use std::sync::Arc;

/// Few, so that keys share them.
const PARTITIONS: u16 = 4;

#[test]
fn expected_keys_are_found_like_others() {
    let options = Options { partitions: PARTITIONS, heap_bytes_max: 64 << 20, ..Options::default() };
    let options = Options { background: false, ..options };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let keys: Vec<Vec<u8>> = [0, 0, 0, 1, 2, 1, 1, 0, 3, 4, 5, 6, 7, 7, 8, 9, 9, 10, 11]
        .map(|number| format!("key {number}").into_bytes())
        .into();
    assert!(keys.len() > EXPECTED_MAX);
    for (at, key) in keys.iter().enumerate() {
        store.run(&[key], |txn| txn.set(0, key, at.to_string().as_bytes(), false)).expect("room");
    }
    let last = |key| keys.iter().rposition(|other| other == key).map(|at| at.to_string().into_bytes());
    // What another transaction has locked is only not looked at yet.
    for locked in [None, Some(&keys[0])] {
        let others = locked.map(|key| store.begin_keys([key.as_slice()]));
        let mut expected = Vec::new();
        store.expect(0, keys.iter().map(Vec::as_slice), &mut expected);
        drop(others);
        assert_eq!(expected.len(), EXPECTED_MAX);
        for (key, expected) in keys.iter().zip(expected) {
            let mut txn = store.try_begin_expected(key, expected, 0).expect("nobody holds it up");
            assert_eq!(txn.get(0, key), Ok(last(key).as_deref()));
        }
    }
}
