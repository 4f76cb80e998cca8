//! Requests and replies in any pieces.

use holdfast_fuzz::{fuzz, requests};

#[test]
fn any_pieces_give_the_same_commands() {
    fuzz(requests::any_pieces_give_the_same_commands);
}

#[test]
fn replies_are_as_long_as_skipping_them() {
    fuzz(requests::replies_are_as_long_as_skipping_them);
}
