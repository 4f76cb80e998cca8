//! What an arena knows of its extents: which pages and slabs are free. All of it can be found again from the headers.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering::Relaxed,
};

use holdfast_io::{AlignedBuf, Error, Result};

use crate::{
    Arena, PAGE, PAGES, Tx,
    class::CLASSES,
    header::{self, ALL_PAGES, GRANULE, ROOT, Summary, UNUSED, header, map_entry},
    owner::{NOBODY, RAW},
    page_set::{adjacent, page_mask, runs},
};

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
    /// Free pages that take no RAM.
    discarded: u64,
}

impl Extent {
    /// An extent of which only this is known.
    pub(crate) fn unscanned(number: u32, used: u16, raw: bool) -> Extent {
        Extent { number, used, raw, scanned: raw, listed: false, free_pages: 0, discarded: 0 }
    }

    /// What records and the file say of its owner.
    pub(crate) fn owner(&self, arena: u16) -> u16 {
        if self.raw { arena | RAW } else { arena }
    }
}

/// What an arena remembers of its extents, all of it volatile.
pub(crate) struct Space {
    /// The first is the one with the root page; it is never given up.
    pub(crate) extents: Vec<Extent>,
    /// By class: slabs with a free slot. The last is allocated from, and is valid; others may have been released since they were put here.
    pub(crate) partial: [Vec<SlabAt>; CLASSES],
    /// Extents that may have free pages.
    spacious: Vec<u32>,
    /// Extents that were not scanned at the start, the emptiest last.
    unscanned: Vec<u32>,
    /// An extent in which nothing is allocated; it is kept, so that it does not come and go.
    spare: Option<u32>,
    /// The place of the extent that eviction looks at next.
    pub(crate) hand: usize,
}

impl Space {
    pub(crate) fn new() -> Space {
        let partial = std::array::from_fn(|_| Vec::new());
        Space {
            extents: Vec::new(),
            partial,
            spacious: Vec::new(),
            unscanned: Vec::new(),
            spare: None,
            hand: 0,
        }
    }
}

/// A slab, by the number of its first page in the heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SlabAt(u32);

impl SlabAt {
    pub(crate) fn new(extent: u32, page: usize) -> SlabAt {
        SlabAt(extent * PAGES as u32 + page as u32)
    }

    pub(crate) fn extent(self) -> u32 {
        self.0 / PAGES as u32
    }

    pub(crate) fn page(self) -> usize {
        self.0 as usize % PAGES
    }

    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0) * PAGE as u64
    }

    /// Offset of the bitmap.
    pub(crate) fn bitmap(self) -> u64 {
        header::bitmap(self.extent(), self.page())
    }
}

impl Arena {
    /// Takes an extent from the heap's free ones.
    pub(crate) fn acquire(&mut self, tx: &mut Tx, extent: Extent) {
        tx.owner(extent.number, extent.owner(self.memory.id()), extent.used);
        self.memory.acquire(extent.number);
        self.add(extent);
    }

    /// Notes an extent that this arena has got.
    pub(crate) fn add(&mut self, extent: Extent) {
        self.memory.set_place(extent.number, self.space.extents.len());
        if self.is_home(extent.number) {
            // The header and the roots.
            self.memory.pin(extent.number, 0b11, true);
        }
        self.space.extents.push(extent);
    }

    /// Gives an extent up, for others to take after the commit.
    pub(crate) fn release(&mut self, tx: &mut Tx, extent: u32) {
        self.drop_extent(extent);
        tx.owner(extent, NOBODY, 0);
        tx.release(&self.heap, extent);
    }

    /// Forgets an extent, and gives up the right to it.
    pub(crate) fn drop_extent(&mut self, extent: u32) {
        let place = self.memory.place(extent).expect("an extent of ours");
        let dropped = self.space.extents.swap_remove(place);
        if dropped.discarded != 0 {
            self.heap.discarded.fetch_sub(u64::from(dropped.discarded.count_ones()), Relaxed);
        }
        if let Some(moved) = self.space.extents.get(place) {
            self.memory.set_place(moved.number, place);
        }
        self.memory.release(extent);
    }

    #[inline]
    pub(crate) fn extent_mut(&mut self, extent: u32) -> &mut Extent {
        let place = self.memory.place(extent).expect("an extent of ours");
        &mut self.space.extents[place]
    }

