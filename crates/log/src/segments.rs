//! The segment files: which of them holds which part of the log.
//!
//! A file is *kept* under its sequence number from the moment its header with that number is durable. The newest
//! one or two kept segments are *prepared*: nothing was written to them yet. A freed file is a *spare* until it is
//! prepared again; its header says so, without being made durable: if a crash takes that back, it is a kept segment again,
//! with nothing live.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{Arc, atomic::Ordering},
};

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, ReadQueue, Result};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::{
    cursor::Pins,
    layout::{BLOCK_BYTES, Entry, FIRST_LSN, HEADER_COPY, Lsn, SegmentHeader},
    live::LiveBytes,
    stats::WriteCounters,
    table::{FOLDER, FileLimits, Segment, SlotFile, Space, Table, Tier},
};

/// How often a segment's header says anew up to where the segment may have been written to, until that is all of it.
const REACHES: u32 = 4;

pub(crate) struct Segments {
    pub io: Arc<dyn Io>,
    segment_size: u32,
    /// See [`quotient`].
    payload_reciprocal: u64,
    store_id: [u8; 16],
    pub epoch: u32,
    /// Locked before the table.
    pub pins: Mutex<Pins>,
    pub table: RwLock<Table>,
    /// Held while a segment is prepared, so that the order of sequence numbers is the order of headers.
    preparing: Mutex<()>,
    pub live: LiveBytes,
    pub writes: WriteCounters,
    pub space: Space,
}

/// Space counts for [`crate::LogStats`].
pub(crate) struct SpaceStats {
    pub files: u32,
    /// Spares, and files that could still be made.
    pub free: u32,
}

impl Segments {
    /// `next`: the sequence number after the newest of `kept`.
    pub fn new(
        io: Arc<dyn Io>,
        o: &crate::LogOptions,
        kept: BTreeMap<u64, Arc<Segment>>,
        spares: Vec<SlotFile>,
        next: u64,
    ) -> Self {
        let live = LiveBytes::new(kept.len().max(o.max_segments as usize));
        kept.keys().for_each(|&seq| live.insert(seq));
        let (spares_below, spares): (Vec<_>, Vec<_>) = spares.into_iter().partition(|file| file.is_below);
        let kept_below = kept.values().filter(|segment| segment.file.is_below).count();
        let (above_max, below_max) = if io.below().is_some() {
            (o.segments_above_max.into(), u64::MAX >> 1)
        } else {
            (u64::MAX >> 1, 0)
        };
        let tier = |kept: usize, spares: Vec<SlotFile>, files_max| Tier {
            files: (kept + spares.len()) as u64,
            spares,
            files_max,
            is_full: false,
            is_tried: false,
        };
        let limits = FileLimits { by_options: o.max_segments.into(), open: u64::MAX, by_budget: u64::MAX };
        let table = Table {
            above: tier(kept.len() - kept_below, spares, above_max),
            below: tier(kept_below, spares_below, below_max),
            is_out_of_files: false,
            lowest_above: 0,
            kept,
            held: BTreeMap::new(),
            next,
            limits,
            files_max: limits.least(),
        };
        let segments = Self {
            io,
            segment_size: o.segment_size,
            payload_reciprocal: reciprocal(u64::from(o.segment_size) - BLOCK_BYTES),
            store_id: o.store_id,
            epoch: o.epoch,
            pins: Mutex::default(),
            table: RwLock::new(table),
            preparing: Mutex::new(()),
            live,
            writes: WriteCounters::default(),
            space: Space::default(),
        };
        segments.measure_space();
        segments
    }

    /// Bytes of log in a segment.
    pub fn payload(&self) -> u64 {
        u64::from(self.segment_size) - BLOCK_BYTES
    }

    #[inline]
    pub fn seq_of(&self, lsn: Lsn) -> u64 {
        quotient(lsn, self.payload(), self.payload_reciprocal)
    }

    pub fn start_of(&self, seq: u64) -> Lsn {
        seq * self.payload()
    }

    /// Where in its segment's file `lsn` lies.
    pub fn file_offset(&self, lsn: Lsn) -> u64 {
        BLOCK_BYTES + lsn % self.payload()
    }

    pub fn get(&self, seq: u64) -> Option<Arc<Segment>> {
        let table = self.table.read();
        table.kept.get(&seq).or_else(|| table.held.get(&seq)).cloned()
    }

