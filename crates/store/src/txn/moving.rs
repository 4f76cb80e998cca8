//! Items that are appended again: the cleaner moves those that are live out of segments that are to be freed.

use super::Txn;
use crate::{
    format::{digest::Digest, item::Item},
    partition::Found,
};
use holdfast_log::Lsn;

impl Txn<'_> {
    /// Asks for the memory that [`Txn::move_item`] will look at.
    pub(crate) fn prefetch(&mut self, db: u8, digest: Digest) {
        self.locks.first().1.prefetch_fingerprints(db, digest);
    }

    /// The entry of an item of the transaction's partition, if that still names it.
    pub(crate) fn live_item(&mut self, item: &Item, digest: Digest, lsn: Lsn) -> Option<Found> {
        let shared = self.shared();
        let found = self.locks.first().1.find(shared, item.db, digest)?;
        let word = found.word;
        let is_live =
            !word.in_heap() && word.pending_number().is_none() && word.lsn(shared.log.tail()) == lsn;
        is_live.then_some(found)
    }

    /// Appends an item of the transaction's partition again if it is still what its key's entry names; whether it was.
    pub(crate) fn move_item(&mut self, item: &Item, digest: Digest, lsn: Lsn) -> bool {
        let Some(found) = self.live_item(item, digest, lsn) else { return false };
        self.batch.moves = true;
        let part = self.locks.first().1;
        part.move_item(self.engine.shared.as_ref(), &mut self.batch, found, item);
        true
    }
}
