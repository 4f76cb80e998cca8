//! Reading a log of which some is damaged or missing: whatever still passes its checks. Nothing is changed.
//!
//! A segment whose header is damaged is recognized by the batches in it: each carries its LSN, and a checksum that covers it.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_io::{AlignedBuf, Error, File, Io, Result, crc32c_append};

use crate::{
    LogOptions,
    layout::{
        BATCH_ALIGN, BATCH_HEADER, BLOCK_BYTES, BatchHeader, Entry, Lsn, SegmentHeader, batch_is_intact,
        batch_len,
    },
    replay::{choose_copy, slots},
    segments::Segments,
    table::{Segment, SlotFile, file_name, read_header},
};

/// A log of which some may be damaged or missing.
pub struct DamagedLog {
    segments: Segments,
    seed: u32,
    /// The newest durable mark in a header.
    marked: Lsn,
    faults: Vec<Error>,
}

/// How far a [replay](DamagedLog::replay) came.
#[derive(Debug)]
pub struct DamagedReplay {
    /// Where the first batch is missing.
    pub tail: Lsn,
    /// Bytes from there to the end of the last batch that is intact.
    pub bytes_behind: u64,
    /// What is wrong there, if that batch was durable once; `None`: nothing says so, and it may be one of a commit that did not complete.
    pub hole: Option<Error>,
}

/// What the segments say of the store that they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLog {
    /// The store's ID.
    pub store_id: [u8; 16],
    /// Bytes of a segment.
    pub segment_size: u32,
}

impl DamagedLog {
    /// What most of the headers say that pass their check; `None`: there is none.
    pub fn identify(io: &dyn Io) -> Result<Option<FoundLog>> {
        let mut votes: Vec<(FoundLog, usize)> = Vec::new();
        for slot in slots(io)? {
            let header =
                SlotFile::open(io, slot, false).and_then(|file| read_header(&*file, &file_name(slot)));
            let Ok(Some(SegmentHeader { store_id, segment_size, .. })) = header else { continue };
            let found = FoundLog { store_id, segment_size };
            match votes.iter_mut().find(|(other, _)| *other == found) {
                Some((_, count)) => *count += 1,
                None => votes.push((found, 1)),
            }
        }
        Ok(votes.into_iter().max_by_key(|(_, count)| *count).map(|(found, _)| found))
    }

    /// The seed of the checksums of a log whose superblock is lost: the one by which two batches that follow each other pass.
    pub fn find_seed(io: &Arc<dyn Io>, o: &LogOptions) -> Result<Option<u32>> {
        let log = DamagedLog::open(io.clone(), o, None)?;
        for segment in log.segments.kept() {
            let bytes = log.segment_bytes(&*segment.file)?;
            let start = log.segments.start_of(segment.seq);
            let at = |lsn: Lsn| bytes.get(usize::try_from(lsn.checked_sub(start)?).ok()?..);
            let Some(first) = at(segment.entry().first).and_then(claimed) else { continue };
            let seed = seed_of(first);
            let next = at(segment.entry().first + first.len() as u64).and_then(claimed);
            if batch_is_intact(first, seed) && next.is_some_and(|next| batch_is_intact(next, seed)) {
                return Ok(Some(seed));
            }
        }
        Ok(None)
    }

