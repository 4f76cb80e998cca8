//! Transactions for who embeds the store: each happens as a whole or not at all.
//!
//! What a transaction changes is changed in place, and cannot be taken back. So a closure reads, decides, and says what is to
//! be written ([`Writes`]). That is looked at as a whole: whether its keys were named and hold what it wants, whether all
//! that it needs is in memory, and whether log and memory have room for it. Only then is anything written, and nothing
//! of it can fail any more.

use super::Store;
use crate::{
    collections::{hash::Expiry, list::End, redo_max, stream::Stream},
    format::entry_word::Type,
    partition::{
        budget::Memory,
        cold::{Cold, Fetched},
        databases::{PHYSICAL_DATABASES, SYSTEM_DATABASE},
    },
    txn::{
        Txn,
        error::{Error, Result},
    },
    typed::{hash::Hash, list::List, set::Set, string::StringValue, zset::Zset},
};
use holdfast_log::{Admission, Lsn, Purpose};
use std::{collections::BTreeMap, thread, time::Duration};

/// How long is waited for room before it is looked for again.
pub(super) const RETRY: Duration = Duration::from_millis(1);
/// Bytes that a transaction may write: a batch of the log has less than 4 GiB, and what goes with it takes a part.
const BYTES_MAX: usize = 1 << 30;

/// What a transaction looks at: the keys that were named for it, as they are before its writes.
pub struct Reader<'r, 's> {
    txn: &'r mut Txn<'s>,
    keys: &'r [&'r [u8]],
}

impl Reader<'_, '_> {
    /// The string value of a key.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Result<Option<&[u8]>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.get(db, key)
    }

    /// The same, which may lie in pieces.
    pub fn string_at(&mut self, db: u8, key: &[u8]) -> Result<Option<StringValue<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.string_at(db, key)
    }

    /// The hash at a key.
    pub fn hash_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Hash<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.hash_at(db, key)
    }

    /// The list at a key.
    pub fn list_at(&mut self, db: u8, key: &[u8]) -> Result<Option<List<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.list_at(db, key)
    }

    /// The set at a key.
    pub fn set_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Set<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.set_at(db, key)
    }

    /// The sorted set at a key.
    pub fn zset_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Zset<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.zset_at(db, key)
    }

    /// The stream at a key.
    pub fn stream_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Stream<'_>>> {
        check_key(self.txn, self.keys, db, key)?;
        self.txn.stream_at(db, key)
    }

    /// The type of a key's value.
    pub fn type_of(&mut self, db: u8, key: &[u8]) -> Result<Option<Type>> {
        check_key(self.txn, self.keys, db, key)?;
        Ok(self.txn.type_of(db, key))
    }

    /// When a key expires (Unix time in milliseconds): `None` without the key, `Some(None)` without an expiry.
    pub fn expiry(&mut self, db: u8, key: &[u8]) -> Result<Option<Option<u64>>> {
        check_key(self.txn, self.keys, db, key)?;
        Ok(self.txn.expiry(db, key))
    }
}

/// What a transaction is to write, in order.
#[derive(Default)]
pub struct Writes<'w>(Vec<Write<'w>>);

struct Write<'w> {
    db: u8,
    key: Vec<u8>,
    does: Does,
    /// Whether data may grow by it.
    grows: bool,
    /// Bytes of log that it takes at most, if no encoding changes.
    redo: usize,
    /// Bytes of its key and values.
    input: usize,
    apply: Apply<'w>,
}

type Apply<'w> = Box<dyn FnOnce(&mut Txn, u8, &[u8]) -> Result<()> + 'w>;

/// What a write does to the type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It is a string afterwards, whatever it was.
    MakesString,
    /// The key is gone.
    Removes,
    /// It stays what it is.
    Keeps,
    /// It has to be this before, or nothing, and is this afterwards.
    Changes(Type),
}

