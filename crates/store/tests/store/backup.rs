//! Backups: what is restored is the moment, whatever the server did meanwhile, and whatever was cut off or damaged.

use crate::{
    history::{State, apply, dump, random_ops, run_batch},
    lives::{another_compression, any_compression, any_folders, any_machine},
    open, oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_io::{Error, Io, Result};
use holdfast_store::{
    Admission, BackupFolder, Begin, Lease, Lsn, Options, Plan, SimIo, Store, Until, hash::Expiry, list::End,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

const SEGMENT: u32 = 64 << 10;
const KEYS: u64 = 50;

fn options() -> Options {
    Options {
        partitions: 2,
        segment_size: Some(SEGMENT),
        log_bytes_max: 128 * u64::from(SEGMENT),
        heap_bytes_max: 32 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimIo) -> Result<Store> {
    let store = Store::open_on(Arc::new(sim.clone()), options())?;
    store.attach();
    Ok(store)
}

/// What the store should hold: strings, and lengths of lists.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    strings: BTreeMap<u64, Vec<u8>>,
    lists: BTreeMap<u64, u64>,
    hash: BTreeMap<u64, u64>,
}

fn string_key(number: u64) -> Vec<u8> {
    format!("string {number}").into_bytes()
}

fn list_key(number: u64) -> Vec<u8> {
    format!("list {number}").into_bytes()
}

/// Writes something in one transaction over several keys, in the store and in the model.
fn write(store: &Store, model: &mut Model, rng: &mut Rng) {
    let (string, list, field) = (rng.below(KEYS), rng.below(20), rng.below(50));
    let value = vec![rng.below(256) as u8; 1 + rng.below(3000) as usize];
    let (string_key, list_key) = (string_key(string), list_key(list));
    let keys: [&[u8]; 3] = [&string_key, &list_key, b"hash"];
    let count = model.hash.get(&field).unwrap_or(&0) + 1;
    open::run(store, &keys, |txn| {
        txn.set(0, &string_key, &value, false)?;
        txn.list_push(0, &list_key, End::Back, [&b"element"[..]], true)?;
        let (name, count) = (field.to_be_bytes(), count.to_be_bytes());
        txn.hash_set(0, b"hash", [(&name[..], &count[..])], Expiry::Clear).map(drop)
    })
    .expect("room");
    model.strings.insert(string, value);
    *model.lists.entry(list).or_default() += 1;
    model.hash.insert(field, count);
}

/// What the store holds.
fn contents(store: &Store) -> Model {
    let mut model = Model::default();
    for number in 0..KEYS {
        let key = string_key(number);
        let value = open::run(store, &[&key], |txn| Ok(txn.get(0, &key)?.map(<[u8]>::to_vec)));
        model.strings.extend(value.expect("a sound value").0.map(|value| (number, value)));
    }
    for number in 0..20 {
        let key = list_key(number);
        let len = open::run(store, &[&key], |txn| Ok(txn.list_at(0, &key)?.map(|list| list.len())));
        model.lists.extend(len.expect("a sound list").0.map(|len| (number, len)));
    }
    for field in 0..50u64 {
        let read = |txn: &mut holdfast_store::Txn| {
            Ok(txn.hash_get(0, b"hash", &field.to_be_bytes())?.map(|value| value.to_vec()))
        };
        let (value, _) = open::run(store, &[b"hash"], read).expect("a sound hash");
        let count = |value: Vec<u8>| u64::from_be_bytes(value.try_into().expect("eight bytes"));
        model.hash.extend(value.map(|value| (field, count(value))));
    }
    model
}

/// Writes, and now and then a checkpoint, and cleaning.
fn go_on(store: &Store, model: &mut Model, rng: &mut Rng, steps: u64) -> Result<()> {
    for _ in 0..steps {
        write(store, model, rng);
        store.log().wait_durable(store.log().tail())?;
        if rng.chance(20) {
            store.checkpoint()?;
            while store.clean()? {}
        }
    }
    Ok(())
}

/// A lease, and the plan of what it keeps.
fn begin(store: &Store) -> Result<(Lease, Plan)> {
    let Begin::Leased(lease) = store.begin_backup() else { panic!("no other backup is under way") };
    store.log().wait_durable(store.log().tail())?;
    let plan = lease.plan()?.expect("the moment is durable");
    // As it goes from one process to the other.
    let text = plan.encode();
    let decoded = Plan::decode(&text)?;
    assert_eq!(decoded, plan);
    Ok((lease, decoded))
}

/// Takes a backup while `meanwhile` is called before and at each step. Returns its number, and the bytes written for it.
fn back_up(
    store: &Store,
    from: &SimIo,
    to: &SimIo,
    meanwhile: &mut dyn FnMut(&Store) -> Result<()>,
) -> Result<(u32, u64)> {
    back_up_folders(store, Arc::new(from.clone()), to, meanwhile)
}

/// The same of a store whose files lie in several folders.
fn back_up_folders(
    store: &Store,
    from: Arc<dyn Io>,
    to: &SimIo,
    meanwhile: &mut dyn FnMut(&Store) -> Result<()>,
) -> Result<(u32, u64)> {
    let (lease, plan) = begin(store)?;
    let mut lease = Some(lease);
    meanwhile(store)?;
    let mut folder = BackupFolder::open(Arc::new(to.clone()))?;
    let written =
        folder.write(from, &plan, &mut |_| meanwhile(store), &mut || lease.take().expect("asked once").end());
    drop(lease);
    store.tend_backup();
    let written = written?;
    Ok((written.info.number, written.bytes_written))
}

fn restored(folder: &SimIo, number: u32) -> Result<Model> {
    let target = SimIo::new(7);
    BackupFolder::open(Arc::new(folder.clone()))?.restore(number, &target, &mut |_| Ok(()))?;
    // Nothing that was not made durable is needed.
    let store = open(&target.crash())?;
    assert_eq!(store.recovery().notes, Vec::<String>::new());
    store.check()?;
    Ok(contents(&store))
}

fn verify(folder: &SimIo) -> Result<()> {
    let mut backups = BackupFolder::open(Arc::new(folder.clone()))?;
    backups.verify(&mut |_, _| Ok(()))?;
    for backup in backups.backups() {
        let options = Options { background: false, ..options() };
        Store::open_on(backups.view(backup.number)?, options)?.check()?;
    }
    Ok(())
}

#[test]
fn what_is_restored_is_the_moment_whatever_the_server_does_meanwhile() {
    with_seeds(6, |seed| {
        let (sim, folder) = (SimIo::new(seed), SimIo::new(seed + 1));
        let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(seed));
        let mut moments = Vec::new();
        for _ in 0..4 {
            go_on(&store, &mut model, &mut rng, 150).expect("a sound medium");
            let moment = model.clone();
            // Before anything is copied, what is to be copied is overwritten and freed.
            let mut steps = 300;
            let mut meanwhile =
                |store: &Store| go_on(store, &mut model, &mut rng, std::mem::replace(&mut steps, 4));
            let (number, _) = back_up(&store, &sim, &folder, &mut meanwhile).expect("a backup");
            moments.push((number, moment));
        }
        assert_eq!(contents(&store), model, "the server goes on");
        store.check().expect("a sound store");
        assert_eq!(store.backup_state().ended, 4);
        verify(&folder).expect("sound backups");
        for (number, moment) in &moments {
            assert!(restored(&folder, *number).expect("a restored store") == *moment, "backup {number}");
        }
    });
}

/// Whether a state that ends at `found` is the last one until a time: there is a clock mark a second, and up to 300 ms between two writes.
fn is_last_until<T>(states: &[(Lsn, u64, T)], found: Lsn, until: u64) -> bool {
    let is_right =
        |(end, ms, _): &(Lsn, u64, T)| if *end <= found { *ms <= until } else { *ms + 1600 > until };
    states.iter().all(is_right)
}

/// What was there at an LSN.
fn state_at<T>(states: &[(Lsn, u64, T)], lsn: Lsn) -> &T {
    &states.iter().rfind(|(end, ..)| *end <= lsn).expect("a state").2
}

static POINTS: AtomicU64 = AtomicU64::new(0);

/// What is restored at a point between backups: its log ends there.
fn restored_at(folder: &SimIo, until: Until) -> Result<Store> {
    let target = SimIo::new(7);
    let backups = BackupFolder::open(Arc::new(folder.clone()))?;
    let point = backups.find(until)?;
    backups.restore_point(&point, &target, &mut |_| Ok(()))?;
    let store = open(&target.crash())?;
    assert_eq!(store.recovery().notes, Vec::<String>::new());
    assert_eq!(store.log().tail(), point.lsn);
    store.check()?;
    Ok(store)
}

#[test]
fn a_state_between_backups_is_restored_by_lsn_and_by_time() {
    with_seeds(8, |seed| {
        let (sim, folder) = (SimIo::new(seed), SimIo::new(seed + 1));
        let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(seed));
        // The end of the log after each write, when that was, and what the store held.
        let mut states = vec![(store.log().tail(), store.now_ms(), model.clone())];
        let cleans = rng.chance(2);
        for _ in 0..4 {
            for _ in 0..150 {
                write(&store, &mut model, &mut rng);
                store.log().wait_durable(store.log().tail()).expect("a sound medium");
                states.push((store.log().tail(), store.now_ms(), model.clone()));
                sim.advance_ms(rng.below(300));
                store.mark_clock();
                if rng.chance(30) {
                    store.checkpoint().expect("a sound medium");
                }
                // Long after a checkpoint, too: what has emptied a segment is in the log then, and not in the backup's heap.
                while cleans && rng.chance(10) && store.clean().expect("a sound medium") {}
            }
            back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
        }
        let ranges = BackupFolder::open(Arc::new(folder.clone())).expect("backups").ranges();
        let at = |lsn| state_at(&states, lsn);
        let (last, last_ms, _) = states.last().expect("a state");
        let first = ranges.iter().map(|(_, from, _)| *from).min().expect("a range");
        let first_ms = states.iter().find(|(end, ..)| *end >= first).expect("a state").1;
        let mut lsns: Vec<Lsn> = ranges.iter().flat_map(|(_, from, to)| [*from, *to]).collect();
        lsns.extend((0..15).map(|_| rng.below(last + 5000)));
        for lsn in lsns {
            let is_there = ranges.iter().any(|(_, from, to)| (*from..=*to).contains(&lsn));
            match restored_at(&folder, Until::Lsn(lsn)) {
                Ok(store) => {
                    let found = store.log().tail();
                    assert!(is_there && found <= lsn && contents(&store) == *at(lsn), "LSN {lsn}");
                    POINTS.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    assert!(!is_there && error.to_string().contains("have no state of LSN"), "{error}");
                }
            }
            let until = states[0].1 + rng.below(last_ms - states[0].1 + 2000);
            match restored_at(&folder, Until::TimeMs(until)) {
                Ok(store) => {
                    let found = store.log().tail();
                    assert!(contents(&store) == *at(found), "time {until}");
                    assert!(is_last_until(&states, found, until), "time {until}");
                    POINTS.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    assert!(error.to_string().contains("have no state of that time"), "{error}");
                    // What is freed between two backups is not there.
                    let all_ms = first_ms + 1600..last_ms - 1600;
                    assert!(cleans || !all_ms.contains(&until), "{error}");
                }
            }
        }
    });
    assert!(POINTS.load(Relaxed) > 0);
}

