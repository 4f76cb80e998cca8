//! Limits that options set: clients, their output, small encodings.

use crate::{
    config::{
        Config, Opt,
        kind::{Value, read_output_limits},
    },
    log::log,
    server::Server,
};
use holdfast_store::collections::Limits;
use std::{
    io,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

/// File descriptors for everything that is not a client.
const FILES_RESERVED: u64 = 128;

/// Bytes of output that end a connection.
#[derive(Debug, Default)]
pub struct OutputLimit {
    hard: AtomicI64,
    soft: AtomicI64,
    soft_seconds: AtomicI64,
}

impl OutputLimit {
    /// Whether `bytes` are too many.
    pub fn exceeds_hard(&self, bytes: usize) -> bool {
        let hard = self.hard.load(Relaxed);
        hard > 0 && bytes as i64 >= hard
    }

    /// If `bytes` are too many to stay: for how long they may.
    pub fn exceeds_soft(&self, bytes: usize) -> Option<Duration> {
        let soft = self.soft.load(Relaxed);
        let seconds = self.soft_seconds.load(Relaxed);
        (soft > 0 && seconds > 0 && bytes as i64 >= soft).then(|| Duration::from_secs(seconds as u64))
    }
}

/// Follows a new `client-output-buffer-limit`.
pub fn apply_output_limits(server: &Server) -> Result<(), String> {
    let limits = read_output_limits(&server.config.text(Opt::ClientOutputBufferLimit));
    for (limit, [hard, soft, seconds]) in server.output_limits.iter().zip(limits) {
        limit.hard.store(hard, Relaxed);
        limit.soft.store(soft, Relaxed);
        limit.soft_seconds.store(seconds, Relaxed);
    }
    Ok(())
}

/// Follows a new `maxmemory-clients`, or a new `maxmemory` that it is a part of.
pub fn apply_client_memory(server: &Server) -> Result<(), String> {
    let text = server.config.text(Opt::MaxMemoryClients);
    let max = match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u128 = percent.parse().map_err(|_| "not a percentage")?;
            (server.config.number(Opt::MaxMemory) as u128 * percent / 100) as usize
        }
        None => text.parse().map_err(|_| "not a number")?,
    };
    server.clients.limit_memory(max);
    server.evict_clients();
    Ok(())
}

/// Follows a new `maxclients`: allows the process as many files.
pub fn apply_max_clients(server: &Server) -> Result<(), String> {
    let possible = possible_clients(server.config.number(Opt::MaxClients))?;
    if possible < server.config.number(Opt::MaxClients) {
        let what = "The operating system is not able to handle the specified number of clients";
        return Err(format!("{what}, try with {possible}"));
    }
    Ok(())
}

/// At start: lowers `maxclients` to what the operating system allows.
pub fn fit_max_clients(config: &Config) -> Result<(), String> {
    let wanted = config.number(Opt::MaxClients);
    let possible = possible_clients(wanted)?;
    if possible < 1 {
        return Err("the limit of open files is too low to serve anybody (see ulimit -n)".into());
    }
    if possible < wanted {
        log!(
            Warning,
            "maxclients is lowered from {wanted} to {possible}: the limit of open files is too low"
        );
        config.store(Opt::MaxClients, Value::Number(possible));
    }
    Ok(())
}

/// Up to `wanted` clients, as many as the process may have files for.
fn possible_clients(wanted: i64) -> Result<i64, String> {
    let files = raise_file_limit(wanted as u64 + FILES_RESERVED)
        .map_err(|e| format!("cannot find out the limit of open files: {e}"))?;
    Ok((files as i64 - FILES_RESERVED as i64).min(wanted))
}

/// Follows new thresholds of the collections' encodings.
pub fn apply_encodings(server: &Server) -> Result<(), String> {
    let number = |opt| server.config.number(opt) as usize;
    server.store.set_limits(Limits {
        hash_max_listpack_entries: number(Opt::HashMaxListpackEntries),
        hash_max_listpack_value: number(Opt::HashMaxListpackValue),
        set_max_intset_entries: number(Opt::SetMaxIntsetEntries),
        set_max_listpack_entries: number(Opt::SetMaxListpackEntries),
        set_max_listpack_value: number(Opt::SetMaxListpackValue),
        zset_max_listpack_entries: number(Opt::ZsetMaxListpackEntries),
        zset_max_listpack_value: number(Opt::ZsetMaxListpackValue),
        list_max_listpack_size: server.config.number(Opt::ListMaxListpackSize) as i32,
        stream_node_max_bytes: number(Opt::StreamNodeMaxBytes),
        stream_node_max_entries: number(Opt::StreamNodeMaxEntries),
        hll_sparse_max_bytes: number(Opt::HllSparseMaxBytes),
    });
    Ok(())
}

/// Allows this process as many open files as it may have, `wanted` if that takes privilege and it has it; returns how
/// many those are. Clients are not the only ones who want them: so do the log's segments.
fn raise_file_limit(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid, writable rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for files in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: files, rlim_max: files };
        // SAFETY: `raised` is a valid rlimit.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return Ok(files);
        }
    }
    Ok(limit.rlim_cur)
}
