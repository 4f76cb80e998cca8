//! A folder on a slower medium below the others: segments move there as the log grows, and are read there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::fixture::{Batches, Rng, SEGMENT_PAYLOAD, any_machine, open, options, payload, with_drive_below};
use holdfast_io::{Error, Fault, Further, Io, SimIo, Spread};
use holdfast_log::{
    Admission, BATCH_HEADER, FILES, FIRST_LSN, Log, LogIdentity, LogOptions, Lsn, SegmentCopier, SegmentInfo,
    SegmentPlace, batch_len,
};
use parking_lot::RwLock;

const SEGMENT: u64 = 16 << 10;
const ABOVE: usize = 6;
/// Numbers of files below begin here.
const BELOW: u32 = 1 << 31;

fn tiered() -> LogOptions {
    LogOptions { segments_above_max: ABOVE as u32, ..options() }
}

fn machines() -> [SimIo; 2] {
    [SimIo::new(1), SimIo::on_scm(1)]
}

fn create(sim: &SimIo) -> Arc<Log> {
    Log::create(with_drive_below(sim).expect("new folders"), tiered()).expect("a new log")
}

/// Appends batches until the log ends in the segment `seq`.
fn fill(log: &Log, batches: &mut Batches, seq: u64) {
    while log.tail() < seq * SEGMENT_PAYLOAD + SEGMENT_PAYLOAD / 2 {
        assert_eq!(log.admit(1500), Admission::Ok);
        let payload = payload(batches.len() as u64, 1500);
        batches.push((log.append(&payload), payload));
        log.commit_once().expect("room");
    }
}

fn files(sim: &SimIo) -> [usize; 2] {
    ["home/log", "drive/log"].map(|folder| sim.list(folder).expect("a folder").len())
}

fn is_below(segment: &SegmentInfo) -> bool {
    segment.slot >= BELOW
}

/// The log's own bytes of each batch are what was appended.
fn check_reads(log: &Log, batches: &[(Lsn, Vec<u8>)]) {
    for (lsn, payload) in batches {
        let mut bytes = vec![0; batch_len(payload.len()) as usize];
        log.read(*lsn, &mut bytes).expect("it is there");
        assert!(bytes[BATCH_HEADER..][..payload.len()] == payload[..], "LSN {lsn}");
    }
}

/// How many segments are in two files.
fn twins_of(io: &dyn Io) -> usize {
    let names = io.list("log").expect("folders");
    let mut found: Vec<u64> = (names.iter())
        .filter_map(|name| SegmentPlace::read(io, &format!("log/{name}")).ok())
        .map(|place| place.seq)
        .collect();
    found.sort_unstable();
    found.windows(2).filter(|pair| pair[0] == pair[1]).count()
}

#[test]
fn the_oldest_segments_move_down_and_are_found_there() {
    for sim in machines() {
        let log = create(&sim);
        let mut batches = Batches::new();
        fill(&log, &mut batches, 40);
        check_reads(&log, &batches);
        let segments = log.segments();
        assert_eq!(files(&sim)[0], ABOVE);
        assert!(
            segments.is_sorted_by_key(|segment| !is_below(segment)),
            "the oldest are below: {segments:?}"
        );
        assert!(segments.iter().filter(|segment| is_below(segment)).count() >= 36);
        // Freed files below are used again.
        (0..30).for_each(|seq| log.free_segment(seq));
        let below = files(&sim)[1];
        assert_eq!(log.stats().segments as usize, ABOVE + below);
        fill(&log, &mut batches, 65);
        assert_eq!(files(&sim), [ABOVE, below]);
        let from = batches.partition_point(|(lsn, _)| *lsn < 31 * SEGMENT_PAYLOAD);
        check_reads(&log, &batches[from..]);
        log.close().expect("close");
        drop(log);
        let sim = sim.crash();
        let io = with_drive_below(&sim).expect("the same folders");
        let (log, _, replayed) = open(io, tiered(), batches[from].0).expect("open");
        assert!(replayed.iter().eq(&batches[from..]));
        check_reads(&log, &batches[from..]);
        fill(&log, &mut batches, 80);
        assert_eq!(files(&sim)[0], ABOVE);
    }
}

