//! Sorted sets.
