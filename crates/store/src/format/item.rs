//! Items: the records of the log that hold values for good (`docs/format.md`, "Items").

use crate::format::{compress::Compression, entry_word};
use holdfast_io::crc32c_of_both;
use std::{borrow::Cow, ops::Range};

/// A string value.
pub const STRING: u8 = 16;
/// A collection that has left the heap; its value is what [`serial`](crate::collections::serial) makes of it.
pub const FROZEN: u8 = 17;
/// What is added to a kind if the value is [compressed](crate::format::compress).
const COMPRESSED: u8 = 2;
/// An item that a later command of the same batch replaced or deleted; replay skips it.
pub const CANCELLED: u8 = 24;

/// Bytes before the key.
pub const HEADER: usize = 16;
const LONG_KEY: u16 = u16::MAX;

/// An item as it lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// [`STRING`] or [`FROZEN`], compressed or not, or [`CANCELLED`].
    pub kind: u8,
    /// Database number.
    pub db: u8,
    /// Heap offset of the index entry that named it when it was written.
    pub slot: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value as it is stored.
    pub stored: &'a [u8],
}

impl<'a> Item<'a> {
    /// Whether the value is stored compressed.
    pub fn is_compressed(&self) -> bool {
        matches!(self.kind, STRING_COMPRESSED | FROZEN_COMPRESSED)
    }

    /// The kind, if the value were not compressed.
    pub fn plain_kind(&self) -> u8 {
        if self.is_compressed() { self.kind - COMPRESSED } else { self.kind }
    }

    /// The value; the error says what is wrong with one that is compressed.
    pub fn value(&self, compression: &Compression) -> Result<Cow<'a, [u8]>, &'static str> {
        if self.is_compressed() {
            compression.expand(self.stored).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(self.stored))
        }
    }
}

const STRING_COMPRESSED: u8 = compressed(STRING);
const FROZEN_COMPRESSED: u8 = compressed(FROZEN);

/// The kind of an item like one of a kind, with its value compressed.
pub const fn compressed(kind: u8) -> u8 {
    kind + COMPRESSED
}

/// Whether a record begins with this byte.
pub fn is_kind(byte: u8) -> bool {
    matches!(byte, STRING | FROZEN | STRING_COMPRESSED | FROZEN_COMPRESSED | CANCELLED)
}

/// Bytes that the record of such an item takes in a batch, without padding.
pub fn record_len(key_len: usize, value_len: usize) -> usize {
    HEADER + if key_len >= LONG_KEY as usize { 4 } else { 0 } + key_len + value_len
}

/// Appends a record to a batch's payload, aligned so that its LSN is a multiple of 16, and returns its position.
pub fn encode(payload: &mut Vec<u8>, kind: u8, db: u8, slot: u64, key: &[u8], value: &[u8]) -> usize {
    let lead = (payload.len() + holdfast_log::BATCH_HEADER).next_multiple_of(entry_word::GRANULE as usize)
        - holdfast_log::BATCH_HEADER;
    payload.reserve(entry_word::GRANULE as usize + record_len(key.len(), value.len()));
    // All of a granule and then less, which is cheaper than so many bytes.
    payload.extend_from_slice(&[0; entry_word::GRANULE as usize]);
    payload.truncate(lead);
    let long = key.len() >= LONG_KEY as usize;
    let key_len = if long { LONG_KEY } else { key.len() as u16 };
    let kind_and_lengths =
        u64::from(kind) | u64::from(db) << 8 | u64::from(key_len) << 16 | u64::from(value.len() as u32) << 32;
    let header = u128::from(kind_and_lengths) | u128::from((slot / entry_word::GRANULE) as u32) << 96;
    payload.extend_from_slice(&header.to_le_bytes());
    if long {
        payload.extend_from_slice(&(key.len() as u32).to_le_bytes());
    }
    payload.extend_from_slice(key);
    payload.extend_from_slice(value);
    seal(&mut payload[lead..]);
    lead
}

/// Points a record that is not yet in the log at another index entry.
pub fn retarget(record: &mut [u8], slot: u64) {
    record[12..16].copy_from_slice(&((slot / entry_word::GRANULE) as u32).to_le_bytes());
}

/// Gives a record that is not yet in the log another value, if that is as long, and the record is a string's of this key;
/// whether it is.
pub fn overwrite(record: &mut [u8], key: &[u8], value: &[u8]) -> bool {
    let (start, key_len, value_len) = lengths(record).expect("a record made by encode");
    let value_at = start + key_len;
    if record[0] != STRING || value_len != value.len() || &record[start..value_at] != key {
        return false;
    }
    let end = value_at + value_len;
    record[value_at..end].copy_from_slice(value);
    seal(&mut record[..end]);
    true
}

/// Makes a record that is not yet in the log one that replay skips.
pub fn cancel(record: &mut [u8]) {
    record[0] = CANCELLED;
    let len = record_end(record).expect("a record made by encode");
    seal(&mut record[..len]);
}

