//! LATENCY: what took long, and how long each command takes.

use crate::{
    admin::latency::Series, command::table::CommandId, commands::prelude::*, config::Opt,
    figures::commands::latency,
};
use holdfast_io::{Counts, longest_like};
use std::{
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

const SUB: Command = Command {
    group: "server",
    since: "2.8.13",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "latency",
    group: "server",
    since: "2.8.13",
    summary: "A container for latency diagnostics commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
        Command {
            name: "latency|doctor",
            summary: "Returns a human-readable latency analysis report.",
            ..SUB
        }
        .by(Plain(doctor)),
        Command {
            name: "latency|graph",
            syntax: "event",
            summary: "Returns a latency graph for an event.",
            ..SUB
        }
        .by(Plain(graph)),
        Command {
            name: "latency|help",
            flags: Flags::LOADING.and(Flags::STALE),
            summary: "Returns helpful text about the different subcommands.",
            ..SUB
        }
        .by(Plain(help)),
        Command {
            name: "latency|histogram",
            syntax: "[command...]",
            since: "7.0.0",
            summary: "Returns the cumulative distribution of latencies of a subset or all commands.",
            complexity: "O(N) where N is the number of commands with latency information being retrieved.",
            ..SUB
        }
        .by(Plain(histogram)),
        Command {
            name: "latency|history",
            syntax: "event",
            summary: "Returns timestamp-latency samples for an event.",
            ..SUB
        }
        .by(Plain(history)),
        Command {
            name: "latency|latest",
            summary: "Returns the latest latency samples for all events.",
            ..SUB
        }
        .by(Plain(latest)),
        Command {
            name: "latency|reset",
            syntax: "[event...]",
            summary: "Resets the latency data for one or more events.",
            ..SUB
        }
        .by(Plain(reset)),
    ]
    },
)];

const STRING: &str = "writing to a string cannot fail";

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied.",
    ])
}

fn history(call: &mut Call) -> Answer {
    let series = call.server().latency.get(call.args.at(2)).map(|(_, series)| series).unwrap_or_default();
    call.out.array(series.samples.len());
    for sample in series.samples {
        call.out.array(2);
        call.out.int(sample.time_s as i64);
        call.out.int(sample.ms as i64);
    }
    Ok(Done)
}

fn latest(call: &mut Call) -> Answer {
    let events = call.server().latency.all();
    call.out.array(events.len());
    for (event, series) in events {
        let last = series.samples.back().expect("a series is not empty");
        call.out.array(4);
        call.out.bulk(event);
        call.out.int(last.time_s as i64);
        call.out.int(last.ms as i64);
        call.out.int(series.max_ms as i64);
    }
    Ok(Done)
}

fn reset(call: &mut Call) -> Answer {
    let monitor = &call.server().latency;
    let names = call.args.from(2);
    let forgotten = match names.len() {
        0 => monitor.reset(None),
        _ => names.iter().map(|name| monitor.reset(Some(name))).sum(),
    };
    call.reply_int(forgotten as i64)
}

fn graph(call: &mut Call) -> Answer {
    let name = call.args.at(2);
    let Some((event, series)) = call.server().latency.get(name) else {
        return Err([b"ERR No samples available for event '", name, b"'"].concat().into());
    };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    call.out.verbatim("txt", draw(event, &series, now_s));
    Ok(Done)
}

/// Columns of a graph.
const COLUMNS: usize = 80;
/// What a column is filled with, from the bottom up.
const ROWS: usize = 4;

