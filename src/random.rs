//! For commands that choose at random: numbers that come fast and are no secret.

use crate::{answer::Stop, call::Call};
use holdfast_resp::Writer;
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

/// Calls `each` to write a part of the reply, `times` times. How often is cheap for a client to say, so that the reply
/// is limited.
pub fn repeat(call: &mut Call, times: u64, mut each: impl FnMut(&mut Writer)) -> Result<(), Stop> {
    /// Less than a second's work, which holds up who wants the same keys.
    const BYTES_MAX: usize = 256 << 20;
    let start = call.out.written().len();
    let limit = &call.turn.worker.server.output_limits[call.session.client.class() as usize];
    for _ in 0..times {
        each(&mut call.out);
        let end = call.out.written().len();
        if end - start > BYTES_MAX {
            return Err(Stop::new("ERR the reply would be too long"));
        }
        if !call.session.in_script && limit.exceeds_hard(end) {
            // The client is disconnected for it, whatever would follow.
            break;
        }
    }
    Ok(())
}
