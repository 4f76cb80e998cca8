//! The heap's memory: one reservation of address space, and who may touch which part of it.
//!
//! All `unsafe` of this crate is in this file, and the system's calls in `mapping.rs`. Its argument:
//! * An extent's `owner` word names one arena, or none. It goes from [`FREE`] to an arena only by compare-exchange
//!   and back only by that arena's [`Owned`], of which there is one for each arena. So an `Owned` has its extents for
//!   itself: `&Owned` gives `&[u8]` into them, `&mut Owned` gives `&mut [u8]`.
//! * A page whose `present` bit is not set is in nobody's slice: slices are handed out only after the bits are
//!   checked. It may be filled by whoever sets its `claimed` bit first (an accessor or the background loader).
//!   It becomes absent again only by `&mut Owned`, which gives the claim up last; so no slice ever covers a page that is
//!   being filled or whose RAM is given back.
//! * An extent whose [`REDO`] bit is set is in nobody's slice either: it is set by `&mut Owned` only, and slices are
//!   handed out only after it is clear. Whoever takes the redo out of the map is the one to apply it.
//! * A released extent is zeroed by whoever moves its word from [`RELEASED`] to [`ZEROING`].
//!
//! Pages are not mapped from the file: they are read, checked (I-8) and then shown, which a mapping cannot do.

use std::{
    collections::HashMap,
    hint, io, process,
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    },
    thread,
};

use holdfast_io::{Error, Result};
use parking_lot::Mutex;

use crate::{
    EXTENT, PAGE,
    file::PageFile,
    mapping::{self, HUGE_PAGE},
    page_set::{page_mask, runs},
    redo::Redo,
};

/// The owner word of an extent that can be acquired and is all zero. Zero, so that a new reservation's states take no
/// RAM; arena `n` is `n + 1`.
const FREE: u32 = 0;
/// Given up by an arena in a transaction that is not committed yet.
const RELEASED: u32 = 0xfffe;
const ZEROING: u32 = 0xfffd;
/// Set beside the owner when all pages are present and touched, so that one compare answers all three questions.
const RESIDENT: u32 = 1 << 31;
/// Set beside the owner while redo waits to be applied; [`RESIDENT`] is not set then.
const REDO: u32 = 1 << 30;

/// All zero: free. What else it says counts once the extent has an owner.
struct ExtentState {
    owner: AtomicU32,
    /// Where the owning arena keeps what it knows of the extent; only the owner uses it.
    place: AtomicU32,
    /// Pages that changed since a checkpoint copied them.
    dirty: AtomicU64,
    /// Pages that were copied by a checkpoint which is not complete: what they hold is nowhere else yet.
    pending: AtomicU64,
    /// Pages that are present or being filled.
    claimed: AtomicU64,
    present: AtomicU64,
    /// Pages that were used since [`Owned::cool`] was called last, if it ever was.
    touched: AtomicU64,
    /// Pages that do not leave memory.
    pinned: AtomicU64,
    /// Pages that left memory when [`Owned::cool`] was called last, and have not come back.
    left: AtomicU64,
}

/// The owner word of an arena.
fn word_of(arena: u16) -> u32 {
    u32::from(arena) + 1
}

/// The states of all extents, in memory that takes RAM only where it is touched.
struct States {
    base: NonNull<ExtentState>,
    len: usize,
}

impl States {
    fn reserve(len: usize) -> io::Result<States> {
        let bytes = len * size_of::<ExtentState>();
        let base = mapping::reserve(bytes)?;
        mapping::allow_huge_pages(base, bytes);
        Ok(States { base: base.cast(), len })
    }
}

impl std::ops::Deref for States {
    type Target = [ExtentState];

