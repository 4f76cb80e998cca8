//! Collections in the heap, and those that are frozen: looking at one lays it out in memory of the thread's own, changing
//! one brings it back into the heap, and so does looking at it again while it is remembered.

use super::scratch::Scratch;
use super::{
    Txn,
    error::{Error, Result},
    fetched_at,
    target::Target,
};
use crate::{
    collections::{Context, object::Type, serial},
    partition::{
        Found, Partition,
        cold::Cold,
        frozen::{Slice, SliceLimits},
    },
};
use holdfast_heap::Arena;
use holdfast_log::Admission;
use std::sync::atomic::Ordering::Relaxed;

/// An object to look at; [`Txn::parts`] has its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its offset.
    pub obj: u64,
    is_view: bool,
}

/// What a frozen collection's item holds.
struct Value {
    bytes: Vec<u8>,
    /// Whether it was in the cache: somebody has looked at it not long ago.
    was_cached: bool,
}

impl Txn<'_> {
    /// The object of an entry that is no string's, to look at.
    pub(super) fn locate(&mut self, target: Target<'_>, found: Found) -> Result<Located> {
        if found.word.in_heap() {
            let obj = found.word.offset();
            self.note_use(target, found);
            return Ok(Located { obj, is_view: false });
        }
        if found.word.pending_number().is_some() {
            return self.in_heap(target, found).map(|obj| Located { obj, is_view: false });
        }
        let lsn = found.word.lsn(self.shared().log.tail());
        if let Some(obj) = self.scratch.as_ref().and_then(|scratch| scratch.view(lsn)) {
            return Ok(Located { obj, is_view: true });
        }
        let value = self.frozen_value(target, found)?;
        if value.was_cached && self.may_return(&value.bytes) {
            return self.thaw(target, found, &value.bytes).map(|obj| Located { obj, is_view: false });
        }
        let shared = self.shared();
        if value.was_cached {
            self.note_use(target, found);
        }
        let part = self.locks.get(target.partition);
        if !value.was_cached {
            let known = part.known_after(target.db, found.slot, self.notes_uses);
            part.count_return(shared, target.digest);
            part.cache_value(shared, target.db, found.slot, target.digest, target.key, &value.bytes, known);
        }
        let limits = part.limits.clone();
        let context = Context {
            hasher: &shared.hasher,
            limits: &limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let scratch = self.scratch.get_or_insert_with(Scratch::take);
        let obj = scratch.show(context, lsn, &value.bytes)?;
        Ok(Located { obj, is_view: true })
    }

    /// The heap offset of the object of an entry that is no string's, to change it.
    pub(super) fn in_heap(&mut self, target: Target<'_>, found: Found) -> Result<u64> {
        if found.word.in_heap() {
            let obj = found.word.offset();
            self.note_use(target, found);
            return Ok(obj);
        }
        let value = self.frozen_value(target, found)?;
        self.thaw(target, found, &value.bytes)
    }

    /// Sees to it that a collection of a type, if there is one at the key, can be changed without waiting for the medium: to
    /// be called before something else is changed.
    pub fn warm(&mut self, db: u8, key: &[u8], ty: Type) -> Result<()> {
        self.warm_object(db, key, ty).map(drop)
    }

    /// The same; returns the collection.
    pub(crate) fn warm_object(&mut self, db: u8, key: &[u8], ty: Type) -> Result<Option<Located>> {
        let target = self.target(db, key);
        match self.find(target) {
            Some(found) if found.word.ty() == ty => {
                let obj = self.in_heap(target, found)?;
                Ok(Some(Located { obj, is_view: false }))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn arena<'a>(&'a self, part: &'a Partition, located: Located) -> &'a Arena {
        match &self.scratch {
            Some(scratch) if located.is_view => scratch.arena(),
            _ => &part.arena,
        }
    }

    /// Forgets what was laid out to be looked at; nothing of it may be in use.
    pub fn forget_views(&mut self) {
        if let Some(scratch) = &mut self.scratch {
            scratch.clear();
        }
    }

    /// The bytes of a frozen collection ([`serial`]), to make another one like it.
    pub(super) fn frozen_bytes(&mut self, target: Target<'_>, found: Found) -> Result<Vec<u8>> {
        self.frozen_value(target, found).map(|value| value.bytes)
    }

    fn frozen_value(&mut self, target: Target<'_>, found: Found) -> Result<Value> {
        let shared = self.shared();
        if let Some(number) = found.word.pending_number() {
            return Ok(Value { bytes: self.batch.value(number).to_vec(), was_cached: false });
        }
        let lsn = found.word.lsn(shared.log.tail());
        if let Some(fetched) = fetched_at(&self.fetched, lsn) {
            let item = fetched.item().map_err(|why| Error::Corrupt(why.into()))?;
            return Ok(Value { bytes: item.stored.to_vec(), was_cached: false });
        }
        let part = self.locks.get(target.partition);
        let Some(copy) = part.copy_of(target.db, found.slot) else {
            return Err(Error::Cold(Cold::item(shared, found.word)));
        };
        self.lookups.cached += u64::from(self.counts_lookups);
        let bytes = part.cached(copy, target.key).map(<[u8]>::to_vec);
        // The name of an object is not compared either: that two keys have the same digest is a thing for strings, whose
        // values can be told apart at no cost.
        let bytes = bytes.ok_or_else(|| Error::Corrupt("two keys have the same digest".into()))?;
        Ok(Value { bytes, was_cached: true })
    }

    /// Whether a collection that is in use again comes back to the heap, though it is only looked at.
    fn may_return(&mut self, bytes: &[u8]) -> bool {
        let (redo, shared) = (serial::redo_max(bytes), self.shared());
        !self.keeps_expired
            && shared.budget.has_room_in_heap()
            && shared.log.admit(redo) == Admission::Ok
            && self.reserve(redo).is_ok()
    }

    /// Brings a frozen collection back into the heap.
    fn thaw(&mut self, target: Target<'_>, found: Found, bytes: &[u8]) -> Result<u64> {
        self.reserve_besides(serial::redo_max(bytes))?;
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let context = Context {
            hasher: &shared.hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let obj = serial::import(&mut part.arena, &mut self.batch.tx, context, target.key, bytes)?;
        let found = part.thaw(shared, &mut self.batch, target.db, found, obj);
        self.note_use(target, found);
        self.engine.counters.thawed.fetch_add(1, Relaxed);
        Ok(obj)
    }

    /// Gives the RAM of free pages of the transaction's first partition back, of so many extents; whether there may be more.
    pub(crate) fn give_back(&mut self, extents: usize) -> bool {
        self.locks.first().1.arena.give_back(&mut self.batch.tx, extents)
    }

    /// Freezes collections of the transaction's first partition; see [`Partition::freeze`].
    pub(crate) fn freeze(&mut self, db: u8, cursor: &mut u64, limits: &SliceLimits) -> Slice {
        let shared = self.shared();
        let Txn { locks, batch, allowance, .. } = self;
        let part = locks.first().1;
        // What is garbage may be freed in part. That a database is none holds as long as the lock.
        if shared.databases.is_garbage(db) || part.len(db) == 0 {
            return Slice { ended: true, ..Slice::default() };
        }
        let has_room = |bytes| allowance.add(bytes);
        let slice = part.freeze(shared, batch, db, cursor, limits, has_room);
        self.engine.counters.frozen.fetch_add(slice.keys, Relaxed);
        slice
    }
}
