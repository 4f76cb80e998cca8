//! Runs: blocks of packed entries with free room at both ends.
//!
//! A block is `size u32, begin u32, end u32`, then room, of which `begin..end` (offsets in the block) holds entries.
//! An entry is `length, value, length mirrored`, so that it can be walked from either end:
//!
//! | first byte | length |
//! |---|---|
//! | 0x00 ..= 0x7F | itself |
//! | 0x80 ..= 0xBF | its low six bits, and the next byte as the lower eight |
//! | 0xC0 ..= 0xFF | its low six bits, and the next three bytes |
//!
//! Pushing and popping at either end so logs little but the entry. A change in the middle moves the shorter side.

use super::{
    absent::{Absent, Finder},
    btree::Tree,
};
use holdfast_heap::{Arena, Full, Tx};

/// Bytes of a block before its room.
pub(crate) const HEADER: usize = 12;
/// Where in a block `begin` and `end` lie, which are written as one word.
const BOUNDS: u64 = 4;

/// Bytes of the longest value.
pub(crate) const VALUE_MAX: usize = (1 << 30) - 1;

/// The length of a value as it precedes the value, and how many bytes of it count.
fn frame(len: usize) -> ([u8; 4], usize) {
    let mut bytes = (len as u32).to_be_bytes();
    match len {
        0..0x80 => ([len as u8, 0, 0, 0], 1),
        0x80..0x4000 => ([0x80 | bytes[2], bytes[3], 0, 0], 2),
        0x4000..0x4000_0000 => {
            bytes[0] |= 0xC0;
            (bytes, 4)
        }
        _ => panic!("a value of {len} bytes"),
    }
}

/// The length that follows from its bytes, first to last, and how many bytes they are.
fn unframe(mut byte: impl FnMut(usize) -> u8) -> (usize, usize) {
    let first = byte(0) as usize;
    match first {
        0..0x80 => (first, 1),
        0x80..0xC0 => ((first & 0x3F) << 8 | byte(1) as usize, 2),
        _ => ((1..4).fold(first & 0x3F, |len, i| len << 8 | byte(i) as usize), 4),
    }
}

/// Looks for a run's block.
pub(super) fn look(finder: &Finder, block: u64) -> Result<(), Absent> {
    finder.look()(block, HEADER)?;
    finder.look()(block, Run::block_size(finder.arena, block))
}

/// Looks for what it takes to free so many runs of a tree, the last ones.
pub(super) fn look_to_release<const KEY: usize>(
    finder: &Finder,
    tree: Tree<KEY>,
    budget: &mut usize,
) -> Result<(), Absent> {
    tree.try_each_leaf_from_last(finder.arena, finder.look(), |leaf| {
        // The header says how large it is.
        finder.go_on(finder.look()(leaf, HEADER));
        *budget = budget.saturating_sub(1);
        *budget > 0
    })
}

/// Entries to be put into a run.
#[derive(Clone, Copy)]
pub(crate) enum New<'a> {
    /// As they are encoded.
    Entries(&'a [u8]),
    /// The one of this value.
    Value(&'a [u8]),
}

impl New<'_> {
    /// None.
    pub const NONE: New<'static> = New::Entries(&[]);

    /// Bytes that they take.
    pub fn len(self) -> usize {
        match self {
            New::Entries(entries) => entries.len(),
            New::Value(value) => value.len() + 2 * frame(value.len()).1,
        }
    }

    /// Fills `out`, which is as long as they are, with them.
    pub fn encode(self, out: &mut [u8]) {
        match self {
            New::Entries(entries) => out.copy_from_slice(entries),
            New::Value(value) => {
                let (length, width) = frame(value.len());
                let last = out.len() - 1;
                for (i, &byte) in length[..width].iter().enumerate() {
                    (out[i], out[last - i]) = (byte, byte);
                }
                out[width..][..value.len()].copy_from_slice(value);
            }
        }
    }
}

