//! What a client sends, in any pieces.
#![no_main]

use holdfast_fuzz::{Rng, requests};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, &[u8])| {
    let (seed, input) = data;
    requests::compare_pieces(input, &mut Rng::new(seed));
    requests::compare_lengths(input);
});
