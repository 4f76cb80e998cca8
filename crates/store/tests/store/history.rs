//! Histories of batches over keys of all types, and the model that says what they lead to.

use crate::{open, seeds::Rng};
use holdfast_store::{
    Admission, Error, SYSTEM_DATABASE, Store, Txn, Type,
    hash::Expiry,
    list::End,
    stream::{Fields, Id, NewId, Trim, TrimTo},
    string::StringValue,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Far in the future: the clock of the simulated machine stands still in histories.
pub const FAR: u64 = 1 << 42;

thread_local! {
    /// Changes of strings that were in the heap, by this thread: a test has one of its own.
    pub static CHANGED: Cell<u64> = const { Cell::new(0) };
}

/// What is behind each key, with its expiry. Values are shared, since a history keeps many states.
pub type State = BTreeMap<(u8, Vec<u8>), (Arc<Value>, Option<u64>)>;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    String(Vec<u8>),
    /// Each field with its value and its expiry; 0: none.
    Hash(BTreeMap<Vec<u8>, (Vec<u8>, u64)>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    /// Each member with its score, in quarters.
    Zset(BTreeMap<Vec<u8>, i64>),
    Stream(Stream),
}

/// A stream whose entries have the IDs 1-0, 1-1 and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    entries: BTreeMap<u64, Vec<u8>>,
    /// The number of the next entry.
    next: u64,
    group: Option<Group>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The number of the next entry to be read.
    next: u64,
    /// By which consumer an entry was read.
    pending: BTreeMap<u64, u8>,
}

/// The database that stands for the system's, which no client's number does.
pub const SYSTEM: u8 = 2;

pub fn physical(db: u8, database: impl FnOnce(u8) -> u8) -> u8 {
    if db == SYSTEM { SYSTEM_DATABASE } else { database(db) }
}

#[derive(Clone, Debug)]
pub enum Op {
    Set(u8, Vec<u8>, Vec<u8>, bool),
    /// Bytes at a place in a string; without a place they are appended.
    Write(u8, Vec<u8>, Option<usize>, Vec<u8>),
    Remove(u8, Vec<u8>),
    Expire(u8, Vec<u8>, Option<u64>),
    /// With an expiry of the field, unless it keeps the one that it has.
    HashSet(u8, Vec<u8>, Vec<u8>, Vec<u8>, Option<u64>),
    HashRemove(u8, Vec<u8>, Vec<u8>),
    Push(u8, Vec<u8>, bool, Vec<u8>),
    Pop(u8, Vec<u8>, bool, u64),
    SetAdd(u8, Vec<u8>, Vec<u8>),
    SetRemove(u8, Vec<u8>, Vec<u8>),
    ZsetAdd(u8, Vec<u8>, Vec<u8>, i64),
    ZsetRemove(u8, Vec<u8>, Vec<u8>),
    ListReplace(u8, Vec<u8>, Vec<Vec<u8>>),
    StreamAdd(u8, Vec<u8>, Vec<u8>),
    StreamDelete(u8, Vec<u8>, u64),
    StreamTrim(u8, Vec<u8>, u64),
    /// By a consumer of the group, which is made first.
    StreamRead(u8, Vec<u8>, u8, u64),
    StreamAcknowledge(u8, Vec<u8>, u64),
    StreamRemoveGroup(u8, Vec<u8>),
    Flush(u8),
}

