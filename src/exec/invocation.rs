//! What a client, EXEC or a script calls.

use crate::{
    command::{Command, KeyAccess, keys::CallKeys, table::CommandId},
    exec::handler::Row,
};
use holdfast_resp::Args;
use holdfast_store::Expected;

/// A command with its arguments, and the keys among these.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// Which command.
    pub id: CommandId,
    /// Its row in the table.
    pub row: &'static Row,
    /// The arguments, its name first.
    pub args: Args<'a>,
    /// Where keys are among them.
    pub keys: &'a CallKeys,
    /// What was derived from its first argument, if that was looked ahead to.
    pub expected: Option<&'a Expected>,
}

impl<'a> Invocation<'a> {
    /// The command.
    #[inline]
    pub fn command(&self) -> &'static Command {
        &self.row.command
    }

    /// The index of each key, and what is done with it: see [`CallKeys::known`].
    pub fn known_keys(&self) -> &'a [(usize, KeyAccess)] {
        self.keys.known(self.command(), self.args)
    }

    /// The keys, and what is done with them; none if the arguments do not tell all.
    pub fn all_keys(&self) -> impl Iterator<Item = (&'a [u8], KeyAccess)> + use<'a> {
        self.keys.all(self.command(), self.args)
    }
}
