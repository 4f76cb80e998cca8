//! The bytes of a bucket (`docs/format.md`, "Index"), and what is asked of one.

use crate::{
    format::{
        digest::Digest,
        entry_word::{EntryWord, PAYLOAD_BITS},
    },
    util::probe,
};
use std::ops::Range;

/// Buckets of a page.
pub const PAGE_BUCKETS: usize = 16;
/// Entries of a bucket.
pub const SLOTS: usize = 15;
/// Entries of a page.
pub const PAGE_PLACES: usize = PAGE_BUCKETS * SLOTS;
/// Bytes of a bucket: a header of 16, and its entries.
pub const BUCKET_BYTES: u64 = 256;
/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 16;
/// The place in a header of the number of entries that live in the next bucket.
pub const OVERFLOW: usize = SLOTS;
/// The bits of an entry's first word that are its payload; those above are a tag, bits of the digest.
pub const PAYLOAD_MASK: u64 = (1 << PAYLOAD_BITS) - 1;

/// A bucket as it lies in the heap.
pub type Bucket = [u8; BUCKET_BYTES as usize];

/// The byte of a digest that a header has of its entry; never 0, which is a free place.
#[inline]
pub fn fingerprint(digest: Digest) -> u8 {
    ((digest.h1 >> 56) as u8).max(1)
}

/// What an entry's first word has of a digest.
#[inline]
pub fn tag(digest: Digest) -> u64 {
    digest.h1 << PAYLOAD_BITS
}

/// Where the bytes of an entry are in its bucket.
pub fn entry_bytes(entry: usize) -> Range<usize> {
    let at = 16 + entry * ENTRY_BYTES as usize;
    at..at + ENTRY_BYTES as usize
}

/// Where an entry lies, in a bucket that lies here.
#[inline]
pub fn entry_offset(bucket_at: u64, entry: u8) -> u64 {
    bucket_at + 16 + u64::from(entry) * ENTRY_BYTES
}

/// The first half of an entry's digest.
#[inline]
pub fn h0_of(bucket: &Bucket, entry: usize) -> u64 {
    let at = 24 + entry * 16;
    u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes"))
}

/// The payload of an entry, and above it the tag.
#[inline]
fn tagged_word(bucket: &Bucket, entry: usize) -> u64 {
    let at = 16 + entry * 16;
    u64::from_le_bytes(bucket[at..at + 8].try_into().expect("eight bytes"))
}

/// The payload of an entry.
#[inline]
pub fn word_of(bucket: &Bucket, entry: usize) -> EntryWord {
    EntryWord(tagged_word(bucket, entry) & PAYLOAD_MASK)
}

/// As much of an entry's digest as the index keeps: enough to find it again.
pub fn digest_of(bucket: &Bucket, entry: usize) -> Digest {
    let word = tagged_word(bucket, entry);
    Digest { h0: h0_of(bucket, entry), h1: u64::from(bucket[entry]) << 56 | word >> PAYLOAD_BITS }
}

/// The header of a bucket.
#[inline]
pub fn fingerprints(bucket: &Bucket) -> &[u8; 16] {
    bucket.first_chunk().expect("a bucket begins with its fingerprints")
}

/// The places of a bucket that are free: a bit for each.
pub fn free(bucket: &Bucket) -> u32 {
    probe::matches(fingerprints(bucket), 0) & 0x7fff
}

/// The entries with the digest's fingerprint: a bit for each.
#[inline]
pub fn candidates(bucket: &Bucket, digest: Digest) -> u32 {
    probe::matches(fingerprints(bucket), fingerprint(digest)) & 0x7fff
}

/// The word of an entry, unless it is another digest's; the fingerprint is not looked at.
#[inline]
pub fn word_if(bucket: &Bucket, entry: usize, digest: Digest) -> Option<EntryWord> {
    let word = tagged_word(bucket, entry);
    let is_its = h0_of(bucket, entry) == digest.h0 && word & !PAYLOAD_MASK == tag(digest);
    is_its.then_some(EntryWord(word & PAYLOAD_MASK))
}

/// The entry of a bucket with this digest, and its payload.
#[inline]
pub fn find_in(bucket: &Bucket, digest: Digest) -> Option<(u8, EntryWord)> {
    let mut candidates = candidates(bucket, digest);
    while candidates != 0 {
        let entry = candidates.trailing_zeros() as usize;
        if let Some(word) = word_if(bucket, entry, digest) {
            return Some((entry as u8, word));
        }
        candidates &= candidates - 1;
    }
    None
}
