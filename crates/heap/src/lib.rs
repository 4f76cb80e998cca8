//! Holdfast's persistent heap.
//!
//! A heap is an address space of *extents*. Each belongs to one [`Arena`], which a partition has for itself. Changes
//! go through a [`Tx`], which collects redo records for the log. A [`Checkpoint`] brings the pages that changed to the
//! heap's file; from then on they may leave memory ([`Arena::evict`]) until they are used again. After a restart, [`Heap::open`] finds them there, and a [`Recovery`] applies the records since. A server that follows
//! another one goes on applying records ([`Recovery::follow`]).
//! docs/format.md says what is in the file and in the records.
//!
//! ```
//! # use holdfast_heap::{Heap, HeapOptions, HeapRoot, Tx};
//! # use holdfast_io::{Io, SimIo};
//! # let file = SimIo::new(1).open("heap", true).unwrap();
//! let options = HeapOptions { max_bytes: 1 << 20, arenas: 1 };
//! let (heap, mut arenas) = Heap::create(file.clone(), options)?;
//! let mut tx = Tx::new();
//! let block = arenas[0].alloc(&mut tx, 100).expect("room for 100 bytes");
//! arenas[0].write(&mut tx, block, b"hello");
//! // Here tx.buf is appended to the log.
//! tx.committed();
//!
//! let mut checkpoint = heap.begin_checkpoint();
//! while checkpoint.copy(&mut arenas[0], 16) {
//!     checkpoint.write()?;
//! }
//! let finished = checkpoint.finish()?;
//! let root: [u8; HeapRoot::LEN] = finished.root().encode();
//! // Here the root is made durable in the superblock.
//! finished.commit();
//!
//! let (heap, recovery) = Heap::open(file, options, &HeapRoot::decode(&root))?;
//! let arenas = recovery.finish()?;
//! assert_eq!(arenas[0].bytes(block, 5), b"hello");
//! # Ok::<(), holdfast_io::Error>(())
//! ```

mod alloc;
mod arena;
mod checkpoint;
mod class;
mod copy;
mod evict;
mod file;
mod follow;
mod header;
mod home;
mod image;
mod load;
mod mapping;
mod memory;
mod owner;
mod page_set;
mod pool;
mod recovery;
mod redo;
mod room;
mod salvage;
mod slots;
mod sorted;
mod space;
mod tx;
mod volatile;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use holdfast_io::{Error, File, Result};
use parking_lot::Mutex;

pub use arena::{Arena, Full};
pub use checkpoint::{Checkpoint, Finished};
pub use copy::{PinnedCheckpoint, copy_checkpoint};
pub use evict::{AbsentPage, Evicted};
pub use file::HeapRoot;
pub use home::{FOLDER as HOME_FOLDER, Home, HomeStats, Method as HomeMethod};
pub use image::Image;
pub use load::{Load, VerifyReport};
pub use recovery::Recovery;
pub use room::RoomNeeded;
pub use salvage::DamagedPage;
pub use sorted::SortedRedo;
pub use tx::{Record, Tx, put_write};

use crate::{
    file::{Entry, PageFile},
    load::Loader,
    memory::Memory,
    owner::{NOBODY, RAW},
    pool::Pool,
    space::{Extent, Space},
    volatile::NoFile,
};

/// The unit of the file, in bytes.
pub const PAGE: usize = 4096;
/// The unit in which arenas own memory, in bytes.
pub const EXTENT: u64 = 256 << 10;
/// Pages of an extent.
const PAGES: usize = 64;
/// The largest address space, in bytes: so the file, which may be twice as large, has less than 2^32 tables.
const MAX_BYTES: u64 = 1 << 39;

/// How a heap is laid out.
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    /// Address space to reserve, in bytes; RAM is taken only for what is used.
    pub max_bytes: u64,
    /// Number of arenas; fixed when the heap is created.
    pub arenas: u16,
}