impl Op {
    fn db(&self) -> u8 {
        match self {
            Op::Set(db, ..)
            | Op::Write(db, ..)
            | Op::Remove(db, _)
            | Op::Expire(db, ..)
            | Op::HashSet(db, ..)
            | Op::HashRemove(db, ..)
            | Op::Push(db, ..)
            | Op::Pop(db, ..)
            | Op::SetAdd(db, ..)
            | Op::SetRemove(db, ..)
            | Op::ZsetAdd(db, ..)
            | Op::ZsetRemove(db, ..)
            | Op::ListReplace(db, ..)
            | Op::StreamAdd(db, ..)
            | Op::StreamDelete(db, ..)
            | Op::StreamTrim(db, ..)
            | Op::StreamRead(db, ..)
            | Op::StreamAcknowledge(db, ..)
            | Op::StreamRemoveGroup(db, _)
            | Op::Flush(db) => *db,
        }
    }

    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Op::Set(_, key, ..)
            | Op::Write(_, key, ..)
            | Op::Remove(_, key)
            | Op::Expire(_, key, _)
            | Op::HashSet(_, key, ..)
            | Op::HashRemove(_, key, _)
            | Op::Push(_, key, ..)
            | Op::Pop(_, key, ..)
            | Op::SetAdd(_, key, _)
            | Op::SetRemove(_, key, _)
            | Op::ZsetAdd(_, key, ..)
            | Op::ZsetRemove(_, key, _)
            | Op::ListReplace(_, key, _)
            | Op::StreamAdd(_, key, _)
            | Op::StreamDelete(_, key, _)
            | Op::StreamTrim(_, key, _)
            | Op::StreamRead(_, key, ..)
            | Op::StreamAcknowledge(_, key, _)
            | Op::StreamRemoveGroup(_, key) => Some(key),
            Op::Flush(_) => None,
        }
    }
}

/// Changes the value of a key that holds this type, or a new one; removes the key if nothing is left.
pub fn change(state: &mut State, db: u8, key: &[u8], new: Value, f: impl FnOnce(&mut Value)) {
    let (value, expiry) = state.remove(&(db, key.to_vec())).unwrap_or((Arc::new(new), None));
    let mut value = (*value).clone();
    f(&mut value);
    let is_empty = match &value {
        Value::String(_) => false,
        Value::Hash(fields) => fields.is_empty(),
        Value::List(elements) => elements.is_empty(),
        Value::Set(members) => members.is_empty(),
        Value::Zset(members) => members.is_empty(),
        Value::Stream(_) => false,
    };
    if !is_empty {
        state.insert((db, key.to_vec()), (Arc::new(value), expiry));
    }
}

/// Changes a collection, if the key holds one of this type or nothing.
macro_rules! collection {
    ($state:ident, $db:expr, $key:expr, $ty:ident, |$inner:ident| $body:expr) => {
        if $state.get(&($db, $key.clone())).is_none_or(|v| matches!(*v.0, Value::$ty(_))) {
            change($state, $db, &$key, Value::$ty(Default::default()), |value| {
                if let Value::$ty($inner) = value {
                    $body;
                }
            });
        }
    };
}

/// Changes the stream at a key, if there is one.
pub fn change_stream(state: &mut State, db: u8, key: &[u8], f: impl FnOnce(&mut Stream)) {
    if let Some((value, _)) = state.get_mut(&(db, key.to_vec()))
        && let Value::Stream(stream) = Arc::make_mut(value)
    {
        f(stream);
    }
}

