//! What batches have changed in the heap since the last checkpoint, as far as the file `redo` does not have it yet
//! ([`Condenser`](crate::maintenance::condenser)).

use crate::format::item;
use holdfast_heap::put_write;
use holdfast_log::Lsn;
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Memory is taken in steps of so many bytes.
const STEP: usize = 4 << 10;
/// Bytes of redo between two items of a batch that are kept at most.
const BYTES_MAX: usize = 1 << 20;

/// Changes of batches, in the order of their LSNs: what their payloads say, without the items that are wanted, of which there
/// is only where they are.
#[derive(Default)]
pub(crate) struct Changed {
    pub bytes: Vec<u8>,
    /// The LSN of each batch, and how many of the bytes are its.
    pub batches: Vec<(Lsn, u32)>,
    /// Some of these may have changed extents that were, or are now, another partition's.
    pub reaches_others: bool,
}

impl Changed {
    /// The batches: the LSN of each, and what it has changed.
    pub fn each(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut rest = &self.bytes[..];
        self.batches.iter().map(move |&(lsn, len)| {
            let (bytes, behind) = rest.split_at(len as usize);
            rest = behind;
            (lsn, bytes)
        })
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.batches.len() * size_of::<(Lsn, u32)>()
    }
}

/// What a partition keeps of them.
#[derive(Default)]
pub(crate) struct Uncondensed {
    changed: Changed,
    /// Bytes of memory that all partitions may still take for it; `None`: nothing is kept.
    left: Option<Arc<AtomicUsize>>,
    /// Bytes that it has taken of these.
    taken: usize,
}

impl Uncondensed {
    /// Keeps what comes, as long as there is memory left; what it has stays. Whether it did so before.
    pub fn keep(&mut self, left: &Arc<AtomicUsize>) -> bool {
        self.left.replace(left.clone()).is_some()
    }

    /// Forgets all, and keeps nothing.
    pub fn end(&mut self) {
        if let Some(left) = &self.left {
            left.fetch_add(self.taken, Relaxed);
        }
        *self = Uncondensed::default();
    }

    /// Takes what batches below an LSN have changed; `None`: not all of it was kept.
    pub fn take_below(&mut self, lsn: Lsn) -> Option<Changed> {
        let left = self.left.as_ref()?;
        let count = self.changed.batches.partition_point(|(at, _)| *at < lsn);
        let len = self.changed.batches[..count].iter().map(|(_, len)| *len as usize).sum();
        let behind = Changed {
            bytes: self.changed.bytes.split_off(len),
            batches: self.changed.batches.split_off(count),
            reaches_others: self.changed.reaches_others,
        };
        let keeps = behind.memory().next_multiple_of(STEP).min(self.taken);
        left.fetch_add(self.taken - keeps, Relaxed);
        self.taken = keeps;
        Some(mem::replace(&mut self.changed, behind))
    }

    /// Adds a batch that tells one entry where its item is.
    #[inline]
    pub fn add_entry(&mut self, lsn: Lsn, entry: u64, bytes: &[u8]) {
        if self.left.is_some() {
            let start = self.changed.bytes.len();
            put_write(&mut self.changed.bytes, entry, bytes);
            self.end_batch(lsn, start);
        }
    }

    /// Adds a batch. `items`: the positions of the items that it wants, in order; and for each its entry, and what that is told.
    /// `reaches_others`: it may have changed extents that were, or are now, another partition's.
    pub fn add(
        &mut self,
        lsn: Lsn,
        payload: &[u8],
        items: impl Iterator<Item = (usize, u64, [u8; 6])> + Clone,
        reaches_others: bool,
    ) {
        if self.left.is_none() {
            return;
        }
        self.changed.reaches_others |= reaches_others;
        let (start, mut from) = (self.changed.bytes.len(), 0);
        let skipped = items.clone().map(|(at, ..)| (at, at + item_len(&payload[at..])));
        for (at, behind) in skipped.chain([(payload.len(), payload.len())]) {
            if at - from > BYTES_MAX {
                return self.end();
            }
            self.changed.bytes.extend_from_slice(&payload[from..at]);
            from = behind;
        }
        // Last, because an entry may have moved after its item's record.
        items.for_each(|(_, entry, bytes)| put_write(&mut self.changed.bytes, entry, &bytes));
        self.end_batch(lsn, start);
    }

    fn end_batch(&mut self, lsn: Lsn, start: usize) {
        self.changed.batches.push((lsn, (self.changed.bytes.len() - start) as u32));
        if self.changed.memory() > self.taken {
            self.take_memory();
        }
    }

    #[cold]
    fn take_memory(&mut self) {
        let Some(left) = &self.left else { return };
        let more = (self.changed.memory() - self.taken).next_multiple_of(STEP);
        match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(more)) {
            Ok(_) => self.taken += more,
            Err(_) => self.end(),
        }
    }
}

/// The length of the record of the item that some bytes begin with.
fn item_len(bytes: &[u8]) -> usize {
    item::view(bytes).expect("a record made by encode").1
}
