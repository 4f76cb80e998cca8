//! The client: requests go in, progress is made by whoever waits.

use crate::{
    command::{Command, Lent, Target},
    config::Config,
    core::Core,
    error::Error,
    poller::{self, Ready},
    request::{RequestId, State},
};
use holdfast_resp::Reply;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    any::Any,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A client of one server or of several. All threads may use it.
pub struct Client {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// The result of a request whose reply was to go into a buffer.
#[derive(Debug, PartialEq)]
pub struct Filled {
    /// The reply; if it went into the buffer, [`Reply::Int`] with its length.
    pub result: Result<Reply, Error>,
    /// The [`Target::Vec`], as long as it was; of other targets nothing.
    pub buffer: Vec<u8>,
    /// How many bytes the buffer has of the reply; `None` if that was no string, or one that did not fit.
    pub len: Option<usize>,
}

struct Inner {
    core: Mutex<Core>,
    /// Something was done that a waiting thread may want to know of.
    progress: Condvar,
    epoll: OwnedFd,
    /// Readable when the caller is to look: at completions, or to make progress.
    event: OwnedFd,
    has_thread: bool,
}

impl Client {
    /// Sets a client up. Connections are made when the first request needs them.
    pub fn new(config: Config) -> Result<Client, Error> {
        let has_thread = config.thread;
        let core = Core::new(config)?;
        let epoll = core.poller.handle()?;
        let event = if has_thread { core.poller.completions() } else { core.poller.all() };
        let event = event.try_clone_to_owned().map_err(|e| Error::Setup(e.to_string()))?;
        let inner =
            Arc::new(Inner { core: Mutex::new(core), progress: Condvar::new(), epoll, event, has_thread });
        let thread = has_thread.then(|| {
            let inner = Arc::clone(&inner);
            thread::Builder::new().name("holdfast-client".into()).spawn(move || inner.run())
        });
        let thread = thread.transpose().map_err(|e| Error::Setup(format!("a thread: {e}")))?;
        Ok(Client { inner, thread })
    }

    /// Hands a request over. It is sent at once if its server has nothing else to do for this client, or if much is to
    /// be sent; else with others, when somebody calls, or [`Client::flush`].
    pub fn submit(&self, command: Command<'_>) -> Result<RequestId, Error> {
        self.inner.change(|core| {
            let id = core.submit(command)?;
            if self.inner.has_thread && core.polling {
                core.poller.wake();
            }
            Ok(id)
        })
    }

    /// Sets a string. The value is lent until the request's buffer is free.
    pub fn iset(&self, key: &[u8], value: Lent) -> Result<RequestId, Error> {
        self.submit(Command::new("SET").arg(key).lent(value))
    }

    /// Sets a string. The value is copied.
    pub fn bset(&self, key: &[u8], value: &[u8]) -> Result<RequestId, Error> {
        self.submit(Command::new("SET").arg(key).arg(value))
    }

    /// Gets a string right into a buffer, which is lent until the request is done. The reply is the length.
    pub fn iget(&self, key: &[u8], target: Target) -> Result<RequestId, Error> {
        self.submit(Command::new("GET").arg(key).read_only().into(target))
    }

    /// Gets a string. The reply has it.
    pub fn bget(&self, key: &[u8]) -> Result<RequestId, Error> {
        self.submit(Command::new("GET").arg(key).read_only())
    }

    /// Sends what waits to be sent, without waiting for anything.
    pub fn flush(&self) {
        self.inner.change(Core::flush);
    }

    /// Makes progress, and waits no longer than this for a request to be done; whether one was.
    pub fn progress(&self, timeout: Duration) -> bool {
        self.progress_since(self.outcomes(), timeout)
    }

    /// How many requests were done so far, for [`Client::progress_since`].
    pub fn outcomes(&self) -> u64 {
        self.inner.core.lock().outcomes()
    }

    /// Makes progress until more requests are done than there were, or for so long; whether there are. Who asks for the number,
    /// looks at requests, and then waits misses none that another thread ends meanwhile.
    pub fn progress_since(&self, outcomes: u64, timeout: Duration) -> bool {
        self.inner.wait_until(Some(timeout), |core| core.outcomes() != outcomes)
    }

