//! Where the next segment's file comes from: what was freed, what is made, and what a segment leaves that moves down.
//!
//! With a folder below the others, on a slower medium, new segments lie above as long as they may. Once the folders above have as many files as
//! they may, the oldest segment that nothing is written to any more moves down, and its file is the next one's. *The copy below is durable
//! before the file above is used again, and its header is the last that is written of it.* A crash may leave both; a start then goes by
//! the one below.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Result};

use crate::{
    Limit, LogUsage,
    layout::{BLOCK_BYTES, Lsn},
    segments::Segments,
    table::{FOLDER, FileLimits, Segment, SlotFile, Table, Tier, file_name, slot_of},
};

/// The numbers of files that are made below are from this one on.
const BELOW: u32 = 1 << 31;
/// How many bytes that are to be left for others may be added before space is measured again.
const UNMEASURED_MAX: u64 = 1 << 20;
/// Files are filled in pieces of this size.
const PIECE: usize = 1 << 20;
/// How often, and how long each time, those are waited for who still read a file that is to be used again. They need microseconds.
const WAITS: u32 = 100;
const WAIT: Duration = Duration::from_micros(100);

/// Whether a file of the log is made below, by its name.
pub(crate) fn is_below(name: &str) -> bool {
    let slot = name.strip_prefix(FOLDER).and_then(|name| slot_of(name.strip_prefix('/')?));
    slot.is_some_and(|slot| slot >= BELOW)
}

/// What came of copying a segment.
enum Copied {
    Done,
    /// Not all of it can be read.
    Unreadable,
    Full(Error),
}

impl Segments {
    /// The end of the log if everything that is free were prepared.
    pub fn space_end(&self) -> Lsn {
        self.space.end.load(Ordering::Acquire)
    }

    /// Leaves so many bytes of the medium for others.
    pub fn set_medium_reserve(&self, bytes: u64) {
        if self.space.reserve.swap(bytes, Ordering::Relaxed) != bytes {
            self.measure_space();
        }
    }

    /// Leaves so many bytes more, and those that were added before and not heeded, once these are many; whether they are.
    pub fn add_medium_reserve(&self, bytes: u64) -> bool {
        self.space.reserve.fetch_add(bytes, Ordering::Relaxed);
        let is_due = self.space.unmeasured.fetch_add(bytes, Ordering::Relaxed) + bytes >= UNMEASURED_MAX;
        if is_due {
            self.measure_space();
        }
        is_due
    }

    /// Asks the medium again how much room it has. If it has refused a file, no room is promised before there is one: free
    /// bytes say nothing of a quota.
    pub fn retry_medium(&self, durable: Lsn) -> Result<()> {
        // What is left for others stays so.
        let has_room = |room: Option<i64>| room.is_none_or(|segments| segments > 0);
        let is_below = self.io.below().is_some();
        if is_below && has_room(self.room_above()) {
            self.table.write().above.is_full = false;
        }
        if self.io.has_refused() {
            self.try_refusing()?;
        }
        if self.medium_is_full() && has_room(if is_below { self.room_below() } else { self.room_above() }) {
            self.table.write().tier(is_below).is_tried = true;
            let is_there = self.prepare_next(durable)?;
            let mut table = self.table.write();
            let tier = table.tier(is_below);
            tier.is_tried = false;
            tier.is_full &= !is_there;
        }
        self.measure_space();
        Ok(())
    }

    /// How many segments' files the media above say that they have room for, beside what is left for others; `None`: they do not tell.
    fn room_above(&self) -> Option<i64> {
        let reserve = self.space.reserve.load(Ordering::Relaxed);
        self.io.room_for_files(reserve, self.segment_bytes()).ok().flatten()
    }

    /// The same of the one below.
    fn room_below(&self) -> Option<i64> {
        let reserve = self.space.reserve.load(Ordering::Relaxed);
        self.io.room_below(reserve, self.segment_bytes()).ok().flatten()
    }

    /// Whether the medium refused to hold another file, and was not tried again since: the one below, if there is one.
    pub fn medium_is_full(&self) -> bool {
        let table = self.table.read();
        if self.io.below().is_some() { table.below.is_full } else { table.above.is_full }
    }

    /// Whether it is the medium, rather than the log's own limit, that says how much room there is.
    pub fn is_limited_by_medium(&self) -> bool {
        self.space.medium_limits.load(Ordering::Relaxed)
    }

    /// Whether the medium does not tell how much of it is free.
    pub fn medium_is_unknown(&self) -> bool {
        self.space.medium_unknown.load(Ordering::Relaxed)
    }

