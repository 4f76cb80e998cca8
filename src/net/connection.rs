//! A connection: reads, executes every command that is complete, and sends the replies in one write.
//!
//! There is one place where a connection waits, [`Connection::poll_turn`], and it always does three things: it sends
//! what is durable, it reads what arrives, and it sees whether the connection was killed. A command that
//! waits does so there too, so the replies before it are sent and a client that is gone is noticed.
//!
//! While a connection is idle it holds no buffers; they are its worker's.

mod buffers;
mod freeze;
mod snapshot;
mod waiting;

use crate::{
    admin::log::log,
    clients::client::Kind,
    exec::{answer::Outcome, turn::Turn},
    net::{
        handle::Handle,
        lookahead::Lookahead,
        output::{Output, SendError},
        shared::Shared,
    },
    server::{limits::OutputLimit, mailbox::Wake},
    session::Session,
    transport::stream::Stream,
};
use holdfast_io::Moment;
use holdfast_resp::{Limits, Parser, Upcoming, Writer};
use holdfast_store::{Cold, Expected, hash_slot};
use std::{future::poll_fn, io, pin::pin, rc::Rc, task::Poll, time::Instant};
use tokio::time;

/// With this many bytes of replies waiting nothing more is read from a client, whatever its limits.
const OUTPUT_PAUSE: usize = 64 << 20;
/// The same for a client that has yet to authenticate: anybody can be one.
const OUTPUT_PAUSE_UNAUTHENTICATED: usize = 16 << 10;
/// How long a connection executes commands before others of its worker get to run: much longer than what it costs to let
/// them, and short for those who wait.
const SLICE_NS: u64 = 500_000;
/// How many commands it executes at most; refused and queued ones do not look at the clock.
const SLICE_COMMANDS: u32 = 4096;

/// Why a connection ends.
#[derive(Debug)]
enum Closed {
    ByPeer,
    ByServer,
    Killed,
    InputLimit,
    OutputLimit,
    Send(SendError),
    Read(io::Error),
    /// Not yet: the worker executes nothing for the time being.
    Frozen,
}

/// A client's connection.
pub struct Connection {
    shared: Rc<Shared>,
    handle: Rc<Handle>,
    stream: Stream,
    session: Session,
    parser: Parser,
    input: Vec<u8>,
    /// Where the first command that is not executed begins in `input`.
    head: usize,
    output: Output,
    /// When the output went over the soft limit.
    over_limit_since: Option<Instant>,
    /// There may be complete commands in `input`.
    stalled: bool,
    /// The peer sends no more.
    ended: bool,
    /// Nothing more is executed; what is in `output` is sent.
    closing: bool,
    /// A command waits for something; what is read meanwhile is kept.
    in_command: bool,
    /// The command in progress has had no effect so far, and can begin anew.
    may_freeze: bool,
    /// The command at the head of the input was in progress when the connection froze.
    interrupted: bool,
    /// Until when that command waits at most, when it begins anew.
    waits_until: Option<time::Instant>,
    /// The memory that it took when that of all was last looked at.
    accounted: usize,
    /// What it has executed since others of its worker got to run.
    slice: Slice,
}

/// What a connection has executed in a row.
#[derive(Default)]
struct Slice {
    /// When the first command began.
    began: Option<Moment>,
    commands: u32,
}

impl Slice {
    /// Counts a command that has ended; whether it is others' turn.
    #[inline]
    fn is_over_after(&mut self, turn: &Turn) -> bool {
        self.commands += 1;
        self.commands >= SLICE_COMMANDS
            || self.began.is_some_and(|began| turn.now().ns_since(began) >= SLICE_NS)
    }
}

impl Connection {
    /// Serves the client at the other end of `stream`.
    pub fn new(shared: Rc<Shared>, handle: Rc<Handle>, stream: Stream) -> Self {
        let session = Session::new(handle.client.clone(), &shared.worker.server.acl);
        Connection {
            shared,
            handle,
            stream,
            session,
            parser: Parser::new(),
            input: Vec::new(),
            head: 0,
            output: Output::default(),
            over_limit_since: None,
            stalled: false,
            ended: false,
            closing: false,
            in_command: false,
            may_freeze: false,
            interrupted: false,
            waits_until: None,
            accounted: 0,
            slice: Slice::default(),
        }
    }

