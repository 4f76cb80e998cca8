//! What a store counts about itself.

use super::Store;
use crate::{
    engine::locks::LockBusy,
    format::{bytes_written::BytesWritten, compress::CompressionStats},
    maintenance::Maintenance,
    partition::{Appended, Lookups, Partition, shared::Shared},
    txn::Txn,
};
use std::sync::atomic::Ordering::Relaxed;

/// Figures of a store: counts since it was opened, and what is so now. Sizes are in bytes.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Look-ups of keys that were there.
    pub lookup_hits: u64,
    /// Look-ups of keys that were not there.
    pub lookup_misses: u64,
    /// Values found in the cache.
    pub cache_hits: u64,
    /// Values read from the medium.
    pub cache_misses: u64,
    /// Keys read from the medium for scans.
    pub fetched_keys: u64,
    /// Keys removed because they had expired.
    pub expired_keys: u64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// For how long more was stored than may be with an eviction policy: in all, and now in one go, in milliseconds.
    pub exceeded_ms: (u64, u64),
    /// Bytes of data as eviction counts them, which are to be no more than the memory that the store may take.
    pub data_bytes: u64,
    /// Bytes that count beside them ([`Store::set_other_bytes`]).
    pub other_bytes: u64,
    /// Collections that are frozen: items in the log, and not in the heap.
    pub frozen_keys: u64,
    /// Bytes that their items take at least, by their size classes.
    pub frozen_bytes: u64,
    /// Collections that left the heap.
    pub freezes: u64,
    /// Frozen collections that came back to the heap.
    pub thaws: u64,
    /// RAM for copies of items.
    pub cache_bytes: u64,
    /// Copies of items in RAM, dead ones included.
    pub cache_copies: u64,
    /// RAM beside the index segments.
    pub index_bytes: u64,
    /// Heap pages in RAM, or that would be if they were touched.
    pub heap_resident_bytes: u64,
    /// Heap blocks in use: index and collections.
    pub heap_allocated_bytes: u64,
    /// Heap pages written since the store was opened, their tables included.
    pub heap_pages_written: u64,
    /// Heap pages that left memory since the store was opened.
    pub heap_pages_evicted: u64,
    /// Heap pages that were read since the store was opened because somebody used them, who waited for that.
    pub heap_page_faults: u64,
    /// Heap pages that were read since the store was opened before commands and maintenance used them: nobody else had to wait meanwhile.
    pub heap_pages_fetched: u64,
    /// Heap pages that are not in memory.
    pub heap_absent_bytes: u64,
    /// RAM in which the log's batches are collected.
    pub log_buffer_bytes: u64,
    /// The log on the medium, garbage included.
    pub log_bytes: u64,
    /// Bytes that the items in the log that keys name take at least, by their size classes.
    pub log_live_bytes: u64,
    /// What was compressed of values.
    pub compression: CompressionStats,
    /// Log that a start would replay.
    pub replay_bytes: u64,
    /// Items that cleaning appended again.
    pub moved_bytes: u64,
    /// What was written to the medium since the store was opened.
    pub written: BytesWritten,
    /// What was written since [`Stats::known_since_ms`]. A crash takes what was counted since the last checkpoint.
    pub written_ever: BytesWritten,
    /// When the data folder was made, or first opened by a version that counts: Unix time in milliseconds.
    pub known_since_ms: u64,
    /// Segments that cleaning freed.
    pub freed_segments: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// Commands that changed keys since the last checkpoint began.
    pub changes: u64,
    /// Keys and collections that nothing leads to any more and that are still to be freed.
    pub garbage: u64,
    /// Those that were freed.
    pub swept: u64,
    /// Whether a checkpoint is being taken.
    pub is_checkpointing: bool,
    /// Whether the last checkpoint failed.
    pub checkpoint_failed: bool,
    /// Duration of the last checkpoint, in microseconds.
    pub checkpoint_us_last: u64,
    /// Duration of all checkpoints, in microseconds.
    pub checkpoint_us_sum: u64,
    /// When the last checkpoint was complete, or else when the store was opened: Unix time in milliseconds.
    pub checkpoint_ms: u64,
}

impl Stats {
    /// The same, but counts as if they had begun when `base` was taken.
    pub fn counted_since(mut self, base: &Stats) -> Stats {
        self.lookup_hits -= base.lookup_hits;
        self.lookup_misses -= base.lookup_misses;
        self.cache_hits -= base.cache_hits;
        self.cache_misses -= base.cache_misses;
        self.fetched_keys -= base.fetched_keys;
        self.expired_keys -= base.expired_keys;
        self.evicted_keys -= base.evicted_keys;
        self.exceeded_ms.0 = self.exceeded_ms.0.saturating_sub(base.exceeded_ms.0);
        self.swept -= base.swept;
        self
    }

    /// Completes them with what needs all partitions. `appended`: by transactions.
    fn completed(mut self, maintenance: &Maintenance, appended: &Appended) -> Stats {
        let checkpoints = &maintenance.checkpoints;
        self.changes = self.changes.saturating_sub(checkpoints.counters.changes.load(Relaxed));
        self.written = checkpoints.written(&maintenance.engine, appended);
        self.written_ever = checkpoints.written_before.and(&self.written);
        self.known_since_ms = checkpoints.known_since_ms;
        self
    }

