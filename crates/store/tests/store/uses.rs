//! When keys were used last, and how often.

use crate::open;
use holdfast_store::{Options, SimIo, Store, Txn, Uses};
use std::sync::Arc;

const HOUR_MS: u64 = 3_600_000;

struct World {
    io: SimIo,
    store: Store,
}

impl World {
    fn new() -> World {
        let io = SimIo::new(1);
        io.advance_ms(500_000 * HOUR_MS);
        let store = World::open(&io);
        World { io, store }
    }

    fn open(io: &SimIo) -> Store {
        let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
        Store::open_on(Arc::new(io.clone()), options).expect("a store")
    }

    fn restart(self) -> World {
        self.store.close().expect("a sound medium");
        drop(self.store);
        let store = World::open(&self.io);
        World { io: self.io, store }
    }

    fn txn<T>(&self, f: impl FnOnce(&mut Txn) -> T) -> T {
        f(&mut self.store.begin_all())
    }

    fn get(&self, key: &[u8]) {
        open::run(&self.store, &[key], |txn| Ok(txn.get(0, key)?.map(<[u8]>::len))).expect("a sound medium");
    }

    fn idle_s(&self, key: &[u8]) -> u32 {
        self.txn(|txn| txn.idle_s(0, key)).expect("the key is there")
    }

    fn uses(&self, key: &[u8]) -> u8 {
        self.txn(|txn| txn.uses(0, key)).expect("the key is there")
    }
}

fn put_set(txn: &mut Txn, key: &[u8]) {
    txn.set_add(0, key, [&b"member"[..]]).expect("room");
}

#[test]
fn idle_time_is_that_since_the_last_use() {
    let world = World::new();
    let keys = [&b"string"[..], b"set", b"renamed", b"long"];
    world.txn(|txn| {
        txn.set(0, b"string", b"value", false).expect("room");
        txn.set(0, b"long", &[1; 100_000], false).expect("room");
        put_set(txn, b"set");
        put_set(txn, b"named");
    });
    for hour in 0..30 {
        world.io.advance_ms(HOUR_MS);
        world.txn(|txn| {
            txn.note_uses(hour % 10 == 0);
            txn.get(0, b"string").expect("it is a string");
            txn.get(0, b"long").expect("it is a string");
            assert!(txn.set_at(0, b"set").expect("it is a set").is_some());
            let [from, to] =
                if hour % 2 == 0 { [b"named", &b"renamed"[..]] } else { [&b"renamed"[..], b"named"] };
            assert!(txn.rename(0, from, 0, to).expect("room"));
            txn.exists(0, b"string");
            txn.type_of(0, b"set");
            txn.expiry(0, b"long");
        });
        if hour % 2 == 0 {
            for key in keys {
                let (idle, expected) = (world.idle_s(key), hour % 10 * 3600);
                assert!(
                    idle >= expected && idle <= expected + expected / 128,
                    "{key:?}: {idle} for {expected}"
                );
            }
        }
    }
    world.txn(|txn| {
        txn.set(0, b"string", b"other", false).expect("room");
        put_set(txn, b"set");
        txn.set_idle_s(0, b"long", 1000);
        txn.set_idle_s(0, b"named", 86_400);
        assert_eq!(txn.uses(0, b"string"), None);
    });
    assert_eq!((world.idle_s(b"string"), world.idle_s(b"set"), world.idle_s(b"named")), (0, 0, 86_400));
    assert!((1000..=1007).contains(&world.idle_s(b"long")));
}

#[test]
fn values_without_copies_were_idle_since_they_were_used_or_since_the_start() {
    let mut world = World::new();
    world.txn(|txn| {
        txn.set(0, b"string", b"value", false).expect("room");
        put_set(txn, b"set");
    });
    world.io.advance_ms(HOUR_MS);
    world = world.restart();
    world.io.advance_ms(60_000);
    assert_eq!((world.idle_s(b"string"), world.idle_s(b"set")), (60, 60));
    world.get(b"string");
    assert_eq!(world.idle_s(b"string"), 0);

    // With copies that leave, what is known of them does not.
    let name = |n: u32| n.to_le_bytes();
    world.store.set_memory_bytes_max(1);
    for n in 0..4000 {
        world.io.advance_ms(1000);
        world.txn(|txn| txn.set(0, &name(n), &[0; 4000], false).expect("room"));
        world.store.log().commit_once().expect("a sound medium");
    }
    assert!(world.store.stats().cache_copies < 2000);
    for n in 0..4000 {
        let (idle, expected) = (world.idle_s(&name(n)), 3999 - n);
        assert!(idle >= expected && idle <= expected + expected / 128, "{idle} for {expected}");
    }
    world.txn(|txn| txn.touch(0, &name(0)));
    assert_eq!(world.idle_s(&name(0)), 0);
    world.store.forget_copies();
    assert_eq!(world.idle_s(&name(3989)), 10);
}

