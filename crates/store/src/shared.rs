//! What all partitions of a store share.

use crate::{collections::Hasher, digest::Secret, word::Word};
use holdfast_heap::Heap;
use holdfast_io::Io;
use holdfast_log::Log;
use std::sync::{
    Arc,
    atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed},
};

pub(crate) struct Shared {
    pub io: Arc<dyn Io>,
    pub log: Arc<Log>,
    pub heap: Arc<Heap>,
    pub secret: Secret,
    /// Hashes the elements of collections.
    pub hasher: Hasher,
    cache_bytes: AtomicIsize,
    cache_limit: AtomicUsize,
}

impl Shared {
    pub fn new(
        io: Arc<dyn Io>,
        log: Arc<Log>,
        heap: Arc<Heap>,
        secret: Secret,
        cache_limit: usize,
    ) -> Shared {
        let (cache_bytes, cache_limit) = (AtomicIsize::new(0), AtomicUsize::new(cache_limit));
        let hasher = secret.hasher();
        Shared { io, log, heap, secret, hasher, cache_bytes, cache_limit }
    }

    pub fn add_cache_bytes(&self, bytes: isize) {
        self.cache_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes.load(Relaxed).max(0) as usize
    }

    pub fn set_cache_limit(&self, bytes: usize) {
        self.cache_limit.store(bytes, Relaxed);
    }

    pub fn cache_is_over(&self) -> bool {
        self.cache_bytes() > self.cache_limit.load(Relaxed)
    }

    /// Whether an item can be read back from the medium, so that its copy may go.
    pub fn is_readable(&self, word: Word) -> bool {
        word.pending_number().is_none() && word.lsn(self.log.tail()) < self.log.written()
    }
}
