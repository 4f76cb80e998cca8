//! Two looks at a server as lines of text.

use super::sample::{Sample, Steps, between, percentile, together};
use crate::commands::human;
use std::{
    ops::Add,
    time::{SystemTime, UNIX_EPOCH},
};

/// Columns of the bars.
const BAR: usize = 40;
/// Commands that are shown.
const COMMANDS_MAX: usize = 10;

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// The name of something.
    Title,
    /// All is well.
    Good,
    /// Something is not.
    Bad,
}

/// A line.
#[derive(Clone)]
pub struct Line {
    /// Its text.
    pub words: String,
    /// How it is shown.
    pub tone: Tone,
}

/// What changed between two looks at a server.
struct Change<'a> {
    before: &'a Sample,
    now: &'a Sample,
    /// Seconds between them; never 0.
    seconds: f64,
}

impl Change<'_> {
    /// How much a number has risen; one that has fallen was reset.
    fn risen(&self, field: &str) -> f64 {
        let (before, now) = (self.before.number(field), self.now.number(field));
        if now < before { now } else { now - before }
    }

    fn rate(&self, field: &str) -> f64 {
        self.risen(field) / self.seconds
    }

    /// Calls of a command in a second.
    fn calls(&self, command: &str) -> f64 {
        let field = format!("cmdstat_{command}");
        let (before, now) = (self.before.part(&field, "calls"), self.now.part(&field, "calls"));
        (if now < before { now } else { now - before }) / self.seconds
    }

    fn latency(&self, command: &str) -> Steps {
        let of = |sample: &Sample| {
            sample.latency.iter().find(|(name, _)| name == command).map(|(_, steps)| steps.clone())
        };
        between(&of(self.before).unwrap_or_default(), &of(self.now).unwrap_or_default())
    }
}

/// A server at `address`, by two looks.
pub fn lines(address: &str, before: &Sample, now: &Sample) -> Vec<Line> {
    let seconds = now.taken.saturating_duration_since(before.taken).as_secs_f64().max(0.001);
    let change = Change { before, now, seconds };
    let mut lines = health(now);
    let version = match now.text("holdfast_version") {
        "" => format!("Redis {}", now.text("redis_version")),
        version => format!("Holdfast {version}"),
    };
    let up = duration(now.number("uptime_in_seconds") * 1e6);
    lines.insert(0, Line { words: format!("{version} at {address}, up {up}"), tone: Tone::Title });
    lines.push(plain(String::new()));
    lines.extend(figures(&change).map(plain));
    lines.push(plain(String::new()));
    lines.extend(commands(&change));
    lines.push(plain(String::new()));
    lines.extend(slow(now));
    lines
}

fn plain(words: String) -> Line {
    Line { words, tone: Tone::Plain }
}

fn health(now: &Sample) -> Vec<Line> {
    let of = |nth: u32, what: &str| now.text(&format!("problem{nth}_{what}")).to_owned();
    let mut lines = Vec::new();
    for nth in 0..now.number("problems") as u32 {
        for (start, what) in [("", "effect"), ("  Cause: ", "cause"), ("  What to do: ", "advice")] {
            lines.push(Line { words: format!("{start}{}", of(nth, what)), tone: Tone::Bad });
        }
    }
    if now.text("healthy").is_empty() {
        lines.push(plain("This server does not tell whether all is well.".into()));
    } else if lines.is_empty() {
        lines.push(Line { words: "All is well: reads and writes are served.".into(), tone: Tone::Good });
    }
    lines
}

fn figures(change: &Change) -> impl Iterator<Item = String> {
    let Change { now, .. } = change;
    let rate = |field| count(change.rate(field));
    let bytes = |field| human(now.number(field) as u64);
    let byte_rate = |field| human(change.rate(field) as u64);
    let all: Steps = together(now.latency.iter().map(|(command, _)| change.latency(command)));
    let us = |field| duration(now.number(field));
    let (used, limit) = (now.number("used_memory"), now.number("maxmemory"));
    let of_limit = if limit > 0.0 { format!(" of {}", human(limit as u64)) } else { String::new() };
    let live = now.number("log_live_share");
    let keys = now.fields("db").map(|number| now.part(&format!("db{number}"), "keys")).fold(0.0, f64::add);
    let rows: [(&str, String); 12] = [
        (
            "Throughput",
            format!(
                "{}/s   in {}/s   out {}/s   errors {}/s",
                rate("total_commands_processed"),
                byte_rate("total_net_input_bytes"),
                byte_rate("total_net_output_bytes"),
                rate("total_error_replies")
            ),
        ),
        (
            "Executing",
            format!(
                "p50 {}   p99 {}   p99.9 {}",
                at_most(&all, 0.5),
                at_most(&all, 0.99),
                at_most(&all, 0.999)
            ),
        ),
        (
            "Commits",
            format!(
                "{}/s   since the start: p50 {}   p99 {}   longest {}",
                rate("log_commits"),
                us("log_commit_us_p50"),
                us("log_commit_us_p99"),
                us("log_commit_us_max")
            ),
        ),
        (
            "Hits",
            format!(
                "values in memory {}   keys found {}   read from the medium {}/s",
                share(change.risen("cache_hits"), change.risen("cache_misses")),
                share(change.risen("keyspace_hits"), change.risen("keyspace_misses")),
                rate("cache_misses")
            ),
        ),
        (
            "Keys",
            format!(
                "{}   expired {}/s   evicted {}/s",
                count(keys),
                rate("expired_keys"),
                rate("evicted_keys")
            ),
        ),
        ("Memory", format!("{}{of_limit}   RAM {}", human(used as u64), bytes("used_memory_rss"))),
        (
            "",
            format!(
                "heap {}   cache {}   index {}   log {}   clients {}   scripts {}",
                bytes("mem_heap"),
                bytes("mem_cache"),
                bytes("mem_index"),
                bytes("mem_log_buffers"),
                bytes("mem_clients_normal"),
                bytes("used_memory_vm_total")
            ),
        ),
        ("Log", format!("{}   {:.1} % live   [{}]", bytes("log_bytes"), live * 100.0, bar(live))),
        (
            "",
            format!(
                "segments {}, {} free   data folder {}   to replay {}   cleaned {}/s",
                now.text("log_segments"),
                now.text("log_segments_free"),
                bytes("disk_used_bytes"),
                bytes("log_bytes_since_checkpoint"),
                byte_rate("log_bytes_cleaned")
            ),
        ),
        (
            "Medium",
            format!(
                "written {}/s, {} ever   amplification {} since the start, {} ever",
                byte_rate("endurance_bytes_written"),
                bytes("endurance_bytes_written"),
                now.text("endurance_write_amplification_since_start"),
                now.text("endurance_write_amplification")
            ),
        ),
        ("", wear(now)),
        (
            "Clients",
            format!(
                "{}   waiting {}   subscribed {}   new {}/s   refused {}   evicted {}",
                now.text("connected_clients"),
                now.text("blocked_clients"),
                now.text("pubsub_clients"),
                rate("total_connections_received"),
                now.text("rejected_connections"),
                now.text("evicted_clients")
            ),
        ),
    ];
    rows.into_iter().map(|(name, text)| format!("{name:<11}{text}"))
}

