//! Giving many keys their values at a time, for who imports.

use super::{Store, run::RETRY};
use crate::{
    collections::redo_max,
    txn::{
        Txn,
        error::{Error, Result},
        target::{Expected, KnownKey},
    },
};
use holdfast_log::{Admission, Purpose};
use std::thread;

/// Bytes of index that an entry takes, about, and the part of the memory that may be taken for entries that are only expected.
const ENTRY_BYTES: u64 = 24;
const MEMORY_SHARE: u64 = 4;

impl Store {
    /// Begins a transaction over keys of one partition of a database, which it will look at in this order, to give them values of so many
    /// elements of so many bytes together, keys included. There is room for that in log and memory, or it is waited for.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room in memory; [`Error::NotAdmitted`] if the log takes nothing more.
    pub fn begin_filling<'s>(
        &'s self,
        db: u8,
        partition: u16,
        keys: impl Iterator<Item = &'s [u8]>,
        elements: usize,
        bytes: usize,
    ) -> Result<Txn<'s>> {
        let secret = &self.shared().secret;
        let known = keys.map(|key| {
            debug_assert!(self.partition_of(key) == partition, "a key of another partition");
            KnownKey { key, expected: Expected { partition, digest: secret.digest(key), slot: None } }
        });
        let known: Vec<KnownKey> = known.collect();
        // What an element makes may get another encoding by the next.
        let redo = 2 * redo_max(known.len() + elements, bytes);
        loop {
            let mut txn = self.begin(&[partition]);
            if self.fills_without_redo {
                txn.record_nothing();
            }
            txn.expect(0, Purpose::Write, true)?;
            match self.admit_bytes(&mut txn, redo, true) {
                Ok(()) => {
                    txn.know_many(db, known);
                    return Ok(txn);
                }
                Err(Error::NotAdmitted(Admission::Busy)) => {}
                Err(error) => return Err(error),
            }
            drop(txn);
            self.log().kick();
            thread::sleep(RETRY);
        }
    }

    /// Makes the indexes of one partition of a database as large as so many keys will need, and so many that expire: so they need not grow
    /// step by step. Does nothing where there are keys already, where memory would be taken that others may need, and if what fills the store
    /// is to be in the log.
    pub fn expect_keys(&self, db: u8, partition: u16, keys: u64, expiring: u64) {
        let most =
            self.shared().budget.max() as u64 / u64::from(self.partitions()) / MEMORY_SHARE / ENTRY_BYTES;
        if !self.fills_without_redo || keys.saturating_add(expiring) > most {
            return;
        }
        let mut txn = self.begin(&[partition]);
        txn.record_nothing();
        txn.expect_keys(db, partition, keys, expiring);
        txn.commit();
    }
}
