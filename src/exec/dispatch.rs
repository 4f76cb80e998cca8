//! From arguments to a handler: a command is looked up, checked, admitted, and called in its transaction, or queued for EXEC.

use crate::{
    admin::{log::log, scm::Counted},
    clients::client::flag,
    command::{
        Categories, Command, Flags, KeyAccess,
        error::Stop,
        keys::CallKeys,
        table::{CommandId, Lookup},
    },
    exec::{
        admit::{BUSY_RETRY, purpose, redo_of},
        answer::Outcome,
        call::{Call, unknown_subcommand},
        check::{is_http, unknown_command},
        cluster::{Elsewhere, Way},
        handler::{Handler, Row, Rows},
        invocation::Invocation,
        keyspace::Keyspace,
        locking::{PAGES_MAX, absent_pages, begin_keys, cold_values, touches_kept},
        turn::{Notification, Turn},
    },
    push::tracking::Mode,
    script::stack,
    server::{Server, mailbox::Wake},
    session::{Queued, Replies, Session},
};
use holdfast_io::Scm;
use holdfast_resp::{Args, Upcoming, Writer};
use holdfast_store::{Expected, Txn};
use std::time::Duration;
use tokio::time;

/// How soon a command looks again whether the slot of its keys may be used.
const FROZEN_RETRY: Duration = Duration::from_millis(1);

