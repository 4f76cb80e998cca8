//! What all partitions of a store share.

use crate::{
    cache::uses::{Method, Uses},
    collections::{Hasher, Limits},
    format::{
        compress::Compression,
        digest::{Digest, Secret},
        entry_word::EntryWord,
    },
    partition::{budget::Budget, changes::Following, databases::Databases},
};
use holdfast_heap::Heap;
use holdfast_io::Io;
use holdfast_log::{Log, Lsn};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

pub(crate) struct Shared {
    pub io: Arc<dyn Io>,
    pub log: Arc<Log>,
    pub heap: Arc<Heap>,
    pub secret: Secret,
    /// Hashes the elements of collections.
    pub hasher: Hasher,
    pub compression: Compression,
    pub databases: Databases,
    /// Who wants to know what is done to keys.
    pub following: Following,
    limits: Mutex<Arc<Limits>>,
    method: Mutex<Method>,
    /// Of both.
    limits_version: AtomicU64,
    pub budget: Budget,
    /// What has expired counts as gone and is left where it is.
    pub keeps_expired: AtomicBool,
    /// How often something was left to be freed in slices, and how often that had been when nothing was left of it.
    left_over: AtomicU64,
    swept: AtomicU64,
}

/// What hashes the elements of collections. Its key differs from that of the keys' digests.
pub(crate) fn hasher(secret: &Secret) -> Hasher {
    let Digest { h0, h1 } = secret.digest(b"elements of collections");
    Hasher::new([h0, h1])
}

impl Shared {
    pub fn new(
        io: Arc<dyn Io>,
        log: Arc<Log>,
        heap: Arc<Heap>,
        secret: Secret,
        budget: Budget,
        compression: Compression,
    ) -> Shared {
        let (hasher, method) = (hasher(&secret), Mutex::new(Method::new(io.now_ms())));
        Shared {
            io,
            log,
            heap,
            secret,
            hasher,
            compression,
            databases: Databases::default(),
            following: Following::default(),
            limits: Mutex::default(),
            method,
            limits_version: AtomicU64::new(1),
            budget,
            keeps_expired: AtomicBool::new(false),
            left_over: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Sets the thresholds of the collections' encodings. Partitions follow when they are locked the next time, so that
    /// this may be done with any of them locked.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = Arc::new(limits.capped());
        self.limits_version.fetch_add(1, Release);
    }

    /// Sets what is kept of the uses of keys. Partitions follow likewise.
    pub fn set_uses(&self, uses: Uses) {
        let mut method = self.method.lock();
        *method = method.change(uses, self.io.now_ms());
        self.limits_version.fetch_add(1, Release);
    }

    /// New thresholds, or a new way to keep uses, if there are any since `version`; at first, 0, there are.
    #[inline]
    pub fn limits_after(&self, version: u64) -> Option<(Arc<Limits>, Method, u64)> {
        let current = self.limits_version.load(Acquire);
        (current != version).then(|| (self.limits.lock().clone(), *self.method.lock(), current))
    }

    /// Finds out whether data may grow; see [`Budget::judge`].
    pub fn judge_memory(&self) -> bool {
        self.budget.judge(self.log.buffer_bytes() as usize)
    }

    /// Notes that something is left to be freed in slices.
    pub fn leave_over(&self) {
        self.left_over.fetch_add(1, Relaxed);
    }

    /// How often something was left to be freed so far.
    pub fn left_over(&self) -> u64 {
        self.left_over.load(Relaxed)
    }

    /// Notes that all of the first `left_over` leavings are freed, or cannot be.
    pub fn set_swept(&self, left_over: u64) {
        self.swept.store(left_over, Relaxed);
    }

    /// Whether something is still to be freed.
    pub fn is_sweeping(&self) -> bool {
        self.swept.load(Relaxed) != self.left_over()
    }

    /// Whether an item can be read back from the medium, so that its copy may go.
    pub fn is_readable(&self, word: EntryWord) -> bool {
        self.is_below(word, self.log.written())
    }

    /// Whether an item has its place in the log, below an LSN.
    pub fn is_below(&self, word: EntryWord, lsn: Lsn) -> bool {
        word.pending_number().is_none() && word.lsn(self.log.tail()) < lsn
    }
}
