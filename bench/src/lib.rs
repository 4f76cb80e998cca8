//! What the benchmarks have in common.

pub mod patterns;
