//! Storage-class memory after a power cut at every moment: all that it may hold then.
//!
//! Random histories of all types run on a simulated machine, by each method, with checkpoints, cleaning and freezing between transactions. At
//! each fence of a transaction the power may go; what has been stored since the one before is there or not, word by word
//! (`crates/io/src/sim/cut.rs`). A start from each of these images must find exactly the state before the transaction or the one behind
//! it; images of the same bytes are judged once. `HOLDFAST_IMAGES=4096` judges up to so many of a fence, which is all that are listed, instead of a few.
//!
//! Bugs that the machine plays show that this would see them.

use crate::{
    history::{State, apply, dump, random_ops, run_batch},
    seeds::{Rng, with_seeds},
};
use holdfast_io::{Outcome, PowerCut, Scm, ScmBug};
use holdfast_store::{HomeMethod, Io, OpenError, Options, SimIo, Store, Txn, hash::Expiry, list::End};
use std::{
    collections::HashSet,
    env, io,
    num::NonZeroUsize,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// `None`: own.
const METHODS: [Option<HomeMethod>; 4] =
    [None, Some(HomeMethod::Cow), Some(HomeMethod::Lat), Some(HomeMethod::Latb)];

/// Images of one fence at most.
static IMAGES_MAX: LazyLock<u64> =
    LazyLock::new(|| env::var("HOLDFAST_IMAGES").map_or(8, |images| images.parse().expect("a number")));
/// Images that were judged, by their fingerprints.
static JUDGED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);
/// Moments at which the power went, and how many of their images had the state before a transaction, and behind it.
static CUTS: AtomicU64 = AtomicU64::new(0);
static BEFORE: AtomicU64 = AtomicU64::new(0);
static BEHIND: AtomicU64 = AtomicU64::new(0);

fn options(home: Option<HomeMethod>, partitions: u16) -> Options {
    Options {
        partitions,
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 24,
        heap_bytes_max: 16 << 20,
        memory_bytes_max: 256 << 10,
        background: false,
        home,
        ..Options::default()
    }
}

/// What an image should hold and does not.
type Wrong = String;

/// Judges what a start finds in each image of some moments: one of some states.
fn judge(cuts: &[PowerCut], options: &Options, states: &[State], seed: u64) -> Result<(), Wrong> {
    CUTS.fetch_add(cuts.len() as u64, Relaxed);
    let mut known = HashSet::new();
    let all =
        cuts.iter().flat_map(|cut| cut.outcomes(*IMAGES_MAX, seed).into_iter().map(move |it| (cut, it)));
    let images: Vec<_> = all.filter(|(_, outcome)| known.insert(outcome.fingerprint)).collect();
    JUDGED.lock().expect("no holder panics").extend(&known);
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(None));
    let judge_some = || {
        while let Some((cut, outcome)) = images.get(next.fetch_add(1, Relaxed)) {
            if let Err(why) = judge_image((cut, outcome), options, states) {
                wrong.lock().expect("no holder panics").get_or_insert(why);
                next.store(images.len(), Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZeroUsize::get) {
            scope.spawn(judge_some);
        }
    });
    wrong.into_inner().expect("no holder panics").map_or(Ok(()), Err)
}

fn judge_image(
    (cut, outcome): (&PowerCut, &Outcome),
    options: &Options,
    states: &[State],
) -> Result<(), Wrong> {
    let image = cut.image(outcome);
    let start = || {
        let store = Store::open_on(Arc::new(image), options.clone())?;
        if outcome.fingerprint % 8 == 0 {
            store.check()?;
        }
        Ok::<_, OpenError>(dump(&store))
    };
    let found = match panic::catch_unwind(AssertUnwindSafe(start)) {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return Err(format!("it does not start: {why}")),
        Err(_) => return Err("it panics".into()),
    };
    match states.iter().position(|state| found == *state) {
        Some(0) => BEFORE.fetch_add(1, Relaxed),
        Some(_) => BEHIND.fetch_add(1, Relaxed),
        None => {
            let mut keys = states.iter().flat_map(State::keys).chain(found.keys());
            let is_other =
                |key: &&(u8, Vec<u8>)| states.iter().all(|state| found.get(*key) != state.get(*key));
            let other = keys.find(is_other).map(|(_, key)| String::from_utf8_lossy(key));
            return Err(format!("neither before nor behind; a key that is as in neither: {other:?}"));
        }
    };
    Ok(())
}

