//! What took longer of late than the option `latency-monitor-threshold`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

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
