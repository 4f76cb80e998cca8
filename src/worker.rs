//! A worker: one thread, one runtime, and the connections that were given to it, which stay there.

use crate::{
    answer::Wake,
    client::Client,
    config::Opt,
    connection::{Connection, Handle},
    eviction,
    gate::Gate,
    log::log,
    post::Letter,
    script::{engine::Engine, stack::Stack},
    server::Server,
    stats::WorkerStats,
    stream::{Socket, Stream},
};
use holdfast_io::Moment;
use holdfast_store::{Cold, Fetched, Store};
use std::{
    cell::{Cell, RefCell, RefMut},
    collections::HashMap,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{Notify, mpsc::UnboundedReceiver},
    task::{spawn_blocking, spawn_local, yield_now},
    time,
};

/// Buffers of this size are kept for reuse; larger ones, grown for one client, are not.
pub const BUFFER_SIZE: usize = 16 * 1024;
/// Buffers kept.
const BUFFERS_KEPT: usize = 256;
/// Items that are read from the medium at the same time.
const FETCHES_MAX: usize = 64;
/// How often connections are looked at for time-outs.
const TICK: Duration = Duration::from_secs(1);

/// What a worker is told.
pub enum Message {
    /// Serve this client.
    Accept(Socket, Arc<Client>),
    /// Close this client's connection.
    Kill(u64),
    /// Let this client go on if it waits.
    Unblock(u64, Wake),
    /// A pause is over: let all clients go on.
    Unpause,
    /// Close all connections and end.
    Stop,
}

/// What tells a worker the time by which it shares itself out: [`Moment::now`], or a test's own.
pub type Clock = fn() -> Moment;

/// A worker, for the connections in its thread.
pub struct Worker {
    /// What it shares with others.
    pub server: Arc<Server>,
    /// Its number.
    pub index: usize,
    /// Its clock.
    pub clock: Clock,
    /// Where its replies wait.
    pub gate: Gate,
    /// Something was appended to the log in this loop turn. Only the worker's own thread uses it.
    pub appended: Arc<AtomicBool>,
    /// Told when a pause is over.
    pub unpaused: Notify,
    /// Told when a connection waits for its next turn.
    awaited: Notify,
    /// Told when those that wait have it.
    turns: Notify,
    engine: RefCell<Option<Engine>>,
    /// For a script, while none runs.
    stack: Cell<Option<Stack>>,
    connections: RefCell<HashMap<u64, Rc<Handle>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// For the letters that are being delivered.
    letters: RefCell<Vec<Letter>>,
}

/// Runs a worker in this thread until it is told to stop.
pub fn run(
    server: Arc<Server>,
    index: usize,
    clock: Clock,
    mailbox: UnboundedReceiver<Message>,
) -> io::Result<()> {
    // At the end of a loop turn the log's thread gets to work on what the turn has appended, all at once.
    let worker = Rc::new(Worker::new(server, index, clock));
    let (store, appended) = (worker.server.store.clone(), worker.appended.clone());
    let kick = move || kick(&store, &appended);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(FETCHES_MAX)
        .on_thread_park(kick)
        .build_local(LocalOptions::default())?;
    runtime.block_on(worker.serve(mailbox));
    Ok(())
}

/// Has what was appended committed, if something was.
fn kick(store: &Store, appended: &AtomicBool) {
    if appended.load(Relaxed) {
        appended.store(false, Relaxed);
        store.log().kick();
    }
}

impl Worker {
    /// One without connections.
    pub fn new(server: Arc<Server>, index: usize, clock: Clock) -> Worker {
        let gate = Gate::new(server.progress.clone(), index);
        Worker {
            server,
            index,
            clock,
            gate,
            appended: Arc::default(),
            unpaused: Notify::new(),
            awaited: Notify::new(),
            turns: Notify::new(),
            engine: RefCell::default(),
            stack: Cell::default(),
            connections: RefCell::default(),
            buffers: RefCell::default(),
            letters: RefCell::default(),
        }
    }

    /// Its counters.
    #[inline]
    pub fn stats(&self) -> &WorkerStats {
        &self.server.workers[self.index]
    }

    /// Has what was appended in this loop turn committed before the turn ends.
    pub fn kick(&self) {
        kick(&self.server.store, &self.appended);
    }

    /// Whether its interpreter runs no script.
    pub fn engine_is_free(&self) -> bool {
        self.engine.try_borrow_mut().is_ok()
    }

