//! The store of a server that follows: a thread of its own applies what is agreed on, as it comes, and takes a checkpoint now and then, so that a
//! start has little to replay. Clients read there meanwhile.

use super::{AGAIN, begin_again, recover};
use crate::{admin::log::log, server::replica_set::ReplicaSet};
use holdfast_consensus::{MEMBERS_MAX, MemberId, Replica};
use holdfast_store::{Follower, Groups, Io, Lsn, OpenError, Options, Store};
use std::{
    sync::{
        Arc,
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

/// What a server that follows has of the data, as it comes to be.
pub struct Followed {
    /// The store, to be read. The server leads only once it is given up.
    pub store: Arc<Store>,
    /// Whether functions were loaded or removed since this was asked last.
    pub functions: Arc<AtomicBool>,
}

/// The thread.
pub(super) struct Following {
    thread: JoinHandle<()>,
    stops: Arc<AtomicBool>,
}

impl Following {
    /// Starts it. `followed` is told when the store is there.
    pub fn start(
        (io, options): (Arc<dyn Io>, Options),
        (set, replica, own): (Arc<ReplicaSet>, Arc<Replica>, MemberId),
        followed: oneshot::Sender<Followed>,
    ) -> Result<Following, String> {
        let options = Options { background: false, ..options };
        let rest_bytes = REST_BYTES.min(options.log_bytes_max / 4);
        let share = rest_bytes / MEMBERS_MAX as u64 * (own % MEMBERS_MAX as u64);
        let stops = Arc::new(AtomicBool::new(false));
        let part =
            Part { io, options, set, replica, rest_bytes, share, stops: stops.clone(), rests_at: None };
        let thread = thread::Builder::new().name("follow".into()).spawn(move || part.run(followed));
        let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Following { thread, stops })
    }

    /// Ends it; what it was at is given up.
    pub fn end(self) {
        self.stops.store(true, Relaxed);
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
    stops: Arc<AtomicBool>,
    /// Not before then is a checkpoint tried again for which there was no room.
    rests_at: Option<Instant>,
}

impl Part {
    fn run(mut self, followed: oneshot::Sender<Followed>) {
        let Some(mut follower) = self.open() else { return };
        let log = follower.store().log().clone();
        let this = thread::current();
        log.on_progress(Box::new(move || this.unpark()));
        // What was read here before the server began again was in its log. So from there on no read goes back.
        let shown_from = log.tail();
        let (functions, mut followed) = (Arc::new(AtomicBool::new(false)), Some(followed));
        let mut tended = Instant::now();
        while !self.stops.load(Relaxed) {
            match self.replica.followed_log() {
                Some(now) if !Arc::ptr_eq(&now, &log) => {
                    begin_again(&"entries that were never agreed on were cut off")
                }
                _ => {}
            }
            let more = done(follower.advance()) | done(follower.load());
            self.set.show_applied(follower.applied());
            if follower.applied() >= shown_from
                && let Some(followed) = followed.take()
            {
                // If nobody waits for it, the server ends.
                let shown = Followed { store: follower.store().clone(), functions: functions.clone() };
                let _ = followed.send(shown);
            }
            if follower.take_system_changes() {
                functions.store(true, Relaxed);
            }
            let mut wants_rest = follower.takes_requests();
            if tended.elapsed() >= TICK {
                tended = Instant::now();
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

    /// The store, once all of its last checkpoint is agreed on. `None`: the thread is to end.
    fn open(&self) -> Option<Follower> {
        while !self.stops.load(Relaxed) {
            let opened = self.replica.followed_log().map(|log| {
                let started = Instant::now();
                let opened = Follower::open(self.io.clone(), log, self.options.clone());
                opened.inspect(|follower| {
                    if follower.is_some() {
                        log!(Notice, "Opened the data to follow in {:?}", started.elapsed());
                    }
                })
            });
            match opened.transpose() {
                Ok(Some(Some(follower))) => return Some(follower),
                Err(error) => recover(&error),
                Ok(_) => thread::park_timeout(TICK),
            }
        }
        None
    }

    /// Takes a checkpoint, if it is to; whether it did.
    fn rest(&mut self, follower: &mut Follower) -> bool {
        if self.rests_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        self.rests_at = None;
        let gives_up = || self.stops.load(Relaxed);
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
