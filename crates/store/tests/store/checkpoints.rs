//! When a checkpoint is taken.

use crate::open;
use holdfast_store::{Options, SimIo, Store};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Less log than an idle store leaves to be replayed, or than calls for a checkpoint by its bytes.
const KEYS: u32 = 3000;

fn store(checkpoint_batches: u64) -> Store {
    let options =
        Options { partitions: 1, heap_bytes_max: 64 << 20, checkpoint_batches, ..Options::default() };
    Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store")
}

fn write(store: &Store) {
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        open::run(store, &[&key], |txn| txn.set(0, &key, b"value", false)).expect("room");
    }
}

#[test]
fn many_small_batches_call_for_one() {
    let store = store(1000);
    write(&store);
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.stats().checkpoints == 0 {
        assert!(Instant::now() < deadline, "no checkpoint was taken");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(store.stats().replay_bytes < 1 << 20);
}

#[test]
fn few_batches_do_not() {
    let store = store(u64::from(KEYS) + 1);
    write(&store);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(store.stats().checkpoints, 0);
}
