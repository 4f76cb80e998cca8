//! Who wants to know that a key was written: WATCH, and clients that wait in blocking commands.

use crate::format::digest::Digest;
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
    /// One at a time of those in this queue, who has waited longest first: the key is kept for it ([`crate::Txn::is_kept`])
    /// until it ends its turn ([`crate::Txn::pass_on`], [`crate::Txn::unobserve`]).
    Queued(u64),
}

/// Which observers of a key are notified of a write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// All of them.
    All,
    /// Those that wait in a queue.
    Queued,
    /// None: nothing has changed that an observer waits for.
    None,
}

/// Names a registration; see [`crate::Txn::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

struct Entry {
    id: ObserverId,
    turn: Turn,
    /// Whether it was told and its turn has not ended.
    called: bool,
    observer: Arc<dyn Observer>,
}

/// The observers of a partition's keys, in the order in which they came, by logical database: SWAPDB gives those who
/// observe a database another one to look at.
#[derive(Default)]
pub(crate) struct Observers {
    keys: HashMap<(u8, u64), Observed>,
    /// Observers whose turn it is.
    called: usize,
}

struct Observed {
    digest: Digest,
    entries: Vec<Entry>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Observers {
    pub fn add(&mut self, db: u8, digest: Digest, turn: Turn, observer: Arc<dyn Observer>) -> ObserverId {
        let id = ObserverId(NEXT.fetch_add(1, Relaxed));
        let observed =
            self.keys.entry((db, digest.h0)).or_insert_with(|| Observed { digest, entries: Vec::new() });
        observed.entries.push(Entry { id, turn, called: false, observer });
        id
    }

    /// Removes an observer. If it was its turn, it is the next one's.
    pub fn remove(&mut self, db: u8, digest: Digest, id: ObserverId) {
        self.pass_on(db, digest, id, true);
        if let Some(observed) = self.keys.get_mut(&(db, digest.h0)) {
            observed.entries.retain(|entry| entry.id != id);
            if observed.entries.is_empty() {
                self.keys.remove(&(db, digest.h0));
            }
        }
    }

    /// Ends the turn of an observer, if it is its; the next one of its queue is told, provided that there is something to see.
    pub fn pass_on(&mut self, db: u8, digest: Digest, id: ObserverId, is_there: bool) {
        let Some(observed) = self.keys.get_mut(&(db, digest.h0)) else { return };
        let mut entries = observed.entries.iter_mut().skip_while(|entry| entry.id != id);
        let Some(own) = entries.next().filter(|own| own.called) else { return };
        own.called = false;
        self.called -= 1;
        let turn = own.turn;
        if let Some(next) = entries.find(|entry| entry.turn == turn).filter(|_| is_there) {
            next.called = true;
            self.called += 1;
            next.observer.written();
        }
    }

    /// Whether nobody observes anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Notifies observers of a key.
    pub fn notify(&mut self, db: u8, digest: Digest, which: Notify) {
        if let Some(observed) = self.keys.get_mut(&(db, digest.h0)) {
            self.called += observed.notify(which);
        }
    }

    /// Notifies the observers of those keys of a database that `is_there` says yes to.
    pub fn notify_all(&mut self, db: u8, mut is_there: impl FnMut(Digest) -> bool) {
        for ((of, _), observed) in &mut self.keys {
            if *of == db && is_there(observed.digest) {
                self.called += observed.notify(Notify::All);
            }
        }
    }

    /// Notifies all observers: any key may have been written.
    pub fn notify_each(&mut self) {
        for observed in self.keys.values_mut() {
            self.called += observed.notify(Notify::All);
        }
    }

    /// Whether it is somebody's turn at any key.
    #[inline]
    pub fn keeps_any(&self) -> bool {
        self.called > 0
    }

    /// Whether it is somebody's turn at a key.
    pub fn keeps(&self, db: u8, digest: Digest) -> bool {
        self.keys
            .get(&(db, digest.h0))
            .is_some_and(|observed| observed.entries.iter().any(|entry| entry.called))
    }
}

impl Observed {
    /// Notifies these observers, but of each queue only the first one, if it is nobody's turn there. Returns how many
    /// turns begin.
    fn notify(&mut self, which: Notify) -> usize {
        let mut begun = 0;
        for i in 0..self.entries.len() {
            let turn = self.entries[i].turn;
            let is_told = match turn {
                Turn::Always => which == Notify::All,
                // Mostly there is one queue, and what is found is the first entry: it is its turn already, or it is now.
                Turn::Queued(_) => {
                    let of_queue = || self.entries.iter().filter(|entry| entry.turn == turn);
                    which != Notify::None
                        && std::ptr::eq(of_queue().next().expect("itself"), &self.entries[i])
                        && !of_queue().any(|entry| entry.called)
                }
            };
            if is_told {
                if turn != Turn::Always {
                    self.entries[i].called = true;
                    begun += 1;
                }
                self.entries[i].observer.written();
            }
        }
        begun
    }
}
