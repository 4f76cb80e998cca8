//! The file `in-use`, which is there while a process uses the data folder, and stays if that crashes.
//!
//! It says which file it is, by what the file system tells of it and of no copy of it. So a folder in which it says something else is a copy
//! that was made file by file while the original was in use: its files may be of different moments.

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result, crc32c};
use std::io::ErrorKind;

pub(crate) const FILE: &str = "in-use";
const MAGIC: &[u8; 8] = b"HFIN-USE";
/// Magic, identity, and the CRC-32C of both.
const LEN: usize = 28;

/// Whether the folder is a copy of one that was in use.
pub(crate) fn is_copy(io: &dyn Io) -> Result<bool> {
    let failed = |e| Error::io(format!("read {FILE}"), e);
    let mut bytes = [0; LEN];
    match io.open(FILE, false).and_then(|file| file.read_at(&mut bytes, 0)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => return Ok(false),
        read => read.map_err(failed)?,
    }
    let is_sound = &bytes[..8] == MAGIC && crc32c(&bytes[..24]).to_le_bytes() == bytes[24..];
    let identity = io.identity(FILE).map_err(failed)?;
    Ok(is_sound && identity.is_some_and(|identity| identity != bytes[8..24]))
}

/// Says that the folder is in use from now on; how many bytes that took to write.
pub(crate) fn begin(io: &dyn Io) -> Result<u64> {
    let failed = |e| Error::io(format!("write {FILE}"), e);
    if io.identity("").map_err(failed)?.is_none() {
        return Ok(0);
    }
    let file = io.open(FILE, true).map_err(failed)?;
    let Some(identity) = io.identity(FILE).map_err(failed)? else { return Ok(0) };
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(MAGIC);
    block[8..24].copy_from_slice(&identity);
    let crc = crc32c(&block[..24]);
    block[24..LEN].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&[&block], 0, Durability::Durable).map_err(failed)?;
    io.sync_dir("").map_err(failed)?;
    Ok(BLOCK as u64)
}

/// Says that it is in use no longer.
pub(crate) fn end(io: &dyn Io) -> Result<()> {
    match io.remove(FILE) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| io.sync_dir("")).map_err(|e| Error::io(format!("remove {FILE}"), e)),
    }
}

/// The error of a copy whose files are not of one moment.
pub(crate) fn torn(error: &Error) -> Error {
    Error::Unusable(format!(
        "it is a torn copy: it was made file by file while a server used the original, and its files are of different moments \
         ({error}). To copy a server that runs, use holdfast backup, or a snapshot of the file system that takes all of its \
         folders at one moment"
    ))
}
