//! Folders that are copies of folders that were in use.

use super::{Options, Recovery, Store};
use crate::format::{
    in_use,
    superblock::{self, Superblock},
};
use holdfast_heap::HOME_FOLDER;
use holdfast_io::{Error, Io, Result, Tolerant};
use std::sync::Arc;

/// What an error says of a folder that is a copy of one that was in use.
pub(super) fn describe(error: Error) -> Error {
    match error {
        corrupt @ Error::Corrupt { .. } => in_use::torn(&corrupt),
        error => error,
    }
}

/// Checks that all of a copy is of one moment, before anything of it is mended: what is not is found by checksums, or because
/// something is missing.
pub(super) fn check(io: &Arc<dyn Io>, options: &Options) -> Result<()> {
    let file = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e))?;
    if Superblock::read(&*file)?.newest.home.is_some() {
        return Err(Error::corrupt(HOME_FOLDER, 0, "it has no checksums that would tell"));
    }
    let options = Options { background: false, home: None, ..options.clone() };
    let store = Store::open_as_it_is(Arc::new(Tolerant::new(io.clone())), options)?;
    store.check().map(drop)
}

impl Store {
    /// What is wrong with the folder, as a check has found it: damage, or that it is a copy whose files are of different moments.
    pub fn describe_damage(&self, error: Error) -> Error {
        if self.recovery.is_copy { describe(error) } else { error }
    }
}

impl Recovery {
    /// Notes that the folder is a copy, which was checked.
    pub(super) fn note_copy(&mut self) {
        let note = "the folder is a copy of one that was in use; all of it was checked, and is of one moment";
        self.notes.push(note.into());
    }
}
