//! Cleaning: the live items of a segment that is mostly garbage are appended again, and the segment is freed.
//!
//! Room is made in bursts: none until it runs low, then as fast as it goes until there is some in hand. What a burst
//! appends lies together, and has outlived what it lay among; so what is overwritten often and what is not end up in
//! different segments, and the former soon hold nothing. `docs/decisions.md` has the figures.
//!
//! A segment is freed below the last checkpoint's LSN only (I-6), and once what was moved out of it is durable: replay
//! then finds the moved items behind the checkpoint, wherever the checkpoint's index has them.

use super::checkpoint::Checkpoints;
use crate::{
    engine::Engine,
    format::{
        digest::Digest,
        entry_word::WINDOW,
        item,
        payload::{self, corrupt_batch},
    },
    txn::Txn,
};
use holdfast_io::{BLOCK, Result};
use holdfast_log::{Log, Lsn, Purpose, Reservation, Scope, SegmentInfo, SharedBatch};
use std::{
    collections::BTreeSet,
    mem,
    ops::Range,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed},
        fence,
    },
};

/// Garbage that is left alone while the medium has room, in bytes; of a larger log, 40 % may be garbage.
const GARBAGE_KEPT: u64 = 1 << 30;
/// Segments' worth of room below which a burst begins. Writers are held back at half of it.
const ROOM_LOW: u64 = 5;
/// Segments' worth of room that a burst makes, at most: of a small log it is this fraction.
const BURST: u64 = 4;
const BURST_FRACTION: u64 = 64;
/// Records that are collected before they are looked up, so that those of one partition come together, in bytes.
const COLLECTED_BYTES: usize = 1 << 20;
/// Records that are looked up under one hold of a partition's lock, and bytes of them that are appended.
const SLICE_ITEMS: usize = 64;
const SLICE_BYTES: usize = 16 << 10;
/// Segments that hold nothing that are freed in one step: a large value that is gone leaves many.
const DEAD_A_STEP: usize = 16;
/// The part of a segment that is moved without a reservation.
const UNRESERVED: u64 = 4;

/// Empties segments, and frees them.
pub(crate) struct Cleaner {
    /// Bytes of a log segment.
    segment_size: u64,
    /// Bytes that the log may have at most.
    log_bytes_max: u64,
    /// Whether a burst of cleaning goes on.
    is_cleaning: AtomicBool,
}

impl Cleaner {
    pub fn new(segment_size: u64, log_bytes_max: u64) -> Cleaner {
        Cleaner { segment_size, log_bytes_max, is_cleaning: AtomicBool::new(false) }
    }