    /// Makes what progress there is without waiting, and tells how far a request has come.
    pub fn test(&self, id: RequestId) -> Result<State, Error> {
        let (mut before, mut now) = (None, Ok(State::Queued));
        self.inner.wait_until(Some(Duration::ZERO), |core| {
            now = core.state(id);
            let before = before.get_or_insert_with(|| now.clone());
            now != *before || !matches!(now, Ok(State::Queued | State::BufferFree))
        });
        now
    }

    /// Waits until a request has come so far, or for so long; tells how far it is.
    pub fn wait_for(&self, id: RequestId, state: State, timeout: Option<Duration>) -> Result<State, Error> {
        let mut now = Ok(State::Queued);
        self.inner.wait_until(timeout, |core| {
            now = core.state(id);
            now.as_ref().map_or(true, |now| *now >= state)
        });
        now
    }

    /// Waits until a request is done, or for so long; whether it is.
    pub fn wait(&self, id: RequestId, timeout: Option<Duration>) -> Result<bool, Error> {
        Ok(self.wait_for(id, State::Done, timeout)? == State::Done)
    }

    /// Waits until one of the requests is done, or for so long; which one.
    pub fn wait_any(&self, ids: &[RequestId], timeout: Option<Duration>) -> Result<Option<usize>, Error> {
        Ok(self.wait_some(ids, timeout)?.first().copied())
    }

    /// Waits until at least one of the requests is done, or for so long; which are.
    pub fn wait_some(&self, ids: &[RequestId], timeout: Option<Duration>) -> Result<Vec<usize>, Error> {
        let done = |core: &Core| -> Result<Vec<usize>, Error> {
            let mut done = Vec::new();
            for (at, &id) in ids.iter().enumerate() {
                if core.state(id)? == State::Done {
                    done.push(at);
                }
            }
            Ok(done)
        };
        let mut outcomes = None;
        self.inner.wait_until(timeout, |core| {
            // Only an outcome can change the answer.
            let counted = core.outcomes();
            let changed = outcomes != Some(counted);
            outcomes = Some(counted);
            ids.is_empty() || changed && done(core).map_or(true, |done| !done.is_empty())
        });
        done(&self.inner.core.lock())
    }

    /// Waits until all the requests are done, or for so long; whether they are.
    pub fn wait_all(&self, ids: &[RequestId], timeout: Option<Duration>) -> Result<bool, Error> {
        let mut left = ids.iter();
        let mut next = left.next();
        let mut stale = false;
        let all = self.inner.wait_until(timeout, |core| {
            while let Some(&id) = next {
                match core.state(id) {
                    Ok(State::Done) => next = left.next(),
                    Ok(_) => return false,
                    Err(_) => {
                        stale = true;
                        return true;
                    }
                }
            }
            true
        });
        if stale { Err(Error::NoSuchRequest) } else { Ok(all) }
    }

    /// Ends a request. Nothing that was lent to it is held afterwards; its result says whether the server may execute it.
    pub fn cancel(&self, id: RequestId) -> Result<(), Error> {
        self.inner.change(|core| core.cancel(id))
    }

    /// Takes the result of a request that is done, and releases it.
    pub fn take(&self, id: RequestId) -> Result<Reply, Error> {
        self.inner.core.lock().take(id)?.result
    }

    /// The same for a request whose reply was to go into a buffer.
    pub fn take_into(&self, id: RequestId) -> Result<Filled, Error> {
        let outcome = self.inner.core.lock().take(id)?;
        let buffer = outcome.target.unwrap_or_default();
        Ok(Filled { result: outcome.result, buffer, len: outcome.filled })
    }

    /// Looks at the result of a request that is done, with the length of what is in its buffer, and leaves it where it
    /// is. Bytes of the reply stay where they are in memory until the request is released.
    pub fn peek<R>(
        &self,
        id: RequestId,
        look: impl FnOnce(&Result<Reply, Error>, Option<usize>) -> R,
    ) -> Result<R, Error> {
        self.peek_with(id, |result, len, _| look(result, len))
    }

