//! What the connections of a worker share: their buffers, turns, messages, and what they do while another process takes over.

use crate::{
    clients::client::BUFFER_SIZE,
    commit::durability::DurabilityQueue,
    exec::{turn::Inbox, worker::Worker},
    net::{
        handle::Handle,
        large_buffer::{LARGE, LargeBuffer},
    },
    push::queue::PushMessage,
    server::handover::Connected,
    transport::stream::Socket,
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};
use tokio::{sync::Notify, task::yield_now};

/// Buffers kept.
const BUFFERS_KEPT: usize = 256;

/// What the connections of a worker share, and what is to be known of each.
pub struct Shared {
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
    /// By the numbers of their clients.
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

impl Shared {
    /// Without connections.
    pub fn new(worker: Rc<Worker>) -> Shared {
        let committer = worker.on_scm.then(|| worker.clone());
        let commit = committer.map(|worker| Box::new(move || worker.kick()) as Box<dyn Fn()>);
        let durability = DurabilityQueue::new(worker.server.progress.clone(), worker.index, commit);
        Shared {
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

    /// Ends when all others of the worker have had a turn that can use one, those whose input has arrived meanwhile among them.
    /// Nothing else ends it: the caller may be woken because its replies can leave, or because more has arrived.
    pub async fn others_run(&self) {
        let turn = self.turns.notified();
        self.awaited.notify_one();
        turn.await;
    }

    /// Gives turns to those who wait for them, in the order in which they have begun to. The runtime would let them run in
    /// any.
    pub async fn give_turns(&self) {
        loop {
            self.awaited.notified().await;
            yield_now().await;
            self.turns.notify_waiters();
        }
    }

    /// Delivers messages as they come.
    pub async fn deliver_all(&self) {
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

    /// Calls `f` with a connection, if there is one with this number.
    pub fn with(&self, id: u64, f: impl FnOnce(&Handle)) {
        if let Some(handle) = self.connections.borrow().get(&id) {
            f(handle);
        }
    }

    /// Whether connections are to begin no command.
    #[inline]
    pub fn is_freezing(&self) -> bool {
        self.phase.get() != Phase::Serves
    }

    /// Has all connections do something else.
    pub fn enter(&self, phase: Phase) {
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
    pub async fn all_are_frozen(&self) -> bool {
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

    /// Ends when another process has all connections that were frozen.
    pub async fn all_have_left(&self) {
        loop {
            let froze = self.froze.notified();
            if !self.connections.borrow().values().any(|handle| handle.frozen.get()) {
                return;
            }
            froze.await;
        }
    }

    /// What connections wait in for another process, which goes on with them.
    pub fn take_given(&self) -> Vec<(Socket, Connected)> {
        self.given.take()
    }

    /// Has a connection known to all until [`Shared::remove`].
    pub fn add(&self, handle: Rc<Handle>) {
        self.connections.borrow_mut().insert(handle.client.id, handle);
    }

    /// A connection is gone.
    pub fn remove(&self, id: u64) {
        self.connections.borrow_mut().remove(&id);
        self.worker.server.clients.remove(id);
        self.froze.notify_waiters();
    }

    /// Looks after what no event tells of: clients that say nothing, and those that read too slowly.
    pub fn tick(&self, timeout: Duration) {
        self.large_buffer.borrow_mut().tick();
        for handle in self.connections.borrow().values() {
            handle.tick(timeout);
        }
    }
}

impl Inbox for Shared {
    fn take_pushed(&self, client: u64, out: &mut Vec<u8>) {
        self.deliver();
        self.with(client, |handle| handle.take_pushed(out));
    }
}
