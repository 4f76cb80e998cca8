//! `Store::run`: what it finds cold is fetched, and the transaction runs again.

use holdfast_store::{Options, SimIo, Store};
use std::sync::Arc;

#[test]
fn cold_values_are_fetched_and_nothing_is_done_twice() {
    let sim = SimIo::new(1);
    let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let options = Options { segment_size: Some(64 << 10), ..options };
    let open = || Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    let store = open();
    for key in [&b"a"[..], b"b"] {
        store.run(&[key], |txn| txn.set(0, key, b"5", false)).expect("room");
    }
    store.close().expect("an orderly end");
    drop(store);

    // After a start nothing is cached: both reads find their value cold.
    let store = open();
    let mut runs = 0;
    let add = |text: &[u8]| std::str::from_utf8(text).expect("digits").parse::<u64>().expect("a number");
    let (sum, gate) = store
        .run(&[b"a", b"b"], |txn| {
            runs += 1;
            let sum = add(txn.get(0, b"a")?.expect("there")) + add(txn.get(0, b"b")?.expect("there"));
            txn.set(0, b"a", sum.to_string().as_bytes(), false)?;
            Ok(sum)
        })
        .expect("sound values");
    assert_eq!((sum, runs), (10, 3));
    store.log().wait_durable(gate).expect("a sound medium");
    let (value, _) =
        store.run(&[b"a"], |txn| Ok(txn.get(0, b"a")?.map(<[u8]>::to_vec))).expect("sound values");
    assert_eq!(value.as_deref(), Some(&b"10"[..]));
}
