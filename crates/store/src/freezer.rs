//! Freezing: collections that were not in use of late leave the heap for the log, as one item each.
//!
//! A walk goes around all keys like the hand of a clock. Who was in use since it passed before is let be this time; who
//! was not is frozen, and comes back when it is wanted (`txn/frozen.rs`). A slice of this is a batch of the log like any
//! other: the items, the release of the objects, and the entries that name the items instead.

use crate::{partition::PHYSICAL_DATABASES, store::Inner, store::Store, txn::Txn};
use holdfast_io::Result;
use holdfast_log::Admission;

/// Bytes of items that are made, and entries that are looked at, under one hold of a partition's lock.
const SLICE_BYTES: usize = 16 << 10;
const SLICE_ENTRIES: usize = 512;
/// Bytes of log that a slice may take: one collection may be larger than the rest of it.
const SLICE_LOG_BYTES: usize = 512 << 10;

/// Where the walk is.
#[derive(Default)]
pub(crate) struct Hand {
    partition: u16,
    db: u8,
    cursor: u64,
    /// How often it has been around.
    rounds: u64,
    /// The end of the log when the slice before was frozen.
    sent: u64,
}

impl Hand {
    /// Goes to the next database, or from the last one to the next partition.
    fn next(&mut self, partitions: u16) {
        (self.db, self.cursor) = (self.db + 1, 0);
        if self.db as usize == PHYSICAL_DATABASES {
            (self.db, self.partition) = (0, self.partition + 1);
        }
        if self.partition == partitions {
            self.partition = 0;
            self.rounds += 1;
        }
    }
}

impl Inner {
    /// Freezes collections until `enough` says so of the bytes of heap that they took, all that can be frozen were, or the
    /// log has no room. Returns how many bytes these were.
    pub fn freeze(&self, enough: impl Fn(u64) -> bool) -> Result<u64> {
        let mut hand = self.hand.lock();
        // All the way around at least once, since what was in use is frozen in the second round only.
        let last_round = hand.rounds + 3;
        let (log, mut bytes) = (&self.shared.log, 0);
        while hand.rounds < last_round && !enough(bytes) && log.admit(SLICE_LOG_BYTES) == Admission::Ok {
            bytes += self.freeze_slice(&mut hand)?;
        }
        log.kick();
        Ok(bytes)
    }

    fn freeze_slice(&self, hand: &mut Hand) -> Result<u64> {
        let (log, partitions) = (&self.shared.log, self.partitions.len() as u16);
        let is_rubbish = self.shared.databases.is_rubbish(hand.db);
        if is_rubbish || self.partitions[hand.partition as usize].lock().len(hand.db) == 0 {
            hand.next(partitions);
            return Ok(0);
        }
        let mut txn = Txn::begin(self, &[hand.partition], self.shared.io.now_ms());
        let slice = txn.freeze(hand.db, &mut hand.cursor, (SLICE_BYTES, SLICE_ENTRIES));
        txn.commit();
        if slice.ended {
            hand.next(partitions);
        }
        if slice.keys > 0 {
            // So that the log's buffers are not filled with what nobody waits for.
            log.wait_written(std::mem::replace(&mut hand.sent, log.tail()))?;
        }
        Ok(slice.bytes)
    }
}

impl Store {
    /// Freezes collections that take about so many bytes of the heap, those that were not in use of late first, and returns
    /// how many bytes those took that were. The store does so itself when it needs the memory.
    pub fn freeze(&self, bytes: u64) -> Result<u64> {
        self.inner.freeze(|frozen| frozen >= bytes)
    }
}
