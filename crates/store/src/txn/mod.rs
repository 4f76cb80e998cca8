//! Transactions: what one command, one MULTI or one script does to its partitions, under their locks.

pub mod allowance;
pub mod changes;
pub mod error;
pub mod eviction;
pub mod frozen;
mod growing;
mod keyspace;
pub mod room;
pub mod scratch;
pub mod string;
pub mod string_value;
pub mod target;
mod transfer;
mod uses;

use crate::{
    collections::{
        Context, Limits, absent, any, hash,
        object::{self, Encoding},
        redo_max,
    },
    engine::{
        Engine,
        locks::{LockBusy, LockWait, Locks},
    },
    format::{
        digest::Digest,
        entry_word::{Type, class_bytes_min},
        item::{self, Item},
    },
    partition::{
        Found,
        batch::{Batch, Written},
        changes::ChangeKind,
        cold::{Cold, ColdItem, Fetched},
        observers::{Notify, Observer, ObserverId, Turn},
        shared::Shared,
    },
};
use allowance::Allowance;
use changes::Changes;
use error::{Error, Result};
use frozen::Located;
use holdfast_heap::{Arena, Full, Tx};
use holdfast_log::Lsn;
use scratch::Scratch;
use std::{
    cell::Cell,
    mem::ManuallyDrop,
    process,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};
use target::{Expected, Known, KnownKey, Target, prefetch_entries};

/// A transaction, unless another one holds it up.
pub type Begun<'s> = std::result::Result<Txn<'s>, LockBusy>;

