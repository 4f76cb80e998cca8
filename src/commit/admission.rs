//! The queue of writers that wait for room in the log or for memory, of all workers, first come first served.
//!
//! While the first writer of the queue is refused nobody else tries: small writers would otherwise take what is being made free for
//! a large one, again and again. When the first one is admitted, fails, or is gone, all may try, so that the queue slows nobody down who
//! need not wait; a writer that is refused then keeps its place. Commands that make room never wait here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::*},
    },
    time::Duration,
};
use tokio::{sync::Notify, time};

/// [`AdmissionQueue::only`] if every writer may try.
const ANYBODY: u64 = u64::MAX;
/// How often the first writer tries again if nothing wakes it: nothing tells of a segment that was freed.
const RETRY: Duration = Duration::from_millis(1);

/// The writers that wait.
pub struct AdmissionQueue {
    /// The number of the ticket whose holder alone may try. Changed while `waiting` is locked.
    only: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The number of the next ticket.
    next: u64,
    /// What the holders of the tickets sleep on, by number.
    holders: BTreeMap<u64, Arc<Notify>>,
}

/// A writer's place in the queue. The writer leaves the queue when its ticket is dropped.
pub struct Ticket {
    queue: Arc<AdmissionQueue>,
    number: u64,
    notify: Arc<Notify>,
}

impl AdmissionQueue {
    /// An empty queue.
    pub fn new() -> AdmissionQueue {
        AdmissionQueue { only: AtomicU64::new(ANYBODY), waiting: Mutex::default() }
    }

    /// Whether a writer may try, by the ticket that it has.
    #[inline]
    pub fn lets_try(&self, ticket: Option<&Ticket>) -> bool {
        let only = self.only.load(Relaxed);
        only == ANYBODY || ticket.is_some_and(|ticket| ticket.number == only)
    }

    /// Lets a writer wait until it may try: again, if it `was_refused`. It gets a ticket if it has none.
    pub fn wait(
        self: &Arc<Self>,
        ticket: &mut Option<Ticket>,
        was_refused: bool,
    ) -> impl Future<Output = ()> + use<> {
        let mut waiting = self.lock();
        let ticket = ticket.get_or_insert_with(|| self.issue(&mut waiting));
        if was_refused {
            let first = waiting.holders.first_key_value().map_or(ANYBODY, |(&number, _)| number);
            self.only.store(first, Relaxed);
        } else if self.lets_try(Some(ticket)) {
            // The others were woken before this ticket was issued.
            ticket.notify.notify_one();
        }
        let is_first = self.only.load(Relaxed) == ticket.number;
        let notify = ticket.notify.clone();
        async move {
            if is_first {
                let _ = time::timeout(RETRY, notify.notified()).await;
            } else {
                notify.notified().await;
            }
        }
    }

    fn issue(self: &Arc<Self>, waiting: &mut Waiting) -> Ticket {
        let (number, notify) = (waiting.next, Arc::<Notify>::default());
        waiting.next += 1;
        waiting.holders.insert(number, notify.clone());
        Ticket { queue: self.clone(), number, notify }
    }

    /// Wakes the first writer: the log has written something.
    pub fn wake_first(&self) {
        if self.only.load(Relaxed) != ANYBODY {
            let waiting = self.lock();
            if let Some(notify) = waiting.holders.get(&self.only.load(Relaxed)) {
                notify.notify_one();
            }
        }
    }

    /// How many writers wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().holders.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics")
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.holders.remove(&self.number);
        if self.queue.only.load(Relaxed) == self.number {
            self.queue.only.store(ANYBODY, Relaxed);
            waiting.holders.values().for_each(|notify| notify.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::{Pin, pin},
        task::{Context, Waker},
    };
    use tokio::runtime::Builder;

    fn is_ready(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_first_one_tries_alone_until_it_leaves() {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(first_one_tries_alone());
    }

    async fn first_one_tries_alone() {
        let queue = Arc::new(AdmissionQueue::new());
        let mut tickets: [Option<Ticket>; 3] = Default::default();
        assert!(queue.lets_try(None));
        drop(queue.wait(&mut tickets[0], true));
        assert!(!queue.lets_try(None) && queue.lets_try(tickets[0].as_ref()));
        let mut second = pin!(queue.wait(&mut tickets[1], false));
        let mut third = pin!(queue.wait(&mut tickets[2], false));
        assert!(!queue.lets_try(tickets[1].as_ref()) && queue.len() == 3);
        // It tries again by itself, at once if the log has written something.
        let retry = queue.wait(&mut tickets[0], true);
        time::timeout(2 * RETRY, retry).await.expect("it is the first");
        queue.wake_first();
        assert!(is_ready(pin!(queue.wait(&mut tickets[0], true))));
        assert!(!is_ready(second.as_mut()) && !is_ready(third.as_mut()));
        tickets[0] = None;
        assert!(is_ready(second) && is_ready(third));
        assert!(queue.lets_try(None) && queue.lets_try(tickets[2].as_ref()));
        // Whoever is refused then, those who were there before come first.
        let mut third = pin!(queue.wait(&mut tickets[2], true));
        assert!(!queue.lets_try(tickets[2].as_ref()) && queue.lets_try(tickets[1].as_ref()));
        tickets[1] = None;
        assert!(is_ready(third.as_mut()) && queue.lets_try(None));
    }

    #[test]
    fn a_writer_that_comes_when_the_queue_has_just_opened_does_not_sleep() {
        let queue = Arc::new(AdmissionQueue::new());
        let (mut ticket, mut other) = (None, None);
        assert!(is_ready(pin!(queue.wait(&mut ticket, false))));
        // One that leaves the queue without having been its first one opens it for nobody.
        drop(queue.wait(&mut ticket, true));
        drop(queue.wait(&mut other, false));
        other = None;
        assert!(!queue.lets_try(other.as_ref()) && queue.lets_try(ticket.as_ref()));
        assert_eq!(queue.len(), 1);
    }
}
