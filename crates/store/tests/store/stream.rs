//! Streams against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, play, with_seeds},
};
use holdfast_store::{
    Error, Txn,
    stream::{Added, Claim, Entry, Id, NewId, Refused, Trim, TrimTo},
};
use std::collections::{BTreeMap, BTreeSet};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    last: Id,
    read: Option<u64>,
    consumers: BTreeSet<Vec<u8>>,
    /// Whose an entry is, when it was delivered, and how often.
    pending: BTreeMap<Id, (Vec<u8>, u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Stream {
    entries: BTreeMap<Id, Fields>,
    last: Id,
    added: u64,
    deleted_max: Id,
    groups: BTreeMap<Vec<u8>, Group>,
}

impl Stream {
    fn first(&self) -> Id {
        self.entries.keys().next().copied().unwrap_or(Id::MIN)
    }

    /// Whether there is a hole from an ID on.
    fn has_holes(&self, from: Id) -> bool {
        let deleted = self.deleted_max;
        !self.entries.is_empty() && deleted != Id::MIN && self.first() <= deleted && from <= deleted
    }

    fn entries_up_to(&self, id: Id) -> Option<u64> {
        let (len, first) = (self.entries.len() as u64, self.first());
        let no_holes = self.deleted_max == Id::MIN || self.deleted_max < first;
        match () {
            () if self.added == 0 => Some(0),
            () if len == 0 && id <= self.last || id == self.last => Some(self.added),
            () if id > self.last => None,
            () if no_holes && id < first => Some(self.added - len),
            () if no_holes && id == first => Some(self.added - len + 1),
            () => None,
        }
    }

    fn lag(&self, group: &Group) -> Option<i64> {
        let read = match group.read {
            _ if self.added == 0 => Some(0),
            Some(read) if !self.has_holes(group.last) => Some(read),
            _ => self.entries_up_to(group.last),
        };
        read.map(|read| self.added as i64 - read as i64)
    }

    /// Removes the first entries.
    fn trim(&mut self, count: u64) {
        (0..count).for_each(|_| drop(self.entries.pop_first().expect("no more is trimmed than there is")));
    }

    /// How many entries are too many.
    fn excess(&self, to: TrimTo) -> u64 {
        match to {
            TrimTo::Len(max) => (self.entries.len() as u64).saturating_sub(max),
            TrimTo::Id(id) => self.entries.range(..id).count() as u64,
        }
    }
}

fn owned(entry: &Entry) -> (Id, Fields) {
    (entry.id, entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
}

fn read(txn: &mut Txn, key: &[u8]) -> Option<Stream> {
    let stream = txn.stream_at(0, key).unwrap()?;
    let entries: BTreeMap<Id, Fields> = stream.range(Id::MIN, Id::MAX, false).map(|e| owned(&e)).collect();
    let backwards: Vec<Id> = stream.range(Id::MIN, Id::MAX, true).map(|entry| entry.id).collect();
    assert!(backwards.iter().eq(entries.keys().rev()));
    assert_eq!(stream.len(), entries.len() as u64);
    assert_eq!(stream.first_entry_id(), entries.keys().next().copied().unwrap_or(Id::MIN));
    assert_eq!(stream.last_entry_id(), entries.keys().last().copied().unwrap_or(Id::MIN));
    let groups = stream.groups().map(|group| {
        let pending: BTreeMap<_, _> = group
            .pending(Id::MIN)
            .map(|p| (p.id, (group.owner(&p).name().to_vec(), p.delivered_ms, p.deliveries)))
            .collect();
        for consumer in group.consumers() {
            let own: Vec<Id> = consumer.pending(Id::MIN).map(|pending| pending.id).collect();
            let expected = pending.iter().filter(|(_, of)| of.0 == consumer.name());
            assert!(own.iter().eq(expected.map(|(id, _)| id)));
            assert_eq!(consumer.pending_len(), own.len() as u64);
        }
        assert_eq!(group.pending_len(), pending.len() as u64);
        let consumers = group.consumers().map(|consumer| consumer.name().to_vec()).collect();
        let read = Group { last: group.last_id(), read: group.entries_read(), consumers, pending };
        (group.name().to_vec(), (read, group.lag()))
    });
    let groups: BTreeMap<_, _> = groups.collect();
    let (last, added, deleted_max) = (stream.last_id(), stream.entries_added(), stream.max_deleted_id());
    let lags: Vec<_> = groups.values().map(|(_, lag)| *lag).collect();
    let groups = groups.into_iter().map(|(name, (group, _))| (name, group)).collect();
    let stream = Stream { entries, last, added, deleted_max, groups };
    assert!(stream.groups.values().map(|group| stream.lag(group)).eq(lags), "{stream:?}");
    Some(stream)
}

fn name(kind: &str, rng: &mut Rng) -> Vec<u8> {
    // Some that begin alike.
    let number = rng.below(5);
    format!("{kind}{}{number}", if number < 3 { " with a long name " } else { "" }).into_bytes()
}

/// An ID near those that are there.
fn id(rng: &mut Rng, stream: &Stream) -> Id {
    match rng.below(10) {
        0 => Id::MIN,
        1 => Id::MAX,
        2 => stream.last.next().unwrap_or(Id::MAX),
        _ if stream.entries.is_empty() => Id::new(rng.below(3), rng.below(3)),
        _ => *stream.entries.keys().nth(rng.below(stream.entries.len() as u64) as usize).unwrap(),
    }
}

fn trim(rng: &mut Rng, stream: &Stream) -> Trim {
    let len = stream.entries.len() as u64;
    let to = if rng.chance(2) { TrimTo::Len(rng.below(len + 2)) } else { TrimTo::Id(id(rng, stream)) };
    Trim { to, whole_leaves: rng.chance(2), limit: if rng.chance(4) { 1 + rng.below(200) } else { 0 } }
}

/// Checks how many were trimmed, and removes them from the model.
fn trimmed(stream: &mut Stream, trim: &Trim, count: u64) {
    let excess = stream.excess(trim.to);
    assert!(count <= excess, "{count} of {excess} were trimmed by {trim:?}");
    assert!(trim.limit == 0 || count <= trim.limit || !trim.whole_leaves);
    if !trim.whole_leaves && trim.limit == 0 {
        assert_eq!(count, excess);
    }
    stream.trim(count);
}

fn new_fields(rng: &mut Rng) -> Fields {
    if rng.chance(100) {
        return vec![(vec![b'n'; rng.below(300) as usize], vec![b'v'; rng.below(10_000) as usize])];
    }
    match rng.below(4) {
        0 => (0..1 + rng.below(4)).map(|_| (rng.text(20), rng.text(50))).collect(),
        _ => vec![(b"sensor".to_vec(), rng.text(50)), (b"value".to_vec(), rng.text(50))],
    }
}

fn add(rng: &mut Rng, txn: &mut Txn, key: &[u8], state: &mut State<Stream>) {
    let existed = state.contains_key(key);
    let mut stream = state.get(key).cloned().unwrap_or_default();
    let fields = new_fields(rng);
    let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
    let wanted = match rng.below(8) {
        0 => NewId::Exactly(id(rng, &stream)),
        1 => NewId::At(stream.last.ms),
        2 => NewId::At(stream.last.ms.saturating_add(rng.below(2))),
        3 => NewId::Exactly(Id::new(
            stream.last.ms.saturating_add(rng.below(300)),
            rng.next() >> rng.below(64),
        )),
        _ => NewId::Now,
    };
    // The greatest ID would be the end of the test.
    if matches!(wanted, NewId::Exactly(Id::MAX)) || stream.last.ms == u64::MAX {
        return;
    }
    let trim = rng.chance(10).then(|| trim(rng, &stream));
    let create = !rng.chance(10);
    let added = txn.stream_add(0, key, wanted, pairs, trim.as_ref(), create).unwrap();
    assert_eq!(added.is_none(), !existed && !create);
    match added {
        None => return,
        Some(Err(refused)) => {
            assert_eq!(refused, Refused::NotGreater);
            assert!(match wanted {
                NewId::Exactly(id) => id <= stream.last,
                NewId::At(ms) => ms < stream.last.ms || ms == 0,
                NewId::Now => false,
            });
            assert_eq!(txn.exists(0, key), existed);
            return;
        }
        Some(Ok(Added { id, trimmed: count })) => {
            assert!(id > stream.last);
            match wanted {
                NewId::Exactly(wanted) => assert_eq!(id, wanted),
                NewId::At(ms) => assert_eq!(id.ms, ms),
                NewId::Now => assert!(id.ms >= txn.now_ms()),
            }
            stream.entries.insert(id, fields);
            stream.last = id;
            stream.added += 1;
            match &trim {
                Some(trim) => trimmed(&mut stream, trim, count),
                None => assert_eq!(count, 0),
            }
        }
    }
    state.insert(key.to_vec(), stream);
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<Stream>) {
    let (key, to) = (key(rng), key(rng));
    if rng.below(20) < 10 {
        return add(rng, txn, &key, state);
    }
    if rng.chance(400) {
        assert_eq!(txn.remove(0, &key), state.remove(&key).is_some());
        return;
    }
    if rng.chance(100) {
        assert_eq!(txn.copy(0, &key, 0, &to).unwrap(), state.contains_key(&key));
        if let Some(stream) = state.get(&key).cloned() {
            state.insert(to, stream);
        }
        return;
    }
    let (group, consumer) = (name("group", rng), name("consumer", rng));
    if rng.chance(20) {
        let create = rng.chance(2);
        let existed = state.contains_key(&key);
        let model = state.get(&key).cloned().unwrap_or_default();
        let after = (!rng.chance(3)).then(|| id(rng, &model));
        let read = rng.chance(3).then(|| rng.below(100));
        let made = txn.stream_add_group(0, &key, &group, after, read, create).unwrap();
        if !existed && !create {
            assert_eq!(made, None);
            return;
        }
        assert_eq!(made, Some(!model.groups.contains_key(&group)));
        let last = after.unwrap_or(model.last);
        let new = Group { last, read, ..Group::default() };
        state.entry(key).or_default().groups.entry(group).or_insert(new);
        return;
    }
    let Some(stream) = state.get_mut(&key) else { return };
    let now_ms = txn.now_ms();
    match rng.below(24) {
        0..5 => {
            let ids: Vec<Id> = (0..1 + rng.below(4)).map(|_| id(rng, stream)).collect();
            let deleted = txn.stream_delete(0, &key, &ids).unwrap();
            let gone: Vec<Id> = ids.into_iter().filter(|id| stream.entries.remove(id).is_some()).collect();
            assert_eq!(deleted, gone.len() as u64);
            stream.deleted_max = gone.into_iter().fold(stream.deleted_max, Id::max);
        }
        5 if rng.chance(3) => {
            let trim = trim(rng, stream);
            let count = txn.stream_trim(0, &key, &trim).unwrap();
            trimmed(stream, &trim, count);
        }
        6 => {
            let last = Id::new(stream.last.ms.saturating_add(rng.below(2)), stream.last.seq);
            let last = last.max(stream.last).min(Id::new(1 << 62, 0)).max(stream.last);
            let added = rng.chance(4).then(|| rng.below(10_000).max(stream.entries.len() as u64));
            assert!(txn.stream_set_ids(0, &key, last, added, None).unwrap());
            stream.last = last;
            stream.added = added.unwrap_or(stream.added);
        }
        7 => {
            let removed = rng.chance(4).then(|| txn.stream_remove_group(0, &key, &group).unwrap());
            if let Some(removed) = removed {
                assert_eq!(removed, stream.groups.remove(&group).is_some());
            }
        }
        8 => {
            let after = (!rng.chance(2)).then(|| id(rng, stream));
            let read = rng.chance(2).then(|| rng.below(100));
            let set = txn.stream_set_group(0, &key, &group, after, read).unwrap();
            assert_eq!(set, stream.groups.contains_key(&group));
            if let Some(model) = stream.groups.get_mut(&group) {
                (model.last, model.read) = (after.unwrap_or(stream.last), read);
            }
        }
        9 if rng.chance(2) => {
            let removed = txn.stream_remove_consumer(0, &key, &group, &consumer).unwrap();
            let model = stream.groups.get_mut(&group);
            let there = model.as_ref().is_some_and(|model| model.consumers.contains(&consumer));
            assert_eq!(removed.is_some(), there);
            if let Some(model) = model {
                let before = model.pending.len();
                model.consumers.remove(&consumer);
                model.pending.retain(|_, of| of.0 != consumer);
                assert_eq!(removed.unwrap_or(0), (before - model.pending.len()) as u64);
            }
        }
        9 | 10 => {
            let made = txn.stream_add_consumer(0, &key, &group, &consumer).unwrap();
            let new = stream.groups.get_mut(&group).map(|model| model.consumers.insert(consumer));
            assert_eq!(made, new);
        }
        11..16 => {
            let (count, no_ack) = (1 + rng.below(30), rng.chance(4));
            let mut got = Vec::new();
            let done = txn
                .stream_read_new(0, &key, &group, &consumer, count, no_ack, |entry| got.push(owned(&entry)))
                .unwrap();
            let Some(mut model) = stream.groups.remove(&group) else {
                assert_eq!(done, None);
                return;
            };
            let done = done.unwrap();
            assert_eq!(done.is_new, model.consumers.insert(consumer.clone()));
            let from = model.last;
            let expected: Vec<(Id, Fields)> = stream
                .entries
                .iter()
                .filter(|(id, _)| **id > from)
                .take(count as usize)
                .map(|(id, fields)| (*id, fields.clone()))
                .collect();
            assert_eq!(got, expected);
            assert_eq!(done.entries, expected.len() as u64);
            for (id, _) in expected {
                model.read = match model.read {
                    Some(read) if !stream.has_holes(id) => Some(read + 1),
                    read if stream.added == 0 => read,
                    _ => stream.entries_up_to(id),
                };
                model.last = id;
                if !no_ack {
                    model.pending.insert(id, (consumer.clone(), now_ms, 1));
                }
            }
            stream.groups.insert(group, model);
        }
        16 | 17 => {
            let (from, count) = (id(rng, stream), 1 + rng.below(20));
            let mut got = Vec::new();
            let done = txn
                .stream_read_pending(0, &key, &group, &consumer, from, count, |id, entry| {
                    got.push((id, entry.map(|entry| owned(&entry).1)));
                })
                .unwrap();
            let Some(model) = stream.groups.get_mut(&group) else {
                assert_eq!(done, None);
                return;
            };
            model.consumers.insert(consumer.clone());
            let own = model.pending.range_mut(from..).filter(|(_, of)| of.0 == consumer);
            let mut expected = Vec::new();
            for (id, (_, at, deliveries)) in own.take(count as usize) {
                let fields = stream.entries.get(id).cloned();
                if fields.is_some() {
                    (*at, *deliveries) = (now_ms, *deliveries + 1);
                }
                expected.push((*id, fields));
            }
            assert_eq!(got, expected);
        }
        18..21 => {
            let Some(model) = stream.groups.get_mut(&group) else { return };
            let mut ids: Vec<Id> = model.pending.keys().copied().filter(|_| rng.chance(3)).collect();
            ids.push(Id::new(7, 7));
            let acknowledged = txn.stream_acknowledge(0, &key, &group, &ids).unwrap();
            let known = ids.iter().filter(|id| model.pending.remove(id).is_some()).count();
            assert_eq!(acknowledged, known as u64);
        }
        21 | 22 => {
            let claim = Claim {
                delivered_ms: now_ms - rng.below(1000),
                deliveries: rng.chance(3).then(|| rng.below(1000)),
                keep_deliveries: rng.chance(2),
                force: rng.chance(2),
                ..Claim::default()
            };
            let ids: Vec<Id> = (0..1 + rng.below(5)).map(|_| id(rng, stream)).collect();
            let (mut got, last) = (Vec::new(), if rng.chance(4) { id(rng, stream) } else { Id::MIN });
            let done = txn
                .stream_claim(0, &key, &group, &consumer, &claim, last, &ids, |entry| got.push(owned(&entry)))
                .unwrap();
            let Some(model) = stream.groups.get_mut(&group) else {
                assert_eq!(done, None);
                return;
            };
            model.consumers.insert(consumer.clone());
            model.last = model.last.max(last);
            let mut expected = Vec::new();
            for id in ids {
                let Some(fields) = stream.entries.get(&id) else {
                    model.pending.remove(&id);
                    continue;
                };
                if !claim.force && !model.pending.contains_key(&id) {
                    continue;
                }
                let of = model.pending.entry(id).or_insert((Vec::new(), 0, 1));
                let counted = of.2 + u64::from(!claim.keep_deliveries);
                *of = (consumer.clone(), claim.delivered_ms, claim.deliveries.unwrap_or(counted));
                expected.push((id, fields.clone()));
            }
            assert_eq!(got, expected);
        }
        _ => {
            let claim = Claim { delivered_ms: now_ms, ..Claim::default() };
            let (from, count) = (id(rng, stream), 1 + rng.below(10));
            let mut got = Vec::new();
            let done = txn
                .stream_autoclaim(0, &key, &group, &consumer, &claim, from, count, |entry| got.push(entry.id))
                .unwrap();
            let Some(model) = stream.groups.get_mut(&group) else {
                assert_eq!(done, None);
                return;
            };
            let done = done.unwrap();
            model.consumers.insert(consumer.clone());
            let reached: Vec<Id> = model.pending.range(from..).map(|(id, _)| *id).collect();
            let (now, later) = reached.split_at(reached.len().min(count as usize));
            assert_eq!(done.next, later.first().copied().unwrap_or(Id::MIN));
            let (there, gone): (Vec<Id>, Vec<Id>) =
                now.iter().partition(|id| stream.entries.contains_key(id));
            assert_eq!((got, done.gone), (there.clone(), gone.clone()));
            gone.iter().for_each(|id| drop(model.pending.remove(id)));
            for id in there {
                let of = model.pending.get_mut(&id).unwrap();
                *of = (consumer.clone(), now_ms, of.2 + 1);
            }
        }
    }
}

fn history(seed: u64) {
    play(
        seed,
        1500,
        |rng, _, txn, state| {
            if rng.chance(12) {
                let key = key(rng);
                assert_eq!(read(txn, &key).as_ref(), state.get(&key));
            }
            change(rng, txn, state);
        },
        |txn, key, model| assert_eq!(read(txn, key).as_ref(), model),
        |txn, key| _ = txn.remove(0, key),
    );
}

#[test]
fn streams_do_what_the_model_does() {
    with_seeds(12, 20, history);
}

#[test]
fn other_types_are_refused() {
    let mut world_rng = Rng(1);
    let world = World::new(&mut world_rng);
    let mut txn = world.store().begin_keys([&b"key"[..]]);
    txn.set(0, b"key", b"value", false).unwrap();
    let fields = [(&b"name"[..], &b"value"[..])];
    let added = txn.stream_add(0, b"key", NewId::Now, fields.into_iter(), None, true);
    assert_eq!(added, Err(Error::WrongType));
    assert!(matches!(txn.stream_at(0, b"key"), Err(Error::WrongType)));
    assert_eq!(txn.stream_add_group(0, b"key", b"group", None, None, true), Err(Error::WrongType));
}
