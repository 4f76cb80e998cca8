//! How copies of items in all partitions yield to what else takes memory ([`Budget`](crate::partition::budget::Budget)).

use super::Engine;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Chunks of copies that a transaction lets go at most when the heap takes an extent: a few times as much memory.
const CHUNKS_A_GROWTH: usize = 16;
/// And those that go between two looks at the memory.
const CHUNKS_A_LOOK: usize = 64;

/// What came of having copies yield.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Yielded {
    /// They take no more than they may.
    Enough,
    /// They still do.
    More,
    /// They do, and none can go now.
    InVain,
}

impl Engine {
    /// Has copies, and the log's room, yield to the heap, which has just grown by so many bytes in the middle of a transaction.
    pub fn note_growth(&self, bytes: u64) {
        self.shared.log.add_medium_reserve(self.shared.heap.file_growth_of(bytes));
        if self.shared.budget.max() != usize::MAX {
            self.shared.budget.judge_data();
            self.yield_copies(CHUNKS_A_GROWTH);
        }
    }

    /// Whether more of the heap may be loaded that nobody has asked for.
    pub fn has_room_to_load(&self) -> bool {
        let budget = &self.shared.budget;
        budget.max() == usize::MAX || budget.ram_of_data().all < budget.freeze_to()
    }

    /// Lets copies go until there are no more than may be, or none can go; for the memory thread.
    pub fn fit_copies(&self, stop: &AtomicBool) {
        let mut yielded = self.yield_copies(CHUNKS_A_LOOK);
        while yielded == Yielded::More && !stop.load(Relaxed) {
            self.shared.judge_memory();
            yielded = self.yield_copies(CHUNKS_A_LOOK);
        }
        self.shared.budget.set_in_vain(yielded == Yielded::InVain);
    }

    /// Lets copies go while there are more than may be, a chunk of each partition in turn, at most so many. Waits for nobody: a
    /// partition that is locked is passed over. So it may be called with any locked.
    pub fn yield_copies(&self, chunks_max: usize) -> Yielded {
        let budget = &self.shared.budget;
        let (mut chunks, mut in_vain) = (0, 0);
        while budget.copies_are_over() {
            if chunks == chunks_max {
                return Yielded::More;
            }
            if in_vain == self.partitions.len() {
                return Yielded::InVain;
            }
            let part = self.partitions[budget.next_partition()].try_lock();
            match part.is_some_and(|mut part| part.let_copies_go(&self.shared)) {
                true => (chunks, in_vain) = (chunks + 1, 0),
                false => in_vain += 1,
            }
        }
        Yielded::Enough
    }
}
