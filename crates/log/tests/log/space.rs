//! Recycling of segments, accounting, and full media.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::fixture::{Batches, Rng, SEGMENT_PAYLOAD, open, options, payload};
use holdfast_io::{Error, Further, Io, SimIo, Spread};
use holdfast_log::{
    Admission, BATCH_HEADER, FILES, FIRST_LSN, Limit, Log, LogOptions, Lsn, Purpose, Reservation, Scope,
    batch_len,
};

fn append(log: &Log, number: u64, len: usize) -> (Lsn, Vec<u8>) {
    let payload = payload(number, len);
    (log.append(&payload), payload)
}

/// A new log that is spread over folders on media of their own.
fn spread(machines: &[SimIo], o: LogOptions) -> (Arc<Log>, Arc<dyn Io>) {
    let further = |number: usize| Further { path: number.to_string(), is_below: false };
    let more: Vec<_> = (1..machines.len()).map(further).collect();
    let io = Spread::open(Arc::new(machines[0].clone()), "home", FILES, &more, &|further, _| {
        let number: usize = further.path.parse().expect("a number");
        Ok(Arc::new(machines[number].clone()))
    });
    let io = io.expect("new folders");
    (Log::create(io.clone(), o).expect("a new log"), io)
}

fn scan(log: &Log, seq: u64, scope: Scope) -> Vec<Lsn> {
    let mut seen = Vec::new();
    log.scan_segment(seq, scope, &mut |lsn, _| {
        seen.push(lsn);
        Ok(())
    })
    .expect("no damage");
    seen
}

#[test]
fn recycled_files_never_show_what_was_in_them() {
    let io = SimIo::new(1);
    let o = LogOptions { max_segments: 8, ..options() };
    let mut log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
    let mut batches = Batches::new();
    let mut rng = Rng(1);
    for round in 0..60 {
        // The same payloads each round, so that old ones lie where new ones may come.
        for i in 0..12 {
            assert_eq!(log.admit(1000), Admission::Ok);
            batches.push(append(&log, i, 400 + 8 * (round % 7)));
            if rng.below(3) == 0 {
                log.commit_once().expect("commit");
            }
        }
        log.wait_durable(log.tail()).expect("durable");
        let newest = (log.durable() - 1) / SEGMENT_PAYLOAD;
        if round % 5 == 0 {
            drop(log);
            let from = batches.iter().map(|(lsn, _)| *lsn).find(|lsn| lsn / SEGMENT_PAYLOAD == newest);
            let from = from.unwrap_or(batches[batches.len() - 1].0);
            let (opened, report, replayed) = open(Arc::new(io.clone()), o.clone(), from).expect("open");
            assert!(replayed.iter().eq(batches.iter().filter(|(lsn, _)| *lsn >= from)));
            assert_eq!(report.cut, None);
            log = opened;
        }
        // After a restart those that were free are back, with nothing live.
        for segment in log.segments() {
            if segment.seq < newest {
                log.free_segment(segment.seq);
            }
        }
    }
    let stats = log.stats();
    assert!(stats.segments <= 8, "{stats:?}");
    assert!(log.tail() > 20 * SEGMENT_PAYLOAD);
}

#[test]
fn live_bytes_are_counted_where_they_lie() {
    let log = Log::create(Arc::new(SimIo::new(1)), options()).expect("a new log");
    let (lsn, _) = append(&log, 1, 3 * SEGMENT_PAYLOAD as usize);
    log.close().expect("close");
    let bytes = batch_len(3 * SEGMENT_PAYLOAD as usize);
    log.account(lsn, bytes as i64);
    let live = |log: &Log| log.segments().iter().map(|segment| segment.live_bytes).collect::<Vec<_>>();
    let first = SEGMENT_PAYLOAD - FIRST_LSN;
    assert_eq!(live(&log), [first, SEGMENT_PAYLOAD, SEGMENT_PAYLOAD, bytes - first - 2 * SEGMENT_PAYLOAD]);
    log.account(lsn, -(bytes as i64));
    assert_eq!(live(&log), [0; 4]);
    // What reaches into a segment that does not exist yet is still taken off later.
    log.account(10 * SEGMENT_PAYLOAD - 16, 64);
    log.account(10 * SEGMENT_PAYLOAD - 16, -64);
    append(&log, 1, 8 * SEGMENT_PAYLOAD as usize);
    log.close().expect("close");
    assert!(live(&log).iter().all(|&bytes| bytes == 0));
}

