//! The store, as its user sees it: one file for each thing to do with it.

mod ahead;
mod backup;
mod begin;
pub mod check;
mod copy;
mod direct;
mod fetch;
mod fill;
pub mod follow;
mod heap;
mod keyspace;
mod memory;
pub mod open;
pub mod options;
pub mod read;
pub mod run;
mod runs;
mod salvage;
pub mod stats;
mod upkeep;
mod visit;

use crate::{
    cache::uses::Uses,
    collections::Limits,
    engine::Engine,
    format::{HEAP, compress::CompressionSetting, filling, in_use},
    maintenance::{self, Maintenance, freezer, trainer},
    partition::{
        changes::{ChangeFilter, Follow},
        shared::Shared,
    },
    util::background::Background,
};
pub use ahead::EXPECTED_MAX;
use holdfast_heap::HomeStats;
use holdfast_io::{Further, Io, RealIo, Result, Scm, Spread, SpreadFiles, dirty_shutdowns};
use holdfast_log::{Log, LogThread, Lsn};
use options::{Options, Recovery};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// An open store. Share it by `Arc`; every method takes `&self`.
pub struct Store {
    shared: Arc<Shared>,
    maintenance: Arc<Maintenance>,
    threads: Mutex<Option<Threads>>,
    recovery: Recovery,
    /// Bytes of heap at most.
    heap_bytes_max: u64,
    /// What fills it changes the heap without redo, until it is closed.
    fills_without_redo: bool,
}

struct Threads {
    log: LogThread,
    maintenance: Background,
    freezer: Background,
    trainer: Background,
}

/// Which files of a data folder may lie in further folders: the log's, and the heap's in one that lies below.
pub const FILES: SpreadFiles = SpreadFiles { other: Some(HEAP), ..holdfast_log::FILES };

/// A data folder of the file system, for [`Store::open_on`], with the further folders over which its log is spread: those that it has
/// had before, and `more`, which are taken in for good. `new`: how a folder is opened that lies below the others, or does not. Each is for
/// this process only.
///
/// # Errors
/// A folder is in use, missing, another store's, or new and not empty; or a system error.
pub fn folders(
    dir: &Path,
    more: &[Further<PathBuf>],
    new: &dyn Fn(&Path, bool) -> Result<RealIo>,
) -> Result<Arc<dyn Io>> {
    holdfast_io::open_folders(dir, more, FILES, new)
}

/// A data folder of the file system that another process has, with its further folders, only to be read.
///
/// # Errors
/// A folder is missing, or another store's; or a system error.
pub fn folders_in_use(dir: &Path) -> Result<Arc<dyn Io>> {
    let open = |further: &Further<&str>, _: bool| -> Result<Arc<dyn Io>> {
        Ok(Arc::new(RealIo::read_only(further.path)))
    };
    Spread::open(Arc::new(RealIo::read_only(dir)), &dir.display().to_string(), FILES, &[], &open)
}

/// A data folder of the file system that may be damaged, for [`salvage`](crate::salvage), and what is wrong with its further folders. Nothing in it
/// will change.
///
/// # Errors
/// A folder is in use; or a system error.
pub fn damaged_folders(dir: &Path) -> Result<(Arc<dyn Io>, Vec<holdfast_io::Error>)> {
    holdfast_io::open_damaged_folders(dir, FILES)
}

