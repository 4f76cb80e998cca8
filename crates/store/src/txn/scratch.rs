//! Frozen collections that are only read: they are laid out in memory of the thread's own, and nothing is written.
//!
//! So a look at a cold collection costs the log nothing, needs no room in the heap, and works when the log takes no
//! writes. A string that lies in the heap in chunks is put together here, too, for who wants it as a whole.

use crate::collections::{
    Context, any,
    serial::{self, ImportError},
};
use holdfast_heap::{Arena, Tx};
use holdfast_log::Lsn;
use std::{cell::Cell, collections::BTreeMap};

/// Address space for what one transaction looks at.
const BYTES_MAX: u64 = 4 << 30;
/// Bytes that the buffers, for redo, which nobody wants, and for a string, are kept for.
const BUFFER_KEPT: usize = 1 << 20;

thread_local! {
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// A thread's memory for views.
pub(crate) struct Scratch {
    arena: Arena,
    tx: Tx,
    /// Offsets by the LSN of the item that they show: what is at an LSN never changes.
    views: BTreeMap<Lsn, u64>,
    /// The last string that was wanted in one piece.
    string: Vec<u8>,
}

impl Scratch {
    /// That of this thread, which nobody else must have.
    pub fn take() -> Box<Scratch> {
        SPARE.take().unwrap_or_else(|| {
            let arena = Arena::volatile(BYTES_MAX).expect("address space");
            Box::new(Scratch { arena, tx: Tx::new(), views: BTreeMap::new(), string: Vec::new() })
        })
    }

    /// Keeps it for the thread's next transaction.
    pub fn put_back(mut self: Box<Scratch>) {
        self.clear();
        SPARE.set(Some(self));
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The view of the item at an LSN, if there is one.
    pub fn view(&self, lsn: Lsn) -> Option<u64> {
        self.views.get(&lsn).copied()
    }

    /// Lays out the collection of the item at an LSN, and returns its offset.
    pub fn show(&mut self, cx: Context, lsn: Lsn, bytes: &[u8]) -> Result<u64, ImportError> {
        let offset = serial::import(&mut self.arena, &mut self.tx, cx, b"", bytes);
        self.forget_redo();
        let offset = offset?;
        self.views.insert(lsn, offset);
        Ok(offset)
    }

    /// The slices in one piece, until the next call.
    pub fn copy_together<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>) -> &[u8] {
        self.string.clear();
        slices.for_each(|slice| self.string.extend_from_slice(slice));
        &self.string
    }

    /// Forgets all views.
    pub fn clear(&mut self) {
        for (_, offset) in std::mem::take(&mut self.views) {
            any::destroy(&mut self.arena, &mut self.tx, offset);
        }
        self.forget_redo();
        self.string.clear();
        self.string.shrink_to(BUFFER_KEPT);
    }

    fn forget_redo(&mut self) {
        self.tx.committed();
        self.tx.clear();
        self.tx.buf.shrink_to(BUFFER_KEPT);
    }
}