#[test]
fn what_a_pin_keeps_of_a_freed_segment_is_not_looked_at() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let pin = log.pin(FIRST_LSN, u64::MAX);
    let mut batches = Vec::new();
    while log.tail() < 6 * SEGMENT_PAYLOAD {
        let lsn = append(&log, 1, 5000).0;
        log.commit_once().expect("commit");
        batches.push(lsn..log.tail());
    }
    log.free_segment(2);
    let parts = |seq: u64| seq * SEGMENT_PAYLOAD..(seq + 1) * SEGMENT_PAYLOAD;
    let overlap = |batch: &Range<Lsn>, seq| batch.start < parts(seq).end && batch.end > parts(seq).start;
    assert!(batches.iter().any(|batch| overlap(batch, 1) && overlap(batch, 2)));
    assert!(batches.iter().any(|batch| overlap(batch, 2) && overlap(batch, 3)));
    for seq in [1, 3] {
        for scope in [Scope::All, Scope::Crossing] {
            let expected = batches.iter().filter(|batch| {
                let crosses = batch.end > parts(seq).end || batch.start < parts(seq).start;
                overlap(batch, seq) && !overlap(batch, 2) && (scope == Scope::All || crosses)
            });
            let expected: Vec<Lsn> = expected.map(|batch| batch.start).collect();
            assert_eq!(scan(&log, seq, scope), expected, "{seq} {scope:?}");
        }
    }

    // It goes while another one is read.
    let pin = Mutex::new(pin);
    io.before_read(move || *pin.lock().expect("no panics") = None);
    assert!(scan(&log, 3, Scope::All).len() > 1);
}

#[test]
fn a_segment_shows_all_batches_that_overlap_it() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let mut batches = Batches::new();
    for (i, len) in [5000, 5000, 40_000, 100, 11_000, 900, 20_000].into_iter().enumerate() {
        batches.push(append(&log, i as u64, len));
        log.commit_once().expect("commit");
    }
    log.close().expect("close");
    let check = |log: &Log| {
        for segment in log.segments() {
            let (start, end) = (segment.seq * SEGMENT_PAYLOAD, (segment.seq + 1) * SEGMENT_PAYLOAD);
            let range = |(lsn, payload): &(Lsn, Vec<u8>)| (*lsn, lsn + batch_len(payload.len()));
            let all: Vec<Lsn> =
                batches.iter().map(range).filter(|r| r.0 < end && r.1 > start).map(|r| r.0).collect();
            assert_eq!(scan(log, segment.seq, Scope::All), all, "{segment:?}");
            let crossing = batches
                .iter()
                .map(range)
                .filter(|r| (r.0 < start && r.1 > start) || (r.0 < end && r.1 > end));
            assert_eq!(scan(log, segment.seq, Scope::Crossing), crossing.map(|r| r.0).collect::<Vec<_>>());
        }
    };
    check(&log);
    drop(log);
    let (log, _, _) = open(Arc::new(io), options(), batches[6].0).expect("open");
    check(&log);
    // Segments 1 to 3 hold the middle of one batch, which is gone with any of them.
    log.free_segment(2);
    assert_eq!(scan(&log, 0, Scope::All), [batches[0].0, batches[1].0]);
    assert_eq!(scan(&log, 1, Scope::Crossing), [batches[1].0]);
    assert_eq!(scan(&log, 3, Scope::All), Vec::<Lsn>::new());
}

/// Neither by what is kept back from writers, which is prepared when room is short, nor once the medium has refused a file.
#[test]
fn what_is_left_of_the_medium_for_others_is_not_taken() {
    let segment = u64::from(options().segment_size);
    for others in [0, 3 * segment] {
        let io = SimIo::new(1);
        io.set_capacity(20 * segment);
        let free = || io.free_bytes().expect("the power is on").expect("it is told");
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        log.set_medium_reserve(5 * segment);
        let fill = |from: u64| {
            let full = (from..).find(|&number| {
                let is_full = log.admit(1000) == Admission::Full;
                if !is_full {
                    append(&log, number, 1000);
                    log.commit_once().expect("full is no failure");
                    log.look_for_room();
                }
                is_full
            });
            full.expect("it is full some time")
        };
        let count = fill(0);
        assert!((5 * segment..6 * segment).contains(&free()), "{} bytes are free", free());
        // Others take of it, and more is to be left: it stays as it is.
        io.set_capacity(20 * segment - others);
        log.add_medium_reserve(3 * segment);
        log.look_for_room();
        fill(count);
        assert!((5 * segment - others..6 * segment - others).contains(&free()), "{} bytes are free", free());
        // Once they are gone again, and less is to be left, it goes on.
        io.set_capacity(20 * segment);
        log.set_medium_reserve(2 * segment);
        log.look_for_room();
        let count = fill(count);
        assert!((2 * segment..3 * segment).contains(&free()), "{} bytes are free", free());
        // Others take what was promised to the log, and give back less than is to be left.
        log.set_medium_reserve(0);
        io.set_capacity(20 * segment - free());
        fill(count);
        log.set_medium_reserve(5 * segment);
        io.set_capacity(20 * segment);
        log.look_for_room();
        assert!(free() >= 2 * segment, "{} bytes are free", free());
    }
}