#[test]
fn a_collection_takes_with_it_into_the_log_when_it_was_used() {
    let world = World::new();
    world.txn(|txn| put_set(txn, b"set"));
    world.io.advance_ms(HOUR_MS);
    // It is not in use any more when it is asked for the second time.
    for _ in 0..2 {
        world.store.freeze(u64::MAX).expect("a sound medium");
    }
    assert_eq!(world.store.stats().frozen_keys, 1);
    assert_eq!(world.idle_s(b"set"), 3600);
    open::run(&world.store, &[b"set"], |txn| txn.set_add(0, b"set", [&b"other"[..]])).expect("room");
    assert_eq!(world.idle_s(b"set"), 0);
}

#[test]
fn counts_rise_with_uses_and_fall_with_time() {
    let world = World::new();
    world.txn(|txn| {
        txn.set(0, b"before", b"value", false).expect("room");
        put_set(txn, b"before set");
    });
    world.store.keep_uses(Uses::Count { log_factor: 0, decay_minutes: 1 });
    world.txn(|txn| {
        txn.set(0, b"string", b"value", false).expect("room");
        put_set(txn, b"set");
        assert_eq!(txn.idle_s(0, b"string"), None);
    });
    for key in [&b"string"[..], b"set", b"before", b"before set"] {
        assert_eq!(world.uses(key), 5, "{key:?}");
    }
    for _ in 0..50 {
        world.get(b"string");
        world.txn(|txn| txn.set_at(0, b"set").expect("it is a set").is_some());
    }
    assert_eq!((world.uses(b"string"), world.uses(b"set")), (55, 55));
    // A value that has to be fetched is used once, too.
    world.store.log().commit_once().expect("a sound medium");
    world.store.forget_copies();
    world.get(b"string");
    assert_eq!(world.uses(b"string"), 56);
    // Another value of the key is used as often, and a use of it.
    world.txn(|txn| {
        txn.set(0, b"string", b"longer than before", false).expect("room");
        txn.rename(0, b"set", 0, b"other").expect("room");
        txn.copy(0, b"string", 0, b"copy").expect("room");
    });
    assert_eq!((world.uses(b"string"), world.uses(b"other"), world.uses(b"copy")), (58, 56, 5));
    world.io.advance_ms(10 * 60_000);
    assert_eq!((world.uses(b"string"), world.uses(b"other"), world.uses(b"before")), (48, 46, 0));
    world.txn(|txn| {
        txn.set_uses(0, b"string", 200);
        txn.set_uses(0, b"other", 255);
    });
    world.store.keep_uses(Uses::Count { log_factor: 0, decay_minutes: 0 });
    world.io.advance_ms(1000 * HOUR_MS);
    world.get(b"string");
    assert_eq!((world.uses(b"string"), world.uses(b"other")), (201, 255));
    world.store.keep_uses(Uses::Last);
    assert_eq!((world.idle_s(b"string"), world.idle_s(b"other")), (0, 0));
}

#[test]
fn what_is_known_follows_entries_when_the_index_grows() {
    let world = World::new();
    let name = |n: u32| [&b"{one}"[..], &n.to_le_bytes()].concat();
    for n in 0..20_000 {
        world.txn(|txn| {
            txn.set_add(0, &name(n), [&b"member"[..]]).expect("room");
            txn.set_idle_s(0, &name(n), n.into());
        });
    }
    world.txn(|txn| {
        for n in 0..20_000 {
            assert_eq!(txn.idle_s(0, &name(n)), Some(n));
        }
    });
}
