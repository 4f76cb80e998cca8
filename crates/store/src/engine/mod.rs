//! The engine: what transactions run on, and what maintenance keeps in order. Partitions behind their locks, and what all of
//! them share.

pub mod counters;
mod fetch;
pub mod growth;
pub mod locks;
pub mod memory;
pub mod steps;

use crate::{
    format::digest::{SLOTS, hash_slot},
    partition::{Partition, shared::Shared},
    util::lock::{Guard, Lock},
};
use counters::Counters;
use growth::Growth;
use holdfast_io::{ReadQueue, Result};
use holdfast_log::Admission;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::Thread,
};
use steps::Steps;

pub(crate) struct Engine {
    pub shared: Arc<Shared>,
    pub partitions: Box<[Lock<Partition>]>,
    pub steps: Steps,
    pub growth: Growth,
    pub counters: Counters,
    pub room: Room,
    /// For what is fetched together; nothing is under way in them.
    queues: Mutex<Vec<ReadQueue>>,
    /// The bits of a hash slot below those that name its partition.
    partition_shift: u32,
    /// Whether all entries are counted into the log's live bytes.
    is_attached: AtomicBool,
    /// The maintenance thread, if there is one.
    maintenance: OnceLock<Thread>,
}

/// What writers and the cleaner tell each other of the room in the log.
pub(crate) struct Room {
    /// The cleaner cannot make room for a batch of so many bytes or more.
    pub none_for: AtomicU64,
    /// Bytes of the largest batch that was refused since the cleaner looked, and waits for room.
    pub wanted: AtomicU64,
}

impl Engine {
    pub fn new(shared: Arc<Shared>, partitions: Box<[Lock<Partition>]>) -> Engine {
        Engine {
            shared,
            steps: Steps::default(),
            growth: Growth::new(partitions.len()),
            counters: Counters::default(),
            room: Room { none_for: AtomicU64::new(u64::MAX), wanted: AtomicU64::new(0) },
            queues: Mutex::default(),
            partition_shift: (SLOTS / partitions.len()).ilog2(),
            is_attached: AtomicBool::new(false),
            maintenance: OnceLock::new(),
            partitions,
        }
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: &[u8]) -> u16 {
        self.partition_of_slot(hash_slot(key))
    }

    /// The partition of a hash slot.
    pub fn partition_of_slot(&self, slot: u16) -> u16 {
        slot >> self.partition_shift
    }

    /// The numbers of all partitions.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.partitions.len() as u16
    }

    /// Locks a partition for a step of what the store does by itself.
    pub fn enter(&self, partition: u16) -> Guard<'_, Partition> {
        self.steps.before(&[partition]);
        self.partitions[usize::from(partition)].lock()
    }

    /// All partitions, each locked in its turn.
    pub fn enter_each(&self) -> impl Iterator<Item = Guard<'_, Partition>> {
        self.numbers().map(|number| self.enter(number))
    }

    /// Says which thread does maintenance.
    pub fn set_maintenance(&self, thread: Thread) {
        self.maintenance.get_or_init(|| thread);
    }

    /// Whether there is a thread that does maintenance.
    pub fn is_maintained(&self) -> bool {
        self.maintenance.get().is_some()
    }

    pub fn wake_maintenance(&self) {
        if let Some(thread) = self.maintenance.get() {
            thread.unpark();
        }
    }

    /// What a refusal of a batch of `bytes` comes to: while the cleaner can make room for it, a full log is a busy one.
    pub fn judge(&self, refusal: Admission, bytes: u64) -> Admission {
        if refusal == Admission::Full && self.is_maintained() && bytes < self.room.none_for.load(Relaxed) {
            self.room.wanted.fetch_max(bytes, Relaxed);
            self.wake_maintenance();
            return Admission::Busy;
        }
        refusal
    }

    /// Counts all entries that were not yet used since the start into the log's live bytes. Until then nothing is freed.
    pub fn attach_all(&self) {
        for partition in self.numbers() {
            let mut from = (0, 0);
            while self.enter(partition).attach_next(&self.shared, &mut from) {}
        }
        self.is_attached.store(true, Release);
    }

    /// Counts all entries anew into the log's live bytes, from now on as they are used, until [`Engine::attach_all`]. Nobody may write meanwhile.
    pub fn detach_all(&self) {
        self.is_attached.store(false, Release);
        self.shared.log.clear_live_bytes();
        self.enter_each().for_each(|mut part| part.call_unattached());
    }

    /// Whether all entries are counted into the log's live bytes.
    pub fn is_attached(&self) -> bool {
        self.is_attached.load(Acquire)
    }

    /// Applies all redo that replay has left waiting.
    pub fn finish_replay(&self) -> Result<()> {
        for (arena, extent) in self.shared.heap.with_redo() {
            self.enter(arena).arena.apply_redo(extent)?;
        }
        Ok(())
    }
}