    /// What the log takes, what it may take, and what sets its limit.
    pub fn usage(&self) -> LogUsage {
        let is_full = self.medium_is_full();
        let table = self.table.read();
        let bytes = |segments: u64| segments * self.segment_bytes();
        let limited_by = match self.is_limited_by_medium() {
            true if is_full && table.is_out_of_files => Limit::OpenFiles,
            // What the medium says is free, if it does.
            true => Limit::Medium { free_bytes: self.io.free_bytes().ok().flatten() },
            false => table.limits.limit(),
        };
        LogUsage { bytes: bytes(table.files()), bytes_max: bytes(table.limits.least()), limited_by }
    }

    /// Whether the log takes more than it should, and so nothing may grow.
    pub fn is_too_large(&self) -> bool {
        self.space.is_too_large.load(Ordering::Relaxed)
    }

    /// Whether segments should move down for others' sake.
    pub fn wants_less_above(&self) -> bool {
        self.space.surplus.load(Ordering::Relaxed) > 0
    }

    /// Sets how many files there should be at most, and returns those that are too many and hold nothing. To be called while
    /// [preparing is paused](Segments::pause_preparing), until they are removed: nobody must make one of the same name.
    ///
    /// `end`: what is appended and reserved ends there; `needed`: segments behind it that must have room. What is needed stays, so
    /// there are more files than there should be until segments are freed.
    pub fn limit_files(&self, set: impl FnOnce(&mut FileLimits), end: Lsn, needed: u64) -> Vec<SlotFile> {
        let mut table = self.table.write();
        set(&mut table.limits);
        let (wanted, least) = (table.limits.least(), table.needed(self.seq_of(end)) + needed);
        table.files_max = wanted.max(table.files_max.min(least));
        self.space.is_too_large.store(least > wanted, Ordering::Relaxed);
        let surplus = table.files().saturating_sub(table.files_max) as usize;
        let below = surplus.min(table.below.spares.len());
        let above = (surplus - below).min(table.above.spares.len());
        let mut spares: Vec<SlotFile> = table.below.spares.drain(..below).collect();
        spares.extend(table.above.spares.drain(..above));
        spares.iter().for_each(|file| table.tier(file.is_below).files -= 1);
        drop(table);
        self.measure_space();
        spares
    }

    /// Allows more files than the options do, `reserve` beyond the log's end, if it could else not have `cleaning` there: without room
    /// nothing is ever cleaned. Until enough is, the log is too large.
    pub fn leave_room_to_empty(&self, end: Lsn, cleaning: u64, reserve: u64) {
        let mut table = self.table.write();
        let needed = table.needed(self.seq_of(end));
        if needed + cleaning > table.files_max {
            table.files_max = needed + reserve;
            self.space.is_too_large.store(true, Ordering::Relaxed);
        }
        drop(table);
        self.measure_space();
    }

    /// Removes files that are no spares any more. If a crash takes that back, a start finds them free, as they were.
    pub fn remove_files(&self, files: Vec<SlotFile>) -> Result<()> {
        for SlotFile { slot, .. } in &files {
            let name = file_name(*slot);
            self.io.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
        }
        Ok(())
    }

    pub(crate) fn measure_space(&self) {
        self.space.unmeasured.store(0, Ordering::Relaxed);
        let (above, below) = (self.room_above(), self.room_below());
        self.space.medium_unknown.store(above.is_none() || below.is_none(), Ordering::Relaxed);
        // Exclusively, so that of two results the later one stays.
        let table = self.table.write();
        let room = |tier: &Tier, medium: Option<i64>| {
            // A medium that does not tell is not full before it refuses a file.
            let medium = medium.unwrap_or(i64::MAX).min(if tier.is_full { 0 } else { i64::MAX });
            medium.min(tier.files_max as i64 - tier.files as i64)
        };
        let (above, below) = (room(&table.above, above), room(&table.below, below));
        let surplus = if self.io.below().is_some() { above.min(0).unsigned_abs() } else { 0 };
        self.space.surplus.store(surplus, Ordering::Relaxed);
        // What moves down for others' sake takes room there, and leaves none above. What is missing below for others, nothing may take above.
        let medium = above.max(0).saturating_add(below).max(0) as u64;
        let medium = medium.saturating_sub(surplus);
        let allowed = table.files_max.saturating_sub(table.files());
        self.space.medium_limits.store(medium < allowed, Ordering::Relaxed);
        // What is held for a pin is given when nothing else is left.
        let free = table.above.spares.len() + table.below.spares.len() + table.held.len();
        let segments = table.next + free as u64 + medium.min(allowed);
        self.space.end.store(self.start_of(segments), Ordering::Release);
    }

