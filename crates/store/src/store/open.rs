//! Opening: a data folder is made, or the last checkpoint is opened and the log behind it replayed.

use super::{
    heap::{AtHome, Opened, move_heap, place_heap},
    options::{Options, Recovery, check_home, check_options, log_options},
};
use crate::{
    cache::pool::Pool,
    engine::Engine,
    format::{
        EPOCH, HEAP,
        bytes_written::BytesWritten,
        compress::Compression,
        creating,
        dictionary::Dictionaries,
        filling, in_use,
        payload::Changes,
        redo_file,
        superblock::{self, Superblock},
    },
    maintenance::{
        Maintenance,
        backup::Backups,
        checkpoint::{Checkpoints, Interval},
        cleaner::Cleaner,
        clock::ClockMarks,
        disk::DiskBudget,
        eviction::Evictions,
        expiry::Expiry,
        freezer::Freezer,
    },
    partition::{
        Partition,
        budget::Budget,
        databases::{DATABASES, SYSTEM_DATABASE},
        index::HandleMemory,
        shared::Shared,
    },
    util::lock::Lock,
};
use holdfast_heap::{Arena, Heap, HeapOptions, SortedRedo};
use holdfast_io::{Error, File, Io, Result, crc32c, in_parallel};
use holdfast_log::{Cursor, Log, Lsn, Replayed, Step, Unended};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

/// Opens the folder that is there, or makes it if there is none or it was not completed.
pub(crate) fn open(io: Arc<dyn Io>, options: Options) -> Result<(Maintenance, Recovery)> {
    let files = io.list("").map_err(|e| Error::io("list the data folder", e))?;
    let has = |name: &str| files.iter().any(|f| f == name);
    let is_unfinished = match has(creating::FILE) {
        true => creating::is_unfinished(&*io)?,
        false => !has(superblock::FILE),
    };
    check_home(&options, &*io)?;
    filling::refuse(&*io)?;
    if !is_unfinished {
        let recovered = recover(io.clone(), options)?;
        if has(creating::FILE) && !io.is_read_only() {
            creating::end(&*io)?;
        }
        Ok(recovered)
    } else if io.is_read_only() {
        Err(Error::Unusable("the data folder was never completed: a start makes it anew".into()))
    } else {
        let in_place = options.home.is_some();
        let mut maintenance = create(io.clone(), Options { home: None, ..options.clone() })?;
        if in_place {
            drop(maintenance);
            maintenance = recover(io, options)?.0;
        }
        Ok((maintenance, Recovery { created: true, ..Recovery::default() }))
    }
}

/// Makes a new data folder, where an earlier start may have left one unfinished. Other files that lie there stay.
fn create(io: Arc<dyn Io>, options: Options) -> Result<Maintenance> {
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
    // Where there is one, it is opened.
    if let Some(below) = io.below().filter(|_| options.heap_below) {
        below.open(HEAP, true).map_err(failed("create heap"))?;
    }
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
        segment_size: options.segment_size(&*io),
        checkpoint_lsn: 0,
        durable_lsn: 0,
        heap: *finished.root(),
        home: None,
        known_since_ms: io.now_ms(),
        written: BytesWritten::default(),
        history: [0; 16],
        epoch: EPOCH,
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
    let wrote = creating::WRITE_BYTES + superblock::WRITE_BYTES + in_use::begin(&*io)?;
    assemble(io, (log, heap, arenas), (superblock, file, wrote), &mut Recovery::default(), &options)
}

