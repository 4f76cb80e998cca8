//! A loop turn: what the commands that a worker executes one after the other share. That is the time, what their replies
//! wait for, and what others are told of when they commit.

use crate::{
    exec::worker::Worker,
    push::{notify::Event, tracking::Changed},
    script::stack,
    session::Session,
};
use holdfast_io::Moment;
use holdfast_store::{Change, ChangeKind, Cold, Lsn, Txn};
use std::{
    cell::{Cell, RefCell},
    sync::atomic::Ordering::Relaxed,
};

/// Nanoseconds of a millisecond.
pub const NANOS_PER_MS: u64 = 1_000_000;

/// What was pushed to the clients of a worker and is not yet among their output.
pub trait Inbox {
    /// Moves what is there for a client to `out`.
    fn take_pushed(&self, client: u64, out: &mut Vec<u8>);
}

/// What the commands of one loop turn share.
pub struct Turn<'a> {
    /// Who executes.
    pub worker: &'a Worker,
    /// What was pushed to the clients of the worker.
    pub inbox: &'a dyn Inbox,
    /// When it began.
    began: Moment,
    /// The same as Unix time in milliseconds, so that one look at a clock tells the time on both.
    began_ms: Cell<u64>,
    /// Nanoseconds from then until the command before ended, and after a command until that one did: one look serves both.
    now: Cell<u64>,
    /// What the replies so far depend on.
    wait_lsn: Cell<Lsn>,
    /// What is told to others when the transaction commits.
    notifications: RefCell<Vec<Notification>>,
    /// What the client of the command was told before its transaction committed.
    told: RefCell<Vec<u8>>,
}

/// Something that others are told of when the transaction that did it commits.
pub enum Notification {
    /// An event.
    Event(Event),
    /// A message, published within the transaction.
    Message {
        /// Where.
        channel: Vec<u8>,
        /// What.
        message: Vec<u8>,
        /// Whether the channel is a shard's.
        to_shard: bool,
    },
    /// A client has read a key, and wants to be told when it changes.
    Read(u64, Vec<u8>),
    /// Copies of a key are not valid any more.
    Changed(Changed),
    /// Copies of any key are not valid any more.
    Flushed,
}

