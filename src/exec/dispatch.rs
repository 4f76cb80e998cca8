//! From arguments to a handler: the checks that come before every command, in Redis's order, and its transaction.

use crate::{
    acl::{Context, Denied},
    admin::{log::log, refusals::Cause},
    clients::client::flag,
    command::{
        Categories, Command, Flags,
        error::{DISK_FULL, Stop},
        keys::{CallKeys, each_key, reads_value},
        table::{CommandId, Lookup},
    },
    config::Opt,
    exec::{
        admit::{BUSY_RETRY, busy, purpose, redo_of},
        answer::Outcome,
        call::{Call, unknown_subcommand, wrong_arity},
        handler::{Handler, Row, Rows},
        keyspace::Keyspace,
        turn::{NANOS_PER_MS, Notification, Turn},
    },
    push::tracking::Mode,
    script::stack,
    server::{Server, mailbox::Wake},
    session::{Queued, Replies, Session},
};
use holdfast_resp::{Args, Proto, Writer};
use holdfast_store::{Begun, Cold, Expected, Store, Txn};
use std::time::Duration;
use tokio::time;

const NOAUTH: Stop = Stop::new("NOAUTH Authentication required.");
const MONITOR_ONLY: Stop = Stop::new("ERR Replica can't interact with the keyspace");
const NOT_IN_MULTI: Stop = Stop::new("ERR Command not allowed inside a transaction");

/// Bytes of a command that an error shows.
const SHOWN_MAX: usize = 128;
/// How long a command that waits already waits at least while a script runs for long.
pub const WHILE_BUSY: Duration = Duration::from_millis(50);

