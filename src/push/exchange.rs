//! Messages of PUBLISH, and events, on their way between the servers of a replica set: from the leader to those that follow, and from one of these
//! to the leader, which passes them on.
//!
//! A message never overtakes what its sender has written or seen before: at the leader it waits until that is agreed on, and where it is shown
//! until that is applied. What there is no room for is lost, as messages may be.

use crate::{
    commit::durability::Lsn,
    push::{
        invalidation::Invalidation,
        waiting::{Queue, Waits},
    },
};
use std::sync::{
    Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// What its sender has written or seen before lies below.
    pub lsn: Lsn,
    /// At which server of the set it was published; 0: here.
    pub from: u64,
    /// Whether it is of SPUBLISH.
    pub to_shard: bool,
    /// To whose subscribers it goes.
    pub channel: Vec<u8>,
    /// What they are told.
    pub message: Vec<u8>,
}

impl Waits for Published {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn size(&self) -> usize {
        size_of::<Published>() + self.channel.len() + self.message.len()
    }
}

/// A queue, and whether it is worth to look at without its lock.
#[derive(Default)]
struct Waiting {
    queue: Mutex<Queue<Published>>,
    has_any: AtomicBool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queue<Published>> {
        self.queue.lock().expect("no holder panics")
    }
}

/// What tells subscribers here of a message.
type Teller = Box<dyn Fn(&Published) + Send + Sync>;

/// What goes to the other servers of the set, and what has come from them.
#[derive(Default)]
pub struct Exchange {
    said: Waiting,
    /// As one that follows.
    heard: Waiting,
    leads: AtomicBool,
    /// Wakes the thread that takes part in the set.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    teller: OnceLock<Teller>,
    /// Which keys change, for clients of those that follow.
    pub invalidation: Invalidation,
}

impl Exchange {
    /// What wakes the thread that takes part in the set.
    pub fn wake_by(&self, waker: impl Fn() + Send + Sync + 'static) {
        assert!(self.waker.set(Box::new(waker)).is_ok(), "one thread takes part in the set");
    }

    /// What tells subscribers here of messages of others.
    pub fn tell_by(&self, tell: impl Fn(&Published) + Send + Sync + 'static) {
        assert!(self.teller.set(Box::new(tell)).is_ok(), "there is one server");
    }

    /// The server leads: messages of the leader before it are lost.
    pub fn lead(&self) {
        for waiting in [&self.said, &self.heard] {
            *waiting.lock() = Queue::default();
        }
        self.leads.store(true, SeqCst);
        self.invalidation.lead();
    }

    /// Whether it leads.
    pub fn leads(&self) -> bool {
        self.leads.load(SeqCst)
    }

    /// Has those told who have subscribed at others.
    pub fn say(&self, message: Published) {
        // If there is no room, it is lost.
        self.said.lock().push(message);
        if !self.said.has_any.swap(true, SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    /// As the leader, has those told who track keys at others that a transaction, which ends at an LSN, has changed some; `None`: any.
    pub fn note(&self, keys: Option<Vec<Vec<u8>>>, lsn: Lsn) {
        if self.invalidation.note(keys, lsn) {
            self.wake();
        }
    }

    /// Takes messages for others that may be told, since all is agreed on below what `agreed` returns: so many bytes.
    pub fn take_said(&self, agreed: impl FnOnce() -> Lsn, bytes: usize) -> Vec<Published> {
        if !self.said.has_any.swap(false, SeqCst) {
            return Vec::new();
        }
        let mut queue = self.said.lock();
        let taken = queue.take(agreed(), bytes);
        if !queue.is_empty() {
            self.said.has_any.store(true, SeqCst);
        }
        taken
    }

    /// As one that follows, takes in messages of others, which are shown with what is `applied`.
    pub fn hear(&self, messages: impl Iterator<Item = Published>, applied: impl FnOnce() -> Lsn) {
        for message in messages {
            // If there is no room, it is lost.
            self.heard.lock().push(message);
        }
        self.heard.has_any.store(true, SeqCst);
        self.show(applied);
    }

    /// As one that follows, tells subscribers here of messages that may be shown now.
    pub fn show(&self, applied: impl FnOnce() -> Lsn) {
        if !self.heard.has_any.load(SeqCst) {
            return;
        }
        let Some(tell) = self.teller.get() else { return };
        let mut queue = self.heard.lock();
        let applied = applied();
        while let Some(message) = queue.pop(applied) {
            tell(&message);
        }
        self.heard.has_any.store(!queue.is_empty(), SeqCst);
    }

    /// As the leader, tells subscribers here of a message of one that follows, and passes it on to the others. What its sender has seen is here.
    pub fn pass_on(&self, message: Published) {
        if let Some(tell) = self.teller.get() {
            tell(&message);
        }
        self.say(message);
    }
}