/// The entry of a value of about `size` bytes, which `write` appends to what it is given.
pub(crate) fn entry_of(size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    const FRAME: usize = 4;
    let mut entry = Vec::with_capacity(size + 2 * FRAME);
    entry.extend_from_slice(&[0; FRAME]);
    write(&mut entry);
    let (length, width) = frame(entry.len() - FRAME);
    entry[FRAME - width..FRAME].copy_from_slice(&length[..width]);
    entry.drain(..FRAME - width);
    entry.extend(length[..width].iter().rev());
    entry
}

/// An entry, where it lies among the entries, in bytes, and its value.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub at: usize,
    pub len: usize,
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Where the next entry begins.
    pub fn end(&self) -> usize {
        self.at + self.len
    }

    /// Where its value begins.
    pub fn value_at(&self) -> usize {
        self.at + (self.len - self.value.len()) / 2
    }
}

/// The entries of a run, from either end.
#[derive(Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    begin: usize,
    end: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        if self.begin == self.end {
            return None;
        }
        let at = self.begin;
        let (len, width) = unframe(|i| self.bytes[at + i]);
        self.begin += len + 2 * width;
        Some(Entry { at, len: len + 2 * width, value: &self.bytes[at + width..at + width + len] })
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.begin == self.end {
            return None;
        }
        let end = self.end;
        let (len, width) = unframe(|i| self.bytes[end - 1 - i]);
        self.end -= len + 2 * width;
        let at = self.end;
        Some(Entry { at, len: len + 2 * width, value: &self.bytes[at + width..at + width + len] })
    }
}

/// A run: where its block is, and what the block says of itself. Outdated by a change.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The block's heap offset.
    pub at: u64,
    /// Bytes of the block.
    pub size: usize,
    begin: usize,
    end: usize,
}

impl Run {
    /// Bytes of the block at a heap offset.
    #[inline]
    pub fn block_size(arena: &Arena, at: u64) -> usize {
        arena.u32(at) as usize
    }

    /// The run whose block is at that heap offset.
    #[inline]
    pub fn at(arena: &Arena, at: u64) -> Run {
        let header = arena.array::<HEADER>(at);
        let field = |i: usize| u32::from_le_bytes(header[i..i + 4].try_into().expect("4 bytes")) as usize;
        Run { at, size: field(0), begin: field(4), end: field(8) }
    }

    /// Free bytes before and behind the entries.
    pub fn room(self) -> (usize, usize) {
        (self.begin - HEADER, self.size - self.end)
    }

    /// Bytes of all entries.
    pub fn used(self) -> usize {
        self.end - self.begin
    }

    /// All entries, encoded.
    #[inline]
    pub fn bytes(self, arena: &Arena) -> &[u8] {
        arena.bytes(self.at + self.begin as u64, self.used())
    }