    #[inline]
    fn deref(&self) -> &[ExtentState] {
        // SAFETY: `reserve` made room for `len` states, page-aligned; zeroes are valid atomics; they change as atomics only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for States {
    fn drop(&mut self) {
        // SAFETY: `base` came from `mapping::reserve` with this length; nothing borrows from it any more.
        unsafe { mapping::unreserve(self.base.cast(), self.len * size_of::<ExtentState>()) };
    }
}

/// The reservation and the state of its extents.
pub(crate) struct Memory {
    base: NonNull<u8>,
    extents: States,
    owners_made: AtomicBool,
    /// By extent: what waits to be applied to it.
    redo: Mutex<HashMap<u32, Redo>>,
    /// Whether the system was told to back it with small pages only.
    is_small_paged: AtomicBool,
    /// Pages of arenas' extents that are not in memory.
    absent: AtomicU64,
    /// Pages that were read while somebody waited who used them.
    faults: AtomicU64,
    /// Pages that came back soon after they had left.
    returned: AtomicU64,
    /// Pages that are pinned.
    pinned: AtomicU64,
    pub(crate) file: PageFile,
    /// Ends the process when a page cannot be read.
    pub(crate) on_unreadable: OnceLock<fn(&Error) -> !>,
    /// Whether pages that cannot be read stay absent, and redo is applied to the others.
    pub(crate) is_damaged: AtomicBool,
}

// SAFETY: `base` is memory that `Memory` owns; the module comment says why access to it is exclusive.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves `extents` extents; all are free.
    pub(crate) fn reserve(extents: usize, file: PageFile) -> Result<Arc<Memory>> {
        let base = mapping::reserve(extents * EXTENT as usize)
            .map_err(|e| Error::io(format!("reserve memory for {}", file.name()), e))?;
        // Until all is loaded that is wanted: see `use_huge_pages`.
        mapping::forbid_huge_pages(base, extents * EXTENT as usize);
        let extents = States::reserve(extents)
            .map_err(|e| Error::io(format!("reserve memory for {}", file.name()), e))?;
        let (owners_made, is_small_paged) = (AtomicBool::new(false), AtomicBool::new(false));
        let redo = Mutex::default();
        let on_unreadable = OnceLock::new();
        Ok(Arc::new(Memory {
            base,
            extents,
            owners_made,
            redo,
            is_small_paged,
            absent: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            file,
            on_unreadable,
            is_damaged: AtomicBool::new(false),
        }))
    }

    /// The exclusive rights of arenas `0..n`. Panics at a second call.
    pub(crate) fn owners(self: &Arc<Self>, n: u16) -> Vec<Owned> {
        assert!(!self.owners_made.swap(true, AcqRel), "the arenas exist already");
        (0..n).map(|id| Owned { memory: self.clone(), id, resident: word_of(id) | RESIDENT }).collect()
    }

    /// Number of extents reserved.
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// The arena that owns an extent; `None`: none does, or not for sure (released and not yet committed).
    pub(crate) fn owner(&self, extent: u32) -> Option<u16> {
        let owner = self.extents[extent as usize].owner.load(Acquire) & !(RESIDENT | REDO);
        (owner != FREE && owner < ZEROING).then(|| owner as u16 - 1)
    }

    /// Number of pages of an extent that are in memory.
    pub(crate) fn present(&self, extent: u32) -> u32 {
        self.extents[extent as usize].present.load(Relaxed).count_ones()
    }

    /// Notes that a page is to be used.
    pub(crate) fn touch(&self, extent: u32, page: usize) {
        self.extents[extent as usize].touched.fetch_or(1 << page, Relaxed);
    }

    /// Number of pages of arenas' extents that are not in memory.
    pub(crate) fn absent_pages(&self) -> u64 {
        self.absent.load(Relaxed)
    }

    /// Number of pages that were read while somebody waited who used them.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// How many pages have come back before [`Owned::cool`] was called again for their extent.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Number of pages that are pinned.
    pub(crate) fn pinned_pages(&self) -> u64 {
        self.pinned.load(Relaxed)
    }

    /// Pages of an extent that do not leave memory.
    pub(crate) fn pinned(&self, extent: u32) -> u64 {
        self.extents[extent as usize].pinned.load(Relaxed)
    }

    /// Notes that the last complete checkpoint names what pages held when they were copied.
    pub(crate) fn settle(&self, extent: u32, pages: u64) {
        self.extents[extent as usize].pending.fetch_and(!pages, Release);
    }

