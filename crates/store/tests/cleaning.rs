//! Cleaning at the edges.

use holdfast_store::{Options, SimIo, Store, Txn, collections::hash::Expiry};
use std::sync::Arc;

#[test]
fn a_segment_that_the_log_ends_with_is_kept() {
    let sim = SimIo::new(1);
    let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let options = Options { segment_size: Some(64 << 10), ..options };
    let open = || Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store");
    let store = open();
    store.attach();
    // What a hash writes is dead once it is in a checkpoint. It goes on until a batch ends just where a segment does.
    let mut len = 0;
    loop {
        len = (len + 7) % 60;
        let fields = [(&b"field"[..], &[b'x'; 60][..len])];
        store.run(&[b"h"], |txn| txn.hash_set(0, b"h", fields, Expiry::Clear)).expect("room");
        store.log().wait_durable(store.log().tail()).expect("a sound medium");
        let segments = store.log().segments();
        if segments.last().is_some_and(|last| last.end_lsn == store.log().tail()) {
            break;
        }
        if segments.len() > 4 {
            store.checkpoint().expect("a sound medium");
            while store.clean().expect("a sound medium") {}
        }
    }
    store.checkpoint().expect("a sound medium");
    while store.clean().expect("a sound medium") {}
    drop(store);

    let store = open();
    let read = |txn: &mut Txn| Ok(txn.hash_get(0, b"h", b"field")?.map(|value| value.to_vec()));
    let (value, _) = store.run(&[b"h"], read).expect("a sound value");
    assert_eq!(value, Some(vec![b'x'; len]));
    store.check().expect("a sound store");
}
