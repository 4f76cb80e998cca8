//! The event loop of a worker: one thread, one runtime, and the connections that were given to it, which stay there.

use crate::{
    admin::log::log,
    clients::client::{BUFFER_SIZE, Client},
    commit::durability::DurabilityQueue,
    config::Opt,
    exec::{
        handler::Rows,
        turn::Inbox,
        worker::{Clock, Worker, kick},
    },
    net::{
        connection::Connection,
        handle::Handle,
        large_buffer::{LARGE, LargeBuffer},
    },
    push::queue::PushMessage,
    server::{Server, eviction, handover::Connected, mailbox::Message},
    transport::stream::{Socket, Stream},
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{Notify, mpsc::UnboundedReceiver},
    task::{spawn_local, yield_now},
    time,
};

/// Buffers kept.
const BUFFERS_KEPT: usize = 256;
/// Items that are read by threads at the same time, where the kernel has no `io_uring`.
const FETCHES_MAX: usize = 64;
/// How often connections are looked at for time-outs.
const TICK: Duration = Duration::from_secs(1);

/// The connections of a worker, and what they share.
pub struct EventLoop {
    /// Executes their commands.
    pub worker: Rc<Worker>,
    /// Where its replies wait.
    pub durability: DurabilityQueue,
    /// Told when a pause is over.
    pub unpaused: Notify,
    /// Told when a connection waits for its next turn.
    awaited: Notify,
    /// Told when those that wait have it.
    turns: Notify,
    connections: RefCell<HashMap<u64, Rc<Handle>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    large_buffer: RefCell<LargeBuffer>,
    /// Whether commands are executed.
    phase: Cell<Phase>,
    /// Told when the phase changes.
    phase_changed: Notify,
    /// Told when a connection has frozen, or is gone.
    froze: Notify,
    /// Connections that another process goes on with.
    given: RefCell<Vec<(Socket, Connected)>>,
    /// For the messages that are being delivered.
    messages: RefCell<Vec<PushMessage>>,
}

/// What connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They execute commands.
    Serves,
    /// They begin none, and wait for what comes next once none is in progress.
    Freezes,
    /// They leave.
    GivesAway,
}

/// Runs a worker in this thread until it is told to stop.
pub fn run(
    server: Arc<Server>,
    rows: &'static Rows,
    index: usize,
    clock: Clock,
    mailbox: UnboundedReceiver<Message>,
) -> io::Result<()> {
    // At the end of a loop turn the log's thread gets to work on what the turn has appended, all at once.
    let worker = Rc::new(Worker::new(server, rows, index, clock));
    let (store, appended) = (worker.server.store.clone(), worker.appended.clone());
    let kick = move || kick(&store, &appended);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(FETCHES_MAX)
        .on_thread_park(kick)
        .build_local(LocalOptions::default())?;
    runtime.block_on(Rc::new(EventLoop::new(worker)).serve(mailbox));
    Ok(())
}

impl EventLoop {
    /// Without connections.
    pub fn new(worker: Rc<Worker>) -> EventLoop {
        let durability = DurabilityQueue::new(worker.server.progress.clone(), worker.index);
        EventLoop {
            worker,
            durability,
            unpaused: Notify::new(),
            awaited: Notify::new(),
            turns: Notify::new(),
            phase: Cell::new(Phase::Serves),
            phase_changed: Notify::new(),
            froze: Notify::new(),
            given: RefCell::default(),
            connections: RefCell::default(),
            buffers: RefCell::default(),
            large_buffer: RefCell::default(),
            messages: RefCell::default(),
        }
    }

