//! Copying the segments of a log, or reading them, while another process writes it: for backups. What is copied was pinned there ([`Log::pin_all`]);
//! each batch is checked on the way, and the copy ends where the log was cut.

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result};
use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use crate::{
    Log, Pin,
    batch_check::BatchCheck,
    cursor::PinState,
    layout::{BLOCK_BYTES, Entry, Lsn, SegmentHeader},
    replay::slots,
    table::{Segment, file_name, read_header, slot_of},
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Where a segment lies, and how the log enters it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPlace {
    /// Number of its file.
    pub slot: u32,
    /// Its place in the log.
    pub seq: u64,
    /// The batch that its first byte belongs to.
    pub crossing: Lsn,
    /// The first batch that starts in the segment or behind it.
    pub first: Lsn,
}

impl SegmentPlace {
    /// What the header of a segment's file says, which is named like those of a data folder.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it fails its check, or the file was never begun.
    pub fn read(io: &dyn Io, name: &str) -> Result<SegmentPlace> {
        let file = io.open(name, false).map_err(|e| Error::io(format!("read {name}"), e))?;
        let slot = name.rsplit('/').next().and_then(slot_of);
        match (read_header(&*file, name)?, slot) {
            (Some(SegmentHeader { seq, entry: Entry { crossing, first }, .. }), Some(slot)) => {
                Ok(SegmentPlace { slot, seq, crossing, first })
            }
            _ => Err(Error::corrupt(name, 0, "it is no segment")),
        }
    }
}

/// What all segments of a log have in common.
#[derive(Clone, Copy, Debug)]
pub struct LogIdentity {
    /// Bytes of a segment file.
    pub segment_size: u32,
    /// Which store it is.
    pub store_id: [u8; 16],
    /// The term in which the copy is made.
    pub epoch: u32,
    /// Seeds the checksums of batches.
    pub crc_seed: u32,
}

impl LogIdentity {
    /// Bytes of log in a segment.
    pub fn payload(&self) -> u64 {
        u64::from(self.segment_size) - BLOCK_BYTES
    }

    /// Opens a segment's file, which is another one once it has moved to the folder below.
    fn open_segment(&self, io: &dyn Io, place: &SegmentPlace) -> Result<Arc<dyn File>> {
        let open = |slot: u32| -> Result<Option<Arc<dyn File>>> {
            let name = file_name(slot);
            let is_nothing =
                |e: &io::Error| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof);
            let opened = io.open(&name, false).map_err(|e| Error::io(format!("read {name}"), e));
            let found = opened.and_then(|file| Ok((read_header(&*file, &name)?, file)));
            let (found, file) = match found {
                Err(Error::Io { source, .. }) if is_nothing(&source) => return Ok(None),
                found => found?,
            };
            let (seq, store_id, segment_size) = (place.seq, self.store_id, self.segment_size);
            let is_it = |h: &SegmentHeader| {
                (h.seq, h.store_id, h.segment_size, h.is_free) == (seq, store_id, segment_size, false)
            };
            Ok(found.as_ref().is_some_and(is_it).then_some(file))
        };
        if let Some(file) = open(place.slot)? {
            return Ok(file);
        }
        for slot in slots(io)? {
            // What is wrong with others is not asked here.
            if let Ok(Some(file)) = open(slot) {
                return Ok(file);
            }
        }
        let what = format!("it is not segment {} of this log", place.seq);
        Err(Error::corrupt(&file_name(place.slot), 0, what))
    }

    /// The header of a segment of a log that ends at `end`.
    fn header(&self, place: &SegmentPlace, end: Lsn) -> SegmentHeader {
        let LogIdentity { segment_size, store_id, epoch, .. } = *self;
        let entry = Entry { crossing: place.crossing, first: place.first };
        // The mark says that nothing up to there may be missing.
        let durable = end.min((place.seq + 1) * self.payload());
        let (is_free, reach) = (false, segment_size);
        SegmentHeader { segment_size, store_id, seq: place.seq, durable, entry, epoch, is_free, reach }
    }
}

impl Log {
    /// Keeps all segments that are kept now, and all that come, until the pin is dropped. It is overrun as that of [`Log::pin`],
    /// which is also when more than `growth_max` bytes have come to the log.
    pub fn pin_all(self: &Arc<Self>, growth_max: u64) -> Pin {
        let mut pins = self.segments.pins.lock();
        let tail = self.tail();
        let oldest = self.segments.kept().first().map_or(tail, |segment| self.segments.start_of(segment.seq));
        let state = Arc::new(PinState::new(oldest, (tail - oldest).saturating_add(growth_max)));
        pins.push(&state);
        Pin::new(self.clone(), state)
    }

