//! The index of one database in one partition: extendible hashing over segments of buckets in the heap
//! (`docs/format.md`, "Index"; after Dash, Lu et al., VLDB 2020).
//!
//! An entry lives in its home bucket or in the next one; the home bucket counts the entries that overflowed, so a
//! miss reads the second bucket only if there are any. When neither bucket has room and no neighbours can move over, the
//! segment gets one more page, and when it has seven, it splits by one more bit of the digest: no other segment is touched.
//!
//! Beside each segment lie, in volatile memory, the handles of cached copies. A segment is *attached* at its first
//! use after a start, when its entries are counted into the log's live bytes.

mod bucket;
mod follow;
mod growing;
mod handles;
mod layout;
mod placing;
mod salvage;
mod segment;
#[cfg(test)]
mod tests;
mod walking;

use crate::{
    cache::{Handle, uses::MARK},
    format::{digest::Digest, entry_word::EntryWord},
    partition::batch::Batch,
    util::probe,
};
use bucket::{
    Bucket, ENTRY_BYTES, OVERFLOW, PAYLOAD_MASK, SLOTS, candidates, entry_bytes, entry_offset, find_in,
    fingerprint, fingerprints, tag, word_if,
};
pub use follow::Rooted;
pub use handles::HandleMemory;
use holdfast_heap::{Arena, Full};
pub use salvage::Lookup;
use segment::{NAME_BYTES, OLD_NAME_BYTES, Segment};
use std::sync::Arc;

const MAX_DEPTH: u32 = 32;
/// Bytes of a page of the heap, of which segments are made.
const PAGE: u64 = holdfast_heap::PAGE as u64;
/// Bits of a cursor of [`Index::scan`] that name a bucket of a segment.
const BUCKET_BITS: u32 = 7;
/// Bits of a cursor of [`Index::scan`].
pub const CURSOR_BITS: u32 = MAX_DEPTH + BUCKET_BITS;
/// Set in a root beside the depth, if the directory has entries of [`NAME_BYTES`].
const HAS_NAMES: u64 = 1 << 32;
/// Bytes of an index's root: directory offset, depth, number of entries.
pub const ROOT_BYTES: u64 = 24;
/// Where the number of entries lies in a root, behind what says where the directory is.
const DEPTH_END: u64 = 16;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    segment: u32,
    bucket: u8,
    entry: u8,
}

impl Slot {
    /// The number of the segment that it is in.
    #[inline]
    pub fn segment(self) -> u32 {
        self.segment
    }

    /// Which place of the segment it is.
    #[inline]
    fn place(self) -> usize {
        self.bucket as usize * SLOTS + self.entry as usize
    }
}

/// The volatile side of an index; all that it says persistently is in the heap, from the root on.
pub struct Index {
    root: u64,
    depth: u32,
    /// Bytes of an entry of the directory in the heap.
    name_bytes: usize,
    directory: Vec<u32>,
    segments: Vec<Segment>,
    /// Pages that the segments have.
    pages: usize,
    len: u64,
    items: bool,
    memory: Arc<HandleMemory>,
}

