//! Replay: the heap is brought from its last complete checkpoint to the end of the log.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use holdfast_io::{AlignedBuf, Error, Result};

use crate::{
    Arena, EXTENT, Heap, PAGE,
    owner::RAW,
    redo::Redo,
    sorted::{self, EncodedChange},
    space::Extent,
    tx::Record,
};

/// Bytes of redo that wait for an extent at most: no more than the extent itself would take.
const WAITING_MAX: usize = EXTENT as usize;

/// A heap in which the log is being replayed.
///
/// Records may come from a log that was damaged or forged in ways that its checksums do not show; they are checked
/// so far that none of them does harm outside the heap.
pub struct Recovery {
    heap: Arc<Heap>,
    arenas: Vec<Arena>,
    /// By extent.
    waiting: Vec<Redo>,
}

impl Recovery {
    pub(crate) fn new(heap: Arc<Heap>, arenas: Vec<Arena>) -> Recovery {
        Recovery { heap, arenas, waiting: Vec::new() }
    }

    /// Takes in what a redo record says.
    pub fn apply(&mut self, record: &Record) -> Result<()> {
        match *record {
            Record::Write { offset, bytes } => self.write(offset, bytes),
            Record::Fill { offset, len, byte } => self.write(offset, &vec![byte; len]),
            Record::Owner { extent, owner, used } => self.set_owner(extent, owner, used),
        }
    }

