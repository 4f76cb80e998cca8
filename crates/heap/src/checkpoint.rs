//! Checkpoints: pages that changed go into free slots of the file, and new tables name them.
//!
//! # Why a fuzzy checkpoint is enough
//! The caller reads a log position `C` before the first [`Checkpoint::copy`], and replays from `C` after a crash. It
//! changes an arena, and appends the records to the log, under one lock, and calls `copy` under that lock; so a copy
//! sees whole transactions, and all those below `C`. Pages are copied at different times, but all later than `C`:
//! whatever a page has or lacks of later transactions, replay of their records makes it right. A page that changes
//! after it was copied is dirty again, for the next checkpoint.
//!
//! Copies hold bytes of transactions up to the end of the log at the last `copy`. The caller makes the log durable up
//! to there before the superblock names this checkpoint (I-3).
//!
//! # Extents that come and go meanwhile
//! The checkpoint says that an extent belongs to the arena that had it when the extent was visited; if several
//! were visited with it, to the last. If that is no longer true at the end, or if it came after its arena's visit had
//! passed and the checkpoint calls it free, then a record after `C` tells of the change, and replay applies it: that
//! record zeroes the extent, so it does not matter what this checkpoint kept of it. Records from before the change
//! are replayed into an extent of another owner, or (skipped) into a free one, and are wiped out by it too. If no
//! record after `C` concerns the extent, its owner has had it all the time, and the visit copied its dirty pages.
//! When an extent is acquired all its pages become dirty, so that nothing of an earlier life shows through; pages of
//! zeroes take no slot.
//!
//! # Failure
//! Nothing that the last complete checkpoint uses is overwritten, so a checkpoint can be dropped at any point: its
//! pages become dirty again and its slots free.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, atomic::Ordering::*},
};

use holdfast_io::{AlignedBuf, Result};

use crate::{
    Arena, Heap, PAGE, PAGES,
    file::{ENTRY, Entry, HeapRoot, NOWHERE, PageRef, State, TABLE, TABLES, Table},
    owner::NOBODY,
    page_set::page_mask,
};

/// Pages that are held between `copy` and `write`.
const STAGE_PAGES: usize = 1024;
/// Pages that are worth a write.
const WRITE_PAGES: usize = STAGE_PAGES / 2;
/// How many extents without dirty pages take as long to visit as one page takes to copy.
const VISITS_PER_PAGE: usize = 16;

static ZEROES: [u8; PAGE] = [0; PAGE];

/// The right to change what the heap's file says; there is one at most.
pub(crate) struct Exclusive(Arc<Heap>);

impl Exclusive {
    /// `None` while there is another.
    pub(crate) fn new(heap: &Arc<Heap>) -> Option<Exclusive> {
        (!heap.exclusive.swap(true, Acquire)).then(|| Exclusive(heap.clone()))
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.0.exclusive.store(false, Release);
    }
}

/// A checkpoint that is being taken.
pub struct Checkpoint {
    staged: Staged,
    /// By arena.
    cursors: Vec<Cursor>,
    /// By extent: its owner when it was visited.
    owners: Vec<u16>,
    stage: AlignedBuf,
    /// Where the search for free slots goes on.
    slot_cursor: usize,
    has_failed: bool,
}

/// How far the visit of an arena is. It goes from the last of its extents to the first: when an extent is released
/// the last takes its place, and so is visited twice rather than not at all.
#[derive(Clone, Copy)]
enum Cursor {
    Unvisited,
    /// The place of the extent to visit; its number, and the page to go on with.
    At(usize, Option<(u32, usize)>),
    Done,
}

/// What is to be undone if the checkpoint does not become complete.
struct Staged {
    heap: Arc<Heap>,
    extents: BTreeMap<u32, StagedExtent>,
    /// Pages in the stage that are not written yet, in order.
    copied: Vec<Copied>,
    /// Bytes of the stage that they take.
    stage_len: usize,
    /// Slots that were taken for tables.
    table_slots: Vec<u32>,
    complete: bool,
    _exclusive: Exclusive,
}

struct StagedExtent {
    owner: u16,
    used: Option<u16>,
    pages: u64,
    table: Table,
}

struct Copied {
    extent: u32,
    page: u8,
    is_zero: bool,
    owner: u16,
    /// Of the extent, if this is its first page: the header tells the same.
    used: Option<u16>,
}

