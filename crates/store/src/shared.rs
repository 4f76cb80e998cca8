//! What all partitions of a store share.

use crate::{
    access::{Method, Uses},
    changes::Following,
    collections::{Hasher, Limits},
    digest::Secret,
    partition::{DATABASES, PHYSICAL_DATABASES, SYSTEM_DATABASE},
    word::Word,
};
use holdfast_heap::Heap;
use holdfast_io::Io;
use holdfast_log::Log;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicIsize, AtomicU8, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Bytes that the cache has whatever else takes memory: without any, nothing could be read.
const CACHE_MIN: usize = 256 << 10;

/// Which physical database each logical one is. A physical one that none is, is rubbish, but for the system's. To change that, all partitions
/// must be locked; so who has locked one may rely on it.
#[derive(Default)]
pub(crate) struct Databases([AtomicU8; DATABASES]);

impl Databases {
    pub fn physical(&self, logical: u8) -> u8 {
        self.0[logical as usize].load(Relaxed)
    }

    pub fn set(&self, logical: u8, physical: u8) {
        self.0[logical as usize].store(physical, Relaxed);
    }

    /// The logical database that a physical one is; `None`: it is rubbish.
    pub fn logical(&self, physical: u8) -> Option<u8> {
        self.0.iter().position(|p| p.load(Relaxed) == physical).map(|logical| logical as u8)
    }

    /// A bit for each physical database that is rubbish.
    fn rubbish_bits(&self) -> u32 {
        !self.0.iter().fold(1 << SYSTEM_DATABASE, |used, physical| used | 1 << physical.load(Relaxed))
    }

    /// One that is rubbish.
    pub fn rubbish(&self) -> u8 {
        self.rubbish_bits().trailing_zeros() as u8
    }

    pub fn is_rubbish(&self, physical: u8) -> bool {
        self.rubbish_bits() >> physical & 1 == 1
    }

    /// All that are rubbish.
    pub fn all_rubbish(&self) -> impl Iterator<Item = u8> + use<> {
        let bits = self.rubbish_bits();
        (0..PHYSICAL_DATABASES as u8).filter(move |physical| bits >> physical & 1 == 1)
    }
}

pub(crate) struct Shared {
    pub io: Arc<dyn Io>,
    pub log: Arc<Log>,
    pub heap: Arc<Heap>,
    pub secret: Secret,
    /// Hashes the elements of collections.
    pub hasher: Hasher,
    pub databases: Databases,
    /// Who wants to know what is done to keys.
    pub following: Following,
    limits: Mutex<Arc<Limits>>,
    method: Mutex<Method>,
    /// Of both.
    limits_version: AtomicU64,
    cache_bytes: AtomicIsize,
    cache_limit: AtomicUsize,
    memory_max: AtomicUsize,
    index_bytes: AtomicUsize,
    /// Bytes that data takes in memory, copies aside, when it was looked last, and at the look before.
    taken_bytes: AtomicUsize,
    taken_before: AtomicUsize,
    /// Whether collections may still be frozen to make room.
    pub can_freeze: AtomicBool,
    memory: AtomicU8,
    /// How often something was left to be freed in slices, and how often that had been when nothing was left of it.
    left_over: AtomicU64,
    swept: AtomicU64,
}

/// Whether there is memory for data to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Memory {
    /// There is.
    Ok,
    /// Room is being made.
    Busy,
    /// There is none, and none can be made.
    Out,
}

impl Shared {
    pub fn new(io: Arc<dyn Io>, log: Arc<Log>, heap: Arc<Heap>, secret: Secret, memory_max: usize) -> Shared {
        let (cache_bytes, cache_limit) = (AtomicIsize::new(0), AtomicUsize::new(memory_max));
        let (memory_max, taken_bytes) = (AtomicUsize::new(memory_max), AtomicUsize::new(0));
        let (hasher, method) = (secret.hasher(), Mutex::new(Method::new(io.now_ms())));
        Shared {
            io,
            log,
            heap,
            secret,
            hasher,
            databases: Databases::default(),
            following: Following::default(),
            limits: Mutex::default(),
            method,
            limits_version: AtomicU64::new(1),
            cache_bytes,
            cache_limit,
            memory_max,
            index_bytes: AtomicUsize::new(0),
            taken_bytes,
            taken_before: AtomicUsize::new(0),
            can_freeze: AtomicBool::new(false),
            memory: AtomicU8::new(Memory::Ok as u8),
            left_over: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Sets the thresholds of the collections' encodings. Partitions follow when they are locked the next time, so that
    /// this may be done with any of them locked.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = Arc::new(limits);
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

    pub fn add_cache_bytes(&self, bytes: isize) {
        self.cache_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes.load(Relaxed).max(0) as usize
    }

    pub fn set_memory_max(&self, bytes: usize) {
        self.memory_max.store(bytes, Relaxed);
    }

    pub fn memory_max(&self) -> usize {
        self.memory_max.load(Relaxed)
    }

    pub fn set_index_bytes(&self, bytes: usize) {
        self.index_bytes.store(bytes, Relaxed);
    }

    /// RAM that the indexes took beside the heap when that was looked at last.
    pub fn index_bytes(&self) -> usize {
        self.index_bytes.load(Relaxed)
    }

    /// Gives the cache what memory is left (I-7) beside what the data takes that cannot be evicted and the bytes of buffers,
    /// which come and go. Returns whether data grows and is not far from the limit.
    pub fn share_memory(&self, taken: usize, buffers: usize) -> bool {
        let max = self.memory_max();
        let left = max.saturating_sub(taken.saturating_add(buffers));
        self.cache_limit.store(left.max(CACHE_MIN), Relaxed);
        taken > self.taken_before.swap(taken, Relaxed) && taken > max / 8 * 5
    }

    pub fn set_taken_bytes(&self, bytes: usize) {
        self.taken_bytes.store(bytes, Relaxed);
    }

    pub fn set_memory(&self, memory: Memory) {
        self.memory.store(memory as u8, Relaxed);
    }

    /// Whether there is memory for data to grow.
    #[inline]
    pub fn memory(&self) -> Memory {
        match self.memory.load(Relaxed) {
            0 => Memory::Ok,
            1 => Memory::Busy,
            _ => Memory::Out,
        }
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

    /// Whether collections that are not in use should leave the heap: the cache is to have a part of the memory, too.
    pub fn wants_freezing(&self) -> bool {
        self.taken_bytes.load(Relaxed) > self.memory_max() / 4 * 3
    }

    /// Bytes of data down to which they then should.
    pub fn freeze_to(&self) -> usize {
        self.memory_max() / 16 * 11
    }

    /// Whether collections that are only looked at may come back to the heap.
    pub fn has_room_in_heap(&self) -> bool {
        !self.wants_freezing()
    }

    pub fn cache_is_over(&self) -> bool {
        self.cache_bytes() > self.cache_limit.load(Relaxed)
    }

    /// Whether an item can be read back from the medium, so that its copy may go.
    pub fn is_readable(&self, word: Word) -> bool {
        word.pending_number().is_none() && word.lsn(self.log.tail()) < self.log.written()
    }
}
