//! Power cuts, killed processes and failing devices at every operation. `HOLDFAST_SEED` replays one case.

use std::{collections::BTreeMap, sync::Arc, thread};

use crate::fixture::{
    Rng, SEGMENT_PAYLOAD, any_folders, any_machine, assert_nothing_is_beyond_its_reach, has_drive_below,
    open, options, payload, seeds,
};
use holdfast_io::{Error, Fault, Io, SimIo};
use holdfast_log::{
    Admission, Appendfsync, BATCH_HEADER, FIRST_LSN, Log, LogOptions, Lsn, Scope, SegmentInfo, batch_len,
};

/// What a log must hold.
struct Model {
    seed: u64,
    options: LogOptions,
    /// Every batch ever appended and not cut off.
    batches: BTreeMap<Lsn, Vec<u8>>,
    /// The checkpoint: what `open` is given.
    from: Lsn,
    /// The largest durable mark that was seen.
    durable: Lsn,
    number: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let options =
            LogOptions { appendfsync: MODES[seed as usize % 3], segments_above_max: 4, ..options() };
        Self { seed, options, batches: BTreeMap::new(), from: FIRST_LSN, durable: FIRST_LSN, number: 0 }
    }

    fn create(&self, io: &SimIo) -> Arc<Log> {
        let folders = any_folders(io, self.seed).expect("new folders");
        Log::create(folders, self.options.clone()).expect("a new log")
    }

    /// Uses the log at random until something fails or the steps are done.
    fn work(&mut self, log: &Log, io: &SimIo, rng: &mut Rng, steps: u64) -> Result<(), Error> {
        for _ in 0..steps {
            match rng.below(16) {
                0..8 => self.append(log, rng),
                8 => log.store_ahead(),
                9 => self.commit_elsewhere(log)?,
                10..13 => drop(log.commit_once()?),
                13 if rng.below(4) == 0 => log.set_appendfsync(MODES[rng.below(3) as usize]),
                13 => io.advance_ms(rng.below(700)),
                14 => {
                    self.durable = log.durable();
                    self.checkpoint(log, rng);
                }
                _ => {
                    self.durable = log.durable();
                    self.scan(log, rng)?;
                }
            }
            self.durable = log.durable();
        }
        Ok(())
    }

    fn append(&mut self, log: &Log, rng: &mut Rng) {
        let len = match rng.below(40) {
            0 => rng.below(3 * SEGMENT_PAYLOAD),
            1..5 => rng.below(6000),
            _ => rng.below(300),
        } as usize;
        if log.admit(len) != Admission::Ok {
            return;
        }
        self.number += 1;
        let mut payload = payload(self.number, len);
        if rng.below(4) == 0 {
            // What is not written to a new file looks the same.
            payload[rng.below(len as u64 + 1) as usize..].fill(0);
        }
        let lsn = log.append(&payload);
        self.batches.insert(lsn, payload);
    }

    /// Commits in another thread, whose fence is not for what this one has stored.
    fn commit_elsewhere(&self, log: &Log) -> Result<(), Error> {
        let committed = thread::scope(|scope| scope.spawn(|| log.commit_once()).join());
        committed.expect("a thread that does not panic").map(drop)
    }

    /// Moves the checkpoint to some durable batch, and frees some segments before it.
    fn checkpoint(&mut self, log: &Log, rng: &mut Rng) {
        let durable: Vec<Lsn> = self.batches.range(self.from..self.durable).map(|(&lsn, _)| lsn).collect();
        if durable.is_empty() {
            return;
        }
        self.from = durable[rng.below(durable.len() as u64) as usize];
        for segment in log.segments() {
            if segment.seq < self.from / SEGMENT_PAYLOAD && rng.below(3) > 0 {
                log.free_segment(segment.seq);
            }
        }
    }

    fn scan(&self, log: &Log, rng: &mut Rng) -> Result<(), Error> {
        let segments = log.segments();
        self.scan_one(log, &segments, segments[rng.below(segments.len() as u64) as usize].seq)
    }

    fn scan_all(&self, log: &Log) -> Result<(), Error> {
        let segments = log.segments();
        segments.iter().try_for_each(|segment| self.scan_one(log, &segments, segment.seq))
    }

    /// Whatever a segment shows was appended, and nothing is missing unless a neighbour is.
    fn scan_one(&self, log: &Log, segments: &[SegmentInfo], seq: u64) -> Result<(), Error> {
        let mut seen = Vec::new();
        log.scan_segment(seq, Scope::All, &mut |lsn, payload| {
            assert_eq!(self.batches.get(&lsn).map(Vec::as_slice), Some(payload), "batch {lsn}");
            seen.push(lsn);
            Ok(())
        })?;
        let (start, end) = (seq * SEGMENT_PAYLOAD, ((seq + 1) * SEGMENT_PAYLOAD).min(self.durable));
        let overlaps = |lsn: Lsn, payload: &[u8]| lsn < end && lsn + batch_len(payload.len()) > start;
        let inside = |lsn: Lsn, payload: &[u8]| lsn >= start && lsn + batch_len(payload.len()) <= end;
        let is_kept = |seq: u64| segments.iter().any(|segment| segment.seq == seq);
        for (&lsn, payload) in &self.batches {
            let last = (lsn + batch_len(payload.len()) - 1) / SEGMENT_PAYLOAD;
            let all_kept = (lsn / SEGMENT_PAYLOAD..=last).all(is_kept);
            if inside(lsn, payload) || (overlaps(lsn, payload) && all_kept) {
                assert!(seen.contains(&lsn), "batch {lsn} of segment {seq}");
            }
        }
        Ok(())
    }

    /// Opens the log and compares. `promised`: what must be there.
    fn reopen(&mut self, io: &SimIo, promised: Lsn) -> Result<Arc<Log>, Error> {
        let (log, report, replayed) = open(any_folders(io, self.seed)?, self.options.clone(), self.from)?;
        assert!(report.tail >= promised, "lost: {promised} was promised, the log ends at {}", report.tail);
        let expected = self.batches.range(self.from..report.tail);
        assert!(replayed.iter().map(|(lsn, payload)| (lsn, payload)).eq(expected), "replay differs");
        assert_eq!((log.tail(), log.durable(), log.written()), (report.tail, report.tail, report.tail));
        // The rest was cut off, and may never come back.
        self.batches.split_off(&report.tail);
        self.durable = report.tail;
        Ok(log)
    }
}

