//! Backups of a store that is open.

use super::Store;
use crate::maintenance::backup::{BackupState, Begin, Lease};

impl Store {
    /// Keeps what a backup of now copies, until the lease is dropped. Waits for nothing.
    pub fn begin_backup(&self) -> Begin {
        Lease::begin(&self.maintenance)
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
