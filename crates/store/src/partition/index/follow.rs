//! An index whose bytes are changed by redo of another server's: what of it is known in memory follows.

use super::{
    DEPTH_END, Index, PAGE, ROOT_BYTES, Slot,
    bucket::{BUCKET_BYTES, PAGE_BUCKETS, SLOTS, entry_bytes},
};
use crate::cache::{Handle, uses::is_copy};
use holdfast_heap::Arena;
use std::ops::Range;

/// What redo in an index's root changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rooted {
    /// How many entries there are.
    Len,
    /// Where the directory is, or how deep.
    Directory,
}

impl Index {
    /// What a write to this part of the root changes.
    pub fn rooted(written: &Range<u64>) -> Rooted {
        if written.start < DEPTH_END { Rooted::Directory } else { Rooted::Len }
    }

    /// Where the directory lies in the heap; empty: there is none.
    pub fn directory_range(&self, arena: &Arena) -> Range<u64> {
        let bytes = if self.directory.is_empty() { 0 } else { self.name_bytes << self.depth };
        let start = arena.u64(self.root);
        start..start + bytes as u64
    }

    /// The pages of its segments, by their numbers in the heap, each with its segment and its place there.
    pub fn segment_pages(&self) -> impl Iterator<Item = (u64, (u32, u8))> {
        (0..).zip(&self.segments).flat_map(|(number, segment)| {
            let pages = (0..segment.layout.buckets()).step_by(PAGE_BUCKETS);
            (0..).zip(pages).map(move |(nth, bucket)| (segment.bucket_offset(bucket) / PAGE, (number, nth)))
        })
    }

    /// The places of a page of a segment whose entries, or whose bytes in a header, lie in a part of the page.
    pub fn places_within((segment, nth): (u32, u8), part: Range<u64>) -> impl Iterator<Item = Slot> {
        let buckets = part.start / BUCKET_BYTES..part.end.div_ceil(BUCKET_BYTES);
        buckets.flat_map(move |in_page| {
            let start = in_page * BUCKET_BYTES;
            let part = part.start.saturating_sub(start) as usize..(part.end - start) as usize;
            let is_within = move |bytes: Range<usize>| bytes.start < part.end && part.start < bytes.end;
            let bucket = nth * PAGE_BUCKETS as u8 + in_page as u8;
            let places = (0..SLOTS).filter(move |&at| is_within(at..at + 1) || is_within(entry_bytes(at)));
            places.map(move |at| Slot { segment, bucket, entry: at as u8 })
        })
    }

    /// Takes over the number of entries that the root says.
    pub fn follow_len(&mut self, arena: &Arena) {
        self.len = arena.u64(self.root + DEPTH_END);
    }

    /// Forgets all cached copies, calling `forget` with each, and keeps no page in memory any more: it is to be [opened again](Index::reopen).
    pub fn abandon(&mut self, arena: &mut Arena, mut forget: impl FnMut(Handle)) {
        for segment in &mut self.segments {
            segment.handles.all().filter(|&handle| is_copy(handle)).for_each(&mut forget);
            segment.handles.clear(&self.memory);
            segment.blocks().for_each(|(offset, bytes)| arena.unpin(offset, bytes));
        }
    }

    /// Opens it as its root is now. All of it counts as counted into the log's live bytes.
    ///
    /// # Errors
    /// The directory is not what it should be.
    pub fn reopen(&mut self, arena: &mut Arena) -> Result<(), String> {
        *self = Index::open(arena, self.root, self.items, self.memory.clone())?;
        self.call_attached(true);
        Ok(())
    }

    /// Has all of it count as counted into the log's live bytes, or nothing.
    pub fn call_attached(&mut self, is_attached: bool) {
        self.segments.iter_mut().for_each(|segment| segment.is_attached = is_attached);
    }

    /// Whether a part of the root's page is of a root that lies at `root`: which bytes of it.
    pub fn within_root(root: u64, written: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (written.start.max(root), written.end.min(root + ROOT_BYTES));
        (start < end).then(|| start - root..end - root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_whose_bytes_are_written() {
        let places = |part: Range<u64>| -> Vec<(u8, u8)> {
            Index::places_within((7, 2), part).map(|slot| (slot.bucket, slot.entry)).collect()
        };
        assert_eq!(places(3..4), [(32, 3)]);
        assert_eq!(places(15..16), []);
        assert_eq!(places(16..22), [(32, 0)]);
        assert_eq!(places(31..33), [(32, 0), (32, 1)]);
        assert_eq!(places(255..258), [(32, 14), (33, 0), (33, 1)]);
        assert_eq!(places(4080..4096), [(47, 14)]);
        assert_eq!(places(0..4096).len(), 16 * SLOTS);
    }
}
