//! What who waits for a partition must know of who else does ([`locks`](super::locks)).

use crate::util::lock::Lock;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// No partition.
pub(crate) const NONE: u32 = u32::MAX;

/// Lets one transaction at a time wait for more partitions than it began with.
pub(crate) struct Growth {
    pub turn: Lock<()>,
    /// The partition that the transaction whose turn it is waits for.
    pub wanted: AtomicU32,
    /// Whether that one takes so long that nobody should wait for it who can do something else.
    pub turn_is_long: AtomicBool,
    /// The same of who has locked a partition.
    pub held_long: Box<[AtomicBool]>,
}

impl Growth {
    pub fn new(partitions: usize) -> Growth {
        Growth {
            turn: Lock::new(()),
            wanted: AtomicU32::new(NONE),
            turn_is_long: AtomicBool::new(false),
            held_long: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}
