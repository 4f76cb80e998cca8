//! What the store does beside its transactions: checkpoints, active expiry, loading after a start, and `cleaner.rs`.
//!
//! Each step takes a partition's lock for microseconds at a time. The steps are methods of `Inner`, so that tests call them
//! one by one; the maintenance thread calls them in the order of their urgency.

use crate::{
    background::Background,
    partition::PHYSICAL_DATABASES,
    store::Inner,
    superblock::Superblock,
    txn::{Cold, Txn},
};
use holdfast_io::{Error, File, Result};
use holdfast_log::{Admission, Lsn, Purpose};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, Release, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// Pages that a checkpoint copies under one hold of a lock: some 10 µs.
const PAGES_A_SLICE: usize = 16;
/// Bytes that a checkpoint stages before it writes them.
const PAGES_A_WRITE: usize = 1024;
/// How long the thread sleeps when nothing is urgent.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of log between checkpoints for each byte of heap, as far as [`REPLAY_FACTOR`] allows.
const HEAP_FACTOR: u64 = 16;
/// Times `Options::checkpoint_bytes` that the log between checkpoints may be.
const REPLAY_FACTOR: u64 = 4;
/// Bytes of the medium that are left free beside what the next checkpoint may take.
const MEDIUM_SLACK: u64 = 4 << 20;
/// Log that an idle store may leave to be replayed, in bytes.
const IDLE_REPLAY_BYTES: u64 = 1 << 20;
/// Bytes of log that freeing a slice of rubbish may take.
pub(crate) const SWEEP_BYTES: usize = 256 << 10;
/// Keys that one step of active expiry looks at in a partition, and the share of expired ones that makes it go on.
const EXPIRE_SAMPLE: usize = 20;
/// Bytes of log that this takes, about, and those of it that may wait to be written.
const EXPIRE_BYTES: usize = 96 << 10;
const EXPIRE_UNWRITTEN_MAX: u64 = 1 << 20;
/// How long active expiry goes on at most before something else has its turn, and until it goes on.
const EXPIRE_SLICE: Duration = Duration::from_millis(25);

impl Inner {
    /// Takes a checkpoint.
    pub fn checkpoint(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        let counters = &self.counters.checkpoints;
        // Before the checkpoint chooses its LSN: who sees this number unchanged may rely on the next one.
        counters.begun.fetch_add(1, SeqCst);
        let started = Instant::now();
        let changes = self.enter_each().map(|partition| partition.counts.changes).sum();
        let result = self.checkpoint_locked(&mut superblock);
        let us = started.elapsed().as_micros() as u64;
        counters.failed_last.store(result.is_err(), Relaxed);
        if result.is_ok() {
            counters.complete.fetch_add(1, Relaxed);
            counters.changes.store(changes, Relaxed);
            counters.complete_ms.store(self.shared.io.now_ms(), Relaxed);
            counters.us_last.store(us, Relaxed);
            counters.us_sum.fetch_add(us, Relaxed);
        }
        counters.ended.fetch_add(1, SeqCst);
        result
    }

    fn checkpoint_locked(&self, superblock: &mut (Superblock, Arc<dyn File>)) -> Result<()> {
        let log = &self.shared.log;
        if let Some(why) = log.failed() {
            return Err(Error::Unusable(why));
        }
        let (lsn, batches) = (log.tail(), log.batches());
        let mut checkpoint = self.shared.heap.begin_checkpoint();
        let mut staged = 0;
        for partition in 0..self.partitions.len() as u16 {
            while checkpoint.copy(&mut self.enter(partition).arena, PAGES_A_SLICE) {
                staged += PAGES_A_SLICE;
                if staged >= PAGES_A_WRITE {
                    checkpoint.write()?;
                    staged = 0;
                }
            }
        }
        checkpoint.write()?;
        let finished = checkpoint.finish()?;
        // I-3: what the pages hold is in the log, durably, before they become the truth.
        log.wait_durable(log.tail())?;
        let mut next = superblock.0.clone();
        next.generation += 1;
        next.checkpoint_lsn = lsn;
        next.durable_lsn = log.durable();
        next.heap = *finished.root();
        if let Err(e) = next.write(&*superblock.1) {
            // One copy may be on the medium. So the slots that it names must stay, and there must be no other checkpoint.
            log.fail(&e);
            return Err(e);
        }
        finished.commit();
        superblock.0 = next;
        self.checkpoint_lsn.store(lsn, Relaxed);
        self.checkpoint_batches.store(batches, Relaxed);
        Ok(())
    }