/// Lives of a server as they are: values of all types, collections and pages that leave memory, values compressed, several folders, segments
/// that are moved and freed, restarts and power cuts. Backups come at any time.
#[test]
fn whatever_a_server_does_all_that_is_offered_is_restored() {
    const SEEDS: u64 = 10;
    let seeds = with_seeds(SEEDS, |seed| {
        let mut rng = Rng(seed);
        let (mut sim, folder) = (any_machine(seed), SimIo::new(seed + 1));
        let keys = if rng.chance(2) { 1 + rng.below(30) } else { 1 + rng.below(500) };
        // The end of the log after each batch, when that was, and what the store held then.
        let mut states = vec![(0, sim.now_ms(), State::new())];
        for life in 0..1 + rng.below(4) {
            let options = Options {
                log_bytes_max: u64::from(SEGMENT) * if rng.chance(2) { 16 } else { 128 },
                memory_bytes_max: if rng.chance(2) { 256 << 10 } else { usize::MAX },
                compression: any_compression(seed, life),
                ..options()
            };
            let io = oracle::folders(&sim, any_folders(seed, life)).expect("folders");
            let store = Store::open_on(io.clone(), options.clone()).expect("a store");
            store.attach();
            states.retain(|(end, ..)| *end <= store.log().tail());
            let mut now = states.last().expect("the first one").2.clone();
            assert!(dump(&store) == now, "seed {seed}");
            for _ in 0..200 + rng.below(800) {
                if store.admit(200_000) != Admission::Ok {
                    open::commit_all(&store);
                    while store.sweep() {}
                    store.checkpoint().expect("a sound medium");
                    store.clean().expect("a sound medium");
                    store.tend_backup();
                    continue;
                }
                let mut ops = random_ops(&mut rng, keys);
                run_batch(&store, &mut ops).expect("the power is on");
                ops.iter().for_each(|op| apply(&mut now, op));
                // What changes nothing appends nothing.
                if states.last().is_none_or(|(end, ..)| *end < store.log().tail()) {
                    states.push((store.log().tail(), sim.now_ms(), now.clone()));
                }
                sim.advance_ms(rng.below(300));
                store.mark_clock();
                if rng.chance(20) {
                    store.freeze(1 + rng.below(100_000)).expect("a sound medium");
                }
                if rng.chance(4) {
                    open::commit_all(&store);
                }
                if rng.chance(60) {
                    store.checkpoint().expect("a sound medium");
                }
                if rng.chance(20) {
                    store.condense();
                }
                if rng.chance(15) {
                    store.clean().expect("a sound medium");
                }
                if rng.chance(10) {
                    store.sweep();
                }
                if rng.chance(50) {
                    store.train().expect("a sound medium");
                }
                if rng.chance(100) {
                    store.set_compression(another_compression(seed, &mut rng));
                }
                if rng.chance(150) {
                    let (lease, plan) = begin(&store).expect("a lease");
                    if rng.chance(2) {
                        store.checkpoint().expect("a sound medium");
                        while store.clean().expect("a sound medium") {}
                    }
                    let view = Store::open_on(plan.view(io.clone()), options.clone()).expect("a view");
                    assert!(dump(&view) == now, "seed {seed}, a moment where it lies");
                    view.check().expect("a sound view");
                    lease.end().expect("there was room for it");
                    store.tend_backup();
                }
                if rng.chance(150) {
                    // A small log may go around, and the backup yields.
                    let mut meanwhile = |store: &Store| {
                        if rng.chance(3) {
                            store.checkpoint()?;
                            while store.clean()? {}
                            store.tend_backup();
                        }
                        Ok(())
                    };
                    let written = back_up_folders(&store, io.clone(), &folder, &mut meanwhile);
                    BACKUPS.fetch_add(written.is_ok().into(), Relaxed);
                }
            }
            FREED.fetch_add(store.stats().freed_segments, Relaxed);
            if rng.chance(2) {
                store.close().expect("a sound medium");
            }
            drop(store);
            sim = sim.crash();
        }
        verify(&folder).expect("sound backups");
        let backups = BackupFolder::open(Arc::new(folder.clone())).expect("backups");
        let at = |lsn| state_at(&states, lsn);
        for backup in backups.backups() {
            let target = SimIo::new(7);
            backups.restore(backup.number, &target, &mut |_| Ok(())).expect("a sound backup");
            let store = open(&target.crash()).expect("a store");
            store.check().expect("a sound store");
            assert!(dump(&store) == *at(backup.moment), "seed {seed}, backup {}", backup.number);
        }
        for (_, from, to) in backups.ranges() {
            for lsn in [from, to, from + rng.below(1 + to - from), from + rng.below(1 + to - from)] {
                let store = restored_at(&folder, Until::Lsn(lsn)).expect("it is offered");
                assert!(store.log().tail() <= lsn && dump(&store) == *at(lsn), "seed {seed}, LSN {lsn}");
                if rng.chance(4) {
                    live_on(&store, at(lsn).clone(), &mut rng, keys);
                }
            }
        }
        let (first_ms, last_ms) = (states[0].1, states.last().expect("a state").1);
        for until in (0..5).map(|_| first_ms + rng.below(last_ms - first_ms + 2000)).collect::<Vec<_>>() {
            match restored_at(&folder, Until::TimeMs(until)) {
                Ok(store) => {
                    let found = store.log().tail();
                    assert!(dump(&store) == *at(found), "seed {seed}, time {until}");
                    assert!(is_last_until(&states, found, until), "seed {seed}, time {until}");
                }
                Err(error) => assert!(error.to_string().contains("have no state of that time"), "{error}"),
            }
        }
    });
    let (backups, freed) = (BACKUPS.load(Relaxed), FREED.load(Relaxed));
    assert!(seeds < SEEDS || backups > 20 && freed > 50, "{backups} backups and {freed} freed segments only");
}

