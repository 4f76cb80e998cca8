//! What the heap's basic operations cost. `cargo bench -p holdfast-heap`

use std::{hint::black_box, time::Instant};

use holdfast_heap::{Arena, Heap, HeapOptions, Tx};
use holdfast_io::{Io, SimIo};

const BLOCKS: usize = 500_000;

/// Runs `f` for each of `n`, and prints the time and the redo of one.
fn measure(what: &str, tx: &mut Tx, n: usize, mut f: impl FnMut(&mut Tx, usize)) {
    let (start, mut redo) = (Instant::now(), 0);
    for i in 0..n {
        f(tx, i);
        redo += tx.buf.len();
        tx.committed();
        tx.clear();
    }
    let ns = start.elapsed().as_nanos() as f64 / n as f64;
    println!("{what:34} {ns:8.1} ns {:8.1} bytes of redo", redo as f64 / n as f64);
}

fn main() {
    let file = SimIo::new(1).open("heap", true).expect("a simulated file");
    let options = HeapOptions { max_bytes: 1 << 30, arenas: 1 };
    let (heap, mut arenas) = Heap::create(file, options).expect("memory for the heap");
    let (arena, mut tx) = (&mut arenas[0], Tx::new());
    let size = |i: usize| 16 + (i.wrapping_mul(0x9e37_79b9) >> 7) % 240;
    let mut blocks = vec![0; BLOCKS];

    let alloc = |arena: &mut Arena, tx: &mut Tx, i: usize| arena.alloc(tx, size(i)).expect("room");
    measure("alloc 16..256 B", &mut tx, BLOCKS, |tx, i| blocks[i] = alloc(arena, tx, i));
    measure("write_u64, memory not used before", &mut tx, BLOCKS, |tx, i| arena.write_u64(tx, blocks[i], 1));
    measure("free and alloc, at random", &mut tx, BLOCKS, |tx, i| {
        let victim = i.wrapping_mul(0x2545_f491_4f6c_dd1d) % BLOCKS;
        arena.free(tx, blocks[victim], size(victim));
        blocks[victim] = alloc(arena, tx, victim);
    });
    measure("write_u64, at random", &mut tx, BLOCKS, |tx, i| {
        arena.write_u64(tx, blocks[i.wrapping_mul(0x2545_f491_4f6c_dd1d) % BLOCKS], i as u64);
    });
    measure("u64, in order", &mut tx, BLOCKS, |_, i| {
        black_box(arena.u64(blocks[i]));
    });

    let start = Instant::now();
    let (mut slices, mut longest) = (0, 0);
    let mut checkpoint = heap.begin_checkpoint();
    loop {
        let slice = Instant::now();
        let more = checkpoint.copy(arena, 16);
        longest = longest.max(slice.elapsed().as_micros());
        slices += 1;
        if !more {
            break;
        }
        checkpoint.write().expect("a write");
    }
    checkpoint.finish().expect("a checkpoint").commit();
    let pages = heap.stats().pages_written;
    println!("checkpoint of {pages} pages: {:?}, {slices} slices, {longest} us at most", start.elapsed());

    measure("free, in order", &mut tx, BLOCKS, |tx, i| arena.free(tx, blocks[i], size(i)));
    println!("left: {} bytes, {} extents", arena.allocated_bytes(), heap.stats().extents);
}
