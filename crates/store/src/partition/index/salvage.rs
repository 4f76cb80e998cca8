//! An index of which some pages are damaged: every access looks first whether its page is in memory.

use super::{
    HAS_NAMES, HandleMemory, Index, MAX_DEPTH, NAME_BYTES, OLD_NAME_BYTES, ROOT_BYTES,
    bucket::{BUCKET_BYTES, OVERFLOW, SLOTS, digest_of, find_in, word_of},
};
use crate::format::{digest::Digest, entry_word::EntryWord};
use holdfast_heap::Arena;
use std::sync::Arc;

/// What a damaged index says of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It has an entry.
    There,
    /// It has none.
    Missing,
    /// The entry, if there is one, is in a page that is damaged.
    Unknown,
}

fn is_readable(arena: &Arena, offset: u64, len: usize) -> bool {
    arena.absent(offset, len).next().is_none()
}

impl Index {
    /// As [`Index::open`]; `None`: its root or its directory is damaged.
    pub fn open_damaged(arena: &mut Arena, root: u64, memory: Arc<HandleMemory>) -> Option<Index> {
        if !is_readable(arena, root, ROOT_BYTES as usize) {
            return None;
        }
        let (directory, depth) = (arena.u64(root), arena.u64(root + 8));
        let name_bytes = if depth & HAS_NAMES == 0 { OLD_NAME_BYTES } else { NAME_BYTES };
        let depth = depth & !HAS_NAMES;
        let is_sound = directory == 0
            || depth <= u64::from(MAX_DEPTH) && is_readable(arena, directory, name_bytes << depth);
        if is_sound { Index::open(arena, root, false, memory).ok() } else { None }
    }

    /// Calls `f` with each entry (what is known of the digest, word) that can be read; how many there are that cannot.
    pub fn for_each_readable(&self, arena: &Arena, mut f: impl FnMut(Digest, EntryWord)) -> u64 {
        let mut found = 0;
        for segment in 0..self.segment_count() {
            for number in 0..self.segments[segment as usize].layout.buckets() {
                if !is_readable(arena, self.bucket_offset(segment, number), BUCKET_BYTES as usize) {
                    continue;
                }
                let bytes = self.bucket(arena, segment, number);
                for i in (0..SLOTS).filter(|&i| bytes[i] != 0) {
                    found += 1;
                    f(digest_of(bytes, i), word_of(bytes, i));
                }
            }
        }
        self.len().saturating_sub(found)
    }

    /// Whether it has an entry with this digest.
    pub fn look_up(&self, arena: &Arena, digest: Digest) -> Lookup {
        let Some(segment) = self.segment_of(digest.h0) else { return Lookup::Missing };
        let layout = self.segments[segment as usize].layout;
        let home = layout.home(digest.h0);
        let mut absent = Lookup::Missing;
        for number in [home, layout.next(home)] {
            if !is_readable(arena, self.bucket_offset(segment, number), BUCKET_BYTES as usize) {
                absent = Lookup::Unknown;
                continue;
            }
            let bucket = self.bucket(arena, segment, number);
            if find_in(bucket, digest).is_some() {
                return Lookup::There;
            }
            if number == home && bucket[OVERFLOW] == 0 {
                return Lookup::Missing;
            }
        }
        absent
    }
}
