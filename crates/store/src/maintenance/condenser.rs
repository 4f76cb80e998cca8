//! Condensing: what the log has changed in the heap since the last checkpoint is written again, sorted and without values, to
//! the file `redo`. A start reads that instead of the log, so that checkpoints, which write all of an index whose keys are
//! overwritten at random, can be further apart (`docs/decisions.md`, "Redo is condensed").
//!
//! Partitions keep what their batches change until it is condensed. If that becomes too much, or does not pay, nothing more is
//! condensed until the next checkpoint, and a start reads the log from there on.

use crate::{
    engine::Engine,
    format::{
        payload,
        redo_file::{self, Covered},
        superblock::Superblock,
    },
    partition::uncondensed::Changed,
};
use holdfast_heap::SortedRedo;
use holdfast_io::{File, crc32c};
use holdfast_log::Lsn;
use parking_lot::Mutex;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Bytes of durable log that are condensed at once, and batches. More would take more memory, and a start reads as much of the log.
const LOG_BYTES: u64 = 4 << 20;
const BATCHES: u64 = 1 << 16;
/// Memory for what is not condensed yet, in bytes, and the share of the store's that it is at most.
const MEMORY_MAX: usize = 16 << 20;
const MEMORY_SHARE: usize = 32;
/// Bytes of log for each byte of redo, at least: else the log can as well be read itself. New keys have three.
pub(crate) const LOG_FACTOR: u64 = 2;
/// Bytes of the file at which the next checkpoint is due.
pub(crate) const FILE_BYTES: u64 = 32 << 20;

/// Condenses the redo behind the last checkpoint.
#[derive(Default)]
pub(crate) struct Condenser {
    chain: Mutex<Option<Chain>>,
    /// What is below is condensed: the LSN, the log's batches up to there, and the bytes of the file. 0: nothing is.
    to: AtomicU64,
    batches: AtomicU64,
    file_bytes: AtomicU64,
    /// Bytes written to it since the start.
    written: AtomicU64,
    /// Bytes of memory that the partitions may still take; what they may in all was looked up when the first of them was told.
    left: OnceLock<Arc<AtomicUsize>>,
}

/// What the file has of the redo behind a checkpoint: all of it up to an LSN.
struct Chain {
    to: Lsn,
    /// `None`: nothing was written to it yet.
    file: Option<Arc<dyn File>>,
    len: u64,
}

