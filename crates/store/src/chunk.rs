//! Memory for the cache: chunks of one size from regions that the system backs with huge pages, and single blocks for
//! copies that are larger.
//!
//! Copies are scattered over all of the cache; with pages of 4 KiB nearly every look at one also misses the processor's
//! address translation.

use parking_lot::Mutex;
use std::{
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that are taken from the system at once: some huge pages.
const REGION_BYTES: usize = 16 << 20;

/// Chunks that nobody uses, shared by all caches of a store.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    chunks: Vec<Block>,
    regions: Vec<Block>,
}

/// The start of memory that whoever holds this owns.
struct Block(NonNull<u8>);

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}

/// Memory of a fixed length. It holds zeroes or what its last owner left.
pub(crate) struct Chunk {
    block: Block,
    len: usize,
    /// Where it goes back to; without a pool it is a block of its own.
    pool: Option<Arc<Pool>>,
}

// SAFETY: shared references only read the memory, and its one owner writes it.
unsafe impl Sync for Chunk {}

impl Pool {
    /// A chunk of [`CHUNK_BYTES`], or a single block if `len` is more.
    pub fn take(self: &Arc<Self>, len: usize) -> Chunk {
        if len > CHUNK_BYTES {
            let memory: Box<[u8]> = vec![0; len].into();
            let start = NonNull::new(Box::into_raw(memory).cast()).expect("a box is not null");
            return Chunk { block: Block(start), len, pool: None };
        }
        let mut free = self.free.lock();
        if free.chunks.is_empty() {
            free.grow();
        }
        let block = free.chunks.pop().expect("a region gives chunks");
        Chunk { block, len: CHUNK_BYTES, pool: Some(self.clone()) }
    }
}

impl Free {
    fn grow(&mut self) {
        let region = map(REGION_BYTES);
        for at in (0..REGION_BYTES).step_by(CHUNK_BYTES).rev() {
            // SAFETY: within the region.
            self.chunks.push(Block(unsafe { region.0.add(at) }));
        }
        self.regions.push(region);
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        // Every chunk holds its pool, so none is in use any more.
        for region in &self.regions {
            unmap(region);
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match self.pool.take() {
            Some(pool) => pool.free.lock().chunks.push(Block(self.block.0)),
            None => {
                let memory = ptr::slice_from_raw_parts_mut(self.block.0.as_ptr(), self.len);
                // SAFETY: made from a box of this length in `Pool::take`, and not used after this.
                drop(unsafe { Box::from_raw(memory) });
            }
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
fn map(len: usize) -> Block {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping; nothing else is named.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "no memory for the cache: {}", std::io::Error::last_os_error());
    // SAFETY: the mapping just made. Where huge pages are not to be had, small ones serve.
    let _ = unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
    Block(NonNull::new(start.cast()).expect("a mapping is not at address 0"))
}

#[cfg(not(miri))]
fn unmap(region: &Block) {
    // SAFETY: a mapping of this length made by `map`, of which no chunk is in use.
    let rc = unsafe { libc::munmap(region.0.as_ptr().cast(), REGION_BYTES) };
    assert_eq!(rc, 0, "munmap: {}", std::io::Error::last_os_error());
}

#[cfg(miri)]
fn map(len: usize) -> Block {
    // SAFETY: the layout has a size.
    let start =
        unsafe { std::alloc::alloc_zeroed(std::alloc::Layout::array::<u8>(len).expect("a small layout")) };
    Block(NonNull::new(start).expect("memory"))
}

#[cfg(miri)]
fn unmap(region: &Block) {
    let layout = std::alloc::Layout::array::<u8>(REGION_BYTES).expect("a small layout");
    // SAFETY: made by `map` with this layout.
    unsafe { std::alloc::dealloc(region.0.as_ptr(), layout) };
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
}
