//! What commands write to storage-class memory.

use crate::command::table::CommandId;
use holdfast_io::{Scm, ScmStats};
use std::{
    collections::BTreeMap,
    ops::AddAssign,
    sync::{Mutex, MutexGuard},
};

/// What a command has written.
#[derive(Clone, Copy, Default)]
pub struct OfCommand {
    /// Executions, each a transaction of its own.
    pub transactions: u64,
    /// Executions in the transaction of another command, EXEC or a script.
    pub nested: u64,
    /// What the transactions of its own wrote.
    pub written: ScmStats,
}

impl AddAssign for OfCommand {
    fn add_assign(&mut self, more: OfCommand) {
        self.transactions += more.transactions;
        self.nested += more.nested;
        self.written += more.written;
    }
}

/// What a worker has written.
#[derive(Default)]
pub struct OfWorker {
    /// Transactions that are not at their end.
    pub open: u64,
    /// What was executed.
    pub commands: BTreeMap<CommandId, OfCommand>,
    /// What was written for all commands of a loop turn together, at its end.
    pub commits: ScmStats,
}

/// The count of a worker. Only its own thread adds to it.
#[derive(Default)]
pub struct Counted(Mutex<OfWorker>);

impl Counted {
    fn of_worker(&self) -> MutexGuard<'_, OfWorker> {
        self.0.lock().expect("no holder panics")
    }

    /// A command begins, in a transaction of its own.
    pub fn open(&self) {
        let mut all = self.of_worker();
        all.commits += Scm::take_of_thread();
        all.open += 1;
    }

    /// It has ended; `None`: it has stopped, and will be executed again.
    pub fn close(&self, id: Option<CommandId>) {
        let mut all = self.of_worker();
        all.open -= 1;
        let Some(id) = id else { return };
        let command = all.commands.entry(id).or_default();
        command.transactions += 1;
        command.written += Scm::take_of_thread();
    }

    /// A command was executed in the transaction of another.
    pub fn nest(&self, id: CommandId) {
        self.of_worker().commands.entry(id).or_default().nested += 1;
    }

    /// Counts from nothing again.
    pub fn reset(&self) {
        let mut all = self.of_worker();
        *all = OfWorker { open: all.open, ..OfWorker::default() };
    }

    /// Calls back with what was counted.
    pub fn show(&self, see: impl FnOnce(&OfWorker)) {
        see(&self.of_worker());
    }
}
