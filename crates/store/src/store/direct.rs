//! Changing one string without a transaction, where that needs none.

use super::Store;
use crate::{
    collections::redo_max,
    partition::Partition,
    txn::{error::Result, target::Expected},
    util::lock::Guard,
};
use holdfast_log::{Admission, Lsn};

impl Store {
    /// Makes `value` the string value of an expected key of a logical database, if that needs no transaction: the key has a
    /// string that does not expire, nobody is at work in its partition, and nobody wants to know of changes there. The log
    /// must have [admitted](Store::admit) it. Returns the LSN that the log must be durable beyond for it to last; `None`: it
    /// takes a transaction.
    #[inline]
    pub fn set_directly(
        &self,
        logical: u8,
        key: &[u8],
        value: &[u8],
        expected: Expected,
        now_ms: u64,
    ) -> Option<Lsn> {
        let mut part = self.enter_directly(expected, now_ms)?;
        // Known only now: with the partition locked no databases are exchanged.
        let db = self.database(logical);
        let found = part.find_plain(&self.shared, db, expected.digest, expected.slot)?;
        part.replace_string(&self.shared, db, expected.digest, found, (key, value), key.len() + value.len())
    }

    /// The same with what `change` makes of the value that the key has, if that is in the cache; `None` if it makes nothing of
    /// it. `input`: bytes of key and value that came for it.
    #[inline]
    pub fn change_directly<T: AsRef<[u8]>>(
        &self,
        logical: u8,
        key: &[u8],
        expected: Expected,
        now_ms: u64,
        input: usize,
        change: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<Lsn> {
        let mut part = self.enter_directly(expected, now_ms)?;
        // Known only now: with the partition locked no databases are exchanged.
        let db = self.database(logical);
        let found = part.find_plain(&self.shared, db, expected.digest, expected.slot)?;
        let value = change(part.cached_value(db, found, key)?)?;
        part.replace_string(&self.shared, db, expected.digest, found, (key, value.as_ref()), input)
    }

    /// Locks the partition of an expected key, if nobody is at work in it.
    #[inline]
    pub(super) fn enter_directly(&self, expected: Expected, now_ms: u64) -> Option<Guard<'_, Partition>> {
        let mut part = self.engine().partitions[usize::from(expected.partition)].try_lock()?;
        part.follow_limits(&self.shared);
        part.set_now(now_ms);
        Some(part)
    }

    /// Makes `value` the string value of a key, whatever it held, without an expiry. Returns the LSN that the log must be
    /// durable beyond for it to last. Waits while the log has no room.
    ///
    /// # Errors
    /// Those of [`Store::run`].
    pub fn set(&self, db: u8, key: &[u8], value: &[u8]) -> Result<Lsn> {
        if self.admit(redo_max(1, key.len() + value.len())) == Admission::Ok
            && let Some(lsn) = self.replace_directly(db, key, value)
        {
            return Ok(lsn);
        }
        let set = self.run(&[key], |_, writes| {
            writes.set(db, key, value);
            Ok(())
        });
        set.map(|((), lsn)| lsn)
    }

    /// As [`Store::set_directly`], in a database that is no garbage.
    fn replace_directly(&self, db: u8, key: &[u8], value: &[u8]) -> Option<Lsn> {
        let expected = self.derive(key);
        let mut part = self.enter_directly(expected, self.shared.io.about_now_ms())?;
        // Known only now: with the partition locked no databases are exchanged.
        self.shared.databases.logical(db)?;
        let found = part.find_plain(&self.shared, db, expected.digest, expected.slot)?;
        part.replace_string(&self.shared, db, expected.digest, found, (key, value), key.len() + value.len())
    }
}