fn recover(io: Arc<dyn Io>, options: Options) -> Result<(Maintenance, Recovery)> {
    let mut report = Recovery::default();
    let file = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e))?;
    let copies = Superblock::read(&*file)?;
    let mut superblock = copies.newest.clone();
    if superblock.known_since_ms == 0 {
        superblock.known_since_ms = io.now_ms();
    }
    let options = Options { partitions: superblock.partitions, ..options };
    let mends = !io.is_read_only();
    if let Some((offset, what)) = copies.damaged() {
        let healed = if mends { "healed from the other copy" } else { "the other copy is sound" };
        report.notes.push(format!("{} at offset {offset}: {what}; {healed}", superblock::FILE));
    }
    if mends {
        place_heap(&*io, options.heap_below && superblock.home.is_none())?;
    }
    // What is only read, or may be torn, is checked as a whole.
    let is_checked = !mends || in_use::is_copy(&*io).unwrap_or(true);
    let by_redo = !is_checked && superblock.home.is_none() && options.replication.is_none();
    let (opened, replayed) = match replay(&io, &superblock, &options, by_redo) {
        Err(_) if by_redo => replay(&io, &superblock, &options, false)?,
        replayed => replayed?,
    };
    let (finished, replayed) = thread::scope(|scope| {
        let finish = thread::Builder::new().name("holdfast-open".to_owned());
        let finish = finish.spawn_scoped(scope, || opened.finish());
        let finish = finish.map_err(|e| Error::io("start the thread holdfast-open", e))?;
        let replayed = replayed.end()?;
        Ok((finish.join().expect("panics abort"), replayed))
    })?;
    let (heap, arenas) = finished?;
    report.replayed_bytes = replayed.report.bytes;
    report.replayed_batches = replayed.report.batches;
    report.notes.extend(replayed.report.cut.as_ref().map(|cut| {
        let was_cut = if mends { "was cut" } else { "that a start cuts" };
        format!("{} at offset {}: a torn tail of {} bytes {was_cut}", cut.file, cut.offset, cut.bytes)
    }));
    // Nothing was written so far: what is refused stays as it is. The superblock comes first, since what is written then may
    // leave nothing of the generation of an older copy.
    let mut wrote = 0;
    if mends {
        wrote = copies.heal(&*file)?;
        if copies.are_old {
            // Before anything else: a version that cannot read what is written from now on is to refuse the folder.
            superblock.write(&*file)?;
            wrote += superblock::WRITE_BYTES;
        }
    }
    let log = replayed.open()?;
    let (heap, arenas) = match superblock.home == options.home || !mends {
        true => (heap, arenas),
        false => {
            wrote += superblock::WRITE_BYTES;
            move_heap(&io, &log, (heap, arenas), (&mut superblock, &*file), &options)?
        }
    };
    if mends {
        wrote += in_use::begin(&*io)?;
    }
    let superblock = (superblock, file, wrote);
    let maintenance = assemble(io, (log, heap, arenas), superblock, &mut report, &options)?;
    Ok((maintenance, report))
}

/// Replays the log behind the last checkpoint; if `by_redo`, by what is condensed of it, and the rest of the log.
///
/// # Errors
/// If `by_redo`, it may only be that what is condensed is of another log.
fn replay(
    io: &Arc<dyn Io>,
    superblock: &Superblock,
    options: &Options,
    by_redo: bool,
) -> Result<(Opened, Unended)> {
    let mut opened = Opened::open(io, superblock, options)?;
    let condensed = match by_redo {
        true => redo_file::read(&**io, superblock, |redo| opened.apply_condensed(redo))?,
        false => None,
    };
    let is_another = || Error::Unusable("it is not the log that was condensed".into());
    let has_redo = opened.has_redo;
    let sort = |batches: &mut dyn Iterator<Item = (Lsn, &[u8])>| {
        let (mut sorted, mut changes) = (SortedRedo::default(), Changes::default());
        for (lsn, bytes) in batches {
            // The last batch again, so that it is sure that the log is the one that was condensed.
            if condensed.is_some_and(|covered| covered.last == lsn && covered.last_crc != crc32c(bytes)) {
                return Err(is_another());
            }
            if has_redo {
                changes.sort(lsn, bytes, &mut sorted)?;
            }
        }
        Ok(sorted)
    };
    let &Superblock { checkpoint_lsn, durable_lsn, .. } = superblock;
    let (from, to) = condensed.map_or((checkpoint_lsn, 0), |covered| (covered.last, covered.to));
    let log_options = log_options(superblock, options);
    let from = (checkpoint_lsn, from);
    let replayed = Log::replay_prepared(io.clone(), log_options, from, durable_lsn, sort, |_, sorted| {
        opened.apply_sorted(sorted)
    })?;
    if replayed.tail() < to {
        return Err(is_another());
    }
    Ok((opened, replayed))
}

/// Opens the folder of a log that somebody else has open and stores to, with all of it applied that is durable. Returns the cursor that reads what
/// comes next, too, and the term of the last batch.
pub(crate) fn follow(
    io: Arc<dyn Io>,
    log: Arc<Log>,
    options: &Options,
) -> Result<(Maintenance, Recovery, (Cursor, u32))> {
    let file = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e))?;
    let superblock = Superblock::read(&*file)?.newest;
    // The pages of the heap may be of batches up to there.
    log.agree(superblock.durable_lsn);
    let options = Options { partitions: superblock.partitions, ..options.clone() };
    let mut opened = Opened::open(&io, &superblock, &options)?;
    let (mut cursor, mut epoch, mut replayed) = (log.cursor(superblock.checkpoint_lsn), superblock.epoch, 0);
    loop {
        match cursor.step()? {
            Step::Batch(batch) => {
                opened.replay(batch.lsn, batch.payload)?;
                (epoch, replayed) = (batch.epoch, replayed + 1);
            }
            Step::End => break,
            Step::Overrun => return Err(Error::Unusable("what is to be replayed was freed".into())),
        }
    }
    let (heap, arenas) = opened.follow()?;
    let wrote = in_use::begin(&*io)?;
    let mut report = Recovery { replayed_batches: replayed, ..Recovery::default() };
    let superblock = (superblock, file, wrote);
    let maintenance = assemble(io, (log, heap, arenas), superblock, &mut report, &options)?;
    Ok((maintenance, report, (cursor, epoch)))
}

