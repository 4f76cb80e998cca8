//! The replay oracle (I-14): what a start makes of a store's files is, to the last byte of the heap, what the store has in
//! memory. A byte that is not is one that somebody has changed without redo, and it does harm later only, when a record
//! is made that tells a difference from it.

use holdfast_heap::Image;
use holdfast_io::{Further, Spread};
use holdfast_store::{FILES, Io, Lsn, OpenError, Options, SimIo, Store};
use std::{cell::Cell, sync::Arc};

thread_local! {
    /// How many heaps this thread has compared: a test has one of its own.
    pub static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// What a store's heap held when its log ended at an LSN.
pub struct Snapshot {
    pub tail: Lsn,
    heap: Vec<Image>,
}

impl Snapshot {
    pub fn of(store: &Store) -> Snapshot {
        Snapshot { tail: store.log().tail(), heap: store.heap_image() }
    }

    /// Compares it with the heap of a store that has replayed the log up to the same LSN.
    pub fn compare(&self, replayed: &Store) {
        for (number, (live, replayed)) in self.heap.iter().zip(replayed.heap_image()).enumerate() {
            if let Some(difference) = live.first_difference(&replayed) {
                panic!("partition {number} is not replayed as it was at LSN {}: {difference}", self.tail);
            }
        }
        COMPARED.set(COMPARED.get() + 1);
    }
}

/// The data folder of a machine, with the further folders that it has, and with more of them.
pub fn folders(sim: &SimIo, more: &[&str]) -> Result<Arc<dyn Io>, OpenError> {
    // One whose path has a minus in front lies below.
    let further = |path: &&str| Further {
        path: path.trim_start_matches('-').to_owned(),
        is_below: path.starts_with('-'),
    };
    let more: Vec<_> = more.iter().map(further).collect();
    Spread::open(Arc::new(sim.clone()), "home", FILES, &more, &|further, _| Ok(sim.folder(further.path)))
}

/// Writes what waits to be written, and compares the store's heap with the one that a start on the same files replays.
/// False if the machine failed meanwhile.
pub fn compare(store: &Store, sim: &SimIo, options: &Options) -> bool {
    while store.log().durable() < store.log().tail() {
        if store.log().commit_once().is_err() {
            return false;
        }
    }
    let replayed = folders(&sim.fork(), &[]).and_then(|io| Store::open_on(io, options.clone()));
    let replayed = replayed.expect("a store that starts");
    assert_eq!(replayed.log().tail(), store.log().tail());
    Snapshot::of(store).compare(&replayed);
    true
}
