//! Small files of blocks that say themselves whether they are whole: a block begins with a magic number and ends with the CRC-32C of
//! all before.

use std::io::ErrorKind;

use crate::{AlignedBuf, BLOCK, Error, Io, Result, crc32c};

/// Where the checksum is, and what comes before it ends.
pub const END: usize = BLOCK - 4;

/// Begins a block with its magic number.
pub fn begin(magic: &[u8; 8]) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(magic);
    block
}

/// Puts its checksum into a block.
pub fn seal(block: &mut [u8]) {
    let crc = crc32c(&block[..END]);
    block[END..].copy_from_slice(&crc.to_le_bytes());
}

/// The block at an offset of a file; `None`: it is not there, or not whole, or another kind of block.
pub fn read(io: &dyn Io, name: &str, offset: u64, magic: &[u8; 8]) -> Result<Option<AlignedBuf>> {
    let mut block = AlignedBuf::zeroed(BLOCK);
    match io.open(name, false).and_then(|file| file.read_at(&mut block, offset)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => return Ok(None),
        read => read.map_err(|e| Error::io(format!("read {name}"), e))?,
    }
    let is_whole = crc32c(&block[..END]).to_le_bytes() == block[END..] && block[..8] == *magic;
    Ok(is_whole.then_some(block))
}
