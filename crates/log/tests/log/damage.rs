//! Damaged media: what was durable and is damaged is reported with its place, never replayed, never a panic.

use std::sync::Arc;

use crate::fixture::{Batches, Rng, SEGMENT_PAYLOAD, open, options, payload, replay, seeds};
use holdfast_io::{Durability, Error, Fault, Io, SimIo};
use holdfast_log::{Appendfsync, FIRST_LSN, Log, LogOptions, Lsn, Scope, batch_len};

/// A closed log over several segments; also its end.
fn sample(io: &SimIo, seed: u64) -> (Batches, Lsn) {
    let mut rng = Rng(seed);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let mut batches = Batches::new();
    for i in 0..120 {
        let payload = payload(i, 1 + rng.below(if i % 20 == 0 { 20_000 } else { 900 }) as usize);
        batches.push((log.append(&payload), payload));
        if rng.below(4) == 0 {
            log.commit_once().expect("commit");
        }
    }
    log.close().expect("close");
    (batches, log.tail())
}

/// File and offset of an LSN; the files of `sample` were made in order.
fn place(lsn: Lsn) -> (String, u64) {
    (format!("log/{:08x}", lsn / SEGMENT_PAYLOAD), 4096 + lsn % SEGMENT_PAYLOAD)
}

#[test]
fn a_flipped_bit_in_what_was_durable_is_reported_with_its_place() {
    let io = SimIo::new(1);
    let (batches, tail) = sample(&io, 1);
    let mut rng = Rng(2);
    for _ in 0..1500 {
        let lsn = FIRST_LSN + rng.below(tail - FIRST_LSN);
        let batch = batches.iter().map(|(start, _)| *start).rfind(|start| *start <= lsn).expect("a batch");
        let (file, offset) = place(lsn);
        let bit = rng.below(8) as u32;
        io.flip_bit(&file, offset, bit);
        match open(Arc::new(io.clone()), options(), FIRST_LSN).map(|(_, report, _)| report) {
            Err(Error::Corrupt { file, offset, .. }) => assert_eq!((file, offset), place(batch)),
            other => panic!("bit {bit} at {lsn}: {other:?}"),
        }
        io.flip_bit(&file, offset, bit);
    }
    // Nothing was changed meanwhile.
    let (_, report, replayed) = open(Arc::new(io), options(), FIRST_LSN).expect("open");
    assert!(replayed == batches);
    assert_eq!((report.tail, report.cut), (tail, None));
}

#[test]
fn a_flipped_bit_in_a_header_is_reported() {
    let io = SimIo::new(1);
    let (_, tail) = sample(&io, 1);
    let mut rng = Rng(3);
    for _ in 0..300 {
        let file = format!("log/{:08x}", rng.below(tail / SEGMENT_PAYLOAD + 2));
        // Behind it comes what would be a copy on another medium, and is not asked for.
        let within = [128, 2048][rng.below(2) as usize];
        let (at, bit) = (rng.below(within), rng.below(8) as u32);
        io.flip_bit(&file, at, bit);
        match open(Arc::new(io.clone()), options(), FIRST_LSN).map(|(_, report, _)| report) {
            Err(Error::Corrupt { file: found, offset: 0, .. }) => assert_eq!(found, file),
            other => panic!("bit {bit} at {at} of {file}: {other:?}"),
        }
        io.flip_bit(&file, at, bit);
    }
}

