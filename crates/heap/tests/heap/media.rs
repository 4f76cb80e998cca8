//! What is on the medium: its format, what happens when it is damaged, and records that make no sense.

use std::process::Command;

use crate::world::{Random, checkpoint_now};
use holdfast_heap::{Arena, EXTENT, Heap, HeapOptions, HeapRoot, Load, PAGE, Record, Tx};
use holdfast_io::{Error, Io, SimIo};

const OPTIONS: HeapOptions = HeapOptions { max_bytes: 16 * EXTENT, arenas: 2 };

/// A heap with some blocks, checkpointed.
fn checkpointed(sim: &SimIo) -> (HeapRoot, Vec<Block>) {
    let (heap, mut arenas) = Heap::create(sim.open("heap", true).unwrap(), OPTIONS).unwrap();
    let mut tx = Tx::new();
    let mut blocks = Vec::new();
    for (i, size) in (1..).zip([20, 300, 5000, 40_000, 300_000, 300, 300]) {
        let arena = i % 2;
        let offset = arenas[arena].alloc(&mut tx, size).unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at * i) as u8 | 1).collect();
        arenas[arena].write(&mut tx, offset, &bytes);
        blocks.push(Block { arena, offset, bytes });
    }
    let finished = checkpoint_now(&heap, &mut arenas).unwrap();
    let root = *finished.root();
    finished.commit();
    (root, blocks)
}

struct Block {
    arena: usize,
    offset: u64,
    bytes: Vec<u8>,
}

fn open(sim: &SimIo, root: &HeapRoot) -> Result<(std::sync::Arc<Heap>, Vec<Arena>), Error> {
    let (heap, recovery) = Heap::open(sim.open("heap", false).unwrap(), OPTIONS, root)?;
    Ok((heap, recovery.finish()?))
}

#[test]
fn the_format_is_frozen() {
    let sim = SimIo::new(1);
    let (root, _) = checkpointed(&sim);
    let file = sim.snapshot("heap");
    let mut fields = Vec::new();
    let bytes = root.encode();
    fields.extend(bytes[..12].chunks_exact(4).map(|field| u32::from_le_bytes(field.try_into().unwrap())));
    assert_eq!((fields, bytes[12], file.len() / PAGE), (vec![92, 4, 0xf913_40e2], 2, 93));
    assert_eq!(bytes[13..], [0; 51]);
    assert_eq!(crc32c::crc32c(&file), 0xa5a7_9e7f);
    assert_eq!(HeapRoot::decode(&bytes), root);
}

#[test]
fn a_flipped_bit_is_found() {
    let mut random = Random(1);
    let (mut found, mut total) = (0, 0);
    for round in 0..300 {
        let sim = SimIo::new(1);
        let (root, blocks) = checkpointed(&sim);
        let len = sim.snapshot("heap").len() as u64;
        // The tables are a small part of the file, at its end; half of the bits are flipped there.
        let from = if round % 2 == 0 { 0 } else { len - 4 * PAGE as u64 };
        let (offset, bit) = (from + random.below(len - from), random.below(8) as u32);
        sim.flip_bit("heap", offset, bit);
        let verified = open(&sim, &root).and_then(|(heap, arenas)| Ok((heap.verify()?, arenas)));
        total += 1;
        match verified {
            Err(Error::Corrupt { file, offset: at, .. }) => {
                assert_eq!(file, "heap");
                assert!(at <= offset && offset < at + 3 * PAGE as u64, "{offset} is reported as {at}");
                found += 1;
                let (loaded, _) = match open(&sim, &root) {
                    Ok((heap, arenas)) => (heap, arenas),
                    Err(_) => continue,
                };
                let result = (0..)
                    .map(|_| loaded.load_next(Load::All, 1 << 20))
                    .find(|more| !matches!(more, Ok(true)));
                assert!(matches!(result, Some(Err(Error::Corrupt { .. }))));
            }
            Err(e) => panic!("{e}"),
            // The padding of tables to whole slots.
            Ok((_, arenas)) => {
                for block in &blocks {
                    assert!(arenas[block.arena].bytes(block.offset, block.bytes.len()) == block.bytes);
                }
            }
        }
    }
    assert!(found * 10 > total * 7, "{found} of {total}");
}

