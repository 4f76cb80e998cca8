//! The sections of INFO that tell of the store. Names that Redis has mean what they mean there.

use super::{STRING, View, lines};
use crate::{
    config::Opt,
    figures::{keys, memory::MemoryParts, storage::StorageFigures, traffic::Traffic},
    util::memory::kib_field,
};
use holdfast_store::FolderUse;
use std::fmt::Write;

pub fn memory(view: &View, text: &mut String) {
    let (server, stats) = (view.server, view.stats());
    let parts = MemoryParts::new(server, stats);
    let (used, resident, clients) = (parts.used(), parts.resident, parts.clients);
    let interpreters = server.interpreter_bytes();
    let ((scripts, script_bytes), libraries) = (server.scripts.size(), server.libraries.get());
    let library_bytes: usize = libraries.libraries.values().map(|library| library.source.len()).sum();
    let system = kib_field("/proc/meminfo", "MemTotal");
    lines!(text,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": resident,
        "used_memory_rss_human": human(resident),
        "used_memory_peak": parts.peak,
        "used_memory_peak_human": human(parts.peak),
        "used_memory_peak_perc": percent(used, parts.peak),
        "used_memory_overhead": used - parts.data(),
        "used_memory_dataset": parts.data(),
        "used_memory_dataset_perc": percent(parts.data(), used),
        "total_system_memory": system,
        "total_system_memory_human": human(system),
        "mem_heap": stats.heap_resident_bytes,
        "mem_heap_allocated": stats.heap_allocated_bytes,
        "mem_heap_absent": stats.heap_absent_bytes,
        "mem_frozen_keys": stats.frozen_keys,
        "mem_frozen_log_bytes": stats.frozen_bytes,
        "mem_cache": stats.cache_bytes,
        "mem_cache_items": stats.cache_copies,
        "mem_index": stats.index_bytes,
        "mem_log_buffers": stats.log_buffer_bytes,
        "mem_clients_slaves": 0,
        "mem_clients_normal": clients,
        "mem_cluster_links": 0,
        "mem_aof_buffer": stats.log_buffer_bytes,
        "mem_replication_backlog": 0,
        "mem_total_replication_buffers": 0,
        "mem_not_counted_for_evict": 0,
        "mem_allocator": "libc",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": stats.garbage,
        "lazyfreed_objects": stats.swept,
        "used_memory_lua": interpreters,
        "used_memory_lua_human": human(interpreters as u64),
        "used_memory_vm_eval": interpreters,
        "used_memory_vm_total": interpreters,
        "used_memory_vm_total_human": human(interpreters as u64),
        "used_memory_scripts_eval": script_bytes,
        "used_memory_functions": library_bytes,
        "used_memory_scripts": script_bytes + library_bytes,
        "used_memory_scripts_human": human((script_bytes + library_bytes) as u64),
        "number_of_cached_scripts": scripts,
        "number_of_functions": libraries.functions_len(),
        "number_of_libraries": libraries.libraries.len(),
        "mem_fragmentation_ratio": format!("{:.2}", resident as f64 / used.max(1) as f64),
        "mem_fragmentation_bytes": resident as i64 - used as i64,
        "mem_limit": view.server.store.memory_of_data().1,
        "maxmemory": server.config.number(Opt::MaxMemory),
        "maxmemory_human": human(server.config.number(Opt::MaxMemory) as u64),
        "maxmemory_policy": server.config.choice(Opt::MaxMemoryPolicy),
    );
}