    /// Bytes of a segment of the log.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_size
    }

    /// Whether a burst of cleaning goes on.
    pub fn is_cleaning(&self) -> bool {
        self.is_cleaning.load(Relaxed)
    }

    /// One step of cleaning: empties and frees segments that hold nothing, or the one that is worth most of those that
    /// hold little, if room is wanted; whether there was anything to do. `takes_checkpoint`: also one that there is room for only then.
    pub fn clean(&self, engine: &Engine, checkpoints: &Checkpoints, takes_checkpoint: bool) -> Result<bool> {
        let log = &engine.shared.log;
        if !engine.is_attached() {
            // What lives is not known yet.
            return Ok(false);
        }
        // Before what lives is looked at: all that the checkpoint has not copied is counted by then.
        let kept_from = checkpoints.lsn();
        let segments = log.segments();
        // What has emptied a segment lies below this end of the log; see `batch::release`.
        fence(Acquire);
        let (size, tail) = (self.segment_size, log.tail());
        // The log may end just where a segment does, which then holds its end all the same.
        let is_complete = |segment: &SegmentInfo| segment.end_lsn < tail;
        let victim = |at: usize| Victim::new(&segments, at, size);
        let closed = || {
            let is_closed = |at: &usize| is_complete(&segments[*at]) && segments[*at].end_lsn <= kept_from;
            (0..segments.len()).filter(is_closed).map(victim)
        };
        // What is emptied without a reservation may take of what is the commit's own: after a restart there may be no more.
        let mut room = log.room().max(size / UNRESERVED);
        let dead: Vec<_> = closed()
            .filter(|victim| {
                let is_dead = victim.segment.live_bytes == 0 && victim.moves_max() <= room.min(size);
                room -= if is_dead { victim.moves_max() } else { 0 };
                is_dead
            })
            .take(DEAD_A_STEP)
            .collect();
        if !dead.is_empty() {
            return self.empty(engine, &dead);
        }
        if let Some(oldest) = closed().next().filter(|oldest| tail - oldest.segment.end_lsn > WINDOW / 2) {
            // Before its items' locations wrap.
            return self.empty(engine, &[oldest]);
        }
        let wanted = engine.room.wanted.load(Relaxed);
        let room = log.room();
        if !self.wants_room(log, &segments, wanted) {
            if engine.room.none_for.load(Relaxed) != u64::MAX {
                // There is some for those who want less.
                engine.room.none_for.fetch_max(room, Relaxed);
            }
            return Ok(false);
        }
        let short = room < self.room_wanted(log, wanted);
        let worthwhile = closed().filter(|victim| {
            // A large item that the segment shares is moved only if there is no other way.
            let is_cheap = short || victim.moves <= size;
            is_cheap && victim.is_worthwhile(size) && victim.moves_max() <= room
        });
        let worth = |victim: &Victim| {
            // By age, too: what has lived long in a segment lives on, and what is young soon leaves without our help.
            let age = (tail - victim.segment.end_lsn) as f64;
            (size - victim.keeps) as f64 / (size + victim.moves) as f64 * age.sqrt()
        };
        if let Some(victim) = worthwhile.max_by(|a, b| worth(a).total_cmp(&worth(b))) {
            return self.empty(engine, &[victim]);
        }
        let is_open = |at: &usize| is_complete(&segments[*at]) && segments[*at].end_lsn > kept_from;
        let is_worthwhile = |at| victim(at).is_worthwhile(size);
        if short && takes_checkpoint && (0..segments.len()).filter(is_open).any(is_worthwhile) {
            // Only the last checkpoint needs it.
            match checkpoints.take(engine, None) {
                // Then writers are to know that there is no room.
                Err(e) if e.is_full() => {}
                taken => return taken.map(|()| true),
            }
        }
        if short {
            let is_out = room < self.room_wanted(log, 0);
            engine.room.none_for.store(if is_out { 0 } else { wanted }, Relaxed);
            engine.room.wanted.store(0, Relaxed);
        }
        Ok(false)
    }

    /// Frees the segments in which nothing lives, and appends nothing: what lives in others, or in batches that others share with them, is moved
    /// by the server that appends. Returns how many. All entries are counted.
    pub fn free_dead(&self, engine: &Engine, checkpoints: &Checkpoints) -> Result<usize> {
        let log = &engine.shared.log;
        let (tail, kept_from) = (log.tail(), checkpoints.lsn());
        let mut freed = 0;
        for segment in log.segments() {
            let is_needed = segment.live_bytes > 0 || segment.end_lsn >= tail || segment.end_lsn > kept_from;
            if !is_needed && nothing_lives(engine, segment.seq)? {
                log.free_segment(segment.seq);
                engine.counters.freed_segments.fetch_add(1, Relaxed);
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Whether segments that hold something are to be emptied: because room in the log is short, or because garbage takes
    /// so much that this is worth its writes. Once so, until there is some more in hand.
    fn wants_room(&self, log: &Log, segments: &[SegmentInfo], wanted: u64) -> bool {
        let size = self.segment_size;
        let burst = (self.log_bytes_max / size / BURST_FRACTION).clamp(1, BURST);
        let in_hand = if self.is_cleaning() { burst * size } else { 0 };
        let live: u64 = segments.iter().map(|segment| segment.live_bytes).sum();
        let garbage = (segments.len() as u64 * size).saturating_sub(live);
        let short = log.room() < self.room_wanted(log, 0) + in_hand;
        let is_garbage_much = garbage + in_hand > (live / 3 * 2).max(GARBAGE_KEPT);
        self.is_cleaning.store(short || is_garbage_much, Relaxed);
        short || is_garbage_much || log.room() < self.room_wanted(log, wanted)
    }

    /// Bytes of room that there should be, for a batch of so many bytes, too.
    fn room_wanted(&self, log: &Log, batch: u64) -> u64 {
        (ROOM_LOW * self.segment_size).max(batch + log.room_kept_from_writers())
    }

    /// Whether the room in the log is so short that cleaning should not wait.
    pub fn room_is_short(&self, engine: &Engine) -> bool {
        let log = &engine.shared.log;
        log.room() < self.room_wanted(log, engine.room.wanted.load(Relaxed))
    }

    /// Appends what lives in segments again, and frees them once that is durable, as far as there is room for it; whether any was
    /// freed.
    fn empty(&self, engine: &Engine, victims: &[Victim]) -> Result<bool> {
        let log = &engine.shared.log;
        let mut reservation = Reservation::new(log);
        let moves: u64 = victims.iter().map(Victim::moves_max).sum();
        let is_reserved = moves > self.segment_size / UNRESERVED;
        if is_reserved && reservation.add(moves, Purpose::Clean).is_err() {
            return Ok(false);
        }
        let (mut emptied, mut looked_at) = (Vec::new(), BTreeSet::new());
        for victim in victims {
            let segment = victim.segment;
            // In a segment without live bytes, these may lie in batches that other segments share with it.
            let (is_dead, shared) = (segment.live_bytes == 0, victim.shared_batches(self.segment_size));
            let is_known =
                victim.moves == 0 || is_dead && shared.iter().flatten().all(|lsn| looked_at.contains(lsn));
            let scope = if is_dead { Scope::Crossing } else { Scope::All };
            if is_known || move_live(engine, segment.seq, scope, &mut reservation)? {
                emptied.push(segment.seq);
                // A large batch is read once, not for each of its segments.
                looked_at.extend(shared.into_iter().flatten());
            }
        }
        if emptied.is_empty() {
            return Ok(false);
        }
        log.wait_durable(log.tail())?;
        for seq in emptied {
            log.free_segment(seq);
            engine.counters.freed_segments.fetch_add(1, Relaxed);
        }
        engine.room.none_for.store(u64::MAX, Relaxed);
        Ok(true)
    }
}

/// Appends the live items of a segment's batches again; false if there is no room for all.
fn move_live<'s>(
    engine: &'s Engine,
    seq: u64,
    scope: Scope,
    reservation: &mut Reservation<'s>,
) -> Result<bool> {
    let mut moving =
        Moving { engine, records: Vec::new(), found: Vec::new(), sent: 0, reservation, lacks_room: false };
    engine.shared.log.scan_segment(seq, scope, &mut |lsn, bytes| moving.collect(lsn, bytes))?;
    moving.move_collected()?;
    Ok(!moving.lacks_room)
}

/// Whether no item lives in the batches that a segment without live bytes shares with others.
fn nothing_lives(engine: &Engine, seq: u64) -> Result<bool> {
    let (now_ms, mut lives) = (engine.shared.io.now_ms(), false);
    engine.shared.log.scan_segment(seq, Scope::Crossing, &mut |lsn, payload| {
        for found in payload::items(payload) {
            let (rel, item, _) = found.map_err(|what| corrupt_batch(lsn, what))?;
            let (partition, lsn, digest) = locate(engine, lsn, rel, item.key);
            lives |= Txn::begin(engine, &[partition], now_ms).live_item(&item, digest, lsn).is_some();
        }
        Ok(())
    })?;
    Ok(!lives)
}

/// A segment that may be emptied, and what that costs: batches that it shares with others are moved as a whole.
struct Victim<'s> {
    segment: &'s SegmentInfo,
    /// Live bytes that are moved.
    moves: u64,
    /// Those of them that are moved for the sake of no other segment: the segments between the ends of a batch that is moved
    /// are empty then, too.
    keeps: u64,
}