/// A heap, shared by its arenas, the loader and the checkpoints.
pub struct Heap {
    memory: Arc<Memory>,
    pool: Mutex<Pool>,
    /// By arena: bytes in allocated blocks.
    allocated: Box<[Counter]>,
    /// Extents that arenas own, or that wait to be free again.
    owned: AtomicU64,
    /// Whether the medium had no room for the extents that were asked for last.
    is_short: AtomicBool,
    /// Free pages of arenas' extents that take no RAM.
    discarded: AtomicU64,
    /// Called when an arena has taken an extent.
    on_growth: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
    loader: Mutex<Loader>,
    /// See [`checkpoint::Exclusive`].
    exclusive: AtomicBool,
}

/// A counter that only one arena changes, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Figures of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of pages that are in memory, or would be if they were touched.
    pub resident_bytes: u64,
    /// Bytes in allocated blocks.
    pub allocated_bytes: u64,
    /// Extents that belong to arenas.
    pub extents: u64,
    /// Extents that the address space has.
    pub extents_max: u64,
    /// Slots of the file that are in use.
    pub file_slots_used: u64,
    /// Slots of the file that are free.
    pub file_slots_free: u64,
    /// Pages, those of tables included, that were written since the start.
    pub pages_written: u64,
    /// Pages that were read since the start because somebody used them, who waited for that.
    pub page_faults: u64,
}

/// Slots of the heap's file that were written since the start, of [`PAGE`] bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesWritten {
    /// Pages of the heap.
    pub pages: u64,
    /// Slots of tables.
    pub tables: u64,
}

impl Heap {
    /// Makes an empty heap. It is on the medium when its first checkpoint is.
    pub fn create(file: Arc<dyn File>, o: HeapOptions) -> Result<(Arc<Heap>, Vec<Arena>)> {
        let heap = Heap::reserve(PageFile::empty(file), o)?;
        let mut pool = heap.pool.lock();
        (u32::from(o.arenas)..heap.memory.len() as u32).for_each(|extent| pool.put(extent));
        drop(pool);
        heap.owned.store(o.arenas.into(), Relaxed);
        let mut arenas = heap.arenas(o.arenas);
        (0..).zip(&mut arenas).for_each(|(extent, arena)| arena.make_root(extent));
        Ok((heap, arenas))
    }

    /// Sets how the process ends when a page that an arena needs cannot be read or is damaged: whoever needs it cannot go on,
    /// and what it was about to change may be changed in part. Without this, and until it is set, by an abort. Only the first
    /// call counts. The function runs on the thread that needs the page, with its locks held.
    pub fn on_unreadable(&self, end: fn(&Error) -> !) {
        let _ = self.memory.on_unreadable.set(end);
    }

    /// Opens the checkpoint that `root` names. All tables are read and checked; pages come in when they are touched,
    /// or by [`Heap::load_next`]. `root` was found in the superblock; `o.arenas` must be what it was at creation.
    pub fn open(file: Arc<dyn File>, o: HeapOptions, root: &HeapRoot) -> Result<(Arc<Heap>, Recovery)> {
        check_root(o, root)?;
        Heap::open_file(PageFile::open(file, root)?, o)
    }

    /// The heap of a file whose tables were read.
    fn open_file(file: PageFile, o: HeapOptions) -> Result<(Arc<Heap>, Recovery)> {
        let heap = Heap::reserve(file, o)?;
        let mut arenas = heap.arenas(o.arenas);
        let state = heap.memory.file.state();
        for (number, entry) in (0..).zip(&state.entries).filter(|(_, entry)| entry.owner != NOBODY) {
            let arena = &mut arenas[usize::from(entry.owner & !RAW)];
            arena.memory.adopt(number, zero_pages(entry));
            arena.add(Extent::unscanned(number, entry.used, entry.owner & RAW != 0));
        }
        drop(state);
        Ok((heap.clone(), Recovery::new(heap, arenas)))
    }

