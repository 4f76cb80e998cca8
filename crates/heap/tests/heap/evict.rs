//! Pages leave memory and come back.

use std::{
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::world::{Random, checkpoint_now};
use holdfast_heap::{Arena, EXTENT, Heap, HeapOptions, Load, PAGE, Tx};
use holdfast_io::{Io, ReadQueue, SimIo};

const OPTIONS: HeapOptions = HeapOptions { max_bytes: 16 * EXTENT, arenas: 1 };
/// Raw extents, none of whose pages is a header.
const LEN: usize = 4 * EXTENT as usize;
const PAGES: u64 = (LEN / PAGE) as u64;

/// A heap with one allocation, each of whose pages is full of its own number.
fn numbered_pages() -> (Arc<Heap>, Arena, u64) {
    let (heap, mut arenas) = Heap::create(SimIo::new(1).open("heap", true).unwrap(), OPTIONS).unwrap();
    let (mut arena, mut tx) = (arenas.remove(0), Tx::new());
    let offset = arena.alloc(&mut tx, LEN).unwrap();
    (0..PAGES).for_each(|page| arena.fill(&mut tx, offset + page * PAGE as u64, PAGE, number(page)));
    (heap, arena, offset)
}

fn number(page: u64) -> u8 {
    1 + (page % 250) as u8
}

fn checkpoint(heap: &Arc<Heap>, arena: &mut Arena) {
    checkpoint_now(heap, std::slice::from_mut(arena)).unwrap().commit();
}

/// Takes out what was not used since the hand came by.
fn evict(arena: &mut Arena) {
    assert!(arena.evict(100).is_around);
}

fn is_present(arena: &Arena, offset: u64, page: u64) -> bool {
    arena.absent(offset + page * PAGE as u64, PAGE).next().is_none()
}

fn check(arena: &Arena, offset: u64, page: u64) {
    let bytes = arena.bytes(offset + page * PAGE as u64, PAGE);
    assert!(bytes.iter().all(|&byte| byte == number(page)), "page {page} is not what it was");
}

#[test]
fn what_is_not_used_leaves_and_comes_back() {
    let (heap, mut arena, offset) = numbered_pages();
    checkpoint(&heap, &mut arena);
    let held = heap.held_bytes();
    // The hand comes by for the first time: nobody knows what was used.
    assert_eq!((arena.evict(100).pages, arena.evict(0)), (0, Default::default()));
    [3, 70, 71].iter().for_each(|&page| check(&arena, offset, page));
    let evicted = arena.evict(100);
    assert!(evicted.is_around);
    assert_eq!(evicted.pages, PAGES - 3);
    assert_eq!(heap.held_bytes(), held - evicted.pages * PAGE as u64);
    assert_eq!(heap.absent_bytes(), evicted.pages * PAGE as u64);
    assert!([3, 70, 71].iter().all(|&page| is_present(&arena, offset, page)));
    assert!(!is_present(&arena, offset, 4));
    (0..PAGES).for_each(|page| check(&arena, offset, page));
    assert_eq!((heap.held_bytes(), heap.absent_bytes()), (held, 0));
    // All was used since.
    assert_eq!(arena.evict(100).pages, 0);
    assert_eq!(arena.evict(100).pages, PAGES);
}

#[test]
fn what_no_complete_checkpoint_has_stays() {
    let (heap, mut arena, offset) = numbered_pages();
    let mut tx = Tx::new();
    arena.evict(100);
    assert_eq!(arena.evict(100).pages, 0, "there was no checkpoint");
    assert!(arena.evict(100).unwritten >= PAGES);
    checkpoint(&heap, &mut arena);
    arena.write_u8(&mut tx, offset, number(0));
    arena.evict(100);
    assert!(is_present(&arena, offset, 0), "it has changed since");
    assert!(!is_present(&arena, offset, 1));

    for is_completed in [false, true] {
        let mut running = heap.begin_checkpoint();
        while running.copy(&mut arena, 100) {}
        arena.evict(100);
        arena.evict(100);
        assert!(is_present(&arena, offset, 0), "only a checkpoint has it that is not complete");
        let finished = running.finish().unwrap();
        arena.evict(100);
        assert!(is_present(&arena, offset, 0), "the superblock does not name it");
        if is_completed {
            finished.commit();
        }
        arena.evict(100);
        assert_eq!(is_present(&arena, offset, 0), !is_completed);
    }
    (0..PAGES).for_each(|page| check(&arena, offset, page));
}

/// Blocks are freed here and there, and all leaves memory. What is told beforehand is all that allocations then use.
#[test]
fn what_an_allocation_will_use_is_known() {
    // Slabs of which have several pages.
    const SIZE: usize = 880;
    let (heap, mut arenas) = Heap::create(SimIo::new(1).open("heap", true).unwrap(), OPTIONS).unwrap();
    let (mut arena, mut tx, mut random) = (arenas.remove(0), Tx::new(), Random(1));
    let mut blocks: Vec<u64> = (0..3000).map(|_| arena.alloc(&mut tx, SIZE).unwrap()).collect();
    for _ in 0..300 {
        let at = random.below(blocks.len() as u64) as usize;
        arena.free(&mut tx, blocks.swap_remove(at), SIZE);
    }
    let (mut told, mut waits) = (0, 0);
    for nth in 0..300 {
        if nth % 30 == 0 {
            checkpoint(&heap, &mut arena);
            evict(&mut arena);
            evict(&mut arena);
        }
        // What is told of bitmaps has to be there before what they tell.
        loop {
            let pages: Vec<_> = arena.absent_to_alloc(SIZE).collect();
            if pages.is_empty() {
                break;
            }
            (told, waits) = (told + pages.len(), waits + 1);
            pages.into_iter().for_each(|page| heap.read(page).unwrap());
        }
        let absent = heap.absent_bytes();
        let block = arena.alloc(&mut tx, SIZE).unwrap();
        arena.fill(&mut tx, block, SIZE, 1);
        assert_eq!(heap.absent_bytes(), absent, "allocation {nth} has used a page that was not told");
    }
    assert!(told > 100 && waits < 100, "{told} pages in {waits} waits");
}

/// Blocks of three classes are freed in any order until none is left, and all leaves memory now and then.
#[test]
fn what_a_release_will_use_is_known() {
    const SIZES: [usize; 3] = [64, 880, 1500];
    let (heap, mut arenas) = Heap::create(SimIo::new(1).open("heap", true).unwrap(), OPTIONS).unwrap();
    let (mut arena, mut tx, mut random) = (arenas.remove(0), Tx::new(), Random(1));
    let mut blocks: Vec<(u64, usize)> = (0..3000)
        .map(|nth| SIZES[nth % SIZES.len()])
        .map(|size| (arena.alloc(&mut tx, size).unwrap(), size))
        .collect();
    assert!(heap.stats().extents > 8);
    let mut told = 0;
    for nth in 0..blocks.len() {
        if nth % 20 == 0 {
            checkpoint(&heap, &mut arena);
            evict(&mut arena);
            evict(&mut arena);
        }
        let at = random.below(blocks.len() as u64) as usize;
        let (block, size) = blocks.swap_remove(at);
        if let Some(page) = arena.absent_to_free(block) {
            told += 1;
            heap.read(page).unwrap();
        }
        let (extents, faults) = (heap.stats().extents, heap.stats().page_faults);
        arena.free(&mut tx, block, size);
        tx.committed();
        // Where an extent is given up, which is rare, others are looked at for what to allocate next.
        let is_told = heap.stats().page_faults == faults || heap.stats().extents < extents;
        assert!(is_told, "release {nth} has used a page that was not told");
    }
    assert!(told > 100, "{told} pages");
    arena.check().unwrap();
    assert!(heap.stats().extents <= 2, "none is kept but the first, and an empty one");
}

/// Pages that are slabs by themselves are freed while the slab that is kept for them is not in memory, and are there for others then.
#[test]
fn pages_that_are_freed_are_there_for_all_classes() {
    let (heap, mut arenas) = Heap::create(SimIo::new(1).open("heap", true).unwrap(), OPTIONS).unwrap();
    let (mut arena, mut tx) = (arenas.remove(0), Tx::new());
    // Something else in each extent keeps it.
    let mut pages = Vec::new();
    for _ in 0..6 {
        pages.extend((0..60).map(|_| arena.alloc(&mut tx, PAGE).unwrap()));
        arena.alloc(&mut tx, 3 * PAGE / 2).unwrap();
    }
    let extents = heap.stats().extents;
    // One of each extent in turn.
    for page in (0..pages.len()).map(|nth| pages[nth % 6 * 60 + nth / 6]) {
        checkpoint(&heap, &mut arena);
        evict(&mut arena);
        evict(&mut arena);
        arena.absent_to_free(page).into_iter().for_each(|header| heap.read(header).unwrap());
        arena.free(&mut tx, page, PAGE);
    }
    tx.committed();
    for _ in 0..40 {
        arena.alloc(&mut tx, 7 * PAGE).unwrap();
    }
    assert!(heap.stats().extents <= extents, "{} extents, {extents} before", heap.stats().extents);
    arena.check().unwrap();
}

#[test]
fn what_is_pinned_stays_until_it_is_freed() {
    let (heap, mut arena, offset) = numbered_pages();
    let mut tx = Tx::new();
    let run = arena.alloc(&mut tx, 2 * PAGE).unwrap();
    arena.fill(&mut tx, run, 2 * PAGE, 1);
    arena.pin(run, 2 * PAGE);
    checkpoint(&heap, &mut arena);
    evict(&mut arena);
    arena.pin(offset + 63 * PAGE as u64, 2 * PAGE);
    (0..3).for_each(|_| evict(&mut arena));
    assert!(arena.absent(run, 2 * PAGE).next().is_none());
    assert!(is_present(&arena, offset, 63) && is_present(&arena, offset, 64));
    assert!(!is_present(&arena, offset, 62) && !is_present(&arena, offset, 65));
    assert!(arena.absent(arena.root(), PAGE).next().is_none());

    arena.free(&mut tx, run, 2 * PAGE);
    assert_eq!(arena.alloc(&mut tx, 2 * PAGE).unwrap(), run);
    arena.fill(&mut tx, run, 2 * PAGE, 2);
    checkpoint(&heap, &mut arena);
    (0..3).for_each(|_| evict(&mut arena));
    assert!(arena.absent(run, PAGE).next().is_some(), "its next owner has not pinned it");
    assert!(arena.bytes(run, 2 * PAGE).iter().all(|&byte| byte == 2));
}

#[test]
fn pinned_pages_can_be_loaded_first() {
    let (heap, mut arena, offset) = numbered_pages();
    checkpoint(&heap, &mut arena);
    (0..3).for_each(|_| evict(&mut arena));
    arena.pin(offset + 5 * PAGE as u64, PAGE);
    while heap.load_next(Load::Pinned, 1 << 20).unwrap() {}
    let present = |arena: &Arena| (0..PAGES).filter(|&page| is_present(arena, offset, page)).count();
    assert_eq!((present(&arena), is_present(&arena, offset, 5)), (1, true));
    while heap.load_next(Load::All, 1 << 20).unwrap() {}
    assert_eq!(present(&arena), PAGES as usize);
}

/// How many pages of the system's have RAM behind them, of so many bytes.
fn with_ram(at: *const u8, len: usize) -> usize {
    /// Of an entry of `/proc/self/pagemap`, one of eight bytes for each page.
    const PRESENT: u64 = 1 << 63;
    let mut entries = vec![0; len / PAGE * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, at.addr() as u64 / PAGE as u64 * 8).unwrap();
    let entries = entries.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().unwrap()));
    entries.filter(|entry| entry & PRESENT != 0).count()
}