    /// An empty buffer with room.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_SIZE))
    }

    /// The same for replies of a connection that lately had so many bytes of them at once.
    pub fn take_reply_buffer(&self, recent: usize) -> Vec<u8> {
        self.large_buffer.borrow_mut().take(recent).unwrap_or_else(|| self.take_buffer())
    }

    /// Keeps a buffer for another connection, if it is worth it.
    pub fn give_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() > LARGE {
            return self.large_buffer.borrow_mut().give(buffer);
        }
        let mut buffers = self.buffers.borrow_mut();
        if buffer.capacity() >= BUFFER_SIZE && buffers.len() < BUFFERS_KEPT {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    /// Serves the connections that it is given until it is told to stop.
    pub async fn serve(self: Rc<Self>, mut mailbox: UnboundedReceiver<Message>) {
        self.start_reading();
        let this = self.clone();
        spawn_local(async move { this.durability.run().await });
        let this = self.clone();
        spawn_local(async move { this.deliver_all().await });
        let clock = self.clone();
        spawn_local(async move { clock.tick().await });
        let this = self.clone();
        spawn_local(async move { this.give_turns().await });
        while let Some(message) = mailbox.recv().await {
            match message {
                Message::Accept(socket, client) => self.accept(socket, client, None),
                Message::Adopt(socket, client, connected) => self.accept(socket, client, Some(connected)),
                Message::Freeze(done) => {
                    self.enter(Phase::Freezes);
                    let this = self.clone();
                    spawn_local(async move {
                        if this.all_are_frozen().await {
                            // Who has asked may have lost patience.
                            let _ = done.send(());
                        }
                    });
                }
                Message::Thaw => self.enter(Phase::Serves),
                Message::GiveAway(to) => {
                    // What was published before is among the output then.
                    self.deliver();
                    self.enter(Phase::GivesAway);
                    let this = self.clone();
                    spawn_local(async move {
                        this.all_have_left().await;
                        let _ = to.send(this.given.take());
                    });
                }
                Message::Kill(id) => self.with(id, Handle::kill),
                Message::Unblock(id, why) => self.with(id, |handle| handle.unblock(why)),
                Message::Unpause => self.unpaused.notify_waiters(),
                Message::Pass(passed) => drop(passed),
                Message::Stop => return,
            }
        }
    }

    fn start_reading(&self) {
        let worker = &self.worker;
        if !worker.server.config.is_on(Opt::IoUring) {
            return;
        }
        match worker.fetcher.start() {
            Ok(()) => {}
            Err(e) if worker.index == 0 => {
                log!(
                    Warning,
                    "cannot use io_uring ({e}): threads read what is not in memory, at a lower rate"
                )
            }
            Err(_) => {}
        }
    }

    /// Ends when all others of the worker have had a turn that can use one, those whose input has arrived meanwhile among them.
    /// Nothing else ends it: the caller may be woken because its replies can leave, or because more has arrived.
    pub async fn others_run(&self) {
        let turn = self.turns.notified();
        self.awaited.notify_one();
        turn.await;
    }

    /// Gives turns to those who wait for them, in the order in which they have begun to. The runtime would let them run in
    /// any.
    async fn give_turns(&self) {
        loop {
            self.awaited.notified().await;
            yield_now().await;
            self.turns.notify_waiters();
        }
    }

    /// Delivers messages as they come.
    async fn deliver_all(&self) {
        loop {
            self.worker.server.push.queues.wait(self.worker.index).await;
            self.deliver();
        }
    }

    /// Delivers what messages there are.
    #[inline]
    pub fn deliver(&self) {
        if self.worker.server.push.queues.has_messages(self.worker.index) {
            self.deliver_messages();
        }
    }

    #[cold]
    fn deliver_messages(&self) {
        let queues = &self.worker.server.push.queues;
        let mut messages = self.messages.borrow_mut();
        queues.take(self.worker.index, &mut messages);
        let connections = self.connections.borrow();
        for message in messages.drain(..) {
            for id in message.to.iter() {
                if let Some(handle) = connections.get(id) {
                    handle.push(&message, &self.worker.server.output_limits);
                }
            }
        }
    }

    fn with(&self, id: u64, f: impl FnOnce(&Handle)) {
        if let Some(handle) = self.connections.borrow().get(&id) {
            f(handle);
        }
    }

    /// Whether connections are to begin no command.
    #[inline]
    pub fn is_freezing(&self) -> bool {
        self.phase.get() != Phase::Serves
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.phase_changed.notify_waiters();
        self.froze.notify_waiters();
        self.connections.borrow().values().for_each(|handle| handle.wake());
    }

    /// Ends when connections that are frozen are to go on, here or elsewhere.
    pub async fn next_phase(&self) -> Phase {
        self.froze.notify_waiters();
        loop {
            let changed = self.phase_changed.notified();
            match self.phase.get() {
                Phase::Freezes => changed.await,
                phase => return phase,
            }
        }
    }

    /// Waits until no connection executes anything; `false`: they are to go on before.
    async fn all_are_frozen(&self) -> bool {
        loop {
            let froze = self.froze.notified();
            if self.phase.get() != Phase::Freezes {
                return false;
            }
            let is_at_rest = |handle: &Rc<Handle>| handle.frozen.get() || !handle.is_open.get();
            if self.connections.borrow().values().all(is_at_rest) {
                return true;
            }
            froze.await;
        }
    }

    /// Has another process go on with a connection.
    pub fn give_away(&self, socket: Socket, connected: Connected) {
        self.given.borrow_mut().push((socket, connected));
    }

    async fn all_have_left(&self) {
        loop {
            let froze = self.froze.notified();
            if !self.connections.borrow().values().any(|handle| handle.frozen.get()) {
                return;
            }
            froze.await;
        }
    }

    fn accept(self: &Rc<Self>, socket: Socket, client: Arc<Client>, adopted: Option<Box<Connected>>) {
        let handle = Rc::new(Handle::new(client.clone()));
        handle.is_open.set(!matches!(socket, Socket::Tls(_)));
        self.connections.borrow_mut().insert(client.id, handle.clone());
        let events = self.clone();
        spawn_local(async move {
            let id = client.id;
            match Stream::open(socket, &events.worker.server.tls).await {
                Ok(stream) => {
                    handle.is_open.set(true);
                    let mut connection = Connection::new(events.clone(), handle, stream);
                    match adopted.map_or(Ok(()), |adopted| connection.resume(*adopted)) {
                        Ok(()) => connection.run().await,
                        Err(why) => log!(Notice, "closing client {}: {why}", client.addr),
                    }
                }
                // What is not TLS, and certificates that are not good. A probe that just connects is none of it.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    log!(
                        Notice,
                        "Error accepting a client connection: {e} (addr={} laddr={})",
                        client.addr,
                        client.laddr
                    )
                }
                Err(e) => log!(Verbose, "Error accepting a client connection: {e} (addr={})", client.addr),
            }
            // Whoever sees its socket closed finds it nowhere any more.
            events.connections.borrow_mut().remove(&id);
            events.worker.server.clients.remove(id);
            events.froze.notify_waiters();
        });
    }

    /// Looks after what no event tells of: clients that say nothing, and those that read too slowly.
    async fn tick(&self) {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.large_buffer.borrow_mut().tick();
            self.worker.server.busy.do_deferred(&self.worker.server.store);
            let timeout = Duration::from_secs(self.worker.server.config.number(Opt::Timeout) as u64);
            for handle in self.connections.borrow().values() {
                handle.tick(timeout);
            }
            if self.worker.index == 0 {
                self.worker.server.measure_rates();
                self.worker.server.refusals.report(&self.worker.server.store);
                self.worker.server.report_slow_medium();
                if let Some(why) = self.worker.server.store.take_dictionary_failure() {
                    log!(Warning, "A dictionary for small values is not used, as it cannot be kept: {why}");
                }
                self.worker.server.evict_clients();
                eviction::count_other_memory(&self.worker.server);
            }
        }
    }
}

impl Inbox for EventLoop {
    fn take_pushed(&self, client: u64, out: &mut Vec<u8>) {
        self.deliver();
        self.with(client, |handle| handle.take_pushed(out));
    }
}
