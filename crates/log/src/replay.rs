//! Opening a log: which files hold what, where the log ends, and whether that end is a torn tail or a loss.
//!
//! The first position without an intact batch of its own LSN ends the log. What lies behind it was written by
//! commits that did not complete, unless something there proves that the position had been durable once: then
//! the store refuses to start, and all is left as it was found. Batches behind a torn one may be intact, and could later seem to follow a new
//! batch that ends where the torn one did; so they are overwritten with zeroes before anything is appended.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    mem,
    num::NonZero,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed, mpsc},
    thread,
};

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result, in_parallel};

use crate::{
    Log, LogOptions,
    layout::{
        BATCH_ALIGN, BLOCK_BYTES, Entry, FIRST_LSN, Lsn, SegmentHeader, block_ceil, block_floor,
        block_offset, claimed_len,
    },
    segments::Segments,
    table::{FOLDER, Segment, SlotFile, file_name, read_header, slot_of},
    window::{Batch, Window},
};

/// Bytes written at once when the end of the log is written again.
const SETTLE_BYTES: usize = 1 << 20;
/// Bytes of payloads that are handed over at once, about.
const CHECKED_BYTES: usize = 2 << 20;
/// How often this much may be checked ahead of those who prepare it, and prepared ahead of its use.
const AHEAD: usize = 2;
/// Threads that prepare batches at once, at most.
const PREPARERS: usize = 8;
/// Threads that open files at once, and files below which one does.
const OPENERS: usize = 32;
const OPENED_BY_ONE: usize = 256;

/// What opening a log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// Batches replayed.
    pub batches: u64,
    /// Bytes of log replayed.
    pub bytes: u64,
    /// Where the log goes on.
    pub tail: Lsn,
    /// The epoch of the last batch; 0: there was none.
    pub epoch: u32,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<Cut>,
}

/// A torn tail: what a crash left of commits that did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Name of the file in which it begins.
    pub file: String,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Bytes of log from there to the last trace of a batch.
    pub bytes: u64,
}

/// What the files in the folder say of themselves.
struct Files {
    kept: BTreeMap<u64, Arc<Segment>>,
    spares: Vec<SlotFile>,
    found: Found,
}

/// What was found of a log beside its segments.
#[derive(Default)]
struct Found {
    /// The newest durable mark in a header.
    marked: Lsn,
    /// Segments of which there are two files, as they were moving down.
    moving: Vec<u64>,
}

/// A log of which all batches were replayed. What lies behind the last one was not looked at yet.
pub struct Unended(Replayed);

impl Unended {
    /// Where the last batch ends.
    pub fn tail(&self) -> Lsn {
        self.0.report.tail
    }

    /// Looks at what lies behind the last batch, which takes a while.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: something there proves that more had been durable.
    pub fn end(self) -> Result<Replayed> {
        let Unended(mut replayed) = self;
        let tail = replayed.report.tail;
        if replayed.options.ended_at != Some(tail) {
            replayed.torn_end = replayed.segments.torn_end(tail, replayed.options.crc_seed)?;
        }
        if replayed.torn_end > tail {
            let (file, offset) = replayed.segments.locate(tail);
            replayed.report.cut = Some(Cut { file, offset, bytes: replayed.torn_end - tail });
        }
        Ok(replayed)
    }
}

/// A log that was replayed and found sound. Nothing of it was changed: that is left to [`Replayed::open`].
pub struct Replayed {
    /// What the replay found.
    pub report: ReplayReport,
    options: LogOptions,
    segments: Segments,
    /// What is known to be durable.
    mark: Lsn,
    /// Where the last trace of a batch behind the tail ends.
    torn_end: Lsn,
    /// Segments whose headers do not say how the log enters them.
    entries: Vec<(u64, Entry)>,
    /// Segments of which there are two files, as they were moving down.
    moving: Vec<u64>,
    /// Bytes of the tail's block before the tail.
    tail_block: Vec<u8>,
    /// Whether a segment header says that everything is durable.
    is_marked: bool,
}

