//! Keys and fields of hashes that have expired: they are removed when a transaction meets them, or by the maintenance thread,
//! which looks for them.

use super::{Txn, target::Target};
use crate::{
    collections::{Context, hash, object},
    format::digest::Digest,
    partition::{Found, batch::Written, changes::ChangeKind, cold::ColdItem, observers::Notify},
};
use holdfast_heap::AbsentPage;
use std::sync::atomic::Ordering::Relaxed;

/// Expired fields of a hash that are removed at once, so that a transaction does not take long for it.
pub(super) const PURGED_MAX: usize = 1000;
/// The same where some may have to be read before.
const PURGED_COLD_MAX: usize = 50;
/// Bytes of log that this takes, about.
const PURGE_BYTES: usize = PURGED_MAX * 64;

impl Txn<'_> {
    /// Removes what is at a key, which has expired.
    #[cold]
    pub(super) fn remove_expired(&mut self, target: Target<'_>) {
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let Some(found) = part.find(shared, target.db, target.digest) else { return };
        part.remove(shared, &mut self.batch, target.db, target.digest, found);
        self.note(target, Notify::All);
        self.changes.add(ChangeKind::Expired, target.db, target.key);
        self.engine.counters.expired.fetch_add(1, Relaxed);
    }

    /// Removes fields of a hash that have expired, so many at most, and the key if no others are left; whether the key is still there.
    pub(super) fn purge_fields(&mut self, target: Target<'_>, found: Found, fields_max: usize) -> bool {
        let (shared, obj) = (self.shared(), found.word.offset());
        let part = self.locks.get(target.partition);
        if !hash::may_have_expired(&part.arena, obj, self.expired_ms) {
            return true;
        }
        let purges = self.may_expire() && self.takes_removal(PURGE_BYTES);
        let part = self.locks.get(target.partition);
        let context = Context {
            hasher: &shared.hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        if !purges {
            // The fields cannot be removed now, and count as gone.
            let is_there = hash::fields(&part.arena, context, obj).next().is_some();
            self.has_passed_over |= !is_there;
            return is_there;
        }
        let purged = hash::Writer::new(&mut part.arena, &mut self.batch.tx, obj, context).purge(fields_max);
        let is_empty = match purged == fields_max {
            // What is left goes with the key.
            true => hash::has_expired(&part.arena, obj, self.expired_ms),
            false => hash::len(&part.arena, obj) == 0,
        };
        if is_empty {
            part.remove(shared, &mut self.batch, target.db, target.digest, found);
            self.engine.counters.expired.fetch_add(1, Relaxed);
        }
        if purged > 0 {
            self.note(target, Notify::All);
            self.changes.add(ChangeKind::FieldsExpired, target.db, target.key);
        }
        if is_empty {
            self.changes.add(ChangeKind::LastFieldExpired, target.db, target.key);
        }
        !is_empty
    }

    /// Looks at some keys of a partition that have an expiry, from a cursor on, and removes those that have expired:
    /// how many it looked at and removed. If their names are wanted, those whose names must be fetched are returned
    /// instead.
    pub(crate) fn expire_some(
        &mut self,
        db: u8,
        cursor: &mut u64,
        sample: usize,
    ) -> (usize, usize, Vec<ColdItem>) {
        let shared = self.shared();
        if shared.databases.is_garbage(db) {
            return (0, 0, Vec::new());
        }
        let part = self.locks.first().1;
        let due = part.expired_keys(db, cursor, sample, self.expired_ms);
        let expired = due.keys.len();
        let cold: Vec<ColdItem> =
            due.keys.into_iter().filter_map(|digest| self.expire_one(db, digest)).collect();
        (due.seen, expired - cold.len(), cold)
    }

    /// Removes a key that has expired, unless its name is wanted and must be fetched.
    fn expire_one(&mut self, db: u8, digest: Digest) -> Option<ColdItem> {
        let shared = self.shared();
        let found = self.locks.first().1.find(shared, db, digest).expect("a key with an expiry has an entry");
        let cold = self.remove_found(db, digest, found, ChangeKind::Expired, None);
        if cold.is_none() {
            self.engine.counters.expired.fetch_add(1, Relaxed);
        }
        cold
    }

    /// Removes a key of the transaction's partition that is named by its digest, unless its name is wanted and must be
    /// fetched.
    pub(super) fn remove_found(
        &mut self,
        db: u8,
        digest: Digest,
        found: Found,
        why: ChangeKind,
        name: Option<&[u8]>,
    ) -> Option<ColdItem> {
        let shared = self.shared();
        let part = self.locks.first().1;
        if self.changes.want_names(why) {
            let written = || found.word.pending_number().map(|number| self.batch.key(number));
            let Some(key) = name.or_else(|| part.name(db, found)).or_else(written) else {
                return Some(ColdItem::key(shared, found.word, digest));
            };
            self.changes.add(why, db, key);
        }
        part.remove(shared, &mut self.batch, db, digest, found);
        self.batch.written.push(Written { partition: part.number, db, digest, notify: Notify::All });
        None
    }

    /// Looks at the keys of a few buckets of a partition, from a cursor on, and removes expired fields of those that are hashes, and in memory.
    /// Whether there may be more at these keys: then the cursor has not moved.
    pub(crate) fn purge_some(&mut self, db: u8, cursor: &mut u64, buckets: usize) -> bool {
        let (shared, expired_ms, fields) = (self.shared(), self.expired_ms, self.fields_to_purge());
        if shared.databases.is_garbage(db) {
            return false;
        }
        let mut next = *cursor;
        let (partition, part) = self.locks.first();
        let due = part.hashes_to_purge(db, &mut next, (buckets, fields), expired_ms).due;
        if due.is_empty() || !self.takes_removal(PURGE_BYTES) {
            *cursor = next;
            return false;
        }
        for digest in due {
            let part = self.locks.get(partition);
            let found = part.find(shared, db, digest).expect("an entry that was just seen");
            let key = object::key(&part.arena, found.word.offset()).to_vec();
            self.purge_fields(Target { db, key: &key, partition, digest, slot: None }, found, fields);
        }
        true
    }

    /// The pages to be read before [`Txn::purge_some`] can do the same among one bucket.
    pub(crate) fn absent_to_purge(&mut self, db: u8, mut cursor: u64) -> Vec<AbsentPage> {
        let (expired_ms, fields) = (self.expired_ms, self.fields_to_purge());
        self.locks.first().1.hashes_to_purge(db, &mut cursor, (1, fields), expired_ms).absent
    }

    fn fields_to_purge(&self) -> usize {
        if self.has_absent() { PURGED_COLD_MAX } else { PURGED_MAX }
    }
}
