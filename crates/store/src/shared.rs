//! What all partitions of a store share.

use crate::{collections::Hasher, digest::Secret, word::Word};
use holdfast_heap::Heap;
use holdfast_io::Io;
use holdfast_log::Log;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed},
};

/// Bytes that the cache has whatever else takes memory: without any, nothing could be read.
const CACHE_MIN: usize = 256 << 10;

pub(crate) struct Shared {
    pub io: Arc<dyn Io>,
    pub log: Arc<Log>,
    pub heap: Arc<Heap>,
    pub secret: Secret,
    /// Hashes the elements of collections.
    pub hasher: Hasher,
    cache_bytes: AtomicIsize,
    cache_limit: AtomicUsize,
    memory_max: AtomicUsize,
    out_of_memory: AtomicBool,
}

impl Shared {
    pub fn new(io: Arc<dyn Io>, log: Arc<Log>, heap: Arc<Heap>, secret: Secret, memory_max: usize) -> Shared {
        let (cache_bytes, cache_limit) = (AtomicIsize::new(0), AtomicUsize::new(memory_max));
        let (memory_max, out_of_memory) = (AtomicUsize::new(memory_max), AtomicBool::new(false));
        let hasher = secret.hasher();
        Shared { io, log, heap, secret, hasher, cache_bytes, cache_limit, memory_max, out_of_memory }
    }

    pub fn add_cache_bytes(&self, bytes: isize) {
        self.cache_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes.load(Relaxed).max(0) as usize
    }

    pub fn set_memory_max(&self, bytes: usize) {
        self.memory_max.store(bytes, Relaxed);
    }

    /// Gives the cache what memory is left beside so many bytes of everything else (I-7).
    pub fn share_memory(&self, other_bytes: usize) {
        let max = self.memory_max.load(Relaxed);
        self.cache_limit.store(max.saturating_sub(other_bytes).max(CACHE_MIN), Relaxed);
        self.out_of_memory.store(other_bytes > max, Relaxed);
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.out_of_memory.load(Relaxed)
    }

    pub fn cache_is_over(&self) -> bool {
        self.cache_bytes() > self.cache_limit.load(Relaxed)
    }

    /// Whether an item can be read back from the medium, so that its copy may go.
    pub fn is_readable(&self, word: Word) -> bool {
        word.pending_number().is_none() && word.lsn(self.log.tail()) < self.log.written()
    }
}
