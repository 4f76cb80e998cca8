//! Checkpoints beside transactions, case by case.

use std::sync::Arc;

use crate::world::checkpoint_now;
use holdfast_heap::{Arena, EXTENT, Heap, HeapOptions, HeapRoot, Load, PAGE, Record, Tx};
use holdfast_io::{Io, RealIo, SimIo};

const OPTIONS: HeapOptions = HeapOptions { max_bytes: 16 * EXTENT, arenas: 2 };
const BIG: usize = 3 * EXTENT as usize;

fn create(sim: &SimIo) -> (Arc<Heap>, Vec<Arena>) {
    Heap::create(sim.open("heap", true).unwrap(), OPTIONS).unwrap()
}

/// Opens what a checkpoint has left, and applies redo.
fn open(sim: &dyn Io, root: &HeapRoot, redo: &[u8]) -> (Arc<Heap>, Vec<Arena>) {
    let file = sim.open("heap", false).unwrap();
    let (heap, mut recovery) = Heap::open(file, OPTIONS, root).unwrap();
    for record in Record::all(redo) {
        recovery.apply(&record.unwrap()).unwrap();
    }
    let arenas = recovery.finish().unwrap();
    arenas.iter().for_each(|arena| arena.check().unwrap());
    (heap, arenas)
}

fn checkpoint(heap: &Arc<Heap>, arenas: &mut [Arena]) -> HeapRoot {
    let finished = checkpoint_now(heap, arenas).unwrap();
    let root = *finished.root();
    finished.commit();
    root
}

#[test]
fn an_extent_may_change_hands_between_two_copies() {
    for to in [0, 1] {
        let sim = SimIo::new(1);
        let (heap, mut arenas) = create(&sim);
        let mut tx = Tx::new();
        let first = arenas[0].alloc(&mut tx, BIG).unwrap();
        arenas[0].fill(&mut tx, first, BIG, 1);
        checkpoint(&heap, &mut arenas);
        arenas[0].fill(&mut tx, first, 5 * PAGE, 2);
        tx.clear();

        let mut running = heap.begin_checkpoint();
        assert!(running.copy(&mut arenas[0], 1));
        while to == 1 && running.copy(&mut arenas[0], 100) {}
        arenas[0].free(&mut tx, first, BIG);
        tx.committed();
        let second = arenas[to].alloc(&mut tx, BIG).unwrap();
        assert_eq!(second, first);
        arenas[to].fill(&mut tx, second + PAGE as u64, PAGE, 3);
        for arena in &mut arenas {
            while running.copy(arena, 100) {}
        }
        let finished = running.finish().unwrap();
        let root = *finished.root();
        finished.commit();

        let expect = |arena: &Arena| {
            let bytes = arena.bytes(second, BIG);
            assert!(bytes.iter().enumerate().all(|(at, &b)| b == if at / PAGE == 1 { 3 } else { 0 }));
            assert_eq!(arena.allocated_bytes(), BIG as u64);
        };
        let (heap, mut replayed) = open(&sim, &root, &tx.buf);
        expect(&replayed[to]);
        heap.verify().unwrap();
        // The next checkpoint has all of it without the redo.
        let root = checkpoint(&heap, &mut replayed);
        expect(&open(&sim, &root, &[]).1[to]);
    }
}

#[test]
fn an_extent_that_was_copied_for_two_owners_is_kept_for_the_second() {
    let sim = SimIo::new(1);
    let (heap, mut arenas) = create(&sim);
    let mut tx = Tx::new();
    let first = arenas[0].alloc(&mut tx, BIG).unwrap();
    arenas[0].fill(&mut tx, first, BIG, 1);
    // Copied for arena 0 and then for arena 1, in one checkpoint.
    let mut running = heap.begin_checkpoint();
    while running.copy(&mut arenas[0], 100) {}
    arenas[0].free(&mut tx, first, BIG);
    tx.committed();
    let second = arenas[1].alloc(&mut tx, BIG).unwrap();
    arenas[1].fill(&mut tx, second, BIG, 2);
    while running.copy(&mut arenas[1], 100) {}
    running.finish().unwrap().commit();
    // The pages are clean now, so the next checkpoint has to find them where the last one put them.
    let root = checkpoint(&heap, &mut arenas);
    let (_, arenas) = open(&sim, &root, &[]);
    assert!(arenas[1].bytes(second, BIG).iter().all(|&byte| byte == 2));
}