#[test]
fn a_header_that_goes_back_is_reported() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let header = |io: &SimIo| io.snapshot("log/00000000")[..4096].to_vec();
    let mut headers = vec![header(&io)];
    let mut batches = Vec::new();
    for number in 0..8 {
        batches.push(log.append(&payload(number, 900)));
        log.commit_once().expect("commit");
        if headers.last() != Some(&header(&io)) {
            headers.push(header(&io));
        }
    }
    drop(log);
    let put = |header: &[u8]| {
        let file = io.open("log/00000000", false).expect("a file");
        file.write_at(&[header], 0, Durability::Durable).expect("it writes");
    };
    let last = headers.pop().expect("the header as it is");
    assert_eq!(headers.len(), 2, "it was written anew for each block");
    for before in &headers {
        put(before);
        match open(Arc::new(io.clone()), options(), FIRST_LSN).map(|(_, report, _)| report) {
            Err(Error::Corrupt { what, .. }) => assert_eq!(what, "the segment's header was lost"),
            other => panic!("{other:?}"),
        }
    }
    // Where the last batch goes beyond the reach, what lies behind it tells.
    let reach = u32::from_le_bytes(headers[1][72..76].try_into().expect("four bytes"));
    let mut places = batches.into_iter().map(place);
    let (file, beyond) = places.find(|(_, at)| *at > u64::from(reach)).expect("a batch behind it");
    put(&headers[1]);
    io.flip_bit(&file, beyond + 100, 0);
    match open(Arc::new(io.clone()), options(), FIRST_LSN).map(|(_, report, _)| report) {
        Err(Error::Corrupt { what, .. }) => assert_eq!(what, "a durable batch is damaged or missing"),
        other => panic!("{other:?}"),
    }
    io.flip_bit(&file, beyond + 100, 0);
    put(&last);
    open(Arc::new(io.clone()), options(), FIRST_LSN).expect("open");
}

/// What lies behind the log's end is read up to where something may have been written, not to the end of its files.
#[test]
fn a_start_reads_no_more_than_was_written() {
    let io = SimIo::new(1);
    let o = LogOptions { segment_size: 32 << 20, ..options() };
    let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
    log.append(b"first");
    log.commit_once().expect("commit");
    drop(log);
    let before = io.reads();
    let (replayed, _) = replay(Arc::new(io.clone()), o, FIRST_LSN, FIRST_LSN).expect("open");
    assert_eq!(replayed.report.cut, None);
    // Of 8 MiB, mostly in pieces of one; to the end of the file there would be three times as many.
    let reads = io.reads() - before;
    assert!(reads < 30, "{reads}");
}

