//! A partition: the keys of some hash slots, with their index, heap arena, cache and expiry, behind one lock.

mod ahead;
pub mod batch;
pub mod budget;
pub mod changes;
mod check;
pub mod cold;
mod copies;
pub mod databases;
pub mod direct;
pub mod follow;
pub mod frozen;
mod garbage;
pub mod index;
pub mod observers;
pub mod scan;
pub mod shared;
mod transfer;
pub mod uncondensed;

use crate::{
    cache::{Cache, pool::Pool, uses::Meter},
    collections::{Limits, absent::Finder, hash, object},
    format::{
        digest::Digest,
        entry_word::{EntryWord, Type, class_bytes_min},
        item::Item,
    },
};
use batch::{Batch, Written};
use cold::ColdItem;
use databases::PHYSICAL_DATABASES;
use frozen::Frozen;
use holdfast_heap::{AbsentPage, Arena, Full};
use holdfast_log::{Lsn, batch_len};
use index::{HandleMemory, Index, ROOT_BYTES, Slot};
use observers::{Notify, Observers};
use scan::ScanStep;
use shared::Shared;
use std::sync::Arc;
use uncondensed::Uncondensed;

/// Bytes of the arena's root page that each database has for its roots.
pub(crate) const DATABASE_ROOT_BYTES: u64 = 2 * ROOT_BYTES;
/// Where in the root page of the first partition the databases' map lies: for each logical number the exclusive or of
/// it and the physical one.
pub(crate) const DATABASE_MAP: u64 = 2048;
const _: () = assert!(PHYSICAL_DATABASES as u64 * DATABASE_ROOT_BYTES <= DATABASE_MAP);
/// Pages of a hash that are read at once to remove expired fields.
const PURGE_PAGES_MAX: usize = 256;
/// Classes of digests for which the newest write is remembered.
const RECENT: usize = 256;

/// The index of a database's keys, and the index of those that expire: digest → Unix time in milliseconds.
struct Database {
    keys: Index,
    expires: Index,
    /// The segment of the keys that was swept last.
    swept: u32,
}

pub(crate) struct Partition {
    pub number: u16,
    pub arena: Arena,
    databases: Vec<Database>,
    cache: Cache,
    /// What of the cache's memory is counted in `Shared::cache_bytes`.
    cache_counted: usize,
    /// The log was written up to here when no copy could go that was next to go, since its item was not.
    unwritten_at: Option<Lsn>,
    /// Takes note of the uses of keys.
    meter: Meter,
    /// The LSN of the newest batch that wrote a key, by class of its digest: a reply that depends on such a key
    /// must not leave before that batch is durable.
    recent: [Lsn; RECENT],
    /// How often a key was written: what was read of it before may not be true any more.
    pub version: u64,
    pub observers: Observers,
    pub counts: Counts,
    pub frozen: Frozen,
    pub uncondensed: Uncondensed,
    /// Thresholds of the collections' encodings.
    pub limits: Arc<Limits>,
    limits_version: u64,
}

/// Look-ups of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Keys that were there.
    pub hits: u64,
    pub(crate) misses: u64,
    /// Values found in the cache.
    pub(crate) cached: u64,
}

impl Lookups {
    pub(crate) fn add(&mut self, more: Lookups) {
        self.hits += more.hits;
        self.misses += more.misses;
        self.cached += more.cached;
    }
}

/// What a partition counts under its lock.
#[derive(Default)]
pub(crate) struct Counts {
    pub lookups: Lookups,
    /// Commands that changed keys, in batches whose first change was here; a batch whose commands were not counted is one.
    pub changes: u64,
    /// What was garbage and is freed.
    pub swept: u64,
    /// What transactions appended to the log; of those on several partitions, one counts.
    pub appended: Appended,
}

/// Bytes that transactions appended to the log, by why.
#[derive(Clone, Copy, Default)]
pub(crate) struct Appended {
    /// Items of strings.
    pub items: u64,
    /// Items of frozen collections.
    pub frozen: u64,
    /// Items that were there before, and are moved.
    pub moved: u64,
    /// Redo records.
    pub redo: u64,
    /// Headers of batches, and what aligns these.
    pub headers: u64,
    /// Keys and values that came with commands.
    pub input: u64,
}

impl Appended {
    /// A batch of one item of a string. `payload`: its bytes; `input`: of key and value that came for it.
    #[inline]
    pub fn string(payload: usize, input: usize) -> Appended {
        let headers = batch_len(payload) - payload as u64;
        Appended { items: payload as u64, headers, input: input as u64, ..Appended::default() }
    }

