//! Writing payloads.

use crate::{
    VERSION, VERSION_EXPIRING, crc64, kind,
    stream::{self, Stream},
};
use std::ops::Deref;

/// A field of a hash.
#[derive(Clone, Copy, Debug)]
pub struct Field<N, V> {
    /// Its name.
    pub name: N,
    /// Its value.
    pub value: V,
    /// When it expires: Unix time in milliseconds; 0: never.
    pub expires: u64,
}

/// The payload of a string.
pub fn string(value: &[u8]) -> Vec<u8> {
    let mut out = vec![kind::STRING];
    put_string(&mut out, value);
    finish(out, VERSION)
}

/// The payload of a list of `len` elements.
pub fn list<E: Deref<Target = [u8]>>(len: u64, elements: impl IntoIterator<Item = E>) -> Vec<u8> {
    strings(kind::LIST, len, elements)
}

/// The payload of a set of `len` members.
pub fn set<E: Deref<Target = [u8]>>(len: u64, members: impl IntoIterator<Item = E>) -> Vec<u8> {
    strings(kind::SET, len, members)
}

/// The payload of a sorted set of `len` members.
pub fn zset<E: Deref<Target = [u8]>>(len: u64, members: impl IntoIterator<Item = (E, f64)>) -> Vec<u8> {
    let mut out = begin(kind::ZSET_2, len);
    for (member, score) in members {
        put_string(&mut out, &member);
        out.extend_from_slice(&score.to_le_bytes());
    }
    finish(out, VERSION)
}

/// The payload of a hash.
pub fn hash<N: Deref<Target = [u8]>, V: Deref<Target = [u8]>>(fields: &[Field<N, V>]) -> Vec<u8> {
    let first = fields.iter().map(|field| field.expires).filter(|expires| *expires != 0).min();
    let mut out = match first {
        None => begin(kind::HASH, fields.len() as u64),
        Some(first) => {
            let mut out = vec![kind::HASH_METADATA];
            out.extend_from_slice(&first.to_le_bytes());
            put_length(&mut out, fields.len() as u64);
            out
        }
    };
    for field in fields {
        if let Some(first) = first {
            put_length(&mut out, if field.expires == 0 { 0 } else { field.expires - first + 1 });
        }
        put_string(&mut out, &field.name);
        put_string(&mut out, &field.value);
    }
    finish(out, if first.is_some() { VERSION_EXPIRING } else { VERSION })
}

/// The payload of a stream.
pub fn stream(value: &Stream) -> Vec<u8> {
    stream::encode(value)
}

/// The same with when consumers were last active, which takes Redis 7.2.
pub fn stream_with_activity(value: &Stream) -> Vec<u8> {
    stream::encode_with_activity(value)
}

fn strings<E: Deref<Target = [u8]>>(kind: u8, len: u64, strings: impl IntoIterator<Item = E>) -> Vec<u8> {
    let mut out = begin(kind, len);
    strings.into_iter().for_each(|string| put_string(&mut out, &string));
    finish(out, VERSION)
}

pub(crate) fn begin(kind: u8, len: u64) -> Vec<u8> {
    let mut out = vec![kind];
    put_length(&mut out, len);
    out
}

pub(crate) fn put_length(out: &mut Vec<u8>, length: u64) {
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

pub(crate) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_length(out, string.len() as u64);
    out.extend_from_slice(string);
}

pub(crate) fn finish(mut out: Vec<u8>, version: u16) -> Vec<u8> {
    out.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(0, &out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}
