//! The log's format on the medium: segment and batch headers. `docs/format.md`, section Log, is the reference.

use holdfast_io::{BLOCK, Error, Result, SECTOR, crc32c, crc32c_append};

/// A position in the log's payload, in bytes; batches start at multiples of 16.
pub type Lsn = u64;

/// The first batch of a log has this LSN, so that 0 can mean "none".
pub const FIRST_LSN: Lsn = 4096;
/// Bytes before the payload of a batch.
pub const BATCH_HEADER: usize = 24;
/// Batches start at multiples of this.
pub const BATCH_ALIGN: usize = 16;

/// [`BLOCK`] in LSN arithmetic.
pub(crate) const BLOCK_BYTES: u64 = BLOCK as u64;

const MAGIC: &[u8; 8] = b"HFLOGSEG";
const VERSION: u32 = 2;
/// The state of a segment whose file is free.
const FREE: u32 = 1;
/// Bytes of the header block that carry something; within one sector, so that a header is never torn.
const SEGMENT_HEADER: usize = 128;
const SEGMENT_CRC: usize = SEGMENT_HEADER - 4;
const _: () = assert!(SEGMENT_HEADER <= SECTOR);
/// Where in its block a segment header has a copy, on a medium that does not write it whole or not at all. The copy is written first.
pub(crate) const HEADER_COPY: usize = BLOCK / 2;

/// Bytes of log that a batch with a payload of `payload` bytes takes.
pub const fn batch_len(payload: usize) -> u64 {
    (BATCH_HEADER + payload).next_multiple_of(BATCH_ALIGN) as u64
}

/// `lsn` rounded down to a multiple of `unit`.
pub(crate) const fn floor(lsn: Lsn, unit: u64) -> Lsn {
    lsn / unit * unit
}

/// `lsn` rounded down to a block.
pub(crate) const fn block_floor(lsn: Lsn) -> Lsn {
    lsn & !(BLOCK_BYTES - 1)
}

/// `lsn` rounded up to a block.
pub(crate) const fn block_ceil(lsn: Lsn) -> Lsn {
    lsn.next_multiple_of(BLOCK_BYTES)
}

/// Bytes from the start of `lsn`'s block to it.
pub(crate) const fn block_offset(lsn: Lsn) -> usize {
    (lsn % BLOCK_BYTES) as usize
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What stands before a batch's payload, but for its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub payload_len: u32,
    pub lsn: Lsn,
    pub epoch: u32,
    /// Everything below was durable when the batch was appended here. Not a part of the batch: another server that stores
    /// it has a mark of its own.
    pub durable: Lsn,
}

impl BatchHeader {
    /// `payload_crc`: the payload's CRC-32C, continued from the log's seed.
    #[inline(always)]
    pub fn encode(&self, payload_crc: u32) -> [u8; BATCH_HEADER] {
        let (len, epoch) = (u64::from(self.payload_len), u64::from(self.epoch));
        let crc = header_crc(payload_crc, self.payload_len, self.lsn, self.epoch);
        let mark = encode_mark(self.lsn, self.durable);
        // By words: halves that are stored one by one and then read together cost as much as all the rest.
        let words = [len | u64::from(crc) << 32, self.lsn, epoch | u64::from(mark) << 32];
        let mut bytes = [0; BATCH_HEADER];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        let (lsn, mark) = (u64_at(bytes, 8), u32_at(bytes, MARK));
        let durable = decode_mark(lsn, mark).unwrap_or(0);
        Self { payload_len: u32_at(bytes, 0), lsn, epoch: u32_at(bytes, 16), durable }
    }

    /// The checksum of the batch; `payload_crc`: the payload's CRC-32C, continued from the log's seed.
    pub fn crc(&self, payload_crc: u32) -> u32 {
        header_crc(payload_crc, self.payload_len, self.lsn, self.epoch)
    }

    /// Bytes of log from this batch to the next.
    pub fn batch_len(&self) -> u64 {
        batch_len(self.payload_len as usize)
    }
}

