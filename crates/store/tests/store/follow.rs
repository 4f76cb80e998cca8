//! A store that follows another one's log: after each batch it holds what the other one held then, byte for byte, whoever reads it
//! meanwhile, whatever leaves its memory, and after a power cut.

use crate::{
    history::{Op, State, apply, dump, get, random_key, random_ops, run_batch},
    open,
    oracle::Snapshot,
    others,
    seeds::{Rng, with_seeds},
};
use holdfast_log::{Cursor, CursorBatch, Step};
use holdfast_store::{Admission, Codec, Follower, Io, Lsn, Options, Replication, SimIo, Store, replay_log};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

static CHECKPOINTS: AtomicU64 = AtomicU64::new(0);
static CUTS: AtomicU64 = AtomicU64::new(0);
static COMPARED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);
static CACHED: AtomicU64 = AtomicU64::new(0);
static ROOM: AtomicU64 = AtomicU64::new(0);
static LED: AtomicU64 = AtomicU64::new(0);

/// The term of one that follows, and comes to lead.
const TERM: u32 = 9;

/// A server that follows.
struct Following {
    sim: SimIo,
    options: Options,
    follower: Follower,
    log: Arc<holdfast_log::Log>,
    /// What is agreed on.
    agreed: Lsn,
}

impl Following {
    fn open(sim: SimIo, options: &Options, agreed: Lsn) -> Following {
        let io: Arc<dyn Io> = Arc::new(sim.clone());
        let options = Options { replication: Some(Replication { term: TERM, agreed }), ..options.clone() };
        let log = replay_log(io.clone(), &options, &mut |_, _| Ok(())).and_then(|log| log.open());
        let log = log.expect("a sound log");
        let follower = Follower::open(io, log.clone(), options.clone()).expect("a sound folder");
        Following { sim, options, follower, log, agreed }
    }

    /// The power goes, and comes back.
    fn restart(self) -> Following {
        let Following { sim, options, follower, log, agreed } = self;
        drop((follower, log));
        CUTS.fetch_add(1, Relaxed);
        Following::open(sim.crash(), &options, agreed)
    }

    /// Stores a batch that the other one has appended.
    fn store(&mut self, bytes: &[u8]) {
        self.log.store(bytes).expect("it follows");
    }

    /// Has all of that durably, for which it may have to make room.
    fn commit(&mut self) {
        while self.log.durable_here() < self.log.tail() {
            let before = self.log.durable_here();
            self.log.commit_once().expect("a sound medium");
            if self.log.durable_here() == before {
                // The log is full.
                self.agree(Lsn::MAX);
                self.advance();
                let freed = self.follower.checkpoint(&|_| Ok(()), &|| false).expect("a sound medium");
                assert!(freed > 0, "it holds no more than the other one");
            }
        }
    }

    fn advance(&mut self) {
        while self.follower.advance().expect("what was appended") {}
    }

    fn agree(&mut self, lsn: Lsn) {
        self.agreed = lsn.min(self.log.durable_here());
        self.log.agree(self.agreed);
    }

    fn check(&mut self) {
        self.follower.count().expect("a sound medium");
        self.follower.store().check().expect("a sound store");
    }

    fn is_at_end(&self, leader: &Store) -> bool {
        self.follower.applied() == leader.log().tail()
    }
}

/// What is to be sent next, if it is durable.
fn next(cursor: &mut Cursor) -> Option<CursorBatch<'_>> {
    match cursor.step().expect("a sound medium") {
        Step::Batch(batch) => Some(batch),
        Step::End => None,
        Step::Overrun => panic!("what is to be sent was freed"),
    }
}

fn set(key: u64, len: u64) -> Op {
    Op::Set(0, format!("key:{key}").into_bytes(), vec![len as u8; len as usize], false)
}

fn write(leader: &Store, rng: &mut Rng, now: &mut State, keys: u64, has_many: bool) {
    // Many keys at once make indexes grow, and entries move within a batch.
    let mut ops = match has_many && rng.chance(20) {
        true => (0..500).map(|_| set(rng.below(3000), rng.below(20))).collect(),
        false => random_ops(rng, keys),
    };
    if leader.admit(200_000) != Admission::Ok {
        leader.attach();
        while leader.sweep() {}
        leader.log().commit_once().expect("a sound medium");
        leader.checkpoint().expect("a sound medium");
        leader.clean().expect("a sound medium");
        return;
    }
    run_batch(leader, &mut ops).expect("a sound medium");
    ops.iter().for_each(|op| apply(now, op));
}