impl<'s> Victim<'s> {
    /// The segment at a place among all, which are in order.
    fn new(segments: &'s [SegmentInfo], at: usize, size: u64) -> Victim<'s> {
        let segment = &segments[at];
        let mut victim = Victim { segment, moves: segment.live_bytes, keeps: segment.live_bytes };
        let [before, behind] = segment.shared;
        victim.add_shared(segments[..at].iter().rev(), before, size);
        victim.add_shared(segments[at + 1..].iter(), behind, size);
        victim
    }

    /// Adds what lives in a batch that reaches into the segments beside this one.
    fn add_shared(&mut self, beside: impl Iterator<Item = &'s SegmentInfo>, batch: SharedBatch, size: u64) {
        let payload = size - BLOCK as u64;
        let (mut left, mut lives) = (batch.beyond, 0);
        for (next, distance) in beside.zip(1..) {
            // Of a batch that lies partly in a segment that is gone nothing lives.
            if left == 0 || next.seq.abs_diff(self.segment.seq) != distance {
                break;
            }
            let part = left.min(payload);
            let live = next.live_bytes.min(part);
            lives += live;
            self.moves += live;
            self.keeps += if part < payload { live } else { 0 };
            left -= part;
        }
        // Of a large item less is counted as live than it takes: it may be in this segment though that looks empty.
        if batch.beyond >= payload && lives >= batch.beyond / 4 * 3 {
            self.keeps += batch.within;
        }
    }

    /// Where the batches begin that it shares with segments before and behind it.
    fn shared_batches(&self, size: u64) -> [Option<Lsn>; 2] {
        let (payload, end, [before, behind]) =
            (size - BLOCK as u64, self.segment.end_lsn, self.segment.shared);
        let first = end - payload - before.beyond;
        let last = if behind.within == payload { first } else { end - behind.within };
        [(before.beyond > 0).then_some(first), (behind.beyond > 0).then_some(last)]
    }

    /// Bytes of log that moving takes at most. No more is counted as live than is sure, and batches have headers.
    fn moves_max(&self) -> u64 {
        self.moves + self.moves / 8 + self.moves / 64 + if self.moves > 0 { BLOCK as u64 } else { 0 }
    }

    /// Whether more becomes free than is written. What is a little less than full may be full.
    fn is_worthwhile(&self, size: u64) -> bool {
        self.keeps + size / 8 < size
    }
}

/// Items that are looked up together, whether they live.
struct Moving<'s, 'r> {
    engine: &'s Engine,
    /// Their records.
    records: Vec<u8>,
    found: Vec<FoundRecord>,
    /// The end of the log when the collection before was moved.
    sent: Lsn,
    /// Room for what is moved.
    reservation: &'r mut Reservation<'s>,
    /// Whether something could not be moved.
    lacks_room: bool,
}

/// Where the record of a key is whose item begins at `rel` in the payload of the batch at an LSN, and what it is looked up by.
fn locate(engine: &Engine, batch: Lsn, rel: usize, key: &[u8]) -> (u16, Lsn, Digest) {
    let lsn = batch + (holdfast_log::BATCH_HEADER + rel) as u64;
    (engine.partition_of(key), lsn, engine.shared.secret.digest(key))
}

struct FoundRecord {
    partition: u16,
    lsn: Lsn,
    digest: Digest,
    /// Where in the records it is.
    bytes: Range<usize>,
}

impl Moving<'_, '_> {
    /// Collects the items of a batch.
    fn collect(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        for found in payload::items(payload) {
            let (rel, item, len) = found.map_err(|what| corrupt_batch(lsn, what))?;
            let start = self.records.len();
            self.records.extend_from_slice(&payload[rel..rel + len]);
            let (partition, lsn, digest) = locate(self.engine, lsn, rel, item.key);
            self.found.push(FoundRecord { partition, lsn, digest, bytes: start..start + len });
            if self.records.len() >= COLLECTED_BYTES {
                self.move_collected()?;
            }
        }
        Ok(())
    }