/// A restored store is written to, and moves and frees what it was restored with.
fn live_on(store: &Store, mut now: State, rng: &mut Rng, keys: u64) {
    for _ in 0..100 {
        let mut ops = random_ops(rng, keys);
        run_batch(store, &mut ops).expect("the power is on");
        ops.iter().for_each(|op| apply(&mut now, op));
        if rng.chance(20) {
            store.freeze(1 + rng.below(100_000)).expect("a sound medium");
        }
        if rng.chance(30) {
            open::commit_all(store);
            store.checkpoint().expect("a sound medium");
            store.set_disk_bytes_max(if rng.chance(2) { 1 << 20 } else { u64::MAX });
        }
        if rng.chance(10) {
            store.clean().expect("a sound medium");
        }
    }
    open::commit_all(store);
    assert!(dump(store) == now, "it lives on");
    store.check().expect("a sound store");
}

static BACKUPS: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_moment_is_read_where_it_lies_whatever_the_server_does_meanwhile() {
    with_seeds(6, |seed| {
        let sim = SimIo::new(seed);
        let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(seed));
        for _ in 0..4 {
            go_on(&store, &mut model, &mut rng, 150).expect("a sound medium");
            let moment = model.clone();
            let (lease, plan) = begin(&store).expect("a lease");
            go_on(&store, &mut model, &mut rng, 150).expect("a sound medium");
            let view = Store::open_on(plan.view(Arc::new(sim.clone())), options()).expect("a view");
            assert_eq!(view.recovery().notes, Vec::<String>::new());
            // Nothing of it is in memory so far but what was replayed.
            go_on(&store, &mut model, &mut rng, 150).expect("a sound medium");
            assert!(contents(&view) == moment, "seed {seed}");
            view.check().expect("a sound view");
            lease.end().expect("there was room for it");
            store.tend_backup();
        }
        assert_eq!(contents(&store), model, "the server goes on");
    });
}

