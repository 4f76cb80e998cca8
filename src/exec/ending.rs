//! The end of a call: what becomes of one that stops, how it is counted, and who is shown it.

use crate::{
    admin::refusals::Cause,
    command::{
        Command, Flags,
        error::{DISK_FULL, LOG_FAILED_TEXT, OUT_OF_MEMORY, Stop},
        table::CommandId,
    },
    config::Opt,
    exec::{
        admit::busy,
        answer::Outcome,
        turn::{NANOS_PER_MS, Turn},
    },
    session::Session,
};
use holdfast_resp::{Args, Writer};
use std::time::Duration;

impl Turn<'_> {
    /// What becomes of a command that stops, and whether that is an error.
    #[cold]
    pub(super) fn stop(&self, stop: Stop, may_grow: bool, out: &mut Writer) -> (Outcome, bool) {
        self.count_refusal(&stop);
        match stop {
            Stop::Cold(cold) => (Outcome::Fetch(vec![cold]), false),
            Stop::LockBusy => (Outcome::LockBusy, false),
            Stop::Busy => (busy(may_grow), false),
            Stop::Error(text) => {
                self.worker.server.errors.count(&text);
                out.error(text);
                (Outcome::Done, true)
            }
        }
    }

    /// Counts a command that ends so, if it is refused for a cause that an operator can do something about. This is the only place;
    /// whoever makes another error of this one calls it before.
    pub fn count_refusal(&self, stop: &Stop) {
        if let Some(cause) = cause_of(stop) {
            self.worker.server.refusals.count(cause);
        }
    }

    /// Shows a call to the clients in MONITOR.
    #[cold]
    pub(super) fn show(&self, session: &Session, command: &Command, args: Args) {
        let push = &self.worker.server.push;
        push.monitors.show(&push.queues, &session.client, session.in_script, session.db, command, args);
    }

    /// A run of a command has ended, which is to be run again.
    pub(super) fn end_run(&self, session: &mut Session) {
        // What EXEC and scripts run is theirs.
        if !session.in_exec {
            session.spent_ns += self.end_command();
        }
    }

    /// Counts a call that has ended, and adds it to the slow log and the latency monitor if it took long.
    pub fn finish(&self, session: &mut Session, id: CommandId, args: Args, failed: bool) {
        let earlier_ns = if session.in_exec { 0 } else { std::mem::take(&mut session.spent_ns) };
        let took_ns = earlier_ns + self.end_command();
        let took = Duration::from_nanos(took_ns);
        let config = &self.worker.server.config;
        self.worker.stats().executed(id, took_ns, failed, config.is_on(Opt::LatencyTracking));
        session.client.count_command();
        let long_ms = config.number(Opt::LatencyMonitorThreshold);
        if long_ms > 0 && took_ns / NANOS_PER_MS >= long_ms as u64 {
            let is_fast = self.worker.server.table.command(id).flags.has(Flags::FAST);
            self.worker.server.latency.add(if is_fast { "fast-command" } else { "command" }, took);
        }
        let slow_us = config.number(Opt::SlowlogLogSlowerThan);
        if slow_us >= 0
            && took_ns / 1000 >= slow_us as u64
            && !self.worker.server.table.command(id).flags.has(Flags::SKIP_SLOWLOG)
        {
            let client = &session.client;
            let max_len = config.number(Opt::SlowlogMaxLen) as usize;
            self.worker.server.slowlog.add(
                self.worker.server.table.command(id),
                args,
                took,
                &client.addr,
                client.name(),
                max_len,
            );
        }
    }
}

/// Why a command is refused that ends so.
fn cause_of(stop: &Stop) -> Option<Cause> {
    match stop {
        stop if *stop == DISK_FULL => Some(Cause::Space),
        stop if *stop == OUT_OF_MEMORY => Some(Cause::Memory),
        Stop::Error(text) if text.starts_with(LOG_FAILED_TEXT.as_bytes()) => Some(Cause::Failure),
        _ => None,
    }
}
