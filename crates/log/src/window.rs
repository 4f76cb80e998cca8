//! Reads the log in order, in large pieces.

use std::{sync::mpsc, thread};

use holdfast_io::{Error, Result};

use crate::{
    layout::{BATCH_ALIGN, BATCH_HEADER, BatchHeader, Lsn, batch_is_intact, block_floor, claimed_len},
    segments::Segments,
};

/// Reads start small, as little may be wanted, and grow.
const PIECE_MIN: u64 = 16 << 10;
const PIECE_MAX: u64 = 1 << 20;
/// Pieces read ahead of their use.
const AHEAD: usize = 4;

/// A part of the log in memory that moves on.
pub(crate) struct Window<'a> {
    pieces: &'a mut dyn FnMut() -> Option<Result<Vec<u8>>>,
    buf: Vec<u8>,
    /// The LSN of `buf`'s first byte.
    start: Lsn,
    /// Where the files end.
    end: Lsn,
    seed: u32,
}

/// A batch that passed its checks.
pub(crate) struct Batch<'a> {
    pub payload: &'a [u8],
    pub end: Lsn,
    /// Everything below was durable when the batch was appended.
    pub durable: Lsn,
}

/// What the bytes at some LSN say of themselves, be it true or not.
pub(crate) enum Claim {
    /// There are none.
    EndOfFiles,
    /// That they are something else than the batch with this LSN.
    Nothing,
    /// That they are the batch with this LSN, and that it ends there.
    Batch(Lsn),
}

impl Window<'_> {
    /// The `len` bytes at `lsn`, which is never below that of an earlier call; `None` if the log's files end
    /// before.
    fn get(&mut self, lsn: Lsn, len: u64) -> Result<Option<&[u8]>> {
        if self.end < lsn + len {
            return Ok(None);
        }
        while self.start + (self.buf.len() as u64) < lsn + len {
            let Some(piece) = (self.pieces)() else { return Ok(None) };
            let passed = (lsn - self.start).min(self.buf.len() as u64);
            self.buf.drain(..passed as usize);
            self.start += passed;
            self.buf.extend_from_slice(&piece?);
        }
        let at = (lsn - self.start) as usize;
        Ok(Some(&self.buf[at..at + len as usize]))
    }

    /// What the first bytes at `lsn` say.
    pub fn claim(&mut self, lsn: Lsn) -> Result<Claim> {
        Ok(match self.get(lsn, BATCH_ALIGN as u64)? {
            None => Claim::EndOfFiles,
            Some(granule) => claimed_len(granule, lsn).map_or(Claim::Nothing, |len| Claim::Batch(lsn + len)),
        })
    }

    /// The batch at `lsn`, if there is one.
    pub fn batch(&mut self, lsn: Lsn) -> Result<Option<Batch<'_>>> {
        let Some(header) = self.get(lsn, BATCH_HEADER as u64)? else { return Ok(None) };
        let header = BatchHeader::decode(header);
        if header.lsn != lsn {
            return Ok(None);
        }
        let seed = self.seed;
        let Some(bytes) = self.get(lsn, header.batch_len())? else { return Ok(None) };
        if !batch_is_intact(bytes, seed) {
            return Ok(None);
        }
        let payload = &bytes[BATCH_HEADER..][..header.payload_len as usize];
        Ok(Some(Batch { payload, end: lsn + header.batch_len(), durable: header.durable }))
    }
}

impl Segments {
    /// Calls `f` with a window on the log from `from` up to the first segment that is missing. Another thread
    /// reads ahead.
    pub fn with_window<T>(
        &self,
        from: Lsn,
        seed: u32,
        f: impl FnOnce(&mut Window) -> Result<T>,
    ) -> Result<T> {
        let start = block_floor(from);
        let mut end = start;
        while self.get(self.seq_of(end)).is_some() {
            end = self.start_of(self.seq_of(end) + 1);
        }
        let (sender, receiver) = mpsc::sync_channel(AHEAD);
        let read_ahead = move || {
            let (mut at, mut len) = (start, PIECE_MIN);
            while at < end {
                let mut piece = vec![0; (end - at).min(len) as usize];
                let read = self.read(at, &mut piece).map(|()| piece);
                let failed = read.is_err();
                // Nobody listens when the reader has seen enough.
                if sender.send(read).is_err() || failed {
                    return;
                }
                at += len;
                len = (len * 2).min(PIECE_MAX);
            }
        };
        thread::scope(|scope| {
            // Dropped before the scope waits for the thread, which ends the thread.
            let receiver = receiver;
            let spawned =
                thread::Builder::new().name("holdfast-read".to_owned()).spawn_scoped(scope, read_ahead);
            spawned.map_err(|e| Error::io("start the thread holdfast-read", e))?;
            let mut pieces = || receiver.recv().ok();
            f(&mut Window { pieces: &mut pieces, buf: Vec::new(), start, end, seed })
        })
    }
}