/// What others have taken and given back is not missed by who was not refused meanwhile, nor by who reserves.
#[test]
fn who_is_the_first_to_find_no_room_has_the_medium_asked_again() {
    let segment = u64::from(options().segment_size);
    let io = SimIo::new(1);
    io.set_capacity(100 * segment);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let bytes = 8 * segment;
    for reserves in [false, true] {
        let is_full = || match reserves {
            true => Reservation::new(&log).add(bytes, Purpose::Write) == Err(Admission::Full),
            false => log.admit(bytes as usize) == Admission::Full,
        };
        assert!(!is_full());
        io.set_capacity(4 * segment);
        log.set_medium_reserve(2 * segment);
        io.set_capacity(100 * segment);
        assert!(!is_full(), "there is room again");
        io.set_capacity(4 * segment);
        log.set_medium_reserve(segment);
        assert!(is_full());
        io.set_capacity(100 * segment);
        assert!(is_full(), "the medium is asked once a second");
        log.look_for_room();
        assert!(!is_full());
    }
}

/// More is to be left for others while the log is not full: writers stop at once, and those who empty it have what is kept back for them, and
/// no more.
#[test]
fn what_is_kept_back_for_removals_is_there_however_much_is_to_be_left() {
    let segment = u64::from(options().segment_size);
    let io = SimIo::new(1);
    io.set_capacity(40 * segment);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let append_for = |purpose, most: u64| {
        let from = log.tail();
        while log.tail() - from < most && log.admit_for(1000, purpose) == Admission::Ok {
            append(&log, 0, 1000);
            log.commit_once().expect("full is no failure");
        }
        log.tail() - from
    };
    append_for(Purpose::Write, 10 * SEGMENT_PAYLOAD);
    let taken = log.usage().bytes;
    log.set_medium_reserve(100 * segment);
    assert_eq!(log.admit(1000), Admission::Full);
    let [finished, removals] =
        [Purpose::Finish, Purpose::Remove].map(|purpose| append_for(purpose, u64::MAX));
    assert!(finished > 0 && removals > SEGMENT_PAYLOAD / 2, "{finished} and {removals} bytes");
    assert!(finished + removals > SEGMENT_PAYLOAD, "{finished} and {removals} bytes");
    append_for(Purpose::Clean, u64::MAX);
    assert!(log.usage().bytes <= taken + log.promised_bytes(), "{taken}, then {:?}", log.usage());
    log.wait_durable(log.tail()).expect("it has room");
}

#[test]
fn a_full_log_says_so_until_a_segment_is_freed() {
    let by_limit = LogOptions { max_segments: 10, ..options() };
    let ten_segments = 10 * u64::from(options().segment_size);
    for (capacity, is_told, o) in
        [(1 << 30, true, by_limit), (ten_segments, true, options()), (ten_segments, false, options())]
    {
        let io = SimIo::new(1);
        io.set_capacity(capacity);
        if !is_told {
            io.hide_free_bytes();
        }
        let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
        let mut number = 0;
        let mut fill = |log: &Log| {
            while log.admit(1000) == Admission::Ok {
                number += 1;
                append(log, number, 1000);
                log.commit_once().expect("full is no failure");
            }
            assert_eq!(log.admit(1000), Admission::Full);
            number
        };
        let count = fill(&log);
        assert!(count > 5 * SEGMENT_PAYLOAD / 1040, "{count}");
        let free_bytes = is_told.then(|| io.free_bytes().expect("the power is on").expect("it is told"));
        let limited_by = if capacity == ten_segments { Limit::Medium { free_bytes } } else { Limit::Options };
        let usage = log.usage();
        assert!(usage.bytes <= ten_segments && usage.bytes > 5 * SEGMENT_PAYLOAD, "{usage:?}");
        let bytes_max = u64::from(o.max_segments) * u64::from(o.segment_size);
        assert_eq!((usage.bytes_max, usage.limited_by), (bytes_max, limited_by));
        // Deletes and the cleaner go on.
        assert_eq!(log.admit_for(1000, Purpose::Remove), Admission::Ok);
        append(&log, 1, 1000);
        log.wait_durable(log.tail()).expect("durable");
        log.free_segment(0);
        log.free_segment(1);
        assert_eq!(log.admit(1000), Admission::Ok);
        assert!(fill(&log) > count);
        // Even what was appended against the advice waits in memory rather than fail.
        let (lsn, big) = append(&log, 2, 4 * SEGMENT_PAYLOAD as usize);
        assert!(log.wait_durable(log.tail()).is_err());
        assert_eq!(log.failed(), None);
        log.free_segment(2);
        log.free_segment(3);
        log.free_segment(4);
        log.wait_durable(log.tail()).expect("durable");
        let mut buf = vec![0; big.len()];
        log.read(lsn + 24, &mut buf).expect("read");
        assert!(buf == big);
    }
}

