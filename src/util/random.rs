//! For commands that choose at random: numbers that come fast and are no secret.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// A random number of this thread's sequence (SplitMix64), which the operating system has seeded.
pub fn random() -> u64 {
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
