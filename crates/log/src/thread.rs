//! The threads of the log: one commits, unless who appends does so, and one prepares segments so that no commit waits for a file of zeroes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_io::{Error, Result};

use crate::{
    Appendfsync, Log,
    sync::{AtomicBool, Builder, JoinHandle, Mutex, Ordering, Thread, fence, park, park_timeout},
};

/// The log is idle when nothing was committed for so long; then the durable mark is written.
const IDLE: Duration = Duration::from_millis(50);
/// How soon the thread looks again at what nobody wakes it for: the sync of each second, and a full medium.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a commit waits for the batches that a kick is still to end, and for all with `appendfsync no`.
const GATHER: Duration = Duration::from_micros(500);
/// A full medium is tried again after so long.
const RETRY_MEDIUM: Duration = Duration::from_secs(1);

/// Puts one thread to sleep and lets all others wake it at little cost.
#[derive(Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Sleeper {
    pub fn is_attached(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// Wakes the thread if it sleeps. What it shall see must have been stored before.
    pub fn wake(&self) {
        // Pairs with the fence in `sleep`: we see it asleep, or it sees the work.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = &*self.thread.lock()
        {
            thread.unpark();
        }
    }

    fn sleep(&self, timeout: Option<Duration>, has_work: impl Fn() -> bool) {
        // Swaps, so that each has its place among those of `wake`.
        self.asleep.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            match timeout {
                Some(timeout) => park_timeout(timeout),
                None => park(),
            }
        }
        self.asleep.swap(false, Ordering::Relaxed);
    }
}

/// The running threads of a log; they stop when this is dropped.
pub struct LogThread {
    log: Arc<Log>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl LogThread {
    pub(crate) fn start(log: &Arc<Log>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut this = Self { log: log.clone(), stop, threads: Vec::new() };
        let run = if log.commits_here { tend_loop } else { commit_loop };
        this.spawn("holdfast-log", &log.committer_sleep, run)?;
        this.spawn("holdfast-prepare", &log.preparer_sleep, prepare_loop)?;
        Ok(this)
    }

    fn spawn(&mut self, name: &str, sleeper: &Sleeper, run: fn(&Log, &AtomicBool)) -> Result<()> {
        let (log, stop) = (self.log.clone(), self.stop.clone());
        // Held until the thread is known, so that it is not missed when it sleeps at once.
        let mut attached = sleeper.thread.lock();
        let spawned = Builder::new().name(name.to_owned()).spawn(move || run(&log, &stop));
        let handle = spawned.map_err(|e| Error::io(format!("start the thread {name}"), e))?;
        *attached = Some(handle.thread().clone());
        self.threads.push(handle);
        Ok(())
    }

    /// Stops the threads. What was appended and not committed stays in memory; see [`Log::close`].
    pub fn stop(self) {}
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.log.committer_sleep.thread.lock().take();
        self.log.preparer_sleep.thread.lock().take();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn commit_loop(log: &Log, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::SeqCst);
    let kicked = || log.kicked.load(Ordering::Relaxed);
    let (mut idle_since, mut medium_tried) = (Instant::now(), Instant::now());
    while !stopped() {
        log.kicked.swap(false, Ordering::AcqRel);
        match log.commit_once() {
            Ok(true) => {
                idle_since = Instant::now();
                if log.is_waited_for() {
                    // Whoever appends now has not kicked yet, and is likely to append more: all of it costs one write.
                    log.committer_sleep.sleep(Some(GATHER), || stopped() || kicked());
                } else {
                    // Kicks do not end this: else many a batch would get a write of its own that nobody needs.
                    park_timeout(GATHER);
                }
                continue;
            }
            Ok(false) => {}
            Err(_) => {
                log.committer_sleep.sleep(None, stopped);
                continue;
            }
        }
        if log.wants_room() && medium_tried.elapsed() >= RETRY_MEDIUM {
            medium_tried = Instant::now();
            log.look_for_room();
        }
        let wants_mark = log.wants_idle_mark();
        if wants_mark && idle_since.elapsed() >= IDLE {
            // A failure has latched.
            let _ = log.mark_end();
            continue;
        }
        // Appended, but there is no room for it.
        let stuck = log.committer.lock().is_pending();
        let timeout = if wants_mark {
            Some(IDLE)
        } else if stuck || log.awaits_sync() || log.wants_room() {
            Some(LOOK_AGAIN)
        } else {
            None
        };
        log.committer_sleep.sleep(timeout, || {
            stopped() || kicked() || timeout.is_none() && log.wants_room() || (!stuck && log.has_work())
        });
    }
}

/// Where others commit: for what comes without them.
fn tend_loop(log: &Log, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::SeqCst);
    let (mut tail_seen, mut medium_tried) = (0, Instant::now());
    while !stopped() {
        // A failure has latched.
        let _ = log.commit_once();
        if log.wants_room() && medium_tried.elapsed() >= RETRY_MEDIUM {
            medium_tried = Instant::now();
            log.look_for_room();
        }
        let tail = log.tail();
        if tail == tail_seen && log.wants_idle_mark() {
            let _ = log.mark_end();
        }
        tail_seen = tail;
        log.committer_sleep.sleep(Some(LOOK_AGAIN), stopped);
    }
}

fn prepare_loop(log: &Log, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        if !log.prepare_spare() {
            log.preparer_sleep.sleep(None, || stop.load(Ordering::SeqCst));
        }
    }
}

impl Log {
    fn awaits_sync(&self) -> bool {
        self.written() > self.durable() && matches!(self.appendfsync(), Appendfsync::Everysec)
    }

    fn has_work(&self) -> bool {
        let sync_wanted = self.sync_wanted.load(Ordering::Acquire).min(self.written()) > self.durable();
        sync_wanted || self.appender.is_pending()
    }

    /// Whether what is appended is to be written at once.
    fn is_waited_for(&self) -> bool {
        self.appendfsync() != Appendfsync::No || self.sync_wanted.load(Ordering::Acquire) > self.durable()
    }

    /// Whether everything is durable, and nothing on the medium says so.
    fn wants_idle_mark(&self) -> bool {
        let tail = self.tail();
        tail == self.durable() && tail != self.marked.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::{sync::atomic::AtomicU64, thread};

    /// Whoever stores work and wakes is seen, be the thread about to sleep, asleep or about to look.
    #[test]
    fn no_call_to_wake_is_lost() {
        crate::sync::model(|| {
            let shared = Arc::new((Sleeper::default(), AtomicU64::new(0)));
            let sleeps = thread::spawn({
                let shared = shared.clone();
                move || {
                    let (sleeper, work) = &*shared;
                    *sleeper.thread.lock() = Some(thread::current());
                    let mut seen = 0;
                    while seen < 2 {
                        sleeper.sleep(None, || work.load(Ordering::Relaxed) != seen);
                        seen = work.load(Ordering::Relaxed);
                    }
                }
            });
            let wakes = thread::spawn({
                let shared = shared.clone();
                move || {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.wake();
                }
            });
            shared.1.fetch_add(1, Ordering::Relaxed);
            shared.0.wake();
            wakes.join().expect("it wakes");
            sleeps.join().expect("it was woken");
        });
    }
}
