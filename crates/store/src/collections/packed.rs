//! Packed blobs: a small collection as one block of length-prefixed entries.
//!
//! A blob is reached through a *slot*, a word in its owner (mostly [`object::ROOT`](super::object::ROOT)) that
//! holds the block's offset, or 0 for a blob without entries. The block is `used u32, dead u32, capacity u32, entries`;
//! all three count bytes of entries, and [`Entry`] says what these look like.
//!
//! What is removed becomes a gap, except at the end, and what is replaced by something shorter leaves one; what grows
//! takes the gap behind it, or else moves what is in front of the next gap that is large enough. So most changes log
//! little more than the entry, where closing every gap would log half the blob. When a third of a blob is dead, or it
//! needs another block, its entries close ranks. A change of many entries that has logged more than the blob has bytes logs the
//! blob instead, so that it never comes to much more.

mod entry;

use std::ops::Range;

use holdfast_heap::{Arena, Full, Tx};

pub use entry::{Entry, Inline, Piece, Value, parse_int};
use entry::{encoded_len, is_gap, write_gap};

const HEADER: usize = 12;
/// Where in a block its capacity lies.
const CAPACITY: u64 = 8;
/// Dead bytes that are not worth closing ranks for.
const DEAD_MIN: usize = 64;

/// The entries of encoded bytes with their positions; see [`Packed::entries`].
#[derive(Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    /// The entries of `bytes`, which hold whole entries and gaps only.
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries::from(bytes, 0)
    }

    /// The entries of `bytes` from a position on.
    pub fn from(bytes: &'a [u8], at: usize) -> Entries<'a> {
        Entries { bytes, at }
    }

    /// The end of the entry that was returned last.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, Entry<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, Entry<'a>)> {
        let at = skip_gaps(self.bytes, self.at);
        if at == self.bytes.len() {
            return None;
        }
        let entry = Entry::first(&self.bytes[at..]);
        self.at = at + entry.encoded().len();
        Some((at, entry))
    }
}

/// The first position from `at` on that is not in a gap.
#[inline]
fn skip_gaps(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while at < bytes.len() && is_gap(&bytes[at..]) {
        at += encoded_len(&bytes[at..]);
    }
    at
}

/// A blob, named by its slot.
#[derive(Clone, Copy)]
pub struct Packed {
    slot: u64,
}

/// What a block starts with.
#[derive(Clone, Copy, Default)]
struct Header {
    /// Bytes of entries and gaps.
    used: usize,
    /// Bytes of gaps.
    dead: usize,
    capacity: usize,
}

impl Header {
    fn read(arena: &Arena, block: u64) -> Header {
        let field = |at| arena.u32(block + at) as usize;
        if block == 0 {
            Header::default()
        } else {
            Header { used: field(0), dead: field(4), capacity: field(CAPACITY) }
        }
    }

    fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        for (to, field) in bytes.chunks_exact_mut(4).zip([self.used, self.dead, self.capacity]) {
            to.copy_from_slice(&(field as u32).to_le_bytes());
        }
        bytes
    }

    /// Whether a smaller block, or one without gaps, is worth a copy.
    fn is_loose(self) -> bool {
        let live = self.used - self.dead;
        self.dead > DEAD_MIN.max(self.used / 3) || self.capacity > 128 && live < self.capacity / 3
    }
}

impl Packed {
    /// The blob whose block the word at heap offset `slot` names.
    pub fn at(slot: u64) -> Packed {
        Packed { slot }
    }

    /// All entries, encoded, with the gaps between them.
    pub fn bytes(self, arena: &Arena) -> &[u8] {
        match arena.u64(self.slot) {
            0 => &[],
            block => arena.bytes(block + HEADER as u64, arena.u32(block) as usize),
        }
    }

