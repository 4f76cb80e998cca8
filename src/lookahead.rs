//! The commands of a pipeline behind the one that runs: the store is told of their keys, so that they wait for memory
//! together and not one after another.

use holdfast_resp::peek;
use holdfast_store::{Expected, Store};

/// Commands looked ahead.
const DEPTH: usize = 4;

/// What is known of the commands behind the current one.
#[derive(Default)]
pub struct Lookahead {
    expected: [Option<Expected>; DEPTH],
    len: usize,
    /// Bytes of input that they take.
    bytes: usize,
}

impl Lookahead {
    /// Before a command runs: looks at what follows it.
    #[inline]
    pub fn look(&mut self, store: &Store, db: u8, following: &[u8]) {
        while self.len < DEPTH {
            let Some((key, length)) = following.get(self.bytes..).and_then(peek) else { break };
            self.expected[self.len] = Some(store.expect(db, key));
            self.len += 1;
            self.bytes += length;
        }
        if let Some(next) = &self.expected[0] {
            store.expect_value(next);
        }
    }

    /// The command has run, and the one behind it, of so many bytes, is next.
    #[inline]
    pub fn step(&mut self, length: usize) {
        if self.len > 0 {
            self.expected.rotate_left(1);
            self.expected[DEPTH - 1] = None;
            self.len -= 1;
            self.bytes -= length;
        }
    }
}
