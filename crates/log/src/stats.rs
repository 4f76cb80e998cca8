//! What the log counts about itself.

use holdfast_io::Histogram;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures since the log was opened, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of batches appended, headers and padding included.
    pub bytes_appended: u64,
    /// Bytes written to the segment files by commits, rewritten and padded blocks included, and by the start.
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
    /// Time of all commits, in microseconds.
    pub commit_us_sum: u64,
    /// Segment files that exist.
    pub segments: u32,
    /// Segment files that hold nothing, and those that could still be made.
    pub segments_free: u32,
    /// Bytes appended but not yet written.
    pub pending_bytes: u64,
}

/// Bytes that a log has written to its files since it was opened, by why. They are counted once written: what was appended and
/// waits ([`LogStats::pending_bytes`]) is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogWrites {
    /// Batches, with their headers.
    pub batches: u64,
    /// What completes the last block of a commit.
    pub padding: u64,
    /// The part of a commit's first block that was written before, and at a start the end of the log, which is made durable again.
    pub rewritten: u64,
    /// Headers of segments.
    pub headers: u64,
    /// Zeroes that new segment files are filled with.
    pub zeroes: u64,
    /// Segments that have moved to the folder below.
    pub moved: u64,
}

impl LogWrites {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.batches + self.padding + self.rewritten + self.headers + self.zeroes + self.moved
    }
}

/// What [`LogWrites`] tells.
#[derive(Default)]
pub(crate) struct WriteCounters {
    pub batches: AtomicU64,
    pub padding: AtomicU64,
    pub rewritten: AtomicU64,
    pub headers: AtomicU64,
    pub zeroes: AtomicU64,
    pub moved: AtomicU64,
}

impl WriteCounters {
    pub fn get(&self) -> LogWrites {
        LogWrites {
            batches: self.batches.load(Relaxed),
            padding: self.padding.load(Relaxed),
            rewritten: self.rewritten.load(Relaxed),
            headers: self.headers.load(Relaxed),
            zeroes: self.zeroes.load(Relaxed),
            moved: self.moved.load(Relaxed),
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub commits: AtomicU64,
    /// Added to by who commits.
    pub commit_us: Histogram,
    pub commit_us_max: AtomicU64,
    pub commit_us_sum: AtomicU64,
}
