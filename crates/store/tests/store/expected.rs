//! `Store::expect`: transactions over keys that were looked at before, in any order and some more than once.

use crate::open;
use holdfast_store::{EXPECTED_MAX, Options, SimIo, Store, Txn, hash::Expiry, list::End};
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
        open::run(&store, &[key], |txn| txn.set(0, key, at.to_string().as_bytes(), false)).expect("room");
    }
    let last = |key| keys.iter().rposition(|other| other == key).map(|at| at.to_string().into_bytes());
    // What another transaction has locked is only not looked at yet.
    for locked in [None, Some(&keys[0])] {
        let others = locked.map(|key| store.begin_keys([key.as_slice()]));
        let mut expected = Vec::new();
        store.expect(0, keys.iter().map(|key| (key.as_slice(), None)), &mut expected);
        drop(others);
        assert_eq!(expected.len(), EXPECTED_MAX);
        for (key, expected) in keys.iter().zip(expected) {
            let mut txn = store.try_begin_expected(key, expected, 0).expect("nobody holds it up");
            assert_eq!(txn.get(0, key), Ok(last(key).as_deref()));
        }
    }
}

#[test]
fn expected_keys_are_found_where_they_are_by_then() {
    let options = Options { partitions: PARTITIONS, heap_bytes_max: 64 << 20, ..Options::default() };
    let options = Options { background: false, ..options };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let set = |key: &[u8]| {
        open::run(&store, &[key], |txn| txn.set(0, key, key, false)).expect("room");
    };
    let name = |number: usize| format!("key {number}").into_bytes();
    let keys: Vec<Vec<u8>> = (0..EXPECTED_MAX).map(name).collect();
    for round in 0..50 {
        keys.iter().for_each(|key| set(key));
        let mut expected = Vec::new();
        store.expect(0, keys.iter().map(|key| (key.as_slice(), None)), &mut expected);
        // Entries go, others come into their places, buckets overflow and segments are split.
        let gone = |at: usize| (at + round).is_multiple_of(3);
        for (_, key) in keys.iter().enumerate().filter(|(at, _)| gone(*at)) {
            open::run(&store, &[key], |txn| Ok(txn.remove(0, key))).expect("room");
        }
        (0..200).for_each(|other| set(&name(1000 + round * 200 + other)));
        for (at, (key, expected)) in keys.iter().zip(expected).enumerate() {
            let mut txn = store.try_begin_expected(key, expected, 0).expect("nobody holds it up");
            assert_eq!(txn.get(0, key), Ok((!gone(at)).then_some(&key[..])), "key {at} in round {round}");
            // In a database that has none, nothing is found by what is known of another.
            assert_eq!(txn.get(1, key), Ok(None));
        }
    }
}

#[test]
fn known_keys_are_found_in_any_order_and_more_than_once() {
    let options = Options { partitions: PARTITIONS, heap_bytes_max: 64 << 20, ..Options::default() };
    let options = Options { background: false, ..options };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let keys: Vec<Vec<u8>> = (0..100).map(|number| format!("key {}", number % 70).into_bytes()).collect();
    let known: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for round in 0..3u64 {
        let mut txn = store.try_begin_known(0, known.iter().copied()).expect("nobody holds it up");
        for (at, key) in known.iter().enumerate().filter(|(at, _)| !(*at as u64 + round).is_multiple_of(3)) {
            txn.set(0, key, format!("{at} in {round}").as_bytes(), false).expect("room");
        }
        let values = |txn: &mut holdfast_store::Txn| -> Vec<Option<Vec<u8>>> {
            known.iter().map(|key| txn.get(0, key).expect("in memory").map(<[u8]>::to_vec)).collect()
        };
        let forwards = values(&mut txn);
        let backwards: Vec<_> =
            known.iter().rev().map(|key| txn.get(0, key).expect("in memory").map(<[u8]>::to_vec)).collect();
        assert!(forwards.iter().eq(backwards.iter().rev()));
        // The same keys, but other memory; and in a database that has none.
        assert_eq!(txn.get(0, b"key 5").expect("in memory"), forwards[5].as_deref());
        assert_eq!(txn.get(1, known[5]), Ok(None));
        txn.commit();
        assert_eq!(values(&mut store.begin_all()), forwards);
        assert!(forwards[70..].iter().eq(&forwards[..30]), "those that come twice have the last value");
    }
}

#[test]
fn what_may_be_an_element_is_only_looked_at() {
    let options = Options { partitions: PARTITIONS, heap_bytes_max: 64 << 20, ..Options::default() };
    let options = Options { background: false, ..options };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let element = |number: usize| format!("an element that takes a block {number}").into_bytes();
    let run = |key: &[u8], element: &[u8]| -> bool {
        let of_hash =
            |txn: &mut Txn| txn.hash_set(0, key, [(element, element)], Expiry::Clear).map(|added| added == 1);
        let of_set = |txn: &mut Txn| txn.set_add(0, key, [element]).map(|added| added == 1);
        open::run(&store, &[key], |txn| if key.starts_with(b"hash") { of_hash(txn) } else { of_set(txn) })
            .expect("room")
            .0
    };
    let keys = [&b"set"[..], b"hash", b"small set", b"hash of one", b"list", b"string", b"none"];
    open::run(&store, &[b"string"], |txn| txn.set(0, b"string", b"value", false)).expect("room");
    open::run(&store, &[b"list"], |txn| txn.list_push(0, b"list", End::Back, [&b"1"[..]], true))
        .expect("room");
    for number in 0..1000 {
        run(b"set", &element(number));
        run(b"hash", &element(number));
    }
    // Elements that are there, that lie in their entries, that are not there, and none at all.
    let elements: [Option<Vec<u8>>; 5] =
        [Some(element(7)), Some(b"12".to_vec()), Some(b"short".to_vec()), Some(element(1000)), None];
    run(b"set", b"12");
    run(b"set", b"short");
    for element in &elements {
        let mut expected = Vec::new();
        store.expect(0, keys.iter().map(|key| (*key, element.as_deref())), &mut expected);
        assert_eq!(expected.len(), keys.len());
    }
    assert!(run(b"set", &element(1000)) && !run(b"set", &element(7)) && !run(b"set", b"12"));
    assert!(run(b"hash", &element(1000)) && !run(b"hash", &element(7)) && run(b"hash", b"12"));
}

#[test]
fn an_element_that_is_not_in_memory_is_not_waited_for() {
    let options = || Options { partitions: PARTITIONS, heap_bytes_max: 64 << 20, ..Options::default() };
    let (io, element) = (Arc::new(SimIo::new(1)), b"an element that takes a block".as_slice());
    let options = || Options { background: false, ..options() };
    let store = Store::open_on(io.clone(), options()).expect("a store");
    for number in 0..1000 {
        let member = format!("an element that takes a block {number}").into_bytes();
        open::run(&store, &[b"set"], |txn| txn.set_add(0, b"set", [&member[..], element])).expect("room");
    }
    store.close().expect("an orderly end");
    let store = Store::open_on(io, options()).expect("a store");
    let faults_of = |element: Option<&[u8]>| {
        let before = store.stats().heap_page_faults;
        store.expect(0, [(b"set".as_slice(), element)].into_iter(), &mut Vec::new());
        store.stats().heap_page_faults - before
    };
    faults_of(None);
    assert!(store.stats().heap_absent_bytes > 0, "nobody has loaded it");
    assert_eq!(faults_of(Some(element)), 0);
}