    /// The figures that need no partition.
    fn new(maintenance: &Maintenance) -> Stats {
        let Maintenance { engine, evictions, .. } = maintenance;
        let (counters, shared) = (&engine.counters, &engine.shared);
        let checkpoints = &maintenance.checkpoints.counters;
        let (heap, log) = (shared.heap.stats(), &shared.log);
        Stats {
            cache_misses: counters.fetched.load(Relaxed),
            fetched_keys: counters.fetched_keys.load(Relaxed),
            expired_keys: counters.expired.load(Relaxed),
            evicted_keys: counters.evicted.load(Relaxed),
            data_bytes: log.live_bytes().max(0) as u64,
            other_bytes: evictions.other_bytes(),
            exceeded_ms: evictions.exceeded_ms(shared.io.now_ms()),
            freezes: counters.frozen.load(Relaxed),
            thaws: counters.thawed.load(Relaxed),
            heap_resident_bytes: heap.resident_bytes,
            heap_allocated_bytes: heap.allocated_bytes,
            heap_pages_written: heap.pages_written,
            heap_page_faults: heap.page_faults,
            heap_pages_fetched: counters.fetched_pages.load(Relaxed),
            heap_pages_evicted: counters.evicted_pages.load(Relaxed),
            heap_absent_bytes: shared.heap.absent_bytes(),
            log_buffer_bytes: log.buffer_bytes(),
            log_bytes: log.segments().iter().map(|segment| segment.bytes).sum(),
            log_live_bytes: log.live_bytes().max(0) as u64,
            compression: shared.compression.stats(),
            replay_bytes: log.tail().saturating_sub(maintenance.checkpoints.lsn()),
            moved_bytes: counters.moved_bytes.load(Relaxed),
            freed_segments: counters.freed_segments.load(Relaxed),
            checkpoints: checkpoints.complete.load(Relaxed),
            is_checkpointing: checkpoints.begun.load(Relaxed) > checkpoints.ended.load(Relaxed),
            checkpoint_failed: checkpoints.failed_last.load(Relaxed),
            checkpoint_us_last: checkpoints.us_last.load(Relaxed),
            checkpoint_us_sum: checkpoints.us_sum.load(Relaxed),
            checkpoint_ms: checkpoints.complete_ms.load(Relaxed),
            ..Stats::default()
        }
    }

    fn look_up(&mut self, lookups: Lookups) {
        self.lookup_hits += lookups.hits;
        self.lookup_misses += lookups.misses;
        self.cache_hits += lookups.cached;
    }

    fn add(&mut self, appended: &mut Appended, shared: &Shared, part: &Partition) {
        appended.add(&part.counts.appended);
        self.look_up(part.counts.lookups);
        self.changes += part.counts.changes;
        self.swept += part.counts.swept;
        self.garbage += part.garbage_len(shared);
        self.frozen_keys += part.frozen.keys;
        self.frozen_bytes += part.frozen.bytes;
        self.cache_bytes += part.cache().bytes() as u64;
        self.cache_copies += part.cache().len() as u64;
        self.index_bytes += part.volatile_bytes() as u64;
        self.data_bytes += part.data_bytes(shared);
    }
}

impl Store {
    /// Whether a checkpoint that was asked for succeeded; `None` while it has not ended. If others ended since, whether the
    /// last of them did.
    pub fn checkpoint_result(&self, number: u64) -> Option<bool> {
        self.maintenance.checkpoints.result(number)
    }

    /// See [`Stats::checkpoint_ms`].
    pub fn checkpoint_ms(&self) -> u64 {
        self.maintenance.checkpoints.counters.complete_ms.load(Relaxed)
    }

    /// Bytes written to the medium since the store was opened. Locks nothing.
    pub fn bytes_written(&self) -> u64 {
        self.maintenance.checkpoints.bytes_written(self.engine())
    }

    /// Figures of the store. Locks one partition at a time.
    pub fn stats(&self) -> Stats {
        let (mut stats, mut appended) = (Stats::new(&self.maintenance), Appended::default());
        for part in &self.engine().partitions {
            stats.add(&mut appended, &self.shared, &part.lock());
        }
        stats.completed(&self.maintenance, &appended)
    }

    /// As [`Store::stats`]; fails where a partition is [held for long](Txn::hold_long).
    pub fn try_stats(&self) -> Result<Stats, LockBusy> {
        let (mut stats, mut appended) = (Stats::new(&self.maintenance), Appended::default());
        for number in self.engine().numbers() {
            stats.add(&mut appended, &self.shared, &*self.engine().try_lock(number)?);
        }
        Ok(stats.completed(&self.maintenance, &appended))
    }

    /// As [`Store::stats`], by a transaction that has locked all partitions.
    pub fn stats_in(&self, txn: &Txn) -> Stats {
        let (mut stats, mut appended) = (Stats::new(&self.maintenance), Appended::default());
        txn.partitions().for_each(|part| stats.add(&mut appended, &self.shared, part));
        // Its partitions know of these at its end.
        stats.look_up(txn.lookups());
        stats.completed(&self.maintenance, &appended)
    }
}