    /// Appends those of the collected items again that live.
    fn move_collected(&mut self) -> Result<()> {
        let log = &self.engine.shared.log;
        // So that the log's buffers are not filled with what nobody waits for.
        log.wait_written(mem::replace(&mut self.sent, log.tail()))?;
        let (records, mut found) = (mem::take(&mut self.records), mem::take(&mut self.found));
        found.sort_by_key(|record| record.partition);
        let now_ms = self.engine.shared.io.now_ms();
        let mut rest = &found[..];
        while let Some(&FoundRecord { partition, .. }) = rest.first() {
            let mut txn = Txn::begin(self.engine, &[partition], now_ms);
            let count =
                rest.iter().take(SLICE_ITEMS).take_while(|record| record.partition == partition).count();
            let view = |record: &FoundRecord| {
                item::view(&records[record.bytes.clone()]).expect("a record that was looked at before").0
            };
            rest[..count].iter().for_each(|record| txn.prefetch(view(record).db, record.digest));
            let (mut done, mut moved) = (0, 0);
            while done < count && moved < SLICE_BYTES {
                let record = &rest[done];
                let item = view(record);
                done += 1;
                // No more is counted as live than is sure, so there may be more to move than was thought.
                if log.room_at_all() < (moved + record.bytes.len() + BLOCK) as u64 {
                    self.lacks_room |= txn.live_item(&item, record.digest, record.lsn).is_some();
                } else if txn.move_item(&item, record.digest, record.lsn) {
                    moved += record.bytes.len();
                }
            }
            txn.commit();
            self.reservation.release(moved as u64);
            self.engine.counters.moved_bytes.fetch_add(moved as u64, Relaxed);
            rest = &rest[done..];
        }
        log.kick();
        (self.records, self.found) = (records, found);
        self.records.clear();
        self.found.clear();
        Ok(())
    }
}
