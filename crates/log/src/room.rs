//! Who may append how much: admission, and reservations for what is large.
//!
//! **What is appended has room (I-16).** The log's end and what is reserved beyond it never pass what the segments that can be
//! prepared hold, less what is kept back for more urgent purposes. A batch larger than [`SMALL_BYTES`] is therefore
//! reserved before anything is changed, exactly; one reservation is made at a time. Small batches only compare the log's
//! end with a bound, so as many of them as there are threads may be appended beyond it: that is kept back, too.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{Log, Lsn, batch_len, groups::GROUP_BYTES_MAX, layout::BLOCK_BYTES, table::FileLimits};

/// Segments that are kept back from writers, and those of them that are kept back from what makes room, for the cleaner:
/// it can always move what lives in one segment.
pub(crate) const RESERVE_SEGMENTS: u64 = 3;
const CLEANER_SEGMENTS: u64 = 1;
/// Segments of room below which those that are kept back are prepared.
pub(crate) const SHORT_SEGMENTS: u64 = 8;
/// A batch up to this size need not be reserved.
pub const SMALL_BYTES: usize = 32 << 10;

/// Whether a batch may be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Ok,
    /// Too much is pending; ask again after progress.
    Busy,
    /// There is no room on the medium; ask again after a segment was freed.
    Full,
    /// The log has failed, see [`Log::failed`], or only stores what another server appends.
    Failed,
}

/// What a batch is appended for. The later ones may use what is kept back from the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data may grow.
    Write,
    /// What has begun to write, and cannot take back what it has written, comes to its end.
    Finish,
    /// What makes garbage of data, such as deletes.
    Remove,
    /// To empty segments.
    Clean,
}

/// What admission goes by.
#[derive(Default)]
pub(crate) struct Room {
    /// What ends at or below this LSN is admitted without another look.
    admitted_to: AtomicU64,
    /// Bytes that are reserved and perhaps not appended yet.
    reserved: AtomicU64,
    /// Where the log ends for those who empty it: see [`Log::removal_end`].
    removal_end: AtomicU64,
    /// Held by whoever changes any of these.
    changing: Mutex<()>,
    /// Somebody was refused for want of room on the medium since that was asked how much it has.
    refused: AtomicBool,
}

/// Room in the log for batches that are still to be appended. Who has appended one gives its part back.
pub struct Reservation<'l> {
    log: &'l Log,
    bytes: u64,
}

impl<'l> Reservation<'l> {
    /// Of no bytes yet.
    pub fn new(log: &'l Log) -> Self {
        Reservation { log, bytes: 0 }
    }

    /// Bytes that it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds room for so many bytes, or says why there is none: `Full` or `Failed`.
    pub fn add(&mut self, bytes: u64, purpose: Purpose) -> Result<(), Admission> {
        self.add_within(u64::MAX, bytes, purpose)
    }

    /// The same for who can wait: also `Busy`, while that and what is not written yet are more than [`GROUP_BYTES_MAX`] which other servers are
    /// to agree on.
    pub fn add_or_wait(&mut self, bytes: u64, purpose: Purpose) -> Result<(), Admission> {
        self.add_within(if self.log.is_shared() { GROUP_BYTES_MAX } else { u64::MAX }, bytes, purpose)
    }

    fn add_within(&mut self, max: u64, bytes: u64, purpose: Purpose) -> Result<(), Admission> {
        let log = self.log;
        let _changing = log.room.changing.lock();
        if !log.is_open() {
            return Err(Admission::Failed);
        }
        let reserved = log.room.reserved.load(Ordering::Relaxed);
        if self.bytes + bytes > max {
            return Err(Admission::Full);
        }
        if log.tail() - log.written() + reserved + bytes > max {
            return Err(Admission::Busy);
        }
        if !log.has_room_up_to(log.tail() + reserved + bytes, purpose) {
            return Err(Admission::Full);
        }
        self.bytes += bytes;
        log.room.reserved.store(reserved + bytes, Ordering::Relaxed);
        log.set_admitted_to();
        Ok(())
    }

    /// Gives so many bytes back, or all that are left, because they were appended or are not wanted any more.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.bytes -= bytes;
            let _changing = self.log.room.changing.lock();
            self.log.room.reserved.fetch_sub(bytes, Ordering::Relaxed);
            self.log.set_admitted_to();
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({})", self.bytes)
    }
}

