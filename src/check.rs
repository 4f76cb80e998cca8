//! `holdfast check`: verifies a data folder offline, and leaves it as it is.

use crate::util::console::{errln, outln};
use crate::{replica_set, util::progress::Progress};
use holdfast_store::{OpenError, Options, Store};
use std::{path::Path, process};

/// Opens a data folder as it is, and prints what the start has found; the error says what is wrong, and what to do about it.
pub fn open(dir: &Path, options: Options) -> Result<Store, String> {
    if !dir.join("superblock").is_file() {
        return Err(format!("{} is not a data folder: it has no superblock", dir.display()));
    }
    let options = Options { on_unreadable, ..options };
    let store = Store::open_read_only(dir, options).map_err(|error| describe(dir, error))?;
    for note in &store.recovery().notes {
        outln!("note: {note}");
    }
    Ok(store)
}

/// Ends the program when a page that is needed cannot be read.
pub fn on_unreadable(error: &OpenError) -> ! {
    errln!("{error}");
    process::exit(1)
}

/// What is wrong with a data folder, and what to do about it.
pub fn describe(dir: &Path, error: OpenError) -> String {
    match error {
        OpenError::Corrupt { .. } => format!(
            "{error}\n\
             Something in {} is damaged. If its medium has returned other bytes than were written, see to that first. To go \
             on, restore the folder from a backup; keep the damaged one until all is there again. Without a backup, holdfast check \
             --salvage copies what is intact into a new folder.",
            dir.display()
        ),
        error => format!("{}: {error}", dir.display()),
    }
}

/// Checks everything in `dir` and prints what it found; the error says what is wrong, with file and offset.
pub fn check(dir: &Path) -> Result<(), String> {
    let store = open(dir, Options::default())?;
    let recovery = store.recovery();
    outln!("replayed: {} batches, {} bytes", recovery.replayed_batches, recovery.replayed_bytes);
    let mut progress = Progress::new();
    let report = store.check_with_progress(&mut |done, all| progress.show(done, all));
    progress.end();
    let report = report.map_err(|error| describe(dir, store.describe_damage(error)))?;
    outln!("keys: {}", report.keys);
    outln!(
        "items: {}, {} bytes, {} of them frozen collections, {} compressed",
        report.items,
        report.live_bytes,
        report.frozen,
        report.compressed
    );
    outln!("heap: {} bytes, {} pages in the last checkpoint", report.heap_bytes, report.heap_pages);
    outln!("log: ends at LSN {}, in epoch {}", store.log().tail(), store.log().epoch());
    if let Some(whose) = replica_set::whose(dir)? {
        outln!("of {whose}: its log may have what the others have not agreed on");
    }
    outln!("ok");
    Ok(())
}
