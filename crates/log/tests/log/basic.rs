//! The log on real files and on a simulated machine, without faults.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::fixture::{Batches, SEGMENT_PAYLOAD, open, options, payload};
use holdfast_io::{Error, Io, RealIo, Result, SimIo};
use holdfast_log::{
    Admission, Appendfsync, BATCH_HEADER, FIRST_LSN, Log, LogOptions, Lsn, Participant, batch_len,
};
use tempfile::TempDir;

fn real_io(folder: &TempDir) -> Arc<dyn Io> {
    Arc::new(RealIo::new(folder.path()).expect("a writable folder"))
}

#[test]
fn what_was_appended_is_read_and_replayed() {
    for io in [None, Some(SimIo::new(1)), Some(SimIo::on_scm(1))] {
        let folder = tempfile::tempdir().unwrap();
        let io: Arc<dyn Io> = io.map_or_else(|| real_io(&folder), |io| Arc::new(io));
        let log = Log::create(io.clone(), options()).expect("a new log");
        let mut expected = Batches::new();
        for i in 0..2000 {
            let payload = payload(i, 1 + (i as usize * 37) % 900);
            expected.push((log.append(&payload), payload));
            if i % 50 == 0 {
                assert!(log.commit_once().expect("commit"));
                assert_eq!(log.durable(), log.tail());
                assert!(!log.commit_once().expect("commit"));
            }
        }
        log.close().expect("close");
        let mut at = FIRST_LSN;
        for (lsn, payload) in &expected {
            assert_eq!(*lsn, at);
            let mut buf = vec![0; payload.len()];
            log.read(lsn + BATCH_HEADER as u64, &mut buf).expect("read");
            assert_eq!(buf, *payload);
            at += batch_len(payload.len());
        }
        let tail = log.tail();
        drop(log);
        let (log, report, batches) = open(io.clone(), options(), FIRST_LSN).expect("open");
        assert!(batches == expected);
        assert_eq!((report.tail, report.cut), (tail, None));
        // And it goes on.
        let payload = payload(7, 70_000);
        let lsn = log.append(&payload);
        assert_eq!(lsn, tail);
        log.close().expect("close");
        let (_, report, batches) = open(io, options(), expected[1000].0).expect("open");
        assert!(batches[..1000] == expected[1000..]);
        assert_eq!(batches[1000..], [(lsn, payload)]);
        assert_eq!(report.batches, 1001);
    }
}

