//! See docs/format.md.
