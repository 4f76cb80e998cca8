//! Transactions: what one command, one MULTI or one script does to its partitions, under their locks.

pub mod allowance;
pub mod changes;
pub mod error;
pub mod eviction;
mod expiring;
pub mod frozen;
mod growing;
mod keyspace;
mod moving;
mod object;
mod observing;
pub mod room;
pub mod scratch;
pub mod string;
pub mod string_value;
pub mod target;
mod transfer;
mod uses;

use crate::{
    collections::{Context, absent::Finder, hash, object::HEADER, uses::Use},
    engine::{
        Engine,
        locks::{LockBusy, LockWait, Locks},
    },
    format::{
        entry_word::{Type, class_bytes_min},
        item,
    },
    partition::{
        Found, Lookups,
        batch::{Batch, Written},
        changes::ChangeKind,
        cold::{Cold, Fetched},
        observers::Notify,
        shared::Shared,
    },
};
use allowance::Allowance;
use changes::Changes;
use error::{Error, Result};
use expiring::PURGED_MAX;
use holdfast_heap::{Home, HomeMethod, PAGE};
use holdfast_log::Lsn;
use scratch::Scratch;
use std::{
    cell::Cell, collections::BTreeSet, mem::ManuallyDrop, process, sync::atomic::Ordering::Relaxed, thread,
};
use target::{Expected, Known, KnownKey, Target, prefetch_entries};

/// A transaction, unless another one holds it up.
pub type Begun<'s> = std::result::Result<Txn<'s>, LockBusy>;

/// Bytes of log that the entries of a key take, beside its value, unless an index grows for it.
const REDO_OF_KEY: usize = 256;
/// Bytes of log that the removal of a key takes, about.
const REMOVAL_BYTES: usize = 1024;

thread_local! {
    /// The batch of this thread's last transaction, for its memory.
    static SPARE: Cell<Option<Box<Batch>>> = const { Cell::new(None) };
}

/// Some locked partitions and what is done to them. Ends with [`Txn::commit`]; dropping it commits too, since what
/// it did is done.
pub struct Txn<'s> {
    engine: &'s Engine,
    locks: Locks<'s>,
    batch: ManuallyDrop<Box<Batch>>,
    /// What the batch may come to.
    allowance: Allowance<'s>,
    /// The keys that it was begun for.
    known: Known<'s>,
    fetched: Vec<Fetched>,
    /// Where frozen collections are laid out that it looks at.
    scratch: Option<Box<Scratch>>,
    pub(crate) changes: Changes,
    now_ms: u64,
    /// What was to expire by then has expired.
    expired_ms: u64,
    /// What has expired is not there, but is not removed.
    keeps_expired: bool,
    /// A key that has expired was left where it is.
    has_passed_over: bool,
    counts_lookups: bool,
    /// What has been counted so far.
    lookups: Lookups,
    /// Looking at a key is a use of it.
    notes_uses: bool,
    wait_lsn: Lsn,
    /// Memory of the heap may be set aside for it.
    has_made_room: bool,
    has_ended: bool,
}

impl<'s> Txn<'s> {
    /// Keeps what was derived from the key that it will look at.
    #[inline]
    pub(crate) fn know(&mut self, key: &'s [u8], expected: Expected) {
        self.known = Known::one(key, expected);
    }

    /// The same of some keys of a database, whose partitions are locked. Asks for the memory of their entries and cached values.
    pub(crate) fn know_many(&mut self, db: u8, mut keys: Vec<KnownKey<'s>>) {
        /// Keys whose memory is asked for at once.
        const AHEAD: usize = 16;
        for some in keys.chunks_mut(AHEAD) {
            for KnownKey { expected, .. } in &mut *some {
                let part = self.locks.read(expected.partition);
                expected.slot = part.prefetch_fingerprints(db, expected.digest);
            }
            prefetch_entries(db, some, |_, expected| Some(self.locks.read(expected.partition)));
        }
        self.known = Known::many(keys);
    }

