//! For commands that choose at random: numbers that come fast and are no secret.

/// A random number of this thread's sequence.
pub fn random() -> u64 {
    fastrand::u64(..)
}
