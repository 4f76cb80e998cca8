//! A connection: reads, executes every command that is complete, and sends the replies in one write.
//!
//! There is one place where a connection waits, [`Connection::poll_turn`], and it always does three things: it sends
//! what is durable, it reads what arrives, and it sees whether the connection was killed. A command that
//! waits does so there too, so the replies before it are sent and a client that is gone is noticed.
//!
//! While a connection is idle it holds no buffers; they are its worker's.

use crate::{
    admin::log::log,
    clients::client::{BUFFER_SIZE, Buffers, Client, flag},
    commit::durability::Lsn,
    config::Opt,
    exec::{answer::Outcome, turn::Turn},
    net::{
        event_loop::EventLoop,
        lookahead::Lookahead,
        output::{Output, SendError},
    },
    push::queue::PushMessage,
    script::stack::{OnStack, Pause},
    server::{limits::OutputLimit, mailbox::Wake},
    session::{Multi, Session},
    transport::stream::Stream,
};
use holdfast_io::Moment;
use holdfast_resp::{Limits, Parser, Writer};
use holdfast_store::{Cold, Expected, Fetched};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::time;

/// With this many bytes of replies waiting nothing more is read from a client, whatever its limits.
const OUTPUT_PAUSE: usize = 64 << 20;
/// The same for a client that has yet to authenticate: anybody can be one.
const OUTPUT_PAUSE_UNAUTHENTICATED: usize = 16 << 10;
/// The input that such a client may have waiting, as in Redis.
const INPUT_MAX_UNAUTHENTICATED: i64 = 1 << 20;
/// How long a connection executes commands before others of its worker get to run: much longer than what it costs to let
/// them, and short for those who wait.
const SLICE_NS: u64 = 500_000;
/// How many commands it executes at most; refused and queued ones do not look at the clock.
const SLICE_COMMANDS: u32 = 4096;
/// How long a script waits for a stack.
const STACK_RETRY: Duration = Duration::from_millis(100);
/// While a command waits, this much of what its client sends meanwhile is read ahead, in bytes.
const INPUT_AHEAD: usize = 64 << 10;

/// A connection as the rest of its worker sees it.
pub struct Handle {
    client: Arc<Client>,
    waker: RefCell<Option<Waker>>,
    killed: Cell<bool>,
    wake: Cell<Option<Wake>>,
    blocked: Cell<bool>,
    pending: Cell<usize>,
    /// Out-of-band messages that are not yet among the output.
    pushed: RefCell<Vec<u8>>,
    /// What they depend on.
    pushed_lsn: Cell<Lsn>,
    /// They are more than a client may leave unread.
    overrun: Cell<bool>,
}

impl Handle {
    /// Of a new connection.
    pub fn new(client: Arc<Client>) -> Self {
        Handle {
            client,
            waker: RefCell::default(),
            killed: Cell::new(false),
            wake: Cell::new(None),
            blocked: Cell::new(false),
            pending: Cell::new(0),
            pushed: RefCell::default(),
            pushed_lsn: Cell::new(0),
            overrun: Cell::new(false),
        }
    }

    /// Takes in a message.
    pub fn push(&self, message: &PushMessage, limits: &[OutputLimit; 3]) {
        if self.overrun.get() {
            return;
        }
        let mut pushed = self.pushed.borrow_mut();
        message.payload.write(&self.client, &mut pushed);
        if limits[self.client.class() as usize].exceeds_hard(pushed.len() + self.pending.get()) {
            // Not even until the connection gets to run.
            self.overrun.set(true);
            *pushed = Vec::new();
        }
        drop(pushed);
        self.pushed_lsn.set(self.pushed_lsn.get().max(message.wait_lsn));
        self.wake();
    }

    /// Hands over the messages that were taken in, to the end of `out`.
    #[inline]
    pub fn take_pushed(&self, out: &mut Vec<u8>) {
        if self.pushed.borrow().is_empty() {
            return;
        }
        let mut pushed = self.pushed.take();
        if out.capacity() == 0 {
            *out = pushed;
        } else {
            out.append(&mut pushed);
        }
    }

    /// Closes the connection as soon as it waits.
    pub fn kill(&self) {
        self.killed.set(true);
        self.wake();
    }

    /// Lets the command that waits go on, if one does.
    pub fn unblock(&self, why: Wake) {
        if self.blocked.get() {
            self.wake.set(Some(why));
            self.wake();
        }
    }

