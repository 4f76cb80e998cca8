//! What came in and went out.

use crate::server::Server;
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

/// Counts since the start, or the last CONFIG RESETSTAT.
pub struct Traffic {
    /// Clients accepted.
    pub accepted: u64,
    /// Clients refused: too many, or in protected mode.
    pub refused: u64,
    /// Clients disconnected, since all took too much memory.
    pub evicted_clients: u64,
    /// Commands executed.
    pub commands: u64,
    /// Bytes read from clients.
    pub input_bytes: u64,
    /// Bytes sent to clients.
    pub output_bytes: u64,
    /// Reads from sockets.
    pub reads: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Values that were read from the medium while partitions were locked.
    pub cold_waits_under_lock: u64,
    /// Scripts of EVAL that were forgotten.
    pub evicted_scripts: u64,
    /// Error replies by code; scripts make up codes that are no UTF-8, which may share a name.
    pub errors: BTreeMap<String, u64>,
    /// What access control has denied, by why.
    pub denied: [(&'static str, u64); 4],
}

impl Traffic {
    /// Those of now.
    pub fn new(server: &Server) -> Traffic {
        let [auth, command, key, channel] = server.acl.log.counts();
        let mut errors = BTreeMap::new();
        for (code, count) in server.errors.all() {
            *errors.entry(String::from_utf8_lossy(&code).into_owned()).or_default() += count;
        }
        Traffic {
            accepted: server.accepted.load(Relaxed),
            refused: server.refused.load(Relaxed),
            evicted_clients: server.clients.evicted(),
            commands: server.calls(),
            input_bytes: server.sum(|worker| &worker.input_bytes),
            output_bytes: server.sum(|worker| &worker.output_bytes),
            reads: server.sum(|worker| &worker.reads),
            writes: server.sum(|worker| &worker.writes),
            cold_waits_under_lock: server.sum(|worker| &worker.cold_waits_under_lock),
            evicted_scripts: server.scripts.evicted(),
            errors,
            denied: [("auth", auth), ("cmd", command), ("key", key), ("channel", channel)],
        }
    }

    /// Error replies of all codes.
    pub fn error_replies(&self) -> u64 {
        self.errors.values().sum()
    }
}
