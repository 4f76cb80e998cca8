//! An arena: one partition's part of the heap.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use holdfast_io::Result;

use crate::{EXTENT, Heap, PAGE, Tx, class::Fit, memory::Owned, space::Space};

/// There is no room left in the heap for what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The exclusive owner of some extents.
///
/// It lives inside its partition's lock. All access panics outside the arena's own extents, and ends the process as
/// [`Heap::on_unreadable`] says when a page cannot be read from the file or fails its checksum.
pub struct Arena {
    pub(crate) memory: Owned,
    pub(crate) heap: Arc<Heap>,
    pub(crate) space: Space,
}

impl Arena {
    /// Offset of [`PAGE`] bytes for the owner's roots, zero at creation.
    pub fn root(&self) -> u64 {
        u64::from(self.memory.id()) * EXTENT + PAGE as u64
    }

    /// `len` bytes at `offset`.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.memory.bytes(offset, len)
    }

    /// The `N` bytes at `offset`.
    #[inline]
    pub fn array<const N: usize>(&self, offset: u64) -> [u8; N] {
        *self.bytes(offset, N).first_chunk().expect("as many bytes as asked for")
    }

    /// The byte at `offset`.
    #[inline]
    pub fn u8(&self, offset: u64) -> u8 {
        self.bytes(offset, 1)[0]
    }

    /// The little-endian integer at `offset`.
    #[inline]
    pub fn u16(&self, offset: u64) -> u16 {
        u16::from_le_bytes(self.array(offset))
    }

    /// The little-endian integer at `offset`.
    #[inline]
    pub fn u32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    /// The little-endian integer at `offset`.
    #[inline]
    pub fn u64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    /// Writes bytes, and records them.
    #[inline]
    pub fn write(&mut self, tx: &mut Tx, offset: u64, bytes: &[u8]) {
        self.patch(offset, bytes);
        tx.write(offset, bytes);
    }

    /// Lets `fill` write `len` bytes at `offset`, all of them, and records them.
    #[inline]
    pub fn write_by(&mut self, tx: &mut Tx, offset: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        let bytes = self.memory.bytes_mut(offset, len);
        fill(bytes);
        tx.write(offset, bytes);
    }

    /// Writes an array, and records it.
    #[inline]
    pub fn write_array<const N: usize>(&mut self, tx: &mut Tx, offset: u64, bytes: &[u8; N]) {
        self.patch(offset, bytes);
        tx.write_array(offset, bytes);
    }

    /// Writes a byte, and records it.
    #[inline]
    pub fn write_u8(&mut self, tx: &mut Tx, offset: u64, value: u8) {
        self.write_array(tx, offset, &[value]);
    }

    /// Writes a little-endian integer, and records it.
    #[inline]
    pub fn write_u16(&mut self, tx: &mut Tx, offset: u64, value: u16) {
        self.write_array(tx, offset, &value.to_le_bytes());
    }

    /// Writes a little-endian integer, and records it.
    #[inline]
    pub fn write_u32(&mut self, tx: &mut Tx, offset: u64, value: u32) {
        self.write_array(tx, offset, &value.to_le_bytes());
    }

    /// Writes a little-endian integer, and records it.
    #[inline]
    pub fn write_u64(&mut self, tx: &mut Tx, offset: u64, value: u64) {
        self.write_array(tx, offset, &value.to_le_bytes());
    }

    /// Writes `bytes`, and records only the range in which they differ from what is there. Worth its compare for values that
    /// change little; a record costs 8 bytes more than it carries.
    pub fn write_changed(&mut self, tx: &mut Tx, offset: u64, bytes: &[u8]) {
        let old = self.bytes(offset, bytes.len());
        let Some(first) = old.iter().zip(bytes).position(|(a, b)| a != b) else { return };
        let same_end = old.iter().zip(bytes).rev().take_while(|(a, b)| a == b).count();
        self.write(tx, offset + first as u64, &bytes[first..bytes.len() - same_end]);
    }

    /// Records a block of so many bytes anew, in one, if the change of an object that it is part of has recorded more than that.
    #[inline]
    pub fn record_anew_if_shorter(&self, tx: &mut Tx, offset: u64, len: usize) {
        // Some of it is of other blocks.
        const OTHERS: usize = 256;
        if tx.excess() > len + OTHERS {
            tx.record_anew(offset, self.bytes(offset, len));
        }
    }

    /// Writes a little-endian integer, and records the range in which it differs from what is there: a counter's lowest
    /// byte or two.
    #[inline]
    pub fn write_changed_u64(&mut self, tx: &mut Tx, offset: u64, value: u64) {
        self.change_u64(tx, offset, |_| value);
    }

    /// Adds to a little-endian integer, and records the range that changes. Panics if it would be below zero.
    #[inline]
    pub fn add_u64(&mut self, tx: &mut Tx, offset: u64, delta: i64) {
        self.change_u64(tx, offset, |count| count.checked_add_signed(delta).expect("a count below zero"));
    }

    #[inline]
    fn change_u64(&mut self, tx: &mut Tx, offset: u64, change: impl FnOnce(u64) -> u64) {
        let (old, new) = self.memory.change_u64(offset, change);
        let differ = old ^ new;
        if differ != 0 {
            let (first, same_end) = (differ.trailing_zeros() / 8, differ.leading_zeros() / 8);
            tx.write_int(offset + u64::from(first), new >> (8 * first), (8 - first - same_end) as usize);
        }
    }

    /// Sets `len` bytes to `byte`, and records it in 9 bytes a 64 KiB.
    pub fn fill(&mut self, tx: &mut Tx, offset: u64, len: usize, byte: u8) {
        self.memory.bytes_mut(offset, len).fill(byte);
        tx.fill(offset, len, byte);
    }

    /// Copies bytes to another place, which may overlap. The record carries the bytes: a move would not be
    /// idempotent, and a checkpoint may have caught source and destination at different times.
    pub fn copy(&mut self, tx: &mut Tx, from: u64, to: u64, len: usize) {
        self.memory.copy_within(from, to, len);
        tx.write(to, self.memory.bytes(to, len));
    }

    /// Writes bytes without a record: for those whose redo is something else in the same transaction.
    #[inline(always)]
    pub fn patch(&mut self, offset: u64, bytes: &[u8]) {
        self.memory.bytes_mut(offset, bytes.len()).copy_from_slice(bytes);
    }

    /// Applies what the last replay has left to be done in an extent, if it is this arena's; whether there was anything.
    pub fn apply_redo(&mut self, extent: u32) -> Result<bool> {
        self.memory.apply_redo(extent)
    }

    /// What an allocation of `size` bytes really takes.
    pub fn usable_size(size: usize) -> usize {
        Fit::of(size).bytes()
    }

    /// Bytes in allocated blocks, as [`Arena::usable_size`] counts them.
    pub fn allocated_bytes(&self) -> u64 {
        self.heap.allocated[usize::from(self.memory.id())].0.load(Relaxed)
    }

    /// Adds to [`Arena::allocated_bytes`].
    pub(crate) fn count_allocated(&mut self, bytes: i64) {
        let counter = &self.heap.allocated[usize::from(self.memory.id())].0;
        counter.store(counter.load(Relaxed).wrapping_add_signed(bytes), Relaxed);
    }
}