/// What goes wrong in a history: a bug that the machine plays at the n-th fence or store of each transaction, or that another thread fences.
#[derive(Clone, Copy, Debug)]
enum Bug {
    Played(ScmBug, u64),
    OtherThread,
}

/// A machine on which another thread fences.
struct OtherThread(SimIo);

impl Io for OtherThread {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn holdfast_io::File>> {
        self.0.open(name, create)
    }
    fn scm(&self) -> Option<&Scm> {
        self.0.scm()
    }
    fn fence(&self) -> io::Result<()> {
        thread::scope(|scope| scope.spawn(|| self.0.fence()).join().expect("no panic"))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }
    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        self.0.sync_dir(folder)
    }
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.0.free_bytes()
    }
    fn read_queue(&self, depth: u32) -> io::Result<holdfast_io::ReadQueue> {
        self.0.read_queue(depth)
    }
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
    fn monotonic_us(&self) -> u64 {
        self.0.monotonic_us()
    }
    fn random(&self, buf: &mut [u8]) {
        self.0.random(buf);
    }
}

/// A history, of which each commit is judged, of up to three transactions, and what the store does between them.
fn history(seed: u64, home: Option<HomeMethod>, bug: Option<Bug>) -> Result<(), Wrong> {
    let mut rng = Rng(seed);
    let sim = SimIo::on_scm(seed);
    let options = options(home, 1 + seed as u16 % 2);
    let io: Arc<dyn Io> = match bug {
        Some(Bug::OtherThread) => Arc::new(OtherThread(sim.clone())),
        _ => Arc::new(sim.clone()),
    };
    let store = Store::open_on(io, options.clone()).expect("an empty folder");
    store.attach();
    let mut now = State::new();
    let keys = 1 + rng.below(30);
    for _ in 0..rng.below(80) {
        let mut ops = random_ops(&mut rng, keys);
        run_batch(&store, &mut ops).expect("a sound medium");
        ops.iter().for_each(|op| apply(&mut now, op));
        store.log().commit_once().expect("a sound medium");
    }
    if rng.chance(2) {
        store.checkpoint().expect("a sound medium");
    }
    for _ in 0..12 {
        let mut states = vec![now.clone()];
        sim.note_cuts();
        if rng.chance(4) {
            // In a thread of its own, as in a server, whose fences are not for what others have stored.
            let choice = rng.below(7);
            let work = || match choice {
                0..3 => store.checkpoint(),
                3 => store.clean().map(drop),
                4 => store.freeze(100_000).map(drop),
                5 => {
                    store.condense();
                    Ok(())
                }
                _ => {
                    store.sweep();
                    Ok(())
                }
            };
            thread::scope(|scope| scope.spawn(work).join().expect("no panic")).expect("a sound medium");
        } else {
            if let Some(Bug::Played(bug, after)) = bug {
                sim.play(bug, after);
            }
            for _ in 0..1 + rng.below(3) {
                let mut ops = random_ops(&mut rng, keys);
                run_batch(&store, &mut ops).expect("a sound medium");
                ops.iter().for_each(|op| apply(&mut now, op));
                states.push(now.clone());
                store.log().store_ahead();
            }
        }
        store.log().commit_once().expect("a sound medium");
        judge(&sim.take_cuts(), &options, &states, seed)?;
    }
    Ok(())
}

#[test]
fn every_image_is_as_before_a_transaction_or_behind_it() {
    const SEEDS: u64 = 3;
    let began = Instant::now();
    let seeds = with_seeds(SEEDS, |seed| {
        for home in METHODS {
            if let Err(why) = history(seed, home, None) {
                panic!("{home:?}: {why}");
            }
            let judged = JUDGED.lock().expect("no holder panics").len();
            println!("seed {seed}, {home:?}: {judged} images so far");
        }
    });
    let (cuts, before, behind) = (CUTS.load(Relaxed), BEFORE.load(Relaxed), BEHIND.load(Relaxed));
    let judged = JUDGED.lock().expect("no holder panics").len();
    println!(
        "{judged} images at {cuts} moments in {:?}: {before} as before, {behind} as behind",
        began.elapsed()
    );
    assert!(seeds < SEEDS || judged > 1000 && before > 300 && behind > 100, "both outcomes are seen often");
}