/// A huge page takes a millisecond to be zeroed. A start touched so many of them that another process's take-over of a server with 3 million
/// keys held up its clients by 50 ms more.
#[test]
fn pages_that_are_used_after_a_start_take_no_huge_ones_until_all_is_loaded() {
    const BYTES: usize = 8 << 20;
    let options = HeapOptions { max_bytes: 4 * BYTES as u64, arenas: 1 };
    let sim = SimIo::new(1);
    let (heap, mut arenas) = Heap::create(sim.open("heap", true).unwrap(), options).unwrap();
    let mut tx = Tx::new();
    let offset = arenas[0].alloc(&mut tx, BYTES).unwrap();
    let pages = (BYTES / PAGE) as u64;
    (0..pages).for_each(|page| arenas[0].fill(&mut tx, offset + page * PAGE as u64, PAGE, number(page)));
    let finished = checkpoint_now(&heap, &mut arenas).unwrap();
    let root = *finished.root();
    finished.commit();
    drop((heap, arenas));

    let (heap, recovery) = Heap::open(sim.open("heap", false).unwrap(), options, &root).unwrap();
    let arena = recovery.finish().unwrap().remove(0);
    let used = || (0..pages).step_by(64);
    let first = arena.bytes(offset, PAGE).as_ptr();
    used().for_each(|page| check(&arena, offset, page));
    assert_eq!(with_ram(first, BYTES), used().count());
    while heap.load_next(Load::All, 1 << 20).unwrap() {}
    assert_eq!(with_ram(first, BYTES), pages as usize);
    heap.use_huge_pages(|| true);
    heap.use_huge_pages(|| false);
    (0..pages).for_each(|page| check(&arena, offset, page));
}

