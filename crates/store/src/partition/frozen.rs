//! Frozen collections: those that have left the heap for an item in the log, whose entries have a type that is no string's
//! and name no object. A string that leaves the heap is an item like any other string.

use super::{Database, Found, Partition};
use crate::{
    collections::{
        Context,
        absent::Finder,
        any, hash,
        object::{self, Type},
        redo_max, serial, string,
    },
    format::entry_word::{EntryWord, class_bytes_min},
    partition::{batch::Batch, shared::Shared},
};
use holdfast_heap::Arena;

/// Parts of a collection, and bytes of it in the heap, up to which it is frozen: it is laid out again in one go, under its
/// partition's lock.
const PARTS_MAX: u64 = 4096;
const BYTES_MAX: u64 = 128 << 10;
/// Bytes of a string up to which it is frozen: that holds it in memory three times. A longer one leaves page by page.
const STRING_BYTES_MAX: usize = 1 << 20;
/// How many times longer than what it takes in the heap a string may be that is frozen.
const HOLES_MAX: u64 = 8;

/// How many collections of a partition are frozen, and the bytes of their items, by their size classes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frozen {
    pub keys: u64,
    pub bytes: u64,
}

impl Frozen {
    /// Counts an entry that has appeared.
    pub fn add(&mut self, word: EntryWord, class: u8) {
        if is_frozen(word) {
            self.keys += 1;
            self.bytes += class_bytes_min(class);
        }
    }

    /// Counts an entry that is gone.
    pub fn subtract(&mut self, word: EntryWord, class: u8) {
        if is_frozen(word) {
            self.keys -= 1;
            self.bytes -= class_bytes_min(class);
        }
    }
}

/// Whether an entry names a frozen collection.
fn is_frozen(word: EntryWord) -> bool {
    !word.in_heap() && word.ty() != Type::String
}

/// What one slice of freezing may take.
pub(crate) struct SliceLimits {
    /// Bytes of items that are made.
    pub bytes: usize,
    /// Entries that are looked at.
    pub entries: usize,
    /// Collections that are less cold are spared.
    pub spared: u32,
    /// Whether those that are not in memory are read.
    pub reads_absent: bool,
}

/// What one slice of freezing came to.
#[derive(Default)]
pub(crate) struct Slice {
    /// Entries that were looked at.
    pub seen: usize,
    /// Collections that were frozen.
    pub keys: u64,
    /// Bytes of the heap that they took.
    pub bytes: u64,
    /// Whether the walk has come to the end of the database.
    pub ended: bool,
}

impl Partition {
    /// Freezes collections of a database, from a cursor on. `has_room` has room in the log for so many bytes, or not.
    pub fn freeze(
        &mut self,
        shared: &Shared,
        batch: &mut Batch,
        db: u8,
        cursor: &mut u64,
        limits: &SliceLimits,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Slice {
        let mut slice = Slice::default();
        let (mut found, mut value) = (Vec::new(), Vec::new());
        let thresholds = self.limits.clone();
        let context = Context { hasher: &shared.hasher, limits: &thresholds, now_ms: 0, expired_ms: 0 };
        let reads_absent = limits.reads_absent || !shared.heap.has_absent();
        let start = batch.tx.buf.len();
        while batch.tx.buf.len() - start < limits.bytes && slice.seen < limits.entries {
            let Database { keys, .. } = &self.databases[db as usize];
            // An empty place takes its time, too.
            slice.seen += 1;
            let next = keys.scan(&self.arena, *cursor, |slot, _, word| {
                slice.seen += 1;
                if word.in_heap() {
                    found.push(Found { slot, word });
                }
            });
            for found in found.drain(..) {
                let obj = found.word.offset();
                let coldness = self.meter.coldness(self.known(db, found.slot));
                if coldness < limits.spared
                    || !(reads_absent || is_in_memory(&self.arena, context, obj))
                    || !may_freeze(&self.arena, obj, &mut has_room)
                {
                    continue;
                }
                value.clear();
                if found.word.ty() == Type::String {
                    let slices = string::slices(&self.arena, obj, 0, string::len(&self.arena, obj));
                    slices.for_each(|slice| value.extend_from_slice(slice));
                } else {
                    serial::export(&self.arena, context, obj, &mut value);
                }
                let before = self.arena.allocated_bytes();
                self.freeze_one(shared, batch, db, found, &value);
                slice.bytes += before - self.arena.allocated_bytes();
                slice.keys += 1;
            }
            *cursor = next.unwrap_or(0);
            if next.is_none() {
                slice.ended = true;
                break;
            }
        }
        slice
    }

    /// Makes an item of a collection, and frees its object.
    fn freeze_one(&mut self, shared: &Shared, batch: &mut Batch, db: u8, found: Found, value: &[u8]) {
        let obj = found.word.offset();
        let key = object::key(&self.arena, obj);
        let keys = &mut self.databases[db as usize].keys;
        let (slot, ty) = (keys.offset(found.slot), found.word.ty());
        let word = batch.add_item(&shared.compression, self.number, slot, db, ty, key, value);
        self.frozen.add(word, batch.class(word));
        let word = word.with_expiry(found.word.has_expiry());
        keys.set_item_word(&mut self.arena, batch, found.slot, word);
        any::destroy(&mut self.arena, &mut batch.tx, obj);
    }

    /// Makes an object of this arena, which holds what an entry's item does, that entry's value, and returns what the
    /// entry is then.
    pub fn thaw(&mut self, shared: &Shared, batch: &mut Batch, db: u8, found: Found, obj: u64) -> Found {
        self.release_item(shared, batch, found.word);
        self.drop_copy(db, found.slot);
        let word = EntryWord::object(found.word.ty(), obj).with_expiry(found.word.has_expiry());
        self.databases[db as usize].keys.set_word(&mut self.arena, batch, found.slot, word);
        Found { slot: found.slot, word }
    }
}

/// Whether all of an object is in memory, and it has not too many parts to be frozen.
fn is_in_memory(arena: &Arena, context: Context, obj: u64) -> bool {
    let finder = || Finder::new(arena, true, 1);
    let is_small = || object::ty(arena, obj) == Type::String || object::count(arena, obj) <= PARTS_MAX;
    finder().has_name(obj) && is_small() && finder().has_whole(context, obj)
}

/// Whether an object can be frozen at all: fields that expire are looked for in the heap, and a collection that is large
/// would take long to lay out again. A string is not laid out to be read; but a long one takes memory while it is short, and one that is nearly all holes would take far more
/// of the log than it takes here. The log must have room for each, and for the redo of its end.
fn may_freeze(arena: &Arena, obj: u64, has_room: &mut impl FnMut(usize) -> bool) -> bool {
    let parts = any::parts(arena, obj);
    if object::ty(arena, obj) == Type::String {
        let (len, bytes) = (string::len(arena, obj), string::heap_bytes(arena, obj));
        let is_dense = HOLES_MAX * bytes >= len as u64;
        let frozen = len + object::key(arena, obj).len();
        return is_dense && frozen <= STRING_BYTES_MAX && has_room(redo_max(parts as usize, frozen));
    }
    let expires = object::ty(arena, obj) == Type::Hash && hash::next_expiry(arena, obj) != 0;
    if expires || parts > PARTS_MAX {
        return false;
    }
    let bytes = any::heap_bytes(arena, obj);
    bytes <= BYTES_MAX && has_room(redo_max(parts as usize, bytes as usize))
}
