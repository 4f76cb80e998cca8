//! Opening a heap of which some pages are damaged, only to be read: what can be is brought to memory, and all else stays absent for
//! good. Who uses it looks before each access whether that is there ([`Arena::absent`]).

use std::sync::{Arc, atomic::Ordering::Relaxed};

use holdfast_io::{Error, File, Result};

use crate::{
    Arena, EXTENT, Heap, HeapOptions, HeapRoot, PAGE, Recovery, check_root,
    file::PageFile,
    load::{PageAt, pages_by_slot},
};

/// A page that cannot be read.
#[derive(Debug)]
pub struct DamagedPage {
    /// Its offset in the heap.
    pub offset: u64,
    /// The arena that owns it.
    pub arena: u16,
    /// Where in the file it is, and what is wrong with it.
    pub error: Error,
}

impl Heap {
    /// As [`Heap::open`], of a file that may be damaged. Also returns what is wrong with tables of extents: all pages of such an
    /// extent are damaged. The recovery is to end by [`Recovery::finish_damaged`].
    ///
    /// # Errors
    /// The root table fails its check, so that nothing of the heap can be found.
    pub fn open_damaged(
        file: Arc<dyn File>,
        o: HeapOptions,
        root: &HeapRoot,
    ) -> Result<(Arc<Heap>, Recovery, Vec<Error>)> {
        check_root(o, root)?;
        let (file, faults) = PageFile::open_damaged(file, root)?;
        let (heap, recovery) = Heap::open_file(file, o)?;
        heap.memory.is_damaged.store(true, Relaxed);
        Ok((heap, recovery, faults))
    }

    /// Brings all pages to memory that can be read, and applies the redo to them. Returns the others.
    pub fn load_damaged(&self, arenas: &mut [Arena]) -> Result<Vec<DamagedPage>> {
        for (arena, extent) in self.with_redo() {
            arenas[usize::from(arena)].apply_redo(extent)?;
        }
        let (memory, file) = (&self.memory, &self.memory.file);
        let pages = pages_by_slot(file, |_| true);
        let (mut rest, mut damaged) = (&pages[..], Vec::new());
        while !rest.is_empty() {
            let (n, first, bytes) = file.read_window(rest, usize::MAX)?;
            for &(slot, PageAt { extent, page }) in &rest[..n] {
                let page = usize::from(page);
                let from = &bytes[(slot - first) as usize * PAGE..][..PAGE];
                // One that the log has freed since is in nobody's use.
                let Some(arena) = memory.owner(extent) else { continue };
                if let Err(error) = memory.fill(extent, page, |to| file.copy_page(extent, page, from, to)) {
                    let offset = u64::from(extent) * EXTENT + (page * PAGE) as u64;
                    damaged.push(DamagedPage { offset, arena, error });
                }
            }
            rest = &rest[n..];
        }
        Ok(damaged)
    }
}

impl Recovery {
    /// Ends the replay of a damaged heap, from which nothing will be allocated.
    pub fn finish_damaged(mut self) -> Vec<Arena> {
        for extent in 0..self.waiting_len() {
            self.defer(extent);
        }
        self.into_arenas()
    }
}