impl Checkpoint {
    pub(crate) fn new(heap: &Arc<Heap>) -> Checkpoint {
        let exclusive = Exclusive::new(heap).expect("one checkpoint at a time");
        Checkpoint {
            staged: Staged {
                heap: heap.clone(),
                extents: BTreeMap::new(),
                copied: Vec::new(),
                stage_len: 0,
                table_slots: Vec::new(),
                complete: false,
                _exclusive: exclusive,
            },
            cursors: vec![Cursor::Unvisited; heap.allocated.len()],
            owners: vec![NOBODY; heap.memory.len()],
            stage: AlignedBuf::zeroed(STAGE_PAGES * PAGE),
            slot_cursor: 0,
            has_failed: false,
        }
    }

    /// Copies dirty pages of an arena, `max_pages` at most, and calls them clean. Returns whether it has to be called
    /// again for this arena; not before [`Checkpoint::write`], which makes room.
    ///
    /// To be called under the partition's lock, between transactions, for each arena until it returns false.
    pub fn copy(&mut self, arena: &mut Arena, max_pages: usize) -> bool {
        assert!(Arc::ptr_eq(&arena.heap, &self.staged.heap), "an arena of this heap");
        let id = usize::from(arena.memory.id());
        let mut effort = max_pages.max(1) * VISITS_PER_PAGE;
        loop {
            let (place, resume) = match self.cursors[id] {
                Cursor::Done => return false,
                Cursor::Unvisited => (arena.space.extents.len() - 1, None),
                Cursor::At(place, resume) => (place.min(arena.space.extents.len() - 1), resume),
            };
            if effort == 0 || self.staged.stage_len == self.stage.len() {
                self.cursors[id] = Cursor::At(place, resume);
                return true;
            }
            let number = arena.space.extents[place].number;
            let first = resume.filter(|r| r.0 == number).map_or(0, |r| r.1);
            let next_page = self.visit(arena, place, first, &mut effort);
            self.cursors[id] = match (next_page, place.checked_sub(1)) {
                (Some(page), _) => Cursor::At(place, Some((number, page))),
                (None, Some(place)) => Cursor::At(place, None),
                (None, None) => Cursor::Done,
            };
        }
    }

    /// Copies dirty pages of an extent from `first` on. Returns the page to go on with.
    fn visit(&mut self, arena: &mut Arena, place: usize, first: usize, effort: &mut usize) -> Option<usize> {
        let extent = &arena.space.extents[place];
        let (number, used, owner) = (extent.number, extent.used, extent.owner(arena.memory.id()));
        self.owners[number as usize] = owner;
        *effort = effort.saturating_sub(1);
        if arena.memory.apply_redo(number).unwrap_or_else(|e| arena.memory.memory().give_up(&e)) {
            *effort = effort.saturating_sub(PAGES * VISITS_PER_PAGE);
        }
        let mut dirty = arena.memory.memory().dirty(number) & page_mask(first, PAGES - 1);
        while dirty != 0 {
            let page = dirty.trailing_zeros() as usize;
            let staged = &mut self.staged;
            if *effort == 0 || staged.stage_len == self.stage.len() {
                return Some(page);
            }
            *effort = effort.saturating_sub(VISITS_PER_PAGE);
            dirty &= dirty - 1;
            arena.memory.clean(number, page);
            let bytes = arena.memory.page(number, page);
            let is_zero = bytes == ZEROES;
            if !is_zero {
                self.stage[staged.stage_len..][..PAGE].copy_from_slice(bytes);
                staged.stage_len += PAGE;
            }
            let used = (page == 0).then_some(used);
            staged.copied.push(Copied { extent: number, page: page as u8, is_zero, owner, used });
        }
        None
    }

    /// Writes what was copied, once it is enough for a large write. To be called without any lock. After an error
    /// the checkpoint can only be dropped.
    pub fn write(&mut self) -> Result<()> {
        if self.staged.copied.len() >= WRITE_PAGES { self.write_all() } else { Ok(()) }
    }

