//! The allocator of an arena.
//!
//! What must survive is in the header page of each extent, and is little: for each page what it is for (a slab of
//! some class, a run of pages), and for each slab a bitmap of its slots. So an allocation or release of a slot
//! changes one byte, and its redo record takes 9 bytes. Everything else is a hint in RAM that a scan finds
//! again from the header, when the extent is first used after a restart.
//!
//! An allocation of more than 63 pages takes *raw* extents, which have no header; the record and the table entry
//! that say who owns them say so too.

use crate::{
    AbsentPage, Arena, EXTENT, Full, PAGE, PAGES, Tx,
    class::{Fit, SLABS, Slab, WORDS},
    header::{GRANULE, RUN, header, map_entry},
    space::{Extent, Found, SlabAt},
};

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
        if size.is_multiple_of(PAGE) {
            self.unpin(offset, size);
        }
        match fit {
            Fit::Slot(class) => self.free_slot(tx, class, offset),
            Fit::Pages(pages) => self.free_run(tx, pages, offset),
            Fit::Extents(pages) => self.free_extents(tx, pages, offset),
        }
        self.count_allocated(-(fit.bytes() as i64));
    }

    fn alloc_slot(&mut self, tx: &mut Tx, class: usize) -> Result<u64, Full> {
        let slab = match self.space.partial[class].last() {
            Some(&slab) => slab,
            None => self.new_slab(tx, class)?,
        };
        let shape = &SLABS[class];
        let mut taken = self.taken(slab);
        let slot = free_slot(&taken, shape);
        let word = slot / 64;
        taken[word] |= 1 << (slot % 64);
        self.write_changed_u64(tx, slab.bitmap() + 8 * word as u64, taken[word]);
        self.count_used(slab.extent(), shape.size as usize);
        if taken == shape.full {
            self.drop_last_partial(class);
        }
        Ok(slab.offset() + slot as u64 * u64::from(shape.size))
    }

    /// The pages that the next allocation of `size` bytes will use, as far as that is known, if any of them is not in memory; and those that
    /// some behind it will use, since whoever waits for one may as well wait for them all.
    pub fn absent_to_alloc(&self, size: usize) -> impl Iterator<Item = AbsentPage> {
        /// Slabs that are looked at.
        const AHEAD: usize = 8;
        let (class, slabs) = match Fit::of(size) {
            Fit::Slot(class) => (class, &self.space.partial[class][..]),
            Fit::Pages(_) | Fit::Extents(_) => (0, &[][..]),
        };
        let shape = &SLABS[class];
        let mut absent = Vec::new();
        for (nth, &slab) in slabs.iter().rev().take(AHEAD).enumerate() {
            if !self.memory.owns(slab.extent()) {
                continue;
            }
            let known = absent.len();
            absent.extend(self.absent(header(slab.extent()), PAGE));
            if absent.len() > known || !self.has_room(slab, class) {
                continue;
            }
            let mut taken = self.taken(slab);
            let slot = free_slot(&taken, shape);
            absent.extend(self.absent(slab.offset() + slot as u64 * u64::from(shape.size), size));
            taken[slot / 64] |= 1 << (slot % 64);
            // The one before the last is looked at as soon as that is full.
            if nth == 0 && absent.is_empty() && taken != shape.full {
                break;
            }
        }
        absent.into_iter()
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
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        let mut taken = self.taken(slab);
        let is_taken = taken[word] & bit != 0 && within.is_multiple_of(shape.size);
        assert!(is_taken, "no block of {} bytes at offset {offset}", shape.size);

        let was_full = taken == shape.full;
        taken[word] ^= bit;
        self.write_changed_u64(tx, slab.bitmap() + 8 * word as u64, taken[word]);
        if was_full {
            self.list_partial(tx, class, slab);
        } else if taken == [0; WORDS] && self.space.partial[class].last() != Some(&slab) {
            self.release_slab(tx, slab, shape);
        }
        self.count_unused(tx, extent, shape.size as usize);
    }

    /// Lists a slab that was full. One empty slab a class is kept, the last of its list, so that it does not come and go.
    fn list_partial(&mut self, tx: &mut Tx, class: usize, slab: SlabAt) {
        let is_absent = |last: &SlabAt| self.absent_to_free(last.offset()).is_some();
        if !self.space.partial[class].last().is_some_and(is_absent) {
            self.release_if_empty(tx, class);
            return self.space.partial[class].push(slab);
        }
        // To see whether the last one is empty is not worth a read: it stays the last. No other one is kept empty.
        if SLABS[class].slots == 1 {
            return self.release_slab(tx, slab, &SLABS[class]);
        }
        let last = self.space.partial[class].len() - 1;
        self.space.partial[class].insert(last, slab);
    }

    /// A slab's slots that are taken, as bits.
    fn taken(&self, slab: SlabAt) -> [u64; WORDS] {
        let bitmap: [u8; 8 * WORDS] = self.array(slab.bitmap());
        let word = |i: usize| bitmap[8 * i..][..8].try_into().expect("8 bytes");
        std::array::from_fn(|i| u64::from_le_bytes(word(i)))
    }

    /// Takes the last slab off a list, and those before it that are gone.
    pub(crate) fn drop_last_partial(&mut self, class: usize) {
        self.space.partial[class].pop();
        while let Some(&slab) = self.space.partial[class].last() {
            if self.memory.owns(slab.extent()) && self.has_room(slab, class) {
                return;
            }
            self.space.partial[class].pop();
        }
    }

    /// Whether there is still such a slab, and it is not full.
    fn has_room(&self, slab: SlabAt, class: usize) -> bool {
        self.array(map_entry(slab.extent(), slab.page())) == [class as u8 + 1, 0]
            && self.taken(slab) != SLABS[class].full
    }

    /// Gives the last slab of a list up if it has nothing in it.
    pub(crate) fn release_if_empty(&mut self, tx: &mut Tx, class: usize) {
        let shape = &SLABS[class];
        match self.space.partial[class].last() {
            Some(&slab) if self.taken(slab) == [0; WORDS] => {
                self.drop_last_partial(class);
                self.release_slab(tx, slab, shape);
            }
            _ => {}
        }
    }

    fn release_slab(&mut self, tx: &mut Tx, slab: SlabAt, shape: &Slab) {
        self.give_pages(tx, slab.extent(), slab.page(), shape.pages);
    }

    /// A slab with a free slot, which is then the last of its list.
    fn new_slab(&mut self, tx: &mut Tx, class: usize) -> Result<SlabAt, Full> {
        let (extent, page) = match self.find_pages(tx, SLABS[class].pages, Some(class)).ok_or(Full)? {
            Found::Pages(extent, page) => (extent, page),
            Found::Slab(slab) => return Ok(slab),
        };
        self.take_pages(tx, extent, page, SLABS[class].pages, class as u8 + 1);
        let slab = SlabAt::new(extent, page);
        self.space.partial[class].push(slab);
        Ok(slab)
    }

    fn alloc_run(&mut self, tx: &mut Tx, pages: usize) -> Result<u64, Full> {
        let Found::Pages(extent, page) = self.find_pages(tx, pages, None).ok_or(Full)? else {
            unreachable!("a slab is found only for a class")
        };
        self.take_pages(tx, extent, page, pages, RUN);
        self.count_used(extent, pages * PAGE);
        Ok(SlabAt::new(extent, page).offset())
    }

    fn free_run(&mut self, tx: &mut Tx, pages: usize, offset: u64) {
        let (extent, page) = ((offset / EXTENT) as u32, (offset % EXTENT) as usize / PAGE);
        self.scan(extent);
        let last: [u8; 2] = self.array(map_entry(extent, page + pages - 1));
        let starts = self.array(map_entry(extent, page)) == [RUN, 0] && offset.is_multiple_of(PAGE as u64);
        assert!(starts && last == [RUN, pages as u8 - 1], "no run of {pages} pages at offset {offset}");
        self.give_pages(tx, extent, page, pages);
        self.count_unused(tx, extent, pages * PAGE);
    }

    fn alloc_extents(&mut self, tx: &mut Tx, pages: usize) -> Result<u64, Full> {
        let first = self.take_extents(tx, pages.div_ceil(PAGES)).ok_or(Full)?;
        for (extent, used) in raw_extents(first, pages) {
            self.acquire(tx, Extent::unscanned(extent, used, true));
        }
        Ok(u64::from(first) * EXTENT)
    }

    fn free_extents(&mut self, tx: &mut Tx, pages: usize, offset: u64) {
        for (extent, used) in raw_extents((offset / EXTENT) as u32, pages) {
            let known = self.memory.place(extent).map(|place| &self.space.extents[place]);
            let taken = known.is_some_and(|known| known.raw && known.used == used);
            assert!(taken && offset.is_multiple_of(EXTENT), "no run of {pages} pages at offset {offset}");
            self.release(tx, extent);
        }
    }
}

/// The first free slot of a slab that has one, by those that are taken.
fn free_slot(taken: &[u64; WORDS], shape: &Slab) -> usize {
    let word = (0..WORDS).find(|&word| taken[word] != shape.full[word]);
    let word = word.expect("the last slab of a list has a free slot");
    word * 64 + taken[word].trailing_ones() as usize
}

/// The extents that so many pages take, and how much of each, in granules.
fn raw_extents(first: u32, pages: usize) -> impl Iterator<Item = (u32, u16)> {
    (first..).zip((0..pages).step_by(PAGES)).map(move |(extent, before)| {
        let used = (pages - before).min(PAGES) * PAGE / GRANULE;
        (extent, used as u16)
    })
}