pub fn apply(state: &mut State, op: &Op) {
    match op.clone() {
        Op::Set(db, key, value, keep) => {
            let expiry = state.get(&(db, key.clone())).and_then(|v| v.1).filter(|_| keep);
            state.insert((db, key), (Arc::new(Value::String(value)), expiry));
        }
        Op::Write(db, key, at, bytes) => collection!(state, db, key, String, |string| {
            let at = at.unwrap_or(string.len());
            string.resize(string.len().max(at + bytes.len()), 0);
            string[at..at + bytes.len()].copy_from_slice(&bytes);
        }),
        Op::Remove(db, key) => {
            state.remove(&(db, key));
        }
        Op::Expire(db, key, at) => {
            if let Some(value) = state.get_mut(&(db, key)) {
                value.1 = at;
            }
        }
        Op::HashSet(db, key, name, value, expires) => collection!(state, db, key, Hash, |h| {
            let old = h.get(&name).map_or(0, |field| field.1);
            h.insert(name, (value, expires.unwrap_or(old)))
        }),
        Op::HashRemove(db, key, name) => collection!(state, db, key, Hash, |h| h.remove(&name)),
        Op::Push(db, key, true, element) => collection!(state, db, key, List, |l| l.push_front(element)),
        Op::Push(db, key, false, element) => collection!(state, db, key, List, |l| l.push_back(element)),
        Op::Pop(db, key, front, count) => collection!(state, db, key, List, |l| {
            (0..count).for_each(|_| drop(if front { l.pop_front() } else { l.pop_back() }))
        }),
        Op::SetAdd(db, key, member) => collection!(state, db, key, Set, |s| s.insert(member)),
        Op::SetRemove(db, key, member) => collection!(state, db, key, Set, |s| s.remove(&member)),
        Op::ZsetAdd(db, key, member, score) => collection!(state, db, key, Zset, |z| z.insert(member, score)),
        Op::ZsetRemove(db, key, member) => collection!(state, db, key, Zset, |z| z.remove(&member)),
        Op::ListReplace(db, key, elements) if elements.is_empty() => drop(state.remove(&(db, key))),
        Op::ListReplace(db, key, elements) => {
            state.insert((db, key), (Arc::new(Value::List(elements.into())), None));
        }
        Op::StreamAdd(db, key, value) => collection!(state, db, key, Stream, |stream| {
            stream.entries.insert(stream.next, value);
            stream.next += 1;
        }),
        Op::StreamDelete(db, key, number) => change_stream(state, db, &key, |stream| {
            stream.entries.remove(&number);
        }),
        Op::StreamTrim(db, key, len) => change_stream(state, db, &key, |stream| {
            while stream.entries.len() as u64 > len {
                stream.entries.pop_first();
            }
        }),
        Op::StreamRead(db, key, consumer, count) => change_stream(state, db, &key, |stream| {
            let group = stream.group.get_or_insert_default();
            for (&number, _) in stream.entries.range(group.next..).take(count as usize) {
                group.next = number + 1;
                group.pending.insert(number, consumer);
            }
        }),
        Op::StreamAcknowledge(db, key, number) => change_stream(state, db, &key, |stream| {
            stream.group.as_mut().map(|group| group.pending.remove(&number));
        }),
        Op::StreamRemoveGroup(db, key) => change_stream(state, db, &key, |stream| stream.group = None),
        Op::Flush(db) => state.retain(|(d, _), _| *d != db),
    }
}

/// A key of some type that a history with so many keys may have.
pub fn random_key(rng: &mut Rng, keys: u64) -> Vec<u8> {
    let kinds = ["hash", "list", "set", "zset", "stream"];
    let key = match rng.below(8) as usize {
        kind if kind < kinds.len() => format!("{}:{}", kinds[kind], rng.below(4)),
        5 => "text".to_owned(),
        _ => format!("key:{}", rng.below(keys)),
    };
    key.into_bytes()
}

pub fn random_ops(rng: &mut Rng, keys: u64) -> Vec<Op> {
    if rng.chance(300) {
        return vec![Op::Flush(rng.below(2) as u8)];
    }
    let count = if rng.chance(4) { 1 + rng.below(6) } else { 1 };
    let mut ops: Vec<Op> = (0..count).map(|_| random_op(rng, keys)).collect();
    if let Some(Op::Set(db, key, value, _)) = ops.last().filter(|_| rng.chance(6)).cloned() {
        // It takes the place of the value that was just written.
        ops.push(Op::Set(db, key, vec![rng.next() as u8; value.len()], rng.chance(2)));
    }
    ops
}

