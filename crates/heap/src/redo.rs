//! Redo that waits to be applied to an extent.
//!
//! Replay could bring each page into memory when it meets a record for it. But reading the log in order is quick, and
//! looking for its targets, which lie all over the heap, is not: so replay only sorts the records by extent. An extent's
//! are applied when somebody needs it, or by and by.

/// Writes to one extent, in order.
#[derive(Default)]
pub(crate) struct Redo {
    /// For each write where it goes in the extent (4 bytes), how long it is (4 bytes), and the bytes.
    writes: Vec<u8>,
    /// Where the last of them begins.
    last: usize,
    /// The pages that they touch, as bits.
    pages: u64,
}

/// Where a write goes, and its length.
const HEAD: usize = 8;

impl Redo {
    /// Adds a write at an offset in the extent, which touches these pages.
    #[inline]
    pub(crate) fn push(&mut self, at: u32, bytes: &[u8], pages: u64) {
        let head = (u64::from(at) | (bytes.len() as u64) << 32).to_le_bytes();
        self.pages |= pages;
        match self.writes[self.last..].split_first_chunk_mut::<HEAD>() {
            // A counter, changed again.
            Some((last, old)) if *last == head => old.copy_from_slice(bytes),
            _ => {
                self.last = self.writes.len();
                self.writes.reserve(HEAD + bytes.len());
                self.writes.extend_from_slice(&head);
                self.writes.extend_from_slice(bytes);
            }
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

    /// The writes: where in the extent, and what.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.writes[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD>()?;
            let head = u64::from_le_bytes(*head);
            let (at, len) = (head as u32, (head >> 32) as usize);
            let (bytes, behind) = behind.split_at(len);
            rest = behind;
            Some((at as usize, bytes))
        })
    }
}