impl Turn<'_> {
    /// Remembers the keys that a tracking client has read, so that it is sent invalidations. The keys of a script are those
    /// that its commands read.
    #[cold]
    fn remember(&self, session: &Session, invocation: &Invocation) {
        let remembers = session.tracking.as_ref().is_some_and(Mode::remembers);
        if !remembers || invocation.command().categories.has(Categories::SCRIPTING) {
            return;
        }
        // A call whose arguments do not tell its keys has failed.
        for &(index, _) in invocation.known_keys() {
            self.announce(Notification::Read(session.client.id, invocation.args.at(index).to_vec()));
        }
    }

    /// Executes one command, or refuses it, or queues it; its reply goes to `out`. `expected` is what was derived from its
    /// first argument, if that was looked ahead to. Some of those `behind` it may be executed with it, and are taken out: then this is
    /// the outcome of the last.
    pub fn execute<'a>(
        &self,
        session: &mut Session,
        args: Args<'a>,
        out: &mut Vec<u8>,
        wake: Wake,
        expected: Option<&Expected>,
        behind: &mut Upcoming<'a>,
    ) -> Outcome {
        let start = out.len();
        let outcome = self.checked(session, args, out, wake, expected, behind);
        if session.replies != Replies::On && outcome.is_final() {
            if session.replies != Replies::SkipNext && !session.replied_by_push {
                out.truncate(start);
            }
            session.replies = match session.replies {
                Replies::SkipNext => Replies::Skip,
                Replies::Skip => Replies::On,
                other => other,
            };
        }
        session.replied_by_push = false;
        self.put_told(out, start);
        if outcome.is_final() {
            session.has_asked();
        }
        outcome
    }

    #[inline]
    fn checked<'a>(
        &self,
        session: &mut Session,
        args: Args<'a>,
        out: &mut Vec<u8>,
        wake: Wake,
        expected: Option<&Expected>,
        behind: &mut Upcoming<'a>,
    ) -> Outcome {
        let id = match self.worker.server.table.lookup(args) {
            Lookup::Found(id) => id,
            Lookup::UnknownCommand if is_http(args.at(0)) => {
                log!(Warning, "possible attack: {} sends HTTP; closing its connection", session.client.addr);
                return Outcome::Close;
            }
            Lookup::UnknownCommand => return self.refuse(session, None, out, unknown_command(args)),
            Lookup::UnknownSubcommand(id) => {
                return self.refuse(
                    session,
                    None,
                    out,
                    unknown_subcommand(self.worker.server.table.command(id), args),
                );
            }
        };
        let row = self.worker.rows.row(id);
        let command = &row.command;
        if self.worker.server.busy.is_on()
            && let Some(outcome) = self.while_busy(session, id, out)
        {
            return outcome;
        }
        let keys = CallKeys::default();
        let invocation = Invocation { id, row, args, keys: &keys, expected };
        if let Err(error) = self.check(session, &invocation) {
            self.worker.stats().command(id).rejected.add(1);
            return self.refuse(session, Some(id), out, error);
        }
        let mut way = Way::Here;
        if self.worker.server.cluster.is_on() && !session.is_primary {
            match self.way(session, &invocation) {
                Ok(found) => way = found,
                Err(Elsewhere::Later) => return Outcome::postpone(FROZEN_RETRY),
                Err(elsewhere) => {
                    self.worker.stats().command(id).rejected.add(1);
                    return self.refuse(session, Some(id), out, elsewhere.into());
                }
            }
        }
        if self.worker.server.push.queues.is_full()
            && command.flags.has(Flags::WRITE) | command.flags.has(Flags::PUBSUB)
        {
            return Outcome::postpone(BUSY_RETRY);
        }
        let server = &self.worker.server;
        // What a client has waited for came before the pause, and others wait for it; and its time goes on.
        if wake == Wake::First
            && let Some(until) =
                server.pause.delays(|| may_write(self.worker.rows, server, session, row, args))
        {
            return Outcome::Postpone(time::Instant::from_std(until));
        }
        if session.multi.is_some() && !command.flags.has(Flags::IMMEDIATE) {
            return self.queue(session, id, args, keys, out);
        }
        if let Some(uses) = use_of_scripts(self.worker.rows, session, row)
            && !stack::is_on_stack()
            // A script that is paused keeps the interpreter.
            && (uses == ScriptUse::Runs || !self.worker.engine_is_free())
        {
            return Outcome::OnStack;
        }
        let mut redo = 0;
        if command.flags.has(Flags::WRITE) {
            redo = redo_of(args);
            match self.admit(session, redo, command.flags.has(Flags::DENYOOM)) {
                Ok(None) => {}
                Ok(Some(later)) => return later,
                Err(error) => {
                    self.worker.stats().command(id).rejected.add(1);
                    return self.refuse(session, Some(id), out, error);
                }
            }
        }
        let proto = session.proto;
        let out = &mut Writer::new(out, proto);
        let has_txn = !matches!(row.handler, Handler::Plain(_)) || command.name == "exec";
        let counted = self.counts_scm().filter(|_| has_txn);
        counted.inspect(|counted| counted.open());
        let outcome = self.run(session, &invocation, Admitted { way, redo, wake }, out, behind);
        counted.inspect(|counted| counted.close(outcome.is_final().then_some(id)));
        if let Some(mode) = session.tracking.as_mut().filter(|_| outcome.is_final()) {
            // CLIENT CACHING applies to the next command, or to all of the next transaction.
            mode.caching &= session.multi.is_some() || command.name.starts_with("client|");
        }
        outcome
    }

    /// Where it is counted what commands write to storage-class memory; `None`: there is none, or it is not counted.
    #[inline]
    pub(super) fn counts_scm(&self) -> Option<&Counted> {
        let worker = self.worker;
        (worker.on_scm && worker.server.store.scm().is_some_and(Scm::is_counting))
            .then(|| &worker.stats().scm)
    }

    /// Puts a command into the queue of MULTI.
    fn queue(
        &self,
        session: &mut Session,
        id: CommandId,
        args: Args,
        keys: CallKeys,
        out: &mut Vec<u8>,
    ) -> Outcome {
        // The queue itself takes memory, whatever is in it.
        self.make_room();
        let refused = match self.admit_growth(session) {
            Ok(Some(later)) => return later,
            Ok(None) if self.worker.server.table.command(id).flags.has(Flags::WRITE) => {
                self.check_role(session)
            }
            other => other.map(drop),
        };
        if let Err(error) = refused {
            self.worker.stats().command(id).rejected.add(1);
            return self.refuse(session, Some(id), out, error);
        }
        let multi = session.multi.as_mut().expect("MULTI has begun");
        multi.queue.push(Queued { id, args: args.to_owned(), keys });
        out.extend_from_slice(b"+QUEUED\r\n");
        Outcome::Done
    }

    /// Runs a command in a transaction of its own, or one that those `behind` it share.
    #[inline]
    fn run<'a, 'b: 'a>(
        &self,
        session: &mut Session,
        invocation: &Invocation<'a>,
        Admitted { way, redo, wake }: Admitted,
        out: &mut Writer,
        behind: &mut Upcoming<'b>,
    ) -> Outcome {
        let Invocation { id, row, args, expected, .. } = *invocation;
        let (store, command) = (&self.worker.server.store, &row.command);
        let mut begun = match row.handler {
            Handler::Plain(_) | Handler::Browsing(_) | Handler::Script(_) => {
                return self.call(session, invocation, out, wake, None);
            }
            Handler::Keyed(_) if self.worker.server.table.first_is_key(id) => {
                let expected = expected.copied().unwrap_or_else(|| store.derive(args.at(1)));
                if way == Way::Here
                    && let Some(outcome) = self.do_directly(session, id, row, args, expected, out)
                {
                    return outcome;
                }
                store.try_begin_expected(args.at(1), expected, self.now_ms())
            }
            Handler::Keyed(_) if row.locks_all(args) => store.try_begin_all(),
            Handler::Keyed(_) => begin_keys(store, session.db as u8, invocation),
            Handler::Whole(_) => store.try_begin_all(),
        };
        // The transaction is used where it was made: it is too large to move.
        let Ok(txn) = &mut begun else {
            return Outcome::LockBusy;
        };
        // A client that has waited for a key does not wait for other waiters: it was woken because it is its turn.
        let has_waited = session.waiting.is_some();
        if txn.keeps_any() && !has_waited && touches_kept(txn, session.db as u8, invocation) {
            return Outcome::WaiterFirst;
        }
        if !session.fetched.is_empty() {
            txn.supply(std::mem::take(&mut session.fetched));
        }
        let may_grow = command.flags.has(Flags::DENYOOM);
        let mut let_in = Ok(());
        if way != Way::Here && command.name != "migrate" {
            let_in = self.are_there(session, way, txn, invocation);
        }
        if let_in.is_ok() && command.flags.has(Flags::WRITE) {
            let_in = txn.expect(redo, purpose(may_grow), true).map_err(Stop::from);
        }
        self.set_expiry(session, txn, command.flags.has(Flags::WRITE));
        let absent = let_in.and_then(|()| match row.handler {
            Handler::Keyed(_) => {
                let db = store.database(session.db as u8);
                Ok(absent_pages(txn, db, invocation, &mut session.draws.clone(), PAGES_MAX)?)
            }
            _ => Ok(Vec::new()),
        });
        let mut last = args;
        let mut outcome = match absent {
            Ok(cold) if cold.is_empty() => match self.call(session, invocation, out, wake, Some(txn)) {
                Outcome::Done if way == Way::Here && self.may_share(session, invocation, txn, wake) => {
                    let (outcome, args) = self.call_alike(session, invocation, behind, out, txn);
                    last = args;
                    outcome
                }
                outcome => outcome,
            },
            Ok(cold) => Outcome::Fetch(cold),
            Err(stop) => self.stop(stop, may_grow, out).0,
        };
        match &mut outcome {
            // The other values that the command may want are fetched together with this one.
            Outcome::Fetch(cold) => {
                // The next attempt needs those that were fetched before, and the cache may have no room for all.
                session.fetched = txn.take_fetched();
                let db = store.database(session.db as u8);
                let first = cold[0];
                let last = Invocation { args: last, keys: &CallKeys::default(), ..*invocation };
                let more = cold_values(txn, db, &last).into_iter();
                cold.extend(more.filter(|more| *more != first));
            }
            Outcome::Done | Outcome::Close => {
                if let Some(waiting) = session.waiting.take() {
                    waiting.end(txn);
                }
            }
            // The next attempt goes on with what was fetched.
            Outcome::Postpone(_) | Outcome::Busy => session.fetched = txn.take_fetched(),
            Outcome::Wait(_)
            | Outcome::WaitFor(_)
            | Outcome::Partial
            | Outcome::Queue
            | Outcome::OnStack
            | Outcome::WaiterFirst
            | Outcome::SendSnapshot(_)
            | Outcome::LockBusy => {}
        }
        self.commit(session, txn);
        if has_waited {
            txn.unlock();
            self.worker.server.turns.notify_waiters();
        }
        outcome
    }

    /// Calls a handler and counts the call. EXEC and scripts call their commands through this, too, in their own
    /// transaction.
    pub fn call(
        &self,
        session: &mut Session,
        invocation: &Invocation,
        out: &mut Writer,
        wake: Wake,
        txn: Option<&mut Txn>,
    ) -> Outcome {
        let Invocation { id, row, args, .. } = *invocation;
        if !session.in_exec {
            session.client.set_command(id);
        }
        let is_shown = wake == Wake::First && self.worker.server.push.monitors.is_used();
        let command = &row.command;
        if is_shown && command.flags.has(Flags::SKIP_MONITOR) && session.fetched.is_empty() {
            // MONITOR shows a script before the commands that it calls.
            self.show(session, command, args);
        }
        let (place, first_notification) = (out.defer(), self.notification_count());
        let mut call = Call { command, args, out: out.reborrow(), session, turn: self, wake };
        let answer = match (row.handler, txn) {
            (Handler::Keyed(handler) | Handler::Whole(handler), Some(txn)) => {
                let lookups = txn.lookups();
                txn.count_lookups(command.flags.has(Flags::READONLY));
                txn.note_uses(!call.session.client.has_flag(flag::NO_TOUCH));
                let before = txn.written_so_far();
                let mut answer = handler(&mut call, txn);
                if txn.written_so_far() != before && command.flags.has(Flags::WRITE) {
                    txn.count_call(args.from(1).bytes());
                }
                if txn.take_strayed() {
                    answer = Err(strayed(command));
                }
                let over = match &answer {
                    Ok(outcome) => outcome.is_final() || matches!(outcome, Outcome::Partial),
                    Err(stop) => matches!(stop, Stop::Error(_)),
                };
                if !over {
                    txn.take_back_lookups(lookups);
                }
                let (session, changes) = (&*call.session, txn.take_changes());
                // What has been done before it waits stays done.
                if !over && !matches!(answer, Ok(Outcome::Wait(_))) {
                    self.withdraw(first_notification);
                }
                if !changes.is_empty() {
                    let is_read = |key: &[u8]| tells_misses(invocation, key);
                    self.note_changes(session.client.id, first_notification, over, changes, is_read);
                }
                if over && session.tracking.is_some() && command.flags.has(Flags::READONLY) {
                    self.remember(session, invocation);
                }
                answer
            }
            (Handler::Keyed(_) | Handler::Whole(_), None) => unreachable!("it was given no transaction"),
            (Handler::Plain(handler), _) => handler(&mut call),
            (Handler::Script(handler), txn) => handler(&mut call, txn),
            (Handler::Browsing(handler), txn) => {
                let mut keyspace = match txn {
                    Some(txn) => Keyspace::Locked(txn),
                    None => Keyspace::Open {
                        store: &self.worker.server.store,
                        fetched: std::mem::take(&mut call.session.fetched),
                    },
                };
                let answer = handler(&mut call, &mut keyspace);
                // What tells of the server alone is told also while the log is stuck.
                if !command.flags.has(Flags::LOADING) {
                    self.depend_on_log();
                }
                answer
            }
        };
        let mut failed = call.out.errors() > 0;
        let outcome = answer.unwrap_or_else(|stop| {
            out.rewind(place);
            let (outcome, is_error) = self.stop(stop, command.flags.has(Flags::DENYOOM), out);
            failed |= is_error;
            outcome
        });
        // MONITOR shows a command that waits when it begins to wait.
        if is_shown
            && (outcome.is_final() || matches!(outcome, Outcome::Wait(_)))
            && !(command.flags.has(Flags::ADMIN) || command.flags.has(Flags::SKIP_MONITOR))
        {
            self.show(session, command, args);
        }
        if outcome.is_final() {
            if session.in_exec {
                self.counts_scm().inspect(|counted| counted.nest(id));
            }
            self.finish(session, id, args, failed);
        } else {
            self.end_run(session);
        }
        outcome
    }
}

