//! How an index makes room for an entry: a neighbour moves over, or a segment splits.

use super::{
    Handles, Index, MAX_DEPTH, PAGE, SEGMENT_BYTES, Segment, Slot,
    bucket::{BUCKET_BYTES, BUCKETS, ENTRY_BYTES, OVERFLOW, SLOTS, free, h0_of, home},
};
use crate::{format::entry_word::EntryWord, partition::batch::Batch};
use holdfast_heap::{Arena, Full};

impl Index {
    pub(super) fn create(&mut self, arena: &mut Arena, batch: &mut Batch) -> Result<(), Full> {
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
        self.segments.push(Segment { offset, depth, attached: true, handles: Handles::default() });
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
    pub(super) fn make_room(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        home: usize,
    ) -> Option<Slot> {
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
        self.set_handle(to, self.segments[from.segment as usize].handles.get(from.place()));
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
    pub(super) fn split(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32) -> Result<(), Full> {
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
                self.set_handle(to, self.segments[from.segment as usize].handles.get(from.place()));
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
}
