//! What the operator is told when the server begins to refuse writes, and when that ends: why, with figures.
//!
//! Who refuses a command only counts it, since it may hold locks; the log is written once a second. So however many
//! writes are refused, each time costs one line at its start and one at its end.

use crate::admin::log::log;
use holdfast_store::{Admission, Limit, Store};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The log or its medium is full.
    Space,
    /// Data take as much memory as they may.
    Memory,
    /// The log has failed.
    Failure,
}

/// All of them.
pub const CAUSES: [Cause; 3] = [Cause::Space, Cause::Memory, Cause::Failure];
/// For so many seconds nothing must have been refused before writes count as taken again.
const QUIET: u32 = 5;
/// Bytes of log that must be free for the log not to count as full.
const ROOM: usize = 64 << 10;

/// Writes that are refused, by cause.
#[derive(Default)]
pub struct Refusals([State; CAUSES.len()]);

#[derive(Default)]
struct State {
    /// Commands that were refused.
    count: AtomicU64,
    /// Some were refused since the last look.
    noted: AtomicBool,
    /// Seconds, and one, since some were; 0: the operator knows of none.
    told: AtomicU32,
}

impl Refusals {
    /// A command is refused. Waits for nothing.
    pub fn count(&self, cause: Cause) {
        let state = &self.0[cause as usize];
        state.count.fetch_add(1, Relaxed);
        state.noted.store(true, Relaxed);
    }

    /// Commands that were refused for a cause.
    pub fn counted(&self, cause: Cause) -> u64 {
        self.0[cause as usize].count.load(Relaxed)
    }

    /// Counts from nothing again.
    pub fn reset_counts(&self) {
        self.0.iter().for_each(|state| state.count.store(0, Relaxed));
    }

    /// Why writes are refused now, or were a moment ago, with figures.
    pub fn current(&self, store: &Store) -> Vec<(Cause, String)> {
        let is_current = |cause: &Cause| self.0[*cause as usize].told.load(Relaxed) > 0 || cause.holds(store);
        CAUSES.into_iter().filter(is_current).map(|cause| (cause, cause.describe(store))).collect()
    }

    /// Logs the changes for the operator. To be called once a second, by one thread.
    pub fn report(&self, store: &Store) {
        for line in self.lines(store) {
            log!(Warning, "{line}");
        }
    }

    /// What is to be told since the last call.
    pub fn lines(&self, store: &Store) -> Vec<String> {
        let mut lines = Vec::new();
        for cause in CAUSES {
            let state = &self.0[cause as usize];
            let told = state.told.load(Relaxed);
            // A failure is worth a line before anybody writes.
            if state.noted.swap(false, Relaxed) || cause == Cause::Failure && cause.holds(store) {
                state.told.store(1, Relaxed);
                if told == 0 {
                    lines.push(format!("Refusing {}: {}", cause.refused(), cause.describe(store)));
                }
            } else if told > QUIET && !cause.holds(store) {
                state.told.store(0, Relaxed);
                lines.push(format!("No longer refusing {}: {}", cause.refused(), cause.describe(store)));
            } else if (1..=QUIET).contains(&told) {
                state.told.store(told + 1, Relaxed);
            }
        }
        lines
    }
}

impl Cause {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Space => "space",
            Cause::Memory => "memory",
            Cause::Failure => "failure",
        }
    }

    fn refused(self) -> &'static str {
        match self {
            Cause::Space | Cause::Memory => "writes that make data grow",
            Cause::Failure => "all writes",
        }
    }

    /// Whether a write would be refused now.
    fn holds(self, store: &Store) -> bool {
        match self {
            Cause::Space => store.log().admit(ROOM) == Admission::Full,
            Cause::Memory => store.is_out_of_memory(),
            Cause::Failure => store.log().failed().is_some(),
        }
    }

    /// How things stand, in figures. Locks no partition: a script that takes long may have locked it in this thread.
    fn describe(self, store: &Store) -> String {
        match self {
            Cause::Space => {
                let usage = store.log().usage();
                let live = store.log().live_bytes().max(0);
                let log = format!("the log takes {} bytes, {live} of them live", usage.bytes);
                match usage.limited_by {
                    Limit::Options => format!("{log}, of {} that it may (log-max-size)", usage.bytes_max),
                    Limit::Budget => {
                        let disk = store.disk_usage();
                        format!("{log}; the data folder takes {} of {} (maxdisk)", disk.bytes, disk.bytes_max)
                    }
                    Limit::OpenFiles => {
                        format!("{log}, and the process may not have more files open (ulimit -n)")
                    }
                    Limit::Medium { free_bytes: Some(free) } => {
                        format!(
                            "{log}; {free} bytes of the medium are free, of which some are kept for checkpoints"
                        )
                    }
                    Limit::Medium { free_bytes: None } => {
                        format!("{log}; the medium says that it is full, but not how much of it is free")
                    }
                }
            }
            Cause::Memory => {
                let (data, max) = store.memory_of_data();
                format!("data take {data} bytes of memory, of {max} that they may (maxmemory)")
            }
            Cause::Failure => match store.log().failed() {
                Some(why) => format!("the log has failed, until a restart: {why}"),
                None => "the log works".into(),
            },
        }
    }
}
