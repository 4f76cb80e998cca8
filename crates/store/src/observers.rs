//! Who wants to know that a key was written: WATCH, and clients that wait in blocking commands.

use crate::digest::Digest;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Is told that a key was written, under its partition's lock: it may set a flag or wake a task, and nothing else.
pub trait Observer: Send + Sync {
    /// A batch wrote the key.
    fn written(&self);
}

/// How observers of one key are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Each time.
    Always,
    /// Only who has waited longest of those who wait in this queue; [`crate::Txn::pass_on`] tells the next one.
    Queued(u64),
}

/// Who is told that a key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// All who observe it.
    All,
    /// Those in queues.
    Queues,
    /// Nobody: nothing has changed that anybody waits for.
    Nobody,
}

/// Names a registration; see [`crate::Txn::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

struct Entry {
    id: ObserverId,
    turn: Turn,
    observer: Arc<dyn Observer>,
}

/// The observers of a partition's keys, in the order in which they came.
#[derive(Default)]
pub(crate) struct Observers {
    keys: HashMap<(u8, u64), Vec<Entry>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Observers {
    pub fn add(&mut self, db: u8, digest: Digest, turn: Turn, observer: Arc<dyn Observer>) -> ObserverId {
        let id = ObserverId(NEXT.fetch_add(1, Relaxed));
        self.keys.entry((db, digest.h0)).or_default().push(Entry { id, turn, observer });
        id
    }

    pub fn remove(&mut self, db: u8, digest: Digest, id: ObserverId) {
        if let Some(entries) = self.keys.get_mut(&(db, digest.h0)) {
            entries.retain(|entry| entry.id != id);
            if entries.is_empty() {
                self.keys.remove(&(db, digest.h0));
            }
        }
    }

    #[inline]
    pub fn tell(&self, db: u8, digest: Digest, whom: Tell) {
        if !self.keys.is_empty() && whom != Tell::Nobody {
            tell(self.keys.get(&(db, digest.h0)), whom);
        }
    }

    /// Tells the observers of all keys of a database.
    pub fn tell_all(&self, db: u8) {
        self.keys
            .iter()
            .filter(|((d, _), _)| *d == db)
            .for_each(|(_, entries)| tell(Some(entries), Tell::All));
    }

    /// Tells who has waited longest in a queue.
    pub fn tell_first(&self, db: u8, digest: Digest, queue: u64) {
        let entries = self.keys.get(&(db, digest.h0));
        let is_queued = |entry: &&Entry| entry.turn == Turn::Queued(queue);
        if let Some(first) = entries.and_then(|entries| entries.iter().find(is_queued)) {
            first.observer.written();
        }
    }
}

fn tell(entries: Option<&Vec<Entry>>, whom: Tell) {
    let Some(entries) = entries else { return };
    for (i, entry) in entries.iter().enumerate() {
        let has_turn = match entry.turn {
            Turn::Always => whom == Tell::All,
            // Mostly there is one queue, and what is found is the first entry.
            turn => entries.iter().position(|first| first.turn == turn) == Some(i),
        };
        if has_turn {
            entry.observer.written();
        }
    }
}
