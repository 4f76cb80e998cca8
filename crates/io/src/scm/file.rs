//! A file in storage-class memory: read by system calls, written by stores.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};

use super::{LINE, Scm, ScmMedium, ScmStats, memory::Mapping};
use crate::{Durability, File, ReadQueue, real::RealFile};

/// A file is mapped in pieces of this size, as they are written.
const PIECE: u64 = 64 << 20;
/// What is known to have memory is noted in parts of this size, of which a piece has 64.
const PART: u64 = PIECE / 64;

/// A file on storage-class memory. Every write is durable when it returns.
pub(crate) struct ScmFile {
    real: RealFile,
    scm: Arc<Scm>,
    extent: Mutex<Extent>,
}

/// How far the file reaches in memory.
struct Extent {
    len: u64,
    /// By number.
    pieces: Vec<Option<Arc<Piece>>>,
}

struct Piece {
    mapping: Mapping,
    /// The parts all of which the medium has memory for, as bits. A store elsewhere could find none, which ends the process.
    allocated: AtomicU64,
}

/// The pieces of a range, of which there is mostly one.
struct Pieces {
    first_number: u64,
    first: Arc<Piece>,
    more: Vec<Arc<Piece>>,
}

impl Pieces {
    /// The one that a byte at an offset in the range lies in.
    fn holding(&self, offset: u64) -> &Piece {
        match (offset / PIECE - self.first_number) as usize {
            0 => &self.first,
            number => &self.more[number - 1],
        }
    }
}

impl ScmFile {
    pub fn new(real: RealFile, scm: Arc<Scm>) -> io::Result<ScmFile> {
        let extent = Mutex::new(Extent { len: real.len()?, pieces: Vec::new() });
        Ok(ScmFile { real, scm, extent })
    }

    /// Whether files of this folder can be mapped as they must be, tried with this one.
    pub fn try_mapping(&self) -> io::Result<()> {
        self.write_at(&[&[1; LINE]], 0, Durability::Durable)
    }

    /// Makes the range a part of the file that is mapped and has memory, and returns the pieces that it lies in.
    fn make_room(&self, range: Range<u64>) -> io::Result<Pieces> {
        let mut extent = self.extent.lock();
        if range.end > extent.len {
            extent.len = self.real.len()?;
            if range.end > extent.len {
                self.real.set_len(range.end)?;
                extent.forget(extent.len..range.end);
                extent.len = range.end;
            }
        }
        let numbers = (range.start / PIECE) as usize..range.end.div_ceil(PIECE) as usize;
        if extent.pieces.len() < numbers.end {
            extent.pieces.resize_with(numbers.end, || None);
        }
        let persists = self.scm.options.medium == ScmMedium::Dax;
        let mut map = |number: usize| match &extent.pieces[number] {
            Some(piece) => Ok(piece.clone()),
            None => {
                let mapping =
                    Mapping::new(self.real.file(), number as u64 * PIECE, PIECE as usize, persists)?;
                let piece = Arc::new(Piece { mapping, allocated: AtomicU64::new(0) });
                Ok::<_, io::Error>(extent.pieces[number].insert(piece).clone())
            }
        };
        let first = map(numbers.start)?;
        let more = (numbers.start + 1..numbers.end).map(map).collect::<Result<_, _>>()?;
        let pieces = Pieces { first_number: numbers.start as u64, first, more };
        let within = |part: u64| {
            let piece = pieces.holding(part * PART);
            (&piece.allocated, 1 << (part % 64))
        };
        let parts = range.start / PART..range.end.div_ceil(PART);
        let has_memory =
            |part| matches!(within(part), (allocated, bit) if allocated.load(Relaxed) & bit != 0);
        if !parts.clone().all(has_memory) {
            // Whole parts, so that it need not be asked for again, but no more than the file has.
            let (start, end) = (parts.start * PART, (parts.end * PART).min(extent.len));
            fallocate(self.real.file(), FallocateFlags::empty(), start, end - start)?;
            for (allocated, bit) in parts.map(within) {
                allocated.fetch_or(bit, Relaxed);
            }
        }
        Ok(pieces)
    }

