//! What a transaction may write ([`room`](super::room)).

use holdfast_log::{Log, Purpose, Reservation, SMALL_BYTES, batch_len};

/// Bytes that a batch may take beyond what was reserved for it: an encoding changes, an index splits.
const SLACK_BYTES: usize = 2 * SMALL_BYTES;

/// What a transaction may write.
pub(crate) struct Allowance<'s> {
    pub reservation: Reservation<'s>,
    pub purpose: Purpose,
    /// Whether the transaction can be run again if it has to wait.
    pub may_wait: bool,
    /// Whether all that it writes was to be reserved.
    pub is_bounded: bool,
    /// Bytes that the arguments of the command come to.
    pub expected: usize,
    /// Bytes of the batch that commands before it have written.
    pub before: usize,
}

impl<'s> Allowance<'s> {
    #[inline]
    pub fn new(log: &'s Log) -> Self {
        let reservation = Reservation::new(log);
        Allowance {
            reservation,
            purpose: Purpose::Write,
            may_wait: false,
            is_bounded: false,
            expected: 0,
            before: 0,
        }
    }

    /// Bytes that its batch may have.
    #[inline]
    pub fn bytes(&self) -> usize {
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

    /// Reserves what needs no reservation as long as nobody else writes, as far as there is room.
    pub fn keep_small(&mut self) {
        let more = batch_len(SMALL_BYTES).saturating_sub(self.reservation.bytes());
        if more > 0 {
            // Without room it is refused when it wants some.
            let _ = self.reservation.add(more, self.purpose_to_finish());
        }
    }

    /// Whether it has.
    pub fn keeps_small(&self) -> bool {
        self.reservation.bytes() >= batch_len(SMALL_BYTES)
    }

    /// For what a transaction writes that has changed something.
    pub fn purpose_to_finish(&self) -> Purpose {
        if self.purpose == Purpose::Write { Purpose::Finish } else { self.purpose }
    }

    /// Adds what is wanted besides, without waiting; whether there is room.
    pub fn add(&mut self, bytes: usize) -> bool {
        self.reservation.add(batch_len(bytes), self.purpose).is_ok()
    }

    /// Sees to it that the batch may have so many bytes, the last of which are for a removal, without waiting; whether there is
    /// room.
    pub fn includes_removal(&mut self, bytes: usize) -> bool {
        let more = batch_len(bytes).saturating_sub(self.reservation.bytes());
        bytes <= self.bytes() || self.reservation.add(more, Purpose::Remove).is_ok()
    }
}