impl Replayed {
    /// Has the log end at `end`, a batch's end, instead of where it does: [`Replayed::open`] overwrites what lies behind.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: something behind it is known to be durable.
    pub fn cut(&mut self, end: Lsn) -> Result<()> {
        let tail = self.report.tail;
        if end >= tail {
            return Ok(());
        }
        if self.mark > end {
            return Err(self.segments.corrupt(end, "what is to be cut off is durable"));
        }
        self.torn_end = self.torn_end.max(tail);
        self.report.tail = end;
        self.tail_block.resize(block_offset(end), 0);
        self.segments.read(block_floor(end), &mut self.tail_block)
    }

    /// Leaves the files so that the log can be continued, and opens it. Where nothing can be written, nothing is, and the
    /// log has failed from the start.
    pub fn open(self) -> Result<Arc<Log>> {
        let (io, tail) = (self.segments.io.clone(), self.report.tail);
        let is_read_only = io.is_read_only();
        if !is_read_only {
            self.segments.mend(self.mark, tail, self.torn_end, &self.entries, &self.moving)?;
        }
        let log = Log::new(io, &self.options, self.segments, tail, self.tail_block, self.is_marked);
        if is_read_only {
            log.fail(&Error::Unusable("it is only read".to_owned()));
        } else {
            log.leave_room_to_empty();
        }
        Ok(log)
    }
}

/// Removes what an interrupted creation of this store's log left behind, and nothing else.
pub(crate) fn clear_folder(io: &dyn Io, store_id: [u8; 16]) -> Result<()> {
    let names: Vec<String> = slots(io)?.into_iter().map(file_name).collect();
    for name in &names {
        let failed = |e| Error::io(format!("read {name}"), e);
        let file = io.open(name, false).map_err(failed)?;
        let mut start = vec![0; 2 * BLOCK + BATCH_ALIGN];
        if file.len().map_err(failed)? < start.len() as u64 {
            continue;
        }
        file.read_at(&mut start, 0).map_err(failed)?;
        let (block, granule) = (&start[..BLOCK], &start[2 * BLOCK..]);
        let is_new = SegmentHeader::read(block, name)
            .is_ok_and(|header| header.is_none_or(|h| h.store_id == store_id && h.seq <= 1));
        let is_empty = claimed_len(granule, FIRST_LSN).is_none();
        if !(is_empty && is_new) {
            return Err(Error::Unusable(format!("{name} holds a log already")));
        }
    }
    names.iter().try_for_each(|name| io.remove(name).map_err(|e| Error::io(format!("remove {name}"), e)))
}

/// Finds the segments of a log of which everything from `from` on is needed.
fn find_files(io: &dyn Io, o: &LogOptions, from: Lsn) -> Result<Files> {
    let mut files = Files { kept: BTreeMap::new(), spares: Vec::new(), found: Found::default() };
    let payload = u64::from(o.segment_size) - BLOCK_BYTES;
    for (header, segment) in open_segments(io, o, slots(io)?)?.into_iter().flatten() {
        let slot = segment.file.slot;
        files.found.marked = files.found.marked.max(header.durable);
        if header.is_free {
            if (header.seq + 1) * payload > from {
                return Err(Error::corrupt(
                    &file_name(slot),
                    68,
                    "a segment that is needed says that it is free",
                ));
            }
            files.spares.push(segment.file.clone());
        } else if let Some(other) = files.kept.remove(&header.seq) {
            let (kept, left) = choose_copy(other, segment)?;
            files.kept.insert(header.seq, kept);
            files.found.moving.push(header.seq);
            files.spares.push(left.file.clone());
        } else {
            files.kept.insert(header.seq, segment);
        }
    }
    Ok(files)
}

/// Of two files with the same segment, the one that counts, and the one that the segment has left: it was moving down.
pub(crate) fn choose_copy(one: Arc<Segment>, other: Arc<Segment>) -> Result<(Arc<Segment>, Arc<Segment>)> {
    let (above, below) = if one.file.is_below { (other, one) } else { (one, other) };
    if above.file.is_below == below.file.is_below || above.entry() != below.entry() {
        let what = format!("has the same sequence number as {}", above.file.name());
        return Err(Error::corrupt(below.file.name(), 32, what));
    }
    Ok((below, above))
}