/// Where there are many files, threads share them.
#[test]
fn many_files_are_opened_and_the_first_damaged_one_is_named() {
    let io = SimIo::new(1);
    let o = LogOptions { max_segments: 1024, ..options() };
    let log = Log::create(Arc::new(io.clone()), o.clone()).expect("a new log");
    let mut batches = Batches::new();
    for number in 0..700 {
        let payload = payload(number, SEGMENT_PAYLOAD as usize - 500);
        batches.push((log.append(&payload), payload));
        log.commit_once().expect("commit");
    }
    log.close().expect("close");
    let (tail, segments) = (log.tail(), log.segments());
    assert!(segments.len() > 600, "{} segments", segments.len());
    drop(log);
    let (log, report, replayed) = open(Arc::new(io.clone()), o.clone(), FIRST_LSN).expect("open");
    assert_eq!((report.tail, log.segments().len()), (tail, segments.len()));
    assert!(replayed == batches, "what was appended is replayed");
    drop(log);
    for file in ["log/0000025d", "log/00000133", "log/00000101"] {
        io.flip_bit(file, 40, 3);
        match open(Arc::new(io.clone()), o.clone(), FIRST_LSN).map(|(_, report, _)| report) {
            Err(Error::Corrupt { file: found, offset: 0, .. }) => assert_eq!(found, file),
            other => panic!("{file}: {other:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_commit_is_a_torn_tail_unless_the_log_was_marked() {
    for is_marked in [false, true] {
        let io = SimIo::new(1);
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        let (first, last) = (log.append(b"first"), log.append(b"last"));
        log.commit_once().expect("commit");
        // The header of the segment that was prepared then would tell, too.
        log.append(&[7; 2 * SEGMENT_PAYLOAD as usize]);
        log.commit_once().expect("commit");
        let (before, at) = (last, log.append(b"the last commit"));
        assert!(first < before);
        log.commit_once().expect("commit");
        if is_marked {
            log.close().expect("close");
        }
        let tail = log.tail();
        drop(log);
        let (file, offset) = place(at);
        io.flip_bit(&file, offset + 30, 0);
        match open(Arc::new(io.clone()), options(), FIRST_LSN).map(|(_, report, _)| report) {
            Err(Error::Corrupt { file: found, offset: at, .. }) if is_marked => {
                assert_eq!((found, at), (file, offset));
            }
            Ok(report) if !is_marked => {
                assert_eq!(report.cut.map(|cut| cut.offset), Some(offset));
                assert_eq!(report.tail, at);
                assert!(at < tail);
                let (_, report, _) = open(Arc::new(io), options(), FIRST_LSN).expect("open");
                assert_eq!(report.cut, None, "it was cut off");
            }
            other => panic!("{is_marked}: {other:?}"),
        }
    }
}

/// Who knows where the log was ended need not look behind it, and is not led to overlook that it ends earlier by damage.
#[test]
fn an_end_that_is_known_hides_no_damage() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let mut starts = Vec::new();
    for payload in [&b"the first"[..], b"the second", b"the third"] {
        starts.push(log.append(payload));
        log.commit_once().expect("commit");
    }
    let tail = log.tail();
    drop(log);
    let known = LogOptions { ended_at: Some(tail), ..options() };
    let (log, report, batches) = open(Arc::new(io.clone()), known.clone(), FIRST_LSN).expect("it is sound");
    assert_eq!((report.tail, report.cut, batches.len()), (tail, None, 3));
    drop(log);
    // That the third one is there proves that the others were durable.
    for lsn in &starts[..2] {
        let (file, offset) = place(*lsn);
        io.flip_bit(&file, offset + 30, 0);
        assert!(matches!(open(Arc::new(io.clone()), known.clone(), FIRST_LSN), Err(Error::Corrupt { .. })));
        io.flip_bit(&file, offset + 30, 0);
    }
}

/// What a later term wrote is not appended to by an earlier one, and what an earlier one left does not follow a later one.
#[test]
fn an_epoch_never_goes_back() {
    let io = SimIo::new(1);
    let open_at = |epoch| {
        let o = LogOptions { epoch, ..options() };
        open(Arc::new(io.clone()), o, FIRST_LSN).map(|(log, report, batches)| (log, report, batches.len()))
    };
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    log.append(b"of epoch 1");
    log.close().expect("close");
    drop(log);
    let (log, report, _) = open_at(3).expect("a later epoch");
    assert_eq!(report.epoch, 1);
    let of_three = log.append(b"of epoch 3");
    log.close().expect("close");
    let stale = log.tail();
    drop(log);
    let shared = LogOptions { epoch: 2, agreed: Some(stale), ..options() };
    assert!(
        matches!(open(Arc::new(io.clone()), shared, FIRST_LSN), Err(Error::Unusable(_))),
        "an earlier term"
    );
    // It goes on in its own.
    let (log, ..) = open_at(2).expect("a log that is not shared");
    assert_eq!(log.epoch(), 3);
    log.close().expect("close");
    assert_eq!(log.tail(), stale);
    drop(log);
    // A sound batch of an earlier epoch, where the next one would be.
    let other = SimIo::new(2);
    let log = Log::create(Arc::new(other.clone()), options()).expect("a new log");
    log.append(b"of epoch 1");
    log.append(b"of epoch 1");
    let lsn = log.append(b"of epoch 1, too");
    assert_eq!(lsn, stale);
    log.close().expect("close");
    let (file, offset) = place(lsn);
    let bytes = other.snapshot(&file)[offset as usize..][..batch_len(15) as usize].to_vec();
    let written = io.open(&file, false).expect("a file").write_at(&[&bytes], offset, Durability::Durable);
    written.expect("it writes");
    let (log, report, batches) = open_at(3).expect("a torn tail");
    assert_eq!((report.epoch, report.tail, batches, log.tail()), (3, stale, 2, stale));
    assert!(report.cut.is_some() && of_three < stale);
}

#[test]
fn the_header_of_the_next_segment_tells_of_a_loss_too() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let lsn = log.append(b"the only batch");
    // Then the next segment is prepared.
    log.commit_once().expect("commit");
    let (file, offset) = place(lsn);
    io.flip_bit(&file, offset + 30, 0);
    match open(Arc::new(io), options(), FIRST_LSN).map(|(_, report, _)| report) {
        Err(Error::Corrupt { file, offset, .. }) => assert_eq!((file, offset), place(lsn)),
        other => panic!("{other:?}"),
    }
}

/// Who else knows what was durable is heard before anything is written.
#[test]
fn a_loss_that_only_the_caller_knows_of_is_refused_and_nothing_is_changed() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let lsn = log.append(b"the only batch");
    log.commit_once().expect("commit");
    let durable = log.durable();
    drop(log);
    // The header of the segment that was prepared next tells of it, too.
    io.remove("log/00000001").expect("remove");
    let (file, offset) = place(lsn);
    io.flip_bit(&file, offset + 30, 0);
    let (before, written) = (io.snapshot(&file), io.bytes_written());
    match replay(Arc::new(io.clone()), options(), FIRST_LSN, durable) {
        Err(Error::Corrupt { file, offset, .. }) => assert_eq!((file, offset), place(lsn)),
        other => panic!("{:?}", other.map(|(replayed, _)| replayed.report)),
    }
    let (replayed, _) = replay(Arc::new(io.clone()), options(), FIRST_LSN, lsn).expect("a torn tail");
    assert!(replayed.report.cut.is_some());
    drop(replayed);
    assert!(io.snapshot(&file) == before && io.bytes_written() == written, "something was changed");
}

