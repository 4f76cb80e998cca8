//! What the store does by itself, to be called by who drives it (tests do), or wants it now.

use super::Store;
use crate::maintenance::{
    Maintenance,
    expiry::{self, ExpireHand},
    sweeper,
};
use holdfast_io::Result;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

impl Store {
    /// Counts all entries into the log's live bytes, as [`Store::clean`] needs it. The maintenance thread does so itself.
    pub fn attach(&self) {
        self.engine().attach_all();
    }

    /// Takes a checkpoint: a later start replays the log from here on only.
    pub fn checkpoint(&self) -> Result<()> {
        self.maintenance.checkpoint()
    }

    /// Condenses what is durable of the redo behind the last checkpoint, whether or not that pays. The maintenance thread does so itself, if it
    /// does.
    pub fn condense(&self) {
        self.maintenance.checkpoints.condense(self.engine(), 0);
    }

    /// Asks the maintenance thread for a checkpoint of all that is written so far, and returns its number for
    /// [`Store::checkpoint_result`].
    pub fn request_checkpoint(&self) -> u64 {
        let number = self.maintenance.checkpoints.request();
        self.wake_maintenance();
        number
    }

    /// Whether expired keys are looked for all the time, as they are unless told otherwise, or only removed when somebody
    /// looks at them.
    pub fn set_active_expiry(&self, on: bool) {
        self.maintenance.expiry.is_active.store(on, Relaxed);
    }

    /// From now on, or no longer, removes nothing because it has expired: another server says when.
    pub fn keep_expired(&self, on: bool) {
        self.shared.keeps_expired.store(on, Relaxed);
    }

    /// Does not look for expired keys for a while; see [`crate::Txn::keep_expired`].
    pub fn hold_active_expiry(&self, while_: Duration) {
        let until = self.now_ms().saturating_add(while_.as_millis() as u64);
        self.maintenance.expiry.held_until.store(until, Relaxed);
    }

    /// Frees the segments that nothing needs, or empties one if garbage takes too much space; whether there was anything to
    /// do. Nothing until all entries are counted.
    pub fn clean(&self) -> Result<bool> {
        self.maintenance.clean(true)
    }

    /// Says in the log what time it is, if it is time to, for a restore to a point in time. The maintenance thread does so itself.
    pub fn mark_clock(&self) {
        self.maintenance.clock_marks.mark(self.engine());
    }

    /// Makes a dictionary for small values, if there are enough samples of them and it pays; whether it did. A thread of the store's
    /// does so itself.
    pub fn train(&self) -> Result<bool> {
        self.maintenance.train()
    }

    /// Why the last dictionary could not be written, if that was since the last call.
    pub fn take_dictionary_failure(&self) -> Option<String> {
        self.shared.compression.take_failure()
    }

    /// Frees a slice of what was flushed or removed and takes long to free, in each partition; whether there may be more. The
    /// maintenance thread does so itself.
    pub fn sweep(&self) -> bool {
        sweeper::sweep(self.engine())
    }

    /// Forgets the copies of values in the cache, so that they are read from the medium when they are wanted next, but not
    /// in partitions that are [held for long](crate::Txn::hold_long).
    pub fn forget_copies(&self) {
        for number in 0..self.partitions() {
            if let Ok(mut part) = self.engine().try_lock(number) {
                part.forget_copies(&self.shared);
            }
        }
    }

    /// Freezes collections that take about so many bytes of the heap, those that were not in use of late first, and returns
    /// how many bytes those took that were. The store does so itself when it needs the memory.
    pub fn freeze(&self, bytes: u64) -> Result<u64> {
        let Maintenance { engine, freezer, .. } = &*self.maintenance;
        freezer.freeze(engine, true, |frozen| frozen >= bytes).map(|(_, bytes)| bytes)
    }

    /// Looks for expired keys and fields in all partitions, a slice of time in all. The maintenance thread does so itself.
    pub fn expire(&self) -> Result<()> {
        let engine = self.engine();
        expiry::expire(engine, &mut ExpireHand::new(engine.partitions.len())).map(drop)
    }

    /// Has `observer` called in each thread that is about to lock partitions for a step of a checkpoint, of cleaning, expiry,
    /// freezing or sweeping, or in [`Store::begin`]: for tests, which may let it wait there. Has no effect a second time.
    pub fn on_step(&self, observer: impl Fn(&[u16]) + Send + Sync + 'static) {
        self.engine().steps.observe(observer);
    }

    pub(super) fn wake_maintenance(&self) {
        self.engine().wake_maintenance();
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        collections::hash::Expiry,
        maintenance::freezer::{FreezeOutcome, evict_pages},
        store::{Store, options::Options},
    };
    use holdfast_io::SimIo;
    use std::sync::Arc;

    #[test]
    fn that_most_pages_have_changed_is_told_before_none_can_leave() {
        let options =
            Options { heap_bytes_max: 64 << 20, partitions: 1, background: false, ..Options::default() };
        let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
        let fields: Vec<String> = (0..20_000).map(|n| format!("field {n}")).collect();
        let write = |key: &[u8], value: [u8; 400]| {
            for some in fields.chunks(100) {
                let pairs = some.iter().map(|field| (field.as_bytes(), &value[..]));
                store.begin_all().hash_set(0, key, pairs, Expiry::Clear).expect("room");
            }
        };
        write(b"first", [1; 400]);
        write(b"second", [1; 400]);
        store.checkpoint().expect("a sound medium");
        write(b"first", [2; 400]);
        let freezer = &store.maintenance.freezer;
        let freeze =
            |bytes| freezer.freeze(store.engine(), true, |frozen| frozen >= bytes).expect("a sound medium").0;
        assert_eq!(freeze(1 << 20), FreezeOutcome::EnoughForNow);
        assert_eq!(freeze(u64::MAX), FreezeOutcome::Unwritten);
        store.checkpoint().expect("a sound medium");
        assert_eq!(freeze(1 << 20), FreezeOutcome::Enough);
    }

    #[test]
    fn what_is_not_in_memory_is_not_read_to_be_frozen() {
        const HASHES: u64 = 500;
        let options =
            Options { heap_bytes_max: 64 << 20, partitions: 1, background: false, ..Options::default() };
        let sim = SimIo::new(1);
        let store = Store::open_on(Arc::new(sim.clone()), options).expect("a store");
        for number in 0..HASHES {
            let pairs = [("field", [b'x'; 40])].map(|(field, value)| (field.as_bytes().to_vec(), value));
            let pairs = pairs.iter().map(|(field, value)| (&field[..], &value[..]));
            let key = number.to_le_bytes();
            store.begin_all().hash_set(0, &key, pairs, Expiry::Clear).expect("room");
        }
        store.checkpoint().expect("a sound medium");
        sim.advance_ms(10_000);
        // At the second time around, nothing was used.
        for _ in 0..3 {
            while !evict_pages(store.engine(), 0).is_around {}
        }
        let faults = store.stats().heap_page_faults;
        let freeze = |reads_absent| {
            let frozen = store.maintenance.freezer.freeze(store.engine(), reads_absent, |_| false);
            frozen.expect("a sound medium");
            (store.stats().freezes, store.stats().heap_page_faults - faults)
        };
        let (frozen, faults) = freeze(false);
        assert!(frozen < HASHES / 10 && faults == 0, "{frozen} were frozen, {faults} pages read");
        assert_eq!(freeze(true).0, HASHES);
    }
}
