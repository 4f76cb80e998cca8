//! The commands of a pipeline that are to run next: the store is told of their keys, so that they wait for memory together
//! and not one after another.

use holdfast_resp::Parser;
use holdfast_store::{EXPECTED_MAX, Expected, Store};

/// What is known of the commands at the head of the input.
#[derive(Default)]
pub struct Lookahead {
    expected: Vec<Expected>,
    /// How many of them have run.
    done: usize,
}

impl Lookahead {
    /// Looks at the command that `parser` has found at the start of `input` and those behind it, unless it is the only one
    /// or was looked at before.
    #[inline]
    pub fn look(&mut self, store: &Store, db: u8, parser: &Parser, input: &[u8]) {
        if self.done < self.expected.len() || !parser.has_ahead() {
            return;
        }
        self.forget();
        self.expected.reserve(EXPECTED_MAX);
        let keys = parser.upcoming(input).map_while(|args| args.get(1));
        store.expect(db, keys.take(EXPECTED_MAX), &mut self.expected);
    }

    /// What is known of the second argument of the command that runs now.
    #[inline]
    pub fn next(&mut self) -> Option<Expected> {
        let next = self.expected.get(self.done).copied();
        self.done += 1;
        next
    }

    /// The input may be another now.
    pub fn forget(&mut self) {
        self.expected.clear();
        self.done = 0;
    }
}