    /// A file for the next segment; `None`: there is no room for it.
    pub(crate) fn take_file(&self, durable: Lsn) -> Result<Option<SlotFile>> {
        let mut has_moved = false;
        loop {
            if let Some(file) = self.table.write().above.spares.pop() {
                return Ok(Some(file));
            }
            if self.may_create_above()
                && let Some(file) = self.create_file(false)?
            {
                return Ok(Some(file));
            }
            // What moves down leaves room above for one. If that is refused, more of them would be, too.
            let is_of_no_use = has_moved && self.table.read().above.is_full;
            if !is_of_no_use && self.move_down(durable)? {
                has_moved = true;
                self.table.write().above.is_full = false;
                continue;
            }
            // Such as when one batch is larger than all that may be above.
            let spare = self.table.write().below.spares.pop();
            if spare.is_some() {
                return Ok(spare);
            }
            if self.table.read().may_create(true)
                && let Some(file) = self.create_file(true)?
            {
                return Ok(Some(file));
            }
            if !self.give_held(durable)? {
                return Ok(None);
            }
        }
    }

    fn may_create_above(&self) -> bool {
        // With a folder below, nothing is tried of which the medium says that it has no room for it.
        self.table.read().may_create(false)
            && (self.io.below().is_none() || self.room_above().is_none_or(|segments| segments > 0))
    }

