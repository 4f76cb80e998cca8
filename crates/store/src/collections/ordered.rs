//! Ordered sets of 16-byte keys: the counted tree with leaves of keys, each perhaps with bytes that belong to it.
//!
//! The order is the owner's: operations take a predicate `below` that holds for the keys before a place and for none
//! behind it. An empty set takes no block. A leaf has some 30 slots of a key and what belongs to it: an insertion logs
//! the slot, some ten order bytes, and a byte or two a level for the counts.

#[cfg(test)]
mod tests;

use std::{cell::Cell, ops::Range};

use holdfast_heap::{Arena, Full, Tx};

use super::absent::{Absent, Finder, no_look};
use super::btree::{
    Counted, Path, Tree,
    node::{self, Layout},
};

/// What the set holds.
pub(crate) type Key = [u8; 16];

const KEY: usize = size_of::<Key>();

/// A set, by the heap offset of its root word. A slot takes `SLOT` bytes, the key first.
#[derive(Clone, Copy)]
pub(crate) struct Ordered<const SLOT: usize = KEY> {
    tree: Tree<KEY>,
}

/// A key's place; stale after any change of the set.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    path: Path,
    index: usize,
}

/// What [`Ordered::search`] finds.
pub(crate) enum Search {
    /// The key is here.
    At(Position),
    /// It is not there; it belongs here ([`Ordered::insert`]).
    Missing(Option<Position>),
}

fn key_of(slot: &[u8]) -> &Key {
    slot.first_chunk().expect("a slot begins with a key")
}

fn whole<const SLOT: usize>(slot: &[u8]) -> &[u8; SLOT] {
    slot.try_into().expect("a slot of its layout's width")
}

impl<const SLOT: usize> Ordered<SLOT> {
    const LEAF: Layout = Layout::new(SLOT, 32 * SLOT);

    /// The set whose root word is at `root`; 0 there is an empty set.
    pub const fn at(root: u64) -> Self {
        Ordered { tree: Tree::at(root) }
    }

    fn leaf_len(&self, arena: &Arena, leaf: u64) -> usize {
        node::view(arena, Self::LEAF, leaf).len()
    }

    /// The place behind all keys below, for [`Ordered::insert`]: it may be behind the last key of a leaf.
    pub fn place(&self, arena: &Arena, below: impl FnMut(&Key) -> bool) -> Option<Position> {
        let Ok(place) = self.try_place(arena, no_look, below);
        place
    }

    /// The same, unless `look` fails of a node before it is read, by its place and length.
    #[inline]
    pub fn try_place<E>(
        &self,
        arena: &Arena,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut below: impl FnMut(&Key) -> bool,
    ) -> Result<Option<Position>, E> {
        if self.tree.is_empty(arena) {
            return Ok(None);
        }
        let path = self.tree.try_by_key(arena, &look, |key| below(key_of(key)))?;
        look(path.leaf, Self::LEAF.size)?;
        let index = node::view(arena, Self::LEAF, path.leaf).partition_point(0, |slot| below(key_of(slot)));
        Ok(Some(Position { path, index }))
    }

    /// Looks for what is on the way to the place behind all keys below, and returns the place. Whether a key is below may itself be absent.
    pub fn look_at_way(
        &self,
        finder: &Finder,
        mut below: impl FnMut(&Key) -> Result<bool, Absent>,
    ) -> Result<Option<Position>, Absent> {
        let (look, is_lost) = (finder.look(), Cell::new(false));
        let goes_on = |offset, len| if is_lost.get() { Err(Absent) } else { look(offset, len) };
        let place = self.try_place(finder.arena, goes_on, |key| {
            // Once lost, it stops at the next node.
            !is_lost.get() && below(key).unwrap_or_else(|Absent| is_lost.replace(true))
        })?;
        if is_lost.get() { Err(Absent) } else { Ok(place) }
    }

    /// Looks for what is on the way to the first of so many keys between two places, and to the last; from the last one on if `reverse`.
    /// Returns their ranks.
    pub fn look_between(
        &self,
        finder: &Finder,
        before: impl FnMut(&Key) -> Result<bool, Absent>,
        up_to: impl FnMut(&Key) -> Result<bool, Absent>,
        reverse: bool,
        count: u64,
    ) -> Result<Range<u64>, Absent> {
        let (begin, end) = (self.look_at_way(finder, before), self.look_at_way(finder, up_to));
        let rank = |place: Option<Position>| place.map_or(0, |place| self.rank_of(finder.arena, &place));
        let (begin, end) = (rank(begin?), rank(end?));
        Ok(if reverse {
            begin.max(end.saturating_sub(count))..end
        } else {
            begin..end.min(begin.saturating_add(count))
        })
    }

