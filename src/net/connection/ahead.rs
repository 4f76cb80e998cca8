//! Values that were read ahead of their commands. They are kept until these run: the cache may have let them go by then.

use holdfast_store::{Cold, Fetched};
use std::collections::HashSet;

/// What was read for commands of a pipeline that have not run.
#[derive(Default)]
pub struct ReadAhead(Vec<Fetched>);

impl ReadAhead {
    /// Takes out what a command wants, as far as it is here, and off the list of what must be read.
    pub fn take(&mut self, wanted: &mut Vec<Cold>) -> Vec<Fetched> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let ids = ids(wanted);
        let (taken, kept): (Vec<_>, Vec<_>) =
            self.0.drain(..).partition(|fetched| ids.contains(&fetched.id()));
        self.0 = kept;
        wanted.retain(|cold| !taken.iter().any(|fetched| fetched.id() == cold.id()));
        taken
    }

    /// Keeps only what is `upcoming`, and takes that off the list of what must be read.
    pub fn keep_only(&mut self, upcoming: &mut Vec<Cold>) {
        let ids = ids(upcoming);
        self.0.retain(|fetched| ids.contains(&fetched.id()));
        upcoming.retain(|cold| !self.0.iter().any(|fetched| fetched.id() == cold.id()));
    }

    /// Adds what was read. Pages are in their place already.
    pub fn add(&mut self, fetched: impl IntoIterator<Item = Fetched>) {
        self.0.extend(fetched.into_iter().filter(|fetched| !fetched.is_page()));
    }

    /// Gives back the memory.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

fn ids(cold: &[Cold]) -> HashSet<u64> {
    cold.iter().map(Cold::id).collect()
}
