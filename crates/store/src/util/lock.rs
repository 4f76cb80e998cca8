//! A mutex whose owner does not wait for it again. Such a thread would hang for ever and tell nobody; in debug builds, which the tests run,
//! it panics.

use parking_lot::{Mutex, MutexGuard};
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

/// See [the module](self).
pub(crate) struct Lock<T> {
    mutex: Mutex<T>,
    /// What [`this_thread`] is to the owner, or 0.
    #[cfg(debug_assertions)]
    owner: AtomicUsize,
}

/// A [`Lock`] that is locked until this is dropped.
pub(crate) struct Guard<'l, T> {
    guard: MutexGuard<'l, T>,
    #[cfg(debug_assertions)]
    owner: &'l AtomicUsize,
}

impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        Lock {
            mutex: Mutex::new(value),
            #[cfg(debug_assertions)]
            owner: AtomicUsize::new(0),
        }
    }

    /// Locks it, however long that takes.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.try_lock().unwrap_or_else(|| {
            self.assert_is_not_mine();
            self.guard(self.mutex.lock())
        })
    }

    /// Locks it if nobody has.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.mutex.try_lock().map(|guard| self.guard(guard))
    }

    /// Locks it, unless that takes longer.
    pub fn try_lock_for(&self, timeout: Duration) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| {
            self.assert_is_not_mine();
            self.mutex.try_lock_for(timeout).map(|guard| self.guard(guard))
        })
    }

    #[inline]
    fn guard<'l>(&'l self, guard: MutexGuard<'l, T>) -> Guard<'l, T> {
        #[cfg(debug_assertions)]
        self.owner.store(this_thread(), Relaxed);
        Guard {
            guard,
            #[cfg(debug_assertions)]
            owner: &self.owner,
        }
    }

    #[inline]
    fn assert_is_not_mine(&self) {
        #[cfg(debug_assertions)]
        assert_ne!(
            self.owner.load(Relaxed),
            this_thread(),
            "this thread waits for what it has locked itself"
        );
    }
}

/// A number that no other thread has meanwhile, and that is not 0.
#[cfg(debug_assertions)]
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Relaxed);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_itself_is_told() {
        let lock = Lock::new(1);
        let mut guard = lock.lock();
        *guard += 1;
        let waits = || drop(lock.try_lock_for(Duration::from_secs(1)));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock_for(Duration::ZERO).is_none()));
        });
        drop(guard);
        assert_eq!(*lock.lock(), 2);
    }
}