    /// Whether the segments that hold `from..to` are there.
    pub fn is_kept(&self, from: Lsn, to: Lsn) -> bool {
        (self.seq_of(from)..=self.seq_of(to - 1)).all(|seq| self.get(seq).is_some())
    }

    /// Where, from `lsn` on, the first segment begins that is not there or was freed, be it that a pin keeps it.
    pub fn unfreed_end(&self, lsn: Lsn) -> Lsn {
        let (table, first) = (self.table.read(), self.seq_of(lsn));
        let unfreed = table.kept.range(first..).zip(first..).take_while(|((seq, _), next)| *seq == next);
        self.start_of(first + unfreed.count() as u64)
    }

    /// How many of the `len` bytes from `lsn` on are there, up to the first segment that is not.
    pub fn kept_part(&self, lsn: Lsn, len: u64) -> u64 {
        let segments = self.seq_of(lsn)..=self.seq_of(lsn + len - 1);
        let missing = segments.clone().find(|&seq| self.get(seq).is_none());
        missing.map_or(len, |seq| self.start_of(seq).saturating_sub(lsn))
    }

    /// Keeps a segment that was found without its header.
    pub fn adopt(&self, segment: Arc<Segment>) {
        self.table.write().kept.entry(segment.seq).or_insert(segment);
    }

    /// The kept segments, oldest first.
    pub fn kept(&self) -> Vec<Arc<Segment>> {
        self.table.read().kept.values().cloned().collect()
    }

    /// The kept segments, and those that only pins keep, oldest first.
    pub fn kept_and_held(&self) -> Vec<Arc<Segment>> {
        let table = self.table.read();
        let mut all: Vec<_> = table.kept.values().chain(table.held.values()).cloned().collect();
        all.sort_unstable_by_key(|segment| segment.seq);
        all
    }

    /// The end of the prepared part of the log.
    pub fn prepared_end(&self) -> Lsn {
        self.start_of(self.table.read().next)
    }

    pub fn space_stats(&self) -> SpaceStats {
        let table = self.table.read();
        let files = table.files() as u32;
        SpaceStats { files, free: (self.seq_of(self.space_end()) - table.next) as u32 }
    }