impl<'w> Writes<'w> {
    fn push(
        &mut self,
        (db, key): (u8, &[u8]),
        does: Does,
        (elements, bytes): (usize, usize),
        apply: impl FnOnce(&mut Txn, u8, &[u8]) -> Result<()> + 'w,
    ) {
        let redo = redo_max(1 + elements, key.len() + bytes);
        let (input, grows) = (key.len() + bytes, matches!(does, Does::MakesString | Does::Changes(_)));
        self.0.push(Write { db, key: key.to_vec(), does, grows, redo, input, apply: Box::new(apply) });
    }

    /// Makes `value` the string value of a key, whatever it held, without an expiry.
    pub fn set(&mut self, db: u8, key: &[u8], value: impl Into<Vec<u8>>) {
        let value = value.into();
        self.push((db, key), Does::MakesString, (1, value.len()), move |txn, db, key| {
            txn.set(db, key, &value, false)
        });
    }

    /// The same for a few bytes, which can be written whenever keys can be removed: for what is to be said before they are.
    pub fn set_before_removals(&mut self, db: u8, key: &[u8], value: impl Into<Vec<u8>>) {
        self.set(db, key, value);
        self.0.last_mut().expect("pushed above").grows = false;
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, db: u8, key: &[u8]) {
        self.push((db, key), Does::Removes, (0, 0), |txn, db, key| {
            txn.remove(db, key);
            Ok(())
        });
    }

    /// Sets or takes away the expiry of a key (Unix time in milliseconds), if it is there.
    pub fn set_expiry(&mut self, db: u8, key: &[u8], at_ms: Option<u64>) {
        self.push((db, key), Does::Keeps, (0, 0), move |txn, db, key| {
            txn.set_expiry(db, key, at_ms).map(drop)
        });
    }

    /// Gives fields of a hash their values, and makes it if it is missing.
    pub fn hash_set<N: Into<Vec<u8>>, V: Into<Vec<u8>>>(
        &mut self,
        db: u8,
        key: &[u8],
        fields: impl IntoIterator<Item = (N, V)>,
    ) {
        let fields: Vec<_> = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let bytes = fields.iter().map(|(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len()).sum();
        self.push((db, key), Does::Changes(Type::Hash), (2 * fields.len(), bytes), move |txn, db, key| {
            let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            txn.hash_set(db, key, fields, Expiry::Clear).map(drop)
        });
    }

    /// Removes fields of a hash; the key goes with the last one.
    pub fn hash_remove<N: Into<Vec<u8>>>(&mut self, db: u8, key: &[u8], names: impl IntoIterator<Item = N>) {
        let names: Vec<Vec<u8>> = names.into_iter().map(Into::into).collect();
        self.push((db, key), Does::Changes(Type::Hash), (2 * names.len(), 0), move |txn, db, key| {
            txn.hash_remove(db, key, names.iter().map(Vec::as_slice)).map(drop)
        });
    }

    /// Adds elements at an end of a list, one after the other, and makes it if it is missing.
    pub fn list_push<E: Into<Vec<u8>>>(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        elements: impl IntoIterator<Item = E>,
    ) {
        let (elements, bytes) = owned(elements);
        self.push((db, key), Does::Changes(Type::List), (elements.len(), bytes), move |txn, db, key| {
            txn.list_push(db, key, end, elements.iter().map(Vec::as_slice), true).map(drop)
        });
    }

    /// Adds members to a set, and makes it if it is missing.
    pub fn set_add<M: Into<Vec<u8>>>(&mut self, db: u8, key: &[u8], members: impl IntoIterator<Item = M>) {
        let (members, bytes) = owned(members);
        self.push((db, key), Does::Changes(Type::Set), (members.len(), bytes), move |txn, db, key| {
            txn.set_add(db, key, members.iter().map(Vec::as_slice)).map(drop)
        });
    }

    /// Removes members of a set; the key goes with the last one.
    pub fn set_remove<M: Into<Vec<u8>>>(&mut self, db: u8, key: &[u8], members: impl IntoIterator<Item = M>) {
        let (members, _) = owned(members);
        self.push((db, key), Does::Changes(Type::Set), (members.len(), 0), move |txn, db, key| {
            txn.set_remove(db, key, members.iter().map(Vec::as_slice)).map(drop)
        });
    }

    /// Gives members of a sorted set their scores, which are numbers, and makes it if it is missing.
    pub fn zset_add<M: Into<Vec<u8>>>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = (M, f64)>,
    ) {
        let members: Vec<(Vec<u8>, f64)> =
            members.into_iter().map(|(member, score)| (member.into(), score)).collect();
        let bytes = members.iter().map(|(member, _)| member.len() + 8).sum();
        self.push((db, key), Does::Changes(Type::Zset), (2 * members.len(), bytes), move |txn, db, key| {
            let members = members.iter().map(|(member, score)| (&member[..], *score));
            txn.zset_add(db, key, Default::default(), members).map(drop)
        });
    }