/// The power goes at each operation while a segment moves.
#[test]
fn a_power_cut_while_a_segment_moves_leaves_it_above_or_below() {
    for (kind, sim) in machines().into_iter().enumerate() {
        let log = create(&sim);
        let mut batches = Batches::new();
        fill(&log, &mut batches, 30);
        // What is freed is used again below.
        (3..6).for_each(|seq| log.free_segment(seq));
        fill(&log, &mut batches, 31);
        log.close().expect("close");
        let tail = log.tail();
        drop(log);
        let from = batches[batches.partition_point(|(lsn, _)| *lsn < 7 * SEGMENT_PAYLOAD)].0;
        let (mut twins, mut done) = (0, false);
        for operation in 1..400 {
            let sim = sim.fork();
            let io = with_drive_below(&sim).expect("the same folders");
            let (log, ..) = open(io, tiered(), from).expect("open");
            sim.crash_after(operation);
            let mut more = Batches::new();
            // The durable ones stay, and those are as many as of one segment.
            while log.failed().is_none() && log.tail() < 32 * SEGMENT_PAYLOAD + SEGMENT_PAYLOAD / 2 {
                let payload = payload(operation, 1500);
                let lsn = log.append(&payload);
                if log.wait_durable(log.tail()).is_ok() {
                    more.push((lsn, payload));
                }
            }
            done = log.failed().is_none();
            drop(log);
            for _ in 0..3 {
                let sim = sim.crash();
                let io = with_drive_below(&sim).expect("the same folders");
                twins += twins_of(&*io);
                let (log, report, replayed) = open(io, tiered(), from)
                    .unwrap_or_else(|e| panic!("machine {kind}, operation {operation}: {e}"));
                let expected = batches.iter().filter(|(lsn, _)| *lsn >= from).chain(&more);
                let durable = more.last().map_or(tail, |(lsn, payload)| lsn + batch_len(payload.len()));
                assert!(report.tail >= durable);
                let replayed: Vec<_> = replayed.into_iter().filter(|(lsn, _)| *lsn < durable).collect();
                assert!(replayed.iter().eq(expected), "machine {kind}, operation {operation}");
                check_reads(&log, &more);
                // It goes on as if nothing were.
                let mut again = Batches::new();
                fill(&log, &mut again, 36);
                check_reads(&log, &again);
            }
            if done {
                break;
            }
        }
        assert!(done && twins > 0, "machine {kind}: {twins} times a segment was in both");
    }
}

/// With one medium above and another below, each of which is full at a time.
#[test]
fn what_is_full_above_moves_down_and_what_is_full_below_is_no_failure() {
    let machines = [SimIo::on_scm(1), SimIo::new(2)];
    let drive = machines[1].clone();
    let below = [Further { path: "drive".to_owned(), is_below: true }];
    let io = Spread::open(Arc::new(machines[0].clone()), "home", FILES, &below, &move |_, _| {
        Ok(Arc::new(drive.clone()))
    });
    machines[0].set_capacity(10 * SEGMENT);
    machines[1].set_capacity(1 << 30);
    let o = LogOptions { segments_above_max: 256, ..options() };
    let log = Log::create(io.expect("new folders"), o).expect("a new log");
    // The data folder's own medium keeps what is to be left of it for others.
    log.set_medium_reserve(2 * SEGMENT);
    let mut batches = Batches::new();
    fill(&log, &mut batches, 30);
    let above = || machines[0].list("log").expect("a folder").len() as u64;
    assert_eq!(above(), 7, "two are reserved, and the folders' own files take a part of one");
    // If more is to be left, segments make room.
    log.set_medium_reserve(5 * SEGMENT);
    fill(&log, &mut batches, 31);
    assert_eq!(above(), 4);
    check_reads(&log, &batches);

    let used = machines[1].list("log").expect("a folder").len() as u64;
    machines[1].set_capacity((used + 3) * SEGMENT);
    log.set_medium_reserve(5 * SEGMENT + 1);
    let mut refused = 0;
    while refused == 0 {
        let payload = payload(batches.len() as u64, 1500);
        match log.admit(1500) {
            Admission::Ok => batches.push((log.append(&payload), payload)),
            Admission::Full => refused += 1,
            other => panic!("{other:?}"),
        }
        log.commit_once().expect("what was admitted has room");
    }
    assert!(log.failed().is_none());
    check_reads(&log, &batches);
    machines[1].set_capacity(1 << 30);
    log.look_for_room();
    let seq = log.tail() / SEGMENT_PAYLOAD;
    fill(&log, &mut batches, seq + 20);
    check_reads(&log, &batches);
}

