//! A connection that executes nothing for a while, so that another process can go on with it: it stands between two commands then. One
//! that waits in a command, which has had no effect so far, has that begin anew.

use super::Connection;
use crate::{
    admin::log::log,
    clients::client::{Kind, flag},
    config::Opt,
    exec::{answer::Outcome, turn::Turn},
    net::shared::Phase,
    server::{handover::Connected, mailbox::Wake},
    session::{Multi, Replies, observe::Watched, progress::Progress, snapshot::SnapshotRequest},
};
use holdfast_resp::{Limits, Parser, Proto, Upcoming, write_command};
use std::{future::poll_fn, mem, task::Poll};
use tokio::time::Instant;

/// What of a client's flags goes with it.
const FLAGS: u16 = flag::NO_EVICT | flag::NO_TOUCH;
const REPLIES: [Replies; 4] = [Replies::On, Replies::Off, Replies::SkipNext, Replies::Skip];

impl Connection {
    /// Waits until the connection is to go on: whether that is here.
    pub(super) async fn freeze(&mut self) -> bool {
        if mem::take(&mut self.interrupted) {
            self.begin_anew();
        }
        self.input.drain(..self.head);
        self.head = 0;
        self.parser = Parser::new();
        self.session.ahead.clear();
        self.handle.frozen.set(true);
        match self.shared.next_phase().await {
            Phase::GivesAway => false,
            Phase::Serves | Phase::Freezes => {
                self.handle.frozen.set(false);
                self.stalled = true;
                true
            }
        }
    }

    /// Takes the command in progress back to where it is to be executed.
    fn begin_anew(&mut self) {
        let args = self.parser.args(&self.input[self.head..]);
        let mut args: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
        if let Some(Progress::Read(after)) = &self.session.progress {
            // It waits for what comes after the entries that were the last ones when it began, not after those that are by then.
            let ids = args.len() - after.len();
            for (arg, id) in args[ids..].iter_mut().zip(after) {
                *arg = id.to_string().into_bytes();
            }
        }
        let mut input = Vec::new();
        write_command(&mut input, &args);
        input.extend_from_slice(&self.input[self.head + self.parser.length()..]);
        (self.input, self.head) = (input, 0);
        self.waits_until = self.session.waiting.as_ref().and_then(|waiting| waiting.until);
        let session = &mut self.session;
        session.stop_waiting(&self.shared.worker.server);
        (session.ticket, session.progress) = (None, None);
        session.fetched.clear();
        self.handle.end_command();
    }

    /// Sends what can be sent at once, and leaves for the other process. If it cannot go there, the client connects again.
    pub(super) async fn give_away(&mut self) {
        poll_fn(|cx| {
            self.take_pushed();
            // What is not sent goes along, and a connection that is broken is found to be so there.
            let _ = self.output.poll_flush(cx, &mut self.stream, &self.shared.durability, |_| ());
            Poll::Ready(())
        })
        .await;
        let addr = &self.handle.client.addr;
        let session = &self.session;
        let can_leave = session.tracking.is_none()
            && session.backup.is_none()
            && !session.is_primary
            && session.snapshot == SnapshotRequest::default();
        let Some(socket) = self.stream.duplicate().filter(|_| can_leave) else {
            log!(
                Notice,
                "closing client {addr}: it uses TLS, tracks keys or gets a copy, and so cannot be handed over"
            );
            return self.stream.close().await;
        };
        match socket {
            Ok(socket) => {
                let connected = self.take();
                self.shared.give_away(socket, connected);
            }
            Err(e) => log!(Warning, "closing client {addr}: {e}"),
        }
    }

    /// What it is, with its bytes.
    fn take(&mut self) -> Connected {
        let (input, output) = (mem::take(&mut self.input), mem::take(&mut self.output).into_pending());
        Connected { input, output, ..self.describe() }
    }