#[test]
fn a_later_backup_writes_what_is_new() {
    let (sim, folder) = (SimIo::new(1), SimIo::new(2));
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 1500).expect("a sound medium");
    let (_, all) = back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    let before = model.clone();
    let tail = store.log().tail();
    (0..15).for_each(|_| write(&store, &mut model, &mut rng));
    store.checkpoint().expect("a sound medium");
    let (number, more) = back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    let appended = store.log().tail() - tail;
    assert!(more <= appended + 2 * u64::from(SEGMENT), "{more} of {all} bytes, with {appended} appended");
    assert!(restored(&folder, number - 1).expect("the earlier one") == before);
    assert!(restored(&folder, number).expect("the later one") == model);
}

#[test]
fn a_backup_yields_to_writers() {
    let (sim, folder) = (SimIo::new(1), SimIo::new(2));
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 300).expect("a sound medium");
    let mut meanwhile = |store: &Store| {
        go_on(store, &mut model, &mut rng, 1000)?;
        store.tend_backup();
        Ok(())
    };
    // Either what is copied is overwritten already, or the server says so at the end.
    back_up(&store, &sim, &folder, &mut meanwhile).expect_err("the log has gone around");
    assert_eq!(BackupFolder::open(Arc::new(folder.clone())).expect("a folder").backups(), []);
    assert_eq!((store.backup_state().ended, store.backup_state().lost), (0, 1));
    assert_eq!(contents(&store), model);
    // What was left is in nobody's way.
    back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    verify(&folder).expect("a sound backup");
    assert!(restored(&folder, 1).expect("a restored store") == model);
}

