//! Freezing: collections that were not in use of late leave the heap for the log, as one item each.
//!
//! A walk goes around all keys like the hand of a clock and freezes who is cold; it comes back when it is wanted
//! (`txn/frozen.rs`). How cold that must be is found out: colder when the walk finds enough soon, and less when a whole
//! round was not enough. A slice of the walk is a batch of the log like any other: the items, the release of the objects, and
//! the entries that name the items instead.
//!
//! Between two partitions the walk goes around the pages of the first one's heap, and has those leave memory that were not used
//! since it came by last ([`Arena::evict`](holdfast_heap::Arena::evict)): what is too large to be frozen outgrows memory that way.
//! Nothing is written for that, but pages that have changed can leave only after a checkpoint.
//!
//! A thread of its own does so when memory runs short, since a checkpoint may take longer than memory lasts. Until it has
//! made room, or found that there is nothing to freeze, what makes data grow beyond the limit waits.

use super::Maintenance;
use crate::{
    engine::Engine,
    partition::{databases::PHYSICAL_DATABASES, frozen::SliceLimits},
    txn::Txn,
    util::background::Background,
};
use holdfast_heap::{Evicted, PAGE};
use holdfast_io::{Error, Result};
use holdfast_log::{Admission, Purpose};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Nobody who is colder is spared: a day.
const SPARED_MAX: u32 = 86_400;
/// How long the thread sleeps while there is a limit, and memory is calm or changes.
const CALM_TICK: Duration = Duration::from_millis(100);
const RESTLESS_TICK: Duration = Duration::from_millis(10);
/// How long it does so at least.
const REQUEST_REST: Duration = Duration::from_millis(1);
/// How long the allocator is let be after it has given back what it keeps.
const GIVE_BACK_REST: Duration = Duration::from_secs(1);
/// How long it waits for the log to take more.
const LOG_RETRY: Duration = Duration::from_millis(1);
/// A walk that has found nothing to freeze is not done again for so many times as long as it took.
const REST_FACTOR: u32 = 10;

/// Bytes of items that are made, and entries that are looked at, under one hold of a partition's lock.
const SLICE_BYTES: usize = 16 << 10;
const SLICE_ENTRIES: usize = 512;
/// Bytes of log that a slice may take: one collection may be larger than the rest of it.
const SLICE_LOG_BYTES: usize = 512 << 10;

/// Extents whose pages are looked at under one hold of a partition's lock.
const SLICE_EXTENTS: usize = 4;
/// Bytes that are freed between two looks at all that the process holds.
const JUDGE_BYTES: u64 = 1 << 20;
/// Where the walk is when it is at a partition's pages.
const PAGES_OF_HEAP: u8 = PHYSICAL_DATABASES as u8;

/// Where the walk is.
pub(crate) struct Hand {
    partition: u16,
    /// A database, or [`PAGES_OF_HEAP`].
    db: u8,
    cursor: u64,
    /// How often it has been around.
    rounds: u64,
    /// Who is less cold is spared: seconds since the last use, or what a count falls short of the greatest.
    spared: u32,
    /// The end of the log when the slice before was frozen.
    sent: u64,
    /// Collections frozen in its partition since the RAM of free pages was given back there.
    frozen_here: u64,
    /// Whether all entries are counted into the log's live bytes, as the items that it makes are.
    is_attached: bool,
}

impl Default for Hand {
    fn default() -> Hand {
        let (partition, db, cursor, rounds) = (0, 0, 0, 0);
        Hand { partition, db, cursor, rounds, spared: 1, sent: 0, frozen_here: 0, is_attached: false }
    }
}

impl Hand {
    /// Goes to the next database, from the last one to the pages, and from those to the next partition.
    fn next(&mut self, partitions: u16) {
        (self.db, self.cursor) = (self.db + 1, 0);
        if self.db > PAGES_OF_HEAP {
            (self.db, self.partition) = (0, self.partition + 1);
        }
        if self.partition == partitions {
            self.partition = 0;
            self.rounds += 1;
        }
    }
}

/// How freezing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezeOutcome {
    /// It was enough.
    Enough,
    /// It was enough, but most pages that could have left have changed since a checkpoint.
    EnoughForNow,
    /// There is nothing more to freeze, and no page to leave memory.
    All,
    /// The same, but pages could leave after a checkpoint.
    Unwritten,
    /// The log takes no more now.
    LogStops(Admission),
}

