//! The pair sweep: the power is cut at every single operation of a checkpoint, of a change of segments and of a shutdown, and
//! after each of these cuts at every operation of what follows: the start, changes, the next checkpoint. And the superblock is
//! torn at every sector.
//!
//! A cut decides by chance which sectors survive. `HOLDFAST_SEEDS=50` tries so many outcomes of each.

use crate::{
    history::{Op, State, apply, dump, random_ops, run_batch},
    seeds::{Rng, with_seeds},
};
use holdfast_store::{Io, OpenError, Options, SimIo, Store};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

const SECTOR: usize = 512;
const SUPERBLOCK: &str = "superblock";

fn options() -> Options {
    Options {
        partitions: 2,
        segment_size: Some(64 << 10),
        log_bytes_max: 64 * (64 << 10),
        heap_bytes_max: 8 << 20,
        background: false,
        ..Options::default()
    }
}

/// Opens the store of a machine; `None` if the power was cut meanwhile.
fn open(sim: &SimIo) -> Option<Store> {
    let result: Result<Store, OpenError> = Store::open_on(Arc::new(sim.clone()), options());
    match result {
        Ok(store) => Some(store),
        Err(why) => {
            assert!(sim.is_power_cut(&why), "the store does not open: {why}");
            None
        }
    }
}

/// The states that a cut may leave: the one that is acknowledged first, then those after each batch.
#[derive(Clone)]
struct States(Vec<State>);

impl States {
    fn now(&self) -> &State {
        self.0.last().expect("one at least")
    }

    /// Runs one batch, and makes it durable; `None` after the cut.
    fn change(&mut self, store: &Store, mut ops: Vec<Op>) -> Option<()> {
        let wait_lsn = run_batch(store, &mut ops)?;
        let mut next = self.now().clone();
        ops.iter().for_each(|op| apply(&mut next, op));
        self.0.push(next);
        store.log().commit_once().ok()?;
        assert!(store.log().durable() >= wait_lsn);
        self.acknowledge();
        Some(())
    }

