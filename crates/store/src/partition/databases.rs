//! The numbers that clients know databases by, and the physical ones that these stand for.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Databases of a store.
pub const DATABASES: usize = 16;
/// Databases that there are to exchange for these; those that are not in use are being freed. All can be flushed at once, and there
/// are some in hand for when that is not all freed yet.
pub(crate) const PHYSICAL_DATABASES: usize = 40;
/// The physical database of what the server itself keeps: no logical one, so that clients neither see nor flush it.
pub const SYSTEM_DATABASE: u8 = PHYSICAL_DATABASES as u8 - 1;

/// Which physical database each logical one is. A physical one that none is, is garbage, but for the system's. To change that, all partitions
/// must be locked; so who has locked one may rely on it.
#[derive(Default)]
pub(crate) struct Databases([AtomicU8; DATABASES]);

impl Databases {
    pub fn physical(&self, logical: u8) -> u8 {
        self.0[logical as usize].load(Relaxed)
    }

    pub fn set(&self, logical: u8, physical: u8) {
        self.0[logical as usize].store(physical, Relaxed);
    }

    /// The logical database that a physical one is; `None`: it is garbage.
    pub fn logical(&self, physical: u8) -> Option<u8> {
        self.0.iter().position(|p| p.load(Relaxed) == physical).map(|logical| logical as u8)
    }

    /// A bit for each physical database that is garbage.
    fn garbage_bits(&self) -> u64 {
        let all = (1 << PHYSICAL_DATABASES) - 1;
        all & !self.0.iter().fold(1 << SYSTEM_DATABASE, |used, physical| used | 1 << physical.load(Relaxed))
    }

    /// One that is garbage.
    pub fn garbage(&self) -> u8 {
        self.garbage_bits().trailing_zeros() as u8
    }

    pub fn is_garbage(&self, physical: u8) -> bool {
        self.garbage_bits() >> physical & 1 == 1
    }

    /// All that are garbage.
    pub fn all_garbage(&self) -> impl Iterator<Item = u8> + use<> {
        let bits = self.garbage_bits();
        (0..PHYSICAL_DATABASES as u8).filter(move |physical| bits >> physical & 1 == 1)
    }
}
