//! The file that makes a backup of what lies in a folder: it says which files are its own, and where each has its place in a data folder.
//! Its head is written when everything else is durable; without it there is no backup.

use super::plan::{decode_superblock, encode_superblock};
use crate::format::superblock::Superblock;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result, crc32c};
use holdfast_log::Lsn;
use std::{fmt::Write, io::ErrorKind};

const PREFIX: &str = "backup-";
const MAGIC: &[u8; 8] = b"HFBACKUP";
const VERSION: u32 = 1;
/// Magic, version, checksum of the text, its length.
const HEAD: usize = 24;
/// Bytes that a manifest may have: enough for a log of 2^20 segments.
const BYTES_MAX: u64 = 256 << 20;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackupFile {
    /// Its name in a data folder.
    pub place: String,
    /// Its name in the folder of backups.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// CRC-32C of all of it.
    pub crc: u32,
}

/// A backup.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    /// When it was taken: Unix time in milliseconds.
    pub taken_ms: u64,
    /// The end of the log.
    pub moment: Lsn,
    /// What the restored folder begins with.
    pub superblock: Superblock,
    pub files: Vec<BackupFile>,
}

/// The numbers of the manifests in a folder, sound or not.
pub(super) fn numbers(io: &dyn Io) -> Result<Vec<u32>> {
    let files = io.list("").map_err(|e| Error::io("list the folder of backups", e))?;
    let mut numbers: Vec<u32> = files
        .iter()
        .filter_map(|name| {
            let number = name.strip_prefix(PREFIX)?.parse().ok()?;
            (file_name(number) == *name).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn file_name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

impl Manifest {
    fn encode(&self) -> String {
        let Manifest { taken_ms, moment, superblock, files } = self;
        let mut text =
            format!("taken {taken_ms}\nmoment {moment}\nsuperblock {}\n", encode_superblock(superblock));
        for BackupFile { place, name, len, crc } in files {
            writeln!(text, "file {place} {name} {len} {crc:08x}").expect("writing to a string cannot fail");
        }
        text
    }

    fn decode(text: &str) -> Option<Manifest> {
        let (mut taken_ms, mut moment, mut superblock, mut files) = (None, None, None, Vec::new());
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["taken", ms] => taken_ms = ms.parse().ok(),
                ["moment", lsn] => moment = lsn.parse().ok(),
                ["superblock", hex] => superblock = decode_superblock(hex),
                ["file", place, name, len, crc] => files.push(BackupFile {
                    place: place.to_owned(),
                    name: Some(name).filter(|name| is_plain(name))?.to_owned(),
                    len: len.parse().ok()?,
                    crc: u32::from_str_radix(crc, 16).ok()?,
                }),
                _ => return None,
            }
        }
        let is_place = |place: &str| is_plain(place.strip_prefix("log/").unwrap_or(place));
        files.iter().all(|file| is_place(&file.place)).then_some(Manifest {
            taken_ms: taken_ms?,
            moment: moment?,
            superblock: superblock?,
            files,
        })
    }

    /// Writes it, durably, as the backup with a number, and the head last. Everything that it names is durable.
    pub fn write(&self, io: &dyn Io, number: u32) -> Result<u64> {
        let (name, text) = (file_name(number), self.encode());
        let failed = |e| Error::io(format!("write {name}"), e);
        let mut body = AlignedBuf::zeroed(text.len().next_multiple_of(BLOCK));
        body[..text.len()].copy_from_slice(text.as_bytes());
        let mut head = AlignedBuf::zeroed(BLOCK);
        let file = io.open(&name, true).map_err(failed)?;
        // What a backup that was interrupted has left goes first.
        file.set_len(0).and_then(|()| file.set_len(BLOCK as u64)).map_err(failed)?;
        file.write_at(&[&head], 0, Durability::Durable).map_err(failed)?;
        file.write_at(&[&body], BLOCK as u64, Durability::Durable).map_err(failed)?;
        file.sync().and_then(|()| io.sync_dir("")).map_err(failed)?;
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&crc32c(text.as_bytes()).to_le_bytes());
        head[16..HEAD].copy_from_slice(&(text.len() as u64).to_le_bytes());
        let crc = crc32c(&head[..HEAD]);
        head[HEAD..HEAD + 4].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&[&head], 0, Durability::Durable).map_err(failed)?;
        file.sync().map_err(failed)?;
        Ok((BLOCK + body.len()) as u64)
    }

    /// Reads that of a number; `None`: it was not written to its end.
    pub fn read(io: &dyn Io, number: u32) -> Result<Option<Manifest>> {
        let name = file_name(number);
        let failed = |e| Error::io(format!("read {name}"), e);
        let corrupt = |offset: usize, what: &str| Err(Error::corrupt(&name, offset as u64, what));
        let file = io.open(&name, false).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let mut head = vec![0; BLOCK];
        match file.read_at(&mut head, 0) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(failed)?,
        }
        if head.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let text_len = u64::from_le_bytes(head[16..HEAD].try_into().expect("eight bytes"));
        if crc32c(&head[..HEAD]) != u32_at(HEAD) || head[HEAD + 4..].iter().any(|&byte| byte != 0) {
            return corrupt(0, "the head of the manifest fails its check");
        }
        if &head[..8] != MAGIC || u32_at(8) != VERSION {
            return Err(Error::Unusable(format!("{name} is no backup that this version can read")));
        }
        if text_len > BYTES_MAX || len != BLOCK as u64 + text_len.next_multiple_of(BLOCK as u64) {
            return corrupt(0, "the manifest has another length than it says");
        }
        let mut body = vec![0; len as usize - BLOCK];
        file.read_at(&mut body, BLOCK as u64).map_err(failed)?;
        let (text, padding) = body.split_at(text_len as usize);
        if crc32c(text) != u32_at(12) || padding.iter().any(|&byte| byte != 0) {
            return corrupt(BLOCK, "the manifest fails its check");
        }
        match std::str::from_utf8(text).ok().and_then(Manifest::decode) {
            Some(manifest) => Ok(Some(manifest)),
            None => corrupt(BLOCK, "the manifest says nothing that can be"),
        }
    }
}

/// Whether a name is that of a file in a folder itself.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}
