//! What was executed, how long that took, and what failed.

use crate::{command::table::CommandId, server::Server};
use holdfast_io::Counts;

/// A command that was called at least once.
pub struct CommandFigures {
    /// Its number.
    pub id: CommandId,
    /// Its name.
    pub name: &'static str,
    /// Executions.
    pub calls: u64,
    /// Time spent in them, in nanoseconds.
    pub nanos: u64,
    /// Refused before execution.
    pub rejected: u64,
    /// Ended with an error.
    pub failed: u64,
}

/// All commands that were called, also those that were refused, in the order of the table.
pub fn commands(server: &Server) -> impl Iterator<Item = CommandFigures> {
    server.table.all().filter_map(|(id, command)| {
        let mut figures =
            CommandFigures { id, name: command.name, calls: 0, nanos: 0, rejected: 0, failed: 0 };
        for worker in &server.workers {
            let stats = worker.command(id);
            figures.calls += stats.calls.get();
            figures.nanos += stats.nanos.get();
            figures.rejected += stats.rejected.get();
            figures.failed += stats.failed.get();
        }
        (figures.calls + figures.rejected > 0).then_some(figures)
    })
}

/// How long the executions of a command took, in nanoseconds: those while `latency-tracking` was on.
pub fn latency(server: &Server, id: CommandId) -> Counts {
    Counts::of(server.workers.iter().map(|worker| &worker.command(id).latency))
}