/// What has followed leads now: it is written and kept in order, as one that was opened. Returns its folder after a power cut.
fn lead(following: Following, rng: &mut Rng, now: &mut State, keys: u64, has_many: bool) -> SimIo {
    let Following { sim, follower, log, .. } = following;
    let _others = others::lead(&log, TERM);
    let store = follower.lead().expect("a sound medium");
    for _ in 0..rng.below(400) {
        match rng.below(20) {
            0..12 => write(&store, rng, now, keys, has_many),
            12 => store.attach(),
            13 => store.checkpoint().expect("a sound medium"),
            14 => drop(store.clean().expect("a sound medium")),
            15 => drop(store.freeze(1 + rng.below(100_000)).expect("a sound medium")),
            16 => drop(store.sweep()),
            17 => drop(store.log().commit_once().expect("a sound medium")),
            18 if rng.chance(4) => drop(store.check().expect("a sound store")),
            _ => {
                let key = random_key(rng, keys);
                let expected = now.get(&(0, key.clone())).map(|(value, _)| (**value).clone());
                assert!(get(&store, 0, &key).expect("a sound medium") == expected, "{}", key.escape_ascii());
            }
        }
    }
    assert!(dump(&store) == *now);
    store.attach();
    store.check().expect("a sound store");
    open::commit_all(&store);
    LED.fetch_add(1, Relaxed);
    sim.crash()
}

fn history(seed: u64) {
    let mut rng = Rng(seed);
    let options = Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 64,
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.chance(2) { 256 << 10 } else { usize::MAX },
        compression: if rng.chance(3) { Some(Codec::Lz4) } else { None },
        background: false,
        ..Options::default()
    };
    let keys_max = if rng.chance(2) { 50 } else { 1500 };
    let keys = 1 + rng.below(keys_max);
    let (is_long, has_many) = (rng.chance(4), rng.chance(3));
    let steps_max = if is_long && !has_many { 6000 } else { 600 };
    let sim = SimIo::new(seed);
    let open = |sim: &SimIo| Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    let mut leader = open(&sim);
    leader.attach();
    let mut now = State::new();
    let write = |leader: &Store, rng: &mut Rng, now: &mut State| write(leader, rng, now, keys, has_many);
    for _ in 0..rng.below(300) {
        write(&leader, &mut rng, &mut now);
    }
    // At rest, as it is copied.
    leader.close().expect("a sound medium");
    let end = leader.log().tail();
    drop(leader);
    let mut following = Following::open(sim.fork(), &options, end);
    leader = open(&sim);
    leader.attach();
    let mut cursor = leader.log().cursor(end);
    let pin = leader.log().pin(end, u64::MAX).expect("the log of a store that was just opened");
    let mut states = BTreeMap::from([(end, now.clone())]);
    let mut ends = Vec::new();
    for step in 0..rng.below(steps_max) {
        match rng.below(30) {
            0..15 => {
                write(&leader, &mut rng, &mut now);
                states.insert(leader.log().tail(), now.clone());
            }
            15 => leader.checkpoint().expect("a sound medium"),
            16 => drop(leader.clean().expect("a sound medium")),
            17 => drop(leader.freeze(1 + rng.below(100_000)).expect("a sound medium")),
            18 => drop(leader.sweep()),
            19 => drop(leader.log().commit_once().expect("a sound medium")),
            20 => {
                following.commit();
                assert!(pin.advance(following.log.durable_here()), "it keeps what is to be sent");
            }
            21..25 => {
                while let Some(batch) = next(&mut cursor) {
                    following.store(batch.bytes);
                    ends.push(batch.lsn + batch.bytes.len() as u64);
                    if rng.chance(5) {
                        break;
                    }
                }
            }
            25 => {
                // In the midst of what is stored, too.
                let ends = ends.iter().filter(|&&end| end <= following.log.durable_here());
                let ends: Vec<u64> = ends.copied().collect();
                if !ends.is_empty() {
                    following.agree(ends[rng.below(ends.len() as u64) as usize].max(following.agreed));
                }
            }
            26 | 27 => following.advance(),
            28 if rng.chance(3) => {
                let agreed = following.agreed;
                let kept = |lsn| {
                    assert!(lsn <= agreed);
                    Ok(())
                };
                let freed = following.follower.checkpoint(&kept, &|| false).expect("a sound medium");
                FREED.fetch_add(freed as u64, Relaxed);
                CHECKPOINTS.fetch_add(1, Relaxed);
            }
            28 => {
                let wants_checkpoint = following.follower.tend_memory();
                EVICTED.fetch_add(following.follower.store().stats().heap_pages_evicted, Relaxed);
                let wants_room = following.follower.wants_room();
                ROOM.fetch_add(wants_room.into(), Relaxed);
                if wants_checkpoint || wants_room {
                    following.follower.checkpoint(&|_| Ok(()), &|| false).expect("a sound medium");
                }
            }
            _ if rng.chance(6) => {
                // What was not durable there is sent again.
                following = following.restart();
                let tail = following.log.tail();
                cursor = leader.log().cursor(tail);
                ends.retain(|&end| end <= tail);
            }
            _ => {}
        }
        let store = following.follower.store();
        let applied = following.follower.applied();
        let (_, then) = states.range(..=applied).next_back().expect("the state of the copy");
        if rng.chance(2) {
            let key = random_key(&mut rng, keys);
            for _ in 0..2 {
                let found = get(store, 0, &key).expect("a sound medium");
                let expected = then.get(&(0, key.clone())).map(|(value, _)| (**value).clone());
                assert!(found == expected, "key {} at LSN {applied}", key.escape_ascii());
            }
        }
        if rng.chance(40) {
            assert!(dump(store) == *then, "seed {seed}, step {step}: another state at LSN {applied}");
        }
        if rng.chance(40) && following.is_at_end(&leader) {
            Snapshot::of(&leader).compare(store);
            following.check();
            COMPARED.fetch_add(1, Relaxed);
        }
    }
    // In the end it has all.
    open::commit_all(&leader);
    while let Some(batch) = next(&mut cursor) {
        following.store(batch.bytes);
    }
    following.commit();
    following.agree(leader.log().tail());
    following.advance();
    let ends =
        (following.follower.applied(), following.log.durable(), following.log.tail(), leader.log().tail());
    assert!(following.is_at_end(&leader), "{ends:?}");
    let store = following.follower.store();
    Snapshot::of(&leader).compare(store);
    assert!(dump(store) == now);
    let cached = store.stats().cache_hits;
    let leads = rng.chance(2);
    if !leads || rng.chance(2) {
        // It counts what lives in the log, too.
        following.check();
    }
    CACHED.fetch_add(cached, Relaxed);
    // And another start finds it, or what it has made of it.
    if rng.chance(2) {
        following.follower.checkpoint(&|_| Ok(()), &|| false).expect("a sound medium");
    }
    let sim = if leads { lead(following, &mut rng, &mut now, keys, has_many) } else { following.sim.crash() };
    let alone = Options { replication: None, ..options.clone() };
    let alone = Store::open_on(Arc::new(sim), alone).expect("a sound folder");
    assert!(dump(&alone) == now);
    alone.check().expect("a sound store");
    if !leads {
        Snapshot::of(&leader).compare(&alone);
    }
}