    /// All but its bytes.
    fn describe(&self) -> Connected {
        let (session, client) = (&self.session, &self.handle.client);
        let (name, lib_name, lib_ver) = client.names();
        let multi = session.multi.as_ref();
        Connected {
            id: client.id,
            addr: client.addr.clone(),
            laddr: client.laddr.clone(),
            is_unix: client.has_flag(flag::UNIX),
            user: session.authenticated.then(|| session.user.name.to_vec()),
            db: session.db,
            is_resp3: session.proto == Proto::Resp3,
            replies: REPLIES.iter().position(|replies| *replies == session.replies).unwrap_or_default() as u8,
            name,
            lib_name,
            lib_ver,
            flags: client.flags() & FLAGS,
            setup: self.setup(),
            is_aborted: multi.is_some_and(|multi| multi.aborted),
            has_watched: !session.watched.is_empty() || session.watched.is_lost(),
            waits: self.waits_until.map(|until| until.saturating_duration_since(Instant::now())),
            is_closing: self.closing,
            ..Connected::default()
        }
    }

    /// The commands that bring about subscriptions, MONITOR and MULTI.
    fn setup(&self) -> Vec<u8> {
        let (session, mut setup) = (&self.session, Vec::new());
        for (kind, command) in
            [(Kind::Channel, "SUBSCRIBE"), (Kind::Pattern, "PSUBSCRIBE"), (Kind::Shard, "SSUBSCRIBE")]
        {
            for name in session.subscriptions.names(kind) {
                write_command(&mut setup, &[command.as_bytes(), &name]);
            }
        }
        if self.handle.client.has_flag(flag::MONITOR) {
            write_command(&mut setup, &["MONITOR"]);
        }
        if let Some(multi) = &session.multi {
            write_command(&mut setup, &["MULTI"]);
            for queued in &multi.queue {
                write_command(&mut setup, &queued.args.args().iter().collect::<Vec<_>>());
            }
        }
        setup
    }

    /// Goes on with what another process has given away; the error says why it cannot.
    pub fn resume(&mut self, connected: Connected) -> Result<(), String> {
        let resumed = self.become_what_it_was(connected);
        if resumed.is_err() {
            self.session.leave(&self.shared.worker.server);
        }
        resumed
    }

    fn become_what_it_was(&mut self, connected: Connected) -> Result<(), String> {
        let (client, session) = (&self.handle.client, &mut self.session);
        client.set_name(&connected.name);
        client.set_lib_name(&connected.lib_name);
        client.set_lib_ver(&connected.lib_ver);
        client.set_flag(connected.flags & FLAGS, true);
        if let Some(name) = &connected.user {
            let user = self.shared.worker.server.acl.get(name).filter(|user| user.rules().is_enabled());
            let user = user.ok_or_else(|| format!("there is no user {} any more", name.escape_ascii()))?;
            session.log_in(user, true);
        }
        session.db = connected.db;
        if session.db as i64 >= self.shared.worker.server.config.number(Opt::Databases) {
            return Err(format!("there is no database {} any more", session.db));
        }
        session.proto = if connected.is_resp3 { Proto::Resp3 } else { Proto::Resp2 };
        self.set_up(connected.setup)?;
        let session = &mut self.session;
        if connected.is_aborted {
            session.multi.get_or_insert_with(Multi::default).aborted = true;
        }
        if connected.has_watched {
            session.watched = Watched::lost();
        }
        session.replies = REPLIES.get(usize::from(connected.replies)).copied().unwrap_or(Replies::On);
        self.waits_until = connected.waits.map(|waits| Instant::now() + waits);
        (self.input, self.output.open, self.closing) =
            (connected.input, connected.output, connected.is_closing);
        self.stalled = true;
        self.publish();
        Ok(())
    }

    /// Executes commands whose replies the client has had.
    fn set_up(&mut self, mut setup: Vec<u8>) -> Result<(), String> {
        let shared = self.shared.clone();
        let turn = Turn::new(&shared.worker, &*shared);
        let (mut parser, mut head) = (Parser::new(), 0);
        let limits = Limits { max_bulk_len: i64::MAX, unauthenticated: false };
        while let Ok(Some(length)) = parser.parse(&mut setup[head..], &limits) {
            let mut reply = Vec::new();
            let args = parser.args(&setup[head..]);
            let outcome = turn.execute(
                &mut self.session,
                args,
                &mut reply,
                Wake::First,
                None,
                &mut Upcoming::default(),
            );
            if !matches!(outcome, Outcome::Done) || reply.first() == Some(&b'-') {
                return Err(format!("{} again: {}", args.at(0).escape_ascii(), reply.escape_ascii()));
            }
            head += length;
        }
        Ok(())
    }
}
