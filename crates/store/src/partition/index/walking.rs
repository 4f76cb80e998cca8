//! How all entries of an index are visited: segment by segment, by a cursor, or to check them.

use super::{
    Index, MAX_DEPTH, Slot,
    bucket::{BUCKETS, OVERFLOW, SLOTS, digest_of, h0_of, home, word_of},
};
use crate::format::{digest::Digest, entry_word::EntryWord};
use holdfast_heap::Arena;

impl Index {
    /// Calls `f` with each entry (slot, what is known of the digest, word) of a segment.
    pub fn for_each_in(&self, arena: &Arena, segment: u32, mut f: impl FnMut(Slot, Digest, EntryWord)) {
        for number in 0..BUCKETS {
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
    /// A cursor is the upper half of `h0`, which is as much as a directory can tell apart, and a bucket. Segments only ever split, so what a
    /// scan has passed stays behind it, and what it has not yet seen stays ahead: an entry that is there throughout is
    /// seen at least once.
    pub fn scan(
        &self,
        arena: &Arena,
        cursor: u64,
        mut f: impl FnMut(Slot, Digest, EntryWord),
    ) -> Option<u64> {
        let (prefix, number) = (cursor / BUCKETS as u64, cursor as usize % BUCKETS);
        let segment = self.segment_of(prefix << (64 - MAX_DEPTH))?;
        for bucket in [number, (number + 1) % BUCKETS] {
            let bytes = self.bucket(arena, segment, bucket);
            for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                let h0 = h0_of(bytes, i);
                if home(h0) == number {
                    let slot = Slot { segment, bucket: bucket as u8, entry: i as u8 };
                    f(slot, digest_of(bytes, i), word_of(bytes, i));
                }
            }
        }
        if number + 1 < BUCKETS {
            return Some(cursor + 1);
        }
        let width = MAX_DEPTH - self.segments[segment as usize].depth;
        let next = ((prefix >> width) + 1) << width;
        (next < 1 << MAX_DEPTH).then_some(next * BUCKETS as u64)
    }

    /// Checks the structure and returns the number of its entries.
    pub fn check(&self, arena: &Arena) -> Result<u64, String> {
        let mut entries = 0;
        for segment in 0..self.segment_count() {
            let mut overflow = [0u8; BUCKETS];
            let mut wrong = None;
            self.for_each_in(arena, segment, |slot, digest, _| {
                entries += 1;
                let home = home(digest.h0);
                if slot.bucket as usize == (home + 1) % BUCKETS {
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