#[test]
fn a_lost_or_foreign_or_truncated_file_is_refused() {
    let sample = || {
        let io = SimIo::new(1);
        sample(&io, 1);
        io
    };
    let refusal = |io: SimIo, o: LogOptions| match open(Arc::new(io), o, FIRST_LSN) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    let io = sample();
    io.remove("log/00000003").expect("remove");
    assert!(matches!(refusal(io, options()), Error::Corrupt { .. }));
    let io = sample();
    io.remove("log/00000000").expect("remove");
    assert!(matches!(refusal(io, options()), Error::Corrupt { .. }));
    let io = sample();
    io.open("log/00000003", false).expect("open").set_len(9000).expect("cut");
    assert!(matches!(refusal(io, options()), Error::Corrupt { .. }));
    let io = sample();
    let copy = io.snapshot("log/00000002");
    let file = io.open("log/00000099", true).expect("open");
    file.write_at(&[&copy], 0, Durability::Durable).expect("write");
    assert!(matches!(refusal(io, options()), Error::Corrupt { .. }));
    let foreign = LogOptions { store_id: [9; 16], ..options() };
    assert!(matches!(refusal(sample(), foreign), Error::Unusable(_)));
    let other_size = LogOptions { segment_size: 32 << 10, ..options() };
    assert!(matches!(refusal(sample(), other_size), Error::Unusable(_)));
    assert!(matches!(refusal(SimIo::new(1), options()), Error::Corrupt { .. }));
}

#[test]
fn the_cleaner_is_told_of_damage() {
    let io = SimIo::new(1);
    let (batches, _) = sample(&io, 1);
    let (log, _, _) = open(Arc::new(io.clone()), options(), FIRST_LSN).expect("open");
    for (lsn, _) in &batches[40..60] {
        let (file, offset) = place(*lsn);
        io.flip_bit(&file, offset, 7);
        match log.scan_segment(lsn / SEGMENT_PAYLOAD, Scope::All, &mut |_, _| Ok(())) {
            Err(Error::Corrupt { file, offset, .. }) => assert_eq!((file, offset), place(*lsn)),
            other => panic!("{other:?}"),
        }
        io.flip_bit(&file, offset, 7);
    }
    assert!(log.read(log.tail() - 8, &mut [0; 16]).is_err());
    assert!(log.read(u64::MAX - 8, &mut [0; 16]).is_err());
}