pub fn persistence(view: &View, text: &mut String) {
    let (server, stats) = (view.server, view.stats());
    let storage = StorageFigures::new(server, stats);
    let StorageFigures { log, disk, recovery, .. } = &storage;
    let checkpointing = u8::from(stats.is_checkpointing);
    let last_s = if stats.checkpoints == 0 { -1 } else { (stats.checkpoint_us_last / 1_000_000) as i64 };
    let compression = &stats.compression;
    let backup = server.store.backup_state();
    lines!(text,
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": stats.changes,
        "rdb_bgsave_in_progress": checkpointing,
        "rdb_last_save_time": stats.checkpoint_ms / 1000,
        "rdb_last_bgsave_status": status(stats.checkpoint_failed),
        "rdb_last_bgsave_time_sec": last_s,
        "rdb_saves": stats.checkpoints,
        "rdb_last_cow_size": 0,
        "aof_enabled": 1,
        "aof_rewrite_in_progress": checkpointing,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": last_s,
        "aof_rewrites": stats.checkpoints,
        "aof_last_bgrewrite_status": status(stats.checkpoint_failed),
        "aof_last_write_status": status(storage.failed.is_some()),
        "aof_current_size": stats.log_bytes,
        "backup_in_progress": u8::from(backup.moment.is_some()),
        "backup_kept_heap_bytes": backup.heap_bytes,
        "backups_begun": backup.begun,
        "backups_ended": backup.ended,
        "backups_lost": backup.lost,
        "medium": server.config.choice(Opt::Medium),
        "scm_method": server.config.choice(Opt::ScmMethod),
        "disk_used_bytes": disk.bytes,
        "disk_used_bytes_human": human(disk.bytes),
        "maxdisk": server.config.number(Opt::MaxDisk),
        "maxdisk_human": human(server.config.number(Opt::MaxDisk) as u64),
        "log_bytes": stats.log_bytes,
        "log_live_bytes": stats.log_live_bytes,
        "log_garbage_bytes": storage.garbage_bytes,
        "log_live_share": format!("{:.3}", storage.live_share),
        "log_segments": log.segments,
        "log_segments_free": log.segments_free,
        "log_bytes_appended": log.bytes_appended,
        "log_bytes_written": log.bytes_written,
        "log_bytes_pending": log.pending_bytes,
        "log_batches": log.batches,
        "log_commits": log.commits,
        "log_commit_us_p50": log.commit_us_p50,
        "log_commit_us_p99": log.commit_us_p99,
        "log_commit_us_p999": log.commit_us_p999,
        "log_commit_us_max": log.commit_us_max,
        "log_bytes_cleaned": stats.moved_bytes,
        "log_segments_freed": stats.freed_segments,
        "compression_active": u8::from(compression.is_active),
        "compression_bytes_before": compression.bytes_before,
        "compression_bytes_after": compression.bytes_after,
        "compression_ratio": format!("{:.2}", storage.compression_ratio),
        "compression_values_kept": compression.kept_values,
        "compression_dictionaries": compression.dictionaries,
        "compression_dictionary_failures": compression.dictionary_failures,
        "checkpoints": stats.checkpoints,
        "checkpoint_us_last": stats.checkpoint_us_last,
        "checkpoint_us_total": stats.checkpoint_us_sum,
        "checkpoint_pages_written": stats.heap_pages_written,
        "heap_pages_evicted": stats.heap_pages_evicted,
        "heap_pages_fetched": stats.heap_pages_fetched,
        "heap_page_faults": stats.heap_page_faults,
        "log_bytes_since_checkpoint": stats.replay_bytes,
        "recovery_us": recovery.us,
        "recovery_log_bytes": recovery.replayed_bytes,
        "recovery_batches": recovery.replayed_batches,
        "further_folders": storage.further_folders.len(),
    );
    let mut number = 0;
    for FolderUse { path, is_below, files, free_bytes } in &storage.further_folders {
        let free = free_bytes.map(|bytes| format!(",free_bytes={bytes}")).unwrap_or_default();
        let name = if *is_below {
            "flash_folder".to_owned()
        } else {
            number += 1;
            format!("folder{number}")
        };
        write!(text, "{name}:log_files={files}{free},path={path}\r\n").expect(STRING);
    }
}

fn status(failed: bool) -> &'static str {
    if failed { "err" } else { "ok" }
}

/// Look-ups, and where values were found.
pub fn lookups(view: &View, traffic: &Traffic, text: &mut String) {
    let stats = view.stats();
    lines!(text,
        "expired_keys": stats.expired_keys,
        "evicted_keys": stats.evicted_keys,
        "total_eviction_exceeded_time": stats.exceeded_ms.0,
        "current_eviction_exceeded_time": stats.exceeded_ms.1,
        "evicted_scripts": traffic.evicted_scripts,
        "keyspace_hits": stats.lookup_hits,
        "keyspace_misses": stats.lookup_misses,
        "migrate_cached_sockets": 0,
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "cache_scanned_keys": stats.fetched_keys,
        "cold_waits_under_lock": traffic.cold_waits_under_lock,
        "collection_freezes": stats.freezes,
        "collection_thaws": stats.thaws,
    );
}

pub fn keyspace(view: &View, text: &mut String) {
    let Ok(databases) = keys::databases(view.server, view.keyspace) else {
        view.held_up.set(true);
        return;
    };
    for keys::DatabaseFigures { number, keys, expires } in databases {
        write!(text, "db{number}:keys={keys},expires={expires},avg_ttl=0\r\n").expect(STRING);
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A number of bytes for people to read.
pub fn human(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    let mut unit = None;
    let mut value = bytes as f64;
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(next);
    }
    match unit {
        None => format!("{bytes}B"),
        Some(unit) => format!("{value:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_for_people() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_600_000, "1.53M"), (5 << 40, "5.00T")]
        {
            assert_eq!(super::human(bytes), text);
        }
    }
}