    /// Has who prepares a segment wait.
    pub fn pause_preparing(&self) -> MutexGuard<'_, ()> {
        self.preparing.lock()
    }

    /// Prepares the next segment; false if there is no room for it.
    pub fn prepare_next(&self, durable: Lsn) -> Result<bool> {
        let _preparing = self.preparing.lock();
        let Some(file) = self.take_file(durable)? else { return Ok(false) };
        let seq = self.table.read().next;
        // Nothing comes before the first batch of all, and so nothing enters the first segment.
        let (entry, reach) = match seq {
            0 => (Entry { crossing: FIRST_LSN, first: FIRST_LSN }, BLOCK_BYTES + FIRST_LSN),
            _ => (Entry::default(), BLOCK_BYTES),
        };
        let segment = Arc::new(Segment::new(seq, file, Entry::default(), reach as u32));
        self.write_header(&segment, durable, entry)?;
        self.live.insert(seq);
        let mut table = self.table.write();
        table.kept.insert(seq, segment);
        table.next = seq + 1;
        drop(table);
        self.measure_space();
        Ok(true)
    }

    /// Prepares segments until `end` is within them; false if there is no room.
    pub fn prepare_to(&self, end: Lsn, durable: Lsn) -> Result<bool> {
        while self.prepared_end() < end {
            if !self.prepare_next(durable)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the header.
    pub fn write_header(&self, segment: &Segment, durable: Lsn, entry: Entry) -> Result<()> {
        self.write_header_reaching(segment, durable, entry, segment.reach() as u32)
    }

    /// The same with another reach.
    pub fn write_header_reaching(
        &self,
        segment: &Segment,
        durable: Lsn,
        entry: Entry,
        reach: u32,
    ) -> Result<()> {
        let block = self.encode_header(segment.seq, durable, entry, reach, false);
        self.write_header_block(segment, &block, Durability::Durable)?;
        segment.set_entry(entry);
        segment.set_reach(reach);
        Ok(())
    }

    /// Has the header say that the segment may be written to up to `end`, a position in its file, and if nothing was
    /// written to it yet, how the log enters it. To be called before that is written.
    pub fn reach_to(
        &self,
        segment: &Segment,
        end: u64,
        durable: Lsn,
        entry: impl FnOnce() -> Entry,
    ) -> Result<()> {
        if end <= segment.reach() && !segment.is_empty() {
            return Ok(());
        }
        let entry = if segment.is_empty() { entry() } else { segment.entry() };
        self.write_header_reaching(segment, durable, entry, self.reach_over(segment, end))
    }

    /// The reach for a segment of which all up to `end`, a position in its file, is within it.
    pub fn reach_over(&self, segment: &Segment, end: u64) -> u32 {
        let step = (self.segment_size / REACHES).max(BLOCK as u32);
        match segment.reach() {
            reach if end <= reach => reach as u32,
            _ => end.next_multiple_of(step.into()) as u32,
        }
    }

    /// Up to where behind `lsn` anything may have been written.
    pub fn reach_behind(&self, lsn: Lsn) -> Lsn {
        let mut end = lsn;
        while let Some(segment) = self.get(self.seq_of(end)) {
            let (reach, next) = (self.reach_of(&segment), self.start_of(segment.seq + 1));
            // If the log has gone beyond the reach, that says nothing.
            if (end..next).contains(&reach) {
                return reach;
            }
            end = next;
        }
        end
    }

    /// Up to where in the log a segment may have been written to.
    pub fn reach_of(&self, segment: &Segment) -> Lsn {
        self.start_of(segment.seq) + (segment.reach() - BLOCK_BYTES)
    }

    /// Writes the first block of a segment's file.
    fn write_header_block(&self, segment: &Segment, block: &[u8], durability: Durability) -> Result<()> {
        let write = |bytes: &[u8], offset: usize| {
            let written = segment.file.write_at(&[bytes], offset as u64, durability);
            written.map_err(|e| Error::io(format!("write {}", segment.file.name()), e))?;
            self.writes.headers.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        };
        let medium = if segment.file.is_below { self.io.below() } else { Some(&*self.io) };
        if medium.and_then(Io::scm).is_none() {
            return write(block, 0);
        }
        // Memory writes no more than a word whole: while one of the two is written, the other one is there. First the one that the
        // power may have cut off before.
        let mut old = AlignedBuf::zeroed(BLOCK);
        let read = segment.file.read_at(&mut old, 0);
        read.map_err(|e| Error::io(format!("read {}", segment.file.name()), e))?;
        let offsets = if SegmentHeader::is_torn(&old) { [0, HEADER_COPY] } else { [HEADER_COPY, 0] };
        offsets.into_iter().try_for_each(|offset| write(&block[..HEADER_COPY], offset))
    }

    fn encode_header(&self, seq: u64, durable: Lsn, entry: Entry, reach: u32, is_free: bool) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK);
        let (segment_size, store_id, epoch) = (self.segment_size, self.store_id, self.epoch);
        SegmentHeader { segment_size, store_id, seq, durable, entry, epoch, is_free, reach }
            .encode(&mut block);
        block
    }

    /// Makes a segment's file a spare, unless a pin keeps it still; `tail`: the log's end.
    pub fn free(&self, seq: u64, tail: Lsn, durable: Lsn) -> Result<()> {
        let mut pins = self.pins.lock();
        let segment = self.get(seq).expect("only a kept segment is freed");
        let is_held = pins.kept_from(tail).is_some_and(|from| self.start_of(seq + 1) > from);
        if !is_held {
            self.write_freed(&segment, durable)?;
        }
        let mut table = self.table.write();
        table.kept.remove(&seq);
        if is_held {
            table.held.insert(seq, segment);
        } else {
            table.add_spare(segment.file.clone());
        }
        drop(table);
        self.live.remove(seq);
        self.measure_space();
        Ok(())
    }

    /// Makes the files of freed segments spares that no pin keeps any more; whether there were any.
    pub fn release_held(&self, tail: Lsn, durable: Lsn) -> Result<bool> {
        let mut pins = self.pins.lock();
        let from = pins.kept_from(tail).unwrap_or(Lsn::MAX);
        let held: Vec<_> = self.table.read().held.values().cloned().collect();
        let released: Vec<_> = held.into_iter().filter(|s| self.start_of(s.seq + 1) <= from).collect();
        for segment in &released {
            self.write_freed(segment, durable)?;
            let mut table = self.table.write();
            table.held.remove(&segment.seq);
            table.add_spare(segment.file.clone());
        }
        self.measure_space();
        Ok(!released.is_empty())
    }

    /// Says in a segment's header that its file is free, for a restart to find it so.
    pub(crate) fn write_freed(&self, segment: &Segment, durable: Lsn) -> Result<()> {
        // Before it can be prepared again. Volatile: what comes to the same block later comes to the medium later. But to a file below,
        // others come before it.
        let durability = if segment.file.is_below { Durability::Durable } else { Durability::Volatile };
        let block = self.encode_header(segment.seq, durable, segment.entry(), segment.reach() as u32, true);
        self.write_header_block(segment, &block, durability)
    }

    /// Counts `bytes` (of either sign) of the record at `lsn` in the segments that it covers.
    pub fn account(&self, lsn: Lsn, bytes: i64) {
        let seq = self.seq_of(lsn);
        if lsn + bytes.unsigned_abs() <= self.start_of(seq + 1) {
            self.live.add(seq, bytes);
        } else {
            self.account_parts(lsn, bytes);
        }
    }

    /// The same for a record in several segments.
    #[cold]
    fn account_parts(&self, lsn: Lsn, bytes: i64) {
        let (mut at, end) = (lsn, lsn + bytes.unsigned_abs());
        while at < end {
            let seq = self.seq_of(at);
            let part = end.min(self.start_of(seq + 1)) - at;
            let signed = if bytes < 0 { -(part as i64) } else { part as i64 };
            self.live.add(seq, signed);
            at += part;
        }
    }

    /// Where `lsn` is, for error messages: a file name and an offset.
    pub fn locate(&self, lsn: Lsn) -> (String, u64) {
        let seq = self.seq_of(lsn);
        let name =
            self.get(seq).map_or_else(|| format!("{FOLDER}: segment {seq}"), |s| s.file.name().to_owned());
        (name, self.file_offset(lsn))
    }

    pub fn corrupt(&self, lsn: Lsn, what: impl Into<String>) -> Error {
        let (file, offset) = self.locate(lsn);
        Error::corrupt(&file, offset, what)
    }

    /// Asks `queue` for bytes of one segment; false if they are not of one.
    pub fn begin_read(&self, lsn: Lsn, len: usize, queue: &mut ReadQueue, tag: u64) -> bool {
        let seq = self.seq_of(lsn);
        match self.get(seq) {
            Some(segment) if lsn + len as u64 <= self.start_of(seq + 1) => {
                segment.file.begin_read(queue, self.file_offset(lsn), len, tag);
                true
            }
            _ => false,
        }
    }

    /// Fills `buf` from the files.
    pub fn read(&self, lsn: Lsn, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (lsn, buf);
        while !rest.is_empty() {
            let seq = self.seq_of(at);
            let Some(segment) = self.get(seq) else {
                return Err(self.corrupt(at, "the segment is missing"));
            };
            let part = (self.start_of(seq + 1) - at).min(rest.len() as u64) as usize;
            let (head, tail) = rest.split_at_mut(part);
            segment.file.read_at(head, self.file_offset(at)).map_err(|e| match e.kind() {
                ErrorKind::UnexpectedEof => self.corrupt(at, "the file is too short"),
                _ => Error::io(format!("read {}", segment.file.name()), e),
            })?;
            at += part as u64;
            rest = tail;
        }
        Ok(())
    }
}

/// 2^64 divided by a divisor of at least 2.
fn reciprocal(divisor: u64) -> u64 {
    u64::MAX / divisor
}

/// `number / divisor`, for a fraction of what the processor takes to divide 64 bits.
#[inline]
fn quotient(number: u64, divisor: u64, reciprocal: u64) -> u64 {
    // The reciprocal is less than exact by at most 1, so this is less than the exact quotient by less than 1.
    let least = ((u128::from(number) * u128::from(reciprocal)) >> 64) as u64;
    least + u64::from(number - least * divisor >= divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        for divisor in (2..70).chain((14..32).map(|bits| (1 << bits) - BLOCK_BYTES)) {
            for multiple in (0..200).chain([1 << 20, u64::MAX / divisor - 1, u64::MAX / divisor]) {
                let exact = multiple * divisor;
                for number in [exact, exact.wrapping_add(1), exact.wrapping_sub(1)] {
                    assert_eq!(quotient(number, divisor, reciprocal(divisor)), number / divisor, "{number}");
                }
            }
        }
    }
}
