//! Writing payloads.

use crate::{
    VERSION, VERSION_EXPIRING, kind,
    payload::{begin, finish, put_length, put_string},
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
