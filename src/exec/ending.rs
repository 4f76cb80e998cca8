//! The end of a call: what becomes of one that stops, how it is counted, and who is shown it.

use crate::{
    admin::refusals::Cause,
    command::{
        Command, Flags,
        error::{DISK_FULL, Stop},
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
        let is_full = stop == DISK_FULL;
        match stop {
            Stop::Cold(cold) => (Outcome::Fetch(vec![cold]), false),
            Stop::LockBusy => (Outcome::LockBusy, false),
            Stop::Busy => (busy(may_grow), false),
            Stop::Error(text) => {
                if is_full {
                    self.worker.server.refusals.note(Cause::Space);
                }
                self.worker.server.errors.count(&text);
                out.error(text);
                (Outcome::Done, true)
            }
        }
    }

    /// Shows a call to the clients in MONITOR.
    #[cold]
    pub(super) fn show(&self, session: &Session, command: &Command, args: Args) {
        let push = &self.worker.server.push;
        push.monitors.show(&push.queues, &session.client, session.in_script, session.db, command, args);
    }

    /// Counts a call that has ended, and adds it to the slow log and the latency monitor if it took long.
    pub fn finish(&self, session: &Session, id: CommandId, args: Args, failed: bool) {
        let took_ns = self.end_command();
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
