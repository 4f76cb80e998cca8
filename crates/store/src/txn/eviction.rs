//! The eviction of one key.

use super::{REMOVAL_BYTES, Txn};
use crate::{
    format::{digest::Digest, entry_word::class_bytes_min},
    partition::{Partition, changes::ChangeKind, cold::ColdItem},
};
use std::sync::atomic::Ordering::Relaxed;

/// What came of trying to evict a key.
pub(crate) enum EvictOutcome {
    /// It is gone, and so many bytes of live items with it.
    Evicted(u64),
    /// It is not what it was when it was looked at.
    Changed,
    /// The log takes no writes.
    Refused,
}

impl Txn<'_> {
    /// Evicts a key of the transaction's partition, if `may_go` says so of it; the error says that its name is wanted, and
    /// must be fetched.
    pub(crate) fn evict(
        &mut self,
        db: u8,
        digest: Digest,
        may_go: impl FnOnce(&mut Partition) -> bool,
        name: Option<&[u8]>,
    ) -> Result<EvictOutcome, ColdItem> {
        let shared = self.shared();
        if shared.databases.is_garbage(db) {
            return Ok(EvictOutcome::Changed);
        }
        if !self.takes_removal(REMOVAL_BYTES) {
            return Ok(EvictOutcome::Refused);
        }
        let part = self.locks.first().1;
        let Some(found) = part.find(shared, db, digest).filter(|_| may_go(part)) else {
            return Ok(EvictOutcome::Changed);
        };
        let bytes = if found.word.in_heap() { 0 } else { class_bytes_min(found.word.class()) };
        match self.remove_found(db, digest, found, ChangeKind::Evicted, name) {
            Some(cold) => Err(cold),
            None => {
                self.engine.counters.evicted.fetch_add(1, Relaxed);
                Ok(EvictOutcome::Evicted(bytes))
            }
        }
    }
}
