//! The allocator of an arena.
//!
//! What must survive is in the header page of each extent, and is little: for each page what it is for (a slab of
//! some class, a run of pages), and for each slab a bitmap of its slots. So an allocation or release of a slot
//! changes one byte, and its redo record takes 9 bytes. Everything else is a hint in RAM that [`Arena::scan`] finds
//! again from the header, when the extent is first used after a restart.
//!
//! An allocation of more than 63 pages takes *raw* extents, which have no header; the record and the table entry
//! that say who owns them say so too.

use crate::{
    Arena, EXTENT, Full, PAGE, PAGES, Tx,
    class::{CLASSES, Fit, SLABS, SLOTS_MAX, Slab},
};

/// Set beside the owner of a raw extent, in records and in the file.
pub(crate) const RAW: u16 = 1 << 15;
/// The unit in which the use of an extent is counted, in bytes.
pub(crate) const GRANULE: usize = 16;

/// Page map: 64 times `kind u8, index u8`. `kind` is [`UNUSED`], a class + 1, or one of the following; `index` is
/// the page's place in its slab or run.
const UNUSED: u8 = 0;
const RUN: u8 = 253;
const ROOT: u8 = 254;
/// Offset in the header of the bitmaps: 32 bytes for each page, a bit for each slot of the slab that starts there.
const BITMAPS: u64 = 2048;
const BITMAP: u64 = SLOTS_MAX as u64 / 8;

/// All pages but the header.
const ALL_PAGES: u64 = !1;
/// Extents that were not scanned yet to be scanned before a new extent is taken: few, since each may be a read.
const SCANS_MAX: usize = 4;
/// Extents with free pages to be looked at before a new extent is taken.
const PROBES_MAX: usize = 32;

/// What an arena remembers of an extent.
pub(crate) struct Extent {
    pub(crate) number: u32,
    /// Granules that are allocated.
    pub(crate) used: u16,
    pub(crate) raw: bool,
    /// Whether what follows, and the lists of [`Space`], tell of this extent.
    scanned: bool,
    /// Whether it is in [`Space::spacious`].
    listed: bool,
    free_pages: u64,
}

impl Extent {
    /// An extent of which only this is known.
    pub(crate) fn unscanned(number: u32, used: u16, raw: bool) -> Extent {
        Extent { number, used, raw, scanned: raw, listed: false, free_pages: 0 }
    }
}

/// What an arena remembers of its extents, all of it volatile.
pub(crate) struct Space {
    /// The first is the one with the root page; it is never given up.
    pub(crate) extents: Vec<Extent>,
    /// By class: slabs with a free slot, by their first page's number in the heap. The last is allocated from, and
    /// is valid; others may have been released since they were put here.
    partial: [Vec<u32>; CLASSES],
    /// Extents that may have free pages.
    spacious: Vec<u32>,
    /// Extents that were not scanned at the start, the emptiest last.
    pub(crate) unscanned: Vec<u32>,
    /// An extent that is all free and kept, so that it does not come and go.
    spare: Option<u32>,
}

impl Space {
    pub(crate) fn new() -> Space {
        let partial = std::array::from_fn(|_| Vec::new());
        Space { extents: Vec::new(), partial, spacious: Vec::new(), unscanned: Vec::new(), spare: None }
    }
}

/// A slab, by the number of its first page in the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SlabAt(u32);

impl SlabAt {
    fn new(extent: u32, page: usize) -> SlabAt {
        SlabAt(extent * PAGES as u32 + page as u32)
    }

    fn extent(self) -> u32 {
        self.0 / PAGES as u32
    }

    fn page(self) -> usize {
        self.0 as usize % PAGES
    }

    fn offset(self) -> u64 {
        u64::from(self.0) * PAGE as u64
    }

    /// Offset of the bitmap.
    fn bitmap(self) -> u64 {
        header(self.extent()) + BITMAPS + self.page() as u64 * BITMAP
    }
}