/// Writes the checksum of a record into it.
fn seal(record: &mut [u8]) {
    let crc = checksum(record);
    record[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// CRC-32C of all but the checksum and the slot, which changes while the record waits for its commit.
fn checksum(record: &[u8]) -> u32 {
    crc32c_of_both(*record.first_chunk().expect("a record's header"), &record[HEADER..])
}

/// The length of the record at the start of `bytes`, as its header tells, or what is wrong with it.
pub fn record_end(bytes: &[u8]) -> Result<usize, &'static str> {
    let (start, key_len, value_len) = lengths(bytes)?;
    Ok(start + key_len + value_len)
}

fn lengths(bytes: &[u8]) -> Result<(usize, usize, usize), &'static str> {
    let header: &[u8; HEADER] =
        bytes.get(..HEADER).and_then(|h| h.try_into().ok()).ok_or("item header cut short")?;
    let key_len = u16::from_le_bytes([header[2], header[3]]);
    let value_len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if key_len != LONG_KEY {
        return Ok((HEADER, key_len as usize, value_len));
    }
    let long = bytes.get(HEADER..HEADER + 4).ok_or("item header cut short")?;
    Ok((HEADER + 4, u32::from_le_bytes([long[0], long[1], long[2], long[3]]) as usize, value_len))
}

/// Where in the record at the start of `bytes` its key lies, as its header tells.
pub fn key_range(bytes: &[u8]) -> Result<Range<usize>, &'static str> {
    let (start, key_len, _) = lengths(bytes)?;
    Ok(start..start + key_len)
}

/// Decodes and checks the record at the start of `bytes`; returns it and its length.
pub fn decode(bytes: &[u8]) -> Result<(Item<'_>, usize), &'static str> {
    let (item, len) = view(bytes)?;
    if checksum(&bytes[..len]).to_le_bytes() != bytes[8..12] {
        return Err("item checksum");
    }
    Ok((item, len))
}

/// The record of the same item with its value not compressed, if it is; the error says what is wrong with it.
pub fn expanded(bytes: &[u8], compression: &Compression) -> Result<Option<Vec<u8>>, &'static str> {
    let (item, _) = decode(bytes)?;
    if !item.is_compressed() {
        return Ok(None);
    }
    let mut record = Vec::new();
    let value = item.value(compression)?;
    let at = encode(&mut record, item.plain_kind(), item.db, item.slot, item.key, &value);
    record.drain(..at);
    Ok(Some(record))
}

/// As [`decode`] without the checksum: for records of a batch whose own checksum was checked.
pub fn view(bytes: &[u8]) -> Result<(Item<'_>, usize), &'static str> {
    let (start, key_len, value_len) = lengths(bytes)?;
    let end = start + key_len + value_len;
    let record = bytes.get(..end).ok_or("item cut short")?;
    if !is_kind(record[0]) {
        return Err("unknown record kind");
    }
    let slot =
        u64::from(u32::from_le_bytes([record[12], record[13], record[14], record[15]])) * entry_word::GRANULE;
    let (key, stored) = record[start..].split_at(key_len);
    Ok((Item { kind: record[0], db: record[1], slot, key, stored }, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_and_any_flipped_bit_but_the_slot_is_found() {
        let cases = [(STRING, &b"k"[..], &b"v"[..]), (FROZEN, b"", b""), (STRING, &[7; 70_000], &[9; 100])];
        for (kind, key, value) in cases {
            let mut payload = vec![1, 2, 3];
            let at = encode(&mut payload, kind, 3, 0x12340, key, value);
            assert_eq!((at + holdfast_log::BATCH_HEADER) % 16, 0);
            let (item, len) = decode(&payload[at..]).unwrap();
            assert_eq!(item, Item { kind, db: 3, slot: 0x12340, key, stored: value });
            assert_eq!(expanded(&payload[at..], &Compression::default()), Ok(None));
            assert_eq!(at + len, payload.len());
            for bit in (0..len.min(64) * 8).filter(|bit| !(96..128).contains(bit)) {
                let mut bad = payload[at..].to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bad).is_err(), "bit {bit}");
            }
            retarget(&mut payload[at..], 0x560);
            cancel(&mut payload[at..]);
            let (item, _) = decode(&payload[at..]).unwrap();
            assert_eq!((item.kind, item.slot), (CANCELLED, 0x560));
        }
    }

    #[test]
    fn a_compressed_item_is_expanded_to_what_it_was_or_found_damaged() {
        use crate::format::compress::Codec;
        let text = b"abc".repeat(50);
        let lz4 = Compression::new(Some(Codec::Lz4));
        let stored = lz4.compress(&text).expect("it repeats");
        for kind in [STRING, FROZEN] {
            let (mut plain, mut payload) = (Vec::new(), Vec::new());
            let plain_at = encode(&mut plain, kind, 3, 0x12340, b"key", &text);
            let at = encode(&mut payload, compressed(kind), 3, 0x12340, b"key", &stored);
            assert_eq!(expanded(&payload[at..], &lz4).unwrap().unwrap(), plain[plain_at..]);
            assert!(
                !overwrite(&mut payload[at..], b"key", &stored),
                "another value may not compress so well"
            );
            // One that passes its checksum, and is not what it says.
            let mut lie = Vec::new();
            let at = encode(&mut lie, compressed(kind), 3, 0x12340, b"key", &stored[..stored.len() - 1]);
            assert!(expanded(&lie[at..], &lz4).is_err());
        }
    }
}
