//! What the store does beside its transactions: checkpoints and what shortens their replay, cleaning, sweeping, expiry, eviction, freezing, dictionaries, and loading after
//! a start.
//!
//! Each step takes a partition's lock for microseconds at a time. The steps are called one by one by tests; the maintenance
//! thread calls them in the order of their urgency. Freezing and dictionaries have threads of their own.

pub mod backup;
pub mod checkpoint;
pub mod cleaner;
pub mod clock;
pub mod condenser;
pub mod disk;
pub mod eviction;
pub mod expiry;
pub mod freezer;
pub mod sweeper;
pub mod trainer;

use crate::{engine::Engine, util::background::Background};
use backup::Backups;
use checkpoint::Checkpoints;
use cleaner::Cleaner;
use clock::ClockMarks;
use disk::DiskBudget;
use eviction::Evictions;
use expiry::{EXPIRE_SLICE, ExpireHand, Expiry};
use freezer::Freezer;
use holdfast_heap::Load;
use holdfast_io::{Error, Result};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How long the thread sleeps when nothing is urgent.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of the heap that are loaded at once after a start.
const LOAD_BYTES: usize = 1 << 20;
/// Log that an idle store may leave to be replayed, in bytes.
const IDLE_REPLAY_BYTES: u64 = 1 << 20;

/// An engine, and what keeps it in order.
pub(crate) struct Maintenance {
    pub engine: Engine,
    pub checkpoints: Checkpoints,
    pub cleaner: Cleaner,
    pub disk: DiskBudget,
    pub evictions: Evictions,
    pub expiry: Expiry,
    pub freezer: Freezer,
    pub backups: Backups,
    pub clock_marks: ClockMarks,
}

impl Maintenance {
    /// Takes a checkpoint.
    pub fn checkpoint(&self) -> Result<()> {
        if self.engine.shared.log.is_too_large() {
            // Else what free pages held keeps its place in the heap's file.
            self.engine.numbers().for_each(|partition| freezer::give_back(&self.engine, partition));
        }
        self.checkpoints.take(&self.engine, None)?;
        // The heap's file may be longer now, or shorter.
        self.disk.fit(&self.engine)
    }

    /// One step of cleaning, by a checkpoint if need be and it `takes_checkpoint`; whether there was anything to do.
    pub fn clean(&self, takes_checkpoint: bool) -> Result<bool> {
        self.disk.fit(&self.engine)?;
        self.cleaner.clean(&self.engine, &self.checkpoints, takes_checkpoint)
    }
}

/// Starts the maintenance thread.
pub(crate) fn start(maintenance: Arc<Maintenance>) -> Background {
    // Weak, since the log is a part of the store.
    let (log, store) = (maintenance.engine.shared.log.clone(), Arc::downgrade(&maintenance));
    let background = Background::start("holdfast-maint", move |stop| run(&maintenance, stop));
    let thread = background.thread().clone();
    if let Some(store) = store.upgrade() {
        store.engine.set_maintenance(thread.clone());
    }
    log.on_progress(Box::new(move || {
        if store.upgrade().is_some_and(|store| store.cleaner.room_is_short(&store.engine)) {
            thread.unpark();
        }
    }));
    background
}

fn run(maintenance: &Maintenance, stop: &AtomicBool) {
    let Maintenance { engine, checkpoints, cleaner, evictions, expiry, .. } = maintenance;
    let (log, heap) = (&engine.shared.log, &engine.shared.heap);
    let report = |what: &str, result: Result<bool>| match result {
        Ok(busy) => busy,
        // The medium is full: a later try may find room.
        Err(e) if e.is_full() => false,
        Err(e) => {
            log.fail(&Error::Unusable(format!("{what}: {e}")));
            false
        }
    };
    while !stop.load(Relaxed) && report("load", heap.load_next(Load::Pinned, LOAD_BYTES)) {}
    while !stop.load(Relaxed)
        && engine.has_room_to_load()
        && report("load", heap.load_next(Load::All, LOAD_BYTES))
    {}
    report("apply redo", engine.finish_replay().map(|()| true));
    engine.attach_all();
    if engine.has_room_to_load() {
        heap.use_huge_pages(|| stop.load(Relaxed));
    }
    let mut hand = ExpireHand::new(engine.partitions.len());
    let mut expires_on = false;
    let (mut tail_seen, mut heap_bytes, mut looked) = (0, 0, None::<Instant>);
    while !stop.load(Relaxed) {
        maintenance.backups.tend(maintenance);
        if log.failed().is_none() {
            let mut idle = false;
            let tick = if expires_on { EXPIRE_SLICE } else { TICK };
            if looked.is_none_or(|at| at.elapsed() >= tick) {
                let tail = log.tail();
                if tail != tail_seen {
                    evictions.look_soon();
                }
                idle = tail == tail_seen && tail - checkpoints.lsn() > IDLE_REPLAY_BYTES;
                (tail_seen, looked) = (tail, Some(Instant::now()));
                heap_bytes = heap.allocated_bytes();
                maintenance.clock_marks.mark(engine);
                log.trim_memory();
                let may_expire =
                    expiry.is_on(engine.shared.io.now_ms()) && !engine.shared.keeps_expired.load(Relaxed);
                expires_on = may_expire && report("expire", expiry::expire(engine, &mut hand));
            }
            checkpoints.condense_if_due(engine);
            // Each attempt writes what has changed, also in vain.
            let may_take = !checkpoints.rest();
            let is_due = checkpoints.take_request()
                || may_take && (idle || checkpoints.are_due(log, heap_bytes, cleaner.is_cleaning()));
            if is_due {
                report("checkpoint", maintenance.checkpoint().map(|()| true));
            }
            let is_cleaned = report("clean", maintenance.clean(!checkpoints.rest()));
            if sweeper::sweep(engine) | evictions.evict_more(engine) | is_cleaned {
                continue;
            }
        }
        thread::park_timeout(if expires_on { EXPIRE_SLICE } else { TICK });
    }
}