/// How far the redo behind the last checkpoint is condensed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condensed {
    /// Up to there.
    pub to: Lsn,
    /// How many batches of the log that was.
    pub batches: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Condenser {
    /// Has the partitions keep what changes from now on, unless they do, if the heap has so many bytes. To be called before a
    /// checkpoint chooses its LSN.
    pub fn keep(&self, engine: &Engine, heap_min: u64) {
        let shared = &engine.shared;
        if shared.heap.allocated_bytes() < heap_min {
            *self.chain.lock() = None;
            return self.end(engine);
        }
        // Another server's redo comes by another way, and a home has what it needs.
        if shared.log.is_shared() || shared.heap.home().is_some() || shared.io.is_read_only() {
            return;
        }
        let memory = || Arc::new(AtomicUsize::new((shared.budget.max() / MEMORY_SHARE).min(MEMORY_MAX)));
        let (left, mut chain) = (self.left.get_or_init(memory), self.chain.lock());
        for mut part in engine.enter_each() {
            if !part.uncondensed.keep(left) {
                // What it does not have any more is missing, should the checkpoint fail.
                *chain = None;
            }
        }
    }

    /// A checkpoint is complete: what lies below its LSN needs no redo any more. To be called before there can be another one.
    pub fn begin(&self, engine: &Engine, checkpoint: Lsn) {
        let mut chain = self.chain.lock();
        let mut is_whole = true;
        engine
            .enter_each()
            .for_each(|mut part| is_whole &= part.uncondensed.take_below(checkpoint).is_some());
        *chain = is_whole.then_some(Chain { to: checkpoint, file: None, len: 0 });
        if chain.is_none() {
            self.end(engine);
        }
        self.to.store(0, Relaxed);
        self.batches.store(engine.shared.log.batches(), Relaxed);
    }

    fn end(&self, engine: &Engine) {
        engine.enter_each().for_each(|mut part| part.uncondensed.end());
    }

    /// How far the redo is condensed; `None`: no part of it.
    pub fn condensed(&self) -> Option<Condensed> {
        let to = self.to.load(Relaxed);
        let (batches, file_bytes) = (self.batches.load(Relaxed), self.file_bytes.load(Relaxed));
        (to > 0).then_some(Condensed { to, batches, file_bytes })
    }

    /// Bytes written to the file since the start.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Whether so much of the log is durable and not condensed that it is time to.
    pub fn is_due(&self, engine: &Engine) -> bool {
        let Some(to) = self.chain.lock().as_ref().map(|chain| chain.to) else { return false };
        let log = &engine.shared.log;
        let batches = log.batches().saturating_sub(self.batches.load(Relaxed));
        log.durable().saturating_sub(to) >= LOG_BYTES || batches >= BATCHES
    }

    /// Condenses what is durable, if that is so many bytes of log for each byte of redo. To be called while no checkpoint is taken,
    /// with the superblock of the last one. If it does not pay, or fails, nothing is condensed until the next one.
    pub fn condense(&self, engine: &Engine, superblock: &Superblock, log_factor: u64) {
        let mut locked = self.chain.lock();
        let Some(chain) = locked.as_mut() else { return };
        if self.extend(chain, engine, superblock, log_factor).is_none() {
            *locked = None;
            self.end(engine);
        }
    }

    /// `None`: it cannot be extended, or that does not pay.
    fn extend(
        &self,
        chain: &mut Chain,
        engine: &Engine,
        superblock: &Superblock,
        log_factor: u64,
    ) -> Option<()> {
        let log = &engine.shared.log;
        let (to, batches) = (log.durable(), log.batches());
        if to <= chain.to {
            return Some(());
        }
        let mut changed = Vec::new();
        for mut part in engine.enter_each() {
            changed.push(part.uncondensed.take_below(to)?);
        }
        let Some((last, redo)) = sorted(&changed) else { return Some(()) };
        if redo.len() as u64 * log_factor > to - chain.to || redo.len() > redo_file::REDO_MAX {
            return None;
        }
        let last_crc = crc32c(&log.payload_at(last)?);
        let covered = Covered { from: chain.to, to, last, last_crc };
        let file = match &mut chain.file {
            Some(file) => file,
            none => {
                let io = &engine.shared.io;
                let file = io.open(redo_file::FILE, true).and_then(|file| io.sync_dir("").map(|()| file));
                none.insert(file.ok()?)
            }
        };
        let len = redo_file::write(&**file, chain.len, superblock, &covered, &redo).ok()?;
        self.written.fetch_add(len, Relaxed);
        (chain.to, chain.len) = (to, chain.len + len);
        self.batches.store(batches, Relaxed);
        self.file_bytes.store(chain.len, Relaxed);
        engine.counters.redo_file_bytes.fetch_max(chain.len, Relaxed);
        self.to.store(to, Relaxed);
        Some(())
    }
}

/// The redo of some changes, as it is encoded, and the LSN of the last batch among them; `None`: there are none.
fn sorted(changed: &[Changed]) -> Option<(Lsn, Vec<u8>)> {
    let last = changed.iter().filter_map(|part| part.batches.last()).map(|(lsn, _)| *lsn).max()?;
    let (mut sorted, mut redo) = (SortedRedo::default(), Vec::new());
    // Of items there are only cancelled ones, which change nothing wherever they are.
    let mut changes = payload::Changes::default();
    let mut add = |bytes: &[u8]| {
        changes.sort(0, bytes, &mut sorted).expect("what a transaction has put together");
    };
    if changed.iter().any(|part| part.reaches_others) {
        let mut batches: Vec<_> = changed.iter().flat_map(Changed::each).collect();
        batches.sort_unstable_by_key(|(lsn, _)| *lsn);
        batches.into_iter().for_each(|(_, bytes)| add(bytes));
    } else {
        changed.iter().for_each(|part| add(&part.bytes));
    }
    sorted.encode(&mut redo);
    Some((last, redo))
}