/// Further folders have room for whole segments only: the rests of many are no room for one more.
#[test]
fn what_folders_have_left_of_less_than_a_segment_is_not_promised() {
    let segment = u64::from(options().segment_size);
    for folders in 1..6u64 {
        let machines: Vec<SimIo> = (0..folders).map(SimIo::new).collect();
        // Beside the files that tie them, each has most of a segment more.
        machines.iter().for_each(|machine| machine.set_capacity(21 * segment - 1024 + folders * 8192));
        let (log, _) = spread(&machines, LogOptions { max_pending_bytes: 8 << 20, ..options() });
        let mut reservation = Reservation::new(&log);
        let steps = (4..22).rev().map(|bits| 1 << bits);
        steps.for_each(|bytes| while reservation.add(bytes, Purpose::Write).is_ok() {});
        append(&log, 1, reservation.bytes() as usize - BATCH_HEADER);
        reservation.release(u64::MAX);
        log.wait_durable(log.tail()).expect("it was reserved");
        let admissions = [Purpose::Remove, Purpose::Clean].map(|purpose| log.admit_for(1000, purpose));
        assert_eq!(admissions, [Admission::Ok; 2], "{folders} folders");
    }
}

#[test]
fn too_much_pending_is_busy() {
    let log = Log::create(Arc::new(SimIo::new(1)), options()).expect("a new log");
    while log.admit(10_000) == Admission::Ok {
        append(&log, 1, 10_000);
    }
    assert_eq!(log.admit(10_000), Admission::Busy);
    assert!(log.stats().pending_bytes >= 1 << 20);
    log.commit_once().expect("commit");
    assert_eq!(log.admit(10_000), Admission::Ok);
    assert_eq!(log.stats().pending_bytes, 0);
}

/// A quota is met where the free bytes of the medium say that there is room.
#[test]
fn a_used_up_quota_is_a_full_medium_and_no_failure() {
    let io = SimIo::new(1);
    io.set_quota(6 * u64::from(options().segment_size));
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    for number in 0..200 {
        if log.admit(1000) == Admission::Ok {
            append(&log, number, 1000);
        }
        log.commit_once().expect("full is no failure");
    }
    assert_eq!((log.admit(1000), log.failed()), (Admission::Full, None));
}

/// One of two folders has a quota of its own: the other one takes what it refuses, and once it has more, it takes files again.
#[test]
fn a_folder_with_a_quota_is_passed_over() {
    let segment = u64::from(options().segment_size);
    for limited in [0, 1] {
        let machines = [SimIo::new(1), SimIo::new(2)];
        machines[limited].set_quota(10 * segment);
        machines[1 - limited].set_capacity(40 * segment);
        let (log, io) = spread(&machines, options());
        let files = || machines.each_ref().map(|machine| machine.list("log").expect("a folder").len());
        let fill = || {
            while log.admit(1500) == Admission::Ok {
                append(&log, 1, 1500);
                log.wait_durable(log.tail()).expect("it was admitted");
            }
        };
        fill();
        assert!(files()[limited] == 9 && files()[1 - limited] > 30, "{:?}", files());
        assert_eq!(log.admit_for(1500, Purpose::Remove), Admission::Ok);
        let refused = log.tail();
        // It is tried, and refuses again: nothing is promised.
        log.look_for_room();
        assert_eq!((log.admit(1500), io.has_refused()), (Admission::Full, true));
        machines[limited].set_quota(1 << 30);
        machines[limited].set_capacity(30 * segment);
        log.look_for_room();
        fill();
        assert!(log.tail() > refused + 15 * SEGMENT_PAYLOAD && files()[limited] > 25, "{:?}", files());
    }
}

