//! Calls alike: of the same command, on the same one key, one behind another in a pipeline. They share a transaction, so that its beginning
//! and its commit are paid for once. What a client sees is the same, as it is if no other client happens to come between.

use crate::{
    command::{Flags, keys::CallKeys},
    exec::{admit::redo_of, answer::Outcome, invocation::Invocation, turn::Turn},
    server::mailbox::Wake,
    session::{Replies, Session},
};
use holdfast_resp::{Args, Upcoming, Writer};
use holdfast_store::Txn;

/// Others wait for the key meanwhile, so it must not take long.
const TIME_MAX_NS: u64 = 100_000;
/// Bytes of their replies, of which none leaves before the last one is there.
const REPLIES_MAX: usize = 64 << 10;

impl Turn<'_> {
    /// Whether a call that is in its transaction now may share it with others: it is an only key's, it needs nothing but what is in memory, and
    /// nobody is told, or counts, what each of them does.
    pub(super) fn may_share(
        &self,
        session: &Session,
        invocation: &Invocation,
        txn: &Txn,
        wake: Wake,
    ) -> bool {
        let worker = self.worker;
        worker.server.table.first_is_key(invocation.id)
            && wake == Wake::First
            && session.user.is_unrestricted()
            && session.replies == Replies::On
            && session.tracking.is_none()
            && !worker.server.push.notices.are_used()
            && !txn.is_observed()
            && !txn.has_absent()
            && self.counts_scm().is_none()
    }

    /// Calls those at the head of `behind` that are like a call which is done, in the same transaction, and takes them out. Returns what came of
    /// the last one, with its arguments; it may have to be called again, and those before are done.
    pub(super) fn call_alike<'a, 'b: 'a>(
        &self,
        session: &mut Session,
        first: &Invocation<'a>,
        behind: &mut Upcoming<'b>,
        out: &mut Writer,
        txn: &mut Txn,
    ) -> (Outcome, Args<'a>) {
        let (began, start, mut last) = (self.now(), out.written().len(), first.args);
        let command = first.command();
        while let Some(next) = behind.clone().next().filter(|next| is_alike(first.args, *next)) {
            let takes_long =
                self.now().ns_since(began) > TIME_MAX_NS || out.written().len() - start > REPLIES_MAX;
            let has_room = !command.flags.has(Flags::WRITE) || txn.expect_more(redo_of(next));
            if takes_long || !has_room || !command.accepts(next.len()) {
                break;
            }
            behind.next();
            last = next;
            let invocation = Invocation { args: next, keys: &CallKeys::default(), ..*first };
            let outcome = self.call(session, &invocation, out, Wake::First, Some(txn));
            if !matches!(outcome, Outcome::Done) {
                return (outcome, last);
            }
        }
        (Outcome::Done, last)
    }
}

/// Whether two calls are of the same command on the same key, as far as their bytes tell, if that is an only key's.
fn is_alike(one: Args, other: Args) -> bool {
    other.get(0) == one.get(0) && other.get(1) == one.get(1)
}
