//! Reading the log as it grows, and keeping what is still to be read: what a follower needs.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use holdfast_io::Result;

use crate::{
    Log,
    layout::{BATCH_HEADER, BatchHeader, Lsn, batch_is_intact},
};

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// The LSN of a pin that keeps nothing any more.
const OVERRUN: u64 = u64::MAX;

/// Keeps the segments of a log from an LSN on until it is dropped, within bounds: see [`Log::pin`].
pub struct Pin {
    log: Arc<Log>,
    state: Arc<PinState>,
}

pub(crate) struct PinState {
    lsn: AtomicU64,
    bytes_max: u64,
}

impl PinState {
    pub(crate) fn new(lsn: Lsn, bytes_max: u64) -> PinState {
        PinState { lsn: AtomicU64::new(lsn), bytes_max }
    }

    fn lsn(&self) -> Option<Lsn> {
        Some(self.lsn.load(Ordering::Acquire)).filter(|&lsn| lsn != OVERRUN)
    }
}

/// The pins of a log.
#[derive(Default)]
pub(crate) struct Pins(Vec<Weak<PinState>>);

impl Pins {
    pub fn push(&mut self, pin: &Arc<PinState>) {
        self.0.push(Arc::downgrade(pin));
    }

    /// The least LSN that is kept for a pin, of those that are not too far behind `tail`: these are overrun.
    pub fn kept_from(&mut self, tail: Lsn) -> Option<Lsn> {
        let mut least = None;
        self.0.retain(|pin| {
            let Some(pin) = pin.upgrade() else { return false };
            let Some(lsn) = pin.lsn() else { return false };
            let keeps = tail - lsn.min(tail) <= pin.bytes_max;
            match keeps {
                true => least = Some(least.unwrap_or(lsn).min(lsn)),
                false => pin.lsn.store(OVERRUN, Ordering::Release),
            }
            keeps
        });
        least
    }

    /// Whether one keeps something below `end`.
    pub fn keep(&self, end: Lsn) -> bool {
        self.0.iter().filter_map(Weak::upgrade).any(|pin| pin.lsn().is_some_and(|lsn| lsn < end))
    }

    /// Overruns all that keep something below `end`.
    pub fn overrun_below(&mut self, end: Lsn) {
        let pins = self.0.iter().filter_map(Weak::upgrade);
        let behind = pins.filter(|pin| pin.lsn().is_some_and(|lsn| lsn < end));
        behind.for_each(|pin| pin.lsn.store(OVERRUN, Ordering::Release));
    }
}

impl Pin {
    pub(crate) fn new(log: Arc<Log>, state: Arc<PinState>) -> Pin {
        Pin { log, state }
    }

    /// Where the pin is; `None`: it was overrun, and what it kept may be gone.
    pub fn lsn(&self) -> Option<Lsn> {
        self.state.lsn()
    }

    /// Moves the pin on: what is below `lsn` is not kept for it any more. False if it was overrun.
    pub fn advance(&self, lsn: Lsn) -> bool {
        let moved = self.state.lsn.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old != OVERRUN).then_some(old.max(lsn))
        });
        self.log.release_held();
        moved.is_ok()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.state.lsn.store(OVERRUN, Ordering::Release);
        self.log.release_held();
    }
}

/// Reads the batches of a log in order: see [`Log::cursor`].
pub struct Cursor {
    log: Arc<Log>,
    at: Lsn,
    /// Bytes of the log from `start` on.
    bytes: Vec<u8>,
    start: Lsn,
}

/// What a cursor finds.
#[derive(Debug)]
pub enum Step<'c> {
    /// The next batch.
    Batch(CursorBatch<'c>),
    /// Nothing more is durable yet; [`Log::on_progress`] tells when to look again.
    End,
    /// What comes next is not kept any more: a segment was freed that no pin kept.
    Overrun,
}

/// A batch that passed its checks, and is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorBatch<'c> {
    /// Its LSN.
    pub lsn: Lsn,
    /// The term in which it was appended.
    pub epoch: u32,
    /// All of it, header and padding included, as another server can store it. Only the header's durable mark is this
    /// server's own.
    pub bytes: &'c [u8],
    /// What was appended.
    pub payload: &'c [u8],
}

impl Cursor {
    /// Where the next batch begins.
    pub fn lsn(&self) -> Lsn {
        self.at
    }

