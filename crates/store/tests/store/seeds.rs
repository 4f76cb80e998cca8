//! Random tests that can be repeated: `HOLDFAST_SEEDS=1000` runs the long form, `HOLDFAST_SEED=n` one seed.

use std::{env, panic};

/// Numbers that look random and follow from a seed (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Runs a test with several seeds: as many as `HOLDFAST_SEEDS` says, or with the one that `HOLDFAST_SEED` names. Returns how
/// many there were: what they came across can be asked only if there were enough.
pub fn with_seeds(seeds: u64, test: fn(u64)) -> u64 {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(seeds),
    };
    for seed in seeds.clone() {
        if let Err(panic) = panic::catch_unwind(|| test(seed)) {
            eprintln!("replay with HOLDFAST_SEED={seed}");
            panic::resume_unwind(panic);
        }
    }
    seeds.end - seeds.start
}
