//! The check of batches whose bytes pass by in pieces.

use holdfast_io::{AlignedBuf, Result, crc32c_append};

use crate::{
    layout::{BATCH_HEADER, BatchHeader, Lsn, batch_header_crc, header_is_intact},
    segments::Segments,
};

/// A batch up to this length is read before it is checked.
const READ_UNCHECKED_MAX: u64 = 4 << 20;
/// Bytes of a longer one that are read at once to check it.
const PIECE: usize = 1 << 20;

/// Checks batches as their bytes pass by.
pub(crate) struct BatchCheck {
    seed: u32,
    /// No batch goes beyond.
    end: Lsn,
    /// The LSN of the next byte.
    at: Lsn,
    state: State,
}

enum State {
    /// What comes up to this LSN belongs to a batch whose beginning is not there.
    Until(Lsn),
    /// The bytes of a header so far.
    Header([u8; BATCH_HEADER], usize),
    /// The payload of a batch, and the checksum of what has come of it.
    Payload(BatchHeader, [u8; BATCH_HEADER], u32),
    /// Padding, up to this LSN.
    Padding(Lsn),
}

impl BatchCheck {
    /// Of batches none of which goes beyond `end`; `begin` says where they begin.
    pub fn new(seed: u32, end: Lsn) -> BatchCheck {
        BatchCheck { seed, end, at: 0, state: State::Until(0) }
    }

    /// Bytes from `start` on come next, in which the first batch is at `first`.
    pub fn begin(&mut self, start: Lsn, first: Lsn) {
        (self.at, self.state) = (start, State::Until(first));
    }

    /// Whether the next byte begins a batch.
    pub fn is_between(&self) -> bool {
        match self.state {
            State::Until(first) => first == self.at,
            State::Header(_, len) => len == 0,
            State::Padding(end) => end == self.at,
            State::Payload(..) => false,
        }
    }

    /// Checks what comes next; the LSN of a batch that is damaged is the error.
    pub fn feed(&mut self, mut bytes: &[u8]) -> std::result::Result<(), Lsn> {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                State::Until(first) => {
                    let skipped = first.saturating_sub(self.at).min(bytes.len() as u64) as usize;
                    if skipped < bytes.len() {
                        self.state = State::Header([0; BATCH_HEADER], 0);
                    }
                    skipped
                }
                State::Header(header, len) => {
                    let part = (BATCH_HEADER - *len).min(bytes.len());
                    header[*len..*len + part].copy_from_slice(&bytes[..part]);
                    *len += part;
                    if *len == BATCH_HEADER {
                        let lsn = self.at + part as u64 - BATCH_HEADER as u64;
                        let decoded = BatchHeader::decode(header);
                        if decoded.lsn != lsn || lsn + decoded.batch_len() > self.end {
                            return Err(lsn);
                        }
                        self.state = State::Payload(decoded, *header, self.seed);
                    }
                    part
                }
                State::Payload(header, raw, crc) => {
                    let end = header.lsn + BATCH_HEADER as u64 + u64::from(header.payload_len);
                    let part = (end - self.at).min(bytes.len() as u64) as usize;
                    *crc = crc32c_append(*crc, &bytes[..part]);
                    if self.at + part as u64 == end {
                        let is_intact = batch_header_crc(raw) == header.crc(*crc) && header_is_intact(raw);
                        if !is_intact {
                            return Err(header.lsn);
                        }
                        self.state = State::Padding(header.lsn + header.batch_len());
                    }
                    part
                }
                State::Padding(end) => {
                    let part = (*end - self.at).min(bytes.len() as u64) as usize;
                    if bytes[..part].iter().any(|&byte| byte != 0) {
                        return Err(self.at);
                    }
                    if part < bytes.len() {
                        self.state = State::Header([0; BATCH_HEADER], 0);
                    }
                    part
                }
            };
            self.at += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }
}

impl Segments {
    /// Whether the batch at `lsn` may be intact that ends at `end`, as its header says: whoever reads all of it checks it. A long one is
    /// checked here already, piece by piece, since a length that is damaged may be one of 4 GiB, for which no memory is to be taken.
    pub fn may_be_intact(&self, lsn: Lsn, end: Lsn, seed: u32) -> Result<bool> {
        if end - lsn <= READ_UNCHECKED_MAX {
            return Ok(true);
        }
        let mut check = BatchCheck::new(seed, end);
        check.begin(lsn, lsn);
        let (mut at, mut piece) = (lsn, AlignedBuf::zeroed(PIECE));
        while at < end {
            let part = (end - at).min(PIECE as u64) as usize;
            self.read(at, &mut piece[..part])?;
            if check.feed(&piece[..part]).is_err() {
                return Ok(false);
            }
            at += part as u64;
        }
        Ok(check.is_between())
    }
}
