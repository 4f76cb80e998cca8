//! When keys were used last, or how often ([`crate::Uses`]).

use super::{Txn, target::Target};
use crate::partition::Found;

impl Txn<'_> {
    /// Takes note of a use of a key that was found, unless this is not to be.
    #[inline]
    pub(super) fn note_use(&mut self, target: Target<'_>, found: Found) {
        if self.notes_uses {
            self.locks.get(target.partition).touch(target.db, found.slot);
        }
    }

    /// Whether a key is there. Is a use of it.
    pub fn touch(&mut self, db: u8, key: &[u8]) -> bool {
        let target = self.target(db, key);
        let Some(found) = self.find(target) else { return false };
        self.note_use(target, found);
        true
    }

    /// Takes note of a use of a key, if it is there, which is found out elsewhere.
    pub fn use_key(&mut self, db: u8, key: &[u8]) {
        let (target, shared) = (self.target(db, key), self.shared());
        if let Some(found) = self.locks.get(target.partition).find(shared, db, target.digest) {
            self.note_use(target, found);
        }
    }

    /// Seconds since a key was used last, or since the store was opened. `None`: there is no such key, or uses are counted.
    pub fn idle_s(&mut self, db: u8, key: &[u8]) -> Option<u32> {
        let target = self.target(db, key);
        let found = self.find(target)?;
        let part = self.locks.get(target.partition);
        part.meter().idle_s(part.known(db, found.slot))
    }

    /// The count of uses of a key. `None`: there is no such key, or uses are not counted.
    pub fn uses(&mut self, db: u8, key: &[u8]) -> Option<u8> {
        let target = self.target(db, key);
        let found = self.find(target)?;
        let part = self.locks.get(target.partition);
        part.meter().count(part.known(db, found.slot))
    }

    /// Says that a key was used last so many seconds ago; no effect while uses are counted.
    pub fn set_idle_s(&mut self, db: u8, key: &[u8], idle_s: u64) {
        let target = self.target(db, key);
        let known = self.locks.get(target.partition).meter().idle_for(idle_s);
        if let Some(known) = known {
            self.set_known(target, known);
        }
    }

    /// Sets the count of uses of a key; no effect while uses are not counted.
    pub fn set_uses(&mut self, db: u8, key: &[u8], count: u8) {
        let target = self.target(db, key);
        let known = self.locks.get(target.partition).meter().counted(count);
        if let Some(known) = known {
            self.set_known(target, known);
        }
    }

    /// What is known of the uses of a key that is there.
    pub(super) fn known(&mut self, target: Target<'_>) -> Option<u32> {
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        part.find(shared, target.db, target.digest).map(|found| part.known(target.db, found.slot))
    }

    /// Says what is known of the uses of a key, if it is there.
    pub(super) fn set_known(&mut self, target: Target<'_>, known: u32) {
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        if let Some(found) = part.find(shared, target.db, target.digest) {
            part.set_known(target.db, found.slot, known);
        }
    }
}
