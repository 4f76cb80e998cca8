//! The monotonic clock, for what is timed as often as every command.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;
const NANOS_PER_MS: u64 = 1_000_000;

/// A moment on the system's monotonic clock, as [`std::time::Instant`] is one, but as a single number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// This moment.
    #[inline]
    pub fn now() -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        Moment { ns: time.tv_sec as u64 * NANOS + time.tv_nsec as u64 }
    }

    /// So many nanoseconds later.
    #[inline]
    pub fn plus_ns(self, ns: u64) -> Moment {
        Moment { ns: self.ns + ns }
    }

    /// Nanoseconds from an earlier moment until this one; 0 if it is later.
    #[inline]
    pub fn ns_since(self, earlier: Moment) -> u64 {
        self.ns.saturating_sub(earlier.ns)
    }

    /// The same in whole milliseconds.
    #[inline]
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.ns_since(earlier) / NANOS_PER_MS
    }

    /// Nanoseconds from this moment until now.
    #[inline]
    pub fn elapsed_ns(self) -> u64 {
        Moment::now().ns_since(self)
    }

    /// How long ago it was.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(self.elapsed_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn passes_as_instants_do() {
        let (before, first) = (Instant::now(), Moment::now());
        std::thread::sleep(Duration::from_millis(2));
        let (took, all) = (first.elapsed(), before.elapsed());
        assert!(took >= Duration::from_millis(2) && took <= all, "{took:?} of {all:?}");
        let later = first.plus_ns(5);
        assert!(later > first);
        assert_eq!((later.ns_since(first), first.ns_since(later)), (5, 0));
    }
}
