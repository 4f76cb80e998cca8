//! The allocator against a model: blocks never overlap, keep their bytes, and all come back.

use std::collections::BTreeMap;

use holdfast_heap::{Arena, EXTENT, Full, Heap, HeapOptions, PAGE, Tx};
use holdfast_io::{Io, SimIo};

/// A small generator, so that a failing case is its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn size(&mut self) -> usize {
        let limit = [64, 600, 6000, 60_000, 300_000, 1_000_000][self.below(6) as usize];
        1 + self.below(limit) as usize
    }
}

fn heap(max_bytes: u64, arenas: u16) -> Vec<Arena> {
    let file = SimIo::new(1).open("heap", true).unwrap();
    Heap::create(file, HeapOptions { max_bytes, arenas }).unwrap().1
}

#[test]
fn blocks_keep_their_bytes_and_come_back() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut arenas = heap(32 << 20, 3);
        let mut blocks: BTreeMap<u64, (usize, usize, u8)> = BTreeMap::new();
        let mut tx = Tx::new();
        for step in 0..4000 {
            let growing = step / 1000 % 2 == 0;
            if random.below(10) < if growing { 7 } else { 3 } {
                let (i, size, byte) = (random.below(3) as usize, random.size(), random.below(256) as u8);
                let Ok(offset) = arenas[i].alloc(&mut tx, size) else { continue };
                assert_eq!(offset % if size % PAGE == 0 { PAGE as u64 } else { 16 }, 0);
                let before = blocks.range(..offset + size as u64).next_back();
                assert!(before.is_none_or(|(&at, &(_, len, _))| at + len as u64 <= offset), "blocks overlap");
                arenas[i].fill(&mut tx, offset, size, byte);
                blocks.insert(offset, (i, size, byte));
            } else if let Some((&offset, &(i, size, byte))) =
                blocks.range(random.below(32 << 20)..).next().or(blocks.iter().next())
            {
                assert!(arenas[i].bytes(offset, size).iter().all(|&b| b == byte));
                arenas[i].free(&mut tx, offset, size);
                blocks.remove(&offset);
            }
            tx.committed();
            tx.clear();
            let sum =
                |i| blocks.values().filter(|b| b.0 == i).map(|b| Arena::usable_size(b.1) as u64).sum::<u64>();
            (0..3).for_each(|i| assert_eq!(arenas[i].allocated_bytes(), sum(i)));
        }
        for (offset, (i, size, _)) in blocks {
            arenas[i].free(&mut tx, offset, size);
        }
        assert!(arenas.iter().all(|arena| arena.allocated_bytes() == 0));
    }
}

#[test]
fn an_extent_moves_only_after_the_commit() {
    let mut arenas = heap(8 * EXTENT, 2);
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
#[should_panic(expected = "does not own")]
fn an_arena_cannot_reach_into_another() {
    let arenas = heap(8 * EXTENT, 2);
    arenas[0].bytes(arenas[1].root(), 1);
}

#[test]
#[should_panic(expected = "no block of")]
fn freeing_twice_panics() {
    let (mut arenas, mut tx) = (heap(8 * EXTENT, 1), Tx::new());
    let offset = arenas[0].alloc(&mut tx, 100).unwrap();
    let _other = arenas[0].alloc(&mut tx, 100).unwrap();
    arenas[0].free(&mut tx, offset, 100);
    arenas[0].free(&mut tx, offset, 100);
}
