//! Redo that waits to be applied to an extent.
//!
//! Replay could bring each page into memory when it meets a record for it. But reading the log in order is quick, and
//! looking for its targets, which lie all over the heap, is not: so replay only sorts the records by extent. An extent's
//! are applied when somebody needs it, or by and by.

use crate::{EXTENT, PAGE, page_set::page_mask};

/// Writes to one extent, in order.
#[derive(Default)]
pub(crate) struct Redo {
    /// For each write its head, and the bytes.
    writes: Vec<u8>,
    /// The head of the last of them; 0: there is none.
    last: u32,
    /// The pages that they touch, as bits.
    pages: u64,
}

/// Bytes of a head: where the write goes in the extent, and above that how many bytes it has.
const HEAD: usize = 4;
const AT_BITS: u32 = EXTENT.ilog2();
/// Bytes that there is room for as soon as there is one write.
const FIRST_BYTES: usize = 512;
/// Bytes that one head can tell of.
const LEN_MAX: usize = (1 << (u32::BITS - AT_BITS)) - 1;

impl Redo {
    /// Adds a write at an offset in the extent.
    #[inline]
    pub(crate) fn push(&mut self, at: usize, bytes: &[u8]) {
        self.pages |= page_mask(at / PAGE, (at + bytes.len() - 1) / PAGE);
        if bytes.len() <= LEN_MAX {
            return self.push_part(at, bytes);
        }
        bytes.chunks(LEN_MAX).enumerate().for_each(|(i, part)| self.push_part(at + i * LEN_MAX, part));
    }

    #[inline]
    fn push_part(&mut self, at: usize, bytes: &[u8]) {
        let head = at as u32 | (bytes.len() as u32) << AT_BITS;
        if head == self.last {
            // A counter, changed again.
            let start = self.writes.len() - bytes.len();
            return self.writes[start..].copy_from_slice(bytes);
        }
        self.last = head;
        // Few come alone.
        let least = if self.writes.capacity() == 0 { FIRST_BYTES } else { 0 };
        self.writes.reserve(least.max(HEAD + bytes.len()));
        self.writes.extend_from_slice(&head.to_le_bytes());
        self.writes.extend_from_slice(bytes);
    }

    /// The writes as bytes, for [`Redo::add_encoded`].
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.writes
    }

    /// Adds the writes of another one behind its own; `None`: the bytes say something else, and nothing was added.
    pub(crate) fn add_encoded(&mut self, encoded: &[u8]) -> Option<()> {
        let (mut last, mut pages, mut rest) = (self.last, self.pages, encoded);
        while !rest.is_empty() {
            let (head, behind) = rest.split_first_chunk::<HEAD>()?;
            last = u32::from_le_bytes(*head);
            let (at, len) = (last as usize & ((1 << AT_BITS) - 1), (last >> AT_BITS) as usize);
            if len == 0 || at + len > EXTENT as usize || len > behind.len() {
                return None;
            }
            pages |= page_mask(at / PAGE, (at + len - 1) / PAGE);
            rest = &behind[len..];
        }
        self.writes.extend_from_slice(encoded);
        (self.last, self.pages) = (last, pages);
        Some(())
    }

    /// Adds the writes of another one behind its own.
    pub(crate) fn append(&mut self, behind: Redo) {
        if self.is_empty() {
            *self = behind;
        } else if !behind.is_empty() {
            self.writes.extend_from_slice(&behind.writes);
            (self.last, self.pages) = (behind.last, self.pages | behind.pages);
        }
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The part of it that lies in some pages.
    pub(crate) fn within(self, pages: u64) -> Redo {
        if self.pages & !pages == 0 {
            return self;
        }
        let mut part = Redo::default();
        for (mut at, mut bytes) in self.writes() {
            while !bytes.is_empty() {
                let (piece, behind) = bytes.split_at(bytes.len().min(PAGE - at % PAGE));
                if pages & 1 << (at / PAGE) != 0 {
                    part.push(at, piece);
                }
                (at, bytes) = (at + piece.len(), behind);
            }
        }
        part
    }

    /// The writes: where in the extent, and what.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.writes[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD>()?;
            let head = u32::from_le_bytes(*head);
            let (bytes, behind) = behind.split_at((head >> AT_BITS) as usize);
            rest = behind;
            Some(((head & ((1 << AT_BITS) - 1)) as usize, bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_come_back_in_order() {
        let long: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
        let writes: [(usize, &[u8]); 5] =
            [(0, b"ab"), (EXTENT as usize - 1, b"c"), (0, b"de"), (5000, &long), (5000, b"f")];
        let (mut redo, mut expected, mut found) =
            (Redo::default(), vec![0; EXTENT as usize], vec![0; EXTENT as usize]);
        assert!(redo.is_empty());
        for (at, bytes) in writes {
            redo.push(at, bytes);
            expected[at..at + bytes.len()].copy_from_slice(bytes);
        }
        redo.writes().for_each(|(at, bytes)| found[at..at + bytes.len()].copy_from_slice(bytes));
        assert!(expected == found);
        assert_eq!(redo.pages(), 1 | page_mask(1, 10) | 1 << 63);
    }

    #[test]
    fn what_lies_in_some_pages_stays() {
        let mut redo = Redo::default();
        redo.push(PAGE - 2, b"abcd");
        redo.push(5 * PAGE, b"e");
        let part = redo.within(1 << 1 | 1 << 5);
        assert_eq!(part.writes().collect::<Vec<_>>(), [(PAGE, &b"cd"[..]), (5 * PAGE, b"e")]);
        assert_eq!(part.pages(), 1 << 1 | 1 << 5);
    }

    #[test]
    fn a_counter_takes_the_place_of_one_write() {
        let mut redo = Redo::default();
        for i in 0..100u64 {
            redo.push(64, &i.to_le_bytes());
        }
        assert_eq!(redo.writes().collect::<Vec<_>>(), [(64, &99u64.to_le_bytes()[..])]);
    }
}