#[test]
fn what_several_threads_prepare_is_applied_in_order() {
    let io: Arc<dyn Io> = Arc::new(SimIo::new(2));
    let options = LogOptions { segment_size: 1 << 20, ..options() };
    let log = Log::create(io.clone(), options.clone()).expect("a new log");
    let mut expected = Batches::new();
    for i in 0..400 {
        let payload = payload(i, 20_000);
        expected.push((log.append(&payload), payload));
        log.commit_once().expect("commit");
    }
    log.close().expect("close");
    let replay = |bad: Option<Lsn>, applied: &mut Batches| {
        let is_odd = AtomicBool::new(false);
        let prepare = |batches: &mut dyn Iterator<Item = (Lsn, &[u8])>| {
            let batches: Batches = batches.map(|(lsn, payload)| (lsn, payload.to_vec())).collect();
            // Each second one is ready after the next.
            if is_odd.fetch_not(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
            match batches.iter().find(|(lsn, _)| Some(*lsn) == bad) {
                Some((lsn, _)) => Err(Error::Unusable(format!("{lsn} is bad"))),
                None => Ok(batches),
            }
        };
        let apply = |batches: &mut dyn Iterator<Item = (Lsn, &[u8])>, prepared: Batches| {
            assert!(batches.map(|(lsn, payload)| (lsn, payload.to_vec())).eq(prepared.iter().cloned()));
            applied.extend(prepared);
            Ok(())
        };
        let from = (FIRST_LSN, FIRST_LSN);
        Log::replay_prepared(io.clone(), options.clone(), from, log.tail(), prepare, apply)
            .map(|log| log.tail())
    };
    let mut applied = Batches::new();
    assert_eq!(replay(None, &mut applied).expect("a sound log"), log.tail());
    assert!(applied == expected);
    // All before what could not be prepared was applied by then, and nothing behind it.
    let mut applied = Batches::new();
    let bad = expected[300].0;
    let error = replay(Some(bad), &mut applied).expect_err("one is bad").to_string();
    assert!(error.contains(&format!("{bad} is bad")), "{error}");
    assert!((200..=300).contains(&applied.len()) && applied == expected[..applied.len()]);
}

#[test]
fn large_batches_are_not_prepared_ahead() {
    let io: Arc<dyn Io> = Arc::new(SimIo::new(3));
    let options = LogOptions { segment_size: 8 << 20, max_pending_bytes: 64 << 20, ..options() };
    let log = Log::create(io.clone(), options.clone()).expect("a new log");
    for i in 0..12 {
        log.append(&vec![i; 5 << 20]);
        log.commit_once().expect("commit");
    }
    log.close().expect("close");
    let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let prepare = |batches: &mut dyn Iterator<Item = (Lsn, &[u8])>| {
        most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(batches.count())
    };
    let mut applied = 0;
    let apply = |_: &mut dyn Iterator<Item = (Lsn, &[u8])>, count| {
        // Time for others to be prepared, if they were to be.
        thread::sleep(Duration::from_millis(10));
        now.fetch_sub(1, Ordering::Relaxed);
        applied += count;
        Ok(())
    };
    let from = (FIRST_LSN, FIRST_LSN);
    Log::replay_prepared(io, options, from, log.tail(), prepare, apply).expect("a sound log");
    assert_eq!((applied, most.into_inner()), (12, 1));
}

#[test]
fn threads_append_at_once_and_the_log_thread_commits() {
    let folder = tempfile::tempdir().unwrap();
    let mut o = options();
    o.segment_size = 1 << 20;
    o.max_pending_bytes = 256 << 10;
    let log = Log::create(real_io(&folder), o.clone()).expect("a new log");
    let progress = Arc::new(AtomicU64::new(0));
    let seen = progress.clone();
    log.on_progress(Box::new(move || {
        seen.fetch_add(1, Ordering::Relaxed);
    }));
    let thread = log.start_thread().expect("threads");
    let batches: Vec<Batches> = thread::scope(|scope| {
        let append = |t: u64| {
            let log = &log;
            move || {
                let mut mine = Batches::new();
                for i in 0..3000 {
                    let len = if i % 500 == 7 { 100_000 } else { 20 + (i as usize * 13) % 300 };
                    let payload = payload(t << 32 | i, len);
                    while log.admit(payload.len()) != Admission::Ok {
                        assert_ne!(log.admit(payload.len()), Admission::Failed);
                        thread::yield_now();
                    }
                    let lsn = log.append(&payload);
                    mine.push((lsn, payload));
                    if i % 16 == 0 {
                        log.kick();
                    }
                    if i % 512 == 0 {
                        log.wait_durable(lsn + 16).expect("durable");
                    }
                }
                mine
            }
        };
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(append(t))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    log.wait_durable(log.tail()).expect("durable");
    thread.stop();
    assert!(progress.load(Ordering::Relaxed) > 0);
    let mut expected: Batches = batches.into_iter().flatten().collect();
    expected.sort();
    let stats = log.stats();
    assert_eq!(stats.pending_bytes, 0);
    assert!(stats.batches >= 12_000 && stats.commits > 0);
    drop(log);
    let (_, _, replayed) = open(real_io(&folder), o, FIRST_LSN).expect("open");
    assert!(replayed == expected);
}

#[test]
fn an_idle_log_marks_its_end_once() {
    let io = Arc::new(SimIo::new(1));
    let log = Log::create(io.clone(), options()).expect("a new log");
    let thread = log.start_thread().expect("threads");
    let lsn = log.append(b"abc");
    log.kick();
    let end = lsn + batch_len(3);
    let marked = || u64::from_le_bytes(io.snapshot("log/00000000")[40..48].try_into().expect("eight bytes"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while marked() != end {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
    let written = io.bytes_written();
    thread::sleep(Duration::from_millis(150));
    assert_eq!((log.tail(), io.bytes_written()), (end, written));
    drop(thread);
}

#[test]
fn batches_become_durable_as_asked() {
    let io = SimIo::new(1);
    let o = LogOptions { appendfsync: Appendfsync::Everysec, ..options() };
    let log = Log::create(Arc::new(io.clone()), o).expect("a new log");
    let append = || {
        log.append(b"abc");
        log.commit_once().expect("commit");
        assert_eq!(log.written(), log.tail());
        log.durable() == log.tail()
    };
    io.advance_ms(5000);
    assert!(append(), "after a long time, at once");
    assert!(!append());
    io.advance_ms(999);
    assert!(!append());
    io.advance_ms(1);
    assert!(append());
    assert!(!append());
    log.set_appendfsync(Appendfsync::Always);
    assert!(append());
    log.set_appendfsync(Appendfsync::No);
    assert!(!append());
    io.advance_ms(5000);
    assert!(!append());
    log.wait_durable(log.tail()).expect("durable");
    assert_eq!(log.durable(), log.tail());
    while !append() {}
    assert_eq!(log.durable(), SEGMENT_PAYLOAD, "a finished segment is made durable");
}

/// A failure that another part of the store tells of is told to whoever waits, as those of the log itself are.
#[test]
fn who_waits_learns_of_a_failure_from_outside() {
    let io = SimIo::new(1);
    let log = Log::create(Arc::new(io), options()).expect("a new log");
    let told = Arc::new(AtomicU64::new(0));
    let callback = { (told.clone(), Arc::downgrade(&log)) };
    log.on_progress(Box::new(move || {
        let failed = callback.1.upgrade().is_some_and(|log| log.failed().is_some());
        callback.0.fetch_add(failed.into(), Ordering::Relaxed);
    }));
    log.append(b"never written");
    log.fail(&Error::Unusable("the heap has failed".to_owned()));
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let why = log.wait_durable(log.tail()).expect_err("it has failed").to_string();
    assert!(why.contains("the heap has failed"), "{why}");
}

/// On storage-class memory: who kicks goes on at once, and whoever commits then does so for all.
#[test]
fn threads_that_kick_commit_for_each_other() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 1500;
    let io = SimIo::on_scm(1);
    let log = Log::create(Arc::new(io.clone()), options()).expect("a new log");
    let reports = Arc::new(AtomicU64::new(0));
    let counted = reports.clone();
    log.on_progress(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let arrived = AtomicU64::new(0);
    let wait_until = |is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody commits");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, arrived, wait_until) = (&log, &arrived, &wait_until);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    // All at once, and none again before all are done: a kick that is missed stays so.
                    arrived.fetch_add(1, Ordering::Relaxed);
                    wait_until(&|| arrived.load(Ordering::Relaxed) >= round * THREADS);
                    let payload = payload(thread, 20 + round as usize % 50);
                    let end = log.append(&payload) + batch_len(payload.len());
                    log.kick();
                    // Nobody else would: the log has no thread here.
                    wait_until(&|| log.durable() >= end);
                }
            });
        }
    });
    assert!(reports.load(Ordering::Relaxed) <= THREADS * ROUNDS);
    let (_, _, batches) = open(Arc::new(io.crash()), options(), FIRST_LSN).expect("open");
    assert_eq!(batches.len() as u64, THREADS * ROUNDS);
}

