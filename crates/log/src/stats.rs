//! What the log counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

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
    pub commit_us: Histogram,
}

/// Steps between two powers of two.
const STEPS: u64 = 8;
const BUCKETS: usize = 40 * STEPS as usize;

/// Counts durations with an error of at most one in [`STEPS`].
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], max: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub fn add(&self, value: u64) {
        self.buckets[bucket(value).min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// The value that `per_mille` of a thousand do not exceed.
    pub fn percentile(&self, per_mille: u64) -> u64 {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        let rank = (counts.iter().sum::<u64>() * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (i, count) in counts.into_iter().enumerate() {
            seen += count;
            if count > 0 && seen >= rank {
                return bucket_end(i).min(self.max());
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let exponent = u64::from(value.ilog2() - STEPS.ilog2());
    ((exponent + 1) * STEPS + (value >> exponent) - STEPS) as usize
}

/// The largest value in a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let exponent = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        for value in (0..5000).chain([1 << 20, (1 << 30) + 12345]) {
            let i = bucket(value);
            assert!(value <= bucket_end(i) && (i == 0 || value > bucket_end(i - 1)), "{value}");
            assert!(bucket_end(i) - value <= value / STEPS);
        }
    }

    #[test]
    fn percentiles() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(500), 0);
        (1..=1000).for_each(|value| histogram.add(value));
        assert!((500..=570).contains(&histogram.percentile(500)));
        assert!((990..=1000).contains(&histogram.percentile(990)));
        assert_eq!(histogram.percentile(1000), 1000);
    }
}
