//! What is locked and read first for the keys of a call.

use crate::{
    command::{Flags, KeyAccess, keys::reads_value},
    exec::{handler::Handler, invocation::Invocation},
};
use holdfast_store::{Begun, Cold, Error, Store, Txn, Use};

/// Begins a transaction over the keys of a call. Arguments that do not tell the keys lock just any partition: the handler
/// finds the same fault before it looks at a key.
pub(super) fn begin_keys<'s>(store: &'s Store, logical: u8, invocation: &Invocation<'s>) -> Begun<'s> {
    let mut keys = invocation.all_keys().map(|(key, _)| key).peekable();
    if keys.peek().is_none() {
        return store.try_begin(&[0]);
    }
    store.try_begin_known(store.database(logical), keys)
}

/// Whether a call touches a key that is kept for a client whose turn it is. Arguments that do not tell the keys fail before one
/// is looked at, and have not locked their partitions.
pub fn touches_kept(txn: &Txn, db: u8, invocation: &Invocation) -> bool {
    matches!(invocation.row.handler, Handler::Whole(_))
        || (invocation.command().looks_beyond)(invocation.args)
        || invocation.all_keys().any(|(key, _)| txn.is_kept(db, key))
}

/// The values that a call is sure to look at and that have to be fetched first.
pub fn cold_values(txn: &mut Txn, db: u8, invocation: &Invocation) -> Vec<Cold> {
    let read = invocation.all_keys().filter(|(_, access)| reads_value(*access));
    txn.cold(db, read.map(|(key, _)| key))
}

/// Pages that are fetched for a command at the same time; one that wants more looks again when it has them.
pub const PAGES_MAX: usize = 4096;

/// The pages of the heap that a call will use, as far as its arguments and what it draws tell, and that have to be fetched first: so many
/// at most.
#[inline]
pub fn absent_pages(
    txn: &mut Txn,
    db: u8,
    invocation: &Invocation,
    draws: &mut fastrand::Rng,
    pages_max: usize,
) -> Result<Vec<Cold>, Error> {
    if !txn.has_absent() {
        return Ok(Vec::new());
    }
    let kept = invocation.all_keys().filter(|(_, access)| !access.has(KeyAccess::OW));
    let keys = kept.map(|(key, _)| key);
    let writes = invocation.command().flags.has(Flags::WRITE);
    let mut uses = invocation.row.uses.map(|uses| uses(invocation.args)).unwrap_or_default();
    for used in &mut uses {
        if let Use::Random { seed, .. } = used {
            *seed = draws.u64(..);
        }
    }
    txn.absent(db, keys, &uses, writes, pages_max)
}
