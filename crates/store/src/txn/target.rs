//! What is derived from a key, once for all that is done to it.

use crate::{
    engine::Engine,
    format::digest::Digest,
    partition::{Partition, index::Slot},
};
use std::{cell::Cell, ptr};

/// What is derived from a key that a command will look at; see [`Store::expect`](crate::Store::expect).
#[derive(Clone, Copy)]
pub struct Expected {
    pub(crate) partition: u16,
    pub(crate) digest: Digest,
    /// Where its entry was found, if it was: it may be elsewhere now.
    pub(crate) slot: Option<Slot>,
}

impl Expected {
    /// Derives it; nothing is known of the entry.
    #[inline]
    pub(crate) fn derive(engine: &Engine, key: &[u8]) -> Expected {
        Expected { partition: engine.partition_of(key), digest: engine.shared.secret.digest(key), slot: None }
    }
}

/// A key of a database, with what is derived from it.
#[derive(Clone, Copy)]
pub(crate) struct Target<'k> {
    pub db: u8,
    pub key: &'k [u8],
    pub partition: u16,
    pub digest: Digest,
    /// Where its entry may be.
    pub slot: Option<Slot>,
}

impl<'k> Target<'k> {
    #[inline]
    pub fn new(db: u8, key: &'k [u8], expected: Expected) -> Target<'k> {
        let Expected { partition, digest, slot } = expected;
        Target { db, key, partition, digest, slot }
    }
}

/// Asks for the memory of the entries of some keys of a database, and then of their cached values: each step for all keys,
/// so that their cache misses overlap. Their slots are those of their fingerprints ([`Partition::prefetch_fingerprints`]),
/// and those of their entries afterwards. `partition` is that of the key at a place, if it is locked.
pub(crate) fn prefetch_entries<'p, K: AsMut<Expected>>(
    db: u8,
    keys: &mut [K],
    mut partition: impl FnMut(usize, &Expected) -> Option<&'p Partition>,
) {
    for (at, key) in keys.iter_mut().enumerate() {
        let key = key.as_mut();
        if let (Some(partition), Some(slot)) = (partition(at, key), key.slot) {
            key.slot = partition.prefetch_entry(db, slot, key.digest);
        }
    }
    for (at, key) in keys.iter_mut().enumerate() {
        let key = key.as_mut();
        if let (Some(partition), Some(slot)) = (partition(at, key), key.slot) {
            partition.prefetch_copy(db, slot);
        }
    }
}

impl AsMut<Expected> for Expected {
    fn as_mut(&mut self) -> &mut Expected {
        self
    }
}

/// A key with what was derived from it, in whatever database.
#[derive(Clone, Copy)]
pub(crate) struct KnownKey<'k> {
    pub key: &'k [u8],
    pub expected: Expected,
}

impl AsMut<Expected> for KnownKey<'_> {
    fn as_mut(&mut self) -> &mut Expected {
        &mut self.expected
    }
}

/// The keys that a transaction was begun for.
#[derive(Default)]
pub(crate) struct Known<'k> {
    /// The only one.
    one: Option<KnownKey<'k>>,
    /// Or some, in the order in which they are probably looked at.
    many: Vec<KnownKey<'k>>,
    /// The place among those of the one that is probably next.
    next: Cell<usize>,
}

impl<'k> Known<'k> {
    pub fn one(key: &'k [u8], expected: Expected) -> Known<'k> {
        Known { one: Some(KnownKey { key, expected }), ..Known::default() }
    }

    pub fn many(keys: Vec<KnownKey<'k>>) -> Known<'k> {
        Known { many: keys, ..Known::default() }
    }

    /// What was derived from a key, if it is one of them.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<Expected> {
        match self.one {
            // Mostly it is the same memory; a script has a copy.
            Some(one) if ptr::eq(one.key, key) || one.key == key => Some(one.expected),
            Some(_) => None,
            None => self.find_next(key),
        }
    }

    fn find_next(&self, key: &[u8]) -> Option<Expected> {
        let is_it = |at: &usize| self.many.get(*at).is_some_and(|known| ptr::eq(known.key, key));
        // Who looks at one once more stays with it, and who looks at all once more begins again.
        let next = self.next.get();
        let at = [next, next.wrapping_sub(1), 0].into_iter().find(is_it)?;
        self.next.set(at + 1);
        Some(self.many[at].expected)
    }
}
