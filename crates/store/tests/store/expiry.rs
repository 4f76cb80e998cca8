//! Keys that expire in masses while nobody calls.

use holdfast_store::{Admission, Error, Options, Purpose, SimIo, Store, Txn, hash::Expiry, list::End};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const KEYS: u32 = 200_000;

fn key(number: u32) -> Vec<u8> {
    format!("a name of a key that is long enough to be seen {number}").into_bytes()
}

/// The log takes what removes them in slices, each written before more comes, and the index of their expiries goes, too.
#[test]
fn masses_that_expire_fill_neither_buffers_nor_an_index() {
    let sim = SimIo::new(1);
    let options = Options { partitions: 2, heap_bytes_max: 256 << 20, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    let at = store.now_ms() + 1000;
    for number in 0..KEYS {
        let key = key(number);
        let expires = number % 10 != 0;
        let set = store.run(&[&key], |_, writes| {
            writes.set(0, &key, "value");
            if expires {
                writes.set_expiry(0, &key, Some(at));
            }
            Ok(())
        });
        set.expect("room");
    }
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    let heap = store.stats().heap_allocated_bytes;
    sim.advance_ms(2000);
    let (deadline, mut pending_max) = (Instant::now() + Duration::from_secs(30), 0);
    let expires_len = || store.try_expires_len(0).expect("nobody holds a partition for long");
    while expires_len() > 0 || heap - store.stats().heap_allocated_bytes < u64::from(KEYS) * 10 {
        assert!(Instant::now() < deadline, "{} keys have expired and are there", expires_len());
        pending_max = pending_max.max(store.log().stats().pending_bytes);
        thread::sleep(Duration::from_millis(1));
    }
    // What was sent, and what is gathered while that is written: each a MiB, and the slice with which it is passed.
    assert!(pending_max < 2 * ((1 << 20) + (96 << 10)), "{pending_max} bytes waited to be written");
    assert_eq!(store.len(0), u64::from(KEYS) / 10);
    store.check().expect("a sound store");
}

/// Whoever looks at many keys that have expired removes them, and reserves the room for that.
#[test]
fn masses_that_are_looked_at_write_no_more_than_is_reserved() {
    let sim = SimIo::new(1);
    let options =
        Options { partitions: 2, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    let keys = || (0..10_000).map(key);
    for key in keys() {
        let mut txn = store.begin_keys([&key[..]]);
        txn.set(0, &key, b"value", false).expect("room");
        let expiry = Some(txn.now_ms() + 1000);
        txn.set_expiry(0, &key, expiry).expect("room");
    }
    while store.log().commit_once().expect("a sound medium") {}
    sim.advance_ms(2000);
    let mut txn = store.begin_all();
    // From here on the transaction is held to what it has reserved.
    txn.expect(0, Purpose::Remove, false).expect("room");
    assert!(keys().all(|key| !txn.exists(0, &key)));
    assert!(txn.batch_bytes() > 200_000, "{} bytes", txn.batch_bytes());
    txn.commit();
    assert_eq!(store.len(0), 0);
}

/// While the log takes no removals, a key that has expired stays where it is. What is then written to it takes its place.
#[test]
fn what_could_not_be_removed_gives_way_to_a_new_value() {
    type Write = fn(&mut Txn) -> Result<(), Error>;
    const KEY: &[u8] = b"key";
    let writes: [(&str, Write); 7] = [
        ("set", |txn| txn.set(0, KEY, b"new", false)),
        ("set as it was", |txn| txn.set(0, KEY, b"new", true)),
        ("write", |txn| txn.string_write(0, KEY, 20_000, b"new").map(drop)),
        ("push", |txn| txn.list_push(0, KEY, End::Back, [&b"new"[..]], true).map(drop)),
        ("replace", |txn| txn.set_replace(0, KEY, [&b"new"[..]]).map(drop)),
        ("copy", |txn| txn.copy(0, b"list", 0, KEY).map(drop)),
        ("rename", |txn| txn.rename(0, b"list", 0, KEY).map(drop)),
    ];
    let olds: [(&str, Write); 3] = [
        ("string", |txn| txn.set(0, KEY, b"old", false)),
        ("list", |txn| txn.list_push(0, KEY, End::Back, [&b"old"[..]], true).map(drop)),
        ("fields", |txn| {
            let expiry = Expiry::At(txn.now_ms() + 1000);
            txn.hash_set(0, KEY, [(&b"old"[..], &b"old"[..])], expiry).map(drop)
        }),
    ];
    for (what, write) in writes {
        for (old, make) in olds {
            let sim = SimIo::new(1);
            let options = Options {
                partitions: 2,
                segment_size: Some(256 << 10),
                log_bytes_max: 16 << 20,
                heap_bytes_max: 64 << 20,
                memory_bytes_max: 16 << 20,
                background: false,
                ..Options::default()
            };
            let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
            let mut txn = store.begin_all();
            make(&mut txn).expect("room");
            let expires = txn.now_ms() + 1000;
            if old != "fields" {
                txn.set_expiry(0, KEY, Some(expires)).expect("room");
            }
            txn.list_push(0, b"list", End::Back, [&b"of another key"[..]], true).expect("room");
            txn.commit();
            store.log().commit_once().expect("a sound medium");
            sim.advance_ms(2000);
            while store.admit_removal(1000) == Admission::Ok {
                store.begin_all().set(0, b"much", &[7; 10_000], false).expect("room");
            }
            assert_eq!(store.begin_all().type_of(0, KEY), None, "{what} over {old}");
            assert_eq!(store.len(0), 3, "it is there still");
            write(&mut store.begin_all()).expect("it was admitted");
            let keys = if what == "rename" { 2 } else { 3 };
            assert_eq!(store.len(0), keys, "{what} over {old}");
            let expiry = store.begin_all().expiry(0, KEY);
            assert_eq!(expiry, Some(None), "{what} over {old}");
            crate::open::commit_all(&store);
            if let Err(why) = store.check() {
                panic!("{what} over {old}: {why}");
            }
            assert!(store.begin_all().remove(0, KEY), "{what} over {old}");
            assert!(!store.begin_all().exists(0, KEY), "{what} over {old}");
        }
    }
}

/// Hashes that are not in memory are not read with their partition locked to find out whether fields of theirs have expired; but
/// they are read.
#[test]
fn fields_of_hashes_that_are_not_in_memory_expire() {
    const HASHES: u32 = 8000;
    let sim = SimIo::new(1);
    let options =
        Options { partitions: 2, heap_bytes_max: 256 << 20, memory_bytes_max: 3 << 20, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    let value = [b'x'; 400];
    for number in 0..HASHES {
        let key = key(number);
        while store.admit(4096) != Admission::Ok {
            thread::sleep(Duration::from_millis(1));
        }
        let mut txn = store.begin_keys([&key[..]]);
        let expiry = Expiry::At(txn.now_ms() + 1_000_000);
        txn.hash_set(0, &key, [(&b"soon"[..], &value[..])], expiry).expect("room");
        if number % 2 == 0 {
            txn.hash_set(0, &key, [(&b"never"[..], &b"1"[..])], Expiry::Clear).expect("room");
        }
        txn.commit();
    }
    let absent = || store.stats().heap_absent_bytes;
    let deadline = Instant::now() + Duration::from_secs(60);
    while absent() < 2 << 20 {
        assert!(Instant::now() < deadline, "{} bytes are absent", absent());
        thread::sleep(Duration::from_millis(1));
    }
    let faults = store.stats().heap_page_faults;
    sim.advance_ms(2_000_000);
    while store.len(0) > u64::from(HASHES / 2) {
        assert!(Instant::now() < deadline, "{} hashes are left", store.len(0));
        thread::sleep(Duration::from_millis(1));
    }
    let faults = store.stats().heap_page_faults - faults;
    println!("{faults} pages were waited for");
    assert!(faults < 100, "{faults} pages were waited for");
    store.check().expect("a sound store");
}