    /// Takes in redo records that were [sorted](crate::SortedRedo), as they are encoded.
    pub fn apply_sorted(&mut self, encoded: &[u8]) -> Result<()> {
        for changed in sorted::decode(encoded) {
            let EncodedChange { extent, owner, writes } =
                changed.ok_or_else(|| self.invalid(0, "sorted redo that is cut short"))?;
            let offset = u64::from(extent) * EXTENT;
            if extent as usize >= self.heap.memory.len() {
                return Err(self.invalid(offset, "sorted redo reaches beyond the heap"));
            }
            if let Some((owner, used)) = owner {
                self.set_owner(extent, owner, used)?;
            }
            if self.heap.memory.owner(extent).is_some() {
                let mut added = Some(());
                self.wait(extent, |waiting| added = waiting.add_encoded(writes))?;
                added.ok_or_else(|| self.invalid(offset, "sorted redo that reaches beyond its extent"))?;
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.heap.memory.len() as u64 * EXTENT) {
            return Err(self.invalid(offset, "a redo record reaches beyond the heap"));
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = at % EXTENT;
            let (part, behind) = rest.split_at(rest.len().min((EXTENT - within) as usize));
            self.write_within((at / EXTENT) as u32, within as usize, part)?;
            (at, rest) = (at + part.len() as u64, behind);
        }
        Ok(())
    }

    #[inline]
    fn write_within(&mut self, extent: u32, at: usize, bytes: &[u8]) -> Result<()> {
        // An extent that nobody owns yet, or any more in the checkpoint, is zeroed by a later record.
        if self.heap.memory.owner(extent).is_none() {
            return Ok(());
        }
        self.wait(extent, |redo| redo.push(at, bytes))
    }

    /// Adds to what waits for an extent.
    #[inline]
    fn wait(&mut self, extent: u32, add: impl FnOnce(&mut Redo)) -> Result<()> {
        let index = extent as usize;
        if index >= self.waiting.len() {
            self.waiting.resize_with(index + 1, Redo::default);
        }
        let redo = &mut self.waiting[index];
        add(redo);
        if redo.len() > WAITING_MAX
            && let Some(arena) = self.defer(extent)
        {
            arena.memory.apply_redo(extent)?;
        }
        Ok(())
    }

    /// Extents below this one may have redo that waits.
    pub(crate) fn waiting_len(&self) -> u32 {
        self.waiting.len() as u32
    }

    pub(crate) fn into_arenas(self) -> Vec<Arena> {
        self.arenas
    }

    pub(crate) fn defer(&mut self, extent: u32) -> Option<&mut Arena> {
        let redo = self.waiting.get_mut(extent as usize).filter(|redo| !redo.is_empty())?;
        let owner = self.heap.memory.owner(extent).expect("redo waits for extents with an owner only");
        let arena = &mut self.arenas[usize::from(owner)];
        arena.memory.defer(extent, std::mem::take(redo));
        Some(arena)
    }

    fn set_owner(&mut self, extent: u32, owner: u16, used: u16) -> Result<()> {
        let new = self.heap.new_owner(extent, owner, used)?;
        if let Some(redo) = self.waiting.get_mut(extent as usize) {
            *redo = Redo::default();
        }
        if let Some(old) = self.heap.memory.owner(extent) {
            self.arenas[usize::from(old)].drop_extent(extent);
            self.heap.memory.recycle(extent);
        }
        if let Some(new) = new {
            let arena = &mut self.arenas[usize::from(new)];
            arena.memory.acquire(extent);
            arena.add(Extent::unscanned(extent, used, owner & RAW != 0));
        }
        Ok(())
    }

    /// The header of an extent, if it has one and redo that waits changes it: the allocator is to know what is free.
    fn changed_header(&self, extent: u32) -> Result<Option<AlignedBuf>> {
        let redo = &self.waiting[extent as usize];
        if redo.pages() & 1 == 0 {
            return Ok(None);
        }
        let owner = self.heap.memory.owner(extent).expect("redo waits for extents with an owner only");
        let arena = &self.arenas[usize::from(owner)];
        if arena.memory.place(extent).is_some_and(|place| arena.space.extents[place].raw) {
            return Ok(None);
        }
        let mut header = AlignedBuf::zeroed(PAGE);
        arena.memory.read_page(extent, 0, &mut header)?;
        for (at, bytes) in redo.writes().filter(|(at, _)| *at < PAGE) {
            let len = bytes.len().min(PAGE - at);
            header[at..at + len].copy_from_slice(&bytes[..len]);
        }
        Ok(Some(header))
    }

    /// Ends the replay. What waits for an extent is applied when the extent is used, or by [`Arena::apply_redo`]. Arena `i` is at index `i`.
    pub fn finish(mut self) -> Result<Vec<Arena>> {
        let headers = self.defer_all()?;
        let Recovery { heap, mut arenas, .. } = self;
        arenas.iter_mut().try_for_each(|arena| arena.recover_space(&headers))?;
        heap.find_free_extents();
        Ok(arenas)
    }

    /// Ends the replay for one who follows another server, and allocates nothing until [`Arena::end_following`]: see [`Heap::new_owner`] and
    /// [`Arena::gain`] for what comes next. Arena `i` is at index `i`.
    pub fn follow(mut self) -> Result<Vec<Arena>> {
        let headers = self.defer_all()?;
        let Recovery { heap, mut arenas, .. } = self;
        arenas.iter_mut().for_each(Arena::count_all);
        for (extent, header) in headers {
            let owner = heap.memory.owner(extent).expect("redo waits for extents with an owner only");
            arenas[usize::from(owner)].note_header(extent, &header)?;
        }
        let owned: usize = arenas.iter().map(|arena| arena.space.extents.len()).sum();
        heap.owned.store(owned as u64, Relaxed);
        Ok(arenas)
    }

    /// Leaves what waits to the extents. Returns the headers that it changes, as they will be.
    fn defer_all(&mut self) -> Result<HashMap<u32, AlignedBuf>> {
        let mut headers = HashMap::new();
        for extent in 0..self.waiting.len() as u32 {
            if let Some(header) = self.changed_header(extent)? {
                headers.insert(extent, header);
            }
            self.defer(extent);
        }
        Ok(headers)
    }

    fn invalid(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(
            self.heap.memory.file.name(),
            offset,
            format!("{} (this is the heap offset)", what.into()),
        )
    }
}