    pub fn checkpoint_lsn(&self) -> Lsn {
        self.checkpoint_lsn.load(Relaxed)
    }

    /// Whether enough log was written for a checkpoint of a heap of so many bytes. Overwriting at random changes all pages of
    /// the index between two checkpoints, so these are to be few beside the log; but replay is to stay short, and what is
    /// not below the last checkpoint cannot be cleaned. Small batches take longer to replay than their bytes tell; for their
    /// sake no checkpoint writes more than has come to the log.
    fn checkpoint_is_due(&self, heap: u64) -> bool {
        let (least, limit) = (self.options.checkpoint_bytes, self.options.log_bytes_max);
        let due = (HEAP_FACTOR * heap).clamp(least, REPLAY_FACTOR * least).min(limit / 2);
        // After a burst of cleaning there is room for what is written meanwhile.
        let wait = if self.is_cleaning.load(Relaxed) { due / 4 } else { 0 };
        let log = &self.shared.log;
        let bytes = log.tail() - self.checkpoint_lsn();
        let batches = log.batches().wrapping_sub(self.checkpoint_batches.load(Relaxed));
        bytes > due + wait || batches > self.options.checkpoint_batches && bytes > heap
    }

    /// Applies all redo that replay has left waiting.
    fn finish_replay(&self) -> Result<()> {
        for (arena, extent) in self.shared.heap.with_redo() {
            self.enter(arena).arena.apply_redo(extent)?;
        }
        Ok(())
    }

    /// Counts all entries that were not yet used since the start into the log's live bytes. Until then nothing is freed.
    pub fn attach_all(&self) {
        for partition in 0..self.partitions.len() as u16 {
            let mut from = (0, 0);
            while self.enter(partition).attach_next(&self.shared, &mut from) {}
        }
        self.is_attached.store(true, Release);
    }

    /// Frees a slice of rubbish in each partition; whether there may be more and room in the log to go on.
    pub fn sweep(&self) -> bool {
        let (log, now_ms) = (&self.shared.log, self.shared.io.now_ms());
        let left_over = self.shared.left_over();
        let mut more = false;
        for number in 0..self.partitions.len() as u16 {
            if log.admit_for(SWEEP_BYTES, Purpose::Remove) != Admission::Ok {
                more = false;
                break;
            }
            more |= Txn::begin(self, &[number], now_ms).sweep();
        }
        if more {
            log.kick();
        } else if self.shared.is_sweeping() {
            // Before those who wait for it are told.
            self.judge_memory();
            self.shared.set_swept(left_over);
        }
        more
    }

    /// Removes keys that have expired and whose names must be fetched, and returns how many are gone. Where the name cannot
    /// be read, since the item has moved or is damaged, the key is left for the next time, or for who looks at it.
    fn expire_cold(&self, db: u8, cold: Vec<Cold>, now_ms: u64) -> usize {
        let expire = |cold: Cold| {
            let key = self.read_key(cold, cold.key_of?).ok()?;
            (!Txn::begin(self, &[self.partition_of(&key)], now_ms).exists(db, &key)).then_some(())
        };
        cold.into_iter().filter_map(expire).count()
    }

    /// Removes expired keys, Redis's way: looks at a few keys with an expiry, and at more while many of them have expired.
    /// Then fields of hashes: looks at a few keys of any kind, so that it passes by all in time. Ends after a while, or when
    /// the log takes no more; whether there may be more to do.
    pub fn expire(&self, hand: &mut ExpireHand) -> Result<bool> {
        let log = &self.shared.log;
        let (started, now) = (Instant::now(), self.shared.io.now_ms());
        // Each partition once at most, from where the last call has ended.
        for _ in 0..self.partitions.len() {
            let number = hand.partition;
            let databases: Vec<u8> = {
                let partition = self.enter(number);
                (0..PHYSICAL_DATABASES as u8).filter(|&db| partition.len(db) > 0).collect()
            };
            for db in databases {
                let cursors = &mut hand.cursors[number as usize][db as usize];
                loop {
                    if started.elapsed() >= EXPIRE_SLICE || !self.admits_expiry(&mut hand.sent)? {
                        log.kick();
                        return Ok(true);
                    }
                    let mut txn = Txn::begin(self, &[number], now);
                    let (seen, mut expired, cold) = txn.expire_some(db, &mut cursors.keys, EXPIRE_SAMPLE);
                    let purged_all = !txn.purge_some(db, &mut cursors.fields);
                    txn.commit();
                    expired += self.expire_cold(db, cold, now);
                    if purged_all && (seen == 0 || expired * 10 <= seen) {
                        break;
                    }
                }
            }
            hand.partition = (number + 1) % self.partitions.len() as u16;
        }
        log.kick();
        Ok(false)
    }

