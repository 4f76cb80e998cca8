//! What is salvaged from a damaged folder is what was there, and all is there that the damage has not touched: against a model, with
//! damage of each kind at random places.

use crate::{
    history::{FAR, Op, State, Value, apply, dump, random_ops, run_batch},
    seeds::{Rng, with_seeds},
};
use holdfast_io::{Durability, Error, Io};
use holdfast_store::{
    Admission, Codec, Doubt, Finding, HomeMethod, LostKey, Lsn, Options, SalvagedKey, SimIo, Store, salvage,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

const HEAP_MAX: u64 = 32 << 20;

fn options(rng: &mut Rng) -> Options {
    Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 128,
        heap_bytes_max: HEAP_MAX,
        compression: rng.chance(3).then_some(Codec::Zstd(1)),
        background: false,
        ..Options::default()
    }
}

/// What was written, and the machine that has it.
struct Written {
    sim: SimIo,
    options: Options,
    /// The end of the log after each batch, and what the store held then.
    states: Vec<(Lsn, State)>,
    /// From there on a start replays the log.
    checkpoint: Lsn,
}

impl Written {
    fn new(rng: &mut Rng, home: Option<HomeMethod>) -> Written {
        let seed = rng.next();
        let sim = if home.is_some() { SimIo::on_scm(seed) } else { SimIo::new(seed) };
        let options = Options { home, ..options(rng) };
        let store = Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
        store.attach();
        let (mut now, mut states) = (State::new(), Vec::new());
        let keys_max = if rng.chance(2) { 50 } else { 2000 };
        let keys = 1 + rng.below(keys_max);
        let mut checkpoint = store.log().tail();
        states.push((checkpoint, now.clone()));
        for _ in 0..rng.below(1500) {
            if store.admit(200_000) != Admission::Ok {
                break;
            }
            let mut ops = random_ops(rng, keys);
            run_batch(&store, &mut ops).expect("the power is on");
            ops.iter().for_each(|op| apply(&mut now, op));
            states.push((store.log().tail(), now.clone()));
            if rng.chance(8) {
                store.freeze(1 + rng.below(100_000)).expect("a sound medium");
            }
            if rng.chance(4) {
                store.log().commit_once().expect("a sound medium");
            }
            if rng.chance(100) {
                checkpoint = store.log().tail();
                store.checkpoint().expect("a sound medium");
                store.clean().expect("a sound medium");
            }
            while store.sweep() {}
        }
        if rng.chance(2) {
            store.close().expect("a sound medium");
            checkpoint = store.log().tail();
        } else {
            store.log().commit_once().expect("a sound medium");
        }
        // What the maintenance has appended changes nothing.
        states.push((store.log().tail(), now));
        Written { sim, options, states, checkpoint }
    }

    fn at(&self, moment: Lsn) -> &State {
        let (_, state) = self.states.iter().rfind(|(end, _)| *end <= moment).expect("a state");
        state
    }

    /// Whether a key had this value after a moment. Behind what is lost nothing tells which databases were exchanged.
    fn was(&self, (_, key): &(u8, Vec<u8>), value: &Value, moment: Lsn) -> bool {
        let has = |state: &State| {
            (0..3).any(|db| state.get(&(db, key.clone())).is_some_and(|(other, _)| **other == *value))
        };
        self.states.iter().any(|(end, state)| *end > moment && has(state))
    }

    fn last(&self) -> &State {
        &self.states.last().expect("a state").1
    }
}

/// What was found in a folder.
#[derive(Default)]
struct Found {
    damage: Vec<Error>,
    /// Where the log can be followed to, and whether something durable is missing there.
    end: Option<(Lsn, bool)>,
    intact: Vec<SalvagedKey>,
    uncertain: Vec<(SalvagedKey, Doubt)>,
    lost: Vec<LostKey>,
    lost_entries: u64,
}