    /// All entries.
    #[inline]
    pub fn entries(self, arena: &Arena) -> Entries<'_> {
        let bytes = self.bytes(arena);
        Entries { bytes, begin: 0, end: bytes.len() }
    }

    /// Makes a change in place, and returns the run as it is then. `None`, and no change, if neither side has the room.
    pub fn splice(self, arena: &mut Arena, tx: &mut Tx, edit: Edit) -> Option<Run> {
        let Edit { at, remove, insert } = edit;
        let Run { at: block, size, begin, end } = self;
        let inserted = insert.len();
        let (head, tail) = (at, end - begin - at - remove);
        let growth = inserted.saturating_sub(remove);
        let (room_before, room_behind) = (begin - HEADER >= growth, size - end >= growth);
        if !room_before && !room_behind {
            return None;
        }
        let (begin, end) = if room_behind && (tail <= head || !room_before) {
            let from = begin + at + remove;
            let end = end - remove + inserted;
            move_bytes(arena, tx, block + from as u64, block + (end - tail) as u64, tail);
            (begin, end)
        } else {
            let to = begin + remove - inserted;
            move_bytes(arena, tx, block + begin as u64, block + to as u64, head);
            (to, end)
        };
        arena.write_changed_u64(tx, block + BOUNDS, begin as u64 | (end as u64) << 32);
        if inserted > 0 {
            arena.write_by(tx, block + (begin + head) as u64, inserted, |out| insert.encode(out));
        }
        Some(Run { at: block, size, begin, end })
    }

    /// Makes a change while moving to a new block of at least `size` bytes; returns the run that takes its place.
    pub fn rebuild(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        edit: Edit,
        size: usize,
        room: Room,
    ) -> Result<Run, Full> {
        let Edit { at, remove, insert } = edit;
        let old = self.bytes(arena);
        let mut new = Vec::with_capacity(old.len() - remove + insert.len());
        new.extend_from_slice(&old[..at]);
        new.resize(at + insert.len(), 0);
        insert.encode(&mut new[at..]);
        new.extend_from_slice(&old[at + remove..]);
        let moved = Run::create(arena, tx, size, room, New::Entries(&new))?;
        self.free(arena, tx);
        Ok(moved)
    }

    /// Makes a run of at least `size` bytes, header included, with these entries.
    pub fn create(
        arena: &mut Arena,
        tx: &mut Tx,
        size: usize,
        room: Room,
        entries: New,
    ) -> Result<Run, Full> {
        let used = entries.len();
        let size = Arena::usable_size(size.max(HEADER + used));
        let at = arena.alloc(tx, size)?;
        let begin = HEADER + room.before(size - HEADER - used);
        let end = begin + used;
        let header = [size as u32, begin as u32, end as u32].map(u32::to_le_bytes);
        arena.write(tx, at, header.as_flattened());
        if used > 0 {
            arena.write_by(tx, at + begin as u64, used, |out| entries.encode(out));
        }
        Ok(Run { at, size, begin, end })
    }

    /// Frees it.
    pub fn free(self, arena: &mut Arena, tx: &mut Tx) {
        arena.free(tx, self.at, self.size);
    }

    /// Changes some bytes of a value, `at` among the entries.
    pub fn overwrite(self, arena: &mut Arena, tx: &mut Tx, at: usize, bytes: &[u8]) {
        assert!(self.begin + at + bytes.len() <= self.end);
        arena.write_changed(tx, self.at + (self.begin + at) as u64, bytes);
    }

    /// Checks that the entries can be walked from both ends, and returns how many they are, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<u64, String> {
        let Run { at, size, begin, end } = self;
        if !(HEADER <= begin && begin <= end && end <= size) {
            return Err(format!("run {at:#x} has {begin}..{end} of {size} bytes"));
        }
        let forward: Vec<usize> = self.entries(arena).map(|entry| entry.at).collect();
        let backward = self.entries(arena).rev().map(|entry| entry.at);
        if !backward.eq(forward.iter().rev().copied()) {
            return Err(format!("run {at:#x} reads differently from its end"));
        }
        Ok(forward.len() as u64)
    }
}

/// Which part of the free room comes before the entries; the rest is behind them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// All: entries will be added in front.
    Before,
    /// None: entries will be added behind.
    Behind,
    /// Three quarters: entries will be added in front mostly.
    MostBefore,
    /// A quarter: entries will be added behind mostly.
    MostBehind,
    /// Half.
    Both,
}

impl Room {
    fn before(self, room: usize) -> usize {
        match self {
            Room::Before => room,
            Room::Behind => 0,
            Room::MostBefore => room - room / 4,
            Room::MostBehind => room / 4,
            Room::Both => room / 2,
        }
    }
}

/// A change: the `remove` bytes at `at` among the entries give way to `insert`. Both are whole entries, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct Edit<'a> {
    pub at: usize,
    pub remove: usize,
    pub insert: New<'a>,
}

fn move_bytes(arena: &mut Arena, tx: &mut Tx, from: u64, to: u64, len: usize) {
    if from != to && len > 0 {
        arena.copy(tx, from, to, len);
    }
}