    /// The same for those who keep something beside the result, which goes when the request is released.
    pub fn peek_with<R>(
        &self,
        id: RequestId,
        look: impl FnOnce(&Result<Reply, Error>, Option<usize>, &mut Option<Box<dyn Any + Send>>) -> R,
    ) -> Result<R, Error> {
        let mut core = self.inner.core.lock();
        let outcome = core.outcome(id)?;
        Ok(look(&outcome.result, outcome.filled, &mut outcome.beside))
    }

    /// Lets go of a request, which is cancelled if it is not done.
    pub fn release(&self, id: RequestId) -> Result<(), Error> {
        self.inner.change(|core| core.release(id))
    }

    /// Lets go of several requests.
    pub fn release_all(&self, ids: &[RequestId]) -> Result<(), Error> {
        self.inner.change(|core| ids.iter().try_for_each(|&id| core.release(id)))
    }

    /// Hands a request over, waits until it is done, and takes the result.
    pub fn call(&self, command: Command<'_>) -> Result<Reply, Error> {
        let id = self.submit(command)?;
        self.wait(id, None)?;
        self.take(id)
    }

    /// Has a request appear in [`Client::next_completion`] when it is done, or at once if it is.
    pub fn list(&self, id: RequestId) -> Result<(), Error> {
        self.inner.core.lock().list(id)
    }

    /// The next request that is done and was to be listed; each comes once, unless its result was taken before.
    pub fn next_completion(&self) -> Option<RequestId> {
        self.inner.core.lock().next_completion()
    }

    /// Ends the client for all threads: those that wait return as if their time were over, and nothing makes progress any
    /// more.
    pub fn close(&self) {
        self.inner.core.lock().close();
        self.inner.progress.notify_all();
    }

    /// Requests that are not done.
    pub fn in_flight(&self) -> usize {
        self.inner.core.lock().in_flight()
    }

    /// Readable when [`Client::progress`] and then [`Client::next_completion`] are to be called, for those who have a
    /// loop of their own. The descriptor is the client's: it must not be read from or closed.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.core.lock().watched = true;
        self.inner.event.as_fd()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // It would have aborted the process if it had panicked in a release build.
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// The thread: makes progress until the client is dropped.
    fn run(&self) {
        let mut core = self.core.lock();
        while !core.closed {
            core.flush();
            if core.waiting > 0 {
                self.progress.notify_all();
            }
            core = self.poll(core, None);
        }
    }

    /// Does something after which requests of other threads may be done; these learn of it.
    fn change<R>(&self, change: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.core.lock();
        let before = core.outcomes();
        let result = change(&mut core);
        if core.outcomes() != before {
            if core.polling {
                core.poller.wake();
            }
            if core.waiting > 0 {
                self.progress.notify_all();
            }
        }
        result
    }

    /// Makes progress until something holds, or for so long; whether it holds.
    fn wait_until(&self, timeout: Option<Duration>, mut holds: impl FnMut(&Core) -> bool) -> bool {
        // A time that is too far away is none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut core = self.core.lock();
        if holds(&core) {
            return true;
        }
        let mut last = timeout == Some(Duration::ZERO);
        while !core.closed {
            if !self.has_thread {
                core.flush();
                if holds(&core) {
                    return true;
                }
            }
            if self.has_thread || core.polling {
                core.waiting += 1;
                match until {
                    Some(until) => drop(self.progress.wait_until(&mut core, until)),
                    None => self.progress.wait(&mut core),
                }
                core.waiting -= 1;
            } else {
                core = self.poll(core, until);
            }
            if holds(&core) {
                return true;
            }
            if last {
                return false;
            }
            last = until.is_some_and(|until| until <= Instant::now());
        }
        false
    }

    /// Waits for news without the lock, and deals with it.
    fn poll<'a>(&'a self, mut core: MutexGuard<'a, Core>, until: Option<Instant>) -> MutexGuard<'a, Core> {
        let until = if core.has_more() { Some(Instant::now()) } else { until };
        core.polling = true;
        drop(core);
        let mut ready: Vec<Ready> = Vec::new();
        poller::wait(&self.epoll, until, |news| ready.push(news));
        let mut core = self.core.lock();
        core.polling = false;
        core.ready(&ready);
        if core.waiting > 0 {
            self.progress.notify_all();
        }
        core
    }
}