/// Replays whatever bytes are in the files: an error or a prefix, but no panic.
#[test]
fn arbitrary_bytes_are_no_reason_to_panic() {
    for seed in seeds(500) {
        let mut rng = Rng(seed);
        let io = SimIo::new(seed);
        let (batches, tail) = sample(&io, seed % 16);
        for _ in 0..=rng.below(3) {
            let slot = rng.below(tail / SEGMENT_PAYLOAD + 3);
            let file = io.open(&format!("log/{slot:08x}"), true).expect("open");
            let at = rng.below(16 << 10);
            let len_max = 1 << rng.below(14);
            let mut bytes = vec![0; rng.below(len_max) as usize];
            match rng.below(4) {
                0 => {}
                1 => bytes.fill(rng.draw() as u8),
                2 => bytes.iter_mut().for_each(|byte| *byte = rng.draw() as u8),
                // Something valid in the wrong place.
                _ => {
                    let from = place(batches[rng.below(batches.len() as u64) as usize].0);
                    bytes = io.snapshot(&from.0).into_iter().skip(from.1 as usize).collect();
                }
            }
            file.write_at(&[&bytes], at, Durability::Durable).expect("write");
            if rng.below(10) == 0 {
                file.set_len(rng.below(20 << 10)).expect("set length");
            }
        }
        let from = [FIRST_LSN, batches[rng.below(120) as usize].0, rng.below(tail), rng.draw()];
        let from = from[rng.below(4) as usize];
        let mut o = options();
        o.appendfsync = Appendfsync::No;
        if let Ok((log, report, replayed)) = open(Arc::new(io.clone()), o, from) {
            let expected = batches.iter().filter(|(lsn, _)| (from..report.tail).contains(lsn));
            assert!(replayed.iter().eq(expected), "seed {seed}");
            for segment in log.segments() {
                let _ = log.scan_segment(segment.seq, Scope::All, &mut |lsn, payload| {
                    assert!(batches.iter().any(|batch| batch.0 == lsn && batch.1 == payload));
                    Ok(())
                });
            }
        }
    }
}

/// The block that a lost write should have changed is mostly written again by the next commit, but not the header of a
/// segment that came with it.
#[test]
fn a_lost_write_is_reported_or_made_good() {
    const FROM: usize = 88;
    let mut reported = 0;
    for lost in 0..110 {
        let io = SimIo::new(lost);
        let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
        io.fault(Fault::lost_write("log/").after(lost));
        let append = |log: &Log, number: u64| {
            let payload = payload(number, 500);
            let lsn = log.append(&payload);
            log.commit_once().expect("a device that says all is well");
            (lsn, payload)
        };
        let mut batches: Batches = (0..90).map(|number| append(&log, number)).collect();
        drop(log);
        io.clear_faults();
        // As after a checkpoint: the replay begins in the middle of the last segment.
        let from = batches[FROM].0;
        let (log, _, replayed) = match open(Arc::new(io.clone()), options(), from) {
            Ok(opened) => opened,
            Err(Error::Corrupt { .. }) => {
                reported += 1;
                continue;
            }
            Err(other) => panic!("write {lost}: {other}"),
        };
        assert!(batches[FROM..].starts_with(&replayed), "write {lost}");
        batches.truncate(FROM + replayed.len());
        batches.extend((90..100).map(|number| append(&log, number)));
        drop(log);
        let (_, _, replayed) = open(Arc::new(io), options(), from).expect("what was sound is sound");
        assert!(replayed == batches[FROM..], "write {lost}");
    }
    assert!(reported > 0);
}