    /// Opens what there is of a log. `from`: the LSN of the last checkpoint, if that is known: what says that it was freed,
    /// and reaches beyond it, is damaged.
    pub fn open(io: Arc<dyn Io>, o: &LogOptions, from: Option<Lsn>) -> Result<DamagedLog> {
        o.check()?;
        let payload = u64::from(o.segment_size) - BLOCK_BYTES;
        let (mut kept, mut headless) = (BTreeMap::new(), Vec::new());
        let (mut marked, mut faults) = (0, Vec::new());
        for slot in slots(&*io)? {
            let name = file_name(slot);
            let file = SlotFile::open(&*io, slot, false)?;
            let len = file.len().map_err(|e| Error::io(format!("open {name}"), e))?;
            let header = match read_header(&*file, &name) {
                Ok(Some(header))
                    if header.store_id != o.store_id || header.segment_size != o.segment_size =>
                {
                    faults.push(Error::corrupt(&name, 0, "the file is another store's"));
                    continue;
                }
                Ok(header) => header,
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            };
            if len < u64::from(o.segment_size) && header.is_some() {
                faults.push(Error::corrupt(&name, len, "the file is too short"));
            }
            // So that no position in or near the segment overflows.
            let Some(header) = header.filter(|it| it.seq < i64::MAX as u64 / u64::from(o.segment_size))
            else {
                headless.push(file);
                continue;
            };
            marked = marked.max(header.durable);
            if header.is_free {
                if from.is_none_or(|from| (header.seq + 1) * payload <= from) {
                    continue;
                }
                faults.push(Error::corrupt(&name, 68, "a segment that is needed says that it is free"));
            }
            let mut segment = Arc::new(Segment::new(header.seq, file, header.entry, header.reach));
            if let Some(other) = kept.remove(&header.seq) {
                segment = match choose_copy(other, segment.clone()) {
                    Ok((kept, _)) => kept,
                    Err(fault) => {
                        faults.push(fault);
                        segment
                    }
                };
            }
            kept.insert(header.seq, segment);
        }
        let mut log = DamagedLog {
            segments: Segments::new(io, o, kept, Vec::new(), 0),
            seed: o.crc_seed,
            marked,
            faults,
        };
        for file in headless {
            // One without a batch was being made, or holds nothing that can be used.
            let Some(seq) = log.sequence_number(&*file)? else { continue };
            let what = format!("the segment header is lost; by its batches it is segment {seq}");
            log.faults.push(Error::corrupt(file.name(), 0, what));
            log.segments.adopt(Arc::new(Segment::new(seq, file, Entry::default(), o.segment_size)));
        }
        Ok(log)
    }

    /// What is wrong with the files, as far as it was seen when they were opened.
    pub fn take_faults(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.faults)
    }

    /// Calls `f` with the LSN and the payload of each batch from `from` on, up to the first that is damaged or missing.
    /// `durable`: everything below is known to have been durable.
    ///
    /// # Errors
    /// Whatever `f` returns.
    pub fn replay(
        &self,
        from: Lsn,
        durable: Lsn,
        f: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<DamagedReplay> {
        let mut mark = durable.max(self.marked).max(from);
        let (mut tail, mut epoch) = (from, 0);
        self.segments.with_window(from, Lsn::MAX, self.seed, |window| {
            while let Some(batch) = window.batch(tail)? {
                if batch.epoch < epoch {
                    break;
                }
                f(tail, batch.payload)?;
                mark = mark.max(batch.durable);
                (tail, epoch) = (batch.end, batch.epoch);
            }
            Ok(())
        })?;
        let mut end = tail;
        self.visit(tail, Lsn::MAX, &mut |lsn, batch_durable, payload| {
            mark = mark.max(batch_durable);
            end = lsn + batch_len(payload.len());
        })?;
        let newest = self.segments.kept().last().map_or(0, |segment| segment.seq);
        let seq = self.segments.seq_of(tail);
        let missing = (seq..=newest).find(|&seq| self.segments.get(seq).is_none());
        let hole = match missing {
            Some(seq) => {
                Some(self.segments.corrupt(self.segments.start_of(seq).max(tail), "the segment is missing"))
            }
            None if mark > tail => Some(self.segments.corrupt(tail, "a durable batch is damaged or missing")),
            None => None,
        };
        Ok(DamagedReplay { tail, bytes_behind: end - tail, hole })
    }

    /// Where its last segment ends.
    pub fn end(&self) -> Lsn {
        self.segments.kept().last().map_or(0, |segment| self.segments.start_of(segment.seq + 1))
    }

    /// Whether the batch that begins at `lsn` goes on behind all that there is: so its first bytes say, and no other one follows.
    pub fn goes_on_behind_the_end(&self, lsn: Lsn) -> Result<bool> {
        let claimed =
            self.segments.with_window(lsn, Lsn::MAX, self.seed, |window| window.claimed_end(lsn))?;
        if claimed.is_none_or(|claimed| claimed <= self.end()) {
            return Ok(false);
        }
        let mut is_followed = false;
        self.scan(lsn, Lsn::MAX, &mut |_, _| is_followed = true)?;
        Ok(!is_followed)
    }

    /// Calls `f` with the LSN and the payload of each batch that is intact and begins in `from..to`, in order.
    pub fn scan(&self, from: Lsn, to: Lsn, f: &mut dyn FnMut(Lsn, &[u8])) -> Result<()> {
        self.visit(from, to, &mut |lsn, _, payload| f(lsn, payload))
    }

    fn visit(&self, from: Lsn, to: Lsn, f: &mut dyn FnMut(Lsn, Lsn, &[u8])) -> Result<()> {
        let mut at = from;
        for segment in self.segments.kept() {
            let start = self.segments.start_of(segment.seq);
            if self.segments.start_of(segment.seq + 1) <= at {
                continue;
            }
            // Up to the next segment that is missing.
            at = at.max(start);
            self.segments.with_window(at, Lsn::MAX, self.seed, |window| {
                while let Some(claim) = window.next_claim(at)? {
                    if claim >= to {
                        break;
                    }
                    at = match window.batch(claim)? {
                        Some(batch) => {
                            f(claim, batch.durable, batch.payload);
                            batch.end
                        }
                        None => claim + BATCH_ALIGN as u64,
                    };
                }
                Ok(())
            })?;
            at = at.max(self.segments.start_of(segment.seq + 1));
        }
        Ok(())
    }

    /// Fills as much of `buf` as there are segments; how much that is.
    pub fn read(&self, lsn: Lsn, buf: &mut [u8]) -> Result<usize> {
        let len = self.segments.kept_part(lsn, buf.len() as u64) as usize;
        self.segments.read(lsn, &mut buf[..len]).map(|()| len)
    }

    /// The file and the offset in it at which `lsn` lies, for messages.
    pub fn locate(&self, lsn: Lsn) -> (String, u64) {
        self.segments.locate(lsn)
    }

    /// The sequence number that the batches in a file have; `None`: there is none in it.
    fn sequence_number(&self, file: &dyn File) -> Result<Option<u64>> {
        let (bytes, payload) = (self.segment_bytes(file)?, self.segments.payload());
        let mut newest = None;
        for at in (0..bytes.len().saturating_sub(BATCH_HEADER)).step_by(BATCH_ALIGN) {
            let lsn = BatchHeader::decode(&bytes[at..][..BATCH_HEADER]).lsn;
            let seq = lsn / payload;
            // A file that was in use before may have batches of then.
            if lsn % payload != at as u64 || newest.is_some_and(|newest| seq <= newest) {
                continue;
            }
            if claimed(&bytes[at..]).is_some_and(|batch| batch_is_intact(batch, self.seed)) {
                newest = Some(seq);
            }
        }
        Ok(newest.filter(|&seq| self.segments.get(seq).is_none()))
    }

    /// The log's bytes in a segment's file.
    fn segment_bytes(&self, file: &dyn File) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(self.segments.payload() as usize);
        let read = file.read_at(&mut bytes, BLOCK_BYTES);
        read.map_err(|e| Error::io(format!("read {}", file.name()), e))?;
        Ok(bytes)
    }
}

