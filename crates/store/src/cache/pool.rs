//! Memory for the cache: chunks of one size from regions that the system backs with huge pages, and mappings of their own for
//! copies that are larger.
//!
//! Copies are scattered over all of the cache; with pages of 4 KiB nearly every look at one also misses the processor's
//! address translation. The RAM of chunks that nobody uses is given back to the system, all but a few. A region in which
//! that was done has small pages until all of its chunks are in use again: the system would fill the holes to make huge ones.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that are taken from the system at once: some huge pages.
const REGION_BYTES: usize = 16 << 20;
/// Chunks out of use whose RAM is kept, so that it does not come and go: 2 MiB.
const SPARES_MAX: usize = 32;
/// Bytes of larger mappings out of use that are kept likewise.
const LARGE_SPARES_BYTES: usize = 4 << 20;
/// Lengths of larger mappings in each doubling, so that one that is kept serves the next copy of about its length.
const LARGE_CLASSES: usize = 8;

/// Chunks that nobody uses, shared by all caches of a store.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Those with RAM behind them that were in use.
    spares: Vec<Block>,
    /// Those that never were.
    fresh: Vec<Block>,
    /// Those whose RAM was given back.
    hollow: Vec<Block>,
    /// Larger mappings with RAM behind them that were in use, and their lengths; those that came back first are first.
    large: VecDeque<(Block, usize)>,
    large_bytes: usize,
    /// By address: how many of the region's chunks are hollow.
    regions: BTreeMap<usize, (Block, usize)>,
}

/// The start of memory that whoever holds this owns.
struct Block(NonNull<u8>);

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}

/// Memory of a fixed length. It holds zeroes or what its last owner left.
pub(crate) struct Chunk {
    block: Block,
    len: usize,
    /// Where it goes back to.
    pool: Arc<Pool>,
}

// SAFETY: shared references only read the memory, and its one owner writes it.
unsafe impl Sync for Chunk {}

impl Pool {
    /// A chunk of [`CHUNK_BYTES`], or a mapping of its own if `len` is more.
    pub fn take(self: &Arc<Self>, len: usize) -> Chunk {
        if len > CHUNK_BYTES {
            let spare = self.free.lock().take_large(mapped_len(len));
            let block = spare.unwrap_or_else(|| mapping::map(mapped_len(len)));
            return Chunk { block, len, pool: self.clone() };
        }
        Chunk { block: self.free.lock().take(), len: CHUNK_BYTES, pool: self.clone() }
    }

    /// Keeps a larger mapping, and gives back what is then too much. The system takes long for that, so nothing is locked.
    fn put_large(&self, block: Block, len: usize) {
        let mut free = self.free.lock();
        free.large.push_back((block, len));
        free.large_bytes += len;
        while free.large_bytes > LARGE_SPARES_BYTES {
            let (block, len) = free.large.pop_front().expect("they have bytes");
            free.large_bytes -= len;
            MutexGuard::unlocked(&mut free, || mapping::unmap(&block, len));
        }
    }

    /// Bytes of RAM that chunks have which nobody uses.
    #[cfg(test)]
    fn spare_bytes(&self) -> usize {
        self.free.lock().spares.len() * CHUNK_BYTES
    }
}

/// Bytes of the mapping for a chunk of `len`, which is more than [`CHUNK_BYTES`].
fn mapped_len(len: usize) -> usize {
    len.next_multiple_of((1 << len.ilog2()) / LARGE_CLASSES)
}

impl Free {
    fn take_large(&mut self, len: usize) -> Option<Block> {
        // The newest, of which most is in the processor's caches.
        let at = self.large.iter().rposition(|spare| spare.1 == len)?;
        self.large_bytes -= len;
        self.large.remove(at).map(|spare| spare.0)
    }

    fn take(&mut self) -> Block {
        if let Some(block) = self.spares.pop().or_else(|| self.fresh.pop()) {
            return block;
        }
        if let Some(block) = self.hollow.pop() {
            let (region, hollow) = self.region_of(&block);
            *hollow -= 1;
            if *hollow == 0 {
                mapping::allow_huge_pages(region, REGION_BYTES, true);
            }
            return block;
        }
        let region = mapping::map(REGION_BYTES);
        mapping::allow_huge_pages(&region, REGION_BYTES, true);
        for at in (0..REGION_BYTES).step_by(CHUNK_BYTES).rev() {
            // SAFETY: within the region.
            self.fresh.push(Block(unsafe { region.0.add(at) }));
        }
        self.regions.insert(region.0.as_ptr() as usize, (region, 0));
        self.fresh.pop().expect("a region gives chunks")
    }

    fn put(&mut self, block: Block) {
        if self.spares.len() < SPARES_MAX {
            return self.spares.push(block);
        }
        let (region, hollow) = self.region_of(&block);
        *hollow += 1;
        if *hollow == 1 {
            mapping::allow_huge_pages(region, REGION_BYTES, false);
        }
        mapping::give_back(&block, CHUNK_BYTES);
        self.hollow.push(block);
    }

    fn region_of(&mut self, block: &Block) -> (&Block, &mut usize) {
        let below = self.regions.range_mut(..=block.0.as_ptr() as usize).next_back();
        let (_, (region, hollow)) = below.expect("every chunk is in a region");
        (region, hollow)
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        // Every chunk holds its pool, so none is in use any more.
        for (region, _) in self.regions.values() {
            mapping::unmap(region, REGION_BYTES);
        }
        for (block, len) in &self.large {
            mapping::unmap(block, *len);
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let block = Block(self.block.0);
        match self.len {
            CHUNK_BYTES => self.pool.free.lock().put(block),
            len => self.pool.put_large(block, mapped_len(len)),
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block has `len` initialized bytes, and the reference borrows its owner.
        unsafe { slice::from_raw_parts(self.block.0.as_ptr(), self.len) }
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.block.0.as_ptr(), self.len) }
    }
}

