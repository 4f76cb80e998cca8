//! The commands of a pipeline that are to run next: the store is told of their keys, so that they wait for memory together
//! and not one after another.

use holdfast_resp::peek;
use holdfast_store::{EXPECTED_MAX, Expected, Store};

/// What is known of the commands at the head of the input.
#[derive(Default)]
pub struct Lookahead {
    expected: Vec<Expected>,
    /// How many of them have run.
    done: usize,
}

impl Lookahead {
    /// Looks at the commands at the start of `input`, the first of which has `length` bytes, unless it is the only one or
    /// was looked at before.
    #[inline]
    pub fn look(&mut self, store: &Store, db: u8, input: &[u8], length: usize) {
        if self.done < self.expected.len() || length == input.len() {
            return;
        }
        self.forget();
        self.expected.reserve(EXPECTED_MAX);
        let mut rest = input;
        let keys = std::iter::from_fn(|| {
            let (key, length) = peek(rest)?;
            rest = &rest[length..];
            Some(key)
        });
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