/// If the first 16 bytes of a batch with the LSN `lsn` may be these, the bytes of log that it takes.
pub(crate) fn claimed_len(granule: &[u8], lsn: Lsn) -> Option<u64> {
    (u64_at(granule, 8) == lsn).then(|| batch_len(u32_at(granule, 0) as usize))
}

/// Whether `batch` (header, payload and padding) is what was appended, and its mark what was written with it.
pub(crate) fn batch_is_intact(batch: &[u8], seed: u32) -> bool {
    let payload_end = BATCH_HEADER + u32_at(batch, 0) as usize;
    let payload_crc = crc32c_append(seed, &batch[BATCH_HEADER..payload_end]);
    let (payload_len, lsn, epoch) = (u32_at(batch, 0), u64_at(batch, 8), u32_at(batch, 16));
    header_crc(payload_crc, payload_len, lsn, epoch) == u32_at(batch, 4)
        && decode_mark(u64_at(batch, 8), u32_at(batch, MARK)).is_some()
        && batch[payload_end..].iter().all(|&byte| byte == 0)
}

/// The checksum that a header says the batch has.
pub(crate) fn batch_header_crc(header: &[u8; BATCH_HEADER]) -> u32 {
    u32_at(header, 4)
}

/// Whether the mark in a header passes its check.
pub(crate) fn header_is_intact(header: &[u8; BATCH_HEADER]) -> bool {
    decode_mark(u64_at(header, 8), u32_at(header, MARK)).is_some()
}

#[inline]
fn header_crc(payload_crc: u32, payload_len: u32, lsn: Lsn, epoch: u32) -> u32 {
    // In one piece: what a checksum begins with costs as much as these bytes.
    let mut covered = [0; 16];
    covered[..8].copy_from_slice(&lsn.to_le_bytes());
    covered[8..].copy_from_slice(&(u64::from(epoch) | u64::from(payload_len) << 32).to_le_bytes());
    crc32c_append(payload_crc, &covered)
}

/// Where the durable mark lies in a batch's header.
const MARK: usize = 20;
/// Bits of a mark that say how far below the batch's LSN it lies; the others are its check.
const DISTANCE_BITS: u32 = 22;
/// Distances of less than so many granules are exact; larger ones are rounded up to a multiple of [`COARSE`] granules.
const EXACT: u64 = 1 << (DISTANCE_BITS - 1);
const COARSE: u64 = 256;
/// The distance of a mark that says nothing.
const UNKNOWN: u64 = (1 << DISTANCE_BITS) - 1;

#[inline]
fn encode_mark(lsn: Lsn, durable: Lsn) -> u32 {
    let granules = (lsn - durable).div_ceil(BATCH_ALIGN as u64);
    let distance = if granules < EXACT { granules } else { (EXACT + granules.div_ceil(COARSE)).min(UNKNOWN) };
    distance as u32 | mark_check(lsn, distance) << DISTANCE_BITS
}

/// `None`: the mark fails its check.
fn decode_mark(lsn: Lsn, mark: u32) -> Option<Lsn> {
    let distance = u64::from(mark) & UNKNOWN;
    let granules = match distance {
        UNKNOWN => lsn,
        exact if exact < EXACT => exact,
        coarse => (coarse - EXACT) * COARSE,
    };
    let durable = lsn.saturating_sub(granules.saturating_mul(BATCH_ALIGN as u64));
    (mark >> DISTANCE_BITS == mark_check(lsn, distance)).then_some(durable)
}

/// The highest bits of a product, as many as a mark has for them. A mark is evidence and no data, and a second CRC for each batch
/// would cost an append a fifth.
#[inline]
fn mark_check(lsn: Lsn, distance: u64) -> u32 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let product = (lsn ^ distance << (64 - DISTANCE_BITS)).wrapping_mul(FACTOR);
    (product >> (32 + DISTANCE_BITS)) as u32
}