    /// Whether the log takes a slice of expiry. Waits for what was sent before to be written, so that the log's buffers are not
    /// filled with what nobody waits for.
    fn admits_expiry(&self, sent: &mut Lsn) -> Result<bool> {
        let log = &self.shared.log;
        if log.admit_for(EXPIRE_BYTES, Purpose::Remove) != Admission::Ok {
            return Ok(false);
        }
        if log.tail() > *sent + EXPIRE_UNWRITTEN_MAX {
            log.wait_written((*sent).min(log.tail()))?;
            log.kick();
            *sent = log.tail();
        }
        Ok(true)
    }
}

/// Where active expiry is.
pub(crate) struct ExpireHand {
    /// The partition that is next.
    partition: u16,
    cursors: Vec<[ExpireCursors; PHYSICAL_DATABASES]>,
    /// The end of the log when it was kicked last.
    sent: Lsn,
}

impl ExpireHand {
    pub fn new(partitions: usize) -> ExpireHand {
        let cursors = vec![[ExpireCursors::default(); PHYSICAL_DATABASES]; partitions];
        ExpireHand { partition: 0, cursors, sent: 0 }
    }
}

/// Where active expiry goes on in a database of a partition.
#[derive(Clone, Copy, Default)]
struct ExpireCursors {
    /// Among the keys that have an expiry.
    keys: u64,
    /// Among all keys, for fields.
    fields: u64,
}

/// Starts the maintenance thread.
pub(crate) fn start(inner: Arc<Inner>) -> Background {
    // Weak, since the log is a part of the store.
    let (log, store) = (inner.shared.log.clone(), Arc::downgrade(&inner));
    let background = Background::start("holdfast-maint", move |stop| run(&inner, stop));
    let cleaner = background.thread().clone();
    if let Some(store) = store.upgrade() {
        // Nobody else sets it.
        let _ = store.maintenance.set(cleaner.clone());
    }
    log.on_progress(Box::new(move || {
        if store.upgrade().is_some_and(|store| store.room_is_short()) {
            cleaner.unpark();
        }
    }));
    background
}

fn run(inner: &Inner, stop: &AtomicBool) {
    let report = |what: &str, result: Result<bool>| match result {
        Ok(busy) => busy,
        // The medium is full: a later try may find room.
        Err(e) if e.is_full() => false,
        Err(e) => {
            inner.shared.log.fail(&Error::Unusable(format!("{what}: {e}")));
            false
        }
    };
    while !stop.load(Relaxed) && report("load", inner.shared.heap.load_next(1 << 20)) {}
    report("apply redo", inner.finish_replay().map(|()| true));
    inner.attach_all();
    let mut hand = ExpireHand::new(inner.partitions.len());
    let mut expires_on = false;
    let (mut tail_seen, mut heap_bytes, mut looked) = (0, 0, None::<Instant>);
    while !stop.load(Relaxed) {
        if inner.shared.log.failed().is_none() {
            let mut idle = false;
            let tick = if expires_on { EXPIRE_SLICE } else { TICK };
            if looked.is_none_or(|at| at.elapsed() >= tick) {
                let tail = inner.shared.log.tail();
                if tail != tail_seen {
                    inner.evictions.look_soon();
                }
                idle = tail == tail_seen && tail - inner.checkpoint_lsn() > IDLE_REPLAY_BYTES;
                (tail_seen, looked) = (tail, Some(Instant::now()));
                heap_bytes = inner.shared.heap.allocated_bytes();
                inner.shared.log.trim_memory();
                let growth = inner.shared.heap.file_growth_max();
                inner.shared.log.set_medium_reserve(growth + MEDIUM_SLACK);
                let held_until = inner.expiry_held_until.load(Relaxed);
                let may_expire =
                    inner.expires_actively.load(Relaxed) && inner.shared.io.now_ms() >= held_until;
                expires_on = may_expire && report("expire", inner.expire(&mut hand));
            }
            if inner.checkpoint_wanted.swap(false, SeqCst) || idle || inner.checkpoint_is_due(heap_bytes) {
                report("checkpoint", inner.checkpoint().map(|()| true));
            }
            if inner.sweep() | inner.evict_more() | report("clean", inner.clean()) {
                continue;
            }
        }
        thread::park_timeout(if expires_on { EXPIRE_SLICE } else { TICK });
    }
}