/// The numbers of the segment files that exist.
pub(crate) fn slots(io: &dyn Io) -> Result<Vec<u32>> {
    match io.list(FOLDER) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::io(format!("list {FOLDER}"), e)),
        Ok(names) => Ok(names.iter().filter_map(|name| slot_of(name)).collect()),
    }
}

/// `None`: the file was being created, and holds nothing.
type Opened = Option<(SegmentHeader, Arc<Segment>)>;

/// Opens files, in the order of `slots`. A terabyte of log has 32,000, and each waits for its medium once: many are opened at once.
fn open_segments(io: &dyn Io, o: &LogOptions, slots: Vec<u32>) -> Result<Vec<Opened>> {
    let threads = slots.len().div_ceil(OPENED_BY_ONE).min(OPENERS);
    in_parallel("holdfast-open", threads, slots, |slot| open_segment(io, o, slot))
}

fn open_segment(io: &dyn Io, o: &LogOptions, slot: u32) -> Result<Opened> {
    let name = file_name(slot);
    let file = SlotFile::open(io, slot, false)?;
    let len = file.len().map_err(|e| Error::io(format!("open {name}"), e))?;
    if len < BLOCK_BYTES {
        return Ok(None);
    }
    let Some(header) = read_header(&*file, &name)? else { return Ok(None) };
    if header.store_id != o.store_id {
        return Err(Error::Unusable(format!("{name} belongs to another store")));
    }
    if header.segment_size != o.segment_size {
        let (found, asked) = (header.segment_size, o.segment_size);
        return Err(Error::Unusable(format!("{name} has segments of {found} bytes, not of {asked}")));
    }
    if len != u64::from(header.segment_size) {
        return Err(Error::corrupt(&name, len, "the file is not as long as its header says"));
    }
    // So that no position in or near the segment overflows.
    if header.seq >= i64::MAX as u64 / u64::from(o.segment_size) {
        return Err(Error::corrupt(&name, 32, "impossible sequence number"));
    }
    let segment = Arc::new(Segment::new(header.seq, file, header.entry, header.reach));
    Ok(Some((header, segment)))
}

/// Batches that are intact, one behind another.
#[derive(Default)]
struct Checked {
    /// The LSN of the first.
    start: Lsn,
    batches: Vec<CheckedBatch>,
    /// Their payloads, one behind another.
    payloads: Vec<u8>,
}

struct CheckedBatch {
    end: Lsn,
    epoch: u32,
    /// Everything below was durable when the batch was appended.
    durable: Lsn,
    payload_len: usize,
}

impl Checked {
    fn push(&mut self, lsn: Lsn, batch: &Batch) {
        let Batch { payload, end, epoch, durable } = *batch;
        if self.batches.is_empty() {
            self.start = lsn;
        }
        self.batches.push(CheckedBatch { end, epoch, durable, payload_len: payload.len() });
        self.payloads.extend_from_slice(payload);
    }

    /// The LSN and the payload of each.
    fn payloads(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let (mut next, mut rest) = (self.start, &self.payloads[..]);
        self.batches.iter().map(move |batch| {
            let (payload, behind) = rest.split_at(batch.payload_len);
            rest = behind;
            (mem::replace(&mut next, batch.end), payload)
        })
    }

    /// Empties it, and keeps its memory unless that was taken for one large batch.
    fn clear(&mut self) {
        self.batches.clear();
        self.payloads.clear();
        self.payloads.shrink_to(2 * CHECKED_BYTES);
    }
}

/// What was prepared of some batches, and these.
type Prepared<T> = Result<(Checked, T)>;