/// Bytes of log that the entries of a key take, beside its value, unless an index grows for it.
const REDO_OF_KEY: usize = 256;
/// Bytes of log that the removal of a key takes, about.
const REMOVAL_BYTES: usize = 1024;
/// Expired fields of a hash that are removed at once, so that a transaction does not take long for it.
const PURGED_MAX: usize = 1000;
/// Bytes of log that this takes, about.
const PURGE_BYTES: usize = PURGED_MAX * 64;

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
    /// What has expired is not there, but is not removed.
    keeps_expired: bool,
    /// A key that has expired was left where it is.
    has_passed_over: bool,
    counts_lookups: bool,
    /// Looking at a key is a use of it.
    notes_uses: bool,
    wait_lsn: Lsn,
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
            keeps_expired: false,
            has_passed_over: false,
            counts_lookups: true,
            notes_uses: true,
            wait_lsn: 0,
            has_ended: false,
        }
    }

    /// Hands in items that were fetched for it, in addition to those that it has.
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

    /// Says whether look-ups count as hits and misses; in Redis those of commands that write do not.
    #[inline]
    pub fn count_lookups(&mut self, on: bool) {
        self.counts_lookups = on;
    }

    /// Goes to another time, Unix time in milliseconds, at which other keys have expired; returns the time so far.
    pub fn go_to(&mut self, now_ms: u64) -> u64 {
        std::mem::replace(&mut self.now_ms, now_ms)
    }

    /// Whether looking at keys from now on is a use of them, as it is unless told otherwise.
    pub fn note_uses(&mut self, on: bool) {
        self.notes_uses = on;
    }

    /// What was fetched of that which is wanted.
    pub fn fetched(&self, cold: &Cold) -> Option<&Fetched> {
        self.fetched.iter().find(|fetched| fetched.is(cold))
    }

    /// Takes back what was handed in, for another transaction.
    pub fn take_fetched(&mut self) -> Vec<Fetched> {
        self.forget_views();
        std::mem::take(&mut self.fetched)
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
            part.counts.misses += u64::from(self.counts_lookups);
            self.changes.add(ChangeKind::Missed, target.db, target.key);
            return None;
        };
        if part.expiry(target.db, target.digest, found.word).is_some_and(|at| at <= self.now_ms) {
            part.counts.misses += u64::from(self.counts_lookups);
            if !self.keeps_expired && self.takes_removal(REMOVAL_BYTES) {
                self.remove_expired(target);
            } else {
                // As long as the log takes no removals it is as good as gone.
                self.has_passed_over = true;
            }
            self.changes.add(ChangeKind::Missed, target.db, target.key);
            return None;
        }
        part.counts.hits += u64::from(self.counts_lookups);
        if found.word.ty() == Type::Hash && found.word.in_heap() && !self.purge_fields(target, found) {
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

    /// Removes what is at a key, which has expired.
    #[cold]
    fn remove_expired(&mut self, target: Target<'_>) {
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let Some(found) = part.find(shared, target.db, target.digest) else { return };
        part.remove(shared, &mut self.batch, target.db, target.digest, found);
        self.note(target, Notify::All);
        self.changes.add(ChangeKind::Expired, target.db, target.key);
        self.engine.counters.expired.fetch_add(1, Relaxed);
    }

    /// Removes fields of a hash that have expired, and with the last one the key; whether the key is still there.
    fn purge_fields(&mut self, target: Target<'_>, found: Found) -> bool {
        let (shared, obj) = (self.shared(), found.word.offset());
        let part = self.locks.get(target.partition);
        let next_expiry = hash::next_expiry(&part.arena, obj);
        if next_expiry == 0 || next_expiry > self.now_ms {
            return true;
        }
        let purges = !self.keeps_expired && self.takes_removal(PURGE_BYTES);
        let part = self.locks.get(target.partition);
        let context = Context { hasher: &shared.hasher, limits: &part.limits, now_ms: self.now_ms };
        if !purges {
            // They are as good as gone.
            let is_there = hash::fields(&part.arena, context, obj).next().is_some();
            self.has_passed_over |= !is_there;
            return is_there;
        }
        let purged = hash::Writer::new(&mut part.arena, &mut self.batch.tx, obj, context).purge(PURGED_MAX);
        let is_empty = hash::len(&part.arena, obj) == 0;
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
            part.counts.cached += 1;
            return Ok(part.cached(handle, target.key));
        }
        if let Some(number) = found.word.pending_number() {
            return Ok(Some(self.batch.item(number).value));
        }
        let lsn = found.word.lsn(shared.log.tail());
        let Some(fetched) = fetched_at(&self.fetched, lsn) else {
            return Err(Error::Cold(Cold::item(shared, found.word)));
        };
        let item = match &fetched.bytes {
            Ok(record) => item::decode(record).expect("checked when it was fetched").0,
            Err(why) => return Err(Error::Corrupt(why.clone())),
        };
        if item.key != target.key {
            return Ok(None);
        }
        let known = part.known_after(target.db, found.slot, self.notes_uses);
        part.cache_value(shared, target.db, found.slot, target.digest, target.key, item.value, known);
        Ok(Some(item.value))
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

    /// A key's object of a type, to look at.
    pub(crate) fn object(&mut self, db: u8, key: &[u8], ty: Type) -> Result<Option<Located>> {
        let target = self.target(db, key);
        match self.find(target) {
            None => Ok(None),
            Some(found) if found.word.ty() != ty => Err(Error::WrongType),
            Some(found) => self.locate(target, found).map(Some),
        }
    }

    /// Makes an empty object the value of a key that is not there, and returns its heap offset.
    pub(crate) fn create(&mut self, db: u8, key: &[u8], ty: Type, encoding: Encoding) -> Result<u64> {
        let target = self.target(db, key);
        self.make_way(target, None);
        let part = self.locks.get(target.partition);
        let offset = object::create(&mut part.arena, &mut self.batch.tx, key, ty, encoding)?;
        if let Err(full) = part.put_object(&mut self.batch, db, target.digest, ty, offset) {
            any::destroy(&mut part.arena, &mut self.batch.tx, offset, usize::MAX);
            return Err(full.into());
        }
        self.put(target, true);
        Ok(offset)
    }

    /// Makes an object that `fill` fills the value of a key, whatever it held, and takes away its expiry. Without room
    /// for it the key is as it was.
    pub(crate) fn replace(
        &mut self,
        db: u8,
        key: &[u8],
        ty: Type,
        encoding: Encoding,
        fill: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<(), Full>,
    ) -> Result<()> {
        let target = self.target(db, key);
        let found = self.find(target);
        self.make_way(target, found);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let known = part.known_of_new(db, found, self.notes_uses);
        let context = Context { hasher: &shared.hasher, limits: &part.limits, now_ms: self.now_ms };
        let offset = object::create(&mut part.arena, &mut self.batch.tx, key, ty, encoding)?;
        let mut done = fill(&mut part.arena, &mut self.batch.tx, context, offset);
        if done.is_ok() {
            // With the old entry gone, the new one has a place.
            if let Some(found) = found {
                part.remove(shared, &mut self.batch, db, target.digest, found);
            }
            done = part.put_object(&mut self.batch, db, target.digest, ty, offset);
        }
        if let Err(full) = done {
            any::destroy(&mut part.arena, &mut self.batch.tx, offset, usize::MAX);
            return Err(full.into());
        }
        self.set_known(target, known);
        self.put(target, found.is_none());
        Ok(())
    }

    /// Has room for a collection in one block that gets another encoding, as it may with each change. By the usual limits of
    /// the encodings that is little.
    #[inline(always)]
    fn reserve_conversion(&mut self, target: Target<'_>, found: Found) -> Result<()> {
        if self.is_packed(target, found) { self.reserve_packed(target, found) } else { Ok(()) }
    }

    #[inline]
    fn is_packed(&self, target: Target<'_>, found: Found) -> bool {
        found.word.in_heap()
            && object::is_packed(&self.locks.read(target.partition).arena, found.word.offset())
    }

    fn reserve_packed(&mut self, target: Target<'_>, found: Found) -> Result<()> {
        match self.conversion_of(target, found) {
            0 => Ok(()),
            redo => self.reserve_besides(redo),
        }
    }

    /// Bytes of log that the collection at a key takes at most when it gets another encoding; 0 where that needs no room of
    /// its own.
    pub(crate) fn conversion_max(&mut self, db: u8, key: &[u8]) -> usize {
        let target = self.target(db, key);
        match self.find(target) {
            Some(found) if self.is_packed(target, found) => self.conversion_of(target, found),
            _ => 0,
        }
    }

    /// The same for a collection in one block.
    #[inline]
    fn conversion_of(&self, target: Target<'_>, found: Found) -> usize {
        const FEW: u64 = 512;
        const SMALL: u64 = 24 << 10;
        let arena = &self.locks.read(target.partition).arena;
        let (mut elements, bytes) = any::packed_size(arena, found.word.offset(), found.word.ty());
        if found.word.ty() == Type::List {
            // They stay in a block or two, and leave no redo of their own.
            elements = elements.min(FEW);
        }
        if elements <= FEW && bytes <= SMALL { 0 } else { redo_max(elements as usize, bytes as usize) }
    }

    /// The arena that holds a key's object, and the context of its type's operations.
    pub(crate) fn parts(&self, key: &[u8], located: Located) -> (&Arena, Context<'_>) {
        let part = self.locks.read(self.partition_of(key));
        let context =
            Context { hasher: &self.engine.shared.hasher, limits: &part.limits, now_ms: self.now_ms };
        (self.arena(part, located), context)
    }

    /// Thresholds of the collections' encodings.
    pub(crate) fn limits(&self, key: &[u8]) -> &Limits {
        &self.locks.read(self.partition_of(key)).limits
    }

    /// Changes the object of a key of a type: makes one first, in the encoding that `make` says, if there is none, and
    /// removes it if it is empty in the end. `None`: there is none, and it was not to be made. A change that leaves no
    /// redo was none, and those who observe the key are not told.
    pub(crate) fn change<R>(
        &mut self,
        db: u8,
        key: &[u8],
        ty: Type,
        make: Option<Encoding>,
        change: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        self.change_and_notify(Notify::All, db, key, ty, make, change)
    }

    /// As [`Txn::change`], which says what observers of the key are notified.
    pub(crate) fn change_and_notify<R>(
        &mut self,
        notify: Notify,
        db: u8,
        key: &[u8],
        ty: Type,
        make: Option<Encoding>,
        change: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        let target = self.target(db, key);
        let mut made = false;
        let obj = match (self.find(target), make) {
            (Some(found), _) if found.word.ty() != ty => return Err(Error::WrongType),
            (Some(found), _) => {
                self.reserve_conversion(target, found)?;
                self.in_heap(target, found)?
            }
            (None, None) => return Ok(None),
            (None, Some(encoding)) => {
                made = true;
                self.create(db, key, ty, encoding)?
            }
        };
        let before = self.batch.tx.buf.len();
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let context = Context { hasher: &shared.hasher, limits: &part.limits, now_ms: self.now_ms };
        let result = change(&mut part.arena, &mut self.batch.tx, context, obj);
        // A stream stays when it is empty, but not one that could not be begun.
        let never_began = ty == Type::Stream && made && result.is_err();
        if never_began || any::is_void(&part.arena, obj) {
            let found = part.find(shared, db, target.digest).expect("the key of the object");
            part.remove(shared, &mut self.batch, db, target.digest, found);
        }
        if self.batch.tx.buf.len() != before {
            match notify {
                Notify::All => self.written(target),
                Notify::Queued | Notify::None => self.note(target, notify),
            }
        }
        Ok(Some(result?))
    }

    #[inline]
    fn written(&mut self, target: Target<'_>) {
        self.note(target, Notify::All);
        self.changes.add(ChangeKind::Written, target.db, target.key);
    }

    /// Has those told who observe a key.
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

    /// Has an observer told when a later transaction writes a key of a database, by its logical number.
    pub fn observe(
        &mut self,
        logical: u8,
        key: &[u8],
        turn: Turn,
        observer: Arc<dyn Observer>,
    ) -> ObserverId {
        let target = self.target(self.database(logical), key);
        let observers = &mut self.locks.get(target.partition).observers;
        // What this transaction has done is no news to the new one, only to those who were there before.
        for written in &mut self.batch.written {
            if (written.partition, written.db, written.digest) == (target.partition, target.db, target.digest)
            {
                let notify = std::mem::replace(&mut written.notify, Notify::None);
                observers.notify(logical, target.digest, notify);
            }
        }
        observers.add(logical, target.digest, turn, observer)
    }

    /// Ends an observation; if it was the observer's turn, this is the next one's.
    pub fn unobserve(&mut self, logical: u8, key: &[u8], id: ObserverId) {
        let target = self.target(self.database(logical), key);
        self.locks.get(target.partition).observers.remove(logical, target.digest, id);
    }

    /// Ends an observer's turn at a key, if it is its turn: what is there is not what it waits for. The next one is
    /// told, if something is there.
    pub fn pass_on(&mut self, logical: u8, key: &[u8], id: ObserverId) {
        let (target, shared) = (self.target(self.database(logical), key), self.shared());
        let now_ms = self.now_ms;
        let part = self.locks.get(target.partition);
        let is_there = part.holds(shared, target.db, target.digest, now_ms);
        part.observers.pass_on(logical, target.digest, id, is_there);
    }

    /// Whether any key of its partitions is kept for an observer whose turn it is.
    #[inline]
    pub fn keeps_any(&self) -> bool {
        self.locks.any(|part| part.observers.keeps_any())
    }

    /// Whether a key of a database, by its logical number, is kept for an observer whose turn it is: others should leave it
    /// alone for now.
    pub fn is_kept(&self, logical: u8, key: &[u8]) -> bool {
        let target = self.target(self.database(logical), key);
        self.locks.read(target.partition).observers.keeps(logical, target.digest)
    }

    /// Looks whether the values of some keys are at hand, and returns those that must be fetched.
    pub fn cold<'k>(&mut self, db: u8, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<Cold> {
        let mut cold = Vec::new();
        for key in keys {
            let target = self.target(db, key);
            if let Some(found) = self.find(target) {
                if let Err(Error::Cold(one)) = self.value(target, found) {
                    cold.push(one);
                }
            }
        }
        cold
    }

    /// Looks which pages are not in memory that a command will use, as far as that can be told from its keys and from the
    /// elements, or positions, that it names; returns those that must be fetched.
    ///
    /// # Errors
    /// [`Error::Corrupt`], if one of them was fetched and is damaged, or cannot be read.
    pub fn absent<'k>(
        &mut self,
        db: u8,
        keys: impl IntoIterator<Item = &'k [u8]>,
        elements: &[&[u8]],
    ) -> Result<Vec<Cold>> {
        let (shared, mut pages) = (self.shared(), Vec::new());
        for key in keys.into_iter().filter(|_| shared.heap.has_absent()) {
            let target = self.target(db, key);
            let part = self.locks.get(target.partition);
            let found = part.find_near(shared, target.db, target.digest, target.slot);
            if let Some(found) = found.filter(|found| found.word.in_heap()) {
                let context = Context { hasher: &shared.hasher, limits: &part.limits, now_ms: self.now_ms };
                absent::collect(&part.arena, context, found.word.offset(), elements, &mut pages);
            }
        }
        let cold: Vec<Cold> = pages.into_iter().map(Cold::Page).collect();
        let failed = self.fetched.iter().filter(|fetched| cold.contains(&fetched.cold));
        match failed.filter_map(|fetched| fetched.bytes.as_ref().err()).next() {
            Some(why) => Err(Error::Corrupt(why.clone())),
            None => Ok(cold),
        }
    }

    /// Asks for the memory that [`Txn::move_item`] will look at.
    pub(crate) fn prefetch(&mut self, db: u8, digest: Digest) {
        self.locks.first().1.prefetch_fingerprints(db, digest);
    }

    /// The entry of an item of the transaction's partition, if that still names it.
    pub(crate) fn live_item(&mut self, item: &Item, digest: Digest, lsn: Lsn) -> Option<Found> {
        let shared = self.shared();
        let found = self.locks.first().1.find(shared, item.db, digest)?;
        let word = found.word;
        let is_live =
            !word.in_heap() && word.pending_number().is_none() && word.lsn(shared.log.tail()) == lsn;
        is_live.then_some(found)
    }

    /// Appends an item of the transaction's partition again if it is still what its key's entry names; whether it was.
    pub(crate) fn move_item(&mut self, item: &Item, digest: Digest, lsn: Lsn) -> bool {
        let Some(found) = self.live_item(item, digest, lsn) else { return false };
        let part = self.locks.first().1;
        part.move_item(self.engine.shared.as_ref(), &mut self.batch, item.db, found, item.key, item.value);
        true
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
        let due = part.expired_keys(db, cursor, sample, self.now_ms);
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
    fn remove_found(
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
            let Some(key) = name.or_else(|| part.name(db, found)) else {
                return Some(ColdItem::key(shared, found.word, digest));
            };
            self.changes.add(why, db, key);
        }
        part.remove(shared, &mut self.batch, db, digest, found);
        self.batch.written.push(Written { partition: part.number, db, digest, notify: Notify::All });
        None
    }

    /// Looks at a few keys of a partition, from a cursor on, and removes expired fields of those that are hashes. Whether
    /// there may be more at these keys: then the cursor has not moved.
    pub(crate) fn purge_some(&mut self, db: u8, cursor: &mut u64) -> bool {
        /// Some hundred keys.
        const BUCKETS: usize = 8;
        let (shared, now_ms) = (self.shared(), self.now_ms);
        if shared.databases.is_garbage(db) {
            return false;
        }
        let mut next = *cursor;
        let (partition, part) = self.locks.first();
        let due = part.hashes_to_purge(db, &mut next, BUCKETS, now_ms);
        if due.is_empty() || !self.takes_removal(PURGE_BYTES) {
            *cursor = next;
            return false;
        }
        for digest in due {
            let part = self.locks.get(partition);
            let found = part.find(shared, db, digest).expect("an entry that was just seen");
            let key = object::key(&part.arena, found.word.offset()).to_vec();
            self.purge_fields(Target { db, key: &key, partition, digest, slot: None }, found);
        }
        true
    }

    /// Commits what was done, as one batch, and returns the LSN that the log must be durable beyond before the reply
    /// may leave: the newest of the batch and of what was read. 0: it need not wait.
    #[inline]
    pub fn commit(mut self) -> Lsn {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Lsn {
        if !self.batch.is_empty() {
            let log = &self.shared().log;
            self.allowance.check(self.batch.tx.buf.len());
            let lsn = log.append(&self.batch.tx.buf);
            self.allowance.end();
            for pending in self.batch.pending() {
                let at = lsn + holdfast_log::BATCH_HEADER as u64 + pending.at as u64;
                log.account(at, class_bytes_min(pending.class) as i64);
                self.locks.get(pending.partition).settle(pending.slot, at, pending.class);
            }
            self.batch.settle_released(log);
            self.batch.tx.committed();
            self.wait_lsn = lsn + 1;
            if self.batch.flushed {
                let wait_lsn = self.wait_lsn;
                self.locks.each(|part| part.note_flushed(wait_lsn));
            }
            if let Some(first) = self.batch.written.first() {
                self.locks.get(first.partition).counts.changes += 1;
            }
            for written in &self.batch.written {
                self.locks.get(written.partition).note_written(
                    self.engine.shared.as_ref(),
                    written,
                    self.wait_lsn,
                );
            }
        }
        self.batch.clear();
        self.changes.publish(self.shared(), self.wait_lsn);
        self.has_ended = true;
        self.wait_lsn
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
