//! How much a transaction may write: what it will come to is reserved in the log before anything changes.
//!
//! A batch up to [`SMALL_BYTES`] needs no reservation, only that the log [admits](Store::admit) it; what makes a larger one
//! reserves all of it. So a command either has room for all that it writes, or stops before its first change.

use super::{Error, Result, Txn};
use crate::store::{Inner, Store};
use holdfast_log::{Admission, Log, Purpose, Reservation, SMALL_BYTES, batch_len};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that a batch may take beyond what was reserved for it: an encoding changes, an index splits.
const SLACK_BYTES: usize = 2 * SMALL_BYTES;
/// Bytes of redo that an element of a collection takes at most beside its own, on average over many.
const REDO_OF_ELEMENT: usize = 256;
/// An element's bytes count twice up to so many: as long as it lies among others, it is moved with them.
const MOVED_BYTES: usize = 1024;
/// Elements whose change needs no reservation of its own.
pub(crate) const FEW_ELEMENTS: u64 = 64;
/// Bytes of redo that a command writes whatever its arguments.
const REDO_OF_COMMAND: usize = 4096;

/// Bytes of log that `elements` arguments of a command, of `bytes` together, come to at most. What a command makes of
/// values that are stored already is not in it.
#[inline]
pub fn redo_max(elements: usize, bytes: usize) -> usize {
    bytes + bytes.min(MOVED_BYTES * elements) + REDO_OF_ELEMENT * elements + REDO_OF_COMMAND
}

/// What a transaction may write.
pub(super) struct Allowance<'s> {
    reservation: Reservation<'s>,
    purpose: Purpose,
    /// Whether the transaction can be run again if it has to wait.
    may_wait: bool,
    /// Whether all that it writes was to be reserved.
    is_bounded: bool,
    /// Bytes that the arguments of the command come to.
    expected: usize,
}

impl<'s> Allowance<'s> {
    #[inline]
    pub fn new(log: &'s Log) -> Self {
        let reservation = Reservation::new(log);
        Allowance { reservation, purpose: Purpose::Write, may_wait: false, is_bounded: false, expected: 0 }
    }

    /// Bytes that its batch may have.
    #[inline]
    fn bytes(&self) -> usize {
        SMALL_BYTES.max(self.reservation.bytes() as usize)
    }

    /// Sees that the batch is no larger than was reserved (I-16).
    #[inline]
    pub fn check(&self, bytes: usize) {
        let allowed = self.bytes() + SLACK_BYTES;
        debug_assert!(!self.is_bounded || bytes <= allowed, "I-16: {bytes} bytes where {allowed} may be");
    }

    /// Gives back what the batch needs no longer, now that it is appended.
    #[inline]
    pub fn end(&mut self) {
        self.reservation.release(u64::MAX);
    }

    /// Adds what is wanted besides, without waiting; whether there is room.
    pub fn add(&mut self, bytes: usize) -> bool {
        self.reservation.add(batch_len(bytes), self.purpose).is_ok()
    }

    /// Sees to it that the batch may have so many bytes, the last of which are for a removal, without waiting; whether there is
    /// room.
    fn includes_removal(&mut self, bytes: usize) -> bool {
        let more = batch_len(bytes).saturating_sub(self.reservation.bytes());
        bytes <= self.bytes() || self.reservation.add(more, Purpose::Remove).is_ok()
    }
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
        self.reserve(bytes)
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

    /// The same for these elements.
    pub(crate) fn reserve_each<'e>(&mut self, elements: impl Iterator<Item = &'e [u8]>) -> Result<()> {
        let (count, bytes) = elements.fold((0, 0), |(n, bytes), element| (n + 1, bytes + element.len()));
        self.reserve_elements(count, bytes)
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
        let (store, allowance) = (self.store, &mut self.allowance);
        let has_changed = !self.batch.is_empty();
        let may_wait = allowance.may_wait && !has_changed;
        if may_wait && store.shared.log.is_busy() {
            return Err(Error::NotAdmitted(Admission::Busy));
        }
        let more = batch_len(wanted) - allowance.reservation.bytes();
        allowance.reservation.add(more, allowance.purpose).map_err(|refusal| {
            let refusal = if may_wait { store.judge(refusal, more) } else { refusal };
            Error::NotAdmitted(refusal)
        })
    }
}

impl Inner {
    /// What a refusal of a batch of `bytes` comes to: while the cleaner can make room for it, a full log is a busy one.
    pub fn judge(&self, refusal: Admission, bytes: u64) -> Admission {
        if refusal == Admission::Full && self.options.background && bytes < self.no_room.load(Relaxed) {
            self.wanted_room.fetch_max(bytes, Relaxed);
            self.wake_maintenance();
            return Admission::Busy;
        }
        refusal
    }
}

impl Store {
    /// Whether a batch of about `bytes` that makes data grow may be written now. While the cleaner can make room, a full
    /// log is a busy one. A batch that may come to more than 32 KiB must [reserve](Txn::reserve) that, too.
    #[inline(always)]
    pub fn admit(&self, bytes: usize) -> Admission {
        match self.log().admit(bytes) {
            Admission::Full => self.inner.judge(Admission::Full, batch_len(bytes)),
            admission => admission,
        }
    }

    /// As [`Store::admit`], for what removes data: it may use what is kept back for that.
    #[inline]
    pub fn admit_removal(&self, bytes: usize) -> Admission {
        match self.log().admit_for(bytes, Purpose::Remove) {
            Admission::Full => self.inner.judge(Admission::Full, batch_len(bytes)),
            admission => admission,
        }
    }
}