    /// Whether an extent is the one with the root page.
    fn is_home(&self, extent: u32) -> bool {
        extent == u32::from(self.memory.id())
    }

    pub(crate) fn read_header(&self, extent: u32) -> Result<Summary> {
        self.summarize(extent, self.bytes(header(extent), PAGE))
    }

    pub(crate) fn summarize(&self, extent: u32, page: &[u8]) -> Result<Summary> {
        header::read(page, self.is_home(extent))
            .map_err(|what| self.corrupt(header(extent), format!("header of extent {extent}: {what}")))
    }

    /// Granules that are allocated in an extent, as the header in the file says, or in the home.
    pub(crate) fn read_used(&self, extent: u32) -> Result<u16> {
        let mut header = AlignedBuf::zeroed(PAGE);
        self.memory.read_page(extent, 0, &mut header)?;
        Ok(self.summarize(extent, &header)?.used)
    }

    /// Reads an extent's header, once, and lists what is free in it.
    pub(crate) fn try_scan(&mut self, extent: u32) -> Result<()> {
        let place = self.memory.place(extent).unwrap_or_else(|| panic!("extent {extent} is another arena's"));
        if self.space.extents[place].scanned {
            return Ok(());
        }
        let summary = self.read_header(extent)?;
        self.note_scanned(extent, summary);
        Ok(())
    }

    fn note_scanned(&mut self, extent: u32, summary: Summary) {
        for (page, class) in summary.partial {
            self.space.partial[class].push(SlabAt::new(extent, page));
        }
        let known = self.extent_mut(extent);
        let grown = (i64::from(summary.used) - i64::from(known.used)) * GRANULE as i64;
        (known.scanned, known.used) = (true, summary.used);
        self.note_free(extent, summary.free_pages);
        self.count_allocated(grown);
    }

    /// Counts what is allocated in all extents, as far as that is known.
    pub(crate) fn count_all(&mut self) {
        let used: i64 = self.space.extents.iter().map(|extent| i64::from(extent.used)).sum();
        self.count_allocated(used * GRANULE as i64);
    }

    /// Finds out what is used after a replay. It knows what the checkpoint said of each extent. Of those whose headers the
    /// replay has changed, `headers` has those that wait for their redo; they are scanned now, the others when they are
    /// needed.
    pub(crate) fn recover_space(&mut self, headers: &HashMap<u32, AlignedBuf>) -> Result<()> {
        self.count_all();
        let (changed, others): (Vec<u32>, Vec<u32>) = (self.space.extents.iter())
            .filter(|extent| !extent.raw)
            .map(|extent| extent.number)
            .partition(|extent| headers.contains_key(extent) || self.memory.memory().dirty(*extent) & 1 != 0);
        self.scan_later(others);
        for extent in changed {
            match headers.get(&extent) {
                Some(header) => {
                    let summary = self.summarize(extent, header)?;
                    self.note_scanned(extent, summary);
                }
                None => self.try_scan(extent)?,
            }
        }
        Ok(())
    }

    /// Leaves extents, of which it is known how much is allocated, to be scanned when there is need of room.
    pub(crate) fn scan_later(&mut self, mut extents: Vec<u32>) {
        // A full one is scanned when something in it is freed.
        extents.retain(|&extent| usize::from(self.extent_mut(extent).used) < (PAGES - 1) * PAGE / GRANULE);
        extents.sort_by_key(|&extent| std::cmp::Reverse(self.extent_mut(extent).used));
        self.space.unscanned = extents;
    }

