//! When keys were used last, or how often: for who asks, and for who must choose keys that are to go.
//!
//! It is kept where a use looks anyway, and takes no memory of its own: a cached copy has a *stamp* of 14 bits in its
//! header, a key without a copy a *mark* in place of the handle. None of it outlives the process.
//!
//! Time is counted in *ticks*: seconds where the last use is kept; where uses are counted, the periods after which a count
//! falls by one. A stamp is relative to the *base* of its chunk, which is a tick:
//!
//! | kept | stamp | means |
//! |---|---|---|
//! | last use | below [`AGES`] | how long before the base it was: exactly below 256 ticks, then in steps of 1/128 |
//! | last use | others | how long after the base it was, and [`AGES`] |
//! | count | all | the count, and the ticks from the base to when it was counted: it has fallen by those since the base |
//!
//! When the base is so old that no stamp reaches the present, the chunk gets a new one, and all its stamps with it.

use fastrand::Rng;

/// Bits of a stamp.
pub(crate) const STAMP_BITS: u32 = 14;
/// Ages that stamps can tell: `AGE_STEPS` for each doubling beyond the exact ones, up to 2^32 ticks.
const AGES: u32 = AGE_STEPS * 26;
const AGE_STEPS: u32 = 128;
/// Ticks from a base that stamps reach: hours.
const REACH: u32 = (1 << STAMP_BITS) - AGES;
/// The count of a new key, which so has its time to be used, and the greatest one. Both are Redis's.
const COUNT_NEW: u32 = 5;
const COUNT_MAX: u32 = 255;

/// Tells a mark from the handle of a copy.
pub(crate) const MARK: u32 = 1 << 31;
/// A mark that has a count and the tick when it was counted; else it is the tick of the last use. Ticks have as many bits as
/// are left, and wrap after years.
const MARK_COUNT: u32 = 1 << 30;
const MARK_USE_TICKS: u32 = MARK_COUNT - 1;
const MARK_COUNT_SHIFT: u32 = 22;
const MARK_COUNT_TICKS: u32 = (1 << MARK_COUNT_SHIFT) - 1;

/// Whether what is kept of an entry is the handle of a copy, not a mark or nothing.
#[inline]
pub fn is_copy(kept: u32) -> bool {
    kept != 0 && kept & MARK == 0
}

/// What is kept of the uses of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// When the last one was.
    Last,
    /// How many there were: Redis's logarithmic count of up to 255.
    Count {
        /// The greater, the more uses it takes to raise a count.
        log_factor: u32,
        /// Minutes after which a count falls by one; 0: it does not.
        decay_minutes: u32,
    },
}

impl Uses {
    fn are_counted(self) -> bool {
        self != Uses::Last
    }
}

/// How uses are kept, and from when on. Once counted, ticks go on from where they were when the period changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    uses: Uses,
    /// The tick from which on they are kept like this.
    since: u32,
    /// The minute from which on periods are counted, and the tick then.
    anchor: (u64, u32),
}

impl Method {
    pub fn new(now_ms: u64) -> Method {
        Method { uses: Uses::Last, since: (now_ms / 1000) as u32, anchor: (0, 0) }
    }

    /// Another one from now on.
    pub fn change(self, uses: Uses, now_ms: u64) -> Method {
        let minute = now_ms / 60_000;
        match (self.uses.are_counted(), uses.are_counted()) {
            (true, true) => Method { uses, anchor: (minute, self.tick(now_ms)), ..self },
            (false, true) => Method { uses, since: 0, anchor: (minute, 0) },
            (true, false) => Method::new(now_ms),
            (false, false) => self,
        }
    }

    #[inline]
    fn tick(self, now_ms: u64) -> u32 {
        match self.uses {
            Uses::Last => (now_ms / 1000) as u32,
            Uses::Count { decay_minutes: 0, .. } => self.anchor.1,
            Uses::Count { decay_minutes, .. } => {
                let minutes = (now_ms / 60_000).saturating_sub(self.anchor.0);
                self.anchor.1 + (minutes / u64::from(decay_minutes)) as u32
            }
        }
    }
}

/// What takes note of uses: one a partition, under its lock. What it knows of a key is a number: the tick of the last use,
/// or the count as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    method: Method,
    /// Now.
    tick: u32,
    random: Rng,
}

impl Meter {
    pub fn new(seed: u64) -> Meter {
        Meter { method: Method::new(0), tick: 0, random: Rng::with_seed(seed) }
    }

    /// Takes note as is said here from now on.
    pub fn follow(&mut self, method: Method) {
        self.method = method;
    }

    #[inline]
    pub fn set_now(&mut self, now_ms: u64) {
        self.tick = self.method.tick(now_ms);
    }

    pub fn tick(&self) -> u32 {
        self.tick
    }

