//! What a string looks like to who reads it.

use crate::collections::string;
use holdfast_heap::Arena;
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
