//! Strings that are read and changed without a transaction are so as by one: against a simple model, with all that may be at a key,
//! and what is replayed is what was there.

use crate::{
    history::FAR,
    open, oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{
    ChangeFilter, Error, Fetched, Got, Observer, Options, SimIo, Store, Turn, stream::NewId,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// How many changes took no transaction, and how many did.
static DIRECT: AtomicU64 = AtomicU64::new(0);
static OTHERS: AtomicU64 = AtomicU64::new(0);
/// How many values that were read had been fetched for it, and how many had not been what was fetched for them any more.
static FETCHED: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);

fn options() -> Options {
    Options {
        partitions: 2,
        segment_size: Some(256 << 10),
        log_bytes_max: 256 << 20,
        heap_bytes_max: 16 << 20,
        memory_bytes_max: 1 << 20,
        background: false,
        ..Options::default()
    }
}

/// Strings, by logical database and key; `None`: another type.
type State = BTreeMap<(u8, Vec<u8>), Option<Vec<u8>>>;

/// Appends `tail` to the string at a key, with a transaction or without.
fn append(store: &Store, state: &mut State, logical: u8, key: &[u8], tail: &[u8]) {
    let joined = |old: &[u8]| [&old[..old.len().min(100)], tail].concat();
    let model = state.get(&(logical, key.to_vec())).cloned();
    let direct = store.change_directly(logical, key, store.derive(key), store.now_ms(), key.len(), |old| {
        assert_eq!(Some(old), model.clone().flatten().as_deref());
        Some(joined(old))
    });
    if direct.is_some() {
        DIRECT.fetch_add(1, Relaxed);
    } else {
        OTHERS.fetch_add(1, Relaxed);
        let appended = open::run(store, &[key], |txn| {
            let db = txn.database(logical);
            txn.update(db, key, |old| Ok::<_, Error>(joined(old.unwrap_or_default())))
        });
        match model {
            Some(None) => return assert_eq!(appended.map(drop), Err(Error::WrongType)),
            _ => drop(appended.expect("room")),
        }
    }
    let old = model.flatten().unwrap_or_default();
    state.insert((logical, key.to_vec()), Some(joined(&old)));
}

fn set(store: &Store, state: &mut State, logical: u8, key: &[u8], value: &[u8]) {
    match store.set_directly(logical, key, value, store.derive(key), store.now_ms()) {
        Some(_) => {
            let old = state.get(&(logical, key.to_vec()));
            assert!(matches!(old, Some(Some(_))), "there was no string");
            DIRECT.fetch_add(1, Relaxed);
        }
        None => {
            OTHERS.fetch_add(1, Relaxed);
            open::run(store, &[key], |txn| txn.set(txn.database(logical), key, value, false)).expect("room");
        }
    }
    state.insert((logical, key.to_vec()), Some(value.to_vec()));
}

/// Looks at the string at a key without a transaction. `fetched`: what was fetched when keys were looked at before, whatever has
/// happened to them since.
fn read(
    store: &Store,
    state: &State,
    logical: u8,
    key: &[u8],
    fetched: &mut BTreeMap<(u8, Vec<u8>), Fetched>,
) {
    let name = (logical, key.to_vec());
    let model = state.get(&name).cloned().flatten();
    let earlier = fetched.remove(&name);
    let (expected, now_ms) = (store.derive(key), store.now_ms());
    match store.get_directly(logical, key, expected, now_ms, earlier.as_ref(), <[u8]>::to_vec) {
        Some(Got::Value(value, _)) => {
            assert_eq!(Some(value), model);
            FETCHED.fetch_add(u64::from(earlier.is_some()), Relaxed);
        }
        Some(Got::Cold(cold)) => {
            assert!(model.is_some(), "there is no string");
            STALE.fetch_add(u64::from(earlier.is_some()), Relaxed);
            fetched.insert(name, store.fetch(cold));
        }
        None => {}
    }
}

fn history(seed: u64) {
    let mut rng = Rng(seed);
    let (sim, mut state) = (SimIo::new(seed), State::new());
    let mut store = Store::open_on(Arc::new(sim.clone()), options()).expect("the store opens");
    store.attach();
    let keys = 1 + rng.below(60);
    let mut fetched = BTreeMap::new();
    for _ in 0..40 {
        for _ in 0..rng.below(80) {
            let (logical, key) = (rng.below(2) as u8, format!("key:{}", rng.below(keys)).into_bytes());
            let len_max = [3, 120, 900, 12_000][rng.below(4) as usize];
            let value = vec![rng.next() as u8; rng.below(len_max) as usize];
            let name = (logical, key.clone());
            let transact = |what: &mut dyn FnMut(&mut holdfast_store::Txn, u8)| {
                let mut txn = store.begin_keys([&key[..]]);
                let db = txn.database(logical);
                what(&mut txn, db);
                txn.commit();
            };
            match rng.below(18) {
                0..5 => set(&store, &mut state, logical, &key, &value),
                5..9 => append(&store, &mut state, logical, &key, &value[..value.len().min(50)]),
                9 => {
                    transact(&mut |txn, db| assert_eq!(txn.remove(db, &key), state.contains_key(&name)));
                    state.remove(&name);
                }
                10 => transact(&mut |txn, db| {
                    txn.set_expiry(db, &key, (!rng.chance(3)).then_some(FAR)).expect("room");
                }),
                11..16 => read(&store, &state, logical, &key, &mut fetched),
                16 => store.forget_copies(),
                _ => {
                    transact(&mut |txn, db| {
                        txn.remove(db, &key);
                        txn.list_push(db, &key, holdfast_store::list::End::Back, [&b"a"[..]], true)
                            .expect("room");
                    });
                    state.insert(name, None);
                }
            }
        }
        match rng.below(12) {
            0 => store.checkpoint().expect("a sound medium"),
            1 => drop(store.clean().expect("a sound medium")),
            2 => drop(store.freeze(1 << 20).expect("a sound medium")),
            3 => store.forget_copies(),
            4 => {
                let mut txn = store.begin_all();
                txn.swap(0, 1);
                txn.commit();
                state = state.into_iter().map(|((db, key), value)| ((1 - db, key), value)).collect();
            }
            5 => {
                let mut txn = store.begin_all();
                assert!(txn.flush(0));
                txn.commit();
                state.retain(|(db, _), _| *db != 0);
            }
            6 => {
                store.close().expect("a sound medium");
                drop(store);
                store = Store::open_on(Arc::new(sim.clone()), options()).expect("the store opens");
                store.attach();
            }
            7 => drop(store.sweep()),
            _ => {}
        }
        assert!(oracle::compare(&store, &sim, &options()));
        for ((logical, key), value) in &state {
            let ((), _) = open::run(&store, &[key], |txn| {
                let db = txn.database(*logical);
                match value {
                    Some(value) => assert_eq!(txn.get(db, key)?, Some(&value[..])),
                    None => assert!(txn.type_of(db, key).is_some_and(|ty| ty.name() == "list")),
                }
                Ok(())
            })
            .expect("a sound medium");
        }
        store.check().expect("a sound store");
    }
}

#[test]
fn strings_change_as_by_transactions() {
    let seeds = with_seeds(8, history);
    let (direct, others) = (DIRECT.load(Relaxed), OTHERS.load(Relaxed));
    assert!(seeds < 8 || direct > 1000 && others > 1000, "{direct} without a transaction, {others} with one");
    let (fetched, stale) = (FETCHED.load(Relaxed), STALE.load(Relaxed));
    assert!(seeds < 8 || fetched > 100 && stale > 40, "{fetched} fetched, {stale} of them in vain");
}

struct Nobody;

impl Observer for Nobody {
    fn written(&self) {}
}

#[test]
fn what_others_are_to_see_takes_a_transaction() {
    let store = Store::open_on(Arc::new(SimIo::new(1)), options()).expect("a store");
    let (key, other) = (&b"{a}key"[..], &b"{a}other"[..]);
    let at_once = |value: &[u8]| store.set_directly(0, key, value, store.derive(key), store.now_ms());
    assert_eq!(at_once(b"no such key"), None);
    store.begin_keys([key]).set(0, key, b"value", false).expect("room");
    let lsn = at_once(b"there is one now").expect("a string");
    assert!(lsn > 1 && lsn <= store.log().tail());
    // What is read of it waits for it.
    assert_eq!(
        store.get(0, key, |value| value.map(<[u8]>::to_vec)),
        Ok((Some(b"there is one now".to_vec()), lsn))
    );

    let holder = store.begin_keys([other]);
    assert_eq!(at_once(b"locked"), None);
    drop(holder);
    let id = store.begin_keys([other]).observe(0, other, Turn::Always, Arc::new(Nobody));
    assert_eq!(at_once(b"observed"), None);
    store.begin_keys([other]).unobserve(0, other, id);
    store.want_changes(ChangeFilter::WRITTEN);
    assert_eq!(at_once(b"wanted"), None);
    store.want_changes(ChangeFilter::default());
    store.begin_keys([key]).set_expiry(0, key, Some(FAR)).expect("room");
    assert_eq!(at_once(b"expires"), None);
    store.begin_keys([key]).set_expiry(0, key, None).expect("room");
    assert_eq!(at_once(&[7; 40_000]), None, "too large for a batch without a reservation");
    assert!(at_once(b"at last").is_some());
    let change = |by: &'static [u8]| {
        let joined = |old: &[u8]| Some([old, by].concat());
        store.change_directly(0, key, store.derive(key), store.now_ms(), key.len() + by.len(), joined)
    };
    assert!(change(b" and longer").is_some());
    open::commit_all(&store);
    store.forget_copies();
    assert_eq!(change(b"cold"), None);
    assert!(at_once(b"the old value need not be read").is_some());
    store.begin_keys([key]).remove(0, key);
    let fields = [(&b"field"[..], &b"value"[..])].into_iter();
    store.begin_keys([key]).stream_add(0, key, NewId::At(1), fields, None, true).expect("room");
    assert_eq!(at_once(b"a stream"), None);
    store.check().expect("a sound store");
}

#[test]
fn set_does_what_it_takes() {
    let store = Store::open_on(Arc::new(SimIo::new(1)), options()).expect("a store");
    let value = |key: &[u8]| store.get(0, key, |value| value.map(<[u8]>::to_vec)).expect("in memory").0;
    for text in ["first", "second", "third"] {
        let lsn = store.set(0, b"key", text.as_bytes()).expect("room");
        assert_eq!((value(b"key"), lsn <= store.log().tail()), (Some(text.into()), true));
    }
    store.begin_keys([&b"key"[..]]).set_expiry(0, b"key", Some(FAR)).expect("room");
    store.set(0, b"key", b"fourth").expect("room");
    assert_eq!(store.begin_keys([&b"key"[..]]).expiry(0, b"key"), Some(None), "the expiry is gone");
    assert_eq!(store.set(200, b"key", b"value"), Err(Error::NoDatabase(200)));
}
