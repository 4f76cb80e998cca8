//! How long the medium lasts: how fast the server writes, and what that makes of the medium's rating.
//!
//! Only this server's writes are known. A rating counts what hosts write, so what the medium writes beyond that is in it already.

use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, Instant},
};

const DAY: Duration = Duration::from_secs(86_400);
/// Bytes of a terabyte, as ratings count.
const TERABYTE: f64 = 1e12;

/// Spans over which the rate of writing is known: length, and time between two samples.
const SPANS: [(Duration, Duration); 3] = [
    (Duration::from_secs(60), Duration::from_secs(1)),
    (Duration::from_secs(3600), Duration::from_secs(60)),
    (DAY, Duration::from_secs(1800)),
];

/// Bytes written so far, at some times of the last day.
pub struct WriteRates {
    started: Instant,
    spans: Mutex<[Span; SPANS.len()]>,
}

/// Samples of one span: when since the start, and how many bytes were written by then. Oldest first, all but the oldest younger than
/// the span is long.
#[derive(Default)]
struct Span(VecDeque<(Duration, u64)>);

/// How fast the server writes, in bytes per second. Before a span is over for the first time, its rate is that since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Over the last minute.
    pub minute: f64,
    /// Over the last hour.
    pub hour: f64,
    /// Over the last day.
    pub day: f64,
    /// How long the server runs.
    pub uptime: Duration,
}

impl WriteRates {
    /// Of a server that starts now.
    pub fn new() -> WriteRates {
        WriteRates { started: Instant::now(), spans: Mutex::default() }
    }

    /// Takes the bytes written since the start; to be called about once a second.
    pub fn sample(&self, bytes: u64) {
        self.sample_at(self.started.elapsed(), bytes);
    }

    fn sample_at(&self, now: Duration, bytes: u64) {
        let mut spans = self.spans.lock().expect("no holder panics");
        for (Span(samples), (length, step)) in spans.iter_mut().zip(SPANS) {
            if samples.back().is_some_and(|&(last, _)| now < last + step) {
                continue;
            }
            samples.push_back((now, bytes));
            while samples.get(1).is_some_and(|&(second, _)| second + length <= now) {
                samples.pop_front();
            }
        }
    }

    /// The rates, with the bytes that were written since the start.
    pub fn get(&self, bytes: u64) -> Rates {
        self.get_at(self.started.elapsed(), bytes)
    }

    fn get_at(&self, now: Duration, bytes: u64) -> Rates {
        let spans = self.spans.lock().expect("no holder panics");
        let [minute, hour, day] = [0, 1, 2].map(|nth: usize| {
            let (then, before) = spans[nth].0.front().copied().unwrap_or_default();
            let seconds = now.saturating_sub(then).as_secs_f64();
            if seconds > 0.0 { bytes.saturating_sub(before) as f64 / seconds } else { 0.0 }
        });
        Rates { minute, hour, day, uptime: now }
    }
}

/// From when on the rate is taken that a forecast goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The last day.
    Day,
    /// The last hour: there is no whole day yet.
    Hour,
    /// The start: there is no whole hour yet.
    Start,
}

impl Basis {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Day => "day",
            Basis::Hour => "hour",
            Basis::Start => "start",
        }
    }
}

/// What becomes of a medium that is rated for so many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Share of the rating that is used.
    pub used: f64,
    /// Where the rate is from.
    pub basis: Basis,
    /// Days until the rating is used up at that rate; none if nothing is written.
    pub days_left: Option<f64>,
}

