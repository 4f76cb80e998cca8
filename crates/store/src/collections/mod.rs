//! Lists, sets, sorted sets, hashes, streams and strings in a partition's [`Arena`](holdfast_heap::Arena).
//!
//! Each collection is one *object* ([`object`]): a header block that never moves and holds the key, and a payload
//! that hangs off it. A small payload is one packed blob ([`packed`]) or an array of integers, a large one a hash
//! table ([`table`]) or a counted tree ([`btree`]). Every store goes through a [`Tx`](holdfast_heap::Tx), so the
//! bytes of redo that an operation leaves are a cost that these structures are laid out for.
//!
//! A growing operation that returns [`Full`](holdfast_heap::Full) has left the collection as it was, though perhaps
//! in another encoding. An emptied collection is still an object: its owner removes it, unless it is a stream.

pub mod absent;
pub mod any;
pub mod btree;
mod bytes;
pub mod hash;
pub mod intset;
pub mod list;
pub mod object;
mod ordered;
pub mod packed;
pub mod run;
pub mod sample;
pub mod serial;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod uses;
pub mod zset;

pub use table::Hasher;

use std::ops::Range;

/// What an operation needs to know besides the collection.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Hashes elements; fixed for a data folder.
    pub hasher: &'a Hasher,
    /// Thresholds of the encodings; may change between operations.
    pub limits: &'a Limits,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// What was to expire by then has expired: the time, or 0 where nothing has.
    pub expired_ms: u64,
}

/// The positions from index `first` to `last`, both included, in a sequence of `len`. An index below zero counts from
/// the end; what lies outside is cut off.
pub fn positions_between(first: i64, last: i64, len: u64) -> Range<u64> {
    let from_start = |index: i64| if index < 0 { index.saturating_add_unsigned(len) } else { index };
    let start = from_start(first).max(0) as u64;
    let end = (from_start(last).saturating_add(1)).clamp(0, len as i64) as u64;
    start.min(end)..end
}

/// Bytes that a small hash, set or sorted set, or a stream's leaf, takes at most, whatever the limits say: one change may move all of them.
pub(crate) const PACKED_BYTES_MAX: usize = 32 << 10;
/// Bytes of redo that a small collection takes at most while it grows bit by bit, beside its elements': a list's leaf may have 64 KiB.
pub(crate) const REDO_OF_GROWTH: usize = 256 << 10;
/// Entries of a small collection, which are looked through one by one, likewise.
pub(crate) const ENTRIES_MAX: usize = 4096;

/// Up to where a value stays in its small encoding. The names and defaults are Redis's.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `hash-max-listpack-entries`: fields of a packed hash.
    pub hash_max_listpack_entries: usize,
    /// `hash-max-listpack-value`: bytes of a field or value in a packed hash.
    pub hash_max_listpack_value: usize,
    /// `set-max-intset-entries`: members of a set of integers.
    pub set_max_intset_entries: usize,
    /// `set-max-listpack-entries`: members of a packed set.
    pub set_max_listpack_entries: usize,
    /// `set-max-listpack-value`: bytes of a member in a packed set.
    pub set_max_listpack_value: usize,
    /// `zset-max-listpack-entries`: members of a packed sorted set.
    pub zset_max_listpack_entries: usize,
    /// `zset-max-listpack-value`: bytes of a member in a packed sorted set.
    pub zset_max_listpack_value: usize,
    /// `list-max-listpack-size`: elements of a list's leaf, or, if negative, its bytes: -1 for 4 KiB, -2 for 8 KiB,
    /// up to -5 for 64 KiB.
    pub list_max_listpack_size: i32,
    /// `hll-sparse-max-bytes`: bytes of a HyperLogLog up to which it is sparse.
    pub hll_sparse_max_bytes: usize,
    /// `stream-node-max-bytes`: bytes of a stream's leaf; 0: as many as may be.
    pub stream_node_max_bytes: usize,
    /// `stream-node-max-entries`: entries of a stream's leaf; 0: any number.
    pub stream_node_max_entries: usize,
}

impl Limits {
    /// The limits with none beyond what is fit for a small collection.
    pub(crate) fn capped(self) -> Limits {
        let cap = |entries: usize| entries.min(ENTRIES_MAX);
        Limits {
            hash_max_listpack_entries: cap(self.hash_max_listpack_entries),
            set_max_intset_entries: cap(self.set_max_intset_entries),
            set_max_listpack_entries: cap(self.set_max_listpack_entries),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            hash_max_listpack_entries: 128,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            list_max_listpack_size: -2,
            hll_sparse_max_bytes: 3000,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
        }
    }
}

/// Bytes of redo that an element of a collection takes at most beside its own, on average over many.
const REDO_OF_ELEMENT: usize = 256;
/// An element's bytes count twice up to so many: as long as it lies among others, it is moved with them.
const MOVED_BYTES: usize = 1024;
/// Bytes of redo that a command writes whatever its arguments.
const REDO_OF_COMMAND: usize = 4096;

/// Bytes of log that `elements` arguments of a command, of `bytes` together, come to at most. What a command makes of
/// values that are stored already is not in it.
#[inline]
pub fn redo_max(elements: usize, bytes: usize) -> usize {
    bytes + bytes.min(MOVED_BYTES * elements) + REDO_OF_ELEMENT * elements + REDO_OF_COMMAND
}
