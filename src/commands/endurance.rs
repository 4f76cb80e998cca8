//! ENDURANCE: what is written to the medium, why, and how long the medium lasts. Redis has no such command.

use crate::{
    admin::endurance::{Basis, Forecast, Rates},
    commands::{info::human, prelude::*},
    exec::keyspace::Keyspace,
    figures::endurance::{Endurance, Figure},
};
use holdfast_store::WriteCause;
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

/// A table for people to read.
fn table(endurance: &Endurance) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect(STRING);
    let since = Timestamp::from_millisecond(endurance.since_ms as i64).unwrap_or_default();
    line(format!(
        "Written to the medium since {since:.0} ({:.1} days), and since the start:",
        endurance.days
    ));
    line(String::new());
    line(format!(
        "{:<18}{:>10}{:>9}{:>10}{:>12}{:>10}",
        "cause", "bytes", "share", "per byte", "since start", "per byte"
    ));
    let ratio = |bytes: u64, of: u64| if of == 0 { 0.0 } else { bytes as f64 / of as f64 };
    let row = |name: &str, ever: u64, now: u64| {
        let share = 100.0 * ratio(ever, endurance.ever.total());
        let (per_byte, per_byte_now) = (ratio(ever, endurance.ever.input), ratio(now, endurance.now.input));
        let (ever, now) = (human(ever), human(now));
        format!("{name:<18}{ever:>10}{share:>8.1}%{per_byte:>10.2}{now:>12}{per_byte_now:>10.2}")
    };
    for cause in WriteCause::ALL {
        line(row(&cause.name().replace('_', " "), endurance.ever.of(cause), endurance.now.of(cause)));
    }
    line(row("all", endurance.ever.total(), endurance.now.total()));
    line(String::new());
    line(format!(
        "Per byte: of the {} of keys and values that came with commands ({} since the start).",
        human(endurance.ever.input),
        human(endurance.now.input)
    ));
    let Rates { minute, hour, day, .. } = endurance.rates;
    let [minute, hour, day, per_day] =
        [minute, hour, day, endurance.bytes_per_day()].map(|rate| human(rate as u64));
    line(format!(
        "Rate: {minute}/s in the last minute, {hour}/s in the last hour, {day}/s in the last day, {per_day} a day ever."
    ));
    line(match endurance.forecast {
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
                endurance.tbw
            )
        }
    });
    text
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
    let report = table(&Endurance::new(server, &keyspace.stats(&server.store)?));
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