impl Forecast {
    /// Of a medium that is rated for `tbw` terabytes, of which `written` bytes were written; `None`: its rating is not known.
    pub fn new(tbw: u64, written: u64, rates: &Rates) -> Option<Forecast> {
        let rated = tbw as f64 * TERABYTE;
        let (basis, rate) = match rates.uptime {
            uptime if uptime >= DAY => (Basis::Day, rates.day),
            uptime if uptime >= SPANS[1].0 => (Basis::Hour, rates.hour),
            // Of the longest span the oldest sample is the first of all.
            _ => (Basis::Start, rates.day),
        };
        let left = (rated - written as f64).max(0.0);
        let days_left = (rate > 0.0 || left == 0.0).then(|| left / rate.max(1.0) / DAY.as_secs_f64());
        (tbw > 0).then_some(Forecast { used: written as f64 / rated, basis, days_left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: u32 = 3600;

    /// Samples each second of what was written by then.
    fn sampled(seconds: std::ops::Range<u32>, rates: &WriteRates, bytes: impl Fn(u64) -> u64) {
        seconds.for_each(|second| rates.sample_at(second * SECOND, bytes(second.into())));
    }

    #[test]
    fn before_a_span_is_over_its_rate_is_since_the_start() {
        let rates = WriteRates::new();
        assert_eq!(rates.get_at(Duration::ZERO, 0), Rates::default());
        sampled(0..11, &rates, |second| 100 * second);
        let Rates { minute, hour, day, uptime } = rates.get_at(10 * SECOND, 1000);
        assert_eq!((minute, hour, day, uptime), (100.0, 100.0, 100.0, 10 * SECOND));
    }

    #[test]
    fn each_rate_is_of_its_own_span() {
        let rates = WriteRates::new();
        // Ten a second for two days, then a thousand for half an hour, then a million for a minute.
        let ends = [48 * HOUR, 48 * HOUR + HOUR / 2, 48 * HOUR + HOUR / 2 + 60].map(u64::from);
        let bytes = |second: u64| {
            let part = |from: u64, to: u64| second.clamp(from, to) - from;
            10 * part(0, ends[0]) + 1000 * part(ends[0], ends[1]) + 1_000_000 * part(ends[1], ends[2])
        };
        sampled(0..ends[2] as u32 + 1, &rates, bytes);
        let got = rates.get_at(ends[2] as u32 * SECOND, bytes(ends[2]));
        let about = |rate: f64, expected: f64| (rate - expected).abs() < expected * 0.05;
        assert!(about(got.minute, 1e6), "{got:?}");
        assert!(about(got.hour, (60e6 + 1800e3 + 10.0 * 1740.0) / 3600.0), "{got:?}");
        assert!(about(got.day, (60e6 + 1800e3 + 10.0 * 84_540.0) / 86_400.0), "{got:?}");
        let kept: usize = rates.spans.lock().unwrap().iter().map(|span| span.0.len()).sum();
        assert!(kept <= 61 + 61 + 49 + 3, "{kept} samples");
    }

    #[test]
    fn a_forecast_goes_by_the_longest_span_that_is_over() {
        let rates = |uptime| Rates { minute: 4e9, hour: 2e6, day: 1e6, uptime };
        let of = |hours: u32| Forecast::new(100, 50_000_000_000_000, &rates(hours * HOUR * SECOND)).unwrap();
        let days = |rate: f64| Some(50e12 / rate / 86_400.0);
        assert_eq!((of(24).basis, of(24).days_left, of(24).used), (Basis::Day, days(1e6), 0.5));
        assert_eq!((of(23).basis, of(23).days_left), (Basis::Hour, days(2e6)));
        assert_eq!((of(0).basis, of(0).days_left), (Basis::Start, days(1e6)));
    }

    #[test]
    fn a_forecast_needs_a_rating_and_a_rate() {
        let idle = Rates { uptime: DAY, ..Rates::default() };
        assert_eq!(Forecast::new(0, 1, &idle), None);
        assert_eq!(Forecast::new(1, 0, &idle).unwrap().days_left, None);
        let used_up = Forecast::new(1, 3_000_000_000_000, &idle).unwrap();
        assert_eq!((used_up.used, used_up.days_left), (3.0, Some(0.0)));
    }
}
