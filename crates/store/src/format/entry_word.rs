//! The first word of an index entry: where the value is and what it is (`docs/format.md`, "Index").

use std::fmt;

/// Unit of locations, in bytes.
pub const GRANULE: u64 = 16;
const LOCATION_BITS: u32 = 40;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
/// Bytes of log that can lie between an item and the tail: locations wrap there.
pub const WINDOW: u64 = (1 << LOCATION_BITS) * GRANULE;
/// The size class of an item that waits in an uncommitted batch; its location is then its number in the batch.
pub const PENDING: u8 = u8::MAX;
/// Bits of a word that the index keeps for its user; the rest is the tag of the key's digest.
pub const PAYLOAD_BITS: u32 = 53;

const PAYLOAD_MASK: u64 = (1 << PAYLOAD_BITS) - 1;
const HEAP_BIT: u64 = 1 << 51;
const EXPIRY_BIT: u64 = 1 << 52;

/// The type of a key's value, numbered as on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Type {
    /// A string.
    String = 0,
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    Zset = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
}

impl Type {
    /// Redis's name, as `TYPE` answers.
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
            Type::Zset => "zset",
            Type::Hash => "hash",
            Type::Stream => "stream",
        }
    }

    /// The type with number `n`.
    pub fn from_number(n: u8) -> Option<Type> {
        [Type::String, Type::List, Type::Set, Type::Zset, Type::Hash, Type::Stream].get(n as usize).copied()
    }
}

/// An index entry's payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryWord(pub u64);

impl EntryWord {
    /// An item of `ty` in the log, at `lsn`, of a size class.
    pub fn item(ty: Type, lsn: u64, class: u8) -> EntryWord {
        EntryWord((lsn / GRANULE) & LOCATION_MASK | u64::from(class) << 40 | (ty as u64) << 48)
    }

    /// What of an item's word its record is the redo of: location and size class.
    pub fn item_bytes(lsn: u64, class: u8) -> [u8; 6] {
        let word = EntryWord::item(Type::String, lsn, class).0.to_le_bytes();
        *word.first_chunk().expect("a word has eight bytes")
    }

    /// The same bytes of an entry that an item has left before its batch was committed.
    pub const NO_ITEM: [u8; 6] = [0; 6];

    /// The `number`th item of the uncommitted batch.
    pub fn pending(ty: Type, number: usize) -> EntryWord {
        EntryWord(number as u64 | u64::from(PENDING) << 40 | (ty as u64) << 48)
    }

    /// An object at a heap offset.
    pub fn object(ty: Type, offset: u64) -> EntryWord {
        EntryWord((offset / GRANULE) | ((ty as u64) << 48) | HEAP_BIT)
    }

    /// The word of the index of expiries: Unix time in milliseconds, up to the year 287396.
    pub fn expiry(at_ms: u64) -> EntryWord {
        EntryWord(at_ms.min((1 << PAYLOAD_BITS) - 1))
    }

    /// The value's type.
    pub fn ty(self) -> Type {
        Type::from_number((self.0 >> 48 & 7) as u8)
            .expect("an entry's type is written by us and checked on media")
    }

    /// Whether the value is an object in the heap.
    pub fn in_heap(self) -> bool {
        self.0 & HEAP_BIT != 0
    }

    /// The heap offset of an object.
    pub fn offset(self) -> u64 {
        debug_assert!(self.in_heap());
        (self.0 & LOCATION_MASK) * GRANULE
    }

    /// The size class of an item.
    pub fn class(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// The number in the uncommitted batch, if the item waits in it.
    pub fn pending_number(self) -> Option<usize> {
        (!self.in_heap() && self.class() == PENDING).then_some((self.0 & LOCATION_MASK) as usize)
    }

    /// The LSN of an item: the newest one at or below `tail` that the location stands for.
    pub fn lsn(self, tail: u64) -> u64 {
        debug_assert!(!self.in_heap() && self.class() != PENDING);
        let back = (tail / GRANULE).wrapping_sub(self.0) & LOCATION_MASK;
        (tail / GRANULE).saturating_sub(back) * GRANULE
    }

    /// Whether the key has an expiry.
    pub fn has_expiry(self) -> bool {
        self.0 & EXPIRY_BIT != 0
    }

    /// Whether it names an item in the log that is a string and does not expire. One comparison of all the bits above the
    /// class; a string's type is 0.
    #[inline]
    pub fn is_plain_string(self) -> bool {
        self.0 & (PAYLOAD_MASK >> 48 << 48) == 0 && self.class() != PENDING
    }

    /// The same entry with or without an expiry.
    pub fn with_expiry(self, on: bool) -> EntryWord {
        EntryWord(if on { self.0 | EXPIRY_BIT } else { self.0 & !EXPIRY_BIT })
    }
}

impl fmt::Debug for EntryWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EntryWord({:#x}, {:?}, heap {}, expiry {})",
            self.0,
            self.ty(),
            self.in_heap(),
            self.has_expiry()
        )
    }
}

/// The size class of a record of `bytes`: the least one whose [`class_bytes`] hold it.
pub fn size_class(bytes: usize) -> u8 {
    let units = (bytes as u64).div_ceil(GRANULE);
    if units < 16 {
        return units as u8;
    }
    let exponent = 63 - units.leading_zeros();
    let mantissa = (units >> (exponent - 3)) & 7;
    let exact = (8 | mantissa) << (exponent - 3) == units;
    ((exponent - 2) * 8 + mantissa as u32 + u32::from(!exact)) as u8
}

/// The bytes that a record of a size class takes at most.
pub fn class_bytes(class: u8) -> u64 {
    let class = u64::from(class);
    let units = if class < 16 { class } else { (8 | class & 7) << (class / 8 - 1) };
    units * GRANULE
}

/// The bytes that a record of a size class takes at least, up to the next granule. As many count as live: so none are
/// counted in a segment that the record does not reach.
pub fn class_bytes_min(class: u8) -> u64 {
    class.checked_sub(1).map_or(0, |smaller| class_bytes(smaller) + GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_within_an_eighth() {
        let mut last = 0;
        for bytes in (1..100_000).chain([1 << 20, (1 << 20) + 1, 512 << 20, (512 << 20) + 70_000]) {
            let class = size_class(bytes);
            assert!(class >= last || bytes < 100_000 && class == last);
            last = class;
            assert!(class < PENDING);
            let held = class_bytes(class) as usize;
            assert!(held >= bytes, "{bytes} in {held}");
            assert!(held <= bytes.next_multiple_of(16) * 9 / 8 + 16, "{bytes} in {held}");
            assert_eq!(size_class(held), class);
            let least = class_bytes_min(class) as usize;
            assert!(least <= bytes.next_multiple_of(16), "{bytes}, at least {least}");
            assert!(least * 9 / 8 >= bytes, "{bytes}, at least {least}");
        }
    }

    #[test]
    fn locations_survive_wrapping() {
        for tail in [4096, WINDOW - 16, WINDOW, WINDOW + 4096, 5 * WINDOW + 160] {
            for back in [0, 16, 4096, WINDOW / 2] {
                if back <= tail {
                    assert_eq!(EntryWord::item(Type::String, tail - back, 3).lsn(tail), tail - back);
                }
            }
        }
    }
}
