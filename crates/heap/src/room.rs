//! Room for what a transaction will allocate, found before it changes anything: nothing is undone, so an allocation that fails in its
//! midst leaves half of what it was to do.
//!
//! Mostly the heap has plenty, which a comparison tells. Where it has not, the transaction sets extents aside for what its arenas have no
//! free pages for, and gives those back at its end that it has not used.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    Arena, EXTENT, Full, Heap, PAGE, PAGES, Tx,
    class::{SLAB_PAGES_MAX, SMALL_SLABS_PAGES},
};

/// Pages, for a page of redo, that a transaction may take: blocks are rounded up, and a slab is taken for one block in it.
const SHARE: usize = 4;
/// Extents, beside one for each arena, below which the heap has not plenty: many transactions may allocate at the same moment.
const SCARCE_EXTENTS: u64 = 128;
/// Pages of an extent that blocks can have.
const USABLE: usize = PAGES - 1;

impl Heap {
    /// Whether there is room for a transaction whose redo has so many bytes and whatever others allocate meanwhile.
    #[inline]
    pub fn has_plenty(&self, bytes: usize) -> bool {
        let scarce = SCARCE_EXTENTS + self.allocated.len() as u64 + (SHARE * bytes) as u64 / EXTENT;
        self.memory.len() as u64 >= self.owned.load(Relaxed) + scarce && !self.is_short.load(Relaxed)
    }
}

/// What a transaction may take of the heap.
pub struct RoomNeeded {
    /// Pages for its bytes, in any of its arenas.
    pages: usize,
    /// The largest block that they may be.
    largest: usize,
    /// The least that one of the arenas has of them.
    found_min: usize,
    arenas: usize,
    /// Of these, such as have no room for a slab of each size.
    crowded: usize,
}

impl RoomNeeded {
    /// Of a transaction whose redo has so many bytes.
    pub fn new(bytes: usize) -> RoomNeeded {
        let largest = bytes.div_ceil(PAGE);
        RoomNeeded { pages: SHARE * largest, largest, found_min: usize::MAX, arenas: 0, crowded: 0 }
    }

    /// In this arena, too.
    pub fn add(&mut self, arena: &mut Arena) {
        let run = self.largest.clamp(SLAB_PAGES_MAX, USABLE);
        let found = arena.free_in_runs(run, SMALL_SLABS_PAGES + self.pages);
        self.arenas += 1;
        self.crowded += usize::from(found < SMALL_SLABS_PAGES);
        self.found_min = self.found_min.min(found.saturating_sub(SMALL_SLABS_PAGES));
    }

    /// Sets aside what the arenas have not, so that no allocation of the transaction fails.
    ///
    /// # Errors
    /// There is not so much.
    pub fn set_aside(self, heap: &Arc<Heap>, tx: &mut Tx) -> Result<(), Full> {
        let lacking = self.pages.saturating_sub(self.found_min);
        // Each arena takes whole ones.
        let rounded = if lacking > 0 { lacking.div_ceil(USABLE) + self.arenas - 1 } else { 0 };
        let mut wanted = rounded + self.crowded;
        if self.largest > USABLE {
            let run = self.largest.div_ceil(PAGES);
            tx.set_aside(heap, run)?;
            wanted = wanted.saturating_sub(run);
        }
        (0..wanted).try_for_each(|_| tx.set_aside(heap, 1))
    }
}