    /// Opens the heap that lies in a home, as it is now; pages come in when they are touched, or by [`Heap::load_next`].
    /// `o.arenas` must be what it was at creation.
    pub fn open_home(home: Arc<Home>, o: HeapOptions) -> Result<(Arc<Heap>, Vec<Arena>)> {
        let owned = owned(&home, o)?;
        let heap = Heap::reserve(PageFile::home(home), o)?;
        let mut arenas = heap.arenas(o.arenas);
        for (number, owner, used) in owned {
            let arena = &mut arenas[usize::from(owner & !RAW)];
            arena.memory.adopt(number, 0);
            let used = match owner & RAW {
                0 => arena.read_used(number)?,
                _ => used,
            };
            arena.add(Extent::unscanned(number, used, owner & RAW != 0));
        }
        Ok((heap.clone(), Recovery::new(heap, arenas).finish()?))
    }

    /// Takes over what lies in a home into memory, all of it, for a heap with a file of its own, in which nothing is worth reading: the next checkpoint
    /// brings it there, if there is a file.
    pub fn take_over(
        home: &Home,
        file: Option<Arc<dyn File>>,
        o: HeapOptions,
    ) -> Result<(Arc<Heap>, Recovery)> {
        let heap = Heap::reserve(PageFile::empty(file.unwrap_or_else(|| Arc::new(NoFile))), o)?;
        let mut arenas = heap.arenas(o.arenas);
        let mut bytes = vec![0; EXTENT as usize];
        for (number, owner, used) in owned(home, o)? {
            home.read_extent(number, &mut bytes)?;
            let arena = &mut arenas[usize::from(owner & !RAW)];
            arena.memory.acquire(number);
            arena.patch(u64::from(number) * EXTENT, &bytes);
            arena.add(Extent::unscanned(number, used, owner & RAW != 0));
        }
        Ok((heap.clone(), Recovery::new(heap, arenas)))
    }

    /// Brings all that arenas hold to a new home. To be called between transactions, when no redo waits any more.
    pub fn move_to(&self, home: &Home, arenas: &[Arena]) -> Result<()> {
        for arena in arenas {
            for extent in &arena.space.extents {
                let bytes = arena.bytes(u64::from(extent.number) * EXTENT, EXTENT as usize);
                home.put_extent(extent.number, extent.owner(arena.memory.id()), extent.used, bytes)?;
            }
        }
        home.sync()
    }

    /// The home that it lies in, if it does.
    #[inline]
    pub fn home(&self) -> Option<&Arc<Home>> {
        self.memory.file.home.as_ref()
    }

    fn reserve(file: PageFile, o: HeapOptions) -> Result<Arc<Heap>> {
        let extents = o.max_bytes / EXTENT;
        if o.max_bytes > MAX_BYTES || extents < u64::from(o.arenas) || o.arenas == 0 || o.arenas >= RAW {
            let why = format!("a heap of {} bytes cannot have {} arenas", o.max_bytes, o.arenas);
            return Err(Error::Unusable(why));
        }
        Ok(Arc::new(Heap {
            memory: Memory::reserve(extents as usize, file)?,
            pool: Mutex::new(Pool::new(extents as u32)),
            allocated: (0..o.arenas).map(|_| Counter::default()).collect(),
            owned: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            discarded: AtomicU64::new(0),
            on_growth: OnceLock::new(),
            loader: Mutex::default(),
            exclusive: AtomicBool::new(false),
        }))
    }

    fn arenas(self: &Arc<Self>, n: u16) -> Vec<Arena> {
        let owners = self.memory.owners(n);
        owners.into_iter().map(|memory| Arena { memory, heap: self.clone(), space: Space::new() }).collect()
    }

    /// Takes back extents that arenas have released.
    fn recycle(&self, extents: &[u32]) {
        extents.iter().for_each(|&extent| self.memory.recycle(extent));
        self.put_back(extents);
    }

    /// Gives back extents that no arena has used.
    fn put_back(&self, extents: &[u32]) {
        let mut pool = self.pool.lock();
        extents.iter().for_each(|&extent| pool.put(extent));
        self.owned.fetch_sub(extents.len() as u64, Relaxed);
    }

