//! A heap that is read while the log of another server goes on: the records of each batch are applied to arenas that are in use.
//!
//! Nothing is allocated in such an arena, so none of its extents is scanned, and what it knows of them is what the records and the last
//! checkpoint say. Once the server leads, that is enough to allocate.

use std::sync::atomic::Ordering::Relaxed;

use holdfast_io::{Error, Result};

use crate::{
    Arena, EXTENT, Heap,
    header::GRANULE,
    owner::{self, NOBODY, RAW},
    space::Extent,
};

impl Heap {
    /// The arena that an offset is of. `None`: nobody's, or beyond the heap.
    pub fn arena_at(&self, offset: u64) -> Option<u16> {
        let extent = usize::try_from(offset / EXTENT).ok().filter(|&extent| extent < self.memory.len())?;
        self.memory.owner(extent as u32)
    }

    /// The arena that an extent belongs to from now on, as a record says; `None`: none.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: it cannot be.
    pub fn new_owner(&self, extent: u32, owner: u16, used: u16) -> Result<Option<u16>> {
        let arenas = self.allocated.len() as u16;
        let is_home = extent < u32::from(arenas);
        if extent as usize >= self.memory.len() || is_home || !owner::is_valid(owner, used, arenas) {
            let what = format!("extent {extent} cannot belong to owner {owner:#x} (this is the heap offset)");
            return Err(Error::corrupt(self.memory.file.name(), u64::from(extent) * EXTENT, what));
        }
        Ok((owner != NOBODY).then_some(owner & !RAW))
    }

    /// Finds the extents that nobody owns: they can be taken from now on. To be called once, after the last of the records.
    pub fn find_free_extents(&self) {
        let mut pool = self.pool.lock();
        let extents = 0..self.memory.len() as u32;
        extents.filter(|&extent| self.memory.owner(extent).is_none()).for_each(|extent| pool.put(extent));
        self.owned.store(self.memory.len() as u64 - u64::from(pool.free_count()), Relaxed);
    }
}

impl Arena {
    /// An extent is this arena's from now on, all zero, as a record says that [`Heap::new_owner`] has found right. Whoever had it has
    /// [lost](Arena::lose) it.
    pub fn gain(&mut self, extent: u32, owner: u16, used: u16) {
        self.memory.acquire(extent);
        self.add(Extent::unscanned(extent, used, owner & RAW != 0));
        self.count_allocated(i64::from(used) * GRANULE as i64);
        self.heap.owned.fetch_add(1, Relaxed);
    }

    /// An extent of this arena's is nobody's from now on.
    pub fn lose(&mut self, extent: u32) {
        let used = self.extent_mut(extent).used;
        self.drop_extent(extent);
        self.heap.memory.recycle(extent);
        self.count_allocated(-(i64::from(used) * GRANULE as i64));
        self.heap.owned.fetch_sub(1, Relaxed);
    }

    /// Finds out what is allocated in an extent whose header has changed, if it is this arena's.
    ///
    /// # Errors
    /// The header is not what it should be.
    pub fn follow_header(&mut self, extent: u32) -> Result<()> {
        let Some(place) = self.memory.place(extent) else { return Ok(()) };
        if self.space.extents[place].raw {
            return Ok(());
        }
        let used = self.read_header(extent)?.used;
        self.note_used(place, used);
        Ok(())
    }

    /// The same by a copy of the header.
    pub(crate) fn note_header(&mut self, extent: u32, page: &[u8]) -> Result<()> {
        let place = self.memory.place(extent).expect("an extent of ours");
        let used = self.summarize(extent, page)?.used;
        self.note_used(place, used);
        Ok(())
    }

    /// Allocates in its extents from now on. All records are applied, and no more come.
    pub fn end_following(&mut self) {
        let extents = self.space.extents.iter().filter(|extent| !extent.raw).map(|extent| extent.number);
        self.scan_later(extents.collect());
    }

    fn note_used(&mut self, place: usize, used: u16) {
        let old = std::mem::replace(&mut self.space.extents[place].used, used);
        self.count_allocated((i64::from(used) - i64::from(old)) * GRANULE as i64);
    }
}
