//! Transactions that lock more partitions than they began with ([`locks`](crate::engine::locks)).

use super::Txn;
use crate::engine::locks::{LockBusy, ReleasedLocks};

impl Txn<'_> {
    /// Locks the partition of a key, if it is not locked, unless that takes longer than a millisecond; whether it is locked.
    pub fn try_include(&mut self, key: &[u8]) -> bool {
        let partition = self.partition_of(key);
        if !self.locks.try_include(partition) {
            return false;
        }
        self.locks.get(partition).set_now(self.now_ms);
        self.changes.follow(self.shared());
        true
    }

    /// Locks all partitions, up to the first that takes longer; whether all are locked.
    pub fn try_include_all(&mut self) -> bool {
        let all = self.engine.numbers().all(|number| self.locks.try_include(number));
        self.locks.each(|part| part.set_now(self.now_ms));
        self.changes.follow(self.shared());
        all
    }

    /// How many partitions are locked.
    pub fn partitions_len(&self) -> usize {
        self.locks.len()
    }

    /// Whether it may wait for partitions while it holds others.
    pub fn has_turn(&self) -> bool {
        self.locks.has_turn()
    }

    /// Lets it wait for partitions while it holds others, unless another one may and that takes longer than a
    /// millisecond; whether it may.
    pub fn try_take_turn(&mut self) -> bool {
        self.locks.try_take_turn()
    }

    /// Whether the one whose turn it is waits for what this one has locked.
    pub fn is_wanted(&self) -> bool {
        !self.has_turn() && self.locks.is_wanted()
    }

    /// Says that what is locked, now or later, may be so for long, before others of this thread run. If it has written something, it has room for a
    /// small batch from then on, whatever others write meanwhile, unless there is none at all.
    pub fn hold_long(&mut self) {
        self.locks.hold_long();
        if !self.batch.is_empty() {
            self.allowance.keep_small();
        }
    }

    /// Whether it has room for a small batch, whatever others write.
    pub fn keeps_room(&self) -> bool {
        self.allowance.keeps_small()
    }

    /// Whether what is locked may be so for long.
    pub fn holds_long(&self) -> bool {
        self.locks.are_held_long()
    }

    /// Whether there is nothing to commit.
    pub fn is_clean(&self) -> bool {
        self.batch.is_empty()
    }

    /// Unlocks everything; there must be nothing to commit. It goes on with [`Txn::reacquire_locks`].
    pub fn release_locks(&mut self) -> ReleasedLocks {
        debug_assert!(self.is_clean());
        self.forget_views();
        self.locks.release_locks()
    }

    /// Locks again what was unlocked; whether none of its keys was written meanwhile.
    pub fn reacquire_locks(&mut self, released: &ReleasedLocks) -> Result<bool, LockBusy> {
        let is_as_before = self.locks.reacquire_locks(released)?;
        self.locks.each(|part| part.set_now(self.now_ms));
        self.changes.follow(self.shared());
        Ok(is_as_before)
    }

    /// Whether since the last call it has looked at keys of partitions that it was not begun with, and was not begun to grow.
    #[inline]
    pub fn take_strayed(&mut self) -> bool {
        self.locks.take_strayed()
    }

    /// Bytes that the transaction has to write so far.
    pub fn batch_bytes(&self) -> usize {
        self.batch.tx.buf.len()
    }
}
