//! Commands of a pipeline behind one that waits for the medium: what they will need is read with it.

use crate::{
    command::{KeyAccess, keys::each_key, table::Lookup},
    exec::{handler::Handler, turn::Turn},
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
        let mut keys = Vec::new();
        for args in commands {
            self.each_value(args, |key| keys.push(key));
        }
        keys.truncate(KEYS_MAX);
        if keys.is_empty() {
            return Vec::new();
        }
        let db = store.database(session.db as u8);
        let Ok(mut txn) = store.try_begin_known(db, &keys) else { return Vec::new() };
        // Nobody has asked for the keys yet.
        txn.keep_expired();
        txn.count_lookups(false);
        txn.note_uses(false);
        txn.supply(fetched);
        let mut cold = txn.cold(db, keys);
        txn.take_changes();
        let mut bytes = 0;
        cold.retain(|cold| {
            bytes += cold.len_max();
            bytes <= BYTES_MAX
        });
        cold
    }

    /// Calls `f` with the keys of which a command looks at the values.
    fn each_value<'a>(&self, args: Args<'a>, mut f: impl FnMut(&'a [u8])) {
        let Lookup::Found(id) = self.worker.server.table.lookup(args) else { return };
        let row = self.worker.rows.row(id);
        if matches!(row.handler, Handler::Keyed(_)) && row.command.accepts(args.len()) {
            // What does not tell its keys will fail.
            let _ = each_key(&row.command, args, |index, access| {
                if access.has(KeyAccess::ACCESS) || access.has(KeyAccess::RW) {
                    f(args.at(index));
                }
            });
        }
    }
}