fn wear(now: &Sample) -> String {
    if now.number("endurance_rated_tbw") == 0.0 {
        return "service life: not known (flash-endurance-tbw)".into();
    }
    let left = now.number("endurance_days_left");
    let lasts = match left {
        left if left < 0.0 => "does not wear".to_owned(),
        left => format!("lasts {} at this rate", duration(left * 86_400e6)),
    };
    format!("{} % of its rating used, {lasts}", now.text("endurance_rating_used_perc"))
}

fn commands(change: &Change) -> Vec<Line> {
    let mut busy: Vec<(&str, f64)> = change
        .now
        .fields("cmdstat_")
        .map(|name| (name, change.calls(name)))
        .filter(|(_, calls)| *calls > 0.0)
        .collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let head = format!("{:<24}{:>12}{:>12}{:>12}{:>12}", "Command", "calls/s", "p50", "p99", "failed");
    let mut lines = vec![Line { words: head, tone: Tone::Title }];
    for (name, calls) in busy.into_iter().take(COMMANDS_MAX) {
        let steps = change.latency(name);
        lines.push(plain(format!(
            "{name:<24}{:>12}{:>12}{:>12}{:>12}",
            count(calls),
            at_most(&steps, 0.5),
            at_most(&steps, 0.99),
            count(change.now.part(&format!("cmdstat_{name}"), "failed_calls"))
        )));
    }
    lines
}

fn slow(now: &Sample) -> Vec<Line> {
    let head = format!("{:<24}{:>12}{:>16}", "Slow command", "took", "ago");
    let mut lines = vec![Line { words: head, tone: Tone::Title }];
    let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for slow in &now.slow {
        let ago = match time_s.saturating_sub(slow.time_s) {
            0 => "now".to_owned(),
            seconds => duration(seconds as f64 * 1e6),
        };
        lines.push(plain(format!("{:<24}{:>12}{ago:>16}", slow.command, duration(slow.us as f64))));
    }
    lines
}

/// What a share of calls takes at most.
fn at_most(steps: &[(u64, u64)], share: f64) -> String {
    percentile(steps, share).map_or("-".into(), |us| format!("<{}", duration(us as f64 + 1.0)))
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "#".repeat(full) + &".".repeat(BAR - full)
}

fn share(part: f64, rest: f64) -> String {
    if part + rest > 0.0 { format!("{:.1} %", part * 100.0 / (part + rest)) } else { "-".into() }
}

fn count(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.2} M", number / 1e6),
        number if number >= 1e4 => format!("{:.1} k", number / 1e3),
        number => format!("{number:.0}"),
    }
}

/// Microseconds for people to read.
fn duration(us: f64) -> String {
    const SECOND: f64 = 1e6;
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < SECOND => format!("{:.1} ms", us / 1e3),
        us if us < 120.0 * SECOND => format!("{:.0} s", us / SECOND),
        us if us < 7200.0 * SECOND => format!("{:.0} minutes", us / SECOND / 60.0),
        us if us < 172_800.0 * SECOND => format!("{:.0} hours", us / SECOND / 3600.0),
        us if us < 730.0 * 86_400.0 * SECOND => format!("{:.0} days", us / SECOND / 86_400.0),
        us => format!("{:.1} years", us / SECOND / 86_400.0 / 365.25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        let durations = [0.0, 999.0, 1500.0, 2e6, 3600e6, 86_400e6, 30.0 * 86_400e6, 1e15];
        let shown = ["0 us", "999 us", "1.5 ms", "2 s", "60 minutes", "24 hours", "30 days", "31.7 years"];
        assert_eq!(durations.map(duration), shown);
        assert_eq!([0.4, 9999.0, 12_345.0, 1_234_567.0].map(count), ["0", "9999", "12.3 k", "1.23 M"]);
        assert_eq!((share(1.0, 3.0), share(0.0, 0.0)), ("25.0 %".into(), "-".into()));
        assert_eq!((bar(0.0), bar(2.0)), (".".repeat(BAR), "#".repeat(BAR)));
        assert!(bar(0.5).starts_with(&"#".repeat(BAR / 2)) && bar(0.5).ends_with(&".".repeat(BAR / 2)));
    }
}
