//! The write-ahead log that is the database: batches, segments, group commit, replay.
//!
//! A batch is a payload of the caller's, written all or nothing (I-2). Threads [`Log::append`] batches to memory
//! without a lock; one thread commits them, one write at a time, and moves [`Log::durable`]. What the bytes on
//! the medium are is in `docs/format.md`; `buffer.rs` has the lock-free part, `commit.rs` the commit, `replay.rs`
//! what is done after a crash.

mod ahead;
mod appender;
mod batch_check;
mod buffer;
mod commit;
mod copy;
mod cursor;
mod groups;
mod layout;
mod live;
mod replay;
mod room;
mod salvage;
mod scan;
mod segments;
mod stats;
mod stock;
mod sync;
mod table;
mod thread;
mod window;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use holdfast_io::{BLOCK, Counts, Error, Io, LINE, ReadQueue, Result, SpreadFiles};
use parking_lot::{Condvar, Mutex, RwLock};

pub use copy::{LogIdentity, SegmentCopier, SegmentPlace, view_segment};
pub use cursor::{Cursor, CursorBatch, Pin, Step};
pub use groups::{GROUP_BYTES_MAX, Groups, SEAL};
pub use layout::{BATCH_ALIGN, BATCH_HEADER, FIRST_LSN, Lsn, batch_len};
pub use replay::{Cut, ReplayReport, Replayed, Unended};
pub use room::{Admission, Purpose, Reservation, SMALL_BYTES};
pub use salvage::{DamagedLog, DamagedReplay, FoundLog};
pub use scan::Scope;
pub use stats::{LogStats, LogWrites};
pub use table::FOLDER;
pub use thread::LogThread;

use crate::{
    appender::Appender, commit::Committer, layout::Entry, room::Room, segments::Segments, stats::Counters,
    table::Segment, thread::Sleeper,
};

/// Buffers are not larger than this.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// When a batch counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Appendfsync {
    /// Each commit is durable when it returns.
    Always,
    /// Commits are written at once, and made durable once a second.
    Everysec,
    /// Commits are written within a millisecond, and made durable when a segment is full, or on request.
    No,
}

/// How a log is made and run.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of a segment file; a power of two.
    pub segment_size: u32,
    /// Segment files at most, free ones included; at least 4, at most 2^20.
    pub max_segments: u32,
    /// Segment files at most in the folders above one that lies below, if there is such a one: what is older moves there.
    pub segments_above_max: u32,
    /// Written to each segment, so that files of different stores are not mixed up.
    pub store_id: [u8; 16],
    /// The term in which this server appends: 1 or more. A log that is shared must be of no later one; one that is not goes on in its own, if
    /// that is later.
    pub epoch: u32,
    /// Seeds the checksums of batches, so that nobody who does not know it can make one.
    pub crc_seed: u32,
    /// When a batch counts as durable.
    pub appendfsync: Appendfsync,
    /// Bytes appended and not yet written from which on [`Log::admit`] says `Busy`.
    pub max_pending_bytes: usize,
    /// Where another process has just ended the log in order, if that is known. If the log ends there, nothing is behind it, and it need not
    /// be looked for.
    pub ended_at: Option<Lsn>,
    /// Other servers have the log, too: everything below is known to be durable on as many of them as must have it, and only such counts as
    /// durable. This server stores what another one appends until [`Log::lead`]. `None`: it is this server's alone.
    pub agreed: Option<Lsn>,
}

/// The files of a log.
pub const FILES: SpreadFiles = SpreadFiles { folder: FOLDER, is_below: stock::is_below, other: None };

/// Who has something of its own to make durable along with the log.
pub trait Participant: Send + Sync {
    /// Makes durable what belongs to the batches below `end`, which count as durable once this returns. `write` writes those that are not
    /// written yet, and may be on the medium in part, or wholly, before; in storage-class memory its fence is for all that this thread has stored before. To be called once. Called by threads that commit, one
    /// at a time, who wait for it.
    ///
    /// # Errors
    /// The log fails then.
    fn commit(&self, end: Lsn, write: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}

/// How much of the medium a log takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUsage {
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that they may have, by [`LogOptions::max_segments`], [`Log::set_bytes_max`] and [`Log::set_open_files_max`].
    pub bytes_max: u64,
    /// What keeps it from growing, or will do so first.
    pub limited_by: Limit,
}