/// Freezes collections.
#[derive(Default)]
pub(crate) struct Freezer {
    hand: Mutex<Hand>,
}

impl Freezer {
    /// Freezes collections and takes pages out of memory until `enough` says so of the bytes of heap that they took. `reads_absent`: also collections that
    /// are not in memory.
    pub fn freeze(
        &self,
        engine: &Engine,
        reads_absent: bool,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<(FreezeOutcome, u64)> {
        let mut hand = self.hand.lock();
        if !hand.is_attached {
            engine.attach_all();
            hand.is_attached = true;
        }
        let (begun, mut change_at) = (hand.rounds, hand.rounds + 2);
        let (log, mut bytes, mut unwritten) = (&engine.shared.log, 0, 0);
        let ended = loop {
            if enough(bytes) {
                if hand.rounds == begun {
                    hand.spared = (2 * hand.spared).clamp(1, SPARED_MAX);
                }
                let is_short = unwritten * PAGE as u64 > bytes;
                break if is_short { FreezeOutcome::EnoughForNow } else { FreezeOutcome::Enough };
            }
            if hand.rounds >= change_at {
                if hand.spared == 0 {
                    break if unwritten == 0 { FreezeOutcome::All } else { FreezeOutcome::Unwritten };
                }
                (hand.spared, change_at) = (hand.spared / 4, hand.rounds + 1);
            }
            if hand.db == PAGES_OF_HEAP {
                let evicted = evict_slice(engine, &mut hand);
                bytes += evicted.pages * PAGE as u64;
                unwritten += evicted.unwritten;
                continue;
            }
            match log.admit(SLICE_LOG_BYTES) {
                Admission::Ok => bytes += freeze_slice(engine, &mut hand, reads_absent)?,
                other => break FreezeOutcome::LogStops(other),
            }
        };
        log.kick();
        if std::mem::take(&mut hand.frozen_here) > 0 {
            give_back(engine, hand.partition);
        }
        Ok((ended, bytes))
    }

    /// Freezes until the data that memory is short of has room again.
    fn freeze_down(&self, engine: &Engine, stop: &AtomicBool) -> Result<(FreezeOutcome, u64)> {
        let shared = &engine.shared;
        let mut judged_at = 0;
        let enough = |bytes| {
            // To ask the system how much the process holds takes longer than a slice.
            if bytes - judged_at < JUDGE_BYTES {
                shared.budget.judge_data();
            } else {
                judged_at = bytes;
                shared.judge_memory();
            }
            shared.budget.ram_of_data().all <= shared.budget.freeze_to() || stop.load(Relaxed)
        };
        // What is absent takes no memory: it would be read only to be freed.
        self.freeze(engine, false, enough)
    }
}

/// Gives the RAM of a partition's free pages back, some at a time, since others wait for the partition.
pub(crate) fn give_back(engine: &Engine, partition: u16) {
    const EXTENTS: usize = 16;
    /// What this takes in the log at most.
    const BYTES: usize = EXTENTS * 32 * 16;
    let (log, now_ms) = (&engine.shared.log, engine.shared.io.now_ms());
    while log.admit_for(BYTES, Purpose::Remove) == Admission::Ok
        && Txn::begin(engine, &[partition], now_ms).give_back(EXTENTS)
    {}
}

fn evict_slice(engine: &Engine, hand: &mut Hand) -> Evicted {
    let evicted = evict_pages(engine, hand.partition);
    if evicted.is_around {
        hand.next(engine.partitions.len() as u16);
    }
    evicted
}

/// Takes pages out of memory while data takes more than it may, from a partition on, at most once around.
fn evict_down(engine: &Engine, next: &mut u16, stop: &AtomicBool) {
    let budget = &engine.shared.budget;
    for _ in engine.numbers() {
        loop {
            budget.judge_data();
            if !budget.wants_freezing() || stop.load(Relaxed) {
                return;
            }
            if evict_pages(engine, *next).is_around {
                break;
            }
        }
        *next = (*next + 1) % engine.partitions.len() as u16;
    }
}

/// Takes pages of a few extents of a partition out of memory, those that were not used since it came by last.
pub(crate) fn evict_pages(engine: &Engine, partition: u16) -> Evicted {
    let (shared, mut partition) = (&engine.shared, engine.enter(partition));
    // What is absent is read from the home, which must have all that was changed.
    let has_all = shared.heap.home().is_none() || shared.log.wait_durable(shared.log.tail()).is_ok();
    let evicted = if has_all {
        partition.arena.evict(SLICE_EXTENTS)
    } else {
        Evicted { is_around: true, ..Evicted::default() }
    };
    drop(partition);
    engine.counters.evicted_pages.fetch_add(evicted.pages, Relaxed);
    evicted
}

fn freeze_slice(engine: &Engine, hand: &mut Hand, reads_absent: bool) -> Result<u64> {
    let (log, partitions, partition) = (&engine.shared.log, engine.partitions.len() as u16, hand.partition);
    let mut txn = Txn::begin(engine, &[partition], engine.shared.io.now_ms());
    let limits =
        SliceLimits { bytes: SLICE_BYTES, entries: SLICE_ENTRIES, spared: hand.spared, reads_absent };
    let slice = txn.freeze(hand.db, &mut hand.cursor, &limits);
    txn.commit();
    if slice.ended {
        hand.next(partitions);
    }
    hand.frozen_here += slice.keys;
    if hand.db == PAGES_OF_HEAP && std::mem::take(&mut hand.frozen_here) > 0 {
        give_back(engine, partition);
    }
    if slice.keys > 0 {
        // So that the log's buffers are not filled with what nobody waits for.
        log.wait_written(std::mem::replace(&mut hand.sent, log.tail()))?;
    }
    Ok(slice.bytes)
}

/// Starts the thread that freezes.
pub(crate) fn start(maintenance: Arc<Maintenance>) -> Background {
    let shared = maintenance.engine.shared.clone();
    let background = Background::start("holdfast-freeze", move |stop| run(&maintenance, stop));
    shared.budget.set_thread(background.thread().clone());
    background
}

fn run(maintenance: &Maintenance, stop: &AtomicBool) {
    let Maintenance { engine, freezer, checkpoints, .. } = maintenance;
    let shared = &engine.shared;
    let (mut rest_until, mut gave_back) = (None::<Instant>, None::<Instant>);
    // The checkpoint after which more pages may leave, and one that is asked for before there are none.
    let (mut awaited, mut ahead) = (None, None::<u64>);
    let mut next = 0;
    while !stop.load(Relaxed) {
        shared.budget.take_request();
        if shared.budget.max() == usize::MAX {
            thread::park();
            continue;
        }
        let can_freeze = rest_until.is_none_or(|until| Instant::now() >= until);
        shared.budget.can_freeze.store(can_freeze, Relaxed);
        let is_restless = shared.judge_memory();
        if shared.budget.beside_is_over() && gave_back.is_none_or(|at| at.elapsed() >= GIVE_BACK_REST) {
            shared.budget.give_back();
            gave_back = Some(Instant::now());
            shared.judge_memory();
        }
        engine.fit_copies(stop);
        let is_awaited = awaited.is_some_and(|number| checkpoints.result(number).is_none());
        let is_wanted = shared.budget.wants_freezing() && shared.log.failed().is_none();
        if is_wanted && (is_awaited || !can_freeze) {
            // What is read meanwhile has not changed, and can leave again.
            evict_down(engine, &mut next, stop);
        } else if is_wanted {
            let started = Instant::now();
            let was_awaited = awaited.take();
            match freezer.freeze_down(engine, stop) {
                Ok((FreezeOutcome::Enough, _)) => rest_until = None,
                Ok((FreezeOutcome::EnoughForNow, _)) => {
                    rest_until = None;
                    if ahead.is_none_or(|number| checkpoints.result(number).is_some()) {
                        ahead = Some(checkpoints.request());
                        engine.wake_maintenance();
                    }
                }
                Ok((FreezeOutcome::Unwritten, bytes)) if bytes > 0 || was_awaited.is_none() => {
                    awaited = Some(checkpoints.request());
                    engine.wake_maintenance();
                }
                Ok((FreezeOutcome::LogStops(Admission::Busy), _)) => {
                    thread::park_timeout(LOG_RETRY);
                    continue;
                }
                Ok(_) => {
                    shared.budget.can_freeze.store(false, Relaxed);
                    shared.judge_memory();
                    rest_until = Some(Instant::now() + started.elapsed() * REST_FACTOR + CALM_TICK);
                }
                // A later try may find room.
                Err(e) if e.is_full() => {}
                Err(e) => shared.log.fail(&Error::Unusable(format!("freeze: {e}"))),
            }
        }
        thread::park_timeout(if is_restless { RESTLESS_TICK } else { CALM_TICK });
        // It is asked again and again while what could go is not written yet.
        thread::sleep(REQUEST_REST);
    }
}