const MODES: [Appendfsync; 3] = [Appendfsync::Always, Appendfsync::Everysec, Appendfsync::No];

#[test]
fn a_power_cut_at_any_operation_loses_nothing_durable() {
    for seed in seeds(150) {
        let mut rng = Rng(seed);
        let mut model = Model::new(seed);
        let mut io = any_machine(seed);
        let mut log = model.create(&io);
        for _ in 0..8 {
            io.crash_after(1 + rng.below(60));
            let steps = rng.below(200);
            let worked = model.work(&log, &io, &mut rng, steps);
            assert!(!matches!(worked, Err(Error::Corrupt { .. })), "seed {seed}: {worked:?}");
            drop(log);
            // Opening may be interrupted as well.
            loop {
                io = io.crash();
                assert_nothing_is_beyond_its_reach(&io);
                if rng.below(2) == 0 {
                    io.crash_after(1 + rng.below(12));
                }
                let promised = model.durable;
                match model.reopen(&io, promised) {
                    Ok(opened) => {
                        log = opened;
                        break;
                    }
                    Err(Error::Io { .. }) => continue,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_written() {
    for seed in seeds(60) {
        let mut rng = Rng(seed);
        let mut model = Model::new(seed);
        let io = any_machine(seed);
        let mut log = model.create(&io);
        for _ in 0..6 {
            let steps = rng.below(150);
            model.work(&log, &io, &mut rng, steps).expect("no fault");
            let written = log.written();
            drop(log);
            log = model.reopen(&io, written).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}

#[test]
fn a_failing_device_latches_and_what_is_found_later_is_durable() {
    for seed in seeds(160) {
        let mut rng = Rng(seed);
        let mut model = Model::new(seed);
        let mut io = any_machine(seed);
        let mut log = model.create(&io);
        for _ in 0..5 {
            let files = match has_drive_below(seed) {
                true => ["home/log/", "drive/log/"][rng.below(2) as usize],
                false => "log/",
            };
            let fault = if rng.below(2) == 0 { Fault::write(files) } else { Fault::sync(files) };
            io.fault(fault.after(rng.below(20)));
            if model.work(&log, &io, &mut rng, 200).is_err() {
                assert!(log.failed().is_some());
                assert_eq!(log.admit(1), Admission::Failed);
                let written = io.bytes_written();
                assert!(log.commit_once().is_err());
                assert_eq!(io.bytes_written(), written);
            }
            drop(log);
            io.clear_faults();
            // The process comes back and goes on, and then the power goes: what it found must still be there.
            let promised = model.durable;
            log = model.reopen(&io, promised).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let steps = rng.below(40);
            model.work(&log, &io, &mut rng, steps).expect("no fault");
            model.checkpoint(&log, &mut rng);
            drop(log);
            io = io.crash();
            assert_nothing_is_beyond_its_reach(&io);
            let promised = model.durable;
            log = model.reopen(&io, promised).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            model.scan_all(&log).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}

/// What a file holds may equal what the power has kept from it.
#[test]
fn a_batch_that_was_written_by_half_may_be_whole() {
    let mut found = 0;
    for seed in seeds(100) {
        let mut io = SimIo::new(seed);
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        let mut batches = vec![payload(1, 9000), vec![0; 9000]];
        log.append(&batches[0]);
        log.commit_once().expect("the power is on");
        log.append(&batches[1]);
        io.crash_after(1 + seed % 6);
        let is_committed = log.commit_once().is_ok();
        drop(log);
        for number in 2..5 {
            io = io.crash();
            let opened = open(Arc::new(io.clone()), options(), FIRST_LSN);
            let (log, _, replayed) = opened.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let replayed: Vec<_> = replayed.into_iter().map(|(_, payload)| payload).collect();
            if number == 2 {
                found += u64::from(!is_committed && replayed == batches);
                batches.truncate(if is_committed { 2 } else { replayed.len() });
            }
            assert!(replayed == batches, "seed {seed}");
            batches.push(payload(number, 300));
            log.append(&batches[batches.len() - 1]);
            log.commit_once().expect("the power is on");
        }
    }
    assert!(found > 0 || seeds(2).len() == 1, "it was never whole");
}

/// A start finds headers of segments that are prepared in the system's cache only. Where room is short several are, one behind another.
#[test]
fn no_prepared_segment_is_missing_before_later_ones() {
    for seed in seeds(80) {
        let (mut io, o) = (SimIo::new(seed), LogOptions { max_segments: 8, ..options() });
        let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
        io.fault(Fault::write(&format!("log/{:08x}", 1 + seed % 4)).after(seed / 4 % 2));
        log.append(b"first");
        let _ = log.commit_once();
        assert!(log.failed().is_some());
        drop(log);
        io.clear_faults();
        let (log, ..) = open(Arc::new(io.clone()), o.clone(), FIRST_LSN).expect("open");
        log.append(b"second");
        log.commit_once().expect("commit");
        assert_eq!(log.stats().segments, 5, "those behind are prepared, too");
        drop(log);
        io = io.crash();
        let (_, _, replayed) =
            open(Arc::new(io), o, FIRST_LSN).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(replayed.last().map(|(_, payload)| &payload[..]), Some(&b"second"[..]), "seed {seed}");
    }
}

/// The power goes again and again while the header of the last segment is written: one of its two copies is always whole.
#[test]
fn a_header_that_was_cut_off_is_whole_before_its_copy_is_written() {
    for seed in seeds(20) {
        let (mut rng, mut io) = (Rng(seed), SimIo::on_scm(seed));
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        // So that the next segment is prepared.
        log.append(b"first");
        log.close().expect("close");
        drop(log);
        for round in 0..40u8 {
            let opened = open(Arc::new(io.clone()), options(), FIRST_LSN);
            let (log, ..) = opened.unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            log.append(&[round; 100]);
            io.crash_after(1 + rng.below(3));
            // Says in the header that all is durable.
            let _ = log.close();
            io = io.crash();
        }
    }
}

/// A torn commit may leave its later batches intact. If a new batch takes exactly the place of the torn one, the
/// old ones must not follow it, be they in the same segment or in the next one.
#[test]
fn what_was_behind_a_torn_batch_never_comes_back() {
    for segment_size in [64 << 10, 16 << 10] {
        let io = SimIo::new(1);
        // Nothing says that it had been durable.
        let o = LogOptions { segment_size, appendfsync: Appendfsync::Everysec, ..options() };
        let open = || open(Arc::new(io.clone()), o.clone(), FIRST_LSN).expect("open");
        let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
        let first = log.append(&[0; 4096 - BATCH_HEADER]);
        log.commit_once().expect("commit");
        let torn = log.append(&[1; 8192 - BATCH_HEADER]);
        let behind = log.append(b"behind");
        assert_eq!(behind, torn + 8192);
        log.commit_once().expect("commit");
        drop(log);
        io.flip_bit("log/00000000", 4096 + torn + 1000, 0);
        let (log, report, replayed) = open();
        assert_eq!(report.cut.map(|cut| cut.bytes), Some(8192 + batch_len(6)));
        assert_eq!(replayed, [(first, vec![0; 4096 - BATCH_HEADER])]);
        assert_eq!(log.append(&[2; 8192 - BATCH_HEADER]), torn);
        log.commit_once().expect("commit");
        drop(log);
        let (_, report, replayed) = open();
        assert_eq!((report.tail, report.cut), (behind, None));
        assert_eq!(replayed[1..], [(torn, vec![2; 8192 - BATCH_HEADER])]);
    }
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    for operation in 1..40 {
        for seed in seeds(20) {
            let io = SimIo::new(seed * 100 + operation);
            io.crash_after(operation);
            let _ = Log::create(Arc::new(io.clone()), options()).and_then(|log| log.commit_once());
            let io = io.crash();
            let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
            log.append(b"abc");
            log.close().expect("close");
            assert!(matches!(Log::create(Arc::new(io.clone()), options()), Err(Error::Unusable(_))));
            let (_, _, replayed) = open(Arc::new(io.crash()), options(), FIRST_LSN).expect("open");
            assert_eq!(replayed, [(FIRST_LSN, b"abc".to_vec())]);
        }
    }
}

#[test]
fn what_is_not_left_by_this_creation_is_not_removed() {
    let io = SimIo::new(1);
    let other = LogOptions { store_id: *b"another store id", ..options() };
    drop(Log::create(Arc::new(io.clone()), other).expect("a new log"));
    let names = io.list("log").expect("a folder");
    assert!(matches!(Log::create(Arc::new(io.clone()), options()), Err(Error::Unusable(_))));
    assert_eq!(io.list("log").expect("a folder"), names);
}