#[test]
fn another_geometry_is_refused() {
    let sim = SimIo::new(1);
    let (root, _) = checkpointed(&sim);
    let open = |options| Heap::open(sim.open("heap", false).unwrap(), options, &root).map(|_| ());
    assert!(matches!(open(HeapOptions { arenas: 3, ..OPTIONS }), Err(Error::Unusable(_))));
    assert!(matches!(open(HeapOptions { max_bytes: 2 * EXTENT, ..OPTIONS }), Err(Error::Unusable(_))));
    assert!(open(HeapOptions { max_bytes: 1 << 30, ..OPTIONS }).is_ok());
}

#[test]
fn a_short_file_is_corrupt() {
    let sim = SimIo::new(1);
    let (root, _) = checkpointed(&sim);
    let file = sim.open("heap", false).unwrap();
    for slots in (0..file.len().unwrap() / PAGE as u64).rev() {
        file.set_len(slots * PAGE as u64).unwrap();
        assert!(matches!(open(&sim, &root), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn any_root_is_an_error_or_opens() {
    let sim = SimIo::new(1);
    let (root, _) = checkpointed(&sim);
    let mut random = Random(2);
    for _ in 0..2000 {
        let mut bytes = root.encode();
        bytes[random.below(14) as usize] ^= 1 << random.below(8);
        assert!(open(&sim, &HeapRoot::decode(&bytes)).is_err());
    }
}

#[test]
fn no_record_does_harm() {
    let sim = SimIo::new(1);
    let (root, _) = checkpointed(&sim);
    let mut random = Random(3);
    let (mut applied, mut refused) = (0, 0);
    for _ in 0..200 {
        let file = sim.open("heap", false).unwrap();
        let (_heap, mut recovery) = Heap::open(file, OPTIONS, &root).unwrap();
        for _ in 0..50 {
            let mut record: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            // Most bytes are small, so that some records make sense.
            for (at, max) in [(0, 5), (1, 3), (2, 1), (3, 20), (4, 1), (5, 64), (6, 1), (7, 1)] {
                if let Some(byte) = record.get_mut(at).filter(|_| random.below(50) != 0) {
                    *byte = random.below(max) as u8;
                }
            }
            match Record::split(&record).map(|(record, _)| recovery.apply(&record)) {
                Some(Ok(())) => applied += 1,
                None | Some(Err(Error::Corrupt { .. })) => refused += 1,
                Some(Err(e)) => panic!("{e}"),
            }
        }
        // It may find headers that were overwritten.
        let _ = recovery.finish();
    }
    assert!(applied > 500 && refused > 500, "{applied} applied, {refused} refused");
}

/// Run as a process of its own by the test below.
#[test]
#[ignore = "stops the process"]
fn touches_a_damaged_page() {
    touch_a_damaged_page(|_| {});
}

/// The same.
#[test]
#[ignore = "stops the process"]
fn touches_a_damaged_page_of_an_owner_who_says_how_to_end() {
    touch_a_damaged_page(|heap| {
        heap.on_unreadable(|error| {
            eprintln!("ended: {error}");
            std::process::exit(7)
        });
    });
}

fn touch_a_damaged_page(prepare: fn(&Heap)) {
    let sim = SimIo::new(1);
    let (root, blocks) = checkpointed(&sim);
    let block = &blocks[4];
    let snapshot = sim.snapshot("heap");
    let at = snapshot.windows(64).position(|window| window == &block.bytes[..64]).unwrap();
    sim.flip_bit("heap", at as u64, 0);
    let (heap, arenas) = open(&sim, &root).unwrap();
    prepare(&heap);
    arenas[block.arena].bytes(block.offset, block.bytes.len());
}

#[test]
fn paging_in_a_damaged_page_ends_the_process_as_its_owner_says() {
    let run = |test: &str| {
        let mut process = Command::new(std::env::current_exe().unwrap());
        let child = process.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
        (child.status.code(), String::from_utf8_lossy(&child.stderr).into_owned())
    };
    let (code, text) = run("media::touches_a_damaged_page");
    assert!(code.is_none() && text.contains("corrupt: heap at offset "), "{code:?}: {text}");
    let (code, text) = run("media::touches_a_damaged_page_of_an_owner_who_says_how_to_end");
    assert!(code == Some(7) && text.contains("ended: corrupt: heap at offset "), "{code:?}: {text}");
}