/// What a segment file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub segment_size: u32,
    pub store_id: [u8; 16],
    pub seq: u64,
    /// Everything below was durable when the header was written.
    pub durable: Lsn,
    pub entry: Entry,
    /// The log's when the header was written.
    pub epoch: u32,
    /// Nothing in the file is needed.
    pub is_free: bool,
    /// Bytes of the file, from its start, that this segment may have written to: the whole file, where it is not known.
    pub reach: u32,
}

/// How the log's batches enter a segment; all zero while nothing was written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The batch that the segment's first byte belongs to.
    pub crossing: Lsn,
    /// The first batch that starts in the segment or after it; equal to `crossing` if none crosses.
    pub first: Lsn,
}

impl SegmentHeader {
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        block[0..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.segment_size.to_le_bytes());
        block[16..32].copy_from_slice(&self.store_id);
        block[32..40].copy_from_slice(&self.seq.to_le_bytes());
        block[40..48].copy_from_slice(&self.durable.to_le_bytes());
        block[48..56].copy_from_slice(&self.entry.crossing.to_le_bytes());
        block[56..64].copy_from_slice(&self.entry.first.to_le_bytes());
        block[64..68].copy_from_slice(&self.epoch.to_le_bytes());
        block[68..72].copy_from_slice(&(if self.is_free { FREE } else { 0 }).to_le_bytes());
        block[72..76].copy_from_slice(&self.reach.to_le_bytes());
        let crc = crc32c(&block[..SEGMENT_CRC]);
        block[SEGMENT_CRC..SEGMENT_HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header in the first block of `file`, or its copy if it was not written to its end; `None`: it never was.
    pub fn read(block: &[u8], file: &str) -> Result<Option<Self>> {
        let (own, copy) = block.split_at(HEADER_COPY);
        match Self::decode(own, file) {
            Err(damage @ Error::Corrupt { .. }) => match Self::decode(copy, file) {
                Ok(copy) => Ok(Some(copy)),
                Err(_) if own.iter().all(|&byte| byte == 0) => Ok(None),
                Err(_) => Err(damage),
            },
            own => own.map(Some),
        }
    }

    /// Whether a file's header was cut off while it was written, and only its copy is whole.
    pub fn is_torn(block: &[u8]) -> bool {
        let (own, copy) = block.split_at(HEADER_COPY);
        Self::decode(own, "").is_err() && Self::decode(copy, "").is_ok()
    }

    /// What the first half of a block, or the second, says.
    fn decode(block: &[u8], file: &str) -> Result<Self> {
        let crc_holds = crc32c(&block[..SEGMENT_CRC]) == u32_at(block, SEGMENT_CRC);
        if !crc_holds || block[SEGMENT_HEADER..].iter().any(|&byte| byte != 0) {
            return Err(Error::corrupt(file, 0, "the segment header fails its check"));
        }
        if &block[0..8] != MAGIC {
            return Err(Error::Unusable(format!("{file} is not a log segment")));
        }
        let version = u32_at(block, 8);
        if version != VERSION {
            return Err(Error::Unusable(format!("{file} has format version {version}, not {VERSION}")));
        }
        let segment_size = u32_at(block, 12);
        // Those that were written before reaches were kept have none.
        let reach = Some(u32_at(block, 72)).filter(|&reach| reach != 0).unwrap_or(segment_size);
        if reach > segment_size || !reach.is_multiple_of(BLOCK as u32) {
            return Err(Error::corrupt(file, 72, "impossible reach"));
        }
        Ok(Self {
            segment_size,
            store_id: block[16..32].try_into().expect("sixteen bytes"),
            seq: u64_at(block, 32),
            durable: u64_at(block, 40),
            entry: Entry { crossing: u64_at(block, 48), first: u64_at(block, 56) },
            epoch: u32_at(block, 64),
            is_free: u32_at(block, 68) == FREE,
            reach,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format is frozen: these bytes were written by version 2.
    #[test]
    fn headers_have_their_frozen_bytes() {
        let lsn = 0x1122_3344_5566_7780;
        let batch = BatchHeader { payload_len: 3, lsn, epoch: 0x0506_0708, durable: lsn - 0x120 };
        let payload_crc = crc32c_append(7, b"abc");
        let bytes = batch.encode(payload_crc);
        assert_eq!(bytes[..4], [3, 0, 0, 0]);
        assert_eq!(bytes[8..16], [0x80, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[16..20], [8, 7, 6, 5]);
        let product = (lsn ^ 0x12 << 42).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mark = (product >> 54) as u32 * (1 << 22) + 0x12;
        assert_eq!(bytes[20..24], mark.to_le_bytes());
        assert_eq!(BatchHeader::decode(&bytes), batch);
        let mut covered = b"abc".to_vec();
        covered.extend_from_slice(&bytes[8..20]);
        covered.extend_from_slice(&bytes[..4]);
        assert_eq!(u32_at(&bytes, 4), crc32c_append(7, &covered));

        let mut block = vec![0xFF; BLOCK];
        let header = SegmentHeader {
            segment_size: 1 << 25,
            store_id: *b"0123456789abcdef",
            seq: 5,
            durable: 4096,
            entry: Entry { crossing: 16, first: 32 },
            epoch: 9,
            is_free: true,
            reach: 1 << 23,
        };
        header.encode(&mut block);
        assert_eq!(&block[..8], b"HFLOGSEG");
        assert_eq!(block[8..16], [2, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(block[32..40], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[64..76], [9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0]);
        let read = |block: &[u8]| SegmentHeader::read(block, "x").ok();
        assert_eq!(read(&block), Some(Some(header)));
        for bit in 0..HEADER_COPY * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&block), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        // The copy is asked for only where the header itself is not whole, and is checked as well.
        let copied = SegmentHeader { seq: 6, ..header };
        copied.encode(&mut block[HEADER_COPY..]);
        assert_eq!(read(&block), Some(Some(header)));
        block[40] ^= 1;
        assert_eq!(read(&block), Some(Some(copied)));
        block[HEADER_COPY + 32] ^= 1;
        assert_eq!(read(&block), None);
        block[..HEADER_COPY].fill(0);
        assert_eq!(read(&block), Some(None), "nothing but a part of the copy was written");
        block[HEADER_COPY + 32] ^= 1;
        assert_eq!(read(&block), Some(Some(copied)));
    }

    /// What one server has stored, another one stores byte for byte, but for the mark.
    #[test]
    fn a_batch_is_the_same_whatever_its_mark_says() {
        let lsn = 1 << 40;
        let batch = |durable| {
            let payload = *b"12345678";
            let header = BatchHeader { payload_len: 8, lsn, epoch: 1, durable };
            [&header.encode(crc32c_append(7, &payload))[..], &payload].concat()
        };
        let one = batch(lsn);
        assert!(batch_is_intact(&one, 7));
        for below in [16, 4096, EXACT * 16 - 16, EXACT * 16, EXACT * 16 + 16, 5 << 30, 1 << 38] {
            let other = batch(lsn - below);
            assert!(batch_is_intact(&other, 7));
            assert_eq!((&one[..MARK], &one[MARK + 4..]), (&other[..MARK], &other[MARK + 4..]));
            let marked = BatchHeader::decode(&other).durable;
            // Never more than what is so, and little less, or nothing.
            let least = if below < EXACT * 16 { lsn - below } else { lsn - below - COARSE * 16 };
            assert!(
                (least..=lsn - below).contains(&marked) || marked == 0 && below > 4 << 30,
                "{below}: {marked}"
            );
        }
        // A length that is damaged names other bytes.
        for bit in 32..one.len() * 8 {
            let mut damaged = one.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!batch_is_intact(&damaged, 7), "bit {bit}");
        }
        for durable in [lsn, lsn - 16, lsn - 5 * 4096] {
            for bit in 0..32 {
                assert_eq!(decode_mark(lsn, encode_mark(lsn, durable) ^ 1 << bit), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn batches_are_padded_to_sixteen() {
        assert_eq!(batch_len(0), 32);
        assert_eq!(batch_len(8), 32);
        assert_eq!(batch_len(9), 48);
    }
}
