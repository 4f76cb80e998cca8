//! The checks that come before every command, in Redis's order, and the refusals that they end with.

use crate::{
    acl::{Context, Denied},
    clients::client::flag,
    command::{
        Command, Flags,
        error::{LOADING, MASTERDOWN, NOAUTH, Stop},
        table::CommandId,
    },
    config::Opt,
    exec::{answer::Outcome, call::wrong_arity, handler::Handler, invocation::Invocation, turn::Turn},
    session::Session,
};
use holdfast_resp::{Args, Proto, Writer};
use std::time::Duration;

const MONITOR_ONLY: Stop = Stop::new("ERR Replica can't interact with the keyspace");
const NOT_IN_MULTI: Stop = Stop::new("ERR Command not allowed inside a transaction");

/// Bytes of a command that an error shows.
const SHOWN_MAX: usize = 128;
/// While a script runs for long, a client that waits for a key looks for it again after this time.
const WHILE_BUSY: Duration = Duration::from_millis(50);

impl Turn<'_> {
    /// What becomes of a command while a script runs for long; `None`: it is executed. A command that may lock a partition is
    /// not executed: the script may have locked it, in this very thread.
    #[cold]
    pub(super) fn while_busy(
        &self,
        session: &mut Session,
        id: CommandId,
        out: &mut Vec<u8>,
    ) -> Option<Outcome> {
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

    /// Whether the command may be executed or queued.
    #[inline]
    pub(super) fn check(&self, session: &Session, invocation: &Invocation) -> Result<(), Stop> {
        let Invocation { id, args, keys, .. } = *invocation;
        let command = invocation.command();
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
            check_listener(session, command)?;
        }
        if self.worker.server.replication.is_replica() && !session.is_primary {
            return self.check_replica(session, command);
        }
        Ok(())
    }

    /// Whether a replica may run a command, or what EXEC is to run, as its data are now.
    #[cold]
    fn check_replica(&self, session: &Session, command: &Command) -> Result<(), Stop> {
        let server = &self.worker.server;
        let queued = session.multi.as_ref().filter(|_| command.name == "exec").map(|multi| &multi.queue);
        let works = |flag: Flags| {
            let mut queued = queued.into_iter().flatten();
            command.flags.has(flag) && queued.all(|call| server.table.command(call.id).flags.has(flag))
        };
        if server.replication.is_loading() && !works(Flags::LOADING) {
            return Err(LOADING);
        }
        let is_stale = !server.replication.is_connected() && !server.config.is_on(Opt::ReplicaServeStaleData);
        if is_stale && !works(Flags::STALE) { Err(MASTERDOWN) } else { Ok(()) }
    }

    /// Adds the refusal to the ACL log, and returns the error for the client.
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

    /// Replies to a command that is not executed. The EXEC of its MULTI will fail; if the command is EXEC, MULTI ends with it.
    #[cold]
    pub(super) fn refuse(
        &self,
        session: &mut Session,
        id: Option<CommandId>,
        out: &mut Vec<u8>,
        mut error: Stop,
    ) -> Outcome {
        self.count_refusal(&error);
        // The command may have waited until its rights were taken away, or room ran out.
        session.stop_waiting(&self.worker.server);
        let is_exec = id.is_some_and(|id| self.worker.server.table.command(id).name == "exec");
        if is_exec {
            session.multi = None;
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

/// Whether a client in MONITOR, or one that is subscribed to a channel, may run a command.
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
        Stop::Error(text) => {
            let why = text.strip_prefix(b"ERR ").unwrap_or(&text);
            [b"EXECABORT Transaction discarded because of: ", why].concat().into()
        }
        other => other,
    }
}

/// Whether a RESP2 client may run a command while it is subscribed: it cannot tell other replies from messages.
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

/// Whether a command's name is the beginning of an HTTP request. Browsers can be made to send requests to any port.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

pub(super) fn unknown_command(args: Args) -> Stop {
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
