//! Where tests stop what the store does by itself, to do something else meanwhile.

use crate::{
    maintenance::ExpireHand,
    partition::Partition,
    store::{Inner, Store},
};
use holdfast_io::Result;
use parking_lot::MutexGuard;
use std::sync::OnceLock;

/// What is called before partitions are locked, unless by a transaction that does not wait.
#[derive(Default)]
pub(crate) struct Steps(OnceLock<Box<Observer>>);

type Observer = dyn Fn(&[u16]) + Send + Sync;

impl Steps {
    #[inline]
    pub fn before(&self, partitions: &[u16]) {
        if let Some(observer) = self.0.get() {
            observer(partitions);
        }
    }
}

impl Inner {
    /// Locks a partition for a step of what the store does by itself.
    pub fn enter(&self, partition: u16) -> MutexGuard<'_, Partition> {
        self.steps.before(&[partition]);
        self.partitions[usize::from(partition)].lock()
    }

    /// All partitions, each locked in its turn.
    pub fn enter_each(&self) -> impl Iterator<Item = MutexGuard<'_, Partition>> {
        (0..self.partitions.len() as u16).map(|number| self.enter(number))
    }
}

impl Store {
    /// Has `observer` called in each thread that is about to lock partitions for a step of a checkpoint, of cleaning, expiry,
    /// freezing or sweeping, or in [`Store::begin`]: for tests, which may let it wait there. Has no effect a second time.
    pub fn on_step(&self, observer: impl Fn(&[u16]) + Send + Sync + 'static) {
        let _ = self.inner.steps.0.set(Box::new(observer));
    }

    /// Looks for expired keys and fields in all partitions, a slice of time in all. The maintenance thread does so itself.
    pub fn expire(&self) -> Result<()> {
        self.inner.expire(&mut ExpireHand::new(self.inner.partitions.len())).map(drop)
    }
}
