//! Who owns an extent, as the records and the file say.

use crate::{EXTENT, header::GRANULE};

/// The owner of a free extent.
pub(crate) const NOBODY: u16 = 0xffff;
/// Set beside the owner of a raw extent.
pub(crate) const RAW: u16 = 1 << 15;

/// Whether a checkpoint or a record can say this of an extent.
pub(crate) fn is_valid(owner: u16, used: u16, arenas: u16) -> bool {
    let used_max = EXTENT as usize / GRANULE;
    (owner == NOBODY || owner & !RAW < arenas) && usize::from(used) <= used_max
}
