//! Objects of any type: what each type does in its own way.

use holdfast_heap::{Arena, Tx};

use super::{
    Context, hash,
    intset::Intset,
    list,
    object::{self, Type},
    packed::Packed,
    run::Run,
    set, stream, string, zset,
};

/// How far [`destroy_some`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destroyed {
    /// The object is gone.
    Done,
    /// Its budget is spent; call it again.
    More,
}

/// How many things it is made of: its elements, of a stream also what its groups hold, of a string its chunks.
pub fn parts(arena: &Arena, obj: u64) -> u64 {
    match object::ty(arena, obj) {
        Type::Stream => object::count(arena, obj) + stream::group_parts(arena, obj),
        Type::String => string::chunks(arena, obj) as u64,
        _ => object::count(arena, obj),
    }
}

/// The elements of such a collection, and the bytes of its block.
#[inline]
pub fn packed_size(arena: &Arena, obj: u64, ty: Type) -> (u64, u64) {
    let header = arena.array::<{ object::HEADER as usize }>(obj);
    let word =
        |at: u64| u64::from_le_bytes(*header[at as usize..].first_chunk().expect("a word of the header"));
    let bytes = match (ty, word(object::ROOT)) {
        (_, 0) => 0,
        (Type::List, block) => Run::block_size(arena, block),
        (Type::Zset, block) => zset::small_block_size(arena, block),
        (_, block) if header[object::ENCODING as usize] == object::Encoding::Intset as u8 => {
            Intset::block_size(arena, block)
        }
        (_, block) => Packed::block_size(arena, block),
    };
    (word(object::COUNT), bytes as u64)
}

/// Whether its key goes with its last element: nothing is in it, and, if it is a stream, nothing ever was.
pub fn is_void(arena: &Arena, obj: u64) -> bool {
    object::count(arena, obj) == 0 && (object::ty(arena, obj) != Type::Stream || stream::is_new(arena, obj))
}

/// Whether to free it takes long: it has so many parts, or what cannot be counted at once.
pub fn is_large(arena: &Arena, obj: u64, parts: u64) -> bool {
    match object::ty(arena, obj) {
        Type::Stream => object::count(arena, obj) >= parts || stream::has_groups(arena, obj),
        Type::String => string::chunks(arena, obj) as u64 >= parts,
        _ => object::count(arena, obj) >= parts,
    }
}

/// Elements from which a collection is not destroyed at once.
pub const LARGE: u64 = 256;

/// Frees an object that nothing names any more.
pub fn destroy(arena: &mut Arena, tx: &mut Tx, obj: u64) {
    let done = destroy_some(arena, tx, obj, &mut { usize::MAX });
    debug_assert_eq!(done, Destroyed::Done);
}

/// Frees up to about `budget` blocks of an object that nothing names any more, so that a huge one can be freed in
/// slices, and one at least; takes them off the budget. How far it came is kept in the object itself: between two calls it must not be used otherwise.
pub fn destroy_some(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> Destroyed {
    *budget = (*budget).max(1);
    let done = match object::ty(arena, obj) {
        Type::List => list::release(arena, tx, obj, budget),
        Type::Set => set::release(arena, tx, obj, budget),
        Type::Zset => zset::release(arena, tx, obj, budget),
        Type::Hash => hash::release(arena, tx, obj, budget),
        Type::Stream => stream::release(arena, tx, obj, budget),
        Type::String => string::release(arena, tx, obj, budget),
    };
    if !done {
        return Destroyed::More;
    }
    object::free_header(arena, tx, obj);
    *budget = budget.saturating_sub(1);
    Destroyed::Done
}

/// Checks an object's structure, or says what is wrong.
pub fn check(arena: &Arena, cx: Context, obj: u64) -> Result<(), String> {
    match object::ty(arena, obj) {
        Type::List => list::check(arena, obj),
        Type::Set => set::check(arena, cx, obj),
        Type::Zset => zset::check(arena, cx, obj),
        Type::Hash => hash::check(arena, Context { expired_ms: 0, ..cx }, obj),
        Type::Stream => stream::check(arena, obj),
        Type::String => string::check(arena, obj),
    }?;
    Ok(())
}

/// Bytes allocated for an object, its header included. Looks at every element's block.
pub fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    let payload = match object::ty(arena, obj) {
        Type::List => list::heap_bytes(arena, obj),
        Type::Set => set::heap_bytes(arena, obj),
        Type::Zset => zset::heap_bytes(arena, obj),
        Type::Hash => hash::heap_bytes(arena, obj),
        Type::Stream => stream::heap_bytes(arena, obj),
        Type::String => string::heap_bytes(arena, obj),
    };
    Arena::usable_size(object::header_size(arena, obj)) as u64 + payload
}
