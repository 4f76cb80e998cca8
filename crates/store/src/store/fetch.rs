//! How what transactions found cold is read from the medium.

use super::Store;
use crate::partition::cold::{Cold, Fetched};
use holdfast_io::ReadQueue;
use std::io;

impl Store {
    /// Reads what a transaction found cold. Blocks on the medium; call it without a transaction open.
    pub fn fetch(&self, cold: impl Into<Cold>) -> Fetched {
        self.engine().fetch(cold.into())
    }

    /// Reads all that was found cold, many things at a time if the machine can; in this order. Blocks on the medium; call it without
    /// a transaction open. All of it is in memory at once, so there must not be much of it.
    pub fn fetch_all(&self, cold: &[Cold]) -> Vec<Fetched> {
        self.engine().fetch_all(cold)
    }

    /// A queue for a thread that has so many reads under way at most.
    ///
    /// # Errors
    /// The machine has none.
    pub fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.shared.io.read_queue(depth)
    }

    /// Asks a queue for what a transaction found cold, without waiting for anything. False if it takes more than one
    /// read, or none: then it is [`Store::fetch`] that can read it.
    pub fn begin_fetch(&self, cold: Cold, queue: &mut ReadQueue, tag: u64) -> bool {
        self.engine().begin_fetch(cold, queue, tag)
    }

    /// What came for [`Store::begin_fetch`]. `None`: that was not enough, and [`Store::fetch`] is to read it.
    pub fn end_fetch(&self, cold: Cold, read: io::Result<&[u8]>) -> Option<Fetched> {
        self.engine().end_fetch(cold, read)
    }
}
