//! How long commands take: a histogram of each, and the latest that took longer than the option
//! `latency-monitor-threshold`.

use crate::util::counter::Counter;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Classes of durations; each is about twice as long as the one before, the last has all that is longer than a second.
const CLASSES: usize = 21;

/// The longest duration of a class, in nanoseconds: Redis's, whose histograms have two decimal digits.
fn longest_ns(class: usize) -> u64 {
    (1 << (10 + class)) + (1 << (3 + class)) - 1
}

/// The longest duration of a class, in whole microseconds.
pub fn longest_us(class: usize) -> u64 {
    longest_ns(class) / 1000
}

fn class_of(ns: u64) -> usize {
    let near = (u64::BITS - ns.leading_zeros()).saturating_sub(11) as usize;
    let near = near.min(CLASSES - 1);
    (near + usize::from(ns > longest_ns(near))).min(CLASSES - 1)
}

/// How many of a worker's calls of a command took how long.
#[derive(Default)]
pub struct Histogram([Counter; CLASSES]);

impl Histogram {
    /// Adds a call; only the worker's own thread may.
    #[inline]
    pub fn add(&self, took_ns: u64) {
        self.0[class_of(took_ns)].add(1);
    }

    /// Forgets all.
    pub fn reset(&self) {
        self.0.iter().for_each(Counter::reset);
    }
}

/// The histograms of all workers together: calls by class.
pub fn sum<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> [u64; CLASSES] {
    let mut all = [0; CLASSES];
    for histogram in histograms {
        for (sum, count) in all.iter_mut().zip(&histogram.0) {
            *sum += count.get();
        }
    }
    all
}

/// How long, in microseconds, a share of the calls takes at most.
pub fn percentile_us(calls: &[u64], percent: f64) -> f64 {
    let wanted = (calls.iter().sum::<u64>() as f64 * percent / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    let class = calls.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    longest_ns(class.unwrap_or(0)) as f64 / 1000.0
}

/// Samples kept of an event.
const SAMPLES_MAX: usize = 160;

/// Something that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When, in seconds since 1970.
    pub time_s: u64,
    /// How long, in milliseconds.
    pub ms: u64,
}

/// The latest of one kind.
#[derive(Clone, Default)]
pub struct Series {
    /// Oldest first, one for each second at most.
    pub samples: VecDeque<Sample>,
    /// The longest ever, in milliseconds.
    pub max_ms: u64,
}

/// What took long of late, by kind.
#[derive(Default)]
pub struct Monitor(Mutex<BTreeMap<&'static str, Series>>);

impl Monitor {
    /// Adds one.
    pub fn add(&self, event: &'static str, took: Duration) {
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.add_at(event, Sample { time_s, ms: took.as_millis() as u64 });
    }

    fn add_at(&self, event: &'static str, sample: Sample) {
        let mut events = self.0.lock().expect("no holder panics");
        let series = events.entry(event).or_default();
        series.max_ms = series.max_ms.max(sample.ms);
        match series.samples.back_mut() {
            Some(last) if last.time_s == sample.time_s => last.ms = last.ms.max(sample.ms),
            _ => series.samples.push_back(sample),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    /// All kinds.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        let events = self.0.lock().expect("no holder panics");
        events.iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// One kind, by its name in any case.
    pub fn get(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        self.all().into_iter().find(|(name, _)| name.as_bytes() == event)
    }

    /// Forgets one kind, or all; returns how many those are.
    pub fn reset(&self, event: Option<&[u8]>) -> usize {
        let mut events = self.0.lock().expect("no holder panics");
        let before = events.len();
        events.retain(|name, _| event.is_some_and(|event| name.as_bytes() != event));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_redis() {
        let us: Vec<u64> = (0..10).map(longest_us).collect();
        assert_eq!(us, [1, 2, 4, 8, 16, 33, 66, 132, 264, 528]);
        for class in 0..CLASSES - 1 {
            assert_eq!(class_of(longest_ns(class)), class);
            assert_eq!(class_of(longest_ns(class) + 1), class + 1);
        }
        assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASSES - 1));
    }

    #[test]
    fn percentiles() {
        let mut calls = [0; CLASSES];
        calls[0] = 98;
        calls[3] = 1;
        calls[9] = 1;
        assert_eq!(percentile_us(&calls, 50.0), 1.031);
        assert_eq!(percentile_us(&calls, 99.0), 8.255);
        assert_eq!(percentile_us(&calls, 99.9), 528.383);
    }

    #[test]
    fn one_sample_a_second_is_kept_and_the_oldest_go() {
        let monitor = Monitor::default();
        for time_s in 0..200 {
            monitor.add_at("command", Sample { time_s: time_s / 2, ms: 300 - time_s });
            monitor.add_at("other", Sample { time_s, ms: 1 });
        }
        let (_, series) = monitor.get(b"command").unwrap();
        assert_eq!((series.samples.len(), series.max_ms), (100, 300));
        assert_eq!(series.samples[99], Sample { time_s: 99, ms: 102 });
        assert_eq!(monitor.get(b"other").unwrap().1.samples.len(), SAMPLES_MAX);
        assert_eq!(monitor.reset(Some(b"nope")), 0);
        assert_eq!(monitor.reset(Some(b"other")), 1);
        assert_eq!(monitor.reset(None), 1);
        assert!(monitor.all().is_empty());
    }
}
