//! The store: opening, recovery, transactions and what else its user calls.

use crate::{
    access::Uses,
    ahead::Expected,
    background::Background,
    chunk::Pool,
    collections::Limits,
    creating,
    digest::{Digest, SLOTS, hash_slot},
    eviction::Evictions,
    freezer::{self, Hand},
    item, maintenance,
    memory::{Budget, Memory, Process},
    partition::{DATABASES, Partition, SYSTEM_DATABASE},
    payload::{self, Next},
    shared::Shared,
    stats::Counters,
    steps::Steps,
    superblock::{self, Superblock},
    txn::{Begun, Cold, Fetched, Growth, Txn},
    word::{Word, size_class},
};
use holdfast_heap::{Arena, Heap, HeapOptions};
use holdfast_io::{Error, File, Io, RealIo, Result};
use holdfast_log::{Appendfsync, Log, LogOptions, LogThread, Lsn};
use parking_lot::Mutex;
use std::{
    path::Path,
    process,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// How a store is opened. The geometry (partitions, segment size) is fixed when the data folder is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Partitions: a power of two up to 1024.
    pub partitions: u16,
    /// Bytes of a log segment, a power of two, at least 64 KiB; `None`: 32 MiB, or less if the log or the
    /// medium is small.
    pub segment_size: Option<u32>,
    /// Bytes of log on the medium at most; at least eight segments.
    pub log_bytes_max: u64,
    /// Bytes of heap at most.
    pub heap_bytes_max: u64,
    /// Bytes of RAM that the store may take: the heap and what goes with it, and what is left for copies of items.
    pub memory_bytes_max: usize,
    /// If all RAM of the process counts against `memory_bytes_max`: copies of items then yield to what else the process holds.
    pub process: Option<Process>,
    /// When writes are made durable.
    pub appendfsync: Appendfsync,
    /// Bytes of log after which a checkpoint is taken, at least.
    pub checkpoint_bytes: u64,
    /// Batches after which one is taken, if they are more bytes than the heap has.
    pub checkpoint_batches: u64,
    /// Threads for commits and maintenance. Without them, the caller drives both (for tests).
    pub background: bool,
    /// Ends the process when a page of the heap that is needed cannot be read or is damaged; see [`Heap::on_unreadable`].
    pub on_unreadable: fn(&Error) -> !,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            partitions: 64,
            segment_size: None,
            log_bytes_max: u64::MAX,
            heap_bytes_max: 64 << 30,
            memory_bytes_max: usize::MAX,
            process: None,
            appendfsync: Appendfsync::Always,
            checkpoint_bytes: 128 << 20,
            // A start replays so many in some 0.2 s.
            checkpoint_batches: 600_000,
            background: true,
            on_unreadable: |error| {
                eprintln!("{error}");
                process::abort()
            },
        }
    }
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Whether the data folder was made by this start.
    pub created: bool,
    /// Bytes of log replayed.
    pub replayed_bytes: u64,
    /// Batches replayed.
    pub replayed_batches: u64,
    /// Microseconds from opening to serving.
    pub us: u64,
    /// A torn tail that was cut, or a damaged superblock that was healed, unless the store is only read: file, offset, what.
    pub notes: Vec<String>,
}

/// An open store. Share it by `Arc`; every method takes `&self`.
pub struct Store {
    shared: Arc<Shared>,
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Option<Threads>>,
    recovery: Recovery,
}

struct Threads {
    log: LogThread,
    maintenance: Background,
    freezer: Background,
}