    /// A file full of zeroes: writing to it later allocates nothing and changes no metadata. `None`: the medium has no room for it.
    fn create_file(&self, is_below: bool) -> Result<Option<SlotFile>> {
        let slot = self.table.read().free_slot(if is_below { BELOW } else { 0 });
        match self.make_zeroes(slot, false) {
            Err(e) if is_refusal(&e) => self.refuse(slot, is_below, &e).map(|()| None),
            Ok(file) => {
                self.table.write().tier(file.is_below).files += 1;
                Ok(Some(file))
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a spare in a folder above that has refused a file, unless it refuses that too. Others may get theirs elsewhere meanwhile, so they are
    /// not told that it is full, nor that it has room.
    fn try_refusing(&self) -> Result<()> {
        let _preparing = self.pause_preparing();
        let table = self.table.read();
        let (slot, is_allowed) = (table.free_slot(0), table.files_are_allowed(false));
        drop(table);
        if !is_allowed {
            return Ok(());
        }
        match self.make_zeroes(slot, true) {
            Err(e) if is_refusal(&e) => self.remove_refused(slot),
            Ok(file) => {
                let mut table = self.table.write();
                table.above.files += 1;
                table.above.is_full = false;
                table.add_spare(file);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// `again`: in a folder that has refused a file.
    fn make_zeroes(&self, slot: u32, again: bool) -> Result<SlotFile> {
        let name = file_name(slot);
        let failed = |e| Error::io(format!("create {name}"), e);
        let size = self.segment_bytes();
        let fill = |file: &dyn File| {
            if file.len()? > 0 {
                file.set_len(0)?;
            }
            match file.allocate(0, size) {
                // The file system has made it zero.
                Ok(()) => {
                    self.writes.zeroes.fetch_add(size, Ordering::Relaxed);
                }
                Err(e) if e.kind() == ErrorKind::Unsupported => self.fill_with_zeroes(file)?,
                Err(e) => return Err(e),
            }
            file.sync()
        };
        let file = self.io.create(&name, again, &fill).map_err(failed)?;
        self.io.sync_dir(FOLDER).map_err(failed)?;
        Ok(SlotFile { slot, is_below: self.io.is_below(&name), file })
    }

    fn fill_with_zeroes(&self, file: &dyn File) -> io::Result<()> {
        let size = self.segment_bytes();
        let zeroes = AlignedBuf::zeroed(PIECE.min(size as usize));
        let mut at = 0;
        while at < size {
            let piece = (size - at).min(zeroes.len() as u64);
            file.write_at(&[&zeroes[..piece as usize]], at, Durability::Volatile)?;
            self.writes.zeroes.fetch_add(piece, Ordering::Relaxed);
            at += piece;
        }
        Ok(())
    }

    /// Notes that the medium, or the system, refuses a file, which is no failure of the log. What the file took is needed elsewhere.
    fn refuse(&self, slot: u32, is_below: bool, why: &Error) -> Result<()> {
        self.remove_refused(slot)?;
        let mut table = self.table.write();
        table.tier(is_below).is_full = true;
        table.is_out_of_files = why.is_out_of_files();
        drop(table);
        self.measure_space();
        Ok(())
    }

    fn remove_refused(&self, slot: u32) -> Result<()> {
        let name = file_name(slot);
        match self.io.remove(&name) {
            // It could not even be opened, or is removed already.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|e| Error::io(format!("remove {name}"), e)),
        }
    }

    /// Makes a spare of the file of the oldest segment that is kept for pins only: they are overrun. False if there is none.
    fn give_held(&self, durable: Lsn) -> Result<bool> {
        let mut pins = self.pins.lock();
        let Some((seq, segment)) = self.table.write().held.pop_first() else { return Ok(false) };
        pins.overrun_below(self.start_of(seq + 1));
        self.write_freed(&segment, durable)?;
        self.table.write().add_spare(segment.file.clone());
        Ok(true)
    }

    /// Moves segments down until the folders above have as few files as they should, or nothing can move any more.
    pub fn give_room_above(&self, durable: Lsn) -> Result<()> {
        let _preparing = self.pause_preparing();
        while self.wants_less_above() {
            let spare = self.table.write().above.spares.pop();
            if let Some(file) = spare {
                self.table.write().above.files -= 1;
                self.remove_files(vec![file])?;
            } else if !self.move_down(durable)? {
                break;
            }
            self.measure_space();
        }
        Ok(())
    }

    /// Moves the oldest segment down that can be; false if none can, or there is no room for it. What it leaves is a spare, or removed.
    fn move_down(&self, durable: Lsn) -> Result<bool> {
        loop {
            let Some(segment) = self.oldest_above(durable) else { return Ok(false) };
            let Some(file) = self.take_file_below()? else { return Ok(false) };
            let moved =
                Arc::new(Segment::new(segment.seq, file, segment.entry(), self.segment_bytes() as u32));
            match self.copy_down(&segment, &moved, durable)? {
                Copied::Done => {
                    self.replace(segment, moved, durable)?;
                    return Ok(true);
                }
                Copied::Unreadable => {
                    // It stays where it is, and who needs something of it is told.
                    let mut table = self.table.write();
                    table.lowest_above = segment.seq + 1;
                    table.add_spare(moved.file.clone());
                }
                Copied::Full(why) => {
                    self.table.write().below.files -= 1;
                    self.refuse(moved.file.slot, true, &why)?;
                    return Ok(false);
                }
            }
        }
    }

    /// The oldest segment that is not below, could be read so far and will not be written to any more.
    fn oldest_above(&self, durable: Lsn) -> Option<Arc<Segment>> {
        self.io.below()?;
        let table = self.table.read();
        let movable = table.lowest_above..self.seq_of(durable - 1).max(table.lowest_above);
        let oldest = |segments: &BTreeMap<u64, Arc<Segment>>| {
            segments
                .range(movable.clone())
                .map(|(_, segment)| segment)
                .find(|segment| !segment.file.is_below)
                .cloned()
        };
        [&table.kept, &table.held].into_iter().filter_map(oldest).min_by_key(|segment| segment.seq)
    }

    /// A file below that says that it is free, or nothing.
    fn take_file_below(&self) -> Result<Option<SlotFile>> {
        if let Some(file) = self.table.write().below.spares.pop() {
            return Ok(Some(file));
        }
        if !self.table.read().may_create(true) || self.room_below().is_some_and(|segments| segments <= 0) {
            return Ok(None);
        }
        let slot = self.table.read().free_slot(BELOW);
        match SlotFile::open(&*self.io, slot, true) {
            Err(e) if is_refusal(&e) => self.refuse(slot, true, &e).map(|()| None),
            Ok(file) => {
                self.table.write().tier(file.is_below).files += 1;
                Ok(Some(file))
            }
            Err(e) => Err(e),
        }
    }

    /// Copies a segment's bytes, and writes the header once these are durable.
    fn copy_down(&self, from: &Segment, to: &Segment, durable: Lsn) -> Result<Copied> {
        let size = self.segment_bytes();
        let write = |bytes: &[u8], at| {
            let written = to.file.write_at(&[bytes], at, Durability::Volatile);
            written.map_err(|e| Error::io(format!("write {}", to.file.name()), e))
        };
        let copy = || -> Result<Copied> {
            let failed = |e| Error::io(format!("write {}", to.file.name()), e);
            if to.file.len().map_err(failed)? != size {
                // It was just made, and is nothing before it has a header.
                write(&AlignedBuf::zeroed(BLOCK), 0)?;
                self.writes.headers.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
                to.file.set_len(size).map_err(failed)?;
            }
            let mut memory = AlignedBuf::zeroed(PIECE.min((size - BLOCK_BYTES) as usize));
            let mut at = BLOCK_BYTES;
            while at < size {
                let len = (size - at).min(memory.len() as u64) as usize;
                if from.file.read_at(&mut memory[..len], at).is_err() {
                    return Ok(Copied::Unreadable);
                }
                write(&memory[..len], at)?;
                self.writes.moved.fetch_add(len as u64, Ordering::Relaxed);
                at += len as u64;
            }
            let synced = to.file.sync().and_then(|()| self.io.sync_dir(FOLDER));
            synced.map_err(|e| Error::io(format!("sync {}", to.file.name()), e))?;
            self.write_header(to, durable, from.entry())?;
            Ok(Copied::Done)
        };
        match copy() {
            Err(e) if e.is_full() => Ok(Copied::Full(e)),
            copied => copied,
        }
    }

    /// Puts a segment's copy in its place, unless it was freed meanwhile.
    fn replace(&self, segment: Arc<Segment>, copy: Arc<Segment>, durable: Lsn) -> Result<()> {
        let pins = self.pins.lock();
        let mut table = self.table.write();
        table.lowest_above = segment.seq + 1;
        let Table { kept, held, .. } = &mut *table;
        match kept.get_mut(&segment.seq).or_else(|| held.get_mut(&segment.seq)) {
            Some(place) => *place = copy,
            None => {
                drop(table);
                self.write_freed(&copy, durable)?;
                self.table.write().add_spare(copy.file.clone());
                return Ok(());
            }
        }
        drop(table);
        let is_pinned = pins.keep(self.start_of(segment.seq + 1));
        drop(pins);
        let file = segment.file.clone();
        // Whom a pin is for may read files that it has opened itself; and reads under way at the operating system hold no segment.
        let is_ours = !is_pinned && self.io.scm().is_some() && is_unused(segment, &file);
        let mut table = self.table.write();
        if is_ours {
            // Its header says what it was. That is the same as below.
            table.add_spare(file);
            return Ok(());
        }
        table.above.files -= 1;
        drop(table);
        // Who has opened it can still read it.
        self.remove_files(vec![file])
    }

    pub fn segment_bytes(&self) -> u64 {
        self.payload() + BLOCK_BYTES
    }
}

/// Whether a file could not be made for want of something that others may give back.
fn is_refusal(error: &Error) -> bool {
    error.is_full() || error.is_out_of_files()
}

/// Whether nobody else has a segment or its file, of which the caller has one handle; or will have let go of it soon.
fn is_unused(mut segment: Arc<Segment>, file: &SlotFile) -> bool {
    for _ in 0..WAITS {
        match Arc::try_unwrap(segment) {
            Ok(last) => {
                drop(last);
                return Arc::strong_count(&file.file) == 1;
            }
            Err(shared) => segment = shared,
        }
        thread::sleep(WAIT);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FILES, Log, LogOptions};
    use holdfast_io::{Further, SimIo, Spread};

    /// Who has found a segment reads its file a moment later, whatever has become of it.
    #[test]
    fn who_still_reads_a_file_keeps_it_from_being_used_again() {
        let sim = SimIo::on_scm(1);
        let below = [Further { path: "drive".to_owned(), is_below: true }];
        let open = |further: &Further<&str>, _: bool| Ok(sim.folder_on_drive(further.path));
        let io = Spread::open(sim.folder("home"), "home", FILES, &below, &open).expect("new folders");
        let like = LogOptions::to_read(16 << 10, [7; 16], 1, 5);
        let options = LogOptions { max_segments: 64, segments_above_max: 5, ..like };
        let log = Log::create(io, options).expect("a new log");
        let mut found = Vec::new();
        for number in 0..200u8 {
            log.append(&[number; 2000]);
            log.commit_once().expect("room");
            let newest = log.segments.get(log.segments.seq_of(log.tail() - 1)).expect("it is in use");
            if found.last().is_none_or(|(segment, _): &(Arc<Segment>, _)| segment.seq < newest.seq) {
                let mut bytes = vec![0; 16];
                newest.file.read_at(&mut bytes, BLOCK_BYTES).expect("a sound medium");
                found.push((newest, bytes));
            }
        }
        assert!(found.len() > 20 && log.segments.get(1).is_some_and(|segment| segment.file.is_below));
        for (segment, bytes) in &found[1..found.len() - 1] {
            let mut again = vec![0; 16];
            segment.file.read_at(&mut again, BLOCK_BYTES).expect("a sound medium");
            assert!(again == *bytes, "the file of segment {} was used again", segment.seq);
        }
        // Without anybody, it is.
        drop(found);
        let made = log.writes().zeroes;
        for _ in 0..100 {
            log.append(&[1; 2000]);
            log.commit_once().expect("room");
        }
        assert_eq!(log.writes().zeroes, made);
    }
}
