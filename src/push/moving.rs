//! Keys that are written while their slots are on their way to another node: those are sent once more.
//!
//! A key is noted while its partition is locked for who writes it. So whoever takes the noted keys, and then looks at one under that lock,
//! sees what was written, or will find the key noted again.

use holdfast_cluster::Slots;
use holdfast_store::{Change, ChangeKind, hash_slot};
use std::{
    collections::HashSet,
    mem,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Keys that are noted at most: more would take too much memory, and would not be fewer when they were sent.
const KEYS_MAX: usize = 4 << 20;

/// What was written in slots that are on their way.
#[derive(Default)]
pub struct Moving {
    is_on: AtomicBool,
    slots: RwLock<Slots>,
    written: Mutex<Written>,
}

/// Keys that were written.
#[derive(Default)]
pub struct Written {
    /// These.
    pub keys: HashSet<Vec<u8>>,
    /// Not all of them are known: there were too many, or all keys were flushed.
    pub is_overrun: bool,
}

impl Moving {
    /// Whether anything is noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Notes keys of these slots from now on. The caller then has the store tell of changes, and waits until all workers know.
    pub fn begin(&self, slots: Slots) {
        *self.slots.write().expect("no holder panics") = slots;
        *self.written.lock().expect("no holder panics") = Written::default();
        self.is_on.store(true, Relaxed);
    }

    /// Notes nothing any more.
    pub fn end(&self) {
        self.is_on.store(false, Relaxed);
        *self.written.lock().expect("no holder panics") = Written::default();
    }

    /// The keys that were noted since the last call.
    pub fn take(&self) -> Written {
        mem::take(&mut *self.written.lock().expect("no holder panics"))
    }

    /// Notes the key of a change, if that is wanted, and the key is in these slots. Its partition is locked.
    #[inline]
    pub fn note(&self, change: &Change) {
        if self.is_on() {
            self.note_written(change);
        }
    }

    #[cold]
    fn note_written(&self, change: &Change) {
        // What was added is told as written, too.
        let is_write = !matches!(change.kind, ChangeKind::Missed | ChangeKind::Added);
        if !is_write || !self.slots.read().expect("no holder panics").contains(hash_slot(&change.key)) {
            return;
        }
        let mut written = self.written.lock().expect("no holder panics");
        match written.keys.len() < KEYS_MAX {
            true => drop(written.keys.insert(change.key.clone())),
            false => written.is_overrun = true,
        }
    }

    /// All keys were flushed.
    pub fn note_flush(&self) {
        self.written.lock().expect("no holder panics").is_overrun = true;
    }
}
