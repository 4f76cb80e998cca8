//! Reading many keys, for programs that embed the store: what is in the cache is shown where it is, without a transaction.

use crate::{
    Store,
    store::{EXPECTED_MAX, Expected},
    txn,
};
use holdfast_log::Lsn;

impl Store {
    /// Shows `f` the string values of some keys of a database, in order, each with its key's place among them. Every key is
    /// read by itself: there may be no moment at which all had these values. While `f` sees a value the key's partition may
    /// be locked: it must not use the store. Returns the LSN that the log must be durable beyond for what was seen to be
    /// safe, as [`Store::run`] does. Blocks while values are fetched.
    ///
    /// # Errors
    /// Those of [`crate::Txn::get`], at the first key that has one.
    pub fn get_many(
        &self,
        db: u8,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> txn::Result<Lsn> {
        let (now_ms, mut gate) = (self.now_ms(), 0);
        let mut expected = Vec::with_capacity(EXPECTED_MAX);
        for (some, first) in keys.chunks(EXPECTED_MAX).zip((0..).step_by(EXPECTED_MAX)) {
            self.expect(db, some.iter().copied(), &mut expected);
            for ((&key, &Expected { partition, digest, slot }), at) in some.iter().zip(&expected).zip(first..)
            {
                let mut part = self.inner.partitions[usize::from(partition)].lock();
                part.follow_limits(self.shared());
                part.set_now(now_ms);
                let recent = part.recent(digest);
                if let Some(value) = part.read_copy(self.shared(), db, key, digest, slot) {
                    f(at, Some(value));
                    gate = gate.max(recent);
                    continue;
                }
                drop(part);
                let ((), lsn) = self.run(&[key], |txn| {
                    let value = txn.get(db, key)?;
                    f(at, value);
                    Ok(())
                })?;
                gate = gate.max(lsn);
            }
        }
        Ok(gate)
    }
}
