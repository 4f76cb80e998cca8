//! The superblock: the roots of everything, in two copies (`docs/format.md`, "Superblock").
//!
//! Both copies are written, one after the other, before anything that only the previous generation needs is freed: so
//! either copy alone is enough. A start makes both the same before anything else is written: whatever is torn when the
//! first of them is written anew, the other one is of the generation whose slots and segments are kept.

use crate::format::{EPOCH, bytes_written::BytesWritten, digest::Secret};
use holdfast_heap::{HeapRoot, HomeMethod};
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Result};
use holdfast_log::Lsn;
use std::{io::ErrorKind, ops::RangeInclusive};

/// The file's name in the data folder.
pub(crate) const FILE: &str = "superblock";
const MAGIC: &[u8; 8] = b"HOLDFAST";
/// Where the copies lie.
const OFFSETS: [u64; 2] = [0, BLOCK as u64];
/// Bytes that [`Superblock::write`] writes.
pub(crate) const WRITE_BYTES: u64 = 2 * BLOCK as u64;
/// Where in a copy the bytes written are; the last of their words came later.
const WRITTEN_AT: [usize; BytesWritten::WORDS] = {
    let mut at = [152; BytesWritten::WORDS];
    let mut word = 1;
    while word < at.len() {
        at[word] = at[word - 1] + 8;
        word += 1;
    }
    at[13] = 280;
    at
};
/// Where the history is.
const HISTORY_AT: usize = 256;
/// Where the method is by which the heap's home is changed: [`METHODS`], or 0.
const METHOD_AT: usize = 272;
/// Where the epoch is; 0: [`EPOCH`].
const EPOCH_AT: usize = 276;
/// The methods, numbered from 1 on.
const METHODS: [HomeMethod; 4] = [HomeMethod::Cow, HomeMethod::Lat, HomeMethod::Latb, HomeMethod::None];
/// The formats that this version reads; it writes the last one. Format 1 had no frozen collections, format 2 no strings in the heap, format 3
/// durable marks within the batches of the log, format 5 no compressed values; in format 6 all segments of an index had four pages, up to format
/// 7 the heap was always in a file of its own, and up to format 8 the log's segments did not say how far they were written to.
pub const VERSIONS: RangeInclusive<u32> = 5..=9;

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
    /// The heap is not where its root says but in its home, which is changed so.
    pub home: Option<HomeMethod>,
    /// From when on it is known what was written: Unix time in milliseconds; 0: not before now.
    pub known_since_ms: u64,
    /// What was written since, up to this checkpoint.
    pub written: BytesWritten,
    /// Which history of the store this is: a copy that was restored begins another one. Zero: that of a folder that never was.
    pub history: [u8; 16],
    /// The term in which the log was appended to at this checkpoint: what is in it is of no later one.
    pub epoch: u32,
}

/// What the medium has.
pub(crate) struct Copies {
    pub newest: Superblock,
    newest_at: u64,
    /// Whether one of them is of an older format.
    pub are_old: bool,
    /// The other copy is not the same; why, if it is not just older.
    differs: bool,
    fault: Option<String>,
}

impl Copies {
    fn other_at(&self) -> u64 {
        BLOCK as u64 - self.newest_at
    }

    /// Offset and fault of the other copy, if it has one.
    pub fn damaged(&self) -> Option<(u64, &str)> {
        self.fault.as_deref().map(|fault| (self.other_at(), fault))
    }

    /// Makes both copies the same; returns the bytes that this took to write. The newest one is not touched.
    pub fn heal(&self, file: &dyn File) -> Result<u64> {
        if !self.differs {
            return Ok(0);
        }
        self.newest.write_at(file, self.other_at())?;
        Ok(BLOCK as u64)
    }
}

impl Superblock {
    /// CRC seed of the log: no client knows it, so none can forge a batch.
    pub fn crc_seed(&self) -> u32 {
        holdfast_io::crc32c_append(holdfast_io::crc32c(&self.store_id), &self.secret)
    }

    pub fn secret(&self) -> Secret {
        Secret(self.secret)
    }

