//! The index of one database in one partition: extendible hashing over segments of buckets in the heap
//! (`docs/format.md`, "Index"; after Dash, Lu et al., VLDB 2020).
//!
//! An entry lives in its home bucket or in the next one; the home bucket counts the entries that overflowed, so a
//! miss reads the second bucket only if there are any. When neither bucket has room and no neighbour can move over, the
//! segment splits by one more bit of the digest: no other segment is touched.
//!
//! Beside each segment lie, in volatile memory, the handles of cached copies. A segment is *attached* at its first
//! use after a start, when its entries are counted into the log's live bytes.

use crate::{
    cache::{Handle, uses::MARK},
    format::{
        digest::Digest,
        entry_word::{EntryWord, PAYLOAD_BITS},
    },
    partition::batch::Batch,
    util::probe,
};
use holdfast_heap::{Arena, Full};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

const BUCKETS: usize = 64;
const SLOTS: usize = 15;
const BUCKET_BYTES: u64 = 256;
const ENTRY_BYTES: u64 = 16;
/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = BUCKETS * BUCKET_BYTES as usize;
/// Bytes of the handles of a segment.
const HANDLE_BYTES: usize = BUCKETS * SLOTS * size_of::<Handle>();
const OVERFLOW: usize = SLOTS;
const PAYLOAD_MASK: u64 = (1 << PAYLOAD_BITS) - 1;
const MAX_DEPTH: u32 = 32;
/// Bits of a cursor of [`Index::scan`].
pub const CURSOR_BITS: u32 = MAX_DEPTH + BUCKETS.ilog2();
/// Bytes of an index's root: directory offset, depth, number of entries.
pub const ROOT_BYTES: u64 = 24;

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
}

struct Segment {
    offset: u64,
    depth: u32,
    attached: bool,
    handles: Option<Box<[Handle; BUCKETS * SLOTS]>>,
}

impl Segment {
    fn bucket_offset(&self, number: usize) -> u64 {
        self.offset + number as u64 * BUCKET_BYTES
    }

    fn bucket<'a>(&self, arena: &'a Arena, number: usize) -> &'a [u8; BUCKET_BYTES as usize] {
        let bytes = arena.bytes(self.bucket_offset(number), BUCKET_BYTES as usize);
        bytes.try_into().expect("a bucket's length")
    }

    /// A bucket, and the one behind it, which comes after the last one first again.
    #[inline]
    fn two_buckets<'a>(&self, arena: &'a Arena, number: usize) -> [&'a [u8; BUCKET_BYTES as usize]; 2] {
        let bytes = arena.bytes(self.offset, SEGMENT_BYTES);
        let bucket =
            |number| bytes[number * BUCKET_BYTES as usize..].first_chunk().expect("a bucket's length");
        [bucket(number), bucket((number + 1) % BUCKETS)]
    }

    /// Asks for the memory of a bucket and of the handles of its entries.
    #[inline]
    fn prefetch(&self, bucket: &[u8; BUCKET_BYTES as usize], number: usize) {
        probe::prefetch(bucket);
        if let Some(handles) = &self.handles {
            probe::prefetch(&handles[number * SLOTS..(number + 1) * SLOTS]);
        }
    }
}

/// The volatile side of an index; all that it says persistently is in the heap, from the root on.
pub struct Index {
    root: u64,
    depth: u32,
    directory: Vec<u32>,
    segments: Vec<Segment>,
    len: u64,
    items: bool,
    /// Bytes of handles, of all indexes that count here.
    handle_bytes: Arc<AtomicUsize>,
}

fn fingerprint(digest: Digest) -> u8 {
    ((digest.h1 >> 56) as u8).max(1)
}

fn tag(digest: Digest) -> u64 {
    digest.h1 << PAYLOAD_BITS
}

fn home(h0: u64) -> usize {
    h0 as usize % BUCKETS
}

