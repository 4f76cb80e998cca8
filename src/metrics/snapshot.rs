//! The figures that need a look at all partitions.

use crate::{
    exec::keyspace::Keyspace,
    figures::{
        self,
        keys::{DatabaseFigures, databases},
    },
    server::Server,
};
use holdfast_store::{LockBusy, Stats};
use std::time::Instant;

/// The figures of all partitions at a moment.
pub struct Snapshot {
    /// When it was taken.
    pub taken: Instant,
    /// The store's figures.
    pub stats: Stats,
    /// Databases that have keys.
    pub databases: Vec<DatabaseFigures>,
}

impl Snapshot {
    /// Takes one, unless a script holds a partition for long.
    pub fn take(server: &Server) -> Result<Snapshot, LockBusy> {
        let keyspace = Keyspace::Open { store: &server.store, fetched: Vec::new() };
        Ok(Snapshot {
            taken: Instant::now(),
            stats: figures::stats(server, &keyspace)?,
            databases: databases(server, &keyspace)?,
        })
    }
}