/// What limits a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`LogOptions::max_segments`].
    Options,
    /// [`Log::set_bytes_max`].
    Budget,
    /// The medium.
    Medium {
        /// Bytes that are free there, as far as it tells.
        free_bytes: Option<u64>,
    },
    /// The files that the process may have open.
    OpenFiles,
}

/// A kept segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its place in the log.
    pub seq: u64,
    /// The LSN at which it ends.
    pub end_lsn: Lsn,
    /// Bytes in it that [`Log::account`] counts as live.
    pub live_bytes: u64,
    /// Bytes of log written to it.
    pub bytes: u64,
    /// The batch that its first byte belongs to, and that which its last byte belongs to, if other segments share it.
    pub shared: [SharedBatch; 2],
    /// Number of its file.
    pub slot: u32,
}

/// A batch that a segment shares with others; of no bytes if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBatch {
    /// Bytes of it in the segment.
    pub within: u64,
    /// Bytes of it in the segments on the side where it is shared: before, or behind.
    pub beyond: u64,
}

impl SharedBatch {
    /// Of a segment from `start` to `end`, by how the log enters it, or (`behind`) the next one.
    fn new(entry: Option<Entry>, start: Lsn, end: Lsn, behind: bool) -> SharedBatch {
        let Some(Entry { crossing, first }) = entry else { return SharedBatch::default() };
        match behind {
            false if crossing < start => {
                SharedBatch { within: first.min(end) - start, beyond: start - crossing }
            }
            true if crossing < end => SharedBatch { within: end - crossing.max(start), beyond: first - end },
            _ => SharedBatch::default(),
        }
    }
}

/// An open log.
pub struct Log {
    io: Arc<dyn Io>,
    crc_seed: u32,
    max_pending: AtomicU64,
    /// Where this process began to append.
    opened_at: Lsn,
    /// See [`Log::freed_at`].
    freed_at: AtomicU64,
    appendfsync: AtomicU8,
    appender: Appender,
    segments: Segments,
    committer: Mutex<Committer>,
    /// Whether who has appended commits, rather than a thread of the log's: on storage-class memory that takes no longer than to wake
    /// one.
    commits_here: bool,
    /// Bytes that the medium is written in whole multiples of.
    unit: usize,
    written: AtomicU64,
    /// Where that ends which was written, or stored ahead of its commit.
    stored: AtomicU64,
    durable: AtomicU64,
    /// Everything below is durable on this server's medium.
    durable_here: AtomicU64,
    /// Everything below is durable on as many servers as must have it.
    agreed: AtomicU64,
    /// Other servers have it, too.
    is_shared: bool,
    /// Who shares with them what this server appends; none as long as another one does.
    groups: OnceLock<Weak<dyn Groups>>,
    participant: OnceLock<Arc<dyn Participant>>,
    /// Somebody waits for this LSN to become durable, whatever `appendfsync` says.
    sync_wanted: AtomicU64,
    room: Room,
    /// See [`room::slack`].
    slack: u64,
    /// A segment header says that everything below is durable.
    marked: AtomicU64,
    failed: OnceLock<String>,
    callbacks: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    waiting: Mutex<()>,
    progress: Condvar,
    /// Whether somebody has kicked since the last commit began.
    kicked: AtomicBool,
    /// What was appended waits for room.
    stuck: AtomicBool,
    committer_sleep: Sleeper,
    preparer_sleep: Sleeper,
    counters: Counters,
}

impl Log {
    /// Makes a new log in the data folder, which holds none.
    pub fn create(io: Arc<dyn Io>, o: LogOptions) -> Result<Arc<Log>> {
        o.check()?;
        replay::clear_folder(&*io, o.store_id)?;
        let segments = Segments::new(io.clone(), &o, Default::default(), Vec::new(), 0);
        if !segments.prepare_next(FIRST_LSN)? {
            return Err(Error::Unusable("no room for the first log segment".to_owned()));
        }
        Ok(Self::new(io, &o, segments, FIRST_LSN, Vec::new(), true))
    }

    /// Removes what an interrupted [`Log::create`] with this store's ID has left in the data folder. Refuses to touch a log
    /// that holds anything, or that is another store's.
    pub fn remove_unfinished(io: &dyn Io, store_id: [u8; 16]) -> Result<()> {
        replay::clear_folder(io, store_id)
    }

