//! What a server keeps for a backup: the last complete checkpoint's slots and the log's segments, as they are at one moment. The
//! copying is another process's (`crates/store/src/backup`). Commands and checkpoints go on; what they free meanwhile is freed when
//! the backup ends. Whenever the log needs the room, the backup yields.

use super::Maintenance;
use crate::{backup::plan::Plan, format::superblock::Superblock};
use holdfast_heap::PinnedCheckpoint;
use holdfast_io::{Error, Result};
use holdfast_log::{Admission, Lsn, Pin, SMALL_BYTES};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The backup that is under way, and counts of those that were.
#[derive(Default)]
pub(crate) struct Backups {
    current: Mutex<Option<Pinned>>,
    begun: AtomicU64,
    ended: AtomicU64,
    lost: AtomicU64,
}

struct Pinned {
    id: u64,
    log: Pin,
    heap: PinnedCheckpoint,
    superblock: Superblock,
    /// The end of the log in the backup.
    moment: Lsn,
    /// Nobody needs it any more: the maintenance thread lets go of it.
    is_released: bool,
}

/// Backups of a store, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupState {
    /// The moment of the one that is under way.
    pub moment: Option<Lsn>,
    /// Bytes of the heap's file that are kept for it.
    pub heap_bytes: u64,
    /// Those that were begun.
    pub begun: u64,
    /// Those that ended as they should.
    pub ended: u64,
    /// Those that had to yield.
    pub lost: u64,
}

/// What [`Lease::begin`] comes to.
pub enum Begin {
    /// The lease.
    Leased(Lease),
    /// A checkpoint is being taken, or what an earlier backup kept is being freed: ask again.
    NotNow,
    /// Another backup is under way.
    InUse,
}

/// Keeps what a backup copies until it is dropped.
pub struct Lease {
    maintenance: Arc<Maintenance>,
    id: u64,
}

impl Lease {
    pub(crate) fn begin(maintenance: &Arc<Maintenance>) -> Begin {
        let (backups, engine) = (&maintenance.backups, &maintenance.engine);
        let mut current = backups.current.lock();
        match &*current {
            Some(pinned) if !pinned.is_released => return Begin::InUse,
            Some(_) => return Begin::NotNow,
            None => {}
        }
        let (log, heap) = (&engine.shared.log, &engine.shared.heap);
        let pinned = maintenance.checkpoints.with_last(|superblock| {
            let heap = heap.pin_checkpoint()?;
            Some((superblock.clone(), heap, log.pin_all(u64::MAX)))
        });
        let Some((mut superblock, heap, pin)) = pinned.flatten() else { return Begin::NotNow };
        // States before are not whole: what was freed since the checkpoint is not kept.
        superblock.durable_lsn = superblock.durable_lsn.max(log.freed_at());
        let moment = log.tail();
        log.request_durable(moment);
        let id = 1 + backups.begun.fetch_add(1, Relaxed);
        *current = Some(Pinned { id, log: pin, heap, superblock, moment, is_released: false });
        Begin::Leased(Lease { maintenance: maintenance.clone(), id })
    }

    /// What is to be copied; `None` while the moment is not durable.
    ///
    /// # Errors
    /// The backup had to yield.
    pub fn plan(&self) -> Result<Option<Plan>> {
        self.with(|pinned| {
            let log = &self.maintenance.engine.shared.log;
            if log.durable() < pinned.moment {
                log.request_durable(pinned.moment);
                return None;
            }
            Some(self.plan_of(pinned, pinned.moment))
        })
    }

    /// What is to be copied if it is to end at `moment`, at which a batch ends; `None`: that is before the lease's.
    ///
    /// # Errors
    /// The backup had to yield.
    ///
    /// # Panics
    /// That moment is not durable.
    pub fn plan_up_to(&self, moment: Lsn) -> Result<Option<Plan>> {
        assert!(moment <= self.maintenance.engine.shared.log.durable(), "it is durable");
        self.with(|pinned| (pinned.moment <= moment).then(|| self.plan_of(pinned, moment)))
    }

    /// The same, but what was appended before the lease began need not be in it; `None`: the last checkpoint has more, or what lived then was
    /// moved and freed.
    ///
    /// # Errors
    /// The backup had to yield.
    ///
    /// # Panics
    /// That moment is not durable.
    pub fn plan_of_less(&self, moment: Lsn) -> Result<Option<Plan>> {
        assert!(moment <= self.maintenance.engine.shared.log.durable(), "it is durable");
        self.with(|pinned| {
            let Superblock { durable_lsn, checkpoint_lsn, .. } = pinned.superblock;
            (durable_lsn.max(checkpoint_lsn) <= moment).then(|| self.plan_of(pinned, moment))
        })
    }

    fn plan_of(&self, pinned: &Pinned, moment: Lsn) -> Plan {
        let segments = self.maintenance.engine.shared.log.places(moment);
        Plan { superblock: pinned.superblock.clone(), moment, segments }
    }

    /// Whether all is kept that is to be copied.
    ///
    /// # Errors
    /// The backup had to yield.
    pub fn check(&self) -> Result<()> {
        self.with(|_| ())
    }

    /// Says that all is copied. Without an error, everything was kept until now.
    ///
    /// # Errors
    /// The backup had to yield: what was copied may be of different moments.
    pub fn end(self) -> Result<()> {
        self.check()?;
        self.maintenance.backups.ended.fetch_add(1, Relaxed);
        Ok(())
    }

    fn with<T>(&self, f: impl FnOnce(&Pinned) -> T) -> Result<T> {
        let current = self.maintenance.backups.current.lock();
        let pinned = current.as_ref().filter(|pinned| pinned.id == self.id && pinned.log.lsn().is_some());
        pinned.map(f).ok_or_else(|| {
            Error::Unusable(
                "the backup had to yield: the server needed the room of what was kept for it".to_owned(),
            )
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What it kept is freed by the maintenance thread: that writes to each segment that was held.
        if let Some(pinned) = &mut *self.maintenance.backups.current.lock() {
            pinned.is_released |= pinned.id == self.id;
        }
        self.maintenance.engine.wake_maintenance();
    }
}

impl Backups {
    /// Frees what is kept for a backup that has ended, or that has to yield.
    pub fn tend(&self, maintenance: &Maintenance) {
        let mut current = self.current.lock();
        let Some(pinned) = &*current else { return };
        let must_yield = !pinned.is_released && pinned.must_yield(maintenance);
        if must_yield {
            self.lost.fetch_add(1, Relaxed);
        }
        let done = if pinned.is_released || must_yield { current.take() } else { None };
        drop(current);
        drop(done);
    }

    pub fn state(&self) -> BackupState {
        let current = self.current.lock();
        let pinned = current.as_ref().filter(|pinned| !pinned.is_released);
        BackupState {
            moment: pinned.map(|pinned| pinned.moment),
            heap_bytes: pinned.map_or(0, |pinned| pinned.heap.bytes()),
            begun: self.begun.load(Relaxed),
            ended: self.ended.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }
}

impl Pinned {
    /// The log takes the segments that are held by itself. The slots of the heap's file take room from it only once there is a later
    /// checkpoint.
    fn must_yield(&self, maintenance: &Maintenance) -> bool {
        let log = &maintenance.engine.shared.log;
        let is_short = log.is_too_large() || log.admit(SMALL_BYTES) == Admission::Full;
        self.log.lsn().is_none()
            || is_short && maintenance.checkpoints.lsn() != self.superblock.checkpoint_lsn
    }
}