/// The batch at the start of some bytes, as its header tells, if they have all of it.
fn claimed(bytes: &[u8]) -> Option<&[u8]> {
    let header = BatchHeader::decode(bytes.get(..BATCH_HEADER)?);
    bytes.get(..batch_len(header.payload_len as usize) as usize)
}

/// The seed by which a batch passes its check, if it is intact. What a seed adds to a checksum is the same for all bytes that are
/// as many; so it can be taken off again, byte by byte.
fn seed_of(batch: &[u8]) -> u32 {
    let header = BatchHeader::decode(batch);
    let payload = &batch[BATCH_HEADER..][..header.payload_len as usize];
    let stored = u32::from_le_bytes(batch[4..8].try_into().expect("four bytes"));
    let mut state = stored ^ header.crc(crc32c_append(0, payload));
    let table = table();
    for _ in 0..payload.len() + 16 {
        let last =
            (0..256).find(|&i| table[i] >> 24 == state >> 24).expect("the high bytes are all different");
        state = (state ^ table[last]) << 8 | last as u32;
    }
    state
}

/// What each byte does to a CRC-32C.
fn table() -> [u32; 256] {
    std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_told_by_a_batch() {
        for (seed, len) in [(0x1234_5678, 0), (0xffff_ffff, 1), (0, 1000), (0xdead_beef, 4097)] {
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let header = BatchHeader { payload_len: len, lsn: 4096, epoch: 1, durable: 4096 };
            let mut batch = header.encode(crc32c_append(seed, &payload)).to_vec();
            batch.extend_from_slice(&payload);
            batch.resize(batch_len(len as usize) as usize, 0);
            assert!(batch_is_intact(&batch, seed));
            assert_eq!(seed_of(&batch), seed);
        }
    }
}