    /// The number of keys below.
    pub fn rank(&self, arena: &Arena, below: impl FnMut(&Key) -> bool) -> u64 {
        self.place(arena, below).map_or(0, |place| self.rank_of(arena, &place))
    }

    /// The number of keys before a place.
    pub fn rank_of(&self, arena: &Arena, place: &Position) -> u64 {
        self.tree.before(arena, &place.path) + place.index as u64
    }

    /// The first key that is not below.
    pub fn find(&self, arena: &Arena, below: impl FnMut(&Key) -> bool) -> Option<Position> {
        let Position { mut path, mut index } = self.place(arena, below)?;
        if index == self.leaf_len(arena, path.leaf) {
            if !self.tree.next(arena, &mut path) {
                return None;
            }
            index = 0;
        }
        Some(Position { path, index })
    }

    /// The key with that many keys before it.
    pub fn by_rank(&self, arena: &Arena, rank: u64) -> Option<Position> {
        let Ok(position) = self.try_by_rank(arena, rank, no_look);
        position
    }

    /// The same, unless `look` fails of a node before it is read, by its place and length.
    pub fn try_by_rank<E>(
        &self,
        arena: &Arena,
        rank: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<Option<Position>, E> {
        if self.tree.is_empty(arena) {
            return Ok(None);
        }
        let (path, index) = self.tree.try_by_rank(arena, rank, &look)?;
        look(path.leaf, Self::LEAF.size)?;
        let is_there = index < self.leaf_len(arena, path.leaf) as u64;
        Ok(is_there.then_some(Position { path, index: index as usize }))
    }

    /// The slots from a position on, or, if `reverse`, back from it.
    pub fn iter_from(self, arena: &Arena, position: Option<Position>, reverse: bool) -> Iter<'_, SLOT> {
        Iter { arena, set: self, next: position, left: u64::MAX, reverse }
    }

    /// Where a key is in a set in the order of bytes.
    pub fn search(&self, arena: &Arena, key: &Key) -> Search {
        let place = self.place(arena, |other| other <= key);
        match place {
            Some(Position { path, index: after @ 1.. }) => {
                let position = Position { path, index: after - 1 };
                if key_of(self.slot(arena, position)) == key {
                    Search::At(position)
                } else {
                    Search::Missing(place)
                }
            }
            _ => Search::Missing(place),
        }
    }

    /// The place of the last key.
    pub fn last(&self, arena: &Arena) -> Option<Position> {
        if self.tree.is_empty(arena) {
            return None;
        }
        let path = self.tree.last(arena);
        Some(Position { path, index: self.leaf_len(arena, path.leaf) - 1 })
    }

    /// The slot at a position.
    pub fn slot(self, arena: &Arena, position: Position) -> &[u8; SLOT] {
        whole(node::view(arena, Self::LEAF, position.path.leaf).slot(position.index))
    }

    /// Changes what belongs to the key at a position.
    pub fn write(&self, arena: &mut Arena, tx: &mut Tx, position: Position, slot: &[u8; SLOT]) {
        debug_assert_eq!(key_of(self.slot(arena, position)), key_of(slot));
        let at = node::slot_offset(arena, Self::LEAF, position.path.leaf, position.index);
        arena.write_changed(tx, at, slot);
    }

    /// The keys from a position on in its leaf: at least one.
    pub fn keys_in_leaf(self, arena: &Arena, position: Position) -> impl Iterator<Item = &Key> {
        let view = node::view(arena, Self::LEAF, position.path.leaf);
        (position.index..view.len()).map(move |index| key_of(view.slot(index)))
    }

    /// Passes the keys of these ranks to `each`, but those of leaves of which, or of a node on the way to which, `look` fails.
    pub fn try_each<E>(
        &self,
        arena: &Arena,
        ranks: Range<u64>,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut each: impl FnMut(&Key),
    ) {
        self.tree.try_each_leaf(arena, ranks, &look, |leaf, Range { start, end }| {
            if look(leaf, Self::LEAF.size).is_ok() {
                let view = node::view(arena, Self::LEAF, leaf);
                let end = end.min(view.len() as u64);
                (start..end).for_each(|index| each(key_of(view.slot(index as usize))));
            }
        });
    }