#[test]
fn an_extent_that_is_freed_leaves_the_file() {
    let sim = SimIo::new(1);
    let (heap, mut arenas) = create(&sim);
    let mut tx = Tx::new();
    let empty = checkpoint(&heap, &mut arenas);
    let slots = heap.stats().file_slots_used;
    let big = arenas[0].alloc(&mut tx, BIG).unwrap();
    arenas[0].fill(&mut tx, big, BIG, 1);
    checkpoint(&heap, &mut arenas);
    assert!(heap.stats().file_slots_used >= slots + (BIG / PAGE) as u64);
    arenas[0].free(&mut tx, big, BIG);
    tx.committed();
    checkpoint(&heap, &mut arenas);
    let stats = heap.stats();
    assert_eq!((stats.file_slots_used, stats.extents, stats.allocated_bytes), (slots, 2, 0));
    // Freed space is cut off, not only noted.
    checkpoint(&heap, &mut arenas);
    let len = sim.snapshot("heap").len() as u64 / PAGE as u64;
    assert!(len < 3 * slots, "{len}");
    assert_eq!(HeapRoot::decode(&empty.encode()), empty);
}

#[test]
fn a_checkpoint_without_changes_writes_only_the_root_table() {
    let (heap, mut arenas) = create(&SimIo::new(1));
    checkpoint(&heap, &mut arenas);
    let before = heap.stats().pages_written;
    checkpoint(&heap, &mut arenas);
    assert_eq!(heap.stats().pages_written, before + 1);
}

#[test]
#[should_panic(expected = "one checkpoint at a time")]
fn there_is_one_checkpoint_at_a_time() {
    let (heap, _arenas) = create(&SimIo::new(1));
    let _first = heap.begin_checkpoint();
    heap.begin_checkpoint();
}

#[test]
fn a_copy_is_short_and_a_stage_limited() {
    let (heap, mut arenas) = create(&SimIo::new(1));
    let mut tx = Tx::new();
    let big = arenas[0].alloc(&mut tx, 12 * EXTENT as usize).unwrap();
    arenas[0].fill(&mut tx, big, 10 * EXTENT as usize, 1);
    let mut running = heap.begin_checkpoint();
    let mut calls = 0;
    while running.copy(&mut arenas[0], 8) {
        running.write().unwrap();
        calls += 1;
    }
    assert!((640 / 8..640 / 8 + 40).contains(&calls), "{calls}");
    while running.copy(&mut arenas[1], 8) {}
    running.finish().unwrap().commit();
    heap.verify().unwrap();
}

#[test]
fn loading_and_touching_go_together() {
    let sim = SimIo::new(1);
    let (heap, mut arenas) = create(&sim);
    let mut tx = Tx::new();
    let big = arenas[0].alloc(&mut tx, 10 * EXTENT as usize).unwrap();
    for page in 0..640 {
        arenas[0].fill(&mut tx, big + page * PAGE as u64, PAGE, page as u8 | 1);
    }
    let root = checkpoint(&heap, &mut arenas);
    let (heap, mut arenas) = open(&sim, &root, &[]);
    assert!(heap.stats().resident_bytes <= 2 * EXTENT);
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| while heap.load_next(Load::All, 64 << 10).unwrap() {});
        for page in (0..640).rev() {
            let bytes = arenas[0].bytes(big + page * PAGE as u64, PAGE);
            assert!(bytes.iter().all(|&byte| byte == page as u8 | 1));
        }
        // Also while pages are loaded that are given up.
        arenas[0].free(&mut tx, big, 10 * EXTENT as usize);
        tx.committed();
        loader.join().unwrap();
    });
    assert_eq!(heap.stats().resident_bytes, 2 * EXTENT);
}

#[test]
fn a_real_file_does_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let io = RealIo::new(folder.path()).unwrap();
    let (heap, mut arenas) = Heap::create(io.open("heap", true).unwrap(), OPTIONS).unwrap();
    let mut tx = Tx::new();
    let blocks: Vec<u64> = (1..200).map(|i| arenas[0].alloc(&mut tx, i * 50).unwrap()).collect();
    blocks.iter().for_each(|&block| arenas[0].write_u64(&mut tx, block, !block));
    let root = checkpoint(&heap, &mut arenas);
    let (heap, arenas) = open(&io, &root, &[]);
    assert!(blocks.iter().all(|&block| arenas[0].u64(block) == !block));
    heap.verify().unwrap();
}

