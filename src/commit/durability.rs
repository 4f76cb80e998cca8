//! Replies that wait for durability: one leaves only when what it depends on is durable (I-1), and, if the server leads others, while
//! none of them leads.
//!
//! [`Progress`] is shared: the log's callback moves the durable mark and wakes the workers that wait for it. Each worker has a
//! [`DurabilityQueue`], where its connections wait; only that worker touches it, so it has no lock.

use super::lease::Lease;
use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::BinaryHeap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::*},
    },
    task::{Context, Poll, Waker},
};
use tokio::sync::Notify;

/// A position in the log, in bytes.
pub type Lsn = u64;

/// The log has failed: what is waiting will never be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFailed;

/// How far the log is durable.
pub struct Progress {
    durable: AtomicU64,
    failed: AtomicBool,
    workers: Vec<Arc<Awaited>>,
    /// None as long as the server leads no others.
    lease: OnceLock<Arc<Lease>>,
}

/// What one worker waits for.
struct Awaited {
    /// The lowest position; [`NOTHING`]: none.
    lowest: AtomicU64,
    reached: Notify,
}

/// Above all positions.
const NOTHING: Lsn = u64::MAX;

impl Progress {
    /// For so many workers, nothing durable.
    pub fn new(workers: usize) -> Arc<Progress> {
        let awaited = || Arc::new(Awaited { lowest: AtomicU64::new(NOTHING), reached: Notify::new() });
        let workers = (0..workers).map(|_| awaited()).collect();
        let (durable, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Progress { durable, failed, workers, lease: OnceLock::new() })
    }

    /// The server leads others: replies wait for its lease from now on.
    pub fn lead(self: &Arc<Self>, lease: Arc<Lease>) {
        assert!(self.lease.set(lease.clone()).is_ok(), "a server leads once");
        let waiting = Arc::downgrade(self);
        lease.on_renewal(move || {
            if let Some(progress) = waiting.upgrade() {
                progress.advance(progress.durable());
            }
        });
    }

    /// Everything below this position is durable.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.durable.load(Acquire)
    }

    /// Moves the mark forward and wakes those who wait for it.
    pub fn advance(&self, durable: Lsn) {
        let durable = self.durable.fetch_max(durable, SeqCst).max(durable);
        for worker in self.workers.iter().filter(|worker| worker.lowest.load(SeqCst) <= durable) {
            worker.reached.notify_one();
        }
    }

    /// Nothing more will become durable.
    pub fn fail(&self) {
        self.failed.store(true, SeqCst);
        self.workers.iter().for_each(|worker| worker.reached.notify_one());
    }

    /// Whether a reply that depends on everything below `lsn` may leave; `None`: not now.
    fn outcome(&self, lsn: Lsn) -> Option<Result<(), LogFailed>> {
        let is_told = self.durable.load(SeqCst) >= lsn && self.lease.get().is_none_or(|lease| lease.holds());
        match is_told {
            true => Some(Ok(())),
            false => self.failed.load(SeqCst).then_some(Err(LogFailed)),
        }
    }
}

/// A worker's connections that wait for the durable mark.
pub struct DurabilityQueue {
    progress: Arc<Progress>,
    awaited: Arc<Awaited>,
    waiting: RefCell<BinaryHeap<Waiting>>,
    /// Commits what this worker has appended, where that is not for another thread to do.
    commit: Option<Box<dyn Fn()>>,
}

struct Waiting {
    lsn: Lsn,
    waker: Waker,
}

impl DurabilityQueue {
    /// That of worker number `worker`. `commit` commits what it has appended, where that is not for another thread to do.
    pub fn new(progress: Arc<Progress>, worker: usize, commit: Option<Box<dyn Fn()>>) -> Self {
        let awaited = progress.workers[worker].clone();
        DurabilityQueue { progress, awaited, waiting: RefCell::default(), commit }
    }

