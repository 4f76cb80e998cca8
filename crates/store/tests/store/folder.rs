//! The data folder as a power cut, a failing device or a stranger leaves it: made, found, and mended.

use crate::{
    open,
    seeds::{Rng, with_seeds},
};
use holdfast_io::{Fault, Further, Io, Spread};
use holdfast_store::{FILES, FORMAT_VERSIONS, Options, SimIo, Store};
use std::sync::Arc;

const SUPERBLOCK: &str = "superblock";
const BLOCK: usize = 4096;

/// One with either kind of medium.
fn any_machine(seed: u64) -> SimIo {
    if seed.is_multiple_of(3) { SimIo::on_scm(seed) } else { SimIo::new(seed) }
}

fn options() -> Options {
    Options {
        partitions: 1,
        segment_size: Some(64 << 10),
        log_bytes_max: 16 * (64 << 10),
        heap_bytes_max: 8 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimIo) -> holdfast_io::Result<Store> {
    Store::open_on(Arc::new(sim.clone()), options())
}

/// Writes some keys, each with this number; an error after the power was cut.
fn write(store: &Store, number: u64) -> holdfast_io::Result<()> {
    for key in 0..20u64 {
        let key = key.to_be_bytes();
        open::run(store, &[&key], |txn| txn.set(0, &key, &number.to_be_bytes(), false)).expect("room");
    }
    store.log().wait_durable(store.log().tail())
}

/// The number of each key.
fn numbers(store: &Store) -> Vec<u64> {
    let number = |key: u64| {
        let read = |txn: &mut holdfast_store::Txn| Ok(txn.get(0, &key.to_be_bytes())?.map(<[u8]>::to_vec));
        let (value, _) = open::run(store, &[&key.to_be_bytes()], read).expect("a sound value");
        value.map(|value| u64::from_be_bytes(value.try_into().expect("eight bytes")))
    };
    (0..20).map_while(number).collect()
}

fn is_cut(error: &holdfast_io::Error) -> bool {
    error.to_string().contains("simulated power cut")
}

#[test]
fn a_power_cut_at_any_operation_of_the_creation_is_followed_by_another_one() {
    with_seeds(4, |seed| {
        for operation in 1.. {
            let sim = any_machine(seed * 1000 + operation);
            sim.crash_after(operation);
            let ended = match open(&sim) {
                Ok(store) => sim.operations() < operation && write(&store, 1).is_ok(),
                Err(e) => {
                    assert!(is_cut(&e), "{e}");
                    false
                }
            };
            // The second one may be cut short, too, in the midst of removing what the first one left.
            let mut sim = sim.crash();
            sim.crash_after(1 + operation % 13);
            if let Err(e) = open(&sim) {
                assert!(is_cut(&e), "{operation}: {e}");
            }
            sim = sim.crash();
            let store = open(&sim).unwrap_or_else(|e| panic!("cut at operation {operation}: {e}"));
            write(&store, 2).expect("it works");
            assert_eq!(numbers(&store), [2; 20]);
            assert!(!sim.list("").expect("a folder").contains(&"creating".to_owned()));
            if ended {
                break;
            }
        }
    });
}

/// One life of a store that takes two checkpoints, up to the power cut; the last number that was acknowledged.
fn live(sim: &SimIo, number: u64) -> Result<(), (u64, holdfast_io::Error)> {
    let store = open(sim).map_err(|e| (number, e))?;
    for number in number..number + 2 {
        write(&store, number + 1).map_err(|e| (number, e))?;
        store.checkpoint().map_err(|e| (number + 1, e))?;
        store.attach();
        store.clean().map_err(|e| (number + 1, e))?;
    }
    Ok(())
}

/// Cuts the power at every operation of a life, and then in the next one, from its recovery to its end.
#[test]
fn two_power_cuts_in_a_row_leave_a_store_that_opens_with_all_data() {
    with_seeds(1, |seed| {
        let mut rng = Rng(seed);
        let new = |rng: &mut Rng| {
            let sim = any_machine(rng.next());
            drop(open(&sim).expect("a new store"));
            sim
        };
        let sim = new(&mut rng);
        let before = sim.operations();
        live(&sim, 0).expect("no cut");
        for first in 1..=sim.operations() - before {
            let (mut second, mut is_cut_short) = (0, true);
            while is_cut_short {
                second += 1 + rng.below(3);
                let (mut sim, mut acknowledged) = (new(&mut rng), 0);
                for cut in [first, second] {
                    sim.crash_after(cut);
                    let ended = live(&sim, acknowledged);
                    is_cut_short = ended.is_err();
                    acknowledged = match ended {
                        Ok(()) => acknowledged + 2,
                        Err((number, e)) => {
                            assert!(is_cut(&e), "cuts at {first} and {second}: {e}");
                            number
                        }
                    };
                    sim = sim.crash();
                }
                let store = open(&sim).unwrap_or_else(|e| panic!("cuts at {first} and {second}: {e}"));
                let found = numbers(&store);
                let is_there = found.len() == 20 || acknowledged == 0;
                let is_new = found.iter().all(|n| (acknowledged..acknowledged + 2).contains(n));
                assert!(is_there && is_new, "{acknowledged} was acknowledged: {found:?}");
                store.check().expect("a sound store");
            }
        }
    });
}

/// A store with two generations of its superblock: `(n + 1, n)` or the other way round.
fn with_an_older_copy(older: usize) -> SimIo {
    let sim = SimIo::new(1);
    let store = open(&sim).expect("a new store");
    write(&store, 1).expect("it works");
    let before = sim.snapshot(SUPERBLOCK);
    store.checkpoint().expect("it works");
    drop(store);
    let file = sim.open(SUPERBLOCK, false).expect("a file");
    let old = &before[older * BLOCK..(older + 1) * BLOCK];
    file.write_at(&[old], (older * BLOCK) as u64, holdfast_io::Durability::Durable).expect("it writes");
    sim
}

fn copies_are_the_same(sim: &SimIo) -> bool {
    let bytes = sim.snapshot(SUPERBLOCK);
    bytes[..BLOCK] == bytes[BLOCK..2 * BLOCK]
}

#[test]
fn an_older_copy_of_the_superblock_is_healed_before_anything_else_is_written() {
    for older in [0, 1] {
        let sim = with_an_older_copy(older);
        assert!(!copies_are_the_same(&sim));
        sim.crash_after(2);
        let opened = open(&sim);
        assert!(copies_are_the_same(&sim), "the first write was another one");
        drop(opened);
        let store = open(&sim.crash()).expect("sound");
        assert_eq!(numbers(&store), [1; 20]);
    }
}

#[test]
fn a_power_cut_while_a_copy_of_the_superblock_is_healed_leaves_the_other_one() {
    with_seeds(40, |seed| {
        let sim = SimIo::new(seed);
        let store = open(&sim).expect("a new store");
        write(&store, 1).expect("it works");
        store.checkpoint().expect("it works");
        drop(store);
        let damaged = seed % 2 * BLOCK as u64;
        sim.flip_bit(SUPERBLOCK, damaged + 20, 0);
        sim.crash_after(1);
        assert!(open(&sim).is_err());
        assert_eq!(numbers(&open(&sim.crash()).expect("the other one is sound")), [1; 20]);
    });
}

#[test]
fn a_copy_of_the_superblock_that_cannot_be_read_is_noted_and_written_anew() {
    for copy in [0usize, 1] {
        let sim = with_an_older_copy(1 - copy);
        drop(open(&sim).expect("it heals"));
        sim.fault(Fault::read(SUPERBLOCK).after(copy as u64));
        let store = open(&sim).expect("the other one is sound");
        let notes = &store.recovery().notes;
        let wanted = format!("superblock at offset {}: it cannot be read", copy * BLOCK);
        assert!(notes.iter().any(|note| note.starts_with(&wanted)), "{notes:?}");
        assert_eq!(numbers(&store), [1; 20]);
    }
    let sim = with_an_older_copy(0);
    sim.fault(Fault::read(SUPERBLOCK).sticky());
    assert!(matches!(open(&sim), Err(holdfast_io::Error::Io { .. })));
}

#[test]
fn after_a_failed_write_of_the_superblock_nothing_is_written_any_more() {
    for passes in [0, 1] {
        let sim = SimIo::new(1);
        let store = open(&sim).expect("a new store");
        write(&store, 1).expect("it works");
        sim.fault(Fault::write(SUPERBLOCK).after(passes));
        assert!(store.checkpoint().is_err());
        let written = sim.bytes_written();
        assert!(store.log().failed().is_some());
        assert!(store.checkpoint().is_err(), "it would write over what one of the copies may name");
        assert!(write(&store, 2).is_err());
        assert_eq!(sim.bytes_written(), written);
        drop(store);
        sim.clear_faults();
        assert_eq!(numbers(&open(&sim).expect("one copy is sound")), [1; 20]);
    }
}

fn touch(sim: &SimIo, name: &str, bytes: &[u8]) {
    let file = sim.open(name, true).expect("a file");
    file.write_at(&[bytes], 0, holdfast_io::Durability::Durable).expect("it writes");
    file.sync().and_then(|()| sim.sync_dir("")).expect("it writes");
}

/// Changes both copies of the superblock.
fn change_copies(sim: &SimIo, change: impl Fn(&mut [u8])) {
    let mut copies = sim.snapshot(SUPERBLOCK);
    for copy in copies.chunks_mut(BLOCK) {
        change(copy);
        let crc = holdfast_io::crc32c(&copy[..BLOCK - 4]);
        copy[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    touch(sim, SUPERBLOCK, &copies);
}

/// The power goes at each operation of a first start: an older version must not open what this one has begun to write.
#[test]
fn a_folder_of_an_older_format_is_of_this_one_before_anything_else_is_written() {
    let (older, newer) = FORMAT_VERSIONS.into_inner();
    let formats = |sim: &SimIo| {
        let copies = sim.snapshot(SUPERBLOCK);
        [0, BLOCK].map(|at| u32::from_le_bytes(copies[at + 8..at + 12].try_into().expect("four bytes")))
    };
    for operation in 1.. {
        let sim = any_machine(operation);
        let store = open(&sim).expect("a new store");
        assert_eq!(formats(&sim), [newer; 2]);
        write(&store, 1).expect("it works");
        drop(store);
        change_copies(&sim, |copy| copy[8..12].copy_from_slice(&older.to_le_bytes()));
        let files = |sim: &SimIo| ["log/00000000", "log/00000001", "heap"].map(|name| sim.snapshot(name));
        let before = files(&sim);
        sim.crash_after(operation);
        let is_done = open(&sim).and_then(|store| write(&store, 2)).is_ok();
        let sim = sim.crash();
        assert!(formats(&sim) == [newer; 2] || files(&sim) == before, "operation {operation}");
        assert!(
            [1, 2].map(|number| vec![number; 20]).contains(&numbers(&open(&sim).expect("a sound folder")))
        );
        if is_done {
            break;
        }
    }
}

#[test]
fn a_stray_file_creating_costs_nothing() {
    let with_a_folder = || {
        let sim = SimIo::new(1);
        let store = open(&sim).expect("a new store");
        let log = sim.snapshot("log/00000000");
        write(&store, 1).expect("it works");
        (sim, log[16..32].to_vec())
    };
    // What a start writes there, about this store and about another one, and what a hand does.
    let named = |store_id: &[u8]| {
        let mut bytes = [&b"HFCREATE"[..], store_id].concat();
        bytes.extend_from_slice(&holdfast_io::crc32c(&bytes).to_le_bytes());
        bytes
    };
    for content in [&b""[..], b"anything", &named(&with_a_folder().1), &named(&[7; 16])] {
        let (sim, _) = with_a_folder();
        touch(&sim, "creating", content);
        let store = open(&sim).expect("it is complete");
        assert_eq!(numbers(&store), [1; 20]);
        drop(store);
        assert!(!sim.list("").expect("a folder").contains(&"creating".to_owned()));

        // Even where the superblock is lost.
        for lose in [true, false] {
            let (sim, _) = with_a_folder();
            match lose {
                true => sim.remove(SUPERBLOCK).expect("a file"),
                false => [20, BLOCK as u64 + 20].iter().for_each(|&at| sim.flip_bit(SUPERBLOCK, at, 0)),
            }
            touch(&sim, "creating", content);
            let before = ["log/00000000", "heap"].map(|name| sim.snapshot(name));
            assert!(open(&sim).is_err(), "it holds data");
            assert!(["log/00000000", "heap"].map(|name| sim.snapshot(name)) == before);
        }
    }
}

/// The superblock knows that batches behind its checkpoint were durable, which were written while it was taken.
#[test]
fn what_is_refused_is_left_as_it_is() {
    let sim = SimIo::new(1);
    let store = open(&sim).expect("a new store");
    store.checkpoint().expect("it works");
    write(&store, 1).expect("it works");
    let durable = store.log().durable();
    drop(store);
    change_copies(&sim, |copy| copy[72..80].copy_from_slice(&durable.to_le_bytes()));
    // The only other one who knows of it is the segment that is written next.
    sim.remove("log/00000001").expect("a file");
    let last = sim.snapshot("log/00000000").iter().rposition(|&byte| byte != 0).expect("a log");
    sim.flip_bit("log/00000000", last as u64, 0);
    let (before, written) = (sim.snapshot("log/00000000"), sim.bytes_written());
    match open(&sim).map(drop) {
        Err(holdfast_io::Error::Corrupt { file, .. }) => assert_eq!(file, "log/00000000"),
        other => panic!("{other:?}"),
    }
    assert!(sim.snapshot("log/00000000") == before && sim.bytes_written() == written);
}

/// Opens a store with a folder below.
fn open_above(home: Arc<dyn Io>, drive: Arc<dyn Io>, heap_below: bool) -> holdfast_io::Result<Store> {
    let below = Further { path: "drive".to_owned(), is_below: true };
    let io = Spread::open(home, "home", FILES, &[below], &|_, _| Ok(drive.clone()))?;
    Store::open_on(io, Options { heap_below, ..options() })
}

/// The power goes at each operation while the heap's file moves to a folder below: it is where it was, or there, and whole.
#[test]
fn the_heap_moves_below_over_power_cuts() {
    let open = |sim: &SimIo, heap_below: bool| {
        open_above(sim.folder("home"), sim.folder_on_drive("drive"), heap_below)
    };
    let has =
        |sim: &SimIo, folder: &str| sim.list(folder).expect("a folder").iter().any(|name| name == "heap");
    for sim in [SimIo::new(5), SimIo::on_scm(5)] {
        let store = open(&sim, false).expect("a new folder");
        write(&store, 1).expect("a sound medium");
        store.close().expect("a sound medium");
        drop(store);
        assert!(has(&sim, "home") && !has(&sim, "drive"));
        let (mut in_both, mut operation, mut is_done) = (0, 0, false);
        while !is_done {
            operation += 1;
            let sim = sim.fork();
            sim.crash_after(operation);
            let opened = open(&sim, true).inspect_err(|e| assert!(is_cut(e), "{e}"));
            is_done = opened.is_ok();
            drop(opened);
            for heap_below in [true, false] {
                let sim = sim.crash();
                in_both += u32::from(has(&sim, "home") && has(&sim, "drive"));
                let was_moved = !has(&sim, "home");
                let store = open(&sim, heap_below).expect("it is whole somewhere");
                assert_eq!(numbers(&store), [1; 20], "operation {operation}");
                store.check().expect("a sound store");
                write(&store, 2).expect("a sound medium");
                store.checkpoint().expect("a sound medium");
                drop(store);
                let is_below = heap_below || was_moved;
                assert_eq!([has(&sim, "home"), has(&sim, "drive")], [!is_below, is_below]);
                // It is not moved back.
                let store = open(&sim.crash(), false).expect("it is found");
                assert_eq!(numbers(&store), [2; 20]);
            }
        }
        assert!(in_both > 0 && operation > 5);
    }
}

/// A medium below without room for it refuses the start, and changes nothing.
#[test]
fn a_heap_that_has_no_room_below_stays() {
    let (sim, drive) = (SimIo::new(5), SimIo::new(6));
    let open = |heap_below: bool| open_above(Arc::new(sim.clone()), Arc::new(drive.clone()), heap_below);
    let store = open(false).expect("a new folder");
    write(&store, 1).expect("a sound medium");
    store.close().expect("a sound medium");
    drop(store);
    drive.set_capacity(10_000);
    let refused = open(true).err().expect("there is no room").to_string();
    assert!(refused.starts_with("move heap"), "{refused}");
    assert!(drive.list("").expect("a folder").iter().all(|name| name != "heap"));
    assert_eq!(numbers(&open(false).expect("as before")), [1; 20]);
    drive.set_capacity(1 << 30);
    assert_eq!(numbers(&open(true).expect("there is room")), [1; 20]);
}