    /// The entries in order, each with its position in [`Packed::bytes`].
    pub fn entries(self, arena: &Arena) -> Entries<'_> {
        Entries::new(self.bytes(arena))
    }

    /// The position of the first entry that holds this text, of those at a multiple of `stride` entries.
    pub fn find(self, arena: &Arena, piece: &Piece, stride: usize) -> Option<usize> {
        let bytes = self.bytes(arena);
        let mut at = 0;
        let mut skip = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let len = encoded_len(rest);
            at += len;
            if is_gap(rest) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if len == piece.encoded_len() && piece.equals(&rest[..len]) {
                return Some(at - len);
            }
            skip = stride - 1;
        }
        None
    }

    /// Replaces the `remove` bytes at position `at` by `insert`; both are whole entries. Every change of a blob is
    /// one of these: an insertion removes nothing, a deletion inserts nothing. Positions are stale afterwards.
    ///
    /// # Errors
    /// [`Full`] if it grows and the arena has no room; nothing has changed. A blob that does not grow never fails.
    pub fn splice(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        at: usize,
        remove: usize,
        insert: &[Piece],
    ) -> Result<(), Full> {
        let block = arena.u64(self.slot);
        let mut header = Header::read(arena, block);
        let bytes = self.bytes(arena);
        let inserted = encoded_len_of(insert);
        if block == 0 && inserted == 0 {
            return Ok(());
        }
        let behind = skip_gaps(bytes, at + remove);
        let room = behind - at;
        let dead = dead_between(bytes, at, behind);
        let start = block + HEADER as u64;

        if let Some(more) = inserted.checked_sub(room).filter(|&more| more > 0) {
            let gap = find_gap(bytes, behind, more);
            let moved_to = gap.map_or(header.used, |(gap_at, _)| gap_at);
            if gap.is_none() && header.used + more > header.capacity {
                return self.rebuild(arena, tx, at, remove, insert);
            }
            if moved_to > behind {
                let to = start + (at + inserted) as u64;
                arena.copy(tx, start + behind as u64, to, moved_to - behind);
            }
            match gap {
                Some((gap_at, gap_len)) => {
                    write_gap(arena, tx, start + (gap_at + more) as u64, gap_len - more);
                    header.dead -= dead + more;
                }
                None => {
                    header.used += more;
                    header.dead -= dead;
                }
            }
        } else if behind == header.used {
            header.used = at + inserted;
            header.dead -= dead;
        } else {
            write_gap(arena, tx, start + (at + inserted) as u64, room - inserted);
            header.dead = header.dead + room - inserted - dead;
        }
        let mut to = start + at as u64;
        for piece in insert {
            piece.overwrite(arena, tx, to);
            to += piece.encoded_len() as u64;
        }
        arena.write_changed(tx, block, &header.encode());
        arena.record_anew_if_shorter(tx, block, HEADER + header.used);
        if header.is_loose() {
            // It was good enough before, should there be no memory for a better block.
            let _ = self.rebuild(arena, tx, 0, 0, &[]);
        }
        Ok(())
    }

    /// Frees the block; the blob is then without entries.
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
            block => Arena::usable_size(Packed::block_size(arena, block)) as u64,
        }
    }

    /// Bytes of a block that holds a blob.
    #[inline]
    pub fn block_size(arena: &Arena, block: u64) -> usize {
        HEADER + arena.u32(block + CAPACITY) as usize
    }

    /// Bytes of the block to which it moves if entries of so many bytes come to it; `None`: they have room where it is.
    pub fn grown_size(self, arena: &Arena, inserted: usize) -> Option<usize> {
        let Header { used, dead, capacity } = Header::read(arena, arena.u64(self.slot));
        (used + inserted > capacity).then(|| size_for(used - dead + inserted))
    }

    /// Checks the block and returns the number of entries, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<u64, String> {
        let block = arena.u64(self.slot);
        let Header { used, dead, capacity } = Header::read(arena, block);
        let bytes = self.bytes(arena);
        let found = dead_between(bytes, 0, bytes.len());
        if used > capacity || dead != found {
            return Err(format!(
                "blob at {block:#x}: {used} of {capacity} bytes used, {dead} not {found} dead"
            ));
        }
        Ok(self.entries(arena).count() as u64)
    }

    /// A splice into a block of the right size, without gaps.
    fn rebuild(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        at: usize,
        remove: usize,
        insert: &[Piece],
    ) -> Result<(), Full> {
        let old = arena.u64(self.slot);
        let bytes = self.bytes(arena);
        let before = live_runs(bytes, 0, at);
        let after = live_runs(bytes, at + remove, bytes.len());
        let kept = before.iter().chain(&after).map(ExactSizeIterator::len).sum::<usize>();
        let used = kept + encoded_len_of(insert);
        let size = size_for(used);
        let block = arena.alloc(tx, size)?;

        arena.write(tx, block, &Header { used, dead: 0, capacity: size - HEADER }.encode());
        let mut to = block + HEADER as u64;
        let copy = |arena: &mut Arena, tx: &mut Tx, to: &mut u64, runs: Vec<Range<usize>>| {
            for run in runs {
                arena.copy(tx, old + (HEADER + run.start) as u64, *to, run.len());
                *to += run.len() as u64;
            }
        };
        copy(arena, tx, &mut to, before);
        for piece in insert {
            piece.write(arena, tx, to);
            to += piece.encoded_len() as u64;
        }
        copy(arena, tx, &mut to, after);
        arena.write_u64(tx, self.slot, block);
        if old != 0 {
            free(arena, tx, old);
        }
        Ok(())
    }
}