impl Store {
    /// Opens the store in a folder, making it if it is empty. One process at a time.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Store> {
        Store::open_on(folders(dir.as_ref(), &[], &|dir, _| RealIo::new(dir))?, options)
    }

    /// Opens the store in a folder as it is: nothing there is written or mended, no thread runs, and nothing can be committed.
    pub fn open_read_only(dir: impl AsRef<Path>, options: Options) -> Result<Store> {
        let io = folders(dir.as_ref(), &[], &|dir, _| Ok(RealIo::read_only(dir)))?;
        Store::open_on(io, Options { background: false, ..options })
    }

    /// Opens the store on a machine, real or simulated. A folder that is a copy of one that was in use is opened only if all of it is of
    /// one moment.
    pub fn open_on(io: Arc<dyn Io>, options: Options) -> Result<Store> {
        if !in_use::is_copy(&*io)? {
            return Store::open_as_it_is(io, options);
        }
        let is_read_only = io.is_read_only();
        if !is_read_only {
            copy::check(&io, &options).map_err(copy::describe)?;
        }
        let mut store = Store::open_as_it_is(io, options).map_err(copy::describe)?;
        store.recovery.is_copy = true;
        if !is_read_only {
            store.recovery.note_copy();
        }
        Ok(store)
    }

    fn open_as_it_is(io: Arc<dyn Io>, options: Options) -> Result<Store> {
        let started = Instant::now();
        let (background, heap_bytes_max) = (options.background, options.heap_bytes_max);
        let is_filled = options.is_filled && options.home.is_none();
        let (maintenance, mut recovery) = open::open(io, options)?;
        recovery.us = started.elapsed().as_micros() as u64;
        let maintenance = Arc::new(maintenance);
        let shared = maintenance.engine.shared.clone();
        let fills_without_redo = is_filled && recovery.created;
        if fills_without_redo {
            filling::begin(&*shared.io)?;
        }
        recovery.notes.extend(dirty_shutdowns(&*shared.io)?);
        let threads = Mutex::default();
        let store = Store { shared, maintenance, threads, recovery, heap_bytes_max, fills_without_redo };
        store.begin_upkeep(background)?;
        Ok(store)
    }

    /// Keeps the store in order from now on, with `background` by threads.
    fn begin_upkeep(&self, background: bool) -> Result<()> {
        let Store { shared, maintenance, threads, .. } = self;
        let grown = Arc::downgrade(maintenance);
        shared.heap.on_growth(Box::new(move |bytes| {
            grown.upgrade().inspect(|maintenance| maintenance.engine.note_growth(bytes));
        }));
        maintenance.disk.fit(&maintenance.engine)?;
        if background {
            *threads.lock() = Some(Threads {
                log: shared.log.start_thread()?,
                maintenance: maintenance::start(maintenance.clone()),
                freezer: freezer::start(maintenance.clone()),
                trainer: trainer::start(maintenance.clone()),
            });
        }
        Ok(())
    }

    /// The store of one who follows, until that comes to lead.
    fn of_follower(maintenance: Maintenance, recovery: Recovery, options: &Options) -> Store {
        let (maintenance, heap_bytes_max) = (Arc::new(maintenance), options.heap_bytes_max);
        let shared = maintenance.engine.shared.clone();
        let threads = Mutex::default();
        Store { shared, maintenance, threads, recovery, heap_bytes_max, fills_without_redo: false }
    }

    /// What the start found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.maintenance.engine
    }

    /// The database that a client knows by a number: SWAPDB exchanges them. All other methods want what this returns.
    pub fn database(&self, logical: u8) -> u8 {
        self.shared.databases.physical(logical)
    }

    /// The time: Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.shared.io.now_ms()
    }

    /// The log: durable mark, kicks, statistics.
    pub fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    /// The storage-class memory that its folder lies on; `None`: it lies on a drive.
    pub fn scm(&self) -> Option<&Scm> {
        self.shared.io.scm()
    }

    /// Figures of the heap's home; `None`: it is in a file.
    pub fn home_stats(&self) -> Option<HomeStats> {
        self.shared.heap.home().map(|home| home.stats())
    }

    /// Sets the thresholds of the collections' encodings.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.set_limits(limits);
    }

    /// Sets how values are compressed that are written, frozen or moved by the cleaner from now on.
    pub fn set_compression(&self, setting: CompressionSetting) {
        self.shared.compression.set(setting);
    }

    /// Sets what is kept of the uses of keys.
    pub fn keep_uses(&self, uses: Uses) {
        self.shared.set_uses(uses);
    }

    /// Has transactions that begin from now on note what they do to keys. Where they do not end with
    /// [`crate::Txn::commit_then`], [`Store::follow_changes`] is told.
    pub fn want_changes(&self, wanted: ChangeFilter) {
        self.shared.following.want(wanted);
    }

    /// Has `follow` told what transactions did, maintenance included. Works once.
    pub fn follow_changes(&self, follow: Follow) {
        self.shared.following.set_follow(follow);
    }

    /// Makes everything durable and takes a last checkpoint, so that the next start has nothing to replay. Nothing may be
    /// written after it.
    pub fn close(&self) -> Result<()> {
        self.stop();
        self.maintenance.checkpoint()?;
        self.shared.log.close()?;
        if self.fills_without_redo {
            filling::end(&*self.shared.io)?;
        }
        in_use::end(&*self.shared.io)
    }

    /// Makes everything durable, ends all threads and lets another process have the folder, as quickly as that goes: that one replays what
    /// came since the last checkpoint. Nothing may be done with the store after it. Returns where the log ends.
    pub fn let_go(&self) -> Result<Lsn> {
        self.stop();
        let closed = self.shared.log.close();
        self.shared.io.unlock();
        closed.map(|()| self.shared.log.tail())
    }

    fn stop(&self) {
        if let Some(Threads { log, maintenance, freezer, trainer }) = self.threads.lock().take() {
            trainer.stop();
            freezer.stop();
            maintenance.stop();
            drop(log);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}