#[test]
fn nothing_is_promised_while_a_full_medium_is_tried_again() {
    let io = SimIo::new(1);
    io.set_quota(6 * u64::from(options().segment_size));
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    while log.admit(1000) != Admission::Full {
        append(&log, 1, 1000);
        log.commit_once().expect("full is no failure");
    }
    io.hold_writes("log/");
    thread::scope(|scope| {
        let tries = scope.spawn(|| log.look_for_room());
        let patience = Instant::now() + Duration::from_secs(20);
        while io.held_writes() == 0 {
            assert!(Instant::now() < patience, "no file is tried");
            thread::sleep(Duration::from_millis(1));
        }
        // Others measure what is free meanwhile.
        log.set_medium_reserve(1);
        let admission = log.admit(1000);
        io.release_writes();
        tries.join().expect("it is refused again");
        assert_eq!((admission, log.admit(1000)), (Admission::Full, Admission::Full));
    });
}

/// Such as after a start with a smaller limit: nothing may grow, and what is in the log can be cleaned and freed until it fits.
#[test]
fn a_log_of_more_files_than_it_may_have_is_emptied() {
    let by_options = LogOptions { max_segments: 8, ..options() };
    for (limit, limited_by) in [(by_options, Limit::Options), (options(), Limit::OpenFiles)] {
        let io = SimIo::new(1);
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        let mut from = 0;
        while log.stats().segments < 30 {
            from = append(&log, 1, 5000).0;
            log.commit_once().expect("commit");
        }
        log.close().expect("close");
        drop(log);
        let (log, ..) = open(Arc::new(io.clone()), limit, from).expect("open");
        if limited_by == Limit::OpenFiles {
            log.set_open_files_max(8).expect("surplus files can be removed");
        }
        assert_eq!(
            (log.usage().limited_by, log.usage().bytes_max),
            (limited_by, 8 * u64::from(options().segment_size))
        );
        assert_eq!((log.admit(100), log.admit_for(100, Purpose::Remove)), (Admission::Full, Admission::Ok));
        // What a segment holds is moved, and its file is not used again.
        for seq in 0..28 {
            assert_eq!(log.admit_for(500, Purpose::Clean), Admission::Ok);
            append(&log, seq, 500);
            log.close().expect("close");
            log.free_segment(seq);
            log.set_bytes_max(u64::MAX).expect("surplus files can be removed");
        }
        assert_eq!(log.admit(100), Admission::Ok);
        assert!(log.stats().segments <= 8, "{:?}", log.stats());
    }
}

