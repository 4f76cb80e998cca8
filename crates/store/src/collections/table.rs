//! The hash table.
