//! What the store tells of the bytes that it has written.

use crate::open;
use holdfast_io::{BLOCK, Durability, Further, Io, Spread};
use holdfast_store::{BytesWritten, FILES, Options, SimIo, Store, WriteCause, hash::Expiry};
use std::sync::Arc;

const KEYS: u32 = 4000;

fn open_on(sim: &SimIo) -> Store {
    open_in(Arc::new(sim.clone()))
}

fn open_in(io: Arc<dyn Io>) -> Store {
    let options = Options {
        partitions: 4,
        segment_size: Some(64 << 10),
        log_bytes_max: 4 << 20,
        log_bytes_above_max: 1 << 20,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    };
    let store = Store::open_on(io, options).expect("a store");
    store.attach();
    store
}

fn settle(store: &Store) {
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
}

/// Collections that freeze, and strings that are overwritten until the cleaner has to move some.
fn work(sim: &SimIo, store: &Store) {
    for number in 0..20u32 {
        let key = format!("hash {number}").into_bytes();
        open::run(store, &[&key], |txn| {
            txn.hash_set(0, &key, [(&b"field"[..], &b"value"[..])], Expiry::Clear)
        })
        .expect("room");
    }
    sim.advance_ms(3_600_000);
    // They are not in use any more when they are asked for the second time.
    for _ in 0..2 {
        store.freeze(u64::MAX).expect("a sound medium");
    }
    assert!(store.stats().freezes > 0);
    for number in 0..3 * KEYS {
        // In an order in which segments keep some of their items.
        let key = number.wrapping_mul(2_654_435_761) % KEYS;
        store.set(0, &key.to_le_bytes(), &[number as u8; 500]).expect("room");
        if number % 100 == 99 {
            settle(store);
            store.checkpoint().expect("a sound medium");
            while store.clean().expect("a sound medium") {}
        }
    }
}

#[test]
fn the_causes_add_up_to_what_the_medium_got() {
    let sim = SimIo::new(1);
    let below = Further { path: "below".to_owned(), is_below: true };
    let open = |further: &Further<&str>, _: bool| Ok(sim.folder(further.path));
    let io = Spread::open(sim.folder("home"), "home", FILES, &[below], &open).expect("new folders");
    // What ties the folders together.
    let ties = sim.bytes_written();
    let store = open_in(io);
    assert_eq!(store.bytes_written(), sim.bytes_written() - ties, "what it took to make the folder");
    for number in 0..10u8 {
        store.set(0, &[number; 20], &[3; 700]).expect("room");
    }
    settle(&store);
    assert_eq!(store.stats().written.input, 10 * 720);
    work(&sim, &store);
    settle(&store);
    let written = store.stats().written;
    assert_eq!(written.total(), sim.bytes_written() - ties, "{written:?}");
    assert_eq!(store.bytes_written(), sim.bytes_written() - ties);
    for cause in WriteCause::ALL {
        assert!(written.of(cause) > 0, "nothing for {}", cause.name());
    }
    let (moved, records) = (written.of(WriteCause::Moved), store.stats().moved_bytes);
    assert!((records..=records + records / 20).contains(&moved), "{moved} with what aligns {records}");
    store.close().expect("a sound medium");
    assert_eq!(store.bytes_written(), sim.bytes_written() - ties);
}

#[test]
fn what_a_start_writes_is_counted() {
    let sim = SimIo::new(1);
    let store = open_on(&sim);
    work(&sim, &store);
    settle(&store);
    // A tail that is torn, and a copy of the superblock that is damaged.
    for number in 0..100u32 {
        store.set(0, &number.to_le_bytes(), &[9; 500]).expect("room");
    }
    sim.crash_after(1);
    drop(store.log().wait_durable(store.log().tail()));
    let sim = sim.crash();
    sim.flip_bit("superblock", 20, 0);
    let store = open_on(&sim);
    assert!(sim.bytes_written() > 0);
    assert_eq!(store.bytes_written(), sim.bytes_written());
    settle(&store);
    assert_eq!(store.stats().written.total(), sim.bytes_written());
}

#[test]
fn totals_survive_restarts_and_a_crash_takes_what_came_after_the_checkpoint() {
    let sim = SimIo::new(1);
    let store = open_on(&sim);
    let since = store.stats().known_since_ms;
    assert_eq!(since, store.now_ms(), "a new folder is known from its beginning");
    work(&sim, &store);
    store.close().expect("a sound medium");
    let before = store.stats().written_ever;
    assert_eq!(before, store.stats().written);
    drop(store);

    sim.advance_ms(1000);
    let store = open_on(&sim);
    let ever = store.stats().written_ever;
    assert_eq!((ever.input, store.stats().known_since_ms), (before.input, since));
    // The last thing that closing writes is the mark of the log's end, which no checkpoint can count.
    let unknown = before.total() + store.bytes_written() - ever.total();
    assert!(unknown == 0 || unknown == BLOCK as u64, "{unknown}");
    store.checkpoint().expect("a sound medium");
    let at_checkpoint = store.stats().written_ever;
    store.set(0, b"key", &[1; 5000]).expect("room");
    settle(&store);
    assert_eq!(store.stats().written_ever.input, at_checkpoint.input + 5003);
    let sim = sim.crash();

    let store = open_on(&sim);
    let ever = store.stats().written_ever;
    let counted = |written: BytesWritten| written.total() - store.bytes_written();
    assert_eq!((ever.input, counted(ever)), (at_checkpoint.input, at_checkpoint.total()));
}

/// Folders of versions that did not count have zeroes there.
#[test]
fn a_folder_that_says_nothing_is_known_from_now_on() {
    let sim = SimIo::new(1);
    let store = open_on(&sim);
    work(&sim, &store);
    store.close().expect("a sound medium");
    drop(store);
    let file = sim.open("superblock", false).expect("it is there");
    let mut copies = sim.snapshot("superblock");
    for copy in copies.chunks_exact_mut(BLOCK) {
        // The epoch, which they do not say either, lies among the rest.
        let (rest, epoch) = ([256..276, 280..BLOCK - 4], 276..280);
        assert!(
            copy[144..256].iter().any(|&byte| byte != 0)
                && rest.into_iter().all(|rest| copy[rest].iter().all(|&byte| byte == 0))
        );
        copy[144..256].fill(0);
        copy[epoch].fill(0);
        let crc = holdfast_io::crc32c(&copy[..BLOCK - 4]);
        copy[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    file.write_at(&[&copies], 0, Durability::Durable).expect("a sound medium");
    sim.advance_ms(5000);
    let sim = sim.fork();

    let store = open_on(&sim);
    let stats = store.stats();
    assert_eq!(stats.known_since_ms, store.now_ms());
    assert_eq!(stats.written_ever, stats.written);
    assert_eq!(stats.written.total(), sim.bytes_written());
    sim.advance_ms(5000);
    store.close().expect("a sound medium");
    drop(store);
    let since = open_on(&sim).stats().known_since_ms;
    assert_eq!(since, stats.known_since_ms, "and that is remembered");
}
