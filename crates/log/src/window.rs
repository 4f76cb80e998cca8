//! Reads the log in order, in large pieces.

use std::{sync::mpsc, thread};

use holdfast_io::{AlignedBuf, Error, Result};

use crate::{
    layout::{BATCH_ALIGN, BATCH_HEADER, BatchHeader, Lsn, batch_is_intact, block_floor, claimed_len},
    segments::Segments,
};

/// Reads start small, as little may be wanted, and grow.
const PIECE_MIN: usize = 16 << 10;
const PIECE_MAX: usize = 1 << 20;
/// Pieces read ahead of their use.
const AHEAD: usize = 4;

/// A part of the log in memory that moves on.
pub(crate) struct Window<'a> {
    pieces: &'a mut dyn FnMut(Option<Piece>) -> Option<Result<Piece>>,
    /// `None` before the first, and behind the last.
    piece: Option<Piece>,
    /// The LSN of the piece's first byte.
    start: Lsn,
    /// Bytes that lie in several pieces, the last of which is `piece`.
    joined: Vec<u8>,
    /// The LSN of their first byte.
    joined_start: Lsn,
    /// Where the files end, or what is looked at.
    end: Lsn,
    seed: u32,
    segments: &'a Segments,
}

/// The first `len` bytes of a buffer.
struct Piece {
    memory: AlignedBuf,
    len: usize,
}

/// A batch that passed its checks.
pub(crate) struct Batch<'a> {
    pub payload: &'a [u8],
    pub end: Lsn,
    pub epoch: u32,
    /// Everything below was durable when the batch was appended.
    pub durable: Lsn,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Window<'_> {
    fn bytes(&self) -> &[u8] {
        self.piece.as_ref().map_or(&[], Piece::bytes)
    }

    fn joined_end(&self) -> Lsn {
        self.joined_start + self.joined.len() as u64
    }

    /// The `len` bytes at `lsn`, which is never below that of an earlier call; `None` if the log's files end
    /// before.
    fn get(&mut self, lsn: Lsn, len: u64) -> Result<Option<&[u8]>> {
        let end = lsn + len;
        if self.end < end {
            return Ok(None);
        }
        if lsn >= self.start && end <= self.start + self.bytes().len() as u64 {
            return Ok(Some(&self.bytes()[(lsn - self.start) as usize..][..len as usize]));
        }
        if lsn >= self.joined_end() {
            self.joined.clear();
            self.joined_start = lsn;
        }
        while self.joined_end() < end {
            let (from, to) = (self.joined_end() - self.start, end - self.start);
            let len = self.bytes().len();
            if from >= len as u64 {
                let Some(next) = (self.pieces)(self.piece.take()) else { return Ok(None) };
                (self.piece, self.start) = (Some(next?), self.start + len as u64);
                continue;
            }
            let piece = self.piece.as_ref().map_or(&[][..], Piece::bytes);
            self.joined.extend_from_slice(&piece[from as usize..len.min(to as usize)]);
        }
        let at = (lsn - self.joined_start) as usize;
        Ok(Some(&self.joined[at..at + len as usize]))
    }

    /// Where the batch at `lsn` ends, if the first bytes there say that they are it, be it true or not.
    pub fn claimed_end(&mut self, lsn: Lsn) -> Result<Option<Lsn>> {
        let granule = self.get(lsn, BATCH_ALIGN as u64)?;
        Ok(granule.and_then(|granule| claimed_len(granule, lsn)).map(|len| lsn + len))
    }

    /// Where, from `lsn` on, the first bytes say that they are the batch with this LSN, be it true or not; `None`: nowhere
    /// up to the end of the files.
    pub fn next_claim(&mut self, mut lsn: Lsn) -> Result<Option<Lsn>> {
        const STEP: u64 = BATCH_ALIGN as u64;
        while self.get(lsn, STEP)?.is_some() {
            // As many as are in memory, at once: what lies there is mostly old.
            let known = (self.start + self.bytes().len() as u64).max(lsn + STEP);
            let many = self.get(lsn, (known - lsn) / STEP * STEP)?.unwrap_or_default();
            let claims = |(i, granule): (u64, &[u8])| claimed_len(granule, lsn + i * STEP).is_some();
            if let Some(i) = (0..).zip(many.chunks_exact(BATCH_ALIGN)).position(claims) {
                return Ok(Some(lsn + i as u64 * STEP));
            }
            lsn += many.len() as u64;
        }
        Ok(None)
    }

    /// The batch at `lsn`, if there is one.
    pub fn batch(&mut self, lsn: Lsn) -> Result<Option<Batch<'_>>> {
        let Some(header) = self.get(lsn, BATCH_HEADER as u64)? else { return Ok(None) };
        let header = BatchHeader::decode(header);
        if header.lsn != lsn {
            return Ok(None);
        }
        let (seed, end) = (self.seed, lsn + header.batch_len());
        if end > self.end || !self.segments.may_be_intact(lsn, end, seed)? {
            return Ok(None);
        }
        let Some(bytes) = self.get(lsn, header.batch_len())? else { return Ok(None) };
        if !batch_is_intact(bytes, seed) {
            return Ok(None);
        }
        let payload = &bytes[BATCH_HEADER..][..header.payload_len as usize];
        let BatchHeader { epoch, durable, .. } = header;
        Ok(Some(Batch { payload, end: lsn + header.batch_len(), epoch, durable }))
    }
}

