//! What is on the media besides heap and log: the words of the index, items, a batch's payload, the superblock
//! (`docs/format.md`). Uses nothing of the store.

pub mod bytes_written;
pub mod compress;
pub mod creating;
pub mod dictionary;
pub mod digest;
pub mod entry_word;
pub mod filling;
pub mod in_use;
pub mod item;
pub mod payload;
pub mod redo_file;
pub mod superblock;

/// The heap's file in the data folder.
pub(crate) const HEAP: &str = "heap";
/// The log's term. There is one server, and so one term.
pub(crate) const EPOCH: u32 = 1;