impl<'a> Turn<'a> {
    /// A turn that begins now.
    pub fn new(worker: &'a Worker, inbox: &'a dyn Inbox) -> Self {
        // Before the other clock: a thread that is stopped between the two is then behind for a while, and not ahead, so that nothing
        // expires too early.
        let began_ms = worker.server.store.now_ms();
        Turn {
            worker,
            inbox,
            began: (worker.clock)(),
            began_ms: Cell::new(began_ms),
            now: Cell::new(0),
            wait_lsn: Cell::new(0),
            notifications: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// When the last command of the turn ended.
    pub fn now(&self) -> Moment {
        self.began.plus_ns(self.now.get())
    }

    /// Nanoseconds from a moment until now.
    #[inline]
    pub fn ns_since(&self, earlier: Moment) -> u64 {
        (self.worker.clock)().ns_since(earlier)
    }

    /// A command has ended. Returns the nanoseconds that it took.
    #[inline]
    pub fn end_command(&self) -> u64 {
        let end = self.ns_since(self.began);
        end - self.now.replace(end)
    }

    /// The time between two commands was not theirs.
    pub fn resume(&self) {
        // As in the beginning.
        let now_ms = self.worker.server.store.now_ms();
        self.now.set(self.ns_since(self.began));
        self.began_ms.set(now_ms - self.now.get() / NANOS_PER_MS);
    }

    /// Takes the time between back to `start`: a command that has run others took it all.
    pub fn set_now(&self, start: Moment) {
        self.now.set(start.ns_since(self.began));
    }

    /// The time of the command that begins now: Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.began_ms.get() + self.now.get() / NANOS_PER_MS
    }

    /// What the replies since the last call depend on; 0: nothing.
    pub fn take_wait_lsn(&self) -> Lsn {
        self.wait_lsn.replace(0)
    }

    /// How much is to be told of when the transaction commits.
    pub fn notification_count(&self) -> usize {
        self.notifications.borrow().len()
    }

    /// Forgets what was announced behind the first `len` things: it is done again.
    pub fn forget_notifications(&self, len: usize) {
        self.notifications.borrow_mut().truncate(len);
    }

    /// Reads what a transaction needs, with its partitions locked: nothing may come between any more. While a script waits for
    /// it, others of the worker run; EXEC must not lose the interpreter to one of them.
    pub fn fetch_under_lock(&self, txn: &mut Txn, cold: Vec<Cold>) {
        self.worker.stats().cold_waits_under_lock.add(cold.len() as u64);
        let mut fetched = Vec::new();
        if stack::is_on_stack() && !self.worker.engine_is_free() {
            txn.hold_long();
            fetched = stack::pause(stack::Pause::Fetch(cold.clone()));
            self.resume();
        }
        if fetched.is_empty() {
            fetched = self.worker.server.store.fetch_all(&cold);
        }
        txn.supply(fetched);
    }

    /// Says what a transaction does with what has expired: a primary's commands find it, since the primary has, and in a pause others leave
    /// it where it is, unless they may write.
    #[inline]
    pub fn set_expiry(&self, session: &Session, txn: &mut Txn, may_write: bool) {
        if session.is_primary {
            txn.expire_nothing(true);
        } else if !may_write && self.worker.server.pause.is_on() {
            txn.keep_expired();
        }
    }

    /// Ends a transaction of a client, which is to be dropped next; the reply waits for it under `appendfsync always`.
    pub fn commit(&self, session: &Session, txn: &mut Txn) {
        if session.tracking.is_some() {
            // Its partitions are still locked: of what it has found, and of what was there before, the client is told by now, and of nothing that
            // comes after what it has found.
            self.inbox.take_pushed(session.client.id, &mut self.told.borrow_mut());
        }
        let lsn = txn.commit_then(|changes, lsn| {
            if !changes.is_empty() || !self.notifications.borrow().is_empty() {
                self.publish(changes, lsn);
            }
        });
        if lsn > self.worker.server.progress.durable() {
            self.worker.appended.store(true, Relaxed);
        }
        self.wait_lsn.set(self.wait_lsn.get().max(self.worker.server.push.wait_lsn(lsn)));
        if txn.holds_long() {
            txn.unlock();
            self.worker.server.released.notify_waiters();
        }
    }

    /// Puts what the client was told before the transaction of its command committed before its reply, which begins at `start`: with what it
    /// keeps of what it has read it then has what there was at one moment.
    #[inline]
    pub fn put_told(&self, out: &mut Vec<u8>, start: usize) {
        let mut told = self.told.borrow_mut();
        if !told.is_empty() {
            out.splice(start..start, told.drain(..));
        }
    }

    /// Has others told of something when the transaction commits.
    pub fn announce(&self, notifications: Notification) {
        self.notifications.borrow_mut().push(notifications);
    }

    /// Has nobody told of what a run has announced from `at` on that does not count.
    pub fn withdraw(&self, at: usize) {
        self.notifications.borrow_mut().truncate(at);
    }

    /// Takes in what the store did by itself in a run of a command, before what the command has announced from `at` on:
    /// it did so when it looked at keys. `over`: the run was the last one. `tells_misses` says whether somebody is told that a key was
    /// not found.
    #[cold]
    pub fn note_changes(
        &self,
        by: u64,
        at: usize,
        over: bool,
        changes: Vec<Change>,
        tells_misses: impl Fn(&[u8]) -> bool,
    ) {
        let mut notifications = self.notifications.borrow_mut();
        let mut missed: Vec<Vec<u8>> = Vec::new();
        let is_new = |change: &Change| {
            let is_miss = change.kind == ChangeKind::Missed;
            // A handler may look more than once.
            if is_miss && (!over || missed.contains(&change.key) || !tells_misses(&change.key)) {
                return false;
            }
            if is_miss {
                missed.push(change.key.clone());
            }
            true
        };
        let changes = changes.into_iter().filter(is_new);
        let new: Vec<Notification> =
            changes.flat_map(|change| self.notifications_of(change, Some(by))).collect();
        notifications.splice(at..at, new);
    }

    fn notifications_of(
        &self,
        change: Change,
        by: Option<u64>,
    ) -> impl Iterator<Item = Notification> + use<> {
        let push = &self.worker.server.push;
        push.moving.note(&change);
        let event = Event::of_change(push, &change).map(Notification::Event);
        let changed = push.is_tracked().then(|| Changed::of_change(change, by)).flatten();
        event.into_iter().chain(changed.map(Notification::Changed))
    }

    /// Publishes what was done, and what the store did by itself since, in a transaction whose partitions are still
    /// locked.
    #[cold]
    fn publish(&self, changes: Vec<Change>, lsn: Lsn) {
        let mut notifications = self.notifications.borrow_mut();
        notifications.extend(changes.into_iter().flat_map(|change| self.notifications_of(change, None)));
        let push = &self.worker.server.push;
        let wait_lsn = push.wait_lsn(lsn);
        let (mut changed, mut read) = (Vec::new(), false);
        for one in notifications.drain(..) {
            match one {
                Notification::Event(event) => event.publish(push, wait_lsn),
                Notification::Message { channel, message, to_shard } => {
                    self.worker.server.publish(&channel, &message, to_shard, wait_lsn);
                }
                Notification::Read(client, key) => {
                    push.tracking.remember(client, &key);
                    read = true;
                }
                Notification::Changed(key) => {
                    push.tracking.invalidate(push, &key, wait_lsn);
                    changed.push(key);
                }
                Notification::Flushed => {
                    push.invalidate_all(lsn);
                    push.moving.note_flush();
                }
            }
        }
        if !changed.is_empty() {
            push.broadcast(changed, lsn);
        }
        if read {
            push.tracking.keep_limit(push);
        }
    }

    /// The reply may tell of anything that is in the log by now.
    pub fn depend_on_log(&self) {
        self.depend_on(self.worker.server.store.log().tail());
    }

    /// The reply waits for the log to be durable up to here under `appendfsync always`.
    pub fn depend_on(&self, lsn: Lsn) {
        self.wait_lsn.set(self.wait_lsn.get().max(self.worker.server.push.wait_lsn(lsn)));
    }
}
