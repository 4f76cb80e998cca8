//! What a transaction did to keys, as far as somebody wants to know.

use super::Txn;
use crate::partition::{
    changes::{Change, ChangeFilter, ChangeKind},
    shared::Shared,
};
use holdfast_log::Lsn;

/// A transaction's changes.
pub(crate) struct Changes {
    wanted: ChangeFilter,
    list: Vec<Change>,
}

impl Changes {
    #[inline]
    pub fn new(shared: &Shared) -> Changes {
        Changes { wanted: shared.following.wanted(), list: Vec::new() }
    }

    /// Looks again what is wanted: who wants to know of a change of a key says so before he looks at it, so that this is
    /// seen with the key's partition locked, and maybe not before.
    #[inline]
    pub fn follow(&mut self, shared: &Shared) {
        self.wanted = shared.following.wanted();
    }

    #[inline]
    pub fn add(&mut self, kind: ChangeKind, db: u8, key: &[u8]) {
        if self.wanted.has(kind) {
            self.list.push(Change { kind, db, key: key.to_vec() });
        }
    }

    /// Takes back that a key was written.
    pub fn forget_written(&mut self, db: u8, key: &[u8]) {
        let is_it = |change: &Change| (change.db, &change.key[..]) == (db, key);
        self.list.retain(|change| {
            !matches!(change.kind, ChangeKind::Written | ChangeKind::Added) || !is_it(change)
        });
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Forgets all but the first ones.
    pub fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    /// Whether nobody wants to know anything.
    #[inline]
    pub fn are_unwanted(&self) -> bool {
        self.wanted.is_nothing()
    }

    /// Whether the names of keys to which this is done are wanted.
    pub fn want_names(&self, kind: ChangeKind) -> bool {
        self.wanted.has(kind)
    }

    /// Takes them, with the databases by the numbers that clients know; those of databases that are being freed are
    /// nobody's business.
    #[inline]
    pub fn take(&mut self, shared: &Shared) -> Vec<Change> {
        if self.list.is_empty() { Vec::new() } else { self.take_some(shared) }
    }

    #[cold]
    fn take_some(&mut self, shared: &Shared) -> Vec<Change> {
        let by_number = |change: Change| Some(Change { db: shared.databases.logical(change.db)?, ..change });
        std::mem::take(&mut self.list).into_iter().filter_map(by_number).collect()
    }

    /// Hands what was not taken to the follower of changes.
    #[inline]
    pub fn publish(&mut self, shared: &Shared, wait_lsn: Lsn) {
        if !self.list.is_empty() {
            let list = self.take_some(shared);
            shared.following.publish(list, wait_lsn);
        }
    }
}

impl Txn<'_> {
    /// What was done so far, if it is wanted, and not taken before.
    #[inline]
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.take(self.shared())
    }

    /// As [`Txn::commit`], and calls `then` with what was done and the LSN while the partitions are still locked, which they
    /// are until the transaction is dropped, or by [`Txn::unlock`]. It is not taken, since to move it costs, but nothing
    /// can be done with it any more.
    #[inline]
    pub fn commit_then(&mut self, then: impl FnOnce(Vec<Change>, Lsn)) -> Lsn {
        let changes = self.take_changes();
        let wait_lsn = self.end();
        then(changes, wait_lsn);
        wait_lsn
    }

    /// Unlocks what was locked for a transaction that has ended by [`Txn::commit_then`].
    pub fn unlock(&mut self) {
        self.locks.unlock();
    }
}
