//! Power cuts at any moment, with any subset of the unflushed sectors surviving.
//!
//! Random histories run against a simulated machine. After each cut, what is recovered must be exactly the state
//! after some prefix of the committed batches, and this prefix must hold everything that was acknowledged.
//!
//! `HOLDFAST_SEEDS=10000` runs the long form, `HOLDFAST_SEED=n` one seed.

use holdfast_store::{Cold, Error, Options, SimIo, Store, Type};
use std::{collections::BTreeMap, sync::Arc};

type State = BTreeMap<(u8, Vec<u8>), (Vec<u8>, Option<u64>)>;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

fn options(rng: &mut Rng) -> Options {
    Options {
        partitions: 1 << rng.below(3),
        segment_size: 64 << 10,
        segments_max: 64,
        heap_bytes_max: 16 << 20,
        memory_bytes_max: if rng.chance(2) { 256 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    }
}

#[derive(Clone)]
enum Op {
    Set(u8, Vec<u8>, Vec<u8>, bool),
    Remove(u8, Vec<u8>),
    Expire(u8, Vec<u8>, Option<u64>),
    Flush(u8),
}

fn apply(state: &mut State, op: &Op) {
    match op.clone() {
        Op::Set(db, key, value, keep) => {
            let expiry = state.get(&(db, key.clone())).and_then(|v| v.1).filter(|_| keep);
            state.insert((db, key), (value, expiry));
        }
        Op::Remove(db, key) => {
            state.remove(&(db, key));
        }
        Op::Expire(db, key, at) => {
            if let Some(value) = state.get_mut(&(db, key)) {
                value.1 = at;
            }
        }
        Op::Flush(db) => state.retain(|(d, _), _| *d != db),
    }
}

fn random_ops(rng: &mut Rng, keys: u64) -> Vec<Op> {
    if rng.chance(300) {
        return vec![Op::Flush(rng.below(2) as u8)];
    }
    let count = if rng.chance(4) { 1 + rng.below(6) } else { 1 };
    (0..count)
        .map(|_| {
            let db = if rng.chance(8) { 1 } else { 0 };
            let key = format!("key:{}", rng.below(keys)).into_bytes();
            match rng.below(10) {
                0..6 => {
                    let len = if rng.chance(50) { rng.below(100_000) } else { rng.below(300) };
                    Op::Set(db, key, vec![rng.next() as u8; len as usize], rng.chance(2))
                }
                6..8 => Op::Remove(db, key),
                8 => Op::Expire(db, key, None),
                // Far in the future: the clock of the simulated machine stands still here.
                _ => Op::Expire(db, key, Some((1 << 42) + rng.below(1000))),
            }
        })
        .collect()
}

fn run_batch(store: &Store, ops: &[Op]) -> u64 {
    let mut txn = match ops {
        [Op::Flush(_)] => store.begin_all(),
        _ => store.begin_keys(ops.iter().map(|op| match op {
            Op::Set(_, key, ..) | Op::Remove(_, key) | Op::Expire(_, key, _) => &key[..],
            Op::Flush(_) => unreachable!(),
        })),
    };
    for op in ops {
        match op {
            Op::Set(db, key, value, keep) => txn.set(*db, key, value, *keep).unwrap(),
            Op::Remove(db, key) => {
                txn.remove(*db, key);
            }
            Op::Expire(db, key, at) => {
                txn.set_expiry(*db, key, *at).unwrap();
            }
            Op::Flush(db) => txn.flush(*db),
        }
    }
    txn.commit()
}

/// The value of a key; an error after the cut.
fn get(store: &Store, db: u8, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut fetched = Vec::new();
    loop {
        let mut txn = store.begin_keys([key]);
        txn.supply(std::mem::take(&mut fetched));
        let cold: Cold = match txn.get(db, key) {
            Ok(value) => return Ok(value.map(<[u8]>::to_vec)),
            Err(Error::Cold(cold)) => cold,
            Err(e) => return Err(e.to_string()),
        };
        drop(txn);
        fetched.push(store.fetch(cold));
    }
}

fn dump(store: &Store) -> State {
    let mut state = State::new();
    for db in 0..2 {
        let mut cursor = 0;
        loop {
            let step = store.scan(db, cursor, 10);
            let cold =
                step.cold.iter().map(|&cold| (store.fetch(cold).key().unwrap().to_vec(), Type::String));
            for (key, _) in step.keys.into_iter().chain(cold) {
                let expiry = store.begin_keys([&key[..]]).expiry(db, &key).unwrap();
                let value = get(store, db, &key).unwrap().unwrap();
                state.insert((db, key), (value, expiry));
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
        let keys = state.keys().filter(|(d, _)| *d == db).count() as u64;
        assert_eq!(store.len(db), keys);
    }
    state
}

/// One life of a machine after another, each ended by a power cut or an orderly close.
fn history(seed: u64) {
    let mut rng = Rng(seed);
    let mut sim = SimIo::new(seed);
    let options = options(&mut rng);
    let keys = 1 + rng.below(2000);
    // The state after each batch since the last start that is not yet known to be acknowledged, oldest first.
    let mut states = vec![State::new()];
    for _life in 0..1 + rng.below(5) {
        let Ok(store) = Store::open_on(Arc::new(sim.clone()), options.clone()) else {
            // The cut came while the data folder was being made or recovered.
            sim = sim.crash();
            continue;
        };
        let recovered = dump(&store);
        let Some(at) = states.iter().position(|state| *state == recovered) else {
            panic!("recovered {} keys, a state that no acknowledged prefix leads to", recovered.len());
        };
        let mut now = states.swap_remove(at);
        states = vec![now.clone()];
        store.check().expect("a sound store after recovery");
        store.attach();
        if rng.chance(2) {
            sim.crash_after(1 + rng.below(400));
        }
        let mut waiting: Vec<u64> = Vec::new();
        let mut alive = true;
        for _ in 0..rng.below(400) {
            let ops = random_ops(&mut rng, keys);
            let gate = run_batch(&store, &ops);
            ops.iter().for_each(|op| apply(&mut now, op));
            states.push(now.clone());
            waiting.push(gate);
            if rng.chance(3) {
                let key = format!("key:{}", rng.below(keys)).into_bytes();
                match get(&store, 0, &key) {
                    Ok(value) => assert_eq!(value, now.get(&(0, key)).map(|v| v.0.clone())),
                    Err(why) => {
                        assert!(why.contains("simulated power cut"), "{why}");
                        alive = false;
                    }
                }
            }
            if rng.chance(4) {
                alive &= store.log().commit_once().is_ok();
            }
            if rng.chance(60) {
                alive &= store.checkpoint().is_ok();
            }
            if rng.chance(20) {
                alive &= store.clean().is_ok();
            }
            let durable = store.log().durable();
            let acknowledged = waiting.iter().take_while(|&&gate| gate <= durable).count();
            states.drain(..acknowledged);
            waiting.drain(..acknowledged);
            if !alive {
                break;
            }
        }
        if alive && rng.chance(3) {
            if store.close().is_ok() {
                states = vec![now];
            }
        }
        sim = sim.crash();
    }
}

#[test]
fn every_acknowledged_batch_survives_a_power_cut_whole() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    if let Some(seed) = number("HOLDFAST_SEED") {
        return history(seed);
    }
    for seed in 0..number("HOLDFAST_SEEDS").unwrap_or(300) {
        if let Err(panic) = std::panic::catch_unwind(|| history(seed)) {
            eprintln!("replay with HOLDFAST_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