/// Replays the log, which is needed from `checkpoint` on, from `from` on. `durable`: everything below is known to be so.
/// `prepare` and `apply`: see [`Log::replay_prepared`].
pub(crate) fn replay<T: Send>(
    io: Arc<dyn Io>,
    options: LogOptions,
    (checkpoint, from): (Lsn, Lsn),
    durable: Lsn,
    prepare: impl Fn(&mut dyn Iterator<Item = (Lsn, &[u8])>) -> Result<T> + Sync,
    apply: impl FnMut(&mut dyn Iterator<Item = (Lsn, &[u8])>, T) -> Result<()>,
) -> Result<Unended> {
    let Files { kept, spares, found } = find_files(&*io, &options, checkpoint)?;
    let next = kept.keys().next_back().map_or(0, |newest| newest + 1);
    let segments = Segments::new(io, &options, kept, spares, next);
    for seq in segments.seq_of(checkpoint)..segments.seq_of(from) {
        if segments.get(seq).is_none() {
            return Err(segments.corrupt(segments.start_of(seq), "the segment is missing"));
        }
    }
    segments.replay(options, from, durable, found, prepare, apply)
}

impl Segments {
    fn replay<T: Send>(
        mut self,
        mut options: LogOptions,
        from: Lsn,
        durable: Lsn,
        found: Found,
        prepare: impl Fn(&mut dyn Iterator<Item = (Lsn, &[u8])>) -> Result<T> + Sync,
        mut apply: impl FnMut(&mut dyn Iterator<Item = (Lsn, &[u8])>, T) -> Result<()>,
    ) -> Result<Unended> {
        let seed = options.crc_seed;
        let mut report = ReplayReport { batches: 0, bytes: 0, tail: from, epoch: 0, cut: None };
        // The newest byte of a log is never freed, but the segment after it may not be prepared yet.
        if self.get(self.seq_of(from)).is_none() && self.get(self.seq_of(from - 1)).is_none() {
            return Err(self.corrupt(from, "the segment of the checkpoint is missing"));
        }
        let mut mark = durable.max(found.marked).max(from);
        let (mut entries, mut next_start) = (Vec::new(), from.next_multiple_of(self.payload()));
        let mut last = from;
        self.with_checked(from, seed, prepare, |checked, prepared| {
            apply(&mut checked.payloads(), prepared)?;
            for batch in &checked.batches {
                mark = mark.max(batch.durable);
                if next_start < batch.end {
                    self.note_entries(report.tail, batch.end, &mut entries);
                    next_start = batch.end.next_multiple_of(self.payload());
                }
                report.batches += 1;
                (last, report.tail, report.epoch) = (report.tail, batch.end, batch.epoch);
            }
            Ok(())
        })?;
        report.bytes = report.tail - from;
        if options.agreed.is_none() {
            options.epoch = options.epoch.max(report.epoch);
            self.epoch = options.epoch;
        } else if report.epoch > options.epoch {
            let (found, asked) = (report.epoch, options.epoch);
            return Err(Error::Unusable(format!("the log is of epoch {found}, which is later than {asked}")));
        }
        let tail = report.tail;
        self.check_nothing_is_missing(tail)?;
        if mark > tail {
            return Err(self.corrupt(tail, "a durable batch is damaged or missing"));
        }
        self.check_headers(last, tail, &entries)?;
        let mut tail_block = vec![0; block_offset(tail)];
        self.read(block_floor(tail), &mut tail_block)?;
        let is_marked = found.marked == tail || tail == FIRST_LSN;
        let (segments, torn_end) = (self, tail);
        let moving = found.moving;
        Ok(Unended(Replayed {
            report,
            options,
            segments,
            mark,
            torn_end,
            entries,
            moving,
            tail_block,
            is_marked,
        }))
    }

    /// Leaves the files so that the log can be continued at `tail`.
    fn mend(
        &self,
        mark: Lsn,
        tail: Lsn,
        torn_end: Lsn,
        entries: &[(u64, Entry)],
        moving: &[u64],
    ) -> Result<()> {
        for segment in self.kept() {
            let (start, end) = (self.start_of(segment.seq), self.start_of(segment.seq + 1));
            let noted = entries.iter().find(|(seq, _)| *seq == segment.seq);
            let entry = match noted {
                _ if start >= tail => Entry::default(),
                Some((_, entry)) => *entry,
                None => segment.entry(),
            };
            // A header that was read may be in the system's cache only, if its sync has failed. So those are written again within which, or
            // behind which, the log goes on, and those because of which another file may be used again.
            if end > mark || noted.is_some() || moving.contains(&segment.seq) {
                let used = tail.clamp(start, end) - start;
                let reach = self.reach_over(&segment, BLOCK_BYTES + used);
                self.write_header_reaching(&segment, mark, entry, reach)?;
            }
        }
        self.settle(mark, tail, torn_end)
    }

