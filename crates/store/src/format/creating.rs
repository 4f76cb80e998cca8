//! The file `creating`, which is there while a data folder is being made.
//!
//! A start that finds it removes what an earlier one has left unfinished, and begins again. So the file must speak for
//! that alone: it names the store that is being made, it is durable before anything else is made, and where there is a
//! sound superblock, which is written last, it means nothing.

use crate::format::superblock;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result};
use std::io::ErrorKind;

pub(crate) const FILE: &str = "creating";
const MAGIC: &[u8; 8] = b"HFCREATE";
/// Bytes that [`begin`] writes.
pub(crate) const WRITE_BYTES: u64 = BLOCK as u64;
/// Magic, store id, and the CRC-32C of both.
const LEN: usize = 28;

/// Says durably that a folder for this store is being made.
pub(crate) fn begin(io: &dyn Io, store_id: [u8; 16]) -> Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(MAGIC);
    block[8..24].copy_from_slice(&store_id);
    let crc = holdfast_io::crc32c(&block[..24]);
    block[24..LEN].copy_from_slice(&crc.to_le_bytes());
    let failed = |e| Error::io(format!("write {FILE}"), e);
    let file = io.open(FILE, true).map_err(failed)?;
    file.write_at(&[&block], 0, Durability::Durable).map_err(failed)?;
    file.sync().map_err(failed)?;
    io.sync_dir("").map_err(failed)
}

/// The store whose folder was being made; `None` if there was not even time to say which, and so nothing was made.
pub(crate) fn unfinished(io: &dyn Io) -> Result<Option<[u8; 16]>> {
    let failed = |e| Error::io(format!("read {FILE}"), e);
    let mut bytes = [0; LEN];
    match io.open(FILE, false).and_then(|file| file.read_at(&mut bytes, 0)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => return Ok(None),
        read => read.map_err(failed)?,
    }
    let crc_holds = holdfast_io::crc32c(&bytes[..24]).to_le_bytes() == bytes[24..];
    let names_a_store = crc_holds && &bytes[..8] == MAGIC;
    Ok(names_a_store.then(|| bytes[8..24].try_into().expect("sixteen bytes")))
}

/// Whether the folder was never completed: the superblock, which makes it so, is missing or was not written whole.
pub(crate) fn is_unfinished(io: &dyn Io) -> Result<bool> {
    match io.open(superblock::FILE, false) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::io(format!("open {}", superblock::FILE), e)),
        Ok(file) => match superblock::Superblock::read(&*file) {
            Ok(_) => Ok(false),
            Err(Error::Corrupt { .. }) => Ok(unfinished(io)?.is_some()),
            Err(e) => Err(e),
        },
    }
}

/// Removes the file, durably.
pub(crate) fn end(io: &dyn Io) -> Result<()> {
    let removed = io.remove(FILE).and_then(|()| io.sync_dir(""));
    removed.map_err(|e| Error::io(format!("remove {FILE}"), e))
}