    /// Whether a page is in memory or about to be.
    pub(crate) fn is_claimed(&self, extent: u32, page: usize) -> bool {
        self.extents[extent as usize].claimed.load(Acquire) & 1 << page != 0
    }

    /// Marks pages as changed since the last checkpoint.
    pub(crate) fn mark_dirty(&self, extent: u32, pages: u64) {
        let dirty = &self.extents[extent as usize].dirty;
        // Mostly they are already: a load keeps the cache line shared.
        if dirty.load(Relaxed) & pages != pages {
            dirty.fetch_or(pages, Relaxed);
        }
    }

    /// Pages that changed since a checkpoint copied them.
    pub(crate) fn dirty(&self, extent: u32) -> u64 {
        self.extents[extent as usize].dirty.load(Relaxed)
    }

    /// Fills an absent page by `fill`; does nothing if it is present or somebody else is at it. When `fill` fails,
    /// the page stays absent.
    pub(crate) fn fill(
        &self,
        extent: u32,
        page: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let state = &self.extents[extent as usize];
        let bit = 1 << page;
        if state.claimed.fetch_or(bit, AcqRel) & bit != 0 {
            return Ok(());
        }
        let offset = extent as usize * EXTENT as usize + page * PAGE;
        // SAFETY: in range, since `extent` indexes `extents` and `page` < 64 (the shift above). The claim makes us
        // the only one to touch the page until its `present` bit is set.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), PAGE) };
        let result = fill(bytes);
        match result {
            Ok(()) => {
                self.absent.fetch_sub(1, Relaxed);
                if state.left.load(Relaxed) & bit != 0 {
                    state.left.fetch_and(!bit, Relaxed);
                    self.returned.fetch_add(1, Relaxed);
                }
                state.present.fetch_or(bit, Release)
            }
            Err(_) => state.claimed.fetch_and(!bit, Release),
        };
        result
    }

    /// Reads a page from the file unless it is present, and waits until it is.
    pub(crate) fn page_in(&self, extent: u32, page: usize) -> Result<()> {
        let state = &self.extents[extent as usize];
        let mut spins = 0;
        while state.present.load(Acquire) & 1 << page == 0 {
            self.fill(extent, page, |bytes| {
                self.faults.fetch_add(1, Relaxed);
                self.file.read_page(extent, page, bytes)
            })?;
            wait(&mut spins);
        }
        Ok(())
    }