/// What the maintenance thread shares with the store's user.
pub(crate) struct Inner {
    pub shared: Arc<Shared>,
    pub partitions: Box<[Mutex<Partition>]>,
    pub steps: Steps,
    pub growth: Growth,
    /// The bits of a hash slot below those that name its partition.
    partition_shift: u32,
    pub superblock: Mutex<(Superblock, Arc<dyn File>)>,
    /// The superblock's checkpoint LSN, to be read while a checkpoint has that locked.
    pub checkpoint_lsn: AtomicU64,
    /// How many batches the log had written at the last checkpoint, less than none if before it was opened.
    pub checkpoint_batches: AtomicU64,
    pub counters: Counters,
    pub evictions: Evictions,
    /// Where freezing goes on.
    pub hand: Mutex<Hand>,
    pub options: Options,
    /// Bytes of a log segment.
    pub segment_size: u64,
    /// Whether a burst of cleaning goes on.
    pub is_cleaning: AtomicBool,
    /// Whether expired keys are looked for; else they go when somebody looks at them.
    pub expires_actively: AtomicBool,
    /// Until when they are not looked for all the same: Unix time in milliseconds.
    pub expiry_held_until: AtomicU64,
    /// A checkpoint was asked for.
    pub checkpoint_wanted: AtomicBool,
    /// The cleaner cannot make room for a batch of so many bytes or more.
    pub no_room: AtomicU64,
    /// Bytes of the largest batch that was refused since the cleaner looked, and waits for room.
    pub wanted_room: AtomicU64,
    /// Whether all entries are counted into the log's live bytes.
    pub is_attached: AtomicBool,
    /// The maintenance thread, if there is one.
    pub maintenance: OnceLock<Thread>,
}