/// Blocks in three extents that were changed after a checkpoint: the checkpoint, the redo, the blocks.
fn changed_after_a_checkpoint(sim: &SimIo) -> (HeapRoot, Vec<u8>, [u64; 3]) {
    let (heap, mut arenas) = create(sim);
    let mut tx = Tx::new();
    let blocks = [0, 1, 1].map(|arena| {
        let block = arenas[arena].alloc(&mut tx, EXTENT as usize).unwrap();
        arenas[arena].fill(&mut tx, block, 20 * PAGE, 7);
        block
    });
    let root = checkpoint(&heap, &mut arenas);
    tx.committed();
    tx.clear();
    for (block, arena) in blocks.into_iter().zip([0, 1, 1]) {
        for value in 1..=9 {
            arenas[arena].write_u64(&mut tx, block + PAGE as u64 - 4, value);
            arenas[arena].write_u64(&mut tx, block + 100, value);
            arenas[arena].write_u64(&mut tx, block + 100, value * 10);
        }
    }
    (root, tx.buf.clone(), blocks)
}

#[test]
fn redo_waits_for_who_needs_it() {
    let sim = SimIo::new(1);
    let (root, redo, blocks) = changed_after_a_checkpoint(&sim);
    let changed = |arena: &Arena, block| {
        assert_eq!(arena.u64(block + PAGE as u64 - 4), 9);
        assert_eq!(arena.u64(block + 100), 90);
        assert_eq!((arena.u8(block + 99), arena.u8(block + 108)), (7, 7));
    };
    let (heap, mut arenas) = open(&sim, &root, &redo);
    let waiting = || {
        let mut waiting = heap.with_redo();
        waiting.sort_unstable();
        waiting
    };
    let extent = |block| (block / EXTENT) as u32;
    assert_eq!(waiting(), [(0, extent(blocks[0])), (1, extent(blocks[1])), (1, extent(blocks[2]))]);
    let untouched = heap.stats().resident_bytes;
    changed(&arenas[0], blocks[0]);
    assert_eq!(heap.stats().resident_bytes, untouched + 2 * PAGE as u64);
    assert_eq!(waiting(), [(1, extent(blocks[1])), (1, extent(blocks[2]))]);
    // Given up, it needs none.
    arenas[1].free(&mut Tx::new(), blocks[1], EXTENT as usize);
    assert_eq!(waiting(), [(1, extent(blocks[2]))]);
    assert!(!arenas[0].apply_redo(extent(blocks[2])).unwrap(), "another arena's");
    assert!(arenas[1].apply_redo(extent(blocks[2])).unwrap());
    assert!(!arenas[1].apply_redo(extent(blocks[2])).unwrap());
    assert_eq!(waiting(), []);
    changed(&arenas[1], blocks[2]);

    // Also for a checkpoint.
    let (heap, mut arenas) = open(&sim, &root, &redo);
    let root = checkpoint(&heap, &mut arenas);
    let (_, arenas) = open(&sim, &root, &[]);
    blocks.into_iter().zip([0, 1, 1]).for_each(|(block, arena)| changed(&arenas[arena], block));
}

#[test]
fn redo_for_a_damaged_page_is_an_error_every_time() {
    let sim = SimIo::new(1);
    let (root, redo, blocks) = changed_after_a_checkpoint(&sim);
    for (page, bytes) in sim.snapshot("heap").chunks(PAGE).enumerate() {
        if bytes.iter().all(|&byte| byte == 7) {
            sim.flip_bit("heap", (page * PAGE + 50) as u64, 3);
        }
    }
    let (_, mut recovery) = Heap::open(sim.open("heap", false).unwrap(), OPTIONS, &root).unwrap();
    for record in Record::all(&redo) {
        recovery.apply(&record.unwrap()).unwrap();
    }
    let mut arenas = recovery.finish().unwrap();
    for _ in 0..2 {
        let error = arenas[0].apply_redo((blocks[0] / EXTENT) as u32).unwrap_err();
        assert!(error.to_string().contains("heap"), "{error}");
    }
}