    pub fn counts(&self) -> bool {
        self.method.uses.are_counted()
    }

    /// What is known of a key that is new.
    #[inline]
    pub fn new_key(&self) -> u32 {
        if self.counts() { COUNT_NEW } else { self.tick }
    }

    /// What is known of a key of which nothing is known: as much as if it had been new when uses began to be kept.
    pub fn unknown(&self) -> u32 {
        match self.counts() {
            true => COUNT_NEW.saturating_sub(self.tick - self.method.since),
            false => self.method.since,
        }
    }

    /// What is known of a key after one more use.
    #[inline]
    pub fn used(&mut self, known: u32) -> u32 {
        match self.method.uses {
            Uses::Last => self.tick,
            Uses::Count { log_factor, .. } => {
                let chances = u64::from(known.saturating_sub(COUNT_NEW)) * u64::from(log_factor) + 1;
                (known + u32::from(self.random.u64(..).is_multiple_of(chances))).min(COUNT_MAX)
            }
        }
    }

    /// A stamp after one more use.
    #[inline]
    pub fn touched(&mut self, stamp: u32, base: u32) -> u32 {
        let known = if self.counts() { self.read(stamp, base) } else { 0 };
        let known = self.used(known);
        self.stamp(known, base)
    }

    /// Whether stamps relative to this base can tell of now.
    #[inline]
    pub fn reaches(&self, base: u32) -> bool {
        self.tick.saturating_sub(base) < REACH
    }

    /// The stamp that says this, relative to a base from which stamps reach.
    #[inline]
    pub fn stamp(&self, known: u32, base: u32) -> u32 {
        if self.counts() {
            known + self.tick.saturating_sub(base)
        } else if known > base {
            AGES + (known - base).min(REACH - 1)
        } else {
            age(known, base)
        }
    }

    /// What a stamp says.
    #[inline]
    pub fn read(&self, stamp: u32, base: u32) -> u32 {
        if self.counts() {
            stamp.saturating_sub(self.tick.saturating_sub(base)).min(COUNT_MAX)
        } else if stamp >= AGES {
            base + (stamp - AGES)
        } else {
            aged(stamp, base)
        }
    }

    /// A mark after one more use.
    #[inline]
    pub fn touched_mark(&mut self, mark: u32) -> u32 {
        // Where only the last use counts, it is this one, whatever the mark says.
        let known = match self.counts() {
            true => self.read_mark(mark).unwrap_or_else(|| self.unknown()),
            false => 0,
        };
        let known = self.used(known);
        self.mark(known)
    }

    /// The mark that says this.
    pub fn mark(&self, known: u32) -> u32 {
        match self.counts() {
            true => MARK | MARK_COUNT | known << MARK_COUNT_SHIFT | self.tick & MARK_COUNT_TICKS,
            false => MARK | known & MARK_USE_TICKS,
        }
    }

    /// What a mark says; `None`: it is none, or was made when uses were kept in the other way.
    pub fn read_mark(&self, mark: u32) -> Option<u32> {
        if mark & MARK == 0 || (mark & MARK_COUNT != 0) != self.counts() {
            return None;
        }
        Some(match self.counts() {
            true => {
                let fallen = self.tick.wrapping_sub(mark) & MARK_COUNT_TICKS;
                (mark >> MARK_COUNT_SHIFT & COUNT_MAX).saturating_sub(fallen)
            }
            false => self.tick.wrapping_sub(self.tick.wrapping_sub(mark) & MARK_USE_TICKS),
        })
    }

    /// Seconds since the last use, or since none is known of; `None`: uses are counted.
    pub fn idle_s(&self, known: u32) -> Option<u32> {
        (!self.counts()).then(|| self.tick.saturating_sub(known))
    }

    /// The count of uses, if they are counted.
    pub fn count(&self, known: u32) -> Option<u8> {
        self.counts().then_some(known as u8)
    }

    /// How cold a key is: the seconds since its last use, or how much its count falls short of the greatest.
    pub fn coldness(&self, known: u32) -> u32 {
        if self.counts() { COUNT_MAX.saturating_sub(known) } else { self.tick.saturating_sub(known) }
    }

    /// What is to be known of a key that was idle for so long; `None`: uses are counted.
    pub fn idle_for(&self, idle_s: u64) -> Option<u32> {
        (!self.counts()).then(|| self.tick.saturating_sub(idle_s.min(u64::from(u32::MAX)) as u32))
    }

    /// What is to be known of a key with such a count; `None`: uses are not counted.
    pub fn counted(&self, count: u8) -> Option<u32> {
        self.counts().then_some(count.into())
    }
}

