//! One step of the group commit: what was appended becomes written, what is written becomes durable.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    thread::{self, ThreadId},
};

use holdfast_io::{Durability, Error, Result};
use parking_lot::MutexGuard;

use crate::{
    Appendfsync, Log,
    appender::Chunk,
    layout::{BatchHeader, Entry, Lsn, floor},
    table::Segment,
};

/// A commit takes no more buffers once it has this many bytes, so that its buffers come back and replies leave.
const COMMIT_BYTES: u64 = 8 << 20;
const SYNC_INTERVAL_US: u64 = 1_000_000;

/// What only the thread that commits touches.
#[derive(Default)]
pub(crate) struct Committer {
    /// Taken from the appender and not yet written; not empty between commits only if there is no room.
    group: Vec<Chunk>,
    /// What is written of the unit of the medium that holds the end of the log. The next commit writes it again unchanged.
    pub tail: Vec<u8>,
    /// Segments with writes that are not durable.
    unsynced: Vec<Arc<Segment>>,
    /// What was stored behind the last commit.
    pub ahead: Option<Ahead>,
    last_sync_us: u64,
}

/// What was stored behind the last commit.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// Whose fence makes it durable. That of another thread does not.
    pub by: ThreadId,
    /// Where it ends: with a line, so that none is stored twice.
    pub end: Lsn,
}

impl Committer {
    pub fn new(tail: Vec<u8>) -> Self {
        Self { tail, ..Self::default() }
    }

    pub fn is_pending(&self) -> bool {
        !self.group.is_empty()
    }

    /// Up to where the calling thread, which commits, need not store any more.
    fn take_ahead(&mut self) -> Option<Lsn> {
        self.ahead.take().filter(|ahead| ahead.by == thread::current().id()).map(|ahead| ahead.end)
    }
}

