//! Pages leave memory: like the hand of a clock, [`Arena::evict`] goes around an arena's extents and takes out what was not
//! used since it came by last, as vmcache and LeanStore do (Leis et al., SIGMOD 2023; ICDE 2018). Nothing is written: a page
//! leaves only if the last complete checkpoint has it. It comes back when it is used.
//!
//! That a page was used is noted in a word of its extent, which costs nothing while the extent is *resident*: all its pages are
//! there and were used since. The hand ends that, and the uses that follow bring it about again.

use std::io;

use holdfast_io::{ReadQueue, Result};

use crate::{
    Arena, EXTENT, Heap, PAGE, PAGES,
    header::header,
    memory::{bits, ranges},
};

/// The number of a page that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbsentPage(u32);

impl AbsentPage {
    /// Its place in the heap, in pages.
    pub fn number(self) -> u32 {
        self.0
    }

    fn extent(self) -> u32 {
        self.0 / PAGES as u32
    }

    fn page(self) -> usize {
        self.0 as usize % PAGES
    }
}

/// What a step of eviction has come upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Pages that have left memory.
    pub pages: u64,
    /// Pages that would have if a checkpoint had them.
    pub unwritten: u64,
    /// Whether the step ended at the arena's last extent, so that the next begins at its first.
    pub is_around: bool,
}

impl Arena {
    /// Takes pages out of memory that were not used since the last call came by, in so many extents at most. To be called
    /// between transactions.
    pub fn evict(&mut self, extents_max: usize) -> Evicted {
        let (mut evicted, mut leaving) = (Evicted::default(), Vec::new());
        for _ in 0..extents_max {
            let Some(extent) = self.space.extents.get(self.space.hand) else { break };
            let number = extent.number;
            let unused = self.memory.cool(number) & self.memory.present(number);
            let may_leave = unused & self.memory.evictable(number);
            evicted.unwritten += u64::from((unused & !may_leave).count_ones());
            if may_leave != 0 {
                let leave = may_leave & self.memory.memory().file.pages_in_slots(number);
                leaving.push((number, leave));
                evicted.pages += u64::from(leave.count_ones());
            }
            self.space.hand += 1;
        }
        self.memory.evict(&leaving);
        if self.space.hand >= self.space.extents.len() {
            self.space.hand = 0;
            evicted.is_around = true;
        }
        evicted
    }

    /// Keeps an allocation of whole pages in memory, once it is there, until it is freed.
    pub fn pin(&mut self, offset: u64, len: usize) {
        assert!(offset.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE), "whole pages are pinned");
        ranges(offset, len).for_each(|(extent, pages)| self.memory.pin(extent, pages, true));
    }

    /// Takes back [`Arena::pin`]. What is freed is no longer pinned.
    pub fn unpin(&mut self, offset: u64, len: usize) {
        ranges(offset, len).for_each(|(extent, pages)| self.memory.pin(extent, pages, false));
    }

    /// The pages of a range that are not in memory: whoever uses the range waits for them.
    pub fn absent(&self, offset: u64, len: usize) -> impl Iterator<Item = AbsentPage> {
        ranges(offset, len).flat_map(|(extent, pages)| {
            bits(pages & self.memory.absent(extent))
                .map(move |page| AbsentPage(extent * PAGES as u32 + page as u32))
        })
    }

    /// The page besides its own that freeing the block at an offset uses, if that is not in memory.
    pub fn absent_to_free(&self, offset: u64) -> Option<AbsentPage> {
        let extent = (offset / EXTENT) as u32;
        let place = self.memory.place(extent)?;
        if self.space.extents[place].raw { None } else { self.absent(header(extent), PAGE).next() }
    }
}

impl Heap {
    /// Asks a queue for a page, without waiting for anything. False if it is in memory or about to be.
    pub fn begin_read(&self, page: AbsentPage, queue: &mut ReadQueue, tag: u64) -> bool {
        !self.memory.is_claimed(page.extent(), page.page())
            && self.memory.file.begin_read_page(page.extent(), page.page(), queue, tag)
    }

    /// Puts what came for [`Heap::begin_read`] into its place, checked, unless the page is there already.
    pub fn end_read(&self, page: AbsentPage, read: io::Result<&[u8]>) -> Result<()> {
        // Maybe its slot is in use no longer, and the file shorter.
        let Ok(bytes) = read else { return self.read(page) };
        let (extent, number) = (page.extent(), page.page());
        self.bring(page, |to| self.memory.file.copy_page(extent, number, bytes, to))
    }

    /// Reads a page, unless it is there already. Waits for the medium.
    pub fn read(&self, page: AbsentPage) -> Result<()> {
        let (extent, number) = (page.extent(), page.page());
        self.bring(page, |to| self.memory.file.read_page(extent, number, to))
    }

    /// Has a page filled, unless it is there already; it is to be used.
    fn bring(&self, page: AbsentPage, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        self.memory.fill(page.extent(), page.page(), fill)?;
        self.memory.touch(page.extent(), page.page());
        Ok(())
    }
}
