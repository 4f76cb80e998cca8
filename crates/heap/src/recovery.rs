//! Replay: the heap is brought from its last complete checkpoint to the end of the log.

use std::sync::Arc;

use holdfast_io::{Error, Result};

use crate::{
    Arena, EXTENT, Heap,
    file::{NOBODY, owner_is_valid},
    memory::ranges,
    space::{Extent, RAW},
    tx::{FILL, OWNER, RECORD, WRITE},
};

/// A heap in which the log is being replayed.
///
/// Records may come from a log that was damaged or forged in ways that its checksums do not show; they are checked
/// so far that none of them does harm outside the heap.
pub struct Recovery {
    heap: Arc<Heap>,
    arenas: Vec<Arena>,
}

impl Recovery {
    pub(crate) fn new(heap: Arc<Heap>, arenas: Vec<Arena>) -> Recovery {
        Recovery { heap, arenas }
    }

    /// Applies the redo record at the start of `record`, of kind 1, 2 or 3. Returns its length in bytes.
    pub fn apply(&mut self, record: &[u8]) -> Result<usize> {
        let Some((head, payload)) = record.split_first_chunk::<RECORD>() else {
            return Err(self.invalid(0, "a redo record is cut short"));
        };
        let head = u64::from_le_bytes(*head);
        let (kind, short, long) = (head as u8, (head >> 8) as u16, head >> 24);
        let len = usize::from(short);
        let cut = |n: usize| payload.get(..n).ok_or_else(|| self.invalid(long, "a redo record is cut short"));
        match kind {
            WRITE => {
                let bytes = cut(len)?;
                self.write(long, bytes)?;
                Ok(RECORD + len)
            }
            FILL => {
                let byte = cut(1)?[0];
                self.write(long, &vec![byte; len])?;
                Ok(RECORD + 1)
            }
            OWNER => {
                self.set_owner((long & 0xff_ffff) as u32, short, (long >> 24) as u16)?;
                Ok(RECORD)
            }
            _ => Err(self.invalid(long, format!("a redo record cannot be of kind {kind}"))),
        }
    }

    /// Writes bytes at an offset: what a record of kind 1 says, or an item's entry.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.heap.memory.len() as u64 * EXTENT) {
            return Err(self.invalid(offset, "a redo record reaches beyond the heap"));
        }
        for (extent, _) in ranges(offset, bytes.len()) {
            let start = u64::from(extent) * EXTENT;
            let at = offset.max(start);
            let part = &bytes[(at - offset) as usize..];
            let part = &part[..part.len().min((start + EXTENT - at) as usize)];
            // An extent that nobody owns yet, or any more in the checkpoint, is zeroed by a later record.
            if let Some(arena) = self.heap.memory.owner(extent) {
                let arena = &mut self.arenas[usize::from(arena)];
                arena.memory.try_ensure(at, part.len())?;
                arena.patch(at, part);
            }
        }
        Ok(())
    }

    fn set_owner(&mut self, extent: u32, owner: u16, used: u16) -> Result<()> {
        let arenas = self.arenas.len() as u16;
        let is_home = extent < u32::from(arenas);
        if extent as usize >= self.heap.memory.len() || is_home || !owner_is_valid(owner, used, arenas) {
            let offset = u64::from(extent) * EXTENT;
            return Err(self.invalid(offset, format!("extent {extent} cannot belong to owner {owner:#x}")));
        }
        if let Some(old) = self.heap.memory.owner(extent) {
            self.arenas[usize::from(old)].drop_extent(extent);
            self.heap.memory.recycle(extent);
        }
        if owner != NOBODY {
            let arena = &mut self.arenas[usize::from(owner & !RAW)];
            arena.memory.acquire(extent);
            arena.add(Extent::unscanned(extent, used, owner & RAW != 0));
        }
        Ok(())
    }

    /// Ends the replay. Arena `i` is at index `i`.
    pub fn finish(self) -> Result<Vec<Arena>> {
        let Recovery { heap, mut arenas } = self;
        arenas.iter_mut().try_for_each(Arena::recover_space)?;
        let mut pool = heap.pool.lock();
        let extents = 0..heap.memory.len() as u32;
        extents.filter(|&extent| heap.memory.owner(extent).is_none()).for_each(|extent| pool.put(extent));
        Ok(arenas)
    }

    fn invalid(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(
            self.heap.memory.file.name(),
            offset,
            format!("{} (this is the heap offset)", what.into()),
        )
    }
}
