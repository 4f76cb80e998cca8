//! What a server sends to the client library, in any pieces.
#![no_main]

use holdfast_fuzz::{Rng, replies};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, &[u8])| {
    let (seed, input) = data;
    replies::compare_pieces(input, &mut Rng::new(seed));
});
