//! What a check of a whole store costs, and that it tells how far it has come.

use holdfast_store::{Options, SimIo, Store};
use std::sync::Arc;

fn options() -> Options {
    Options {
        partitions: 4,
        heap_bytes_max: 64 << 20,
        segment_size: Some(1 << 20),
        background: false,
        ..Options::default()
    }
}

fn set(store: &Store, number: u32, value: &[u8]) {
    let key = number.to_le_bytes();
    store.begin_keys([&key[..]]).set(0, &key, value, false).expect("room");
}

#[test]
fn items_are_read_many_at_a_time() {
    const KEYS: u32 = 20_000;
    let sim = SimIo::new(1);
    let store = Store::open_on(Arc::new(sim.clone()), options()).expect("a store");
    // Some are overwritten, so that there are gaps; one is longer than what is read at once.
    (0..KEYS).for_each(|number| set(&store, number, &[1; 100]));
    (0..KEYS).step_by(7).for_each(|number| set(&store, number, &[2; 150]));
    set(&store, KEYS, &vec![3; 5 << 20]);
    set(&store, KEYS + 1, &[4; 100]);
    store.close().expect("the power is on");
    drop(store);

    let store = Store::open_on(Arc::new(sim.clone()), options()).expect("a store");
    let (before, mut told) = (sim.reads(), Vec::new());
    let report = store.check_with_progress(&mut |done, all| told.push((done, all))).expect("a sound store");
    assert_eq!((report.keys, report.items), (u64::from(KEYS) + 2, u64::from(KEYS) + 2));
    // The heap's pages are read in windows, too.
    let reads = sim.reads() - before;
    assert!(reads < 60, "{reads} reads");
    assert!(told.is_sorted() && told.len() > 2, "{told:?}");
    assert_eq!(told.last().map(|&(done, all)| done == all), Some(true), "{told:?}");
}