impl Log {
    /// Whether a batch with a payload of `bytes` that lets data grow may be appended; a larger one than [`SMALL_BYTES`] is
    /// to be reserved as well.
    #[inline]
    pub fn admit(&self, bytes: usize) -> Admission {
        self.admit_for(bytes, Purpose::Write)
    }

    /// As [`Log::admit`], for any purpose.
    #[inline]
    pub fn admit_for(&self, bytes: usize, purpose: Purpose) -> Admission {
        // Where writers find room, so does everybody else.
        if self.tail() + batch_len(bytes) <= self.room.admitted_to.load(Ordering::Acquire) {
            return Admission::Ok;
        }
        self.judge(bytes, purpose)
    }

    #[cold]
    fn judge(&self, bytes: usize, purpose: Purpose) -> Admission {
        let _changing = self.room.changing.lock();
        self.set_admitted_to();
        let tail = self.tail();
        let reserved = self.room.reserved.load(Ordering::Relaxed);
        if !self.is_open() {
            Admission::Failed
        } else if !self.has_room_up_to(tail + reserved + batch_len(bytes), purpose) {
            Admission::Full
        } else if tail > self.pending_end() {
            Admission::Busy
        } else {
            Admission::Ok
        }
    }

    /// Whether what is appended for a purpose may end there. To be called by who may change what admission goes by.
    fn has_room_up_to(&self, end: Lsn, purpose: Purpose) -> bool {
        if end <= self.limit(purpose) {
            return true;
        }
        if !self.segments.is_limited_by_medium() || self.room.refused.load(Ordering::Acquire) {
            return false;
        }
        // Others may have given some of it back since it was asked. Who is refused now has the thread ask again.
        self.segments.measure_space();
        self.set_admitted_to();
        let has_room = end <= self.limit(purpose);
        if !has_room {
            self.room.refused.store(true, Ordering::Release);
            self.committer_sleep.wake();
        }
        has_room
    }

    /// Whether somebody was refused since the medium was asked how much room it has.
    pub(crate) fn wants_room(&self) -> bool {
        self.segments.medium_is_full() || self.room.refused.load(Ordering::Acquire)
    }

    /// Asks the medium again how much room it has, if somebody was refused for want of it, and for a file, if it has refused one. Others may
    /// have given some back: to run out of it is no failure. The log's thread does so itself, once a second at most.
    pub fn look_for_room(&self) {
        if !self.wants_room() {
            return;
        }
        self.room.refused.store(false, Ordering::Release);
        match self.segments.retry_medium(self.durable()) {
            Ok(()) => self.space_changed(),
            Err(error) => self.fail(&error),
        }
    }

    /// Whether too much is appended and not yet written.
    pub fn is_busy(&self) -> bool {
        self.tail() > self.pending_end()
    }

    /// Bytes that the cleaner may still append until a segment is freed.
    pub fn room(&self) -> u64 {
        let taken = self.tail() + self.room.reserved.load(Ordering::Relaxed) + self.kept_back(Purpose::Clean);
        self.removal_end().saturating_sub(taken)
    }

    /// Bytes that can be written at all until a segment is freed.
    pub fn room_at_all(&self) -> u64 {
        self.removal_end().saturating_sub(self.tail())
    }

    /// The end of the log for those who empty it. Writers stop ahead of what there is room for, so that as much as is kept back from them is
    /// left; if less of the medium may be taken from then on, because more is to be left for others, that is left still.
    pub(crate) fn removal_end(&self) -> Lsn {
        self.room.removal_end.load(Ordering::Acquire)
    }

    /// Bytes of that which only the cleaner may use, and what removes data.
    pub fn room_kept_from_writers(&self) -> u64 {
        self.kept_back(Purpose::Write) - self.kept_back(Purpose::Clean)
    }

    /// Bytes that are kept back from who appends for a purpose.
    fn kept_back(&self, purpose: Purpose) -> u64 {
        let payload = self.segments.payload();
        // Half a segment is nobody's, so that commits have room.
        match purpose {
            Purpose::Write => RESERVE_SEGMENTS * payload + self.slack,
            // It has half of what writers leave for removals, and leaves them the other half.
            Purpose::Finish => self.kept_back(Purpose::Write).midpoint(self.kept_back(Purpose::Remove)),
            Purpose::Remove => CLEANER_SEGMENTS * payload + payload / 2 + self.slack,
            Purpose::Clean => payload / 2,
        }
    }

    /// What is appended for a purpose must end at or below this.
    fn limit(&self, purpose: Purpose) -> Lsn {
        if purpose == Purpose::Write && self.segments.is_too_large() {
            return 0;
        }
        let end = if purpose == Purpose::Write { self.segments.space_end() } else { self.removal_end() };
        end.saturating_sub(self.kept_back(purpose))
    }

