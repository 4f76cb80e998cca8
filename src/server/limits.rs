//! Limits that options set: clients and their output.

use crate::{
    admin::log::log,
    config::{Config, Opt, kind::Value},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
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
        (soft > 0 && seconds > 0 && bytes as i64 >= soft).then(|| Duration::from_secs(seconds as u64))
    }
}

/// Allows the process as many files as the option `maxclients` needs.
pub fn allow_clients(config: &Config) -> Result<(), String> {
    let possible = possible_clients(config.number(Opt::MaxClients));
    if possible < config.number(Opt::MaxClients) {
        let what = "The operating system is not able to handle the specified number of clients";
        return Err(format!("{what}, try with {possible}"));
    }
    Ok(())
}

/// At start: lowers `maxclients` to what the operating system allows.
pub fn fit_max_clients(config: &Config) -> Result<(), String> {
    let wanted = config.number(Opt::MaxClients);
    let possible = possible_clients(wanted);
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
fn possible_clients(wanted: i64) -> i64 {
    let files = raise_file_limit(wanted as u64 + FILES_RESERVED);
    files.saturating_sub(FILES_RESERVED).min(wanted as u64) as i64
}

/// Allows this process as many open files as it may have, `wanted` if that takes privilege and it has it; returns how
/// many those are. Clients are not the only ones who want them: so do the log's segments.
fn raise_file_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // No figure: there is no limit.
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let is_allowed = |&files: &u64| {
        let raised = Rlimit { current: Some(files), maximum: Some(files) };
        setrlimit(Resource::Nofile, raised).is_ok()
    };
    [most.max(wanted), most].into_iter().find(is_allowed).unwrap_or(now)
}
