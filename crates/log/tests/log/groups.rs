//! A log that other servers have, too: where its groups end, what of it counts as durable, and what becomes of it elsewhere.

use std::{
    sync::{Arc, Weak},
    thread,
};

use crate::fixture::{Rng, SEGMENT_PAYLOAD, any_machine, open, options, payload, replay, seeds};
use holdfast_io::{Error, Result, SimIo};
use holdfast_log::{
    Admission, FIRST_LSN, GROUP_BYTES_MAX, Groups, Log, LogOptions, Lsn, Purpose, Reservation, SEAL,
    batch_len,
};
use parking_lot::Mutex;

/// Keeps what it is told.
#[derive(Default)]
struct Told {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Batches of each group, and where its seal ends.
    groups: Vec<(Vec<u8>, Lsn)>,
    written: Lsn,
    /// Whether it may append.
    is_over: bool,
}

fn seal(number: usize) -> Vec<u8> {
    [&[SEAL][..], &number.to_le_bytes()].concat()
}

impl Groups for Told {
    fn seal(&self) -> Result<Vec<u8>> {
        let state = self.state.lock();
        if state.is_over { Err(Error::Unusable("it is over".into())) } else { Ok(seal(state.groups.len())) }
    }

    fn begin(&self, batches: Vec<u8>, end: Lsn) -> Result<()> {
        self.state.lock().groups.push((batches, end));
        Ok(())
    }

    fn durable_here(&self, end: Lsn) -> Lsn {
        self.state.lock().written = end;
        0
    }