/// Whoever is refused has the medium asked again, though nothing else happens.
#[test]
fn what_others_give_back_of_a_medium_is_room_again() {
    let io = SimIo::new(1);
    let segment = u64::from(options().segment_size);
    io.set_capacity(20 * segment);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let _thread = log.start_thread().expect("a thread");
    let patience = Instant::now() + Duration::from_secs(20);
    let mut reservation = Reservation::new(&log);
    assert_eq!(reservation.add(30 * segment, Purpose::Write), Err(Admission::Full));
    // All segments are prepared that are kept back.
    thread::sleep(Duration::from_millis(100));
    io.set_capacity(1 << 30);
    // Nothing is written, and nothing freed.
    while reservation.add(30 * segment, Purpose::Write).is_err() {
        assert!(Instant::now() < patience, "it is full for ever");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The room that was free before a restart is free after it, whatever the caller still has to find out.
#[test]
fn freed_segments_are_free_after_a_restart() {
    let io = SimIo::new(1);
    let o = LogOptions { max_segments: 8, ..options() };
    let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
    for number in 0..30 {
        append(&log, number, 2000);
        log.commit_once().expect("commit");
    }
    let from = log.append(b"the checkpoint");
    log.close().expect("close");
    let newest = (log.durable() - 1) / SEGMENT_PAYLOAD;
    (1..newest).for_each(|seq| log.free_segment(seq));
    let room = log.room();
    drop(log);
    for (after_a_power_cut, count) in [(false, 1), (true, 11)] {
        let io = if after_a_power_cut { io.crash() } else { io.clone() };
        let (log, _, batches) = open(Arc::new(io.clone()), o.clone(), from).expect("open");
        assert_eq!(batches.len(), count);
        // A power cut may take back that a segment is free, and then it is kept, with nothing live.
        assert!(after_a_power_cut || log.room() >= room, "{} of {room}", log.room());
        assert!(log.segments().iter().any(|segment| segment.seq == 0), "it was not freed");
        for segment in log.segments() {
            if (1..newest).contains(&segment.seq) {
                log.free_segment(segment.seq);
            }
        }
        for number in 0..10 {
            append(&log, number, 2000);
            log.commit_once().expect("there is room");
        }
        drop(log);
        let (_, _, batches) = open(Arc::new(io), o.clone(), from).expect("open");
        assert_eq!(batches.len(), count + 10);
    }
}

/// The header of a file that is needed cannot hide what is in it.
#[test]
fn a_needed_segment_that_says_it_is_free_is_refused() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    for number in 0..20 {
        append(&log, number, 2000);
    }
    log.close().expect("close");
    log.free_segment(1);
    drop(log);
    match open(Arc::new(io), options(), FIRST_LSN) {
        Err(Error::Corrupt { file, offset: 68, .. }) => assert_eq!(file, "log/00000001"),
        other => panic!("{:?}", other.map(|(_, report, _)| report)),
    }
}

/// Files that are too many go as they are freed; what is needed stays, and nothing may grow meanwhile.
#[test]
fn a_log_shrinks_to_its_bytes_as_segments_are_freed() {
    let io = SimIo::new(1);
    let segment = u64::from(options().segment_size);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    for number in 0..200 {
        append(&log, number, 1000);
        log.commit_once().expect("commit");
    }
    let files = || io.list("log").expect("a folder").len() as u64;
    let (before, newest) = (files(), (log.tail() - 1) / SEGMENT_PAYLOAD);
    assert!(before >= 10, "{before}");
    log.set_bytes_max(6 * segment).expect("a sound medium");
    assert!(log.is_too_large());
    assert_eq!(log.admit(1000), Admission::Full);
    let refused = Reservation::new(&log).add(50_000, Purpose::Write);
    assert_eq!(refused, Err(Admission::Full));
    assert_eq!((log.admit_for(1000, Purpose::Remove), files()), (Admission::Ok, before));
    assert_eq!((log.usage().bytes_max, log.usage().limited_by), (6 * segment, Limit::Budget));
    for seq in 0..newest {
        log.free_segment(seq);
    }
    log.set_bytes_max(6 * segment).expect("a sound medium");
    assert!(!log.is_too_large() && files() <= 6, "{} files", files());
    assert_eq!(log.admit(1000), Admission::Ok);
    // It never takes more from then on, and as much as it may.
    let mut count = 0;
    while log.admit(1000) == Admission::Ok {
        append(&log, 1, 1000);
        log.commit_once().expect("commit");
        count += 1;
    }
    assert!(count > 10 && files() <= 6, "{count}, {} files", files());
    log.set_bytes_max(u64::MAX).expect("a sound medium");
    assert_eq!(log.admit(1000), Admission::Ok);
    // What was removed is not missed after a power cut, whether or not that has taken the removal back.
    let from = log.append(b"the checkpoint");
    log.close().expect("close");
    for _ in 0..8 {
        open(Arc::new(io.crash()), options(), from).expect("open");
    }
}

/// Whoever reads an item asks for more than it may have: that what lies behind it is freed meanwhile is no damage.
#[test]
fn a_read_ends_where_a_segment_is_freed_meanwhile() {
    const SEGMENTS: u64 = 80;
    let log = Log::create(Arc::new(SimIo::new(1)), options()).expect("a new log");
    while log.tail() < (SEGMENTS + 2) * SEGMENT_PAYLOAD {
        log.append(&[7; 5000]);
        log.commit_once().expect("commit");
    }
    thread::scope(|scope| {
        let freeing = scope.spawn(|| {
            for seq in (1..SEGMENTS).rev() {
                log.free_segment(seq);
                thread::sleep(Duration::from_micros(100));
            }
        });
        let mut bytes = vec![0; ((SEGMENTS - 1) * SEGMENT_PAYLOAD) as usize];
        while !freeing.is_finished() {
            let read = log.read(FIRST_LSN, &mut bytes).expect("its first segment is kept") as u64;
            let is_cut_off = (FIRST_LSN + read).is_multiple_of(SEGMENT_PAYLOAD);
            assert!(is_cut_off || read == bytes.len() as u64, "{read} bytes");
        }
    });
}
