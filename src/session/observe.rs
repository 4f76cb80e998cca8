//! Keys that a session observes: those that a blocking command waits for, and those of WATCH.

use holdfast_store::{Observer, ObserverId, Store, Turn, Txn};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::*},
    },
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// Is set when an observed key is written, by whichever thread writes it.
#[derive(Default)]
pub struct Signal {
    set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Observer for Signal {
    fn written(&self) {
        self.set.store(true, Release);
        if let Some(waker) = self.waker.lock().expect("no holder panics").take() {
            waker.wake();
        }
    }
}

impl Signal {
    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.set.load(Acquire)
    }

    /// Ready once it is set, which clears it.
    pub fn poll(&self, cx: &Context) -> Poll<()> {
        *self.waker.lock().expect("no holder panics") = Some(cx.waker().clone());
        // After the waker is in place, so that no signal falls between.
        if self.set.swap(false, AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

struct Observed {
    /// The number of its database, as clients know it.
    db: u8,
    key: Vec<u8>,
    id: ObserverId,
    /// Whether the key was there when the observation began.
    existed: bool,
}

/// Keys that are observed together.
#[derive(Default)]
struct Keys {
    signal: Arc<Signal>,
    keys: Vec<Observed>,
}

impl Keys {
    fn add(&mut self, txn: &mut Txn, db: u8, key: &[u8], turn: Turn) {
        if self.keys.iter().any(|observed| observed.db == db && observed.key == key) {
            return;
        }
        let existed = txn.exists(txn.database(db), key);
        let id = txn.observe(db, key, turn, self.signal.clone());
        self.keys.push(Observed { db, key: key.to_vec(), id, existed });
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|observed| observed.key.as_slice())
    }
}

/// What a blocking command waits for. The client that has waited longest in a queue at a key is told first, and until it has
/// looked no other command touches the key.
pub struct Waiting {
    keys: Keys,
    /// When it gives up.
    pub until: Option<Instant>,
}

impl Waiting {
    /// Begins to wait for some keys of a database, in the transaction that found them wanting.
    pub fn begin<'k>(
        txn: &mut Txn,
        db: u8,
        keys: impl Iterator<Item = &'k [u8]>,
        turn: Turn,
        until: Option<Instant>,
    ) -> Self {
        let mut waiting = Waiting { keys: Keys::default(), until };
        for key in keys {
            waiting.keys.add(txn, db, key, turn);
        }
        waiting
    }

    /// What it waits for: keys, and the numbers of their databases as clients know them.
    pub fn keys(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.keys.keys.iter().map(|observed| (observed.db, observed.key.as_slice()))
    }

    /// Is set when there may be something to take.
    pub fn signal(&self) -> Arc<Signal> {
        self.keys.signal.clone()
    }

    /// It has looked, found nothing, and waits on. What is at the keys may be for the next client.
    pub fn go_on(&self, txn: &mut Txn) {
        for Observed { db, key, id, .. } in &self.keys.keys {
            txn.pass_on(*db, key, *id);
        }
    }

    /// Waits no more. What is left at the keys is the next client's.
    pub fn end(&self, txn: &mut Txn) {
        for Observed { db, key, id, .. } in &self.keys.keys {
            txn.unobserve(*db, key, *id);
        }
    }

    /// As [`Waiting::end`], for a client that has gone away; whether it could be done.
    #[must_use]
    pub fn abandon(&self, store: &Store) -> bool {
        // WAIT waits for none.
        self.keys.keys.is_empty()
            || store.try_begin_keys(self.keys.names()).map(|mut txn| self.end(&mut txn)).is_ok()
    }
}

/// What WATCH watches.
#[derive(Default)]
pub struct Watched(Keys);

impl Watched {
    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.0.keys.is_empty()
    }

    /// Watches what another process has watched: since nobody has looked meanwhile, it counts as changed.
    pub fn lost() -> Watched {
        let lost = Watched::default();
        lost.0.signal.set.store(true, Release);
        lost
    }

    /// Whether something was watched, and may have changed since.
    pub fn is_lost(&self) -> bool {
        self.is_empty() && self.0.signal.is_set()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.0.keys.len()
    }

    /// Watches one more key, whose partition the transaction has locked.
    pub fn add(&mut self, txn: &mut Txn, db: u8, key: &[u8]) {
        self.0.add(txn, db, key, Turn::Always);
    }

    /// The keys, whose partitions EXEC has to lock.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.names()
    }

    /// Whether a key was written, or has expired, since it was watched.
    pub fn is_changed(&self, txn: &mut Txn) -> bool {
        self.0.signal.is_set()
            || self.0.keys.iter().any(|o| o.existed && !txn.exists(txn.database(o.db), &o.key))
    }

    /// Watches nothing any more; the transaction has locked the keys' partitions.
    pub fn clear(&mut self, txn: &mut Txn) {
        for Observed { db, key, id, .. } in std::mem::take(self).0.keys {
            txn.unobserve(db, &key, id);
        }
    }

    /// Watches nothing any more; whether it could be done.
    #[must_use]
    pub fn forget(&mut self, store: &Store) -> bool {
        let begun = store.try_begin_keys(self.keys());
        begun.map(|mut txn| self.clear(&mut txn)).is_ok()
    }
}