pub fn random_op(rng: &mut Rng, keys: u64) -> Op {
    let db = if rng.chance(8) { 1 + rng.below(2) as u8 } else { 0 };
    let key = format!("key:{}", rng.below(keys)).into_bytes();
    // Few collections, so that some become large.
    let few = |kind: &str, rng: &mut Rng| format!("{kind}:{}", rng.below(4)).into_bytes();
    let element = |rng: &mut Rng| format!("element:{}", rng.below(300)).into_bytes();
    match rng.below(24) {
        0..8 => {
            let len = if rng.chance(50) { rng.below(100_000) } else { rng.below(300) };
            let key = if rng.chance(50) { few("hash", rng) } else { key };
            Op::Set(db, key, vec![rng.next() as u8; len as usize], rng.chance(2))
        }
        // Large from the start, so that it lies in the heap as soon as a part of it is written.
        8 if rng.chance(12) => {
            Op::Set(db, b"text".to_vec(), vec![5; 16_000 + rng.below(5000) as usize], rng.chance(2))
        }
        8 if rng.chance(2) => {
            let at = (!rng.chance(3)).then(|| rng.below(20_000) as usize);
            let len = if rng.chance(10) { 5000 } else { 50 };
            Op::Write(db, b"text".to_vec(), at, vec![rng.next() as u8; rng.below(len) as usize])
        }
        8 | 9 => Op::Remove(db, if rng.chance(20) { few("list", rng) } else { key }),
        10 | 11 => {
            let kinds = ["hash", "list", "set", "zset", "stream"];
            let key = match rng.below(12) as usize {
                kind if kind < kinds.len() => few(kinds[kind], rng),
                5 => b"text".to_vec(),
                _ => key,
            };
            Op::Expire(db, key, rng.chance(2).then(|| FAR + rng.below(1000)))
        }
        12 | 13 => {
            let expires = rng.chance(40).then(|| FAR + rng.below(1000));
            Op::HashSet(db, few("hash", rng), element(rng), vec![7; rng.below(80) as usize], expires)
        }
        14 => Op::HashRemove(db, few("hash", rng), element(rng)),
        15 | 16 => Op::Push(db, few("list", rng), rng.chance(2), vec![8; rng.below(200) as usize]),
        17 if rng.chance(2) => Op::Pop(db, few("list", rng), rng.chance(2), 1 + rng.below(3)),
        17 => Op::SetRemove(db, few("set", rng), element(rng)),
        18 if rng.chance(6) => {
            let kind = if rng.chance(4) { "hash" } else { "list" };
            let key = few(kind, rng);
            let most = if rng.chance(4) { 400 } else { 10 };
            let count = rng.below(most);
            Op::ListReplace(db, key, (0..count).map(|_| element(rng)).collect())
        }
        18 => Op::SetAdd(db, few("set", rng), element(rng)),
        19 | 20 => Op::StreamAdd(db, few("stream", rng), vec![9; rng.below(100) as usize]),
        21 => Op::StreamRead(db, few("stream", rng), rng.below(3) as u8, 1 + rng.below(20)),
        22 => match rng.below(20) {
            0..10 => Op::StreamAcknowledge(db, few("stream", rng), rng.below(300)),
            10..17 => Op::StreamDelete(db, few("stream", rng), rng.below(300)),
            17 => Op::StreamTrim(db, few("stream", rng), rng.below(200)),
            18 => Op::StreamRemoveGroup(db, few("stream", rng)),
            _ => Op::Remove(db, few("stream", rng)),
        },
        _ if rng.chance(3) => Op::ZsetRemove(db, few("zset", rng), element(rng)),
        _ => Op::ZsetAdd(db, few("zset", rng), element(rng), rng.below(200) as i64 - 100),
    }
}