    /// Reads the absent ones of some pages from the file, those that lie near each other there together.
    fn page_in_all(&self, extent: u32, pages: u64) -> Result<()> {
        let absent = pages & !self.extents[extent as usize].present.load(Acquire);
        let mut wanted: Vec<(u32, usize)> =
            bits(absent).map(|page| (self.file.page_ref(extent, page).slot, page)).collect();
        wanted.sort_unstable();
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let (n, first, bytes) = self.file.read_window(rest, usize::MAX)?;
            for &(slot, page) in &rest[..n] {
                let from = &bytes[(slot - first) as usize * PAGE..][..PAGE];
                self.fill(extent, page, |to| self.file.copy_page(extent, page, from, to))?;
            }
            rest = &rest[n..];
        }
        // Some may be somebody else's to fill.
        bits(absent).try_for_each(|page| self.page_in(extent, page))
    }

    /// Extents to which redo waits to be applied.
    pub(crate) fn extents_with_redo(&self) -> Vec<u32> {
        self.redo.lock().keys().copied().collect()
    }

    /// Ends the process, as its owner wants it: a page that cannot be read leaves the caller without any answer (I-8), perhaps
    /// in the midst of a change.
    pub(crate) fn give_up(&self, error: &Error) -> ! {
        match self.on_unreadable.get() {
            Some(end) => end(error),
            None => {
                eprintln!("{error}");
                process::abort()
            }
        }
    }

    /// Has the memory backed by huge pages, unless small ones are to be used: where it is touched from now on, and, until `is_over`, where
    /// extents have owners.
    pub(crate) fn use_huge_pages(&self, is_over: impl Fn() -> bool) {
        let len = self.extents.len() * EXTENT as usize;
        let goes_on = || !self.is_small_paged.load(SeqCst);
        if goes_on() {
            mapping::allow_huge_pages(self.base, len);
        }
        let first = self.base.as_ptr().align_offset(HUGE_PAGE);
        for at in (first..).step_by(HUGE_PAGE).take_while(|at| at + HUGE_PAGE <= len) {
            if is_over() || !goes_on() {
                break;
            }
            let mut extents = at / EXTENT as usize..=(at + HUGE_PAGE - 1) / EXTENT as usize;
            if extents.any(|extent| self.owner(extent as u32).is_some()) {
                // SAFETY: within the reservation.
                mapping::make_huge(unsafe { self.base.add(at) });
            }
        }
        if !goes_on() {
            // Somebody may have said so while the opposite was being said here.
            mapping::forbid_huge_pages(self.base, len);
        }
    }

    /// Has the memory backed by small pages from now on.
    pub(crate) fn use_small_pages(&self) {
        if !self.is_small_paged.swap(true, SeqCst) {
            mapping::forbid_huge_pages(self.base, self.extents.len() * EXTENT as usize);
        }
    }

    /// Zeroes pages of some extents by giving their RAM back.
    ///
    /// # Safety
    /// The caller is the pages' owner and exclusive, and their claims are set, so that nobody fills them.
    unsafe fn give_back(&self, pages: &[(u32, u64)]) {
        // Else the system would fill the holes again to make huge pages.
        self.use_small_pages();
        let mut ranges = Vec::new();
        for &(extent, pages) in pages {
            assert!((extent as usize) < self.extents.len(), "an extent of the heap");
            // SAFETY: in range.
            let base = unsafe { self.base.add(extent as usize * EXTENT as usize) };
            // SAFETY: likewise; a set of pages has 64 at most.
            ranges
                .extend(runs(pages).map(|(first, count)| (unsafe { base.add(first * PAGE) }, count * PAGE)));
        }
        // SAFETY: nobody else uses the pages, by contract.
        unsafe { mapping::zero(&ranges) };
    }

    /// Zeroes a released extent; it is free then.
    pub(crate) fn recycle(&self, extent: u32) {
        let state = &self.extents[extent as usize];
        let released = state.owner.compare_exchange(RELEASED, ZEROING, AcqRel, Relaxed);
        assert!(released.is_ok(), "extent {extent} was not released");
        // SAFETY: in range, and the exchange above makes us the only one to touch the extent.
        unsafe {
            mapping::zero(&[(self.base.add(extent as usize * EXTENT as usize), EXTENT as usize)]);
        }
        state.owner.store(FREE, Release);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `base` came from `reserve` with this length; nothing borrows from it any more.
        unsafe { mapping::unreserve(self.base, self.extents.len() * EXTENT as usize) };
    }
}

/// Spins at first, then lets others run.
fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 { hint::spin_loop() } else { thread::yield_now() }
}

/// The numbers of the bits that are set.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

/// One arena's exclusive access to the extents that it owns.
pub(crate) struct Owned {
    memory: Arc<Memory>,
    id: u16,
    /// The owner word of an extent that is ours and all present.
    resident: u32,
}

impl Owned {
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn owns(&self, extent: u32) -> bool {
        self.memory.owner(extent) == Some(self.id)
    }