    /// Looks for the first key behind a place, and for what it takes to remove it, if the command may do so.
    pub fn look_behind(&self, finder: &Finder, place: Position) -> Result<(), Absent> {
        let (arena, look) = (finder.arena, finder.look());
        let Position { mut path, index } = place;
        if index == self.leaf_len(arena, path.leaf) && self.tree.try_step(arena, &mut path, false, &look)? {
            look(path.leaf, Self::LEAF.size)?;
        }
        self.look_to_remove(finder, &path, 1)
    }

    /// Looks for what it takes to remove the keys of these ranks, which must be within the set, beside their leaves, if the command may do so.
    pub fn look_to_remove_ranks(&self, finder: &Finder, ranks: Range<u64>) -> Result<(), Absent> {
        let (arena, look) = (finder.arena, finder.look());
        // Between the two, leaves become empty.
        for rank in [ranks.start, ranks.end - 1] {
            let (path, index) = self.tree.try_by_rank(arena, rank, &look)?;
            look(path.leaf, Self::LEAF.size)?;
            let first = rank - index;
            let behind = first + self.leaf_len(arena, path.leaf) as u64;
            let removed = ranks.end.min(behind) - ranks.start.max(first);
            self.look_to_remove(finder, &path, removed as usize)?;
        }
        Ok(())
    }

    fn look_to_remove(&self, finder: &Finder, path: &Path, keys: usize) -> Result<(), Absent> {
        if !finder.writes {
            return Ok(());
        }
        let len = self.leaf_len(finder.arena, path.leaf) - keys;
        self.tree.try_merge_leaf(finder.arena, path, Self::LEAF, len, finder.look())
    }

    /// Inserts a key at the [`Ordered::place`] where it belongs.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; nothing has changed.
    pub fn insert(
        &self,
        arena: &mut Arena,
        tx: &mut Tx,
        place: Option<Position>,
        key: &[u8; SLOT],
    ) -> Result<(), Full> {
        let Some(Position { path, index }) = place else {
            let leaf = node::alloc(arena, tx, Self::LEAF)?;
            node::fill(arena, tx, Self::LEAF, leaf, key);
            self.tree.plant(arena, tx, leaf);
            return Ok(());
        };
        let len = self.leaf_len(arena, path.leaf);
        if len < Self::LEAF.capacity() {
            node::insert(arena, tx, Self::LEAF, path.leaf, index, key);
            self.tree.add(arena, tx, &path, 1);
            return Ok(());
        }
        // Ascending keys leave full leaves behind; anything else leaves halves.
        let cut = if index == len { len } else { len / 2 };
        let mut moved = node::view(arena, Self::LEAF, path.leaf).tail(cut);
        if index >= cut {
            let at = (index - cut) * Self::LEAF.width;
            moved.splice(at..at, *key);
        }
        let leaf = node::alloc(arena, tx, Self::LEAF)?;
        let count = moved.len() / Self::LEAF.width;
        let left = Counted { leaf: path.leaf, count: (len + 1 - count) as u64 };
        let right = Counted { leaf, count: count as u64 };
        if let Err(full) = self.tree.split(arena, tx, &path, left, &moved[..KEY], right) {
            node::free(arena, tx, Self::LEAF, leaf);
            return Err(full);
        }
        node::fill(arena, tx, Self::LEAF, leaf, &moved);
        node::remove(arena, tx, Self::LEAF, path.leaf, cut, len - cut);
        if index < cut {
            node::insert(arena, tx, Self::LEAF, path.leaf, index, key);
        }
        Ok(())
    }

    /// Removes `count` keys of one leaf, from a position on.
    pub fn remove(&self, arena: &mut Arena, tx: &mut Tx, position: &Position, count: usize) {
        let Position { path, index } = position;
        let len = self.leaf_len(arena, path.leaf);
        if count == len {
            self.tree.remove(arena, tx, path);
            node::free(arena, tx, Self::LEAF, path.leaf);
            return;
        }
        node::remove(arena, tx, Self::LEAF, path.leaf, *index, count);
        self.tree.add(arena, tx, path, -(count as i64));
        if *index == 0 {
            let least = *key_of(node::view(arena, Self::LEAF, path.leaf).slot(0));
            self.tree.set_least(arena, tx, path, &least);
        }
        self.tree.merge_leaf(arena, tx, path, Self::LEAF);
    }

