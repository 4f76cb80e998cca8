//! Lists: a counted tree of packed runs.
//!
//! An element is reached by its position in O(log n). A push at either end logs the element, some ten bytes of its
//! leaf's header and a byte or two a level for the counts: leaves at the ends have their free room outward.
//!
//! A list that is one leaf is what Redis calls a listpack: its block grows with it. Further leaves are as large as
//! `list-max-listpack-size` says and never grow; an element of a quarter of that or more has a leaf that just fits.

#[cfg(test)]
mod tests;

use std::ops::Range;

use holdfast_heap::{Arena, Full, Tx};

use super::{
    Context, Limits,
    absent::{Absent, Finder},
    btree::{Counted, Path, Tree},
    object::{self, Encoding, Type},
    redo_max,
    run::{self, Edit, Entry, New, Room, Run},
};

/// Either end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where index 0 is.
    Front,
    /// Where index -1 is.
    Back,
}

/// A tree of leaves by position.
type LeafTree = Tree<0>;

fn tree(obj: u64) -> LeafTree {
    Tree::at(obj + object::ROOT)
}

/// Makes an empty list under `key` and returns its object.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::List, Encoding::Listpack)
}

/// The number of elements.
pub fn len(arena: &Arena, obj: u64) -> u64 {
    object::count(arena, obj)
}

/// The element at `index`, from 0.
pub fn get(arena: &Arena, obj: u64, index: u64) -> Option<&[u8]> {
    if index >= len(arena, obj) {
        return None;
    }
    let (path, in_leaf) = tree(obj).by_rank(arena, index);
    Some(entry_at(arena, obj, &path, in_leaf).value)
}

/// Looks for the elements of a large list at these positions, and for the leaves with which one may be merged that the command nearly
/// empties.
pub fn look(finder: &Finder, cx: Context, obj: u64, positions: Range<u64>) {
    let (arena, limit) = (finder.arena, LeafLimit::new(cx.limits));
    let mut left = 0;
    tree(obj).try_each_leaf(arena, positions.clone(), finder.look(), |leaf, used| {
        if run::look(finder, leaf).is_ok() && finder.writes {
            let entries = (0..).zip(Run::at(arena, leaf).entries(arena));
            let kept = entries.filter(|(index, _)| !used.contains(index)).map(|(_, entry)| entry.len);
            let (count, bytes) = kept.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
            if bytes <= limit.bytes / 8 {
                left = left.max(count);
            }
        }
    });
    if left > 0 {
        let beside = positions.start.saturating_sub(left + 1)..positions.end.saturating_add(left + 1);
        tree(obj).try_each_leaf(arena, beside, finder.look(), |leaf, _| {
            finder.go_on(run::look(finder, leaf));
        });
    }
}

/// Bytes of the block to which a list in one block moves when these elements come to its ends; `None`: they have room where it is.
pub fn grown_size<'e>(
    arena: &Arena,
    cx: Context,
    obj: u64,
    elements: impl Iterator<Item = (End, &'e [u8])>,
) -> Option<usize> {
    let block = arena.u64(obj + object::ROOT);
    if block == 0 {
        return None;
    }
    let run = Run::at(arena, block);
    let mut new = [0, 0];
    elements.for_each(|(end, element)| new[usize::from(end == End::Back)] += New::Value(element).len());
    let ([at_front, at_back], (before, behind)) = (new, run.room());
    let has_room = at_front <= before && at_back <= behind;
    let size = run::HEADER + run.used() + at_front + at_back;
    (!has_room).then(|| LeafLimit::new(cx.limits).grown(size))
}

/// The entry at `index` in the path's leaf.
fn entry_at<'a>(arena: &'a Arena, obj: u64, path: &Path, index: u64) -> Entry<'a> {
    let count = leaf_count(arena, obj, path);
    let mut entries = Run::at(arena, path.leaf).entries(arena);
    let entry = if index < count / 2 {
        entries.nth(index as usize)
    } else {
        entries.nth_back((count - 1 - index) as usize)
    };
    entry.expect("a leaf with fewer elements than counted")
}

