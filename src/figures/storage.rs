//! The log and the data folder.

use crate::server::Server;
use holdfast_store::{DiskUsage, FolderUse, LogStats, Recovery, Stats};

/// What lies on the medium, beside what [`Stats`] tells.
pub struct StorageFigures<'a> {
    /// The log's own figures.
    pub log: LogStats,
    /// Why nothing is written any more, if a write has failed.
    pub failed: Option<String>,
    /// What the data folder takes.
    pub disk: DiskUsage,
    /// The folders over which its log is spread, beside itself.
    pub further_folders: Vec<FolderUse>,
    /// What the start has found.
    pub recovery: &'a Recovery,
    /// Bytes of the log that are not live.
    pub garbage_bytes: u64,
    /// Share of the log that is live, from 0 to 1.
    pub live_share: f64,
    /// Bytes of values for each byte that they were compressed to; 0 if none were.
    pub compression_ratio: f64,
}

impl<'a> StorageFigures<'a> {
    /// Those of now.
    pub fn new(server: &'a Server, stats: &Stats) -> StorageFigures<'a> {
        let compression = &stats.compression;
        StorageFigures {
            log: server.store.log().stats(),
            failed: server.store.log().failed(),
            disk: server.store.disk_usage(),
            further_folders: server.store.further_folders(),
            recovery: server.store.recovery(),
            garbage_bytes: stats.log_bytes.saturating_sub(stats.log_live_bytes),
            live_share: stats.log_live_bytes as f64 / stats.log_bytes.max(1) as f64,
            compression_ratio: compression.bytes_before as f64 / compression.bytes_after.max(1) as f64,
        }
    }
}