    /// Reads a log and calls `f` with the LSN and the payload of each batch from `from` on, the LSN of the last checkpoint.
    /// `durable`: everything below this LSN is known to have been durable. The files are not changed; see
    /// [`Replayed::open`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if something that was durable is damaged or missing; `f` has seen the batches before it.
    /// Whatever `f` returns.
    pub fn replay(
        io: Arc<dyn Io>,
        o: LogOptions,
        from: Lsn,
        durable: Lsn,
        f: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Replayed> {
        let each = |batches: &mut dyn Iterator<Item = (Lsn, &[u8])>, ()| {
            for (lsn, payload) in batches {
                f(lsn, payload)?;
            }
            Ok(())
        };
        Log::replay_prepared(io, o, (from, from), durable, |_| Ok(()), each)?.end()
    }

    /// As [`Log::replay`], but of a log that is kept from a checkpoint's LSN on, the first of two, reads only the batches
    /// from the second one on: it is known what those in between have changed. `prepare` is called with some of them at once, by
    /// several threads, then `apply` with the same and what became of them, in the order of the log.
    ///
    /// # Errors
    /// Those of [`Log::replay`]; of what is in between it finds only missing files. What `prepare` and `apply` return, in the order of the log.
    pub fn replay_prepared<T: Send>(
        io: Arc<dyn Io>,
        o: LogOptions,
        (checkpoint, from): (Lsn, Lsn),
        durable: Lsn,
        prepare: impl Fn(&mut dyn Iterator<Item = (Lsn, &[u8])>) -> Result<T> + Sync,
        apply: impl FnMut(&mut dyn Iterator<Item = (Lsn, &[u8])>, T) -> Result<()>,
    ) -> Result<Unended> {
        o.check()?;
        if from < FIRST_LSN || !from.is_multiple_of(BATCH_ALIGN as u64) {
            return Err(Error::Unusable(format!("no batch begins at LSN {from}")));
        }
        replay::replay(io, o, (checkpoint, from), durable, prepare, apply)
    }

    fn new(
        io: Arc<dyn Io>,
        o: &LogOptions,
        segments: Segments,
        tail: Lsn,
        mut tail_block: Vec<u8>,
        is_marked: bool,
    ) -> Arc<Log> {
        // So that several are full before too much is pending.
        let buffer = (o.max_pending_bytes / 4).clamp(16 * BLOCK, BUFFER_BYTES_MAX).next_multiple_of(BLOCK);
        let slack = room::slack(segments.payload());
        let agreed = o.agreed.unwrap_or(u64::MAX);
        let durable = agreed.min(tail);
        let commits_here = io.scm().is_some();
        let unit = if commits_here { LINE } else { BLOCK };
        let tail_unit = tail_block.split_off(tail_block.len() / unit * unit);
        let log = Arc::new(Log {
            commits_here,
            unit,
            io,
            crc_seed: o.crc_seed,
            max_pending: AtomicU64::new(o.max_pending_bytes as u64),
            opened_at: tail,
            freed_at: AtomicU64::new(durable),
            appendfsync: AtomicU8::new(o.appendfsync as u8),
            appender: Appender::new(tail, buffer as u64, o.epoch, o.crc_seed),
            segments,
            committer: Mutex::new(Committer::new(tail_unit)),
            written: AtomicU64::new(tail),
            stored: AtomicU64::new(tail),
            durable: AtomicU64::new(durable),
            durable_here: AtomicU64::new(tail),
            agreed: AtomicU64::new(agreed),
            is_shared: o.agreed.is_some(),
            groups: OnceLock::new(),
            participant: OnceLock::new(),
            sync_wanted: AtomicU64::new(0),
            room: Room::default(),
            slack,
            marked: AtomicU64::new(if is_marked { tail } else { 0 }),
            failed: OnceLock::new(),
            callbacks: RwLock::new(Vec::new()),
            waiting: Mutex::new(()),
            progress: Condvar::new(),
            kicked: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            committer_sleep: Sleeper::default(),
            preparer_sleep: Sleeper::default(),
            counters: Counters::default(),
        });
        log.update_admission();
        log
    }

    /// Has another one commit along with it, from the next batch on. Panics if there is one already, or if the log is not in storage-class
    /// memory, where a commit is durable at once whatever `appendfsync` says.
    pub fn join(&self, participant: Arc<dyn Participant>) {
        assert!(
            self.commits_here && self.participant.set(participant).is_ok(),
            "one, in storage-class memory"
        );
    }

    /// Appends a batch in memory; returns its LSN. Its payload is at that LSN plus [`BATCH_HEADER`], the next
    /// batch [`batch_len`] further. To be called only when [`Log::admit`] has said `Ok`, or with a [`Reservation`];
    /// never fails and never waits for I/O. Panics if the payload is 4 GiB or larger.
    pub fn append(&self, payload: &[u8]) -> Lsn {
        self.appender.append(payload, self.durable())
    }

    /// The end of the last batch appended.
    #[inline]
    pub fn tail(&self) -> Lsn {
        self.appender.tail()
    }

    /// The term in which it appends.
    pub fn epoch(&self) -> u32 {
        self.appender.epoch()
    }

    /// Number of batches written since it was opened.
    pub fn batches(&self) -> u64 {
        self.counters.batches.load(Ordering::Relaxed)
    }

    /// Everything below survives a power cut; if it [is shared](Log::is_shared), also that this server is lost.
    pub fn durable(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    /// Everything below was handed to the operating system and can be [`Log::read`].
    pub fn written(&self) -> Lsn {
        self.written.load(Ordering::Acquire)
    }

    /// Bytes of memory held for what is appended.
    pub fn buffer_bytes(&self) -> u64 {
        self.appender.memory()
    }

    /// Gives memory back that was not needed since the last call.
    pub fn trim_memory(&self) {
        self.appender.trim();
    }

    /// Has what was appended committed at once, on storage-class memory by the caller, who must hold no lock that a callback of
    /// [`Log::on_progress`] takes. To be called after the last of the batches that may share a commit.
    #[inline]
    pub fn kick(&self) {
        if self.commits_here {
            return self.commit_here();
        }
        // Who kicked first wakes the thread; until that has seen it, it does not sleep.
        if !self.kicked.swap(true, Ordering::AcqRel) {
            self.committer_sleep.wake();
        }
    }

    /// Makes `lsn` durable soon, whatever `appendfsync` says.
    pub fn request_durable(&self, lsn: Lsn) {
        self.sync_wanted.fetch_max(lsn, Ordering::AcqRel);
        self.kick();
    }

    /// Waits until everything below `lsn`, which must not be above [`Log::tail`], is durable. Commits itself if
    /// no thread does.
    ///
    /// # Errors
    /// The log has failed; or [`Error::is_full`]: there is no room to write what was appended. It stays in memory, and is
    /// written once there is.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.request_durable(lsn);
        self.wait(lsn, Log::durable)
    }

    /// As [`Log::wait_durable`], until everything below `lsn` is written.
    pub fn wait_written(&self, lsn: Lsn) -> Result<()> {
        if self.written() < lsn {
            self.kick();
        }
        self.wait(lsn, Log::written)
    }

    fn wait(&self, lsn: Lsn, reached: fn(&Log) -> Lsn) -> Result<()> {
        debug_assert!(lsn <= self.tail());
        while reached(self) < lsn {
            if self.commits_here || !self.committer_sleep.is_attached() {
                self.commit_once()?;
                if reached(self) < lsn && self.stuck.load(Ordering::Acquire) {
                    return Err(no_room());
                }
                continue;
            }
            let mut waiting = self.waiting.lock();
            self.check_failed()?;
            if reached(self) < lsn {
                if self.stuck.load(Ordering::Acquire) {
                    return Err(no_room());
                }
                // In case the thread is stopped while we wait.
                self.progress.wait_for(&mut waiting, std::time::Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Has `f` called after [`Log::durable`] or [`Log::written`] moved, after room was made, and after a failure,
    /// by the thread that did it, mostly one that commits. `f` must be quick and must not call the log to
    /// commit or to wait.
    pub fn on_progress(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.callbacks.write().push(f);
    }

    fn report_progress(&self) {
        drop(self.waiting.lock());
        self.progress.notify_all();
        self.callbacks.read().iter().for_each(|callback| callback());
    }

    /// Changes when a batch counts as durable.
    pub fn set_appendfsync(&self, mode: Appendfsync) {
        self.appendfsync.store(mode as u8, Ordering::Release);
        if mode == Appendfsync::Always {
            self.request_durable(self.written());
        }
    }

    fn appendfsync(&self) -> Appendfsync {
        match self.appendfsync.load(Ordering::Acquire) {
            0 => Appendfsync::Always,
            1 => Appendfsync::Everysec,
            _ => Appendfsync::No,
        }
    }

    /// Why nothing is written any more, if a write or a flush has failed.
    pub fn failed(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    fn check_failed(&self) -> Result<()> {
        match self.failed.get() {
            Some(why) => Err(Error::Unusable(format!("the log has stopped: {why}"))),
            None => Ok(()),
        }
    }

    /// Latches a failure: nothing is written any more, and [`Log::admit`] says so. For failures elsewhere that would make
    /// further writes unsafe; those of the log itself latch by themselves. Whoever waits is told, so the caller must hold no
    /// lock that a callback of [`Log::on_progress`] takes.
    pub fn fail(&self, error: &Error) {
        self.latch(error);
        self.report_progress();
    }

    fn latch(&self, error: &Error) {
        // The first failure is the one to tell.
        let _ = self.failed.set(error.to_string());
        self.update_admission();
    }

    /// Reads the log's bytes from `lsn` on into `buf`, which must end at or below [`Log::written`]. Returns how many: fewer
    /// than fit if what comes then lies in a segment that was freed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there are none. The bytes themselves are not checked.
    pub fn read(&self, lsn: Lsn, buf: &mut [u8]) -> Result<usize> {
        let Some(end) = lsn.checked_add(buf.len() as u64).filter(|&end| end <= self.written()) else {
            return Err(self.segments.corrupt(lsn, "behind the end of the log"));
        };
        if buf.is_empty() {
            return Ok(0);
        }
        let mut len = end - lsn;
        loop {
            // The first segment is left to the read to miss.
            len = Some(self.segments.kept_part(lsn, len)).filter(|&kept| kept > 0).unwrap_or(len);
            match self.segments.read(lsn, &mut buf[..len as usize]) {
                // One behind it was freed since.
                Err(_) if (1..len).contains(&self.segments.kept_part(lsn, len)) => {}
                read => return read.map(|()| len as usize),
            }
        }
    }

    /// Asks `queue` for what [`Log::read`] would read; false if that takes more than one read, or may not be read yet.
    pub fn begin_read(&self, lsn: Lsn, len: usize, queue: &mut ReadQueue, tag: u64) -> bool {
        lsn.checked_add(len as u64).is_some_and(|end| end <= self.written())
            && self.segments.begin_read(lsn, len, queue, tag)
    }

    /// The file and the offset in it at which `lsn` lies, for messages.
    pub fn locate(&self, lsn: Lsn) -> (String, u64) {
        self.segments.locate(lsn)
    }

    /// Counts `bytes` (of either sign) more as live in the record at `lsn`, spread over the segments it covers.
    pub fn account(&self, lsn: Lsn, bytes: i64) {
        self.segments.account(lsn, bytes);
    }

    /// Bytes counted as live in all segments.
    pub fn live_bytes(&self) -> i64 {
        self.segments.live.total()
    }

    /// The segments that something was written to, oldest first. The last one is still being written.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let (written, payload) = (self.written(), self.segments.payload());
        let kept: Vec<_> = self.segments.kept().into_iter().filter(|segment| !segment.is_empty()).collect();
        let info = |(i, segment): (usize, &Arc<Segment>)| {
            let (start, end) = (self.segments.start_of(segment.seq), self.segments.start_of(segment.seq + 1));
            let next = kept.get(i + 1).filter(|next| next.seq == segment.seq + 1).map(|next| next.entry());
            SegmentInfo {
                seq: segment.seq,
                end_lsn: end,
                live_bytes: self.segments.live.get(segment.seq),
                bytes: written.saturating_sub(start).min(payload),
                shared: [
                    SharedBatch::new(Some(segment.entry()), start, end, false),
                    SharedBatch::new(next, start, end, true),
                ],
                slot: segment.file.slot,
            }
        };
        kept.iter().enumerate().map(info).collect()
    }

    /// Makes a segment's file free for reuse, once no [`Pin`] keeps it any more. After a crash the segment may be there
    /// again, with nothing live. The caller answers for I-6: no live record lies in any batch that overlaps the segment, and
    /// no unfinished checkpoint needs it. The segment that holds the log's end cannot be freed.
    pub fn free_segment(&self, seq: u64) {
        let durable = self.durable();
        assert!(seq < self.segments.seq_of(durable - 1), "I-6: the log's end is in use");
        self.freed_at.fetch_max(durable, Ordering::AcqRel);
        if let Err(error) = self.segments.free(seq, self.tail(), durable) {
            return self.fail(&error);
        }
        self.space_changed();
        self.kick();
    }

    /// How far the log was durable when a segment was last freed, or when it was opened. What lived in segments that are gone had left them
    /// by there: a state of the log before may need them.
    pub fn freed_at(&self) -> Lsn {
        self.freed_at.load(Ordering::Acquire)
    }

    fn space_changed(&self) {
        self.update_admission();
        self.report_progress();
    }

    /// Whether too few segments are prepared ahead: one, and all that are kept back once there is little room, so that nobody
    /// else takes the medium's last bytes, or if the medium does not tell how much is free.
    fn wants_spare(&self) -> bool {
        let prepared = self.segments.prepared_end();
        let is_short = self.segments.space_end() < prepared + room::SHORT_SEGMENTS * self.segments.payload();
        let keeps_all = is_short || self.segments.medium_is_unknown();
        let ahead = if keeps_all { 2 + room::RESERVE_SEGMENTS } else { 2 };
        let wanted = self.segments.start_of(self.segments.seq_of(self.written()) + ahead);
        // Not what is left of the medium for others.
        let wanted = wanted.min(self.removal_end());
        prepared < wanted
    }

    /// Whether there is something to be done for the segments that come.
    fn wants_preparing(&self) -> bool {
        self.failed.get().is_none() && (self.wants_spare() || self.segments.wants_less_above())
    }

    /// Prepares one more segment if there is none ahead; false if none is needed or there is no room.
    fn prepare_spare(&self) -> bool {
        if !self.wants_preparing() {
            return false;
        }
        let prepare = || {
            self.segments.give_room_above(self.durable())?;
            if self.wants_spare() { self.segments.prepare_next(self.durable()) } else { Ok(false) }
        };
        match prepare() {
            Ok(prepared) => {
                self.update_admission();
                prepared
            }
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// What the log takes of the medium, and what limits it.
    pub fn usage(&self) -> LogUsage {
        self.segments.usage()
    }

    /// What it has written to its files, by why.
    pub fn writes(&self) -> LogWrites {
        self.segments.writes.get()
    }

    /// How long commits took, in microseconds.
    pub fn commit_times(&self) -> Counts {
        Counts::of([&self.counters.commit_us])
    }

    /// Has nothing count as live, for who counts all of it again. Nobody else may count meanwhile.
    pub fn clear_live_bytes(&self) {
        self.segments.live.clear();
    }

    /// Figures about the log.
    pub fn stats(&self) -> LogStats {
        let (space, counters, tail) = (self.segments.space_stats(), &self.counters, self.tail());
        let writes = self.writes();
        let commits_us = self.commit_times();
        LogStats {
            bytes_appended: tail - self.opened_at,
            bytes_written: writes.batches + writes.padding + writes.rewritten,
            batches: self.batches(),
            commits: counters.commits.load(Ordering::Relaxed),
            commit_us_p50: commits_us.percentile(50.0),
            commit_us_p99: commits_us.percentile(99.0),
            commit_us_p999: commits_us.percentile(99.9),
            commit_us_max: counters.commit_us_max.load(Ordering::Relaxed),
            commit_us_sum: counters.commit_us_sum.load(Ordering::Relaxed),
            segments: space.files,
            segments_free: space.free,
            pending_bytes: tail.saturating_sub(self.written()),
        }
    }

    /// Starts the threads that commit and prepare segments.
    pub fn start_thread(self: &Arc<Self>) -> Result<LogThread> {
        LogThread::start(self)
    }

    /// Makes all that was appended durable, and marks it so.
    pub fn close(&self) -> Result<()> {
        self.wait_durable(self.tail())?;
        if self.durable() != self.marked.load(Ordering::Relaxed) {
            self.mark_end()?;
        }
        Ok(())
    }
}

fn no_room() -> Error {
    Error::io("write the log", std::io::ErrorKind::StorageFull.into())
}

impl LogOptions {
    /// Those of a log that is only read: as large as any may be.
    pub fn to_read(segment_size: u32, store_id: [u8; 16], epoch: u32, crc_seed: u32) -> LogOptions {
        LogOptions {
            segment_size,
            max_segments: 1 << 20,
            segments_above_max: 1 << 20,
            store_id,
            epoch,
            crc_seed,
            appendfsync: Appendfsync::Always,
            max_pending_bytes: 1 << 20,
            ended_at: None,
            agreed: None,
        }
    }

    fn check(&self) -> Result<()> {
        let size = self.segment_size as usize;
        let fits = size.is_power_of_two() && size >= 4 * BLOCK && (4..=1 << 20).contains(&self.max_segments);
        if fits { Ok(()) } else { Err(Error::Unusable(format!("impossible geometry of the log: {self:?}"))) }
    }
}