impl Index {
    /// Opens the index whose root is at `root`; all zero is an empty one. `items`: its words may name items of a batch.
    pub fn open(
        arena: &mut Arena,
        root: u64,
        items: bool,
        handle_bytes: Arc<AtomicUsize>,
    ) -> Result<Index, String> {
        let directory_at = arena.u64(root);
        let depth = arena.u64(root + 8);
        let len = arena.u64(root + 16);
        let mut index = Index {
            root,
            depth: depth as u32,
            directory: Vec::new(),
            segments: Vec::new(),
            len,
            items,
            handle_bytes,
        };
        if directory_at == 0 {
            return Ok(index);
        }
        if depth > u64::from(MAX_DEPTH) {
            return Err(format!("index directory of depth {depth}"));
        }
        let mut last = u32::MAX;
        for i in 0..1u64 << depth {
            let page = arena.u32(directory_at + 4 * i);
            if page == last {
                let segment = index.segments.len() as u32 - 1;
                index.directory.push(segment);
                continue;
            }
            last = page;
            index.directory.push(index.segments.len() as u32);
            index.segments.push(Segment {
                offset: u64::from(page) * PAGE,
                depth: 0,
                attached: false,
                handles: None,
            });
        }
        let mut at = 0;
        while at < index.directory.len() {
            let segment = index.directory[at];
            let run = index.directory[at..].iter().take_while(|&&s| s == segment).count();
            if !run.is_power_of_two() || at % run != 0 {
                return Err(format!("index directory entry {at} repeats {run} times"));
            }
            index.segments[segment as usize].depth = index.depth - run.ilog2();
            at += run;
        }
        index.segments.iter().for_each(|segment| arena.pin(segment.offset, SEGMENT_BYTES));
        Ok(index)
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of volatile memory beside the heap.
    pub fn volatile_bytes(&self) -> usize {
        let handles = self.segments.iter().filter(|s| s.handles.is_some()).count() * HANDLE_BYTES;
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
        !std::mem::replace(&mut self.segments[segment as usize].attached, true)
    }

    /// Bytes that the index has allocated in the heap.
    pub fn heap_bytes(&self) -> u64 {
        let directory = if self.directory.is_empty() { 0 } else { Arena::usable_size(4 << self.depth) };
        (directory + self.segments.len() * Arena::usable_size(SEGMENT_BYTES)) as u64
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
        let (number, home) = (self.segment_of(digest.h0)?, home(digest.h0));
        let segment = &self.segments[number as usize];
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
        Some((Slot { segment: number, bucket: ((home + 1) % BUCKETS) as u8, entry }, word))
    }

    /// The payload of the entry in a slot, which was this index's once or another's, if its digest is this one.
    #[inline]
    pub fn get_at(&self, arena: &Arena, slot: Slot, digest: Digest) -> Option<EntryWord> {
        let bucket = self.segments.get(slot.segment as usize)?.bucket(arena, slot.bucket as usize);
        word_if(bucket, slot.entry as usize, digest).filter(|_| bucket[slot.entry as usize] != 0)
    }

    /// Asks for the memory of the fingerprints in the digest's home bucket and in the next one; a slot of the first.
    #[inline]
    pub fn prefetch_fingerprints(&self, arena: &Arena, digest: Digest) -> Option<Slot> {
        let (segment, home) = (self.segment_of(digest.h0)?, home(digest.h0));
        for bucket in self.segments[segment as usize].two_buckets(arena, home) {
            probe::prefetch(fingerprints(bucket));
        }
        Some(Slot { segment, bucket: home as u8, entry: 0 })
    }

    /// Asks for the memory of the entry that has the digest's fingerprint, in the home bucket, of which this is a slot, or
    /// in the next one, and of its handle; the entry's slot.
    #[inline]
    pub fn prefetch_entry(&self, arena: &Arena, home: Slot, digest: Digest) -> Option<Slot> {
        let segment = &self.segments[home.segment as usize];
        let [first, second] = segment.two_buckets(arena, home.bucket as usize);
        let (mut bucket, mut number, mut found) = (first, home.bucket as usize, candidates(first, digest));
        if found == 0 {
            (bucket, number, found) = (second, (number + 1) % BUCKETS, candidates(second, digest));
        }
        let entry = found.trailing_zeros() as usize;
        probe::prefetch(bucket[16..].chunks_exact(ENTRY_BYTES as usize).nth(entry)?);
        if let Some(handles) = &segment.handles {
            probe::prefetch(&handles[number * SLOTS + entry..][..1]);
        }
        Some(Slot { bucket: number as u8, entry: entry as u8, ..home })
    }

    fn bucket<'a>(&self, arena: &'a Arena, segment: u32, number: usize) -> &'a [u8; BUCKET_BYTES as usize] {
        self.segments[segment as usize].bucket(arena, number)
    }

    /// The cached copy of an entry.
    #[inline]
    pub fn handle(&self, slot: Slot) -> Handle {
        let handle = self.handle_or_mark(slot);
        if handle & MARK == 0 { handle } else { 0 }
    }

    /// The cached copy of an entry, or the mark in its place.
    #[inline]
    pub fn handle_or_mark(&self, slot: Slot) -> u32 {
        match &self.segments[slot.segment as usize].handles {
            Some(handles) => handles[slot.bucket as usize * SLOTS + slot.entry as usize],
            None => 0,
        }
    }

    /// The handles of all cached copies, also where no entry is.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        let handles = self.segments.iter().filter_map(|segment| segment.handles.as_deref()).flatten();
        handles.copied().filter(|&handle| handle != 0 && handle & MARK == 0)
    }

    /// Names the cached copy of an entry, or puts a mark in its place.
    pub fn set_handle(&mut self, slot: Slot, handle: Handle) {
        let handles = &mut self.segments[slot.segment as usize].handles;
        if handle == 0 && handles.is_none() {
            return;
        }
        let handles = handles.get_or_insert_with(|| {
            self.handle_bytes.fetch_add(HANDLE_BYTES, Relaxed);
            Box::new([0; BUCKETS * SLOTS])
        });
        handles[slot.bucket as usize * SLOTS + slot.entry as usize] = handle;
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
            match self.make_room(arena, batch, segment, home(digest.h0)) {
                Some(slot) => break slot,
                None => self.split(arena, batch, segment)?,
            }
        };
        let bucket_at = self.bucket_offset(slot.segment, slot.bucket as usize);
        let mut entry = [0; ENTRY_BYTES as usize];
        entry[..8].copy_from_slice(&tag(digest).to_le_bytes());
        entry[8..].copy_from_slice(&digest.h0.to_le_bytes());
        // Without the location, which is to be set.
        arena.write(&mut batch.tx, entry_offset(bucket_at, slot.entry) + 6, &entry[6..]);
        arena.write_u8(&mut batch.tx, bucket_at + u64::from(slot.entry), fingerprint(digest));
        let home = home(digest.h0);
        if slot.bucket as usize != home {
            self.add_overflow(arena, batch, slot.segment, home, 1);
        }
        self.set_len(arena, batch, self.len + 1);
        Ok(slot)
    }

    /// Removes an entry.
    pub fn remove(&mut self, arena: &mut Arena, batch: &mut Batch, slot: Slot) {
        let h0 = arena.u64(self.offset(slot) + 8);
        self.clear(arena, batch, slot, home(h0));
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
        arena.write_u64(&mut batch.tx, self.root + 16, len);
    }

    fn add_overflow(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32, bucket: usize, by: i8) {
        let at = self.bucket_offset(segment, bucket) + OVERFLOW as u64;
        let count = arena.u8(at).checked_add_signed(by).expect("a bucket overflows by at most 15 entries");
        arena.write_u8(&mut batch.tx, at, count);
    }

    fn create(&mut self, arena: &mut Arena, batch: &mut Batch) -> Result<(), Full> {
        let segment = self.new_segment(arena, batch, 0)?;
        for bucket in 0..BUCKETS {
            let at = self.bucket_offset(segment, bucket);
            arena.write(&mut batch.tx, at, &[0; 16]);
        }
        self.set_directory(arena, batch, vec![segment], 0).inspect_err(|_| self.drop_segment(arena, batch))
    }

    fn new_segment(&mut self, arena: &mut Arena, batch: &mut Batch, depth: u32) -> Result<u32, Full> {
        let offset = arena.alloc(&mut batch.tx, SEGMENT_BYTES)?;
        arena.pin(offset, SEGMENT_BYTES);
        self.segments.push(Segment { offset, depth, attached: true, handles: None });
        Ok(self.segments.len() as u32 - 1)
    }

    /// Takes back the newest segment, which the directory does not name yet.
    fn drop_segment(&mut self, arena: &mut Arena, batch: &mut Batch) {
        let segment = self.segments.pop().expect("a segment was just made");
        arena.free(&mut batch.tx, segment.offset, SEGMENT_BYTES);
    }

    /// Writes a whole directory to a new place and frees the old one.
    fn set_directory(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        directory: Vec<u32>,
        depth: u32,
    ) -> Result<(), Full> {
        let old = arena.u64(self.root);
        let pages: Vec<u8> = directory.iter().flat_map(|&s| self.page(s).to_le_bytes()).collect();
        let at = arena.alloc(&mut batch.tx, pages.len())?;
        arena.write(&mut batch.tx, at, &pages);
        if old != 0 {
            arena.free(&mut batch.tx, old, 4usize << self.depth);
        }
        arena.write_u64(&mut batch.tx, self.root, at);
        arena.write_u64(&mut batch.tx, self.root + 8, u64::from(depth));
        (self.directory, self.depth) = (directory, depth);
        Ok(())
    }

    fn page(&self, segment: u32) -> u32 {
        u32::try_from(self.segments[segment as usize].offset / PAGE).expect("a heap of less than 16 TiB")
    }

    /// A free slot in the home bucket or the next, moving a neighbour over if that gives one.
    fn make_room(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32, home: usize) -> Option<Slot> {
        let next = (home + 1) % BUCKETS;
        let buckets = &self.segments[segment as usize];
        let (free_home, free_next) = (free(buckets.bucket(arena, home)), free(buckets.bucket(arena, next)));
        if free_home.count_ones() >= free_next.count_ones() && free_home != 0 {
            return Some(Slot { segment, bucket: home as u8, entry: free_home.trailing_zeros() as u8 });
        }
        if free_next != 0 {
            return Some(Slot { segment, bucket: next as u8, entry: free_next.trailing_zeros() as u8 });
        }
        let after = (next + 1) % BUCKETS;
        let before = (home + BUCKETS - 1) % BUCKETS;
        self.displace(arena, batch, segment, next, next, after)
            .or_else(|| self.displace(arena, batch, segment, home, before, before))
    }

    /// Moves an entry with home bucket `of` from bucket `from` to `to`, and returns the slot that it left.
    fn displace(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        from: usize,
        of: usize,
        to: usize,
    ) -> Option<Slot> {
        let room = free(self.bucket(arena, segment, to));
        if room == 0 {
            return None;
        }
        let bytes = self.bucket(arena, segment, from);
        let entry = (0..SLOTS).find(|&i| bytes[i] != 0 && home(h0_of(bytes, i)) == of)? as u8;
        let left = Slot { segment, bucket: from as u8, entry };
        let taken = Slot { segment, bucket: to as u8, entry: room.trailing_zeros() as u8 };
        self.move_entry(arena, batch, left, taken);
        if to != of {
            self.add_overflow(arena, batch, segment, of, 1);
        }
        self.clear(arena, batch, left, of);
        Some(left)
    }

    /// Copies an entry with its fingerprint and its cached copy, and tells a pending item where its entry is now.
    fn move_entry(&mut self, arena: &mut Arena, batch: &mut Batch, from: Slot, to: Slot) {
        let (source, target) = (self.offset(from), self.offset(to));
        arena.copy(&mut batch.tx, source, target, ENTRY_BYTES as usize);
        let fingerprint =
            arena.u8(self.bucket_offset(from.segment, from.bucket as usize) + u64::from(from.entry));
        let bucket_at = self.bucket_offset(to.segment, to.bucket as usize);
        arena.write_u8(&mut batch.tx, bucket_at + u64::from(to.entry), fingerprint);
        self.set_handle(to, self.handle_or_mark(from));
        self.set_handle(from, 0);
        self.retarget(arena, batch, from, to);
    }

    /// Tells a pending item, if an entry that was moved names one, where the entry is now. The location in the old place,
    /// of which nothing is the redo, goes.
    fn retarget(&self, arena: &mut Arena, batch: &mut Batch, from: Slot, to: Slot) {
        if self.items {
            if let Some(number) = self.word(arena, to).pending_number() {
                batch.retarget(number, self.offset(to));
                arena.write(&mut batch.tx, self.offset(from), &EntryWord::NO_ITEM); // I-14
            }
        }
    }

    /// Splits a segment by one more bit: the entries with this bit set move to a new one, to the same bucket.
    fn split(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32) -> Result<(), Full> {
        let depth = self.segments[segment as usize].depth;
        assert!(depth < MAX_DEPTH, "960 entries agree in {MAX_DEPTH} bits of a keyed hash");
        let new = self.new_segment(arena, batch, depth + 1)?;
        if depth == self.depth {
            let doubled = self.directory.iter().flat_map(|&s| [s, s]).collect();
            self.set_directory(arena, batch, doubled, depth + 1)
                .inspect_err(|_| self.drop_segment(arena, batch))?;
        }
        self.segments[segment as usize].depth = depth + 1;
        let moves = |h0: u64| h0 >> (63 - depth) & 1 == 1;
        let mut headers = [[0u8; 16]; BUCKETS];
        for number in 0..BUCKETS {
            let mut old = *self.bucket(arena, segment, number);
            let mut image = [0u8; BUCKET_BYTES as usize];
            let mut moved = [(0u8, 0u8); SLOTS];
            let mut count = 0;
            for i in 0..SLOTS {
                if old[i] == 0 || !moves(h0_of(&old, i)) {
                    continue;
                }
                image[count] = old[i];
                let at = 16 + count * 16;
                image[at..at + 16].copy_from_slice(&old[16 + i * 16..32 + i * 16]);
                old[i] = 0;
                let home = home(h0_of(&image, count));
                if home != number {
                    headers[home][OVERFLOW] += 1;
                }
                moved[count] = (i as u8, count as u8);
                count += 1;
            }
            headers[number][..SLOTS].copy_from_slice(&image[..SLOTS]);
            let target = self.bucket_offset(new, number);
            if count > 0 {
                arena.write(&mut batch.tx, target + 16, &image[16..16 + count * 16]);
                let source = self.bucket_offset(segment, number);
                arena.write(&mut batch.tx, source, &old[..SLOTS]);
            }
            for &(from, to) in &moved[..count] {
                let from = Slot { segment, bucket: number as u8, entry: from };
                let to = Slot { segment: new, bucket: number as u8, entry: to };
                self.set_handle(to, self.handle_or_mark(from));
                self.set_handle(from, 0);
                self.retarget(arena, batch, from, to);
            }
        }
        for (number, header) in headers.iter().enumerate() {
            let target = self.bucket_offset(new, number);
            arena.write(&mut batch.tx, target, header);
            if header[OVERFLOW] != 0 {
                self.add_overflow(arena, batch, segment, number, -(header[OVERFLOW] as i8));
            }
        }
        self.redirect(arena, batch, segment, new);
        Ok(())
    }

    /// Points the upper half of a split segment's directory entries at the new one.
    fn redirect(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32, new: u32) {
        let first = self.directory.iter().position(|&s| s == segment).expect("a segment is in the directory");
        let run = 1usize << (self.depth + 1 - self.segments[segment as usize].depth);
        let upper = first + run / 2..first + run;
        self.directory[upper.clone()].fill(new);
        let page = self.page(new).to_le_bytes();
        let at = arena.u64(self.root) + 4 * upper.start as u64;
        arena.write(&mut batch.tx, at, &page.repeat(upper.len()));
    }

    /// Calls `f` with each entry (slot, what is known of the digest, word) of a segment.
    pub fn for_each_in(&self, arena: &Arena, segment: u32, mut f: impl FnMut(Slot, Digest, EntryWord)) {
        for number in 0..BUCKETS {
            let bytes = self.bucket(arena, segment, number);
            for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                let slot = Slot { segment, bucket: number as u8, entry: i as u8 };
                f(slot, digest_of(bytes, i), word_of(bytes, i));
            }
        }
    }

    /// One step of a scan: calls `f` with each entry (slot, what is known of the digest, word) whose home is the bucket at `cursor`, and
    /// returns the next cursor, or `None` after the last bucket.
    ///
    /// A cursor is the upper half of `h0`, which is as much as a directory can tell apart, and a bucket. Segments only ever split, so what a
    /// scan has passed stays behind it, and what it has not yet seen stays ahead: an entry that is there throughout is
    /// seen at least once.
    pub fn scan(
        &self,
        arena: &Arena,
        cursor: u64,
        mut f: impl FnMut(Slot, Digest, EntryWord),
    ) -> Option<u64> {
        let (prefix, number) = (cursor / BUCKETS as u64, cursor as usize % BUCKETS);
        let segment = self.segment_of(prefix << (64 - MAX_DEPTH))?;
        for bucket in [number, (number + 1) % BUCKETS] {
            let bytes = self.bucket(arena, segment, bucket);
            for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                let h0 = h0_of(bytes, i);
                if home(h0) == number {
                    let slot = Slot { segment, bucket: bucket as u8, entry: i as u8 };
                    f(slot, digest_of(bytes, i), word_of(bytes, i));
                }
            }
        }
        if number + 1 < BUCKETS {
            return Some(cursor + 1);
        }
        let width = MAX_DEPTH - self.segments[segment as usize].depth;
        let next = ((prefix >> width) + 1) << width;
        (next < 1 << MAX_DEPTH).then_some(next * BUCKETS as u64)
    }

    /// Frees all that the index holds in the heap, and empties it. The values are the caller's.
    pub fn clear_all(&mut self, arena: &mut Arena, batch: &mut Batch) {
        if self.directory.is_empty() {
            return;
        }
        for segment in std::mem::take(&mut self.segments) {
            if segment.handles.is_some() {
                self.handle_bytes.fetch_sub(HANDLE_BYTES, Relaxed);
            }
            arena.free(&mut batch.tx, segment.offset, SEGMENT_BYTES);
        }
        arena.free(&mut batch.tx, arena.u64(self.root), 4usize << self.depth);
        arena.write(&mut batch.tx, self.root, &[0; ROOT_BYTES as usize]);
        self.directory = Vec::new();
        self.depth = 0;
        self.len = 0;
    }

    /// Whether a segment has entries.
    pub fn holds_any(&self, arena: &Arena, segment: u32) -> bool {
        (0..BUCKETS).any(|number| self.bucket(arena, segment, number)[..SLOTS] != [0; SLOTS])
    }

    /// Removes the entries of a segment, which have no cached copies any more. The values are the caller's.
    pub fn clear_segment(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32) {
        if self.segments[segment as usize].handles.take().is_some() {
            self.handle_bytes.fetch_sub(HANDLE_BYTES, Relaxed);
        }
        let mut entries = 0;
        self.for_each_in(arena, segment, |_, _, _| entries += 1);
        arena.fill(&mut batch.tx, self.segments[segment as usize].offset, SEGMENT_BYTES, 0);
        self.set_len(arena, batch, self.len - entries);
    }

    /// Checks the structure and returns the number of its entries.
    pub fn check(&self, arena: &Arena) -> Result<u64, String> {
        let mut entries = 0;
        for segment in 0..self.segment_count() {
            let mut overflow = [0u8; BUCKETS];
            let mut wrong = None;
            self.for_each_in(arena, segment, |slot, digest, _| {
                entries += 1;
                let home = home(digest.h0);
                if slot.bucket as usize == (home + 1) % BUCKETS {
                    overflow[home] += 1;
                } else if slot.bucket as usize != home {
                    wrong = Some(format!("index entry at {} far from its home bucket", self.offset(slot)));
                }
                if self.segment_of(digest.h0) != Some(segment) {
                    wrong = Some(format!("index entry at {} in another's segment", self.offset(slot)));
                } else if self.find(arena, digest) != Some(slot) {
                    wrong = Some(format!("index entry at {} is another's double", self.offset(slot)));
                }
            });
            for (number, &count) in overflow.iter().enumerate() {
                if self.bucket(arena, segment, number)[OVERFLOW] != count {
                    let at = self.bucket_offset(segment, number);
                    wrong = Some(format!("index bucket at {at} counts its overflow wrongly"));
                }
            }
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
        }
        if entries != self.len {
            return Err(format!("index of {entries} entries says it has {}", self.len));
        }
        Ok(entries)
    }
}

