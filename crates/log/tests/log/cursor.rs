//! Reading the log as it grows, and keeping what is still to be read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::fixture::{Batches, Rng, SEGMENT_PAYLOAD, open, options, payload, seeds};
use holdfast_io::{Error, SimIo};
use holdfast_log::{Admission, Appendfsync, Cursor, FIRST_LSN, Log, LogOptions, Lsn, Step, batch_len};

/// Reads to the end; whether nothing was missing.
fn read(cursor: &mut Cursor, batches: &mut Batches) -> bool {
    loop {
        match cursor.step().expect("no damage") {
            Step::Batch(batch) => {
                assert_eq!((batch.epoch, batch.bytes.len() as u64), (1, batch_len(batch.payload.len())));
                batches.push((batch.lsn, batch.payload.to_vec()));
            }
            Step::End => return true,
            Step::Overrun => return false,
        }
    }
}

fn append(log: &Log, number: u64, len: usize) -> (Lsn, Vec<u8>) {
    let payload = payload(number, len);
    (log.append(&payload), payload)
}

fn free_all(log: &Log) {
    let newest = (log.durable() - 1) / SEGMENT_PAYLOAD;
    log.segments().iter().filter(|segment| segment.seq < newest).for_each(|s| log.free_segment(s.seq));
}

#[test]
fn a_cursor_reads_what_is_durable_and_follows_the_log() {
    for seed in seeds(10) {
        let mut rng = Rng(seed);
        let o = LogOptions { appendfsync: Appendfsync::Everysec, ..options() };
        let io = SimIo::new(seed);
        let log = Log::create(Arc::new(io.clone()), o).expect("a new log");
        let (mut cursor, mut found, mut appended) = (log.cursor(FIRST_LSN), Batches::new(), Batches::new());
        for number in 0..300 {
            let len = rng.below(if number % 40 == 0 { 3 * SEGMENT_PAYLOAD } else { 500 });
            appended.push(append(&log, number, len as usize));
            match rng.below(6) {
                0 => drop(log.commit_once().expect("commit")),
                1 => log.wait_durable(log.tail()).expect("durable"),
                _ => {}
            }
            assert!(read(&mut cursor, &mut found));
            let durable = appended.iter().filter(|(lsn, _)| *lsn < log.durable()).count();
            assert!(found == appended[..durable], "seed {seed}");
            assert_eq!(cursor.lsn(), log.durable());
        }
    }
}

#[test]
fn a_pin_keeps_what_is_freed_until_it_moves_on_or_is_overrun() {
    let o = LogOptions { max_segments: 12, ..options() };
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
    let pin = log.pin(FIRST_LSN, 5 * SEGMENT_PAYLOAD).expect("all is kept");
    let (mut appended, mut found) = (Batches::new(), Batches::new());
    let mut cursor = log.cursor(FIRST_LSN);
    let mut fill = |segments: u64| {
        let end = log.tail() + segments * SEGMENT_PAYLOAD;
        while log.tail() < end {
            appended.push(append(&log, appended.len() as u64, 900));
            log.commit_once().expect("commit");
        }
        free_all(&log);
        appended.clone()
    };
    let so_far = fill(4);
    assert!(log.segments().len() < 3, "whoever frees them has done its part");
    assert_eq!(pin.lsn(), Some(FIRST_LSN));
    assert!(read(&mut cursor, &mut found) && found == so_far);

    // What is read is given back.
    let room = log.room();
    assert!(pin.advance(cursor.lsn()));
    assert_eq!(log.room(), room, "it could have been given before");
    assert!(log.pin(FIRST_LSN, u64::MAX).is_none(), "it is gone");
    assert!(matches!(log.cursor(FIRST_LSN).step(), Ok(Step::Overrun)));

    // Too far behind.
    let pinned = fill(3);
    assert!(pin.lsn().is_some());
    fill(4);
    assert_eq!(pin.lsn(), None);
    assert!(!pin.advance(log.tail()));
    assert!(!read(&mut cursor, &mut found));
    assert!(found.len() <= pinned.len());

    // A pin does not make the log full.
    let pin = log.pin(log.tail(), u64::MAX).expect("all is kept");
    let mut cursor = log.cursor(log.tail());
    for _ in 0..10 {
        assert_eq!(log.admit(1000), Admission::Ok);
        fill(2);
    }
    assert_eq!(pin.lsn(), None);
    assert!(!read(&mut cursor, &mut found));
    drop(pin);
    drop(cursor);
    let from = appended
        .iter()
        .map(|(lsn, _)| *lsn)
        .find(|lsn| lsn / SEGMENT_PAYLOAD == (log.tail() - 1) / SEGMENT_PAYLOAD);
    drop(log);
    open(Arc::new(io), o, from.expect("a batch in the last segment")).expect("open");
}

/// The file of its second part is in use again, by another segment, when that is read.
#[test]
fn a_batch_that_goes_while_it_is_read_is_no_damage() {
    let o = LogOptions { max_segments: 6, ..options() };
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), o).expect("a new log");
    append(&log, 0, SEGMENT_PAYLOAD as usize + 1000);
    let fill = |log: &Log, segments: u64| {
        let end = log.tail() + segments * SEGMENT_PAYLOAD;
        while log.tail() < end {
            append(log, 1, 900);
            log.commit_once().expect("commit");
        }
    };
    fill(&log, 2);
    let (reads, used) = (AtomicU64::new(0), Arc::downgrade(&log));
    io.before_read(move || {
        if reads.fetch_add(1, Relaxed) == 1 {
            let log = used.upgrade().expect("it is read");
            log.free_segment(1);
            fill(&log, 3);
        }
    });
    assert!(matches!(log.cursor(FIRST_LSN).step(), Ok(Step::Overrun)));
    assert!(log.tail() > 6 * SEGMENT_PAYLOAD, "all files are in use, one of them again");
}

#[test]
fn a_cursor_is_told_of_damage() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    append(&log, 1, 100);
    let (lsn, _) = append(&log, 2, 100);
    log.close().expect("close");
    io.flip_bit("log/00000000", 4096 + lsn + 30, 0);
    let mut cursor = log.cursor(FIRST_LSN);
    assert!(matches!(cursor.step(), Ok(Step::Batch(_))));
    assert!(matches!(cursor.step(), Err(Error::Corrupt { .. })));
    assert!(matches!(log.cursor(lsn + 16).step(), Err(Error::Corrupt { .. })), "no batch begins here");
}
