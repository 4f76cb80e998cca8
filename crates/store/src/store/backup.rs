//! Backups of a store that is open.

use super::Store;
use crate::maintenance::backup::{BackupState, Begin, Lease};
use holdfast_log::Lsn;

impl Store {
    /// Keeps what a backup of now copies, until the lease is dropped. Waits for nothing.
    pub fn begin_backup(&self) -> Begin {
        Lease::begin(&self.maintenance)
    }

    /// Appends a batch to the log that says only what time it is, so that there is something to commit. Returns where it ends.
    pub fn append_clock_mark(&self) -> Lsn {
        self.maintenance.clock_marks.force(self.engine())
    }

    /// The backup that is under way, and those that were.
    pub fn backup_state(&self) -> BackupState {
        self.maintenance.backups.state()
    }

    /// Frees what was kept for a backup that has ended, or that has to yield. The maintenance thread does so itself.
    pub fn tend_backup(&self) {
        self.maintenance.backups.tend(&self.maintenance);
    }
}
