//! From arguments to a handler: the checks that come before every command, in Redis's order.

use crate::{
    answer::{ErrorReply, Outcome, Wake},
    call::{Call, unknown_subcommand, wrong_arity},
    command::{Command, Flags},
    config::Opt,
    log::log,
    session::{Replies, Session},
    table::{CommandId, Lookup, TABLE},
    worker::Worker,
};
use holdfast_resp::{Args, Writer};
use std::{cell::Cell, time::Instant};
use tokio::time;

const NOAUTH: ErrorReply = ErrorReply::new("NOAUTH Authentication required.");
const NOT_IN_MULTI: ErrorReply = ErrorReply::new("ERR Command not allowed inside a transaction");

/// Bytes of a command that an error shows.
const SHOWN_MAX: usize = 128;

/// What the commands of one loop turn share.
pub struct Turn<'a> {
    /// Who executes.
    pub worker: &'a Worker,
    /// The time: when the command before ended, and after a command when that one did. One look at the clock serves both.
    now: Cell<Instant>,
}

impl<'a> Turn<'a> {
    /// A turn that begins now.
    pub fn new(worker: &'a Worker, now: Instant) -> Self {
        Turn { worker, now: Cell::new(now) }
    }

    /// When the last command of the turn ended.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// The time between two commands was not theirs.
    pub fn resume(&self) {
        self.now.set(Instant::now());
    }

    /// Executes one command, or refuses it, or queues it; its reply goes to `out`.
    pub fn execute(&self, session: &mut Session, args: Args, out: &mut Vec<u8>, wake: Wake) -> Outcome {
        let start = out.len();
        let outcome = self.checked(session, args, out, wake);
        if matches!(outcome, Outcome::Wait(_)) {
            return outcome;
        }
        if session.replies != Replies::On {
            session.replies = match session.replies {
                Replies::SkipNext => Replies::Skip,
                Replies::Skip => {
                    out.truncate(start);
                    Replies::On
                }
                other => {
                    out.truncate(start);
                    other
                }
            };
        }
        outcome
    }

    fn checked(&self, session: &mut Session, args: Args, out: &mut Vec<u8>, wake: Wake) -> Outcome {
        let id = match TABLE.lookup(args) {
            Lookup::Found(id) => id,
            Lookup::UnknownCommand if is_http(args.at(0)) => {
                log!(Warning, "possible attack: {} sends HTTP; closing its connection", session.client.addr);
                return Outcome::Close;
            }
            Lookup::UnknownCommand => return self.refuse(session, out, unknown_command(args)),
            Lookup::UnknownSubcommand(id) => {
                return self.refuse(session, out, unknown_subcommand(TABLE.command(id), args));
            }
        };
        let command = TABLE.command(id);
        if let Err(error) = self.check(session, command, args) {
            self.worker.stats().command(id).rejected.add(1);
            return self.refuse(session, out, error);
        }
        if let Some(until) = self.worker.server.pause.delays(command) {
            return Outcome::Wait(Some(time::Instant::from_std(until)));
        }
        if let Some(multi) = session.multi.as_mut().filter(|_| !command.flags.has(Flags::IMMEDIATE)) {
            multi.queue.push((id, args.to_owned()));
            out.extend_from_slice(b"+QUEUED\r\n");
            return Outcome::Done;
        }
        let proto = session.proto;
        self.run(session, id, args, &mut Writer::new(out, proto), wake)
    }

    /// Whether the command may be executed or queued.
    fn check(&self, session: &Session, command: &Command, args: Args) -> Result<(), ErrorReply> {
        if !command.accepts(args.len()) {
            return Err(wrong_arity(command));
        }
        if !session.authenticated && !command.flags.has(Flags::NO_AUTH) {
            return Err(NOAUTH);
        }
        if session.multi.is_some() && command.flags.has(Flags::NO_MULTI) {
            return Err(NOT_IN_MULTI);
        }
        Ok(())
    }

    /// Runs a handler and counts it. Used by EXEC too.
    pub fn run(
        &self,
        session: &mut Session,
        id: CommandId,
        args: Args,
        out: &mut Writer,
        wake: Wake,
    ) -> Outcome {
        let command = TABLE.command(id);
        session.client.set_command(id);
        let mut call = Call { command, args, out: out.reborrow(), session, turn: self, wake };
        let outcome = match (command.handler)(&mut call) {
            Ok(outcome @ Outcome::Wait(_)) => return outcome,
            Ok(outcome) => outcome,
            Err(error) => {
                self.worker.server.errors.count(error.as_bytes());
                call.out.error(error.as_bytes());
                Outcome::Done
            }
        };
        let failed = call.out.errors() > 0;
        self.finish(session, id, args, failed);
        outcome
    }

    fn finish(&self, session: &Session, id: CommandId, args: Args, failed: bool) {
        let end = Instant::now();
        let took = end.saturating_duration_since(self.now.replace(end));
        self.worker.stats().executed(id, took, failed);
        let config = &self.worker.server.config;
        let slow_us = config.number(Opt::SlowlogLogSlowerThan);
        if slow_us >= 0
            && took.as_micros() >= slow_us as u128
            && !TABLE.command(id).flags.has(Flags::SKIP_SLOWLOG)
        {
            let client = &session.client;
            let max_len = config.number(Opt::SlowlogMaxLen) as usize;
            self.worker.server.slowlog.add(args, took, &client.addr, client.name(), max_len);
        }
    }

    #[cold]
    fn refuse(&self, session: &mut Session, out: &mut Vec<u8>, error: ErrorReply) -> Outcome {
        if let Some(multi) = &mut session.multi {
            multi.aborted = true;
        }
        self.worker.server.errors.count(error.as_bytes());
        Writer::new(out, session.proto).error(error.as_bytes());
        Outcome::Done
    }
}

/// Browsers can be made to send requests to any port.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn unknown_command(args: Args) -> ErrorReply {
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
