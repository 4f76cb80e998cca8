//! A small set of integers as an array.
//!
//! The block is `width u32, capacity u32, integers`: 2, 4 or 8 bytes each, little-endian, as the widest needs it; the
//! capacity is in bytes. The number of integers is with the owner, and the block's offset in a slot of the owner.
//!
//! The integers are in no order. In an array in order, as Redis keeps it, an insertion would log half of the set to
//! save a scan of at most a few hundred integers; so they are put in order when they are listed.

use holdfast_heap::{Arena, Full, Tx};

const HEADER: usize = 8;
const CAPACITY: u64 = 4;

/// A set of integers, named by its slot.
#[derive(Clone, Copy)]
pub struct Intset {
    slot: u64,
}

impl Intset {
    /// The set whose block the word at heap offset `slot` names; 0 there is the empty set.
    pub fn at(slot: u64) -> Intset {
        Intset { slot }
    }

    /// The index of `value` among `count` integers.
    pub fn find(self, arena: &Arena, count: usize, value: i64) -> Option<usize> {
        let (width, ints) = self.ints(arena, count);
        let value = value.to_le_bytes();
        match width {
            2 if fits(&value, 2) => position::<2>(ints, &value),
            4 if fits(&value, 4) => position::<4>(ints, &value),
            8 => position::<8>(ints, &value),
            _ => None,
        }
    }

    /// The integer at `index`.
    pub fn get(self, arena: &Arena, index: usize) -> i64 {
        let (width, ints) = self.ints(arena, index + 1);
        decode(&ints[index * width..][..width])
    }

    /// All of `count` integers, in no order.
    pub fn iter(self, arena: &Arena, count: usize) -> impl Iterator<Item = i64> {
        let (width, ints) = self.ints(arena, count);
        ints.chunks_exact(width).map(decode)
    }

    /// Adds an integer that is not among the `count` there are.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; nothing has changed.
    pub fn add(self, arena: &mut Arena, tx: &mut Tx, count: usize, value: i64) -> Result<(), Full> {
        let bytes = value.to_le_bytes();
        let needed = [2, 4].into_iter().find(|&width| fits(&bytes, width)).unwrap_or(8);
        let (width, ints) = self.ints(arena, count);
        let block = arena.u64(self.slot);
        if block != 0 && needed <= width && ints.len() + width <= arena.u32(block + CAPACITY) as usize {
            arena.write(tx, block + (HEADER + ints.len()) as u64, &bytes[..width]);
            return Ok(());
        }

        let width = width.max(needed);
        let used = (count + 1) * width;
        let size = Arena::usable_size(HEADER + used + used / 4);
        let mut content = Vec::with_capacity(HEADER + used);
        content.extend_from_slice(&(width as u32).to_le_bytes());
        content.extend_from_slice(&((size - HEADER) as u32).to_le_bytes());
        for value in self.iter(arena, count) {
            content.extend_from_slice(&value.to_le_bytes()[..width]);
        }
        content.extend_from_slice(&bytes[..width]);
        let grown = arena.alloc(tx, size)?;
        arena.write(tx, grown, &content);
        arena.write_u64(tx, self.slot, grown);
        if block != 0 {
            free(arena, tx, block);
        }
        Ok(())
    }

    /// Removes the integer at `index` of `count`; the last one takes its place.
    pub fn remove(self, arena: &mut Arena, tx: &mut Tx, count: usize, index: usize) {
        let (width, _) = self.ints(arena, count);
        let at = |index| arena.u64(self.slot) + (HEADER + index * width) as u64;
        let (hole, last) = (at(index), at(count - 1));
        if hole != last {
            arena.copy(tx, last, hole, width);
        }
    }

    /// Frees the block; the set is then empty.
    pub fn clear(self, arena: &mut Arena, tx: &mut Tx) {
        let block = arena.u64(self.slot);
        if block != 0 {
            arena.write_u64(tx, self.slot, 0);
            free(arena, tx, block);
        }
    }

    /// Bytes allocated for the block.
    pub fn heap_bytes(self, arena: &Arena) -> u64 {
        match arena.u64(self.slot) {
            0 => 0,
            block => Arena::usable_size(Intset::block_size(arena, block)) as u64,
        }
    }

    /// Bytes of a block that holds a set.
    #[inline]
    pub fn block_size(arena: &Arena, block: u64) -> usize {
        HEADER + arena.u32(block + CAPACITY) as usize
    }

    /// The width and the bytes of the first `count` integers.
    fn ints(self, arena: &Arena, count: usize) -> (usize, &[u8]) {
        match arena.u64(self.slot) {
            0 => (2, &[]),
            block => {
                let width = arena.u32(block) as usize;
                (width, arena.bytes(block + HEADER as u64, count * width))
            }
        }
    }
}

/// Frees a block that no slot names any more.
pub(super) fn free(arena: &mut Arena, tx: &mut Tx, block: u64) {
    let size = HEADER + arena.u32(block + CAPACITY) as usize;
    arena.free(tx, block, size);
}

/// Whether an integer is the sign extension of its first `width` bytes.
fn fits(value: &[u8; 8], width: usize) -> bool {
    decode(&value[..width]).to_le_bytes() == *value
}

/// The integer in all of `bytes`.
fn decode(bytes: &[u8]) -> i64 {
    let sign = if bytes[bytes.len() - 1] & 0x80 != 0 { 0xFF } else { 0 };
    let mut value = [sign; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(value)
}

fn position<const WIDTH: usize>(ints: &[u8], value: &[u8; 8]) -> Option<usize> {
    let value: &[u8; WIDTH] = value.first_chunk().expect("at most 8 bytes");
    // Blocks without an early exit, so that they are compared several at a time.
    let block_of = |ints: &[u8]| ints.chunks_exact(WIDTH).fold(false, |hit, int| hit | (int == value));
    let block = ints.chunks(16 * WIDTH).position(block_of)?;
    let start = block * 16;
    let inside = ints[start * WIDTH..].chunks_exact(WIDTH).position(|int| int == value);
    inside.map(|index| start + index)
}