impl Store {
    /// Opens the store in a folder, making it if it is empty. One process at a time.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Store> {
        let io = RealIo::new(dir.as_ref())?;
        io.lock()?;
        Store::open_on(Arc::new(io), options)
    }

    /// Opens the store in a folder as it is: nothing there is written or mended, no thread runs, and nothing can be committed.
    pub fn open_read_only(dir: impl AsRef<Path>, options: Options) -> Result<Store> {
        let io = RealIo::read_only(dir.as_ref());
        io.lock()?;
        Store::open_on(Arc::new(io), Options { background: false, ..options })
    }

    /// Opens the store on a machine, real or simulated.
    pub fn open_on(io: Arc<dyn Io>, options: Options) -> Result<Store> {
        let started = Instant::now();
        let files = io.list("").map_err(|e| Error::io("list the data folder", e))?;
        let has = |name: &str| files.iter().any(|f| f == name);
        let is_unfinished = match has(creating::FILE) {
            true => creating::is_unfinished(&*io)?,
            false => !has(superblock::FILE),
        };
        let (inner, mut recovery) = if !is_unfinished {
            let recovered = recover(io.clone(), options)?;
            if has(creating::FILE) && !io.is_read_only() {
                creating::end(&*io)?;
            }
            recovered
        } else if io.is_read_only() {
            return Err(Error::Unusable("the data folder was never completed: a start makes it anew".into()));
        } else {
            (create(io, options)?, Recovery { created: true, ..Recovery::default() })
        };
        recovery.us = started.elapsed().as_micros() as u64;
        let inner = Arc::new(inner);
        let grown = Arc::downgrade(&inner);
        inner.shared.heap.on_growth(Box::new(move || {
            grown.upgrade().inspect(|inner| inner.note_growth());
        }));
        let threads = match inner.options.background {
            true => Some(Threads {
                log: inner.shared.log.start_thread()?,
                maintenance: maintenance::start(inner.clone()),
                freezer: freezer::start(inner.clone()),
            }),
            false => None,
        };
        Ok(Store { shared: inner.shared.clone(), inner, threads: Mutex::new(threads), recovery })
    }

    /// What the start found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The database that a client knows by a number: SWAPDB exchanges them. All other methods want what this returns.
    pub fn database(&self, logical: u8) -> u8 {
        self.shared.databases.physical(logical)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.inner.partitions.len() as u16
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: &[u8]) -> u16 {
        self.inner.partition_of(key)
    }

    /// What is derived from a key.
    #[inline]
    pub fn derive(&self, key: &[u8]) -> Expected {
        Expected { partition: self.partition_of(key), digest: self.shared.secret.digest(key), slot: None }
    }

    /// The time: Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.shared.io.now_ms()
    }

    /// Begins a transaction over partitions, given in ascending order without repetition.
    pub fn begin(&self, partitions: &[u16]) -> Txn<'_> {
        Txn::begin(&self.inner, partitions, self.shared.io.now_ms())
    }

    /// As [`Store::begin`], unless one of them is [held for long](Txn::hold_long).
    pub fn try_begin(&self, partitions: &[u16]) -> Begun<'_> {
        Txn::try_begin(&self.inner, partitions, self.shared.io.now_ms())
    }

    /// Begins a transaction over the partition of one key, at a time that the caller has looked up (Unix time in
    /// milliseconds), unless that is [held for long](Txn::hold_long). What is derived from the key is derived once.
    #[inline]
    pub fn try_begin_key<'s>(&'s self, key: &'s [u8], now_ms: u64) -> Begun<'s> {
        self.try_begin_expected(key, self.derive(key), now_ms)
    }

    /// As [`Store::try_begin_key`], for a key that was expected.
    #[inline]
    pub fn try_begin_expected<'s>(&'s self, key: &'s [u8], expected: Expected, now_ms: u64) -> Begun<'s> {
        debug_assert!(expected.digest == self.shared.secret.digest(key), "another key was expected");
        Txn::try_begin_key(&self.inner, key, expected, now_ms)
    }

    /// Begins a transaction over the partitions of some keys.
    pub fn begin_keys<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Txn<'_> {
        self.begin(&self.partitions_of(keys))
    }

    /// As [`Store::begin_keys`], unless one of them is [held for long](Txn::hold_long).
    pub fn try_begin_keys<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Begun<'_> {
        self.try_begin(&self.partitions_of(keys))
    }

    /// The partitions of some keys, in ascending order without repetition.
    pub fn partitions_of<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<u16> {
        let mut partitions: Vec<u16> = keys.into_iter().map(|key| self.partition_of(key)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// Begins a transaction over all partitions.
    pub fn begin_all(&self) -> Txn<'_> {
        self.begin(&self.all_partitions())
    }

    /// As [`Store::begin_all`], unless one is [held for long](Txn::hold_long).
    pub fn try_begin_all(&self) -> Begun<'_> {
        self.try_begin(&self.all_partitions())
    }

    fn all_partitions(&self) -> Vec<u16> {
        (0..self.partitions()).collect()
    }

    /// Reads an item that a transaction found cold. Blocks on the medium; call it without a transaction open.
    pub fn fetch(&self, cold: Cold) -> Fetched {
        let counters = &self.inner.counters;
        let (counter, read) = match cold.key_of {
            None => (&counters.fetched, self.inner.read_item(cold)),
            Some(digest) => (&counters.fetched_keys, self.inner.read_key(cold, digest)),
        };
        counter.fetch_add(1, Relaxed);
        Fetched { cold, bytes: read.map_err(|e| e.to_string()) }
    }

    pub(crate) fn wake_maintenance(&self) {
        self.inner.wake_maintenance();
    }

    /// The log: durable mark, kicks, statistics.
    pub fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    /// Counts all entries into the log's live bytes, as [`Store::clean`] needs it. The maintenance thread does so itself.
    pub fn attach(&self) {
        self.inner.attach_all();
    }

    /// Takes a checkpoint: a later start replays the log from here on only.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint()
    }

    /// Asks the maintenance thread for a checkpoint of all that is written so far, and returns its number for
    /// [`Store::checkpoint_result`].
    pub fn request_checkpoint(&self) -> u64 {
        let number = self.inner.counters.checkpoints.begun.load(SeqCst) + 1;
        self.inner.checkpoint_wanted.store(true, SeqCst);
        self.wake_maintenance();
        number
    }

    /// Whether expired keys are looked for all the time, as they are unless told otherwise, or only removed when somebody
    /// looks at them.
    pub fn set_active_expiry(&self, on: bool) {
        self.inner.expires_actively.store(on, Relaxed);
    }

    /// Does not look for expired keys for a while; see [`Txn::keep_expired`].
    pub fn hold_active_expiry(&self, while_: Duration) {
        let until = self.now_ms().saturating_add(while_.as_millis() as u64);
        self.inner.expiry_held_until.store(until, Relaxed);
    }

    /// Frees the segments that nothing needs, or empties one if garbage takes too much space; whether there was anything to
    /// do. Nothing until all entries are counted.
    pub fn clean(&self) -> Result<bool> {
        self.inner.clean()
    }

    /// Frees a slice of what was flushed or removed and takes long to free, in each partition; whether there may be more. The
    /// maintenance thread does so itself.
    pub fn sweep(&self) -> bool {
        self.inner.sweep()
    }

    /// Forgets the copies of values in the cache, so that they are read from the medium when they are wanted next, but not
    /// in partitions that are [held for long](Txn::hold_long).
    pub fn forget_copies(&self) {
        for number in 0..self.partitions() {
            if let Ok(mut part) = self.inner.try_lock(number) {
                part.forget_copies(&self.shared);
            }
        }
    }

    /// Sets the thresholds of the collections' encodings.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.set_limits(limits);
    }

    /// Sets what is kept of the uses of keys.
    pub fn keep_uses(&self, uses: Uses) {
        self.shared.set_uses(uses);
    }

    /// Sets the RAM that the store may take, in bytes. May be called with partitions locked.
    pub fn set_memory_bytes_max(&self, bytes: usize) {
        self.shared.budget.set_max(bytes);
        self.shared.budget.set_in_vain(false);
        self.shared.log.set_max_pending_bytes(max_pending_bytes(bytes));
        self.shared.budget.can_freeze.store(self.inner.options.background, Relaxed);
        self.inner.judge_memory();
        self.inner.evictions.look_soon();
        if let Some(threads) = &*self.threads.lock() {
            threads.freezer.thread().unpark();
            threads.maintenance.thread().unpark();
        }
    }

    /// Whether there is memory for data to grow.
    #[inline]
    pub fn memory(&self) -> Memory {
        match self.shared.budget.memory() {
            Memory::Out => self.memory_now(),
            other => other,
        }
    }

    /// The same, when there was none a moment ago: data may have been removed since, and be on its way out.
    #[cold]
    fn memory_now(&self) -> Memory {
        if self.inner.evictions.are_on() {
            return Memory::Out;
        }
        self.inner.judge_memory();
        match self.shared.budget.memory() {
            Memory::Out if self.inner.options.background && self.shared.is_sweeping() => {
                self.wake_maintenance();
                Memory::Busy
            }
            memory => memory,
        }
    }

    /// Whether data should not grow, since it takes more memory than the store may have, and none of it can be frozen or
    /// evicted. See [`Store::make_room`].
    pub fn is_out_of_memory(&self) -> bool {
        self.memory() == Memory::Out
    }

    /// Bytes of memory that data take, without copies that can be given up at any time, and that they may take. Locks no
    /// partition.
    pub fn memory_of_data(&self) -> (usize, usize) {
        (self.inner.ram_of_data().data, self.shared.budget.max())
    }

    /// Makes everything durable and takes a last checkpoint, so that the next start has nothing to replay. Nothing may be
    /// written after it.
    pub fn close(&self) -> Result<()> {
        self.stop();
        self.inner.checkpoint()?;
        self.shared.log.close()
    }

    fn stop(&self) {
        if let Some(Threads { log, maintenance, freezer }) = self.threads.lock().take() {
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

const HEAP: &str = "heap";

/// Segments that a log may have at least: some are being written, cleaned and made ready.
const SEGMENTS_MIN: u64 = 8;
/// And at most.
const SEGMENTS_MAX: u64 = 1 << 20;
/// Segments that a log of limited size is made of, unless that makes them too small or too large: what is written to, kept
/// for cleaning and not yet clean is a small part of so many.
const SEGMENTS: u64 = 512;
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

impl Options {
    fn segment_size(&self, medium: u64) -> u32 {
        let log = self.log_bytes_max.min(medium);
        let fitting = (log / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        self.segment_size.unwrap_or(1 << fitting.ilog2())
    }
}

/// The log's term. There is one server, and so one term.
const EPOCH: u32 = 1;

fn log_options(superblock: &Superblock, options: &Options) -> LogOptions {
    let segments = options.log_bytes_max / u64::from(superblock.segment_size);
    LogOptions {
        segment_size: superblock.segment_size,
        max_segments: segments.clamp(SEGMENTS_MIN, SEGMENTS_MAX) as u32,
        store_id: superblock.store_id,
        epoch: EPOCH,
        crc_seed: superblock.crc_seed(),
        appendfsync: options.appendfsync,
        max_pending_bytes: max_pending_bytes(options.memory_bytes_max),
    }
}

/// Bytes that may wait for the log to be written, of the RAM that the store may take (I-7).
fn max_pending_bytes(memory_bytes_max: usize) -> usize {
    (memory_bytes_max / 16).clamp(1 << 20, 64 << 20)
}

fn check_options(o: &Options) -> Result<()> {
    let wrong = if !o.partitions.is_power_of_two() || o.partitions > 1024 {
        "partitions must be a power of two up to 1024"
    } else if o.segment_size.is_some_and(|size| !size.is_power_of_two() || size < 64 << 10) {
        "the segment size must be a power of two of at least 64 KiB"
    } else {
        return Ok(());
    };
    Err(Error::Unusable(wrong.into()))
}

/// Makes a new data folder, where an earlier start may have left one unfinished. Other files that lie there stay.
fn create(io: Arc<dyn Io>, options: Options) -> Result<Inner> {
    check_options(&options)?;
    let failed = |what: &'static str| move |e| Error::io(what, e);
    let unfinished = creating::unfinished(&*io)?;
    let mut ids = [0; 32];
    io.random(&mut ids);
    let store_id = unfinished.unwrap_or(ids[..16].try_into().expect("sixteen bytes"));
    let files = io.list("").map_err(failed("list the data folder"))?;
    let left = || [HEAP, superblock::FILE].into_iter().filter(|name| files.iter().any(|file| file == name));
    if unfinished.is_some() {
        Log::remove_unfinished(&*io, store_id)?;
        for name in left() {
            io.remove(name).map_err(failed("remove what an unfinished start left"))?;
        }
    } else if left().next().is_some() {
        return Err(Error::Unusable("the data folder has a heap but no superblock".into()));
    } else if !io.list("log").map_err(failed("list the data folder"))?.is_empty() {
        return Err(Error::Unusable("the data folder has a log but no superblock".into()));
    }
    creating::begin(&*io, store_id)?;
    let file = io.open(HEAP, true).map_err(failed("create heap"))?;
    let heap_options = HeapOptions { max_bytes: options.heap_bytes_max, arenas: options.partitions };
    let (heap, mut arenas) = Heap::create(file, heap_options)?;
    heap.on_unreadable(options.on_unreadable);
    let mut checkpoint = heap.begin_checkpoint();
    for arena in &mut arenas {
        while checkpoint.copy(arena, 1 << 16) {}
    }
    checkpoint.write()?;
    let finished = checkpoint.finish()?;
    let mut superblock = Superblock {
        generation: 1,
        store_id,
        secret: ids[16..].try_into().expect("sixteen bytes"),
        partitions: options.partitions,
        segment_size: options.segment_size(io.free_bytes().ok().flatten().unwrap_or(u64::MAX)),
        checkpoint_lsn: 0,
        durable_lsn: 0,
        heap: *finished.root(),
    };
    let log = Log::create(io.clone(), log_options(&superblock, &options))?;
    superblock.checkpoint_lsn = log.tail();
    // Everything else is there for good when the superblock says so.
    io.sync_dir("").map_err(failed("create the data folder"))?;
    let file = io.open(superblock::FILE, true).map_err(failed("create superblock"))?;
    superblock.write(&*file)?;
    file.sync().map_err(failed("sync superblock"))?;
    io.sync_dir("").map_err(failed("create the data folder"))?;
    creating::end(&*io)?;
    finished.commit();
    Inner::new(io, log, heap, arenas, superblock, file, options)
}

fn recover(io: Arc<dyn Io>, options: Options) -> Result<(Inner, Recovery)> {
    let mut report = Recovery::default();
    let file = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e))?;
    let copies = Superblock::read(&*file)?;
    let superblock = copies.newest.clone();
    let options = Options { partitions: superblock.partitions, ..options };
    let mends = !io.is_read_only();
    if let Some((offset, what)) = copies.damaged() {
        let healed = if mends { "healed from the other copy" } else { "the other copy is sound" };
        report.notes.push(format!("{} at offset {offset}: {what}; {healed}", superblock::FILE));
    }
    let heap_file = io.open(HEAP, false).map_err(|e| Error::io("open heap", e))?;
    let heap_options = HeapOptions { max_bytes: options.heap_bytes_max, arenas: superblock.partitions };
    let (heap, mut redo) = Heap::open(heap_file, heap_options, &superblock.heap)?;
    heap.on_unreadable(options.on_unreadable);
    let mut items = Vec::new();
    let mut replay = |lsn: Lsn, bytes: &[u8]| -> Result<()> {
        items.clear();
        let mut at = 0;
        while at < bytes.len() {
            at += match payload::next(&bytes[at..]).map_err(|what| corrupt_batch(lsn, what))? {
                Next::Padding => 1,
                Next::Redo => redo.apply(&bytes[at..])?,
                Next::Item(item, len) => {
                    if item.kind != item::CANCELLED {
                        let at = lsn + (holdfast_log::BATCH_HEADER + at) as u64;
                        items.push((item.slot, Word::item_bytes(at, size_class(len))));
                    }
                    len
                }
            };
        }
        // Last, because an entry may have moved after its item's record.
        items.iter().try_for_each(|(slot, location)| redo.write(*slot, location))
    };
    let log_options = log_options(&superblock, &options);
    let Superblock { checkpoint_lsn, durable_lsn, .. } = superblock;
    let replayed = Log::replay(io.clone(), log_options, checkpoint_lsn, durable_lsn, &mut replay)?;
    let arenas = redo.finish()?;
    report.replayed_bytes = replayed.report.bytes;
    report.replayed_batches = replayed.report.batches;
    report.notes.extend(replayed.report.cut.as_ref().map(|cut| {
        let was_cut = if mends { "was cut" } else { "that a start cuts" };
        format!("{} at offset {}: a torn tail of {} bytes {was_cut}", cut.file, cut.offset, cut.bytes)
    }));
    // Nothing was written so far: what is refused stays as it is. The superblock comes first, since what is written then may
    // leave nothing of the generation of an older copy.
    if mends {
        copies.heal(&*file)?;
    }
    let log = replayed.open()?;
    let inner = Inner::new(io, log, heap, arenas, superblock, file, options)?;
    inner.checkpoint_batches.store(0u64.wrapping_sub(report.replayed_batches), Relaxed);
    Ok((inner, report))
}

/// Opens the partitions, some at once: each waits for a few reads first.
fn open_partitions(
    arenas: Vec<Arena>,
    pool: &Arc<Pool>,
    index_bytes: &Arc<AtomicUsize>,
) -> Result<Box<[Mutex<Partition>]>> {
    const THREADS: usize = 8;
    let share = arenas.len().div_ceil(THREADS);
    let mut numbered = (0..).zip(arenas);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        loop {
            let part: Vec<(u16, Arena)> = numbered.by_ref().take(share).collect();
            if part.is_empty() {
                break;
            }
            let open = |(number, arena)| {
                Partition::open(number, arena, pool.clone(), index_bytes.clone()).map(Mutex::new)
            };
            let open = move || part.into_iter().map(open).collect::<std::result::Result<Vec<_>, String>>();
            let spawned = thread::Builder::new().name("holdfast-open".to_owned()).spawn_scoped(scope, open);
            threads.push(spawned.map_err(|e| Error::io("start the thread holdfast-open", e))?);
        }
        let mut partitions = Vec::new();
        for thread in threads {
            let opened = thread.join().expect("panics abort");
            partitions.extend(opened.map_err(|what| Error::corrupt(HEAP, 0, what))?);
        }
        Ok(partitions.into_boxed_slice())
    })
}