    /// Its interpreter of scripts, while none runs.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        let mut engine =
            RefMut::map(self.engine.borrow_mut(), |engine| engine.get_or_insert_with(Engine::new));
        engine.set_memory_max(self.server.config.number(Opt::ScriptMaxMemory) as usize);
        engine
    }

    /// A stack for a script.
    pub fn take_stack(&self) -> io::Result<Stack> {
        self.stack.take().map_or_else(Stack::new, Ok)
    }

    /// Keeps a stack for the next script.
    pub fn give_stack(&self, stack: Stack) {
        self.stack.set(Some(stack));
    }

    /// An empty buffer with room.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_SIZE))
    }

    /// Reads items from the medium, all at once, in threads that may wait for it.
    pub fn fetch(&self, cold: Vec<Cold>) -> impl Future<Output = Vec<Fetched>> + use<> {
        let fetch = |cold| {
            let store = self.server.store.clone();
            spawn_blocking(move || store.fetch(cold))
        };
        let reading: Vec<_> = cold.into_iter().map(fetch).collect();
        async {
            let mut fetched = Vec::with_capacity(reading.len());
            for read in reading {
                fetched.push(read.await.expect("reading does not panic"));
            }
            fetched
        }
    }

    /// Keeps a buffer for another connection, if it is worth it.
    pub fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if (BUFFER_SIZE..=4 * BUFFER_SIZE).contains(&buffer.capacity()) && buffers.len() < BUFFERS_KEPT {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    /// Serves the connections that it is given until it is told to stop.
    pub async fn serve(self: Rc<Self>, mut mailbox: UnboundedReceiver<Message>) {
        let gatekeeper = self.clone();
        spawn_local(async move { gatekeeper.gate.run().await });
        let postman = self.clone();
        spawn_local(async move { postman.deliver_all().await });
        let clock = self.clone();
        spawn_local(async move { clock.tick().await });
        let referee = self.clone();
        spawn_local(async move { referee.give_turns().await });
        while let Some(message) = mailbox.recv().await {
            match message {
                Message::Accept(socket, client) => self.accept(socket, client),
                Message::Kill(id) => self.with(id, Handle::kill),
                Message::Unblock(id, why) => self.with(id, |handle| handle.unblock(why)),
                Message::Unpause => self.unpaused.notify_waiters(),
                Message::Stop => return,
            }
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

    /// Delivers mail as it comes.
    async fn deliver_all(&self) {
        loop {
            self.server.push.post.wait(self.index).await;
            self.deliver();
        }
    }

    /// Delivers what mail there is.
    #[inline]
    pub fn deliver(&self) {
        if self.server.push.post.has_mail(self.index) {
            self.deliver_mail();
        }
    }

    #[cold]
    fn deliver_mail(&self) {
        let post = &self.server.push.post;
        let mut letters = self.letters.borrow_mut();
        post.take(self.index, &mut letters);
        let connections = self.connections.borrow();
        for letter in letters.drain(..) {
            for id in letter.to.iter() {
                if let Some(handle) = connections.get(id) {
                    handle.push(&letter, &self.server.output_limits);
                }
            }
        }
    }

    /// Takes out of the handle of a connection what was pushed to it and is not yet among its output.
    pub fn take_pushed(&self, id: u64, out: &mut Vec<u8>) {
        self.with(id, |handle| handle.take_pushed(out));
    }

    fn with(&self, id: u64, f: impl FnOnce(&Handle)) {
        if let Some(handle) = self.connections.borrow().get(&id) {
            f(handle);
        }
    }

    fn accept(self: &Rc<Self>, socket: Socket, client: Arc<Client>) {
        let handle = Rc::new(Handle::new(client.clone()));
        self.connections.borrow_mut().insert(client.id, handle.clone());
        let worker = self.clone();
        spawn_local(async move {
            let id = client.id;
            match Stream::open(socket, &worker.server.tls).await {
                Ok(stream) => Connection::new(worker.clone(), handle, stream).run().await,
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
            worker.connections.borrow_mut().remove(&id);
            worker.server.clients.remove(id);
        });
    }

    /// Looks after what no event tells of: clients that say nothing, and those that read too slowly.
    async fn tick(&self) {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.server.busy.do_deferred(&self.server.store);
            let timeout = Duration::from_secs(self.server.config.number(Opt::Timeout) as u64);
            for handle in self.connections.borrow().values() {
                handle.tick(timeout);
            }
            if self.index == 0 {
                self.server.measure_rates();
                self.server.refusals.tell(&self.server.store);
                self.server.evict_clients();
                eviction::count_others(&self.server);
            }
        }
    }
}
