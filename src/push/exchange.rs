//! Messages of PUBLISH, and events, on their way between the servers of a replica set: from the leader to those that follow, and from one of these
//! to the leader, which passes them on.
//!
//! A message never overtakes what its sender has written or seen before: at the leader it waits until that is agreed on, and where it is shown
//! until that is applied. What there is no room for is lost, as messages may be.

use crate::commit::durability::Lsn;
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Bytes of messages that wait at most, unless one alone has more.
const BYTES_MAX: usize = 16 << 20;

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

impl Published {
    /// Bytes that it takes, about.
    fn size(&self) -> usize {
        size_of::<Published>() + self.channel.len() + self.message.len()
    }
}

/// Messages that wait, in their order.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Published>,
    bytes: usize,
}

impl Queue {
    /// Adds one, if there is room.
    fn push(&mut self, message: Published) {
        if self.bytes == 0 || self.bytes + message.size() <= BYTES_MAX {
            self.bytes += message.size();
            self.messages.push_back(message);
        }
    }

    /// Takes the first one, if it waits for no more than what lies below an LSN.
    fn pop(&mut self, until: Lsn) -> Option<Published> {
        self.messages.front().filter(|message| message.lsn <= until)?;
        let message = self.messages.pop_front()?;
        self.bytes -= message.size();
        Some(message)
    }

    /// Takes those that wait for no more, of so many bytes, and the one that goes beyond.
    fn take(&mut self, until: Lsn, bytes: usize) -> Vec<Published> {
        let (mut taken, mut size) = (Vec::new(), 0);
        while size < bytes
            && let Some(message) = self.pop(until)
        {
            size += message.size();
            taken.push(message);
        }
        taken
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// A queue, and whether it is worth to look at without its lock.
#[derive(Default)]
struct Waiting {
    queue: Mutex<Queue>,
    has_any: AtomicBool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queue> {
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
    }

    /// Whether it leads.
    pub fn leads(&self) -> bool {
        self.leads.load(SeqCst)
    }

    /// Has those told who have subscribed at others.
    pub fn say(&self, message: Published) {
        self.said.lock().push(message);
        if !self.said.has_any.swap(true, SeqCst)
            && let Some(wake) = self.waker.get()
        {
            wake();
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
        messages.for_each(|message| self.heard.lock().push(message));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lsn: Lsn, len: usize) -> Published {
        Published { lsn, from: 0, to_shard: false, channel: b"a".to_vec(), message: vec![0; len] }
    }

    #[test]
    fn messages_wait_in_their_order_and_take_so_many_bytes() {
        let mut queue = Queue::default();
        [5, 3, 9].into_iter().for_each(|lsn| queue.push(message(lsn, 10)));
        assert_eq!(queue.pop(4), None, "the first one waits, and the others behind it");
        let lsns = |taken: Vec<Published>| -> Vec<Lsn> { taken.iter().map(|message| message.lsn).collect() };
        assert_eq!(lsns(queue.take(8, usize::MAX)), [5, 3]);
        assert_eq!(lsns(queue.take(9, 1)), [9]);
        assert!(queue.is_empty() && queue.bytes == 0);
        queue.push(message(1, 2 * BYTES_MAX));
        queue.push(message(2, 1));
        assert_eq!(lsns(queue.take(9, usize::MAX)), [1], "there was no room for another one");
        (0..100).for_each(|lsn| queue.push(message(lsn, BYTES_MAX / 10)));
        assert_eq!(queue.take(100, usize::MAX).len(), 9);
        assert_eq!(queue.bytes, 0);
    }
}