pub(crate) fn corrupt_batch(lsn: Lsn, what: &str) -> Error {
    Error::corrupt("log", lsn, format!("batch at this LSN: {what}"))
}

impl Inner {
    pub fn wake_maintenance(&self) {
        if let Some(thread) = self.maintenance.get() {
            thread.unpark();
        }
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: &[u8]) -> u16 {
        hash_slot(key) >> self.partition_shift
    }

    /// Reads an item's record and checks it.
    pub fn read_item(&self, cold: Cold) -> Result<Vec<u8>> {
        let mut record = self.read_record(cold, cold.len_max)?;
        let (file, offset) = self.shared.log.locate(cold.lsn);
        let len = item::decode(&record).map_err(|what| Error::corrupt(&file, offset, what))?.1;
        record.truncate(len);
        Ok(record)
    }

    /// Reads the key of an item. Most of it may be the value, so what tells that the bytes are right is not the
    /// checksum, but the digest that the index has of the key.
    pub fn read_key(&self, cold: Cold, digest: Digest) -> Result<Vec<u8>> {
        /// Bytes that hold nearly all keys.
        const FIRST_LEN: usize = 4096;
        let mut bytes = self.read_record(cold, FIRST_LEN)?;
        let (file, offset) = self.shared.log.locate(cold.lsn);
        let key = item::key_range(&bytes).map_err(|what| Error::corrupt(&file, offset, what))?;
        if key.end > bytes.len() {
            bytes = self.read_record(cold, key.end)?;
        }
        let key = bytes.get(key).map(<[u8]>::to_vec).unwrap_or_default();
        if self.shared.secret.digest(&key).h0 != digest.h0 {
            return Err(Error::corrupt(&file, offset, "an item that is not its entry's"));
        }
        Ok(key)
    }

