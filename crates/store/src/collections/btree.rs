//! The counted B+tree: inner nodes over leaves of any kind.
//!
//! An inner node's slot is `child u64, elements below the child u64, key`: the elements are found by position
//! through the counts, and in trees with keys also by key. A slot's key is a lower bound of what is below its
//! child and an upper bound of what is before it; that of slot 0 means nothing, for the bound is then with an
//! ancestor. So what happens at the front of the tree touches no keys.
//!
//! What a leaf holds, and how it is split and merged, is its owner's affair (a list's packed runs, a sorted set's
//! nodes); the tree is told. A tree that is one leaf has no inner node. Its root word, in the owner's object, is the
//! root's offset with the tree's height in the low four bits; 0 is an empty tree.
//!
//! A node is merged with a neighbour when a removal leaves it a quarter full and the two fill three quarters of one,
//! so that sequences of removals and insertions do not split and merge by turns.

pub(crate) mod node;

use super::absent::no_look;
use holdfast_heap::{Arena, Full, Tx};
use node::{Layout, View, view};
use std::ops::Range;

/// What no tree outgrows: a heap has room for 2^29 inner nodes, and of two neighbours one has 16 slots in use at least,
/// so that a level has some eight times as many nodes as the one above it.
const MAX_HEIGHT: usize = 10;
/// Slots of an inner node's order area; also what makes a node's size.
const INNER_ORDER: usize = 64;
/// Where in a slot its count lies.
const COUNT: u64 = 8;
/// Bytes of a slot before its key.
const POINTER: usize = 16;

/// A tree with keys of `KEY` bytes (0 or 16), by the heap offset of its root word.
#[derive(Clone, Copy)]
pub(crate) struct Tree<const KEY: usize> {
    root: u64,
}

/// A leaf, and a number of elements that it holds.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub leaf: u64,
    pub count: u64,
}

/// One of a node's slots.
#[derive(Clone, Copy)]
struct Step {
    node: u64,
    /// Which it is in key order.
    index: u32,
    /// Where in the node it lies, in bytes.
    start: u32,
}

impl Step {
    #[inline]
    fn new(node: u64, view: View, index: usize) -> Step {
        Step { node, index: index as u32, start: view.slot_start(index) as u32 }
    }

    fn index(&self) -> usize {
        self.index as usize
    }

    /// The heap offset of the slot.
    #[inline]
    fn slot(&self) -> u64 {
        self.node + u64::from(self.start)
    }
}

/// The way from the root to a leaf. It is stale after any change of the tree's shape.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    steps: [Step; MAX_HEIGHT],
    height: usize,
    /// The leaf that it leads to.
    pub leaf: u64,
}

impl Path {
    const EMPTY: Path =
        Path { steps: [Step { node: 0, index: 0, start: 0 }; MAX_HEIGHT], height: 0, leaf: 0 };

    /// Whether its leaf is the whole tree.
    pub fn is_root(&self) -> bool {
        self.height == 0
    }