    /// Runs until either end closes, or another process is to go on with it.
    pub async fn run(&mut self) {
        let why = loop {
            let turned = match poll_fn(|cx| self.poll_turn(cx)).await {
                Ok(()) => self.execute().await,
                Err(why) => Err(why),
            };
            match turned {
                Ok(()) => {}
                Err(Closed::Frozen) => {
                    if !self.freeze().await {
                        return self.give_away().await;
                    }
                }
                Err(why) => break why,
            }
        };
        self.session.leave(&self.shared.worker.server);
        self.stream.close().await;
        let addr = &self.handle.client.addr;
        match why {
            Closed::ByPeer | Closed::ByServer => log!(Debug, "client {addr} is gone"),
            Closed::Killed => log!(Verbose, "client {addr} was disconnected"),
            Closed::InputLimit => log!(Warning, "closing client {addr}: it reached the query buffer limit"),
            Closed::OutputLimit => log!(Warning, "closing client {addr}: it reached the output buffer limit"),
            Closed::Send(SendError::LogFailed(_)) => {
                let failed = self.shared.worker.server.store.log().failed();
                let why = failed.map(|why| format!(": {why}")).unwrap_or_default();
                log!(Warning, "closing client {addr}: what it was to be told is not durable{why}")
            }
            Closed::Send(SendError::Io(e)) | Closed::Read(e) => log!(Verbose, "client {addr}: {e}"),
            Closed::Frozen => unreachable!("it goes on, here or elsewhere"),
        }
    }

    /// Executes the commands in the input until one is incomplete.
    async fn execute(&mut self) -> Result<(), Closed> {
        let shared = self.shared.clone();
        let worker = &shared.worker;
        let turn = Turn::new(worker, &*shared);
        self.handle.client.touch(turn.now());
        self.slice.began.get_or_insert(turn.now());
        self.stalled = false;
        // Messages that were published before these commands come before their replies.
        self.shared.deliver();
        self.take_pushed();
        let mut lookahead = Lookahead::default();
        while !self.closing && self.head < self.input.len() {
            let unauthenticated = self.is_unauthenticated();
            if self.output.pending() >= output_pause(unauthenticated) || self.shared.is_freezing() {
                self.stalled = true;
                break;
            }
            let limits = Limits { max_bulk_len: worker.server.string_max(), unauthenticated };
            match self.parser.parse(&mut self.input[self.head..], &limits) {
                Ok(None) => break,
                Ok(Some(_)) => {
                    let input = &self.input[self.head..];
                    let expected =
                        lookahead.next(&worker.server.store, self.session.db as u8, &self.parser, input);
                    let (outcome, more) = self.attempt(&turn, Wake::First, expected);
                    if more > 0 {
                        self.head += self.parser.pass(more);
                        lookahead.pass(more);
                        self.slice.commands += more as u32;
                    }
                    self.settle(&turn, &outcome)?;
                    if !matches!(outcome, Outcome::Done) {
                        self.see_through(&turn, outcome).await?;
                    }
                    self.head += self.parser.length();
                    self.waits_until = None;
                    worker.store_ahead();
                    if self.slice.is_over_after(&turn) && !self.closing {
                        self.let_others_run().await?;
                        turn.resume();
                        self.slice = Slice { began: Some(turn.now()), commands: 0 };
                    }
                }
                Err(error) => {
                    log!(Verbose, "{error} from client {}", self.handle.client.addr);
                    Writer::new(&mut self.output.open, self.session.proto).error(format!("ERR {error}"));
                    self.closing = true;
                }
            }
        }
        self.session.ahead.clear();
        self.publish();
        Ok(())
    }

    /// Lets other connections of the worker run. What was executed so far is committed meanwhile: the worker commits when it
    /// comes to rest, and it does not come to rest here.
    async fn let_others_run(&mut self) -> Result<(), Closed> {
        self.shared.worker.kick();
        let shared = self.shared.clone();
        self.drive(shared.others_run()).await
    }

    /// Executes the command at the head of the input, which may be empty, as far as it goes at once. Returns how many of those
    /// behind it were executed with it, too: then this is the outcome of the last.
    #[inline]
    fn attempt(&mut self, turn: &Turn<'_>, wake: Wake, expected: Option<&Expected>) -> (Outcome, usize) {
        let mut behind = self.parser.upcoming(&self.input[self.head..]);
        let Some(args) = behind.next().filter(|args| !args.is_empty()) else { return (Outcome::Done, 0) };
        let ahead = behind.len();
        let out = &mut self.output.open;
        let outcome = turn.execute(&mut self.session, args, out, wake, expected, &mut behind);
        (outcome, ahead - behind.len())
    }