    /// Takes adjacent extents that nobody owns, for an arena; `None`: there are not so many.
    pub(crate) fn take_extents(&self, count: usize) -> Option<u32> {
        let taken = self.pool.lock().take(count)?;
        let is_short = self.home().is_some_and(|home| home.allocate(taken, count as u32).is_err());
        self.is_short.store(is_short, Relaxed);
        if is_short {
            // Who asks is told that the heap is full.
            let mut pool = self.pool.lock();
            (taken..taken + count as u32).for_each(|extent| pool.put(extent));
            return None;
        }
        self.owned.fetch_add(count as u64, Relaxed);
        if let Some(on_growth) = self.on_growth.get() {
            on_growth(count as u64 * EXTENT);
        }
        Some(taken)
    }

    /// Has `f` called with the bytes whenever arenas have taken more memory, in the middle of a transaction: it must not wait for any lock
    /// that is held around one. Panics at a second call.
    pub fn on_growth(&self, f: Box<dyn Fn(u64) + Send + Sync>) {
        assert!(self.on_growth.set(f).is_ok(), "somebody is told of the heap's growth already");
    }

    /// Starts a checkpoint. The position in the log from which replay has to start is read before the first
    /// [`Checkpoint::copy`]. Panics while there is another one.
    pub fn begin_checkpoint(self: &Arc<Self>) -> Checkpoint {
        Checkpoint::new(self)
    }

    /// Bytes in allocated blocks.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.iter().map(|counter| counter.0.load(Relaxed)).sum()
    }

    /// Bytes of address space: what can be allocated at most.
    pub fn bytes_max(&self) -> u64 {
        self.memory.len() as u64 * EXTENT
    }

    /// Bytes of RAM for the pages that are in memory, free ones included that were not given back ([`Arena::give_back`]),
    /// as if all had been touched.
    pub fn held_bytes(&self) -> u64 {
        let owned = self.owned.load(Relaxed) * EXTENT;
        owned.saturating_sub((self.discarded.load(Relaxed) + self.memory.absent_pages()) * PAGE as u64)
    }

    /// Has memory backed by huge pages from now on, unless [`Heap::use_small_pages`] has been called: random looks miss the address
    /// translation less often. To be called when all pages that were wanted have been loaded: before that, each would have its user wait until a
    /// huge page is zeroed, which takes a millisecond. What is in memory is moved, until `is_over`.
    pub fn use_huge_pages(&self, is_over: impl Fn() -> bool) {
        self.memory.use_huge_pages(is_over);
    }

    /// Has memory backed by small pages from now on. For a heap that will not all be in memory: else each page that comes in
    /// may take a huge one.
    pub fn use_small_pages(&self) {
        self.memory.use_small_pages();
    }

    /// Whether any page is not in memory.
    #[inline]
    pub fn has_absent(&self) -> bool {
        self.memory.absent_pages() != 0
    }

    /// Bytes of pages that are not in memory.
    pub fn absent_bytes(&self) -> u64 {
        self.memory.absent_pages() * PAGE as u64
    }

    /// Bytes of pages that are [pinned](Arena::pin).
    pub fn pinned_bytes(&self) -> u64 {
        self.memory.pinned_pages() * PAGE as u64
    }

    /// How many pages have come back to memory before the hand that took them out ([`Arena::evict`]) had been around once more: with more memory
    /// they would not have been read.
    pub fn returned_pages(&self) -> u64 {
        self.memory.returned()
    }

    /// Bytes of the medium that the file takes.
    pub fn file_bytes(&self) -> u64 {
        if let Some(home) = self.home() {
            return home.bytes();
        }
        (self.memory.file.state().slots.allocated() * PAGE) as u64
    }

    /// Bytes that the file needs for the next checkpoint: a complete one stays until the next is complete.
    pub(crate) fn file_bytes_needed(&self) -> u64 {
        2 * ((self.memory.file.state().slots.used() * PAGE) as u64).max(self.allocated_bytes())
    }

    /// Bytes of the medium that a checkpoint may need for bytes that arenas have taken: a complete one stays until the next is complete.
    pub fn file_growth_of(&self, bytes: u64) -> u64 {
        if self.home().is_some() { 0 } else { 2 * bytes }
    }

    /// Bytes of the medium that the file may still have to take for a checkpoint.
    pub fn file_growth_max(&self) -> u64 {
        if self.home().is_some() {
            // Its memory is allocated before an extent is used.
            return 0;
        }
        self.file_bytes_needed().saturating_sub(self.file_bytes())
    }

    /// Extents to which redo of the last replay is still to be applied, each with its arena: for [`Arena::apply_redo`].
    pub fn with_redo(&self) -> Vec<(u16, u32)> {
        let owned = |extent| Some((self.memory.owner(extent)?, extent));
        self.memory.extents_with_redo().into_iter().filter_map(owned).collect()
    }

    /// What checkpoints have written since the start.
    pub fn pages_written(&self) -> PagesWritten {
        self.memory.file.pages_written()
    }

    /// Figures, some of which may change while they are collected.
    pub fn stats(&self) -> HeapStats {
        // Once: there may be a million of them.
        let (mut extents, mut present) = (0, 0);
        for extent in (0..self.memory.len() as u32).filter(|&extent| self.memory.owner(extent).is_some()) {
            extents += 1;
            present += u64::from(self.memory.present(extent));
        }
        let written = self.pages_written();
        let state = self.memory.file.state();
        HeapStats {
            resident_bytes: present.saturating_sub(self.discarded.load(Relaxed)) * PAGE as u64,
            allocated_bytes: self.allocated_bytes(),
            extents,
            extents_max: self.memory.len() as u64,
            file_slots_used: state.slots.used() as u64,
            file_slots_free: (state.slots.len() - state.slots.used()) as u64,
            pages_written: written.pages + written.tables,
            page_faults: self.memory.faults(),
        }
    }
}

