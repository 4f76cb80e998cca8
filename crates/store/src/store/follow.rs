//! A store that follows: another server appends to its log, somebody stores that here, and each batch that is agreed on is applied. Meanwhile it
//! is read, as any store.
//!
//! What is applied is what a start would replay, redo and items, so that a follower's heap is the other server's, byte for byte. What a start
//! finds out only when all is replayed must follow each batch here (`partition/follow.rs`). A batch is applied under the locks of all
//! its partitions, so nobody sees a part of it.
//!
//! When this server comes to lead, the store goes on as it is in memory: what is known of it beside the heap has followed, and what a
//! start finds out in the background it finds out then.

use super::{Store, open, options::Options};
use crate::{
    engine::{
        Engine,
        locks::{LockWait, Locks},
    },
    format::payload::{Changes, corrupt_batch},
    maintenance::{Maintenance, checkpoint::Followed, freezer},
    partition::{
        databases::{DATABASES, SYSTEM_DATABASE},
        follow::{IndexPlaces, changes_database_map},
    },
};
use holdfast_heap::{EXTENT, Heap, Load, Record};
use holdfast_io::{Error, Io, Result};
use holdfast_log::{Cursor, Log, Lsn, Step};
use std::{sync::Arc, time::Instant};

/// Bytes of log that are applied until others are looked after.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of pages that are loaded at once.
const LOAD_BYTES: usize = 1 << 20;

/// A store that follows, and who applies to it what comes.
pub struct Follower {
    store: Arc<Store>,
    /// Whether it is to have threads once it leads.
    background: bool,
    cursor: Cursor,
    /// By partition.
    places: Vec<IndexPlaces>,
    /// The term of the last batch that was applied.
    epoch: u32,
    incoming: Incoming,
    /// Whether all pages are loaded that are to be.
    is_loaded: bool,
    /// Whether something was written to the system's database since that was asked last.
    has_system_changes: bool,
}

impl Follower {
    /// Opens the store of a folder to follow its log, which somebody else has open and stores to. Nobody else opens the folder meanwhile.
    ///
    /// # Errors
    /// As [`Store::open_on`].
    pub fn open(io: Arc<dyn Io>, log: Arc<Log>, options: Options) -> Result<Follower> {
        let started = Instant::now();
        let (maintenance, mut recovery, (cursor, epoch)) = open::follow(io, log, &options)?;
        recovery.us = started.elapsed().as_micros() as u64;
        let places = maintenance.engine.partitions.iter().map(|part| {
            let mut part = part.lock();
            part.call_attached();
            IndexPlaces::of(&part)
        });
        let places = places.collect();
        let store = Arc::new(Store::of_follower(maintenance, recovery, &options));
        let background = options.background;
        store.keep_expired(true);
        Ok(Follower {
            store,
            background,
            cursor,
            places,
            epoch,
            incoming: Incoming::default(),
            is_loaded: false,
            has_system_changes: false,
        })
    }

    /// The store, to be read; once it [leads](Follower::lead), to be written.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// All batches below are applied.
    pub fn applied(&self) -> Lsn {
        self.cursor.lsn()
    }

    /// A start reads the log from there on.
    pub fn checkpointed(&self) -> Lsn {
        self.maintenance().checkpoints.lsn()
    }

    /// Whether the log has little room, and a checkpoint may free some of it.
    pub fn wants_room(&self) -> bool {
        let Maintenance { engine, cleaner, .. } = self.maintenance();
        let is_of_use = self.applied() - self.checkpointed() >= cleaner.segment_bytes();
        is_of_use && cleaner.room_is_short(engine)
    }

    fn maintenance(&self) -> &Maintenance {
        &self.store.maintenance
    }

    /// Applies some of what the log has durably, and not beyond, nor beyond what is written to the system's database; whether there may be more.
    ///
    /// # Errors
    /// The medium's, or what is on it is not what it should be: the store is to be given up.
    pub fn advance(&mut self) -> Result<bool> {
        let until = self.cursor.lsn() + STEP_BYTES;
        let engine = &self.store.maintenance.engine;
        while self.cursor.lsn() < until {
            match self.cursor.step()? {
                Step::Batch(batch) => {
                    let is_systems =
                        self.incoming.apply(engine, &mut self.places, batch.lsn, batch.payload)?;
                    self.epoch = batch.epoch;
                    if is_systems {
                        self.has_system_changes = true;
                        return Ok(true);
                    }
                }
                Step::End => return Ok(false),
                Step::Overrun => return Err(Error::Unusable("what is to be applied was freed".into())),
            }
        }
        Ok(true)
    }