#[test]
fn there_is_one_backup_at_a_time() {
    let sim = SimIo::new(1);
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 50).expect("a sound medium");
    let (lease, _) = begin(&store).expect("a lease");
    assert!(matches!(store.begin_backup(), Begin::InUse));
    drop(lease);
    assert!(matches!(store.begin_backup(), Begin::NotNow), "what it kept is still there");
    store.tend_backup();
    begin(&store).expect("a lease");
}

#[test]
fn a_folder_takes_the_backups_of_one_history() {
    let (sim, folder) = (SimIo::new(1), SimIo::new(2));
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 50).expect("a sound medium");
    let (number, _) = back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    let target = SimIo::new(3);
    let backups = BackupFolder::open(Arc::new(folder.clone())).expect("a folder");
    backups.restore(number, &target, &mut |_| Ok(())).expect("a restored folder");
    let restored = open(&target).expect("a store");
    let again = back_up(&restored, &target, &folder, &mut |_| Ok(()));
    let why = again.expect_err("its log goes on elsewhere").to_string();
    assert!(why.contains("restored since"), "{why}");
    // It keeps that through checkpoints.
    restored.checkpoint().expect("a sound medium");
    drop(restored);
    let restored = open(&target).expect("a store");
    back_up(&restored, &target, &folder, &mut |_| Ok(())).expect_err("its log goes on elsewhere");
    back_up(&restored, &target, &SimIo::new(4), &mut |_| Ok(())).expect("a backup in a new folder");
}

