//! Looking at all keys without a transaction.

use super::Store;
use crate::{
    engine::locks::LockBusy,
    partition::{
        databases::DATABASES,
        index::CURSOR_BITS,
        scan::{self, ScanStep},
    },
};

/// What looks at one partition after the other. Those that begin with `try_` fail where one is [held for
/// long](crate::Txn::hold_long).
impl Store {
    /// Number of keys in a database.
    pub fn len(&self, db: u8) -> u64 {
        self.engine().partitions.iter().map(|part| part.lock().len(db)).sum()
    }

    /// As [`Store::len`].
    pub fn try_len(&self, db: u8) -> Result<u64, LockBusy> {
        (0..self.partitions()).map(|number| Ok(self.engine().try_lock(number)?.len(db))).sum()
    }

    /// Number of keys with an expiry in a database.
    pub fn try_expires_len(&self, db: u8) -> Result<u64, LockBusy> {
        (0..self.partitions()).map(|number| Ok(self.engine().try_lock(number)?.expires_len(db))).sum()
    }

    /// Whether no database holds a key.
    pub fn is_empty(&self) -> bool {
        (0..DATABASES as u8).all(|logical| self.len(self.database(logical)) == 0)
    }

    /// One step of a scan: the keys behind a cursor (0 at first), at least `count` unless the scan ends or meets many
    /// empty places. A key that is there from the scan's start to its end is found at least once.
    pub fn scan(&self, db: u8, cursor: u64, count: usize) -> ScanStep {
        let now_ms = self.now_ms();
        scan::scan(self.partitions(), cursor, count, |number, at, step| {
            let part = self.engine().partitions[number as usize].lock();
            part.scan_keys(&self.shared, None, db, at, now_ms, step)
        })
    }

    /// As [`Store::scan`].
    pub fn try_scan(&self, db: u8, cursor: u64, count: usize) -> Result<ScanStep, LockBusy> {
        let (now_ms, mut held_up) = (self.now_ms(), false);
        let step = scan::scan(self.partitions(), cursor, count, |number, at, step| {
            let part = if held_up { None } else { self.engine().try_lock(number).ok() };
            held_up = part.is_none();
            part?.scan_keys(&self.shared, None, db, at, now_ms, step)
        });
        if held_up { Err(LockBusy) } else { Ok(step) }
    }

    /// The partition that has the keys of a hash slot.
    pub fn partition_of_slot(&self, slot: u16) -> u16 {
        self.engine().partition_of_slot(slot)
    }

    /// The cursors of a scan from the first one that may find keys of a hash slot to the one behind the last. Other keys are found there, too.
    pub fn cursors_of(&self, slot: u16) -> (u64, u64) {
        let partition = u64::from(self.partition_of_slot(slot));
        (partition << CURSOR_BITS, (partition + 1) << CURSOR_BITS)
    }

    /// A random key, of equal chance; none if there is none. `random` returns random numbers.
    pub fn try_random_key(&self, db: u8, random: impl FnMut() -> u64) -> Result<ScanStep, LockBusy> {
        let (now_ms, mut held_up) = (self.now_ms(), false);
        let lens = (0..self.partitions()).map(|number| Ok(self.engine().try_lock(number)?.len(db)));
        let lens: Vec<u64> = lens.collect::<Result<_, _>>()?;
        let step = scan::random(&lens, random, |number, at, step| {
            let part = if held_up { None } else { self.engine().try_lock(number).ok() };
            held_up = part.is_none();
            part?.scan_keys(&self.shared, None, db, at, now_ms, step)
        });
        if held_up { Err(LockBusy) } else { Ok(step) }
    }
}
