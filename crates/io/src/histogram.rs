//! How long that takes which is done often: durations counted in classes, which costs two loads and a store.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Classes between two powers of two. With as many, values, percentiles and limits are those of an HdrHistogram of two
/// significant digits, which Redis uses.
const STEPS: u64 = 128;
/// What is longer counts as this.
const VALUE_MAX: u64 = 1_000_000_000;
const CLASSES: usize = class_of(VALUE_MAX) + 1;

/// Counts of values up to 1,000,000,000, with an error of less than 1 %. It takes no memory before the first one.
#[derive(Default)]
pub struct Histogram(OnceLock<Box<[AtomicU64; CLASSES]>>);

impl Histogram {
    /// Adds a value; no other thread may do so meanwhile.
    #[inline]
    pub fn add(&self, value: u64) {
        let counts = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CLASSES]));
        let count = &counts[class_of(value.min(VALUE_MAX))];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Forgets all. What another thread adds at this very moment may be lost, or stay.
    pub fn reset(&self) {
        self.0.get().into_iter().flat_map(|counts| counts.iter()).for_each(|count| count.store(0, Relaxed));
    }
}

/// The counts of one or several histograms at a moment.
#[derive(Clone, Default)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// Adds histograms up.
    pub fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Counts {
        let mut all = Vec::new();
        for counts in histograms.into_iter().filter_map(|histogram| histogram.0.get()) {
            all.resize(CLASSES, 0);
            all.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count.load(Relaxed));
        }
        Counts(all)
    }

    /// What has come since an earlier moment. What was forgotten meanwhile counts as none.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = earlier.0.iter().copied().chain(std::iter::repeat(0));
        Counts(self.0.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// How many values there are.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How many values are not greater than `value`, or not to be told from it.
    pub fn up_to(&self, value: u64) -> u64 {
        self.0.iter().take(class_of(value) + 1).sum()
    }

    /// How many values are less than each of these powers of two, which rise, and not less than the one before it.
    pub fn between(&self, powers: &[u64]) -> Vec<u64> {
        let mut from = 0;
        let counts = powers.iter().map(|&power| {
            // A power of two begins a class.
            let to = class_of(power).min(self.0.len());
            let count = self.0[from..to].iter().sum();
            from = to;
            count
        });
        counts.collect()
    }

    /// What `percent` of the values do not exceed; 0 if there are none.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.total() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.0.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        class.map_or(0, longest_of)
    }
}

/// The greatest value that is not told from `value`.
pub fn longest_like(value: u64) -> u64 {
    longest_of(class_of(value))
}

const fn class_of(value: u64) -> usize {
    if value < 2 * STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS.ilog2();
    (shift as u64 * STEPS + (value >> shift)) as usize
}

fn longest_of(class: usize) -> u64 {
    let class = class as u64;
    if class < 2 * STEPS {
        return class;
    }
    let shift = class / STEPS - 1;
    ((class % STEPS + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_contiguous_and_narrow() {
        for value in (0..5000).chain([1 << 20, (1 << 29) + 12345, VALUE_MAX]) {
            let class = class_of(value);
            assert!(value <= longest_of(class) && (class == 0 || value > longest_of(class - 1)), "{value}");
            assert!(longest_of(class) - value <= value / STEPS);
        }
    }

    #[test]
    fn powers_of_two_part_values_exactly() {
        let histogram = Histogram::default();
        let powers: Vec<u64> = (2..30).map(|exponent| 1 << exponent).collect();
        assert!(Counts::of([&histogram]).between(&powers).iter().all(|count| *count == 0));
        for power in &powers {
            // One below, and two that are not.
            [power - 1, *power, power + 1].iter().for_each(|value| histogram.add(*value));
        }
        let between = Counts::of([&histogram]).between(&powers);
        // 3 and 7 are among the first; 8 and 9 are not less than 8.
        assert_eq!(between[..3], [1, 3, 3]);
        assert!(between[1..].iter().all(|count| *count == 3), "{between:?}");
        assert_eq!(Counts::of([&histogram]).total() - between.iter().sum::<u64>(), 2);
    }

    #[test]
    fn percentiles_are_right_within_a_hundredth() {
        let histograms = [Histogram::default(), Histogram::default(), Histogram::default()];
        assert_eq!((Counts::of(&histograms).total(), Counts::of(&histograms).percentile(50.0)), (0, 0));
        (1..=100_000).for_each(|n| histograms[n as usize % 2].add(n * 100));
        let counts = Counts::of(&histograms);
        for (percent, exact) in
            [(0.0, 100), (50.0, 5_000_000), (99.0, 9_900_000), (99.9, 9_990_000), (100.0, 10_000_000)]
        {
            let found = counts.percentile(percent);
            assert!((exact..=exact + exact / 100).contains(&found), "p{percent}: {found}");
        }
        assert_eq!((counts.total(), counts.up_to(100), counts.up_to(u64::MAX)), (100_000, 1, 100_000));
        histograms[0].add(u64::MAX);
        assert_eq!(Counts::of(&histograms).percentile(100.0), longest_like(VALUE_MAX));
        histograms.iter().for_each(Histogram::reset);
        assert_eq!(Counts::of(&histograms).total(), 0);
    }
}
