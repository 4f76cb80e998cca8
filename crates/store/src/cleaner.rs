//! Cleaning: the live items of a segment that is mostly garbage are appended again, and the segment is freed.
//!
//! Room is made in bursts: none until it runs low, then as fast as it goes until there is some in hand. What a burst
//! appends lies together, and has outlived what it lay among; so what is overwritten often and what is not end up in
//! different segments, and the former soon hold nothing. `docs/decisions.md` has the figures.
//!
//! A segment is freed below the last checkpoint's LSN only (I-6), and once what was moved out of it is durable: replay
//! then finds the moved items behind the checkpoint, wherever the checkpoint's index has them.

use crate::{
    digest::Digest,
    item, payload,
    store::{Inner, corrupt_batch},
    txn::Txn,
    word::WINDOW,
};
use holdfast_io::Result;
use holdfast_log::{Lsn, Scope, SegmentInfo};
use std::{
    mem,
    ops::Range,
    sync::atomic::{
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

impl Inner {
    /// One step of cleaning: empties and frees segments that hold nothing, or the one that is worth most of those that
    /// hold little, if room is wanted; whether there was anything to do.
    pub fn clean(&self) -> Result<bool> {
        let log = &self.shared.log;
        let segments = log.segments();
        // What has emptied a segment lies below this end of the log; see `Batch::settle_released`.
        fence(Acquire);
        let (size, tail) = (self.segment_size, log.tail());
        let kept_from = self.checkpoint_lsn();
        // The log may end just where a segment does, which then holds its end all the same.
        let is_closed = |segment: &&SegmentInfo| segment.end_lsn <= kept_from && segment.end_lsn < tail;
        let closed = || segments.iter().filter(is_closed);

        let dead: Vec<_> = closed().filter(|segment| segment.live_bytes == 0).collect();
        if !dead.is_empty() {
            return self.empty(&dead);
        }
        if let Some(oldest) = closed().next().filter(|oldest| tail - oldest.end_lsn > WINDOW / 2) {
            // Before its items' locations wrap.
            return self.empty(&[oldest]);
        }
        if !self.wants_room(&segments) {
            self.no_room.store(false, Relaxed);
            return Ok(false);
        }
        let room = log.room();
        // No more is counted than is sure: what is a little less than full may be full.
        let may_be = |segment: &SegmentInfo| segment.live_bytes + size / 8;
        let worthwhile = closed().filter(|segment| may_be(segment) < size.min(room));
        let worth = |segment: &SegmentInfo| {
            // By age, too: what has lived long in a segment lives on, and what is young soon leaves without our help.
            let (live, age) = (segment.live_bytes as f64, (tail - segment.end_lsn) as f64);
            (size as f64 - live) / (size as f64 + live) * age.sqrt()
        };
        if let Some(victim) = worthwhile.max_by(|a, b| worth(a).total_cmp(&worth(b))) {
            return self.empty(&[victim]);
        }
        let short = room < ROOM_LOW * size;
        if short && tail - kept_from > size {
            // Of the segments that only the last checkpoint needs, some may be emptier.
            self.checkpoint()?;
            return Ok(true);
        }
        self.no_room.store(short, Relaxed);
        Ok(false)
    }

    /// Whether segments that hold something are to be emptied: because room in the log is short, or because garbage takes
    /// so much that this is worth its writes. Once so, until there is some more in hand.
    fn wants_room(&self, segments: &[SegmentInfo]) -> bool {
        let size = self.segment_size;
        let burst = (self.options.log_bytes_max / size / BURST_FRACTION).clamp(1, BURST);
        let in_hand = if self.is_cleaning.load(Relaxed) { burst * size } else { 0 };
        let live: u64 = segments.iter().map(|segment| segment.live_bytes).sum();
        let garbage = (segments.len() as u64 * size).saturating_sub(live);
        let short = self.shared.log.room() < ROOM_LOW * size + in_hand;
        let wanted = short || garbage + in_hand > (live / 3 * 2).max(GARBAGE_KEPT);
        self.is_cleaning.store(wanted, Relaxed);
        wanted
    }

    /// Whether the room in the log is so short that cleaning should not wait.
    pub fn room_is_short(&self) -> bool {
        self.shared.log.room() < ROOM_LOW * self.segment_size
    }

    /// Appends what lives in segments again, and frees them once that is durable.
    fn empty(&self, segments: &[&SegmentInfo]) -> Result<bool> {
        let log = &self.shared.log;
        for segment in segments {
            // In a segment without live bytes, these may lie in batches that other segments share with it.
            self.move_live(segment.seq, if segment.live_bytes == 0 { Scope::Crossing } else { Scope::All })?;
        }
        log.wait_durable(log.tail())?;
        for segment in segments {
            log.free_segment(segment.seq);
            self.counters.freed_segments.fetch_add(1, Relaxed);
        }
        self.no_room.store(false, Relaxed);
        Ok(true)
    }

    /// Appends the live items of a segment's batches again.
    fn move_live(&self, seq: u64, scope: Scope) -> Result<()> {
        let mut moving = Moving { store: self, records: Vec::new(), found: Vec::new(), sent: 0 };
        self.shared.log.scan_segment(seq, scope, &mut |lsn, bytes| moving.collect(lsn, bytes))?;
        moving.move_collected()
    }
}

/// Items that are looked up together, whether they live.
struct Moving<'s> {
    store: &'s Inner,
    /// Their records.
    records: Vec<u8>,
    found: Vec<FoundRecord>,
    /// The end of the log when the collection before was moved.
    sent: Lsn,
}

struct FoundRecord {
    partition: u16,
    lsn: Lsn,
    digest: Digest,
    /// Where in the records it is.
    bytes: Range<usize>,
}

impl Moving<'_> {
    /// Collects the items of a batch.
    fn collect(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        for found in payload::items(payload) {
            let (rel, item, len) = found.map_err(|what| corrupt_batch(lsn, what))?;
            let start = self.records.len();
            self.records.extend_from_slice(&payload[rel..rel + len]);
            self.found.push(FoundRecord {
                partition: self.store.partition_of(item.key),
                lsn: lsn + (holdfast_log::BATCH_HEADER + rel) as u64,
                digest: self.store.shared.secret.digest(item.key),
                bytes: start..start + len,
            });
            if self.records.len() >= COLLECTED_BYTES {
                self.move_collected()?;
            }
        }
        Ok(())
    }

    /// Appends those of the collected items again that live.
    fn move_collected(&mut self) -> Result<()> {
        let log = &self.store.shared.log;
        // So that the log's buffers are not filled with what nobody waits for.
        log.wait_written(mem::replace(&mut self.sent, log.tail()))?;
        let (records, mut found) = (mem::take(&mut self.records), mem::take(&mut self.found));
        found.sort_by_key(|record| record.partition);
        let now_ms = self.store.shared.io.now_ms();
        let mut rest = &found[..];
        while let Some(&FoundRecord { partition, .. }) = rest.first() {
            let mut txn = Txn::begin(self.store, &[partition], now_ms);
            let count =
                rest.iter().take(SLICE_ITEMS).take_while(|record| record.partition == partition).count();
            let view = |record: &FoundRecord| {
                item::view(&records[record.bytes.clone()]).expect("a record that was looked at before").0
            };
            rest[..count].iter().for_each(|record| txn.prefetch(view(record).db, record.digest));
            let (mut done, mut moved) = (0, 0);
            while done < count && moved < SLICE_BYTES {
                let record = &rest[done];
                if txn.move_item(&view(record), record.digest, record.lsn) {
                    moved += record.bytes.len();
                }
                done += 1;
            }
            self.store.counters.moved_bytes.fetch_add(moved as u64, Relaxed);
            rest = &rest[done..];
        }
        log.kick();
        (self.records, self.found) = (records, found);
        self.records.clear();
        self.found.clear();
        Ok(())
    }
}
