//! Reading strings without a transaction: they are shown where they are, in the cache or as they were fetched.

use super::{
    Store,
    ahead::{EXPECTED_MAX, Held},
};
use crate::{
    partition::{
        cold::{Cold, Fetched},
        databases::PHYSICAL_DATABASES,
        direct::Seen,
    },
    txn::{
        error::{self, Error},
        target::Expected,
    },
};
use holdfast_log::Lsn;

/// What [`Store::get_directly`] comes to.
pub enum Got<T> {
    /// What was made of the value, and the LSN that the log must be durable beyond for what was seen to be safe.
    Value(T, Lsn),
    /// The value must be [fetched](Store::fetch) first.
    Cold(Cold),
}

impl Store {
    /// Shows `f` the string value of a key of a database. Meanwhile the key's partition may be locked: `f` must not use the
    /// store. Returns what it returned, and the LSN that the log must be durable beyond for what was seen to be safe, as
    /// [`Store::run`] does. Blocks while the value is fetched.
    ///
    /// # Errors
    /// Those of [`crate::Txn::get`].
    pub fn get<T>(&self, db: u8, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> T) -> error::Result<(T, Lsn)> {
        if usize::from(db) >= PHYSICAL_DATABASES {
            return Err(Error::NoDatabase(db));
        }
        let Expected { partition, digest, .. } = self.derive(key);
        let mut part = self.engine().partitions[usize::from(partition)].lock();
        part.follow_limits(self.shared());
        part.set_now(self.shared().io.about_now_ms());
        if let Some(Seen::Value(value, recent)) = part.read_string(self.shared(), db, key, digest, None, None)
        {
            return Ok((f(Some(value)), recent));
        }
        drop(part);
        let mut f = Some(f);
        self.run(&[key], |reader, _| {
            let value = reader.get(db, key)?;
            Ok(f.take().expect("a value is there once")(value))
        })
    }

    /// Shows `f` the string value of an expected key of a logical database, if that needs no transaction: it does not expire,
    /// nobody is at work in its partition, and nobody has the first turn at a key there. `fetched`: what was fetched for this
    /// key, if it was found cold before. `None`: it takes a transaction to tell.
    #[inline]
    pub fn get_directly<T>(
        &self,
        logical: u8,
        key: &[u8],
        expected: Expected,
        now_ms: u64,
        fetched: Option<&Fetched>,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Option<Got<T>> {
        let mut part = self.enter_directly(expected, now_ms)?;
        if part.observers.keeps_any() {
            return None;
        }
        // Known only now: with the partition locked no databases are exchanged.
        let db = self.database(logical);
        Some(match part.read_string(self.shared(), db, key, expected.digest, expected.slot, fetched)? {
            Seen::Value(value, recent) => Got::Value(f(value), recent),
            Seen::Cold(cold) => Got::Cold(cold.into()),
        })
    }

    /// Shows `f` the string values of some keys of a database, in order, each with its key's place among them. Every key is
    /// read by itself: there may be no moment at which all had these values. While `f` sees a value partitions may be
    /// locked: it must not use the store. Returns the LSN that the log must be durable beyond for what was seen to be
    /// safe, as [`Store::run`] does. Blocks while values are fetched.
    ///
    /// # Errors
    /// Those of [`crate::Txn::get`], at the first key that has one.
    pub fn get_many(
        &self,
        db: u8,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> error::Result<Lsn> {
        if usize::from(db) >= PHYSICAL_DATABASES {
            return Err(Error::NoDatabase(db));
        }
        let (now_ms, mut wait_lsn) = (self.shared().io.about_now_ms(), 0);
        let mut expected = Vec::with_capacity(EXPECTED_MAX);
        for (some, first) in keys.chunks(EXPECTED_MAX).zip((0..).step_by(EXPECTED_MAX)) {
            let mut held = Some(self.look_ahead(db, some.iter().copied(), &mut expected));
            for part in held.iter_mut().flat_map(Held::partitions) {
                part.follow_limits(self.shared());
                part.set_now(now_ms);
            }
            for (at, (&key, &Expected { digest, slot, .. })) in some.iter().zip(&expected).enumerate() {
                if let Some(part) = held.as_mut().and_then(|held| held.partition(at))
                    && let Some(Seen::Value(value, recent)) =
                        part.read_string(self.shared(), db, key, digest, slot, None)
                {
                    f(first + at, Some(value));
                    wait_lsn = wait_lsn.max(recent);
                    continue;
                }
                // This one may have to wait for partitions, or for the medium.
                held = None;
                let ((), lsn) = self.run(&[key], |reader, _| {
                    let value = reader.get(db, key)?;
                    f(first + at, value);
                    Ok(())
                })?;
                wait_lsn = wait_lsn.max(lsn);
            }
        }
        Ok(wait_lsn)
    }
}
