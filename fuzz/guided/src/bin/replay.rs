//! What is found on the media after a crash.
#![no_main]

use holdfast_fuzz::{Rng, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((0..128, data)) => replay::arbitrary_redo_records_do_no_harm(&mut Rng::from_bytes(data)),
    Some((_, data)) => {
        replay::a_damaged_log_or_superblock_never_leads_to_a_wrong_value(&mut Rng::from_bytes(data));
    }
    None => {}
});
