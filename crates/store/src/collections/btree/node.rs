//! Nodes of fixed-size slots, made for little redo.
//!
//! ```text
//! order: one byte a slot ... 0xFF | slot 0 | slot 1 | ...
//! ```
//! The slots lie where they were first written; the order bytes before them name them in key order, up to the
//! first 0xFF. So an insertion logs one slot and about half of the order bytes, and removing the last slots logs a
//! single byte. Order bytes behind the first 0xFF mean nothing.

use holdfast_heap::{Arena, Full, Tx};

const END: u8 = 0xFF;
/// The most order bytes that a layout may have.
const MAX_ORDER: usize = 64;
/// The widest slot, in bytes.
const MAX_WIDTH: usize = 32;

/// The shape of a node: `width` bytes a slot, `size` bytes a node, `size / width` (a multiple of 8) order bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub width: usize,
    pub size: usize,
}

impl Layout {
    /// A layout of `width` bytes a slot and `size` bytes a node.
    pub const fn new(width: usize, size: usize) -> Self {
        assert!(width <= MAX_WIDTH && size.is_multiple_of(width));
        assert!(size / width <= MAX_ORDER && (size / width).is_multiple_of(8));
        Self { width, size }
    }

    const fn order(self) -> usize {
        self.size / self.width
    }

    /// The most slots that a node holds: at least one order byte is left for the end mark.
    pub const fn capacity(self) -> usize {
        (self.size - self.order()) / self.width
    }
}

/// A node read as a whole.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> View<'a> {
    /// The number of slots in use.
    #[inline]
    pub fn len(self) -> usize {
        const HIGH: u64 = 0x8080_8080_8080_8080;
        for (i, chunk) in self.bytes[..self.layout.order()].chunks_exact(8).enumerate() {
            let marks = u64::from_le_bytes(chunk.try_into().expect("a chunk of 8")) & HIGH;
            if marks != 0 {
                return i * 8 + marks.trailing_zeros() as usize / 8;
            }
        }
        panic!("a node without end")
    }

    /// Where in the node the slot at `index` in key order lies, in bytes. It stays there until it is removed.
    #[inline]
    pub fn slot_start(self, index: usize) -> usize {
        self.layout.order() + self.bytes[index] as usize * self.layout.width
    }

    /// The slot at `index` in key order.
    #[inline]
    pub fn slot(self, index: usize) -> &'a [u8] {
        &self.bytes[self.slot_start(index)..][..self.layout.width]
    }

    /// The slots from `index` on, one after another in key order.
    pub fn tail(self, index: usize) -> Vec<u8> {
        let len = self.len();
        let mut slots = Vec::with_capacity((len - index) * self.layout.width);
        (index..len).for_each(|i| slots.extend_from_slice(self.slot(i)));
        slots
    }

    /// The first of the slots `from..` for which `below` does not hold, or their end.
    pub fn partition_point(self, from: usize, mut below: impl FnMut(&'a [u8]) -> bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if below(self.slot(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Checks that the order bytes name different slots, or says what is wrong.
    pub fn check(self) -> Result<(), String> {
        let mut used = 0u64;
        for &slot in &self.bytes[..self.len()] {
            if slot as usize >= self.layout.capacity() || used & 1 << slot != 0 {
                return Err(format!("the order names slot {slot} wrongly"));
            }
            used |= 1 << slot;
        }
        Ok(())
    }
}

/// Reads the node at `node`.
#[inline]
pub(crate) fn view(arena: &Arena, layout: Layout, node: u64) -> View<'_> {
    View { bytes: arena.bytes(node, layout.size), layout }
}

/// The heap offset of a slot's bytes.
pub(crate) fn slot_offset(arena: &Arena, layout: Layout, node: u64, index: usize) -> u64 {
    let slot = arena.u8(node + index as u64) as usize;
    node + (layout.order() + slot * layout.width) as u64
}

/// Allocates a node; it must be filled by [`fill`] before it is read.
pub(crate) fn alloc(arena: &mut Arena, tx: &mut Tx, layout: Layout) -> Result<u64, Full> {
    arena.alloc(tx, layout.size)
}

/// Frees a node.
pub(crate) fn free(arena: &mut Arena, tx: &mut Tx, layout: Layout, node: u64) {
    arena.free(tx, node, layout.size);
}

/// Gives a node the slots in `slots`, one after another in key order; what it held is gone.
pub(crate) fn fill(arena: &mut Arena, tx: &mut Tx, layout: Layout, node: u64, slots: &[u8]) {
    let count = slots.len() / layout.width;
    assert!(count <= layout.capacity() && slots.len().is_multiple_of(layout.width));
    let mut order = [END; MAX_ORDER];
    for (slot, byte) in order[..count].iter_mut().enumerate() {
        *byte = slot as u8;
    }
    arena.write(tx, node, &order[..=count]);
    if !slots.is_empty() {
        arena.write(tx, node + layout.order() as u64, slots);
    }
}

/// Inserts a slot before the one at `index`. The node must have room.
pub(crate) fn insert(arena: &mut Arena, tx: &mut Tx, layout: Layout, node: u64, index: usize, bytes: &[u8]) {
    let view = view(arena, layout, node);
    let len = view.len();
    assert!(index <= len && len < layout.capacity() && bytes.len() == layout.width);
    let used = view.bytes[..len].iter().fold(0u64, |used, slot| used | 1 << slot);
    let slot = (!used).trailing_zeros() as usize;
    let mut order = [END; MAX_ORDER + 1];
    order[0] = slot as u8;
    order[1..=len - index].copy_from_slice(&view.bytes[index..len]);
    arena.write(tx, node + (layout.order() + slot * layout.width) as u64, bytes);
    arena.write_changed(tx, node + index as u64, &order[..len - index + 2]);
}

/// Removes the `count` slots from `index` on.
pub(crate) fn remove(arena: &mut Arena, tx: &mut Tx, layout: Layout, node: u64, index: usize, count: usize) {
    let view = view(arena, layout, node);
    let len = view.len();
    assert!(index + count <= len);
    let mut order = [END; MAX_ORDER];
    let rest = len - index - count;
    order[..rest].copy_from_slice(&view.bytes[index + count..len]);
    arena.write_changed(tx, node + index as u64, &order[..=rest]);
}

/// Moves all slots of `from` into `into`, before or behind those that it has, and frees `from`.
pub(crate) fn absorb(arena: &mut Arena, tx: &mut Tx, layout: Layout, into: u64, from: u64, before: bool) {
    let slots = view(arena, layout, from).tail(0);
    let start = if before { 0 } else { view(arena, layout, into).len() };
    for (i, slot) in slots.chunks_exact(layout.width).enumerate() {
        insert(arena, tx, layout, into, start + i, slot);
    }
    free(arena, tx, layout, from);
}
