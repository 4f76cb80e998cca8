//! The counted B+tree.
