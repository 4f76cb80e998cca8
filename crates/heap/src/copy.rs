//! Copying the last complete checkpoint while later ones are written: for backups. A pin keeps its slots from being used again; who
//! copies may be another process, which has the file and the root.

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Result};
use std::sync::Arc;

use crate::{
    Heap, HeapRoot, PAGE,
    checkpoint::Exclusive,
    file::{PageFile, TABLES},
    load::{PageAt, pages_by_slot},
};

/// Slots that are held or released before others may look at the file's state.
const SLOTS_A_SLICE: usize = 4096;

/// Keeps the slots of a checkpoint as they are until it is dropped, whatever checkpoints come. Costs slots of the file for what
/// changes meanwhile, and nothing else.
pub struct PinnedCheckpoint {
    heap: Arc<Heap>,
    slots: Vec<u32>,
}

impl Heap {
    /// Pins the last complete checkpoint. `None`: one is being taken, or there is none.
    pub fn pin_checkpoint(self: &Arc<Self>) -> Option<PinnedCheckpoint> {
        // None becomes complete meanwhile, so that all slots are of one.
        let _exclusive = Exclusive::new(self)?;
        let file = &self.memory.file;
        let root = file.state().root?;
        let slots = all_slots(file, &root);
        for slice in slots.chunks(SLOTS_A_SLICE) {
            let mut state = file.state();
            slice.iter().for_each(|&slot| state.slots.hold(slot));
        }
        Some(PinnedCheckpoint { heap: self.clone(), slots })
    }
}

impl PinnedCheckpoint {
    /// Bytes of the file that it keeps.
    pub fn bytes(&self) -> u64 {
        (self.slots.len() * PAGE) as u64
    }
}

impl Drop for PinnedCheckpoint {
    fn drop(&mut self) {
        for slice in self.slots.chunks(SLOTS_A_SLICE) {
            let mut state = self.heap.memory.file.state();
            slice.iter().for_each(|&slot| state.slots.release(slot));
        }
    }
}

/// All slots that a checkpoint uses, each once, in order: of its root table, its tables and its pages.
fn all_slots(file: &PageFile, root: &HeapRoot) -> Vec<u32> {
    let mut slots = table_slots(file, root);
    slots.extend(pages_by_slot(file, |_| true).into_iter().map(|(slot, _)| slot));
    slots.sort_unstable();
    slots
}

fn table_slots(file: &PageFile, root: &HeapRoot) -> Vec<u32> {
    let state = file.state();
    let tables = state.entries.iter().filter(|entry| entry.table.is_some());
    let mut slots: Vec<u32> = tables.map(|entry| entry.position / TABLES).collect();
    slots.extend(root.slots());
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// Copies the checkpoint that `root` names from one file to another, which is empty: each slot to its place. So the same root names it
/// there. Each page is checked on the way, and the tables are read again from the copy. `copied` is told of the bytes of each step, and
/// may stop it. Returns the length of the copy, which is durable.
///
/// # Errors
/// [`Error::Corrupt`] if something fails its check; what `copied` returns.
pub fn copy_checkpoint(
    from: Arc<dyn File>,
    to: Arc<dyn File>,
    root: &HeapRoot,
    copied: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let failed = |e| Error::io(format!("write {}", to.name()), e);
    let source = PageFile::open(from, root)?;
    let tables: Vec<(u32, ())> = table_slots(&source, root).into_iter().map(|slot| (slot, ())).collect();
    copy_slots(&source, &*to, &tables, copied, &mut |_, _| Ok(()))?;
    let pages = pages_by_slot(&source, |_| true);
    copy_slots(&source, &*to, &pages, copied, &mut |&PageAt { extent, page }, bytes| {
        let page = usize::from(page);
        source.check_page(source.page_ref(extent, page), extent, page, bytes)
    })?;
    to.sync().map_err(failed)?;
    PageFile::open(to.clone(), root)?;
    to.len().map_err(failed)
}

/// Copies slots, each after its check.
fn copy_slots<T>(
    source: &PageFile,
    to: &dyn File,
    slots: &[(u32, T)],
    copied: &mut dyn FnMut(u64) -> Result<()>,
    check: &mut dyn FnMut(&T, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut rest = slots;
    while !rest.is_empty() {
        let (n, first, bytes) = source.read_window(rest, usize::MAX)?;
        let window = &rest[..n];
        for (slot, what) in window {
            check(what, page_of(&bytes, slot - first))?;
        }
        // What lies between them is none of the checkpoint's.
        for run in window.chunk_by(|a, b| a.0 + 1 == b.0) {
            let start = (run[0].0 - first) as usize * PAGE;
            to.write_at(
                &[&bytes[start..start + run.len() * PAGE]],
                u64::from(run[0].0) * PAGE as u64,
                Durability::Volatile,
            )
            .map_err(|e| Error::io(format!("write {}", to.name()), e))?;
        }
        copied((n * PAGE) as u64)?;
        rest = &rest[n..];
    }
    Ok(())
}

fn page_of(bytes: &AlignedBuf, at: u32) -> &[u8] {
    const { assert!(PAGE == BLOCK) };
    &bytes[at as usize * PAGE..][..PAGE]
}
