//! How an index makes room for an entry: neighbours move over, or a segment gets one more page, or it splits.

use super::{
    HAS_NAMES, Index, MAX_DEPTH, NAME_BYTES, PAGE, Segment, Slot,
    bucket::{ENTRY_BYTES, OVERFLOW, PAGE_BUCKETS, SLOTS, free, h0_of},
    layout::{BASE_PAGES, EXTRA_PAGES, Layout},
    placing::{Draft, Move, moves},
};
use crate::{format::entry_word::EntryWord, partition::batch::Batch};
use holdfast_heap::{Arena, Full};

impl Index {
    pub(super) fn create(&mut self, arena: &mut Arena, batch: &mut Batch) -> Result<(), Full> {
        let segment = self.new_segment(arena, batch, Layout { depth: 0, extra: 0 })?;
        for bucket in 0..BASE_PAGES * PAGE_BUCKETS {
            let at = self.bucket_offset(segment, bucket);
            arena.write(&mut batch.tx, at, &[0; 16]);
        }
        self.set_directory(arena, batch, vec![segment], 0).inspect_err(|_| self.drop_segment(arena, batch))
    }

    /// Makes an index that is empty as large as it would become by growing to so many entries.
    pub fn expect(&mut self, arena: &mut Arena, batch: &mut Batch, entries: u64) -> Result<(), Full> {
        let layout = Layout::for_entries(entries);
        if !self.directory.is_empty() || layout.depth == 0 || u32::from(layout.depth) > MAX_DEPTH / 2 {
            return Ok(());
        }
        let count = 1 << layout.depth;
        for made in 0..count {
            if let Err(full) = self.new_segment(arena, batch, layout) {
                (0..made).for_each(|_| self.drop_segment(arena, batch));
                return Err(full);
            }
            for bucket in 0..layout.buckets() {
                let at = self.bucket_offset(made, bucket);
                arena.write(&mut batch.tx, at, &[0; 16]);
            }
        }
        let set = self.set_directory(arena, batch, (0..count).collect(), layout.depth.into());
        set.inspect_err(|_| (0..count).for_each(|_| self.drop_segment(arena, batch)))
    }

    fn new_segment(&mut self, arena: &mut Arena, batch: &mut Batch, layout: Layout) -> Result<u32, Full> {
        let mut pages = Vec::with_capacity(layout.pages());
        while pages.len() < layout.pages() {
            match new_page(arena, batch) {
                Ok(page) => pages.push(page),
                Err(full) => {
                    pages.into_iter().for_each(|page| free_page(arena, batch, page));
                    return Err(full);
                }
            }
        }
        self.segments.push(Segment::new(&pages, layout));
        self.pages += layout.pages();
        Ok(self.segments.len() as u32 - 1)
    }

    /// Takes back the newest segment, which the directory does not name yet.
    fn drop_segment(&mut self, arena: &mut Arena, batch: &mut Batch) {
        let segment = self.segments.pop().expect("a segment was just made");
        self.pages -= segment.layout.pages();
        segment.blocks().for_each(|(offset, bytes)| arena.free(&mut batch.tx, offset, bytes));
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
        let names: Vec<u8> = directory.iter().flat_map(|&s| self.segments[s as usize].name()).collect();
        let at = arena.alloc(&mut batch.tx, names.len())?;
        arena.write(&mut batch.tx, at, &names);
        if old != 0 {
            arena.free(&mut batch.tx, old, self.name_bytes << self.depth);
        }
        arena.write_u64(&mut batch.tx, self.root, at);
        arena.write_u64(&mut batch.tx, self.root + 8, u64::from(depth) | HAS_NAMES);
        (self.directory, self.depth, self.name_bytes) = (directory, depth, NAME_BYTES);
        Ok(())
    }

    /// Gives the directory entries that name whole segments, and at least so many bits.
    fn widen_directory(&mut self, arena: &mut Arena, batch: &mut Batch, depth: u32) -> Result<(), Full> {
        if depth > self.depth {
            let doubled = self.directory.iter().flat_map(|&s| [s, s]).collect();
            return self.set_directory(arena, batch, doubled, depth);
        }
        if self.name_bytes < NAME_BYTES {
            return self.set_directory(arena, batch, self.directory.clone(), self.depth);
        }
        Ok(())
    }

