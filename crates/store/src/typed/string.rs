//! Strings and parts of them. [`Txn::set`] and [`Txn::get`] are for whole ones.

use crate::{
    Arena, Result, Txn,
    collections::string::{self, Change},
};
use std::ops::Range;

/// A string, to read.
#[derive(Clone, Copy)]
pub enum StringValue<'t> {
    /// It lies in one piece.
    Whole(&'t [u8]),
    /// It is large, and was changed in part.
    Chunks {
        /// The arena of its object,
        arena: &'t Arena,
        /// and the object's offset.
        obj: u64,
    },
}

impl<'t> StringValue<'t> {
    /// Its length in bytes.
    pub fn len(self) -> usize {
        match self {
            StringValue::Whole(bytes) => bytes.len(),
            StringValue::Chunks { arena, obj } => string::len(arena, obj),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Some of its bytes, which must be there, in slices from left to right.
    pub fn slices(self, range: Range<usize>) -> impl Iterator<Item = &'t [u8]> {
        let (whole, chunks) = match self {
            StringValue::Whole(bytes) => (Some(&bytes[range]), None),
            StringValue::Chunks { arena, obj } => {
                (None, Some(string::slices(arena, obj, range.start, range.end)))
            }
        };
        whole.into_iter().chain(chunks.into_iter().flatten())
    }

    /// The byte at a place, unless that is behind the end.
    pub fn byte(self, at: usize) -> Option<u8> {
        match self {
            StringValue::Whole(bytes) => bytes.get(at).copied(),
            StringValue::Chunks { arena, obj } => (at < self.len()).then(|| string::byte(arena, obj, at)),
        }
    }

    /// Copies its bytes from `at` on; behind its end are zeroes.
    pub fn copy_to(self, at: usize, mut to: &mut [u8]) {
        let len = self.len();
        for slice in self.slices(at.min(len)..at.saturating_add(to.len()).min(len)) {
            let (filled, rest) = to.split_at_mut(slice.len());
            filled.copy_from_slice(slice);
            to = rest;
        }
        to.fill(0);
    }

    /// Bytes that it takes: holes of a large one take none.
    pub fn memory_bytes(self) -> usize {
        match self {
            StringValue::Whole(bytes) => bytes.len(),
            StringValue::Chunks { arena, obj } => string::heap_bytes(arena, obj) as usize,
        }
    }
}

impl Txn<'_> {
    /// Appends bytes to a key's string and returns its length; `None` if it would be longer than `len_max`: then it is as it
    /// was. An expiry of the key stays.
    pub fn string_append(
        &mut self,
        db: u8,
        key: &[u8],
        tail: &[u8],
        len_max: usize,
    ) -> Result<Option<usize>> {
        let spot = self.string_spot(db, key)?;
        let value = self.string_in(spot)?;
        let (is_new, at) = (value.is_none(), value.map_or(0, StringValue::len));
        let Some(len) = at.checked_add(tail.len()).filter(|&len| len <= len_max) else { return Ok(None) };
        if is_new || !tail.is_empty() {
            self.string_change_in(spot, len, &[Change { at, bytes: tail }])?;
        }
        Ok(Some(len))
    }

    /// Writes bytes at a place in a key's string, which grows if it must, with zeroes before what is written behind its end,
    /// and returns its length. An expiry of the key stays.
    pub fn string_write(&mut self, db: u8, key: &[u8], at: usize, bytes: &[u8]) -> Result<usize> {
        self.string_change(db, key, 0, &[Change { at, bytes }])
    }
}