    /// The bytes of a copy.
    pub fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSIONS.end().to_le_bytes());
        block[12..16].copy_from_slice(&self.segment_size.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..40].copy_from_slice(&self.store_id);
        block[40..56].copy_from_slice(&self.secret);
        block[56..58].copy_from_slice(&self.partitions.to_le_bytes());
        block[64..72].copy_from_slice(&self.checkpoint_lsn.to_le_bytes());
        block[72..80].copy_from_slice(&self.durable_lsn.to_le_bytes());
        block[80..144].copy_from_slice(&self.heap.encode());
        block[144..152].copy_from_slice(&self.known_since_ms.to_le_bytes());
        for (at, word) in WRITTEN_AT.into_iter().zip(self.written.words()) {
            block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        block[HISTORY_AT..HISTORY_AT + 16].copy_from_slice(&self.history);
        let number =
            |method| 1 + METHODS.iter().position(|known| *known == method).expect("one of them") as u8;
        block[METHOD_AT] = self.home.map_or(0, number);
        block[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&self.epoch.to_le_bytes());
        let crc = holdfast_io::crc32c(&block[..BLOCK - 4]);
        block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// What a copy says, of any version; the error says what is wrong.
    pub fn decode(block: &[u8]) -> std::result::Result<Superblock, String> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if holdfast_io::crc32c(&block[..BLOCK - 4]) != u32_at(BLOCK - 4) {
            return Err("superblock checksum".into());
        }
        if &block[..8] != MAGIC {
            return Err("not a Holdfast superblock".into());
        }
        let home = match usize::from(block[METHOD_AT]) {
            0 => None,
            number => Some(*METHODS.get(number - 1).ok_or("superblock: no known method of a home")?),
        };
        Ok(Superblock {
            generation: u64_at(16),
            store_id: block[24..40].try_into().expect("sixteen bytes"),
            secret: block[40..56].try_into().expect("sixteen bytes"),
            partitions: u16::from_le_bytes([block[56], block[57]]),
            segment_size: u32_at(12),
            checkpoint_lsn: u64_at(64),
            durable_lsn: u64_at(72),
            heap: HeapRoot::decode(block[80..144].try_into().expect("sixty-four bytes")),
            home,
            known_since_ms: u64_at(144),
            written: BytesWritten::of_words(&WRITTEN_AT.map(u64_at)),
            history: block[HISTORY_AT..HISTORY_AT + 16].try_into().expect("sixteen bytes"),
            epoch: u32_at(EPOCH_AT).max(EPOCH),
        })
    }

    /// Writes both copies, one after the other, durably. Both are the same before.
    pub fn write(&self, file: &dyn File) -> Result<()> {
        OFFSETS.iter().try_for_each(|&at| self.write_at(file, at))
    }

    fn write_at(&self, file: &dyn File, at: u64) -> Result<()> {
        let written = file.write_at(&[&self.encode()], at, Durability::Durable);
        written.map_err(|e| Error::io(format!("write {FILE}"), e))
    }

    /// The newest copy that passes its check, and what is to be known of both. One that cannot be read is as a damaged one.
    pub fn read(file: &dyn File) -> Result<Copies> {
        let (mut sound, mut faults, mut are_old) = (Vec::new(), Vec::new(), false);
        for at in OFFSETS {
            let mut block = AlignedBuf::zeroed(BLOCK);
            match file.read_at(&mut block, at) {
                Err(e) if e.kind() != ErrorKind::UnexpectedEof => {
                    faults.push((format!("it cannot be read: {e}"), Some(e)));
                    continue;
                }
                _ => {}
            }
            let version = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
            match Superblock::decode(&block) {
                Ok(_) if !VERSIONS.contains(&version) => {
                    return Err(Error::Unusable(other_version(version)));
                }
                Ok(copy) => {
                    are_old |= version < *VERSIONS.end();
                    sound.push((copy, at));
                }
                Err(what) => faults.push((what, None)),
            }
        }
        let differs = sound.len() < 2 || sound[0].0 != sound[1].0;
        match sound.into_iter().max_by_key(|(copy, _)| copy.generation) {
            Some((newest, newest_at)) => {
                let fault = faults.pop().map(|(what, _)| what);
                Ok(Copies { newest, newest_at, are_old, differs, fault })
            }
            None => match faults.into_iter().find_map(|(_, error)| error) {
                Some(error) => Err(Error::io(format!("read {FILE}"), error)),
                None => Err(Error::corrupt(FILE, 0, "both copies fail their check")),
            },
        }
    }
}

/// Why a folder of another format is refused, and what to do about it.
fn other_version(version: u32) -> String {
    let (first, last) = VERSIONS.into_inner();
    if version > last {
        return format!(
            "the data folder was made by a newer version of Holdfast (format {version}; this one reads formats {first} to {last}): \
             start that version"
        );
    }
    format!(
        "the data folder was made by an older version of Holdfast, before 0.1.0 (format {version}; this one reads formats \
         {first} to {last}): start that version on it, and an empty folder with this one, and move the keys by MIGRATE"
    )
}
