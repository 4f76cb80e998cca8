//! The file `filling`, which is there while a new data folder is filled in a way that only its end makes whole: what changes in the heap
//! meanwhile is not in the log ([`Options::is_filled`](crate::Options::is_filled)). No start opens a folder that has it, not even to read: a log that lacks redo
//! makes nothing whole of a checkpoint that was taken in the midst of changes.

use holdfast_io::{Error, Io, Result};
use std::io::ErrorKind;

const FILE: &str = "filling";

/// Says durably that the folder is being filled.
pub(crate) fn begin(io: &dyn Io) -> Result<()> {
    let made = io.open(FILE, true).and_then(|file| file.sync()).and_then(|()| io.sync_dir(""));
    made.map_err(|e| Error::io(format!("write {FILE}"), e))
}

/// Refuses a folder whose filling has not come to its end.
pub(crate) fn refuse(io: &dyn Io) -> Result<()> {
    match io.open(FILE, false) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(format!("open {FILE}"), e)),
        Ok(_) => Err(Error::Unusable(
            "an import into this folder has not come to its end: nothing in it is of use, so remove it, and import anew".into(),
        )),
    }
}

/// Says durably that the folder is whole, as all in it is.
pub(crate) fn end(io: &dyn Io) -> Result<()> {
    io.remove(FILE).and_then(|()| io.sync_dir("")).map_err(|e| Error::io(format!("remove {FILE}"), e))
}