fn header(extent: u32) -> u64 {
    u64::from(extent) * EXTENT
}

/// Offset of a page's entry in the page map.
fn map_entry(extent: u32, page: usize) -> u64 {
    header(extent) + 2 * page as u64
}

/// The first of `n` adjacent set bits.
fn adjacent(mask: u64, n: usize) -> Option<usize> {
    let (mut starts, mut have) = (mask, 1);
    while have < n {
        let step = have.min(n - have);
        starts &= starts >> step;
        have += step;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// `n` pages from `page` on, as bits.
fn pages_mask(page: usize, n: usize) -> u64 {
    (!0 >> (PAGES - n)) << page
}

impl Arena {
    /// Allocates `size` bytes, 16-aligned; multiples of [`PAGE`] are page-aligned. The content is undefined.
    pub fn alloc(&mut self, tx: &mut Tx, size: usize) -> Result<u64, Full> {
        let fit = Fit::of(size);
        let offset = match fit {
            Fit::Slot(class) => self.alloc_slot(tx, class),
            Fit::Pages(pages) => self.alloc_run(tx, pages),
            Fit::Extents(pages) => self.alloc_extents(tx, pages),
        }?;
        self.count_allocated(fit.bytes() as i64);
        Ok(offset)
    }

    /// Frees what [`Arena::alloc`] gave for the same `size`. Panics when it is not allocated. Whole extents can be
    /// used by other arenas after [`Tx::committed`].
    pub fn free(&mut self, tx: &mut Tx, offset: u64, size: usize) {
        let fit = Fit::of(size);
        match fit {
            Fit::Slot(class) => self.free_slot(tx, class, offset),
            Fit::Pages(pages) => self.free_run(tx, pages, offset),
            Fit::Extents(pages) => self.free_extents(tx, pages, offset),
        }
        self.count_allocated(-(fit.bytes() as i64));
    }

    fn alloc_slot(&mut self, tx: &mut Tx, class: usize) -> Result<u64, Full> {
        let slab = match self.space.partial[class].last() {
            Some(&slab) => SlabAt(slab),
            None => self.new_slab(tx, class)?,
        };
        let shape = &SLABS[class];
        let (word, bit) = (0..shape.words())
            .find_map(|word| {
                let free = !self.bitmap_word(slab, word) & shape.word_mask(word);
                (free != 0).then(|| (word, free.trailing_zeros()))
            })
            .expect("the last slab of a list has a free slot");
        let slot = word as u32 * 64 + bit;
        self.flip_slot(tx, slab, slot);
        self.extent_mut(slab.extent()).used += shape.size as u16 / GRANULE as u16;
        if self.is_full(slab, shape) {
            self.drop_last_partial(class);
        }
        Ok(slab.offset() + u64::from(slot) * u64::from(shape.size))
    }

    fn free_slot(&mut self, tx: &mut Tx, class: usize, offset: u64) {
        let shape = &SLABS[class];
        let (extent, page) = ((offset / EXTENT) as u32, (offset % EXTENT) as usize / PAGE);
        self.scan(extent);
        let [kind, index] = self.array(map_entry(extent, page));
        assert!(usize::from(kind) == class + 1, "no block of {} bytes at offset {offset}", shape.size);
        let slab = SlabAt::new(extent, page - usize::from(index));
        let within = (offset - slab.offset()) as u32;
        let slot = within / shape.size;
        let taken = self.bitmap_word(slab, slot as usize / 64) & 1 << (slot % 64) != 0;
        assert!(taken && within % shape.size == 0, "no block of {} bytes at offset {offset}", shape.size);

        let was_full = self.is_full(slab, shape);
        self.flip_slot(tx, slab, slot);
        self.extent_mut(extent).used -= shape.size as u16 / GRANULE as u16;
        if was_full {
            // One empty slab a class is kept, so that it does not come and go.
            self.release_if_empty(tx, class);
            self.space.partial[class].push(slab.0);
        } else if self.is_empty(slab, shape) && self.space.partial[class].last() != Some(&slab.0) {
            self.release_slab(tx, slab, shape);
        }
    }

    fn bitmap_word(&self, slab: SlabAt, word: usize) -> u64 {
        self.u64(slab.bitmap() + 8 * word as u64)
    }

    fn is_full(&self, slab: SlabAt, shape: &Slab) -> bool {
        (0..shape.words()).all(|word| self.bitmap_word(slab, word) == shape.word_mask(word))
    }

    fn is_empty(&self, slab: SlabAt, shape: &Slab) -> bool {
        (0..shape.words()).all(|word| self.bitmap_word(slab, word) == 0)
    }

    /// Marks a free slot taken, or a taken one free.
    fn flip_slot(&mut self, tx: &mut Tx, slab: SlabAt, slot: u32) {
        let at = slab.bitmap() + u64::from(slot / 8);
        let byte = self.u8(at) ^ 1 << (slot % 8);
        self.write_u8(tx, at, byte);
    }

    /// Takes the last slab off a list, and those before it that are gone.
    fn drop_last_partial(&mut self, class: usize) {
        self.space.partial[class].pop();
        while let Some(&slab) = self.space.partial[class].last() {
            let slab = SlabAt(slab);
            let entry = [class as u8 + 1, 0];
            if self.memory.owns(slab.extent())
                && self.array(map_entry(slab.extent(), slab.page())) == entry
                && !self.is_full(slab, &SLABS[class])
            {
                return;
            }
            self.space.partial[class].pop();
        }
    }

    /// Gives the last slab of a list up if it has nothing in it. Returns whether it had.
    fn release_if_empty(&mut self, tx: &mut Tx, class: usize) -> bool {
        let shape = &SLABS[class];
        let Some(slab) = self.space.partial[class].last().map(|&slab| SlabAt(slab)) else { return false };
        if !self.is_empty(slab, shape) {
            return false;
        }
        self.drop_last_partial(class);
        self.release_slab(tx, slab, shape);
        true
    }

    fn release_slab(&mut self, tx: &mut Tx, slab: SlabAt, shape: &Slab) {
        self.give_pages(tx, slab.extent(), slab.page(), shape.pages);
    }

    /// A slab with a free slot, which is then the last of its list.
    fn new_slab(&mut self, tx: &mut Tx, class: usize) -> Result<SlabAt, Full> {
        let (extent, page) = match self.find_pages(tx, SLABS[class].pages, Some(class))? {
            Found::Pages(extent, page) => (extent, page),
            Found::Slab(slab) => return Ok(slab),
        };
        self.take_pages(tx, extent, page, SLABS[class].pages, class as u8 + 1);
        let slab = SlabAt::new(extent, page);
        self.space.partial[class].push(slab.0);
        Ok(slab)
    }

    fn alloc_run(&mut self, tx: &mut Tx, pages: usize) -> Result<u64, Full> {
        let Found::Pages(extent, page) = self.find_pages(tx, pages, None)? else {
            unreachable!("a slab is found only for a class")
        };
        self.take_pages(tx, extent, page, pages, RUN);
        self.extent_mut(extent).used += (pages * PAGE / GRANULE) as u16;
        Ok(SlabAt::new(extent, page).offset())
    }

    fn free_run(&mut self, tx: &mut Tx, pages: usize, offset: u64) {
        let (extent, page) = ((offset / EXTENT) as u32, (offset % EXTENT) as usize / PAGE);
        self.scan(extent);
        let last: [u8; 2] = self.array(map_entry(extent, page + pages - 1));
        let starts = self.array(map_entry(extent, page)) == [RUN, 0] && offset % PAGE as u64 == 0;
        assert!(starts && last == [RUN, pages as u8 - 1], "no run of {pages} pages at offset {offset}");
        self.extent_mut(extent).used -= (pages * PAGE / GRANULE) as u16;
        self.give_pages(tx, extent, page, pages);
    }

    fn alloc_extents(&mut self, tx: &mut Tx, pages: usize) -> Result<u64, Full> {
        let first = self.heap.pool.lock().take(pages.div_ceil(PAGES)).ok_or(Full)?;
        for (i, extent) in (first..).take(pages.div_ceil(PAGES)).enumerate() {
            let used = ((pages - i * PAGES).min(PAGES) * PAGE / GRANULE) as u16;
            self.acquire(tx, Extent::unscanned(extent, used, true));
        }
        Ok(header(first))
    }

    fn free_extents(&mut self, tx: &mut Tx, pages: usize, offset: u64) {
        let first = (offset / EXTENT) as u32;
        for extent in (first..).take(pages.div_ceil(PAGES)) {
            let raw = self.memory.place(extent).is_some_and(|place| self.space.extents[place].raw);
            assert!(raw && offset % EXTENT == 0, "no run of {pages} pages at offset {offset}");
            self.release(tx, extent);
        }
    }

    fn acquire(&mut self, tx: &mut Tx, extent: Extent) {
        let owner = self.memory.id() | if extent.raw { RAW } else { 0 };
        tx.owner(extent.number, owner, extent.used);
        self.memory.acquire(extent.number);
        self.add(extent);
    }

    /// Notes an extent that this arena has got.
    pub(crate) fn add(&mut self, extent: Extent) {
        self.memory.set_place(extent.number, self.space.extents.len());
        self.space.extents.push(extent);
    }

    fn release(&mut self, tx: &mut Tx, extent: u32) {
        let place = self.memory.place(extent).expect("an extent of ours");
        self.space.extents.swap_remove(place);
        if let Some(moved) = self.space.extents.get(place) {
            self.memory.set_place(moved.number, place);
        }
        self.memory.release(extent);
        tx.owner(extent, crate::memory::FREE as u16, 0);
        tx.release(&self.heap, extent);
    }

    fn extent_mut(&mut self, extent: u32) -> &mut Extent {
        let place = self.memory.place(extent).expect("an extent of ours");
        &mut self.space.extents[place]
    }

    /// Reads an extent's header, once, and lists what is free in it.
    pub(crate) fn scan(&mut self, extent: u32) {
        let place = self.memory.place(extent).unwrap_or_else(|| panic!("extent {extent} is another arena's"));
        if self.space.extents[place].scanned {
            return;
        }
        let (mut free_pages, mut used) = (ALL_PAGES, 0);
        for page in 1..PAGES {
            let [kind, index]: [u8; 2] = self.array(map_entry(extent, page));
            if kind == UNUSED {
                continue;
            }
            free_pages &= !(1 << page);
            if kind == RUN {
                used += PAGE / GRANULE;
            } else if kind != ROOT && index == 0 {
                let (slab, shape) = (SlabAt::new(extent, page), &SLABS[usize::from(kind) - 1]);
                let words = (0..shape.words()).map(|word| self.bitmap_word(slab, word).count_ones());
                let taken: u32 = words.sum();
                used += (taken * shape.size) as usize / GRANULE;
                if taken < shape.slots {
                    self.space.partial[usize::from(kind) - 1].push(slab.0);
                }
            }
        }
        let extent = &mut self.space.extents[place];
        (extent.scanned, extent.free_pages, extent.listed) = (true, free_pages, free_pages != 0);
        let grown = (used as i64 - i64::from(extent.used)) * GRANULE as i64;
        extent.used = used as u16;
        if extent.listed {
            self.space.spacious.push(extent.number);
        }
        self.count_allocated(grown);
    }

    /// Finds `pages` adjacent free pages, or, since that may scan extents, a slab of `class` with a free slot.
    fn find_pages(&mut self, tx: &mut Tx, pages: usize, class: Option<usize>) -> Result<Found, Full> {
        if let Some(found) = self.probe_spacious(pages, PROBES_MAX) {
            return Ok(found);
        }
        if let Some(found) = self.probe_unscanned(pages, class, SCANS_MAX) {
            return Ok(found);
        }
        for class in 0..CLASSES {
            self.release_if_empty(tx, class);
        }
        if let Some(found) = self.probe_spacious(pages, PROBES_MAX) {
            return Ok(found);
        }
        let taken = self.heap.pool.lock().take(1);
        if let Some(extent) = taken {
            self.acquire(tx, Extent { scanned: true, ..Extent::unscanned(extent, 0, false) });
            self.note_free(extent, ALL_PAGES);
            return Ok(Found::Pages(extent, 1));
        }
        self.probe_spacious(pages, usize::MAX)
            .or_else(|| self.probe_unscanned(pages, class, usize::MAX))
            .ok_or(Full)
    }

    fn probe_spacious(&mut self, pages: usize, probes_max: usize) -> Option<Found> {
        let mut probes = 0;
        let mut i = self.space.spacious.len();
        while i > 0 && probes < probes_max {
            (i, probes) = (i - 1, probes + 1);
            let number = self.space.spacious[i];
            let place = self.memory.place(number);
            let free_pages = place.map_or(0, |place| self.space.extents[place].free_pages);
            if let Some(page) = adjacent(free_pages, pages) {
                return Some(Found::Pages(number, page));
            }
            if free_pages == 0 {
                self.space.spacious.swap_remove(i);
                place.inspect(|&place| self.space.extents[place].listed = false);
            }
        }
        None
    }

    fn probe_unscanned(&mut self, pages: usize, class: Option<usize>, scans_max: usize) -> Option<Found> {
        for _ in 0..scans_max {
            let number = self.space.unscanned.pop()?;
            let Some(place) = self.memory.place(number) else { continue };
            self.scan(number);
            if let Some(&slab) = class.and_then(|class| self.space.partial[class].last()) {
                return Some(Found::Slab(SlabAt(slab)));
            }
            if let Some(page) = adjacent(self.space.extents[place].free_pages, pages) {
                return Some(Found::Pages(number, page));
            }
        }
        None
    }

    fn take_pages(&mut self, tx: &mut Tx, extent: u32, page: usize, pages: usize, kind: u8) {
        let mut entries = [[kind, 0]; PAGES];
        (0..).zip(&mut entries).for_each(|(index, entry)| entry[1] = index);
        self.write(tx, map_entry(extent, page), entries[..pages].as_flattened());
        self.extent_mut(extent).free_pages &= !pages_mask(page, pages);
        if self.space.spare == Some(extent) {
            self.space.spare = None;
        }
    }

    /// Makes pages free, and gives the extent up when nothing is left in it.
    fn give_pages(&mut self, tx: &mut Tx, extent: u32, page: usize, pages: usize) {
        self.fill(tx, map_entry(extent, page), 2 * pages, UNUSED);
        self.note_free(extent, pages_mask(page, pages));
        if self.extent_mut(extent).free_pages == ALL_PAGES {
            match self.space.spare {
                Some(spare) if spare != extent => self.release(tx, extent),
                _ => self.space.spare = Some(extent),
            }
        }
    }

    /// Notes that pages are free.
    fn note_free(&mut self, extent: u32, pages: u64) {
        let known = self.extent_mut(extent);
        known.free_pages |= pages;
        if !std::mem::replace(&mut known.listed, true) {
            self.space.spacious.push(extent);
        }
    }

    /// Marks the root page of a new arena.
    pub(crate) fn make_root(&mut self, extent: u32) {
        self.memory.acquire(extent);
        self.add(Extent::unscanned(extent, 0, false));
        self.patch(map_entry(extent, 1), &[ROOT, 0]);
        self.scan(extent);
    }
}

enum Found {
    Pages(u32, usize),
    Slab(SlabAt),
}
