//! Counters. Each worker has its own, which only it writes, so counting costs no locked instruction; INFO adds them up.

use crate::{admin::scm::Counted, command::table::CommandId, util::counter::Counter};
use holdfast_io::Histogram;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

/// What is counted of a command.
#[derive(Default)]
pub struct CommandStats {
    /// Executions.
    pub calls: Counter,
    /// Time spent in them, in nanoseconds.
    pub nanos: Counter,
    /// Refused before execution.
    pub rejected: Counter,
    /// Ended with an error.
    pub failed: Counter,
    /// How long executions took, in nanoseconds, while `latency-tracking` is on.
    pub latency: Histogram,
}

/// What a worker counts.
pub struct WorkerStats {
    commands: Vec<CommandStats>,
    /// Bytes read from clients.
    pub input_bytes: Counter,
    /// Bytes sent to clients.
    pub output_bytes: Counter,
    /// Reads from sockets.
    pub reads: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Clients that now wait in a blocking command.
    pub blocked: AtomicU64,
    /// Values that were read from the medium while partitions were locked.
    pub cold_waits_under_lock: Counter,
    /// Bytes that its interpreter takes.
    pub interpreter_bytes: AtomicUsize,
    /// What commands wrote to storage-class memory.
    pub scm: Counted,
}

impl WorkerStats {
    /// All zero.
    pub fn new(commands: usize) -> Self {
        WorkerStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            blocked: AtomicU64::new(0),
            cold_waits_under_lock: Counter::default(),
            interpreter_bytes: AtomicUsize::new(0),
            scm: Counted::new(commands),
        }
    }

    /// The counters of a command.
    #[inline]
    pub fn command(&self, id: CommandId) -> &CommandStats {
        &self.commands[id.0 as usize]
    }

    /// Notes an execution.
    #[inline]
    pub fn executed(&self, id: CommandId, took_ns: u64, failed: bool, is_tracked: bool) {
        let stats = self.command(id);
        stats.calls.add(1);
        stats.nanos.add(took_ns);
        if failed {
            stats.failed.add(1);
        }
        if is_tracked {
            stats.latency.add(took_ns);
        }
    }

    /// All commands executed.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls.get()).sum()
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for command in &self.commands {
            for counter in [&command.calls, &command.nanos, &command.rejected, &command.failed] {
                counter.reset();
            }
            command.latency.reset();
        }
        for counter in
            [&self.input_bytes, &self.output_bytes, &self.reads, &self.writes, &self.cold_waits_under_lock]
        {
            counter.reset();
        }
    }
}

/// What happens in a second, as of the last one.
#[derive(Default)]
pub struct Rates {
    last: Mutex<Option<(Instant, Totals)>>,
    per_second: [AtomicU64; 3],
}

/// Commands, bytes read from clients, bytes sent to them.
pub type Totals = [u64; 3];

impl Rates {
    /// Takes the counts so far; to be called about once a second.
    pub fn sample(&self, now: Instant, totals: Totals) {
        let last = self.last.lock().expect("no holder panics").replace((now, totals));
        let Some((then, before)) = last else { return };
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        for ((rate, count), before) in self.per_second.iter().zip(totals).zip(before) {
            // CONFIG RESETSTAT may come between.
            let new = count.saturating_sub(before) as f64;
            rate.store(if seconds > 0.0 { (new / seconds).round() as u64 } else { 0 }, Relaxed);
        }
    }

    /// The rates.
    pub fn per_second(&self) -> Totals {
        [0, 1, 2].map(|nth: usize| self.per_second[nth].load(Relaxed))
    }
}

/// Error replies by their code.
#[derive(Default)]
pub struct ErrorStats(Mutex<BTreeMap<Vec<u8>, u64>>);

impl ErrorStats {
    /// Codes counted; a script could make up more.
    const CODES_MAX: usize = 128;

    /// Counts an error reply by the first word of its text.
    pub fn count(&self, text: &[u8]) {
        let code = text.split(|&b| b == b' ').next().unwrap_or_default();
        let mut codes = self.0.lock().expect("no holder panics");
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < Self::CODES_MAX {
            codes.insert(code.to_vec(), 1);
        }
    }

    /// All codes and their counts.
    pub fn all(&self) -> Vec<(Vec<u8>, u64)> {
        self.0.lock().expect("no holder panics").iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.0.lock().expect("no holder panics").clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_are_of_the_last_second() {
        let (rates, start) = (Rates::default(), Instant::now());
        rates.sample(start, [5, 10, 20]);
        assert_eq!(rates.per_second(), [0; 3]);
        rates.sample(start + Duration::from_secs(2), [105, 10, 21]);
        assert_eq!(rates.per_second(), [50, 0, 1]);
        rates.sample(start + Duration::from_secs(3), [1, 10, 121]);
        assert_eq!(rates.per_second(), [0, 0, 100]);
    }
}
