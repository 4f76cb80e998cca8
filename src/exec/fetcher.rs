//! Items of the log that a worker reads from the medium while it serves others.
//!
//! What is wanted in one loop turn goes to the device together. Where the kernel has no `io_uring`, or what is wanted takes more
//! than one read, a thread waits for it instead.

use crate::admin::log::log;
use holdfast_io::ReadQueue;
use holdfast_store::{Cold, Fetched, Store};
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, hash_map::Entry},
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
    task::{spawn_blocking, spawn_local, yield_now},
    time,
};

/// Reads that are under way at the same time.
const DEPTH: u32 = 128;
/// How soon reads are sent on their way again that the kernel did not take.
const RETRY: Duration = Duration::from_millis(1);

/// What a worker reads.
pub struct Fetcher {
    store: Arc<Store>,
    /// None: threads read.
    queue: RefCell<Option<ReadQueue>>,
    /// What is on its way, by its number.
    reading: RefCell<HashMap<u64, Reading>>,
    /// Told when something was.
    asked: Notify,
}

struct Reading {
    cold: Cold,
    wanted_by: Rc<Batch>,
    /// Others that want it, too.
    others: Vec<Rc<Batch>>,
}

/// What one command waits for.
struct Batch {
    missing: Cell<usize>,
    fetched: RefCell<Vec<Fetched>>,
    waker: Cell<Option<Waker>>,
}

impl Batch {
    fn add(&self, fetched: Fetched) {
        self.fetched.borrow_mut().push(fetched);
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// All of it, when the last has come.
    async fn whole(&self) -> Vec<Fetched> {
        poll_fn(|cx| {
            if self.missing.get() == 0 {
                return Poll::Ready(());
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        self.fetched.take()
    }
}

impl Fetcher {
    /// One that has threads read until it is [started](Fetcher::start).
    pub fn new(store: Arc<Store>) -> Fetcher {
        Fetcher { store, queue: RefCell::default(), reading: RefCell::default(), asked: Notify::new() }
    }

    /// Uses a queue of the operating system's from now on. To be called in the worker's runtime.
    ///
    /// # Errors
    /// The kernel has none for this process, or the runtime cannot wait for it.
    pub fn start(self: &Rc<Self>) -> io::Result<()> {
        let queue = self.store.read_queue(DEPTH)?;
        let arrived = match queue.descriptor() {
            Some(descriptor) => {
                let descriptor = descriptor.try_clone_to_owned()?;
                // SAFETY: an `OwnedFd` is one open descriptor until it is dropped.
                Some(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
            }
            None => None,
        };
        *self.queue.borrow_mut() = Some(queue);
        spawn_local(self.clone().submit_all());
        if let Some(arrived) = arrived {
            spawn_local(self.clone().reap_all(arrived));
        }
        Ok(())
    }

    /// Reads items, all at once. What somebody else of the worker waits for is not read again.
    pub fn fetch(self: &Rc<Self>, cold: Vec<Cold>) -> impl Future<Output = Vec<Fetched>> + use<> {
        let batch = Rc::new(Batch {
            missing: Cell::new(cold.len()),
            fetched: RefCell::default(),
            waker: Cell::default(),
        });
        for cold in cold {
            match self.reading.borrow_mut().entry(cold.id()) {
                Entry::Occupied(mut same) => same.get_mut().others.push(batch.clone()),
                Entry::Vacant(place) => {
                    place.insert(Reading { cold, wanted_by: batch.clone(), others: Vec::new() });
                    self.begin(cold);
                }
            }
        }
        async move { batch.whole().await }
    }

    fn begin(self: &Rc<Self>, cold: Cold) {
        let mut queue = self.queue.borrow_mut();
        if queue.as_mut().is_some_and(|queue| self.store.begin_fetch(cold, queue, cold.id())) {
            self.asked.notify_one();
        } else {
            self.read_in_thread(cold);
        }
    }

    fn read_in_thread(self: &Rc<Self>, cold: Cold) {
        let this = self.clone();
        let read = spawn_blocking({
            let store = self.store.clone();
            move || store.fetch(cold)
        });
        spawn_local(async move { this.hand_out(cold.id(), read.await.expect("reading does not panic")) });
    }

    /// Gives an item to all who want it.
    fn hand_out(&self, id: u64, fetched: Fetched) {
        let reading = self.reading.borrow_mut().remove(&id).expect("it was asked for");
        reading.others.into_iter().for_each(|batch| batch.add(fetched.clone()));
        reading.wanted_by.add(fetched);
    }

    /// Sends what was asked for on its way, once all tasks that are ready have asked.
    async fn submit_all(self: Rc<Self>) {
        loop {
            self.asked.notified().await;
            yield_now().await;
            let submitted = self.queue.borrow_mut().as_mut().map_or(Ok(()), ReadQueue::submit);
            if let Err(e) = submitted {
                log!(Debug, "the kernel takes no reads now: {e}");
                time::sleep(RETRY).await;
                self.asked.notify_one();
            }
            self.reap();
        }
    }

    async fn reap_all(self: Rc<Self>, arrived: AsyncFd<OwnedFd>) {
        // An error says that the runtime ends.
        while let Ok(mut ready) = arrived.readable().await {
            // Before the look: what arrives after it tells anew.
            ready.clear_ready();
            self.reap();
        }
    }

    /// Hands out what has arrived.
    fn reap(self: &Rc<Self>) {
        let mut queue = self.queue.borrow_mut();
        let Some(queue) = queue.as_mut() else { return };
        let submitted = queue.reap(|tag, read| {
            let cold = self.reading.borrow()[&tag].cold;
            match self.store.end_fetch(cold, read) {
                Some(fetched) => self.hand_out(tag, fetched),
                None => self.read_in_thread(cold),
            }
        });
        if submitted.is_err() {
            self.asked.notify_one();
        }
    }
}
