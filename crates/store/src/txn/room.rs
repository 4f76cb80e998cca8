//! How much a transaction may write: what it will come to is reserved in the log before anything changes.
//!
//! A batch up to [`SMALL_BYTES`](holdfast_log::SMALL_BYTES) needs no reservation, only that the log [admits](crate::Store::admit) it; what makes a larger one
//! reserves all of it. So a command either has room for all that it writes, or stops before its first change. The same holds of the
//! heap's memory: where that is scarce, what it may allocate is there before.

use super::{
    Txn,
    error::{Error, Result},
};
use crate::{
    collections::{PACKED_BYTES_MAX, REDO_OF_GROWTH, redo_max, serial, string},
    format::entry_word::Type,
};
use holdfast_heap::RoomNeeded;
use holdfast_log::{Admission, GROUP_BYTES_MAX, Log, Purpose, SMALL_BYTES, batch_len};

/// A log that takes so many bytes has room for whatever the commands of a transaction write besides their arguments.
const SCARCE_BYTES: usize = 64 << 20;

/// Bytes that a transaction may write at most: a batch of the log has less than 4 GiB, of which an encoding that changes takes some; and of a
/// log that other servers have, too, what they agree on at once.
pub(crate) fn batch_bytes_max(log: &Log) -> usize {
    const BATCH_MAX: usize = 4040 << 20;
    if log.is_shared() { GROUP_BYTES_MAX as usize } else { BATCH_MAX }
}

/// Elements whose change needs no reservation of its own.
pub(crate) const FEW_ELEMENTS: u64 = 64;

/// Bytes of redo beside the elements' of which so many bytes, or bytes of redo, come to a collection. What comes to a small one bit by bit
/// moves it to larger blocks, again and again; of few bytes that is within what need not be reserved.
pub(super) fn growth_of(bytes: usize) -> usize {
    if bytes > PACKED_BYTES_MAX / 2 { REDO_OF_GROWTH } else { 0 }
}