    /// The next batch, if it is durable.
    ///
    /// # Errors
    /// [`holdfast_io::Error::Corrupt`] if there is no sound batch at this LSN.
    pub fn step(&mut self) -> Result<Step<'_>> {
        let (at, end) = (self.at, self.log.durable());
        if at >= end {
            return Ok(Step::End);
        }
        let Some(header) = self.load(at, BATCH_HEADER as u64, end)? else { return Ok(Step::Overrun) };
        let header = BatchHeader::decode(header);
        let len = header.batch_len();
        let seed = self.log.crc_seed;
        let is_header = header.lsn == at && at + len <= end;
        if is_header && self.may_be_intact(at, at + len)? {
            let Some(bytes) = self.load(at, len, end)? else { return Ok(Step::Overrun) };
            if batch_is_intact(bytes, seed) {
                self.at = at + len;
                let bytes = &self.bytes[(at - self.start) as usize..][..len as usize];
                let payload = &bytes[BATCH_HEADER..][..header.payload_len as usize];
                return Ok(Step::Batch(CursorBatch { lsn: at, epoch: header.epoch, bytes, payload }));
            }
        }
        // A file of it may have been used again while it was read.
        self.bytes.clear();
        let read = if is_header { len } else { BATCH_HEADER as u64 };
        match self.log.segments.is_kept(at, at + read) {
            true => Err(self.log.segments.corrupt(at, "the batch fails its check")),
            false => Ok(Step::Overrun),
        }
    }

    /// Whether the batch that its header says to end at `end` may be intact; true also if it is not kept any more.
    fn may_be_intact(&self, lsn: Lsn, end: Lsn) -> Result<bool> {
        let segments = &self.log.segments;
        match segments.may_be_intact(lsn, end, self.log.crc_seed) {
            Err(e) if segments.is_kept(lsn, end) => Err(e),
            checked => Ok(checked.unwrap_or(true)),
        }
    }

    /// The `len` bytes at `lsn`, which is not below that of an earlier call; `None` if they are not kept.
    fn load(&mut self, lsn: Lsn, len: u64, end: Lsn) -> Result<Option<&[u8]>> {
        if lsn < self.start || lsn + len > self.start + self.bytes.len() as u64 {
            let wanted = (len.max(PIECE as u64)).min(end - lsn);
            let kept = self.log.segments.kept_part(lsn, wanted);
            if kept < len {
                return Ok(None);
            }
            self.start = lsn;
            self.bytes.resize(kept as usize, 0);
            if let Err(e) = self.log.segments.read(lsn, &mut self.bytes) {
                self.bytes.clear();
                let is_kept = self.log.segments.is_kept(lsn, lsn + len);
                return if is_kept { Err(e) } else { Ok(None) };
            }
        }
        Ok(Some(&self.bytes[(lsn - self.start) as usize..][..len as usize]))
    }
}

impl Log {
    /// A cursor on the batch that begins at `lsn`. It reads what is durable, and more as that grows. What it has not read
    /// yet may be freed unless a [`Pin`] keeps it.
    pub fn cursor(self: &Arc<Self>, lsn: Lsn) -> Cursor {
        Cursor { log: self.clone(), at: lsn, bytes: Vec::new(), start: lsn }
    }

    /// Keeps the segments of the log from `lsn` on, though they be freed, until the pin is moved on or dropped. A pin that is
    /// further than `bytes_max` behind the log's end, or that keeps the last file in which the log could go on, is overrun:
    /// it keeps nothing any more. `None`: some of what it should keep is gone already.
    pub fn pin(self: &Arc<Self>, lsn: Lsn, bytes_max: u64) -> Option<Pin> {
        let state = Arc::new(PinState::new(lsn, bytes_max));
        self.segments.pins.lock().push(&state);
        // Once it is known, so that nothing is freed in between.
        let pin = Pin::new(self.clone(), state);
        let is_kept =
            lsn >= self.tail() || self.segments.is_kept(lsn, self.tail().min(self.segments.prepared_end()));
        is_kept.then_some(pin)
    }

    /// Frees what no pin keeps any more.
    pub(crate) fn release_held(&self) {
        match self.segments.release_held(self.tail(), self.durable()) {
            Ok(true) => self.space_changed(),
            Ok(false) => {}
            Err(error) => self.fail(&error),
        }
    }
}
