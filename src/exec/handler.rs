//! What executes a command: the rows of the command table, each a description with its handler.
//!
//! Rows live beside their handlers in `commands/`, which puts them together.

use crate::{
    command::{
        Command,
        table::{CommandId, Table},
    },
    exec::{answer::Answer, call::Call, keyspace::Keyspace, uses::Uses},
    server::Server,
};
use holdfast_resp::{Args, Writer};
use holdfast_store::Txn;

/// How a command is done.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Without a transaction of the store.
    Plain(fn(&mut Call) -> Answer),
    /// Within a transaction over its keys' partitions. It must not write before it has read what it needs: a read may find
    /// that a value must be fetched, and then the handler runs again.
    Keyed(fn(&mut Call, &mut Txn) -> Answer),
    /// Within a transaction over all partitions.
    Whole(fn(&mut Call, &mut Txn) -> Answer),
    /// Within a transaction that grows: EXEC's, or, if none is given, one that it begins itself.
    Script(fn(&mut Call, Option<&mut Txn>) -> Answer),
    /// With a view of all keys, for which nothing is locked, except within EXEC.
    Browsing(fn(&mut Call, &mut Keyspace) -> Answer),
}

/// What a call does with the string at its first argument, if that is all it does: where nobody is to be told, no transaction is
/// needed.
#[derive(Clone, Copy)]
pub enum Direct {
    /// Replies with something about it.
    Reads(fn(&mut Writer, &[u8])),
    /// Replaces it by one of the arguments, and replies OK. `None`: this call does something else.
    Sets(for<'a> fn(Args<'a>) -> Option<&'a [u8]>),
    /// Adds to the number that it is, and replies with the sum. `None`: this call fails.
    Adds(fn(Args) -> Option<i64>),
}

/// A row of the command table.
pub struct Row {
    /// What the command is.
    pub command: Command,
    /// Does it.
    pub handler: Handler,
    /// How it is done without a transaction, where none is needed.
    pub direct: Option<Direct>,
    /// What of its keys' values a call uses, as far as its arguments tell.
    pub uses: Option<Uses>,
    /// Whether a call of a command that may write is known not to.
    pub writes_nothing: Option<fn(&Server, Args) -> bool>,
    /// If it is a container, what it contains.
    pub subcommands: &'static [Row],
}

impl Command {
    /// The row of a command that this does.
    pub const fn by(self, handler: Handler) -> Row {
        Row {
            command: self.with_arity(),
            handler,
            direct: None,
            uses: None,
            writes_nothing: None,
            subcommands: &[],
        }
    }

    /// The row of a command that does nothing without a subcommand.
    pub const fn container(self, subcommands: &'static [Row]) -> Row {
        let container = Command { arity: -2, ..self };
        container.by(Handler::Plain(|call| Err(call.unknown_subcommand()))).containing(subcommands)
    }
}

impl Row {
    /// The same with subcommands.
    pub const fn containing(self, subcommands: &'static [Row]) -> Row {
        Row { subcommands, ..self }
    }

    /// The same with a way to do it without a transaction: see [`Row::direct`].
    pub const fn directly(self, direct: Direct) -> Row {
        Row { direct: Some(direct), ..self }
    }

    /// The same where a call tells what of its keys' values it uses: see [`Row::uses`].
    pub const fn using(self, uses: Uses) -> Row {
        Row { uses: Some(uses), ..self }
    }

    /// The same where it may be known of a call that it does not write: see [`Row::writes_nothing`].
    pub const fn unless(self, writes_nothing: fn(&Server, Args) -> bool) -> Row {
        Row { writes_nothing: Some(writes_nothing), ..self }
    }

    /// Whether a call locks all partitions.
    pub fn locks_all(&self, args: Args) -> bool {
        matches!(self.handler, Handler::Whole(_) | Handler::Browsing(_)) || (self.command.looks_beyond)(args)
    }
}

/// The rows of all commands and subcommands.
pub struct Rows {
    /// What the commands are.
    pub table: Table,
    rows: Vec<&'static Row>,
}

impl Rows {
    /// Puts families of commands together.
    pub fn new(families: &[&'static [Row]]) -> Rows {
        let mut rows: Vec<&Row> = families.iter().copied().flatten().collect();
        rows.sort_by_key(|row| row.command.name);
        let describe = |row: &&'static Row| {
            let subcommands = row.subcommands.iter().map(|sub| &sub.command);
            (&row.command, subcommands.collect())
        };
        let table = Table::new(rows.iter().map(describe).collect());
        let top_level = rows.clone();
        rows.extend(top_level.into_iter().flat_map(|row| row.subcommands));
        Rows { table, rows }
    }

    /// The row of a command.
    #[inline]
    pub fn row(&self, id: CommandId) -> &'static Row {
        self.rows[id.0 as usize]
    }
}
