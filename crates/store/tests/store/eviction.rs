//! Which keys are evicted, step by step: nothing here happens by itself.

use holdfast_store::{
    Change, ChangeFilter, ChangeKind, Eviction, EvictionOrder, EvictionScope, Options, Room, SimIo, Store,
    Uses,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const LIMIT: usize = 2 << 20;

struct World {
    io: SimIo,
    store: Store,
}

impl World {
    fn new(scope: EvictionScope, first: EvictionOrder) -> World {
        let io = SimIo::new(1);
        io.advance_ms(1_800_000_000_000);
        let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
        let store = Store::open_on(Arc::new(io.clone()), options).expect("a new store");
        store.set_memory_bytes_max(LIMIT);
        store.set_eviction(Some(Eviction { scope, first, samples: 10 }));
        World { io, store }
    }

    /// Sets a key of a database when there is room for it.
    fn set(&self, db: u8, key: &str, expires: Option<u64>) -> Room {
        let db = self.store.database(db);
        let room = if self.store.wants_room() {
            self.store.make_room(Duration::from_secs(60))
        } else {
            Room::Enough
        };
        let mut txn = self.store.begin_keys([key.as_bytes()]);
        txn.set(db, key.as_bytes(), &[7; 1000], false).expect("room");
        if expires.is_some() {
            txn.set_expiry(db, key.as_bytes(), expires).expect("room");
        }
        drop(txn);
        self.store.log().commit_once().expect("a sound medium");
        room
    }

    fn is_there(&self, db: u8, key: &str) -> bool {
        let db = self.store.database(db);
        let mut txn = self.store.begin_keys([key.as_bytes()]);
        txn.note_uses(false);
        txn.exists(db, key.as_bytes())
    }

    fn left(&self, db: u8, prefix: &str, count: u32) -> usize {
        (0..count).filter(|n| self.is_there(db, &format!("{prefix}{n}"))).count()
    }
}

#[test]
fn the_least_used_of_all_databases_go() {
    let world = World::new(EvictionScope::All, EvictionOrder::LeastUsed);
    for n in 0..1000 {
        world.set((n % 3) as u8, &format!("key:{n}"), None);
        world.io.advance_ms(1000);
    }
    assert_eq!(world.store.stats().evicted_keys, 0, "{:?}", world.store.stats());
    // Those of one database are used again.
    let mut txn = world.store.begin_all();
    (0..1000).step_by(3).for_each(|n| assert!(txn.touch(txn.database(0), format!("key:{n}").as_bytes())));
    drop(txn);
    for n in 0..1400 {
        assert_eq!(world.set(5, &format!("new:{n}"), None), Room::Enough);
        world.io.advance_ms(10);
    }
    let left = [0, 1, 2].map(|db| world.left(db, "key:", 1000));
    assert!(left[0] >= 330 && left[1] + left[2] < 400, "{left:?}");
    // Of the others the oldest went first, those that no sample has shown aside.
    let old = (1..300).step_by(3).filter(|n| world.is_there(1, &format!("key:{n}"))).count();
    assert!(old < 45, "{old} of the 100 oldest, {left:?}");
    assert!(world.left(5, "new:", 1400) > 1390);
    let stats = world.store.stats();
    assert!(stats.data_bytes < LIMIT as u64 * 102 / 100 && stats.data_bytes > LIMIT as u64 * 9 / 10);
}

#[test]
fn few_keys_that_expire_are_found_among_many_that_do_not() {
    let world = World::new(EvictionScope::Expiring, EvictionOrder::SoonestToExpire);
    for n in 0..1500 {
        world.set(0, &format!("key:{n}"), None);
    }
    let now = world.store.now_ms();
    for n in 0..20 {
        world.set(9, &format!("volatile:{n}"), Some(now + 1_000_000 + n * 1000));
    }
    let mut gone = 0;
    for n in 1500.. {
        match world.set(0, &format!("key:{n}"), None) {
            Room::None => break,
            room => assert_eq!(room, Room::Enough),
        }
        let left: Vec<u32> = (0..20).filter(|n| world.is_there(9, &format!("volatile:{n}"))).collect();
        gone = 20 - left.len();
        // They go in the order of their expiries, about.
        assert!(gone > 10 || left.ends_with(&[16, 17, 18, 19]), "{left:?}");
    }
    assert!(world.store.is_out_of_memory() && gone >= 19);
    assert_eq!(world.store.stats().evicted_keys, 20);
    assert_eq!(world.left(0, "key:", 1500), 1500);
    world.store.set_eviction(None);
    assert!(!world.store.is_out_of_memory(), "of what is in memory there is little");
}

#[test]
fn names_are_told_if_somebody_wants_them_also_of_values_that_are_on_the_medium_only() {
    let world = World::new(EvictionScope::All, EvictionOrder::LeastUsed);
    world.store.keep_uses(Uses::Count { log_factor: 10, decay_minutes: 1 });
    let told: Arc<Mutex<Vec<Change>>> = Arc::default();
    let heard = told.clone();
    world.store.follow_changes(Box::new(move |changes, _| heard.lock().unwrap().extend(changes)));
    for n in 0..1000 {
        world.set(3, &format!("key:{n}"), None);
    }
    world.store.forget_copies();
    world.store.want_changes(ChangeFilter::EVICTED);
    world.store.set_memory_bytes_max(LIMIT / 4);
    assert!(world.store.wants_room());
    assert_eq!(world.store.make_room(Duration::from_secs(60)), Room::Enough);
    let told = told.lock().unwrap();
    assert!(told.len() > 400 && told.len() as u64 == world.store.stats().evicted_keys);
    for change in told.iter() {
        assert_eq!((change.kind, change.db), (ChangeKind::Evicted, 3));
        assert!(!world.is_there(3, std::str::from_utf8(&change.key).unwrap()));
    }
    assert_eq!(world.left(3, "key:", 1000) + told.len(), 1000);
}

#[test]
fn large_collections_count_until_they_are_freed() {
    let world = World::new(EvictionScope::All, EvictionOrder::Random);
    let fill = |key: &str| {
        let db = world.store.database(0);
        let mut txn = world.store.begin_keys([key.as_bytes()]);
        let members: Vec<String> = (0..5000).map(|n| format!("a member of a large set {n}")).collect();
        txn.set_add(db, key.as_bytes(), members.iter().map(String::as_bytes)).expect("room");
    };
    let make_room = || {
        // The log takes so much at once only.
        while world.store.make_room(Duration::from_secs(60)) == Room::Soon {
            world.store.log().commit_once().expect("a sound medium");
        }
    };
    for n in 0..10 {
        make_room();
        fill(&format!("set:{n}"));
        world.store.log().commit_once().expect("a sound medium");
    }
    make_room();
    let (stats, left) = (world.store.stats(), world.left(0, "set:", 10));
    // No more than need be: another one would not have found room.
    assert!(left as u64 + stats.evicted_keys == 10 && left >= 2, "{left} {stats:?}");
    assert!(stats.data_bytes <= LIMIT as u64);
}
