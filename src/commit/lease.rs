//! The lease of a server that leads others: until when what it has read may be told, since no other one leads.

use holdfast_store::Io;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::SeqCst},
};

/// Until when what was read may be told. Whoever reads looks when it has read: another server may have begun to lead before.
pub struct Lease {
    io: Arc<dyn Io>,
    until_us: AtomicU64,
    /// Wakes those whose replies wait for it.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Lease {
    /// One that holds not yet. Its clock is the machine's.
    pub fn new(io: Arc<dyn Io>) -> Lease {
        Lease { io, until_us: AtomicU64::new(0), wake: OnceLock::new() }
    }

    /// Whether no other server has led up to now.
    #[inline]
    pub fn holds(&self) -> bool {
        self.io.monotonic_us() < self.until_us.load(SeqCst)
    }

    /// Holds until then, in microseconds of the clock; wakes those whose replies wait for that.
    pub fn renew(&self, until_us: u64) {
        self.until_us.store(until_us, SeqCst);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// What wakes those whose replies wait for it.
    pub(super) fn on_renewal(&self, wake: impl Fn() + Send + Sync + 'static) {
        assert!(self.wake.set(Box::new(wake)).is_ok(), "one server has it");
    }
}
