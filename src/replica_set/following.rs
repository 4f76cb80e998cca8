//! The store of a server that follows: a thread of its own applies what is agreed on, as it comes, and takes a checkpoint now and then, so that a
//! start has little to replay. Clients read there meanwhile. Once the server is elected, and all that it has stored is agreed on and applied, the
//! store leads, and the thread ends.

use super::{AGAIN, begin_again, recover};
use crate::{admin::log::log, server::replica_set::ReplicaSet};
use holdfast_consensus::{MEMBERS_MAX, MemberId, Replica};
use holdfast_store::{Follower, Groups, Io, Lsn, OpenError, Options, Recovery, Store};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Bytes of log after which a checkpoint is taken.
const REST_BYTES: u64 = 128 << 20;
/// How long what is agreed on may wait for more of it.
const GATHER: Duration = Duration::from_millis(2);
/// How often memory is looked after, and the log if it does not tell.
const TICK: Duration = Duration::from_millis(100);

/// The thread.
pub(super) struct Following {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What others tell the thread, and it tells them.
#[derive(Default)]
struct Shared {
    stops: AtomicBool,
    is_elected: AtomicBool,
    /// Once it is opened.
    store: OnceLock<Arc<Store>>,
}

impl Shared {
    /// Whether a checkpoint that is being taken is to be given up.
    fn is_pressed(&self) -> bool {
        self.stops.load(Relaxed) || self.is_elected.load(Relaxed)
    }
}

impl Following {
    /// Starts it. `followed` is told of the store when it is there to be read, and `leads` when it leads.
    pub fn start(
        (io, options): (Arc<dyn Io>, Options),
        (set, replica, own): (Arc<ReplicaSet>, Arc<Replica>, MemberId),
        (followed, leads): (oneshot::Sender<Arc<Store>>, oneshot::Sender<()>),
    ) -> Result<Following, String> {
        let rest_bytes = REST_BYTES.min(options.log_bytes_max / 4);
        let share = rest_bytes / MEMBERS_MAX as u64 * (own % MEMBERS_MAX as u64);
        let shared = Arc::<Shared>::default();
        let part =
            Part { io, options, set, replica, rest_bytes, share, shared: shared.clone(), rests_at: None };
        let thread = thread::Builder::new().name("follow".into()).spawn(move || part.run(followed, leads));
        let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Following { thread, shared })
    }

    /// The server is elected, and [leads](Replica::lead) the others.
    pub fn elected(&self) {
        self.shared.is_elected.store(true, Relaxed);
        self.thread.thread().unpark();
    }

    /// The store, once it is opened.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.shared.store.get()
    }

    /// Ends it; what it was at is given up.
    pub fn end(self) {
        self.shared.stops.store(true, Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("a panic ends the process");
    }
}

struct Part {
    io: Arc<dyn Io>,
    options: Options,
    set: Arc<ReplicaSet>,
    replica: Arc<Replica>,
    rest_bytes: u64,
    /// The servers take their checkpoints at different places of the log.
    share: u64,
    shared: Arc<Shared>,
    /// Not before then is a checkpoint tried again for which there was no room.
    rests_at: Option<Instant>,
}

impl Part {
    fn run(mut self, followed: oneshot::Sender<Arc<Store>>, leads: oneshot::Sender<()>) {
        let Some(mut follower) = self.open() else { return };
        let log = follower.store().log().clone();
        assert!(self.shared.store.set(follower.store().clone()).is_ok(), "it is opened once");
        let this = thread::current();
        log.on_progress(Box::new(move || this.unpark()));
        // What was read here before the server began again was in its log. So from there on no read goes back.
        let shown_from = log.tail();
        let mut followed = Some(followed);
        let mut tended = Instant::now();
        while !self.shared.stops.load(Relaxed) {
            match self.replica.log() {
                Some(now) if !Arc::ptr_eq(&now, &log) => {
                    begin_again(&"entries that were never agreed on were cut off")
                }
                _ => {}
            }
            let more = done(follower.advance()) | done(follower.load());
            if follower.take_system_changes() {
                self.set.tell_system_changes();
            }
            self.set.show_applied(follower.applied());
            if follower.applied() >= shown_from
                && let Some(followed) = followed.take()
            {
                // If nobody waits for it, the server ends.
                let _ = followed.send(follower.store().clone());
            }
            // Nobody appends to the log of one that is elected before it leads.
            if self.shared.is_elected.load(Relaxed) && follower.applied() == log.tail() {
                let started = Instant::now();
                done(follower.lead());
                log!(Notice, "The store leads after {:?}", started.elapsed());
                // If nobody waits for it, the server ends.
                let _ = leads.send(());
                return;
            }
            let mut wants_rest = follower.takes_requests();
            if tended.elapsed() >= TICK {
                tended = Instant::now();
                follower.store().tend_backup();
                wants_rest |= follower.tend_memory() || follower.wants_room();
            }
            let part = |lsn: Lsn| (lsn + self.share) / self.rest_bytes;
            wants_rest |= part(follower.applied()) > part(follower.checkpointed());
            let has_rested = wants_rest && self.rest(&mut follower);
            if !has_rested && !more {
                thread::park_timeout(TICK);
                // Many commits at once take less than one after the other.
                thread::sleep(GATHER);
            }
        }
    }

    /// The store. `None`: the thread is to end.
    fn open(&self) -> Option<Follower> {
        let log = self.replica.log()?;
        let follower = done(Follower::open(self.io.clone(), log, self.options.clone()));
        let Recovery { notes, replayed_batches, us, .. } = follower.store().recovery();
        notes.iter().for_each(|note| log!(Warning, "{note}"));
        let took = Duration::from_micros(*us);
        log!(Notice, "Opened the data to follow: {replayed_batches} batches replayed in {took:?}");
        Some(follower)
    }

    /// Takes a checkpoint, if it is to; whether it did.
    fn rest(&mut self, follower: &mut Follower) -> bool {
        let is_decided = follower.applied() <= self.replica.extent().1;
        if !is_decided || self.shared.is_pressed() || self.rests_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        self.rests_at = None;
        let gives_up = || self.shared.is_pressed();
        let taken = follower.checkpoint(&|lsn| self.replica.keep_from(lsn), &gives_up);
        match taken {
            Ok(_) => true,
            Err(_) if gives_up() => false,
            Err(error) if error.is_full() => {
                self.rests_at = Some(Instant::now() + AGAIN);
                false
            }
            Err(error) => recover(&error),
        }
    }
}

/// What was done; an error has the process begin again.
fn done<T>(result: Result<T, OpenError>) -> T {
    result.unwrap_or_else(|error| recover(&error))
}
