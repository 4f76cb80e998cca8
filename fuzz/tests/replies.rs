//! Replies to the client library in any pieces.

use holdfast_fuzz::{fuzz, replies};

#[test]
fn any_pieces_give_the_same_replies() {
    fuzz(replies::any_pieces_give_the_same_replies);
}
