//! Entries as they lie in a leaf, which is a run.
//!
//! The first value of the run is the leaf's *head*: `deleted u32, ms u64, seq u64, fields size`, then so many names. The
//! others are the entries in the order of their IDs:
//!
//! | field | bytes |
//! |---|---|
//! | flags: 1 the names are the head's, 2 deleted | 1 |
//! | time, less the head's | size |
//! | number, less the head's if the times are equal | size |
//! | number of fields, unless the names are the head's | size |
//! | fields: `name, value`, or only `value` if the names are the head's | |
//!
//! A *size* is a LEB128 number, a name or a value its length (a size) and its bytes. The head has the ID and the names of
//! the leaf's first entry, and counts the entries that are marked as deleted.

use super::Id;
use crate::collections::{bytes::put_size, run};

const SAME_NAMES: u8 = 1;
const DELETED: u8 = 2;
/// Bytes of a head before its number of fields.
const HEAD: usize = 20;

fn size(bytes: &mut &[u8]) -> u64 {
    let (mut size, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a size is whole");
        *bytes = rest;
        size |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return size;
        }
        shift += 7;
    }
}

fn text<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = size(bytes) as usize;
    let (text, rest) = bytes.split_at(len);
    *bytes = rest;
    text
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_size(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// The first value of a leaf.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub id: Id,
    /// How many entries are marked as deleted.
    pub deleted: u32,
    len: u64,
    names: &'a [u8],
}

impl<'a> Head<'a> {
    pub fn decode(value: &'a [u8]) -> Head<'a> {
        let (fixed, mut names) = value.split_at(HEAD);
        let number = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let deleted = u32::from_le_bytes(fixed[..4].try_into().expect("4 bytes"));
        let len = size(&mut names);
        Head { id: Id::new(number(4), number(12)), deleted, len, names }
    }

    /// The entry in one of the leaf's other values.
    pub fn entry(&self, value: &'a [u8]) -> Stored<'a> {
        let (&flags, mut rest) = value.split_first().expect("an entry has flags");
        let ms = self.id.ms + size(&mut rest);
        let seq = size(&mut rest) + if ms == self.id.ms { self.id.seq } else { 0 };
        let same = flags & SAME_NAMES != 0;
        let len = if same { self.len } else { size(&mut rest) };
        let fields = Fields { names: same.then_some(self.names), rest, left: len };
        Stored { entry: Entry { id: Id::new(ms, seq), fields }, deleted: flags & DELETED != 0 }
    }

    fn has_names<'f>(&self, mut names: impl Iterator<Item = &'f [u8]>) -> bool {
        let mut own = self.names;
        (0..self.len).all(|_| names.next() == Some(text(&mut own))) && names.next().is_none()
    }
}

/// An entry of a leaf, which may be deleted.
pub(super) struct Stored<'a> {
    pub entry: Entry<'a>,
    pub deleted: bool,
}

/// An entry of a stream.
#[derive(Clone)]
pub struct Entry<'a> {
    /// What it is found by.
    pub id: Id,
    fields: Fields<'a>,
}

impl<'a> Entry<'a> {
    /// Its fields: names and values.
    pub fn fields(&self) -> Fields<'a> {
        self.fields.clone()
    }
}

/// The fields of an entry, in the order in which they were given.
#[derive(Clone)]
pub struct Fields<'a> {
    names: Option<&'a [u8]>,
    rest: &'a [u8],
    left: u64,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => text(names),
            None => text(&mut self.rest),
        };
        Some((name, text(&mut self.rest)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// The fields of an entry that is to be added.
pub(super) struct NewEntry<F> {
    pub id: Id,
    pub fields: F,
    /// Bytes of all names and values.
    pub bytes: usize,
    len: u64,
}

impl<'f, F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone> NewEntry<F> {
    /// `None`: an entry so large cannot be stored.
    pub fn new(id: Id, fields: F) -> Option<Self> {
        /// Bytes that a length takes at most.
        const SIZE_MAX: usize = 5;
        let (mut len, mut bytes) = (0, 0usize);
        for (name, value) in fields.clone() {
            len += 1;
            bytes = bytes.checked_add(name.len() + value.len())?;
        }
        let encoded = bytes.checked_add(len * 2 * SIZE_MAX + 32)?;
        (encoded <= run::VALUE_MAX).then_some(NewEntry { id, fields, bytes, len: len as u64 })
    }

    /// The head of a leaf that begins with it.
    pub fn head(&self) -> Vec<u8> {
        run::entry_of(HEAD + self.bytes, |out| {
            out.extend_from_slice(&0u32.to_le_bytes());
            out.extend_from_slice(&self.id.ms.to_le_bytes());
            out.extend_from_slice(&self.id.seq.to_le_bytes());
            put_size(out, self.len);
            self.fields.clone().for_each(|(name, _)| put_text(out, name));
        })
    }

    /// The entry in a leaf of that head.
    pub fn encode(&self, head: &Head) -> Vec<u8> {
        let same = head.has_names(self.fields.clone().map(|(name, _)| name));
        self.encode_as(head.id, same)
    }

    /// The first entry of a leaf that begins with it.
    pub fn encode_first(&self) -> Vec<u8> {
        self.encode_as(self.id, true)
    }

    fn encode_as(&self, base: Id, same_names: bool) -> Vec<u8> {
        run::entry_of(self.bytes + 16, |out| {
            out.push(if same_names { SAME_NAMES } else { 0 });
            put_size(out, self.id.ms - base.ms);
            put_size(out, self.id.seq - if self.id.ms == base.ms { base.seq } else { 0 });
            if !same_names {
                put_size(out, self.len);
            }
            for (name, value) in self.fields.clone() {
                if !same_names {
                    put_text(out, name);
                }
                put_text(out, value);
            }
        })
    }
}

/// The flags of an entry, once it is deleted.
pub(super) fn deleted_flags(value: &[u8]) -> [u8; 1] {
    [value[0] | DELETED]
}

/// The bytes of a head that count deleted entries.
pub(super) fn deleted_count(count: u32) -> [u8; 4] {
    count.to_le_bytes()
}