#[cfg(not(miri))]
mod mapping {
    use super::*;

    pub(super) fn map(len: usize) -> Block {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping; nothing else is named.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "no memory for the cache: {}", std::io::Error::last_os_error());
        Block(NonNull::new(start.cast()).expect("a mapping is not at address 0"))
    }

    /// Says whether huge pages may be behind a mapping. Where they are not to be had, small ones serve.
    pub(super) fn allow_huge_pages(block: &Block, len: usize, yes: bool) {
        let advice = if yes { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advice on a mapping of this length made by `map`; what it holds stays.
        let _ = unsafe { libc::madvise(block.0.as_ptr().cast(), len, advice) };
    }

    /// Gives the RAM behind a block back: it holds zeroes then.
    pub(super) fn give_back(block: &Block, len: usize) {
        // SAFETY: the caller owns the block, which is page-aligned, and nothing refers to it.
        let rc = unsafe { libc::madvise(block.0.as_ptr().cast(), len, libc::MADV_DONTNEED) };
        assert_eq!(rc, 0, "madvise: {}", std::io::Error::last_os_error());
    }

    pub(super) fn unmap(block: &Block, len: usize) {
        // SAFETY: a mapping of this length made by `map`, of which nothing is in use.
        let rc = unsafe { libc::munmap(block.0.as_ptr().cast(), len) };
        assert_eq!(rc, 0, "munmap: {}", std::io::Error::last_os_error());
    }
}

/// The same over the allocator: Miri knows no madvise.
#[cfg(miri)]
mod mapping {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 4096).expect("a valid layout")
    }

    pub(super) fn map(len: usize) -> Block {
        // SAFETY: no mapping is empty.
        Block(NonNull::new(unsafe { alloc_zeroed(layout(len)) }).expect("memory"))
    }

    pub(super) fn allow_huge_pages(_: &Block, _: usize, _: bool) {}

    pub(super) fn give_back(block: &Block, len: usize) {
        // SAFETY: the caller owns so many bytes.
        unsafe { block.0.write_bytes(0, len) };
    }

    pub(super) fn unmap(block: &Block, len: usize) {
        // SAFETY: made by `map` with this length.
        unsafe { dealloc(block.0.as_ptr(), layout(len)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_apart_and_come_back() {
        let pool = Arc::new(Pool::default());
        let mut chunks: Vec<Chunk> = (0..300).map(|_| pool.take(1)).collect();
        chunks.push(pool.take(CHUNK_BYTES + 1));
        for (n, chunk) in chunks.iter_mut().enumerate() {
            chunk.fill(n as u8);
        }
        for (n, chunk) in chunks.iter().enumerate() {
            assert!(chunk.iter().all(|&byte| byte == n as u8));
        }
        assert_eq!(chunks[300].len(), CHUNK_BYTES + 1);
        let before = chunks[0].as_ptr();
        chunks.remove(0);
        assert_eq!(pool.take(5).as_ptr(), before);
    }

    #[test]
    fn larger_mappings_serve_again_and_few_are_kept() {
        let pool = Arc::new(Pool::default());
        let mut chunk = pool.take(CHUNK_BYTES + 100);
        chunk.fill(1);
        let before = chunk.as_ptr();
        drop(chunk);
        // One of about its length.
        let mut chunk = pool.take(CHUNK_BYTES + 5000);
        assert_eq!((chunk.as_ptr(), chunk.len()), (before, CHUNK_BYTES + 5000));
        chunk.fill(2);
        let other = pool.take(2 * CHUNK_BYTES);
        assert_ne!(other.as_ptr(), before);
        drop((chunk, other));
        for len in [CHUNK_BYTES + 1, 3 * CHUNK_BYTES, LARGE_SPARES_BYTES + 1] {
            drop((0..100).map(|_| pool.take(len)).collect::<Vec<_>>());
            let free = pool.free.lock();
            assert!(free.large_bytes <= LARGE_SPARES_BYTES);
            assert_eq!(free.large.iter().map(|spare| spare.1).sum::<usize>(), free.large_bytes);
        }
    }

    /// Bytes of RAM behind memory.
    #[cfg(not(miri))]
    fn resident(chunk: &Chunk) -> usize {
        let mut pages = vec![0u8; chunk.len() / 4096];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let rc = unsafe { libc::mincore(chunk.as_ptr() as *mut _, chunk.len(), pages.as_mut_ptr()) };
        assert_eq!(rc, 0);
        pages.iter().filter(|&&page| page & 1 != 0).count() * 4096
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_that_nobody_uses_is_given_back() {
        const CHUNKS: usize = 2 * REGION_BYTES / CHUNK_BYTES;
        let pool = Arc::new(Pool::default());
        for _ in 0..2 {
            let mut chunks: Vec<Chunk> = (0..CHUNKS).map(|_| pool.take(1)).collect();
            chunks.iter_mut().for_each(|chunk| chunk.fill(1));
            assert!(chunks.iter().all(|chunk| resident(chunk) == CHUNK_BYTES));
            let address = |chunk: &Chunk| chunk.as_ptr() as usize;
            let lowest = chunks.iter().map(address).min();
            drop(chunks);
            assert_eq!(pool.spare_bytes(), SPARES_MAX * CHUNK_BYTES);
            let again: Vec<Chunk> = (0..CHUNKS).map(|_| pool.take(1)).collect();
            assert_eq!(again.iter().map(address).min(), lowest, "no further region is taken");
            let kept: usize = again.iter().map(resident).sum();
            assert!(kept <= SPARES_MAX * CHUNK_BYTES, "{kept} bytes kept");
        }
    }
}
