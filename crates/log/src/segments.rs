//! The segment files: which of them holds which part of the log, and which are free.
//!
//! A file is *kept* under its sequence number from the moment its header with that number is durable. The newest
//! one or two kept segments are *prepared*: nothing was written to them yet. A freed file is a *spare* until it is
//! prepared again; its header says so, without being made durable: if a crash takes that back, it is a kept segment again,
//! with nothing live.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, ReadQueue, Result};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::{
    Limit, LogUsage,
    cursor::Pins,
    layout::{BLOCK_BYTES, Entry, FIRST_LSN, HEADER_COPY, Lsn, SegmentHeader},
    live::LiveBytes,
    stats::WriteCounters,
};

/// The folder of the data folder that the log's files are in.
pub const FOLDER: &str = "log";
/// How many bytes that are to be left for others may be added before space is measured again.
const UNMEASURED_MAX: u64 = 1 << 20;
/// New files are zeroed in pieces of this size.
const ZEROES: usize = 1 << 20;

/// One kept segment.
pub(crate) struct Segment {
    pub seq: u64,
    pub slot: u32,
    pub file: Arc<dyn File>,
    crossing: AtomicU64,
    first: AtomicU64,
}

impl Segment {
    pub fn new(seq: u64, slot: u32, file: Arc<dyn File>, entry: Entry) -> Self {
        let (crossing, first) = (AtomicU64::new(entry.crossing), AtomicU64::new(entry.first));
        Self { seq, slot, file, crossing, first }
    }

    pub fn entry(&self) -> Entry {
        let first = self.first.load(Ordering::Acquire);
        Entry { crossing: self.crossing.load(Ordering::Relaxed), first }
    }

    pub fn set_entry(&self, entry: Entry) {
        self.crossing.store(entry.crossing, Ordering::Relaxed);
        self.first.store(entry.first, Ordering::Release);
    }

    fn to_spare(&self) -> Spare {
        Spare { slot: self.slot, file: self.file.clone() }
    }

    /// Whether nothing was written to it yet.
    pub fn is_empty(&self) -> bool {
        self.first.load(Ordering::Acquire) == 0
    }
}

/// A file that holds nothing that is needed.
pub(crate) struct Spare {
    pub slot: u32,
    pub file: Arc<dyn File>,
}

pub(crate) struct Segments {
    pub io: Arc<dyn Io>,
    segment_size: u32,
    /// See [`quotient`].
    payload_reciprocal: u64,
    max_segments: u32,
    store_id: [u8; 16],
    pub epoch: u32,
    /// Locked before the table.
    pub pins: Mutex<Pins>,
    table: RwLock<Table>,
    /// Held while a segment is prepared, so that the order of sequence numbers is the order of headers.
    preparing: Mutex<()>,
    pub live: LiveBytes,
    pub writes: WriteCounters,
    /// Bytes of the medium that are left for others.
    medium_reserve: AtomicU64,
    /// Of these, what was added since space was measured.
    unmeasured: AtomicU64,
    /// The log's end if everything free were prepared.
    space_end: AtomicU64,
    /// Whether that is where it is because of the medium, rather than of the log's own limit.
    medium_limits: AtomicBool,
    /// Whether the medium does not tell how much of it is free.
    medium_unknown: AtomicBool,
    /// Whether the log takes more than [`Segments::set_bytes_max`] allows.
    is_too_large: AtomicBool,
}

struct Table {
    kept: BTreeMap<u64, Arc<Segment>>,
    /// Freed, but kept for a pin.
    held: BTreeMap<u64, Arc<Segment>>,
    spares: Vec<Spare>,
    /// The sequence number that is prepared next.
    next: u64,
    /// The medium refused to hold another file.
    medium_full: bool,
    /// Files that it should have at most.
    files_wanted: u64,
    /// Files that it may have. That is more than it should have while there are more that are needed.
    files_max: u64,
}