    /// A free slot in the entry's home bucket or the next, moving neighbours over if that gives one.
    pub(super) fn make_room(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        h0: u64,
    ) -> Option<Slot> {
        let buckets = &self.segments[segment as usize];
        let layout = buckets.layout;
        let home = layout.home(h0);
        let next = layout.next(home);
        let (free_home, free_next) = (free(buckets.bucket(arena, home)), free(buckets.bucket(arena, next)));
        if free_home.count_ones() >= free_next.count_ones() && free_home != 0 {
            return Some(Slot { segment, bucket: home as u8, entry: free_home.trailing_zeros() as u8 });
        }
        if free_next != 0 {
            return Some(Slot { segment, bucket: next as u8, entry: free_next.trailing_zeros() as u8 });
        }
        let moves = moves(layout, home, |number| buckets.bucket(arena, number))?;
        moves.into_iter().map(|one| self.displace(arena, batch, segment, one)).last()
    }

    /// Moves an entry to another bucket, and returns the slot that it left.
    fn displace(&mut self, arena: &mut Arena, batch: &mut Batch, segment: u32, one: Move) -> Slot {
        let layout = self.segments[segment as usize].layout;
        let entry = one.entry(layout, self.bucket(arena, segment, one.from));
        let entry = entry.expect("a move of an entry that is there") as u8;
        let room = free(self.bucket(arena, segment, one.to));
        let left = Slot { segment, bucket: one.from as u8, entry };
        let taken = Slot { segment, bucket: one.to as u8, entry: room.trailing_zeros() as u8 };
        self.move_entry(arena, batch, left, taken);
        if one.to != one.of {
            self.add_overflow(arena, batch, segment, one.of, 1);
        }
        self.clear(arena, batch, left, one.of);
        left
    }

    /// Copies an entry with its fingerprint and its cached copy, and tells a pending item where its entry is now.
    fn move_entry(&mut self, arena: &mut Arena, batch: &mut Batch, from: Slot, to: Slot) {
        let (source, target) = (self.offset(from), self.offset(to));
        arena.copy(&mut batch.tx, source, target, ENTRY_BYTES as usize);
        let fingerprint =
            arena.u8(self.bucket_offset(from.segment, from.bucket as usize) + u64::from(from.entry));
        let bucket_at = self.bucket_offset(to.segment, to.bucket as usize);
        arena.write_u8(&mut batch.tx, bucket_at + u64::from(to.entry), fingerprint);
        self.was_moved(arena, batch, from, to);
    }

    /// Takes the cached copy of an entry that was moved along, and tells a pending item, if it names one, where the entry is now. The
    /// location in the old place, of which nothing is the redo, goes.
    fn was_moved(&mut self, arena: &mut Arena, batch: &mut Batch, from: Slot, to: Slot) {
        self.set_handle(to, self.segments[from.segment as usize].handles.get(from.place()));
        self.set_handle(from, 0);
        if self.items
            && let Some(number) = self.word(arena, to).pending_number()
        {
            batch.retarget(number, self.offset(to));
            arena.write(&mut batch.tx, self.offset(from), &EntryWord::NO_ITEM); // I-14
        }
    }

    /// Makes room in the segment of a digest: it gets one more page, or, if it has all that it may have, it splits.
    pub(super) fn grow(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        h0: u64,
    ) -> Result<(), Full> {
        let old = self.segments[segment as usize].layout;
        if (old.extra as usize) < EXTRA_PAGES {
            let layout = Layout { extra: old.extra + 1, ..old };
            let goes = |h0| layout.home(h0) >= old.buckets();
            if let Some(draft) = self.draft(arena, segment, Draft::new(layout, old.buckets()), goes) {
                return self.add_page(arena, batch, segment, h0, &draft);
            }
        }
        assert!(u32::from(old.depth) < MAX_DEPTH, "960 entries agree in {MAX_DEPTH} bits of a keyed hash");
        // Half of the entries have room in four pages, unless they are unlike any that a hash gives.
        let draft = (0..=EXTRA_PAGES).find_map(|extra| {
            let layout = Layout { depth: old.depth + 1, extra: extra as u8 };
            self.draft(arena, segment, Draft::new(layout, 0), |h0| old.is_upper(h0))
        });
        self.split(arena, batch, segment, h0, &draft.ok_or(Full)?)
    }

    /// The entries of a segment that go, laid out; `None`: there is no room for them.
    fn draft(
        &self,
        arena: &Arena,
        segment: u32,
        mut draft: Draft,
        goes: impl Fn(u64) -> bool,
    ) -> Option<Draft> {
        for number in 0..self.segments[segment as usize].layout.buckets() {
            let bucket = self.bucket(arena, segment, number);
            for i in (0..SLOTS).filter(|&i| bucket[i] != 0 && goes(h0_of(bucket, i))) {
                draft.add(bucket, i, (number * SLOTS + i) as u16)?;
            }
        }
        Some(draft)
    }

