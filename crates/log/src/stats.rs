//! What the log counts about itself.

use holdfast_io::Histogram;
use std::sync::atomic::AtomicU64;

/// Figures since the log was opened, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of batches appended, headers and padding included.
    pub bytes_appended: u64,
    /// Bytes written to the segment files by commits, rewritten and padded blocks included.
    pub bytes_written: u64,
    /// Batches committed.
    pub batches: u64,
    /// Writes of groups of batches.
    pub commits: u64,
    /// Median time of a commit, in microseconds.
    pub commit_us_p50: u64,
    /// 99th percentile of the time of a commit, in microseconds.
    pub commit_us_p99: u64,
    /// 99.9th percentile of the time of a commit, in microseconds.
    pub commit_us_p999: u64,
    /// Longest commit, in microseconds.
    pub commit_us_max: u64,
    /// Segment files that exist.
    pub segments: u32,
    /// Segment files that hold nothing, and those that could still be made.
    pub segments_free: u32,
    /// Bytes appended but not yet written.
    pub pending_bytes: u64,
    /// Bytes of memory that batches are collected in.
    pub buffer_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub bytes_written: AtomicU64,
    pub batches: AtomicU64,
    pub commits: AtomicU64,
    /// Added to by who commits.
    pub commit_us: Histogram,
    pub commit_us_max: AtomicU64,
}
