//! Replies that wait for durability: one leaves only when what it depends on is durable (I-1).
//!
//! [`Progress`] is shared: the log's callback moves the durable mark and wakes every worker. Each worker has a
//! [`DurabilityQueue`], where its connections wait; only that worker touches it, so it has no lock.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::BinaryHeap,
    sync::{
        Arc,
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
    workers: Vec<Arc<Notify>>,
}

impl Progress {
    /// For so many workers, nothing durable.
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Arc::default()).collect();
        Progress { durable: AtomicU64::new(0), failed: AtomicBool::new(false), workers }
    }

    /// Everything below this position is durable.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.durable.load(Acquire)
    }

    /// Moves the mark forward and wakes those who wait for it.
    pub fn advance(&self, durable: Lsn) {
        self.durable.fetch_max(durable, Release);
        self.wake_all();
    }

    /// Nothing more will become durable.
    pub fn fail(&self) {
        self.failed.store(true, Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        for worker in &self.workers {
            worker.notify_one();
        }
    }
}

/// A worker's connections that wait for the durable mark.
pub struct DurabilityQueue {
    progress: Arc<Progress>,
    changed: Arc<Notify>,
    waiting: RefCell<BinaryHeap<Waiting>>,
}

struct Waiting {
    lsn: Lsn,
    waker: Waker,
}

impl DurabilityQueue {
    /// That of worker number `worker`.
    pub fn new(progress: Arc<Progress>, worker: usize) -> Self {
        let changed = progress.workers[worker].clone();
        DurabilityQueue { progress, changed, waiting: RefCell::default() }
    }

    /// Ready when everything below `lsn` is durable. Leaves the caller's waker here until then, so a caller that is
    /// polled again for the same position must remember that it waits.
    pub fn poll_durable(&self, lsn: Lsn, cx: &mut Context) -> Poll<Result<(), LogFailed>> {
        if self.progress.durable() >= lsn {
            return Poll::Ready(Ok(()));
        }
        if self.progress.failed.load(Acquire) {
            return Poll::Ready(Err(LogFailed));
        }
        self.waiting.borrow_mut().push(Waiting { lsn, waker: cx.waker().clone() });
        // The worker looks at the mark only after the task `run` is woken, in this same thread, so a mark that moves
        // between the check above and the push is not missed: its notification is still to be seen.
        Poll::Pending
    }

    /// Whether `lsn` is durable, or never will be.
    pub fn is_decided(&self, lsn: Lsn) -> bool {
        self.progress.durable() >= lsn || self.progress.failed.load(Acquire)
    }

    /// Wakes the worker's connections as the mark moves; runs as long as the worker.
    pub async fn run(&self) {
        loop {
            self.changed.notified().await;
            self.release();
        }
    }

    fn release(&self) {
        let failed = self.progress.failed.load(Acquire);
        let durable = self.progress.durable();
        let mut waiting = self.waiting.borrow_mut();
        while waiting.peek().is_some_and(|first| failed || first.lsn <= durable) {
            waiting.pop().expect("peeked").waker.wake();
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
    use std::{sync::atomic::AtomicUsize, task::Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn opens_in_order_and_not_early() {
        let progress = Arc::new(Progress::new(1));
        let queue = DurabilityQueue::new(progress.clone(), 0);
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
}
