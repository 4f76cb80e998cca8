//! What commands write to storage-class memory.

use crate::{command::table::CommandId, util::counter::Counter};
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

/// What workers have executed.
#[derive(Default)]
pub struct Executed {
    /// Transactions that are not at their end.
    pub open: u64,
    /// Those that were executed.
    pub commands: BTreeMap<CommandId, OfCommand>,
    /// What was written for all commands of a loop turn together, during it and at its end.
    pub commits: ScmStats,
}

/// The count of a worker. Only its own thread adds to it.
pub struct Counted {
    begun: Counter,
    ended: Counter,
    /// By the numbers of commands.
    executed: Box<[Executions]>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Executions {
    transactions: Counter,
    nested: Counter,
}

/// Most commands write nothing by themselves.
#[derive(Default)]
struct Written {
    commands: BTreeMap<CommandId, ScmStats>,
    commits: ScmStats,
}

impl Counted {
    /// Nothing, of so many commands.
    pub fn new(commands: usize) -> Counted {
        Counted {
            begun: Counter::default(),
            ended: Counter::default(),
            executed: (0..commands).map(|_| Executions::default()).collect(),
            written: Mutex::default(),
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().expect("no holder panics")
    }

    /// A command begins, in a transaction of its own.
    #[inline]
    pub fn open(&self) {
        if let Some(written) = Scm::take_of_thread() {
            self.written().commits += written;
        }
        self.begun.add(1);
    }

    /// It has ended; `None`: it has stopped, and will be executed again.
    #[inline]
    pub fn close(&self, id: Option<CommandId>) {
        self.ended.add(1);
        let Some(id) = id else { return };
        self.executed[id.0 as usize].transactions.add(1);
        if let Some(written) = Scm::take_of_thread() {
            *self.written().commands.entry(id).or_default() += written;
        }
    }

    /// A command was executed in the transaction of another.
    pub fn nest(&self, id: CommandId) {
        self.executed[id.0 as usize].nested.add(1);
    }

    /// Counts from nothing again.
    pub fn reset(&self) {
        for executions in &self.executed {
            executions.transactions.reset();
            executions.nested.reset();
        }
        *self.written() = Written::default();
    }

    /// Adds what was counted to that of other workers.
    pub fn add_to(&self, all: &mut Executed) {
        // In this order, so that there are no fewer of the former.
        let ended = self.ended.get();
        all.open += self.begun.get() - ended;
        let written = self.written();
        all.commits += written.commits;
        for (id, executions) in (0..).map(CommandId).zip(&self.executed) {
            let (transactions, nested) = (executions.transactions.get(), executions.nested.get());
            if transactions + nested > 0 {
                let written = written.commands.get(&id).copied().unwrap_or_default();
                *all.commands.entry(id).or_default() += OfCommand { transactions, nested, written };
            }
        }
    }
}
