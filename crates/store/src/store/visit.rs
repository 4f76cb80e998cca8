//! All keys with their values, one after another: for who copies everything.

use super::{
    Store,
    runs::{RUN_BYTES, Run},
};
use crate::{
    format::item,
    partition::cold::{Cold, ColdItem, Fetched},
    partition::index::CURSOR_BITS,
    txn::Txn,
};
use holdfast_heap::Load;
use holdfast_io::Error;
use std::sync::atomic::Ordering::Relaxed;

/// Keys that one step of the scan finds: few, since what they need of the heap is loaded by partition.
const STEP: usize = 1000;
/// Items that are collected before they are read, in the order of the log: they take some 50 MiB.
const COLD_MAX: usize = 1 << 20;

impl Store {
    /// Calls `visit` for each key of a database that has not expired, in no order, with a transaction over its partition in which it can
    /// read the value. What is on the medium only is read in the order of the log, many items at a time. Nobody else may write meanwhile, nor
    /// may `visit`. In a store without threads the heap's pages take no more memory than the store may, beside those that one key needs and those that
    /// have changed since the last checkpoint.
    ///
    /// # Errors
    /// What `visit` returns, and [`Error`] if an item cannot be read or is damaged.
    pub fn visit_keys<E: From<Error>>(
        &self,
        db: u8,
        mut visit: impl FnMut(&mut Txn, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut cursor, mut cold, mut room) = (0, Vec::new(), HeapRoom::default());
        loop {
            self.load_partition((cursor >> CURSOR_BITS) as u16)?;
            let step = self.scan(db, cursor, STEP);
            cursor = step.next;
            for (key, _) in &step.keys {
                self.visit_key(key, Vec::new(), &mut visit)?;
                room.make(self);
            }
            cold.extend(step.cold);
            if cold.len() >= COLD_MAX || cursor == 0 {
                self.visit_cold(&mut cold, &mut visit, &mut room)?;
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    fn visit_key<E>(
        &self,
        key: &[u8],
        fetched: Vec<Fetched>,
        visit: &mut impl FnMut(&mut Txn, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut txn = self.begin_keys([key]);
        txn.keep_expired();
        txn.note_uses(false);
        txn.supply(fetched);
        visit(&mut txn, key)
    }

    /// Loads what a partition has in the heap, if there is room: else each page is read by itself when it is looked at.
    fn load_partition(&self, number: u16) -> holdfast_io::Result<()> {
        let (heap, max) = (&self.shared().heap, self.shared().budget.max());
        if heap.has_absent() && self.engine().enter(number).arena.allocated_bytes() as usize <= max / 2 {
            while heap.load_next(Load::Arena(number), RUN_BYTES as usize)? {}
        }
        Ok(())
    }

    fn visit_cold<E: From<Error>>(
        &self,
        cold: &mut Vec<ColdItem>,
        visit: &mut impl FnMut(&mut Txn, &[u8]) -> Result<(), E>,
        room: &mut HeapRoom,
    ) -> Result<(), E> {
        let log = &self.shared().log;
        if let Some(last) = cold.iter().map(|cold| cold.lsn).max() {
            log.wait_written(last + 1)?;
        }
        cold.sort_unstable_by_key(|cold| cold.lsn);
        let mut rest = &cold[..];
        while !rest.is_empty() {
            let run = Run::read(log, rest, |&cold| (cold.lsn, Cold::Item(cold).len_max() as u64))?;
            let (some, others) = rest.split_at(run.count);
            for cold in some {
                let (key, fetched) = self.fetched_from(&run, *cold)?;
                self.visit_key(&key, vec![fetched], visit)?;
                room.make(self);
            }
            rest = others;
        }
        cold.clear();
        Ok(())
    }

    /// An item of which the key was wanted, as a whole, and its key.
    fn fetched_from(&self, run: &Run, cold: ColdItem) -> holdfast_io::Result<(Vec<u8>, Fetched)> {
        let corrupt = |what: &str| {
            let (file, offset) = self.shared().log.locate(cold.lsn);
            Error::corrupt(&file, offset, what)
        };
        let record = run.at(cold.lsn);
        let (item, len) = item::decode(record).map_err(corrupt)?;
        let digest = self.shared().secret.digest(item.key);
        if cold.key_of.is_none_or(|expected| expected.h0 != digest.h0) {
            return Err(corrupt("an item that is not its entry's"));
        }
        let mut whole = cold;
        whole.key_of = None;
        let expanded = item::expanded(record, &self.shared().compression).map_err(corrupt)?;
        let record = expanded.unwrap_or_else(|| record[..len].to_vec());
        Ok((item.key.to_vec(), Fetched { cold: Cold::Item(whole), bytes: Ok(record) }))
    }
}

/// What the heap may take while keys are visited.
#[derive(Default)]
struct HeapRoom {
    /// Bytes up to which no more pages can leave, as it was found.
    in_vain: u64,
}

impl HeapRoom {
    /// Has pages leave memory that were not used of late, if the heap takes more than the store may and there is no thread that sees to that.
    fn make(&mut self, store: &Store) {
        let (engine, heap) = (store.engine(), &store.shared().heap);
        let max = store.shared().budget.max() as u64;
        if engine.is_maintained() || heap.held_bytes() <= max.max(self.in_vain) {
            return;
        }
        // A page that was used since the last time is spared once.
        for _ in 0..2 {
            for number in engine.numbers() {
                let evicted = engine.enter(number).arena.evict(usize::MAX);
                engine.counters.evicted_pages.fetch_add(evicted.pages, Relaxed);
            }
            if heap.held_bytes() <= max {
                return;
            }
        }
        self.in_vain = heap.held_bytes() / 8 * 9;
    }
}
