//! What payloads, and files, are written of.

use crate::crc64;

/// The type, and the number of elements that follow.
pub fn begin(kind: u8, len: u64) -> Vec<u8> {
    let mut out = vec![kind];
    put_length(&mut out, len);
    out
}

/// Appends a length, or another number.
pub fn put_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => out.push(length as u8),
        64..16384 => out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        _ => match u32::try_from(length) {
            Ok(length) => {
                out.push(0x80);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&length.to_be_bytes());
            }
        },
    }
}

/// Appends a string, not compressed.
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_length(out, string.len() as u64);
    out.extend_from_slice(string);
}

/// Adds the footer: the version of the format, and the checksum.
pub fn finish(mut out: Vec<u8>, version: u16) -> Vec<u8> {
    out.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(0, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}
