//! Who gets how much of the RAM (I-7).
//!
//! The heap, the volatile side of the indexes, and what the process holds besides (log buffers, clients, the program) take what
//! they need. Copies of items get what is left of the limit, and yield when any of the others grows: the partition that takes
//! a copy in trims itself if it has its share or more, a transaction that makes the heap grow lets copies of other
//! partitions go (`Engine::yield_copies`), and the memory thread (`maintenance/freezer.rs`) looks after the rest.
//!
//! Most of the heap can leave memory, too. How much of it stays is where pages and copies would gain the same from a byte more
//! ([`Budget::balance`]): what has just left, and is read again, tells what more memory would have saved on either side.
//!
//! Data that is no copy can only be refused, when it alone is more than the limit. What the process holds besides, and free
//! pages of the heap, make the limit of data smaller only beyond a share that they may take.

use crate::partition::index::HandleMemory;
use holdfast_heap::{EXTENT, Heap};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::Thread,
};

/// Bytes that copies may have whatever else takes memory.
const COPIES_MIN: usize = 256 << 10;
/// A copy that would take more than this part of what copies may have is not made.
const COPY_SHARE: usize = 8;
/// What all else in the process may take until data may be less for its sake: a part of the limit, and at least this.
const BESIDE_SHARE: usize = 16;
const BESIDE_MIN: usize = 32 << 20;
/// What free pages of the heap may take, likewise; and at most such a part counts.
const FREE_SHARE: usize = 16;
/// Memory is restless if it has changed by such a part of the limit since the last look.
const CALM_SHARE: usize = 512;

/// Steps that the limit is divided into between data and copies.
const STEPS: usize = 64;
/// Steps that data may take at least, however much copies want them, and at most.
const DATA_MIN: usize = 16;
const DATA_MAX: usize = 48;
/// Beyond what it may take, data leaves until it takes so many steps less.
const DATA_LESS: usize = 4;
/// Reads, of what had just left memory, from which it is told who gains more from a step.
const RETURNS: u64 = 1024;
/// How many times as much that has to be.
const GAIN: f64 = 1.25;

/// Whether there is memory for data to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Memory {
    /// There is.
    Ok,
    /// Room is being made.
    Busy,
    /// There is none, and none can be made.
    Out,
}

/// What the store calls to learn about the process that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// RAM of the process, in bytes. It is called often.
    pub resident_bytes: fn() -> u64,
    /// Has the allocator give memory back that it keeps. It may take a while.
    pub give_back: fn(),
}

/// The RAM that a store may take, and what takes it, in bytes.
pub(crate) struct Budget {
    heap: Arc<Heap>,
    keeps_copies: bool,
    process: Option<Process>,
    partitions: usize,
    max: AtomicUsize,
    /// What caches hold.
    copies: AtomicIsize,
    /// What indexes hold beside the heap. They count it themselves.
    index: Arc<HandleMemory>,
    /// What the process holds besides, when it was looked last.
    beside: AtomicUsize,
    /// What data takes, copies aside, when it was looked last.
    taken: AtomicUsize,
    /// Steps that it may take until some of it leaves.
    data_steps: AtomicUsize,
    /// Copies that were read again soon after they had left.
    returned_copies: AtomicU64,
    /// How many of them, and of pages, that were when it was last judged who gains more from memory.
    weighed: Mutex<[u64; 2]>,
    /// All of it at the last look.
    sum_before: AtomicUsize,
    memory: AtomicU8,
    evicts: AtomicBool,
    /// Whether collections may still be frozen to make room.
    pub can_freeze: AtomicBool,
    /// Who makes room when it is asked to.
    thread: OnceLock<Thread>,
    asked: AtomicBool,
    /// It has found no copy that could go when it looked last.
    in_vain: AtomicBool,
    /// The partition that the next copies are taken from.
    hand: AtomicUsize,
}

/// What data takes, in bytes.
pub(crate) struct Taken {
    /// As far as data can be refused for it.
    pub data: usize,
    /// With all that its pages take besides, beyond what is to be expected: much is free in these pages when other sizes are
    /// wanted than were before.
    pub all: usize,
}

