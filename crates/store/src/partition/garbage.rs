//! Garbage: what is in databases that no number leads to. FLUSHDB gives a number another database, and a large collection
//! that loses its key goes to such a database, under a digest that is no key's; maintenance frees all that in slices.

use super::{Database, Found, Partition};
use crate::{
    collections::{
        absent::Finder,
        any::{self, Destroyed},
        object,
    },
    format::entry_word::EntryWord,
    partition::{batch::Batch, shared::Shared},
};
use holdfast_heap::AbsentPage;

/// Bytes of a batch from which on it destroys none at once, so that it does not come to more than is expected of it.
const MUCH_BYTES: usize = 16 << 10;
/// Blocks of a collection that are freed in one slice: some tens of microseconds.
const SLICE_BLOCKS: usize = 500;
/// Bytes after which a slice ends.
const SLICE_BYTES: u64 = 64 << 10;
/// How much less a slice is where it may have to be read before it is freed.
const COLD_SHARE: usize = 4;
/// Pages that are read at a time for one.
const COLD_PAGES_MAX: usize = 256;

impl Partition {
    /// Frees an object that nothing names any more, or leaves that to [`Partition::sweep`] if it takes long.
    pub(super) fn discard(&mut self, shared: &Shared, batch: &mut Batch, offset: u64) {
        let is_much = batch.tx.buf.len() > MUCH_BYTES && any::parts(&self.arena, offset) > 1;
        if is_much || any::is_large(&self.arena, offset, any::LARGE) {
            let db = shared.databases.garbage();
            let digest = shared.secret.digest(&offset.to_le_bytes());
            let keys = &mut self.databases[db as usize].keys;
            if let Some(segment) = keys.attach(digest) {
                self.count(shared, db, segment);
            }
            let keys = &mut self.databases[db as usize].keys;
            // Without room for an entry it has to be now.
            if let Ok(slot) = keys.insert(&mut self.arena, batch, digest) {
                shared.leave_over();
                let word = EntryWord::object(object::ty(&self.arena, offset), offset);
                return keys.set_word(&mut self.arena, batch, slot, word);
            }
        }
        any::destroy(&mut self.arena, &mut batch.tx, offset);
    }

    /// Whether there is something to free in any database that is garbage.
    pub fn has_garbage(&self, shared: &Shared) -> bool {
        shared.databases.all_garbage().any(|db| self.needs_sweep(db))
    }

    /// Whether there is something to free in a database that is garbage.
    pub fn needs_sweep(&self, db: u8) -> bool {
        let Database { keys, expires, .. } = &self.databases[db as usize];
        keys.segment_count() + expires.segment_count() > 0
    }

    /// Whether a database had many keys once, and has none now: its index takes their room as long as it is not freed.
    pub fn is_hollow(&self, db: u8) -> bool {
        self.databases[db as usize].keys.is_hollow()
    }

    /// Frees an index of expiries that has become empty; whether there was one.
    pub fn free_hollow_expiries(&mut self, batch: &mut Batch) -> bool {
        let hollow = self.databases.iter_mut().map(|db| &mut db.expires).find(|expires| expires.is_hollow());
        hollow.map(|expires| expires.clear_all(&mut self.arena, batch)).is_some()
    }

    /// How many keys and collections are still to be freed.
    pub fn garbage_len(&self, shared: &Shared) -> u64 {
        shared.databases.all_garbage().map(|db| self.databases[db as usize].keys.len()).sum()
    }

    /// The segment of a database that is garbage, and has keys, in which it is freed next. From where the last slice was, all around: something
    /// may have come to segments that were empty.
    fn segment_to_sweep(&self, db: u8) -> u32 {
        let Database { keys, swept, .. } = &self.databases[db as usize];
        let count = keys.segment_count();
        let mut segments = (*swept..count).chain(0..count.min(*swept));
        segments.find(|&segment| keys.holds_any(&self.arena, segment)).expect("a key")
    }

    /// The items and objects of a segment.
    fn contents(&self, db: u8, segment: u32) -> (Vec<Found>, Vec<Found>) {
        let (mut items, mut objects) = (Vec::new(), Vec::new());
        self.databases[db as usize].keys.for_each_in(&self.arena, segment, |slot, _, word| {
            if word.in_heap() { &mut objects } else { &mut items }.push(Found { slot, word });
        });
        (items, objects)
    }

    /// The pages that are to be read before the next slice of what is garbage is freed. What is read tells what else is to be.
    pub fn absent_to_sweep(&self, shared: &Shared) -> Vec<AbsentPage> {
        let has_keys = |&db: &u8| self.databases[db as usize].keys.len() > 0;
        let Some(db) = shared.databases.all_garbage().find(has_keys) else { return Vec::new() };
        let (_, objects) = self.contents(db, self.segment_to_sweep(db));
        let finder = Finder::new(&self.arena, true, COLD_PAGES_MAX);
        let mut budget = SLICE_BLOCKS / COLD_SHARE;
        for found in objects {
            if budget == 0 || finder.is_full() {
                break;
            }
            finder.find_blocks(found.word.offset(), &mut budget);
        }
        finder.into_pages().into_iter().collect()
    }

    /// Frees a slice of a database that is garbage.
    pub fn sweep(&mut self, shared: &Shared, batch: &mut Batch, db: u8) {
        let Database { keys, expires, .. } = &mut self.databases[db as usize];
        expires.clear_all(&mut self.arena, batch);
        if keys.len() == 0 {
            return keys.clear_all(&mut self.arena, batch);
        }
        let segment = self.segment_to_sweep(db);
        let Database { keys, swept, .. } = &mut self.databases[db as usize];
        *swept = segment;
        if keys.attach_segment(segment) {
            self.count(shared, db, segment);
        }

        let (items, objects) = self.contents(db, segment);
        let allocated = self.arena.allocated_bytes();
        let share = if shared.heap.has_absent() { COLD_SHARE } else { 1 };
        let (mut blocks, bytes) = (SLICE_BLOCKS / share, SLICE_BYTES / share as u64);
        for found in objects {
            let done = any::destroy_some(&mut self.arena, &mut batch.tx, found.word.offset(), &mut blocks);
            if done == Destroyed::More {
                return;
            }
            self.databases[db as usize].keys.remove(&mut self.arena, batch, found.slot);
            self.counts.swept += 1;
            if blocks == 0 || allocated - self.arena.allocated_bytes() >= bytes {
                return;
            }
        }
        self.counts.swept += items.len() as u64;
        for found in items {
            self.drop_value(shared, batch, db, found);
        }
        self.databases[db as usize].keys.clear_segment(&mut self.arena, batch, segment);
    }
}
