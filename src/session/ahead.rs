//! Values that were read ahead of their commands. They are kept until these run: the cache may have let them go by then.

use holdfast_store::{Cold, Fetched};

/// The numbers of what is wanted.
pub struct Ids(Vec<u64>);

impl Ids {
    /// Those of these.
    pub fn of(cold: &[Cold]) -> Ids {
        let mut ids: Vec<u64> = cold.iter().map(Cold::id).collect();
        ids.sort_unstable();
        Ids(ids)
    }

    /// Whether a number is among them.
    pub fn has(&self, id: u64) -> bool {
        self.0.binary_search(&id).is_ok()
    }
}

/// What was read for commands of a pipeline that have not run.
#[derive(Default)]
pub struct ReadAhead(Vec<Fetched>);

impl ReadAhead {
    /// Takes out what has a number, if it is here.
    pub fn take_one(&mut self, id: u64) -> Option<Fetched> {
        let at = self.0.iter().position(|fetched| fetched.id() == id)?;
        Some(self.0.swap_remove(at))
    }

    /// Takes out what a command wants, as far as it is here, and off the list of what must be read.
    pub fn take(&mut self, wanted: &mut Vec<Cold>) -> Vec<Fetched> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let ids = Ids::of(wanted);
        let (taken, kept): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|fetched| ids.has(fetched.id()));
        self.0 = kept;
        wanted.retain(|cold| !taken.iter().any(|fetched| fetched.id() == cold.id()));
        taken
    }

    /// Keeps only what is `upcoming`, and takes that off the list of what must be read.
    pub fn keep_only(&mut self, upcoming: &mut Vec<Cold>) {
        if self.0.is_empty() {
            return;
        }
        let ids = Ids::of(upcoming);
        self.0.retain(|fetched| ids.has(fetched.id()));
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