    /// Whether something was written to the system's database since the last call.
    pub fn take_system_changes(&mut self) -> bool {
        std::mem::take(&mut self.has_system_changes)
    }

    /// Whether [`Store::request_checkpoint`] was called since the last call.
    pub fn takes_requests(&self) -> bool {
        self.maintenance().checkpoints.take_request()
    }

    /// Brings in some of what is not in memory yet, after a start; whether there may be more.
    ///
    /// # Errors
    /// The medium's.
    pub fn load(&mut self) -> Result<bool> {
        if self.is_loaded {
            return Ok(false);
        }
        let (engine, heap) = (&self.maintenance().engine, &self.store.shared.heap);
        let more = heap.load_next(Load::Pinned, LOAD_BYTES)?
            || engine.has_room_to_load() && heap.load_next(Load::All, LOAD_BYTES)?;
        self.is_loaded = !more;
        Ok(more)
    }

    /// Lets copies and pages go while they take more memory than they may; whether more pages could leave after a checkpoint, and have to.
    pub fn tend_memory(&mut self) -> bool {
        let (engine, shared) = (&self.maintenance().engine, &self.store.shared);
        let budget = &shared.budget;
        if budget.max() == usize::MAX {
            return false;
        }
        shared.judge_memory();
        engine.fit_copies(&false.into());
        let mut unwritten = 0;
        // What was used since the hand came by last is spared the first time.
        for partition in engine.numbers().chain(engine.numbers()) {
            if !budget.wants_freezing() || budget.ram_of_data().all <= budget.freeze_to() {
                return false;
            }
            let mut is_around = false;
            while !is_around {
                let evicted = freezer::evict_pages(engine, partition);
                unwritten += evicted.unwritten;
                is_around = evicted.is_around;
            }
            budget.judge_data();
        }
        unwritten > 0 && self.applied() > self.checkpointed()
    }

    /// Takes a checkpoint of all that is applied, so that a start has little to replay, and frees what is of no use then. `keep_from` is told
    /// first from where on a start reads the log. Returns how many segments were freed.
    ///
    /// # Errors
    /// The medium's, also [`Error::is_full`], after which all is as before; those of `keep_from`; or it was given up, as `gives_up` said.
    pub fn checkpoint(
        &mut self,
        keep_from: &dyn Fn(Lsn) -> Result<()>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<usize> {
        self.count()?;
        let Maintenance { engine, checkpoints, cleaner, disk, .. } = self.maintenance();
        let followed = Followed { lsn: self.cursor.lsn(), epoch: self.epoch, keep_from, gives_up };
        checkpoints.take(engine, Some(&followed))?;
        disk.fit(engine)?;
        cleaner.free_dead(engine, checkpoints)
    }

    /// Counts what of the log is live: redo does not say what was before. Checkpoints do so.
    ///
    /// # Errors
    /// As [`Follower::checkpoint`].
    pub fn count(&mut self) -> Result<()> {
        let engine = &self.maintenance().engine;
        engine.finish_replay()?;
        engine.detach_all();
        engine.attach_all();
        Ok(())
    }

    /// Has the store be one that leads, whose log does so ([`Log::lead`]) and is applied as a whole: it is written from now on, and cleans and
    /// expires as any other. Nobody may have written to it, or appended to the log.
    ///
    /// # Errors
    /// The medium's, or there are no threads: the store is to be given up.
    pub fn lead(self) -> Result<Arc<Store>> {
        let Follower { store, background, cursor, .. } = self;
        let engine = store.engine();
        assert_eq!(cursor.lsn(), engine.shared.log.tail(), "what is not applied would be lost");
        engine.detach_all();
        engine.enter_each().for_each(|mut part| part.arena.end_following());
        engine.shared.heap.find_free_extents();
        store.keep_expired(false);
        store.begin_upkeep(background)?;
        Ok(store)
    }
}

/// A batch as it is applied. Its memory is used again for the next one.
#[derive(Default)]
struct Incoming {
    changes: Changes,
    reach: Reach,
}

/// What a batch is about.
#[derive(Default)]
struct Reach {
    /// The partitions, in order.
    partitions: Vec<u16>,
    /// Whether it changes what the databases are.
    is_remapped: bool,
}

impl Incoming {
    /// Applies the batch at an LSN; whether it writes to the system's database.
    fn apply(
        &mut self,
        engine: &Engine,
        places: &mut [IndexPlaces],
        lsn: Lsn,
        payload: &[u8],
    ) -> Result<bool> {
        let heap = &engine.shared.heap;
        let Incoming { changes, reach } = self;
        reach.partitions.clear();
        reach.is_remapped = false;
        changes.each(lsn, payload, |change| reach.add(heap, change))?;
        reach.complete(places.len() as u16, lsn)?;
        if reach.partitions.is_empty() {
            return Ok(false);
        }
        let locks = Locks::take(engine, &reach.partitions, LockWait::Endless);
        let mut locks = locks.expect("it waits as long as it takes");
        changes.each(lsn, payload, |change| change_heap(heap, &mut locks, places, change))?;
        if reach.is_remapped {
            for logical in 0..DATABASES as u8 {
                engine.shared.databases.set(logical, locks.get(0).database_map(logical));
            }
        }
        let mut is_systems = false;
        for &partition in &reach.partitions {
            let places = &mut places[usize::from(partition)];
            is_systems |= places.have_written(SYSTEM_DATABASE);
            locks.get(partition).follow(&engine.shared, places)?;
        }
        locks.end();
        Ok(is_systems)
    }
}

impl Reach {
    /// Adds the partitions that a change is about.
    fn add(&mut self, heap: &Heap, change: &Record) -> Result<()> {
        let (offset, len) = match *change {
            Record::Owner { extent, owner, used } => {
                let old = heap.arena_at(u64::from(extent) * EXTENT);
                let new = heap.new_owner(extent, owner, used)?;
                old.into_iter().chain(new).for_each(|partition| self.add_partition(partition));
                return Ok(());
            }
            Record::Write { offset, bytes } => (offset, bytes.len()),
            Record::Fill { offset, len, .. } => (offset, len),
        };
        self.is_remapped |= changes_database_map(offset, len);
        let partitions = pieces(offset, len).filter_map(|(offset, _)| heap.arena_at(offset));
        partitions.for_each(|partition| self.add_partition(partition));
        Ok(())
    }

