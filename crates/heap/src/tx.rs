//! Redo records: what a transaction changed, in a form that replay can apply again.

use std::{iter, sync::Arc};

use crate::{Full, Heap};

/// A `write` record: the bytes at an offset.
pub(crate) const WRITE: u8 = 1;
/// An `extent` record: an extent changes hands, and is all zero.
pub(crate) const OWNER: u8 = 2;
/// A `fill` record: one byte, repeated.
pub(crate) const FILL: u8 = 3;
/// Bytes of a record before its payload.
pub(crate) const RECORD: usize = 8;
/// Bytes that one record can carry.
const LEN_MAX: usize = u16::MAX as usize;

/// What one transaction has changed so far.
///
/// After the records are appended to the log, call [`Tx::committed`] and [`Tx::clear`], and use it again. There is
/// no roll-back: what was written stays written.
#[derive(Default)]
pub struct Tx {
    /// Redo records, and items that the store puts between them, in execution order. Bytes may be appended; whoever
    /// takes some away calls [`Tx::clear`].
    pub buf: Vec<u8>,
    /// The last `write` record; it can grow while nothing follows it.
    last: Option<Last>,
    released: Vec<u32>,
    /// Extents that were set aside for it, in no order.
    aside: Vec<u32>,
    heap: Option<Arc<Heap>>,
    /// Whether nothing is recorded.
    is_silent: bool,
    /// How often something was written, recorded or not.
    writes: u64,
    /// Whether a record in the buffer gives an extent another owner.
    changes_owners: bool,
    change: Option<Change>,
}

/// A change of one object, in many steps maybe.
struct Change {
    /// Where its records begin.
    start: usize,
    /// Length of the buffer from which on [`Tx::excess`] counts.
    counted: usize,
}

struct Last {
    at: usize,
    offset: u64,
    /// Length of `buf` behind the record.
    end: usize,
}

impl Tx {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the records, but keeps the buffer.
    pub fn clear(&mut self) {
        self.buf.clear();
        (self.last, self.change) = (None, None);
        (self.is_silent, self.writes, self.changes_owners) = (false, 0, false);
    }

    /// Records nothing until [`Tx::clear`]. What is changed meanwhile counts only once a checkpoint has all of it that is taken while nobody
    /// changes anything; of one that is taken before, nothing makes a whole.
    pub fn record_nothing(&mut self) {
        self.is_silent = true;
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty() && self.writes == 0
    }

    /// How often something was written; the bytes do not tell, as a write may be part of the last record or be recorded nowhere.
    #[inline]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// A change begins that may write the same bytes again and again. Until [`Tx::end_change`] nothing but records comes into the buffer.
    #[inline]
    pub fn begin_change(&mut self) {
        let counted = self.buf.len();
        // The last record may still grow.
        let start = self.last.as_ref().filter(|last| last.end == counted).map_or(counted, |last| last.at);
        self.change = Some(Change { start, counted });
    }

    /// The end of the change.
    #[inline]
    pub fn end_change(&mut self) {
        self.change = None;
    }

    /// Bytes that the change has recorded since something was last recorded anew.
    #[inline]
    pub(crate) fn excess(&self) -> usize {
        self.change.as_ref().map_or(0, |change| self.buf.len() - change.counted)
    }

    /// Records a range anew, in place of all that the change has recorded of it.
    pub(crate) fn record_anew(&mut self, offset: u64, bytes: &[u8]) {
        let Some(Change { start, .. }) = self.change else { return };
        let (mut from, mut to) = (start, start);
        while from < self.buf.len() {
            let (record, rest) = Record::split(&self.buf[from..]).expect("a record of this transaction");
            let end = self.buf.len() - rest.len();
            // One that goes beyond the range stays, and is written over.
            let is_of_range = match record {
                Record::Write { offset: at, bytes: old } => {
                    at >= offset && at + old.len() as u64 <= offset + bytes.len() as u64
                }
                _ => false,
            };
            if !is_of_range {
                self.buf.copy_within(from..end, to);
                to += end - from;
            }
            from = end;
        }
        self.buf.truncate(to);
        self.last = None;
        self.write(offset, bytes);
        self.change = Some(Change { start, counted: self.buf.len() });
    }

