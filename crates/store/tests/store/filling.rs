//! A folder that is filled without redo in the log: once it is closed all is there, and before that no start opens it.

use crate::{
    open,
    seeds::{Rng, with_seeds},
};
use holdfast_store::{OpenError, Options, SimIo, Store, hash::Expiry, list::End};
use std::{collections::BTreeMap, sync::Arc};

const SEGMENT: u32 = 64 << 10;
/// Keys of a group, and groups.
const KEYS: u64 = 40;
const GROUPS: u64 = 60;

fn options(is_filled: bool) -> Options {
    Options {
        partitions: 4,
        segment_size: Some(SEGMENT),
        log_bytes_max: 64 * u64::from(SEGMENT),
        heap_bytes_max: 16 << 20,
        memory_bytes_max: 4 << 20,
        keeps_copies: !is_filled,
        is_filled,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimIo, is_filled: bool) -> holdfast_io::Result<Store> {
    Store::open_on(Arc::new(sim.clone()), options(is_filled))
}

/// Elements of each key, and when it expires, if it does.
type Model = BTreeMap<Vec<u8>, (Vec<Vec<u8>>, Option<u64>)>;

/// Writes a group of new keys, as an import does.
fn fill_group(store: &Store, rng: &mut Rng, number: u64, model: &mut Model) -> holdfast_io::Result<()> {
    let names = (0..KEYS).map(|key| {
        let kind = ["string", "hash", "list", "set"][rng.below(4) as usize];
        format!("{kind}:{number}:{key}").into_bytes()
    });
    let (names, partition) = (names.collect::<Vec<_>>(), rng.below(store.partitions().into()) as u16);
    let names: Vec<&[u8]> =
        names.iter().map(Vec::as_slice).filter(|name| store.partition_of(name) == partition).collect();
    if rng.chance(4) {
        store.expect_keys(0, partition, rng.below(3000), rng.below(500));
    }
    let elements = |rng: &mut Rng| {
        let count_max = if rng.chance(8) { 200 } else { 10 };
        let (count, len) = (1 + rng.below(count_max), 1 + rng.below(60) as usize);
        (0..count).map(|n| format!("{n:0len$}").into_bytes()).collect::<Vec<_>>()
    };
    let values: Vec<Vec<Vec<u8>>> = names.iter().map(|_| elements(rng)).collect();
    let bytes = values.iter().flatten().map(|element| 2 * element.len() + 30).sum::<usize>();
    let count = values.iter().map(|value| 2 * value.len()).sum();
    let txn = store.begin_filling(0, partition, names.iter().copied(), count, bytes);
    let mut txn = match txn {
        Ok(txn) => txn,
        // The power was cut: the log has failed.
        Err(error) => return Err(OpenError::Unusable(format!("{error:?}"))),
    };
    for (name, value) in names.iter().zip(values) {
        match name[0] {
            b's' if name[1] == b't' => txn.set(0, name, &value.concat(), false).expect("room"),
            b'h' => {
                let fields = value.iter().map(|text| (&text[..], &text[..]));
                txn.hash_set(0, name, fields, Expiry::Clear).expect("room");
            }
            b'l' => {
                txn.list_push(0, name, End::Back, value.iter().map(Vec::as_slice), true).expect("room");
            }
            _ => {
                txn.set_add(0, name, value.iter().map(Vec::as_slice)).expect("room");
            }
        }
        let expires = rng.chance(3).then(|| (1 << 50) + rng.below(1000));
        if expires.is_some() {
            txn.set_expiry(0, name, expires).expect("room");
        }
        model.insert(name.to_vec(), (value, expires));
    }
    txn.commit();
    store.log().commit_once().map(drop)
}

/// Fills a new folder, with what goes on beside, and closes it.
fn fill(sim: &SimIo, rng: &mut Rng, model: &mut Model) -> holdfast_io::Result<()> {
    let store = open(sim, true)?;
    for number in 0..GROUPS {
        fill_group(&store, rng, number, model)?;
        match rng.below(12) {
            0 => store.checkpoint()?,
            1 => drop(store.freeze(rng.below(200_000))?),
            2 => drop(store.clean()?),
            3 => store.attach(),
            _ => {}
        }
    }
    store.close()
}

/// What a folder holds.
fn read(store: &Store) -> Model {
    let mut model = Model::new();
    store
        .visit_keys::<OpenError>(0, |txn, key| {
            let mut value: Vec<Vec<u8>> = match key[0] {
                b's' if key[1] == b't' => {
                    vec![txn.get(0, key).expect("a string").expect("it is there").to_vec()]
                }
                b'h' => {
                    let hash = txn.hash_at(0, key).expect("a hash").expect("it is there");
                    hash.fields().map(|field| field.name.to_vec()).collect()
                }
                b'l' => {
                    let list = txn.list_at(0, key).expect("a list").expect("it is there");
                    list.range(0, -1).map(<[u8]>::to_vec).collect()
                }
                _ => {
                    let set = txn.set_at(0, key).expect("a set").expect("it is there");
                    set.members().map(|member| member.to_vec()).collect()
                }
            };
            if !key.starts_with(b"list") {
                value.sort();
            }
            let expires = txn.expiry(0, key).expect("it is there");
            model.insert(key.to_vec(), (value, expires));
            Ok(())
        })
        .expect("a sound folder");
    model
}

/// The same of what was written.
fn sorted(model: &Model) -> Model {
    let mut sorted = model.clone();
    for (key, (value, _)) in &mut sorted {
        if key.starts_with(b"string") {
            *value = vec![value.concat()];
        } else if !key.starts_with(b"list") {
            value.sort();
        }
    }
    sorted
}

#[test]
fn a_folder_that_was_closed_has_all_and_one_that_was_not_is_refused() {
    with_seeds(40, |seed| {
        let (mut rng, mut model) = (Rng(seed), Model::new());
        let sim = SimIo::new(seed);
        fill(&sim, &mut Rng(seed), &mut model).expect("no cut");
        let all = sim.operations();
        // Even if the power goes after it was closed.
        let store = open(&sim.crash(), false).expect("it was closed");
        assert_eq!(store.recovery().replayed_batches, 0);
        store.check().expect("a sound store");
        assert!(read(&store) == sorted(&model));
        open::run(&store, &[b"more"], |txn| txn.set(0, b"more", b"value", false)).expect("it takes more");

        let mut refused = 0;
        for _ in 0..8 {
            let sim = SimIo::new(rng.next());
            // The last steps are those that matter most.
            sim.crash_after(if rng.chance(2) { all - rng.below(40) } else { 1 + rng.below(all) });
            let mut model = Model::new();
            let ended = fill(&sim, &mut Rng(seed), &mut model);
            match open(&sim.crash(), false) {
                Ok(store) => {
                    store.check().expect("a sound store");
                    let found = read(&store);
                    let is_new = found.is_empty() && ended.is_err();
                    assert!(is_new || found == sorted(&model), "{} keys of {}", found.len(), model.len());
                }
                Err(error) => {
                    assert!(ended.is_err(), "it was closed: {error}");
                    assert!(error.to_string().contains("has not come to its end"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "the power went while it was filled");
    });
}

/// The bytes of log that the same keys take, by whether their changes of the heap are in it.
#[test]
fn changes_of_the_heap_are_not_in_the_log() {
    let log_bytes = |is_filled| {
        let (store, mut model) = (open(&SimIo::new(1), is_filled).expect("a new store"), Model::new());
        (0..GROUPS)
            .for_each(|number| fill_group(&store, &mut Rng(number), number, &mut model).expect("room"));
        store.log().tail()
    };
    let (without, with) = (log_bytes(true), log_bytes(false));
    assert!(2 * without < with, "{without} bytes without redo, {with} with it");
}

/// A folder that is there already keeps its redo, whatever is asked for.
#[test]
fn only_a_new_folder_is_filled_so() {
    let sim = SimIo::new(1);
    let mut model = Model::new();
    fill_group(&open(&sim, false).expect("a new store"), &mut Rng(1), 1, &mut model).expect("room");
    let store = open(&sim, true).expect("a store");
    fill_group(&store, &mut Rng(2), 2, &mut model).expect("room");
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    let store = open(&sim.crash(), false).expect("nothing was lost");
    assert!(read(&store) == sorted(&model));
}