    fn acknowledge(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    /// Compares a store that was just opened; what it holds is acknowledged from now on.
    fn compare(&mut self, store: &Store, what: &str) {
        let found = dump(store);
        assert!(self.0.contains(&found), "{what}: {} keys, a state that no batch has left", found.len());
        store.check().unwrap_or_else(|why| panic!("{what}: {why}"));
        self.0 = vec![found];
    }
}

/// What is done while the power is cut; `None` if it was.
type Scenario = fn(&Store, &mut States, &mut Rng) -> Option<()>;

fn checkpoint(store: &Store, states: &mut States, rng: &mut Rng) -> Option<()> {
    states.change(store, random_ops(rng, 50))?;
    store.checkpoint().ok()?;
    states.change(store, random_ops(rng, 50))
}

/// Values of a quarter of a segment each, so that two segments are left behind, and a cleaning that frees what it can.
fn change_segments(store: &Store, states: &mut States, _: &mut Rng) -> Option<()> {
    for i in 0..8 {
        states.change(store, vec![Op::Set(0, b"large".to_vec(), vec![i; 16_000], false)])?;
    }
    store.checkpoint().ok()?;
    store.attach();
    store.clean().ok()?;
    states.change(store, vec![Op::Set(0, b"large".to_vec(), vec![9; 100], false)])
}

fn shut_down(store: &Store, states: &mut States, rng: &mut Rng) -> Option<()> {
    states.change(store, random_ops(rng, 50))?;
    store.close().ok()
}

/// A machine with a store in use: of all types, a part of it in the last checkpoint, a part in the log.
fn machine(rng: &mut Rng) -> (SimIo, States) {
    let sim = SimIo::new(rng.next());
    let store = open(&sim).expect("the power is on");
    let mut states = States(vec![State::new()]);
    for _ in 0..2 {
        store.checkpoint().expect("the power is on");
        (0..60).for_each(|_| states.change(&store, random_ops(rng, 50)).expect("the power is on"));
    }
    (sim, states)
}

/// Opens the store of a machine whose power goes in the `n`-th operation from now on, and does something with it. Returns what
/// the medium holds after the cut, or `None` if it was over before.
fn cut(sim: &SimIo, states: &mut States, n: u64, seed: u64, scenario: Scenario, what: &str) -> Option<SimIo> {
    sim.crash_after(n);
    let done = open(sim).and_then(|store| {
        states.compare(&store, what);
        scenario(&store, states, &mut Rng(seed))
    });
    CUTS.fetch_add(1, Relaxed);
    done.is_none().then(|| sim.crash())
}

static CUTS: AtomicU64 = AtomicU64::new(0);

fn sweep(seed: u64, name: &str, scenario: Scenario) {
    let mut rng = Rng(seed);
    let (sim, before) = machine(&mut rng);
    for first in 1.. {
        let mut states = before.clone();
        let what = format!("{name} cut at operation {first}");
        let Some(after) = cut(&sim.fork(), &mut states, first, seed, scenario, &what) else {
            assert!(first >= 8, "{name} takes {first} operations only");
            break;
        };
        for second in 1.. {
            let mut states = states.clone();
            let what = format!("{what}, then at operation {second}");
            let cut = cut(&after.fork(), &mut states, second, seed + 1, checkpoint, &what);
            let Some(last) = cut else { break };
            let store = open(&last).expect("the power is on");
            states.compare(&store, &what);
        }
    }
}

#[test]
fn two_cuts_at_any_operations_of_a_checkpoint() {
    with_seeds(1, |seed| sweep(seed, "a checkpoint", checkpoint));
}

#[test]
fn two_cuts_at_any_operations_of_a_change_of_segments() {
    with_seeds(1, |seed| sweep(seed, "a change of segments", change_segments));
}

#[test]
fn two_cuts_at_any_operations_of_a_shutdown() {
    with_seeds(1, |seed| sweep(seed, "a shutdown", shut_down));
}

/// The sectors of a block that have reached the medium, as bits: from the first up to each one, from each one to the last, each
/// one alone, all but each one.
fn tears() -> impl Iterator<Item = u8> {
    (0..8u8).flat_map(|i| [0xff >> i, 0xff << i, 1 << i, !(1 << i)]).chain([0])
}

/// The machines that a checkpoint leaves which is cut in one of the writes of the superblock, each torn in another way.
fn torn(sim: &SimIo, states: &States, seed: u64) -> Vec<(SimIo, States)> {
    let mut machines = Vec::new();
    let mut last = sim.snapshot(SUPERBLOCK);
    for n in 1.. {
        let (sim, mut states) = (sim.fork(), states.clone());
        let Some(after) = cut(&sim, &mut states, n, seed, checkpoint, "a checkpoint") else { break };
        // As the machine saw it: with all of the write that was cut.
        let new = sim.snapshot(SUPERBLOCK);
        if new == last {
            continue;
        }
        for tear in tears() {
            let mut bytes = last.clone();
            for at in (0..bytes.len()).step_by(SECTOR).filter(|at| tear & 1 << (at / SECTOR % 8) != 0) {
                bytes[at..at + SECTOR].copy_from_slice(&new[at..at + SECTOR]);
            }
            let torn = after.fork();
            let file = torn.open(SUPERBLOCK, false).expect("a superblock");
            file.write_at(&[&bytes], 0, holdfast_store::Durability::Durable).expect("the power is on");
            machines.push((torn, states.clone()));
        }
        last = new;
    }
    machines
}

#[test]
fn a_superblock_torn_anywhere_twice() {
    with_seeds(1, |seed| {
        let (sim, states) = machine(&mut Rng(seed));
        let machines = torn(&sim, &states, seed);
        assert_eq!(machines.len(), 2 * tears().count());
        for (i, (sim, states)) in machines.iter().enumerate() {
            let again = torn(sim, states, seed + 1);
            // All pairs are many: each of the first tears is followed by a few others of the second.
            for (sim, mut states) in again.into_iter().skip(i % 7).step_by(7) {
                let store = open(&sim).expect("the power is on");
                states.compare(&store, "a superblock torn twice");
            }
        }
    });
}
