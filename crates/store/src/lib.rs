//! See docs/format.md.

pub mod collections;
