//! Random input for as long as you like: the targets are this package's tests. `guided` has the same with input that a
//! fuzzer chooses by what it reaches in the code.
//!
//! Each test runs for `HOLDFAST_FUZZ_SECONDS` (2 if not set) with one seed after another. A finding names its seed, and
//! `HOLDFAST_SEED` repeats it. What ends the process is found again from the last seed that was printed on:
//! `HOLDFAST_SEED=n HOLDFAST_FUZZ_SECONDS=60`.

pub mod replay;
pub mod replies;
pub mod requests;

use std::{
    env,
    io::{self, Write},
    panic::{RefUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How often the seed is printed.
const PRINT_EVERY: Duration = Duration::from_secs(20);

/// Runs a target with one seed after another until the time is over.
pub fn fuzz(target: impl Fn(&mut Rng) + RefUnwindSafe) {
    let (seed, seconds) = (number("HOLDFAST_SEED"), number("HOLDFAST_FUZZ_SECONDS"));
    if let (Some(seed), None) = (seed, seconds) {
        return target(&mut Rng::new(seed));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let mut seed = seed.unwrap_or(now.as_nanos() as u64);
    let time = Duration::from_secs(seconds.unwrap_or(2));
    let (started, mut printed, mut runs) = (Instant::now(), None::<Instant>, 0);
    while started.elapsed() < time {
        if printed.is_none_or(|printed| printed.elapsed() > PRINT_EVERY) {
            // At once, and not with the output of a test that has failed, which nobody prints if the process ends.
            writeln!(io::stderr(), "seeds from HOLDFAST_SEED={seed}").expect("stderr");
            printed = Some(Instant::now());
        }
        if let Err(panic) = catch_unwind(|| target(&mut Rng::new(seed))) {
            eprintln!("repeat with HOLDFAST_SEED={seed}");
            resume_unwind(panic);
        }
        (seed, runs) = (seed.wrapping_add(1), runs + 1);
    }
    eprintln!("{runs} runs without a finding");
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A sequence of numbers: from given bytes as long as there are any, then from a seed (splitmix64).
pub struct Rng {
    given: Vec<u8>,
    seed: u64,
}

impl Rng {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { given: Vec::new(), seed }
    }

    /// The sequence that bytes decide, the last of them first.
    pub fn from_bytes(given: &[u8]) -> Rng {
        Rng { given: given.to_vec(), seed: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.draw_bytes(8)
    }

    /// The next number, made of so many of the given bytes.
    fn draw_bytes(&mut self, count: usize) -> u64 {
        if !self.given.is_empty() {
            let taken = self.given.split_off(self.given.len().saturating_sub(count));
            return taken.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        }
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        let bits = u64::BITS - end.leading_zeros();
        self.draw_bytes(bits.div_ceil(8) as usize) % end
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An index of something that has so many elements, at least one.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Up to `len_max` random bytes, mostly few.
    pub fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.index(len_max + 1);
        let len = self.index(len + 1);
        (0..len).map(|_| self.draw_bytes(1) as u8).collect()
    }

    /// Changes bytes in one of several ways: some overwritten, inserted, removed, or one bit inverted.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.index(bytes.len() + 1);
        match self.below(4) {
            0 => bytes.truncate(at),
            1 => {
                let inserted = self.bytes(8);
                bytes.splice(at..at, inserted);
            }
            2 => drop(bytes.drain(at..(at + self.index(8)).min(bytes.len()).max(at))),
            _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            _ => bytes.push(self.draw_bytes(1) as u8),
        }
    }
}