    /// The same once more, without those behind it.
    fn attempt_again(&mut self, turn: &Turn<'_>, wake: Wake) -> Outcome {
        let (args, out) = (self.parser.args(&self.input[self.head..]), &mut self.output.open);
        turn.execute(&mut self.session, args, out, wake, None, &mut Upcoming::default())
    }

    /// Takes in what an execution has left beside its reply.
    #[inline(always)]
    fn settle(&mut self, turn: &Turn<'_>, outcome: &Outcome) -> Result<(), Closed> {
        let wait_lsn = turn.take_wait_lsn();
        self.output.depends_on(wait_lsn);
        self.session.wait_lsn = self.session.wait_lsn.max(wait_lsn);
        if outcome.is_final() {
            // Messages that this command has published, to this client too, come before the next command's reply.
            self.shared.deliver();
            self.take_pushed();
            // This holds for a client that reads, too: a reply that is too long is not sent at all.
            if self.output_limit().exceeds_hard(self.output.pending()) {
                return Err(Closed::OutputLimit);
            }
        }
        Ok(())
    }

    /// Looks at the commands behind the one at the head of the input, as [`Turn::look_ahead`] does.
    fn look_ahead(&self, turn: &Turn<'_>) -> Option<Vec<Cold>> {
        if !self.parser.has_ahead() || self.session.multi.is_some() {
            return Some(Vec::new());
        }
        let commands = self.parser.upcoming(&self.input[self.head..]);
        turn.look_ahead(&self.session, commands)
    }

    /// Puts the messages that have come among the output, between two replies.
    #[inline]
    fn take_pushed(&mut self) {
        if !self.closing {
            // Also if a command has handed over the messages, but not what they depend on.
            self.output.depends_on(self.handle.pushed_lsn.take());
            self.handle.take_pushed(&mut self.output.open);
            if self.handle.leaves_shards.take() {
                self.leave_shards();
            }
        }
    }

    /// Ends the subscriptions to channels of shards whose slots are another node's, and tells the client, which is to subscribe there:
    /// as Redis does.
    #[cold]
    fn leave_shards(&mut self) {
        let (server, session) = (&self.shared.worker.server, &mut self.session);
        let view = server.cluster.view();
        for name in session.subscriptions.names(Kind::Shard) {
            if !view.holds(hash_slot(&name)) {
                session.subscriptions.end(&server.push.pubsub, &session.client, Kind::Shard, &name);
                let mut out = Writer::new(&mut self.output.open, session.proto);
                out.push(3);
                out.bulk("sunsubscribe");
                out.bulk(&name);
                out.int(session.subscriptions.len(Kind::Shard) as i64);
            }
        }
    }

    /// Awaits something while a command is in progress: earlier replies are sent, and the end of the connection is
    /// noticed.
    async fn drive<F: Future>(&mut self, future: F) -> Result<F::Output, Closed> {
        let mut future = pin!(future);
        self.in_command = true;
        let result = poll_fn(|cx| {
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(Ok(output));
                }
                match self.poll_turn(cx) {
                    // Input was read ahead; there may be more.
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        self.in_command = false;
        result
    }

    /// Whether the client has yet to authenticate.
    #[inline]
    fn is_unauthenticated(&self) -> bool {
        !self.session.authenticated && self.shared.worker.server.acl.requires_auth()
    }

    #[inline]
    fn output_limit(&self) -> &OutputLimit {
        &self.shared.worker.server.output_limits[self.handle.client.class() as usize]
    }

    fn is_over_output_limit(&mut self, pending: usize) -> bool {
        let limit = &self.shared.worker.server.output_limits[self.handle.client.class() as usize];
        if limit.exceeds_hard(pending) {
            return true;
        }
        match limit.exceeds_soft(pending) {
            None => {
                self.over_limit_since = None;
                false
            }
            Some(allowed) => self.over_limit_since.get_or_insert_with(Instant::now).elapsed() >= allowed,
        }
    }
}

/// Bytes of replies that may wait before nothing more is executed for a client.
#[inline]
fn output_pause(unauthenticated: bool) -> usize {
    if unauthenticated { OUTPUT_PAUSE_UNAUTHENTICATED } else { OUTPUT_PAUSE }
}
