//! What is done with the keys of a database as a whole: through the store, which locks one partition at a time, or in
//! a transaction over all partitions.

use super::Txn;
use crate::partition::{
    Partition,
    databases::{DATABASES, PHYSICAL_DATABASES},
    scan::{self, ScanStep},
};
use holdfast_heap::AbsentPage;

/// These want all partitions to be locked.
impl Txn<'_> {
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.engine.numbers().map(|number| self.locks.read(number))
    }

    /// As [`crate::Store::database`]; what it says holds until the transaction ends.
    pub fn database(&self, logical: u8) -> u8 {
        self.shared().databases.physical(logical)
    }

    /// Whether some databases, by their logical numbers, can be flushed now.
    pub fn can_flush(&self, logical: impl IntoIterator<Item = u8>) -> bool {
        let full = logical.into_iter().filter(|&logical| self.len(self.database(logical)) > 0).count();
        full <= self.empty_databases().count()
    }

    fn empty_databases(&self) -> impl Iterator<Item = u8> {
        self.shared().databases.all_garbage().filter(|&physical| self.len(physical) == 0)
    }

    /// Removes all keys of a database, by its logical number: it gets another, empty physical one. What was in the old one
    /// is freed later. False if nothing has changed, since so much is still being freed that no database is empty; see
    /// [`Txn::can_flush`].
    pub fn flush(&mut self, logical: u8) -> bool {
        let shared = self.shared();
        let old = shared.databases.physical(logical);
        if self.len(old) == 0 {
            // Others have left it so, by what may not be durable yet. With all partitions locked nothing else is in the log.
            self.wait_lsn = self.wait_lsn.max(self.shared().log.tail());
            return true;
        }
        let Some(empty) = self.empty_databases().next() else { return false };
        self.notify_all(logical, &[old]);
        shared.leave_over();
        self.map_database(logical, empty);
        true
    }

    /// Exchanges two databases, by their logical numbers.
    pub fn swap(&mut self, a: u8, b: u8) {
        let (physical_a, physical_b) = (self.database(a), self.database(b));
        self.notify_all(a, &[physical_a, physical_b]);
        self.notify_all(b, &[physical_a, physical_b]);
        self.map_database(a, physical_b);
        self.map_database(b, physical_a);
    }

    fn map_database(&mut self, logical: u8, physical: u8) {
        self.locks.get(0).write_database_map(&mut self.batch, logical, physical);
        self.shared().databases.set(logical, physical);
    }

    /// Tells those who observe a key of a database, if there is such a key in one of some physical databases: what is not
    /// there before and after has not changed.
    fn notify_all(&mut self, logical: u8, physical: &[u8]) {
        self.batch.flushed = true;
        let (shared, expired_ms) = (self.shared(), self.expired_ms);
        for number in self.engine.numbers() {
            self.locks.get(number).notify_all(shared, logical, physical, expired_ms);
        }
    }

    /// As [`crate::Store::len`].
    pub fn len(&self, db: u8) -> u64 {
        self.partitions().map(|part| part.len(db)).sum()
    }

    /// As [`crate::Store::try_expires_len`].
    pub fn expires_len(&self, db: u8) -> u64 {
        self.partitions().map(|part| part.expires_len(db)).sum()
    }

    /// Whether no database holds a key.
    pub fn is_empty(&self) -> bool {
        (0..DATABASES as u8).all(|logical| self.len(self.database(logical)) == 0)
    }

    /// As [`crate::Store::scan`].
    pub fn scan(&self, db: u8, cursor: u64, count: usize) -> ScanStep {
        let partitions = self.engine.partitions.len() as u16;
        scan::scan(partitions, cursor, count, |number, at, step| {
            self.locks.read(number).scan_keys(self.shared(), Some(&self.batch), db, at, self.expired_ms, step)
        })
    }

    /// As [`crate::Store::try_random_key`].
    pub fn random_key(&self, db: u8, random: impl FnMut() -> u64) -> ScanStep {
        let lens: Vec<u64> = self.partitions().map(|part| part.len(db)).collect();
        scan::random(&lens, random, |number, at, step| {
            self.locks.read(number).scan_keys(self.shared(), Some(&self.batch), db, at, self.expired_ms, step)
        })
    }
}

impl Txn<'_> {
    /// The pages to be read before [`Txn::sweep`] frees a slice of what is garbage.
    pub(crate) fn absent_to_sweep(&mut self) -> Vec<AbsentPage> {
        let shared = self.shared();
        self.locks.first().1.absent_to_sweep(shared)
    }

    /// Frees a slice of what is garbage in the transaction's first partition, or of what keys have left that are all gone;
    /// whether there may be more.
    pub(crate) fn sweep(&mut self) -> bool {
        let shared = self.shared();
        let part = self.locks.first().1;
        let garbage = shared.databases.all_garbage().find(|&db| part.needs_sweep(db));
        let db = garbage.or_else(|| (0..PHYSICAL_DATABASES as u8).find(|&db| part.is_hollow(db)));
        match db {
            Some(db) => part.sweep(shared, &mut self.batch, db),
            None => return part.free_hollow_expiries(&mut self.batch),
        }
        true
    }
}
