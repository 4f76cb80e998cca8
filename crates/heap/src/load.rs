//! Reading the last complete checkpoint in large pieces: to have it in memory, and to check it.

use holdfast_io::{Error, Result};

use crate::{Heap, PAGE, PAGES, checkpoint::Exclusive, file::PageFile, owner::NOBODY};
use std::sync::Arc;

/// What is still to be loaded.
#[derive(Default)]
pub(crate) struct Loader {
    /// What the pages are; `None` before the first call.
    what: Option<Load>,
    /// These by slot, from `next` on, if they are absent still.
    pages: Vec<(u32, PageAt)>,
    next: usize,
}

/// Which of the pages that are absent after a start are to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Those that are [pinned](crate::Arena::pin).
    Pinned,
    /// All.
    All,
    /// Those of one arena, by its number.
    Arena(u16),
}

/// A page of an extent.
#[derive(Clone, Copy)]
pub(crate) struct PageAt {
    pub(crate) extent: u32,
    pub(crate) page: u8,
}

/// What [`Heap::verify`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Extents that belong to an arena.
    pub extents: u64,
    /// Pages that were read and had the right checksum.
    pub pages: u64,
    /// Pages of zeroes, which take no space in the file.
    pub zero_pages: u64,
}

impl Heap {
    /// Loads some absent pages, reading at most `max_bytes` (1 MiB at most) of the file at once, in the file's order.
    /// Returns false when all of these pages were loaded. Arenas can be used meanwhile; whoever needs a page that is just
    /// being filled waits for a copy of 4 KiB. Pages that were loaded and leave memory again are not loaded anew.
    pub fn load_next(&self, what: Load, max_bytes: usize) -> Result<bool> {
        let file = &self.memory.file;
        let mut loader = self.loader.lock();
        if loader.what != Some(what) {
            let mut pages = match what {
                Load::Arena(arena) => self.pages_by_slot(|extent| self.memory.owner(extent) == Some(arena)),
                Load::All | Load::Pinned => self.pages_by_slot(|_| true),
            };
            pages.retain(|(_, at)| what != Load::Pinned || self.is_pinned(at));
            *loader = Loader { what: Some(what), pages, next: 0 };
        }
        let Loader { pages, next, .. } = &mut *loader;
        *next += pages[*next..].iter().take_while(|(_, at)| self.is_claimed(at)).count();
        if *next == pages.len() {
            *pages = Vec::new();
            *next = 0;
            return Ok(false);
        }
        let window = match self.home() {
            // Which reads it when it has the page for itself.
            Some(_) => None,
            None => file.read_window(&pages[*next..], max_bytes).ok(),
        };
        let Some((n, first, bytes)) = window else {
            // Maybe the slots are no longer in use, and the file is shorter.
            let at = pages[*next].1;
            *next += 1;
            return self.memory.page_in(at.extent, usize::from(at.page)).map(|()| true);
        };
        for &(slot, PageAt { extent, page }) in &pages[*next..*next + n] {
            let page = usize::from(page);
            let from = &bytes[(slot - first) as usize * PAGE..][..PAGE];
            self.memory.fill(extent, page, |to| file.copy_page(extent, page, from, to))?;
        }
        *next += n;
        Ok(true)
    }

    fn is_pinned(&self, at: &PageAt) -> bool {
        self.memory.pinned(at.extent) & 1 << at.page != 0
    }

    fn is_claimed(&self, at: &PageAt) -> bool {
        self.memory.is_claimed(at.extent, usize::from(at.page))
    }

    /// Reads every page of the last complete checkpoint and compares its checksum; the tables were checked by
    /// [`Heap::open`]. Fails at the first that does not match, and while a checkpoint is being taken.
    pub fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        let exclusive = Exclusive::new(self);
        let _exclusive = exclusive.ok_or_else(|| Error::Unusable("a checkpoint is being taken".into()))?;
        let file = &self.memory.file;
        let extents = match self.home() {
            Some(_) => self.owned_extents().count() as u64,
            None => file.state().entries.iter().filter(|entry| entry.owner != NOBODY).count() as u64,
        };
        let pages = self.pages_by_slot(|_| true);
        let mut rest = &pages[..];
        while !rest.is_empty() {
            let (n, first, bytes) = file.read_window(rest, usize::MAX)?;
            for &(slot, PageAt { extent, page }) in &rest[..n] {
                let at = file.page_ref(extent, usize::from(page));
                file.check_page(
                    at,
                    extent,
                    usize::from(page),
                    &bytes[(slot - first) as usize * PAGE..][..PAGE],
                )?;
            }
            rest = &rest[n..];
        }
        let pages = pages.len() as u64;
        Ok(VerifyReport { extents, pages, zero_pages: extents * PAGES as u64 - pages })
    }

    fn owned_extents(&self) -> impl Iterator<Item = u32> {
        (0..self.memory.len() as u32).filter(|&extent| self.memory.owner(extent).is_some())
    }

    /// All pages that the last complete checkpoint has of some extents, or the home, by slot.
    fn pages_by_slot(&self, wanted: impl Fn(u32) -> bool) -> Vec<(u32, PageAt)> {
        if self.home().is_none() {
            return pages_by_slot(&self.memory.file, wanted);
        }
        let pages_of = |extent| (0..PAGES as u8).map(move |page| PageAt { extent, page });
        let slot_of = |at: PageAt| self.memory.file.page_ref(at.extent, usize::from(at.page)).slot;
        self.owned_extents()
            .filter(|&extent| wanted(extent))
            .flat_map(pages_of)
            .map(|at| (slot_of(at), at))
            .collect()
    }
}

/// All pages of the last complete checkpoint that have a slot, of some extents, by slot.
pub(crate) fn pages_by_slot(file: &PageFile, wanted: impl Fn(u32) -> bool) -> Vec<(u32, PageAt)> {
    let state = file.state();
    let mut pages = Vec::new();
    for (extent, entry) in (0..).zip(&state.entries).filter(|&(extent, _)| wanted(extent)) {
        let Some(table) = &entry.table else { continue };
        let in_slots = (0..).zip(&table.0).filter(|(_, at)| **at != crate::file::PageRef::ZERO);
        pages.extend(in_slots.map(|(page, at)| (at.slot, PageAt { extent, page })));
    }
    drop(state);
    pages.sort_unstable_by_key(|&(slot, _)| slot);
    pages
}