/// A quota says no before the medium tells that it is full: what was begun below is gone again.
#[test]
fn a_medium_below_that_refuses_has_what_it_needs_given_back() {
    let sim = SimIo::on_scm(1);
    let log = create(&sim);
    let mut batches = Batches::new();
    fill(&log, &mut batches, 10);
    let before = files(&sim);
    sim.fault(Fault::write("drive/log").after(1).with_error(28).sticky());
    // Those above are used up, then it waits in memory.
    for _ in 0..2 * SEGMENT_PAYLOAD / 1500 {
        let payload = payload(batches.len() as u64, 1500);
        batches.push((log.append(&payload), payload));
        log.commit_once().expect("no failure");
    }
    assert_eq!((files(&sim), log.failed()), (before, None));
    assert!(log.written() < log.tail());
    sim.clear_faults();
    log.look_for_room();
    log.wait_durable(log.tail()).expect("there is room again");
    check_reads(&log, &batches);
}

/// Above there is a quota: what it refuses has one segment move down, and no more.
#[test]
fn a_quota_above_has_one_segment_move_down_for_each_new_one() {
    let machines = [SimIo::new(1), SimIo::new(2)];
    machines[0].set_quota(30 * SEGMENT);
    let below = [Further { path: "drive".to_owned(), is_below: true }];
    let io = Spread::open(Arc::new(machines[0].clone()), "home", FILES, &below, &|_, _| {
        Ok(Arc::new(machines[1].clone()))
    });
    let log = Log::create(io.expect("new folders"), options()).expect("a new log");
    let files = || machines.each_ref().map(|machine| machine.list("log").expect("a folder").len());
    let (mut batches, mut before) = (Batches::new(), 0);
    for seq in 0..60 {
        fill(&log, &mut batches, seq);
        let [_, below] = files();
        assert!(below <= before + 1, "segment {seq}: {before} and {below} files below");
        before = below;
    }
    assert!(files()[0] == 29 && before > 25, "{:?}", files());
    // Somebody else has taken what a segment leaves: the next ones are made below.
    machines[0].set_quota(0);
    fill(&log, &mut batches, 62);
    assert!(files()[0] >= 26, "{:?}", files());
    check_reads(&log, &batches);
}

#[test]
fn a_batch_larger_than_all_that_may_be_above_is_stored() {
    for sim in machines() {
        let log = create(&sim);
        let mut batches = Batches::new();
        fill(&log, &mut batches, 8);
        let large = payload(7, 3 * ABOVE * SEGMENT as usize);
        batches.push((log.append(&large), large));
        log.wait_durable(log.tail()).expect("room");
        let seq = log.tail() / SEGMENT_PAYLOAD + 3;
        fill(&log, &mut batches, seq);
        check_reads(&log, &batches);
        assert_eq!(files(&sim)[0], ABOVE);
        log.close().expect("close");
        drop(log);
        let io = with_drive_below(&sim.crash()).expect("the same folders");
        let (log, _, replayed) = open(io, tiered(), FIRST_LSN).expect("open");
        assert!(replayed == batches);
        check_reads(&log, &batches);
    }
}

