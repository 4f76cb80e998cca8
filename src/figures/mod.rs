//! What the server can tell of itself, collected in one place: INFO, MEMORY, ENDURANCE and the metrics port show the same values.
//!
//! A figure is named here for what it is; its names in INFO are Redis's, and those in metrics OpenMetrics's. The store's own
//! figures are [`Stats`], which need no other collection.

pub mod clients;
pub mod commands;
pub mod endurance;
pub mod health;
pub mod keys;
pub mod memory;
pub mod process;
pub mod storage;
pub mod traffic;

use crate::{exec::keyspace::Keyspace, server::Server};
use holdfast_store::{LockBusy, Stats};

/// The store's figures, with counts since the last CONFIG RESETSTAT.
pub fn stats(server: &Server, keyspace: &Keyspace) -> Result<Stats, LockBusy> {
    let stats = keyspace.stats(&server.store)?;
    Ok(stats.counted_since(&server.stats_base.lock().expect("no holder panics")))
}