    fn keep_from(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
}

fn follower() -> LogOptions {
    LogOptions { agreed: Some(FIRST_LSN), ..options() }
}

fn lead(log: &Log, epoch: u32, told: &Arc<Told>) {
    let groups: Weak<dyn Groups> = Arc::downgrade(&(told.clone() as Arc<dyn Groups>));
    log.lead(epoch, groups);
}

/// A new log, of a server that leads.
fn led(io: SimIo, told: &Arc<Told>) -> Arc<Log> {
    let log = Log::create(Arc::new(io), follower()).expect("a new log");
    lead(&log, 1, told);
    log
}

/// The bytes of a log without the marks, which are each server's own.
fn bytes(log: &Log) -> Vec<u8> {
    let mut bytes = vec![0; (log.written() - FIRST_LSN) as usize];
    assert_eq!(log.read(FIRST_LSN, &mut bytes).expect("it is kept"), bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[at + 20..at + 24].fill(0);
        at += batch_len(len) as usize;
    }
    bytes
}

/// Stores a leader's groups as it had them.
fn store(log: &Log, groups: &[(Vec<u8>, Lsn)], first: usize, epoch: u32) {
    for (number, (batches, end)) in groups.iter().enumerate().skip(first) {
        log.store(batches).expect("what follows");
        log.append_in(epoch, &seal(number));
        assert_eq!(log.tail(), *end);
    }
    log.request_durable(log.tail());
    while log.durable_here() < log.tail() {
        log.commit_once().expect("a sound medium");
    }
}

#[test]
fn other_servers_store_the_same_log_and_nothing_is_durable_before_they_have() {
    for seed in seeds(20) {
        let (mut rng, told) = (Rng(seed), Arc::new(Told::default()));
        let log = led(any_machine(seed), &told);
        let other = Log::create(Arc::new(any_machine(seed + 1)), follower()).expect("a new log");
        let (mut stored, mut agreed) = (0, FIRST_LSN);
        for number in 0..200 {
            let len = rng.below(if number % 40 == 0 { 3 * SEGMENT_PAYLOAD } else { 500 });
            log.append(&payload(number, len as usize));
            match rng.below(5) {
                0 => drop(log.commit_once().expect("commit")),
                1 => {
                    let groups = told.state.lock().groups.clone();
                    store(&other, &groups, stored, 1);
                    stored = groups.len();
                }
                2 => {
                    // Maybe before it is durable here.
                    agreed = other.durable_here();
                    log.agree(agreed);
                }
                _ => {}
            }
            assert_eq!(log.durable_here(), told.state.lock().written.max(FIRST_LSN));
            assert_eq!(log.durable(), agreed.min(log.durable_here()), "seed {seed}");
        }
        while log.commit_once().expect("commit") {}
        store(&other, &told.state.lock().groups, stored, 1);
        assert!(bytes(&log) == bytes(&other), "seed {seed}");
        let number = told.state.lock().groups.len() - 1;
        let at = log.tail() - batch_len(seal(number).len());
        assert_eq!(other.payload_at(at), Some(seal(number)));
        assert_eq!(other.payload_at(at + 16), None);
    }
}

/// However many threads append meanwhile: each batch is in one group, in order, and nothing comes between a group and its seal.
#[test]
fn groups_are_whole_while_threads_append() {
    let told = Arc::new(Told::default());
    let log = led(SimIo::new(1), &told);
    let running = log.start_thread().expect("threads");
    thread::scope(|scope| {
        for number in 0..2 {
            let log = &log;
            scope.spawn(move || {
                for i in 0..2000 {
                    log.append(&payload(number, 10 + i % 300));
                    if i % 7 == 0 {
                        log.kick();
                    }
                }
            });
        }
    });
    log.request_durable(log.tail());
    while log.durable_here() < log.tail() {
        thread::yield_now();
    }
    running.stop();
    let other = Log::create(Arc::new(SimIo::new(2)), follower()).expect("a new log");
    store(&other, &told.state.lock().groups, 0, 1);
    assert!(bytes(&log) == bytes(&other));
}

/// What it appends comes behind all that it has stored, in its own term, in groups that it shares, and nothing counts as durable before others have it.
#[test]
fn who_has_stored_goes_on_where_the_other_one_ended() {
    for seed in seeds(20) {
        let (mut rng, told) = (Rng(seed), Arc::new(Told::default()));
        let log = led(any_machine(seed), &told);
        for number in 0..20 {
            log.append(&payload(number, rng.below(3000) as usize));
            log.commit_once().expect("commit");
        }
        let (io, third) = (any_machine(seed + 1), any_machine(seed + 2));
        let other = Log::create(Arc::new(io.clone()), follower()).expect("a new log");
        let third = Log::create(Arc::new(third), follower()).expect("a new log");
        let groups = told.state.lock().groups.clone();
        store(&other, &groups, 0, 1);
        store(&third, &groups, 0, 1);
        let end = other.tail();
        assert_eq!(other.admit(1), Admission::Failed, "another one appends");
        let (agreed, told) = (groups[rng.below(20) as usize].1, Arc::new(Told::default()));
        other.agree(agreed);
        lead(&other, 7, &told);
        assert_eq!((other.admit(1), other.epoch(), other.durable()), (Admission::Ok, 7, agreed));
        let own: Vec<_> = (0..5).map(|number| payload(100 + number, rng.below(3000) as usize)).collect();
        for payload in &own {
            other.append(payload);
        }
        while other.commit_once().expect("commit") {}
        assert_eq!((other.durable_here(), other.durable()), (other.tail(), agreed));
        let groups = told.state.lock().groups.clone();
        let [(batches, to)] = &groups[..] else { panic!("one group") };
        assert!(third.check(batches, 7) && third.tail() == end);
        store(&third, &groups, 0, 7);
        assert!(third.tail() == *to && bytes(&third) == bytes(&other), "seed {seed}");
        other.agree(*to);
        assert_eq!(other.durable(), *to);
        drop(other);
        let (_, report, batches) =
            open(Arc::new(io.crash()), LogOptions { epoch: 7, ..follower() }, FIRST_LSN).expect("sound");
        assert_eq!((report.epoch, report.tail), (7, *to), "seed {seed}");
        assert!(batches[batches.len() - 6..][..5].iter().map(|(_, payload)| payload).eq(&own));
    }
}

#[test]
fn who_may_append_no_more_writes_nothing() {
    let (io, told) = (SimIo::new(1), Arc::new(Told::default()));
    let log = led(io, &told);
    log.append(b"a batch");
    log.commit_once().expect("commit");
    let written = log.written();
    log.append(b"another one");
    told.state.lock().is_over = true;
    log.commit_once().expect_err("it is over");
    assert_eq!((log.written(), log.failed().is_some()), (written, true));
    drop(told);
    log.commit_once().expect_err("nobody shares it any more");
}

#[test]
fn batches_that_are_damaged_or_belong_elsewhere_are_not_stored() {
    let told = Arc::new(Told::default());
    let log = led(SimIo::new(1), &told);
    for number in 0..3 {
        log.append(&payload(number, 40));
        log.append(&payload(number + 10, 50));
        log.commit_once().expect("commit");
    }
    let groups = told.state.lock().groups.clone();
    let other = Log::create(Arc::new(SimIo::new(2)), follower()).expect("a new log");
    let (first, _) = &groups[0];
    for bit in 0..first.len() * 8 {
        let mut damaged = first.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!other.check(&damaged, 1) || other.store(&damaged).is_err(), "bit {bit}");
        assert_eq!(other.tail(), FIRST_LSN);
    }
    other.store(&groups[1].0).expect_err("the second one");
    for len in 1..first.len() {
        assert!(!other.check(&first[..len], 1) || len as u64 == batch_len(40), "{len} bytes");
    }
    assert!(other.check(first, 1) && !other.check(first, 2));
    store(&other, &groups, 0, 1);
    assert!(bytes(&log) == bytes(&other));
}

