//! Whether a write may be executed now: memory, replicas, the log. Where there is no room, keys are evicted, the writer waits in the
//! queue of writers, or it is told why it is refused.

use crate::{
    command::error::{DISK_FULL, LOG_FAILED_TEXT, OUT_OF_MEMORY, READONLY, Stop},
    config::Opt,
    exec::{answer::Outcome, turn::Turn},
    server::eviction,
    session::Session,
};
use holdfast_resp::Args;
use holdfast_store::{Admission, Memory, Purpose, Store, redo_max};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

const NO_REPLICAS: Stop = Stop::new("NOREPLICAS Not enough good replicas to write.");
const TOO_MUCH: Stop = Stop::new("ERR a command or transaction cannot write so much at once");
/// How long a command waits that removes data while too much is on its way to the medium, or any command while too much is on its way
/// to clients.
pub const BUSY_RETRY: Duration = Duration::from_millis(1);

impl Turn<'_> {
    /// Evicts keys if there is more data than may be, so that it can grow. To be called while nothing is locked.
    #[inline]
    pub fn make_room(&self) {
        if self.worker.server.store.wants_room() {
            self.evict();
        }
    }

    #[cold]
    fn evict(&self) {
        let server = &self.worker.server;
        let start = Instant::now();
        server.store.make_room(eviction::time(&server.config));
        // The log may have something to write.
        self.worker.appended.store(true, Relaxed);
        let took = start.elapsed();
        let long_ms = server.config.number(Opt::LatencyMonitorThreshold);
        if long_ms > 0 && took.as_millis() >= long_ms as u128 {
            server.latency.add("eviction-cycle", took);
        }
    }

    /// Whether there is room for a write of about `bytes` now, and no other one waits for room; if not, an outcome that tries
    /// again, or why it does not.
    #[inline(always)]
    pub fn admit(&self, session: &Session, bytes: usize, may_grow: bool) -> Result<Option<Outcome>, Stop> {
        if may_grow {
            if !self.worker.server.writers.lets_try(session.ticket.as_ref()) {
                return Ok(Some(Outcome::Queue));
            }
            self.make_room();
            if let Some(later) = self.admit_growth(session)? {
                return Ok(Some(later));
            }
        }
        self.check_role(session)?;
        self.admit_log(bytes, may_grow)
    }

    /// Whether a client may write: not on a replica, unless it is its primary, nor where writes need replicas, of which there are none.
    #[inline]
    pub fn check_role(&self, session: &Session) -> Result<(), Stop> {
        let (config, replication) = (&self.worker.server.config, &self.worker.server.replication);
        let needed = config.number(Opt::MinReplicasToWrite) > 0 && config.number(Opt::MinReplicasMaxLag) > 0;
        match (needed, replication.is_replica()) {
            (false, false) => Ok(()),
            _ if session.is_primary => Ok(()),
            (true, false) if self.has_replicas() => Ok(()),
            (true, _) => Err(NO_REPLICAS),
            (false, true) => Err(READONLY),
        }
    }

    /// Whether so many others of a replica set were heard of as writes need.
    #[cold]
    fn has_replicas(&self) -> bool {
        let config = &self.worker.server.config;
        let lag = Duration::from_secs(config.number(Opt::MinReplicasMaxLag) as u64);
        let needed = config.number(Opt::MinReplicasToWrite) as usize;
        let set = self.worker.server.replica_set.as_ref();
        set.is_some_and(|set| set.view().heard_within(lag).count() >= needed)
    }

    /// Whether there is memory for data to grow; if not, an outcome that tries again, or that there will be none.
    #[inline(always)]
    pub fn admit_growth(&self, session: &Session) -> Result<Option<Outcome>, Stop> {
        match self.worker.server.store.memory() {
            Memory::Ok => Ok(None),
            Memory::Busy => Ok(Some(Outcome::Busy)),
            // What the primary has room for is taken, as Redis does with `replica-ignore-maxmemory yes`.
            Memory::Out if session.is_primary => Ok(None),
            Memory::Out => Err(OUT_OF_MEMORY),
        }
    }

    /// Whether the log takes a write, whatever memory and replicas there are.
    #[inline(always)]
    pub fn admit_log(&self, bytes: usize, may_grow: bool) -> Result<Option<Outcome>, Stop> {
        let store = &self.worker.server.store;
        check_size(bytes, store)?;
        // What frees space may use what is reserved for it.
        let admission = if may_grow { store.admit(bytes) } else { store.admit_removal(bytes) };
        if admission == Admission::Ok { Ok(None) } else { self.put_off(admission, may_grow) }
    }

    /// What becomes of a write that the log does not take now.
    #[cold]
    fn put_off(&self, admission: Admission, may_grow: bool) -> Result<Option<Outcome>, Stop> {
        match admission {
            Admission::Ok => Ok(None),
            Admission::Busy => Ok(Some(busy(may_grow))),
            Admission::Full => Err(DISK_FULL),
            Admission::Failed => {
                let why = self.worker.server.store.log().failed().unwrap_or_default();
                Err(format!("{LOG_FAILED_TEXT}: {why}").into())
            }
        }
    }
}

/// Refuses what no batch of the log holds.
#[inline]
pub fn check_size(bytes: usize, store: &Store) -> Result<(), Stop> {
    if bytes > store.batch_bytes_max() { Err(TOO_MUCH) } else { Ok(()) }
}

/// Bytes of log that the arguments of a command come to at most.
#[inline]
pub fn redo_of(args: Args) -> usize {
    redo_max(args.len(), args.extent())
}

/// What becomes of a command that finds no room now, and that lets data grow or does not. What removes data is let in before all
/// others.
pub fn busy(may_grow: bool) -> Outcome {
    if may_grow { Outcome::Busy } else { Outcome::postpone(BUSY_RETRY) }
}

/// What a command is for that lets data grow or does not.
pub fn purpose(may_grow: bool) -> Purpose {
    if may_grow { Purpose::Write } else { Purpose::Remove }
}
