//! What transactions did to keys, by the keys' names: for notifications and for the caches of clients.
//!
//! Nobody asks for it as a rule, and then a transaction keeps nothing: see [`crate::Store::want_changes`].

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

    /// Whether nobody wants to know anything.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, what: What) -> bool {
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
    /// The database, by the number that clients know it by ([`crate::Store::database`]).
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

    /// Says what is wanted from now on.
    pub fn want(&self, wanted: Wanted) {
        self.wanted.store(wanted.0, Relaxed);
    }

    /// Says who is told. Works once.
    pub fn set_follow(&self, follow: Follow) {
        let first = self.follow.set(follow).is_ok();
        debug_assert!(first, "there is one follower");
    }

    /// Tells what was done, by what is durable beyond `gate`.
    pub fn tell(&self, changes: Vec<Change>, gate: Lsn) {
        if let Some(follow) = self.follow.get() {
            follow(changes, gate);
        }
    }
}
