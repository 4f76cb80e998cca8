//! What transactions did to keys, by the keys' names: for notifications and for the caches of clients.
//!
//! Nobody asks for it as a rule, and then a transaction keeps nothing: see [`Store::want_changes`].

use crate::{Store, shared::Shared, txn::Txn};
use holdfast_log::Lsn;
use std::{
    ops::BitOr,
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It, or its value, or its expiry was changed, or it was removed, by the transaction's will.
    Written,
    /// It was not there before.
    Added,
    /// It had expired and was removed.
    Expired,
    /// It was evicted.
    Evicted,
    /// Fields of it had expired and were removed.
    FieldsExpired,
    /// With its last field, it was removed itself.
    LastFieldExpired,
    /// It was looked for and was not there.
    Missed,
}

/// A set of kinds of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted(u8);

impl Wanted {
    /// Everything that changes a key.
    pub const WRITTEN: Wanted = Wanted(1);
    /// [`What::Added`].
    pub const ADDED: Wanted = Wanted(2);
    /// [`What::Expired`], [`What::FieldsExpired`] and [`What::LastFieldExpired`].
    pub const EXPIRED: Wanted = Wanted(4);
    /// [`What::Missed`].
    pub const MISSED: Wanted = Wanted(8);
    /// [`What::Evicted`].
    pub const EVICTED: Wanted = Wanted(16);

    fn has(self, what: What) -> bool {
        let bits = match what {
            What::Written => Wanted::WRITTEN,
            What::Added => Wanted::ADDED,
            What::Expired | What::FieldsExpired | What::LastFieldExpired => Wanted::EXPIRED | Wanted::WRITTEN,
            What::Missed => Wanted::MISSED,
            What::Evicted => Wanted::EVICTED | Wanted::WRITTEN,
        };
        self.0 & bits.0 != 0
    }
}

impl BitOr for Wanted {
    type Output = Wanted;
    fn bitor(self, more: Wanted) -> Wanted {
        Wanted(self.0 | more.0)
    }
}

/// One thing that was done to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was done.
    pub what: What,
    /// The database, by the number that clients know it by ([`Store::database`]).
    pub db: u8,
    /// The key.
    pub key: Vec<u8>,
}

/// Is told what a transaction did in the order in which it was done, and the LSN that the log must be durable beyond
/// for it to last. It is called with the transaction's partitions locked, so that what is done to a key is told in the
/// order of its doing; it must be short and must not use the store.
pub type Follow = Box<dyn Fn(Vec<Change>, Lsn) + Send + Sync>;

/// Who wants to know what.
#[derive(Default)]
pub(crate) struct Following {
    wanted: AtomicU8,
    follow: OnceLock<Follow>,
}

impl Following {
    #[inline]
    pub fn wanted(&self) -> Wanted {
        Wanted(self.wanted.load(Relaxed))
    }
}

/// A transaction's changes.
pub(crate) struct Changes {
    wanted: Wanted,
    list: Vec<Change>,
}

impl Changes {
    #[inline]
    pub fn new(shared: &Shared) -> Changes {
        Changes { wanted: shared.following.wanted(), list: Vec::new() }
    }

    /// Looks again what is wanted: who wants to know of a change of a key says so before he looks at it, so that this is
    /// seen with the key's partition locked, and maybe not before.
    #[inline]
    pub fn follow(&mut self, shared: &Shared) {
        self.wanted = shared.following.wanted();
    }

    #[inline]
    pub fn add(&mut self, what: What, db: u8, key: &[u8]) {
        if self.wanted.has(what) {
            self.list.push(Change { what, db, key: key.to_vec() });
        }
    }

    /// Whether the names of keys to which this is done are wanted.
    pub fn want_names(&self, what: What) -> bool {
        self.wanted.has(what)
    }

    /// Takes them, with the databases by the numbers that clients know; those of databases that are being freed are
    /// nobody's business.
    #[inline]
    pub fn take(&mut self, shared: &Shared) -> Vec<Change> {
        if self.list.is_empty() { Vec::new() } else { self.take_some(shared) }
    }

    #[cold]
    fn take_some(&mut self, shared: &Shared) -> Vec<Change> {
        let by_number = |change: Change| Some(Change { db: shared.databases.logical(change.db)?, ..change });
        std::mem::take(&mut self.list).into_iter().filter_map(by_number).collect()
    }

    /// Tells what was not taken.
    #[inline]
    pub fn tell(&mut self, shared: &Shared, gate: Lsn) {
        if !self.list.is_empty() {
            let list = self.take_some(shared);
            if let Some(follow) = shared.following.follow.get() {
                follow(list, gate);
            }
        }
    }
}

impl Store {
    /// Has transactions that begin from now on note what they do to keys. Where they do not end with
    /// [`Txn::commit_then`], [`Store::follow_changes`] is told.
    pub fn want_changes(&self, wanted: Wanted) {
        self.shared().following.wanted.store(wanted.0, Relaxed);
    }

    /// Has `follow` told what transactions did, maintenance included. Works once.
    pub fn follow_changes(&self, follow: Follow) {
        let first = self.shared().following.follow.set(follow).is_ok();
        debug_assert!(first, "there is one follower");
    }
}

impl Txn<'_> {
    /// What was done so far, if it is wanted, and not taken before.
    #[inline]
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.take(self.shared())
    }

    /// As [`Txn::commit`], and calls `then` with what was done and the LSN while the partitions are still locked, which they
    /// are until the transaction is dropped, or by [`Txn::unlock`]. It is not taken, since to move it costs, but nothing
    /// can be done with it any more.
    #[inline]
    pub fn commit_then(&mut self, then: impl FnOnce(Vec<Change>, Lsn)) -> Lsn {
        let changes = self.take_changes();
        let gate = self.end();
        then(changes, gate);
        gate
    }
}