impl Txn<'_> {
    /// Says what the transaction is about to write, by its arguments, and for what, and has room for that. From then on it
    /// must reserve all that it writes beyond. `may_wait`: it can be run again if the log is busy.
    ///
    /// # Errors
    /// As [`Txn::reserve`].
    #[inline]
    pub fn expect(&mut self, bytes: usize, purpose: Purpose, may_wait: bool) -> Result<()> {
        self.allowance.purpose = purpose;
        self.allowance.may_wait = may_wait;
        self.allowance.is_bounded = true;
        self.allowance.expected = bytes;
        self.reserve(bytes)?;
        self.make_room(bytes)
    }

    /// Says what a further command of the transaction is about to write, by its arguments, and for the same purpose; whether that is so little
    /// that it needs no room of its own. If it is, the command can be run again, as the first one can, and else it is for another transaction.
    #[inline]
    pub fn expect_more(&mut self, bytes: usize) -> bool {
        let written = self.batch.tx.buf.len();
        if written + bytes > SMALL_BYTES || self.lacks_room(bytes) {
            return false;
        }
        (self.allowance.expected, self.allowance.before) = (bytes, written);
        true
    }

    /// Has room for all that some commands write, besides what their arguments come to, to what is at their keys: to bring a frozen collection back
    /// into the heap, to give one another encoding, or to write a string anew. With each key comes how many of them let its value grow. So all of
    /// them find room, or none. Not counted is what is not at hand, what is made of the value of another key, and what a place behind the end of a
    /// string adds to it. To be called before anything is changed.
    ///
    /// # Errors
    /// As [`Txn::reserve`].
    pub fn reserve_for_all<'k, K>(&mut self, keys: impl FnOnce() -> K) -> Result<()>
    where
        K: IntoIterator<Item = ((u8, &'k [u8]), usize)>,
    {
        let (log, purpose) = (&self.shared().log, self.allowance.purpose);
        // What only removes is not to wait for room that it may not need.
        if purpose == Purpose::Remove || log.admit_for(SCARCE_BYTES, purpose) == Admission::Ok {
            return Ok(());
        }
        let (counts_lookups, notes_uses) = (self.counts_lookups, self.notes_uses);
        (self.counts_lookups, self.notes_uses) = (false, false);
        let redo = |((db, key), times)| self.redo_of_changes(db, key, times);
        let redo: usize = keys().into_iter().map(redo).sum();
        (self.counts_lookups, self.notes_uses) = (counts_lookups, notes_uses);
        // Each of them has room only if what all come to by their arguments would fit behind what those before it have written.
        let expected = self.allowance.expected;
        self.reserve(2 * (expected + growth_of(expected)) + redo)
    }

    /// Bytes of redo that some changes of what is at a key take besides their arguments.
    fn redo_of_changes(&mut self, db: u8, key: &[u8], times: usize) -> usize {
        let target = self.target(db, key);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        match part.find_near(shared, target.db, target.digest, target.slot) {
            None => 0,
            Some(found) if found.word.ty() == Type::String && times == 0 => 0,
            Some(found) if found.word.ty() == Type::String && found.word.in_heap() => {
                let len = string::len(&part.arena, found.word.offset());
                string::redo_max(2 * times, 0, len + self.allowance.expected)
            }
            Some(found) if found.word.ty() == Type::String => {
                let len = self.get(db, key).map_or(0, |value| value.map_or(0, <[u8]>::len));
                // It may be cut into chunks.
                times * redo_max(1, len) + string::redo_max(2 * times, len, len + self.allowance.expected)
            }
            Some(found) if found.word.in_heap() => self.redo_of_conversion(target, found),
            // It may get another encoding then.
            Some(found) => 2 * self.frozen_bytes(target, found).map_or(0, |bytes| serial::redo_max(&bytes)),
        }
    }

    /// Sees to it that what lets data grow by so many bytes of redo will not lack memory in its midst. To be called before anything is
    /// changed.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.lacks_room(bytes) { self.make_scarce_room(bytes) } else { Ok(()) }
    }

    /// Whether what lets data grow by so many bytes of redo might lack memory.
    #[inline]
    fn lacks_room(&self, bytes: usize) -> bool {
        let grows = self.allowance.purpose == Purpose::Write && self.allowance.is_bounded;
        grows && !self.shared().heap.has_plenty(bytes)
    }

    #[cold]
    fn make_scarce_room(&mut self, bytes: usize) -> Result<()> {
        self.has_made_room = true;
        let (heap, tx, mut needed) = (&self.engine.shared.heap, &mut self.batch.tx, RoomNeeded::new(bytes));
        tx.give_back_aside(heap);
        self.locks.each(|part| needed.add(&mut part.arena));
        Ok(needed.set_aside(heap, tx)?)
    }

    /// The transaction cannot be run again from here on.
    pub fn end_waiting(&mut self) {
        self.allowance.may_wait = false;
    }

    /// Has room for `bytes` more than it has written so far. To be called before anything is changed that it is for.
    ///
    /// # Errors
    /// [`Error::NotAdmitted`].
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        let wanted = self.batch.tx.buf.len() + bytes;
        if wanted <= self.allowance.bytes() { Ok(()) } else { self.reserve_large(wanted) }
    }

    /// The same for what is written besides that which the command's arguments come to.
    #[inline]
    pub(crate) fn reserve_besides(&mut self, bytes: usize) -> Result<()> {
        self.reserve(bytes + self.allowance.expected)
    }

    /// As [`Txn::reserve`], for a change of `elements` elements of a collection, of `bytes` together.
    #[inline]
    pub fn reserve_elements(&mut self, elements: u64, bytes: usize) -> Result<()> {
        self.reserve(redo_max(elements as usize, bytes))
    }

    /// The same for a collection that is made of these elements.
    pub(crate) fn reserve_each<'e>(&mut self, elements: impl Iterator<Item = &'e [u8]>) -> Result<()> {
        let (count, bytes) = elements.fold((0, 0), |(n, bytes), element| (n + 1, bytes + element.len()));
        self.reserve(redo_max(count, bytes) + growth_of(bytes))
    }

    /// Whether the log takes a removal of about so many bytes now, which nobody has asked for; if so, there is room for it.
    #[cold]
    pub(super) fn takes_removal(&mut self, bytes: usize) -> bool {
        let bytes = self.batch.tx.buf.len() + bytes;
        let log = &self.shared().log;
        log.admit_for(bytes, Purpose::Remove) == Admission::Ok && self.allowance.includes_removal(bytes)
    }

    #[cold]
    fn reserve_large(&mut self, wanted: usize) -> Result<()> {
        let (engine, allowance) = (self.engine, &mut self.allowance);
        let has_changed = match allowance.before {
            0 => !self.batch.is_empty(),
            before => self.batch.tx.buf.len() > before,
        };
        let may_wait = allowance.may_wait && !has_changed;
        if may_wait && engine.shared.log.is_busy() {
            return Err(Error::NotAdmitted(Admission::Busy));
        }
        if wanted > batch_bytes_max(&engine.shared.log) {
            return Err(Error::TooLarge);
        }
        let more = batch_len(wanted) - allowance.reservation.bytes();
        let purpose = if has_changed { allowance.purpose_to_finish() } else { allowance.purpose };
        let reservation = &mut allowance.reservation;
        let added =
            if may_wait { reservation.add_or_wait(more, purpose) } else { reservation.add(more, purpose) };
        added.map_err(|refusal| {
            let refusal = if may_wait { engine.judge(refusal, more) } else { refusal };
            Error::NotAdmitted(refusal)
        })?;
        if has_changed { Ok(()) } else { self.make_room(wanted) }
    }
}
