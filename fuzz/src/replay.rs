//! Damaged media: a start finds out or was not concerned, and never panics.

use crate::Rng;
use holdfast_heap::{Heap, HeapOptions, Record, SortedRedo, Tx};
use holdfast_io::{Durability, Io};
use holdfast_store::{Error, Options, SimIo, Store};
use std::{collections::HashMap, sync::Arc};

const KEYS: u64 = 40;

fn options() -> Options {
    Options {
        partitions: 2,
        segment_size: Some(64 << 10),
        log_bytes_max: 4 << 20,
        heap_bytes_max: 8 << 20,
        background: false,
        ..Options::default()
    }
}

/// The value of a key, or why it cannot be read.
fn get(store: &Store, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut fetched = Vec::new();
    loop {
        let mut txn = store.begin_keys([key]);
        txn.supply(std::mem::take(&mut fetched));
        let cold = match txn.get(0, key) {
            Ok(value) => return Ok(value.map(<[u8]>::to_vec)),
            Err(Error::Cold(cold)) => cold,
            Err(e) => return Err(e.to_string()),
        };
        drop(txn);
        fetched.push(store.fetch(cold));
    }
}

/// Overwrites, cuts or exchanges parts of the log's files, of the superblock, and of what is condensed. (A damaged page of the heap file stops
/// the process when it is used, so that is tested on the real binary.)
fn damage(io: &SimIo, rng: &mut Rng) {
    let mut names: Vec<String> =
        io.list("log").expect("list").iter().map(|name| format!("log/{name}")).collect();
    names.push("superblock".into());
    names.extend(io.list("").expect("list").into_iter().filter(|name| name == "redo"));
    for _ in 0..=rng.below(3) {
        let name = &names[rng.index(names.len())];
        let bytes = io.snapshot(name);
        if bytes.is_empty() {
            continue;
        }
        let at = if rng.one_in(2) { rng.index(bytes.len()) } else { rng.index(bytes.len().min(8 << 10)) };
        let file = io.open(name, false).expect("open");
        let with = match rng.below(5) {
            0 => vec![0; rng.index(5000)],
            1 => rng.bytes(5000),
            2 => vec![bytes[at] ^ 1 << rng.below(8)],
            3 => {
                let other = io.snapshot(&names[rng.index(names.len())]);
                other[rng.index(other.len() + 1)..].iter().copied().take(5000).collect()
            }
            _ => {
                file.set_len(at as u64).expect("set length");
                continue;
            }
        };
        file.write_at(&[&with], at as u64, Durability::Durable).expect("write");
    }
}

/// A start from a damaged log or superblock fails, or serves only values that their keys had.
pub fn a_damaged_log_or_superblock_never_leads_to_a_wrong_value(rng: &mut Rng) {
    let io = SimIo::new(rng.draw());
    let store = Store::open_on(Arc::new(io.clone()), options()).expect("a new store");
    let mut written: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
    for _ in 0..rng.below(100) {
        let key = rng.below(KEYS);
        let value = rng.bytes(3000);
        let mut txn = store.begin_all();
        txn.set(0, key.to_string().as_bytes(), &value, false).expect("room");
        txn.commit();
        written.entry(key).or_default().push(value);
        if rng.one_in(4) {
            store.log().commit_once().expect("commit");
        }
        if rng.one_in(10) {
            store.condense();
        }
        if rng.one_in(30) {
            store.checkpoint().expect("checkpoint");
        }
    }
    let io = io.crash();
    drop(store);
    damage(&io, rng);
    let Ok(store) = Store::open_on(Arc::new(io), options()) else { return };
    for key in 0..KEYS {
        if let Ok(Some(value)) = get(&store, key.to_string().as_bytes()) {
            let known = written.get(&key).is_some_and(|values| values.contains(&value));
            assert!(known, "key {key} has a value that it never had");
        }
    }
    // An item that is damaged is found; that is no reason to panic either.
    let _ = store.check();
}

/// Redo records with mistakes in them are refused, or change the heap's own memory only.
pub fn arbitrary_redo_records_do_no_harm(rng: &mut Rng) {
    let io = SimIo::new(rng.draw());
    let o = || HeapOptions { max_bytes: 4 << 20, arenas: 2 };
    let file = io.open("heap", true).expect("open");
    let (heap, mut arenas) = Heap::create(file.clone(), o()).expect("a new heap");
    let mut tx = Tx::new();
    for _ in 0..rng.below(20) {
        let arena = &mut arenas[rng.index(2)];
        let len = 1 + rng.index(20_000);
        if let Ok(offset) = arena.alloc(&mut tx, len) {
            arena.write(&mut tx, offset, &vec![rng.draw() as u8; len]);
        }
    }
    let mut checkpoint = heap.begin_checkpoint();
    for arena in &mut arenas {
        while checkpoint.copy(arena, 64) {}
    }
    let finished = checkpoint.finish().expect("a checkpoint");
    let root = *finished.root();
    finished.commit();
    let mut redo = tx.buf.clone();
    let is_sorted = rng.one_in(2);
    if is_sorted {
        let mut sorted = SortedRedo::default();
        Record::all(&tx.buf).flatten().for_each(|record| sorted.add(&record));
        redo.clear();
        sorted.encode(&mut redo);
    }
    for _ in 0..rng.below(10) {
        rng.mutate(&mut redo);
    }
    let (_, mut recovery) = Heap::open(file, o(), &root).expect("the checkpoint is sound");
    if is_sorted {
        let _ = recovery.apply_encoded(&redo);
    } else if rng.one_in(2) {
        let mut sorted = SortedRedo::default();
        Record::all(&redo).map_while(|record| record).for_each(|record| sorted.add(&record));
        let _ = recovery.apply_sorted(sorted);
    } else {
        for record in Record::all(&redo) {
            if record.is_none_or(|record| recovery.apply(&record).is_err()) {
                break;
            }
        }
    }
    let _ = recovery.finish();
}
