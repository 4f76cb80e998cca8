//! Values that come to a key from another one.

use super::{Found, Partition};
use crate::{
    collections::serial::ImportError,
    format::{
        digest::Digest,
        entry_word::{EntryWord, Type},
    },
    partition::{batch::Batch, shared::Shared},
};
use holdfast_heap::{Arena, Tx};

impl Partition {
    /// Makes an object of this arena the value of a key, whatever it held, with an expiry or without. `make` returns the
    /// object; all that can lack room besides is done before.
    ///
    /// # Errors
    /// [`ImportError::Full`], and what `make` returns: nothing has changed.
    #[allow(clippy::too_many_arguments)]
    pub fn install(
        &mut self,
        shared: &Shared,
        batch: &mut Batch,
        db: u8,
        digest: Digest,
        found: Option<Found>,
        ty: Type,
        expiry: Option<u64>,
        make: impl FnOnce(&mut Arena, &mut Tx) -> Result<u64, ImportError>,
    ) -> Result<(), ImportError> {
        let slot = match found {
            Some(found) => found.slot,
            None => self.databases[db as usize].keys.insert(&mut self.arena, batch, digest)?,
        };
        let expired_before = found.is_some_and(|found| found.word.has_expiry());
        let begins_to_expire = expiry.is_some() && !expired_before;
        let mut made = Ok(0);
        if begins_to_expire {
            let expires = &mut self.databases[db as usize].expires;
            made = expires.insert(&mut self.arena, batch, digest).map(|_| 0).map_err(ImportError::from);
        }
        if made.is_ok() {
            made = make(&mut self.arena, &mut batch.tx);
            if made.is_err() && begins_to_expire {
                self.remove_expiry(batch, db, digest);
            }
        }
        if made.is_err() && found.is_none() {
            self.databases[db as usize].keys.remove(&mut self.arena, batch, slot);
        }
        let offset = made?;
        let known = self.known_of_new(db, found, false);
        if let Some(found) = found {
            self.drop_value(shared, batch, db, found);
        }
        match expiry {
            Some(at) => {
                let expires = &mut self.databases[db as usize].expires;
                let slot = expires.find(&self.arena, digest).expect("it was there or was inserted above");
                expires.set_word(&mut self.arena, batch, slot, EntryWord::expiry(at));
            }
            None if expired_before => self.remove_expiry(batch, db, digest),
            None => {}
        }
        let word = EntryWord::object(ty, offset).with_expiry(expiry.is_some());
        self.databases[db as usize].keys.set_word(&mut self.arena, batch, slot, word);
        self.set_known(db, slot, known);
        Ok(())
    }

    /// Removes a key whose value has become another key's, or is gone.
    pub fn forget(&mut self, batch: &mut Batch, db: u8, digest: Digest, found: Found) {
        if found.word.has_expiry() {
            self.remove_expiry(batch, db, digest);
        }
        self.databases[db as usize].keys.remove(&mut self.arena, batch, found.slot);
    }
}
