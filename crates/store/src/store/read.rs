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

/// Keys of which what is cold is read together, and its bytes at most.
const TOGETHER_MAX: usize = 256;
const TOGETHER_BYTES: usize = 4 << 20;

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
        let expected = self.derive(key);
        let mut f = Some(f);
        let mut f = |value: Option<&[u8]>| f.take().expect("a value is there once")(value);
        match self.show_directly(db, key, expected, None, |value| f(Some(value))) {
            Some(seen) => Ok(seen),
            None => self.show(db, key, None, f),
        }
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
    /// safe, as [`Store::run`] does. Blocks while values are fetched, many at a time.
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
        let mut fetched = Vec::new();
        for (some, first) in keys.chunks(EXPECTED_MAX).zip((0..).step_by(EXPECTED_MAX)) {
            let mut held = Some(self.look_ahead(db, some.iter().copied(), &mut expected));
            for part in held.iter_mut().flat_map(Held::partitions) {
                part.follow_limits(self.shared());
                part.set_now(now_ms);
            }
            for (at, (&key, &expected)) in (first..).zip(some.iter().zip(&expected)) {
                let mut ours = fetched_of(&mut fetched, at);
                if let Some(part) = held.as_mut().and_then(|held| held.partition(at - first))
                    && let Some(Seen::Value(value, recent)) = part.read_string(
                        self.shared(),
                        db,
                        key,
                        expected.digest,
                        expected.slot,
                        ours.as_ref(),
                    )
                {
                    f(at, Some(value));
                    wait_lsn = wait_lsn.max(recent);
                    continue;
                }
                // This one may have to wait for partitions, or for the medium.
                held = None;
                let mut show = |value: &[u8]| f(at, Some(value));
                let mut shown = self.show_directly(db, key, expected, ours.as_ref(), &mut show);
                if shown.is_none() && ours.is_none() && fetched.is_empty() {
                    fetched = self.fetch_from(db, keys, at);
                    ours = fetched_of(&mut fetched, at);
                    shown = self.show_directly(db, key, expected, ours.as_ref(), &mut show);
                }
                let lsn = match shown {
                    Some(((), lsn)) => lsn,
                    None => self.show(db, key, ours, |value| f(at, value))?.1,
                };
                wait_lsn = wait_lsn.max(lsn);
            }
        }
        Ok(wait_lsn)
    }

    /// Shows `f` the string value of a key, if it has one, and that takes no transaction and nothing but what was `fetched`.
    #[inline]
    fn show_directly<T>(
        &self,
        db: u8,
        key: &[u8],
        expected: Expected,
        fetched: Option<&Fetched>,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Option<(T, Lsn)> {
        let mut part = self.engine().partitions[usize::from(expected.partition)].lock();
        part.follow_limits(self.shared());
        part.set_now(self.shared().io.about_now_ms());
        match part.read_string(self.shared(), db, key, expected.digest, None, fetched)? {
            Seen::Value(value, recent) => Some((f(value), recent)),
            Seen::Cold(_) => None,
        }
    }

    /// The same by a transaction, whatever it takes.
    fn show<T>(
        &self,
        db: u8,
        key: &[u8],
        fetched: Option<Fetched>,
        mut f: impl FnMut(Option<&[u8]>) -> T,
    ) -> error::Result<(T, Lsn)> {
        let fetched = fetched.into_iter().collect();
        self.run_with(fetched, &[key], |reader, _| Ok(f(reader.get(db, key)?)))
    }

    /// The value of a key, if it must be fetched.
    fn cold(&self, db: u8, key: &[u8]) -> Option<Cold> {
        let mut txn = self.begin_keys([key]);
        txn.keep_expired();
        txn.cold(db, [key]).pop()
    }

    /// Fetches the value of the key at a place if it is cold, and those behind it that are, as many as are read together: each with its
    /// key's place, the first of them last.
    fn fetch_from(&self, db: u8, keys: &[&[u8]], from: usize) -> Vec<(usize, Fetched)> {
        let (mut places, mut cold, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, &key) in keys.iter().enumerate().skip(from).take(TOGETHER_MAX) {
            match self.cold(db, key) {
                Some(one) if cold.is_empty() || bytes + one.len_max() <= TOGETHER_BYTES => {
                    bytes += one.len_max();
                    places.push(at);
                    cold.push(one);
                }
                None if at > from => {}
                _ => break,
            }
        }
        places.into_iter().zip(self.fetch_all(&cold)).rev().collect()
    }
}

/// Takes out what was fetched for the key at a place, if that is the last of these.
fn fetched_of(fetched: &mut Vec<(usize, Fetched)>, at: usize) -> Option<Fetched> {
    fetched.pop_if(|(of, _)| *of == at).map(|(_, fetched)| fetched)
}