    /// Counts a write. Returns whether it is to be recorded.
    #[inline]
    fn counts(&mut self) -> bool {
        self.writes += 1;
        !self.is_silent
    }

    /// Tells that the records have their place in the log: extents that were freed may now be used by other arenas,
    /// whose records come later in the log.
    pub fn committed(&mut self) {
        if let Some(heap) = self.heap.take() {
            heap.recycle(&self.released);
            self.released.clear();
        }
    }

    /// Records `bytes` at `offset`, where an arena has them or will.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() || !self.counts() || self.extend(offset, bytes) {
            return;
        }
        if bytes.len() <= LEN_MAX {
            return self.record(offset, bytes);
        }
        for (i, part) in bytes.chunks(LEN_MAX).enumerate() {
            self.record(offset + (i * LEN_MAX) as u64, part);
        }
    }

    /// Records the `len` low bytes of a little-endian integer at `offset`.
    #[inline]
    pub(crate) fn write_int(&mut self, offset: u64, value: u64, len: usize) {
        if !self.counts() {
            return;
        }
        if self.is_beside_last(offset) {
            return self.write(offset, &value.to_le_bytes()[..len]);
        }
        let at = self.buf.len();
        // A store of 16 bytes costs less than one of as many as count.
        let record = u128::from(head(WRITE, len as u16, offset)) | u128::from(value) << 64;
        self.buf.extend_from_slice(&record.to_le_bytes());
        self.buf.truncate(at + RECORD + len);
        self.last = Some(Last { at, offset, end: self.buf.len() });
    }

    /// Records an array at `offset`: as [`Tx::write`], but without a call to copy bytes whose number is known.
    #[inline]
    pub(crate) fn write_array<const N: usize>(&mut self, offset: u64, bytes: &[u8; N]) {
        if !self.counts() {
            return;
        }
        if self.is_beside_last(offset) {
            return self.write(offset, bytes);
        }
        self.record(offset, bytes);
    }

    /// Adds a record of a write.
    #[inline(always)]
    fn record(&mut self, offset: u64, bytes: &[u8]) {
        let at = self.buf.len();
        put_write(&mut self.buf, offset, bytes);
        self.last = Some(Last { at, offset, end: self.buf.len() });
    }

    /// Records `len` times `byte` at `offset`.
    pub(crate) fn fill(&mut self, offset: u64, len: usize, byte: u8) {
        if !self.counts() {
            return;
        }
        for at in (0..len).step_by(LEN_MAX) {
            let head = head(FILL, (len - at).min(LEN_MAX) as u16, offset + at as u64);
            self.buf.extend_from_slice(&head.to_le_bytes());
            self.buf.push(byte);
        }
    }

    /// Records that an extent is all zero and belongs to `owner` (see docs/format.md, "Heap") with `used` granules taken.
    pub(crate) fn owner(&mut self, extent: u32, owner: u16, used: u16) {
        if !self.counts() {
            return;
        }
        let head = head(OWNER, owner, u64::from(extent) | u64::from(used) << 24);
        self.buf.extend_from_slice(&head.to_le_bytes());
        self.changes_owners = true;
    }

    /// Whether a record in the buffer gives an extent another owner.
    pub fn changes_owners(&self) -> bool {
        self.changes_owners
    }

    /// Remembers an extent that [`Tx::committed`] gives back to `heap`.
    pub(crate) fn release(&mut self, heap: &Arc<Heap>, extent: u32) {
        let known = self.heap.get_or_insert_with(|| heap.clone());
        assert!(Arc::ptr_eq(known, heap), "a transaction is on one heap");
        self.released.push(extent);
    }

    /// Takes adjacent extents from the heap for what arenas may allocate.
    pub(crate) fn set_aside(&mut self, heap: &Heap, count: usize) -> Result<(), Full> {
        let first = heap.take_extents(count).ok_or(Full)?;
        self.aside.extend(first..first + count as u32);
        Ok(())
    }

    /// Takes adjacent extents of those that were set aside.
    pub(crate) fn take_aside(&mut self, count: usize) -> Option<u32> {
        self.aside.sort_unstable();
        let is_run = |run: &[u32]| (run[run.len() - 1] - run[0]) as usize == run.len() - 1;
        let at = self.aside.windows(count).position(is_run)?;
        self.aside.drain(at..at + count).next()
    }

    /// Gives back what was set aside and not used.
    pub fn give_back_aside(&mut self, heap: &Heap) {
        heap.put_back(&self.aside);
        self.aside.clear();
    }

    /// Whether a write at `offset` begins in what the last record wrote, or right behind it, and nothing follows that.
    #[inline]
    fn is_beside_last(&self, offset: u64) -> bool {
        let Some(last) = &self.last else { return false };
        let len = (last.end - last.at - RECORD) as u64;
        last.end == self.buf.len() && offset.wrapping_sub(last.offset) <= len
    }

    /// Puts a write that touches the end of the last record, or lies in it, into that record.
    #[inline]
    fn extend(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if !self.is_beside_last(offset) {
            return false;
        }
        let Some(last) = &mut self.last else { return false };
        let len = last.end - last.at - RECORD;
        let within = (offset - last.offset) as usize;
        if within + bytes.len() > LEN_MAX {
            return false;
        }
        let (over, rest) = bytes.split_at(bytes.len().min(len - within));
        let start = last.at + RECORD + within;
        self.buf[start..start + over.len()].copy_from_slice(over);
        if !rest.is_empty() {
            self.buf.extend_from_slice(rest);
            last.end = self.buf.len();
            let len = (last.end - last.at - RECORD) as u16;
            self.buf[last.at + 1..last.at + 3].copy_from_slice(&len.to_le_bytes());
        }
        true
    }
}