    /// Stores bytes one after another; durable at this thread's next fence.
    fn store_all(&self, bufs: &[&[u8]], range: Range<u64>) -> io::Result<()> {
        let pieces = self.make_room(range.clone())?;
        let line = LINE as u64;
        self.scm.begin_store(range.end - range.start, range.end.div_ceil(line) - range.start / line);
        let mut at = range.start;
        for mut buf in bufs.iter().copied() {
            while !buf.is_empty() {
                let (now, later) = buf.split_at(buf.len().min((PIECE - at % PIECE) as usize));
                let piece = pieces.holding(at);
                // SAFETY: `make_room` has made it a part of the file, with memory. Whoever shortens the file or punches holes into it does
                // not write there at the same time, and writes do not overlap (`File::write_at`, `File::store`).
                unsafe { piece.mapping.store((at % PIECE) as usize, now, self.scm.options.write_back) };
                (at, buf) = (at + now.len() as u64, later);
            }
        }
        Ok(())
    }

    /// Forgets that the medium has memory for a range.
    fn forget(&self, range: Range<u64>) {
        self.extent.lock().forget(range);
    }
}

impl Extent {
    fn forget(&self, range: Range<u64>) {
        let pieces = (0u64..).zip(&self.pieces).filter_map(|(number, piece)| Some((number, piece.as_ref()?)));
        for (number, piece) in pieces {
            let is_in = |bit: &u64| {
                let start = number * PIECE + bit * PART;
                start < range.end && range.start < start + PART
            };
            let bits = (0..64).filter(is_in).fold(0, |bits, bit| bits | 1 << bit);
            piece.allocated.fetch_and(!bits, Relaxed);
        }
    }
}

/// Where so many bytes end.
fn end_of(offset: u64, len: u64) -> io::Result<u64> {
    offset.checked_add(len).ok_or(io::ErrorKind::FileTooLarge.into())
}

impl File for ScmFile {
    fn name(&self) -> &str {
        self.real.name()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.real.read_at(buf, offset)
    }

    fn begin_read(&self, queue: &mut ReadQueue, offset: u64, len: usize, tag: u64) {
        // It takes less than to ask for it.
        queue.read_now(len, tag, |buf| self.read_at(buf, offset));
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64, _: Durability) -> io::Result<()> {
        self.real.check_writable()?;
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        if len == 0 {
            return Ok(());
        }
        self.store_all(bufs, offset..end_of(offset, len)?)?;
        self.scm.add(ScmStats { streams: 1, ..ScmStats::NONE });
        self.scm.fence();
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.real.check_writable()?;
        if len == 0 {
            return Ok(());
        }
        let end = end_of(offset, len)?;
        let pieces = self.make_room(offset..end)?;
        let mut at = offset;
        while at < end {
            let next = (at / PIECE + 1) * PIECE;
            pieces.holding(at).mapping.populate((at % PIECE) as usize, (end.min(next) - at) as usize);
            at = next;
        }
        Ok(())
    }

    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.real.check_writable()?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.store_all(&[bytes], offset..end_of(offset, bytes.len() as u64)?)?;
        self.scm.add(ScmStats { stores: 1, ..ScmStats::NONE });
        Ok(())
    }

    fn load(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let pieces = self.make_room(offset..end_of(offset, buf.len() as u64)?)?;
        self.scm.add(ScmStats { loads: 1, ..ScmStats::NONE });
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let len = rest.len().min((PIECE - at % PIECE) as usize);
            let (now, later) = rest.split_at_mut(len);
            let piece = pieces.holding(at);
            // SAFETY: `make_room` has made it a part of the file, with memory; nobody stores there meanwhile (`File::load`).
            unsafe { piece.mapping.load((at % PIECE) as usize, now) };
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // What was written is durable, and an emulation has nothing that a power cut would leave. The length is not.
        if self.scm.is_emulated() { Ok(()) } else { self.real.sync() }
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut extent = self.extent.lock();
        self.real.set_len(len)?;
        let old_len = std::mem::replace(&mut extent.len, len);
        drop(extent);
        self.forget(len.min(old_len)..u64::MAX);
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        let punched = self.real.punch_hole(offset, len);
        // Not before: who writes beside the hole meanwhile has noted memory for all of the part.
        self.forget(offset..offset.saturating_add(len));
        punched
    }
}