    /// The segments that begin below `end`, which is durable, oldest first; those that only pins keep are among them.
    pub fn places(&self, end: Lsn) -> Vec<SegmentPlace> {
        let place = |segment: &Arc<Segment>| {
            let Entry { crossing, first } = segment.entry();
            SegmentPlace { slot: segment.file.slot, seq: segment.seq, crossing, first }
        };
        let all = self.segments.kept_and_held();
        all.iter().filter(|segment| self.segments.start_of(segment.seq) < end).map(place).collect()
    }
}

/// Copies segments of a log up to an LSN at which a batch ends. They are to be copied in their order; not all need be.
pub struct SegmentCopier {
    io: Arc<dyn Io>,
    identity: LogIdentity,
    end: Lsn,
    batches: BatchCheck,
    /// The sequence number of the segment that follows the last one copied.
    next_seq: Option<u64>,
    memory: AlignedBuf,
}

impl SegmentCopier {
    /// `io`: the data folder.
    pub fn new(io: Arc<dyn Io>, identity: LogIdentity, end: Lsn) -> SegmentCopier {
        let batches = BatchCheck::new(identity.crc_seed, end);
        SegmentCopier { io, identity, end, batches, next_seq: None, memory: AlignedBuf::zeroed(PIECE) }
    }

    /// Reads a segment and hands its copy to `write`, from the first byte to the last, in pieces of whole blocks. What lies at
    /// [`SegmentCopier`]'s end or behind it is zero in the copy.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a batch fails its check, or if the file is not this segment; what `write` returns.
    pub fn copy(&mut self, place: &SegmentPlace, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let payload = self.identity.payload();
        let (start, size) = (place.seq * payload, u64::from(self.identity.segment_size));
        let used = self.end.min(start + payload) - start;
        let file = self.identity.open_segment(&*self.io, place)?;
        let name = file.name().to_owned();
        let read = |buf: &mut [u8], offset| {
            file.read_at(buf, offset).map_err(|e| match e.kind() {
                ErrorKind::UnexpectedEof => Error::corrupt(&name, offset, "the file is too short"),
                _ => Error::io(format!("read {name}"), e),
            })
        };
        if self.next_seq != Some(place.seq) {
            // The segment before was not copied: the batch that its last bytes begin is nothing that can be read.
            self.batches.begin(start, place.first);
        }
        self.next_seq = Some(place.seq + 1);
        self.identity.header(place, self.end).encode(&mut self.memory[..BLOCK]);
        write(&self.memory[..BLOCK])?;
        let mut at = 0;
        while at < payload {
            let len = (payload - at).min(PIECE as u64) as usize;
            let piece = &mut self.memory[..len];
            let filled = used.saturating_sub(at).min(len as u64) as usize;
            let blocks = filled.next_multiple_of(BLOCK);
            read(&mut piece[..blocks], BLOCK_BYTES + at)?;
            piece[filled..].fill(0);
            self.batches.feed(&piece[..filled]).map_err(|lsn| {
                // It may have begun in the segment before.
                let offset = BLOCK_BYTES + lsn.max(start) - start;
                Error::corrupt(&name, offset, format!("the batch at LSN {lsn} fails its check"))
            })?;
            write(piece)?;
            at += len as u64;
        }
        debug_assert_eq!(BLOCK_BYTES + at, size);
        if used < payload && !self.batches.is_between() {
            return Err(Error::corrupt(&name, BLOCK_BYTES + used, "no batch ends where the copy does"));
        }
        Ok(())
    }
}

/// A segment as its copy by [`SegmentCopier`] would be, read where it lies. It was pinned there ([`Log::pin_all`]). Its batches are not
/// checked: who replays them does that.
///
/// # Errors
/// The segment is not there, or cannot be read.
pub fn view_segment(
    io: &dyn Io,
    identity: &LogIdentity,
    place: &SegmentPlace,
    end: Lsn,
) -> Result<Arc<dyn File>> {
    let mut header = vec![0; BLOCK];
    identity.header(place, end).encode(&mut header);
    let start = place.seq * identity.payload();
    let used = BLOCK_BYTES + end.min(start + identity.payload()).saturating_sub(start);
    let file = identity.open_segment(io, place)?;
    Ok(Arc::new(SegmentView { file, header, used, size: identity.segment_size.into() }))
}

struct SegmentView {
    file: Arc<dyn File>,
    header: Vec<u8>,
    /// Bytes up to the end of the log; those behind read as zeroes.
    used: u64,
    size: u64,
}

impl File for SegmentView {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        if end > self.size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // Whole blocks, for the sake of direct I/O; the file has them.
        let blocks = self.used.next_multiple_of(BLOCK as u64).min(end).saturating_sub(offset) as usize;
        self.file.read_at(&mut buf[..blocks], offset)?;
        let used = self.used.saturating_sub(offset).min(buf.len() as u64) as usize;
        buf[used..].fill(0);
        if offset < BLOCK_BYTES {
            let header = &self.header[offset as usize..BLOCK.min(end as usize)];
            buf[..header.len()].copy_from_slice(header);
        }
        Ok(())
    }

    fn write_at(&self, _: &[&[u8]], _: u64, _: Durability) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}