/// Servers that share a log count their own checkpoints: what one has backed up is not overwritten by the backup of another one.
#[test]
fn backups_of_servers_that_share_a_log_leave_each_other_alone() {
    let (sim, folder) = (SimIo::new(1), SimIo::new(2));
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 50).expect("a sound medium");
    let other = sim.fork();
    (0..40).for_each(|_| store.checkpoint().expect("a sound medium"));
    let (first, _) = back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    let before = model.clone();
    drop(store);
    // The other one leads from there on, until what the first one has backed up is freed.
    let store = open(&other).expect("a store");
    for _ in 0..40 {
        (0..200).for_each(|_| {
            write(&store, &mut model, &mut rng);
            store.log().wait_durable(store.log().tail()).expect("a sound medium");
        });
        store.checkpoint().expect("a sound medium");
        while store.clean().expect("a sound medium") {}
    }
    let (second, _) = back_up(&store, &other, &folder, &mut |_| Ok(())).expect("a backup");
    let heaps: Vec<String> =
        folder.list("").expect("a folder").into_iter().filter(|name| name.starts_with("heap-")).collect();
    assert!(heaps.len() == 2 && heaps[1] == format!("{}-1", heaps[0]), "{heaps:?}");
    verify(&folder).expect("sound backups");
    assert!(restored(&folder, first).expect("that of the first") == before);
    assert!(restored(&folder, second).expect("that of the other") == model);
}

/// The power of either machine is cut at any operation of a backup.
#[test]
fn a_power_cut_during_a_backup_harms_neither_side() {
    for operation in (1..).step_by(5) {
        let (sim, folder) = (SimIo::new(operation), SimIo::new(operation + 1));
        let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(operation));
        go_on(&store, &mut model, &mut rng, 100).expect("a sound medium");
        back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
        let first = model.clone();
        go_on(&store, &mut model, &mut rng, 100).expect("a sound medium");
        let second = model.clone();
        folder.crash_after(operation);
        let result = back_up(&store, &sim, &folder, &mut |_| Ok(()));
        let is_done = result.is_ok();
        let after = folder.crash();
        verify(&after).expect("what is there is sound");
        let backups = BackupFolder::open(Arc::new(after.clone())).expect("a folder").backups();
        assert!(restored(&after, 1).expect("the earlier one") == first);
        if is_done {
            assert_eq!(backups.len(), 2);
            break;
        }
        if backups.len() == 2 {
            assert!(restored(&after, 2).expect("the cut one, which was durable already") == second);
        }
        // The server does not notice, and the next one does well.
        go_on(&store, &mut model, &mut rng, 20).expect("a sound medium");
        let (number, _) = back_up(&store, &sim, &after, &mut |_| Ok(())).expect("a backup");
        assert!(restored(&after, number).expect("the next one") == model);
        assert_eq!(contents(&store), model);
    }
}

