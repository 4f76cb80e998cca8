//! Keys whose values are found in the bytes of a file without being read: who does that can do it elsewhere.
//!
//! Only the beginning of the way is made here, which has no errors: what is not whole among the bytes, is large, or is not as it
//! should be, is left to who reads it and tells what is wrong.

use crate::{
    Result, Value,
    decode::{self, EMPTY},
    kind, lzf, opcode, packed,
    reader::{Reader, Text},
};

/// Elements and bytes that a value has at most.
const ELEMENTS_MAX: usize = 2048;
const BYTES_MAX: usize = 64 << 10;
/// Digits of a number, at most.
const DIGITS: usize = 20;
/// Bytes of a packed collection that tell how many entries it has.
const START: usize = 8;

/// A key with a value that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread<'b> {
    /// The key's name.
    pub name: &'b [u8],
    /// When it expires: Unix time in milliseconds.
    pub expires_ms: Option<u64>,
    /// The value.
    pub content: Content<'b>,
    /// How many elements the value says that it has; names and values, or members and scores, count as two.
    pub elements: usize,
    /// Bytes of all of them, at most.
    pub bytes: usize,
}

/// A value that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'b> {
    /// A string, which needs no reading.
    Text(&'b [u8]),
    /// What it is and how it is serialized, for [`read`].
    Serialized(u8, &'b [u8]),
}

/// The value that is serialized so.
///
/// # Errors
/// It is damaged.
pub fn read(kind: u8, bytes: &[u8]) -> Result<Value> {
    decode::read(&mut Reader::new(bytes), kind)
}

/// The key that the bytes begin with, and the bytes of it with its value, if it is there with all of that. `memory` is for its name, where
/// that is not as it stands there.
#[inline(always)]
pub(crate) fn find<'b>(all: &'b [u8], memory: &'b mut Vec<u8>) -> Option<(Unread<'b>, usize)> {
    let mut reader = Reader::new(all);
    let mut expires_ms = None;
    let kind = loop {
        match reader.u8().ok()? {
            opcode::EXPIRES_MS => expires_ms = Some(u64::from_le_bytes(reader.bytes().ok()?)),
            opcode::IDLE => drop(reader.length().ok()?),
            opcode::FREQUENCY => drop(reader.u8().ok()?),
            kind => break kind,
        }
    };
    let name = reader.lasting_text().ok().filter(|name| name.len() <= BYTES_MAX)?;
    let start = reader.input;
    let so_far = |reader: &Reader<&'b [u8]>| &start[..start.len() - reader.input.len()];
    let (content, elements, bytes) = if kind == kind::STRING {
        match reader.lasting_text().ok()? {
            Text::Plain(text) => (Content::Text(text), 1, text.len()),
            text => (Content::Serialized(kind, so_far(&reader)), 1, text.len()),
        }
    } else {
        let (elements, bytes) = skip(&mut reader, kind).ok()??;
        (Content::Serialized(kind, so_far(&reader)), elements, bytes)
    };
    let len = all.len() - reader.input.len();
    if elements > ELEMENTS_MAX || bytes.max(len) > BYTES_MAX {
        return None;
    }
    let name = match name {
        Text::Plain(name) => name,
        name => {
            memory.clear();
            name.read_into(memory).ok()?;
            memory
        }
    };
    Some((Unread { name, expires_ms, content, elements, bytes }, len))
}

/// Goes behind a collection, and tells how many elements and bytes it has. `None`: it may be many, or it is nothing for here.
fn skip(reader: &mut Reader<&[u8]>, kind: u8) -> Result<Option<(usize, usize)>> {
    let (of_each, scores) = match kind {
        kind::SET_INTSET | kind::SET_LISTPACK | kind::ZSET_LISTPACK | kind::HASH_LISTPACK => {
            return Ok(packed_size(kind, &reader.lasting_text()?));
        }
        kind::SET | kind::LIST_QUICKLIST_2 => (1, 0),
        kind::HASH => (2, 0),
        kind::ZSET_2 => (1, 1),
        _ => return Ok(None),
    };
    let count = reader.length()?;
    if count > ELEMENTS_MAX as u64 {
        return Ok(None);
    }
    let (mut elements, mut bytes) = (0, 0);
    for _ in 0..count {
        if kind == kind::LIST_QUICKLIST_2 {
            let is_packed = reader.length()? == decode::PACKED_NODE;
            let node = reader.lasting_text()?;
            let Some(of_node) = (if is_packed { packed_size(kind, &node) } else { Some((1, node.len())) })
            else {
                return Ok(None);
            };
            (elements, bytes) = (elements + of_node.0, bytes + of_node.1);
            continue;
        }
        for _ in 0..of_each {
            bytes += reader.lasting_text()?.len();
        }
        reader.take(scores * size_of::<f64>())?;
        (elements, bytes) = (elements + of_each + scores, bytes + scores * size_of::<f64>());
    }
    if elements == 0 { Err(EMPTY) } else { Ok(Some((elements, bytes))) }
}

/// How many entries a packed collection, or the node of a list, says that it has, and how many bytes they have at most; `None`: it
/// does not say, or that there is none.
fn packed_size(kind: u8, string: &Text) -> Option<(usize, usize)> {
    let start = match string {
        Text::Plain(string) => string.get(..START)?,
        Text::Compressed(string, _) => lzf::start(string, START)?,
        Text::Number(_) => return None,
    };
    let count = match kind {
        kind::SET_INTSET => packed::intset_count(start),
        _ => packed::listpack_count(start),
    };
    // Each may be a number, of which the digits are stored.
    count.filter(|count| *count > 0).map(|count| (count, string.len() + DIGITS * count))
}