/// Runs a batch; `None` if what it needs could not be read after the cut. It ends before an operation for which the log has no
/// room: that has changed nothing.
pub fn run_batch(store: &Store, ops: &mut Vec<Op>) -> Option<u64> {
    let mut txn = match &ops[..] {
        [Op::Flush(_)] => store.begin_all(),
        _ => store.begin_keys(ops.iter().filter_map(Op::key)),
    };
    for at in 0..ops.len() {
        loop {
            match run(&mut txn, &ops[at]) {
                Ok(()) | Err(Error::WrongType) => break,
                // To change a frozen collection takes room for all of it.
                Err(Error::NotAdmitted(Admission::Full)) => {
                    ops.truncate(at);
                    return Some(txn.commit());
                }
                // Nothing of a batch can be undone, so that a server waits here, too.
                Err(Error::Cold(cold)) => txn.supply(vec![store.fetch(cold)]),
                Err(_) if store.log().failed().is_some_and(|why| is_cut(&why)) => return None,
                Err(other) => panic!("{:?}: {other}", ops[at]),
            }
        }
    }
    Some(txn.commit())
}

pub fn is_cut(why: &str) -> bool {
    why.contains("simulated power cut")
}

pub fn run(txn: &mut Txn, op: &Op) -> Result<(), Error> {
    let db = physical(op.db(), |db| txn.database(db));
    let end = |front: &bool| if *front { End::Front } else { End::Back };
    match op {
        Op::Set(_, key, value, keep) => txn.set(db, key, value, *keep),
        Op::Write(_, key, at, bytes) => {
            let value = txn.string_at(db, key)?;
            CHANGED.set(CHANGED.get() + u64::from(matches!(value, Some(StringValue::Chunks { .. }))));
            let len = value.map_or(0, StringValue::len);
            txn.string_write(db, key, at.unwrap_or(len), bytes).map(drop)
        }
        Op::Remove(_, key) => {
            txn.remove(db, key);
            Ok(())
        }
        Op::Expire(_, key, at) => txn.set_expiry(db, key, *at).map(drop),
        Op::HashSet(_, key, name, value, expires) => {
            let expiry = expires.map_or(Expiry::Keep, Expiry::At);
            txn.hash_set(db, key, [(&name[..], &value[..])], expiry).map(drop)
        }
        Op::HashRemove(_, key, name) => txn.hash_remove(db, key, [&name[..]]).map(drop),
        Op::Push(_, key, front, element) => {
            txn.list_push(db, key, end(front), [&element[..]], true).map(drop)
        }
        Op::Pop(_, key, front, count) => txn.list_pop(db, key, end(front), *count, |_| {}).map(drop),
        Op::SetAdd(_, key, member) => txn.set_add(db, key, [&member[..]]).map(drop),
        Op::SetRemove(_, key, member) => txn.set_remove(db, key, [&member[..]]).map(drop),
        Op::ZsetAdd(_, key, member, score) => {
            txn.zset_add(db, key, Default::default(), [(&member[..], *score as f64 / 4.0)]).map(drop)
        }
        Op::ZsetRemove(_, key, member) => txn.zset_remove(db, key, [&member[..]]).map(drop),
        Op::ListReplace(_, key, elements) => {
            txn.list_replace(db, key, elements.iter().map(|element| &element[..]))
        }
        Op::StreamAdd(_, key, value) => {
            let field = [(&b"field"[..], &value[..])];
            txn.stream_add(db, key, NewId::At(1), field.into_iter(), None, true).map(drop)
        }
        Op::StreamDelete(_, key, number) => txn.stream_delete(db, key, &[Id::new(1, *number)]).map(drop),
        Op::StreamTrim(_, key, len) => {
            let trim = Trim { to: TrimTo::Len(*len), whole_leaves: false, limit: 0 };
            txn.stream_trim(db, key, &trim).map(drop)
        }
        Op::StreamRead(_, key, consumer, count) => {
            txn.stream_add_group(db, key, b"group", Some(Id::MIN), None, false).and_then(|_| {
                txn.stream_read_new(db, key, b"group", &[*consumer], *count, false, |_| {}).map(drop)
            })
        }
        Op::StreamAcknowledge(_, key, number) => {
            txn.stream_acknowledge(db, key, b"group", &[Id::new(1, *number)]).map(drop)
        }
        Op::StreamRemoveGroup(_, key) => txn.stream_remove_group(db, key, b"group").map(drop),
        Op::Flush(number) => {
            assert!(txn.flush(*number), "what was flushed is freed in time");
            Ok(())
        }
    }
}