    /// Adds what another one has counted.
    #[inline]
    pub fn add(&mut self, other: &Appended) {
        let Appended { items, frozen, moved, redo, headers, input } = other;
        self.items += items;
        self.frozen += frozen;
        self.moved += moved;
        self.redo += redo;
        self.headers += headers;
        self.input += input;
    }
}

/// Hashes to remove expired fields from.
#[derive(Default)]
pub(crate) struct Purge {
    /// Those that have some.
    pub due: Vec<Digest>,
    /// Pages that have to be read to know it of the others.
    pub absent: Vec<AbsentPage>,
}

/// What [`Partition::expired_keys`] found.
pub(crate) struct ExpirySample {
    /// How many keys were looked at.
    pub seen: usize,
    /// Those that have expired.
    pub keys: Vec<Digest>,
}

/// An entry of a key that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub slot: Slot,
    pub word: EntryWord,
}

impl Partition {
    /// `index_memory`: where the indexes count what they hold beside the heap.
    pub fn open(
        number: u16,
        mut arena: Arena,
        pool: Arc<Pool>,
        index_memory: Arc<HandleMemory>,
    ) -> Result<Partition, String> {
        let databases = (0..PHYSICAL_DATABASES as u64)
            .map(|db| {
                let root = arena.root() + db * DATABASE_ROOT_BYTES;
                let keys = Index::open(&mut arena, root, true, index_memory.clone())?;
                let expires = Index::open(&mut arena, root + ROOT_BYTES, false, index_memory.clone())?;
                Ok(Database { keys, expires, swept: 0 })
            })
            .collect::<Result<_, String>>()?;
        let cache = Cache::new(pool);
        Ok(Partition {
            number,
            arena,
            databases,
            cache,
            cache_counted: 0,
            unwritten_at: None,
            meter: Meter::new((u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            recent: [0; RECENT],
            version: 0,
            observers: Observers::default(),
            counts: Counts::default(),
            frozen: Frozen::default(),
            uncondensed: Uncondensed::default(),
            limits: Arc::default(),
            limits_version: 0,
        })
    }

    /// Takes over new thresholds of the collections' encodings, and how uses are kept.
    #[inline]
    pub fn follow_limits(&mut self, shared: &Shared) {
        if let Some((limits, method, version)) = shared.limits_after(self.limits_version) {
            (self.limits, self.limits_version) = (limits, version);
            self.meter.follow(method);
        }
    }

    /// Uses that follow take place at this time.
    #[inline]
    pub fn set_now(&mut self, now_ms: u64) {
        self.meter.set_now(now_ms);
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Number of keys in a database, expired ones that are still there included.
    pub fn len(&self, db: u8) -> u64 {
        self.databases[db as usize].keys.len()
    }

    /// Number of keys with an expiry in a database.
    pub fn expires_len(&self, db: u8) -> u64 {
        self.databases[db as usize].expires.len()
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Bytes of volatile memory beside cache and heap.
    pub fn volatile_bytes(&self) -> usize {
        self.databases.iter().map(|d| d.keys.volatile_bytes() + d.expires.volatile_bytes()).sum()
    }

    /// Bytes that the indexes of keys and expiries take in the heap.
    pub fn index_heap_bytes(&self) -> u64 {
        self.databases.iter().map(|d| d.keys.heap_bytes() + d.expires.heap_bytes()).sum()
    }

    fn class(digest: Digest) -> usize {
        (digest.h0 >> 6) as usize & (RECENT - 1)
    }

    /// The newest batch that a reply about this key may depend on.
    #[inline]
    pub fn recent(&self, digest: Digest) -> Lsn {
        self.recent[Partition::class(digest)]
    }

    /// Remembers that the batch at `wait_lsn` wrote this key, and tells those who want to know.
    #[inline]
    pub fn note_written(&mut self, shared: &Shared, written: &Written, wait_lsn: Lsn) {
        self.recent[Partition::class(written.digest)] = wait_lsn;
        self.version += 1;
        if !self.observers.is_empty()
            && written.notify != Notify::None
            && let Some(logical) = shared.databases.logical(written.db)
        {
            self.observers.notify(logical, written.digest, written.notify);
        }
    }

    /// Whether a key is there and has not expired.
    pub fn holds(&mut self, shared: &Shared, db: u8, digest: Digest, now_ms: u64) -> bool {
        let found = self.find(shared, db, digest);
        found.is_some_and(|found| self.expiry(db, digest, found.word).is_none_or(|at| at > now_ms))
    }

    /// Tells the observers of those keys of a logical database that are there in one of some physical ones.
    pub fn notify_all(&mut self, shared: &Shared, logical: u8, physical: &[u8], now_ms: u64) {
        let mut observers = std::mem::take(&mut self.observers);
        observers
            .notify_all(logical, |digest| physical.iter().any(|&db| self.holds(shared, db, digest, now_ms)));
        self.observers = observers;
    }

    /// Remembers that the batch at `wait_lsn` may have written any key.
    pub fn note_flushed(&mut self, wait_lsn: Lsn) {
        self.recent.fill(wait_lsn);
        self.version += 1;
    }

    /// The physical database of a logical one, as the first partition keeps it.
    pub fn database_map(&self, logical: u8) -> u8 {
        self.arena.u8(self.arena.root() + DATABASE_MAP + u64::from(logical)) ^ logical
    }

    /// Changes the physical database of a logical one.
    pub fn write_database_map(&mut self, batch: &mut Batch, logical: u8, physical: u8) {
        let at = self.arena.root() + DATABASE_MAP + u64::from(logical);
        self.arena.write_u8(&mut batch.tx, at, physical ^ logical);
    }

    /// Counts the entries of one more segment of any index into the log's live bytes; false when all are.
    pub fn attach_next(&mut self, shared: &Shared, from: &mut (u8, u32)) -> bool {
        while (from.0 as usize) < PHYSICAL_DATABASES {
            let (db, segment) = *from;
            let keys = &mut self.databases[db as usize].keys;
            if segment >= keys.segment_count() {
                *from = (db + 1, 0);
                continue;
            }
            from.1 += 1;
            if keys.attach_segment(segment) {
                self.count(shared, db, segment);
            }
            return true;
        }
        false
    }

    fn count(&mut self, shared: &Shared, db: u8, segment: u32) {
        let tail = shared.log.tail();
        self.databases[db as usize].keys.for_each_in(&self.arena, segment, |_, _, word| {
            if !word.in_heap() && word.pending_number().is_none() {
                shared.log.account(word.lsn(tail), class_bytes_min(word.class()) as i64);
                self.frozen.add(word, word.class());
            }
        });
    }

    /// Makes the indexes of a database as large as so many keys need, and so many that expire, as far as they are empty and there is memory.
    pub fn expect_keys(&mut self, batch: &mut Batch, db: u8, keys: u64, expiring: u64) {
        let Database { keys: all, expires, .. } = &mut self.databases[db as usize];
        // Without it they grow step by step.
        let _ = all.expect(&mut self.arena, batch, keys);
        let _ = expires.expect(&mut self.arena, batch, expiring);
    }

    /// The entry of a key.
    #[inline]
    pub fn find(&mut self, shared: &Shared, db: u8, digest: Digest) -> Option<Found> {
        self.find_near(shared, db, digest, None)
    }

    /// The entry of a key, which may be where it was found before.
    #[inline]
    pub fn find_near(
        &mut self,
        shared: &Shared,
        db: u8,
        digest: Digest,
        slot: Option<Slot>,
    ) -> Option<Found> {
        let keys = &mut self.databases[db as usize].keys;
        if let Some(slot) = slot
            && let Some(word) = keys.get_at(&self.arena, slot, digest)
        {
            if keys.attach_segment(slot.segment()) {
                self.count(shared, db, slot.segment());
            }
            return Some(Found { slot, word });
        }
        if let Some(segment) = keys.attach(digest) {
            self.count(shared, db, segment);
        }
        let keys = &self.databases[db as usize].keys;
        keys.get(&self.arena, digest).map(|(slot, word)| Found { slot, word })
    }

    /// The first of three steps to a key's value, each of which asks for the memory that the next one reads: returns where
    /// its entry may be.
    #[inline]
    pub fn prefetch_fingerprints(&self, db: u8, digest: Digest) -> Option<Slot> {
        self.databases[db as usize].keys.prefetch_fingerprints(&self.arena, digest)
    }

    /// The second: returns where its entry is likely to be.
    #[inline]
    pub fn prefetch_entry(&self, db: u8, slot: Slot, digest: Digest) -> Option<Slot> {
        self.databases[db as usize].keys.prefetch_entry(&self.arena, slot, digest)
    }

    /// Takes an entry's item out of the accounting, or out of the batch that it still waits in.
    #[inline]
    fn release_item(&mut self, shared: &Shared, batch: &mut Batch, word: EntryWord) {
        match word.pending_number() {
            Some(number) => {
                self.frozen.subtract(word, batch.class(word));
                let entry = batch.cancel(number);
                self.arena.write(&mut batch.tx, entry, &EntryWord::NO_ITEM); // I-14
            }
            None => {
                self.frozen.subtract(word, word.class());
                batch.release(word.lsn(shared.log.tail()), class_bytes_min(word.class()));
            }
        }
    }

    /// Makes `value` the string value of a key; an expiry that the key has stays.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn put_string(
        &mut self,
        shared: &Shared,
        batch: &mut Batch,
        db: u8,
        digest: Digest,
        found: Option<Found>,
        key: &[u8],
        value: &[u8],
        known: u32,
    ) -> Result<(), Full> {
        let keys = &mut self.databases[db as usize].keys;
        let (slot, has_expiry) = match found {
            Some(Found { slot, word }) => {
                debug_assert!(!word.in_heap(), "an object is destroyed by the caller first");
                if word.pending_number().is_some_and(|number| batch.overwrite(number, key, value)) {
                    self.cache_value(shared, db, slot, digest, key, value, known);
                    return Ok(());
                }
                self.release_item(shared, batch, word);
                (slot, word.has_expiry())
            }
            None => (keys.insert(&mut self.arena, batch, digest)?, false),
        };
        let keys = &mut self.databases[db as usize].keys;
        let word =
            batch.add_item(&shared.compression, self.number, keys.offset(slot), db, Type::String, key, value);
        keys.set_item_word(&mut self.arena, batch, slot, word.with_expiry(has_expiry));
        self.cache_value(shared, db, slot, digest, key, value, known);
        Ok(())
    }

    /// Moves an item that the cleaner found live: the same value again, at the tail.
    pub fn move_item(&mut self, shared: &Shared, batch: &mut Batch, found: Found, item: &Item) {
        self.release_item(shared, batch, found.word);
        let keys = &mut self.databases[item.db as usize].keys;
        let item = Item { slot: keys.offset(found.slot), ..*item };
        let word = batch.add_moved(&shared.compression, self.number, found.word.ty(), item);
        self.frozen.add(word, batch.class(word));
        keys.set_item_word(&mut self.arena, batch, found.slot, word.with_expiry(found.word.has_expiry()));
    }

    /// Makes the object at a heap offset the value of a key that has none.
    pub fn put_object(
        &mut self,
        batch: &mut Batch,
        db: u8,
        digest: Digest,
        ty: Type,
        offset: u64,
    ) -> Result<(), Full> {
        let keys = &mut self.databases[db as usize].keys;
        let slot = keys.insert(&mut self.arena, batch, digest)?;
        keys.set_word(&mut self.arena, batch, slot, EntryWord::object(ty, offset));
        keys.set_handle(slot, self.meter.mark(self.meter.new_key()));
        Ok(())
    }

    /// Removes a key with its value, expiry and cached copy.
    pub fn remove(&mut self, shared: &Shared, batch: &mut Batch, db: u8, digest: Digest, found: Found) {
        self.drop_value(shared, batch, db, found);
        self.forget(batch, db, digest, found);
    }

    /// Destroys an entry's value; the entry names it still.
    fn drop_value(&mut self, shared: &Shared, batch: &mut Batch, db: u8, found: Found) {
        if found.word.in_heap() {
            self.discard(shared, batch, found.word.offset());
        } else {
            self.release_item(shared, batch, found.word);
            self.drop_copy(db, found.slot);
        }
    }

    fn remove_expiry(&mut self, batch: &mut Batch, db: u8, digest: Digest) {
        let expires = &mut self.databases[db as usize].expires;
        if let Some(slot) = expires.find(&self.arena, digest) {
            expires.remove(&mut self.arena, batch, slot);
        }
    }

    /// When a key expires: Unix time in milliseconds.
    #[inline]
    pub fn expiry(&self, db: u8, digest: Digest, word: EntryWord) -> Option<u64> {
        if !word.has_expiry() {
            return None;
        }
        let expires = &self.databases[db as usize].expires;
        expires.get(&self.arena, digest).map(|(_, word)| word.0)
    }

    /// Sets or takes away a key's expiry.
    pub fn set_expiry(
        &mut self,
        batch: &mut Batch,
        db: u8,
        digest: Digest,
        found: Found,
        at: Option<u64>,
    ) -> Result<(), Full> {
        let expires = &mut self.databases[db as usize].expires;
        match at {
            Some(at) => {
                let slot = match expires.find(&self.arena, digest) {
                    Some(slot) => slot,
                    None => expires.insert(&mut self.arena, batch, digest)?,
                };
                expires.set_word(&mut self.arena, batch, slot, EntryWord::expiry(at));
            }
            None if found.word.has_expiry() => self.remove_expiry(batch, db, digest),
            None => return Ok(()),
        }
        let keys = &mut self.databases[db as usize].keys;
        if found.word.has_expiry() != at.is_some() {
            keys.set_expiry_bit(&mut self.arena, batch, found.slot, at.is_some());
        }
        Ok(())
    }

    /// The LSN of an item, whose entry has waited for it, is known now. The item's record is the redo of this.
    pub fn settle(&mut self, slot: u64, lsn: Lsn, class: u8) {
        self.arena.patch(slot, &EntryWord::item_bytes(lsn, class));
    }

    /// One step of a scan over a database ([`Index::scan`]): the keys that have not expired. `batch`: that of the transaction that looks, if there
    /// is one.
    pub fn scan_keys(
        &self,
        shared: &Shared,
        batch: Option<&Batch>,
        db: u8,
        cursor: u64,
        now_ms: u64,
        step: &mut ScanStep,
    ) -> Option<u64> {
        let Database { keys, expires, .. } = &self.databases[db as usize];
        keys.scan(&self.arena, cursor, |slot, digest, word| {
            if word.has_expiry() {
                let expiry = expires.get(&self.arena, digest).map(|(_, word)| word.0);
                if expiry.is_some_and(|at| at <= now_ms) {
                    return;
                }
            }
            if word.in_heap() {
                step.keys.push((object::key(&self.arena, word.offset()).to_vec(), word.ty()));
            } else if keys.handle(slot) != 0 {
                step.keys.push((self.cache.get(keys.handle(slot)).key.to_vec(), word.ty()));
            } else if let Some(number) = word.pending_number() {
                let batch = batch.expect("nobody else sees what a transaction has not committed");
                step.keys.push((batch.key(number).to_vec(), word.ty()));
            } else {
                step.cold.push(ColdItem::key(shared, word, digest));
            }
        })
    }

    /// The keys that have expired among some that have an expiry, from a cursor on.
    pub fn expired_keys(&self, db: u8, cursor: &mut u64, sample: usize, now_ms: u64) -> ExpirySample {
        /// Few keys may be left of many: then most buckets are empty.
        const BUCKETS: usize = 64;
        let mut due = ExpirySample { seen: 0, keys: Vec::new() };
        let expires = &self.databases[db as usize].expires;
        if expires.len() == 0 {
            return due;
        }
        for _ in 0..BUCKETS {
            if due.seen >= sample {
                break;
            }
            let next = expires.scan(&self.arena, *cursor, |_, digest, word| {
                due.seen += 1;
                if word.0 <= now_ms {
                    due.keys.push(digest);
                }
            });
            *cursor = next.unwrap_or(0);
            if next.is_none() {
                break;
            }
        }
        due
    }

    /// The digests of the keys in one bucket, of all or of those that have an expiry; returns the next cursor, 0 after the
    /// last.
    pub fn digests(&self, db: u8, expiring: bool, cursor: u64, digests: &mut Vec<Digest>) -> u64 {
        let Database { keys, expires, .. } = &self.databases[db as usize];
        let index = if expiring { expires } else { keys };
        index.scan(&self.arena, cursor, |_, digest, _| digests.push(digest)).unwrap_or(0)
    }

    /// The name of a key, if it is in RAM.
    pub fn name(&self, db: u8, found: Found) -> Option<&[u8]> {
        if found.word.in_heap() {
            return Some(object::key(&self.arena, found.word.offset()));
        }
        match self.databases[db as usize].keys.handle(found.slot) {
            0 => None,
            handle => Some(self.cache.get(handle).key),
        }
    }

    /// The hashes that have expired fields, among the keys of some buckets from a cursor on, as far as these, or so many of the fields, are in
    /// memory.
    pub fn hashes_to_purge(
        &self,
        db: u8,
        cursor: &mut u64,
        (buckets, fields): (usize, usize),
        expired_ms: u64,
    ) -> Purge {
        let keys = &self.databases[db as usize].keys;
        let mut purge = Purge::default();
        for _ in 0..buckets {
            let next = keys.scan(&self.arena, *cursor, |_, digest, word| {
                if word.ty() == Type::Hash && word.in_heap() {
                    let (obj, absent) = (word.offset(), purge.absent.len());
                    purge.absent.extend(self.arena.absent(obj, object::HEADER as usize));
                    if purge.absent.len() > absent {
                        return;
                    }
                    if hash::may_have_expired(&self.arena, obj, expired_ms) {
                        let finder = Finder::new(&self.arena, true, PURGE_PAGES_MAX);
                        finder.find_expired(obj, expired_ms, fields);
                        purge.absent.extend(finder.into_pages());
                        if purge.absent.len() == absent {
                            purge.due.push(digest);
                        }
                    }
                }
            });
            *cursor = next.unwrap_or(0);
            if next.is_none() {
                break;
            }
        }
        purge
    }
}