#[test]
fn pages_are_read_by_a_queue_and_those_of_old_are_read_anew() {
    let (heap, mut arena, offset) = numbered_pages();
    let mut tx = Tx::new();
    checkpoint(&heap, &mut arena);
    (0..2).for_each(|_| evict(&mut arena));
    let page_of = |arena: &Arena, page: u64| arena.absent(offset + page * PAGE as u64, 1).next();
    let (first, second) = (page_of(&arena, 3).unwrap(), page_of(&arena, 4).unwrap());
    let mut queue = ReadQueue::immediate();
    assert!(heap.begin_read(first, &mut queue, 1) && heap.begin_read(second, &mut queue, 2));
    // Meanwhile somebody else has used the second, and changed it, and it has left again.
    arena.write_u8(&mut tx, offset + 4 * PAGE as u64 + 9, 77);
    checkpoint(&heap, &mut arena);
    (0..2).for_each(|_| evict(&mut arena));
    assert_eq!(page_of(&arena, 4), Some(second));
    let mut tags = Vec::new();
    queue
        .reap(|tag, read| {
            heap.end_read([first, second][tag as usize - 1], read).unwrap();
            tags.push(tag);
        })
        .unwrap();
    assert_eq!(tags, [1, 2]);
    assert!(is_present(&arena, offset, 3) && is_present(&arena, offset, 4));
    let faults = heap.stats().page_faults;
    check(&arena, offset, 3);
    assert_eq!(arena.u8(offset + 4 * PAGE as u64 + 9), 77);
    assert_eq!(heap.stats().page_faults, faults, "nobody has waited for them");
    assert!(!heap.begin_read(first, &mut queue, 3), "it is there");
    heap.read(first).unwrap();
    // They have just been wanted.
    evict(&mut arena);
    assert!(is_present(&arena, offset, 3));
}

/// Sets a flag when it goes, also when the test fails.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Somebody loads while pages leave, change and come back.
#[test]
fn loading_beside_eviction_brings_what_was_there() {
    let (heap, mut arena, offset) = numbered_pages();
    let (mut tx, mut random, is_done) = (Tx::new(), Random(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = Set(&is_done);
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                [Load::Pinned, Load::All]
                    .iter()
                    .for_each(|&what| while heap.load_next(what, 1 << 20).unwrap() {});
            }
        });
        for _ in 0..200 {
            checkpoint(&heap, &mut arena);
            for _ in 0..200 {
                arena.evict(1);
                let page = random.below(PAGES);
                check(&arena, offset, page);
                if random.chance(4) {
                    arena.write_u8(&mut tx, offset + page * PAGE as u64, number(page));
                }
            }
            tx.clear();
        }
    });
    (0..PAGES).for_each(|page| check(&arena, offset, page));
    assert_eq!(heap.held_bytes(), heap.stats().resident_bytes);
}