    /// Whether its files take more than they may, by [`LogUsage::bytes_max`](crate::LogUsage::bytes_max).
    pub fn is_too_large(&self) -> bool {
        self.segments.is_too_large()
    }

    /// Sets the bytes that its files may take, within [`crate::LogOptions::max_segments`]; at any time. Files that are too many are
    /// removed as they are not needed any more. While they are, nothing is admitted that lets data grow.
    pub fn set_bytes_max(&self, bytes: u64) -> holdfast_io::Result<()> {
        self.limit_files(|limits| limits.by_budget = bytes / self.segments.segment_bytes())
    }

    /// The same, as how many files of it the process may have open: each segment is one.
    pub fn set_open_files_max(&self, files: u64) -> holdfast_io::Result<()> {
        self.limit_files(|limits| limits.open = files)
    }

    fn limit_files(&self, set: impl FnOnce(&mut FileLimits)) -> holdfast_io::Result<()> {
        let paused = self.segments.pause_preparing();
        let changing = self.room.changing.lock();
        let end = self.tail() + self.room.reserved.load(Ordering::Relaxed);
        let limit = self.limit(Purpose::Write);
        let surplus = self.segments.limit_files(set, end, RESERVE_SEGMENTS + 1);
        self.set_admitted_to();
        let is_more = self.limit(Purpose::Write) > limit;
        drop(changing);
        if is_more {
            self.report_progress();
        }
        let removed = self.segments.remove_files(surplus);
        drop(paused);
        removed
    }

    /// At its opening: it may have been left with more files than it may have now, or a crash takes back that some are free.
    pub(crate) fn leave_room_to_empty(&self) {
        self.segments.leave_room_to_empty(self.tail(), CLEANER_SEGMENTS, RESERVE_SEGMENTS);
        self.update_admission();
    }

    /// Sets [`crate::LogOptions::max_pending_bytes`] anew; the size of buffers stays.
    pub fn set_max_pending_bytes(&self, bytes: usize) {
        self.max_pending.store(bytes as u64, Ordering::Relaxed);
        self.update_admission();
    }

    /// Bytes of the medium that it may take of what is left for others, if more is left once it is nearly full.
    pub fn promised_bytes(&self) -> u64 {
        (1 + RESERVE_SEGMENTS) * (self.segments.payload() + BLOCK_BYTES)
    }

    /// Leaves so many bytes of the medium for others, beside what is in use.
    pub fn set_medium_reserve(&self, bytes: u64) {
        self.segments.set_medium_reserve(bytes);
        self.update_admission();
    }

    /// Leaves so many bytes more, from now on or from when more were added. May be called in the middle of a transaction.
    pub fn add_medium_reserve(&self, bytes: u64) {
        if self.segments.add_medium_reserve(bytes) {
            self.update_admission();
        }
    }

    fn pending_end(&self) -> Lsn {
        self.written() + self.max_pending.load(Ordering::Relaxed)
    }

    pub(crate) fn update_admission(&self) {
        let _changing = self.room.changing.lock();
        self.set_admitted_to();
    }

    /// Whether anybody may append: the log has not failed, and it is not another server that appends.
    fn is_open(&self) -> bool {
        self.failed.get().is_none() && (!self.is_shared || self.groups.get().is_some())
    }

    /// To be called by who may change it.
    fn set_admitted_to(&self) {
        let (segments, reserved) = (&self.segments, self.room.reserved.load(Ordering::Relaxed));
        let kept_back = segments.start_of(segments.seq_of(self.tail() + reserved) + 1 + RESERVE_SEGMENTS);
        // What the medium has refused is not there.
        let promised = if segments.medium_is_full() { 0 } else { self.removal_end().min(kept_back) };
        self.room.removal_end.store(segments.space_end().max(promised), Ordering::Release);
        let limit = self.limit(Purpose::Write).saturating_sub(reserved);
        // Who has failed meanwhile sets it after us.
        self.room
            .admitted_to
            .store(if self.is_open() { limit.min(self.pending_end()) } else { 0 }, Ordering::Release);
    }
}

/// Bytes that small batches may take beyond what is admitted, if each thread appends one at the same moment: twice what needs
/// no reservation, since an encoding that changes is not foreseen.
pub(crate) fn slack(payload: u64) -> u64 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64 + 4;
    (2 * threads * SMALL_BYTES as u64).min(payload)
}
