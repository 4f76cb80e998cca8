//! The commands of a pipeline that are to run next: the store is told of their keys and elements, so that they wait for memory together
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
    /// What is known of the second argument of the command that `parser` has found at the start of `input` and that runs now.
    /// Looks at it and those behind it, unless it is the only one or was looked at before.
    #[inline]
    pub fn next(&mut self, store: &Store, db: u8, parser: &Parser, input: &[u8]) -> Option<&Expected> {
        if self.done >= self.expected.len() && parser.has_ahead() {
            self.look(store, db, parser, input);
        }
        let next = self.expected.get(self.done);
        self.done += 1;
        next
    }

    fn look(&mut self, store: &Store, db: u8, parser: &Parser, input: &[u8]) {
        self.done = 0;
        self.expected.reserve(EXPECTED_MAX);
        // What follows a key is an element in commands on sets and hashes, mostly; elsewhere nothing is found by it.
        let keys = parser.upcoming(input).map_while(|args| Some((args.get(1)?, args.get(2))));
        store.expect(store.database(db), keys, &mut self.expected);
    }

    /// So many of those behind the command that has run have run with it.
    pub fn pass(&mut self, count: usize) {
        self.done += count;
    }
}