    /// Once a second: closes the connection if it was silent for `timeout` and is not there to listen, and lets it look at its output.
    pub fn tick(&self, timeout: Duration) {
        let listens = self.client.is_subscribed() || self.client.has_flag(flag::MONITOR);
        let is_waited_for = self.blocked.get() || self.pending.get() > 0 || listens;
        if !timeout.is_zero() && !is_waited_for && self.client.idle() > timeout {
            log!(Verbose, "closing idle client {}", self.client.addr);
            self.kill();
        } else if self.pending.get() > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn register(&self, cx: &Context) {
        let mut waker = self.waker.borrow_mut();
        match waker.as_mut() {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }
}

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
}

/// A client's connection.
pub struct Connection {
    events: Rc<EventLoop>,
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
    pub fn new(events: Rc<EventLoop>, handle: Rc<Handle>, stream: Stream) -> Self {
        let session = Session::new(handle.client.clone(), &events.worker.server.acl);
        Connection {
            events,
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
            accounted: 0,
            slice: Slice::default(),
        }
    }

    /// Runs until either end closes.
    pub async fn run(&mut self) {
        let why = loop {
            if let Err(why) = poll_fn(|cx| self.poll_turn(cx)).await {
                break why;
            }
            if let Err(why) = self.execute().await {
                break why;
            }
        };
        self.session.leave(&self.events.worker.server);
        self.stream.close().await;
        let addr = &self.handle.client.addr;
        match why {
            Closed::ByPeer | Closed::ByServer => log!(Debug, "client {addr} is gone"),
            Closed::Killed => log!(Verbose, "client {addr} was disconnected"),
            Closed::InputLimit => log!(Warning, "closing client {addr}: it reached the query buffer limit"),
            Closed::OutputLimit => log!(Warning, "closing client {addr}: it reached the output buffer limit"),
            Closed::Send(SendError::LogFailed(_)) => {
                log!(Warning, "closing client {addr}: what it was to be told is not durable")
            }
            Closed::Send(SendError::Io(e)) | Closed::Read(e) => log!(Verbose, "client {addr}: {e}"),
        }
    }

