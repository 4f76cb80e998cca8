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
pub enum ChangeKind {
    /// It, or its value, or its expiry was changed, or it was removed, by the transaction's will.
    Written,
    /// Of a stream, the groups were changed, or what they were given: nobody who reads or watches it is told of that.
    Regrouped,
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
pub struct ChangeFilter(u8);

impl ChangeFilter {
    /// Everything that changes a key.
    pub const WRITTEN: ChangeFilter = ChangeFilter(1);
    /// [`ChangeKind::Added`].
    pub const ADDED: ChangeFilter = ChangeFilter(2);
    /// [`ChangeKind::Expired`], [`ChangeKind::FieldsExpired`] and [`ChangeKind::LastFieldExpired`].
    pub const EXPIRED: ChangeFilter = ChangeFilter(4);
    /// [`ChangeKind::Missed`].
    pub const MISSED: ChangeFilter = ChangeFilter(8);
    /// [`ChangeKind::Evicted`].
    pub const EVICTED: ChangeFilter = ChangeFilter(16);

    /// Whether nobody wants to know anything.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, kind: ChangeKind) -> bool {
        let bits = match kind {
            ChangeKind::Written | ChangeKind::Regrouped => ChangeFilter::WRITTEN,
            ChangeKind::Added => ChangeFilter::ADDED,
            ChangeKind::Expired | ChangeKind::FieldsExpired | ChangeKind::LastFieldExpired => {
                ChangeFilter::EXPIRED | ChangeFilter::WRITTEN
            }
            ChangeKind::Missed => ChangeFilter::MISSED,
            ChangeKind::Evicted => ChangeFilter::EVICTED | ChangeFilter::WRITTEN,
        };
        self.0 & bits.0 != 0
    }
}

impl BitOr for ChangeFilter {
    type Output = ChangeFilter;
    fn bitor(self, more: ChangeFilter) -> ChangeFilter {
        ChangeFilter(self.0 | more.0)
    }
}

/// One thing that was done to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was done.
    pub kind: ChangeKind,
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
    pub fn wanted(&self) -> ChangeFilter {
        ChangeFilter(self.wanted.load(Relaxed))
    }

    /// Says what is wanted from now on.
    pub fn want(&self, wanted: ChangeFilter) {
        self.wanted.store(wanted.0, Relaxed);
    }

    /// Says who is told. Works once.
    pub fn set_follow(&self, follow: Follow) {
        let first = self.follow.set(follow).is_ok();
        debug_assert!(first, "there is one follower");
    }

    /// Calls the follower with what was done, which is durable once the log is beyond `wait_lsn`.
    pub fn publish(&self, changes: Vec<Change>, wait_lsn: Lsn) {
        if let Some(follow) = self.follow.get() {
            follow(changes, wait_lsn);
        }
    }
}