/// What another leader had begun goes for good, whatever of it a crash has left, before its LSNs are used again.
#[test]
fn what_is_cut_off_never_comes_back() {
    for seed in seeds(60) {
        let (mut rng, io) = (Rng(seed), any_machine(seed));
        let log = Log::create(Arc::new(io.clone()), follower()).expect("a new log");
        let mut ends = vec![FIRST_LSN];
        for number in 0..30 {
            let len = rng.below(if number % 10 == 0 { 3 * SEGMENT_PAYLOAD } else { 2000 });
            log.append(&payload(number, len as usize));
            log.commit_once().expect("commit");
            ends.push(log.tail());
        }
        let agreed = rng.below(ends.len() as u64) as usize;
        log.agree(ends[agreed]);
        // The marks of later batches say so.
        for number in 30..33 {
            log.append(&payload(number, 100));
            log.commit_once().expect("commit");
        }
        drop(log);
        let known = |o: LogOptions| LogOptions { epoch: 2, ..o };
        let (mut replayed, _) =
            replay(Arc::new(io.clone()), known(follower()), FIRST_LSN, FIRST_LSN).expect("sound");
        if agreed > 0 {
            replayed.cut(ends[agreed - 1]).expect_err("it is agreed on");
        }
        let end = ends[agreed..][rng.below((ends.len() - agreed) as u64) as usize];
        replayed.cut(end).expect("nobody was told of it");
        let log = replayed.open().expect("a sound medium");
        assert_eq!((log.tail(), log.durable_here()), (end, end));
        let new: Vec<_> =
            (0..rng.below(4)).map(|number| payload(100 + number, rng.below(3000) as usize)).collect();
        for payload in &new {
            log.append(payload);
        }
        log.commit_once().expect("commit");
        drop(log);
        let io = if rng.below(2) == 0 { io.crash() } else { io };
        let (log, report, batches) = open(Arc::new(io), known(follower()), FIRST_LSN).expect("sound");
        let kept = ends.iter().position(|known| *known == end).expect("an end");
        assert_eq!((batches.len(), report.cut), (kept + new.len(), None), "seed {seed}");
        assert!(batches[kept..].iter().map(|(_, payload)| payload).eq(&new), "seed {seed}");
        drop(log);
    }
}

#[test]
fn no_group_gets_longer_than_others_agree_on() {
    const MIB: u64 = 1 << 20;
    let (told, io) = (Arc::new(Told::default()), any_machine(1));
    let shared = LogOptions { max_segments: 1 << 20, ..follower() };
    let log = Log::create(Arc::new(io.clone()), shared).expect("a new log");
    lead(&log, 1, &told);
    let [mut first, mut second] = [(); 2].map(|()| Reservation::new(&log));
    assert_eq!(first.add_or_wait(GROUP_BYTES_MAX - MIB, Purpose::Write), Ok(()));
    assert_eq!(second.add_or_wait(2 * MIB, Purpose::Write), Err(Admission::Busy));
    assert_eq!(second.add(2 * MIB, Purpose::Finish), Ok(()), "it cannot wait");
    assert_eq!(first.add_or_wait(2 * MIB, Purpose::Write), Err(Admission::Full), "no group has that");
    second.release(u64::MAX);
    assert_eq!(second.add_or_wait(MIB, Purpose::Write), Ok(()));
    drop((first, second));

    // What is appended and not written counts.
    log.append(&vec![1; 1 << 20]);
    let mut third = Reservation::new(&log);
    assert_eq!(third.add_or_wait(GROUP_BYTES_MAX - MIB, Purpose::Write), Err(Admission::Busy));
    assert!(log.commit_once().expect("a sound medium"));
    assert_eq!(third.add_or_wait(GROUP_BYTES_MAX - MIB, Purpose::Write), Ok(()));

    let alone = Log::create(Arc::new(any_machine(2)), LogOptions { max_segments: 1 << 20, ..options() });
    let alone = alone.expect("a new log");
    let mut all = Reservation::new(&alone);
    assert_eq!(all.add_or_wait(2 * GROUP_BYTES_MAX, Purpose::Write), Ok(()), "nobody need agree");
}