impl Turn<'_> {
    /// Notes the keys that a client which tracks keys has read, if it wants to be told when they change. Of a script, only
    /// what the commands read that it calls.
    #[cold]
    fn remember(&self, session: &Session, command: &Command, args: Args) {
        let remembers = session.tracking.as_ref().is_some_and(Mode::remembers);
        if !remembers || command.categories.has(Categories::SCRIPTING) {
            return;
        }
        // What does not tell its keys has failed.
        let _ = each_key(command, args, |index, _| {
            self.announce(Notification::Read(session.client.id, args.at(index).to_vec()));
        });
    }

    /// Executes one command, or refuses it, or queues it; its reply goes to `out`. Of its first argument something may be
    /// known.
    pub fn execute(
        &self,
        session: &mut Session,
        args: Args,
        out: &mut Vec<u8>,
        wake: Wake,
        expected: Option<&Expected>,
    ) -> Outcome {
        let start = out.len();
        let outcome = self.checked(session, args, out, wake, expected);
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
        outcome
    }

    #[inline]
    fn checked(
        &self,
        session: &mut Session,
        args: Args,
        out: &mut Vec<u8>,
        wake: Wake,
        expected: Option<&Expected>,
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
        if self.worker.server.busy.is_on() {
            if let Some(outcome) = self.while_busy(session, id, out) {
                return outcome;
            }
        }
        let keys = CallKeys::default();
        if let Err(error) = self.check(session, id, command, args, &keys) {
            self.worker.stats().command(id).rejected.add(1);
            return self.refuse(session, Some(id), out, error);
        }
        if self.worker.server.push.queues.is_full()
            && command.flags.has(Flags::WRITE) | command.flags.has(Flags::PUBSUB)
        {
            return Outcome::postpone(BUSY_RETRY);
        }
        let server = &self.worker.server;
        if let Some(until) = server.pause.delays(|| may_write(self.worker.rows, server, session, row, args)) {
            return Outcome::Postpone(time::Instant::from_std(until));
        }
        if session.multi.is_some() && !command.flags.has(Flags::IMMEDIATE) {
            return self.queue(session, id, args, keys, out);
        }
        if let Some(uses) = use_of_scripts(self.worker.rows, session, row) {
            // A script that waits between its parts has the interpreter.
            if !self.worker.engine_is_free() {
                return Outcome::LockBusy;
            }
            if uses == ScriptUse::Runs && !stack::is_on_stack() {
                return Outcome::OnStack;
            }
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
        let outcome = self.run(session, id, row, args, &keys, redo, out, wake, expected);
        if let Some(mode) = session.tracking.as_mut().filter(|_| outcome.is_final()) {
            // CLIENT CACHING is for the next command, or all of the next transaction.
            mode.caching &= session.multi.is_some() || command.name.starts_with("client|");
        }
        outcome
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
        let refused = match self.admit_growth() {
            Ok(Some(later)) => return later,
            Ok(None) if self.worker.server.table.command(id).flags.has(Flags::WRITE) => self.check_replicas(),
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

    /// What becomes of a command while a script runs for long; `None`: it is executed. What may lock a partition is not: the
    /// script may have locked it, in this very thread.
    #[cold]
    fn while_busy(&self, session: &mut Session, id: CommandId, out: &mut Vec<u8>) -> Option<Outcome> {
        if session.waiting.is_some() {
            return Some(Outcome::postpone(WHILE_BUSY));
        }
        let row = self.worker.rows.row(id);
        let is_open = session.authenticated || !self.worker.server.acl.requires_auth();
        if row.command.flags.has(Flags::ALLOW_BUSY)
            && matches!(row.handler, Handler::Plain(_))
            && session.watched.is_empty()
            || !is_open
        {
            return None;
        }
        let error = self.worker.server.busy.error()?;
        self.worker.stats().command(id).rejected.add(1);
        Some(self.refuse(session, Some(id), out, error))
    }

    /// Runs a command in a transaction of its own. `redo`: see [`redo_of`]; of no meaning if it does not write.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        session: &mut Session,
        id: CommandId,
        row: &'static Row,
        args: Args,
        keys: &CallKeys,
        redo: usize,
        out: &mut Writer,
        wake: Wake,
        expected: Option<&Expected>,
    ) -> Outcome {
        let (store, command) = (&self.worker.server.store, &row.command);
        let mut begun = match row.handler {
            Handler::Plain(_) | Handler::Browsing(_) | Handler::Script(_) => {
                return self.call(session, id, args, out, wake, None);
            }
            Handler::Keyed(_) if self.worker.server.table.first_is_key(id) => {
                let expected = expected.copied().unwrap_or_else(|| store.derive(args.at(1)));
                if self.do_directly(session, id, row, args, expected, out) {
                    return Outcome::Done;
                }
                store.try_begin_expected(args.at(1), expected, self.now_ms())
            }
            Handler::Keyed(_) if row.locks_all(args) => store.try_begin_all(),
            Handler::Keyed(_) => begin_keys(store, session.db as u8, command, args, keys),
            Handler::Whole(_) => store.try_begin_all(),
        };
        // In its place: it is large.
        let Ok(txn) = &mut begun else {
            return Outcome::LockBusy;
        };
        // Who waits itself must not wait for others who wait, and need not: it is told in its turn.
        let has_waited = session.waiting.is_some();
        if txn.keeps_any() && !has_waited && touches_kept(txn, session.db as u8, row, args, keys) {
            return Outcome::WaiterFirst;
        }
        if command.flags.has(Flags::WRITE) {
            let may_grow = command.flags.has(Flags::DENYOOM);
            if let Err(refusal) = txn.expect(redo, purpose(may_grow), true) {
                return self.stop(refusal.into(), may_grow, out).0;
            }
        }
        if !session.fetched.is_empty() {
            txn.supply(std::mem::take(&mut session.fetched));
        }
        if self.worker.server.pause.is_on() && !command.flags.has(Flags::WRITE) {
            txn.keep_expired();
        }
        let absent = match row.handler {
            Handler::Keyed(_) if store.has_absent() => {
                absent_pages(txn, store.database(session.db as u8), command, args, keys)
            }
            _ => Ok(Vec::new()),
        };
        let mut outcome = match absent {
            Ok(cold) if cold.is_empty() => self.call(session, id, args, out, wake, Some(txn)),
            Ok(cold) => Outcome::Fetch(cold),
            Err(error) => self.stop(error.into(), false, out).0,
        };
        match &mut outcome {
            // While one is fetched, so can be the others that the command may want.
            Outcome::Fetch(cold) => {
                // What it has is needed then too, and the cache may have no room for all.
                session.fetched = txn.take_fetched();
                let db = store.database(session.db as u8);
                let first = cold[0];
                let more = cold_values(txn, db, command, args, keys).into_iter();
                cold.extend(more.filter(|more| *more != first));
            }
            Outcome::Done | Outcome::Close => {
                if let Some(waiting) = session.waiting.take() {
                    waiting.end(txn);
                }
            }
            // It has what it needs to go on.
            Outcome::Postpone(_) | Outcome::Busy => session.fetched = txn.take_fetched(),
            Outcome::Wait(_)
            | Outcome::WaitFor(_)
            | Outcome::Queue
            | Outcome::OnStack
            | Outcome::WaiterFirst
            | Outcome::LockBusy => {}
        }
        self.commit(txn);
        if has_waited {
            txn.unlock();
            self.worker.server.turns.notify_waiters();
        }
        outcome
    }

    /// Calls a handler and counts the call. EXEC calls what was queued, and a script what it calls, through this too, in
    /// their own transaction.
    pub fn call(
        &self,
        session: &mut Session,
        id: CommandId,
        args: Args,
        out: &mut Writer,
        wake: Wake,
        txn: Option<&mut Txn>,
    ) -> Outcome {
        if !session.in_exec {
            session.client.set_command(id);
        }
        let is_shown = wake == Wake::First && self.worker.server.push.monitors.is_used();
        let row = self.worker.rows.row(id);
        let command = &row.command;
        if is_shown && command.flags.has(Flags::SKIP_MONITOR) && session.fetched.is_empty() {
            // A script is shown before what it calls.
            self.show(session, command, args);
        }
        let (place, first_notification) = (out.defer(), self.notification_count());
        let mut call = Call { command, args, out: out.reborrow(), session, turn: self, wake };
        let answer = match (row.handler, txn) {
            (Handler::Keyed(handler) | Handler::Whole(handler), Some(txn)) => {
                txn.count_lookups(command.flags.has(Flags::READONLY));
                txn.note_uses(!call.session.client.has_flag(flag::NO_TOUCH));
                let mut answer = handler(&mut call, txn);
                if txn.take_strayed() {
                    answer = Err(strayed(command));
                }
                let over = match &answer {
                    Ok(outcome) => outcome.is_final(),
                    Err(stop) => matches!(stop, Stop::Error(_)),
                };
                let (session, changes) = (&*call.session, txn.take_changes());
                if !over || !changes.is_empty() {
                    self.note_changes(command, args, session.client.id, first_notification, over, changes);
                }
                if over && session.tracking.is_some() && command.flags.has(Flags::READONLY) {
                    self.remember(session, command, args);
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
                self.depend_on_log();
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
        // A command that waits is shown when it begins to.
        if is_shown
            && (outcome.is_final() || matches!(outcome, Outcome::Wait(_)))
            && !(command.flags.has(Flags::ADMIN) || command.flags.has(Flags::SKIP_MONITOR))
        {
            self.show(session, command, args);
        }
        if outcome.is_final() {
            self.finish(session, id, args, failed);
        }
        outcome
    }

    /// What becomes of a command that stops, and whether that is an error.
    #[cold]
    fn stop(&self, stop: Stop, may_grow: bool, out: &mut Writer) -> (Outcome, bool) {
        let is_full = stop == DISK_FULL;
        match stop {
            Stop::Cold(cold) => (Outcome::Fetch(vec![cold]), false),
            Stop::LockBusy => (Outcome::LockBusy, false),
            Stop::Busy => (busy(may_grow), false),
            Stop::Error(text) => {
                if is_full {
                    self.worker.server.refusals.note(Cause::Space);
                }
                self.worker.server.errors.count(&text);
                out.error(text);
                (Outcome::Done, true)
            }
        }
    }

    /// Shows a call to those who want to see all.
    #[cold]
    fn show(&self, session: &Session, command: &Command, args: Args) {
        let push = &self.worker.server.push;
        push.monitors.show(&push.queues, &session.client, session.in_script, session.db, command, args);
    }

    /// Counts a call that has ended, and notes it where it took long.
    pub fn finish(&self, session: &Session, id: CommandId, args: Args, failed: bool) {
        let took_ns = self.end_command();
        let took = Duration::from_nanos(took_ns);
        let config = &self.worker.server.config;
        self.worker.stats().executed(id, took_ns, failed, config.is_on(Opt::LatencyTracking));
        session.client.count_command();
        let long_ms = config.number(Opt::LatencyMonitorThreshold);
        if long_ms > 0 && took_ns / NANOS_PER_MS >= long_ms as u64 {
            let is_fast = self.worker.server.table.command(id).flags.has(Flags::FAST);
            self.worker.server.latency.add(if is_fast { "fast-command" } else { "command" }, took);
        }
        let slow_us = config.number(Opt::SlowlogLogSlowerThan);
        if slow_us >= 0
            && took_ns / 1000 >= slow_us as u64
            && !self.worker.server.table.command(id).flags.has(Flags::SKIP_SLOWLOG)
        {
            let client = &session.client;
            let max_len = config.number(Opt::SlowlogMaxLen) as usize;
            self.worker.server.slowlog.add(
                self.worker.server.table.command(id),
                args,
                took,
                &client.addr,
                client.name(),
                max_len,
            );
        }
    }

    /// Whether the command may be executed or queued.
    #[inline]
    fn check(
        &self,
        session: &Session,
        id: CommandId,
        command: &Command,
        args: Args,
        keys: &CallKeys,
    ) -> Result<(), Stop> {
        if !command.accepts(args.len()) {
            return Err(wrong_arity(command));
        }
        if !session.authenticated
            && !command.flags.has(Flags::NO_AUTH)
            && self.worker.server.acl.requires_auth()
        {
            return Err(NOAUTH);
        }
        if session.multi.is_some() && command.flags.has(Flags::NO_MULTI) {
            return Err(NOT_IN_MULTI);
        }
        if !session.user.is_unrestricted() {
            session.user.may_run(id, args, keys).map_err(|denied| self.deny(session, denied, id, args))?;
        }
        if session.client.has_flag(flag::MONITOR | flag::SUBSCRIBED) {
            return check_listener(session, command);
        }
        Ok(())
    }
    /// Logs that the user may not do this; the error for the client.
    #[cold]
    fn deny(&self, session: &Session, denied: Denied, id: CommandId, args: Args) -> Stop {
        let context = if session.multi.is_some() { Context::Multi } else { Context::TopLevel };
        session.client.set_command(id);
        session.publish();
        let server = &self.worker.server;
        let message =
            server.acl.refuse(&server.config, denied, (id, args), &session.user, &session.client, context);
        [&b"NOPERM "[..], &message].concat().into()
    }

    /// Answers a command that is not executed. Within MULTI nothing will be; if it is EXEC, MULTI ends with it.
    #[cold]
    fn refuse(
        &self,
        session: &mut Session,
        id: Option<CommandId>,
        out: &mut Vec<u8>,
        mut error: Stop,
    ) -> Outcome {
        // It may have waited when its rights were taken away, or room ran out.
        session.stop_waiting(&self.worker.server);
        let is_exec = id.is_some_and(|id| self.worker.server.table.command(id).name == "exec");
        if is_exec && session.multi.take().is_some() {
            session.forget_watched(&self.worker.server);
            error = discarded(error);
        } else if let Some(multi) = &mut session.multi {
            multi.aborted = true;
        }
        if let Stop::Error(text) = error {
            self.worker.server.errors.count(&text);
            Writer::new(out, session.proto).error(text);
        }
        Outcome::Done
    }
}

/// Whether a client that is shown all commands, or is subscribed to something, may do this.
#[cold]
fn check_listener(session: &Session, command: &Command) -> Result<(), Stop> {
    if session.client.has_flag(flag::MONITOR)
        && (command.flags.has(Flags::READONLY) || command.flags.has(Flags::WRITE))
    {
        return Err(MONITOR_ONLY);
    }
    if session.proto == Proto::Resp2 && session.client.is_subscribed() && !works_subscribed(command) {
        let name = command.name;
        let allowed = "(P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET";
        return Err(format!("ERR Can't execute '{name}': only {allowed} are allowed in this context").into());
    }
    Ok(())
}

/// The error of EXEC that is refused for `reason`.
pub fn discarded(reason: Stop) -> Stop {
    match reason {
        Stop::Error(text) => [b"EXECABORT Transaction discarded because of: ", &text[..]].concat().into(),
        other => other,
    }
}

/// What a command wants of the interpreter.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ScriptUse {
    /// It compiles.
    Compiles,
    /// It runs scripts.
    Runs,
}

/// What a command, or what EXEC is to run, wants of the interpreter.
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

/// Whether a client of RESP2, which could not tell the reply from a message, may do this while it is subscribed.
fn works_subscribed(command: &Command) -> bool {
    const NAMES: [&str; 9] = [
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "sunsubscribe",
        "ping",
        "quit",
        "reset",
    ];
    NAMES.contains(&command.name)
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

/// Begins a transaction over the keys of a call. Arguments that do not tell the keys lock just any partition: the handler
/// finds the same fault before it looks at a key.
fn begin_keys<'s>(
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
        || keys.all(&row.command, args).any(|(key, _)| txn.is_kept(db, key))
}

/// The values that a call is sure to look at and that have to be fetched first.
pub fn cold_values(txn: &mut Txn, db: u8, command: &Command, args: Args, keys: &CallKeys) -> Vec<Cold> {
    let read = keys.all(command, args).filter(|(_, access)| reads_value(*access));
    let mut cold = txn.cold(db, read.map(|(key, _)| key));
    // The command that meets a damaged page replies with the error.
    cold.extend(absent_pages(txn, db, command, args, keys).unwrap_or_default());
    cold
}

/// The pages of the heap that a call will use, as far as its arguments tell, and that have to be fetched first.
pub fn absent_pages(
    txn: &mut Txn,
    db: u8,
    command: &Command,
    args: Args,
    keys: &CallKeys,
) -> Result<Vec<Cold>, holdfast_store::Error> {
    let Some(keys) = keys.whole(command, args) else { return Ok(Vec::new()) };
    let mut is_key = vec![false; args.len()];
    keys.iter().for_each(|&(index, _)| is_key[index] = true);
    let is_key = &is_key;
    let of_kind =
        |kind| (1..args.len()).filter(move |&index| is_key[index] == kind).map(|index| args.at(index));
    let elements: Vec<&[u8]> = of_kind(false).collect();
    txn.absent(db, of_kind(true), &elements)
}

/// The error of a command that has looked at a key which its key specifications do not name, so that nobody has checked
/// whether its user may: what it found is not told. That is a mistake in the command table.
#[cold]
fn strayed(command: &Command) -> Stop {
    let what = format!("the key specifications of '{}' do not name all its keys", command.name);
    log!(Warning, "{what}; please report this");
    format!("ERR internal error: {what}").into()
}

/// Browsers can be made to send requests to any port.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn unknown_command(args: Args) -> Stop {
    let mut shown = Vec::new();
    for arg in args.from(1).iter() {
        if shown.len() >= SHOWN_MAX {
            break;
        }
        let room = SHOWN_MAX - shown.len();
        shown.push(b'\'');
        shown.extend_from_slice(&arg[..arg.len().min(room)]);
        shown.extend_from_slice(b"' ");
    }
    let name = args.at(0);
    let name = &name[..name.len().min(SHOWN_MAX)];
    [b"ERR unknown command '", name, b"', with args beginning with: ", &shown].concat().into()
}
