//! Who is connected, and what they wait for.

use crate::{
    clients::client::{Client, flag},
    server::Server,
};
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Connected clients.
pub struct ClientFigures {
    /// All.
    pub connected: usize,
    /// Those that wait in a blocking command.
    pub blocked: u64,
    /// Those that track keys.
    pub tracking: usize,
    /// Those that are subscribed to something.
    pub subscribed: usize,
    /// Those that watch keys.
    pub watching: usize,
    /// Keys that are watched, by each of them.
    pub watched_keys: usize,
    /// Keys that are waited for.
    pub awaited_keys: usize,
    /// Keys that are waited for by clients that also wait for their end.
    pub awaited_keys_until_gone: usize,
    /// Bytes of the largest input that is not executed.
    pub input_bytes_max: usize,
    /// Bytes of the largest output that is not sent.
    pub output_bytes_max: usize,
}

impl ClientFigures {
    /// Those of now.
    pub fn new(server: &Server) -> ClientFigures {
        let all = server.clients.all();
        // Who waits for new entries of a group also waits for it to go away.
        let waits_for_end = |client: &&Arc<Client>| {
            client.has_flag(flag::BLOCKED) && server.table.command(client.command()).name == "xreadgroup"
        };
        let ends: HashSet<_> =
            all.iter().filter(waits_for_end).flat_map(|client| client.waits_for()).collect();
        let keys: HashSet<_> = all.iter().flat_map(|client| client.waits_for()).collect();
        ClientFigures {
            connected: all.len(),
            blocked: server.workers.iter().map(|worker| worker.blocked.load(Relaxed)).sum(),
            tracking: server.push.tracking.clients(),
            subscribed: all.iter().filter(|client| client.is_subscribed()).count(),
            watching: all.iter().filter(|client| client.watched() > 0).count(),
            watched_keys: all.iter().map(|client| client.watched()).sum(),
            awaited_keys: keys.len(),
            awaited_keys_until_gone: ends.len(),
            input_bytes_max: all.iter().map(|client| client.input()).max().unwrap_or(0),
            output_bytes_max: all.iter().map(|client| client.output()).max().unwrap_or(0),
        }
    }
}
