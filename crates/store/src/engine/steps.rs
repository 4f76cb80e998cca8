//! Where tests stop what the store does by itself, to do something else meanwhile.

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

    /// Sets what is called; has no effect a second time.
    pub fn observe(&self, observer: impl Fn(&[u16]) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(observer));
    }
}