/// The elements whose positions are in `range`, which may reach beyond the list; backwards if `reverse`.
pub fn iter(arena: &Arena, obj: u64, range: Range<u64>, reverse: bool) -> Iter<'_> {
    let end = range.end.min(len(arena, obj));
    let left = end.saturating_sub(range.start);
    let place = (left > 0).then(|| {
        let (path, index) = tree(obj).by_rank(arena, if reverse { end - 1 } else { range.start });
        let mut entries = Run::at(arena, path.leaf).entries(arena);
        if reverse {
            let behind = leaf_count(arena, obj, &path) - 1 - index;
            entries.by_ref().rev().take(behind as usize).for_each(drop);
        } else {
            entries.by_ref().take(index as usize).for_each(drop);
        }
        (path, entries)
    });
    Iter { arena, tree: tree(obj), place, left, reverse }
}

/// The elements of a range; see [`iter`].
pub struct Iter<'a> {
    arena: &'a Arena,
    tree: LeafTree,
    place: Option<(Path, run::Entries<'a>)>,
    left: u64,
    reverse: bool,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (path, entries) = self.place.as_mut()?;
        loop {
            let entry = if self.reverse { entries.next_back() } else { entries.next() };
            if let Some(entry) = entry {
                return Some(entry.value);
            }
            let moved = if self.reverse {
                self.tree.previous(self.arena, path)
            } else {
                self.tree.next(self.arena, path)
            };
            assert!(moved, "a list with fewer elements than counted");
            *entries = Run::at(self.arena, path.leaf).entries(self.arena);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The positions of the elements equal to `element` among the first `max_len` (the last, if `reverse`), in the order
/// they are met.
pub fn positions<'a>(
    arena: &'a Arena,
    obj: u64,
    element: &'a [u8],
    max_len: u64,
    reverse: bool,
) -> impl Iterator<Item = u64> + 'a {
    let len = len(arena, obj);
    let max_len = max_len.min(len);
    let range = if reverse { len - max_len..len } else { 0..max_len };
    let place = move |met: usize| if reverse { len - 1 - met as u64 } else { met as u64 };
    iter(arena, obj, range, reverse)
        .enumerate()
        .filter(move |(_, value)| *value == element)
        .map(move |(met, _)| place(met))
}

fn leaf_count(arena: &Arena, obj: u64, path: &Path) -> u64 {
    tree(obj).count(arena, path).unwrap_or_else(|| len(arena, obj))
}

/// Frees leaves until `budget` is spent or all are gone (true).
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    while *budget > 0 {
        let Some(leaf) = tree(obj).take_last(arena, tx) else { return true };
        Run::at(arena, leaf).free(arena, tx);
        *budget -= 1;
    }
    tree(obj).is_empty(arena)
}

/// Looks for what [`release`] uses.
pub(super) fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    run::look_to_release(finder, tree(obj), budget)
}

/// Bytes allocated for the payload; see [`any::heap_bytes`](super::any::heap_bytes).
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    tree(obj).heap_bytes(arena, |leaf| Arena::usable_size(Run::at(arena, leaf).size) as u64)
}

/// Checks the structure and returns the number of elements, or says what is wrong.
pub fn check(arena: &Arena, obj: u64) -> Result<u64, String> {
    let sum = tree(obj).check(arena, |leaf, _| match Run::at(arena, leaf).check(arena)? {
        0 => Err(format!("leaf {leaf:#x} is empty")),
        count => Ok(count),
    })?;
    match len(arena, obj) {
        count if count == sum => Ok(sum),
        count => Err(format!("list {obj:#x} counts {count} elements, not {sum}")),
    }
}

/// What a leaf may hold.
struct LeafLimit {
    bytes: usize,
    entries: u64,
}

impl LeafLimit {
    fn new(limits: &Limits) -> LeafLimit {
        match limits.list_max_listpack_size {
            size @ 1.. => LeafLimit { bytes: 8 << 10, entries: size as u64 },
            0 => LeafLimit { bytes: 8 << 10, entries: 1 },
            class => LeafLimit { bytes: 2 << 10 << class.unsigned_abs().min(5), entries: u64::MAX },
        }
    }

    /// The block for a leaf of `size` bytes that may grow.
    fn grown(&self, size: usize) -> usize {
        (size + size / 2).min(self.bytes).max(size)
    }
}

