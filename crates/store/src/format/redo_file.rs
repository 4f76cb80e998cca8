//! The file `redo`: what the log has changed in the heap since the last checkpoint, sorted and without values (`docs/format.md`, "Redo").
//!
//! A start takes it instead of that part of the log. It is a shortcut and no truth: what is torn, missing or of another
//! checkpoint is passed over, and the log is read from there on. What it covers of the log is durable before it is written.

use super::superblock::Superblock;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result, crc32c, crc32c_append};
use holdfast_log::Lsn;
use std::{io, ops::Range, sync::mpsc, thread};

/// The file's name in the data folder.
pub(crate) const FILE: &str = "redo";
const MAGIC: &[u8; 8] = b"HFREDO 1";
/// Bytes before a frame's redo.
const HEADER: usize = 80;
/// Where in the header the checksum is, of what is before it and of the redo.
const CRC_AT: usize = HEADER - 4;
/// Redo that a frame may have, in bytes.
pub(crate) const REDO_MAX: usize = 32 << 20;
/// The file is read in pieces of this size.
const PIECE: usize = 1 << 20;
/// Frames read ahead of their use.
const AHEAD: usize = 4;

/// A part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// It begins and ends there.
    pub from: Lsn,
    pub to: Lsn,
    /// The last batch in it that changes the heap, and the CRC-32C of that one's payload.
    pub last: Lsn,
    pub last_crc: u32,
}

/// Appends a frame at an offset: redo of a part of the log behind the checkpoint of a superblock. Returns the frame's length.
pub(crate) fn write(
    file: &dyn File,
    at: u64,
    superblock: &Superblock,
    covered: &Covered,
    redo: &[u8],
) -> io::Result<u64> {
    let mut frame = AlignedBuf::zeroed((HEADER + redo.len()).next_multiple_of(BLOCK));
    frame[..8].copy_from_slice(MAGIC);
    frame[8..24].copy_from_slice(&superblock.store_id);
    frame[24..32].copy_from_slice(&superblock.generation.to_le_bytes());
    frame[32..40].copy_from_slice(&covered.from.to_le_bytes());
    frame[40..48].copy_from_slice(&covered.to.to_le_bytes());
    frame[48..56].copy_from_slice(&covered.last.to_le_bytes());
    frame[56..60].copy_from_slice(&covered.last_crc.to_le_bytes());
    frame[60..64].copy_from_slice(&(redo.len() as u32).to_le_bytes());
    let crc = crc32c_append(crc32c(&frame[..CRC_AT]), redo);
    frame[CRC_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
    frame[HEADER..][..redo.len()].copy_from_slice(redo);
    file.write_at(&[&frame], at, Durability::Durable)?;
    Ok(frame.len() as u64)
}

/// Calls `f` with the redo of each frame behind the checkpoint of a superblock, in order, and returns what the last one of
/// which that is true covers. Another thread reads ahead.
///
/// # Errors
/// Whatever `f` returns; the system refuses the thread.
pub(crate) fn read(
    io: &dyn Io,
    superblock: &Superblock,
    mut f: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Option<Covered>> {
    let Ok(file) = io.open(FILE, false) else { return Ok(None) };
    let (sender, receiver) = mpsc::sync_channel(AHEAD);
    let read_ahead = || {
        let (mut reader, mut next) = (Reader::new(&*file), superblock.checkpoint_lsn);
        while let Some((covered, frame)) =
            reader.frame(superblock).filter(|(covered, _)| covered.from == next)
        {
            next = covered.to;
            // Nobody listens after an error.
            if sender.send((covered, frame)).is_err() {
                break;
            }
        }
        drop(sender);
    };
    thread::scope(|scope| {
        // Dropped before the scope waits for the thread, which ends the thread.
        let receiver = receiver;
        let spawned = thread::Builder::new().name("holdfast-redo".to_owned()).spawn_scoped(scope, read_ahead);
        spawned.map_err(|e| Error::io("start the thread holdfast-redo", e))?;
        let mut last = None;
        for (covered, frame) in receiver {
            f(&frame[HEADER..])?;
            last = Some(covered);
        }
        Ok(last)
    })
}

/// Reads frames one after another.
struct Reader<'f> {
    file: &'f dyn File,
    piece: AlignedBuf,
    /// What of the piece was not used yet.
    rest: Range<usize>,
    /// Up to where the file is read, and how long it is.
    at: u64,
    len: u64,
}

impl<'f> Reader<'f> {
    fn new(file: &'f dyn File) -> Self {
        let (piece, len) = (AlignedBuf::zeroed(PIECE), file.len().unwrap_or_default());
        Reader { file, piece, rest: 0..0, at: 0, len }
    }

    /// The next bytes, so many at most; `None` at the end, and where they cannot be read.
    fn next(&mut self, len: usize) -> Option<&[u8]> {
        if self.rest.is_empty() {
            let part = (self.len - self.at).min(PIECE as u64) as usize / BLOCK * BLOCK;
            self.file.read_at(&mut self.piece[..part], self.at).ok()?;
            (self.rest, self.at) = (0..part, self.at + part as u64);
        }
        let start = self.rest.start;
        self.rest.start = self.rest.end.min(start + len);
        (self.rest.start > start).then(|| &self.piece[start..self.rest.start])
    }

    /// The next frame, if it is intact and of this checkpoint.
    fn frame(&mut self, superblock: &Superblock) -> Option<(Covered, Vec<u8>)> {
        let mut frame = self.next(BLOCK)?.to_vec();
        let header = *frame.first_chunk::<HEADER>()?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let len = short(60) as usize;
        let is_of_this = &header[..8] == MAGIC
            && header[8..24] == superblock.store_id
            && word(24) == superblock.generation
            && len <= REDO_MAX;
        let frame_len = (HEADER + len).next_multiple_of(BLOCK);
        frame.reserve(if is_of_this { frame_len - BLOCK } else { return None });
        while frame.len() < frame_len {
            frame.extend_from_slice(self.next(frame_len - frame.len())?);
        }
        frame.truncate(HEADER + len);
        let covered = Covered { from: word(32), to: word(40), last: word(48), last_crc: short(56) };
        let is_intact = crc32c_append(crc32c(&header[..CRC_AT]), &frame[HEADER..]) == short(CRC_AT);
        (is_intact && (covered.from..covered.to).contains(&covered.last)).then_some((covered, frame))
    }
}