/// How a call is let in that has passed all checks.
struct Admitted {
    way: Way,
    /// See [`redo_of`]; of no meaning if it does not write.
    redo: usize,
    wake: Wake,
}

/// How a command uses the interpreter of scripts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ScriptUse {
    /// It compiles a script.
    Compiles,
    /// It runs scripts.
    Runs,
}

/// How a command, or one of those that EXEC is to run, uses the interpreter.
fn use_of_scripts(rows: &Rows, session: &Session, row: &Row) -> Option<ScriptUse> {
    let of = |row: &Row| match row.handler {
        Handler::Script(_) => Some(ScriptUse::Runs),
        _ if row.command.categories.has(Categories::SCRIPTING)
            && !row.command.flags.has(Flags::ALLOW_BUSY) =>
        {
            Some(ScriptUse::Compiles)
        }
        _ => None,
    };
    let queued = session.multi.as_ref().filter(|_| row.command.name == "exec").map(|multi| &multi.queue);
    let queued = queued.into_iter().flatten().filter_map(|call| of(rows.row(call.id)));
    queued.max().or_else(|| of(row))
}

/// Whether what a call has done leaves no trace until its transaction commits, so that it can be done again.
pub fn is_repeatable(command: &Command) -> bool {
    const NAMES: [&str; 6] = ["echo", "ping", "publish", "select", "spublish", "time"];
    command.flags.has(Flags::READONLY) || NAMES.contains(&command.name)
}

