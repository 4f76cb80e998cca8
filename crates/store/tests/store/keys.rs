//! The keys as a whole against a simple model: renames, copies, expiries, scans and random keys over values of all
//! types, with restarts, checkpoints, frozen collections and a small cache in between.

use crate::{
    history::FAR,
    open, oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{
    DATABASES, Error, Options, ScanStep, SimIo, Store, Txn, Type,
    stream::{Id, NewId},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const DBS: u64 = 3;
/// A value and what tells that two are equal.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Zset(BTreeMap<Vec<u8>, u64>),
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, u64)>),
    /// Its entries' values, and how many of them a group has still to read.
    Stream(Vec<Vec<u8>>, u64),
}

type Name = (u8, Vec<u8>);
type State = BTreeMap<Name, (Value, Option<u64>)>;

fn random_value(rng: &mut Rng) -> Value {
    let len_max = [5, 50, 400][rng.below(3) as usize];
    let len = 1 + rng.below(len_max);
    let wide = rng.chance(2);
    let mut text = || {
        let number = rng.next() % 10_000;
        if wide { format!("{number:070}").into_bytes() } else { number.to_string().into_bytes() }
    };
    match len % 6 {
        0 => Value::String(text().repeat(len as usize)),
        1 => Value::List((0..len).map(|_| text()).collect()),
        2 => Value::Set((0..len).map(|_| text()).collect()),
        3 => Value::Zset((0..len).map(|i| (text(), i)).collect()),
        4 => Value::Stream((0..len).map(|_| text()).collect(), len / 2),
        _ => {
            Value::Hash((0..len).map(|i| (text(), (text(), if i % 3 == 0 { FAR + i } else { 0 }))).collect())
        }
    }
}

fn write(txn: &mut Txn, db: u8, key: &[u8], value: &Value) {
    match value {
        Value::String(value) => {
            txn.set(db, key, value, false).unwrap();
            if value.len() % 2 == 0 {
                // Written in part, a large one goes to the heap.
                txn.string_write(db, key, 0, &value[..1]).unwrap();
            }
        }
        Value::List(list) => txn.list_replace(db, key, list.iter().map(Vec::as_slice)).unwrap(),
        Value::Set(set) => txn.set_replace(db, key, set.iter().map(Vec::as_slice)).unwrap(),
        Value::Zset(zset) => {
            txn.zset_replace(db, key, zset.iter().map(|(member, score)| (member, *score as f64))).unwrap();
        }
        Value::Hash(hash) => {
            let fields = hash.iter().map(|(name, (value, expires))| (&name[..], &value[..], *expires));
            txn.hash_replace(db, key, fields).unwrap();
        }
        Value::Stream(values, lag) => {
            txn.remove(db, key);
            for (value, i) in values.iter().zip(1..) {
                let field = [(&b"field"[..], &value[..])].into_iter();
                let id = NewId::Exactly(Id::new(i, 0));
                txn.stream_add(db, key, id, field, None, true).unwrap().unwrap().unwrap();
            }
            let read = values.len() as u64 - lag;
            txn.stream_add_group(db, key, b"group", Some(Id::new(read, 0)), Some(read), true)
                .unwrap()
                .unwrap();
        }
    }
}

fn read(txn: &mut Txn, db: u8, key: &[u8]) -> Result<Value, Error> {
    Ok(match txn.type_of(db, key).expect("a key that was scanned") {
        Type::String => Value::String(txn.get(db, key)?.expect("a string").to_vec()),
        Type::List => {
            let list = txn.list_at(db, key)?.expect("a list");
            Value::List(list.range(0, -1).map(<[u8]>::to_vec).collect())
        }
        Type::Set => {
            let set = txn.set_at(db, key)?.expect("a set");
            Value::Set(set.members().map(|member| member.to_vec()).collect())
        }
        Type::Zset => {
            let zset = txn.zset_at(db, key)?.expect("a sorted set").iter(0..u64::MAX, false);
            Value::Zset(zset.map(|(member, score)| (member.to_vec(), score as u64)).collect())
        }
        Type::Hash => {
            let fields = txn.hash_at(db, key)?.expect("a hash").fields();
            Value::Hash(fields.map(|f| (f.name.to_vec(), (f.value.to_vec(), f.expires))).collect())
        }
        Type::Stream => {
            let stream = txn.stream_at(db, key)?.expect("a stream");
            let entries = stream.range(Id::MIN, Id::MAX, false);
            let values = entries.map(|entry| entry.fields().last().expect("a field").1.to_vec()).collect();
            let lag = stream.group(b"group").and_then(|group| group.lag()).expect("a group that counts");
            Value::Stream(values, lag as u64)
        }
    })
}

/// Runs something in a transaction over some keys that must go well.
fn run<R>(store: &Store, keys: &[&[u8]], what: impl FnMut(&mut Txn) -> Result<R, Error>) -> R {
    open::run(store, keys, what).expect("room and a sound medium").0
}