/// A column for each of the latest samples, and below it how long ago that was, written downwards.
fn draw(event: &str, series: &Series, now_s: u64) -> String {
    let samples: Vec<_> = series.samples.iter().rev().take(COLUMNS).rev().collect();
    let of = |f: fn(u64, u64) -> u64| samples.iter().map(|sample| sample.ms).reduce(f).unwrap_or(0);
    let (high, low) = (of(u64::max), of(u64::min));
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.max_ms,
        "-".repeat(COLUMNS)
    );
    for row in (0..ROWS).rev() {
        for sample in &samples {
            // A range of one value fills the lowest row.
            let height = (sample.ms - low) as f64 / (high - low).max(1) as f64 * (ROWS as f64 - 0.01);
            let here = height - row as f64;
            text.push(match here {
                h if h >= 1.0 => '|',
                h if h >= 0.66 => '#',
                h if h >= 0.33 => 'o',
                h if h >= 0.0 => '_',
                _ => ' ',
            });
        }
        text.push('\n');
    }
    text.push('\n');
    let ages: Vec<String> = samples.iter().map(|sample| age(now_s.saturating_sub(sample.time_s))).collect();
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        text.extend(ages.iter().map(|age| age.as_bytes().get(row).map_or(' ', |&byte| char::from(byte))));
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn doctor(call: &mut Call) -> Answer {
    let server = call.server();
    let threshold_ms = server.config.number(Opt::LatencyMonitorThreshold);
    let events = server.latency.all();
    let mut text = String::new();
    if threshold_ms == 0 && events.is_empty() {
        text.push_str(
            "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this instance. You may use \
             \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it.\n",
        );
    } else if events.is_empty() {
        writeln!(text, "Dave, nothing has taken {threshold_ms} milliseconds or longer. All is well.")
            .expect(STRING);
    } else {
        text.push_str("Dave, this is what took long in this instance:\n\n");
        for (nth, (event, series)) in events.iter().enumerate() {
            let count = series.samples.len() as u64;
            let average = series.samples.iter().map(|sample| sample.ms).sum::<u64>() / count;
            writeln!(
                text,
                "{}. {event}: {count} latency spikes (average {average}ms, worst all time event {}ms).",
                nth + 1,
                series.max_ms
            )
            .expect(STRING);
        }
        text.push_str("\nHere is some advice for you:\n\n");
        let slow_us = server.config.number(Opt::SlowlogLogSlowerThan);
        text.push_str(if slow_us < 0 || slow_us / 1000 > threshold_ms.max(1) {
            "- The slow log misses some of these commands: lower 'slowlog-log-slower-than' to see which they are.\n"
        } else {
            "- SLOWLOG GET shows which commands these were. Commands on all of a large collection take long; HSCAN, SSCAN, \
             ZSCAN and ranges do the same in steps.\n"
        });
        text.push_str("- INFO persistence tells how long commits of the log take ('log_commit_us_p99').\n");
    }
    call.out.verbatim("txt", &text);
    Ok(Done)
}

fn histogram(call: &mut Call) -> Answer {
    let names = call.args.from(2);
    let wanted: Vec<CommandId> = if names.is_empty() {
        call.table().all().map(|(id, _)| id).collect()
    } else {
        let with_subcommands = |id| std::iter::once(id).chain(call.table().subcommands(id));
        names.iter().filter_map(|name| call.table().find_full(name)).flat_map(with_subcommands).collect()
    };
    let server = call.server();
    let found: Vec<_> = wanted
        .into_iter()
        .map(|id| (id, latency(server, id)))
        .filter(|(_, calls)| calls.total() > 0)
        .collect();
    let out = &mut call.out;
    out.map(found.len());
    for (id, calls) in found {
        out.bulk(server.table.command(id).name);
        out.map(2);
        out.key("calls").int(calls.total() as i64);
        out.bulk("histogram_usec");
        let steps = steps(&calls);
        out.map(steps.len());
        for (us, count) in steps {
            out.int(us as i64);
            out.int(count as i64);
        }
    }
    Ok(Done)
}

/// How many calls took how many microseconds at most, at the powers of two where there are more, as Redis rounds these.
fn steps(calls: &Counts) -> Vec<(u64, u64)> {
    let mut steps: Vec<_> = (10..=30)
        .map(|exponent| 1 << exponent)
        .map(|ns| (longest_like(ns) / 1000, calls.up_to(ns)))
        .collect();
    steps.dedup_by_key(|(_, count)| *count);
    steps.retain(|(_, count)| *count > 0);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::latency::Sample;
    use holdfast_io::Histogram;

    #[test]
    fn steps_are_those_of_redis() {
        let histogram = Histogram::default();
        for ns in [1, 1031, 1032, 33_023, 33_024, 999_999, u64::MAX] {
            histogram.add(ns);
        }
        let steps = steps(&Counts::of([&histogram]));
        assert_eq!(steps, [(1, 2), (2, 3), (33, 4), (66, 5), (1056, 6), (1_082_130, 7)]);
    }

    #[test]
    fn a_graph() {
        let samples = [(900, 10), (1000, 20), (1010, 50)].map(|(time_s, ms)| Sample { time_s, ms });
        let series = Series { samples: samples.into(), max_ms: 70 };
        let rule = "-".repeat(80);
        assert_eq!(
            draw("command", &series, 1010),
            format!(
                "command - high 50 ms, low 10 ms (all time high 70 ms)\n{rule}\n  #\n  |\n  |\n_#|\n\n110\nm0s\n s \n"
            )
        );
    }
}
