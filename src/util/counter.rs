//! Counters. Each thread has its own, which only it writes, so that counting costs no locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer and many readers.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the counter's own thread may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Back to zero. What the counter's thread adds at this very moment may be lost.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}
