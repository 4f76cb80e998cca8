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

use super::{Context, hash, intset::Intset, list, packed::Packed, run::Run, set, stream, string, zset};
pub use crate::word::Type;

/// Bytes of an object before its key.
pub const HEADER: u64 = 40;
/// Where in an object its root lies; a structure is told this place, so that it can move its first block.
pub const ROOT: u64 = 16;
/// Where in an object the first word that belongs to its type lies.
pub const AUX: u64 = 24;
/// Where in an object the second word that belongs to its type lies.
pub const AUX2: u64 = 32;

const ENCODING: u64 = 1;
const KEY_LEN: u64 = 4;
const COUNT: u64 = 8;

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

/// How far [`destroy`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destroyed {
    /// The object is gone.
    Done,
    /// Its budget is spent; call it again.
    More,
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

/// How many things it is made of: its elements, of a stream also what its groups hold, of a string its chunks.
pub fn parts(arena: &Arena, obj: u64) -> u64 {
    match ty(arena, obj) {
        Type::Stream => count(arena, obj) + stream::group_parts(arena, obj),
        Type::String => string::chunks(arena, obj) as u64,
        _ => count(arena, obj),
    }
}

/// Whether it is a collection in one block, small by its type's limits, whose encoding changes when it outgrows them.
#[inline]
pub fn is_packed(arena: &Arena, obj: u64) -> bool {
    const PACKED: [u8; 3] = [Encoding::Listpack as u8, Encoding::ListpackEx as u8, Encoding::Intset as u8];
    PACKED.contains(&arena.u8(obj + ENCODING))
}

/// The elements of such a collection, and the bytes of its block.
#[inline]
pub fn packed_size(arena: &Arena, obj: u64, ty: Type) -> (u64, u64) {
    let header = arena.array::<{ HEADER as usize }>(obj);
    let word =
        |at: u64| u64::from_le_bytes(*header[at as usize..].first_chunk().expect("a word of the header"));
    let bytes = match (ty, word(ROOT)) {
        (_, 0) => 0,
        (Type::List, block) => Run::block_size(arena, block),
        (Type::Zset, block) => zset::small_block_size(arena, block),
        (_, block) if header[ENCODING as usize] == Encoding::Intset as u8 => Intset::block_size(arena, block),
        (_, block) => Packed::block_size(arena, block),
    };
    (word(COUNT), bytes as u64)
}

/// Whether its key goes with its last element: nothing is in it, and, if it is a stream, nothing ever was.
pub fn is_void(arena: &Arena, obj: u64) -> bool {
    count(arena, obj) == 0 && (ty(arena, obj) != Type::Stream || stream::is_new(arena, obj))
}

/// Whether to free it takes long: it has so many parts, or what cannot be counted at once.
pub fn is_large(arena: &Arena, obj: u64, parts: u64) -> bool {
    match ty(arena, obj) {
        Type::Stream => count(arena, obj) >= parts || stream::has_groups(arena, obj),
        Type::String => string::chunks(arena, obj) as u64 >= parts,
        _ => count(arena, obj) >= parts,
    }
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

/// Writes `bytes` at `offset` and logs only the range in which they differ from what is there. Worth its compare for
/// values that change little; a record costs 8 bytes more than it carries.
pub fn write_changed(arena: &mut Arena, tx: &mut Tx, offset: u64, bytes: &[u8]) {
    let old = arena.bytes(offset, bytes.len());
    let Some(first) = old.iter().zip(bytes).position(|(a, b)| a != b) else { return };
    let same_end = old.iter().zip(bytes).rev().take_while(|(a, b)| a == b).count();
    arena.write(tx, offset + first as u64, &bytes[first..bytes.len() - same_end]);
}

/// Frees up to about `budget` blocks of an object that nothing names any more, so that a huge one can be freed in
/// slices. How far it came is kept in the object itself: between two calls it must not be used otherwise.
pub fn destroy(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: usize) -> Destroyed {
    let mut budget = budget.max(1);
    let done = match ty(arena, obj) {
        Type::List => list::release(arena, tx, obj, &mut budget),
        Type::Set => set::release(arena, tx, obj, &mut budget),
        Type::Zset => zset::release(arena, tx, obj, &mut budget),
        Type::Hash => hash::release(arena, tx, obj, &mut budget),
        Type::Stream => stream::release(arena, tx, obj, &mut budget),
        Type::String => string::release(arena, tx, obj, &mut budget),
    };
    if !done {
        return Destroyed::More;
    }
    free_header(arena, tx, obj);
    Destroyed::Done
}

/// Checks an object's structure, or says what is wrong.
pub fn check(arena: &Arena, cx: Context, obj: u64) -> Result<(), String> {
    match ty(arena, obj) {
        Type::List => list::check(arena, obj),
        Type::Set => set::check(arena, cx, obj),
        Type::Zset => zset::check(arena, cx, obj),
        Type::Hash => hash::check(arena, Context { now_ms: 0, ..cx }, obj),
        Type::Stream => stream::check(arena, obj),
        Type::String => string::check(arena, obj),
    }?;
    Ok(())
}

/// Bytes allocated for an object, its header included. Looks at every element's block.
pub fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    let payload = match ty(arena, obj) {
        Type::List => list::heap_bytes(arena, obj),
        Type::Set => set::heap_bytes(arena, obj),
        Type::Zset => zset::heap_bytes(arena, obj),
        Type::Hash => hash::heap_bytes(arena, obj),
        Type::Stream => stream::heap_bytes(arena, obj),
        Type::String => string::heap_bytes(arena, obj),
    };
    Arena::usable_size(header_size(arena, obj)) as u64 + payload
}

fn header_size(arena: &Arena, obj: u64) -> usize {
    HEADER as usize + arena.u32(obj + KEY_LEN) as usize
}

fn free_header(arena: &mut Arena, tx: &mut Tx, obj: u64) {
    let size = header_size(arena, obj);
    arena.free(tx, obj, size);
}
