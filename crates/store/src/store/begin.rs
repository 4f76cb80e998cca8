//! How transactions begin.

use super::Store;
use crate::{
    engine::locks::Locks,
    txn::{
        Begun, Txn,
        target::{Expected, KnownKey},
    },
};

impl Store {
    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.engine().partitions.len() as u16
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: &[u8]) -> u16 {
        self.engine().partition_of(key)
    }

    /// What is derived from a key.
    #[inline]
    pub fn derive(&self, key: &[u8]) -> Expected {
        Expected::derive(self.engine(), key)
    }

    /// Begins a transaction over partitions, given in ascending order without repetition.
    pub fn begin(&self, partitions: &[u16]) -> Txn<'_> {
        Txn::begin(self.engine(), partitions, self.shared.io.now_ms())
    }

    /// As [`Store::begin`], unless one of them is [held for long](Txn::hold_long).
    pub fn try_begin(&self, partitions: &[u16]) -> Begun<'_> {
        Txn::try_begin(self.engine(), partitions, self.shared.io.now_ms())
    }

    /// Begins a transaction over the partition of one key, at a time that the caller has looked up (Unix time in
    /// milliseconds), unless that is [held for long](Txn::hold_long). `expected` is what is derived from the key.
    #[inline]
    pub fn try_begin_expected<'s>(&'s self, key: &'s [u8], expected: Expected, now_ms: u64) -> Begun<'s> {
        debug_assert!(expected.digest == self.shared.secret.digest(key), "another key was expected");
        let mut txn = Txn::try_begin(self.engine(), &[expected.partition], now_ms)?;
        txn.know(key, expected);
        Ok(txn)
    }

    /// Begins a transaction over the partitions of some keys.
    pub fn begin_keys<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Txn<'_> {
        self.begin(&self.partitions_of(keys))
    }

    /// As [`Store::begin_keys`], unless one of them is [held for long](Txn::hold_long).
    pub fn try_begin_keys<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Begun<'_> {
        self.try_begin(&self.partitions_of(keys))
    }

    /// As [`Store::try_begin_keys`], over keys of a database that it will look at, in this order. What is derived from them is
    /// derived once, and they wait for memory together.
    pub fn try_begin_known<'s>(&'s self, db: u8, keys: impl Iterator<Item = &'s [u8]>) -> Begun<'s> {
        let known: Vec<KnownKey> = keys.map(|key| KnownKey { key, expected: self.derive(key) }).collect();
        let partitions = in_order(known.iter().map(|known| known.expected.partition));
        let mut txn = self.try_begin(&partitions)?;
        txn.know_many(db, known);
        Ok(txn)
    }

    /// The partitions of some keys, in ascending order without repetition.
    pub fn partitions_of<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<u16> {
        in_order(keys.into_iter().map(|key| self.partition_of(key)))
    }

    /// Begins a transaction over all partitions.
    pub fn begin_all(&self) -> Txn<'_> {
        self.begin(&self.all_partitions())
    }

    /// As [`Store::begin_all`], unless one is [held for long](Txn::hold_long).
    pub fn try_begin_all(&self) -> Begun<'_> {
        self.try_begin(&self.all_partitions())
    }

    fn all_partitions(&self) -> Vec<u16> {
        (0..self.partitions()).collect()
    }

    /// Begins a transaction that may lock more partitions later ([`Txn::try_include`]), over some to begin with, given in
    /// ascending order without repetition; there may be none. `takes_turn`: from the beginning it is the one that may wait
    /// for more, and waits until it is.
    pub fn try_begin_growing(&self, partitions: &[u16], takes_turn: bool) -> Begun<'_> {
        let locks = Locks::take_growing(self.engine(), partitions, takes_turn)?;
        Ok(Txn::with(self.engine(), locks, self.now_ms()))
    }

    /// As [`Store::try_begin_growing`], over the partition of one key. What is derived from the key is derived once.
    pub fn try_begin_growing_key<'s>(&'s self, key: &'s [u8], takes_turn: bool) -> Begun<'s> {
        let expected = self.derive(key);
        let mut txn = self.try_begin_growing(&[expected.partition], takes_turn)?;
        txn.know(key, expected);
        Ok(txn)
    }
}

/// Partitions in ascending order without repetition.
fn in_order(partitions: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut partitions: Vec<u16> = partitions.collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}