/// Adds the redo record of so many bytes at an offset, fewer than 64 KiB.
#[inline(always)]
pub fn put_write(redo: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    debug_assert!(bytes.len() <= LEN_MAX);
    redo.extend_from_slice(&head(WRITE, bytes.len() as u16, offset).to_le_bytes());
    redo.extend_from_slice(bytes);
}

/// What a record begins with: `kind u8, short u16, long u40`.
#[inline]
fn head(kind: u8, short: u16, long: u64) -> u64 {
    debug_assert!(long < 1 << 40);
    u64::from(kind) | u64::from(short) << 8 | long << 24
}

/// A redo record (docs/format.md, "Heap").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'r> {
    /// Bytes at an offset.
    Write {
        /// The offset in the heap.
        offset: u64,
        /// What is there now.
        bytes: &'r [u8],
    },
    /// The same byte many times.
    Fill {
        /// The offset in the heap.
        offset: u64,
        /// How many bytes.
        len: usize,
        /// Which one.
        byte: u8,
    },
    /// An extent is all zero, and belongs to another one, or to nobody.
    Owner {
        /// Its number.
        extent: u32,
        /// Who has it; see [`Heap::new_owner`].
        owner: u16,
        /// Granules of it that are allocated.
        used: u16,
    },
}

impl<'r> Record<'r> {
    /// The record at the start of some, if there is a whole one of a known kind, and what is behind it.
    pub fn split(redo: &'r [u8]) -> Option<(Record<'r>, &'r [u8])> {
        let (record, behind) = redo.split_at(record_len(redo)?);
        let (head, payload) = record.split_first_chunk::<RECORD>()?;
        let head = u64::from_le_bytes(*head);
        let (kind, short, long) = (head as u8, (head >> 8) as u16, head >> 24);
        let record = match kind {
            WRITE => Record::Write { offset: long, bytes: payload },
            FILL => Record::Fill { offset: long, len: short.into(), byte: payload[0] },
            OWNER => {
                Record::Owner { extent: (long & 0xff_ffff) as u32, owner: short, used: (long >> 24) as u16 }
            }
            _ => return None,
        };
        Some((record, behind))
    }