/// The value of a key; an error after the cut.
pub fn get(store: &Store, db: u8, key: &[u8]) -> Result<Option<Value>, Error> {
    let db = physical(db, |db| store.database(db));
    open::run(store, &[key], |txn| read(txn, db, key)).map(|(value, _)| value)
}

pub fn read(txn: &mut Txn, db: u8, key: &[u8]) -> Result<Option<Value>, Error> {
    let Some(ty) = txn.type_of(db, key) else { return Ok(None) };
    Ok(Some(match ty {
        Type::String => Value::String(txn.get(db, key)?.unwrap().to_vec()),
        Type::Hash => {
            let hash = txn.hash_at(db, key)?.unwrap();
            Value::Hash(hash.fields().map(|f| (f.name.to_vec(), (f.value.to_vec(), f.expires))).collect())
        }
        Type::List => {
            let list = txn.list_at(db, key)?.unwrap();
            Value::List(list.range(0, -1).map(<[u8]>::to_vec).collect())
        }
        Type::Set => Value::Set(txn.set_at(db, key)?.unwrap().members().map(|m| m.to_vec()).collect()),
        Type::Zset => {
            let zset = txn.zset_at(db, key)?.unwrap();
            let members: Vec<_> =
                zset.iter(0..zset.len(), false).map(|(m, score)| (score, m.to_vec())).collect();
            assert!(members.is_sorted_by(|a, b| a < b), "members out of order");
            Value::Zset(members.into_iter().map(|(score, m)| (m, (score * 4.0) as i64)).collect())
        }
        Type::Stream => {
            let stream = txn.stream_at(db, key)?.unwrap();
            let after = |id: Id| if id == Id::MIN { 0 } else { id.seq + 1 };
            let value = |fields: Fields| fields.last().expect("a field").1.to_vec();
            let entries = stream.range(Id::MIN, Id::MAX, false).map(|e| (e.id.seq, value(e.fields())));
            let group = stream.group(b"group").map(|group| Group {
                next: after(group.last_id()),
                pending: group.pending(Id::MIN).map(|p| (p.id.seq, group.owner(&p).name()[0])).collect(),
            });
            Value::Stream(Stream { entries: entries.collect(), next: after(stream.last_id()), group })
        }
    }))
}

/// All that a sound store holds.
pub fn dump(store: &Store) -> State {
    try_dump(store).expect("a sound medium")
}

/// All that a store holds, or what it says is damaged.
pub fn try_dump(store: &Store) -> Result<State, String> {
    let mut state = State::new();
    for db in 0..3 {
        let physical = physical(db, |db| store.database(db));
        let mut cursor = 0;
        loop {
            let step = store.scan(physical, cursor, 10);
            let mut keys: Vec<Vec<u8>> = step.keys.into_iter().map(|(key, _)| key).collect();
            for cold in step.cold {
                keys.push(store.fetch(cold).key()?.to_vec());
            }
            for key in keys {
                let expiry = store.begin_keys([&key[..]]).expiry(physical, &key).expect("it was just seen");
                let value = get(store, db, &key).map_err(|why| why.to_string())?.expect("it was just seen");
                state.insert((db, key), (Arc::new(value), expiry));
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
        let keys = state.keys().filter(|(d, _)| *d == db).count() as u64;
        // Keys that have expired may be there still.
        let len = store.len(physical);
        assert!(
            (len - store.try_expires_len(physical).unwrap()..=len).contains(&keys),
            "{keys} keys of {len}"
        );
    }
    Ok(state)
}