    /// `len` bytes at `offset`, read from the file first if needed. Panics if they are not all this arena's.
    #[inline]
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.ensure(offset, len);
        // SAFETY: `ensure` has checked that the range is reserved, ours and present. `&self` keeps `bytes_mut` away.
        unsafe { std::slice::from_raw_parts(self.memory.base.as_ptr().add(offset as usize), len) }
    }

    /// As [`Owned::bytes`], to be changed; marks the pages dirty.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        self.mark_dirty(self.ensure(offset, len), offset, len);
        // SAFETY: `ensure` has checked that the range is reserved, ours and present. `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base.as_ptr().add(offset as usize), len) }
    }

    /// Makes the little-endian integer at `offset` what `change` makes of it, and returns what it was and what it is;
    /// marks its pages dirty if it is another one then.
    #[inline]
    pub(crate) fn change_u64(&mut self, offset: u64, change: impl FnOnce(u64) -> u64) -> (u64, u64) {
        let state = self.ensure(offset, 8);
        // SAFETY: `ensure` has checked that the range is reserved, ours and present. `&mut self` is exclusive; an array
        // of bytes has no alignment.
        let bytes = unsafe { &mut *self.memory.base.as_ptr().add(offset as usize).cast::<[u8; 8]>() };
        let old = u64::from_le_bytes(*bytes);
        let new = change(old);
        if new != old {
            *bytes = new.to_le_bytes();
            self.mark_dirty(state, offset, 8);
        }
        (old, new)
    }

    /// Copies bytes to another place, which may overlap; marks it dirty.
    pub(crate) fn copy_within(&mut self, from: u64, to: u64, len: usize) {
        self.ensure(from, len);
        self.mark_dirty(self.ensure(to, len), to, len);
        let base = self.memory.base.as_ptr();
        // SAFETY: `ensure` has checked that both ranges are reserved, ours and present. `&mut self` is exclusive.
        unsafe { std::ptr::copy(base.add(from as usize), base.add(to as usize), len) };
    }

    /// Makes sure that a range is ours and in memory, and returns the state of the extent that it begins in.
    #[inline]
    fn ensure(&self, offset: u64, len: usize) -> &ExtentState {
        let state = &self.memory.extents[(offset / EXTENT) as usize];
        let fits = len as u64 <= EXTENT - offset % EXTENT;
        if !fits || state.owner.load(Acquire) != self.resident {
            self.ensure_pages(state, offset, len);
        }
        state
    }

    /// As [`Owned::ensure`], of an extent not all of whose pages are there and were used.
    #[inline(never)]
    fn ensure_pages(&self, state: &ExtentState, offset: u64, len: usize) {
        let within = (offset % EXTENT) as usize;
        if within + len <= EXTENT as usize && len > 0 && state.owner.load(Acquire) == word_of(self.id) {
            let pages = page_mask(within / PAGE, (within + len - 1) / PAGE);
            let ready = state.present.load(Acquire) & state.touched.load(Relaxed);
            if ready & pages == pages {
                if ready == !0 {
                    state.owner.store(self.resident, Release);
                }
                return;
            }
        }
        self.ensure_slowly(offset, len);
    }

    #[cold]
    fn ensure_slowly(&self, offset: u64, len: usize) {
        self.try_ensure(offset, len).unwrap_or_else(|e| self.memory.give_up(&e));
    }

    /// Pages in what is absent of a range. Panics if it is not all this arena's.
    pub(crate) fn try_ensure(&self, offset: u64, len: usize) -> Result<()> {
        for (extent, pages) in ranges(offset, len) {
            assert!(self.owns(extent), "arena {} does not own extent {extent} (offset {offset})", self.id);
            self.apply_redo(extent)?;
            let state = &self.memory.extents[extent as usize];
            let (present, mut touched) = (state.present.load(Acquire), state.touched.load(Relaxed));
            if touched & pages != pages {
                touched = state.touched.fetch_or(pages, Relaxed) | pages;
            }
            bits(pages & !present).try_for_each(|page| self.memory.page_in(extent, page))?;
            if present & touched == !0 {
                state.owner.store(self.resident, Release);
            }
        }
        Ok(())
    }

    /// Copies a page of an extent of ours, without the redo that waits for it, from memory if it is there.
    pub(crate) fn read_page(&self, extent: u32, page: usize, to: &mut [u8]) -> Result<()> {
        if self.memory.extents[extent as usize].present.load(Acquire) & 1 << page == 0 {
            return self.memory.file.read_page(extent, page, to);
        }
        to.copy_from_slice(self.page(extent, page));
        Ok(())
    }

    /// A page of an extent of ours that is in memory, and for which no redo waits. This is not a use of it.
    pub(crate) fn page(&self, extent: u32, page: usize) -> &[u8] {
        assert!(self.present(extent) & 1 << page != 0, "page {page} of extent {extent} is absent");
        let offset = extent as usize * EXTENT as usize + page * PAGE;
        // SAFETY: the page is reserved, ours and present. `&self` keeps `bytes_mut` away.
        unsafe { std::slice::from_raw_parts(self.memory.base.as_ptr().add(offset), PAGE) }
    }

    /// Lets redo wait until the extent is needed.
    pub(crate) fn defer(&mut self, extent: u32, redo: Redo) {
        assert!(self.owns(extent), "arena {} does not own extent {extent}", self.id);
        let other = self.memory.redo.lock().insert(extent, redo);
        assert!(other.is_none(), "redo waits for extent {extent} already");
        self.memory.extents[extent as usize].owner.store(word_of(self.id) | REDO, Release);
    }

    /// Applies the redo that waits for an extent of ours, if any does; whether some did.
    pub(crate) fn apply_redo(&self, extent: u32) -> Result<bool> {
        let state = &self.memory.extents[extent as usize];
        let (mut has_waited, mut spins) = (false, 0);
        while self.owns(extent) && state.owner.load(Acquire) & REDO != 0 {
            has_waited = true;
            let taken = self.memory.redo.lock().remove(&extent);
            let Some(redo) = taken else {
                wait(&mut spins);
                continue;
            };
            let redo = if self.memory.is_damaged.load(Relaxed) { self.readable(extent, redo) } else { redo };
            if let Err(e) = self.memory.page_in_all(extent, redo.pages()) {
                self.memory.redo.lock().insert(extent, redo);
                return Err(e);
            }
            for (at, bytes) in redo.writes() {
                assert!(at + bytes.len() <= EXTENT as usize, "redo of extent {extent} reaches beyond it");
                let offset = extent as usize * EXTENT as usize + at;
                // SAFETY: in the extent, which is reserved and ours; its pages are present, since `redo.pages()` are those
                // that the writes touch. No slice is there as long as the bit is set, and we have taken the redo.
                let to = unsafe {
                    std::slice::from_raw_parts_mut(self.memory.base.as_ptr().add(offset), bytes.len())
                };
                to.copy_from_slice(bytes);
            }
            self.memory.mark_dirty(extent, redo.pages());
            state.owner.store(word_of(self.id), Release);
        }
        Ok(has_waited)
    }

    /// The part of some redo that is for pages which can be read.
    fn readable(&self, extent: u32, redo: Redo) -> Redo {
        let is_readable = |page: &usize| self.memory.page_in(extent, *page).is_ok();
        let pages = bits(redo.pages()).filter(is_readable).fold(0, |pages, page| pages | 1 << page);
        redo.within(pages)
    }

    /// Marks a range dirty that begins in an extent of this state.
    #[inline]
    fn mark_dirty(&self, state: &ExtentState, offset: u64, len: usize) {
        let page = 1 << ((offset % EXTENT) as usize / PAGE);
        // Mostly it is one page, and dirty already.
        if len > PAGE - offset as usize % PAGE || state.dirty.load(Relaxed) & page == 0 {
            self.mark_dirty_slowly(offset, len);
        }
    }

    #[cold]
    fn mark_dirty_slowly(&self, offset: u64, len: usize) {
        ranges(offset, len).for_each(|(extent, pages)| self.memory.mark_dirty(extent, pages));
    }

    /// Which pages of an extent of ours are in memory as they should be: none while redo waits for it.
    pub(crate) fn present(&self, extent: u32) -> u64 {
        assert!(self.owns(extent), "arena {} does not own extent {extent}", self.id);
        let state = &self.memory.extents[extent as usize];
        if state.owner.load(Acquire) & REDO != 0 { 0 } else { state.present.load(Acquire) }
    }

    /// Which pages of an extent of ours are not in memory.
    pub(crate) fn absent(&self, extent: u32) -> u64 {
        assert!(self.owns(extent), "arena {} does not own extent {extent}", self.id);
        !self.memory.extents[extent as usize].present.load(Acquire)
    }

    /// Zeroes some pages of an extent, which must be in memory, by giving their RAM back; marks them dirty.
    pub(crate) fn discard(&mut self, extent: u32, first: usize, count: usize) {
        let pages = page_mask(first, first + count - 1);
        assert!(self.present(extent) & pages == pages, "pages of extent {extent} are absent");
        // SAFETY: ours and present, so claimed; `&mut self` is exclusive.
        unsafe { self.memory.give_back(&[(extent, pages)]) };
        self.memory.mark_dirty(extent, pages);
    }

    /// Notes from now on which pages of an extent of ours are used, and returns those that were not since the last call; none
    /// at the first, and while redo waits for it.
    pub(crate) fn cool(&mut self, extent: u32) -> u64 {
        assert!(self.owns(extent), "arena {} does not own extent {extent}", self.id);
        let state = &self.memory.extents[extent as usize];
        if state.owner.load(Acquire) & REDO != 0 {
            return 0;
        }
        state.owner.store(word_of(self.id), Release);
        state.left.store(0, Relaxed);
        !state.touched.swap(state.pinned.load(Relaxed), Relaxed)
    }

    /// Pages of an extent of ours that may leave memory, if the last complete checkpoint has a slot for them: in memory, not
    /// changed since that checkpoint copied them, and not pinned. Between transactions a home has all that has changed.
    pub(crate) fn evictable(&self, extent: u32) -> u64 {
        let state = &self.memory.extents[extent as usize];
        if self.memory.file.home.is_some() {
            return self.present(extent) & !state.pinned.load(Relaxed);
        }
        // Settled by another thread: what was pending is clean only once the checkpoint names it.
        let pending = state.pending.load(Acquire);
        self.present(extent) & !(state.dirty.load(Relaxed) | pending | state.pinned.load(Relaxed))
    }

    /// Takes pages of some extents out of memory, all of which are [`Owned::evictable`] and have a slot.
    pub(crate) fn evict(&mut self, leaving: &[(u32, u64)]) {
        if leaving.is_empty() {
            return;
        }
        for &(extent, pages) in leaving {
            assert!(self.evictable(extent) & pages == pages, "pages of extent {extent} cannot leave memory");
            let state = &self.memory.extents[extent as usize];
            state.owner.store(word_of(self.id), Release);
            state.present.fetch_and(!pages, Release);
            state.left.store(pages, Relaxed);
            self.memory.absent.fetch_add(pages.count_ones().into(), Relaxed);
        }
        // SAFETY: ours and claimed until all is done; `&mut self` is exclusive.
        unsafe { self.memory.give_back(leaving) };
        for &(extent, pages) in leaving {
            self.memory.extents[extent as usize].claimed.fetch_and(!pages, Release);
        }
    }

    /// Keeps pages of an extent of ours in memory, once they are there, or no more.
    pub(crate) fn pin(&mut self, extent: u32, pages: u64, pinned: bool) {
        let (state, counter) = (&self.memory.extents[extent as usize].pinned, &self.memory.pinned);
        if pinned {
            let before = state.fetch_or(pages, Relaxed);
            counter.fetch_add((pages & !before).count_ones().into(), Relaxed);
        } else {
            let before = state.fetch_and(!pages, Relaxed);
            counter.fetch_sub((pages & before).count_ones().into(), Relaxed);
        }
    }

    /// Forgets that a page changed, since a checkpoint copies it.
    pub(crate) fn clean(&mut self, extent: u32, page: usize) {
        let state = &self.memory.extents[extent as usize];
        state.pending.fetch_or(1 << page, Relaxed);
        state.dirty.fetch_and(!(1 << page), Relaxed);
    }

    /// Where the arena keeps what it knows of an extent, if it is its own.
    #[inline]
    pub(crate) fn place(&self, extent: u32) -> Option<usize> {
        self.owns(extent).then(|| self.memory.extents[extent as usize].place.load(Relaxed) as usize)
    }

    pub(crate) fn set_place(&mut self, extent: u32, place: usize) {
        self.memory.extents[extent as usize].place.store(place as u32, Relaxed);
    }

    /// Takes a free extent. All its pages are zero, and dirty: what the file holds of them is another life's.
    pub(crate) fn acquire(&mut self, extent: u32) {
        self.take(extent, !0);
        self.memory.extents[extent as usize].dirty.store(!0, Relaxed);
    }

    /// Takes a free extent as the last checkpoint left it: `present` pages are zero, the others are in the file.
    pub(crate) fn adopt(&mut self, extent: u32, present: u64) {
        self.take(extent, present);
        self.memory.extents[extent as usize].dirty.store(0, Relaxed);
    }

    fn take(&mut self, extent: u32, present: u64) {
        let state = &self.memory.extents[extent as usize];
        let taken = state.owner.compare_exchange(FREE, word_of(self.id), AcqRel, Relaxed);
        assert!(taken.is_ok(), "extent {extent} is not free");
        self.memory.absent.fetch_add(present.count_zeros().into(), Relaxed);
        state.touched.store(!0, Relaxed);
        state.pending.store(0, Relaxed);
        state.left.store(0, Relaxed);
        state.present.store(present, Release);
        state.claimed.store(present, Release);
        if present == !0 {
            state.owner.store(self.resident, Release);
        }
    }

    /// Gives an extent up; [`Memory::recycle`] makes it free.
    pub(crate) fn release(&mut self, extent: u32) {
        assert!(self.owns(extent), "arena {} does not own extent {extent}", self.id);
        self.pin(extent, !0, false);
        let state = &self.memory.extents[extent as usize];
        self.memory.redo.lock().remove(&extent);
        let mut spins = 0;
        loop {
            let absent = !state.claimed.fetch_or(!0, AcqRel);
            self.memory.absent.fetch_sub(absent.count_ones().into(), Relaxed);
            if state.present.fetch_or(absent, AcqRel) | absent == !0 {
                break;
            }
            // For the background loader, which is filling a page, or lets go of it because it cannot read it.
            wait(&mut spins);
        }
        state.owner.store(RELEASED, Release);
    }
}

