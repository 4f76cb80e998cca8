//! All keys with their values, one after another: for who copies everything.

use super::{Store, runs::Run};
use crate::{
    format::item,
    partition::cold::{Cold, ColdItem, Fetched},
    txn::Txn,
};
use holdfast_io::Error;

/// Keys that one step of the scan finds.
const STEP: usize = 10_000;
/// Items that are collected before they are read, in the order of the log: they take some 50 MiB.
const COLD_MAX: usize = 1 << 20;

impl Store {
    /// Calls `visit` for each key of a database that has not expired, in no order, with a transaction over its partition in which it can
    /// read the value. What is on the medium only is read in the order of the log, many items at a time. Nobody else may write meanwhile, nor
    /// may `visit`.
    ///
    /// # Errors
    /// What `visit` returns, and [`Error`] if an item cannot be read or is damaged.
    pub fn visit_keys<E: From<Error>>(
        &self,
        db: u8,
        mut visit: impl FnMut(&mut Txn, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut cursor, mut cold) = (0, Vec::new());
        loop {
            let step = self.scan(db, cursor, STEP);
            cursor = step.next;
            for (key, _) in &step.keys {
                self.visit_key(key, Vec::new(), &mut visit)?;
            }
            cold.extend(step.cold);
            if cold.len() >= COLD_MAX || cursor == 0 {
                self.visit_cold(&mut cold, &mut visit)?;
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

    fn visit_cold<E: From<Error>>(
        &self,
        cold: &mut Vec<ColdItem>,
        visit: &mut impl FnMut(&mut Txn, &[u8]) -> Result<(), E>,
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
