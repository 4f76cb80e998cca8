//! What is locked and read first for the keys of a call.

use crate::{
    command::{
        Command, Flags,
        keys::{CallKeys, reads_value},
    },
    exec::handler::{Handler, Row},
};
use holdfast_resp::Args;
use holdfast_store::{Begun, Cold, Error, Store, Txn};

/// Begins a transaction over the keys of a call. Arguments that do not tell the keys lock just any partition: the handler
/// finds the same fault before it looks at a key.
pub(super) fn begin_keys<'s>(
    store: &'s Store,
    logical: u8,
    command: &Command,
    args: Args<'s>,
    keys: &CallKeys,
) -> Begun<'s> {
    let mut keys = keys.all(command, args).map(|(key, _)| key).peekable();
    if keys.peek().is_none() {
        return store.try_begin(&[0]);
    }
    store.try_begin_known(store.database(logical), keys)
}

/// Whether a call touches a key that is kept for a client whose turn it is. Arguments that do not tell the keys fail before one
/// is looked at, and have not locked their partitions.
pub fn touches_kept(txn: &Txn, db: u8, row: &Row, args: Args, keys: &CallKeys) -> bool {
    matches!(row.handler, Handler::Whole(_))
        || (row.command.looks_beyond)(args)
        || keys.all(&row.command, args).any(|(key, _)| txn.is_kept(db, key))
}

/// The values that a call is sure to look at and that have to be fetched first.
pub fn cold_values(txn: &mut Txn, db: u8, command: &Command, args: Args, keys: &CallKeys) -> Vec<Cold> {
    let read = keys.all(command, args).filter(|(_, access)| reads_value(*access));
    txn.cold(db, read.map(|(key, _)| key))
}

/// Pages that are fetched for a command at the same time; one that wants more looks again when it has them.
pub const PAGES_MAX: usize = 4096;

/// The pages of the heap that a call will use, as far as its arguments tell, and that have to be fetched first: so many at most.
#[inline]
pub fn absent_pages(
    txn: &mut Txn,
    db: u8,
    row: &Row,
    args: Args,
    keys: &CallKeys,
    pages_max: usize,
) -> Result<Vec<Cold>, Error> {
    match row.uses {
        Some(uses) if txn.has_absent() => {
            let keys = keys.all(&row.command, args).map(|(key, _)| key);
            txn.absent(db, keys, &uses(args), row.command.flags.has(Flags::WRITE), pages_max)
        }
        _ => Ok(Vec::new()),
    }
}