    fn node(&self, level: usize) -> u64 {
        if level == self.height { self.leaf } else { self.steps[level].node }
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

fn child(slot: &[u8]) -> u64 {
    number(&slot[..8])
}

fn count(slot: &[u8]) -> u64 {
    number(&slot[8..POINTER])
}

fn pointer(to: Counted) -> [u8; POINTER] {
    let mut bytes = [0; POINTER];
    bytes[..8].copy_from_slice(&to.leaf.to_le_bytes());
    bytes[8..].copy_from_slice(&to.count.to_le_bytes());
    bytes
}

impl<const KEY: usize> Tree<KEY> {
    const INNER: Layout = Layout::new(POINTER + KEY, (POINTER + KEY) * INNER_ORDER);

    /// The tree whose root word is at `root`.
    pub const fn at(root: u64) -> Self {
        Self { root }
    }

    fn top(&self, arena: &Arena) -> (u64, usize) {
        let word = arena.u64(self.root);
        (word & !0xF, (word & 0xF) as usize)
    }

    fn set_top(&self, arena: &mut Arena, tx: &mut Tx, node: u64, height: usize) {
        assert!(height <= MAX_HEIGHT && node & 0xF == 0);
        arena.write_changed_u64(tx, self.root, node | height as u64);
    }

    /// Makes `leaf` the whole tree, without freeing what the tree was.
    pub fn plant(&self, arena: &mut Arena, tx: &mut Tx, leaf: u64) {
        self.set_top(arena, tx, leaf, 0);
    }

    /// Levels of inner nodes.
    pub fn height(&self, arena: &Arena) -> usize {
        self.top(arena).1
    }

    /// Whether it has no leaf at all.
    pub fn is_empty(&self, arena: &Arena) -> bool {
        self.top(arena).0 == 0
    }

    /// Descends from the root; `choose` picks a slot's index in each node.
    #[inline]
    fn descend(&self, arena: &Arena, choose: impl FnMut(View) -> usize) -> Path {
        let Ok(path) = self.try_descend(arena, no_look, choose);
        path
    }

    /// The same, unless `look` fails of a node before it is read, by its place and length.
    #[inline]
    fn try_descend<E>(
        &self,
        arena: &Arena,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut choose: impl FnMut(View) -> usize,
    ) -> Result<Path, E> {
        let (root, height) = self.top(arena);
        assert!(root != 0, "descent into an empty tree");
        let mut path = Path { height, leaf: root, ..Path::EMPTY };
        for step in &mut path.steps[..height] {
            look(path.leaf, Self::INNER.size)?;
            let view = view(arena, Self::INNER, path.leaf);
            let index = choose(view);
            *step = Step::new(path.leaf, view, index);
            path.leaf = child(view.slot(index));
        }
        Ok(path)
    }

    /// The leaf with the element of that rank, and the element's index in it; the last leaf if the rank is beyond.
    pub fn by_rank(&self, arena: &Arena, rank: u64) -> (Path, u64) {
        let Ok(found) = self.try_by_rank(arena, rank, no_look);
        found
    }

    /// The same, unless `look` fails of a node before it is read, by its place and length.
    pub fn try_by_rank<E>(
        &self,
        arena: &Arena,
        rank: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<(Path, u64), E> {
        let mut rest = rank;
        let path = self.try_descend(arena, look, |view| {
            let last = view.len() - 1;
            let mut index = 0;
            while index < last && count(view.slot(index)) <= rest {
                rest -= count(view.slot(index));
                index += 1;
            }
            index
        })?;
        Ok((path, rest))
    }

    /// The last leaf whose key satisfies `at_most`; the first leaf counts as satisfying it.
    pub fn by_key(&self, arena: &Arena, at_most: impl FnMut(&[u8]) -> bool) -> Path {
        let Ok(path) = self.try_by_key(arena, no_look, at_most);
        path
    }

    /// The same, unless `look` fails of a node before it is read, by its place and length.
    #[inline]
    pub fn try_by_key<E>(
        &self,
        arena: &Arena,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut at_most: impl FnMut(&[u8]) -> bool,
    ) -> Result<Path, E> {
        self.try_descend(arena, look, |view| view.partition_point(1, |slot| at_most(&slot[POINTER..])) - 1)
    }

    /// Passes the leaves to `each` that hold the elements of these ranks, and which of a leaf's elements those are. Leaves are left
    /// out where `look` fails of a node on the way, by its place and length.
    pub fn try_each_leaf<E>(
        &self,
        arena: &Arena,
        ranks: Range<u64>,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut each: impl FnMut(u64, Range<u64>),
    ) {
        let (root, height) = self.top(arena);
        if root == 0 || ranks.is_empty() {
            return;
        }
        let mut nodes = vec![(root, height, 0)];
        while let Some((node, height, first)) = nodes.pop() {
            if height == 0 {
                each(node, ranks.start.saturating_sub(first)..ranks.end - first);
            } else if look(node, Self::INNER.size).is_ok() {
                let view = view(arena, Self::INNER, node);
                let (begin, mut first) = (nodes.len(), first);
                for slot in (0..view.len()).map(|index| view.slot(index)) {
                    let behind = first + count(slot);
                    if first < ranks.end && ranks.start < behind {
                        nodes.push((child(slot), height - 1, first));
                    }
                    first = behind;
                }
                nodes[begin..].reverse();
            }
        }
    }

    /// Passes the leaves to `each`, from the last one on, until that says to stop, or `look` fails of a node on the way, by its place and length.
    pub fn try_each_leaf_from_last<E>(
        &self,
        arena: &Arena,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut each: impl FnMut(u64) -> bool,
    ) -> Result<(), E> {
        if self.is_empty(arena) {
            return Ok(());
        }
        let mut path = self.try_descend(arena, &look, |view| view.len() - 1)?;
        while each(path.leaf) && self.try_step(arena, &mut path, true, &look)? {}
        Ok(())
    }

    /// The first leaf.
    pub fn first(&self, arena: &Arena) -> Path {
        self.descend(arena, |_| 0)
    }

    /// The last leaf.
    pub fn last(&self, arena: &Arena) -> Path {
        self.descend(arena, |view| view.len() - 1)
    }

    /// Moves to the next leaf; false, and no move, at the last one.
    pub fn next(&self, arena: &Arena, path: &mut Path) -> bool {
        let Ok(moved) = self.try_step(arena, path, false, no_look);
        moved
    }

    /// Moves to the leaf before; false, and no move, at the first one.
    pub fn previous(&self, arena: &Arena, path: &mut Path) -> bool {
        let Ok(moved) = self.try_step(arena, path, true, no_look);
        moved
    }

    /// Moves to the next leaf, or the one before if `reverse`, unless `look` fails of a node before it is read, by its place and
    /// length; then the path is of no use any more. False, and no move, at the end.
    pub fn try_step<E>(
        &self,
        arena: &Arena,
        path: &mut Path,
        reverse: bool,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        for level in (0..path.height).rev() {
            let step = path.steps[level];
            let node = view(arena, Self::INNER, step.node);
            let beside = if reverse { step.index().checked_sub(1) } else { Some(step.index() + 1) };
            let Some(index) = beside.filter(|index| *index < node.len()) else { continue };
            path.steps[level] = Step::new(step.node, node, index);
            path.leaf = child(node.slot(index));
            for step in &mut path.steps[level + 1..path.height] {
                look(path.leaf, Self::INNER.size)?;
                let node = view(arena, Self::INNER, path.leaf);
                let index = if reverse { node.len() - 1 } else { 0 };
                *step = Step::new(path.leaf, node, index);
                path.leaf = child(node.slot(index));
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The elements in the path's leaf; `None` if that leaf is the whole tree, for then its owner counts them.
    pub fn count(&self, arena: &Arena, path: &Path) -> Option<u64> {
        let step = path.steps[..path.height].last()?;
        Some(arena.u64(step.slot() + COUNT))
    }

    /// The elements in all leaves before the path's.
    pub fn before(&self, arena: &Arena, path: &Path) -> u64 {
        let below = |step: &Step| {
            let view = view(arena, Self::INNER, step.node);
            (0..step.index()).map(|i| count(view.slot(i))).sum::<u64>()
        };
        path.steps[..path.height].iter().map(below).sum()
    }

    /// Counts `delta` more elements in the path's leaf.
    pub fn add(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, delta: i64) {
        self.add_above(arena, tx, path, path.height, delta);
    }

    fn add_above(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, level: usize, delta: i64) {
        for step in &path.steps[..level] {
            arena.add_u64(tx, step.slot() + COUNT, delta);
        }
    }

    /// Says that the least element of the path's leaf is now `key`.
    pub fn set_least(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, key: &[u8]) {
        self.set_least_above(arena, tx, path, path.height, key);
    }

    fn set_least_above(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, level: usize, key: &[u8]) {
        if let Some(step) = path.steps[..level].iter().rev().find(|step| step.index > 0) {
            arena.write_changed(tx, step.slot() + POINTER as u64, key);
        }
    }

    /// Puts another leaf with as many elements into the place of the path's.
    pub fn replace(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, leaf: u64) {
        match path.steps[..path.height].last() {
            Some(step) => arena.write_changed_u64(tx, step.slot(), leaf),
            None => self.plant(arena, tx, leaf),
        }
    }

    /// Puts two leaves into the place of the path's; `key` is the bound between them. Changes nothing if it fails.
    pub fn split(
        &self,
        arena: &mut Arena,
        tx: &mut Tx,
        path: &Path,
        left: Counted,
        key: &[u8],
        right: Counted,
    ) -> Result<(), Full> {
        let layout = Self::INNER;
        let capacity = layout.capacity();
        let is_full = |level: &usize| view(arena, layout, path.steps[*level].node).len() == capacity;
        let full = (0..path.height).rev().take_while(is_full).count();
        let mut spare = self.reserve(arena, tx, full + usize::from(full == path.height))?;

        let growth = (left.count + right.count).wrapping_sub(self.count(arena, path).unwrap_or(0));
        let (mut kept, mut carry) = (left, Some([&pointer(right)[..], key].concat()));
        for level in (0..path.height).rev() {
            let step = path.steps[level];
            let (node, index) = (step.node, step.index());
            arena.write_changed(tx, step.slot(), &pointer(kept));
            kept.leaf = node;
            let Some(slot) = carry.take() else {
                kept.count = self.count_above(arena, path, level).wrapping_add(growth);
                continue;
            };
            if view(arena, layout, node).len() < capacity {
                node::insert(arena, tx, layout, node, index + 1, &slot);
                kept.count = self.count_above(arena, path, level).wrapping_add(growth);
                continue;
            }
            // Appending leaves full nodes behind; anything else leaves halves.
            let cut = if index + 1 == capacity { capacity } else { capacity / 2 };
            let beside = spare.pop().expect("a node was reserved for each full one");
            let moved = view(arena, layout, node).tail(cut);
            node::fill(arena, tx, layout, beside, &moved);
            node::remove(arena, tx, layout, node, cut, capacity - cut);
            if index + 1 >= cut {
                node::insert(arena, tx, layout, beside, index + 1 - cut, &slot);
            } else {
                node::insert(arena, tx, layout, node, index + 1, &slot);
            }
            let bound = &view(arena, layout, beside).slot(0)[POINTER..];
            let right = Counted { leaf: beside, count: self.total(arena, beside) };
            carry = Some([&pointer(right)[..], bound].concat());
            kept.count = self.total(arena, node);
        }
        if let Some(slot) = carry {
            let root = spare.pop().expect("a node was reserved for the root");
            let mut slots = vec![0; layout.width];
            slots[..POINTER].copy_from_slice(&pointer(kept));
            slots.extend(slot);
            node::fill(arena, tx, layout, root, &slots);
            self.set_top(arena, tx, root, path.height + 1);
        }
        Ok(())
    }

    /// What the slot above the node at `level` counts; 0 for the root.
    fn count_above(&self, arena: &Arena, path: &Path, level: usize) -> u64 {
        path.steps[..level].last().map_or(0, |step| arena.u64(step.slot() + COUNT))
    }

    fn total(&self, arena: &Arena, node: u64) -> u64 {
        let view = view(arena, Self::INNER, node);
        (0..view.len()).map(|i| count(view.slot(i))).sum()
    }

    fn reserve(&self, arena: &mut Arena, tx: &mut Tx, nodes: usize) -> Result<Vec<u64>, Full> {
        let mut reserved = Vec::new();
        for _ in 0..nodes {
            match node::alloc(arena, tx, Self::INNER) {
                Ok(node) => reserved.push(node),
                Err(full) => {
                    reserved.into_iter().for_each(|node| node::free(arena, tx, Self::INNER, node));
                    return Err(full);
                }
            }
        }
        Ok(reserved)
    }

    /// Takes the path's leaf, with the elements it is counted for, out of the tree; the leaf itself is not freed.
    pub fn remove(&self, arena: &mut Arena, tx: &mut Tx, path: &Path) {
        let count = self.count(arena, path).unwrap_or(0);
        for level in (0..path.height).rev() {
            let step = path.steps[level];
            let (node, index) = (step.node, step.index());
            if view(arena, Self::INNER, node).len() == 1 {
                node::free(arena, tx, Self::INNER, node);
                continue;
            }
            node::remove(arena, tx, Self::INNER, node, index, 1);
            if index == 0 && KEY > 0 {
                let key = view(arena, Self::INNER, node).slot(0)[POINTER..].to_vec();
                self.set_least_above(arena, tx, path, level, &key);
            }
            self.add_above(arena, tx, path, level, -(count as i64));
            return self.merge(arena, tx, path, level, Self::INNER);
        }
        self.plant(arena, tx, 0);
    }

    /// Merges the path's leaf, a node of that layout whose slots are the tree's keys, with one beside it if it pays.
    pub fn merge_leaf(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, layout: Layout) {
        self.merge(arena, tx, path, path.height, layout);
    }

    fn merge(&self, arena: &mut Arena, tx: &mut Tx, path: &Path, level: usize, layout: Layout) {
        if level == 0 {
            return self.lower(arena, tx);
        }
        let len = length_of(arena, layout, path.node(level));
        let Ok(pair) = Self::try_pair(arena, path.steps[level - 1], layout, len, no_look);
        let Some(left) = pair else { return };

        let parent = path.steps[level - 1].node;
        let above = view(arena, Self::INNER, parent);
        let (a, b) = (above.slot(left), above.slot(left + 1));
        let (bound_a, bound_b) = (a[POINTER..].to_vec(), b[POINTER..].to_vec());
        let count = count(a) + count(b);
        let (a, b) = (child(a), child(b));
        if level < path.height {
            // What is slot 0 of `b` now will no longer be.
            let first = node::slot_offset(arena, layout, b, 0);
            arena.write_changed(tx, first + POINTER as u64, &bound_b);
        }
        // The fewer slots move.
        let leftward = length_of(arena, layout, a) >= length_of(arena, layout, b);
        let (into, from) = if leftward { (a, b) } else { (b, a) };
        node::absorb(arena, tx, layout, into, from, !leftward);
        let slot = [&pointer(Counted { leaf: into, count })[..], &bound_a].concat();
        let at = node::slot_offset(arena, Self::INNER, parent, left);
        arena.write_changed(tx, at, &slot);
        node::remove(arena, tx, Self::INNER, parent, left + 1, 1);
        self.merge(arena, tx, path, level - 1, Self::INNER);
    }

    /// The first of the two slots whose nodes are merged if the one that a step leads to is left with `len` slots, unless `look` fails of a
    /// node beside it before it is read, by its place and length.
    fn try_pair<E>(
        arena: &Arena,
        step: Step,
        layout: Layout,
        len: usize,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        let (capacity, index) = (layout.capacity(), step.index());
        if len > capacity / 4 {
            return Ok(None);
        }
        let above = view(arena, Self::INNER, step.node);
        for beside in [Some(index + 1), index.checked_sub(1)].into_iter().flatten() {
            if beside < above.len() {
                let node = child(above.slot(beside));
                look(node, layout.size)?;
                if len + length_of(arena, layout, node) <= capacity * 3 / 4 {
                    return Ok(Some(index.min(beside)));
                }
            }
        }
        Ok(None)
    }

    /// Calls `look` with the leaves that [`Tree::merge_leaf`] reads if the path's is left with `len` slots, by their places and length.
    pub fn try_merge_leaf<E>(
        &self,
        arena: &Arena,
        path: &Path,
        layout: Layout,
        len: usize,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match path.steps[..path.height].last() {
            // One that is empty is removed.
            Some(&step) if len > 0 => Self::try_pair(arena, step, layout, len, look).map(drop),
            _ => Ok(()),
        }
    }

    /// Takes away roots that have one child only.
    fn lower(&self, arena: &mut Arena, tx: &mut Tx) {
        loop {
            let (root, height) = self.top(arena);
            if height == 0 || view(arena, Self::INNER, root).len() > 1 {
                return;
            }
            let below = child(view(arena, Self::INNER, root).slot(0));
            self.set_top(arena, tx, below, height - 1);
            node::free(arena, tx, Self::INNER, root);
        }
    }

    /// Takes the last leaf of a tree that is being destroyed; counts are not kept up. `None`: the tree is empty.
    pub fn take_last(&self, arena: &mut Arena, tx: &mut Tx) -> Option<u64> {
        if self.is_empty(arena) {
            return None;
        }
        let path = self.last(arena);
        for step in path.steps[..path.height].iter().rev() {
            let len = view(arena, Self::INNER, step.node).len();
            if len > 1 {
                node::remove(arena, tx, Self::INNER, step.node, len - 1, 1);
                return Some(path.leaf);
            }
            node::free(arena, tx, Self::INNER, step.node);
        }
        self.plant(arena, tx, 0);
        Some(path.leaf)
    }

    /// The number of leaves and of inner nodes.
    pub fn nodes(&self, arena: &Arena) -> (u64, u64) {
        let mut leaves = 0;
        let inner = self.heap_bytes(arena, |_| {
            leaves += 1;
            0
        });
        (leaves, inner / Arena::usable_size(Self::INNER.size) as u64)
    }

    /// Bytes allocated for the inner nodes, and for the leaves as `leaf` tells of each.
    pub fn heap_bytes(&self, arena: &Arena, mut leaf: impl FnMut(u64) -> u64) -> u64 {
        let (root, height) = self.top(arena);
        if root == 0 { 0 } else { self.heap_bytes_below(arena, root, height, &mut leaf) }
    }

    fn heap_bytes_below(
        &self,
        arena: &Arena,
        node: u64,
        height: usize,
        leaf: &mut impl FnMut(u64) -> u64,
    ) -> u64 {
        if height == 0 {
            return leaf(node);
        }
        let view = view(arena, Self::INNER, node);
        let below: u64 = (0..view.len())
            .map(|index| self.heap_bytes_below(arena, child(view.slot(index)), height - 1, leaf))
            .sum();
        below + Arena::usable_size(Self::INNER.size) as u64
    }

    /// Checks every node and count, and returns the number of elements, or says what is wrong. `leaf` is called with
    /// each leaf and its lower bound, and returns the elements in it.
    pub fn check(
        &self,
        arena: &Arena,
        mut leaf: impl FnMut(u64, Option<&[u8]>) -> Result<u64, String>,
    ) -> Result<u64, String> {
        let (root, height) = self.top(arena);
        if root == 0 { Ok(0) } else { self.check_node(arena, root, height, None, &mut leaf) }
    }

    fn check_node(
        &self,
        arena: &Arena,
        node: u64,
        height: usize,
        bound: Option<&[u8]>,
        leaf: &mut impl FnMut(u64, Option<&[u8]>) -> Result<u64, String>,
    ) -> Result<u64, String> {
        if height == 0 {
            return leaf(node, bound);
        }
        let view = view(arena, Self::INNER, node);
        view.check().map_err(|what| format!("node {node:#x}: {what}"))?;
        if view.len() == 0 {
            return Err(format!("node {node:#x} is empty"));
        }
        let mut sum = 0;
        for index in 0..view.len() {
            let slot = view.slot(index);
            let bound = if index == 0 { bound } else { Some(&slot[POINTER..]) };
            let below = self.check_node(arena, child(slot), height - 1, bound, leaf)?;
            if below != count(slot) {
                return Err(format!(
                    "node {node:#x} counts {} below child {index}, not {below}",
                    count(slot)
                ));
            }
            sum += below;
        }
        Ok(sum)
    }
}

fn length_of(arena: &Arena, layout: Layout, node: u64) -> usize {
    view(arena, layout, node).len()
}
