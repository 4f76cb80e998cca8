//! What is known of the keys that scripts meet.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

/// Whether a script has always locked all that it needs when it began, as far as that is known. What does not may want,
/// when it has written, what another such has locked, and that one the other way round: they write one after the other.
#[derive(Clone, Debug, Default)]
pub struct NamesKeys(Arc<AtomicU8>);

impl NamesKeys {
    const YES: u8 = 1;
    const NO: u8 = 2;

    /// Whether it is known that it does.
    pub fn is_known(&self) -> bool {
        self.0.load(Relaxed) == NamesKeys::YES
    }

    /// It has come to its end and has written, with what it had locked from the beginning.
    pub fn confirm(&self) {
        // Never again after it has met another key.
        let _ = self.0.compare_exchange(0, NamesKeys::YES, Relaxed, Relaxed);
    }

    /// It has met a key that it has not named.
    pub fn deny(&self) {
        self.0.store(NamesKeys::NO, Relaxed);
    }
}
