//! A heap that lies in storage-class memory, where any subset of the words survives that were stored since the last fence.

use std::sync::Arc;

use crate::world::Random;
use holdfast_heap::{Arena, EXTENT, Heap, HeapOptions, Home, HomeMethod, Image, Record, Tx};
use holdfast_io::{Error, Fault, Io, Result, SimIo};

const OPTIONS: HeapOptions = HeapOptions { max_bytes: 16 * EXTENT, arenas: 2 };
const STORE: [u8; 16] = *b"a store of tests";
/// Those that are atomic.
const METHODS: [HomeMethod; 3] = [HomeMethod::Cow, HomeMethod::Lat, HomeMethod::Latb];

/// A heap in its home, a log of redo, and the blocks that are allocated.
struct World {
    random: Random,
    sim: SimIo,
    method: HomeMethod,
    home: Arc<Home>,
    heap: Arc<Heap>,
    arenas: Vec<Arena>,
    blocks: Vec<Block>,
    /// What the log has of `lat`, all of it durable.
    log: Vec<Vec<u8>>,
    /// What it is about to have.
    appended: Vec<Vec<u8>>,
    tx: Tx,
}

/// Its arena, offset and size.
type Block = (usize, u64, usize);

fn images(arenas: &[Arena]) -> Vec<Image> {
    arenas.iter().map(Arena::image).collect()
}

fn difference(expected: &[Image], found: &[Arena]) -> Option<String> {
    expected.iter().zip(found).find_map(|(expected, found)| expected.first_difference(&found.image()))
}

/// Which of some states arenas are in.
fn state(states: &[(Vec<Image>, Vec<Block>)], arenas: &[Arena]) -> Option<usize> {
    states.iter().position(|(images, _)| difference(images, arenas).is_none())
}

/// Opens what is there, as a start does.
fn open(sim: &SimIo, method: HomeMethod, log: &[Vec<u8>]) -> Result<(Arc<Home>, Arc<Heap>, Vec<Arena>)> {
    let home = Home::open(Arc::new(sim.clone()), STORE, OPTIONS.arenas, method)?;
    for record in log.iter().flat_map(|redo| Record::all(redo)) {
        home.apply(&record.unwrap())?;
    }
    home.fence()?;
    let (heap, arenas) = Heap::open_home(home.clone(), OPTIONS)?;
    Ok((home, heap, arenas))
}

impl World {
    fn new(seed: u64, method: HomeMethod) -> World {
        let sim = SimIo::on_scm(seed);
        let (first, mut arenas) = Heap::create(sim.open("heap", true).unwrap(), OPTIONS).unwrap();
        let mut tx = Tx::new();
        let blocks =
            (0..40).map(|i| (i % 2, arenas[i % 2].alloc(&mut tx, 100 + 300 * i).unwrap(), 100 + 300 * i));
        let blocks = blocks.collect();
        tx.committed();
        let home = Home::create(Arc::new(sim.clone()), STORE, OPTIONS.arenas, method).unwrap();
        first.move_to(&home, &arenas).unwrap();
        let (home, heap, arenas) = open(&sim, method, &[]).unwrap();
        World {
            random: Random(seed),
            sim,
            method,
            home,
            heap,
            arenas,
            blocks,
            log: Vec::new(),
            appended: Vec::new(),
            tx: Tx::new(),
        }
    }

    /// Changes the heap in memory, as a transaction does before it is committed.
    fn change(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(12) {
                0..4 => {
                    let (arena, size) = (self.random.below(2) as usize, self.random.size().min(400_000));
                    if let Ok(offset) = self.arenas[arena].alloc(&mut self.tx, size) {
                        let bytes = vec![self.random.below(256) as u8; size.min(9000)];
                        self.arenas[arena].write(&mut self.tx, offset, &bytes);
                        self.blocks.push((arena, offset, size));
                    }
                }
                4..7 if !self.blocks.is_empty() => {
                    let i = self.random.below(self.blocks.len() as u64) as usize;
                    let (arena, offset, size) = self.blocks.swap_remove(i);
                    self.arenas[arena].free(&mut self.tx, offset, size);
                }
                7 => drop(self.arenas[self.random.below(2) as usize].give_back(&mut self.tx, 2)),
                _ if !self.blocks.is_empty() => {
                    let (arena, offset, size) =
                        self.blocks[self.random.below(self.blocks.len() as u64) as usize];
                    let len = 1 + self.random.below(size.min(300) as u64) as usize;
                    let at = offset + self.random.below((size - len + 1) as u64);
                    let bytes = vec![self.random.below(256) as u8; len];
                    self.arenas[arena].write(&mut self.tx, at, &bytes);
                    if self.random.chance(2) {
                        // Once more, and not in the same record.
                        self.arenas[arena].fill(&mut self.tx, offset, 1, self.random.below(256) as u8);
                        self.arenas[arena].write(&mut self.tx, at, &vec![self.random.below(256) as u8; len]);
                    }
                }
                _ => {}
            }
        }
    }

    /// Ends the transaction: it waits for a commit.
    fn enqueue(&mut self) {
        let redo = std::mem::take(&mut self.tx.buf);
        self.tx.clear();
        self.home.enqueue(|all| {
            all.extend_from_slice(&redo);
            0
        });
        self.appended.push(redo);
        self.tx.committed();
    }

    /// Commits what waits, and what was changed last.
    fn commit(&mut self) -> Result<()> {
        self.enqueue();
        let (log, appended) = (&mut self.log, std::mem::take(&mut self.appended));
        let mut write = || {
            // The log's own fence.
            self.sim.fence().map_err(|e| Error::io("write log", e))?;
            if self.method == HomeMethod::Lat {
                log.extend_from_slice(&appended);
            }
            Ok(())
        };
        self.home.commit(1, &mut write)?;
        if self.random.chance(20) {
            // As a checkpoint does, when no transaction is under way.
            self.log.clear();
        }
        Ok(())
    }

    /// Goes on with what a start makes of a machine.
    fn restart(&mut self, sim: SimIo) {
        let (home, heap, arenas) = open(&sim, self.method, &self.log).unwrap();
        (self.sim, self.home, self.heap, self.arenas, self.tx) = (sim, home, heap, arenas, Tx::new());
        self.appended.clear();
    }
}

