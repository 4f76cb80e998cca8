//! Checkpoints: the heap's changed pages are written, and the superblock names them. A later start replays the log from there.

use super::condenser::{self, Condenser};
use crate::{
    engine::Engine,
    format::{
        bytes_written::{BytesWritten, WriteCause},
        superblock::{self, Superblock},
    },
    partition::Appended,
};
use holdfast_heap::Finished;
use holdfast_io::{Error, File, Result};
use holdfast_log::{Log, Lsn};
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::{Duration, Instant},
};

/// Pages that a checkpoint copies under one hold of a lock: some 10 µs.
const PAGES_A_SLICE: usize = 16;
/// Bytes that a checkpoint stages before it writes them.
const PAGES_A_WRITE: usize = 1024;
/// How long none is tried after one that has failed.
const FAILED_REST: Duration = Duration::from_secs(1);
/// Bytes of a page of the heap.
const PAGE_BYTES: u64 = holdfast_heap::PAGE as u64;
/// Bytes of log between checkpoints for each byte of heap, as far as [`REPLAY_FACTOR`] allows.
const HEAP_FACTOR: u64 = 16;
/// Times `Options::checkpoint_bytes` that the log between checkpoints may be, as far as it is not condensed.
const REPLAY_FACTOR: u64 = 4;
/// And in all.
const CONDENSED_FACTOR: u64 = 16;

/// The superblock, and the file that it is in.
type Written = (Superblock, Arc<dyn File>);

/// How often checkpoints are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    /// Bytes of log after which one is taken, at least.
    pub bytes_min: u64,
    /// Batches after which one is taken, if they are more bytes than the heap has.
    pub batches_max: u64,
    /// Bytes that the log may have at most.
    pub log_bytes_max: u64,
    /// Bytes of heap from which on the redo in between is condensed; see [`Interval::condenses_from`].
    pub condensed_heap_min: u64,
}

impl Interval {
    /// Bytes of a heap whose checkpoints would be further apart, for the sake of what they write, than what they leave to be replayed lets them, if
    /// they are taken after `bytes_min` of log at least. Of a smaller one they cost less than to condense.
    pub fn condenses_from(bytes_min: u64) -> u64 {
        REPLAY_FACTOR * bytes_min / HEAP_FACTOR
    }
}

/// How far a store that follows another server's log is.
pub(crate) struct Followed<'f> {
    /// All below is in the heap.
    pub lsn: Lsn,
    /// The term of the last batch there.
    pub epoch: u32,
    /// Is told that a start will read the log from there on only; see [`holdfast_log::Groups::keep_from`].
    pub keep_from: &'f dyn Fn(Lsn) -> Result<()>,
    /// Whether it is not wanted any more.
    pub gives_up: &'f dyn Fn() -> bool,
}

/// Takes checkpoints, one at a time.
pub(crate) struct Checkpoints {
    superblock: Mutex<Written>,
    /// The superblock's checkpoint LSN, to be read while a checkpoint has that locked.
    lsn: AtomicU64,
    /// What was written before this start, as far as it is known, and from when on it is: Unix time in milliseconds.
    pub written_before: BytesWritten,
    pub known_since_ms: u64,
    /// Bytes of the superblock and beside it that were written since the start.
    superblock_bytes: AtomicU64,
    /// How many batches the log had written at the last checkpoint, less than none if before it was opened.
    batches: AtomicU64,
    /// One was asked for.
    wanted: AtomicBool,
    /// When the last one failed, if it did.
    failed_at: Mutex<Option<Instant>>,
    interval: Interval,
    condenser: Condenser,
    pub counters: CheckpointCounters,
}

/// Checkpoints since the store was opened. They do not overlap, so the one that began n-th is the n-th to end.
#[derive(Default)]
pub(crate) struct CheckpointCounters {
    pub begun: AtomicU64,
    pub ended: AtomicU64,
    pub complete: AtomicU64,
    pub us_last: AtomicU64,
    pub us_sum: AtomicU64,
    /// When the last one was complete: Unix time in milliseconds.
    pub complete_ms: AtomicU64,
    /// Commands that had changed keys when the last one that is complete began.
    pub changes: AtomicU64,
    pub failed_last: AtomicBool,
}

impl Checkpoints {
    /// Which store the folder is.
    pub fn store_id(&self) -> [u8; 16] {
        self.superblock.lock().0.store_id
    }

    /// Counts bytes of small files that were written beside log and heap.
    pub fn count_written_beside(&self, bytes: u64) {
        self.superblock_bytes.fetch_add(bytes, Relaxed);
    }

    /// `wrote`: bytes of the superblock and beside it that the start has written. `replayed`: batches that lie behind the last checkpoint.
    pub fn new(
        superblock: Superblock,
        file: Arc<dyn File>,
        wrote: u64,
        replayed: u64,
        interval: Interval,
    ) -> Checkpoints {
        Checkpoints {
            lsn: AtomicU64::new(superblock.checkpoint_lsn),
            known_since_ms: superblock.known_since_ms,
            written_before: superblock.written,
            superblock_bytes: AtomicU64::new(wrote),
            superblock: Mutex::new((superblock, file)),
            batches: AtomicU64::new(0u64.wrapping_sub(replayed)),
            wanted: AtomicBool::new(false),
            failed_at: Mutex::default(),
            interval,
            condenser: Condenser::default(),
            counters: CheckpointCounters::default(),
        }
    }