    pub(crate) fn begin(engine: &'s Engine, partitions: &[u16], now_ms: u64) -> Txn<'s> {
        engine.steps.before(partitions);
        let Ok(locks) = Locks::take(engine, partitions, LockWait::Endless) else {
            unreachable!("it waits however long it takes");
        };
        Txn::with(engine, locks, now_ms)
    }

    #[inline]
    pub(crate) fn try_begin(engine: &'s Engine, partitions: &[u16], now_ms: u64) -> Begun<'s> {
        Ok(Txn::with(engine, Locks::take(engine, partitions, LockWait::UntilBusy)?, now_ms))
    }

    #[inline]
    pub(crate) fn with(engine: &'s Engine, mut locks: Locks<'s>, now_ms: u64) -> Txn<'s> {
        locks.each(|part| part.set_now(now_ms));
        let batch = ManuallyDrop::new(SPARE.take().unwrap_or_default());
        let changes = Changes::new(&engine.shared);
        Txn {
            engine,
            locks,
            batch,
            allowance: Allowance::new(&engine.shared.log),
            known: Known::default(),
            fetched: Vec::new(),
            scratch: None,
            changes,
            now_ms,
            expired_ms: now_ms,
            keeps_expired: false,
            has_passed_over: false,
            counts_lookups: true,
            lookups: Lookups::default(),
            notes_uses: true,
            wait_lsn: 0,
            has_made_room: false,
            has_ended: false,
        }
    }

    /// Gives the transaction items that were fetched for it, in addition to those that it has.
    #[inline]
    pub fn supply(&mut self, fetched: Vec<Fetched>) {
        if !fetched.is_empty() {
            self.fetched.extend(fetched);
            self.fetched.sort_by_key(Fetched::lsn);
        }
    }

    /// Leaves keys and fields that have expired where they are, though they count as gone. The transaction must not write.
    pub fn keep_expired(&mut self) {
        self.keeps_expired = true;
    }

    /// Whether what has expired is removed by who comes upon it.
    fn may_expire(&self) -> bool {
        !self.keeps_expired && !self.engine.shared.keeps_expired.load(Relaxed)
    }

    /// What it changes in the heap from now on is not in the log; see [`Tx::record_nothing`](holdfast_heap::Tx::record_nothing).
    pub(crate) fn record_nothing(&mut self) {
        self.batch.tx.record_nothing();
    }

    /// Makes the indexes of a database in a partition, if they are empty, as large as so many keys need, and so many that expire.
    pub(crate) fn expect_keys(&mut self, db: u8, partition: u16, keys: u64, expiring: u64) {
        self.locks.get(partition).expect_keys(&mut self.batch, db, keys, expiring);
    }

    /// Says whether look-ups count as hits and misses; in Redis those of commands that write do not.
    #[inline]
    pub fn count_lookups(&mut self, on: bool) {
        self.counts_lookups = on;
    }

    /// The look-ups that were counted so far.
    #[inline]
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Takes back the look-ups that were counted since: those of a command that will be tried again.
    pub fn take_back_lookups(&mut self, before: Lookups) {
        self.lookups = before;
    }

    /// From now on, or no longer, nothing has expired, whatever the time is.
    pub fn expire_nothing(&mut self, on: bool) {
        self.expired_ms = if on { 0 } else { self.now_ms };
    }

    /// Whether what is to expire at a time, Unix time in milliseconds, has expired.
    pub fn has_expired(&self, at_ms: u64) -> bool {
        at_ms <= self.expired_ms
    }

    /// Whether looking at keys from now on is a use of them, as it is unless told otherwise.
    pub fn note_uses(&mut self, on: bool) {
        self.notes_uses = on;
    }

    /// The item that was fetched for a cold value.
    pub fn fetched(&self, cold: &Cold) -> Option<&Fetched> {
        self.fetched.iter().find(|fetched| fetched.is(cold))
    }

    /// Takes back what was handed in, for another transaction.
    pub fn take_fetched(&mut self) -> Vec<Fetched> {
        self.forget_views();
        std::mem::take(&mut self.fetched)
    }

    /// Forgets which pages were fetched for a command that has run: what the next one may have is counted anew ([`Txn::absent`]).
    pub fn forget_pages(&mut self) {
        self.fetched.retain(|fetched| !fetched.is_page());
    }

    /// The time that the transaction takes place at: Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) fn shared(&self) -> &'s Shared {
        &self.engine.shared
    }

