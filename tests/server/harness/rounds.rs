//! Keys that are all set anew, round by round, to values that tell which of them it was.

use super::{Client, Folder, bulk, ok};
use holdfast_resp::write_command;
use std::fs;

/// How many keys, and how long their values are.
pub struct Rounds {
    /// Keys; a multiple of 100.
    pub keys: usize,
    /// How often a value says of which key and round it is.
    pub repeats: usize,
}

impl Rounds {
    /// The value of a key in a round.
    pub fn value(&self, n: usize, round: usize) -> String {
        format!("{n}:{round}:").repeat(self.repeats)
    }

    /// Sets all keys, in order.
    pub fn fill(&self, client: &mut Client, round: usize) {
        for first in (0..self.keys).step_by(100) {
            let mut requests = Vec::new();
            for n in first..first + 100 {
                write_command(&mut requests, &["SET", &format!("key:{n}"), &self.value(n, round)]);
            }
            client.send(&requests);
            (first..first + 100).for_each(|_| assert_eq!(client.reply(), ok()));
        }
    }

    /// All keys have the values of a round.
    pub fn assert_filled(&self, client: &mut Client, round: usize) {
        for n in 0..self.keys {
            assert!(client.call_args(&["GET", &format!("key:{n}")]) == bulk(self.value(n, round)), "{n}");
        }
    }
}

/// Files of the log in a folder.
pub fn log_files(folder: &Folder, name: &str) -> usize {
    fs::read_dir(folder.join(&format!("{name}/log"))).map_or(0, Iterator::count)
}
