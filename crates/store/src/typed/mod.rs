//! What a transaction does with collections and parts of strings: one file per type.
//!
//! An operation makes the key's object when it is missing, removes the key when its object becomes empty, and fails
//! with [`Error::WrongType`](crate::txn::error::Error::WrongType) before it changes anything. One that fails with
//! [`Error::Full`](crate::txn::error::Error::Full) may have changed what it says, and never leaves an empty object. Only
//! streams may be empty.

pub mod bitmap;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod set;
pub mod stream;
pub mod string;
pub mod zset;
pub mod zset_algebra;

use std::ops::Range;

/// The positions from index `first` to `last`, both included, in a sequence of `len`. An index below zero counts from
/// the end; what lies outside is cut off.
pub fn positions_between(first: i64, last: i64, len: u64) -> Range<u64> {
    let from_start = |index: i64| if index < 0 { index.saturating_add_unsigned(len) } else { index };
    let start = from_start(first).max(0) as u64;
    let end = (from_start(last).saturating_add(1)).clamp(0, len as i64) as u64;
    start.min(end)..end
}