/// Who kicks meanwhile leaves its commit to who stores ahead, though that one does not kick.
#[test]
fn who_stores_ahead_commits_for_others() {
    let log = Log::create(Arc::new(SimIo::on_scm(1)), options()).expect("a new log");
    let (done, mut missed) = (AtomicBool::new(false), None);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if log.tail().saturating_sub(log.durable()) < 4096 {
                    log.append(&[7; 600]);
                }
                log.store_ahead();
            }
        });
        // As much as the log has room for.
        while missed.is_none() && log.tail() < 2 << 20 {
            let end = log.append(b"kicked") + batch_len(6);
            log.kick();
            let kicked = Instant::now();
            while log.durable() < end && missed.is_none() {
                missed = (kicked.elapsed() > Duration::from_secs(10)).then_some(end);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(missed, None, "nobody commits it");
}

/// Where nobody kicks, the log's thread looks after a while.
#[test]
fn what_nobody_kicks_is_committed_soon() {
    for io in [SimIo::new(1), SimIo::on_scm(1)] {
        let log = Log::create(Arc::new(io), options()).expect("a new log");
        let _thread = log.start_thread().expect("a thread");
        let end = log.append(b"payload") + batch_len(7);
        let began = Instant::now();
        log.request_durable(end);
        while log.durable() < end || log.written() < end {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        let end = log.append(b"payload") + batch_len(7);
        assert!(log.wait_durable(end).is_ok() && log.durable() == end);
    }
}

/// Notes how far it was asked to commit, and how far the log was written and durable then.
#[derive(Default)]
struct Joined {
    log: OnceLock<Weak<Log>>,
    asked: Mutex<Vec<Lsn>>,
    fails: AtomicBool,
}

impl Participant for Joined {
    fn commit(&self, end: Lsn, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let log = self.log.get().and_then(Weak::upgrade).expect("an open log");
        let before = log.durable();
        write()?;
        assert_eq!(log.durable(), before, "a batch does not count before all is done");
        if self.fails.load(Ordering::Relaxed) {
            return Err(Error::Unusable("it cannot".into()));
        }
        self.asked.lock().expect("no holder panics").push(end);
        Ok(())
    }
}

#[test]
fn a_batch_counts_as_durable_once_who_has_joined_has_committed() {
    let io: Arc<dyn Io> = Arc::new(SimIo::on_scm(1));
    let log = Log::create(io.clone(), options()).expect("a new log");
    let joined = Arc::new(Joined::default());
    joined.log.set(Arc::downgrade(&log)).expect("it was empty");
    log.join(joined.clone());
    let mut expected = Vec::new();
    for i in 0..20 {
        for n in 0..i % 3 + 1 {
            log.append(&payload(n, 100));
        }
        log.kick();
        expected.push(log.tail());
        assert_eq!(log.durable(), log.tail());
    }
    assert_eq!(*joined.asked.lock().expect("no holder panics"), expected);
    joined.fails.store(true, Ordering::Relaxed);
    let end = log.durable();
    let lsn = log.append(&payload(0, 100));
    log.kick();
    assert_eq!((lsn, log.durable()), (end, end));
    assert!(log.failed().is_some_and(|why| why.contains("it cannot")));
    joined.fails.store(false, Ordering::Relaxed);
    assert!(log.commit_once().is_err(), "nothing is committed behind what has failed");
    assert_eq!(*joined.asked.lock().expect("no holder panics"), expected);
}