/// The code of a tick at or before the base. Both are cut to the least unit in which they are less than two times
/// `AGE_STEPS` apart. A tick that was cut and is coded again for a later base is cut at the same places, so that it does
/// not drift.
fn age(at: u32, base: u32) -> u32 {
    let mut unit = (base - at).checked_ilog2().unwrap_or(0).saturating_sub(AGE_STEPS.ilog2());
    loop {
        let units = (base >> unit) - (at >> unit);
        if units < 2 * AGE_STEPS {
            return AGE_STEPS * unit + units;
        }
        unit += 1;
    }
}

fn aged(code: u32, base: u32) -> u32 {
    let unit = (code / AGE_STEPS).saturating_sub(1);
    let units = code - AGE_STEPS * unit;
    (base >> unit).saturating_sub(units) << unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn ages_are_told_and_do_not_drift() {
        let start = 1_800_000_000;
        for age_s in (0..600).chain([1000, 3600, 86_400, 1_000_000, 100_000_000, start - 1, start]) {
            let at = start - age_s;
            let mut base = start;
            let mut stamp = age(at, base);
            for _ in 0..200 {
                assert!(stamp < AGES, "{age_s}: {stamp}");
                let read = aged(stamp, base);
                assert!(
                    read <= at && at - read <= (base - at) / AGE_STEPS,
                    "{at} is read as {read}, base {base}"
                );
                assert!(base - at >= 2 * AGE_STEPS || read == at, "{age_s}: not exact");
                base += 12_345;
                stamp = age(read, base);
            }
        }
    }

    #[test]
    fn stamps_and_marks_say_when_a_key_was_used() {
        let mut meter = Meter::new(1);
        let start_ms = 20_000 * DAY;
        meter.follow(Method::new(start_ms));
        meter.set_now(start_ms);
        let base = meter.tick();
        assert_eq!(meter.idle_s(meter.unknown()), Some(0));
        for seconds in [0, 1, 59, 1000, REACH - 1] {
            meter.set_now(start_ms + u64::from(seconds) * 1000 + 999);
            assert!(meter.reaches(base));
            let known = meter.used(0);
            let (stamp, mark) = (meter.stamp(known, base), meter.mark(known));
            assert!(stamp < 1 << STAMP_BITS);
            meter.set_now(start_ms + u64::from(seconds + 77) * 1000);
            assert_eq!(meter.idle_s(meter.read(stamp, base)), Some(77));
            assert_eq!(meter.read_mark(mark).and_then(|known| meter.idle_s(known)), Some(77));
            assert_eq!(meter.idle_s(meter.unknown()), Some(seconds + 77));
        }
        assert!(!meter.reaches(base));
        // The clock went back.
        meter.set_now(start_ms - 10_000);
        assert!(meter.reaches(base));
        let known = meter.used(0);
        assert_eq!(meter.read(meter.stamp(known, base), base), known);
    }

    #[test]
    fn counts_rise_slower_and_slower_and_fall_with_time() {
        const KEYS: u32 = 16;
        let mut meter = Meter::new(7);
        let counted = Uses::Count { log_factor: 10, decay_minutes: 1 };
        let mut method = Method::new(DAY).change(counted, DAY);
        meter.follow(method);
        meter.set_now(DAY);
        let base = meter.tick();
        let mut known = 0;
        let mut sums = [0; 5];
        for _ in 0..KEYS {
            known = meter.new_key();
            let mut used = 0;
            for (uses, sum) in [1, 100, 1000, 100_000, 1_000_000].into_iter().zip(&mut sums) {
                (used..uses).for_each(|_| known = meter.used(known));
                used = uses;
                *sum += known;
            }
        }
        assert_eq!(sums[0], 6 * KEYS);
        // As Redis's documentation says: 10, 18, 142, 255 with this factor.
        for (sum, about) in sums[1..].iter().zip([10, 18, 142, 255]) {
            assert!((sum / KEYS).abs_diff(about) <= 1 + about / 20, "{sums:?}");
        }
        let (stamp, mark) = (meter.stamp(known, base), meter.mark(known));
        meter.set_now(DAY + 5 * 60_000);
        assert_eq!(meter.read(stamp, base), known - 5);
        assert_eq!(meter.read_mark(mark), Some(known - 5));
        assert_eq!(meter.unknown(), 0);
        // With another period, what was is kept.
        method = method.change(Uses::Count { log_factor: 10, decay_minutes: 10 }, DAY + 5 * 60_000);
        meter.follow(method);
        meter.set_now(DAY + 24 * 60_000);
        assert_eq!(meter.read(stamp, base), known - 6);
        assert_eq!(meter.read_mark(mark), Some(known - 6));
        // Times are another thing.
        meter.follow(method.change(Uses::Last, DAY + 24 * 60_000));
        assert_eq!(meter.read_mark(mark), None);
    }
}
