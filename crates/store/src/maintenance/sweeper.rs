//! Sweeping: what was flushed, or was large and is gone, is freed in slices.

use crate::{engine::Engine, txn::Txn};
use holdfast_log::{Admission, Purpose};

/// Bytes of log that freeing a slice of garbage may take.
pub(crate) const SWEEP_BYTES: usize = 256 << 10;

/// Frees a slice of garbage in each partition; whether there may be more and room in the log to go on.
pub fn sweep(engine: &Engine) -> bool {
    let (log, now_ms) = (&engine.shared.log, engine.shared.io.now_ms());
    let left_over = engine.shared.left_over();
    let mut more = false;
    for number in engine.numbers() {
        if log.admit_for(SWEEP_BYTES, Purpose::Remove) != Admission::Ok {
            more = false;
            break;
        }
        engine.fetch_until_present(|| Txn::begin(engine, &[number], now_ms).absent_to_sweep());
        more |= Txn::begin(engine, &[number], now_ms).sweep();
    }
    if more {
        log.kick();
    } else if engine.shared.is_sweeping() {
        // Before those who wait for it are told.
        engine.shared.judge_memory();
        engine.shared.set_swept(left_over);
    }
    more
}
