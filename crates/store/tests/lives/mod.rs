//! What differs from one life of a store to the next.

use super::seeds::Rng;
use holdfast_store::Codec;

/// How a life of a history compresses values.
pub fn any_compression(seed: u64, life: u64) -> Option<Codec> {
    match Rng(seed << 8 | life).below(6) {
        0 | 1 => Some(Codec::Lz4),
        2 => Some(Codec::Zstd(3)),
        _ => None,
    }
}
