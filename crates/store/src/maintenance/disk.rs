//! The budget of bytes that the data folder may take. The log gets what the heap's file leaves of it: what that takes, and what
//! the next checkpoint may add. So a heap that grows takes room from the log, and what makes data grow is refused as on a full
//! log when there is none left.

use crate::{engine::Engine, format::superblock};
use holdfast_io::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes of the budget that are left for what the heap gains until it is looked at again, and for small files.
const SLACK: u64 = 4 << 20;

/// Bytes of the medium that are left free beside what the next checkpoint may take, for what the heap gains until it is looked at again.
const MEDIUM_SLACK: u64 = 4 << 20;

/// What the data folder takes, and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that they may have; `u64::MAX`: what the medium holds.
    pub bytes_max: u64,
}

/// Bytes that the data folder may take.
pub(crate) struct DiskBudget {
    bytes_max: AtomicU64,
    /// The log was told of it, or of one before.
    is_told: AtomicBool,
}

impl DiskBudget {
    pub fn new(bytes_max: u64) -> DiskBudget {
        DiskBudget { bytes_max: AtomicU64::new(bytes_max), is_told: AtomicBool::new(false) }
    }

    /// Sets it anew, to be heeded when it is looked at next.
    pub fn set(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Gives the log what the heap leaves of it, and of the medium. Makes no data go: what is too much goes as cleaning frees it.
    pub fn fit(&self, engine: &Engine) -> Result<()> {
        let (log, heap) = (&engine.shared.log, &engine.shared.heap);
        // Without a checkpoint nothing is ever freed. As the heap grows more is left at once; this puts right what was too much.
        log.set_medium_reserve(heap.file_growth_max() + log.promised_bytes() + MEDIUM_SLACK);
        let bytes_max = self.bytes_max.load(Relaxed);
        if bytes_max == u64::MAX {
            let usage = log.usage();
            // Its options may be smaller than at the last start.
            let is_larger = log.is_too_large() || usage.bytes > usage.bytes_max;
            if self.is_told.swap(false, Relaxed) || is_larger {
                log.set_bytes_max(u64::MAX)?;
            }
            return Ok(());
        }
        self.is_told.store(true, Relaxed);
        let beside =
            heap.file_bytes() + heap.file_growth_max() + engine.counters.redo_file_bytes.load(Relaxed);
        log.set_bytes_max(bytes_max.saturating_sub(beside + SLACK))
    }

    pub fn usage(&self, engine: &Engine) -> DiskUsage {
        let (log, heap) = (&engine.shared.log, &engine.shared.heap);
        let redo = engine.counters.redo_file_bytes.load(Relaxed);
        let bytes = log.usage().bytes + heap.file_bytes() + redo + superblock::WRITE_BYTES;
        DiskUsage { bytes, bytes_max: self.bytes_max.load(Relaxed) }
    }
}