/// Whether a call may write or publish, by itself or by what EXEC is to run.
fn may_write(rows: &Rows, server: &Server, session: &Session, row: &Row, args: Args) -> bool {
    let may = |row: &Row, args: Args| {
        let flags = row.command.flags;
        flags.has(Flags::WRITE)
            || flags.has(Flags::MAY_REPLICATE)
                && !row.writes_nothing.is_some_and(|is_known| is_known(server, args))
    };
    let queued = session.multi.as_ref().filter(|_| row.command.name == "exec").map(|multi| &multi.queue);
    may(row, args) || queued.into_iter().flatten().any(|call| may(rows.row(call.id), call.args.args()))
}

/// Whether somebody is told that a call has not found a key: those that read it, by their key specifications, tell so.
fn tells_misses(invocation: &Invocation, key: &[u8]) -> bool {
    let command = invocation.command();
    let mut read = invocation.all_keys().filter(|(_, access)| access.has(KeyAccess::RO));
    read.any(|(name, _)| name == key)
        && !matches!(command.group, "transactions")
        && !command.name.starts_with("object|")
}

/// The error of a command that has looked at a key which its key specifications do not name. The user's right to the key was
/// not checked, so the reply does not show what was found. This is a mistake in the command table.
#[cold]
fn strayed(command: &Command) -> Stop {
    let what = format!("the key specifications of '{}' do not name all its keys", command.name);
    log!(Warning, "{what}; please report this");
    format!("ERR internal error: {what}").into()
}
