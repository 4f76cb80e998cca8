//! Other servers that have the same log, for tests of one that leads.

use holdfast_log::{Groups, Log, Lsn, SEAL};
use holdfast_store::OpenError;
use std::sync::Arc;

/// They have all at once, and agree.
struct Others;

impl Groups for Others {
    fn seal(&self) -> Result<Vec<u8>, OpenError> {
        Ok(vec![SEAL])
    }

    fn begin(&self, _: Vec<u8>, _: Lsn) -> Result<(), OpenError> {
        Ok(())
    }

    fn durable_here(&self, end: Lsn) -> Lsn {
        end
    }

    fn keep_from(&self, _: Lsn) -> Result<(), OpenError> {
        Ok(())
    }
}

/// Has a log lead in a term. Who they are is to be kept as long as it commits.
#[must_use]
pub fn lead(log: &Log, term: u32) -> Arc<dyn Groups> {
    let others: Arc<dyn Groups> = Arc::new(Others);
    log.lead(term, Arc::downgrade(&others));
    others
}
