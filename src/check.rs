//! `holdfast check`: verifies a data folder offline, and leaves it as it is.

use holdfast_store::{Options, Store};
use std::path::Path;

/// Checks everything in `dir` and prints what it found; the error says what is wrong, with file and offset.
pub fn check(dir: &Path) -> Result<(), String> {
    if !dir.join("superblock").is_file() {
        return Err(format!("{} is not a data folder: it has no superblock", dir.display()));
    }
    let store = Store::open_read_only(dir, Options::default()).map_err(|e| e.to_string())?;
    let recovery = store.recovery();
    for note in &recovery.notes {
        println!("note: {note}");
    }
    println!("replayed: {} batches, {} bytes", recovery.replayed_batches, recovery.replayed_bytes);
    let report = store.check().map_err(|e| e.to_string())?;
    println!("keys: {}", report.keys);
    println!(
        "items: {}, {} bytes, {} of them frozen collections",
        report.items, report.live_bytes, report.frozen
    );
    println!("heap: {} bytes, {} pages in the last checkpoint", report.heap_bytes, report.heap_pages);
    println!("ok");
    Ok(())
}
