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
const VERSION: u32 = 1;
/// Bytes of the header block that carry something; within one sector, so that a header is never torn.
const SEGMENT_HEADER: usize = 128;
const SEGMENT_CRC: usize = SEGMENT_HEADER - 4;
const _: () = assert!(SEGMENT_HEADER <= SECTOR);

/// Bytes of log that a batch with a payload of `payload` bytes takes.
pub const fn batch_len(payload: usize) -> u64 {
    (BATCH_HEADER + payload).next_multiple_of(BATCH_ALIGN) as u64
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
    /// Everything below was durable when the batch was appended.
    pub durable: Lsn,
}

impl BatchHeader {
    /// `payload_crc`: the payload's CRC-32C, continued from the log's seed.
    pub fn encode(&self, payload_crc: u32) -> [u8; BATCH_HEADER] {
        let mut bytes = [0; BATCH_HEADER];
        bytes[0..4].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.to_le_bytes());
        let crc = header_crc(&bytes, payload_crc);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        Self { payload_len: u32_at(bytes, 0), lsn: u64_at(bytes, 8), durable: u64_at(bytes, 16) }
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

/// Whether `batch` (header, payload and padding) is what was appended.
pub(crate) fn batch_is_intact(batch: &[u8], seed: u32) -> bool {
    let payload_end = BATCH_HEADER + u32_at(batch, 0) as usize;
    let payload_crc = crc32c_append(seed, &batch[BATCH_HEADER..payload_end]);
    let header = batch.first_chunk().expect("a batch has a header");
    header_crc(header, payload_crc) == u32_at(batch, 4) && batch[payload_end..].iter().all(|&byte| byte == 0)
}

#[inline]
fn header_crc(header: &[u8; BATCH_HEADER], payload_crc: u32) -> u32 {
    // In one piece: what a checksum begins with costs as much as these bytes.
    let mut covered = [0; 20];
    covered[..16].copy_from_slice(&header[8..]);
    covered[16..].copy_from_slice(&header[..4]);
    crc32c_append(payload_crc, &covered)
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
        let crc = crc32c(&block[..SEGMENT_CRC]);
        block[SEGMENT_CRC..SEGMENT_HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header in the first block of `file`.
    pub fn decode(block: &[u8], file: &str) -> Result<Self> {
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
        Ok(Self {
            segment_size: u32_at(block, 12),
            store_id: block[16..32].try_into().expect("sixteen bytes"),
            seq: u64_at(block, 32),
            durable: u64_at(block, 40),
            entry: Entry { crossing: u64_at(block, 48), first: u64_at(block, 56) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format is frozen: these bytes were written by version 1.
    #[test]
    fn headers_have_their_frozen_bytes() {
        let batch = BatchHeader { payload_len: 3, lsn: 0x1122_3344_5566_7780, durable: 0x10_0000 };
        let payload_crc = crc32c_append(7, b"abc");
        let bytes = batch.encode(payload_crc);
        assert_eq!(bytes[..4], [3, 0, 0, 0]);
        assert_eq!(bytes[8..16], [0x80, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[16..24], [0, 0, 0x10, 0, 0, 0, 0, 0]);
        assert_eq!(BatchHeader::decode(&bytes), batch);
        let mut covered = b"abc".to_vec();
        covered.extend_from_slice(&bytes[8..24]);
        covered.extend_from_slice(&bytes[..4]);
        assert_eq!(u32_at(&bytes, 4), crc32c_append(7, &covered));

        let mut block = vec![0xFF; BLOCK];
        let header = SegmentHeader {
            segment_size: 1 << 25,
            store_id: *b"0123456789abcdef",
            seq: 5,
            durable: 4096,
            entry: Entry { crossing: 16, first: 32 },
        };
        header.encode(&mut block);
        assert_eq!(&block[..8], b"HFLOGSEG");
        assert_eq!(block[8..16], [1, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(block[32..40], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SegmentHeader::decode(&block, "x").ok(), Some(header));
        for bit in 0..BLOCK * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&block, "x").is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn batches_are_padded_to_sixteen() {
        assert_eq!(batch_len(0), 32);
        assert_eq!(batch_len(8), 32);
        assert_eq!(batch_len(9), 48);
    }
}