/// A sync of a new file has failed, and the next start finds it longer than the medium knows.
#[test]
fn what_is_stored_behind_a_length_that_was_not_synced_is_there_after_a_power_cut() {
    for method in [HomeMethod::Cow, HomeMethod::Latb] {
        let (mut operation, mut is_done) = (0, false);
        while !is_done {
            operation += 1;
            let mut world = World::new(operation, method);
            let blocks = world.blocks.clone();
            world.change();
            world.sim.fault(Fault::sync("home/undo-0"));
            world.commit().expect_err("the undo log cannot be made");
            world.sim.clear_faults();
            world.restart(world.sim.clone());
            world.blocks = blocks;
            let before = images(&world.arenas);
            world.change();
            let after = images(&world.arenas);
            world.sim.crash_after(operation);
            is_done = world.commit().is_ok();
            for _ in 0..4 {
                let (.., arenas) = open(&world.sim.crash(), method, &[]).expect("a sound home");
                let differences = [&before, &after].map(|expected| difference(expected, &arenas));
                assert!(
                    differences.iter().any(Option::is_none),
                    "operation {operation} by {method:?}: {differences:?}"
                );
            }
        }
        assert!(operation > 1, "a cut came while it was committed");
    }
}

/// Runs histories with a power cut in each, at one of its fences, and opens some of what may be left then. Returns how many that were, and
/// of these how many had any of the transactions that were under way.
fn histories(seeds: std::ops::Range<u64>, method: HomeMethod, images_a_cut: u64) -> (u64, u64) {
    let (mut opened, mut after_it, mut evicted) = (0, 0, 0);
    for seed in seeds {
        println!("seed {seed}, {method:?}");
        let mut world = World::new(seed, method);
        for _ in 0..6 {
            let operations = 1 + world.random.below(60);
            world.sim.crash_after(operations);
            let states = loop {
                let mut states = vec![(images(&world.arenas), world.blocks.clone())];
                for others in (0..1 + world.random.below(3)).rev() {
                    world.change();
                    states.push((images(&world.arenas), world.blocks.clone()));
                    if others > 0 {
                        world.enqueue();
                    }
                }
                if world.commit().is_err() {
                    break states;
                }
                if world.random.chance(10) {
                    // Twice around: all was just used.
                    for arena in &mut world.arenas {
                        evicted += arena.evict(40).pages + arena.evict(40).pages;
                    }
                    let (after, _) = states.last().expect("one at least");
                    assert_eq!(difference(after, &world.arenas), None, "what leaves memory is at home");
                }
            };
            let mut cut = world.sim.crash();
            for _ in 0..images_a_cut {
                opened += 1;
                let (_home, _heap, arenas) = open(&cut, method, &world.log).unwrap();
                arenas.iter().for_each(|arena| arena.check().unwrap());
                let found = state(&states, &arenas).expect("as it was behind one of them, or before");
                after_it += u64::from(found > 0);
                cut = world.sim.crash();
            }
            world.restart(cut);
            let found = state(&states, &world.arenas).expect("as it was behind one of them, or before");
            world.blocks = states[found].1.clone();
        }
    }
    assert!(evicted > 0, "pages have left memory");
    (opened, after_it)
}

#[test]
fn a_transaction_is_whole_or_not_at_all_after_a_power_cut_at_any_fence() {
    let images_a_cut = std::env::var("HOLDFAST_IMAGES").map_or(6, |images| images.parse().expect("a number"));
    for method in METHODS {
        let (opened, after_it) = histories(0..8, method, images_a_cut);
        println!("{method:?}: {opened} images, {after_it} with the transaction");
        assert!(after_it > 0 && after_it < opened, "both outcomes are seen");
    }
}

