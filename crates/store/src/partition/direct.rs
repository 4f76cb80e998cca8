//! What one command does to one string, without a transaction around it: the same batch, of one item, put together and
//! appended in one pass. Everything that is rare is left to transactions.

use super::{
    Appended, Found, Partition,
    batch::{Written, release},
    cold::{ColdItem, Fetched},
    index::Slot,
    observers::Notify,
    shared::Shared,
};
use crate::format::{
    digest::Digest,
    entry_word::{EntryWord, class_bytes_min, size_class},
    item,
};
use holdfast_heap::{HomeMethod, put_write};
use holdfast_log::{BATCH_HEADER, Lsn, SMALL_BYTES};
use std::cell::Cell;

thread_local! {
    /// Where this thread puts payloads together.
    static PAYLOAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a look at a string comes to.
pub enum Seen<'a> {
    /// The value, and the newest batch that a reply about it may depend on.
    Value(&'a [u8], Lsn),
    /// The value must be fetched first.
    Cold(ColdItem),
}

impl Partition {
    /// Looks at the string of a key that does not expire; `fetched`: what was fetched for it, if it was looked at before. It is a
    /// use of the key.
    #[inline]
    pub fn read_string<'a>(
        &'a mut self,
        shared: &Shared,
        db: u8,
        key: &[u8],
        digest: Digest,
        slot: Option<Slot>,
        fetched: Option<&'a Fetched>,
    ) -> Option<Seen<'a>> {
        let found = self.find_near(shared, db, digest, slot)?;
        if !found.word.is_plain_string() {
            return None;
        }
        let Some(copy) = self.copy_of(db, found.slot) else {
            return self.read_cold_string(shared, db, key, digest, found, fetched);
        };
        self.cache.touch(copy, &mut self.meter);
        self.counts.lookups.hits += 1;
        self.counts.lookups.cached += 1;
        self.cached(copy, key).map(|value| Seen::Value(value, self.recent(digest)))
    }

    /// The same where the cache has no copy of it.
    fn read_cold_string<'a>(
        &mut self,
        shared: &Shared,
        db: u8,
        key: &[u8],
        digest: Digest,
        Found { slot, word }: Found,
        fetched: Option<&'a Fetched>,
    ) -> Option<Seen<'a>> {
        let wanted = ColdItem::new(shared, word);
        // What was fetched may have moved in the meantime, and is garbage then.
        let Some(fetched) = fetched.filter(|fetched| fetched.is(&wanted.into())) else {
            return Some(Seen::Cold(wanted));
        };
        let item = fetched.item().ok()?;
        if item.key != key {
            return None;
        }
        self.counts.lookups.hits += 1;
        let known = self.known_after(db, slot, true);
        self.count_return(shared, digest);
        self.cache_value(shared, db, slot, digest, key, item.stored, known);
        Some(Seen::Value(item.stored, self.recent(digest)))
    }

    /// The entry of a key, if a string of its own in the log is its value, which does not expire, nobody observes keys here, and
    /// no transaction has a commit of its own.
    #[inline]
    pub fn find_plain(
        &mut self,
        shared: &Shared,
        db: u8,
        digest: Digest,
        slot: Option<Slot>,
    ) -> Option<Found> {
        if !self.observers.is_empty()
            || !shared.following.wanted().is_nothing()
            || shared.heap.home().is_some_and(|home| home.method() == HomeMethod::Cow)
        {
            return None;
        }
        let found = self.find_near(shared, db, digest, slot)?;
        found.word.is_plain_string().then_some(found)
    }

    /// Gives the key of such an entry another value; `input`: bytes of key and value that came for it. Returns the LSN that the
    /// log must be durable beyond for it to last; `None`: a batch without a reservation cannot be so large.
    #[inline]
    pub fn replace_string(
        &mut self,
        shared: &Shared,
        db: u8,
        digest: Digest,
        found: Found,
        (key, value): (&[u8], &[u8]),
        input: usize,
    ) -> Option<Lsn> {
        let log = &shared.log;
        if item::record_len(key.len(), value.len()) > SMALL_BYTES / 2 {
            return None;
        }
        let compressed = shared.compression.compress(value);
        let (kind, stored) = match &compressed {
            Some(stored) => (item::compressed(item::STRING), &stored[..]),
            None => (item::STRING, value),
        };
        let Found { slot, word } = found;
        self.prefetch_copy(db, slot);
        let known = self.known_of_new(db, Some(found), true);
        let entry = self.databases[db as usize].keys.offset(slot);
        let mut payload = PAYLOAD.take();
        payload.clear();
        let at = item::encode(&mut payload, kind, db, entry, key, stored);
        let class = size_class(item::record_len(key.len(), stored.len()));
        let item_at = |lsn: Lsn| lsn + (BATCH_HEADER + at) as u64;
        let lsn = match shared.heap.home() {
            None => log.append(&payload),
            Some(home) => home.enqueue(|redo| {
                let lsn = log.append(&payload);
                put_write(redo, entry, &EntryWord::item_bytes(item_at(lsn), class));
                lsn
            }),
        };
        self.uncondensed.add_entry(lsn, entry, &EntryWord::item_bytes(item_at(lsn), class));
        self.counts.appended.add(&Appended::string(payload.len(), input));
        PAYLOAD.set(payload);
        let item = item_at(lsn);
        log.account(item, class_bytes_min(class) as i64);
        release(log, [(word.lsn(item), class_bytes_min(word.class()))]);
        self.settle(entry, item, class);
        self.cache_value(shared, db, slot, digest, key, value, known);
        self.counts.changes += 1;
        let written = Written { partition: self.number, db, digest, notify: Notify::None };
        self.note_written(shared, &written, lsn + 1);
        Some(lsn + 1)
    }

    /// The value of the key of such an entry, if it is in the cache.
    #[inline]
    pub fn cached_value(&mut self, db: u8, found: Found, key: &[u8]) -> Option<&[u8]> {
        let copy = self.copy_of(db, found.slot)?;
        self.counts.lookups.cached += 1;
        self.cached(copy, key)
    }
}
