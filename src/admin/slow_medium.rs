//! What the operator is told when the medium is slow: commits that took long, and one that is not done yet. A line at the start, one a
//! minute while it goes on, and one at the end.

use crate::admin::log::log;
use holdfast_io::Counts;
use holdfast_store::{Admission, Lsn, SMALL_BYTES, Store};
use std::{sync::Mutex, time::Duration};

/// While it goes on, it is told again after so many seconds.
const AGAIN: u32 = 60;
/// For so many seconds no commit must have been slow before the medium counts as fast again.
const QUIET: u32 = 10;

/// Whether the medium is slow, as the operator knows it.
#[derive(Default)]
pub struct SlowMedium(Mutex<State>);

#[derive(Default)]
struct State {
    /// The times of all commits at the last look.
    before: Option<Counts>,
    /// What of the log was there at a look, and how many looks ago that was, while it is not durable.
    waits_for: Option<(Lsn, u32)>,
    /// While it is slow.
    slow: Option<Slow>,
}

/// Since the operator was told last, and since it began.
#[derive(Default)]
struct Slow {
    commits: u64,
    commits_all: u64,
    longest_us: u64,
    seconds: u32,
    since_told: u32,
    quiet: u32,
}

/// What a look has found of the second before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Commits that ended and took too long.
    pub commits: u64,
    /// The longest of them, in microseconds.
    pub longest_us: u64,
    /// Seconds for which what was appended then has not become durable; 0: less than the limit.
    pub waited_seconds: u32,
}

impl SlowMedium {
    /// Logs the changes for the operator. To be called once a second, by one thread. `limit`: from when on a commit is slow; zero: never.
    /// `is_waited_for`: whether replies wait for commits.
    pub fn report(&self, store: &Store, limit: Duration, is_waited_for: bool) {
        let mut state = self.0.lock().expect("no holder panics");
        let seen = state.look(store, limit, is_waited_for);
        let median_us = store.log().stats().commit_us_p50;
        if let Some(line) = state.line(seen, median_us) {
            log!(Warning, "{line}");
        }
    }
}

impl State {
    fn look(&mut self, store: &Store, limit: Duration, is_waited_for: bool) -> Seen {
        let log = store.log();
        let now = log.commit_times();
        let last = self.before.as_ref().map(|before| now.since(before));
        self.before = Some(now);
        // A log that has failed, or has no room, is told as such.
        let waits = is_waited_for && log.failed().is_none() && log.admit(SMALL_BYTES) != Admission::Full;
        let (durable, tail) = (log.durable(), log.tail());
        self.waits_for = match self.waits_for {
            _ if !waits || durable >= tail => None,
            Some((lsn, looks)) if durable < lsn => Some((lsn, looks + 1)),
            _ => Some((tail, 0)),
        };
        if limit.is_zero() {
            return Seen::default();
        }
        let limit_us = limit.as_micros() as u64;
        let waited = self.waits_for.map_or(0, |(_, looks)| looks);
        let waited_seconds = if Duration::from_secs(waited.into()) >= limit { waited } else { 0 };
        let last = last.unwrap_or_default();
        Seen {
            commits: last.total() - last.up_to(limit_us - 1),
            longest_us: last.percentile(100.0),
            waited_seconds,
        }
    }

    /// What is to be told.
    fn line(&mut self, seen: Seen, median_us: u64) -> Option<String> {
        let Seen { commits, longest_us, waited_seconds } = seen;
        let is_slow = commits > 0 || waited_seconds > 0;
        let is_new = self.slow.is_none();
        if is_new && !is_slow {
            return None;
        }
        let slow = self.slow.get_or_insert_default();
        slow.commits += commits;
        slow.commits_all += commits;
        slow.seconds += 1;
        slow.since_told += 1;
        if commits > 0 {
            slow.longest_us = slow.longest_us.max(longest_us);
        }
        slow.quiet = if is_slow { 0 } else { slow.quiet + 1 };
        if slow.quiet >= QUIET {
            let (all, seconds) = (slow.commits_all, slow.seconds - slow.quiet);
            let line = format!(
                "The medium is no longer slow: {all} slow commits in {seconds} seconds, the longest took {}; the median since the start is {}",
                shown(slow.longest_us),
                shown(median_us)
            );
            self.slow = None;
            return Some(line);
        }
        // One that is told as not done is told when it is, too.
        if !is_new && slow.since_told < AGAIN {
            return None;
        }
        let waits = match waited_seconds {
            0 => String::new(),
            seconds => format!("a commit is not done after {seconds} seconds; "),
        };
        let line = format!(
            "The medium is slow: {waits}{} slow commits, the longest took {}; the median since the start is {}. Replies to writes wait for commits",
            slow.commits,
            shown(slow.longest_us),
            shown(median_us)
        );
        (slow.commits, slow.since_told) = (0, 0);
        Some(line)
    }
}

fn shown(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(seconds: impl IntoIterator<Item = Seen>) -> Vec<(usize, String)> {
        let mut state = State::default();
        let lines = seconds.into_iter().map(|seen| state.line(seen, 500)).enumerate();
        lines.filter_map(|(second, line)| Some((second, line?))).collect()
    }

    #[test]
    fn a_slow_medium_costs_a_line_at_its_start_one_a_minute_and_one_at_its_end() {
        let slow = Seen { commits: 2, longest_us: 1_500_000, waited_seconds: 0 };
        let fast = Seen::default();
        let told =
            lines([vec![fast; 5], vec![slow; 100], vec![fast; 5], vec![slow; 1], vec![fast; 30]].concat());
        let seconds: Vec<usize> = told.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [5, 65, 120], "{told:?}");
        assert_eq!(
            told[0].1,
            "The medium is slow: 2 slow commits, the longest took 1500.000 ms; the median since the start is 0.500 ms. Replies to \
             writes wait for commits"
        );
        assert!(told[1].1.contains("120 slow commits"), "{}", told[1].1);
        assert!(
            told[2].1.starts_with("The medium is no longer slow: 202 slow commits in 106 seconds"),
            "{}",
            told[2].1
        );
        assert_eq!(lines(vec![fast; 200]), []);
    }

    #[test]
    fn a_commit_that_is_not_done_is_told() {
        let waits = |waited_seconds| Seen { waited_seconds, ..Seen::default() };
        let done = Seen { commits: 1, longest_us: 7_000_000, waited_seconds: 0 };
        let told =
            lines([vec![waits(1), waits(2), waits(3)], vec![done], vec![Seen::default(); 10]].concat());
        assert!(
            told[0].1.starts_with("The medium is slow: a commit is not done after 1 seconds; 0 slow commits"),
            "{told:?}"
        );
        assert!(told[1].1.contains("1 slow commits in 4 seconds, the longest took 7000.000 ms"), "{told:?}");
        assert_eq!(told.len(), 2);
    }
}