impl Found {
    fn in_folder(io: Arc<dyn Io>) -> Result<Found, Error> {
        let mut found = Found::default();
        salvage(io, HEAP_MAX, &mut |finding| {
            match finding {
                Finding::Damage(error) => found.damage.push(error),
                Finding::End(end) => found.end = Some((end.lsn, end.hole.is_some())),
                Finding::Intact(key) => found.intact.push(key),
                Finding::Uncertain { key, doubt, .. } => found.uncertain.push((key, doubt)),
                Finding::Lost(key) => found.lost.push(key),
                Finding::LostEntries { keys, .. } => found.lost_entries += keys,
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The moment after which something durable is missing.
    fn hole(&self) -> Option<Lsn> {
        self.end.filter(|(_, is_hole)| *is_hole).map(|(lsn, _)| lsn)
    }

    /// Whether all is as it should be.
    fn is_all(&self) -> bool {
        self.damage.is_empty()
            && self.hole().is_none()
            && self.uncertain.is_empty()
            && self.lost.is_empty()
            && self.lost_entries == 0
    }

    fn uncertain_keys(&self, of: impl Fn(Doubt) -> bool) -> Vec<SalvagedKey> {
        self.uncertain.iter().filter(|(_, doubt)| of(*doubt)).map(|(key, _)| key.clone()).collect()
    }
}

/// What a new store holds into which keys were put.
fn put(keys: &[SalvagedKey]) -> State {
    let options = Options {
        partitions: 4,
        segment_size: Some(1 << 20),
        heap_bytes_max: 64 << 20,
        background: false,
        ..Options::default()
    };
    let sim = SimIo::new(1);
    let store = Store::open_on(Arc::new(sim), options).expect("a store");
    for key in keys {
        assert!(store.put_salvaged(key).expect("room"), "{key:?} contradicts itself");
        store.log().commit_once().expect("a sound medium");
    }
    store.check().expect("a sound store");
    let state = dump(&store);
    assert_eq!(state.len(), keys.len(), "a key was found twice");
    state
}

/// A part of a file that is damaged.
#[derive(Debug)]
struct Damaged {
    file: String,
    at: u64,
    len: u64,
}

fn segments(sim: &SimIo) -> Vec<String> {
    sim.list("log").expect("a folder").into_iter().map(|name| format!("log/{name}")).collect()
}

fn len_of(sim: &SimIo, file: &str) -> u64 {
    sim.open(file, false).and_then(|file| file.len()).expect("a file")
}

fn overwrite(sim: &SimIo, file: &str, at: u64, bytes: &[u8]) {
    let file = sim.open(file, false).expect("a file");
    file.write_at(&[bytes], at, Durability::Durable).expect("a sound medium");
}

/// Damages a file in some way at a random place.
fn damage(sim: &SimIo, file: &str, rng: &mut Rng) -> Damaged {
    let len = len_of(sim, file);
    let part_max = if rng.chance(2) { 600 } else { 20_000 };
    let (at, part) = (rng.below(len), 1 + rng.below(part_max));
    let part = part.min(len - at);
    match rng.below(8) {
        0..4 => {
            sim.flip_bit(file, at, rng.below(8) as u32);
            Damaged { file: file.into(), at, len: 1 }
        }
        4 => {
            overwrite(sim, file, at, &vec![0; part as usize]);
            Damaged { file: file.into(), at, len: part }
        }
        5 => {
            let bytes: Vec<u8> = (0..part).map(|_| rng.next() as u8).collect();
            overwrite(sim, file, at, &bytes);
            Damaged { file: file.into(), at, len: part }
        }
        6 => {
            sim.open(file, false).and_then(|file| file.set_len(at)).expect("a file");
            Damaged { file: file.into(), at, len: len - at }
        }
        _ => {
            sim.remove(file).expect("a file");
            Damaged { file: file.into(), at: 0, len }
        }
    }
}

/// What the folder held at the moment that is told.
fn expected<'w>(written: &'w Written, found: &Found) -> &'w State {
    let Some((end, is_hole)) = found.end else { return written.last() };
    let (last, _) = written.states.last().expect("a state");
    if end < *last && !is_hole {
        // Nothing tells it from the end of a log whose last commit did not complete: nor does a start.
        CUT.fetch_add(1, Relaxed);
        let opened = Store::open_on(Arc::new(written.sim.fork()), written.options.clone());
        if let Err(Error::Corrupt { what, .. }) = opened.map(drop) {
            assert!(!what.contains("durable") && !what.contains("missing"), "{what}");
        }
    }
    written.at(end)
}

/// Checks that nothing wrong is told as intact, and returns what is.
fn compare(written: &Written, found: &Found) -> State {
    let expected = expected(written, found);
    let intact = put(&found.intact);
    for (key, value) in &intact {
        assert_eq!(expected.get(key), Some(value), "{key:?} is told as intact");
    }
    intact
}

static INTACT: AtomicU64 = AtomicU64::new(0);
static UNCERTAIN: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static LOST_ENTRIES: AtomicU64 = AtomicU64::new(0);
static CUT: AtomicU64 = AtomicU64::new(0);
static HOLES: AtomicU64 = AtomicU64::new(0);

fn note(found: &Found) {
    INTACT.fetch_add(found.intact.len() as u64, Relaxed);
    UNCERTAIN.fetch_add(found.uncertain.len() as u64, Relaxed);
    LOST.fetch_add(found.lost.len() as u64, Relaxed);
    LOST_ENTRIES.fetch_add(found.lost_entries, Relaxed);
    HOLES.fetch_add(found.hole().is_some().into(), Relaxed);
}

/// The log is damaged, and the heap is not.
fn damaged_log(seed: u64) {
    let mut rng = Rng(seed);
    let written = Written::new(&mut rng, None);
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("a sound folder");
    assert!(found.is_all(), "{:?} {:?}", found.damage, found.lost);
    assert_eq!(compare(&written, &found), *written.last());
    let damaged: Vec<Damaged> = (0..1 + rng.below(3))
        .filter_map(|_| {
            let segments = segments(&written.sim);
            let file = segments.get(rng.below(segments.len().max(1) as u64) as usize)?;
            Some(damage(&written.sim, file, &mut rng))
        })
        .collect();
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("the superblock is sound");
    note(&found);
    let intact = compare(&written, &found);
    let expected = expected(&written, &found);
    // The index has told of each key.
    assert_eq!(found.lost_entries, 0);
    assert_eq!(intact.len() + found.lost.len(), expected.len(), "{damaged:?}");
    for lost in &found.lost {
        let Error::Corrupt { file, offset, .. } = &lost.error else { panic!("{lost:?}") };
        // A record has one more segment at most that it reaches into.
        let touches = |damaged: &Damaged| {
            damaged.file != *file || (*offset < damaged.at + damaged.len && damaged.at < offset + 110_000)
        };
        assert!(damaged.iter().any(touches), "{lost:?} is not in {damaged:?}");
    }
    if damaged.iter().all(|damaged| damaged.len == 1) && found.hole().is_none() {
        assert!(found.lost.len() <= damaged.len(), "{:?}", found.lost);
    }
    for (_, doubt) in &found.uncertain {
        assert_eq!(*doubt, Doubt::BehindHole);
        let moment = found.hole().expect("a hole");
        assert!(moment >= written.checkpoint);
    }
    for (key, (value, _)) in &put(&found.uncertain_keys(|_| true)) {
        let moment = found.hole().expect("a hole");
        assert!(written.was(key, value, moment), "{key:?} was never so");
    }
}

/// The heap is damaged, and the log is not.
fn damaged_heap(seed: u64) {
    let mut rng = Rng(seed);
    let written = Written::new(&mut rng, None);
    let count_max = if rng.chance(2) { 1 } else { 30 };
    let count = 1 + rng.below(count_max);
    let mut is_there = true;
    for _ in 0..count {
        if is_there && len_of(&written.sim, "heap") > 0 {
            damage(&written.sim, "heap", &mut rng);
            is_there = written.sim.list("").expect("a folder").iter().any(|name| name == "heap");
        }
    }
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("the superblock is sound");
    note(&found);
    assert_eq!(found.hole(), None);
    let intact = compare(&written, &found);
    let state = written.last();
    // All that the log has is found.
    let uncertain = put(&found.uncertain_keys(|doubt| doubt != Doubt::Database));
    let by_database = put(&found.uncertain_keys(|doubt| doubt == Doubt::Database));
    for ((db, key), (value, _)) in state {
        let found_in = |from: &State| from.get(&(*db, key.clone())).is_some_and(|(found, _)| found == value);
        let is_found = found_in(&intact) || found_in(&uncertain) || found_in(&by_database);
        let is_item = matches!(**value, Value::String(_)) && key.starts_with(b"key:");
        // Databases that were exchanged have other numbers.
        let is_told = found.lost.iter().any(|lost| lost.key.as_ref() == Some(key));
        let knows = by_database.is_empty() && !found.lost.iter().any(|lost| lost.db.is_none());
        if is_item && knows && *db != 1 && is_there {
            assert!(is_found || is_told, "{key:?} of {db} is not found");
        }
    }
    let sound = found.damage.is_empty();
    assert!(!sound || intact == *state);
}

/// Whatever is damaged, nothing wrong is told as intact.
fn damaged_anything(seed: u64) {
    let mut rng = Rng(seed);
    let written = Written::new(&mut rng, None);
    let superblock = rng.below(6);
    for copy in 0..2u64 {
        if superblock == copy || superblock == 2 {
            written.sim.flip_bit("superblock", copy * 4096 + rng.below(4096), 3);
        }
    }
    if superblock == 3 {
        written.sim.remove("superblock").expect("a file");
    }
    for _ in 0..rng.below(12) {
        let mut files = segments(&written.sim);
        let others = written.sim.list("").expect("a folder");
        files.extend(others.into_iter().filter(|name| name == "heap" || name.starts_with("dictionary")));
        let file = &files[rng.below(files.len() as u64) as usize];
        if len_of(&written.sim, file) > 0 {
            damage(&written.sim, file, &mut rng);
        }
    }
    let found = match Found::in_folder(Arc::new(written.sim.clone())) {
        Ok(found) => found,
        Err(error) => {
            assert!(superblock == 2 || superblock == 3, "{error}");
            return;
        }
    };
    note(&found);
    compare(&written, &found);
    if superblock == 2 || superblock == 3 {
        assert!(found.intact.is_empty(), "nothing says which keys there are");
    }
    if superblock < 2 {
        assert!(!found.damage.is_empty());
    }
    // What was found in the log was there once.
    for (key, (value, _)) in &put(&found.uncertain_keys(|doubt| doubt != Doubt::Database)) {
        assert!(written.was(key, value, 0), "{key:?} was never so");
    }
}

/// The heap is in its home in storage-class memory.
fn damaged_log_of_a_home(seed: u64) {
    let mut rng = Rng(seed);
    let home = [HomeMethod::Cow, HomeMethod::Lat, HomeMethod::Latb][rng.below(3) as usize];
    let written = Written::new(&mut rng, Some(home));
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("a sound folder");
    assert!(found.is_all(), "{:?} {:?}", found.damage, found.lost);
    assert_eq!(put(&found.intact), *written.last());
    let segments = segments(&written.sim);
    let file = &segments[rng.below(segments.len() as u64) as usize];
    damage(&written.sim, file, &mut rng);
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("the superblock is sound");
    let intact = put(&found.intact);
    // The end of a log that is damaged there may be taken for a torn one. A home that is changed in place by the log is as of its end then; others are
    // as of the last batch in any case.
    let is_so = |state: &State| intact.iter().all(|(key, value)| state.get(key) == Some(value));
    let by_log = home == HomeMethod::Lat;
    let expected =
        written.states.iter().rev().take(if by_log { usize::MAX } else { 1 }).find(|(_, state)| is_so(state));
    let (_, expected) = expected.expect("what is told as intact is one moment");
    // That home needs all of the log. Without it, the log's items are told, some of them as lost.
    let has_heap = !by_log || found.damage.is_empty() || !intact.is_empty();
    assert!(!has_heap || intact.len() + found.lost.len() == expected.len());
    // Without the home, nothing says which keys there are.
    for name in written.sim.list("home").expect("a folder") {
        written.sim.remove(&format!("home/{name}")).expect("a file");
    }
    let found = Found::in_folder(Arc::new(written.sim.clone())).expect("the superblock is sound");
    assert!(found.intact.is_empty() && !found.damage.is_empty());
}

/// Each page of a heap is damaged in turn, which has expiries, and collections that lie in several pages.
#[test]
fn what_needs_a_damaged_page_is_not_told_as_intact() {
    let sim = SimIo::new(1);
    let options = Options {
        partitions: 1,
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 128,
        heap_bytes_max: HEAP_MAX,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    store.attach();
    let (mut now, mut batches) = (State::new(), Vec::new());
    for n in 0..400u64 {
        let key = format!("key:{n}").into_bytes();
        batches
            .push(vec![Op::Set(0, key.clone(), b"value".into(), false), Op::Expire(0, key, Some(FAR + n))]);
    }
    for n in 0..10 {
        let key = format!("hash:{n}").into_bytes();
        let field = |n: u64| format!("field:{n}").into_bytes();
        let set = |n| Op::HashSet(0, key.clone(), field(n), vec![b'v'; 100], Some(0));
        (0..300).for_each(|n| batches.push(vec![set(n)]));
    }
    for mut ops in batches {
        run_batch(&store, &mut ops).expect("the power is on");
        ops.iter().for_each(|op| apply(&mut now, op));
        store.log().commit_once().expect("a sound medium");
    }
    store.close().expect("a sound medium");
    let (mut doubts, mut broken) = (0, 0);
    for page in 0..len_of(&sim, "heap") / 4096 {
        sim.flip_bit("heap", page * 4096 + 2000, 1);
        let found = Found::in_folder(Arc::new(sim.clone())).expect("the superblock is sound");
        sim.flip_bit("heap", page * 4096 + 2000, 1);
        for key in &found.intact {
            let (_, expires_ms) = &now[&(key.db, key.key.clone())];
            assert_eq!(key.expires_ms, *expires_ms, "{key:?} of page {page} is told as intact");
        }
        let hashes: Vec<SalvagedKey> =
            found.intact.iter().filter(|key| key.key.starts_with(b"hash:")).cloned().collect();
        for (key, value) in &put(&hashes) {
            assert_eq!(now.get(key), Some(value), "{key:?} of page {page} is told as intact");
        }
        doubts += found.uncertain_keys(|doubt| doubt == Doubt::Expiry).len();
        broken += found.lost.iter().filter(|lost| lost.key.is_some()).count();
    }
    assert!(doubts > 0 && broken > 0, "{doubts} {broken}");
}

#[test]
fn a_home_is_as_of_the_end_of_the_log() {
    with_seeds(20, damaged_log_of_a_home);
}

#[test]
fn a_damaged_log_loses_what_was_in_the_damaged_part() {
    let seeds = with_seeds(40, damaged_log);
    if seeds >= 40 {
        let [lost, holes] = [&LOST, &HOLES].map(|count| count.load(Relaxed));
        assert!(lost > 0 && holes > 0, "{lost} {holes}");
    }
}

#[test]
fn a_damaged_heap_loses_what_was_in_the_damaged_pages() {
    let seeds = with_seeds(60, damaged_heap);
    if seeds >= 60 {
        let [entries, uncertain] = [&LOST_ENTRIES, &UNCERTAIN].map(|count| count.load(Relaxed));
        assert!(entries > 0 && uncertain > 0, "{entries} {uncertain}");
    }
}

#[test]
fn whatever_is_damaged_nothing_wrong_is_told_as_intact() {
    with_seeds(60, damaged_anything);
}
