//! Elements of large sets and hashes that commands will look at soon: the memory of many of them is asked for at once, in two
//! steps, each of which asks for what the next one reads.

use super::{Partition, index::Slot, shared::Shared};
use crate::{
    collections::{
        object::{self, Encoding},
        table::{Ahead, Table},
    },
    format::{digest::Digest, entry_word::Type},
    util::probe,
};

impl Partition {
    /// The table of a large set or hash at an entry. All of it must be in memory.
    #[inline]
    pub fn table_at(&self, db: u8, slot: Slot, digest: Digest) -> Option<Table> {
        let word = self.databases[db as usize].keys.get_at(&self.arena, slot, digest)?;
        let obj = word.in_heap().then(|| word.offset())?;
        let is_table = matches!(word.ty(), Type::Set | Type::Hash)
            && object::encoding(&self.arena, obj) == Encoding::Hashtable;
        is_table.then(|| Table::at(obj + object::ROOT))
    }

    /// The first of two steps to an element in such a table.
    #[inline]
    pub fn prefetch_bucket(&self, shared: &Shared, table: Table, element: &[u8]) -> Ahead {
        table.prefetch_bucket(&self.arena, shared.hasher.hash(element))
    }

    /// The second.
    #[inline]
    pub fn prefetch_element(&self, ahead: Ahead) {
        /// A word with any of these bits is the element itself, or that of a field that expires.
        const NO_BLOCK: u64 = !0 << 48;
        if let Some(block) = ahead.word(&self.arena).filter(|word| word & NO_BLOCK == 0) {
            probe::prefetch(self.arena.bytes(block, 1));
        }
    }
}