    fn write_all(&mut self) -> Result<()> {
        let Staged { heap, extents, copied, stage_len, .. } = &mut self.staged;
        let file = &heap.memory.file;
        let mut writes = Vec::new();
        let (mut run, mut at) = (0..0, 0);
        for page in copied.drain(..) {
            let mut to = PageRef::ZERO;
            if !page.is_zero {
                if run.is_empty() {
                    run = file.state().slots.take_run(&mut self.slot_cursor, (*stage_len - at) / PAGE);
                    writes.push((run.start, at..at + run.len() * PAGE));
                }
                to.slot = run.next().expect("a slot of the run");
                to.crc = holdfast_io::crc32c(&self.stage[at..at + PAGE]);
                at += PAGE;
            }
            let stale =
                extents.entry(page.extent).or_insert_with(|| StagedExtent::new(page.owner)).put(&page, to);
            release_all(&mut file.state(), stale);
        }
        *stage_len = 0;
        // From here on the tables name slots that hold something else until the writes are done.
        self.has_failed = true;
        writes.into_iter().try_for_each(|(slot, bytes)| file.write_pages(slot, &self.stage[bytes]))?;
        self.has_failed = false;
        Ok(())
    }

    /// Writes the rest and the tables, and makes everything durable. Panics unless [`Checkpoint::copy`] has returned
    /// false for every arena.
    pub fn finish(mut self) -> Result<Finished> {
        assert!(self.cursors.iter().all(|cursor| matches!(cursor, Cursor::Done)), "every arena was copied");
        assert!(!self.has_failed, "a checkpoint of which a write has failed is dropped");
        self.write_all()?;
        let mut entries = self.changed_entries();
        self.write_tables(&mut entries)?;
        let root = self.write_root_table(&entries)?;
        self.staged.heap.memory.file.sync()?;
        Ok(Finished { staged: self.staged, entries, root })
    }

    /// What this checkpoint says that the last did not, still without the positions of tables.
    fn changed_entries(&self) -> Vec<(u32, Entry)> {
        let file = &self.staged.heap.memory.file;
        let mut changed = Vec::new();
        for (number, &owner) in (0..).zip(&self.owners) {
            // Locked for each extent anew, so that nobody who reads a page waits for all of them.
            let state = file.state();
            let old = state.entries.get(number as usize).unwrap_or(&Entry::FREE);
            match self.staged.extents.get(&number).filter(|staged| staged.owner == owner) {
                Some(staged) => changed.push((number, staged.over(old))),
                None if old.owner != owner => changed.push((number, Entry { owner, ..Entry::FREE })),
                None => {}
            }
        }
        changed
    }

    fn write_tables(&mut self, entries: &mut [(u32, Entry)]) -> Result<()> {
        let Staged { heap, table_slots, .. } = &mut self.staged;
        let file = &heap.memory.file;
        let tables =
            entries.iter_mut().filter_map(|(_, e)| Some((e.table.as_ref()?, &mut e.position, &mut e.crc)));
        let mut tables: Vec<_> = tables.collect();
        let mut left = &mut tables[..];
        while !left.is_empty() {
            let mut state = file.state();
            let slots_max = left.len().div_ceil(TABLES as usize).min(STAGE_PAGES);
            let run = state.slots.take_run(&mut self.slot_cursor, slots_max);
            let bytes = &mut self.stage[..run.len() * PAGE];
            bytes.fill(0);
            let (chunk, rest) = left.split_at_mut(left.len().min(run.len() * TABLES as usize));
            for (i, ((table, position, crc), bytes)) in
                (0..).zip(chunk.iter_mut().zip(bytes.chunks_exact_mut(TABLE)))
            {
                table.encode(bytes);
                **crc = holdfast_io::crc32c(bytes);
                **position = run.start * TABLES + i;
                state.slots.hold(run.start + i / TABLES);
                table_slots.push(run.start + i / TABLES);
            }
            // Each table holds its slot now, so the run need not.
            run.clone().for_each(|slot| state.slots.release(slot));
            drop(state);
            file.write_tables(run.start, bytes)?;
            left = rest;
        }
        Ok(())
    }