    /// Removes members of a sorted set; the key goes with the last one.
    pub fn zset_remove<M: Into<Vec<u8>>>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = M>,
    ) {
        let (members, _) = owned(members);
        self.push((db, key), Does::Changes(Type::Zset), (2 * members.len(), 0), move |txn, db, key| {
            txn.zset_remove(db, key, members.iter().map(Vec::as_slice)).map(drop)
        });
    }

    /// Bytes of log that they take at most, beside `conversions`: what a write makes may get another encoding by the next.
    fn redo_max(&self, conversions: usize) -> usize {
        conversions + self.0.iter().map(|write| 2 * write.redo).sum::<usize>()
    }

    /// Whether data may grow by them.
    fn may_grow(&self) -> bool {
        self.0.iter().any(|write| write.grows)
    }

    /// Looks whether all can be done, and returns what has to be fetched for it, and the bytes of log that collections take
    /// at most which get another encoding.
    fn check(&self, txn: &mut Txn, keys: &[&[u8]]) -> Result<(Vec<Cold>, usize)> {
        let mut types: BTreeMap<(u8, &[u8]), Option<Type>> = BTreeMap::new();
        let (mut cold, mut conversions) = (Vec::new(), 0);
        for write in &self.0 {
            let (db, key) = (write.db, &write.key[..]);
            check_key(txn, keys, db, key)?;
            let is_first = !types.contains_key(&(db, key));
            let ty = types.entry((db, key)).or_insert_with(|| txn.type_of(db, key));
            match write.does {
                Does::MakesString => *ty = Some(Type::String),
                Does::Removes => *ty = None,
                Does::Keeps => {}
                Does::Changes(wanted) if ty.is_some_and(|ty| ty != wanted) => return Err(Error::WrongType),
                Does::Changes(wanted) => {
                    // It may be frozen, and damaged.
                    match txn.warm(db, key, wanted) {
                        Err(Error::Cold(one)) => cold.push(one),
                        warm if is_first => {
                            conversions += warm.map(|()| txn.conversion_among_many(db, key))?;
                        }
                        warm => warm?,
                    }
                    *ty = Some(wanted);
                }
            }
        }
        Ok((cold, conversions))
    }
}

fn owned<E: Into<Vec<u8>>>(elements: impl IntoIterator<Item = E>) -> (Vec<Vec<u8>>, usize) {
    let elements: Vec<Vec<u8>> = elements.into_iter().map(Into::into).collect();
    let bytes = elements.iter().map(Vec::len).sum();
    (elements, bytes)
}

fn check_key(txn: &Txn, keys: &[&[u8]], db: u8, key: &[u8]) -> Result<()> {
    let is_there = usize::from(db) < PHYSICAL_DATABASES
        && (db == SYSTEM_DATABASE || txn.shared().databases.logical(db).is_some());
    if !is_there {
        return Err(Error::NoDatabase(db));
    }
    if !keys.contains(&key) {
        return Err(Error::NotNamed);
    }
    Ok(())
}

