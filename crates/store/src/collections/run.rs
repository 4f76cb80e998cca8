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

use holdfast_heap::{Arena, Full, Tx};

use super::object::write_changed;

/// Bytes of a block before its room.
pub(crate) const HEADER: usize = 12;
const BEGIN: u64 = 4;

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

/// The entry of a value.
pub(crate) fn entry(value: &[u8]) -> Vec<u8> {
    let (length, width) = frame(value.len());
    let mut entry = Vec::with_capacity(value.len() + 2 * width);
    entry.extend_from_slice(&length[..width]);
    entry.extend_from_slice(value);
    entry.extend(length[..width].iter().rev());
    entry
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

fn bounds(arena: &Arena, run: u64) -> (usize, usize, usize) {
    let header = arena.bytes(run, HEADER);
    let field = |i: usize| u32::from_le_bytes(header[i..i + 4].try_into().expect("4 bytes")) as usize;
    (field(0), field(4), field(8))
}

/// Bytes of the block.
pub(crate) fn size(arena: &Arena, run: u64) -> usize {
    arena.u32(run) as usize
}

/// Free bytes before and behind the entries.
pub(crate) fn room(arena: &Arena, run: u64) -> (usize, usize) {
    let (size, begin, end) = bounds(arena, run);
    (begin - HEADER, size - end)
}

/// Bytes of all entries.
pub(crate) fn used(arena: &Arena, run: u64) -> usize {
    let (_, begin, end) = bounds(arena, run);
    end - begin
}

/// All entries, encoded.
pub(crate) fn bytes(arena: &Arena, run: u64) -> &[u8] {
    let (_, begin, end) = bounds(arena, run);
    arena.bytes(run + begin as u64, end - begin)
}

/// All entries.
pub(crate) fn entries(arena: &Arena, run: u64) -> Entries<'_> {
    let bytes = bytes(arena, run);
    Entries { bytes, begin: 0, end: bytes.len() }
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

/// Makes a run of at least `size` bytes, header included, with these entries.
pub(crate) fn create(
    arena: &mut Arena,
    tx: &mut Tx,
    size: usize,
    room: Room,
    entries: &[u8],
) -> Result<u64, Full> {
    let size = Arena::usable_size(size.max(HEADER + entries.len()));
    let run = arena.alloc(tx, size)?;
    let begin = HEADER + room.before(size - HEADER - entries.len());
    let header = [size as u32, begin as u32, (begin + entries.len()) as u32].map(u32::to_le_bytes);
    arena.write(tx, run, header.as_flattened());
    if !entries.is_empty() {
        arena.write(tx, run + begin as u64, entries);
    }
    Ok(run)
}

/// Frees a run.
pub(crate) fn free(arena: &mut Arena, tx: &mut Tx, run: u64) {
    let size = size(arena, run);
    arena.free(tx, run, size);
}

/// A change: the `remove` bytes at `at` among the entries give way to `insert`. Both are whole entries, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct Edit<'a> {
    pub at: usize,
    pub remove: usize,
    pub insert: &'a [u8],
}

/// Makes a change in place. False, and no change, if neither side has the room.
pub(crate) fn splice(arena: &mut Arena, tx: &mut Tx, run: u64, edit: Edit) -> bool {
    let Edit { at, remove, insert } = edit;
    let (size, begin, end) = bounds(arena, run);
    let (head, tail) = (at, end - begin - at - remove);
    let growth = insert.len().saturating_sub(remove);
    let (room_before, room_behind) = (begin - HEADER >= growth, size - end >= growth);
    if !room_before && !room_behind {
        return false;
    }
    let to = if room_behind && (tail <= head || !room_before) {
        let from = run + (begin + at + remove) as u64;
        let end = end - remove + insert.len();
        move_bytes(arena, tx, from, run + (end - tail) as u64, tail);
        write_changed(arena, tx, run + BEGIN + 4, &(end as u32).to_le_bytes());
        begin + at
    } else {
        let from = run + begin as u64;
        let begin = begin + remove - insert.len();
        move_bytes(arena, tx, from, run + begin as u64, head);
        write_changed(arena, tx, run + BEGIN, &(begin as u32).to_le_bytes());
        begin + head
    };
    if !insert.is_empty() {
        arena.write(tx, run + to as u64, insert);
    }
    true
}

fn move_bytes(arena: &mut Arena, tx: &mut Tx, from: u64, to: u64, len: usize) {
    if from != to && len > 0 {
        arena.copy(tx, from, to, len);
    }
}

/// Makes a change while moving to a new block of at least `size` bytes, which is returned.
pub(crate) fn rebuild(
    arena: &mut Arena,
    tx: &mut Tx,
    run: u64,
    edit: Edit,
    size: usize,
    room: Room,
) -> Result<u64, Full> {
    let old = bytes(arena, run);
    let new = [&old[..edit.at], edit.insert, &old[edit.at + edit.remove..]].concat();
    let moved = create(arena, tx, size, room, &new)?;
    free(arena, tx, run);
    Ok(moved)
}

/// Changes some bytes of a value, `at` among the entries.
pub(crate) fn overwrite(arena: &mut Arena, tx: &mut Tx, run: u64, at: usize, bytes: &[u8]) {
    let (_, begin, end) = bounds(arena, run);
    assert!(begin + at + bytes.len() <= end);
    write_changed(arena, tx, run + (begin + at) as u64, bytes);
}

/// Checks that the entries can be walked from both ends, and returns how many they are, or says what is wrong.
pub(crate) fn check(arena: &Arena, run: u64) -> Result<u64, String> {
    let (size, begin, end) = bounds(arena, run);
    if !(HEADER <= begin && begin <= end && end <= size) {
        return Err(format!("run {run:#x} has {begin}..{end} of {size} bytes"));
    }
    let forward: Vec<usize> = entries(arena, run).map(|entry| entry.at).collect();
    let backward = entries(arena, run).rev().map(|entry| entry.at);
    if !backward.eq(forward.iter().rev().copied()) {
        return Err(format!("run {run:#x} reads differently from its end"));
    }
    Ok(forward.len() as u64)
}