    /// As [`Arena::try_scan`]: a header that was correct on the medium and is nonsense is our own fault.
    #[inline]
    pub(crate) fn scan(&mut self, extent: u32) {
        if !self.extent_mut(extent).scanned {
            self.try_scan(extent).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// Checks everything that the allocator knows against the headers.
    pub fn check(&self) -> Result<()> {
        let mut listed = HashMap::new();
        let partial = self.space.partial.iter().enumerate();
        let partial = partial.flat_map(|(class, slabs)| slabs.iter().map(move |slab| (class, slab)));
        partial.for_each(|slab| *listed.entry(slab).or_insert(0) += 1);
        let spacious: HashSet<u32> = self.space.spacious.iter().copied().collect();
        for (place, extent) in self.space.extents.iter().enumerate() {
            let number = extent.number;
            let expect = |is_true: bool, what: &str| {
                if is_true {
                    Ok(())
                } else {
                    Err(self.corrupt(header(number), format!("extent {number}: {what}")))
                }
            };
            expect(self.memory.place(number) == Some(place), "it is not where its arena looks for it")?;
            if extent.raw {
                continue;
            }
            let summary = self.read_header(number)?;
            expect(summary.used == extent.used, "its header does not add up to what is known to be used")?;
            if !extent.scanned {
                continue;
            }
            expect(summary.free_pages == extent.free_pages, "other pages are free than are known to be")?;
            expect(extent.discarded & !extent.free_pages == 0, "pages in use were given back")?;
            let is_listed = extent.listed && spacious.contains(&number);
            expect(is_listed || summary.free_pages == 0, "it has free pages, but is not listed")?;
            for (page, class) in summary.partial {
                let times = listed.get(&(class, &SlabAt::new(number, page))).copied().unwrap_or(0);
                expect(
                    times == 1,
                    &format!("the slab at page {page} has free slots and is listed {times} times"),
                )?;
            }
        }
        let used: u64 = self.space.extents.iter().map(|extent| u64::from(extent.used) * GRANULE as u64).sum();
        if used != self.allocated_bytes() {
            let what = format!("{used} bytes are allocated, not {}", self.allocated_bytes());
            return Err(self.corrupt(self.root(), what));
        }
        Ok(())
    }

    fn corrupt(&self, offset: u64, what: String) -> Error {
        Error::corrupt(self.memory.memory().file.name(), offset, format!("{what} (this is the heap offset)"))
    }

    /// Finds `pages` adjacent free pages, or, since that may scan extents, a slab of `class` with a free slot.
    pub(crate) fn find_pages(&mut self, tx: &mut Tx, pages: usize, class: Option<usize>) -> Option<Found> {
        if let Some(found) = self.probe_spacious(pages, PROBES_MAX) {
            return Some(found);
        }
        if let Some(found) = self.probe_unscanned(pages, class, SCANS_MAX) {
            return Some(found);
        }
        (0..CLASSES).for_each(|class| self.release_if_empty(tx, class));
        if let Some(found) = self.probe_spacious(pages, PROBES_MAX) {
            return Some(found);
        }
        if let Some(extent) = self.grow(tx) {
            return Some(Found::Pages(extent, 1));
        }
        self.probe_spacious(pages, usize::MAX).or_else(|| self.probe_unscanned(pages, class, usize::MAX))
    }

    /// Takes an extent that nobody owns, if there is one.
    pub(crate) fn grow(&mut self, tx: &mut Tx) -> Option<u32> {
        let extent = self.take_extents(tx, 1)?;
        self.acquire(tx, Extent::unscanned(extent, 0, false));
        self.note_free(extent, ALL_PAGES);
        // Nobody has touched them.
        let known = self.extent_mut(extent);
        (known.scanned, known.discarded) = (true, ALL_PAGES);
        self.heap.discarded.fetch_add(u64::from(ALL_PAGES.count_ones()), Relaxed);
        Some(extent)
    }

    /// Takes adjacent extents that nobody owns, or that were set aside for the transaction.
    pub(crate) fn take_extents(&self, tx: &mut Tx, count: usize) -> Option<u32> {
        self.heap.take_extents(count).or_else(|| tx.take_aside(count))
    }

    /// Free pages in runs of at least `run`, or `enough` of them. Extents are scanned only where others do not have these.
    pub(crate) fn free_in_runs(&mut self, run: usize, enough: usize) -> usize {
        /// Extents that are scanned before it is counted again.
        const SCANS: usize = 64;
        loop {
            let mut found = 0;
            for &number in self.space.spacious.iter().rev() {
                let Some(place) = self.memory.place(number) else { continue };
                let long = runs(self.space.extents[place].free_pages).filter(|(_, count)| *count >= run);
                found += long.map(|(_, count)| count).sum::<usize>();
                if found >= enough {
                    return enough;
                }
            }
            let unscanned = &mut self.space.unscanned;
            let next = unscanned.split_off(unscanned.len().saturating_sub(SCANS));
            if next.is_empty() {
                return found;
            }
            for number in next {
                if self.memory.place(number).is_some() {
                    self.scan(number);
                }
            }
        }
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
                return Some(Found::Slab(slab));
            }
            if let Some(page) = adjacent(self.space.extents[place].free_pages, pages) {
                return Some(Found::Pages(number, page));
            }
        }
        None
    }

