//! Starts from damaged media.

use holdfast_fuzz::{fuzz, replay};

#[test]
fn a_damaged_log_or_superblock_never_leads_to_a_wrong_value() {
    fuzz(replay::a_damaged_log_or_superblock_never_leads_to_a_wrong_value);
}

#[test]
fn arbitrary_redo_records_do_no_harm() {
    fuzz(replay::arbitrary_redo_records_do_no_harm);
}