impl Store {
    /// Runs a transaction over some keys: `f` reads them and says what is to be written, which is done when `f` returns `Ok`,
    /// all of it and as one batch. Returns what `f` returned, and the LSN that the log must be durable beyond for it to
    /// be safe ([`holdfast_log::Log::wait_durable`]); 0: nothing to wait for. `f` sees the keys as they are before its
    /// writes. It runs again whenever something had to be fetched or waited for. Blocks meanwhile.
    ///
    /// # Errors
    /// What `f` returns; [`Error::NoDatabase`] and [`Error::NotNamed`] for keys that are none of `keys`; [`Error::WrongType`],
    /// if a write does not fit what is there, or will be there by then; [`Error::Full`] if there is no
    /// room in memory; [`Error::NotAdmitted`] if the log takes nothing. Nothing is written then.
    pub fn run<T>(
        &self,
        keys: &[&[u8]],
        f: impl FnMut(&mut Reader, &mut Writes) -> Result<T>,
    ) -> Result<(T, Lsn)> {
        self.run_with(Vec::new(), keys, f)
    }

    /// The same, with what was fetched for it before.
    pub(super) fn run_with<T>(
        &self,
        mut fetched: Vec<Fetched>,
        keys: &[&[u8]],
        mut f: impl FnMut(&mut Reader, &mut Writes) -> Result<T>,
    ) -> Result<(T, Lsn)> {
        loop {
            // Without a key, any partition.
            let mut txn =
                if keys.is_empty() { self.begin(&[0]) } else { self.begin_keys(keys.iter().copied()) };
            txn.supply(std::mem::take(&mut fetched));
            txn.expect(0, Purpose::Write, true)?;
            let mut writes = Writes::default();
            let done = f(&mut Reader { txn: &mut txn, keys }, &mut writes);
            let checked = done.and_then(|done| {
                let (cold, conversions) = writes.check(&mut txn, keys)?;
                if cold.is_empty() {
                    self.admit_all(&mut txn, &writes, conversions)?;
                }
                Ok((done, cold))
            });
            let cold = match checked {
                Ok((done, cold)) if cold.is_empty() => {
                    for write in writes.0 {
                        txn.count_call(write.input);
                        let applied = (write.apply)(&mut txn, write.db, &write.key);
                        applied.expect("it was looked at before, and there was room");
                    }
                    return Ok((done, txn.commit()));
                }
                Ok((_, cold)) => cold,
                Err(Error::Cold(cold)) => vec![cold],
                Err(Error::NotAdmitted(Admission::Busy)) => Vec::new(),
                Err(error) => return Err(error),
            };
            fetched = txn.take_fetched();
            drop(txn);
            if cold.is_empty() {
                self.log().kick();
                thread::sleep(RETRY);
            }
            fetched.extend(self.fetch_all(&cold));
        }
    }

    /// Has room for all writes, in memory and in the log, or says why not.
    fn admit_all(&self, txn: &mut Txn, writes: &Writes, conversions: usize) -> Result<()> {
        if writes.0.is_empty() {
            return Ok(());
        }
        self.admit_bytes(txn, writes.redo_max(conversions), writes.may_grow())
    }

    /// The same for so many bytes of log.
    pub(super) fn admit_bytes(&self, txn: &mut Txn, bytes: usize, may_grow: bool) -> Result<()> {
        let heap_max = self.heap_bytes_max as usize;
        if bytes > BYTES_MAX {
            return Err(Error::NotAdmitted(Admission::Full));
        }
        if may_grow {
            if self.shared().heap.allocated_bytes() as usize + bytes > heap_max {
                return Err(Error::Full);
            }
            match self.memory() {
                Memory::Ok => {}
                Memory::Busy => return Err(Error::NotAdmitted(Admission::Busy)),
                Memory::Out => return Err(Error::Full),
            }
        }
        match if may_grow { self.admit(bytes) } else { self.admit_removal(bytes) } {
            Admission::Ok => {}
            refusal => return Err(Error::NotAdmitted(refusal)),
        }
        txn.expect(0, if may_grow { Purpose::Write } else { Purpose::Remove }, true)?;
        txn.reserve(bytes)?;
        txn.make_room(bytes)
    }
}
