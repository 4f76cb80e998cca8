//! The allocator: blocks never overlap, keep their bytes, and all come back.

use crate::world::{Random, World};
use holdfast_heap::{Arena, EXTENT, Full, Heap, HeapOptions, PAGE, RoomNeeded, Tx};
use holdfast_io::{Io, SimIo};

fn arenas(max_bytes: u64, arenas: u16) -> Vec<Arena> {
    let file = SimIo::new(1).open("heap", true).unwrap();
    Heap::create(file, HeapOptions { max_bytes, arenas }).unwrap().1
}

#[test]
fn blocks_keep_their_bytes_and_come_back() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut world = World::new(seed, 64 * EXTENT, 3);
        for step in 0..500 {
            world.transact(if step / 100 % 2 == 0 { 5 } else { 2 }).unwrap();
            if step % 25 == 0 {
                world.check_blocks();
            }
        }
        world.clear();
        world.check_blocks();
        // At most one extent beside the first is kept by an arena that has nothing in it.
        assert!(world.heap.stats().extents <= 6);
    }
}

#[test]
fn everything_can_be_used_and_used_again() {
    let (mut arenas, mut tx) = (arenas(16 * EXTENT, 1), Tx::new());
    for size in [16, 100, 1000, 5000, 16 << 10, 40_000, 63 * PAGE, 400_000] {
        let mut blocks: Vec<u64> = std::iter::from_fn(|| arenas[0].alloc(&mut tx, size).ok()).collect();
        assert_eq!(arenas[0].allocated_bytes(), (blocks.len() * Arena::usable_size(size)) as u64);
        arenas[0].check().unwrap();
        // Free in an order that is neither that of allocation nor its reverse.
        blocks.sort_by_key(|offset| offset.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        blocks.into_iter().for_each(|offset| arenas[0].free(&mut tx, offset, size));
        arenas[0].check().unwrap();
        assert_eq!(arenas[0].allocated_bytes(), 0);
        tx.committed();
        tx.clear();
    }
}

#[test]
fn empty_slabs_do_not_keep_their_pages() {
    let (mut arenas, mut tx) = (arenas(EXTENT, 1), Tx::new());
    let blocks: Vec<u64> = std::iter::from_fn(|| arenas[0].alloc(&mut tx, PAGE).ok()).collect();
    assert_eq!(blocks.len(), 62);
    blocks.into_iter().for_each(|offset| arenas[0].free(&mut tx, offset, PAGE));
    arenas[0].alloc(&mut tx, 62 * PAGE).unwrap();
}

#[test]
fn small_allocations_record_little() {
    let (mut arenas, mut tx) = (arenas(16 * EXTENT, 1), Tx::new());
    arenas[0].alloc(&mut tx, 100).unwrap();
    tx.clear();
    let block = arenas[0].alloc(&mut tx, 100).unwrap();
    assert_eq!(tx.buf.len(), 9);
    tx.clear();
    arenas[0].free(&mut tx, block, 100);
    assert_eq!(tx.buf.len(), 9);
}

#[test]
fn an_extent_moves_only_after_the_commit() {
    let mut arenas = arenas(8 * EXTENT, 2);
    let (mut one, mut two) = (Tx::new(), Tx::new());
    let big = 5 * EXTENT as usize;
    let offset = arenas[0].alloc(&mut one, big).unwrap();
    arenas[0].free(&mut one, offset, big);
    assert_eq!(arenas[1].alloc(&mut two, big), Err(Full));
    one.committed();
    let again = arenas[1].alloc(&mut two, big).unwrap();
    assert!(arenas[1].bytes(again, big).iter().all(|&b| b == 0));
}

#[test]
fn free_pages_among_used_ones_take_no_memory() {
    let file = SimIo::new(1).open("heap", true).unwrap();
    let (heap, mut arenas) = Heap::create(file, HeapOptions { max_bytes: 64 * EXTENT, arenas: 1 }).unwrap();
    let (arena, mut tx) = (&mut arenas[0], Tx::new());
    let mut pages: Vec<u64> = (0..600).map(|_| arena.alloc(&mut tx, PAGE).unwrap()).collect();
    let held = heap.held_bytes();
    assert!((600 * PAGE as u64..650 * PAGE as u64 + EXTENT).contains(&held));
    let kept: Vec<u64> = pages.iter().copied().step_by(10).collect();
    kept.iter().for_each(|&page| arena.write_u64(&mut tx, page, page));
    pages.retain(|page| !kept.contains(page));
    pages.iter().for_each(|&page| arena.free(&mut tx, page, PAGE));
    tx.committed();
    assert_eq!(heap.held_bytes(), held);
    arena.give_back(&mut tx, usize::MAX);
    assert!(heap.held_bytes() < held - 500 * PAGE as u64);
    assert!(heap.stats().resident_bytes <= heap.held_bytes());
    assert!(kept.iter().all(|&page| arena.u64(page) == page));
    let again: Vec<u64> = (0..540).map(|_| arena.alloc(&mut tx, PAGE).unwrap()).collect();
    assert!(heap.held_bytes() <= held);
    for page in kept.into_iter().chain(again) {
        arena.free(&mut tx, page, PAGE);
    }
    tx.committed();
    arena.give_back(&mut tx, usize::MAX);
    assert!(heap.held_bytes() <= 10 * PAGE as u64, "{}", heap.held_bytes());
    arena.check().unwrap();
}

#[test]
fn what_nobody_has_touched_is_not_held() {
    let file = SimIo::new(1).open("heap", true).unwrap();
    let (heap, mut arenas) = Heap::create(file, HeapOptions { max_bytes: 64 * EXTENT, arenas: 1 }).unwrap();
    let (arena, mut tx) = (&mut arenas[0], Tx::new());
    let empty = heap.held_bytes();
    for pages in 1..200u64 {
        arena.alloc(&mut tx, PAGE).unwrap();
        // Beside them there are headers of extents.
        let headers = pages.div_ceil(60) + 1;
        assert!(heap.held_bytes() - empty <= (pages + headers) * PAGE as u64, "{pages} pages");
        assert_eq!(heap.held_bytes(), heap.stats().resident_bytes);
    }
    arena.check().unwrap();
}

#[test]
fn integers_are_little_endian() {
    let (mut arenas, mut tx) = (arenas(EXTENT, 1), Tx::new());
    let (arena, root) = (&mut arenas[0], PAGE as u64);
    assert_eq!(arena.root(), root);
    arena.write_u64(&mut tx, root, 0x0102_0304_0506_0708);
    assert_eq!(arena.bytes(root, 8), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!((arena.u8(root), arena.u16(root + 1), arena.u32(root + 2)), (8, 0x0607, 0x0304_0506));
    arena.copy(&mut tx, root, root + 2, 4);
    assert_eq!(arena.u64(root), 0x0102_0506_0708_0708);
}

#[test]
fn of_a_changed_integer_the_range_that_changes_is_recorded() {
    const HEAD: usize = 8;
    let (mut arenas, mut tx) = (arenas(EXTENT, 1), Tx::new());
    let (arena, root) = (&mut arenas[0], PAGE as u64);
    arena.write_u64(&mut tx, root, 0x0102_0304_0506_07ff);
    for (value, recorded) in [
        (0x0102_0304_0506_07ff, &[][..]),
        (0x0102_0304_0506_07fe, &[0xfe]),
        (0x0102_ff04_0506_ff01, &[0x01, 0xff, 6, 5, 4, 0xff]),
    ] {
        tx.clear();
        arena.write_changed_u64(&mut tx, root, value);
        assert_eq!((arena.u64(root), tx.buf.get(HEAD..).unwrap_or_default()), (value, recorded));
    }
    tx.clear();
    arena.write_u64(&mut tx, root + 8, 0xff);
    arena.add_u64(&mut tx, root + 8, 1);
    assert_eq!(
        (arena.u64(root + 8), tx.buf[HEAD..].len()),
        (0x100, 8),
        "a change of the last record goes into it"
    );
    tx.buf.push(0);
    arena.add_u64(&mut tx, root + 8, -1);
    assert_eq!((arena.u64(root + 8), tx.buf.len()), (0xff, 2 * HEAD + 8 + 1 + 2));
}

#[test]
#[should_panic(expected = "does not own")]
fn an_arena_cannot_reach_into_another() {
    let arenas = arenas(8 * EXTENT, 2);
    arenas[0].bytes(arenas[1].root(), 1);
}

#[test]
#[should_panic(expected = "no block of")]
fn freeing_twice_panics() {
    let (mut arenas, mut tx) = (arenas(8 * EXTENT, 1), Tx::new());
    let offset = arenas[0].alloc(&mut tx, 100).unwrap();
    arenas[0].free(&mut tx, offset, 100);
    arenas[0].free(&mut tx, offset, 100);
}

/// Blocks of any sizes fit whose bytes, and a little for each, are no more than was asked for, however full the heap is.
#[test]
fn what_there_is_room_for_can_be_allocated() {
    let (mut fitted, mut refused) = (0, 0);
    for seed in 0..300 {
        println!("seed {seed}");
        let mut rng = Random(seed);
        let file = SimIo::new(1).open("heap", true).unwrap();
        let options = HeapOptions { max_bytes: 60 * EXTENT, arenas: 3 };
        let ((heap, mut arenas), mut tx) = (Heap::create(file, options).unwrap(), Tx::new());
        let mut blocks: [Vec<(u64, usize)>; 3] = Default::default();
        let size = |rng: &mut Random, most: u64| {
            let most = 1 << rng.below(most);
            1 + rng.below(most) as usize
        };
        for (arena, blocks) in arenas.iter_mut().zip(&mut blocks) {
            let fill = rng.below(45 * EXTENT) / 2;
            while arena.allocated_bytes() < fill {
                let size = size(&mut rng, 15);
                let Ok(offset) = arena.alloc(&mut tx, size) else { break };
                blocks.push((offset, size));
            }
            let kept = 1 + rng.below(5);
            blocks.retain(|&(offset, size)| {
                let goes = rng.below(5) >= kept;
                if goes {
                    arena.free(&mut tx, offset, size);
                }
                !goes
            });
            tx.committed();
            tx.clear();
        }
        let sizes: Vec<usize> = (0..1 + rng.below(60)).map(|_| size(&mut rng, 17)).collect();
        let bytes = sizes.iter().map(|size| size + 256).sum();
        let mut needed = RoomNeeded::new(bytes);
        arenas[..2].iter_mut().for_each(|arena| needed.add(arena));
        if needed.set_aside(&heap, &mut tx).is_err() {
            tx.give_back_aside(&heap);
            refused += 1;
            continue;
        }
        // Others take what is left.
        while arenas[2].alloc(&mut Tx::new(), PAGE).is_ok() {}
        fitted += 1;
        let both = rng.below(3);
        for size in sizes {
            let arena = if both == 2 { rng.below(2) } else { both };
            arenas[arena as usize].alloc(&mut tx, size).expect("it was told that there is room");
        }
        tx.give_back_aside(&heap);
        let mut all = Tx::new();
        while arenas[2].alloc(&mut all, 63 * PAGE).is_ok() {}
        assert_eq!(heap.stats().extents, heap.stats().extents_max, "the rest was anybody's");
        arenas.iter().for_each(|arena| arena.check().unwrap());
    }
    assert!(fitted > 50 && refused > 20, "{fitted} fitted, {refused} did not");
}
