//! Observers of keys: WATCH, and clients that wait for a key.

use super::Txn;
use crate::partition::observers::{Notify, Observer, ObserverId, Turn};
use std::sync::Arc;

impl Txn<'_> {
    /// Registers an observer of a key, which is notified when a later transaction writes it. `logical` is the database's number
    /// as clients know it.
    pub fn observe(
        &mut self,
        logical: u8,
        key: &[u8],
        turn: Turn,
        observer: Arc<dyn Observer>,
    ) -> ObserverId {
        let target = self.target(self.database(logical), key);
        let observers = &mut self.locks.get(target.partition).observers;
        // The writes of this transaction notify the observers that were there before, not the new one.
        for written in &mut self.batch.written {
            if (written.partition, written.db, written.digest) == (target.partition, target.db, target.digest)
            {
                let notify = std::mem::replace(&mut written.notify, Notify::None);
                observers.notify(logical, target.digest, notify);
            }
        }
        observers.add(logical, target.digest, turn, observer)
    }

    /// Ends an observation; if it was the observer's turn, this is the next one's.
    pub fn unobserve(&mut self, logical: u8, key: &[u8], id: ObserverId) {
        let target = self.target(self.database(logical), key);
        self.locks.get(target.partition).observers.remove(logical, target.digest, id);
    }

    /// Ends an observer's turn at a key, if it is its turn: the value there is not what it waits for. The next observer is
    /// notified if there is a value.
    pub fn pass_on(&mut self, logical: u8, key: &[u8], id: ObserverId) {
        let (target, shared) = (self.target(self.database(logical), key), self.shared());
        let expired_ms = self.expired_ms;
        let part = self.locks.get(target.partition);
        let is_there = part.holds(shared, target.db, target.digest, expired_ms);
        part.observers.pass_on(logical, target.digest, id, is_there);
    }

    /// Whether anybody is told of what it does, or may be: by its name, or since he observes a key of its partitions.
    #[inline]
    pub fn is_observed(&self) -> bool {
        !self.changes.are_unwanted() || self.locks.any(|part| !part.observers.is_empty())
    }

    /// Whether any key of its partitions is kept for an observer whose turn it is.
    #[inline]
    pub fn keeps_any(&self) -> bool {
        self.locks.any(|part| part.observers.keeps_any())
    }

    /// Whether a key of a database, by its logical number, is kept for an observer whose turn it is: others should leave it
    /// alone for now.
    pub fn is_kept(&self, logical: u8, key: &[u8]) -> bool {
        let target = self.target(self.database(logical), key);
        self.locks.read(target.partition).observers.keeps(logical, target.digest)
    }
}
