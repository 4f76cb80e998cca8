//! Keys that expire in masses while nobody calls.

use holdfast_store::{Options, SimIo, Store};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const KEYS: u32 = 200_000;

fn key(number: u32) -> Vec<u8> {
    format!("a name of a key that is long enough to be seen {number}").into_bytes()
}

/// The log takes what removes them in slices, each written before more comes, and the index of their expiries goes, too.
#[test]
fn masses_that_expire_fill_neither_buffers_nor_an_index() {
    let sim = SimIo::new(1);
    let options = Options { partitions: 2, heap_bytes_max: 256 << 20, ..Options::default() };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    let at = store.now_ms() + 1000;
    for number in 0..KEYS {
        let key = key(number);
        let expires = number % 10 != 0;
        let set = store.run(&[&key], |_, writes| {
            writes.set(0, &key, "value");
            if expires {
                writes.set_expiry(0, &key, Some(at));
            }
            Ok(())
        });
        set.expect("room");
    }
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    let heap = store.stats().heap_allocated_bytes;
    sim.advance_ms(2000);
    let (deadline, mut pending_max) = (Instant::now() + Duration::from_secs(30), 0);
    let expires_len = || store.try_expires_len(0).expect("nobody holds a partition for long");
    while expires_len() > 0 || heap - store.stats().heap_allocated_bytes < u64::from(KEYS) * 10 {
        assert!(Instant::now() < deadline, "{} keys have expired and are there", expires_len());
        pending_max = pending_max.max(store.log().stats().pending_bytes);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(pending_max < 2 << 20, "{pending_max} bytes waited to be written");
    assert_eq!(store.len(0), u64::from(KEYS) / 10);
    store.check().expect("a sound store");
}
