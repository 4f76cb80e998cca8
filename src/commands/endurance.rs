//! ENDURANCE: what is written to the medium, why, and how long the medium lasts. Redis has no such command.

use crate::{
    admin::endurance::{Basis, Forecast, Rates},
    commands::{info::human, prelude::*},
    config::Opt,
    exec::keyspace::Keyspace,
    server::Server,
};
use holdfast_store::{BytesWritten, Stats, WriteCause};
use jiff::Timestamp;
use std::fmt::Write;

const SUB: Command = Command {
    group: "server",
    since: "7.2.0",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "endurance",
    group: "server",
    since: "7.2.0",
    summary: "A container for commands about what is written to the medium.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "endurance|help",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the different subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command {
                name: "endurance|report",
                summary: "Returns a human-readable report of what is written to the medium, and how long that lasts.",
                ..SUB
            }
            .by(Browsing(report)),
            Command {
                name: "endurance|stats",
                summary: "Returns what is written to the medium by cause, and how long that lasts.",
                ..SUB
            }
            .by(Browsing(stats)),
        ]
    },
)];

const STRING: &str = "writing to a string cannot fail";
const DAYS_A_YEAR: f64 = 365.25;
const MS_A_DAY: f64 = 86_400_000.0;

/// What is known of the medium.
pub struct Endurance {
    /// Since [`Endurance::since_ms`].
    ever: BytesWritten,
    /// Since the start.
    now: BytesWritten,
    since_ms: u64,
    /// How long that is, in days.
    days: f64,
    rates: Rates,
    tbw: u64,
    forecast: Option<Forecast>,
}

/// A figure.
pub enum Figure {
    Int(u64),
    /// With two digits behind the point.
    Real(f64),
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
    fn bytes_per_day(&self) -> f64 {
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

    /// A table for people to read.
    fn report(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect(STRING);
        let since = Timestamp::from_millisecond(self.since_ms as i64).unwrap_or_default();
        line(format!("Written to the medium since {since:.0} ({:.1} days), and since the start:", self.days));
        line(String::new());
        line(format!(
            "{:<18}{:>10}{:>9}{:>10}{:>12}{:>10}",
            "cause", "bytes", "share", "per byte", "since start", "per byte"
        ));
        let ratio = |bytes: u64, of: u64| if of == 0 { 0.0 } else { bytes as f64 / of as f64 };
        let row = |name: &str, ever: u64, now: u64| {
            let share = 100.0 * ratio(ever, self.ever.total());
            let (per_byte, per_byte_now) = (ratio(ever, self.ever.input), ratio(now, self.now.input));
            let (ever, now) = (human(ever), human(now));
            format!("{name:<18}{ever:>10}{share:>8.1}%{per_byte:>10.2}{now:>12}{per_byte_now:>10.2}")
        };
        for cause in WriteCause::ALL {
            line(row(&cause.name().replace('_', " "), self.ever.of(cause), self.now.of(cause)));
        }
        line(row("all", self.ever.total(), self.now.total()));
        line(String::new());
        line(format!(
            "Per byte: of the {} of keys and values that came with commands ({} since the start).",
            human(self.ever.input),
            human(self.now.input)
        ));
        let Rates { minute, hour, day, .. } = self.rates;
        let [minute, hour, day, per_day] =
            [minute, hour, day, self.bytes_per_day()].map(|rate| human(rate as u64));
        line(format!(
            "Rate: {minute}/s in the last minute, {hour}/s in the last hour, {day}/s in the last day, {per_day} a day ever."
        ));
        line(match self.forecast {
            None => "The rating of the medium is not known: see the option flash-endurance-tbw.".to_owned(),
            Some(Forecast { used, basis, days_left }) => {
                let rate = match basis {
                    Basis::Start => "since the start",
                    Basis::Hour => "of the last hour",
                    Basis::Day => "of the last day",
                };
                let left = match days_left {
                    None => "does not wear".to_owned(),
                    Some(days) => format!("lasts {days:.0} days ({:.1} years)", days / DAYS_A_YEAR),
                };
                format!(
                    "Rating: {:.2} % of {} TB are used; at the rate {rate} the medium {left}.",
                    used * 100.0,
                    self.tbw
                )
            }
        });
        text
    }
}

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "REPORT",
        "    Return a readable report of what is written to the medium, why, and how long",
        "    the medium lasts.",
        "STATS",
        "    Return the figures of the report.",
    ])
}

fn report(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let server = call.server();
    let report = Endurance::new(server, &keyspace.stats(&server.store)?).report();
    call.out.verbatim("txt", &report);
    Ok(Done)
}

fn stats(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let server = call.server();
    let figures = Endurance::new(server, &keyspace.stats(&server.store)?).figures();
    call.out.map(figures.len());
    for (name, figure) in figures {
        call.out.bulk(&name);
        match figure {
            Figure::Int(value) => call.out.int(value as i64),
            Figure::Real(value) => call.out.double(value),
            Figure::Text(value) => call.out.bulk(value),
        }
    }
    Ok(Done)
}