impl Table {
    fn files(&self) -> u64 {
        (self.kept.len() + self.held.len() + self.spares.len()) as u64
    }
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
        spares: Vec<Spare>,
        next: u64,
    ) -> Self {
        let live = LiveBytes::new(kept.len().max(o.max_segments as usize));
        kept.keys().for_each(|&seq| live.insert(seq));
        let segments = Self {
            io,
            segment_size: o.segment_size,
            payload_reciprocal: reciprocal(u64::from(o.segment_size) - BLOCK_BYTES),
            max_segments: o.max_segments,
            store_id: o.store_id,
            epoch: o.epoch,
            pins: Mutex::default(),
            table: RwLock::new(Table {
                kept,
                held: BTreeMap::new(),
                spares,
                next,
                medium_full: false,
                files_wanted: o.max_segments.into(),
                files_max: o.max_segments.into(),
            }),
            preparing: Mutex::new(()),
            live,
            writes: WriteCounters::default(),
            medium_reserve: AtomicU64::new(0),
            unmeasured: AtomicU64::new(0),
            space_end: AtomicU64::new(0),
            medium_limits: AtomicBool::new(false),
            medium_unknown: AtomicBool::new(false),
            is_too_large: AtomicBool::new(false),
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

    /// The end of the log if everything that is free were prepared.
    pub fn space_end(&self) -> Lsn {
        self.space_end.load(Ordering::Acquire)
    }

    pub fn space_stats(&self) -> SpaceStats {
        let table = self.table.read();
        let files = table.files() as u32;
        SpaceStats { files, free: (self.seq_of(self.space_end()) - table.next) as u32 }
    }

    /// Leaves so many bytes of the medium for others.
    pub fn set_medium_reserve(&self, bytes: u64) {
        if self.medium_reserve.swap(bytes, Ordering::Relaxed) != bytes {
            self.measure_space();
        }
    }

    /// Leaves so many bytes more, and those that were added before and not heeded, once these are many; whether they are.
    pub fn add_medium_reserve(&self, bytes: u64) -> bool {
        self.medium_reserve.fetch_add(bytes, Ordering::Relaxed);
        let is_due = self.unmeasured.fetch_add(bytes, Ordering::Relaxed) + bytes >= UNMEASURED_MAX;
        if is_due {
            self.measure_space();
        }
        is_due
    }

    /// Asks the medium again how much room it has. If it has refused a file, no room is promised before there is one: free
    /// bytes say nothing of a quota.
    pub fn retry_medium(&self, durable: Lsn) -> Result<()> {
        // What is left for others stays so.
        if self.medium_is_full() && self.segments_on_medium().is_none_or(|segments| segments > 0) {
            self.table.write().medium_full = false;
            self.prepare_next(durable)?;
        }
        self.measure_space();
        Ok(())
    }

    /// How many segments' files the medium says that it has room for, beside what is left for others; `None`: it does not tell.
    fn segments_on_medium(&self) -> Option<u64> {
        let reserve = self.medium_reserve.load(Ordering::Relaxed);
        let room = self.io.room_for_files(reserve).ok().flatten();
        room.map(|room| room / u64::from(self.segment_size))
    }

    /// Whether the medium refused to hold another file, and was not tried again since.
    pub fn medium_is_full(&self) -> bool {
        self.table.read().medium_full
    }

    /// Whether it is the medium, rather than the log's own limit, that says how much room there is.
    pub fn is_limited_by_medium(&self) -> bool {
        self.medium_limits.load(Ordering::Relaxed)
    }

    /// Whether the medium does not tell how much of it is free.
    pub fn medium_is_unknown(&self) -> bool {
        self.medium_unknown.load(Ordering::Relaxed)
    }

    /// What the medium says is free; `None`: it does not tell.
    fn medium_free_bytes(&self) -> Option<u64> {
        self.io.free_bytes().ok().flatten()
    }

    /// What the log takes, what it may take, and what sets its limit.
    pub fn usage(&self) -> LogUsage {
        let table = self.table.read();
        let bytes = |segments: u64| segments * u64::from(self.segment_size);
        let limited_by = match self.medium_limits.load(Ordering::Relaxed) {
            true => Limit::Medium { free_bytes: self.medium_free_bytes() },
            false if table.files_wanted < u64::from(self.max_segments) => Limit::Budget,
            false => Limit::Options,
        };
        LogUsage { bytes: bytes(table.files()), bytes_max: bytes(table.files_wanted), limited_by }
    }

    /// Whether the log takes more than it should, and so nothing may grow.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large.load(Ordering::Relaxed)
    }

    /// Has who prepares a segment wait.
    pub fn pause_preparing(&self) -> MutexGuard<'_, ()> {
        self.preparing.lock()
    }

    /// Sets how many bytes the files should take at most, and returns those that are too many and hold nothing. To be called while
    /// [preparing is paused](Segments::pause_preparing), until they are removed: nobody must make one of the same name.
    ///
    /// `end`: what is appended and reserved ends there; `needed`: segments behind it that must have room. What is needed stays, so
    /// there are more files than there should be until segments are freed.
    pub fn set_bytes_max(&self, bytes: u64, end: Lsn, needed: u64) -> Vec<Spare> {
        let last = self.seq_of(end);
        let mut table = self.table.write();
        table.files_wanted = (bytes / u64::from(self.segment_size)).min(self.max_segments.into());
        let used = table.kept.range(..=last).count() as u64;
        let missing = (last + 1).saturating_sub(table.next);
        let least = used + missing + needed;
        table.files_max = table.files_wanted.max(table.files_max.min(least));
        self.is_too_large.store(least > table.files_wanted, Ordering::Relaxed);
        let surplus = table.files().saturating_sub(table.files_max).min(table.spares.len() as u64) as usize;
        let surplus = table.spares.drain(..surplus).collect();
        drop(table);
        self.measure_space();
        surplus
    }

    /// Removes the files of what is no spare any more. If a crash takes that back, a start finds them free, as they were.
    pub fn remove_files(&self, spares: Vec<Spare>) -> Result<()> {
        for Spare { slot, .. } in &spares {
            let name = file_name(*slot);
            self.io.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
        }
        Ok(())
    }

    fn measure_space(&self) {
        self.unmeasured.store(0, Ordering::Relaxed);
        let medium = self.segments_on_medium();
        self.medium_unknown.store(medium.is_none(), Ordering::Relaxed);
        // A medium that does not tell is not full before it refuses a file.
        let medium = medium.unwrap_or(u64::MAX);
        // Exclusively, so that of two results the later one stays.
        let table = self.table.write();
        let allowed = table.files_max.saturating_sub(table.files());
        let creatable = if table.medium_full { 0 } else { medium.min(allowed) };
        self.medium_limits.store(creatable < allowed, Ordering::Relaxed);
        // What is held for a pin is given when nothing else is left.
        let segments = table.next + (table.spares.len() + table.held.len()) as u64 + creatable;
        self.space_end.store(self.start_of(segments), Ordering::Release);
    }

    /// Prepares the next segment; false if there is no room for it.
    pub fn prepare_next(&self, durable: Lsn) -> Result<bool> {
        let _preparing = self.preparing.lock();
        let Some(spare) = self.take_spare()? else { return Ok(false) };
        let seq = self.table.read().next;
        // Nothing comes before the first batch of all, and so nothing enters the first segment.
        let entry = match seq {
            0 => Entry { crossing: FIRST_LSN, first: FIRST_LSN },
            _ => Entry::default(),
        };
        let segment = Arc::new(Segment::new(seq, spare.slot, spare.file, Entry::default()));
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

    fn take_spare(&self) -> Result<Option<Spare>> {
        let mut table = self.table.write();
        if let Some(spare) = table.spares.pop() {
            return Ok(Some(spare));
        }
        if table.files() >= table.files_max || table.medium_full {
            drop(table);
            return Ok(self.take_held());
        }
        let used: BTreeSet<u32> =
            table.kept.values().chain(table.held.values()).map(|segment| segment.slot).collect();
        drop(table);
        let slot = (0..).find(|slot| !used.contains(slot)).expect("fewer files than numbers");
        match self.create_file(slot) {
            Err(e) if e.is_full() => {
                // Not a failure of the log. What the file took is needed elsewhere.
                let name = file_name(slot);
                self.io.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
                self.table.write().medium_full = true;
                self.measure_space();
                Ok(self.take_held())
            }
            created => created.map(Some),
        }
    }

    /// A file full of zeroes: writing to it later allocates nothing and changes no metadata.
    fn create_file(&self, slot: u32) -> Result<Spare> {
        let name = file_name(slot);
        let failed = |e| Error::io(format!("create {name}"), e);
        let file = self.io.open(&name, true).map_err(failed)?;
        let zeroes = AlignedBuf::zeroed(ZEROES.min(self.segment_size as usize));
        let size = u64::from(self.segment_size);
        let mut at = 0;
        while at < size {
            let piece = (size - at).min(zeroes.len() as u64);
            file.write_at(&[&zeroes[..piece as usize]], at, Durability::Volatile).map_err(failed)?;
            self.writes.zeroes.fetch_add(piece, Ordering::Relaxed);
            at += piece;
        }
        if file.len().map_err(failed)? != size {
            file.set_len(size).map_err(failed)?;
        }
        file.sync().map_err(failed)?;
        self.io.sync_dir(FOLDER).map_err(failed)?;
        Ok(Spare { slot, file })
    }

    /// Writes the header alone.
    pub fn write_header(&self, segment: &Segment, durable: Lsn, entry: Entry) -> Result<()> {
        let block = self.header_block(segment.seq, durable, entry);
        self.write_header_block(segment, &block, Durability::Durable)?;
        segment.set_entry(entry);
        Ok(())
    }

    /// Writes the first block of a segment's file.
    fn write_header_block(&self, segment: &Segment, block: &[u8], durability: Durability) -> Result<()> {
        let write = |bytes: &[u8], offset: usize| {
            let written = segment.file.write_at(&[bytes], offset as u64, durability);
            written.map_err(|e| Error::io(format!("write {}", segment.file.name()), e))?;
            self.writes.headers.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        };
        if self.io.scm().is_none() {
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

    /// The first block of the segment `seq`.
    pub fn header_block(&self, seq: u64, durable: Lsn, entry: Entry) -> AlignedBuf {
        self.encode_header(seq, durable, entry, false)
    }

    fn encode_header(&self, seq: u64, durable: Lsn, entry: Entry, is_free: bool) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK);
        let (segment_size, store_id, epoch) = (self.segment_size, self.store_id, self.epoch);
        SegmentHeader { segment_size, store_id, seq, durable, entry, epoch, is_free }.encode(&mut block);
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
            table.spares.push(segment.to_spare());
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
            table.spares.push(segment.to_spare());
        }
        self.measure_space();
        Ok(!released.is_empty())
    }

    /// The file of the oldest segment that is kept for pins only: they are overrun.
    fn take_held(&self) -> Option<Spare> {
        let mut pins = self.pins.lock();
        let mut table = self.table.write();
        let (seq, segment) = table.held.pop_first()?;
        pins.overrun_below(self.start_of(seq + 1));
        Some(segment.to_spare())
    }

    /// Says in a segment's header that its file is free, for a restart to find it so.
    fn write_freed(&self, segment: &Segment, durable: Lsn) -> Result<()> {
        // Before it can be prepared again. Volatile: what comes to the same block later comes to the medium later.
        let block = self.encode_header(segment.seq, durable, segment.entry(), true);
        self.write_header_block(segment, &block, Durability::Volatile)
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

    /// Fills `buf` from the files.
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

pub(crate) fn file_name(slot: u32) -> String {
    format!("{FOLDER}/{slot:08x}")
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