    /// Ready when everything below `lsn` is durable, and may be told. Leaves the caller's waker here until then, so a caller that is
    /// polled again for the same position must remember that it waits.
    pub fn poll_durable(&self, lsn: Lsn, cx: &mut Context) -> Poll<Result<(), LogFailed>> {
        if let Some(outcome) = self.progress.outcome(lsn) {
            return Poll::Ready(outcome);
        }
        // Whoever moves the mark looks at what is awaited then: it sees this, or we see the mark.
        if lsn < self.awaited.lowest.load(Relaxed) {
            self.awaited.lowest.store(lsn, SeqCst);
        }
        if let Some(outcome) = self.progress.outcome(lsn) {
            return Poll::Ready(outcome);
        }
        self.waiting.borrow_mut().push(Waiting { lsn, waker: cx.waker().clone() });
        if self.commit.is_some() {
            // After the connections that are ready to execute: they share the commit.
            self.awaited.reached.notify_one();
        }
        Poll::Pending
    }

    /// Whether a reply that depends on `lsn` may leave, or never will.
    pub fn is_decided(&self, lsn: Lsn) -> bool {
        self.progress.outcome(lsn).is_some()
    }

    /// Wakes the worker's connections as the mark moves; runs as long as the worker.
    pub async fn run(&self) {
        loop {
            self.awaited.reached.notified().await;
            if let Some(commit) = &self.commit {
                commit();
            }
            self.release();
        }
    }

    fn release(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let decides = |first: Option<&Waiting>| first.is_some_and(|first| self.is_decided(first.lsn));
        loop {
            while decides(waiting.peek()) {
                waiting.pop().expect("peeked").waker.wake();
            }
            self.awaited.lowest.store(waiting.peek().map_or(NOTHING, |first| first.lsn), SeqCst);
            // The mark may have moved before that was known.
            if !decides(waiting.peek()) {
                return;
            }
        }
    }
}

// The greatest of the heap is the lowest position.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.lsn.cmp(&self.lsn)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.lsn == other.lsn
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        hint::{self, black_box},
        pin::pin,
        sync::atomic::AtomicUsize,
        task::Wake,
        thread,
    };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn opens_in_order_and_not_early() {
        let progress = Progress::new(1);
        let queue = DurabilityQueue::new(progress.clone(), 0, None);
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        for (lsn, count) in [30, 10, 20].into_iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            assert!(queue.poll_durable(lsn, &mut Context::from_waker(&waker)).is_pending());
        }
        let woken = || counts.iter().map(|count| count.0.load(Relaxed)).collect::<Vec<_>>();
        progress.advance(19);
        queue.release();
        assert_eq!(woken(), [0, 1, 0]);
        progress.advance(20);
        progress.advance(5);
        queue.release();
        assert_eq!(woken(), [0, 1, 1]);
        assert!(queue.is_decided(20) && !queue.is_decided(30));
        progress.fail();
        queue.release();
        assert_eq!(woken(), [1, 1, 1]);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(queue.poll_durable(20, &mut cx), Poll::Ready(Ok(())));
        assert_eq!(queue.poll_durable(30, &mut cx), Poll::Ready(Err(LogFailed)));
    }

    /// The mark moves while a connection begins to wait for it: it is ready, or the worker is woken.
    #[test]
    fn a_mark_that_moves_meanwhile_is_not_missed() {
        const ROUNDS: u64 = 1_000_000;
        let progress = Progress::new(1);
        let queue = DurabilityQueue::new(progress.clone(), 0, None);
        let (begun, moved) = (AtomicU64::new(0), AtomicU64::new(0));
        let spin_until = |counter: &AtomicU64, round| {
            while counter.load(SeqCst) < round {
                hint::spin_loop();
            }
        };
        let (mut cx, mut missed) = (Context::from_waker(Waker::noop()), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    spin_until(&begun, round);
                    progress.advance(round);
                    moved.store(round, SeqCst);
                }
            });
            for round in 1..=ROUNDS {
                begun.store(round, SeqCst);
                // The other one is at each point of what it does for once.
                (0..round % 512).for_each(|n| {
                    black_box(n);
                });
                let decided = queue.poll_durable(round, &mut cx);
                spin_until(&moved, round);
                if decided.is_pending() {
                    let woken = pin!(queue.awaited.reached.notified()).poll(&mut cx);
                    if woken.is_pending() {
                        missed = round;
                        break;
                    }
                    queue.release();
                }
            }
            // If the other one still goes on, it comes to its end.
            begun.store(ROUNDS, SeqCst);
        });
        assert_eq!(missed, 0, "nobody wakes the worker for this position");
    }
}
