//! Commands of a pipeline behind one that waits for the medium: what they will need is read with it.

use crate::{
    command::{
        keys::{CallKeys, reads_value},
        table::{CommandId, Lookup},
    },
    exec::{
        handler::{Handler, Row},
        invocation::Invocation,
        locking::absent_pages,
        turn::Turn,
    },
    session::Session,
};
use holdfast_resp::Args;
use holdfast_store::{Cold, Use};

/// Keys of such commands that are looked at.
const KEYS_MAX: usize = 64;
/// Bytes of values that are read for them.
const BYTES_MAX: usize = 1 << 20;
/// Pages that are looked for, for each of them.
const PAGES_MAX: usize = 64;

impl Turn<'_> {
    /// What is cold of what commands will need that come behind the first of these, which waits. It is only a guess, since others run before
    /// them. `None`: the keys are locked for long.
    pub fn look_ahead<'a>(
        &self,
        session: &Session,
        mut commands: impl Iterator<Item = Args<'a>>,
    ) -> Option<Vec<Cold>> {
        let store = &self.worker.server.store;
        let mut draws = session.draws.clone();
        if commands.next().is_some_and(|first| self.chooses_at_random(first)) {
            draws.u64(..);
        }
        let (mut keys, mut read, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for args in commands {
            let Some((id, row)) = self.keyed_row(args) else { continue };
            let found = CallKeys::default();
            keys.extend(found.all(&row.command, args).map(|(key, _)| key));
            if keys.len() > KEYS_MAX {
                break;
            }
            let reads = found.all(&row.command, args).filter(|(_, access)| reads_value(*access));
            read.extend(reads.map(|(key, _)| key));
            calls.push((id, row, args, found));
        }
        keys.truncate(KEYS_MAX);
        if calls.is_empty() {
            return Some(Vec::new());
        }
        let db = store.database(session.db as u8);
        let mut txn = store.try_begin_known(db, keys.iter().copied()).ok()?;
        // Nobody has asked for the keys yet.
        txn.keep_expired();
        txn.count_lookups(false);
        txn.note_uses(false);
        let mut cold = txn.cold(db, read);
        for (id, row, args, keys) in &calls {
            let invocation = Invocation { id: *id, row, args: *args, keys, expected: None };
            // What is damaged is told by the command that meets it.
            cold.extend(absent_pages(&mut txn, db, &invocation, &mut draws, PAGES_MAX).unwrap_or_default());
        }
        txn.take_changes();
        let mut bytes = 0;
        cold.retain(|cold| {
            bytes += cold.len_max();
            bytes <= BYTES_MAX
        });
        Some(cold)
    }

    fn chooses_at_random(&self, args: Args) -> bool {
        let uses = self.keyed_row(args).and_then(|(_, row)| row.uses);
        uses.is_some_and(|uses| uses(args).iter().any(|used| matches!(used, Use::Random { .. })))
    }

    /// The row of a command whose keys tell what it locks.
    fn keyed_row(&self, args: Args) -> Option<(CommandId, &'static Row)> {
        let Lookup::Found(id) = self.worker.server.table.lookup(args) else { return None };
        let row = self.worker.rows.row(id);
        (matches!(row.handler, Handler::Keyed(_)) && row.command.accepts(args.len())).then_some((id, row))
    }
}