impl Segments {
    /// Calls `f` with a window on the log from `from` up to `to`, or to the first segment that is missing. Another
    /// thread reads ahead.
    pub fn with_window<T>(
        &self,
        from: Lsn,
        to: Lsn,
        seed: u32,
        f: impl FnOnce(&mut Window) -> Result<T>,
    ) -> Result<T> {
        let start = block_floor(from);
        let mut end = start;
        while self.get(self.seq_of(end)).is_some() {
            end = self.start_of(self.seq_of(end) + 1);
        }
        let end = end.min(to);
        let (sender, receiver) = mpsc::sync_channel(AHEAD);
        let (give_back, spare) = mpsc::channel::<AlignedBuf>();
        let read_ahead = move || {
            let (mut at, mut len) = (start, PIECE_MIN);
            while at < end {
                // Memory that was never touched is zeroed by the system page by page; used memory is not.
                let mut memory = spare.try_recv().unwrap_or_else(|_| AlignedBuf::zeroed(PIECE_MAX));
                let part = (end - at).min(len as u64) as usize;
                let read = self.read(at, &mut memory[..part]).map(|()| Piece { memory, len: part });
                let failed = read.is_err();
                // Nobody listens when the reader has seen enough.
                if sender.send(read).is_err() || failed {
                    return;
                }
                at += part as u64;
                len = (len * 2).min(PIECE_MAX);
            }
        };
        thread::scope(|scope| {
            // Dropped before the scope waits for the thread, which ends the thread.
            let receiver = receiver;
            let spawned =
                thread::Builder::new().name("holdfast-read".to_owned()).spawn_scoped(scope, read_ahead);
            spawned.map_err(|e| Error::io("start the thread holdfast-read", e))?;
            let mut pieces = |used: Option<Piece>| {
                // The thread has ended when all is read.
                used.map(|used| give_back.send(used.memory));
                receiver.recv().ok()
            };
            f(&mut Window {
                pieces: &mut pieces,
                piece: None,
                start,
                joined: Vec::new(),
                joined_start: start,
                end,
                seed,
                segments: self,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_io::SimIo;

    use super::*;
    use crate::{Log, LogOptions, Step};

    /// A damaged length may name much more than there is memory for.
    #[test]
    fn a_damaged_length_takes_no_memory() {
        let io = SimIo::new(1);
        let like = LogOptions::to_read(1 << 20, [7; 16], 1, 5);
        let options = LogOptions { max_segments: 64, max_pending_bytes: 64 << 20, ..like };
        let log = Log::create(Arc::new(io.clone()), options).expect("a new log");
        let first = log.append(&[1; 100_000]);
        let long = log.append(&[2; 6 << 20]);
        for _ in 0..200 {
            log.append(&[3; 100_000]);
            log.commit_once().expect("a sound medium");
        }
        let found = |lsn| {
            let window = |window: &mut Window| {
                let payload = window.batch(lsn)?.map(|batch| batch.payload.to_vec());
                Ok((payload, window.joined.capacity() as u64))
            };
            log.segments.with_window(lsn, Lsn::MAX, 5, window).expect("a sound medium")
        };
        assert!(found(long).0 == Some(vec![2; 6 << 20]), "a long batch is read");
        // The lowest bit of the highest byte: 16 MiB more than it has.
        io.flip_bit("log/00000000", 4096 + first + 3, 0);
        let (payload, memory) = found(first);
        assert!(payload.is_none() && memory < 5 << 20, "{memory} bytes");
        assert!(log.cursor(first).step().is_err(), "and so does a follower");
        assert_eq!(log.payload_at(first), None);
        io.flip_bit("log/00000000", 4096 + first + 3, 0);
        assert_eq!(found(first).0, Some(vec![1; 100_000]));
        let mut cursor = log.cursor(first);
        for len in [100_000, 6 << 20] {
            assert!(matches!(cursor.step(), Ok(Step::Batch(batch)) if batch.payload.len() == len));
        }
    }
}