    /// Calls `f` with the batches from `from` on and what is prepared of them, in order, up to the first that is not intact or whose epoch goes
    /// back. Other threads prepare them ahead, another one checks them before, and yet another one reads.
    fn with_checked<T: Send>(
        &self,
        from: Lsn,
        seed: u32,
        prepare: impl Fn(&mut dyn Iterator<Item = (Lsn, &[u8])>) -> Result<T> + Sync,
        mut f: impl FnMut(&Checked, T) -> Result<()>,
    ) -> Result<()> {
        let preparers = thread::available_parallelism().map_or(1, NonZero::get).min(PREPARERS);
        let (sender, unprepared) = mpsc::sync_channel::<(Checked, mpsc::Sender<Prepared<T>>)>(AHEAD);
        let unprepared = Mutex::new(unprepared);
        // In the order of the log, who will tell what was prepared.
        let (promise, promised) = mpsc::sync_channel::<mpsc::Receiver<Prepared<T>>>(preparers + AHEAD);
        let (give_back, spare) = mpsc::channel::<Checked>();
        let prepare = || {
            let next = || unprepared.lock().expect("nobody panics with it").recv();
            while let Ok((checked, tell)) = next() {
                let prepared = prepare(&mut checked.payloads());
                // Nobody listens after an error.
                let _ = tell.send(prepared.map(|prepared| (checked, prepared)));
            }
        };
        let check = move || {
            let mut checked = Checked::default();
            // How many were handed over and not given back.
            let (mut ahead, mut spares) = (0, Vec::new());
            // `None`: nobody listens any more.
            let mut send = |checked: &mut Checked| {
                spares.extend(spare.try_iter().inspect(|_| ahead -= 1));
                // What takes much memory goes alone.
                while checked.payloads.len() > 2 * CHECKED_BYTES && ahead > 0 {
                    spares.push(spare.recv().ok()?);
                    ahead -= 1;
                }
                let next = spares.pop().unwrap_or_default();
                let (tell, told) = mpsc::channel();
                sender.send((mem::replace(checked, next), tell)).ok()?;
                ahead += 1;
                promise.send(told).ok()
            };
            let (mut at, mut epoch) = (from, 0);
            let result = self.with_window(from, Lsn::MAX, seed, |window| {
                while let Some(batch) = window.batch(at)? {
                    if batch.epoch < epoch {
                        // It is no part of this log: an earlier epoch's log went on here.
                        break;
                    }
                    checked.push(at, &batch);
                    (at, epoch) = (batch.end, batch.epoch);
                    if checked.payloads.len() >= CHECKED_BYTES && send(&mut checked).is_none() {
                        break;
                    }
                }
                Ok(())
            });
            if !checked.batches.is_empty() {
                send(&mut checked);
            }
            if let Err(e) = result {
                let (tell, told) = mpsc::channel();
                let _ = tell.send(Err(e));
                let _ = promise.send(told);
            }
        };
        thread::scope(|scope| {
            // Dropped before the scope waits for the threads, which ends the one that checks, and so all others.
            let (check, promised, give_back) = (check, promised, give_back);
            for _ in 0..preparers {
                let named = thread::Builder::new().name("holdfast-sort".to_owned());
                let spawned = named.spawn_scoped(scope, prepare);
                spawned.map_err(|e| Error::io("start the thread holdfast-sort", e))?;
            }
            let spawned = thread::Builder::new().name("holdfast-check".to_owned()).spawn_scoped(scope, check);
            spawned.map_err(|e| Error::io("start the thread holdfast-check", e))?;
            for told in promised {
                let (mut checked, prepared) = told.recv().expect("each is prepared")?;
                f(&checked, prepared)?;
                checked.clear();
                // The thread has ended when all is checked.
                let _ = give_back.send(checked);
            }
            Ok(())
        })
    }

