//! How all entries of an index are visited: segment by segment, by a cursor, or to check them.

use super::{
    BUCKET_BITS, Index, MAX_DEPTH, NAME_BYTES, Slot,
    bucket::{OVERFLOW, SLOTS, digest_of, h0_of, word_of},
};
use crate::format::{digest::Digest, entry_word::EntryWord};
use holdfast_heap::Arena;

impl Index {
    /// Calls `f` with each entry (slot, what is known of the digest, word) of a segment.
    pub fn for_each_in(&self, arena: &Arena, segment: u32, mut f: impl FnMut(Slot, Digest, EntryWord)) {
        for number in 0..self.segments[segment as usize].layout.buckets() {
            let bytes = self.bucket(arena, segment, number);
            for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                let slot = Slot { segment, bucket: number as u8, entry: i as u8 };
                f(slot, digest_of(bytes, i), word_of(bytes, i));
            }
        }
    }

    /// One step of a scan: calls `f` with each entry (slot, what is known of the digest, word) whose home is the bucket at `cursor`, and
    /// returns the next cursor, or `None` after the last bucket.
    ///
    /// A cursor is the upper half of `h0`, which is as much as a directory can tell apart, and a bucket. A segment that grows moves entries
    /// to buckets behind all others, and one that splits to the segment behind it. So what a scan has not yet seen stays ahead: an
    /// entry that is there throughout is seen at least once.
    pub fn scan(
        &self,
        arena: &Arena,
        cursor: u64,
        mut f: impl FnMut(Slot, Digest, EntryWord),
    ) -> Option<u64> {
        let (prefix, number) = (cursor >> BUCKET_BITS, cursor as usize % (1 << BUCKET_BITS));
        let segment = self.segment_of(prefix << (64 - MAX_DEPTH))?;
        let layout = self.segments[segment as usize].layout;
        if number < layout.buckets() {
            for bucket in [number, layout.next(number)] {
                let bytes = self.bucket(arena, segment, bucket);
                for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                    let h0 = h0_of(bytes, i);
                    if layout.home(h0) == number {
                        let slot = Slot { segment, bucket: bucket as u8, entry: i as u8 };
                        f(slot, digest_of(bytes, i), word_of(bytes, i));
                    }
                }
            }
        }
        if number + 1 < layout.buckets() {
            return Some(cursor + 1);
        }
        let width = MAX_DEPTH - u32::from(layout.depth);
        let next = ((prefix >> width) + 1) << width;
        (next < 1 << MAX_DEPTH).then_some(next << BUCKET_BITS)
    }

    /// Checks the structure and returns the number of its entries.
    pub fn check(&self, arena: &Arena) -> Result<u64, String> {
        let mut entries = 0;
        for (place, &segment) in self.directory.iter().enumerate().filter(|_| self.name_bytes == NAME_BYTES) {
            let at = arena.u64(self.root) + (place * NAME_BYTES) as u64;
            if arena.bytes(at, NAME_BYTES) != self.segments[segment as usize].name() {
                return Err(format!("index directory at {at} names another segment"));
            }
        }
        for segment in 0..self.segment_count() {
            let layout = self.segments[segment as usize].layout;
            let mut overflow = vec![0; layout.buckets()];
            let mut wrong = None;
            self.for_each_in(arena, segment, |slot, digest, _| {
                entries += 1;
                let home = layout.home(digest.h0);
                if slot.bucket as usize == layout.next(home) {
                    overflow[home] += 1;
                } else if slot.bucket as usize != home {
                    wrong = Some(format!("index entry at {} far from its home bucket", self.offset(slot)));
                }
                if self.segment_of(digest.h0) != Some(segment) {
                    wrong = Some(format!("index entry at {} in another's segment", self.offset(slot)));
                } else if self.find(arena, digest) != Some(slot) {
                    wrong = Some(format!("index entry at {} is another's double", self.offset(slot)));
                }
            });
            for (number, &count) in overflow.iter().enumerate() {
                if self.bucket(arena, segment, number)[OVERFLOW] != count {
                    let at = self.bucket_offset(segment, number);
                    wrong = Some(format!("index bucket at {at} counts its overflow wrongly"));
                }
            }
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
        }
        if entries != self.len {
            return Err(format!("index of {entries} entries says it has {}", self.len));
        }
        Ok(entries)
    }
}
