//! The superblock: the roots of everything, in two copies (`docs/format.md`, "Superblock").
//!
//! Both copies are written, one after the other, before anything that only the previous generation needs is freed: so
//! either copy alone is enough, and one that is torn or damaged is healed from the other at the next start.

use crate::digest::Secret;
use holdfast_heap::HeapRoot;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Result};
use holdfast_log::Lsn;

/// The file's name in the data folder.
pub(crate) const FILE: &str = "superblock";
const MAGIC: &[u8; 8] = b"HOLDFAST";
/// The newest format that this version reads and the one that it writes. Format 1 had no frozen collections, format 2
/// no strings in the heap.
pub const VERSION: u32 = 3;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Superblock {
    /// Counts checkpoints; the copy with the greater one is the newer.
    pub generation: u64,
    pub store_id: [u8; 16],
    pub secret: [u8; 16],
    pub partitions: u16,
    pub segment_size: u32,
    /// Redo starts here.
    pub checkpoint_lsn: Lsn,
    /// Everything below this was durable when this was written: a log that ends before it has lost something.
    pub durable_lsn: Lsn,
    pub heap: HeapRoot,
}

/// What the medium has.
pub(crate) struct Copies {
    pub newest: Superblock,
    /// The version of the newest one's format.
    pub version: u32,
    /// Offset and fault of the other one, if it does not pass its check.
    pub damaged: Option<(u64, String)>,
}

impl Superblock {
    /// CRC seed of the log: no client knows it, so none can forge a batch.
    pub fn crc_seed(&self) -> u32 {
        holdfast_io::crc32c_append(holdfast_io::crc32c(&self.store_id), &self.secret)
    }

    pub fn secret(&self) -> Secret {
        Secret(self.secret)
    }

    fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.segment_size.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..40].copy_from_slice(&self.store_id);
        block[40..56].copy_from_slice(&self.secret);
        block[56..58].copy_from_slice(&self.partitions.to_le_bytes());
        block[64..72].copy_from_slice(&self.checkpoint_lsn.to_le_bytes());
        block[72..80].copy_from_slice(&self.durable_lsn.to_le_bytes());
        block[80..144].copy_from_slice(&self.heap.encode());
        let crc = holdfast_io::crc32c(&block[..BLOCK - 4]);
        block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    fn decode(block: &[u8]) -> std::result::Result<Superblock, String> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if holdfast_io::crc32c(&block[..BLOCK - 4]) != u32_at(BLOCK - 4) {
            return Err("superblock checksum".into());
        }
        if &block[..8] != MAGIC {
            return Err("not a Holdfast superblock".into());
        }
        Ok(Superblock {
            generation: u64_at(16),
            store_id: block[24..40].try_into().expect("sixteen bytes"),
            secret: block[40..56].try_into().expect("sixteen bytes"),
            partitions: u16::from_le_bytes([block[56], block[57]]),
            segment_size: u32_at(12),
            checkpoint_lsn: u64_at(64),
            durable_lsn: u64_at(72),
            heap: HeapRoot::decode(block[80..144].try_into().expect("sixty-four bytes")),
        })
    }

    /// Writes both copies, one after the other, durably.
    pub fn write(&self, file: &dyn File) -> Result<()> {
        let block = self.encode();
        [0, BLOCK as u64]
            .iter()
            .try_for_each(|&at| file.write_at(&[&block], at, Durability::Durable))
            .map_err(|e| Error::io(format!("write {FILE}"), e))
    }

    /// The newest copy that passes its check, and what is to be known of both.
    pub fn read(file: &dyn File) -> Result<Copies> {
        let mut copies = Vec::new();
        let mut damaged = None;
        for at in [0, BLOCK as u64] {
            let mut block = AlignedBuf::zeroed(BLOCK);
            if let Err(e) = file.read_at(&mut block, at) {
                if e.kind() != std::io::ErrorKind::UnexpectedEof {
                    return Err(Error::io(format!("read {FILE}"), e));
                }
            }
            let version = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
            match Superblock::decode(&block) {
                Ok(_) if version > VERSION => {
                    let why = format!(
                        "the data folder was made by a newer version (format {version}; this one reads up to {VERSION})"
                    );
                    return Err(Error::Unusable(why));
                }
                Ok(copy) => copies.push((copy, version)),
                Err(what) => damaged = Some((at, what)),
            }
        }
        match copies.into_iter().max_by_key(|(copy, version)| (copy.generation, *version)) {
            Some((newest, version)) => Ok(Copies { newest, version, damaged }),
            None => Err(Error::corrupt(FILE, 0, "both copies fail their check")),
        }
    }
}
