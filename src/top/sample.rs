//! What a server tells at a moment.

use crate::import::Connection;
use holdfast_resp::Reply;
use std::{collections::HashMap, io, time::Instant};

/// Slow commands that are asked for.
const SLOW: &[u8] = b"8";

/// What a server tells at a moment. Figures that it does not know are 0 or empty.
pub struct Sample {
    /// When.
    pub taken: Instant,
    /// Fields of INFO.
    info: HashMap<String, String>,
    /// How many calls took how many microseconds at most, by command, as LATENCY HISTOGRAM counts them.
    pub latency: Vec<(String, Steps)>,
    /// The newest slow commands.
    pub slow: Vec<Slow>,
}

/// How many calls took how many microseconds at most; both rise.
pub type Steps = Vec<(u64, u64)>;

/// A slow command.
pub struct Slow {
    /// Its name.
    pub command: String,
    /// How long it took, in microseconds.
    pub us: u64,
    /// When, in Unix time.
    pub time_s: u64,
}

impl Sample {
    /// Asks a server.
    pub fn take(connection: &mut Connection) -> io::Result<Sample> {
        let info = text(&connection.call(&[b"INFO", b"everything"])?);
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let latency = latency(&connection.call(&[b"LATENCY", b"HISTOGRAM"])?);
        let slow = connection.call(&[b"SLOWLOG", b"GET", SLOW])?;
        Ok(Sample {
            taken: Instant::now(),
            info,
            latency,
            slow: items(&slow).iter().filter_map(slow_command).collect(),
        })
    }

    /// A field of INFO.
    pub fn text(&self, field: &str) -> &str {
        self.info.get(field).map_or("", String::as_str)
    }

    /// A number of INFO.
    pub fn number(&self, field: &str) -> f64 {
        self.text(field).parse().unwrap_or(0.0)
    }

    /// What `name=` has in a field of INFO that consists of several.
    pub fn part(&self, field: &str, name: &str) -> f64 {
        let parts = self.text(field).split(',').filter_map(|part| part.split_once('='));
        parts.filter(|(other, _)| *other == name).find_map(|(_, value)| value.parse().ok()).unwrap_or(0.0)
    }

    /// The rest of the names of fields that begin so.
    pub fn fields<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.info.keys().filter_map(move |name| name.strip_prefix(start))
    }
}

/// The text of a reply. What would move the cursor of a terminal is left out, whoever has sent it.
fn text(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default());
    text.chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

fn items(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(items) => items,
        _ => &[],
    }
}

fn whole(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The value of a name in a flat list of pairs.
fn value<'r>(pairs: &'r [Reply], name: &str) -> Option<&'r Reply> {
    pairs.chunks_exact(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
}

fn latency(reply: &Reply) -> Vec<(String, Steps)> {
    let command = |pair: &[Reply]| {
        let steps = items(value(items(&pair[1]), "histogram_usec")?).chunks_exact(2);
        let steps = steps.filter_map(|step| Some((whole(&step[0])?, whole(&step[1])?)));
        Some((text(&pair[0]), steps.collect()))
    };
    items(reply).chunks_exact(2).filter_map(command).collect()
}

fn slow_command(entry: &Reply) -> Option<Slow> {
    let [_, time, us, args, ..] = items(entry) else { return None };
    let command = items(args).first().map(text)?.to_lowercase();
    Some(Slow { command, us: whole(us)?, time_s: whole(time)? })
}

/// Counts that came between two looks, at the limits of the later one.
pub fn between(before: &[(u64, u64)], now: &[(u64, u64)]) -> Steps {
    let up_to =
        |us| before.iter().take_while(|(limit, _)| *limit <= us).last().map_or(0, |(_, count)| *count);
    // Less than before: counts were reset.
    let was_reset = now.last().map_or(0, |last| last.1) < before.last().map_or(0, |last| last.1);
    now.iter()
        .map(|&(us, count)| (us, if was_reset { count } else { count.saturating_sub(up_to(us)) }))
        .collect()
}

/// Counts of several commands together.
pub fn together(all: impl IntoIterator<Item = Steps>) -> Steps {
    let mut added: std::collections::BTreeMap<u64, u64> = Default::default();
    for steps in all {
        let mut below = 0;
        for (us, count) in steps {
            *added.entry(us).or_default() += count.saturating_sub(below);
            below = count;
        }
    }
    let mut sum = 0;
    added
        .into_iter()
        .map(|(us, count)| {
            sum += count;
            (us, sum)
        })
        .collect()
}

/// What a share of the calls does not exceed, in microseconds; `None`: there are none.
pub fn percentile(steps: &[(u64, u64)], share: f64) -> Option<u64> {
    let (_, count) = *steps.last().filter(|(_, count)| *count > 0)?;
    let wanted = (count as f64 * share).ceil() as u64;
    steps.iter().find(|(_, up_to)| *up_to >= wanted).map(|(us, _)| *us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_between_two_looks() {
        // The server leaves limits out at which no more calls are counted than at the one before.
        let (before, now) = ([(1, 10), (8, 12)], [(1, 10), (2, 15), (8, 17), (16, 18)]);
        let new = between(&before, &now);
        assert_eq!(new, [(1, 0), (2, 5), (8, 5), (16, 6)]);
        assert_eq!([0.5, 0.8, 0.99].map(|share| percentile(&new, share)), [Some(2), Some(2), Some(16)]);
        assert_eq!(percentile(&between(&now, &now), 0.5), None);
        assert_eq!(between(&now, &before), before, "they were reset");
        assert_eq!(together([new, vec![(2, 1), (4, 3)]]), [(1, 0), (2, 6), (4, 8), (8, 8), (16, 9)]);
    }

    #[test]
    fn replies_are_read_without_what_moves_a_cursor() {
        let bulk = |text: &str| Reply::Bulk(text.into());
        let reply = Reply::Array(vec![
            bulk("get"),
            Reply::Array(vec![
                bulk("calls"),
                Reply::Int(3),
                bulk("histogram_usec"),
                Reply::Array(vec![Reply::Int(1), Reply::Int(2), Reply::Int(4), Reply::Int(3)]),
            ]),
        ]);
        assert_eq!(latency(&reply), [("get".to_owned(), vec![(1, 2), (4, 3)])]);
        let entry = Reply::Array(vec![
            Reply::Int(7),
            Reply::Int(1000),
            Reply::Int(20),
            Reply::Array(vec![bulk("S\u{1b}[2JET"), bulk("secret")]),
        ]);
        let slow = slow_command(&entry).unwrap();
        assert_eq!((slow.command.as_str(), slow.us, slow.time_s), ("s[2jet", 20, 1000));
        assert!(slow_command(&Reply::Null).is_none() && latency(&Reply::Null).is_empty());
    }
}