/// A new store that has one.
fn one_partition() -> (SimIo, Options, Store) {
    let sim = SimIo::new(1);
    let options =
        Options { heap_bytes_max: 32 << 20, partitions: 1, background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    (sim, options, store)
}

/// The pages of a checkpoint may be of batches up to where the log was durable when it was complete. That was agreed on, whoever knows it now.
#[test]
fn a_checkpoint_says_what_was_agreed_on() {
    let (sim, options, leader) = one_partition();
    run_batch(&leader, &mut vec![set(1, 10)]).expect("a sound medium");
    let early = leader.log().tail();
    run_batch(&leader, &mut vec![set(2, 10)]).expect("a sound medium");
    leader.close().expect("a sound medium");
    let following = Following::open(sim.fork(), &options, early);
    let ends = (following.follower.applied(), following.log.durable());
    assert_eq!(ends, (leader.log().tail(), leader.log().tail()));
    assert_eq!(dump(following.follower.store()), dump(&leader));
}

#[test]
fn one_that_comes_to_lead_uses_the_room_that_is_free_in_its_extents() {
    let (sim, options, leader) = one_partition();
    let field = |number: u32| number.to_le_bytes().to_vec();
    let set = |store: &Store, numbers: &mut dyn Iterator<Item = u32>| {
        let set = |number| Op::HashSet(0, b"hash".to_vec(), field(number), vec![7; 900], None);
        run_batch(store, &mut numbers.map(set).collect()).expect("a sound medium");
    };
    (0..4000).step_by(100).for_each(|first| set(&leader, &mut (first..first + 100)));
    for first in (0..4000).step_by(100) {
        let some = (first..first + 100).filter(|number| number % 4 > 0);
        let remove = |number| Op::HashRemove(0, b"hash".to_vec(), field(number));
        run_batch(&leader, &mut some.map(remove).collect()).expect("a sound medium");
    }
    leader.close().expect("a sound medium");
    let Following { follower, log, .. } = Following::open(sim.fork(), &options, leader.log().tail());
    let _others = others::lead(&log, TERM);
    let store = follower.lead().expect("a sound medium");
    // All of it is in memory.
    assert_eq!(dump(&store), dump(&leader));
    let before = store.stats();
    (0..4000).step_by(100).for_each(|first| set(&store, &mut (first..first + 100)));
    let after = store.stats();
    let (grown, taken) = (
        after.heap_resident_bytes.saturating_sub(before.heap_resident_bytes),
        after.heap_allocated_bytes - before.heap_allocated_bytes,
    );
    assert!(grown < taken / 4, "{grown} bytes more in memory for {taken}");
}

#[test]
fn a_follower_holds_what_the_other_one_held() {
    let seeds = with_seeds(60, history);
    let counts = [&CHECKPOINTS, &CUTS, &COMPARED, &FREED, &EVICTED, &CACHED, &ROOM, &LED];
    let counts = counts.map(|count| count.load(Relaxed));
    println!("checkpoints, cuts, comparisons, freed, evicted, cached, wanting room, led: {counts:?}");
    assert!(seeds < 60 || counts.iter().all(|&count| count > 0), "{counts:?}");
}
