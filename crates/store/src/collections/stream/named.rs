//! Groups and consumers: blocks with names, in the order of their names.
//!
//! Both are blocks of 56 bytes and a name: at offset 0 the name's length (u32), at 32 the root of what is pending
//! ([`super::pending`]), at 40 how much that is. They are found through an ordered set of `first 8 bytes of the name,
//! offset of the block u64`, both big-endian.

use std::cmp::Ordering;

use holdfast_heap::{Arena, Full, Tx};

use crate::collections::{
    absent::{Absent, Finder},
    ordered::{Key, Ordered, Position},
};

/// Where in a block the root of what is pending lies.
pub(super) const PENDING: u64 = 32;
/// Where in a block the number of pending entries lies.
pub(super) const PENDING_COUNT: u64 = 40;
/// Where in a block the name lies.
const NAME: u64 = 56;

/// The blocks whose root word is at `root`.
pub(super) const fn set(root: u64) -> Ordered {
    Ordered::at(root)
}

pub(super) fn name(arena: &Arena, block: u64) -> &[u8] {
    arena.bytes(block + NAME, arena.u32(block) as usize)
}

/// The block that a key of the set leads to.
pub(super) fn block(key: &Key) -> u64 {
    u64::from_be_bytes(*key.last_chunk().expect("8 bytes of 16"))
}

fn prefix(name: &[u8]) -> [u8; 8] {
    let mut prefix = [0; 8];
    let len = name.len().min(8);
    prefix[..len].copy_from_slice(&name[..len]);
    prefix
}

fn compare(arena: &Arena, key: &Key, to: &[u8]) -> Ordering {
    key[..8].cmp(&prefix(to)).then_with(|| name(arena, block(key)).cmp(to))
}

fn place(arena: &Arena, root: u64, name: &[u8]) -> Option<Position> {
    let place = set(root).find(arena, |key| compare(arena, key, name) == Ordering::Less)?;
    (compare(arena, set(root).slot(arena, place), name) == Ordering::Equal).then_some(place)
}

/// The block with a name.
pub(super) fn find(arena: &Arena, root: u64, name: &[u8]) -> Option<u64> {
    place(arena, root, name).map(|place| block(set(root).slot(arena, place)))
}

/// All blocks in the order of their names.
pub(super) fn all(arena: &Arena, root: u64) -> impl Iterator<Item = u64> {
    let first = set(root).by_rank(arena, 0);
    set(root).iter_from(arena, first, false).map(block)
}

/// Looks for all blocks, and passes those to `each` that are in memory.
pub(super) fn look_at_all(finder: &Finder, root: u64, mut each: impl FnMut(u64)) {
    set(root).try_each(finder.arena, 0..u64::MAX, finder.look(), |key| {
        if look_at(finder, block(key)).is_ok() {
            each(block(key));
        }
    });
}

/// Looks for the last blocks, as far as `budget` goes, and passes those to `each` that are in memory.
pub(super) fn look_to_release(
    finder: &Finder,
    root: u64,
    budget: &mut usize,
    mut each: impl FnMut(u64, &mut usize),
) -> Result<(), Absent> {
    set(root).look_to_release(finder, budget, |key, budget| {
        if look_at(finder, block(key)).is_ok() {
            each(block(key), budget);
        }
    })
}

/// Looks for the block with a name.
pub(super) fn look(finder: &Finder, root: u64, name: &[u8]) -> Result<Option<u64>, Absent> {
    let (arena, set) = (finder.arena, set(root));
    let place = set.look_at_way(finder, |key| {
        if key[..8] == prefix(name) {
            look_at(finder, block(key))?;
        }
        Ok(compare(arena, key, name) == Ordering::Less)
    })?;
    // It may be behind the last key of a leaf.
    let rank = place.map_or(0, |place| set.rank_of(arena, &place));
    let Some(place) = set.try_by_rank(arena, rank, finder.look())? else { return Ok(None) };
    let at = block(set.slot(arena, place));
    look_at(finder, at)?;
    Ok((self::name(arena, at) == name).then_some(at))
}

/// Looks for a block.
pub(super) fn look_at(finder: &Finder, block: u64) -> Result<(), Absent> {
    finder.look()(block, NAME as usize)?;
    finder.look()(block, NAME as usize + finder.arena.u32(block) as usize)
}

/// The number of blocks.
pub(super) fn count(arena: &Arena, root: u64) -> u64 {
    set(root).rank(arena, |_| true)
}

/// Makes a block with a name that no other has. `words` is what it begins with behind the length of its name.
pub(super) fn insert(
    arena: &mut Arena,
    tx: &mut Tx,
    root: u64,
    name: &[u8],
    words: [u64; 3],
) -> Result<u64, Full> {
    let at = arena.alloc(tx, NAME as usize + name.len())?;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&prefix(name));
    key[8..].copy_from_slice(&at.to_be_bytes());
    let place = set(root).place(arena, |other| compare(arena, other, name) == Ordering::Less);
    if let Err(full) = set(root).insert(arena, tx, place, &key) {
        arena.free(tx, at, NAME as usize + name.len());
        return Err(full);
    }
    let mut header = [0; NAME as usize];
    header[..4].copy_from_slice(&(name.len() as u32).to_le_bytes());
    header[8..32].copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
    arena.write(tx, at, &header);
    arena.write(tx, at + NAME, name);
    Ok(at)
}

/// Takes the block with a name, of which nothing is left but itself, away.
pub(super) fn remove(arena: &mut Arena, tx: &mut Tx, root: u64, name: &[u8]) {
    let place = place(arena, root, name).expect("a block that is there");
    let at = block(set(root).slot(arena, place));
    set(root).remove(arena, tx, &place, 1);
    free(arena, tx, at);
}

/// Takes the last block away.
pub(super) fn remove_last(arena: &mut Arena, tx: &mut Tx, root: u64) {
    let place = set(root).last(arena).expect("a block");
    let at = block(set(root).slot(arena, place));
    set(root).remove(arena, tx, &place, 1);
    free(arena, tx, at);
}

/// The last block.
pub(super) fn last(arena: &Arena, root: u64) -> Option<u64> {
    set(root).last(arena).map(|place| block(set(root).slot(arena, place)))
}

fn free(arena: &mut Arena, tx: &mut Tx, at: u64) {
    let size = NAME as usize + arena.u32(at) as usize;
    arena.free(tx, at, size);
}

/// Bytes allocated for a block itself.
pub(super) fn heap_bytes(arena: &Arena, block: u64) -> u64 {
    Arena::usable_size(NAME as usize + arena.u32(block) as usize) as u64
}

/// Checks the set, and returns how many blocks there are.
pub(super) fn check(arena: &Arena, root: u64) -> Result<u64, String> {
    set(root).check(arena, |a, b| {
        prefix(name(arena, block(b))) == b[..8] && compare(arena, a, name(arena, block(b))) == Ordering::Less
    })
}

/// How much is pending.
pub(super) fn pending_count(arena: &Arena, block: u64) -> u64 {
    arena.u64(block + PENDING_COUNT)
}

/// Says how much more is pending.
pub(super) fn count_pending(arena: &mut Arena, tx: &mut Tx, block: u64, more: i64) {
    let count = pending_count(arena, block).checked_add_signed(more).expect("a count below zero");
    arena.write_changed_u64(tx, block + PENDING_COUNT, count);
}