    fn add_partition(&mut self, partition: u16) {
        if !self.partitions.contains(&partition) {
            self.partitions.push(partition);
        }
    }

    /// All changes of the batch are added; there are so many partitions.
    fn complete(&mut self, partitions: u16, lsn: Lsn) -> Result<()> {
        match self.is_remapped {
            // Who has locked one partition relies on what the databases are.
            true => self.partitions = (0..partitions).collect(),
            false => self.partitions.sort_unstable(),
        }
        match self.partitions.last() {
            Some(last) if *last >= partitions => {
                Err(corrupt_batch(lsn, "it is of a partition that there is not"))
            }
            _ => Ok(()),
        }
    }
}

fn change_heap(heap: &Heap, locks: &mut Locks, places: &mut [IndexPlaces], change: &Record) -> Result<()> {
    match *change {
        Record::Write { offset, bytes } => write(heap, locks, places, offset, bytes),
        Record::Fill { offset, len, byte } => write(heap, locks, places, offset, &vec![byte; len]),
        Record::Owner { extent, owner, used } => {
            if let Some(old) = heap.arena_at(u64::from(extent) * EXTENT) {
                locks.get(old).arena.lose(extent);
            }
            if let Some(new) = heap.new_owner(extent, owner, used)? {
                locks.get(new).arena.gain(extent, owner, used);
            }
        }
    }
    Ok(())
}

/// The parts of a range that lie in one extent each: offsets and lengths.
fn pieces(mut offset: u64, mut len: usize) -> impl Iterator<Item = (u64, usize)> {
    std::iter::from_fn(move || {
        let piece = (offset, len.min((EXTENT - offset % EXTENT) as usize));
        (offset, len) = (offset + piece.1 as u64, len - piece.1);
        (piece.1 > 0).then_some(piece)
    })
}

/// Writes bytes to the extents that they are in. What is nobody's any more, or not yet, is made zero by a later record.
fn write(heap: &Heap, locks: &mut Locks, places: &mut [IndexPlaces], offset: u64, mut bytes: &[u8]) {
    for (offset, len) in pieces(offset, bytes.len()) {
        let (piece, behind) = bytes.split_at(len);
        bytes = behind;
        if let Some(partition) = heap.arena_at(offset) {
            locks.get(partition).redo(&mut places[usize::from(partition)], offset, piece);
        }
    }
}