/// The extents that a range touches, and its pages in each, as bits. Panics if it ends beyond the address space.
pub(crate) fn ranges(offset: u64, len: usize) -> impl Iterator<Item = (u32, u64)> {
    let end = offset.checked_add(len as u64).expect("a range within the address space");
    let extents = if len == 0 { 0..0 } else { offset / EXTENT..(end - 1) / EXTENT + 1 };
    extents.map(move |extent| {
        let start = extent * EXTENT;
        let first = (offset.max(start) - start) as usize / PAGE;
        let last = (end.min(start + EXTENT) - 1 - start) as usize / PAGE;
        (u32::try_from(extent).expect("an extent within the address space"), page_mask(first, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_io::{Io, SimIo};
    use std::{sync::mpsc, time::Duration};

    /// The background loader holds a page that the arena gives up with its extent.
    #[test]
    fn an_extent_is_released_though_the_loader_cannot_read_a_page_of_it() {
        let file = SimIo::new(1).open("heap", true).expect("a file");
        let memory = Memory::reserve(1, PageFile::empty(file)).expect("memory");
        let mut owned = memory.owners(1).pop().expect("an owner");
        owned.adopt(0, 0);
        let ((begun, begins), (done, is_done)) = (mpsc::channel(), mpsc::channel());
        thread::spawn({
            let memory = memory.clone();
            move || {
                let failed = memory.fill(0, 3, |_| {
                    begun.send(()).expect("the test waits");
                    thread::sleep(Duration::from_millis(20));
                    Err(Error::corrupt("heap", 0, "it cannot be read"))
                });
                assert!(failed.is_err());
            }
        });
        begins.recv().expect("the loader fills");
        thread::spawn(move || {
            owned.release(0);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("it is released");
        memory.recycle(0);
        assert_eq!(memory.owner(0), None);
    }
}