    /// Adds to `entries` the segments whose headers do not say how the batch `start..end` enters them: the crash
    /// may have taken the header and left the batch.
    fn note_entries(&self, start: Lsn, end: Lsn, entries: &mut Vec<(u64, Entry)>) {
        for seq in start.div_ceil(self.payload())..end.div_ceil(self.payload()) {
            let segment = self.get(seq).expect("the batch was read from it");
            let first = if self.start_of(seq) == start { start } else { end };
            let entry = Entry { crossing: start, first };
            if segment.entry() != entry {
                entries.push((seq, entry));
            }
        }
    }

    /// The header of a segment is durable before the log's bytes in it that it tells of, or came with the first of them where a version
    /// before has written them. If it does not say how the log enters the segment, and no batch that was read does, or if there are batches beyond its
    /// reach, then the device has lost it after it was durable; and the log must not go on in this segment as if nothing were there.
    ///
    /// But the `last` batch may lie within the reach with its beginning only, if the power was cut before the header was written, and what was to come
    /// behind it equals what the file held before: such as zeros.
    fn check_headers(&self, last: Lsn, tail: Lsn, entries: &[(u64, Entry)]) -> Result<()> {
        let is_lost = |segment: &Arc<Segment>| {
            let is_noted = entries.iter().any(|(seq, _)| *seq == segment.seq);
            let (end, reach) = (tail.min(self.start_of(segment.seq + 1)), self.reach_of(segment));
            let has_entry = !segment.is_empty() || is_noted;
            self.start_of(segment.seq) < tail && !(has_entry && (end <= reach || last < reach))
        };
        match self.kept().into_iter().find(is_lost) {
            Some(segment) => Err(self.corrupt(self.start_of(segment.seq), "the segment's header was lost")),
            None => Ok(()),
        }
    }

    /// Segments are prepared in order, and only old ones are freed.
    fn check_nothing_is_missing(&self, tail: Lsn) -> Result<()> {
        let kept = self.kept();
        let from_tail = kept.iter().map(|segment| segment.seq).filter(|&seq| seq >= self.seq_of(tail));
        for (seq, expected) in from_tail.zip(self.seq_of(tail)..) {
            if seq != expected {
                return Err(self.corrupt(self.start_of(expected), "the segment is missing"));
            }
        }
        Ok(())
    }

    /// Where the last trace of a batch behind `tail` ends; an error if one proves that `tail` was durable.
    fn torn_end(&self, tail: Lsn, seed: u32) -> Result<Lsn> {
        self.with_window(tail, self.reach_behind(tail), seed, |window: &mut Window| {
            let (mut at, mut end) = (tail, tail);
            while let Some(claim) = window.next_claim(at)? {
                at = match window.batch(claim)? {
                    Some(batch) if batch.durable > tail => {
                        return Err(self.corrupt(tail, "a durable batch is damaged or missing"));
                    }
                    Some(batch) => batch.end,
                    None => claim + BATCH_ALIGN as u64,
                };
                end = at;
            }
            Ok(end)
        })
    }

    /// Makes the log from `mark` to `tail` durable, and what follows up to `torn_end` zero.
    ///
    /// What was read may be in the system's cache only. If a sync has failed before, another one would not write
    /// it: only writing it again does.
    fn settle(&self, mark: Lsn, tail: Lsn, torn_end: Lsn) -> Result<()> {
        let (mut at, end) = (block_floor(mark), block_ceil(torn_end));
        let mut memory = AlignedBuf::zeroed(SETTLE_BYTES.min((end - at) as usize));
        while at < end {
            let seq = self.seq_of(at);
            let next = end.min(self.start_of(seq + 1)).min(at + SETTLE_BYTES as u64);
            let piece = &mut memory[..(next - at) as usize];
            let replayed = (tail.clamp(at, next) - at) as usize;
            self.read(at, &mut piece[..replayed])?;
            piece[replayed..].fill(0);
            let segment = self.get(seq).expect("it was read");
            let written = segment.file.write_at(&[piece], self.file_offset(at), Durability::Durable);
            written.map_err(|e| Error::io(format!("write {}", segment.file.name()), e))?;
            self.writes.rewritten.fetch_add(next - at, Relaxed);
            at = next;
        }
        Ok(())
    }
}