    fn write_root_table(&mut self, changed: &[(u32, Entry)]) -> Result<HeapRoot> {
        let Staged { heap, table_slots, .. } = &mut self.staged;
        let file = &heap.memory.file;
        let extents = self.owners.iter().rposition(|&owner| owner != NOBODY).map_or(0, |last| last + 1);
        let len = extents * ENTRY;
        let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(PAGE));
        let mut state = file.state();
        let mut changed = changed.iter().peekable();
        for (number, bytes) in (0..).zip(bytes[..len].chunks_exact_mut(ENTRY)) {
            let new = changed.next_if(|(n, _)| *n == number).map(|(_, entry)| entry);
            new.or(state.entries.get(number as usize)).unwrap_or(&Entry::FREE).encode(bytes);
        }
        let run = state.slots.take_adjacent(bytes.len() / PAGE);
        table_slots.extend(run.clone());
        drop(state);
        file.write_tables(run.start, &bytes)?;
        let (extents, arenas) = (extents as u32, heap.allocated.len() as u16);
        Ok(HeapRoot { slot: run.start, extents, crc: holdfast_io::crc32c(&bytes[..len]), arenas })
    }
}

impl StagedExtent {
    fn new(owner: u16) -> StagedExtent {
        StagedExtent { owner, used: None, pages: 0, table: Table::ZERO }
    }

    /// Notes where a page went. Returns the slots of what it supersedes: an earlier copy, or all copies that were
    /// made for another owner.
    fn put(&mut self, page: &Copied, to: PageRef) -> Vec<u32> {
        let mut stale = Vec::new();
        if self.owner != page.owner {
            stale.extend(self.table.slots());
            *self = StagedExtent::new(page.owner);
        }
        let old = mem::replace(&mut self.table.0[usize::from(page.page)], to);
        stale.extend((old.slot != NOWHERE).then_some(old.slot));
        self.pages |= 1 << page.page;
        self.used = page.used.or(self.used);
        stale
    }

    /// What becomes of an extent's entry.
    fn over(&self, old: &Entry) -> Entry {
        let mut table = old.table.clone().unwrap_or_else(|| Box::new(Table::ZERO));
        for (page, to) in table.0.iter_mut().enumerate().filter(|(page, _)| self.pages & 1 << page != 0) {
            *to = self.table.0[page];
        }
        let used = self.used.unwrap_or(old.used);
        Entry { owner: self.owner, used, table: (*table != Table::ZERO).then_some(table), ..Entry::FREE }
    }
}

fn release_all(state: &mut State, slots: impl IntoIterator<Item = u32>) {
    slots.into_iter().for_each(|slot| state.slots.release(slot));
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        let memory = &self.heap.memory;
        let staged = self.extents.iter().map(|(&extent, staged)| (extent, staged.pages));
        let copied = self.copied.iter().map(|copied| (copied.extent, 1 << copied.page));
        staged.chain(copied).for_each(|(extent, pages)| {
            memory.mark_dirty(extent, pages);
            memory.settle(extent, pages);
        });
        let mut state = memory.file.state();
        release_all(&mut state, self.extents.values().flat_map(|staged| staged.table.slots()));
        release_all(&mut state, self.table_slots.drain(..));
    }
}

/// A checkpoint that is on the medium, but that nothing names yet.
pub struct Finished {
    staged: Staged,
    entries: Vec<(u32, Entry)>,
    root: HeapRoot,
}

impl Finished {
    /// What the superblock must keep.
    pub fn root(&self) -> &HeapRoot {
        &self.root
    }

    /// Tells that the superblock with [`Finished::root`] is durable: slots that only the checkpoint before used become
    /// free. Dropping a `Finished` instead is allowed only if that superblock cannot be on the medium, or if no
    /// checkpoint is taken any more.
    pub fn commit(mut self) {
        let file = &self.staged.heap.memory.file;
        let mut state = file.state();
        let len = state.entries.len().max(self.root.extents as usize);
        state.entries.resize(len, Entry::FREE);
        drop(state);
        for (number, new) in self.entries.drain(..) {
            let state = &mut *file.state();
            let old = &mut state.entries[number as usize];
            for page in 0..PAGES {
                let slot = old.page(page).slot;
                if slot != NOWHERE && slot != new.page(page).slot {
                    state.slots.release(slot);
                }
            }
            if old.position != NOWHERE {
                state.slots.release(old.position / TABLES);
            }
            *old = new;
        }
        let staged = &self.staged;
        staged.extents.iter().for_each(|(&extent, of)| staged.heap.memory.settle(extent, of.pages));
        let mut state = file.state();
        if let Some(old) = state.root.replace(self.root) {
            release_all(&mut state, old.slots());
        }
        file.trim(&mut state);
        drop(state);
        file.punch_holes((self.staged.heap.file_bytes_needed() / PAGE as u64) as usize);
        self.staged.complete = true;
    }
}