    /// Notes that bytes of an extent were allocated.
    #[inline]
    pub(crate) fn count_used(&mut self, extent: u32, bytes: usize) {
        self.extent_mut(extent).used += (bytes / GRANULE) as u16;
        if self.space.spare == Some(extent) {
            self.space.spare = None;
        }
    }

    /// Notes that bytes of an extent were freed, and gives it up when nothing is left in it.
    #[inline]
    pub(crate) fn count_unused(&mut self, tx: &mut Tx, extent: u32, bytes: usize) {
        let known = self.extent_mut(extent);
        known.used -= (bytes / GRANULE) as u16;
        if known.used == 0 && !self.is_home(extent) {
            self.give_up_one_empty(tx, extent);
        }
    }

    /// Keeps an extent in which nothing is left if it is the only one, else gives it up, with the slabs in it.
    fn give_up_one_empty(&mut self, tx: &mut Tx, extent: u32) {
        if *self.space.spare.get_or_insert(extent) == extent {
            return;
        }
        for class in 0..CLASSES {
            while self.space.partial[class].last().is_some_and(|slab| slab.extent() == extent) {
                self.drop_last_partial(class);
            }
        }
        self.release(tx, extent);
    }

    pub(crate) fn take_pages(&mut self, tx: &mut Tx, extent: u32, page: usize, pages: usize, kind: u8) {
        let mut entries = [[kind, 0]; PAGES];
        (0..).zip(&mut entries).for_each(|(index, entry)| entry[1] = index);
        self.write(tx, map_entry(extent, page), entries[..pages].as_flattened());
        let (known, taken) = (self.extent_mut(extent), page_mask(page, page + pages - 1));
        known.free_pages &= !taken;
        let filled = known.discarded & taken;
        if filled != 0 {
            known.discarded &= !taken;
            self.heap.discarded.fetch_sub(u64::from(filled.count_ones()), Relaxed);
        }
    }

    pub(crate) fn give_pages(&mut self, tx: &mut Tx, extent: u32, page: usize, pages: usize) {
        self.fill(tx, map_entry(extent, page), 2 * pages, UNUSED);
        self.note_free(extent, page_mask(page, page + pages - 1));
    }

    /// Notes that pages are free.
    fn note_free(&mut self, extent: u32, pages: u64) {
        let known = self.extent_mut(extent);
        known.free_pages |= pages;
        if !std::mem::replace(&mut known.listed, true) {
            self.space.spacious.push(extent);
        }
    }

    /// Gives the RAM of pages back that are free, of so many extents; whether there may be more. The pages are zero then, and
    /// recorded as such: what is free must be the same after a replay, since writes that change nothing are not recorded.
    pub fn give_back(&mut self, tx: &mut Tx, extents_max: usize) -> bool {
        let mut left = extents_max;
        for i in 0..self.space.spacious.len() {
            let number = self.space.spacious[i];
            let Some(place) = self.memory.place(number) else { continue };
            let known = &mut self.space.extents[place];
            let pages = known.free_pages & !known.discarded & self.memory.present(number);
            if pages == 0 {
                continue;
            }
            if left == 0 {
                return true;
            }
            left -= 1;
            known.discarded |= pages;
            self.heap.discarded.fetch_add(u64::from(pages.count_ones()), Relaxed);
            for (first, count) in runs(pages) {
                self.memory.discard(number, first, count);
                tx.fill(SlabAt::new(number, first).offset(), count * PAGE, 0);
            }
        }
        false
    }

    /// Marks the root page of a new arena.
    pub(crate) fn make_root(&mut self, extent: u32) {
        self.memory.acquire(extent);
        self.add(Extent::unscanned(extent, 0, false));
        self.patch(map_entry(extent, 1), &[ROOT, 0]);
        self.scan(extent);
    }
}

/// What a search for free pages came upon.
pub(crate) enum Found {
    /// An extent and a page in it.
    Pages(u32, usize),
    /// A slab with a free slot.
    Slab(SlabAt),
}
