//! Clock marks in the log, so that a restore can tell how late it was where ([`payload::clock_mark`]): one a second, as long as
//! something is written.

use crate::{engine::Engine, format::payload};
use holdfast_log::{Admission, Lsn, Purpose, batch_len};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::Ordering::Relaxed;

/// Milliseconds between two marks, at least.
const EVERY_MS: u64 = 1000;

/// When the last mark was made.
#[derive(Default)]
pub(crate) struct ClockMarks(Mutex<Last>);

#[derive(Default)]
struct Last {
    at_ms: u64,
    /// Where it ends.
    end: Lsn,
}

impl ClockMarks {
    /// Makes a mark, if it is time, and something was written since the last one.
    pub fn mark(&self, engine: &Engine) {
        let (log, last) = (&engine.shared.log, self.0.lock());
        let is_due = engine.shared.io.now_ms().abs_diff(last.at_ms) >= EVERY_MS && log.tail() != last.end;
        if is_due && log.admit_for(payload::encode_clock_mark(0).len(), Purpose::Write) == Admission::Ok {
            append(engine, last);
        }
    }

    /// Makes a mark whatever the time is, so that there is something to commit. Returns where it ends.
    pub fn force(&self, engine: &Engine) -> Lsn {
        append(engine, self.0.lock())
    }
}

fn append(engine: &Engine, mut last: MutexGuard<Last>) -> Lsn {
    let log = &engine.shared.log;
    // The clock is read first: all that comes behind the mark is later.
    let now_ms = engine.shared.io.now_ms();
    let mark = payload::encode_clock_mark(now_ms);
    let len = batch_len(mark.len());
    let end = log.append(&mark) + len;
    engine.counters.clock_marks.fetch_add(len, Relaxed);
    *last = Last { at_ms: now_ms, end };
    log.kick();
    end
}