impl Index {
    /// Opens the index whose root is at `root`; all zero is an empty one. `items`: its words may name items of a batch.
    pub fn open(
        arena: &mut Arena,
        root: u64,
        items: bool,
        memory: Arc<HandleMemory>,
    ) -> Result<Index, String> {
        let directory_at = arena.u64(root);
        let depth = arena.u64(root + 8);
        let len = arena.u64(root + DEPTH_END);
        let name_bytes = if depth & HAS_NAMES == 0 { OLD_NAME_BYTES } else { NAME_BYTES };
        let depth = depth & !HAS_NAMES;
        let mut index = Index {
            root,
            depth: depth as u32,
            name_bytes,
            directory: Vec::new(),
            segments: Vec::new(),
            pages: 0,
            len,
            items,
            memory,
        };
        if directory_at == 0 {
            return Ok(index);
        }
        if depth > u64::from(MAX_DEPTH) {
            return Err(format!("index directory of depth {depth}"));
        }
        let name = |i: u64| arena.bytes(directory_at + i * name_bytes as u64, name_bytes);
        for i in 0..1u64 << depth {
            if i == 0 || name(i) != name(i - 1) {
                let segment =
                    Segment::named(name(i)).map_err(|e| format!("index directory entry {i} {e}"))?;
                index.pages += segment.layout.pages();
                index.segments.push(segment);
            }
            index.directory.push(index.segments.len() as u32 - 1);
        }
        let mut at = 0;
        while at < index.directory.len() {
            let segment = index.directory[at];
            let run = index.directory[at..].iter().take_while(|&&s| s == segment).count();
            if !run.is_power_of_two() || at % run != 0 {
                return Err(format!("index directory entry {at} repeats {run} times"));
            }
            index.segments[segment as usize].layout.depth = (index.depth - run.ilog2()) as u8;
            at += run;
        }
        index.segments.iter().flat_map(Segment::blocks).for_each(|(offset, bytes)| arena.pin(offset, bytes));
        Ok(index)
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of volatile memory beside the heap.
    pub fn volatile_bytes(&self) -> usize {
        let handles: usize = self.segments.iter().map(|segment| segment.handles.bytes()).sum();
        handles + self.segments.capacity() * size_of::<Segment>() + self.directory.capacity() * 4
    }

    fn segment_of(&self, h0: u64) -> Option<u32> {
        let place = if self.depth == 0 { 0 } else { (h0 >> (64 - self.depth)) as usize };
        self.directory.get(place).copied()
    }

    /// The first use of the digest's segment since the start, if this is it: the caller must then count its entries.
    pub fn attach(&mut self, digest: Digest) -> Option<u32> {
        let segment = self.segment_of(digest.h0)?;
        self.attach_segment(segment).then_some(segment)
    }

    /// Marks a segment as attached; true if it was not.
    pub fn attach_segment(&mut self, segment: u32) -> bool {
        !std::mem::replace(&mut self.segments[segment as usize].is_attached, true)
    }

    /// Bytes that the index has allocated in the heap.
    pub fn heap_bytes(&self) -> u64 {
        let is_empty = self.directory.is_empty();
        let directory = if is_empty { 0 } else { Arena::usable_size(self.name_bytes << self.depth) };
        directory as u64 + self.pages as u64 * PAGE
    }

    /// Whether it had many entries once, and has none now.
    pub fn is_hollow(&self) -> bool {
        self.len == 0 && self.segments.len() > 1
    }

    /// Number of segments.
    pub fn segment_count(&self) -> u32 {
        self.segments.len() as u32
    }

    fn bucket_offset(&self, segment: u32, bucket: usize) -> u64 {
        self.segments[segment as usize].bucket_offset(bucket)
    }

    /// The heap offset of an entry.
    pub fn offset(&self, slot: Slot) -> u64 {
        entry_offset(self.bucket_offset(slot.segment, slot.bucket as usize), slot.entry)
    }

    /// The payload of an entry.
    pub fn word(&self, arena: &Arena, slot: Slot) -> EntryWord {
        EntryWord(arena.u64(self.offset(slot)) & PAYLOAD_MASK)
    }

    /// The entry with this digest.
    #[inline]
    pub fn find(&self, arena: &Arena, digest: Digest) -> Option<Slot> {
        self.get(arena, digest).map(|(slot, _)| slot)
    }

    /// The entry with this digest, and its payload.
    #[inline]
    pub fn get(&self, arena: &Arena, digest: Digest) -> Option<(Slot, EntryWord)> {
        let number = self.segment_of(digest.h0)?;
        let segment = &self.segments[number as usize];
        let home = segment.layout.home(digest.h0);
        let [first, second] = segment.two_buckets(arena, home);
        // All that will be read, at once: else each line would wait for the one before.
        segment.prefetch(first, home);
        if let Some((entry, word)) = find_in(first, digest) {
            return Some((Slot { segment: number, bucket: home as u8, entry }, word));
        }
        if first[OVERFLOW] == 0 {
            return None;
        }
        let (entry, word) = find_in(second, digest)?;
        Some((Slot { segment: number, bucket: segment.layout.next(home) as u8, entry }, word))
    }

    /// The payload of the entry in a slot, which was this index's once or another's, if its digest is this one.
    #[inline]
    pub fn get_at(&self, arena: &Arena, slot: Slot, digest: Digest) -> Option<EntryWord> {
        let segment = self.segments.get(slot.segment as usize)?;
        if slot.bucket as usize >= segment.layout.buckets() {
            return None;
        }
        let bucket = segment.bucket(arena, slot.bucket as usize);
        word_if(bucket, slot.entry as usize, digest).filter(|_| bucket[slot.entry as usize] != 0)
    }

    /// Asks for the memory of the fingerprints in the digest's home bucket and in the next one; a slot of the first.
    #[inline]
    pub fn prefetch_fingerprints(&self, arena: &Arena, digest: Digest) -> Option<Slot> {
        let number = self.segment_of(digest.h0)?;
        let segment = &self.segments[number as usize];
        let home = segment.layout.home(digest.h0);
        for bucket in segment.two_buckets(arena, home) {
            probe::prefetch(fingerprints(bucket));
        }
        Some(Slot { segment: number, bucket: home as u8, entry: 0 })
    }

    /// Asks for the memory of the entry that has the digest's fingerprint, in the home bucket, of which this is a slot, or
    /// in the next one, and of its handle; the entry's slot.
    #[inline]
    pub fn prefetch_entry(&self, arena: &Arena, home: Slot, digest: Digest) -> Option<Slot> {
        let segment = &self.segments[home.segment as usize];
        let [first, second] = segment.two_buckets(arena, home.bucket as usize);
        let (mut bucket, mut number, mut found) = (first, home.bucket as usize, candidates(first, digest));
        if found == 0 {
            (bucket, number, found) = (second, segment.layout.next(number), candidates(second, digest));
        }
        let entry = found.trailing_zeros() as usize;
        probe::prefetch(bucket.get(entry_bytes(entry))?);
        let place = number * SLOTS + entry;
        if let Some(handle) = segment.handles.in_array(place..place + 1) {
            probe::prefetch(handle);
        }
        Some(Slot { bucket: number as u8, entry: entry as u8, ..home })
    }

    fn bucket<'a>(&self, arena: &'a Arena, segment: u32, number: usize) -> &'a Bucket {
        self.segments[segment as usize].bucket(arena, number)
    }

    /// The cached copy of an entry.
    #[inline]
    pub fn handle(&self, slot: Slot) -> Handle {
        let handle = self.segments[slot.segment as usize].handles.get(slot.place());
        if handle & MARK == 0 { handle } else { 0 }
    }

    /// The cached copy of an entry, or the mark in its place, or a later one if that was given up.
    #[inline]
    pub fn handle_or_mark(&self, slot: Slot) -> u32 {
        self.segments[slot.segment as usize].handles.get_or_given_up(slot.place())
    }

    /// The handles of all cached copies, also where no entry is.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.segments.iter().flat_map(|segment| segment.handles.copies())
    }

    /// Names the cached copy of an entry, or puts a mark in its place.
    pub fn set_handle(&mut self, slot: Slot, handle: Handle) {
        self.segments[slot.segment as usize].handles.set(&self.memory, slot.place(), handle);
    }

    /// Overwrites an entry's payload.
    pub fn set_word(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot, word: EntryWord) {
        let offset = self.offset(slot);
        let tag = arena.u64(offset) & !PAYLOAD_MASK;
        arena.write_u64(&mut batch.tx, offset, word.0 | tag);
    }

    /// Sets or clears an entry's has-expiry bit, and leaves its location alone.
    pub fn set_expiry_bit(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot, on: bool) {
        let offset = self.offset(slot);
        let word = EntryWord(arena.u64(offset)).with_expiry(on);
        arena.write_u16(&mut batch.tx, offset + 6, (word.0 >> 48) as u16);
    }

    /// Overwrites the type and flags of an entry with redo, and its location without: the redo of the location is
    /// the item's record. If the item leaves the entry before the batch is committed, the location is overwritten with redo.
    pub fn set_item_word(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot, word: EntryWord) {
        let offset = self.offset(slot);
        let old = arena.u64(offset);
        let new = word.0 | old & !PAYLOAD_MASK;
        arena.patch(offset, &new.to_le_bytes()[..6]);
        if old >> 48 != new >> 48 {
            arena.write_u16(&mut batch.tx, offset + 6, (new >> 48) as u16);
        }
    }

    /// Makes room for an entry with a digest that is not in the index; its word is to be set next.
    pub fn insert(&mut self, arena: &mut Arena, batch: &mut Batch, digest: Digest) -> Result<Slot, Full> {
        debug_assert!(self.find(arena, digest).is_none(), "I-17");
        if self.directory.is_empty() {
            self.create(arena, batch)?;
        }
        let slot = loop {
            let segment = self.segment_of(digest.h0).expect("the directory is not empty");
            match self.make_room(arena, batch, segment, digest.h0) {
                Some(slot) => break slot,
                None => self.grow(arena, batch, segment, digest.h0)?,
            }
        };
        let bucket_at = self.bucket_offset(slot.segment, slot.bucket as usize);
        let mut entry = [0; ENTRY_BYTES as usize];
        entry[..8].copy_from_slice(&tag(digest).to_le_bytes());
        entry[8..].copy_from_slice(&digest.h0.to_le_bytes());
        // Without the location, which is to be set.
        arena.write(&mut batch.tx, entry_offset(bucket_at, slot.entry) + 6, &entry[6..]);
        arena.write_u8(&mut batch.tx, bucket_at + u64::from(slot.entry), fingerprint(digest));
        let home = self.segments[slot.segment as usize].layout.home(digest.h0);
        if slot.bucket as usize != home {
            self.add_overflow(arena, batch, slot.segment, home, 1);
        }
        self.set_len(arena, batch, self.len + 1);
        Ok(slot)
    }

    /// Removes an entry.
    pub fn remove(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot) {
        let h0 = arena.u64(self.offset(slot) + 8);
        let home = self.segments[slot.segment as usize].layout.home(h0);
        self.clear(arena, batch, slot, home);
        self.set_handle(slot, 0);
        self.set_len(arena, batch, self.len - 1);
    }

    fn clear(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot, home: usize) {
        let bucket_at = self.bucket_offset(slot.segment, slot.bucket as usize);
        arena.write_u8(&mut batch.tx, bucket_at + u64::from(slot.entry), 0);
        if slot.bucket as usize != home {
            self.add_overflow(arena, batch, slot.segment, home, -1);
        }
    }

    fn set_len(&mut self, arena: &mut Arena, batch: &mut Batch, len: u64) {
        self.len = len;
        arena.write_u64(&mut batch.tx, self.root + DEPTH_END, len);
    }

    fn add_overflow(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32, bucket: usize, by: i8) {
        let at = self.bucket_offset(segment, bucket) + OVERFLOW as u64;
        let count = arena.u8(at).checked_add_signed(by).expect("a bucket overflows by at most 15 entries");
        arena.write_u8(&mut batch.tx, at, count);
    }

    /// Frees all that the index holds in the heap, and empties it. The values are the caller's.
    pub fn clear_all(&mut self, arena: &mut Arena, batch: &mut Batch) {
        if self.directory.is_empty() {
            return;
        }
        for mut segment in std::mem::take(&mut self.segments) {
            segment.handles.clear(&self.memory);
            segment.blocks().for_each(|(offset, bytes)| arena.free(&mut batch.tx, offset, bytes));
        }
        arena.free(&mut batch.tx, arena.u64(self.root), self.name_bytes << self.depth);
        arena.write(&mut batch.tx, self.root, &[0; ROOT_BYTES as usize]);
        self.directory = Vec::new();
        (self.name_bytes, self.pages) = (OLD_NAME_BYTES, 0);
        self.depth = 0;
        self.len = 0;
    }

    /// Whether a segment has entries.
    pub fn holds_any(&self, arena: &Arena, segment: u32) -> bool {
        let segment = &self.segments[segment as usize];
        (0..segment.layout.buckets()).any(|number| segment.bucket(arena, number)[..SLOTS] != [0; SLOTS])
    }

    /// Removes the entries of a segment, which have no cached copies any more. The values are the caller's.
    pub fn clear_segment(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32) {
        self.segments[segment as usize].handles.clear(&self.memory);
        let mut entries = 0;
        self.for_each_in(arena, segment, |_, _, _| entries += 1);
        let blocks = self.segments[segment as usize].blocks();
        blocks.for_each(|(offset, bytes)| arena.fill(&mut batch.tx, offset, bytes, 0));
        self.set_len(arena, batch, self.len - entries);
    }
}