/// A line above that cannot be read is no reason to stop: the segment stays, and the next one moves.
#[test]
fn a_segment_that_cannot_be_read_stays_above() {
    let sim = SimIo::on_scm(1);
    let log = create(&sim);
    let mut batches = Batches::new();
    fill(&log, &mut batches, 3);
    let damaged = log.segments()[1];
    sim.fault(Fault::read(&format!("home/log/{:08x}", damaged.slot)).sticky());
    fill(&log, &mut batches, 20);
    sim.clear_faults();
    let segments = log.segments();
    let above: Vec<u64> = segments.iter().filter(|it| !is_below(it)).map(|it| it.seq).collect();
    assert_eq!(above[0], damaged.seq, "{segments:?}");
    assert!(above[1] > 14);
    check_reads(&log, &batches);
}

/// Another process that copies what is pinned opens files itself, before or after their segments move.
#[test]
fn a_copy_finds_segments_that_move_meanwhile() {
    for sim in machines() {
        let log = create(&sim);
        let mut batches = Batches::new();
        fill(&log, &mut batches, 4);
        log.close().expect("close");
        let (end, count) = (log.tail(), batches.len());
        let pin = log.pin_all(u64::MAX);
        let places = log.places(end);
        let LogOptions { segment_size, store_id, epoch, crc_seed, .. } = tiered();
        let identity = LogIdentity { segment_size, store_id, epoch, crc_seed };
        // Its view of the folders is its own.
        let mut copier = SegmentCopier::new(with_drive_below(&sim).expect("folders"), identity, end);
        let copy = SimIo::new(3);
        for (number, place) in places.iter().enumerate() {
            let file = copy.open(&format!("log/{number:08x}"), true).expect("room");
            let mut at = 0;
            let mut write = |bytes: &[u8]| {
                if (number, at) == (0, 0) {
                    // It has the file open. Now that segment and the others move, and others are written in their places.
                    let seq = log.tail() / SEGMENT_PAYLOAD;
                    fill(&log, &mut batches, seq + 2 * ABOVE as u64);
                }
                file.write_at(&[bytes], at, holdfast_io::Durability::Durable).expect("room");
                at += bytes.len() as u64;
                Ok(())
            };
            copier.copy(place, &mut write).expect("it is pinned");
        }
        assert!(pin.lsn().is_some());
        assert!(log.places(end).iter().all(|place| place.slot >= BELOW), "all of them have moved");
        let (_, _, replayed) = open(Arc::new(copy), options(), FIRST_LSN).expect("a copy");
        assert!(replayed == batches[..count]);
    }
}

#[test]
fn a_segment_that_is_freed_while_it_moves_is_free() {
    let sim = SimIo::on_scm(1);
    let log = create(&sim);
    let mut batches = Batches::new();
    fill(&log, &mut batches, 10);
    let oldest = log.segments().into_iter().find(|it| !is_below(it)).expect("the newest are above");
    let before = files(&sim)[1];
    sim.hold_writes("drive/log");
    thread::scope(|scope| {
        scope.spawn(|| fill(&log, &mut batches, 11));
        while sim.held_writes() == 0 {
            thread::yield_now();
        }
        log.free_segment(oldest.seq);
        sim.release_writes();
    });
    assert!(log.segments().iter().all(|segment| segment.seq != oldest.seq));
    // Its copy was of no use, and the next one takes its place.
    assert_eq!(files(&sim)[1], before + 1);
    fill(&log, &mut batches, 13);
    assert_eq!(files(&sim)[1], before + 1 + 1, "{:?}", log.segments());
    assert_eq!(log.stats().segments as usize, files(&sim).iter().sum());
    log.close().expect("close");
    drop(log);
    let from = batches[batches.partition_point(|(lsn, _)| *lsn < (oldest.seq + 1) * SEGMENT_PAYLOAD)].0;
    let io = with_drive_below(&sim.crash()).expect("the same folders");
    let (log, ..) = open(io, tiered(), from).expect("open");
    check_reads(&log, &batches[batches.partition_point(|(lsn, _)| *lsn < from)..]);
}