/// Whether a heap of these options can have this root.
fn check_root(o: HeapOptions, root: &HeapRoot) -> Result<()> {
    if root.arenas != o.arenas {
        let why = format!("the heap has {} arenas, not {}", root.arenas, o.arenas);
        return Err(Error::Unusable(why));
    }
    if u64::from(root.extents) > o.max_bytes / EXTENT {
        let why = format!("the heap needs {} bytes of address space", u64::from(root.extents) * EXTENT);
        return Err(Error::Unusable(why));
    }
    Ok(())
}

/// What a home says of owners, if a heap of these options can have it.
fn owned(home: &Home, o: HeapOptions) -> Result<Vec<(u32, u16, u16)>> {
    let owned = home.owned()?;
    let corrupt = |what: String| Err(Error::corrupt(home::FOLDER, 0, what));
    for &(number, owner, used) in &owned {
        let is_home = number < u32::from(o.arenas);
        if !owner::is_valid(owner, used, o.arenas) || is_home && u32::from(owner) != number {
            return corrupt(format!("extent {number} cannot belong to owner {owner:#x}"));
        }
        if u64::from(number) >= o.max_bytes / EXTENT {
            let why = format!("the heap needs {} bytes of address space", (u64::from(number) + 1) * EXTENT);
            return Err(Error::Unusable(why));
        }
    }
    match owned.iter().take_while(|(number, ..)| *number < u32::from(o.arenas)).count() {
        homes if homes == usize::from(o.arenas) => Ok(owned),
        homes => corrupt(format!("the heap has the roots of {homes} arenas, not of {}", o.arenas)),
    }
}

/// The pages of zeroes of an extent, as bits.
fn zero_pages(entry: &Entry) -> u64 {
    let zero = |page: &usize| entry.page(*page) == file::PageRef::ZERO;
    (0..PAGES).filter(zero).fold(0, |pages, page| pages | 1 << page)
}
