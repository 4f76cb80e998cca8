//! What is written to the medium, and how long the medium lasts.

use crate::{
    admin::endurance::{Forecast, Rates},
    config::Opt,
    server::Server,
};
use holdfast_store::{BytesWritten, Stats, WriteCause};

const MS_A_DAY: f64 = 86_400_000.0;

/// What is known of the medium.
pub struct Endurance {
    /// What was written since [`Endurance::since_ms`].
    pub ever: BytesWritten,
    /// What was written since the start.
    pub now: BytesWritten,
    /// Since when all is counted: Unix time in milliseconds.
    pub since_ms: u64,
    /// How long that is, in days.
    pub days: f64,
    /// How fast the server writes.
    pub rates: Rates,
    /// Terabytes that the medium is rated for; 0: not known.
    pub tbw: u64,
    /// What becomes of the medium, if its rating is known.
    pub forecast: Option<Forecast>,
}

/// A figure.
pub enum Figure {
    /// A whole number.
    Int(u64),
    /// With two digits behind the point.
    Real(f64),
    /// A word.
    Text(&'static str),
}

impl Endurance {
    /// What a server knows, with the figures of its store.
    pub fn new(server: &Server, stats: &Stats) -> Endurance {
        let rates = server.write_rates.get(server.store.bytes_written());
        let tbw = server.config.number(Opt::FlashEnduranceTbw) as u64;
        let ever = stats.written_ever;
        Endurance {
            ever,
            now: stats.written,
            since_ms: stats.known_since_ms,
            // A clock that was set back since must not make it negative.
            days: server.store.now_ms().saturating_sub(stats.known_since_ms) as f64 / MS_A_DAY,
            rates,
            tbw,
            forecast: Forecast::new(tbw, ever.total(), &rates),
        }
    }

    /// Bytes written each day since it is known; within the first day, what was written so far.
    pub fn bytes_per_day(&self) -> f64 {
        self.ever.total() as f64 / self.days.max(1.0)
    }

    /// All figures by name; what is not known is -1.
    pub fn figures(&self) -> Vec<(String, Figure)> {
        use Figure::{Int, Real, Text};
        let unknown = || Real(-1.0);
        let days_left = self.forecast.and_then(|forecast| forecast.days_left);
        let mut figures = vec![
            ("since", Int(self.since_ms / 1000)),
            ("bytes_written", Int(self.ever.total())),
            ("bytes_of_commands", Int(self.ever.input)),
            ("write_amplification", Real(self.ever.amplification())),
        ]
        .into_iter()
        .map(|(name, figure)| (name.to_owned(), figure))
        .collect::<Vec<_>>();
        figures.extend(
            WriteCause::ALL.map(|cause| (format!("bytes_{}", cause.name()), Int(self.ever.of(cause)))),
        );
        let rest = [
            ("bytes_written_since_start", Int(self.now.total())),
            ("bytes_of_commands_since_start", Int(self.now.input)),
            ("write_amplification_since_start", Real(self.now.amplification())),
            ("bytes_per_sec_minute", Int(self.rates.minute as u64)),
            ("bytes_per_sec_hour", Int(self.rates.hour as u64)),
            ("bytes_per_sec_day", Int(self.rates.day as u64)),
            ("bytes_per_day", Int(self.bytes_per_day() as u64)),
            ("rated_tbw", Int(self.tbw)),
            ("rating_used_perc", self.forecast.map_or_else(unknown, |forecast| Real(forecast.used * 100.0))),
            ("days_left", days_left.map_or_else(unknown, Real)),
            ("forecast_basis", Text(self.forecast.map_or("none", |forecast| forecast.basis.name()))),
        ];
        figures.extend(rest.map(|(name, figure)| (name.to_owned(), figure)));
        figures
    }
}