/// The keys of a step, the cold ones fetched.
fn names(store: &Store, step: &ScanStep) -> Vec<(Vec<u8>, Type)> {
    let cold = step.cold.iter().map(|&cold| (store.fetch(cold).key().unwrap().to_vec(), cold.ty()));
    step.keys.iter().cloned().chain(cold).collect()
}

fn dump(store: &Store) -> State {
    let mut state = State::new();
    for logical in 0..DBS as u8 {
        let db = store.database(logical);
        let mut cursor = 0;
        loop {
            let step = store.scan(db, cursor, 7);
            for (key, ty) in names(store, &step) {
                let value = run(store, &[&key], |txn| {
                    assert_eq!(txn.type_of(db, &key), Some(ty));
                    Ok((read(txn, db, &key)?, txn.expiry(db, &key).unwrap()))
                });
                state.insert((logical, key), value);
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
    }
    state
}

fn check(store: &Store, model: &State, rng: &mut Rng) {
    assert!(dump(store) == *model, "the store and the model differ");
    store.check().expect("a sound store");
    for logical in 0..DBS as u8 {
        let db = store.database(logical);
        let keys: Vec<_> = model.iter().filter(|((d, _), _)| *d == logical).collect();
        assert_eq!(store.len(db), keys.len() as u64);
        assert_eq!(
            store.try_expires_len(db).unwrap(),
            keys.iter().filter(|(_, (_, expiry))| expiry.is_some()).count() as u64
        );
        let random = names(store, &store.try_random_key(db, || rng.next()).unwrap());
        assert_eq!(random.is_empty(), keys.is_empty());
        assert!(random.into_iter().all(|(key, _)| model.contains_key(&(logical, key))));
    }
    let txn = store.begin_all();
    assert_eq!(txn.len(store.database(0)), model.keys().filter(|(db, _)| *db == 0).count() as u64);
}

fn step(store: &Store, model: &mut State, rng: &mut Rng, keys: u64) {
    let mut name = || (rng.below(DBS) as u8, format!("key:{}", rng.below(keys)).into_bytes());
    let (from, to) = (name(), name());
    let (from_db, to_db) = (store.database(from.0), store.database(to.0));
    match rng.below(100) {
        0..30 => {
            let value = random_value(rng);
            run(store, &[&from.1], |txn| {
                write(txn, from_db, &from.1, &value);
                Ok(())
            });
            model.insert(from, (value, None));
        }
        30..45 => {
            let was = run(store, &[&from.1], |txn| Ok(txn.remove(from_db, &from.1)));
            assert_eq!(was, model.remove(&from).is_some());
        }
        45..60 => {
            let expiry = (rng.below(3) > 0).then(|| FAR + rng.below(1000));
            let was = run(store, &[&from.1], |txn| txn.set_expiry(from_db, &from.1, expiry));
            assert_eq!(was, model.contains_key(&from));
            model.entry(from).and_modify(|value| value.1 = expiry);
        }
        60..80 => {
            let was = run(store, &[&from.1, &to.1], |txn| txn.rename(from_db, &from.1, to_db, &to.1));
            let value = model.remove(&from);
            assert_eq!(was, value.is_some());
            model.extend(value.map(|value| (to, value)));
        }
        80..97 => {
            let was = run(store, &[&from.1, &to.1], |txn| txn.copy(from_db, &from.1, to_db, &to.1));
            let value = model.get(&from).cloned();
            assert_eq!(was, value.is_some());
            model.extend(value.map(|value| (to, value)));
        }
        97 => {
            assert!(store.begin_all().flush(from.0));
            assert_eq!(store.len(store.database(from.0)), 0);
            model.retain(|(db, _), _| *db != from.0);
        }
        _ => {
            store.begin_all().swap(from.0, to.0);
            let swapped = std::mem::take(model).into_iter().map(|((db, key), value)| {
                let db = if db == from.0 {
                    to.0
                } else if db == to.0 {
                    from.0
                } else {
                    db
                };
                ((db, key), value)
            });
            *model = swapped.collect();
        }
    }
}

fn history(seed: u64) {
    let mut rng = Rng(seed);
    let mut sim = SimIo::new(seed);
    let options = Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: 64 << 20,
        heap_bytes_max: 64 << 20,
        memory_bytes_max: if rng.chance(2) { 128 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    };
    let keys = 1 + rng.below(100);
    let mut model = State::new();
    for _life in 0..3 {
        let store = Store::open_on(Arc::new(sim.clone()), options.clone()).expect("the store opens");
        check(&store, &model, &mut rng);
        for _ in 0..rng.below(300) {
            step(&store, &mut model, &mut rng, keys);
            match rng.below(60) {
                0 => {
                    assert!(oracle::compare(&store, &sim, &options));
                    store.checkpoint().unwrap();
                }
                1 => _ = store.clean().unwrap(),
                2 => check(&store, &model, &mut rng),
                3..8 => _ = store.sweep(),
                8..20 => _ = store.log().commit_once().unwrap(),
                20..25 => _ = store.freeze(1 + rng.below(100_000)).unwrap(),
                _ => {}
            }
        }
        if rng.chance(2) {
            // Now the check of memory has no excuse.
            while store.sweep() {}
        }
        assert!(oracle::compare(&store, &sim, &options));
        check(&store, &model, &mut rng);
        sim = sim.crash();
    }
}

#[test]
fn keys_behave_like_the_model() {
    with_seeds(60, history);
}

/// Where there were many keys, an index stays as large as it was, unless they are all gone.
#[test]
fn an_index_without_keys_takes_no_room() {
    let options =
        Options { partitions: 2, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let keys = || (0..20_000u32).map(u32::to_le_bytes);
    for _ in 0..2 {
        for key in keys() {
            open::run(&store, &[&key], |txn| txn.set(0, &key, b"value", false)).expect("room");
        }
        let full = store.stats().heap_allocated_bytes;
        for key in keys() {
            open::run(&store, &[&key], |txn| Ok(txn.remove(0, &key))).expect("a removal needs no room");
        }
        while store.sweep() {}
        let empty = store.stats().heap_allocated_bytes;
        assert!(empty < full / 4, "{full} bytes with keys, {empty} without");
        store.check().expect("it is sound");
    }
}

/// However much they hold, databases are exchanged for empty ones, of which there is one for each; once these are used up,
/// flushing waits for the freeing.
#[test]
fn all_databases_are_flushed_at_once_in_a_small_batch() {
    let options = Options {
        partitions: 2,
        heap_bytes_max: 256 << 20,
        log_bytes_max: 256 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let all = || 0..DATABASES as u8;
    let fill = |keys: u32| {
        for (db, number) in all().flat_map(|db| (0..keys).map(move |number| (db, number))) {
            let key = number.to_le_bytes();
            let mut txn = store.begin_keys([&key[..]]);
            let db = txn.database(db);
            txn.set_add(db, &key, [&key[..], b"a member"]).expect("room");
            drop(txn);
            store.log().commit_once().expect("a sound medium");
        }
    };
    fill(500);
    let mut txn = store.begin_all();
    assert!(txn.can_flush(all()) && all().all(|db| txn.flush(db)));
    assert!(txn.batch_bytes() < 2000, "{} bytes", txn.batch_bytes());
    drop(txn);
    assert!(store.is_empty());
    fill(1);
    let mut txn = store.begin_all();
    assert!(!txn.can_flush(all()), "what was flushed is not freed yet");
    let flushed = all().filter(|&db| txn.flush(db)).count();
    assert!((1..DATABASES).contains(&flushed), "{flushed}");
    drop(txn);
    while store.sweep() {
        store.log().commit_once().expect("a sound medium");
    }
    let mut txn = store.begin_all();
    assert!(txn.can_flush(all()) && all().all(|db| txn.flush(db)));
    drop(txn);
    assert!(store.is_empty());
    while store.sweep() {
        store.log().commit_once().expect("a sound medium");
    }
    store.check().expect("it is sound");
}

/// Renames, copies and moves that lack room change nothing.
#[test]
fn without_room_keys_stay_as_they_are() {
    let sim = SimIo::new(1);
    let options = Options {
        partitions: 2,
        segment_size: Some(64 << 10),
        log_bytes_max: 256 << 20,
        heap_bytes_max: 4 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim), options).expect("the store opens");
    let mut rng = Rng(1);
    let mut model = State::new();
    let mut failed = 0;
    for i in 0..5000u64 {
        let key = |n: u64| format!("key:{n}").into_bytes();
        let (from, to) = (key(rng.below(i + 1)), key(if rng.chance(2) { i } else { rng.below(i + 1) }));
        if i < 20 {
            let hash = (0..1000).map(|n| (key(n), (key(n), if n == 0 { FAR } else { 0 }))).collect();
            let value = Value::Hash(hash);
            run(&store, &[&key(i)], |txn| {
                write(txn, 0, &key(i), &value);
                txn.set_expiry(0, &key(i), Some(FAR + i))
            });
            model.insert((0, key(i)), (value, Some(FAR + i)));
            continue;
        }
        let copied = store.begin_keys([&from[..], &to[..]]).copy(0, &from, 0, &to);
        match copied {
            Ok(was) => {
                let value = model.get(&(0, from)).cloned();
                assert_eq!(was, value.is_some());
                model.extend(value.map(|value| ((0, to), value)));
            }
            Err(Error::Full) => failed += 1,
            Err(other) => panic!("{other}"),
        }
        while store.log().commit_once().unwrap() {}
        if failed >= 30 {
            break;
        }
    }
    assert!(failed > 0);
    check(&store, &model, &mut rng);
}
