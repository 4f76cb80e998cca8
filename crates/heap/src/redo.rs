//! Redo that waits to be applied to an extent.
//!
//! Replay could bring each page into memory when it meets a record for it. But reading the log in order is quick, and
//! looking for its targets, which lie all over the heap, is not: so replay only sorts the records by extent. An extent's
//! are applied when somebody needs it, or by and by.

/// Writes to one extent, in order.
#[derive(Default)]
pub(crate) struct Redo {
    /// For each write where it goes in the extent (4 bytes), how long it is (2 bytes), and the bytes.
    writes: Vec<u8>,
    /// Where the last of them begins.
    last: usize,
    /// The pages that they touch, as bits.
    pages: u64,
}

/// Where a write goes, and its length.
const HEAD: usize = 6;

impl Redo {
    /// Adds a write of at most 64 KiB - 1 at an offset in the extent, which touches these pages.
    #[inline]
    pub(crate) fn push(&mut self, at: u32, bytes: &[u8], pages: u64) {
        let len = u16::try_from(bytes.len()).expect("a record is no longer");
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&at.to_le_bytes());
        head[4..].copy_from_slice(&len.to_le_bytes());
        match self.writes.get_mut(self.last..) {
            // A counter, changed again.
            Some(last) if last.starts_with(&head) => last[HEAD..].copy_from_slice(bytes),
            _ => {
                self.last = self.writes.len();
                self.writes.reserve(HEAD + bytes.len());
                self.writes.extend_from_slice(&head);
                self.writes.extend_from_slice(bytes);
            }
        }
        self.pages |= pages;
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
            let at = u32::from_le_bytes(*head.first_chunk().expect("four of six bytes"));
            let len = u16::from_le_bytes(*head.last_chunk().expect("two of six bytes"));
            let (bytes, behind) = behind.split_at(usize::from(len));
            rest = behind;
            Some((at as usize, bytes))
        })
    }
}