    fn add_page(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        h0: u64,
        draft: &Draft,
    ) -> Result<(), Full> {
        self.widen_directory(arena, batch, self.depth)?;
        let page = new_page(arena, batch)?;
        let old = self.segments[segment as usize].layout;
        self.segments[segment as usize].add_page(&self.memory, page);
        self.pages += 1;
        self.write_draft(arena, batch, draft, (segment, old, old.buckets()), segment);
        self.write_names(arena, batch, h0, segment);
        Ok(())
    }

    /// Splits a segment by one more bit: the entries with this bit set move to a new one.
    fn split(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        segment: u32,
        h0: u64,
        draft: &Draft,
    ) -> Result<(), Full> {
        let new = self.new_segment(arena, batch, draft.layout())?;
        let old = self.segments[segment as usize].layout;
        let marks = self.segments[segment as usize].handles.given_up();
        self.segments[new as usize].handles.set_given_up(marks);
        self.widen_directory(arena, batch, u32::from(draft.layout().depth))
            .inspect_err(|_| self.drop_segment(arena, batch))?;
        self.write_draft(arena, batch, draft, (segment, old, BASE_PAGES * PAGE_BUCKETS), new);
        for offset in self.segments[segment as usize].end_split(&self.memory) {
            arena.free(&mut batch.tx, offset, PAGE as usize);
            self.pages -= 1;
        }
        let run = self.run(h0, old.depth);
        self.directory[run.start + run.len() / 2..run.end].fill(new);
        let bit = 1 << (63 - old.depth);
        self.write_names(arena, batch, h0 & !bit, segment);
        self.write_names(arena, batch, h0 | bit, new);
        Ok(())
    }

    /// Writes entries that were laid out to a segment, and removes them from the one where they were, of whose buckets only the
    /// first ones, `kept`, are used after that. `old`: how they were laid out there.
    fn write_draft(
        &mut self,
        arena: &mut Arena,
        batch: &mut Batch,
        draft: &Draft,
        (segment, old, kept): (u32, Layout, usize),
        target: u32,
    ) {
        for (number, bytes) in draft.buckets() {
            arena.write(&mut batch.tx, self.bucket_offset(target, number), bytes);
        }
        let header = |number| *self.bucket(arena, segment, number).first_chunk::<16>().expect("a header");
        let before: Vec<[u8; 16]> = (0..kept).map(header).collect();
        let mut after = before.clone();
        for (from, to, h0) in draft.entries() {
            let slot = |segment, place: u16| Slot {
                segment,
                bucket: (place as usize / SLOTS) as u8,
                entry: (place as usize % SLOTS) as u8,
            };
            let (from, to) = (slot(segment, from), slot(target, to));
            self.was_moved(arena, batch, from, to);
            let (bucket, home) = (from.bucket as usize, old.home(h0));
            if bucket < kept {
                after[bucket][from.entry as usize] = 0;
                after[home][OVERFLOW] -= u8::from(bucket != home);
            }
        }
        for (number, header) in
            after.iter().enumerate().filter(|(number, header)| before[*number] != **header)
        {
            arena.write(&mut batch.tx, self.bucket_offset(segment, number), header);
        }
    }

    /// The entries of the directory that agree with a digest in so many bits.
    fn run(&self, h0: u64, depth: u8) -> std::ops::Range<usize> {
        let place = if self.depth == 0 { 0 } else { (h0 >> (64 - self.depth)) as usize };
        let len = 1usize << (self.depth - u32::from(depth));
        let start = place & !(len - 1);
        start..start + len
    }

    /// Names a segment, which is that of the digest, in the directory in the heap.
    fn write_names(&self, arena: &mut Arena, batch: &mut Batch, h0: u64, segment: u32) {
        let segment = &self.segments[segment as usize];
        let run = self.run(h0, segment.layout.depth);
        let at = arena.u64(self.root) + (run.start * NAME_BYTES) as u64;
        arena.write(&mut batch.tx, at, &segment.name().repeat(run.len()));
    }
}

/// The number of a new page, which does not leave memory.
fn new_page(arena: &mut Arena, batch: &mut Batch) -> Result<u32, Full> {
    let offset = arena.alloc(&mut batch.tx, PAGE as usize)?;
    arena.pin(offset, PAGE as usize);
    Ok(u32::try_from(offset / PAGE).expect("a heap of less than 16 TiB"))
}

fn free_page(arena: &mut Arena, batch: &mut Batch, page: u32) {
    arena.free(&mut batch.tx, u64::from(page) * PAGE, PAGE as usize);
}
