//! What the tests of the collections share.

use holdfast_heap::{Arena, Heap, HeapOptions, Tx};
use holdfast_io::{Io, SimIo};

use super::{
    Context, Hasher, Limits,
    any::{self, Destroyed},
};

/// The only arena of a heap of that many bytes.
pub(crate) fn arena(max_bytes: u64) -> Arena {
    let file = SimIo::new(1).open("heap", true).expect("a simulated file");
    let (_, mut arenas) = Heap::create(file, HeapOptions { max_bytes, arenas: 1 }).expect("a heap");
    arenas.pop().expect("one arena")
}

/// A context at time 0.
pub(crate) fn context<'a>(hasher: &'a Hasher, limits: &'a Limits) -> Context<'a> {
    Context { hasher, limits, now_ms: 0, expired_ms: 0 }
}

/// Destroys an object a few blocks at a time.
pub(crate) fn destroy(arena: &mut Arena, tx: &mut Tx, obj: u64) {
    while any::destroy_some(arena, tx, obj, &mut 3) == Destroyed::More {
        tx.committed();
        tx.clear();
    }
    tx.committed();
    tx.clear();
}

/// Numbers that look random and follow from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// Prints the seed, which a failing test then shows.
    pub fn new(seed: u64) -> Random {
        eprintln!("seed {seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
