//! Limits that options set: clients and their output.

use crate::{
    admin::log::log,
    config::{Config, Opt, kind::Value},
    util::open_files,
};
use holdfast_store::Log;
use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

/// File descriptors for everything that is neither a client nor a segment of the log.
const FILES_RESERVED: u64 = 128;
/// Segments of the log that clients leave room for: 32 GiB on a large medium. Where files are scarce, half of them are the log's.
const SEGMENTS_RESERVED: u64 = 1024;

/// Bytes of output that end a connection.
#[derive(Debug, Default)]
pub struct OutputLimit {
    hard: AtomicI64,
    soft: AtomicI64,
    soft_seconds: AtomicI64,
}

impl OutputLimit {
    /// Sets it: bytes that end a connection at once, and such that end it after so many seconds; 0: none.
    pub fn set(&self, [hard, soft, soft_seconds]: [i64; 3]) {
        self.hard.store(hard, Relaxed);
        self.soft.store(soft, Relaxed);
        self.soft_seconds.store(soft_seconds, Relaxed);
    }

    /// Whether `bytes` are too many.
    pub fn exceeds_hard(&self, bytes: usize) -> bool {
        let hard = self.hard.load(Relaxed);
        hard > 0 && bytes as i64 >= hard
    }

    /// If `bytes` are too many to stay: for how long they may.
    pub fn exceeds_soft(&self, bytes: usize) -> Option<Duration> {
        let soft = self.soft.load(Relaxed);
        let seconds = self.soft_seconds.load(Relaxed);
        // As with Redis, which looks twice, a second apart at least.
        (soft > 0 && bytes as i64 >= soft).then(|| Duration::from_secs(seconds.max(1) as u64))
    }
}

/// Allows the process as many files as the option `maxclients` needs, and the log the rest of them.
pub fn allow_clients(config: &Config, log: &Log) -> Result<(), String> {
    let wanted = config.number(Opt::MaxClients);
    let shares = Shares::of(wanted as u64, log.stats().segments.into());
    if shares.clients < wanted as u64 {
        let what = "The operating system is not able to handle the specified number of clients";
        return Err(format!("{what}, try with {}", shares.clients));
    }
    log.set_open_files_max(shares.segments).map_err(|error| error.to_string())
}

/// At start: lowers `maxclients` to what the operating system allows beside so many segments.
pub fn fit_max_clients(config: &Config, segments: u64) -> Result<(), String> {
    let wanted = config.number(Opt::MaxClients);
    let Shares { clients, .. } = Shares::of(wanted as u64, segments);
    if clients < 1 {
        return Err("the limit of open files is too low to serve anybody (see ulimit -n)".into());
    }
    if clients < wanted as u64 {
        log!(Warning, "maxclients is lowered from {wanted} to {clients}: the limit of open files is too low");
        config.store(Opt::MaxClients, Value::Number(clients as i64));
    }
    Ok(())
}

/// Who may have how many of the files that the process may have open.
struct Shares {
    clients: u64,
    segments: u64,
}

impl Shares {
    /// Up to `wanted` clients; `needed`: what the log has.
    fn of(wanted: u64, needed: u64) -> Shares {
        let most = wanted + needed.max(SEGMENTS_RESERVED) + FILES_RESERVED;
        let files = open_files::raise_limit(most).saturating_sub(FILES_RESERVED);
        let needed = needed.max(SEGMENTS_RESERVED.min(files / 2));
        let clients = wanted.min(files.saturating_sub(needed));
        Shares { clients, segments: files - clients }
    }
}
