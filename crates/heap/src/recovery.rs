//! Replay: the heap is brought from its last complete checkpoint to the end of the log.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use holdfast_io::{AlignedBuf, Error, Result, in_parallel};

use crate::{
    Arena, EXTENT, Heap, PAGE,
    owner::RAW,
    redo::Redo,
    sorted::{self, EncodedChange, NewOwner, SortedRedo},
    space::Extent,
    tx::Record,
};

/// Bytes of redo that wait for an extent at most: no more than the extent itself would take.
const WAITING_MAX: usize = EXTENT as usize;
/// Threads that read headers at once.
const READERS: usize = 8;

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

    /// Takes in redo records that were sorted.
    pub fn apply_sorted(&mut self, sorted: SortedRedo) -> Result<()> {
        for (extent, owner, redo) in sorted.into_changes() {
            if self.becomes(extent, owner)? {
                self.wait(extent, |waiting| waiting.append(redo))?;
            }
        }
        Ok(())
    }

    /// Takes in redo records that were sorted, as they are encoded.
    pub fn apply_encoded(&mut self, encoded: &[u8]) -> Result<()> {
        for changed in sorted::decode(encoded) {
            let EncodedChange { extent, owner, writes } =
                changed.ok_or_else(|| self.invalid(0, "sorted redo that is cut short"))?;
            if self.becomes(extent, owner)? {
                let mut added = Some(());
                self.wait(extent, |waiting| added = waiting.add_encoded(writes))?;
                let offset = u64::from(extent) * EXTENT;
                added.ok_or_else(|| self.invalid(offset, "sorted redo that reaches beyond its extent"))?;
            }
        }
        Ok(())
    }

    /// Gives an extent the owner that sorted redo says it gets, if it gets one. Returns whether it has one then.
    fn becomes(&mut self, extent: u32, owner: Option<NewOwner>) -> Result<bool> {
        if extent as usize >= self.heap.memory.len() {
            return Err(self.invalid(u64::from(extent) * EXTENT, "sorted redo reaches beyond the heap"));
        }
        if let Some((owner, used)) = owner {
            self.set_owner(extent, owner, used)?;
        }
        Ok(self.heap.memory.owner(extent).is_some())
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

    /// Ends the replay. What waits for an extent is applied when the extent is used, or by [`Arena::apply_redo`]. Arena `i` is at index `i`.
    pub fn finish(self) -> Result<Vec<Arena>> {
        let heap = self.heap.clone();
        let arenas = self.defer_all(Arena::recover_space)?;
        heap.find_free_extents();
        Ok(arenas)
    }

    /// Ends the replay for one who follows another server, and allocates nothing until [`Arena::end_following`]: see [`Heap::new_owner`] and
    /// [`Arena::gain`] for what comes next. Arena `i` is at index `i`.
    pub fn follow(self) -> Result<Vec<Arena>> {
        let heap = self.heap.clone();
        let arenas = self.defer_all(|arena, headers| {
            arena.count_all();
            headers.iter().try_for_each(|(extent, header)| arena.note_header(*extent, header))
        })?;
        let owned: usize = arenas.iter().map(|arena| arena.space.extents.len()).sum();
        heap.owned.store(owned as u64, Relaxed);
        Ok(arenas)
    }

    /// Leaves what waits to the extents, and calls `f` with each arena and the headers in it that this changes, as they will be. Several threads
    /// do this, each for some arenas, since it waits for a read of each header.
    fn defer_all(
        self,
        f: impl Fn(&mut Arena, &HashMap<u32, AlignedBuf>) -> Result<()> + Sync,
    ) -> Result<Vec<Arena>> {
        let Recovery { heap, arenas, waiting } = self;
        let mut redo_of: Vec<Vec<(u32, Redo)>> = arenas.iter().map(|_| Vec::new()).collect();
        for (extent, redo) in (0..).zip(waiting).filter(|(_, redo)| !redo.is_empty()) {
            let owner = heap.memory.owner(extent).expect("redo waits for extents with an owner only");
            redo_of[usize::from(owner)].push((extent, redo));
        }
        let defer = |(mut arena, waiting): (Arena, Vec<(u32, Redo)>)| {
            let mut headers = HashMap::new();
            for (extent, redo) in waiting {
                if let Some(header) = arena.header_after(extent, &redo)? {
                    headers.insert(extent, header);
                }
                arena.memory.defer(extent, redo);
            }
            f(&mut arena, &headers)?;
            Ok(arena)
        };
        let pairs = arenas.into_iter().zip(redo_of).collect();
        in_parallel("holdfast-open", READERS, pairs, defer)
    }

    fn invalid(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(
            self.heap.memory.file.name(),
            offset,
            format!("{} (this is the heap offset)", what.into()),
        )
    }
}

impl Arena {
    /// The header of an extent of ours, if it has one and redo that waits changes it: the allocator is to know what is free.
    fn header_after(&self, extent: u32, redo: &Redo) -> Result<Option<AlignedBuf>> {
        let is_raw = || self.memory.place(extent).is_some_and(|place| self.space.extents[place].raw);
        if redo.pages() & 1 == 0 || is_raw() {
            return Ok(None);
        }
        let mut header = AlignedBuf::zeroed(PAGE);
        self.memory.read_page(extent, 0, &mut header)?;
        for (at, bytes) in redo.writes().filter(|(at, _)| *at < PAGE) {
            let len = bytes.len().min(PAGE - at);
            header[at..at + len].copy_from_slice(&bytes[..len]);
        }
        Ok(Some(header))
    }
}
