//! What transactions and maintenance count.

use std::sync::atomic::AtomicU64;

/// Counters that transactions and maintenance move, since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    /// Keys removed because they had expired.
    pub expired: AtomicU64,
    /// Keys evicted.
    pub evicted: AtomicU64,
    /// Values read from the medium.
    pub fetched: AtomicU64,
    /// Keys read from the medium for scans.
    pub fetched_keys: AtomicU64,
    /// Pages of the heap read for commands that waited for them without a lock.
    pub fetched_pages: AtomicU64,
    /// Bytes of items that cleaning appended again.
    pub moved_bytes: AtomicU64,
    pub freed_segments: AtomicU64,
    /// Bytes of clock marks that were appended.
    pub clock_marks: AtomicU64,
    /// Pages of the heap that left memory.
    pub evicted_pages: AtomicU64,
    /// Collections that left the heap for the log.
    pub frozen: AtomicU64,
    /// Frozen collections that came back.
    pub thawed: AtomicU64,
    /// Bytes that the file `redo` has had at most.
    pub redo_file_bytes: AtomicU64,
}
