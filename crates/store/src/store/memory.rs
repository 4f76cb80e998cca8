//! Whether there is room, in memory and in the log, and how it is made.

use super::{Store, options::max_pending_bytes};
use crate::{
    maintenance::{
        disk::DiskUsage,
        eviction::{Eviction, Room},
    },
    partition::budget::Memory,
    txn::room::batch_bytes_max,
};
use holdfast_io::FolderUse;
use holdfast_log::{Admission, Purpose, batch_len};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

impl Store {
    /// Sets the RAM that the store may take, in bytes. May be called with partitions locked.
    pub fn set_memory_bytes_max(&self, bytes: usize) {
        self.shared.budget.set_max(bytes);
        self.shared.budget.set_in_vain(false);
        self.shared.log.set_max_pending_bytes(max_pending_bytes(bytes));
        self.shared.budget.can_freeze.store(self.engine().is_maintained(), Relaxed);
        self.shared.judge_memory();
        self.maintenance.evictions.look_soon();
        if let Some(threads) = &*self.threads.lock() {
            threads.freezer.thread().unpark();
            threads.maintenance.thread().unpark();
        }
    }

    /// Sets the bytes that the data folder may take; `u64::MAX`: what the medium holds. If it takes more, what makes data grow is
    /// refused as on a full log until it does not.
    pub fn set_disk_bytes_max(&self, bytes: u64) {
        self.maintenance.disk.set(bytes);
        self.wake_maintenance();
    }

    /// What the data folder takes, and may take.
    pub fn disk_usage(&self) -> DiskUsage {
        self.maintenance.disk.usage(self.engine())
    }

    /// What the further folders hold over which the log is spread.
    pub fn further_folders(&self) -> Vec<FolderUse> {
        self.shared.io.further_folders()
    }

    /// Whether there is memory for data to grow.
    #[inline]
    pub fn memory(&self) -> Memory {
        match self.shared.budget.memory() {
            Memory::Out => self.memory_now(),
            other => other,
        }
    }

    /// The same, when there was none a moment ago: data may have been removed since, and be on its way out.
    #[cold]
    fn memory_now(&self) -> Memory {
        if self.shared.budget.evicts() {
            return Memory::Out;
        }
        self.shared.judge_memory();
        match self.shared.budget.memory() {
            Memory::Out if self.engine().is_maintained() && self.shared.is_sweeping() => {
                self.wake_maintenance();
                Memory::Busy
            }
            memory => memory,
        }
    }

    /// Whether data should not grow, since it takes more memory than the store may have, and none of it can be frozen or
    /// evicted. See [`Store::make_room`].
    pub fn is_out_of_memory(&self) -> bool {
        self.memory() == Memory::Out
    }

    /// Bytes of memory that data take, without copies that can be given up at any time, and that they may take. Locks no
    /// partition.
    pub fn memory_of_data(&self) -> (usize, usize) {
        (self.shared.budget.ram_of_data().data, self.shared.budget.max())
    }

    /// Sets whether and how keys are evicted when there is more data than [`Store::set_memory_bytes_max`] says. May be called
    /// with partitions locked.
    pub fn set_eviction(&self, eviction: Option<Eviction>) {
        self.maintenance.evictions.set(&self.shared, eviction);
        self.wake_maintenance();
    }

    /// Says how many bytes count against the limit beside the data.
    pub fn set_other_bytes(&self, bytes: u64) {
        self.maintenance.evictions.set_other_bytes(bytes);
    }

    /// Whether keys are to be evicted, as far as that can be told at once: then [`Store::make_room`] should be called before
    /// data grows.
    #[inline]
    pub fn wants_room(&self) -> bool {
        self.maintenance.evictions.is_due(&self.shared)
    }

    /// Whether copies take more than they may have, and the store's own thread is letting them go.
    pub fn is_making_room(&self) -> bool {
        self.shared.budget.is_making_room()
    }

    /// Evicts keys until there is room for more data, or for about so long. No partition may be locked by the caller.
    /// [`Store::is_out_of_memory`] tells from then on whether there was nothing to evict.
    pub fn make_room(&self, time: Duration) -> Room {
        let room = self.maintenance.evictions.make_room(self.engine(), time);
        if room == Room::Soon {
            self.wake_maintenance();
        }
        room
    }

    /// Whether a batch of about `bytes` that makes data grow may be written now. While the cleaner can make room, a full
    /// log is a busy one. A batch that may come to more than 32 KiB must [reserve](crate::Txn::reserve) that, too.
    #[inline(always)]
    pub fn admit(&self, bytes: usize) -> Admission {
        match self.log().admit(bytes) {
            Admission::Full => self.engine().judge(Admission::Full, batch_len(bytes)),
            admission => admission,
        }
    }

    /// Bytes that a transaction may write at most.
    #[inline]
    pub fn batch_bytes_max(&self) -> usize {
        batch_bytes_max(self.log())
    }

    /// As [`Store::admit`], for what removes data: it may use what is kept back for that.
    #[inline]
    pub fn admit_removal(&self, bytes: usize) -> Admission {
        match self.log().admit_for(bytes, Purpose::Remove) {
            Admission::Full => self.engine().judge(Admission::Full, batch_len(bytes)),
            admission => admission,
        }
    }
}
