//! Holdfast's persistent heap.
//!
//! A heap is an address space of *extents*. Each belongs to one [`Arena`], which a partition has for itself. Changes
//! go through a [`Tx`], which collects redo records for the log.
//!
//! docs/format.md says what is in the file and in the records.

mod alloc;
mod arena;
mod class;
mod file;
mod memory;
mod pool;
mod tx;

use std::sync::{Arc, atomic::AtomicU64};

use holdfast_io::{Error, File, Result};
use parking_lot::Mutex;

pub use arena::{Arena, Full};
pub use tx::Tx;

use crate::{alloc::Space, file::PageFile, memory::Memory, pool::Pool};

/// The unit of the file, in bytes.
pub const PAGE: usize = 4096;
/// The unit in which arenas own memory, in bytes.
pub const EXTENT: u64 = 256 << 10;
/// Pages of an extent.
const PAGES: usize = 64;
/// The largest address space, in bytes: a record's offset has 40 bits.
const MAX_BYTES: u64 = 1 << 40;

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
    /// By arena.
    allocated: Box<[Counter]>,
}

/// A counter that only one arena changes, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl Heap {
    /// Makes an empty heap. It is on the medium when its first checkpoint is.
    pub fn create(file: Arc<dyn File>, o: HeapOptions) -> Result<(Arc<Heap>, Vec<Arena>)> {
        let heap = Heap::reserve(file, o)?;
        let mut pool = heap.pool.lock();
        (u32::from(o.arenas)..heap.memory.len() as u32).for_each(|extent| pool.put(extent));
        drop(pool);
        let mut arenas = heap.arenas(o.arenas);
        (0..).zip(&mut arenas).for_each(|(extent, arena)| arena.make_root(extent));
        Ok((heap, arenas))
    }

    fn reserve(file: Arc<dyn File>, o: HeapOptions) -> Result<Arc<Heap>> {
        let extents = o.max_bytes / EXTENT;
        if o.max_bytes > MAX_BYTES || extents < u64::from(o.arenas) || o.arenas == 0 || o.arenas >= alloc::RAW
        {
            let why = format!("a heap of {} bytes cannot have {} arenas", o.max_bytes, o.arenas);
            return Err(Error::Unusable(why));
        }
        Ok(Arc::new(Heap {
            memory: Memory::reserve(extents as usize, PageFile::new(file))?,
            pool: Mutex::new(Pool::new(extents as u32)),
            allocated: (0..o.arenas).map(|_| Counter::default()).collect(),
        }))
    }

    fn arenas(self: &Arc<Self>, n: u16) -> Vec<Arena> {
        let owners = self.memory.owners(n);
        owners.into_iter().map(|memory| Arena { memory, heap: self.clone(), space: Space::new() }).collect()
    }

    /// Takes back extents that arenas have released.
    fn recycle(&self, extents: &[u32]) {
        extents.iter().for_each(|&extent| self.memory.recycle(extent));
        let mut pool = self.pool.lock();
        extents.iter().for_each(|&extent| pool.put(extent));
    }
}
