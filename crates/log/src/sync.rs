//! What threads share without a lock; in models (`cfg(loom)`) the stand-ins that try every order of events.

#[cfg(not(loom))]
pub(crate) use {
    parking_lot::Mutex,
    std::{
        hint::spin_loop,
        sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering, fence},
        thread::{Builder, JoinHandle, Thread, park, park_timeout, yield_now},
    },
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering, fence},
    thread::{Builder, JoinHandle, Thread, park, yield_now},
};

/// In a model no time passes: who is not woken sleeps for ever.
#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    park();
}

/// As that of `parking_lot`.
#[cfg(loom)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(loom)]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no model goes on after a panic")
    }
}

#[cfg(loom)]
impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Runs `f` in every order of events in which a thread is interrupted at most three times where it need not be: that is
/// known to find nearly everything, in a fraction of the time.
#[cfg(all(test, loom))]
pub(crate) fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}
