//! A quota that is used up, which the medium's free bytes say nothing of.

use holdfast_store::{Admission, Options, SimIo, Store};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_used_up_quota_refuses_writes_until_something_is_deleted() {
    let sim = SimIo::new(1);
    let options = Options {
        partitions: 1,
        segment_size: Some(64 << 10),
        heap_bytes_max: 16 << 20,
        ..Options::default()
    };
    let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
    // Neither a segment nor a checkpoint finds room.
    sim.set_quota(8 * (64 << 10));
    let set = |key: u32| {
        let key = key.to_be_bytes();
        store.begin_keys([&key[..]]).set(0, &key, &[7; 5000], false).expect("admitted");
        store.log().kick();
    };
    let patience = Instant::now() + Duration::from_secs(20);
    let mut keys = 0;
    while store.log().admit(6000) != Admission::Full {
        if store.log().admit(6000) == Admission::Ok {
            set(keys);
            keys += 1;
        } else {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(store.log().failed(), None);
        assert!(Instant::now() < patience, "it is never full");
    }
    let _ = store.checkpoint();
    assert_eq!(store.log().failed(), None);
    store.request_checkpoint();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(store.log().failed(), None, "the maintenance thread takes it for a failure");
    sim.set_quota(u64::MAX);
    while store.log().admit(6000) != Admission::Ok {
        thread::sleep(Duration::from_millis(10));
        assert!(Instant::now() < patience, "it is full for ever");
    }
}