/// Bytes of redo of so many elements, of `bytes` together, that replace others here and there, at most.
pub fn replaced_redo_max(limits: &Limits, elements: usize, bytes: usize) -> usize {
    // For each element a block may be parted, and what follows the old element moves.
    redo_max(elements, bytes) + elements * 3 * LeafLimit::new(limits).bytes
}

/// Changes a list. An operation that fails with [`Full`] leaves the list's elements as they were.
pub struct Writer<'a> {
    arena: &'a mut Arena,
    tx: &'a mut Tx,
    obj: u64,
    tree: LeafTree,
    limit: LeafLimit,
}

impl<'a> Writer<'a> {
    /// Changes the list at `obj` within `tx`.
    pub fn new(arena: &'a mut Arena, tx: &'a mut Tx, obj: u64, cx: Context) -> Self {
        Writer { arena, tx, obj, tree: tree(obj), limit: LeafLimit::new(cx.limits) }
    }

    fn len(&self) -> u64 {
        len(self.arena, self.obj)
    }

    /// The leaf at an end.
    #[inline]
    fn edge(&self, end: End) -> Path {
        match end {
            End::Front => self.tree.first(self.arena),
            End::Back => self.tree.last(self.arena),
        }
    }

    /// Adds an element at an end.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn push(&mut self, end: End, element: &[u8]) -> Result<(), Full> {
        let entry = New::Value(element);
        if self.tree.is_empty(self.arena) {
            let room = if end == End::Front { Room::MostBefore } else { Room::MostBehind };
            let leaf = Run::create(self.arena, self.tx, 0, room, entry)?;
            self.tree.plant(self.arena, self.tx, leaf.at);
            self.count(1);
            self.settle();
            return Ok(());
        }
        let path = self.edge(end);
        let run = Run::at(self.arena, path.leaf);
        let at = if end == End::Front { 0 } else { run.used() };
        self.insert_at(&path, run, at, entry)
    }

    /// Gives an empty list its elements: by one write, if one leaf holds them.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; some elements may be there then.
    pub fn fill<'e>(&mut self, mut elements: impl Iterator<Item = &'e [u8]> + Clone) -> Result<(), Full> {
        let (mut bytes, mut count) = (run::HEADER, 0);
        let is_small = elements.clone().all(|element| {
            bytes += New::Value(element).len();
            count += 1;
            bytes <= self.limit.bytes && count <= self.limit.entries
        });
        if !is_small || count == 0 {
            return elements.try_for_each(|element| self.push(End::Back, element));
        }
        let mut entries = vec![0; bytes - run::HEADER];
        let mut rest = &mut entries[..];
        for element in elements {
            let (entry, behind) = rest.split_at_mut(New::Value(element).len());
            New::Value(element).encode(entry);
            rest = behind;
        }
        let leaf = Run::create(self.arena, self.tx, 0, Room::MostBehind, New::Entries(&entries))?;
        self.tree.plant(self.arena, self.tx, leaf.at);
        self.count(count as i64);
        self.settle();
        Ok(())
    }

    /// Inserts an element so that it has position `index`, which is at most the length of the list, of at least one
    /// element.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn insert(&mut self, index: u64, element: &[u8]) -> Result<(), Full> {
        let (path, in_leaf) = self.tree.by_rank(self.arena, index);
        let at = match in_leaf {
            0 => 0,
            after => entry_at(self.arena, self.obj, &path, after - 1).end(),
        };
        self.insert_at(&path, Run::at(self.arena, path.leaf), at, New::Value(element))
    }

    /// Replaces the element at `index`, which must exist.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn set(&mut self, index: u64, element: &[u8]) -> Result<(), Full> {
        let (path, in_leaf) = self.tree.by_rank(self.arena, index);
        let old = entry_at(self.arena, self.obj, &path, in_leaf);
        let (at, remove) = (old.at, old.len);
        let insert = New::Value(element);
        let edit = Edit { at, remove, insert };
        let run = Run::at(self.arena, path.leaf);
        let size = run::HEADER + run.used() - remove + insert.len();
        let fits = size <= self.limit.bytes || leaf_count(self.arena, self.obj, &path) == 1;
        if !fits && insert.len() > remove {
            self.insert_at(&path, run, at, insert)?;
            self.remove(index + 1..index + 2);
        } else if run.splice(self.arena, self.tx, edit).is_none() {
            self.rebuild(&path, run, edit, self.limit.grown(size), Room::Both)?;
        }
        self.settle();
        Ok(())
    }

    /// Removes the elements whose positions are in `range`, which must be within the list.
    pub fn remove(&mut self, range: Range<u64>) {
        let mut left = range.end - range.start;
        while left > 0 {
            let (path, index) = self.tree.by_rank(self.arena, range.start);
            let held = leaf_count(self.arena, self.obj, &path);
            let count = left.min(held - index);
            let at = entry_at(self.arena, self.obj, &path, index).at;
            let end = entry_at(self.arena, self.obj, &path, index + count - 1).end();
            let edit = Edit { at, remove: end - at, insert: New::NONE };
            self.remove_from(&path, Run::at(self.arena, path.leaf), edit, count, held);
            left -= count;
        }
    }

    /// Removes up to `count` elements from an end; each is shown to `popped` before.
    pub fn pop(&mut self, end: End, count: u64, mut popped: impl FnMut(&[u8])) {
        let mut left = count.min(self.len());
        while left > 0 {
            let path = self.edge(end);
            let held = leaf_count(self.arena, self.obj, &path);
            let count = left.min(held);
            let run = Run::at(self.arena, path.leaf);
            let mut entries = run.entries(self.arena);
            let mut remove = 0;
            for _ in 0..count {
                let entry = if end == End::Front { entries.next() } else { entries.next_back() };
                let entry = entry.expect("a leaf with fewer elements than counted");
                popped(entry.value);
                remove += entry.len;
            }
            let at = if end == End::Front { 0 } else { run.used() - remove };
            self.remove_from(&path, run, Edit { at, remove, insert: New::NONE }, count, held);
            left -= count;
        }
    }

    /// Removes up to `count` elements equal to `element`, the first ones (the last ones, if `reverse`), and returns how
    /// many they were.
    pub fn remove_equal(&mut self, element: &[u8], count: u64, reverse: bool) -> u64 {
        let mut left = count;
        // What has been looked at is before this position, or, in reverse, from it on.
        let mut done = if reverse { self.len() } else { 0 };
        while left > 0 && if reverse { done > 0 } else { done < self.len() } {
            let (path, index) = self.tree.by_rank(self.arena, done - u64::from(reverse));
            let before = done - u64::from(reverse) - index;
            let in_leaf = leaf_count(self.arena, self.obj, &path);
            let removed = self.remove_equal_from(&path, in_leaf, element, left, reverse);
            done = if reverse { before } else { before + in_leaf - removed };
            left -= removed;
        }
        count - left
    }

    fn remove_equal_from(
        &mut self,
        path: &Path,
        held: u64,
        element: &[u8],
        count: u64,
        reverse: bool,
    ) -> u64 {
        let run = Run::at(self.arena, path.leaf);
        let bytes = run.bytes(self.arena);
        let equal = run.entries(self.arena).filter(|entry| entry.value == element);
        let limit = usize::try_from(count).unwrap_or(usize::MAX);
        let mut spans: Vec<(usize, usize)> = if reverse {
            equal.rev().take(limit).map(|entry| (entry.at, entry.end())).collect()
        } else {
            equal.take(limit).map(|entry| (entry.at, entry.end())).collect()
        };
        if reverse {
            spans.reverse();
        }
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return 0 };
        let kept: Vec<u8> = spans.windows(2).flat_map(|pair| &bytes[pair[0].1..pair[1].0]).copied().collect();
        let edit = Edit { at: first.0, remove: last.1 - first.0, insert: New::Entries(&kept) };
        self.remove_from(path, run, edit, spans.len() as u64, held);
        spans.len() as u64
    }

    fn count(&mut self, delta: i64) {
        object::add_count(self.arena, self.tx, self.obj, delta);
    }

    /// After a change of the tree's shape or of an only leaf: gives an only leaf that is three quarters empty a smaller
    /// block, if memory allows, and keeps the name of the encoding in step; as in Redis a list is a listpack again at
    /// half of the limit only.
    fn settle(&mut self) {
        let old = object::encoding(self.arena, self.obj);
        let encoding = if self.tree.height(self.arena) > 0 {
            Encoding::Quicklist
        } else if self.tree.is_empty(self.arena) {
            return;
        } else {
            let path = self.tree.first(self.arena);
            let run = Run::at(self.arena, path.leaf);
            let size = run::HEADER + run.used();
            if run.size > 128.max(4 * size) {
                let edit = Edit { at: 0, remove: 0, insert: New::NONE };
                // Full only means that the larger block is kept.
                let _ = self.rebuild(&path, run, edit, self.limit.grown(size), Room::Both);
            }
            let share = if old == Encoding::Listpack { 1 } else { 2 };
            let small = size <= self.limit.bytes / share && self.len() <= self.limit.entries / share as u64;
            if small { Encoding::Listpack } else { Encoding::Quicklist }
        };
        if old != encoding {
            object::set_encoding(self.arena, self.tx, self.obj, encoding);
        }
    }

    fn rebuild(&mut self, path: &Path, run: Run, edit: Edit, size: usize, room: Room) -> Result<(), Full> {
        let moved = run.rebuild(self.arena, self.tx, edit, size, room)?;
        self.tree.replace(self.arena, self.tx, path, moved.at);
        Ok(())
    }

    fn added(&mut self, path: &Path) {
        self.tree.add(self.arena, self.tx, path, 1);
        self.count(1);
    }

    /// Inserts an entry at a place in the path's leaf.
    fn insert_at(&mut self, path: &Path, run: Run, at: usize, entry: New) -> Result<(), Full> {
        let (used, len) = (run.used(), entry.len());
        let edit = Edit { at, remove: 0, insert: entry };
        let (at_front, at_back) = (at == 0, at == used);
        if self.may_take(path, run, len) {
            let (before, behind) = run.room();
            // At its ends a leaf is not moved for an entry: that would cost a leaf's redo each time.
            let cheap = !(at_front || at_back) || at_front && before >= len || at_back && behind >= len;
            if cheap && run.splice(self.arena, self.tx, edit).is_some() {
                self.added(path);
                return Ok(());
            }
            if path.is_root() || !(at_front || at_back) {
                let size = self.limit.grown(run::HEADER + used + len);
                let room = match (at_front, at_back) {
                    (true, _) => Room::MostBefore,
                    (_, true) => Room::MostBehind,
                    _ => Room::Both,
                };
                self.rebuild(path, run, edit, size, room)?;
                self.added(path);
                return Ok(());
            }
        }
        if !at_front && !at_back {
            let path = self.split(path, run, at)?;
            return self.insert_at(&path, Run::at(self.arena, path.leaf), at, entry);
        }
        if self.insert_beside(path, at_front, entry) {
            return Ok(());
        }
        self.insert_leaf(path, at_front, entry)?;
        self.settle();
        Ok(())
    }

    /// Whether the path's leaf stays within its limit with another entry of `len` bytes.
    fn may_take(&self, path: &Path, run: Run, len: usize) -> bool {
        run::HEADER + run.used() + len <= self.limit.bytes
            && leaf_count(self.arena, self.obj, path) < self.limit.entries
    }

    /// Inserts an entry at the near end of the leaf before (or behind) the path's, if there is one with room.
    fn insert_beside(&mut self, path: &Path, before: bool, entry: New) -> bool {
        let mut beside = *path;
        let exists = if before {
            self.tree.previous(self.arena, &mut beside)
        } else {
            self.tree.next(self.arena, &mut beside)
        };
        let run = Run::at(self.arena, beside.leaf);
        if !exists || !self.may_take(&beside, run, entry.len()) {
            return false;
        }
        let (room_before, room_behind) = run.room();
        if (if before { room_behind } else { room_before }) < entry.len() {
            return false;
        }
        let at = if before { run.used() } else { 0 };
        let edit = Edit { at, remove: 0, insert: entry };
        run.splice(self.arena, self.tx, edit).expect("a run with the room that it has");
        self.added(&beside);
        true
    }

    /// Inserts an entry as a leaf of its own before (or behind) the path's.
    fn insert_leaf(&mut self, path: &Path, before: bool, entry: New) -> Result<(), Full> {
        let size = if entry.len() >= self.limit.bytes / 4 {
            0
        } else {
            let of_like_entries = self.limit.entries.saturating_mul(entry.len() as u64);
            self.limit
                .bytes
                .min(usize::try_from(of_like_entries).unwrap_or(usize::MAX).saturating_add(run::HEADER))
        };
        let room = if before { Room::Before } else { Room::Behind };
        let leaf = Run::create(self.arena, self.tx, size, room, entry)?;
        let new = Counted { leaf: leaf.at, count: 1 };
        let old = Counted { leaf: path.leaf, count: leaf_count(self.arena, self.obj, path) };
        let (left, right) = if before { (new, old) } else { (old, new) };
        if let Err(full) = self.tree.split(self.arena, self.tx, path, left, &[], right) {
            leaf.free(self.arena, self.tx);
            return Err(full);
        }
        self.count(1);
        Ok(())
    }

    /// Moves what is from `at` on in the path's leaf into a leaf of its own, and returns the way to the one before.
    fn split(&mut self, path: &Path, run: Run, at: usize) -> Result<Path, Full> {
        let moved = run.bytes(self.arena)[at..].to_vec();
        let rank = self.tree.before(self.arena, path);
        let count = leaf_count(self.arena, self.obj, path);
        let kept = run.entries(self.arena).take_while(|entry| entry.at < at).count() as u64;
        let size = self.limit.grown(run::HEADER + moved.len());
        let leaf = Run::create(self.arena, self.tx, size, Room::Before, New::Entries(&moved))?;
        let left = Counted { leaf: path.leaf, count: kept };
        let right = Counted { leaf: leaf.at, count: count - kept };
        if let Err(full) = self.tree.split(self.arena, self.tx, path, left, &[], right) {
            leaf.free(self.arena, self.tx);
            return Err(full);
        }
        let edit = Edit { at, remove: moved.len(), insert: New::NONE };
        run.splice(self.arena, self.tx, edit).expect("a removal needs no room");
        self.settle();
        Ok(self.tree.by_rank(self.arena, rank).0)
    }

    /// Makes a change that takes `count` entries out of the path's leaf, which holds `held`.
    fn remove_from(&mut self, path: &Path, run: Run, edit: Edit, count: u64, held: u64) {
        let is_reshaped = if held == count {
            self.tree.remove(self.arena, self.tx, path);
            run.free(self.arena, self.tx);
            true
        } else {
            let run = run.splice(self.arena, self.tx, edit).expect("a removal needs no room");
            self.tree.add(self.arena, self.tx, path, -(count as i64));
            path.is_root() || run.used() <= self.limit.bytes / 8 && self.merge(path, run, held - count)
        };
        self.count(-(count as i64));
        if is_reshaped {
            self.settle();
        }
    }

    /// Moves the `count` entries that a nearly empty leaf holds into one beside it, if that has room and memory allows.
    fn merge(&mut self, path: &Path, run: Run, count: u64) -> bool {
        for before in [false, true] {
            let mut beside = *path;
            let exists = if before {
                self.tree.previous(self.arena, &mut beside)
            } else {
                self.tree.next(self.arena, &mut beside)
            };
            let into = Run::at(self.arena, beside.leaf);
            if !exists
                || into.used() + run.used() > self.limit.bytes / 2
                || leaf_count(self.arena, self.obj, &beside) + count > self.limit.entries
            {
                continue;
            }
            let moved = run.bytes(self.arena).to_vec();
            let at = if before { into.used() } else { 0 };
            let edit = Edit { at, remove: 0, insert: New::Entries(&moved) };
            if into.splice(self.arena, self.tx, edit).is_none() {
                let size = self.limit.grown(run::HEADER + into.used() + moved.len());
                if self.rebuild(&beside, into, edit, size, Room::Both).is_err() {
                    continue;
                }
            }
            self.tree.add(self.arena, self.tx, &beside, count as i64);
            self.tree.remove(self.arena, self.tx, path);
            run.free(self.arena, self.tx);
            return true;
        }
        false
    }
}