    /// The records of some redo, one behind another; `None`, at the end, for what is cut short or of no known kind.
    pub fn all(mut redo: &'r [u8]) -> impl Iterator<Item = Option<Record<'r>>> {
        iter::from_fn(move || {
            if redo.is_empty() {
                return None;
            }
            let split = Record::split(redo);
            redo = split.map_or(&[], |(_, behind)| behind);
            Some(split.map(|(record, _)| record))
        })
    }
}

/// The length of the redo record at the start of `record`, if there is a whole one.
fn record_len(record: &[u8]) -> Option<usize> {
    let head: &[u8; RECORD] = record.first_chunk()?;
    let len = RECORD
        + match head[0] {
            WRITE => usize::from(u16::from_le_bytes([head[1], head[2]])),
            FILL => 1,
            OWNER => 0,
            _ => return None,
        };
    (len <= record.len()).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_writes_share_a_record() {
        let mut tx = Tx::new();
        tx.write(100, &[1; 8]);
        tx.write(108, &[2; 8]);
        tx.write(104, &[3; 4]);
        tx.write(112, &[4; 8]);
        assert_eq!(tx.buf.len(), RECORD + 20);
        assert_eq!(tx.buf[..8], [WRITE, 20, 0, 100, 0, 0, 0, 0]);
        assert_eq!(tx.buf[8..], [1, 1, 1, 1, 3, 3, 3, 3, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4]);
        tx.write(121, &[5]);
        assert_eq!(tx.buf.len(), RECORD + 20 + RECORD + 1);
        tx.buf.push(0);
        tx.write(122, &[6]);
        assert_eq!(tx.buf.len(), RECORD + 20 + RECORD + 1 + 1 + RECORD + 1);
    }

    #[test]
    fn a_range_that_a_change_has_written_is_recorded_anew() {
        let mut tx = Tx::new();
        tx.write(50, &[1; 4]);
        tx.write(100, &[2; 4]);
        tx.begin_change();
        // The last record grows, and so is one of the change.
        tx.write(104, &[3; 4]);
        tx.write(200, &[4; 4]);
        tx.write(98, &[5; 4]);
        tx.fill(102, 2, 6);
        tx.write(103, &[7; 2]);
        assert_eq!(tx.excess(), 4 + 3 * (RECORD + 4) - 2 + RECORD + 1);
        // What is there now.
        let range = [5, 5, 6, 7, 7, 3, 3, 3, 9, 9];
        tx.record_anew(100, &range);
        assert_eq!(tx.excess(), 0);
        tx.write(110, &[8]);
        tx.end_change();
        let write = |offset, bytes| Some(Record::Write { offset, bytes });
        let records: Vec<Option<Record>> = Record::all(&tx.buf).collect();
        let wanted = [
            write(50, &[1; 4]),
            write(200, &[4; 4]),
            write(98, &[5; 4]),
            Some(Record::Fill { offset: 102, len: 2, byte: 6 }),
            write(100, &[5, 5, 6, 7, 7, 3, 3, 3, 9, 9, 8]),
        ];
        assert_eq!(records, wanted);
        assert_eq!(tx.excess(), 0, "no change");
    }

    #[test]
    fn a_silent_transaction_has_changed_something_though_it_records_nothing() {
        let mut tx = Tx::new();
        tx.record_nothing();
        assert!(tx.is_empty());
        tx.write(0, &[]);
        assert!(tx.is_empty());
        tx.write_int(0, 7, 8);
        tx.write_array(8, &[7; 8]);
        tx.write(16, &[7; 8]);
        tx.fill(32, 8, 7);
        tx.owner(1, 2, 3);
        assert!(!tx.is_empty() && tx.buf.is_empty());
        tx.clear();
        assert!(tx.is_empty());
        tx.write(0, &[7; 8]);
        assert_eq!(tx.buf.len(), RECORD + 8);
    }

    #[test]
    fn long_writes_are_cut() {
        let mut tx = Tx::new();
        tx.write(0, &[7; LEN_MAX + 1]);
        assert_eq!(tx.buf.len(), 2 * RECORD + LEN_MAX + 1);
        tx.clear();
        assert!(tx.is_empty());
        tx.fill(0, 100_000, 0);
        assert_eq!(tx.buf.len(), 2 * (RECORD + 1));
    }
}
