//! Random choices that a seed repeats.

use std::{
    env,
    time::{SystemTime, UNIX_EPOCH},
};

/// A sequence of numbers from a seed (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// So many bytes that a seed repeats, and that do not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The seed of this run, printed: `HOLDFAST_SEED`, or another one each time.
pub fn seed() -> u64 {
    let seed = number("HOLDFAST_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as u64
    });
    eprintln!("HOLDFAST_SEED={seed}");
    seed
}

/// How much of something a test does: the number in the environment variable `name`, or that of the normal run.
pub fn long_form(name: &str, normal: u64) -> u64 {
    number(name).unwrap_or(normal)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