const PAGE: u64 = holdfast_heap::PAGE as u64;

fn entry_offset(bucket_at: u64, entry: u8) -> u64 {
    bucket_at + 16 + u64::from(entry) * ENTRY_BYTES
}

fn h0_of(bucket: &[u8; BUCKET_BYTES as usize], entry: usize) -> u64 {
    let at = 24 + entry * 16;
    u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes"))
}

fn word_of(bucket: &[u8; BUCKET_BYTES as usize], entry: usize) -> EntryWord {
    let at = 16 + entry * 16;
    EntryWord(u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes")) & PAYLOAD_MASK)
}

/// As much of an entry's digest as the index keeps: enough to find it again.
fn digest_of(bucket: &[u8; BUCKET_BYTES as usize], entry: usize) -> Digest {
    let at = 16 + entry * 16;
    let word = u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes"));
    Digest { h0: h0_of(bucket, entry), h1: u64::from(bucket[entry]) << 56 | word >> PAYLOAD_BITS }
}

fn fingerprints(bucket: &[u8; BUCKET_BYTES as usize]) -> &[u8; 16] {
    bucket.first_chunk().expect("a bucket begins with its fingerprints")
}

fn free(bucket: &[u8; BUCKET_BYTES as usize]) -> u32 {
    probe::matches(fingerprints(bucket), 0) & 0x7fff
}

/// The entries with the digest's fingerprint: a bit for each.
#[inline]
fn candidates(bucket: &[u8; BUCKET_BYTES as usize], digest: Digest) -> u32 {
    probe::matches(fingerprints(bucket), fingerprint(digest)) & 0x7fff
}

/// The word of an entry, unless it is another digest's; the fingerprint is not looked at.
#[inline]
fn word_if(bucket: &[u8; BUCKET_BYTES as usize], entry: usize, digest: Digest) -> Option<EntryWord> {
    let at = 16 + entry * 16;
    let word = u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes"));
    let is_its = h0_of(bucket, entry) == digest.h0 && word & !PAYLOAD_MASK == tag(digest);
    is_its.then_some(EntryWord(word & PAYLOAD_MASK))
}

#[inline]
fn find_in(bucket: &[u8; BUCKET_BYTES as usize], digest: Digest) -> Option<(u8, EntryWord)> {
    let mut candidates = candidates(bucket, digest);
    while candidates != 0 {
        let entry = candidates.trailing_zeros() as usize;
        if let Some(word) = word_if(bucket, entry, digest) {
            return Some((entry as u8, word));
        }
        candidates &= candidates - 1;
    }
    None
}