    /// None is taken as long as what this returns is held.
    pub fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.superblock.lock()
    }

    /// What `f` makes of the superblock of the last complete one, while none is taken; `None` if one is being taken.
    pub fn with_last<T>(&self, f: impl FnOnce(&Superblock) -> T) -> Option<T> {
        Some(f(&self.superblock.try_lock()?.0))
    }

    /// Asks for one of all that is written so far, and returns its number for [`Checkpoints::result`].
    pub fn request(&self) -> u64 {
        let number = self.counters.begun.load(SeqCst) + 1;
        self.wanted.store(true, SeqCst);
        number
    }

    /// Whether one was asked for since the last call.
    pub fn take_request(&self) -> bool {
        self.wanted.swap(false, SeqCst)
    }

    /// Whether one that was asked for succeeded; `None` while it has not ended. If others ended since, whether the last of them
    /// did.
    pub fn result(&self, number: u64) -> Option<bool> {
        let has_ended = self.counters.ended.load(SeqCst) >= number;
        has_ended.then(|| !self.counters.failed_last.load(Relaxed))
    }

    /// Takes a checkpoint. `followed`: of a store that follows another server's log, and appends nothing to it.
    pub fn take(&self, engine: &Engine, followed: Option<&Followed>) -> Result<()> {
        let mut superblock = self.superblock.lock();
        let counters = &self.counters;
        // Before the checkpoint chooses its LSN: who sees this number unchanged may rely on the next one.
        counters.begun.fetch_add(1, SeqCst);
        let started = Instant::now();
        let (mut changes, mut appended) = (0, Appended::default());
        engine.enter_each().for_each(|partition| {
            changes += partition.counts.changes;
            appended.add(&partition.counts.appended);
        });
        if followed.is_none() {
            self.condenser.keep(engine, self.interval.condensed_heap_min);
        }
        let result = self.take_locked(engine, &mut superblock, &appended, followed);
        let us = started.elapsed().as_micros() as u64;
        counters.failed_last.store(result.is_err(), Relaxed);
        *self.failed_at.lock() = result.is_err().then(Instant::now);
        if result.is_ok() {
            counters.complete.fetch_add(1, Relaxed);
            counters.changes.store(changes, Relaxed);
            counters.complete_ms.store(engine.shared.io.now_ms(), Relaxed);
            counters.us_last.store(us, Relaxed);
            counters.us_sum.fetch_add(us, Relaxed);
        }
        counters.ended.fetch_add(1, SeqCst);
        result
    }

    /// `appended`: by transactions so far.
    fn take_locked(
        &self,
        engine: &Engine,
        superblock: &mut Written,
        appended: &Appended,
        followed: Option<&Followed>,
    ) -> Result<()> {
        let log = &engine.shared.log;
        if let Some(why) = log.failed() {
            return Err(Error::Unusable(why));
        }
        let (lsn, batches) = (followed.map_or_else(|| log.tail(), |followed| followed.lsn), log.batches());
        let finished = match engine.shared.heap.home() {
            None => Some(write_pages(engine, &|| followed.is_some_and(|followed| (followed.gives_up)()))?),
            // What was appended before is in the home once it is durable, which is waited for below.
            Some(_) => None,
        };
        // I-3: what the pages hold is in the log, durably, before they become the truth.
        match followed {
            None => {
                log.wait_durable(log.tail())?;
                log.keep_from(lsn)?;
            }
            // Only what is durable is ever applied.
            Some(followed) => (followed.keep_from)(lsn)?,
        }
        let mut next = superblock.0.clone();
        next.generation += 1;
        next.checkpoint_lsn = lsn;
        next.durable_lsn = log.durable();
        next.epoch = followed.map_or_else(|| log.epoch(), |followed| followed.epoch);
        if let Some(finished) = &finished {
            next.heap = *finished.root();
        }
        let mut written = self.written(engine, appended);
        written.add(WriteCause::Superblock, superblock::WRITE_BYTES);
        next.written = self.written_before.and(&written);
        next.known_since_ms = self.known_since_ms;
        if let Err(e) = next.write(&*superblock.1) {
            // One copy may be on the medium. So the slots that it names must stay, and there must be no other checkpoint.
            log.fail(&e);
            return Err(e);
        }
        self.superblock_bytes.fetch_add(superblock::WRITE_BYTES, Relaxed);
        if let Some(finished) = finished {
            finished.commit();
        }
        superblock.0 = next;
        self.lsn.store(lsn, Release);
        self.batches.store(batches, Relaxed);
        if followed.is_none() {
            self.condenser.begin(engine, lsn);
        }
        Ok(())
    }

    /// The heap is as the last checkpoint has it.
    pub fn begin_condensing(&self, engine: &Engine) {
        let superblock = self.superblock.lock();
        self.condenser.keep(engine, self.interval.condensed_heap_min);
        self.condenser.begin(engine, superblock.0.checkpoint_lsn);
    }

    /// Condenses the redo behind the last checkpoint, if it is time to.
    pub fn condense_if_due(&self, engine: &Engine) {
        if self.condenser.is_due(engine) {
            self.condense(engine, condenser::LOG_FACTOR);
        }
    }

    /// The same now, if that is so many bytes of log for each byte of redo, and no checkpoint is being taken.
    pub fn condense(&self, engine: &Engine, log_factor: u64) {
        if let Some(superblock) = self.superblock.try_lock() {
            self.condenser.condense(engine, &superblock.0, log_factor);
        }
    }

    /// What was written since the start. `appended`: by transactions.
    pub fn written(&self, engine: &Engine, appended: &Appended) -> BytesWritten {
        let (log, heap) = (engine.shared.log.writes(), engine.shared.heap.pages_written());
        let mut written = BytesWritten::default();
        written.input = appended.input;
        for (cause, bytes) in [
            (WriteCause::Items, appended.items),
            (WriteCause::Redo, appended.redo),
            (WriteCause::Frozen, appended.frozen),
            (WriteCause::Moved, appended.moved),
            (WriteCause::BatchHeaders, appended.headers + engine.counters.clock_marks.load(Relaxed)),
            (WriteCause::Padding, log.padding),
            (WriteCause::Rewritten, log.rewritten),
            (WriteCause::SegmentHeaders, log.headers),
            (WriteCause::SegmentZeroes, log.zeroes),
            (WriteCause::HeapPages, heap.pages * PAGE_BYTES),
            (WriteCause::HeapTables, heap.tables * PAGE_BYTES),
            (WriteCause::Superblock, self.bytes_beside()),
            (WriteCause::MovedSegments, log.moved),
        ] {
            written.add(cause, bytes);
        }
        written
    }

    /// Bytes written since the start, without what was appended and is not written yet. Locks nothing.
    pub fn bytes_written(&self, engine: &Engine) -> u64 {
        let (log, heap) = (engine.shared.log.writes(), engine.shared.heap.pages_written());
        log.total() + (heap.pages + heap.tables) * PAGE_BYTES + self.bytes_beside()
    }

    /// Bytes of small files.
    fn bytes_beside(&self) -> u64 {
        self.superblock_bytes.load(Relaxed) + self.condenser.written()
    }

    /// A start replays the log from here on.
    pub fn lsn(&self) -> Lsn {
        self.lsn.load(Acquire)
    }

    /// Whether none is tried for now unless somebody asks for it: one has just failed, maybe since the medium is full.
    pub fn rest(&self) -> bool {
        self.failed_at.lock().is_some_and(|at| at.elapsed() < FAILED_REST)
    }

    /// Whether enough log was written for a checkpoint of a heap of so many bytes. Overwriting at random changes all pages of
    /// the index between two checkpoints, so these are to be few beside the log; but replay is to stay short, and what is
    /// not below the last checkpoint cannot be cleaned. Small batches take longer to replay than their bytes tell; for their
    /// sake no checkpoint writes more than has come to the log. What is condensed is hardly replayed.
    pub fn are_due(&self, log: &Log, heap: u64, is_cleaning: bool) -> bool {
        let (least, limit) = (self.interval.bytes_min, self.interval.log_bytes_max);
        let few = (HEAP_FACTOR * heap).clamp(least, CONDENSED_FACTOR * least).min(limit / 2);
        let due = few.min(REPLAY_FACTOR * least);
        // After a burst of cleaning there is room for what is written meanwhile.
        let wait = |due: u64| if is_cleaning { due / 4 } else { 0 };
        let bytes = log.tail() - self.lsn();
        let (replayed, batches) = match self.condenser.condensed() {
            Some(condensed) if bytes > few + wait(few) || condensed.file_bytes > condenser::FILE_BYTES => {
                return true;
            }
            Some(condensed) => (log.tail() - condensed.to, condensed.batches),
            None => (bytes, self.batches.load(Relaxed)),
        };
        let batches = log.batches().wrapping_sub(batches);
        replayed > due + wait(due) || batches > self.interval.batches_max && bytes > heap
    }
}

/// Writes the pages of the heap that have changed.
fn write_pages(engine: &Engine, gives_up: &dyn Fn() -> bool) -> Result<Finished> {
    let mut checkpoint = engine.shared.heap.begin_checkpoint();
    let mut staged = 0;
    for partition in engine.numbers() {
        while checkpoint.copy(&mut engine.enter(partition).arena, PAGES_A_SLICE) {
            staged += PAGES_A_SLICE;
            if staged >= PAGES_A_WRITE {
                if gives_up() {
                    return Err(Error::Unusable("the checkpoint was given up".into()));
                }
                checkpoint.write()?;
                staged = 0;
            }
        }
    }
    checkpoint.write()?;
    checkpoint.finish()
}