/// Reads the log of a folder, and nothing else of it: for a server that stores what another one appends. Calls `f` with the LSN and the
/// payload of each batch behind the last checkpoint.
///
/// # Errors
/// The folder is damaged, or none; whatever `f` returns.
pub fn replay_log(
    io: Arc<dyn Io>,
    options: &Options,
    f: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<Replayed> {
    filling::refuse(&*io)?;
    let file = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e))?;
    let superblock = Superblock::read(&*file)?.newest;
    let Superblock { checkpoint_lsn, durable_lsn, .. } = superblock;
    Log::replay(io, log_options(&superblock, options), checkpoint_lsn, durable_lsn, f)
}

/// Opens the partitions, some at once: each waits for a few reads first.
fn open_partitions(
    arenas: Vec<Arena>,
    pool: &Arc<Pool>,
    index_memory: &Arc<HandleMemory>,
) -> Result<Box<[Lock<Partition>]>> {
    const THREADS: usize = 8;
    let open = |(number, arena)| {
        let opened = Partition::open(number, arena, pool.clone(), index_memory.clone());
        opened.map(Lock::new).map_err(|what| Error::corrupt(HEAP, 0, what))
    };
    let numbered = (0..).zip(arenas).collect();
    in_parallel("holdfast-open", THREADS, numbered, open).map(Vec::into_boxed_slice)
}

/// A store of these parts. `wrote`: bytes of the superblock and beside it that this start has written. `report` has what was replayed, and is told of
/// dictionaries that are damaged.
fn assemble(
    io: Arc<dyn Io>,
    (log, heap, arenas): (Arc<Log>, Arc<Heap>, Vec<Arena>),
    (superblock, file, wrote): (Superblock, Arc<dyn File>, u64),
    report: &mut Recovery,
    options: &Options,
) -> Result<Maintenance> {
    let dictionaries = Dictionaries::read(&*io, superblock.store_id, &mut report.notes)?;
    let (max, keeps_copies) = (options.memory_bytes_max, options.keeps_copies);
    let budget = Budget::new(heap.clone(), options.process, arenas.len(), max, keeps_copies);
    let compression = Compression::new(options.compression);
    compression.set_dictionaries(dictionaries);
    if let Some(home) = heap.home() {
        log.join(Arc::new(AtHome(home.clone())));
    }
    let shared = Shared::new(io, log, heap, superblock.secret(), budget, compression);
    let shared = Arc::new(shared);
    let partitions = open_partitions(arenas, &Arc::default(), &shared.budget.index_memory())?;
    for logical in 0..DATABASES as u8 {
        let physical = partitions[0].lock().database_map(logical);
        if physical >= SYSTEM_DATABASE {
            return Err(Error::corrupt(HEAP, 0, format!("database {logical} is mapped to {physical}")));
        }
        shared.databases.set(logical, physical);
    }
    let Options { checkpoint_bytes: bytes_min, checkpoint_batches: batches_max, log_bytes_max, .. } =
        *options;
    let cleaner = Cleaner::new(u64::from(superblock.segment_size), log_bytes_max);
    // Who has no thread for it says himself when.
    let condensed_heap_min = if options.background { Interval::condenses_from(bytes_min) } else { 0 };
    let interval = Interval { bytes_min, batches_max, log_bytes_max, condensed_heap_min };
    let checkpoints = Checkpoints::new(superblock, file, wrote, report.replayed_batches, interval);
    checkpoints.counters.complete_ms.store(shared.io.now_ms(), Relaxed);
    let maintenance = Maintenance {
        engine: Engine::new(shared, partitions),
        checkpoints,
        cleaner,
        disk: DiskBudget::new(options.disk_bytes_max),
        evictions: Evictions::default(),
        expiry: Expiry::default(),
        freezer: Freezer::default(),
        backups: Backups::default(),
        clock_marks: ClockMarks::default(),
    };
    let Maintenance { engine, checkpoints, disk, .. } = &maintenance;
    if !engine.shared.io.is_read_only() {
        let redo = engine.shared.io.open(redo_file::FILE, false).and_then(|file| file.len());
        engine.counters.redo_file_bytes.store(redo.unwrap_or_default(), Relaxed);
        if engine.shared.log.tail() == checkpoints.lsn() {
            checkpoints.begin_condensing(engine);
        }
        disk.fit(engine)?;
    }
    Ok(maintenance)
}