impl Budget {
    pub fn new(
        heap: Arc<Heap>,
        process: Option<Process>,
        partitions: usize,
        max: usize,
        keeps_copies: bool,
    ) -> Budget {
        let budget = Budget {
            heap,
            keeps_copies,
            process,
            partitions,
            max: AtomicUsize::new(max),
            copies: AtomicIsize::new(0),
            index: Arc::default(),
            beside: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            data_steps: AtomicUsize::new(DATA_MAX),
            returned_copies: AtomicU64::new(0),
            weighed: Mutex::default(),
            sum_before: AtomicUsize::new(0),
            memory: AtomicU8::new(Memory::Ok as u8),
            evicts: AtomicBool::new(false),
            can_freeze: AtomicBool::new(false),
            thread: OnceLock::new(),
            asked: AtomicBool::new(false),
            in_vain: AtomicBool::new(false),
            hand: AtomicUsize::new(0),
        };
        if !keeps_copies {
            budget.index.keep_no_marks();
        }
        budget
    }

    #[inline]
    pub fn keeps_copies(&self) -> bool {
        self.keeps_copies
    }

    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Relaxed);
    }

    /// Says whether keys are evicted when there is no memory for all data.
    pub fn set_evicts(&self, on: bool) {
        self.evicts.store(on, Relaxed);
    }

    /// Whether keys are evicted: then it is eviction that says whether data may grow.
    #[inline]
    pub fn evicts(&self) -> bool {
        self.evicts.load(Relaxed)
    }

    /// Which keys go is told by their uses; else, where half of the limit is taken, room for copies is worth more than to know the
    /// uses of all.
    fn judge_scarcity(&self, taken: usize) {
        self.index.set_scarce(taken > self.max() / 2 && !self.evicts.load(Relaxed));
    }

    #[inline]
    pub fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    /// Where indexes count what they hold beside the heap.
    pub fn index_memory(&self) -> Arc<HandleMemory> {
        self.index.clone()
    }

    pub fn add_copies(&self, bytes: isize) {
        self.copies.fetch_add(bytes, Relaxed);
    }

    #[inline]
    pub fn copies(&self) -> usize {
        self.copies.load(Relaxed).max(0) as usize
    }

    /// What is no copy.
    #[inline]
    fn others(&self) -> usize {
        self.heap.held_bytes() as usize + self.index.bytes() + self.beside.load(Relaxed)
    }

    #[inline]
    fn copies_max(&self) -> usize {
        self.max().saturating_sub(self.others()).max(COPIES_MIN)
    }

    /// Whether copies take more than they may have.
    #[inline]
    pub fn copies_are_over(&self) -> bool {
        self.max() != usize::MAX && self.copies() > self.copies_max()
    }

    /// Whether all that there is takes more than it may.
    pub fn is_over(&self) -> bool {
        self.others() + self.copies() > self.max()
    }

    /// Whether a partition's copies are as much as those of the others, or more.
    pub fn is_a_share(&self, bytes: usize) -> bool {
        bytes.saturating_mul(self.partitions) >= self.copies()
    }

    /// Bytes that one copy may have: it is to drive out few others.
    #[inline]
    pub fn copy_max(&self) -> usize {
        match self.max() {
            usize::MAX => usize::MAX,
            _ => self.copies_max() / COPY_SHARE,
        }
    }

    pub fn set_memory(&self, memory: Memory) {
        self.memory.store(memory as u8, Relaxed);
    }

    /// Whether there is memory for data to grow.
    #[inline]
    pub fn memory(&self) -> Memory {
        match self.memory.load(Relaxed) {
            0 => Memory::Ok,
            1 => Memory::Busy,
            _ => Memory::Out,
        }
    }

    /// Bytes that the process may hold besides until data may be less for it.
    fn beside_max(&self) -> usize {
        (self.max() / BESIDE_SHARE).max(BESIDE_MIN)
    }

    /// Whether the process holds more besides.
    pub fn beside_is_over(&self) -> bool {
        self.beside.load(Relaxed) > self.beside_max()
    }

    /// Whether collections that are not in use should leave the heap: the cache is to have a part of the memory, too.
    pub fn wants_freezing(&self) -> bool {
        self.taken.load(Relaxed) > self.max() / STEPS * self.data_steps.load(Relaxed)
    }

    /// Bytes of data down to which they then should.
    pub fn freeze_to(&self) -> usize {
        self.max() / STEPS * (self.data_steps.load(Relaxed) - DATA_LESS)
    }

    /// Counts a copy that was read again soon after it had left.
    pub fn count_returned_copy(&self) {
        self.returned_copies.fetch_add(1, Relaxed);
    }

    /// Gives data, or copies, a step of the limit from the other: each read of what has just left memory would have been saved by more of it,
    /// so who has more of these reads a byte gains more. Goes on only once both take what they may.
    fn balance(&self) {
        let Some(mut weighed) = self.weighed.try_lock() else { return };
        let (step, steps) = ((self.max() / STEPS).max(1), self.data_steps.load(Relaxed));
        let (held, pinned) = (self.heap.held_bytes() as usize, self.heap.pinned_bytes() as usize);
        let least = ((pinned + self.index.bytes()) / step + 2 * DATA_LESS).clamp(DATA_MIN, DATA_MAX);
        let now = [self.returned_copies.load(Relaxed), self.heap.returned_pages()];
        let [copies, pages] = [0, 1].map(|side| now[side] - weighed[side]);
        let mut wanted = steps;
        if copies + pages >= RETURNS {
            *weighed = now;
            let gain = |reads: u64, bytes: usize| reads as f64 / bytes.max(step) as f64;
            let (by_copies, by_pages) =
                (gain(copies, self.copies()), gain(pages, held.saturating_sub(pinned)));
            let taken = self.taken.load(Relaxed);
            let is_full = self.copies() + step >= self.copies_max() && taken <= steps * step;
            if by_copies > GAIN * by_pages && is_full {
                wanted -= 1;
            } else if by_pages > GAIN * by_copies && taken > (steps - DATA_LESS) * step {
                wanted += 1;
            }
        }
        self.data_steps.store(wanted.clamp(least, DATA_MAX), Relaxed);
    }

    /// Whether collections that are only looked at may come back to the heap.
    pub fn has_room_in_heap(&self) -> bool {
        !self.wants_freezing()
    }

    /// Says which thread makes room when it is asked to.
    pub fn set_thread(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Asks the memory thread to let copies go; whether there is one.
    pub fn ask_for_room(&self) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        if !self.asked.swap(true, Relaxed) {
            thread.unpark();
        }
        true
    }

    /// The memory thread begins to do what it was asked so far.
    pub fn take_request(&self) {
        self.asked.store(false, Relaxed);
    }

    /// Notes whether it has found copies that can go.
    pub fn set_in_vain(&self, in_vain: bool) {
        self.in_vain.store(in_vain, Relaxed);
    }

    /// Finds out what the process holds besides, with `buffers` of the log, and whether data may grow. Locks nothing. Returns
    /// whether memory changes, so that another look should be soon.
    pub fn judge(&self, buffers: usize) -> bool {
        let counted = self.heap.held_bytes() as usize + self.index.bytes() + self.copies();
        let process = self.process.map_or(0, |process| (process.resident_bytes)() as usize);
        self.beside.store(process.saturating_sub(counted).max(buffers), Relaxed);
        self.judge_data();
        if self.max() != usize::MAX {
            self.balance();
        }
        let sum = counted + self.beside.load(Relaxed);
        self.judge_scarcity(sum);
        sum.abs_diff(self.sum_before.swap(sum, Relaxed)) > self.max() / CALM_SHARE
    }

    /// Finds out whether there is memory for data to grow, unless eviction does.
    pub fn judge_data(&self) {
        let taken = self.ram_of_data();
        self.taken.store(taken.all, Relaxed);
        if !self.evicts() {
            let is_over = taken.data > self.max();
            self.set_memory(match (is_over, self.can_freeze.load(Relaxed)) {
                (false, _) => Memory::Ok,
                (true, true) => Memory::Busy,
                (true, false) => Memory::Out,
            });
        }
    }

    /// Bytes that data takes which is no copy.
    pub fn ram_of_data(&self) -> Taken {
        let (max, absent) = (self.max(), self.heap.absent_bytes() as usize);
        let first = self.partitions * EXTENT as usize;
        // Of what is absent nobody knows what is free.
        let allocated = (self.heap.allocated_bytes() as usize).saturating_sub(absent);
        let free = (self.heap.held_bytes() as usize).saturating_sub(allocated);
        let beside = self.beside.load(Relaxed).saturating_sub(self.beside_max());
        let data = allocated + self.index.bytes() + beside;
        let counted_free = free.saturating_sub(first.max(max / FREE_SHARE)).min(max / FREE_SHARE);
        Taken { data: data + counted_free, all: data + free.saturating_sub(first.max(max / 8)) }
    }

    /// Has the allocator give memory back that it keeps.
    pub fn give_back(&self) {
        self.process.inspect(|process| (process.give_back)());
    }

    /// Whether copies take more than they may have, and a thread is letting them go.
    pub fn is_making_room(&self) -> bool {
        self.copies_are_over() && !self.in_vain.load(Relaxed) && self.thread.get().is_some()
    }

    /// The partition that is to let the next copies go.
    pub fn next_partition(&self) -> usize {
        self.hand.fetch_add(1, Relaxed) % self.partitions
    }
}