/// Bytes of a block for entries of so many bytes. A quarter to spare: growth then copies each byte about four times, and wastes an
/// eighth on average.
fn size_for(used: usize) -> usize {
    Arena::usable_size(HEADER + used + used / 4)
}

/// Bytes of the gaps between two positions.
fn dead_between(bytes: &[u8], from: usize, to: usize) -> usize {
    let (mut at, mut dead) = (from, 0);
    while at < to {
        let len = encoded_len(&bytes[at..]);
        if is_gap(&bytes[at..]) {
            dead += len;
        }
        at += len;
    }
    dead
}

/// The ranges between two positions that are not gaps.
fn live_runs(bytes: &[u8], from: usize, to: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, entry) in Entries::from(&bytes[..to], from) {
        let end = at + entry.encoded().len();
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = end,
            _ => runs.push(at..end),
        }
    }
    runs
}

/// Position and length of the first gap from `from` on with at least `len` bytes.
fn find_gap(bytes: &[u8], from: usize, len: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while at < bytes.len() {
        let found = encoded_len(&bytes[at..]);
        if found >= len && is_gap(&bytes[at..]) {
            return Some((at, found));
        }
        at += found;
    }
    None
}

fn encoded_len_of(pieces: &[Piece]) -> usize {
    pieces.iter().map(Piece::encoded_len).sum()
}

/// Frees a block that no slot names any more.
pub(super) fn free(arena: &mut Arena, tx: &mut Tx, block: u64) {
    let size = HEADER + Header::read(arena, block).capacity;
    arena.free(tx, block, size);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::testing::{self, Random};

    #[test]
    fn behaves_like_a_vector() {
        let mut random = Random::new(1);
        let mut arena = testing::arena(16 << 20);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let packed = Packed::at(arena.root());
        let mut model: Vec<Vec<u8>> = Vec::new();
        for step in 0..20_000 {
            tx.clear();
            let text = match random.below(4) {
                0 => random.below(1_000).to_string().into_bytes(),
                1 => (random.next() as i64).to_string().into_bytes(),
                2 => vec![b'x'; random.below(100) as usize],
                _ => {
                    let limit = if random.below(50) == 0 { 70_000 } else { 10 };
                    vec![b'y'; random.below(limit) as usize]
                }
            };
            let piece = Piece::new(&text);
            let index = random.below(model.len() as u64 + 1) as usize;
            let found = packed.entries(&arena).nth(index).map(|(at, entry)| (at, entry.encoded().len()));
            let growing = step / 1_000 % 2 == 0 && model.len() < 500;
            match (random.below(10), found) {
                (0..5, Some((at, len))) if !growing => {
                    packed.splice(&mut arena, &mut tx, at, len, &[]).unwrap();
                    model.remove(index);
                }
                (0..3, Some((at, len))) => {
                    packed.splice(&mut arena, &mut tx, at, len, &[piece]).unwrap();
                    model[index].clone_from(&text);
                }
                (_, at) if growing => {
                    let at = at.map_or(packed.bytes(&arena).len(), |(at, _)| at);
                    packed.splice(&mut arena, &mut tx, at, 0, &[piece]).unwrap();
                    model.insert(index, text.clone());
                }
                _ => (),
            }
            let found = packed.find(&arena, &Piece::new(&text), 1);
            let entry = found.map(|at| Entry::first(&packed.bytes(&arena)[at..]).value());
            assert_eq!(
                entry.map(|value| value.to_vec()),
                model.iter().find(|&other| *other == text).cloned()
            );
            assert!(
                packed.entries(&arena).map(|(_, entry)| entry.value().to_vec()).eq(model.iter().cloned())
            );
        }
        packed.clear(&mut arena, &mut tx);
        assert_eq!(arena.allocated_bytes(), empty);
    }
}