/// The server's power is cut while a backup keeps what checkpoints and the cleaner have done with.
#[test]
fn a_server_that_dies_during_a_backup_comes_back() {
    with_seeds(20, |seed| {
        let (sim, folder) = (SimIo::new(seed), SimIo::new(seed + 1));
        let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(seed));
        go_on(&store, &mut model, &mut rng, 200).expect("a sound medium");
        let mut steps = rng.below(10);
        let result = back_up(&store, &sim, &folder, &mut |store| {
            go_on(store, &mut model, &mut rng, 5)?;
            steps = steps.saturating_sub(1);
            let is_over = steps == 0;
            if is_over { Err(Error::Unusable("the server is gone".to_owned())) } else { Ok(()) }
        });
        result.expect_err("it is gone");
        drop(store);
        let store = open(&sim.crash()).expect("a store");
        assert_eq!(contents(&store), model, "all was durable");
        store.check().expect("a sound store");
        assert_eq!(BackupFolder::open(Arc::new(folder)).expect("a folder").backups(), []);
    });
}

#[test]
fn each_flipped_bit_of_a_backup_is_found() {
    let (sim, folder) = (SimIo::new(1), SimIo::new(2));
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 60).expect("a sound medium");
    back_up(&store, &sim, &folder, &mut |_| Ok(())).expect("a backup");
    for name in folder.list("").expect("the files") {
        let file = folder.open(&name, false).expect("a file");
        let len = file.len().expect("its length");
        // All bytes of what all else depends on, some of the others, and what is at the ends.
        let count = if name.starts_with("backup-") { len } else { 60 };
        for at in 0..count {
            let at = if count == len { at } else { [0, len - 1, rng.below(len)][(at % 3) as usize] };
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("a byte");
            let flipped = [byte[0] ^ 1 << rng.below(8)];
            let write = |byte: &[u8]| file.write_at(&[byte], at, holdfast_store::Durability::Durable);
            write(&flipped).expect("a sound medium");
            let mut backups = BackupFolder::open(Arc::new(folder.clone())).expect("a folder");
            backups.verify(&mut |_, _| Ok(())).expect_err(&format!("{name} at {at}"));
            let backups = BackupFolder::open(Arc::new(folder.clone())).expect("a folder");
            backups.restore(1, &SimIo::new(3), &mut |_| Ok(())).expect_err(&format!("{name} at {at}"));
            write(&byte).expect("a sound medium");
        }
    }
    verify(&folder).expect("it is as it was");
}

/// What is damaged where it is copied from does not come into a backup.
#[test]
fn damage_is_found_on_the_way() {
    let sim = SimIo::new(1);
    let (store, mut model, mut rng) = (open(&sim).expect("a store"), Model::default(), Rng(1));
    go_on(&store, &mut model, &mut rng, 200).expect("a sound medium");
    store.checkpoint().expect("a sound medium");
    let mut found = BTreeMap::<&str, u32>::new();
    for _ in 0..200 {
        let damaged = sim.fork();
        let (lease, plan) = begin(&store).expect("a lease");
        let (name, kind) =
            if rng.chance(2) { ("heap".to_owned(), "heap") } else { ("log/00000001".to_owned(), "log") };
        let file = damaged.open(&name, false).expect("a file");
        let at = rng.below(file.len().expect("its length"));
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("a byte");
        file.write_at(&[&[byte[0] ^ 1 << rng.below(8)]], at, holdfast_store::Durability::Durable)
            .expect("a sound medium");
        let folder = SimIo::new(9);
        let mut backups = BackupFolder::open(Arc::new(folder.clone())).expect("a folder");
        let mut lease = Some(lease);
        let written = backups.write(Arc::new(damaged), &plan, &mut |_| Ok(()), &mut || {
            lease.take().expect("asked once").end()
        });
        match written {
            // It was nothing that is needed.
            Ok(written) => {
                assert!(restored(&folder, written.info.number).expect("a restored store") == model)
            }
            Err(Error::Corrupt { file, .. }) => {
                // A batch that crosses segments is judged where it ends.
                assert!(file.starts_with(kind), "{file} instead of {name}");
                *found.entry(kind).or_default() += 1;
                assert_eq!(backups.backups(), []);
            }
            Err(error) => panic!("{error}"),
        }
        drop(lease);
        store.tend_backup();
    }
    assert!(found["heap"] > 5 && found["log"] > 5, "{found:?}");
}