impl Log {
    /// Commits what was appended in this thread. Whoever comes while another thread commits leaves it to that one, which
    /// then commits for both: so many threads share a fence, though one cannot wait for another's stores.
    pub(crate) fn commit_here(&self) {
        self.kicked.store(true, Ordering::Relaxed);
        loop {
            // Pairs with the fence behind the unlocking: we get the lock, or who has it sees the kick.
            fence(Ordering::SeqCst);
            let Some(committer) = self.committer.try_lock() else { return };
            self.kicked.store(false, Ordering::Relaxed);
            // A failure has latched, and those who wait were told.
            let _ = self.commit_with(committer);
            fence(Ordering::SeqCst);
            if !self.kicked.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// One commit: writes what was appended, makes it durable as `appendfsync` says, and reports progress.
    /// Returns whether there was any. After an error nothing is written any more.
    pub fn commit_once(&self) -> Result<bool> {
        self.commit_with(self.committer.lock())
    }

    fn commit_with(&self, mut committer: MutexGuard<'_, Committer>) -> Result<bool> {
        self.check_failed()?;
        let result = self.commit(&mut committer);
        if let Err(error) = &result {
            // With the committer locked: what it took is lost, so nobody may write what comes behind.
            self.latch(error);
        }
        drop(committer);
        match &result {
            Ok(progress) => {
                self.update_admission();
                if *progress {
                    self.report_progress();
                }
            }
            Err(_) => self.report_progress(),
        }
        result
    }

    /// Says durably that everything is durable, so that damage to the last commit is not taken for a torn tail. That is in the
    /// header of the last segment: in the log's own bytes it would be a part of what other servers store.
    pub(crate) fn mark_end(&self) -> Result<()> {
        let _committer = self.committer.lock();
        self.check_failed()?;
        let end = self.durable();
        let written = match self.segments.get(self.segments.seq_of(end - 1)) {
            Some(last) => self.segments.write_header(&last, end, last.entry()),
            // Someone removed it, and the log begins anew behind it: there is nothing to damage.
            None => Ok(()),
        };
        match &written {
            Ok(()) => self.marked.store(end, Ordering::Relaxed),
            Err(error) => self.fail(error),
        }
        written
    }

    fn commit(&self, committer: &mut Committer) -> Result<bool> {
        self.take(committer)?;
        let mut progress = false;
        if let Some(last) = committer.group.last() {
            // Without room it waits in memory. There is always some (I-16), unless something else takes the medium's.
            let has_room = self.segments.prepare_to(last.end(), self.durable())?;
            // Who waits is told that it may be for long.
            progress = has_room || !self.stuck.load(Ordering::Relaxed);
            self.stuck.store(!has_room, Ordering::Release);
            if has_room {
                self.write_group(committer)?;
            }
        }
        if self.sync_is_due(committer) {
            self.sync(committer)?;
            progress = true;
        }
        self.prepare_ahead();
        Ok(progress)
    }

    /// Takes what is to be written next.
    fn take(&self, committer: &mut Committer) -> Result<()> {
        let Some(groups) = self.groups()? else {
            // Who commits its own leaves nothing behind.
            self.appender.take(&mut committer.group, if self.commits_here { u64::MAX } else { COMMIT_BYTES });
            return Ok(());
        };
        if committer.is_pending() || !self.appender.is_pending() {
            return Ok(());
        }
        // All of it, since nothing may lie between what is taken and its seal.
        let seal = groups.seal()?;
        self.appender.take_sealed(&mut committer.group, &seal, self.durable());
        let (sealed, batches) = committer.group.split_last().expect("the seal");
        let mut bytes = Vec::with_capacity(batches.iter().map(|chunk| chunk.len as usize).sum());
        batches
            .iter()
            .for_each(|chunk| bytes.extend_from_slice(chunk.buffer.wait_complete(chunk.len).0.bytes()));
        groups.begin(bytes, sealed.end())
    }

    fn prepare_ahead(&self) {
        if !self.wants_preparing() {
            return;
        }
        if self.preparer_sleep.is_attached() {
            self.preparer_sleep.wake();
        } else {
            while self.prepare_spare() {}
        }
    }

    fn write_group(&self, committer: &mut Committer) -> Result<()> {
        let started = self.io.monotonic_us();
        let group = mem::take(&mut committer.group);
        let mut pieces = Vec::with_capacity(group.len());
        let (unit, mut tail) = (self.unit, mem::take(&mut committer.tail));
        for chunk in &group {
            let (sealed, batches) = chunk.buffer.wait_complete(chunk.len);
            let units = sealed.into_units(unit, &tail);
            tail.clear();
            tail.extend_from_slice(&units[units.len() - unit..][..(chunk.end() % unit as u64) as usize]);
            pieces.push(Piece { base: chunk.base, end: chunk.end(), units });
            self.counters.batches.fetch_add(batches, Ordering::Relaxed);
        }
        let end = group[group.len() - 1].end();
        match self.participant.get() {
            None => self.write_pieces(committer, &pieces)?,
            Some(participant) => participant.commit(end, &mut || self.write_pieces(committer, &pieces))?,
        }
        committer.tail = tail;
        self.written.store(end, Ordering::Release);
        self.stored.store(end, Ordering::Relaxed);
        if committer.unsynced.is_empty() {
            self.advance_here(end);
        }
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        let took_us = self.io.monotonic_us() - started;
        self.counters.commit_us.add(took_us);
        self.counters.commit_us_max.fetch_max(took_us, Ordering::Relaxed);
        self.counters.commit_us_sum.fetch_add(took_us, Ordering::Relaxed);
        group.into_iter().for_each(|chunk| self.appender.recycle(chunk));
        Ok(())
    }

    fn write_pieces(&self, committer: &mut Committer, pieces: &[Piece]) -> Result<()> {
        let durability = match self.appendfsync() {
            Appendfsync::Always => Durability::Durable,
            // A fence costs less than to keep count of what still needs one.
            _ if self.commits_here => Durability::Durable,
            Appendfsync::Everysec | Appendfsync::No => Durability::Volatile,
        };
        // Whole units of the medium, so that what they held before need not be read.
        let unit = self.unit as u64;
        let end = pieces[pieces.len() - 1].end.next_multiple_of(unit);
        let first = floor(pieces[0].base, unit);
        let mut at = committer.take_ahead().unwrap_or(first);
        while at < end {
            let seq = self.segments.seq_of(at);
            let next = end.min(self.segments.start_of(seq + 1));
            let segment = self.segments.get(seq).expect("prepared before it is written");
            let name = segment.file.name();
            let failed = |e| Error::io(format!("write {name}"), e);
            let bufs = units_between(pieces, at, next, unit);
            let offset = self.segments.file_offset(at);
            self.segments.reach_to(&segment, offset + (next - at), self.durable(), || {
                debug_assert_eq!(at, self.segments.start_of(seq), "the first that is written to it");
                entry_at(pieces, at, unit)
            })?;
            segment.file.write_at(&bufs, offset, durability).map_err(failed)?;
            if durability == Durability::Volatile && !committer.unsynced.iter().any(|s| s.seq == seq) {
                committer.unsynced.push(segment);
            }
            at = next;
        }
        let (from, to) = (pieces[0].base, pieces[pieces.len() - 1].end);
        let writes = &self.segments.writes;
        writes.batches.fetch_add(to - from, Ordering::Relaxed);
        writes.padding.fetch_add(end - to, Ordering::Relaxed);
        writes.rewritten.fetch_add(from - first, Ordering::Relaxed);
        Ok(())
    }

    fn sync_is_due(&self, committer: &Committer) -> bool {
        if committer.unsynced.is_empty() {
            return false;
        }
        let written = self.written();
        self.sync_wanted.load(Ordering::Acquire) > self.durable_here()
            || match self.appendfsync() {
                Appendfsync::Always => true,
                Appendfsync::Everysec => self.io.monotonic_us() >= committer.last_sync_us + SYNC_INTERVAL_US,
                Appendfsync::No => committer.unsynced[0].seq < self.segments.seq_of(written),
            }
    }

    fn sync(&self, committer: &mut Committer) -> Result<()> {
        for segment in committer.unsynced.drain(..) {
            let name = segment.file.name();
            segment.file.sync().map_err(|e| Error::io(format!("sync {name}"), e))?;
        }
        committer.last_sync_us = self.io.monotonic_us();
        self.advance_here(self.written());
        Ok(())
    }
}

/// A chunk with its first and last unit completed.
struct Piece<'a> {
    base: Lsn,
    end: Lsn,
    /// From the unit that holds `base` to the one that holds the byte before `end`.
    units: &'a [u8],
}

/// The units of the log from `from` to `to`. One that two pieces share is the later one's: that has both.
fn units_between<'a>(pieces: &[Piece<'a>], from: Lsn, to: Lsn, unit: u64) -> Vec<&'a [u8]> {
    let mut bufs = Vec::with_capacity(pieces.len() + 1);
    for (i, piece) in pieces.iter().enumerate() {
        let start = floor(piece.base, unit);
        let end =
            if i + 1 < pieces.len() { floor(piece.end, unit) } else { piece.end.next_multiple_of(unit) };
        let (first, last) = (from.max(start), to.min(end));
        if first < last {
            bufs.push(&piece.units[(first - start) as usize..(last - start) as usize]);
        }
    }
    bufs
}

/// How the batches of `pieces` enter the segment that starts at `start`.
fn entry_at(pieces: &[Piece], start: Lsn, unit: u64) -> Entry {
    let piece = pieces.iter().find(|piece| piece.base <= start && start < piece.end);
    let piece = piece.expect("what is written first to a segment starts before its first block ends");
    let (mut crossing, mut first) = (piece.base, piece.base);
    while first < start {
        crossing = first;
        let header = &piece.units[(first - floor(piece.base, unit)) as usize..];
        first += BatchHeader::decode(header).batch_len();
    }
    if first == start { Entry { crossing: start, first } } else { Entry { crossing, first } }
}
