//! Commands of a pipeline behind one that waits for the medium: what they will need is read with it.

use crate::{
    command::{
        Command,
        keys::{CallKeys, each_key, reads_value},
        table::Lookup,
    },
    exec::{handler::Handler, locking::absent_pages, turn::Turn},
    session::Session,
};
use holdfast_resp::Args;
use holdfast_store::{Cold, Fetched};

/// Keys of such commands that are looked at.
const KEYS_MAX: usize = 64;
/// Bytes of values that are read for them.
const BYTES_MAX: usize = 1 << 20;

impl Turn<'_> {
    /// Looks at the keys of commands that come next, and puts what of their values was `fetched` into the cache. Returns what is
    /// still cold. It is only a guess what the commands will need, since others run before them.
    pub fn look_ahead<'a>(
        &self,
        session: &Session,
        commands: impl Iterator<Item = Args<'a>>,
        fetched: Vec<Fetched>,
    ) -> Vec<Cold> {
        let store = &self.worker.server.store;
        let (mut keys, mut calls) = (Vec::new(), Vec::new());
        for args in commands {
            let whole = self.each_value(args, |key| keys.push(key));
            if keys.len() > KEYS_MAX {
                break;
            }
            calls.extend(whole.map(|command| (command, args)));
        }
        keys.truncate(KEYS_MAX);
        if keys.is_empty() {
            return Vec::new();
        }
        let db = store.database(session.db as u8);
        let Ok(mut txn) = store.try_begin_known(db, keys.iter().copied()) else { return Vec::new() };
        // Nobody has asked for the keys yet.
        txn.keep_expired();
        txn.count_lookups(false);
        txn.note_uses(false);
        txn.supply(fetched);
        let mut cold = txn.cold(db, keys);
        for (command, args) in calls {
            // What is damaged is told by the command that meets it.
            let absent = absent_pages(&mut txn, db, command, args, &CallKeys::default());
            cold.extend(absent.unwrap_or_default());
        }
        txn.take_changes();
        let mut bytes = 0;
        cold.retain(|cold| {
            bytes += cold.len_max();
            bytes <= BYTES_MAX
        });
        cold
    }

    /// Calls `f` with the keys of which a command looks at the values; returns the command if these are all that it has.
    fn each_value<'a>(&self, args: Args<'a>, mut f: impl FnMut(&'a [u8])) -> Option<&Command> {
        let Lookup::Found(id) = self.worker.server.table.lookup(args) else { return None };
        let row = self.worker.rows.row(id);
        if !matches!(row.handler, Handler::Keyed(_)) || !row.command.accepts(args.len()) {
            return None;
        }
        let mut are_all = true;
        let found = each_key(&row.command, args, |index, access| match reads_value(access) {
            true => f(args.at(index)),
            false => are_all = false,
        });
        // What does not tell its keys will fail.
        (found.is_ok() && are_all).then_some(&row.command)
    }
}
