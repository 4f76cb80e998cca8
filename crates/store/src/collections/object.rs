//! Objects: the header block that every collection, and every string in the heap, starts with.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | type ([`Type`]) |
//! | 1 | 1 | encoding ([`Encoding`]) |
//! | 2 | 2 | zero |
//! | 4 | 4 | key length |
//! | 8 | 8 | count: elements, fields or members; bytes of a string |
//! | 16 | 8 | root: the payload's first block |
//! | 24 | 8 | aux: by type |
//! | 32 | 8 | aux2: by type |
//! | 40 | … | key |
//!
//! An object's heap offset names it for life, and 0 names none.

use holdfast_heap::{Arena, Full, Tx};

pub use crate::format::entry_word::Type;

/// Bytes of an object before its key.
pub const HEADER: u64 = 40;
/// Where in an object its root lies; a structure is told this place, so that it can move its first block.
pub const ROOT: u64 = 16;
/// Where in an object the first word that belongs to its type lies.
pub const AUX: u64 = 24;
/// Where in an object the second word that belongs to its type lies.
pub const AUX2: u64 = 32;

pub(super) const ENCODING: u64 = 1;
const KEY_LEN: u64 = 4;
pub(super) const COUNT: u64 = 8;

/// How an object's payload is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// One packed blob.
    Listpack = 1,
    /// One packed blob of a hash whose entries carry an expiry.
    ListpackEx = 2,
    /// An array of integers.
    Intset = 3,
    /// A hash table.
    Hashtable = 4,
    /// A sorted set's tree and table.
    Skiplist = 5,
    /// A list's tree of packed leaves.
    Quicklist = 6,
    /// A stream's tree.
    Stream = 7,
    /// A string in chunks.
    Chunks = 8,
}

impl Encoding {
    /// The name that `OBJECT ENCODING` replies.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Listpack => "listpack",
            Encoding::ListpackEx => "listpackex",
            Encoding::Intset => "intset",
            Encoding::Hashtable => "hashtable",
            Encoding::Skiplist => "skiplist",
            Encoding::Quicklist => "quicklist",
            Encoding::Stream => "stream",
            Encoding::Chunks => "raw",
        }
    }
}

/// Makes an empty object and returns its offset.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8], ty: Type, encoding: Encoding) -> Result<u64, Full> {
    let mut header = [0; HEADER as usize];
    header[0] = ty as u8;
    header[ENCODING as usize] = encoding as u8;
    header[KEY_LEN as usize..COUNT as usize].copy_from_slice(&(key.len() as u32).to_le_bytes());
    let obj = arena.alloc(tx, header.len() + key.len())?;
    arena.write(tx, obj, &header);
    arena.write(tx, obj + HEADER, key);
    Ok(obj)
}

/// Moves an object to another key of the same arena and returns its new offset; the payload stays where it is.
///
/// # Errors
/// [`Full`] if the arena has no room; the object is unchanged.
pub fn rename(arena: &mut Arena, tx: &mut Tx, obj: u64, key: &[u8]) -> Result<u64, Full> {
    let to = create(arena, tx, key, ty(arena, obj), encoding(arena, obj))?;
    arena.copy(tx, obj + COUNT, to + COUNT, (HEADER - COUNT) as usize);
    free_header(arena, tx, obj);
    Ok(to)
}

/// The key it was created under.
pub fn key(arena: &Arena, obj: u64) -> &[u8] {
    arena.bytes(obj + HEADER, arena.u32(obj + KEY_LEN) as usize)
}

/// The type of the value that it is.
pub fn ty(arena: &Arena, obj: u64) -> Type {
    let number = arena.u8(obj);
    Type::from_number(number).unwrap_or_else(|| panic!("object at {obj:#x} has type {number}"))
}

/// How its payload is laid out.
pub fn encoding(arena: &Arena, obj: u64) -> Encoding {
    match arena.u8(obj + ENCODING) {
        1 => Encoding::Listpack,
        2 => Encoding::ListpackEx,
        3 => Encoding::Intset,
        4 => Encoding::Hashtable,
        5 => Encoding::Skiplist,
        6 => Encoding::Quicklist,
        7 => Encoding::Stream,
        8 => Encoding::Chunks,
        other => panic!("object at {obj:#x} has encoding {other}"),
    }
}

/// Says that the payload is laid out anew.
pub fn set_encoding(arena: &mut Arena, tx: &mut Tx, obj: u64, encoding: Encoding) {
    arena.write_u8(tx, obj + ENCODING, encoding as u8);
}

/// How many elements, fields or members it has, or bytes if it is a string.
pub fn count(arena: &Arena, obj: u64) -> u64 {
    arena.u64(obj + COUNT)
}

/// Whether it is a collection in one block, small by its type's limits, whose encoding changes when it outgrows them.
#[inline]
pub fn is_packed(arena: &Arena, obj: u64) -> bool {
    const PACKED: [u8; 3] = [Encoding::Listpack as u8, Encoding::ListpackEx as u8, Encoding::Intset as u8];
    PACKED.contains(&arena.u8(obj + ENCODING))
}

/// Counts `delta` more elements.
#[inline]
pub fn add_count(arena: &mut Arena, tx: &mut Tx, obj: u64, delta: i64) {
    arena.add_u64(tx, obj + COUNT, delta);
}

/// Says how many elements it has.
pub fn set_count(arena: &mut Arena, tx: &mut Tx, obj: u64, count: u64) {
    arena.write_changed_u64(tx, obj + COUNT, count);
}

/// Bytes of its header, the key included.
pub(super) fn header_size(arena: &Arena, obj: u64) -> usize {
    HEADER as usize + arena.u32(obj + KEY_LEN) as usize
}

/// Frees its header, which is all that is left of it.
pub(super) fn free_header(arena: &mut Arena, tx: &mut Tx, obj: u64) {
    let size = header_size(arena, obj);
    arena.free(tx, obj, size);
}
