//! What uses memory.

use crate::{
    figures::process::STATUS,
    server::{
        Server,
        eviction::{self, OtherMemory},
    },
    util::memory::kib_field,
};
use holdfast_store::Stats;

/// What uses memory, in bytes.
pub struct MemoryParts {
    /// Pages of the heap: index and collections.
    pub heap: u64,
    /// Copies of values.
    pub cache: u64,
    /// What the index has beside the heap.
    pub index: u64,
    /// Where the log's batches are collected.
    pub log_buffers: u64,
    /// Requests and replies.
    pub clients: u64,
    /// Scripts, and their interpreters.
    pub scripts: u64,
    /// With a policy that evicts keys, what counts against `maxmemory`: data, and all.
    pub counted: Option<(u64, u64)>,
    /// Of the process, in RAM.
    pub resident: u64,
    /// The most of that so far.
    pub peak: u64,
}

impl MemoryParts {
    /// What uses how much memory now.
    pub fn new(server: &Server, stats: &Stats) -> MemoryParts {
        let OtherMemory { clients, scripts } = OtherMemory::of(server);
        let counted = (stats.data_bytes, stats.data_bytes + stats.other_bytes);
        MemoryParts {
            counted: eviction::is_on(&server.config).then_some(counted),
            heap: stats.heap_resident_bytes,
            cache: stats.cache_bytes,
            index: stats.index_bytes,
            log_buffers: stats.log_buffer_bytes,
            clients,
            scripts,
            resident: kib_field(STATUS, "VmRSS"),
            peak: kib_field(STATUS, "VmHWM"),
        }
    }

    /// All that is in use, or what counts as that.
    pub fn used(&self) -> u64 {
        self.counted.map_or(self.data() + self.log_buffers + self.clients + self.scripts, |(_, all)| all)
    }

    /// What is in use for data.
    pub fn data(&self) -> u64 {
        self.counted.map_or(self.heap + self.cache + self.index, |(data, _)| data)
    }
}