/// A write below fails. What the system's cache has of the copy nevertheless is found by the next start, and then the power goes.
#[test]
fn a_copy_below_counts_only_once_it_is_durable() {
    let (mut failures, mut twins) = (0, 0);
    for seed in 0..200 {
        let sim = any_machine(seed);
        let log = create(&sim);
        let mut batches = Batches::new();
        fill(&log, &mut batches, 7);
        sim.fault(Fault::write("drive/log/").after(seed / 4 % 8));
        while log.failed().is_none() && log.tail() < 12 * SEGMENT_PAYLOAD {
            log.append(&payload(seed, 1500));
            let _ = log.commit_once();
        }
        failures += usize::from(log.failed().is_some());
        drop(log);
        sim.clear_faults();
        let io = with_drive_below(&sim).expect("the same folders");
        twins += twins_of(&*io);
        let (log, _, mut batches) = open(io, tiered(), FIRST_LSN).expect("open");
        // What the copy has left is used again.
        let end = log.tail() / SEGMENT_PAYLOAD + 3;
        fill(&log, &mut batches, end);
        drop(log);
        let io = with_drive_below(&sim.crash()).expect("the same folders");
        let opened = open(io, tiered(), FIRST_LSN);
        let (log, _, replayed) = opened.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(replayed == batches, "seed {seed}");
        check_reads(&log, &batches);
    }
    assert!(failures > 100 && twins > 10, "{failures} failures, {twins} twins");
}

/// Threads read what others free and move.
#[test]
fn reads_find_their_bytes_while_segments_move() {
    let sim = SimIo::on_scm(1);
    let log = create(&sim);
    let threads = log.start_thread().expect("threads");
    let (stored, has_moved) = (RwLock::new(Batches::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (log, stored, has_moved) = (&log, &stored, &has_moved);
                scope.spawn(move || {
                    let (mut rng, mut found) = (Rng(seed), 0u32);
                    while found < 20_000 || !has_moved.load(Ordering::Relaxed) {
                        // Nothing is freed meanwhile.
                        let stored = stored.read();
                        if stored.is_empty() {
                            continue;
                        }
                        let (lsn, payload) = &stored[rng.below(stored.len() as u64) as usize];
                        let mut bytes = vec![0; batch_len(payload.len()) as usize];
                        log.read(*lsn, &mut bytes).expect("nothing is freed that is looked for");
                        assert!(bytes[BATCH_HEADER..][..payload.len()] == payload[..], "LSN {lsn}");
                        found += 1;
                    }
                })
            })
            .collect();
        let mut number = 0;
        while !readers.iter().all(|reader| reader.is_finished()) {
            while log.admit(1500) != Admission::Ok {
                thread::yield_now();
            }
            let payload = payload(number, 1500);
            let lsn = log.append(&payload);
            log.wait_durable(log.tail()).expect("room");
            let mut stored = stored.write();
            stored.push((lsn, payload));
            // The oldest half goes, but what is looked for.
            if number % 400 == 399 {
                let half = stored.len() / 2;
                stored.drain(..half);
                let keep = stored[0].0 / SEGMENT_PAYLOAD;
                for segment in log.segments().iter().filter(|segment| segment.seq < keep) {
                    log.free_segment(segment.seq);
                }
            }
            number += 1;
            has_moved.fetch_or(log.segments().iter().any(is_below), Ordering::Relaxed);
        }
    });
    drop(threads);
    log.close().expect("close");
}

#[test]
fn two_files_of_a_segment_are_damage_unless_one_is_below() {
    let sim = SimIo::on_scm(1);
    let log = create(&sim);
    fill(&log, &mut Batches::new(), 20);
    log.close().expect("close");
    drop(log);
    let copy = |from: &str, to: &str| {
        let bytes = sim.snapshot(from);
        let file = sim.open(to, true).expect("room");
        file.write_at(&[&bytes], 0, holdfast_io::Durability::Durable).expect("room");
    };
    let first = sim.list("drive/log").expect("a folder")[0].clone();
    copy(&format!("drive/log/{first}"), "home/log/00000077");
    let reopen = || open(with_drive_below(&sim).expect("folders"), tiered(), FIRST_LSN);
    reopen().expect("it has moved");
    copy(&format!("drive/log/{first}"), "home/log/00000078");
    assert!(matches!(reopen(), Err(Error::Corrupt { what, .. }) if what.contains("same sequence number")));
}
