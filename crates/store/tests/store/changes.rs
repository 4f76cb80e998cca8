//! What transactions tell of the keys that they change.

use holdfast_store::{Change, ChangeFilter, ChangeKind, Options, SimIo, Store, Use};
use std::sync::{Arc, Mutex};

fn store() -> Store {
    let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    Store::open_on(Arc::new(SimIo::new(1)), options).expect("a new store")
}

fn change(kind: ChangeKind, db: u8, key: &str) -> Change {
    Change { kind, db, key: key.as_bytes().to_vec() }
}

#[test]
fn what_is_wanted_is_told_in_order_with_the_lsn_of_the_commit() {
    let store = store();
    let db = store.database(3);
    let mut txn = store.begin_keys([&b"a"[..]]);
    txn.set(db, b"a", b"1", false).expect("room");
    assert_eq!(txn.take_changes(), []);
    txn.commit();

    store.want_changes(
        ChangeFilter::WRITTEN | ChangeFilter::ADDED | ChangeFilter::MISSED | ChangeFilter::EXPIRED,
    );
    let mut txn = store.begin_keys([&b"a"[..], b"b", b"h"]);
    let past = txn.now_ms();
    txn.get(db, b"b").expect("no error");
    txn.set(db, b"a", b"2", false).expect("room");
    txn.set(db, b"b", b"2", false).expect("room");
    txn.set_expiry(db, b"b", Some(past)).expect("room");
    assert!(!txn.exists(db, b"b"));
    assert!(txn.remove(db, b"a"));
    let mut told = Vec::new();
    let lsn = txn.commit_then(|changes, lsn| told.push((changes, lsn)));
    let [(changes, told_lsn)] = &told[..] else { panic!("told once") };
    assert!(*told_lsn == lsn && lsn > 0);
    let expected = [
        change(ChangeKind::Missed, 3, "b"),
        change(ChangeKind::Written, 3, "a"),
        change(ChangeKind::Missed, 3, "b"),
        change(ChangeKind::Written, 3, "b"),
        change(ChangeKind::Added, 3, "b"),
        change(ChangeKind::Written, 3, "b"),
        change(ChangeKind::Expired, 3, "b"),
        change(ChangeKind::Missed, 3, "b"),
        change(ChangeKind::Written, 3, "a"),
    ];
    assert_eq!(changes, &expected);
}

#[test]
fn who_follows_is_told_what_nobody_takes() {
    let store = store();
    let told = Arc::new(Mutex::new(Vec::new()));
    let follower = told.clone();
    store.follow_changes(Box::new(move |changes, _| follower.lock().expect("no panics").extend(changes)));
    store.want_changes(ChangeFilter::ADDED);
    let db = store.database(0);
    let mut txn = store.begin_keys([&b"a"[..]]);
    txn.set(db, b"a", b"1", false).expect("room");
    drop(txn);
    assert_eq!(*told.lock().expect("no panics"), [change(ChangeKind::Added, 0, "a")]);
    store.begin_keys([&b"b"[..]]).commit_then(|changes, _| assert_eq!(changes, []));
    assert_eq!(told.lock().expect("no panics").len(), 1);
}

/// Who moves a key to another server must know of it, though nobody who watches the key is told.
#[test]
fn what_is_done_to_groups_is_told_apart_from_writes() {
    let store = store();
    let db = store.database(0);
    let mut txn = store.begin_keys([&b"stream"[..]]);
    txn.stream_add_group(db, b"stream", b"group", None, None, true).expect("room");
    txn.commit();
    store.want_changes(ChangeFilter::WRITTEN);
    let mut txn = store.begin_keys([&b"stream"[..]]);
    txn.stream_add_consumer(db, b"stream", b"group", b"consumer").expect("room");
    assert_eq!(txn.take_changes(), [change(ChangeKind::Regrouped, 0, "stream")]);
    assert!(txn.stream_remove_group(db, b"stream", b"group").expect("room"));
    assert_eq!(txn.take_changes(), [change(ChangeKind::Regrouped, 0, "stream")]);
}

/// What a difference reads is looked for by its members, and so by looks at its keys, of which the difference will tell.
#[test]
fn a_look_for_what_is_not_in_memory_tells_nothing() {
    let store = store();
    store.want_changes(ChangeFilter::MISSED);
    let db = store.database(0);
    let keys = [&b"set"[..], b"other"];
    let mut txn = store.begin_keys(keys);
    txn.set_add(db, b"set", [&b"member"[..]]).expect("room");
    let before = txn.take_changes();
    let absent = txn.absent(db, keys, &[Use::Rest], false, 100).expect("a sound medium");
    assert_eq!((absent, txn.take_changes()), (Vec::new(), Vec::new()), "after {before:?}");
}