/// What is made zero for the one who takes it is the bytes of the one who had it, until it is durable that this one has it no more.
#[test]
fn an_extent_that_changes_hands_within_a_commit_is_nobodys_first() {
    const SIZE: usize = 300_000;
    for method in METHODS {
        let (mut operation, mut is_done) = (0, false);
        while !is_done {
            operation += 1;
            let mut world = World::new(1, method);
            let block = world.arenas[0].alloc(&mut world.tx, SIZE).unwrap();
            world.arenas[0].write(&mut world.tx, block, &[7; SIZE]);
            world.commit().unwrap();
            let mut states = vec![(images(&world.arenas), Vec::new())];
            world.arenas[0].free(&mut world.tx, block, SIZE);
            states.push((images(&world.arenas), Vec::new()));
            world.enqueue();
            let taken = world.arenas[1].alloc(&mut world.tx, SIZE).unwrap();
            assert_eq!(taken, block, "the heap uses again what is free");
            world.arenas[1].write(&mut world.tx, taken, &[8; 100]);
            states.push((images(&world.arenas), Vec::new()));
            world.sim.crash_after(operation);
            is_done = world.commit().is_ok();
            for _ in 0..4 {
                let (.., arenas) = open(&world.sim.crash(), method, &world.log).expect("a sound home");
                assert!(state(&states, &arenas).is_some(), "operation {operation} by {method:?}");
            }
        }
        assert!(operation > 2, "a cut came while it was committed");
    }
}

#[test]
fn without_a_power_cut_nothing_is_undone() {
    for method in METHODS.into_iter().chain([HomeMethod::None]) {
        for seed in 0..5 {
            let mut world = World::new(seed, method);
            for _ in 0..100 {
                world.change();
                world.commit().unwrap();
                if world.random.chance(10) {
                    let expected = images(&world.arenas);
                    let fork = if world.random.chance(2) { world.sim.crash() } else { world.sim.fork() };
                    world.restart(fork);
                    assert_eq!(difference(&expected, &world.arenas), None, "seed {seed}, {method:?}");
                    world.heap.verify().unwrap();
                    while world.heap.load_next(holdfast_heap::Load::All, 1 << 20).unwrap() {}
                    assert!(!world.heap.has_absent());
                }
            }
        }
    }
}

#[test]
fn a_heap_goes_back_to_a_file_of_its_own() {
    for seed in 0..5 {
        let mut world = World::new(seed, HomeMethod::Latb);
        (0..50).for_each(|_| {
            world.change();
            world.commit().unwrap();
        });
        let expected = images(&world.arenas);
        let file = world.sim.open("another", true).unwrap();
        let (heap, recovery) = Heap::take_over(&world.home, Some(file.clone()), OPTIONS).unwrap();
        let mut arenas = recovery.finish().unwrap();
        assert_eq!(difference(&expected, &arenas), None);
        arenas.iter().for_each(|arena| arena.check().unwrap());
        let finished = crate::world::checkpoint_now(&heap, &mut arenas).unwrap();
        let root = *finished.root();
        finished.commit();
        let arenas = Heap::open(file, OPTIONS, &root).unwrap().1.finish().unwrap();
        assert_eq!(difference(&expected, &arenas), None);
    }
}

#[test]
fn a_medium_without_room_makes_the_heap_full() {
    let mut world = World::new(1, HomeMethod::Cow);
    world.sim.set_capacity(0);
    let mut blocks = 0;
    while let Ok(offset) = world.arenas[0].alloc(&mut world.tx, 60_000) {
        world.blocks.push((0, offset, 60_000));
        blocks += 1;
        assert!(blocks < 100, "it is full at some time");
    }
    world.sim.set_capacity(1 << 40);
    assert!(world.arenas[0].alloc(&mut world.tx, 60_000).is_ok(), "and not for ever");
}

#[test]
fn a_failed_store_is_told_and_what_is_open_is_undone_by_the_next_start() {
    for method in [HomeMethod::Cow, HomeMethod::Latb] {
        let mut world = World::new(3, method);
        let before = images(&world.arenas);
        world.sim.fault(Fault::write("home/pages").after(1));
        while !world.random.chance(1000) {
            world.change();
            if world.tx.buf.len() > 2000 {
                break;
            }
        }
        assert!(world.commit().is_err());
        world.sim.clear_faults();
        let cut = world.sim.crash();
        world.restart(cut);
        assert_eq!(difference(&before, &world.arenas), None);
    }
}

#[test]
fn homes_of_others_and_damaged_ones_are_refused() {
    let world = World::new(1, HomeMethod::Cow);
    let open = |sim: &SimIo, store: [u8; 16], arenas| {
        let home = Home::open(Arc::new(sim.clone()), store, arenas, HomeMethod::Cow)?;
        Heap::open_home(home, HeapOptions { arenas, ..OPTIONS }).map(drop)
    };
    assert!(open(&world.sim, STORE, 2).is_ok());
    assert!(open(&world.sim, [0; 16], 2).unwrap_err().to_string().contains("not that of this store"));
    assert!(open(&world.sim, STORE, 1).unwrap_err().to_string().contains("not that of this store"));
    // The owner of the first extent.
    world.sim.flip_bit("home/owners", 4096, 2);
    assert!(open(&world.sim, STORE, 2).unwrap_err().to_string().contains("cannot belong to owner"));
}
