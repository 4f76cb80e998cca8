//! A connection as the rest of its worker sees it: it takes in messages, wakes a command that waits, and closes.

use crate::{
    admin::log::log,
    clients::client::{Client, flag},
    commit::durability::Lsn,
    push::queue::PushMessage,
    server::{limits::OutputLimit, mailbox::Wake},
};
use holdfast_io::Moment;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

/// A connection as the rest of its worker sees it.
pub struct Handle {
    pub(super) client: Arc<Client>,
    waker: RefCell<Option<Waker>>,
    pub(super) killed: Cell<bool>,
    pub(super) wake: Cell<Option<Wake>>,
    /// Whether a command is in progress that did not end at its first attempt.
    pub(super) in_progress: Cell<bool>,
    /// Whether that has waited for other clients, as blocking commands do.
    pub(super) has_waited: Cell<bool>,
    pub(super) pending: Cell<usize>,
    /// Whether what is pending waits for the log, and not for the client to take it.
    pub(super) waits_for_log: Cell<bool>,
    /// Bytes that were sent until the last tick that found some pending.
    sent: Cell<u64>,
    /// Slots have become another node's whose channels the client is subscribed to.
    pub(super) leaves_shards: Cell<bool>,
    /// Out-of-band messages that are not yet among the output.
    pub(super) pushed: RefCell<Vec<u8>>,
    /// The LSN that must be durable before the messages may be sent.
    pub(super) pushed_lsn: Cell<Lsn>,
    /// The messages exceed the client's output limit.
    pub(super) overrun: Cell<bool>,
    /// Whether the connection executes and reads nothing until its worker goes on.
    pub(super) frozen: Cell<bool>,
    /// Whether there is a connection to freeze: not while TLS begins.
    pub(super) is_open: Cell<bool>,
}

impl Handle {
    /// The handle of a new connection.
    pub fn new(client: Arc<Client>) -> Self {
        Handle {
            client,
            waker: RefCell::default(),
            killed: Cell::new(false),
            wake: Cell::new(None),
            in_progress: Cell::new(false),
            has_waited: Cell::new(false),
            leaves_shards: Cell::new(false),
            pending: Cell::new(0),
            waits_for_log: Cell::new(false),
            sent: Cell::new(0),
            pushed: RefCell::default(),
            pushed_lsn: Cell::new(0),
            overrun: Cell::new(false),
            frozen: Cell::new(false),
            is_open: Cell::new(false),
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
            // The messages are dropped at once, before the connection gets to run.
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

    /// Lets the command that waits go on. One that has waited, and looks for something at this moment, does so when it is to wait again.
    pub fn unblock(&self, why: Wake) {
        if self.has_waited.get() {
            self.wake.set(Some(why));
            self.wake();
        }
    }

    /// The command in progress has come to its end, or begins anew.
    pub(super) fn end_command(&self) {
        self.in_progress.set(false);
        self.has_waited.set(false);
        self.wake.set(None);
    }

    /// Has the connection end the subscriptions that are another node's.
    pub fn leave_shards(&self) {
        self.leaves_shards.set(true);
        self.wake();
    }

    /// Once a second: closes the connection if it was silent for `timeout`, also takes nothing of what it is sent, and is not there to
    /// listen; and lets it look at its output.
    pub fn tick(&self, timeout: Duration) {
        let sent = self.client.output_bytes();
        if self.pending.get() > 0 && self.sent.replace(sent) != sent {
            self.client.touch(Moment::now());
        }
        let listens = self.client.is_subscribed() || self.client.has_flag(flag::MONITOR | flag::PRIMARY);
        let is_waited_for = self.in_progress.get() || self.waits_for_log.get() || listens;
        if !timeout.is_zero() && !is_waited_for && self.client.idle() > timeout {
            log!(Verbose, "closing idle client {}", self.client.addr);
            self.kill();
        } else if self.pending.get() > 0 {
            self.wake();
        }
    }

    /// Lets the connection look at what has changed.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn register(&self, cx: &Context) {
        let mut waker = self.waker.borrow_mut();
        match waker.as_mut() {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }
}