    /// Executes the commands in the input until one is incomplete.
    async fn execute(&mut self) -> Result<(), Closed> {
        let events = self.events.clone();
        let worker = &events.worker;
        let turn = Turn::new(worker, &*events);
        self.handle.client.touch(turn.now());
        self.slice.began.get_or_insert(turn.now());
        self.stalled = false;
        // What others have sent before it comes before the replies.
        self.events.deliver();
        self.take_pushed();
        let mut lookahead = Lookahead::default();
        while !self.closing && self.head < self.input.len() {
            let unauthenticated = self.is_unauthenticated();
            if self.output.pending() >= output_pause(unauthenticated) {
                self.stalled = true;
                break;
            }
            let limits = Limits { max_bulk_len: worker.server.string_max(), unauthenticated };
            match self.parser.parse(&mut self.input[self.head..], &limits) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let input = &self.input[self.head..];
                    let expected =
                        lookahead.next(&worker.server.store, self.session.db as u8, &self.parser, input);
                    let outcome = self.attempt(&turn, Wake::First, expected);
                    self.settle(&turn, &outcome)?;
                    if !matches!(outcome, Outcome::Done) && self.see_through(&turn, outcome).await? {
                        lookahead.forget();
                    }
                    self.head += length;
                    if self.slice.is_over_after(&turn) && !self.closing {
                        self.let_others_run().await?;
                        lookahead.forget();
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
        self.publish();
        Ok(())
    }

    /// Lets others of the worker run. What was executed so far is on its way meanwhile: the worker does not come to rest,
    /// which else is when it has its writes made durable.
    async fn let_others_run(&mut self) -> Result<(), Closed> {
        self.events.worker.kick();
        let events = self.events.clone();
        self.drive(events.others_run()).await
    }

    /// Executes the command at the head of the input, which may be empty, as far as it goes at once.
    #[inline]
    fn attempt(&mut self, turn: &Turn<'_>, wake: Wake, expected: Option<&Expected>) -> Outcome {
        let args = self.parser.args(&self.input[self.head..]);
        if args.is_empty() {
            return Outcome::Done;
        }
        turn.execute(&mut self.session, args, &mut self.output.open, wake, expected)
    }

    /// Takes in what an execution has left beside its reply.
    #[inline(always)]
    fn settle(&mut self, turn: &Turn<'_>, outcome: &Outcome) -> Result<(), Closed> {
        let wait_lsn = turn.take_wait_lsn();
        self.output.depends_on(wait_lsn);
        self.session.wait_lsn = self.session.wait_lsn.max(wait_lsn);
        if outcome.is_final() {
            // What it has told others, this client included, comes before what the next command does.
            self.events.deliver();
            self.take_pushed();
            // Also of a client that reads: a reply that is too long is not sent at all.
            if self.output_limit().exceeds_hard(self.output.pending()) {
                return Err(Closed::OutputLimit);
            }
        }
        Ok(())
    }

    /// Sees the command at the head of the input through, of which one attempt was not enough; whether it has waited.
    async fn see_through(&mut self, turn: &Turn<'_>, mut outcome: Outcome) -> Result<bool, Closed> {
        let (events, worker) = (self.events.clone(), turn.worker);
        let mut wake = Wake::First;
        let (mut has_waited, mut on_stack) = (false, false);
        loop {
            has_waited |= !outcome.is_final() && !matches!(outcome, Outcome::OnStack);
            if !matches!(outcome, Outcome::Busy | Outcome::Queue | Outcome::Fetch(_)) {
                // What else it waits for may take long.
                self.session.ticket = None;
            }
            match outcome {
                Outcome::Done => break,
                Outcome::Close => {
                    self.handle.client.set_flag(flag::CLOSING, true);
                    self.closing = true;
                    break;
                }
                Outcome::OnStack => on_stack = true,
                Outcome::Wait(until) => wake = self.wait(until).await?,
                Outcome::Postpone(until) => {
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    // The end of the pause is told, the end of everything else is not; either comes early at most.
                    let over = self.drive(time::timeout_at(until, events.unpaused.notified())).await;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    let _ = over?;
                }
                Outcome::WaiterFirst => {
                    // A turn may end before it is waited for here.
                    const LONGEST: Duration = Duration::from_millis(1);
                    let turns = worker.server.turns.notified();
                    let _ = self.drive(time::timeout(LONGEST, turns)).await?;
                }
                Outcome::LockBusy => {
                    // What is told when nobody waits for it here yet is missed.
                    const LONGEST: Duration = Duration::from_millis(5);
                    let released = worker.server.released.notified();
                    let _ = self.drive(time::timeout(LONGEST, released)).await?;
                }
                Outcome::Busy | Outcome::Queue => {
                    let was_refused = matches!(outcome, Outcome::Busy);
                    let may_try = worker.server.writers.wait(&mut self.session.ticket, was_refused);
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    let admitted = self.drive(may_try).await;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    admitted?;
                }
                Outcome::WaitFor(work) => {
                    worker.stats().blocked.fetch_add(1, Relaxed);
                    let done = self.drive(work.begin()).await;
                    worker.stats().blocked.fetch_sub(1, Relaxed);
                    self.session.progress = done?;
                }
                Outcome::Fetch(cold) => {
                    let mut wanted = cold.clone();
                    wanted.extend(self.look_ahead(turn, Vec::new()));
                    let fetching = self.events.worker.fetcher.fetch(wanted);
                    let fetched = self.drive(fetching).await?;
                    let is_own = |fetched: &Fetched| cold.iter().any(|cold| fetched.is(cold));
                    let (own, ahead): (Vec<_>, Vec<_>) = fetched.into_iter().partition(is_own);
                    if !ahead.is_empty() {
                        self.look_ahead(turn, ahead);
                    }
                    self.session.fetched.extend(own);
                }
            }
            turn.resume();
            outcome = if on_stack {
                run_on_stack(&events, || self.attempt(turn, wake, None)).await
            } else {
                self.attempt(turn, wake, None)
            };
            self.settle(turn, &outcome)?;
        }
        // It may have been refused in the end, although this was fetched for it.
        self.session.fetched.clear();
        self.session.draws = None;
        Ok(has_waited)
    }

    /// Looks at the commands behind the one at the head of the input, as [`Turn::look_ahead`] does.
    fn look_ahead(&self, turn: &Turn<'_>, fetched: Vec<Fetched>) -> Vec<Cold> {
        if !self.parser.has_ahead() || self.session.multi.is_some() {
            return Vec::new();
        }
        let commands = self.parser.upcoming(&self.input[self.head..]).skip(1);
        turn.look_ahead(&self.session, commands, fetched)
    }

    /// Puts the messages that have come among the output, between two replies.
    #[inline]
    fn take_pushed(&mut self) {
        if !self.closing {
            // Also if a command has handed over the messages, but not what they depend on.
            self.output.depends_on(self.handle.pushed_lsn.take());
            self.handle.take_pushed(&mut self.output.open);
        }
    }

    /// Waits until a key is written, CLIENT UNBLOCK says so, or it is time.
    async fn wait(&mut self, until: Option<time::Instant>) -> Result<Wake, Closed> {
        let handle = self.handle.clone();
        let events = self.events.clone();
        let worker = &events.worker;
        let waiting = self.session.waiting.as_ref().expect("it waits for something");
        let signal = waiting.signal();
        handle.client.set_waits_for(waiting.keys().map(|(db, key)| (db, key.to_vec())).collect());
        let mut alarm = pin!(async {
            match until {
                Some(until) => time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        });
        handle.wake.set(None);
        handle.blocked.set(true);
        worker.stats().blocked.fetch_add(1, Relaxed);
        handle.client.set_flag(flag::BLOCKED, true);
        self.publish();
        let woken = self.drive(poll_fn(|cx| {
            if let Some(why) = handle.wake.take() {
                return Poll::Ready(why);
            }
            if signal.poll(cx).is_ready() {
                return Poll::Ready(Wake::Signal);
            }
            alarm.as_mut().poll(cx).map(|()| Wake::Timeout)
        }));
        let woken = woken.await;
        handle.blocked.set(false);
        handle.client.end_block(worker.stats());
        woken
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
                    // Something was read ahead; there may be more.
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

    /// Sends, reads, and looks for reasons to end. Ready when there is something new to execute.
    fn poll_turn(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        let polled = self.poll_streams(cx);
        if polled.is_pending() {
            self.slice = Slice::default();
        }
        polled
    }

    fn poll_streams(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        self.handle.register(cx);
        if self.handle.killed.get() {
            return Poll::Ready(Err(Closed::Killed));
        }
        if self.handle.overrun.get() {
            return Poll::Ready(Err(Closed::OutputLimit));
        }
        self.take_pushed();
        let (stats, client) = (self.events.worker.stats(), &self.handle.client);
        let flushed = self.output.poll_flush(cx, &mut self.stream, &self.events.durability, |n| {
            stats.writes.add(1);
            stats.output_bytes.add(n as u64);
            client.count_output(n);
        });
        match flushed {
            Poll::Ready(Ok(())) if self.closing => return Poll::Ready(Err(Closed::ByServer)),
            Poll::Ready(Ok(())) if self.ended => return Poll::Ready(Err(Closed::ByPeer)),
            Poll::Ready(Ok(())) => {
                for buffer in self.output.take_buffers() {
                    self.events.give_buffer(buffer);
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Closed::Send(error))),
            Poll::Pending => {}
        }
        let pending = self.output.pending();
        self.handle.pending.set(pending);
        self.handle.client.publish_output(pending);
        if self.events.worker.server.clients.is_memory_limited() {
            self.account();
        }
        if self.is_over_output_limit(pending) {
            return Poll::Ready(Err(Closed::OutputLimit));
        }
        if self.closing || self.ended || pending >= output_pause(self.is_unauthenticated()) {
            return Poll::Pending;
        }
        if self.stalled && !self.in_command {
            return Poll::Ready(Ok(()));
        }
        if self.in_command && self.input.len() - self.head > self.parser.length() + INPUT_AHEAD {
            return Poll::Pending;
        }
        self.poll_read(cx)
    }

    fn poll_read(&mut self, cx: &mut Context) -> Poll<Result<(), Closed>> {
        self.make_room();
        match self.stream.poll_read(cx, &mut self.input) {
            Poll::Pending => {
                if self.input.is_empty() {
                    self.events.give_buffer(std::mem::take(&mut self.input));
                    self.handle.client.publish_input(0, 0);
                }
                Poll::Pending
            }
            Poll::Ready(Ok(0)) => {
                self.ended = true;
                // What was executed before is still answered: a peer may close its half and read on.
                if self.output.pending() == 0 { Poll::Ready(Err(Closed::ByPeer)) } else { Poll::Pending }
            }
            Poll::Ready(Ok(n)) => {
                self.events.worker.stats().reads.add(1);
                self.events.worker.stats().input_bytes.add(n as u64);
                self.handle.client.count_input(n);
                let mut limit = self.events.worker.server.config.number(Opt::ClientQueryBufferLimit);
                if self.is_unauthenticated() {
                    limit = limit.min(INPUT_MAX_UNAUTHENTICATED);
                }
                if (self.input.len() - self.head) as i64 > limit {
                    return Poll::Ready(Err(Closed::InputLimit));
                }
                if self.output.open.capacity() == 0 {
                    self.output.open = self.events.take_buffer();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Closed::Read(error))),
        }
    }

    /// Makes room to read into. A buffer grows with what arrives, at most to twice that, and hardly beyond the argument
    /// that is being read: an announced length alone costs nothing.
    fn make_room(&mut self) {
        if self.head == self.input.len() {
            self.input.clear();
            self.head = 0;
            if self.input.capacity() > BUFFER_SIZE {
                self.input = Vec::new();
            }
        }
        if self.input.capacity() == 0 {
            self.input = self.events.take_buffer();
        }
        if self.input.len() == self.input.capacity() || (self.head > 0 && self.parser.is_partial()) {
            self.input.drain(..self.head);
            self.head = 0;
        }
        if self.input.len() == self.input.capacity() {
            let missing = self.parser.needed().saturating_sub(self.input.len());
            self.input.reserve_exact(missing.clamp(BUFFER_SIZE, self.input.len().max(BUFFER_SIZE)));
        }
    }

    /// Whether the client has yet to say who it is.
    #[inline]
    fn is_unauthenticated(&self) -> bool {
        !self.session.authenticated && self.events.worker.server.acl.requires_auth()
    }

    #[inline]
    fn output_limit(&self) -> &OutputLimit {
        &self.events.worker.server.output_limits[self.handle.client.class() as usize]
    }

    fn is_over_output_limit(&mut self, pending: usize) -> bool {
        let limit = &self.events.worker.server.output_limits[self.handle.client.class() as usize];
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

    /// Shows other threads what the connection does.
    fn publish(&self) {
        self.session.publish();
        self.publish_buffers();
    }

    fn publish_buffers(&self) {
        self.handle.client.publish_buffers(Buffers {
            input: self.input.len() - self.head,
            input_free: self.input.capacity() - self.input.len(),
            output: self.output.pending(),
            memory: self.memory(),
        });
    }

    /// Bytes of memory held.
    fn memory(&self) -> usize {
        let buffers = self.input.capacity() + self.output.memory() + self.handle.pushed.borrow().capacity();
        let queued = self.session.multi.as_ref().map_or(0, Multi::memory);
        size_of::<Self>() + buffers + self.parser.memory() + queued
    }

    /// Sees to it that the memory of all clients stays within its limit, when that of this one has grown.
    fn account(&mut self) {
        /// Growth that is worth adding up what all clients take.
        const STEP: usize = 64 << 10;
        let memory = self.memory();
        if memory > self.accounted + STEP {
            self.accounted = memory;
            self.publish_buffers();
            self.events.worker.server.evict_clients();
        } else if memory < self.accounted {
            self.accounted = memory;
            self.publish_buffers();
        }
    }
}

/// Bytes of replies that may wait before nothing more is executed for a client.
#[inline]
fn output_pause(unauthenticated: bool) -> usize {
    if unauthenticated { OUTPUT_PAUSE_UNAUTHENTICATED } else { OUTPUT_PAUSE }
}

/// Runs a script on a stack of its own. The worker serves others between its parts, and while it waits; its own connection
/// does nothing else, as in Redis.
async fn run_on_stack(events: &EventLoop, run: impl FnOnce() -> Outcome) -> Outcome {
    let stack = match events.worker.take_stack() {
        Ok(stack) => stack,
        Err(e) => {
            log!(Warning, "no memory for the stack of a script: {e}");
            return Outcome::postpone(STACK_RETRY);
        }
    };
    let mut running = OnStack::new(stack, run);
    let mut fetched = Vec::new();
    let outcome = loop {
        let paused = match running.resume(std::mem::take(&mut fetched)) {
            Ok(outcome) => break outcome,
            Err(paused) => paused,
        };
        // The worker may not come to rest before the script's end.
        events.worker.kick();
        match paused {
            Pause::Turn => events.others_run().await,
            Pause::LockBusy => {
                const LONGEST: Duration = Duration::from_millis(1);
                let _ = time::timeout(LONGEST, events.worker.server.released.notified()).await;
            }
            Pause::Fetch(cold) => fetched = events.worker.fetcher.fetch(cold).await,
        }
    };
    events.worker.give_stack(running.into_stack());
    outcome
}