#[test]
fn a_string_that_is_set_without_a_transaction_is_as_before_or_behind_that() {
    for home in METHODS {
        let (sim, options) = (SimIo::on_scm(1), options(home, 1));
        let store = Store::open_on(Arc::new(sim.clone()), options.clone()).expect("an empty folder");
        store.attach();
        store.set(0, b"key", b"first").expect("room");
        store.log().commit_once().expect("a sound medium");
        let mut states = vec![dump(&store)];
        for n in 0..8u64 {
            sim.note_cuts();
            // Some share a commit.
            for m in 0..1 + n % 3 {
                store.set(0, b"key", &vec![m as u8; 10 + 30 * n as usize]).expect("room");
                states.push(dump(&store));
            }
            store.log().commit_once().expect("a sound medium");
            let cuts = sim.take_cuts();
            assert!(!cuts.is_empty());
            judge(&cuts, &options, &states, n).expect("a sound image");
            states.drain(..states.len() - 1);
        }
    }
}

/// Which bugs of a method are played: at each of the fences that every transaction has which changes something, and at its first stores.
fn bugs(home: Option<HomeMethod>) -> Vec<Bug> {
    // A late store in place does harm with `cow` only if it is the last one.
    let (fences, late_stores) = match home {
        None => (1, 1),
        Some(HomeMethod::Lat) => (2, 2),
        Some(HomeMethod::Cow) => (3, 1),
        Some(_) => (3, 2),
    };
    let mut bugs: Vec<_> = (0..fences).map(|n| Bug::Played(ScmBug::FenceMissing, n)).collect();
    bugs.extend((0..fences).map(|n| Bug::Played(ScmBug::WriteBackMissing, n)));
    bugs.extend((0..late_stores).map(|n| Bug::Played(ScmBug::StoreAfterFence, n)));
    // What is streamed to the log is fenced by who has streamed it, in the same call.
    bugs.extend(home.map(|_| Bug::OtherThread));
    bugs
}

#[test]
fn what_is_broken_is_seen() {
    for home in METHODS {
        for bug in bugs(home) {
            let began = Instant::now();
            let seen = (0..20).find_map(|seed| Some((seed, history(seed, home, Some(bug)).err()?)));
            let (seed, why) = seen.unwrap_or_else(|| panic!("{home:?}, {bug:?}: nothing is seen"));
            println!("{home:?}, {bug:?}: {why} (seed {seed}, {:?})", began.elapsed());
        }
    }
}

#[test]
fn no_line_is_written_back_twice_for_one_fence() {
    type Call = fn(&mut Txn, &[u8]);
    let calls: [(&str, Call); 5] = [
        // INCR is one, too.
        ("SET", |txn, n| txn.set(0, n, n, false).expect("room")),
        ("HSET", |txn, n| drop(txn.hash_set(0, b"hash", [(n, n)], Expiry::Keep))),
        ("LPUSH", |txn, n| drop(txn.list_push(0, b"list", End::Front, [n], true))),
        ("SADD", |txn, n| drop(txn.set_add(0, b"set", [n]))),
        ("ZADD", |txn, n| drop(txn.zset_add(0, b"zset", Default::default(), [(n, n.len() as f64)]))),
    ];
    for home in METHODS {
        let sim = SimIo::on_scm(1);
        let store = Store::open_on(Arc::new(sim.clone()), options(home, 1)).expect("an empty folder");
        store.attach();
        for (name, call) in calls {
            let mut fences = 0;
            // New ones, of which there are many at last, and the same again.
            for n in (0..300u32).chain(0..50) {
                sim.note_cuts();
                let mut txn = store.begin_all();
                call(&mut txn, n.to_string().as_bytes());
                txn.commit();
                store.log().commit_once().expect("a sound medium");
                let cuts = sim.take_cuts();
                fences += cuts.len();
                let redundant: usize = cuts.iter().map(PowerCut::redundant_lines).sum();
                assert_eq!(redundant, 0, "{home:?}: the {n}th {name}");
            }
            assert!(fences >= 300, "{fences}");
        }
    }
}
