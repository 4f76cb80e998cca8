//! What differs from one life of a store to the next.

use crate::seeds::Rng;
use holdfast_store::{Codec, CompressionSetting, HomeMethod, Io, SimIo};

/// A machine of one of the kinds of media.
pub fn any_machine(seed: u64) -> SimIo {
    if Rng(seed << 4 | 1).below(4) == 0 { SimIo::on_scm(seed) } else { SimIo::new(seed) }
}

/// Further folders that are named at the start of a life, one that lies below the others with a minus in front; those that were named once
/// are found without.
pub fn any_folders(seed: u64, life: u64) -> &'static [&'static str] {
    match Rng(seed << 16 | life).below(10) {
        6 => &["second"],
        7 => &["second", "third"],
        8 => &["-flash"],
        9 => &["second", "-flash"],
        _ => &[],
    }
}

/// Whether the heap is to lie below, too, if there is such a folder.
pub fn any_heap_below(seed: u64, life: u64) -> bool {
    Rng(seed << 20 | life).below(3) == 0
}

/// How a life of a history compresses values.
pub fn any_compression(seed: u64, life: u64) -> Option<Codec> {
    match Rng(seed << 8 | life).below(6) {
        0 | 1 => Some(Codec::Lz4),
        2 => Some(Codec::Zstd(3)),
        _ => None,
    }
}

/// How it goes on to do so from some time on.
pub fn another_compression(seed: u64, rng: &mut Rng) -> CompressionSetting {
    CompressionSetting {
        codec: any_compression(seed, rng.next()),
        len_min: 16 + rng.below(100) as usize,
        dictionaries: rng.chance(2),
    }
}

/// Where the heap is in a life of a history: in storage-class memory it may be changed in place, one way or another.
pub fn any_home(sim: &SimIo, seed: u64, life: u64) -> Option<HomeMethod> {
    sim.scm()?;
    match Rng(seed << 12 | life).below(5) {
        0 | 1 => None,
        2 => Some(HomeMethod::Cow),
        3 => Some(HomeMethod::Lat),
        _ => Some(HomeMethod::Latb),
    }
}