    /// The keys whose ranks are in `ranks`, which must be within the set; backwards if `reverse`.
    pub fn iter<'a>(&self, arena: &'a Arena, ranks: Range<u64>, reverse: bool) -> Iter<'a, SLOT> {
        let left = ranks.end.saturating_sub(ranks.start);
        let first = if reverse { ranks.end.saturating_sub(1) } else { ranks.start };
        let next = if left > 0 { self.by_rank(arena, first) } else { None };
        Iter { arena, set: *self, next, left, reverse }
    }

    /// Frees leaves, and by `free` what each key names, until `budget` is spent or all are gone (true).
    pub fn release(
        &self,
        arena: &mut Arena,
        tx: &mut Tx,
        budget: &mut usize,
        mut free: impl FnMut(&mut Arena, &mut Tx, &Key),
    ) -> bool {
        while *budget > 0 {
            let Some(leaf) = self.tree.take_last(arena, tx) else { return true };
            let keys = node::view(arena, Self::LEAF, leaf).tail(0);
            keys.chunks_exact(Self::LEAF.width).for_each(|key| free(arena, tx, key_of(key)));
            node::free(arena, tx, Self::LEAF, leaf);
            *budget = budget.saturating_sub(1 + keys.len() / Self::LEAF.width);
        }
        self.tree.is_empty(arena)
    }

    /// Looks for the leaves that [`Ordered::release`] frees, and passes their keys to `each`. `budget` is spent as it spends it.
    pub fn look_to_release(
        &self,
        finder: &Finder,
        budget: &mut usize,
        mut each: impl FnMut(&Key, &mut usize),
    ) -> Result<(), Absent> {
        let (arena, look) = (finder.arena, finder.look());
        self.tree.try_each_leaf_from_last(arena, &look, |leaf| {
            if *budget > 0 && look(leaf, Self::LEAF.size).is_ok() {
                let view = node::view(arena, Self::LEAF, leaf);
                *budget = budget.saturating_sub(1 + view.len());
                (0..view.len()).rev().for_each(|index| each(key_of(view.slot(index)), budget));
            } else {
                *budget = budget.saturating_sub(1 + Self::LEAF.capacity() / 2);
            }
            *budget > 0
        })
    }

    /// Bytes allocated for the set.
    pub fn heap_bytes(&self, arena: &Arena) -> u64 {
        self.tree.heap_bytes(arena, |_| Arena::usable_size(Self::LEAF.size) as u64)
    }

    /// Checks the structure, and that every two neighbours satisfy `precedes`. Returns the number of keys, or says what
    /// is wrong.
    pub fn check(&self, arena: &Arena, mut precedes: impl FnMut(&Key, &Key) -> bool) -> Result<u64, String> {
        let mut last: Option<Key> = None;
        self.tree.check(arena, |leaf, bound| {
            let view = node::view(arena, Self::LEAF, leaf);
            view.check().map_err(|what| format!("leaf {leaf:#x}: {what}"))?;
            if view.len() == 0 {
                return Err(format!("leaf {leaf:#x} is empty"));
            }
            if bound.is_some_and(|bound| bound != key_of(view.slot(0))) {
                return Err(format!("the bound of leaf {leaf:#x} is not its least key"));
            }
            for key in (0..view.len()).map(|index| key_of(view.slot(index))) {
                if last.is_some_and(|last| !precedes(&last, key)) {
                    return Err(format!("keys of leaf {leaf:#x} are out of order"));
                }
                last = Some(*key);
            }
            Ok(view.len() as u64)
        })
    }
}

/// Slots in order; see [`Ordered::iter`].
#[derive(Clone)]
pub(crate) struct Iter<'a, const SLOT: usize = KEY> {
    arena: &'a Arena,
    set: Ordered<SLOT>,
    next: Option<Position>,
    left: u64,
    reverse: bool,
}

impl<'a, const SLOT: usize> Iterator for Iter<'a, SLOT> {
    type Item = &'a [u8; SLOT];

    fn next(&mut self) -> Option<&'a [u8; SLOT]> {
        self.left = self.left.checked_sub(1)?;
        let position = self.next.as_mut()?;
        let view = node::view(self.arena, Ordered::<SLOT>::LEAF, position.path.leaf);
        let slot = whole(view.slot(position.index));
        if self.left == 0 {
            // A leaf that nobody wants to see may have to be read.
            self.next = None;
        } else if self.reverse {
            if position.index > 0 {
                position.index -= 1;
            } else if self.set.tree.previous(self.arena, &mut position.path) {
                position.index = self.set.leaf_len(self.arena, position.path.leaf) - 1;
            } else {
                self.next = None;
            }
        } else if position.index + 1 < view.len() {
            position.index += 1;
        } else if self.set.tree.next(self.arena, &mut position.path) {
            position.index = 0;
        } else {
            self.next = None;
        }
        Some(slot)
    }
}
