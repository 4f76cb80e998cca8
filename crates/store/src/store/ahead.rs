//! Looking ahead: what many keys lead to in memory is asked for at once. Else each look-up would wait for its own, one line
//! after another.

use super::Store;
use crate::{
    partition::{Partition, shared::Shared},
    txn::target::{Expected, prefetch_entries},
    util::lock::Guard,
};

/// Keys that [`Store::expect`] takes note of at once.
pub const EXPECTED_MAX: usize = 16;

/// The partitions of expected keys: those that nobody else was at work in.
pub(crate) struct Held<'s> {
    /// Each at the place of the first key that is in it.
    locks: [Option<Guard<'s, Partition>>; EXPECTED_MAX],
    /// Where the lock of each key's partition is.
    lock_of: [u8; EXPECTED_MAX],
}

impl<'s> Held<'s> {
    fn new() -> Held<'s> {
        Held { locks: [const { None }; EXPECTED_MAX], lock_of: [0; EXPECTED_MAX] }
    }

    /// The partition of a key, by the key's place.
    #[inline]
    pub fn partition(&mut self, at: usize) -> Option<&mut Partition> {
        self.locks[usize::from(self.lock_of[at])].as_deref_mut()
    }

    /// Asks for the memory of elements of the collections at keys.
    fn prefetch_elements<'k>(
        &self,
        shared: &Shared,
        db: u8,
        keys: &[Expected],
        elements: impl Iterator<Item = Option<&'k [u8]>>,
    ) {
        let lock = |at: usize| self.locks[usize::from(self.lock_of[at])].as_deref();
        let (mut ahead, mut before) = ([None; EXPECTED_MAX], None);
        for (at, (key, element)) in keys.iter().zip(elements).enumerate() {
            let (Some(partition), Some(slot), Some(element)) = (lock(at), key.slot, element) else {
                continue;
            };
            let table = match before {
                Some((digest, table)) if digest == key.digest => table,
                _ => partition.table_at(db, slot, key.digest),
            };
            before = Some((key.digest, table));
            ahead[at] = table.map(|table| partition.prefetch_bucket(shared, table, element));
        }
        for (at, ahead) in ahead.into_iter().enumerate() {
            if let (Some(partition), Some(ahead)) = (lock(at), ahead) {
                partition.prefetch_element(ahead);
            }
        }
    }

    /// All of them.
    pub fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.locks.iter_mut().flatten().map(|lock| &mut **lock)
    }
}

impl Store {
    /// Fills `expected` with what is derived from keys that commands will look at soon, the first [`EXPECTED_MAX`] of them, so
    /// that it is derived once ([`Store::try_begin_expected`]). Asks for the memory of all of their entries and cached
    /// values at once, and of what may be an element of the collection at a key, if that is a large set or hash.
    pub fn expect<'k>(
        &self,
        db: u8,
        keys: impl Iterator<Item = (&'k [u8], Option<&'k [u8]>)> + Clone,
        expected: &mut Vec<Expected>,
    ) {
        let held = self.look_ahead(db, keys.clone().map(|(key, _)| key), expected);
        // What is not in memory must not be waited for here.
        if !self.shared().heap.has_absent() {
            held.prefetch_elements(self.shared(), db, expected, keys.map(|(_, element)| element));
        }
    }

    /// The same; returns the partitions, which hold still until then.
    pub(crate) fn look_ahead<'k>(
        &self,
        db: u8,
        keys: impl Iterator<Item = &'k [u8]>,
        expected: &mut Vec<Expected>,
    ) -> Held<'_> {
        expected.clear();
        let mut held = Held::new();
        let mut before: &[u8] = &[];
        for (at, key) in keys.take(EXPECTED_MAX).enumerate() {
            // Many a pipeline is about one key: to look at it once is enough.
            if let Some(&same) = expected.last().filter(|_| key == before) {
                held.lock_of[at] = held.lock_of[at - 1];
                expected.push(same);
                continue;
            }
            before = key;
            let mut new = self.derive(key);
            // Where another thread is at work nothing is waited for; maybe it is this very thread.
            held.locks[at] = self.engine().partitions[usize::from(new.partition)].try_lock();
            let lock = match &held.locks[at] {
                Some(_) => at,
                None => expected.iter().position(|other| other.partition == new.partition).unwrap_or(at),
            };
            held.lock_of[at] = lock as u8;
            if let Some(partition) = &held.locks[lock] {
                new.slot = partition.prefetch_fingerprints(db, new.digest);
            }
            expected.push(new);
        }
        prefetch_entries(db, expected, |at, _| held.locks[usize::from(held.lock_of[at])].as_deref());
        held
    }
}