    /// Reads an item's record, or the first `len` bytes of it, perhaps with some of what lies behind it: of its length only
    /// the size class is known. Waits for one that the cleaner has just moved to be written.
    fn read_record(&self, cold: Cold, len: usize) -> Result<Vec<u8>> {
        let log = &self.shared.log;
        // Batches are written whole.
        log.wait_written(cold.lsn + 1)?;
        let written = (log.written() - cold.lsn) as usize;
        let mut bytes = vec![0; len.min(cold.len_max).min(written)];
        let read = log.read(cold.lsn, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn new(
        io: Arc<dyn Io>,
        log: Arc<Log>,
        heap: Arc<Heap>,
        arenas: Vec<Arena>,
        superblock: Superblock,
        file: Arc<dyn File>,
        options: Options,
    ) -> Result<Inner> {
        let budget = Budget::new(heap.clone(), arenas.len(), options.memory_bytes_max);
        let shared = Arc::new(Shared::new(io, log, heap, superblock.secret(), budget));
        let pool = Arc::new(Pool::default());
        let partitions = open_partitions(arenas, &pool, &shared.budget.index_counter())?;
        let partition_shift = (SLOTS / partitions.len()).ilog2();
        let growth = Growth::new(partitions.len());
        let segment_size = u64::from(superblock.segment_size);
        let checkpoint_lsn = AtomicU64::new(superblock.checkpoint_lsn);
        let superblock = Mutex::new((superblock, file));
        let counters = Counters::default();
        counters.checkpoints.complete_ms.store(shared.io.now_ms(), Relaxed);
        for logical in 0..DATABASES as u8 {
            let physical = partitions[0].lock().database_map(logical);
            if physical >= SYSTEM_DATABASE {
                return Err(Error::corrupt(HEAP, 0, format!("database {logical} is mapped to {physical}")));
            }
            shared.databases.set(logical, physical);
        }
        Ok(Inner {
            shared,
            partitions,
            steps: Steps::default(),
            growth,
            partition_shift,
            superblock,
            checkpoint_lsn,
            checkpoint_batches: AtomicU64::new(0),
            counters,
            evictions: Evictions::default(),
            hand: Mutex::default(),
            options,
            segment_size,
            is_cleaning: AtomicBool::new(false),
            expires_actively: AtomicBool::new(true),
            expiry_held_until: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            no_room: AtomicU64::new(u64::MAX),
            wanted_room: AtomicU64::new(0),
            is_attached: AtomicBool::new(false),
            maintenance: OnceLock::new(),
        })
    }
}