    #[inline]
    fn target<'k>(&self, db: u8, key: &'k [u8]) -> Target<'k> {
        let expected = self.known.find(key).unwrap_or_else(|| Expected::derive(self.engine, key));
        Target::new(db, key, expected)
    }

    #[inline]
    fn partition_of(&self, key: &[u8]) -> u16 {
        self.known.find(key).map_or_else(|| self.engine.partition_of(key), |known| known.partition)
    }

    /// Finds a key, removes it if it has expired, and makes the reply wait for the newest write to it.
    fn find(&mut self, target: Target<'_>) -> Option<Found> {
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        self.wait_lsn = self.wait_lsn.max(part.recent(target.digest));
        let Some(found) = part.find_near(shared, target.db, target.digest, target.slot) else {
            self.lookups.misses += u64::from(self.counts_lookups);
            self.changes.add(ChangeKind::Missed, target.db, target.key);
            return None;
        };
        if part.expiry(target.db, target.digest, found.word).is_some_and(|at| self.has_expired(at)) {
            self.lookups.misses += u64::from(self.counts_lookups);
            if self.may_expire() && self.takes_removal(REMOVAL_BYTES) {
                self.remove_expired(target);
            } else {
                // The log takes no removals now: the key counts as gone.
                self.has_passed_over = true;
            }
            self.changes.add(ChangeKind::Missed, target.db, target.key);
            return None;
        }
        self.lookups.hits += u64::from(self.counts_lookups);
        if found.word.ty() == Type::Hash
            && found.word.in_heap()
            && !self.purge_fields(target, found, PURGED_MAX)
        {
            return None;
        }
        Some(found)
    }

    /// To be called before a key gets a new value. If it was not found, it may have expired and been left: then it goes.
    #[inline]
    fn make_way(&mut self, target: Target<'_>, found: Option<Found>) {
        if found.is_none() && self.has_passed_over {
            self.remove_expired(target);
        }
    }

    /// The type of a key's value.
    pub fn type_of(&mut self, db: u8, key: &[u8]) -> Option<Type> {
        let target = self.target(db, key);
        self.find(target).map(|found| found.word.ty())
    }

    /// Whether a key is there.
    pub fn exists(&mut self, db: u8, key: &[u8]) -> bool {
        self.type_of(db, key).is_some()
    }

    /// The value of an item: from the cache, from the batch that it waits in, or as it was fetched.
    fn value(&mut self, target: Target<'_>, found: Found) -> Result<Option<&[u8]>> {
        let shared = self.shared();
        if found.word.in_heap() {
            return Ok(None);
        }
        let part = self.locks.get(target.partition);
        if let Some(handle) = part.copy_of(target.db, found.slot) {
            self.lookups.cached += u64::from(self.counts_lookups);
            return Ok(part.cached(handle, target.key));
        }
        if let Some(number) = found.word.pending_number() {
            return Ok(Some(self.batch.value(number)));
        }
        let lsn = found.word.lsn(shared.log.tail());
        let Some(fetched) = fetched_at(&self.fetched, lsn) else {
            return Err(Error::Cold(Cold::item(shared, found.word)));
        };
        let item = fetched.item().map_err(|why| Error::Corrupt(why.into()))?;
        if item.key != target.key {
            return Ok(None);
        }
        let known = part.known_after(target.db, found.slot, self.notes_uses);
        part.count_return(shared, target.digest);
        part.cache_value(shared, target.db, found.slot, target.digest, target.key, item.stored, known);
        Ok(Some(item.stored))
    }

    /// Makes `value` the string value of a key, whatever it held. `keep_expiry`: an expiry of the key stays.
    pub fn set(&mut self, db: u8, key: &[u8], value: &[u8], keep_expiry: bool) -> Result<()> {
        let target = self.target(db, key);
        let found = self.find(target);
        self.set_found(target, found, value, keep_expiry)
    }

    /// The same for a key whose entry was found, if it has one.
    #[inline]
    fn set_found(
        &mut self,
        target: Target<'_>,
        mut found: Option<Found>,
        value: &[u8],
        keep_expiry: bool,
    ) -> Result<()> {
        self.reserve(item::record_len(target.key.len(), value.len()) + REDO_OF_KEY)?;
        let is_new = found.is_none();
        self.make_way(target, found);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let known = part.known_of_new(target.db, found, self.notes_uses);
        let mut expiry = None;
        if let Some(f) = found {
            // Its line is here by the time that the item is made.
            part.prefetch_copy(target.db, f.slot);
            if f.word.in_heap() {
                expiry = part.expiry(target.db, target.digest, f.word).filter(|_| keep_expiry);
                part.remove(shared, &mut self.batch, target.db, target.digest, f);
                found = None;
            } else if f.word.has_expiry() && !keep_expiry {
                part.set_expiry(&mut self.batch, target.db, target.digest, f, None)?;
                found = Some(Found { slot: f.slot, word: f.word.with_expiry(false) });
            }
        }
        part.put_string(shared, &mut self.batch, target.db, target.digest, found, target.key, value, known)?;
        self.put(target, is_new);
        if expiry.is_some() {
            self.set_expiry(target.db, target.key, expiry)?;
        }
        Ok(())
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        let target = self.target(db, key);
        let Some(found) = self.find(target) else { return false };
        let shared = self.shared();
        self.locks.get(target.partition).remove(shared, &mut self.batch, db, target.digest, found);
        self.written(target);
        true
    }

    /// When a key expires (Unix time in milliseconds): `None` without the key, `Some(None)` without an expiry.
    pub fn expiry(&mut self, db: u8, key: &[u8]) -> Option<Option<u64>> {
        let target = self.target(db, key);
        let found = self.find(target)?;
        let part = self.locks.get(target.partition);
        Some(part.expiry(db, target.digest, found.word))
    }

    /// Sets or takes away a key's expiry; whether the key is there.
    pub fn set_expiry(&mut self, db: u8, key: &[u8], at_ms: Option<u64>) -> Result<bool> {
        let target = self.target(db, key);
        let Some(found) = self.find(target) else { return Ok(false) };
        let part = self.locks.get(target.partition);
        part.set_expiry(&mut self.batch, db, target.digest, found, at_ms)?;
        self.written(target);
        Ok(true)
    }

    #[inline]
    fn written(&mut self, target: Target<'_>) {
        self.note(target, Notify::All);
        self.changes.add(ChangeKind::Written, target.db, target.key);
    }

    /// Notes which observers of a key are notified when the transaction ends.
    fn note(&mut self, target: Target<'_>, notify: Notify) {
        self.batch.written.push(Written {
            partition: target.partition,
            db: target.db,
            digest: target.digest,
            notify,
        });
    }

    /// Notes that a key has a new value; whether it was not there before.
    fn put(&mut self, target: Target<'_>, is_new: bool) {
        self.written(target);
        if is_new {
            self.changes.add(ChangeKind::Added, target.db, target.key);
        }
    }

    /// The values of some keys that are not in memory and must be fetched. This is no look-up of them that counts.
    pub fn cold<'k>(&mut self, db: u8, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<Cold> {
        let (mut cold, lookups) = (Vec::new(), self.lookups);
        for key in keys {
            let (target, shared) = (self.target(db, key), self.shared());
            let part = self.locks.get(target.partition);
            let found = part.find_near(shared, target.db, target.digest, target.slot);
            // What is in the heap may not be in memory either, but is no value to be fetched: see [`Txn::absent`].
            if found.is_some_and(|found| !found.word.in_heap())
                && let Some(found) = self.find(target)
                && let Err(Error::Cold(one)) = self.value(target, found)
            {
                cold.push(one);
            }
        }
        self.lookups = lookups;
        cold
    }

    /// Whether anything of the heap is not in memory: else [`Txn::absent`] finds nothing.
    #[inline]
    pub fn has_absent(&self) -> bool {
        self.shared().heap.has_absent()
    }

    /// Does what only looks at keys for what a command will use, and leaves no trace.
    pub(crate) fn look<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let changes = self.changes.len();
        let flags = (self.keeps_expired, self.has_passed_over, self.counts_lookups, self.notes_uses);
        (self.keeps_expired, self.counts_lookups, self.notes_uses) = (true, false, false);
        let looked = look(self);
        (self.keeps_expired, self.has_passed_over, self.counts_lookups, self.notes_uses) = flags;
        self.changes.truncate(changes);
        looked
    }

    /// Looks which pages are not in memory that a command will use, as far as it is told what of its keys' values that is, and
    /// whether it `writes`; returns those that must be fetched, `pages_max` of them at most. When these have come, it is
    /// to look again. Of a command that has had so many pages that they take half of the memory limit, nothing more is looked
    /// for: what it still lacks is read when it is used.
    ///
    /// # Errors
    /// [`Error::Corrupt`], if one of them was fetched and is damaged, or cannot be read.
    pub fn absent<'k>(
        &mut self,
        db: u8,
        keys: impl IntoIterator<Item = &'k [u8]>,
        uses: &[Use],
        writes: bool,
        pages_max: usize,
    ) -> Result<Vec<Cold>> {
        let (shared, mut pages) = (self.shared(), BTreeSet::new());
        let left = (shared.budget.max() / 2 / PAGE).saturating_sub(self.fetched.len());
        let may_expire = self.may_expire();
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        for key in &keys {
            let target = self.target(db, key);
            let part = self.locks.get(target.partition);
            let found = part.find_near(shared, target.db, target.digest, target.slot);
            // Whether fields of a hash have expired is seen to whatever is done with it.
            let is_used =
                |found: &Found| found.word.in_heap() && (found.word.ty() == Type::Hash || !uses.is_empty());
            if let Some(found) = found.filter(is_used) {
                let context = Context {
                    hasher: &shared.hasher,
                    limits: &part.limits,
                    now_ms: self.now_ms,
                    expired_ms: self.expired_ms,
                };
                let room = left.min(pages_max).saturating_sub(pages.len());
                let obj = found.word.offset();
                // Whatever the command does, they go first.
                let purges = may_expire
                    && found.word.ty() == Type::Hash
                    && part.arena.absent(obj, HEADER as usize).next().is_none()
                    && hash::may_have_expired(&part.arena, obj, self.expired_ms);
                let finder = Finder::new(&part.arena, writes || purges, room);
                if purges {
                    finder.find_expired(obj, self.expired_ms, PURGED_MAX);
                }
                finder.find(context, obj, uses);
                pages.append(&mut finder.into_pages());
            }
        }
        if pages.is_empty() && matches!(uses, [Use::Common | Use::Rest]) {
            pages = self.absent_to_combine(db, &keys, uses[0], left.min(pages_max));
        }
        let cold: Vec<Cold> = pages.into_iter().map(Cold::Page).collect();
        let mut failed =
            self.fetched.iter().filter_map(|fetched| Some((&fetched.cold, fetched.bytes.as_ref().err()?)));
        match failed.find(|(failed, _)| cold.contains(failed)) {
            Some((_, why)) => Err(Error::Corrupt(why.clone())),
            None => Ok(cold),
        }
    }

    /// How much it has written so far: the more, the more. What is written in the place of something else takes no more bytes of its batch, but
    /// counts.
    #[inline]
    pub fn written_so_far(&self) -> u64 {
        self.batch.tx.writes() + (self.batch.tx.buf.len() + self.batch.written.len()) as u64
    }

    /// Counts a command that has written something, and its keys and values, in bytes, for [`BytesWritten`](crate::BytesWritten).
    #[inline]
    pub fn count_call(&mut self, bytes: usize) {
        self.batch.calls += 1;
        self.batch.input += bytes as u64;
    }

    /// Commits what was done, as one batch, and returns the LSN that the log must be durable beyond before the reply
    /// may leave: the newest of the batch and of what was read. 0: it need not wait.
    #[inline]
    pub fn commit(mut self) -> Lsn {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Lsn {
        if self.has_made_room {
            self.batch.tx.give_back_aside(&self.engine.shared.heap);
        }
        if !self.batch.is_empty() {
            self.allowance.check(self.batch.tx.buf.len());
            match self.shared().heap.home() {
                None if self.batch.tx.buf.is_empty() => {
                    self.allowance.end();
                    self.batch.settle_released(&self.shared().log);
                }
                None => {
                    let lsn = self.shared().log.append(&self.batch.tx.buf);
                    self.allowance.end();
                    self.settle(lsn);
                    let reaches_others = self.locks.len() > 1 || self.batch.tx.changes_owners();
                    let (items, part) = (self.batch.located(lsn), self.locks.first().1);
                    part.uncondensed.add(lsn, &self.batch.tx.buf, items, reaches_others);
                    self.wait_lsn = lsn + 1;
                }
                Some(home) => self.wait_lsn = self.end_at_home(home),
            }
            self.batch.tx.committed();
            if self.batch.flushed {
                let wait_lsn = self.wait_lsn;
                self.locks.each(|part| part.note_flushed(wait_lsn));
            }
            if let Some(first) = self.batch.written.first() {
                self.locks.get(first.partition).counts.changes += self.batch.calls.max(1);
            }
            for written in &self.batch.written {
                self.locks.get(written.partition).note_written(
                    self.engine.shared.as_ref(),
                    written,
                    self.wait_lsn,
                );
            }
        }
        if let Some(part) = self.locks.one() {
            part.counts.lookups.add(self.lookups);
        }
        self.batch.clear();
        self.changes.publish(self.shared(), self.wait_lsn);
        self.has_ended = true;
        self.wait_lsn
    }

    /// Tells the entries of the batch's items where these are: behind the header of the batch at an LSN. Takes what they release
    /// out of the log's live bytes.
    #[inline]
    fn settle(&mut self, lsn: Lsn) {
        let log = &self.shared().log;
        self.locks.first().1.counts.appended.add(&self.batch.appended());
        for pending in self.batch.pending() {
            let at = pending.lsn(lsn);
            log.account(at, class_bytes_min(pending.class) as i64);
            self.locks.get(pending.partition).settle(pending.slot, at, pending.class);
        }
        self.batch.settle_released(log);
    }

    /// Commits to the log and the heap's home: the log gets the items, and what else the method wants to be there, and the home the rest when
    /// that is durable. Returns the LSN that the log must be durable beyond.
    fn end_at_home(&mut self, home: &Home) -> Lsn {
        let (log, batch) = (&self.engine.shared.log, &mut *self.batch);
        batch.part(home.method() == HomeMethod::Lat);
        let lsn = home.enqueue(|redo| {
            let lsn = log.append(&batch.tx.buf);
            redo.extend_from_slice(batch.redo(lsn));
            lsn
        });
        self.allowance.end();
        self.settle(lsn);
        if home.method() == HomeMethod::Cow {
            // Without room it is committed with what comes next; a failure is told by the log.
            let _ = log.wait_durable(lsn + 1);
        }
        lsn + 1
    }
}

/// The item that was fetched from an LSN, among such that are in order.
fn fetched_at(fetched: &[Fetched], lsn: Lsn) -> Option<&Fetched> {
    let first = fetched.partition_point(|fetched| fetched.lsn() < lsn);
    let mut at_lsn = fetched[first..].iter().take_while(|fetched| fetched.lsn() == lsn);
    at_lsn.find(|fetched| matches!(fetched.cold, Cold::Item(item) if item.key_of.is_none()))
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            if thread::panicking() && !self.batch.is_empty() {
                // Half of it must not last, and cannot be taken back.
                process::abort();
            }
            self.end();
        }
        self.locks.end();
        if let Some(scratch) = self.scratch.take() {
            scratch.put_back();
        }
        // SAFETY: taken once, and nothing uses it after the drop.
        SPARE.set(Some(unsafe { ManuallyDrop::take(&mut self.batch) }));
    }
}
