//! A large string that is changed in part: chunks in the heap, so that a change costs what it changes.
//!
//! The object's count is the string's length in bytes. Its root names a table of page numbers, `u32` each, one a chunk of
//! [`CHUNK`] bytes; how many the table has room for is in `aux`. Page number 0 is a *hole*, a chunk of zeroes that takes no
//! memory: so a bit far behind the end is cheap to set. What the last chunk holds behind the end is zero, and so is the
//! table there (I-15); thus a string becomes longer by its count alone.
//!
//! A string that nobody changes in part is an item in the log, however long it is.

use std::{collections::BTreeMap, ops::Range};

use holdfast_heap::{Arena, Full, PAGE, Tx};

use super::{
    absent::{Absent, Finder},
    object::{self, AUX, Encoding, ROOT, Type},
};

/// Bytes of a chunk. Blocks of whole pages are page-aligned, so that a page number tells where one is.
pub const CHUNK: usize = PAGE;
/// Bytes from which a string that is changed in part is laid out like this. A HyperLogLog, which is rewritten as a whole,
/// is smaller.
pub const LARGE: usize = 16 << 10;
/// Bytes that a string may have: as an item its length is a `u32`, and so is that of the batch which it is in.
pub const LEN_MAX: usize = 4000 << 20;

/// Bytes of a place in the table.
const PLACE: u64 = 4;
/// Places of the smallest table.
const PLACES_MIN: usize = 16;

static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// Bytes that take the place of others in a string, or follow them.
#[derive(Clone, Copy, Debug)]
pub struct Change<'b> {
    /// Where the first one goes.
    pub at: usize,
    /// The bytes.
    pub bytes: &'b [u8],
}

impl<'b> Change<'b> {
    /// One past the last byte. Panics if there is no such place.
    pub fn end(&self) -> usize {
        self.at.checked_add(self.bytes.len()).expect("a place in a string")
    }

    /// What it changes of each chunk: the chunk's number, where in the chunk, and the bytes.
    fn pieces(self) -> impl Iterator<Item = (usize, usize, &'b [u8])> {
        let mut rest = self;
        std::iter::from_fn(move || {
            if rest.bytes.is_empty() {
                return None;
            }
            let within = rest.at % CHUNK;
            let (piece, behind) = rest.bytes.split_at(rest.bytes.len().min(CHUNK - within));
            let number = rest.at / CHUNK;
            rest = Change { at: rest.at + piece.len(), bytes: behind };
            Some((number, within, piece))
        })
    }
}

/// Makes an empty string under a key and returns its offset.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::String, Encoding::Chunks)
}

/// Bytes of redo of `changes` of so many `bytes` together to a string that is then `len` bytes long, at most.
pub fn redo_max(changes: usize, bytes: usize, len: usize) -> usize {
    // Each byte may be written twice: a new chunk as zeroes, then what comes into it. A change has two chunks that it does not fill,
    // at most, and all changes together those that there are. And the table may be made anew.
    let fresh = (2 * changes).min(len.div_ceil(CHUNK));
    2 * bytes + 64 * changes + CHUNK * fresh + len / CHUNK * 32 + 2 * CHUNK
}

/// Its length in bytes.
pub fn len(arena: &Arena, obj: u64) -> usize {
    object::count(arena, obj) as usize
}

/// Where a string's chunks are.
#[derive(Clone, Copy)]
struct Table {
    root: u64,
    places: usize,
}

impl Table {
    fn of(arena: &Arena, obj: u64) -> Table {
        Table { root: arena.u64(obj + ROOT), places: arena.u64(obj + AUX) as usize }
    }

    /// Its size in bytes.
    fn size(self) -> usize {
        self.places * PLACE as usize
    }

    /// The place of a chunk by its number.
    fn place(self, number: usize) -> u64 {
        self.root + number as u64 * PLACE
    }

    /// The heap offset of a chunk, unless it is a hole or not there.
    fn chunk(self, arena: &Arena, number: usize) -> Option<u64> {
        let page = if number < self.places { arena.u32(self.place(number)) } else { 0 };
        (page != 0).then(|| u64::from(page) * CHUNK as u64)
    }
}

/// Looks for the chunks of a range of bytes, which may reach beyond the string.
pub fn look(finder: &Finder, obj: u64, bytes: Range<usize>) -> Result<(), Absent> {
    let (arena, end) = (finder.arena, bytes.end.min(len(finder.arena, obj)));
    if bytes.start >= end {
        return Ok(());
    }
    let table = Table::of(arena, obj);
    let numbers = bytes.start / CHUNK..end.div_ceil(CHUNK).min(table.places);
    if !numbers.is_empty() {
        finder.look()(table.place(numbers.start), numbers.len() * PLACE as usize)?;
        numbers
            .filter_map(|number| table.chunk(arena, number))
            .for_each(|at| finder.go_on(finder.look()(at, CHUNK)));
    }
    Ok(())
}

/// The byte at a place in the string.
pub fn byte(arena: &Arena, obj: u64, at: usize) -> u8 {
    assert!(at < len(arena, obj), "byte {at} of {}", len(arena, obj));
    let chunk = Table::of(arena, obj).chunk(arena, at / CHUNK);
    chunk.map_or(0, |offset| arena.u8(offset + (at % CHUNK) as u64))
}

/// Parts of a string, from left to right.
#[derive(Clone)]
pub struct Slices<'a> {
    arena: &'a Arena,
    table: Table,
    at: usize,
    end: usize,
}

/// The bytes from `start` to before `end`, which must be in the string.
pub fn slices(arena: &Arena, obj: u64, start: usize, end: usize) -> Slices<'_> {
    assert!(start <= end && end <= len(arena, obj), "{start}..{end} of {} bytes", len(arena, obj));
    Slices { arena, table: Table::of(arena, obj), at: start, end }
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at == self.end {
            return None;
        }
        let within = self.at % CHUNK;
        let len = (CHUNK - within).min(self.end - self.at);
        let slice = match self.table.chunk(self.arena, self.at / CHUNK) {
            Some(offset) => self.arena.bytes(offset + within as u64, len),
            None => &ZEROES[..len],
        };
        self.at += len;
        Some(slice)
    }
}

/// A chunk that takes the place of a hole.
struct Fresh {
    offset: u64,
    /// Whether one change covers it all.
    is_covered: bool,
}

/// Makes the string at least `len` long, by zeroes, and then makes changes to it, none of which ends behind that.
///
/// # Errors
/// [`Full`] if the arena has no room; the string is unchanged.
pub fn write(arena: &mut Arena, tx: &mut Tx, obj: u64, len: usize, changes: &[Change]) -> Result<(), Full> {
    let mut fresh = BTreeMap::new();
    let table = Table::of(arena, obj);
    // Only what comes before the changes can lack room.
    let reserved = reserve(arena, tx, table, changes, &mut fresh)
        .and_then(|()| grow(arena, tx, obj, table, len.div_ceil(CHUNK)));
    let table = match reserved {
        Ok(table) => table,
        Err(full) => {
            fresh.values().for_each(|fresh| arena.free(tx, fresh.offset, CHUNK));
            return Err(full);
        }
    };
    for fresh in fresh.values().filter(|fresh| !fresh.is_covered) {
        arena.fill(tx, fresh.offset, CHUNK, 0);
    }
    for (number, within, bytes) in changes.iter().copied().flat_map(Change::pieces) {
        let known = table.chunk(arena, number);
        if let Some(offset) = known.or_else(|| fresh.get(&number).map(|fresh| fresh.offset)) {
            arena.write(tx, offset + within as u64, bytes);
        }
    }
    for (number, fresh) in fresh {
        arena.write_u32(tx, table.place(number), (fresh.offset / CHUNK as u64) as u32);
    }
    if len as u64 > object::count(arena, obj) {
        object::set_count(arena, tx, obj, len as u64);
    }
    Ok(())
}

/// Allocates the chunks that changes need. Zeroes leave a hole as it is.
fn reserve(
    arena: &mut Arena,
    tx: &mut Tx,
    table: Table,
    changes: &[Change],
    fresh: &mut BTreeMap<usize, Fresh>,
) -> Result<(), Full> {
    for (number, _, bytes) in changes.iter().copied().flat_map(Change::pieces) {
        if table.chunk(arena, number).is_some() {
            continue;
        }
        let is_covered = bytes.len() == CHUNK;
        match fresh.get_mut(&number) {
            Some(fresh) => fresh.is_covered |= is_covered,
            None if *bytes == ZEROES[..bytes.len()] => {}
            None => _ = fresh.insert(number, Fresh { offset: arena.alloc(tx, CHUNK)?, is_covered }),
        }
    }
    Ok(())
}

/// Gives the table room for so many chunks, and more, so that it does not grow often; returns the new one.
fn grow(arena: &mut Arena, tx: &mut Tx, obj: u64, old: Table, chunks: usize) -> Result<Table, Full> {
    if chunks <= old.places {
        return Ok(old);
    }
    let mut new = Table { root: 0, places: chunks.next_power_of_two().max(PLACES_MIN) };
    new.root = arena.alloc(tx, new.size())?;
    if old.places > 0 {
        arena.copy(tx, old.root, new.root, old.size());
        arena.free(tx, old.root, old.size());
    }
    arena.fill(tx, new.place(old.places), new.size() - old.size(), 0);
    arena.write_u64(tx, obj + ROOT, new.root);
    arena.write_u64(tx, obj + AUX, new.places as u64);
    Ok(new)
}

/// How many chunks it has, holes included.
pub(super) fn chunks(arena: &Arena, obj: u64) -> usize {
    len(arena, obj).div_ceil(CHUNK)
}

/// Frees up to `budget` chunks, from the end on, and then the table; false if there are more.
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    let table = Table::of(arena, obj);
    for number in (0..chunks(arena, obj)).rev() {
        let Some(offset) = table.chunk(arena, number) else { continue };
        if *budget == 0 {
            object::set_count(arena, tx, obj, ((number + 1) * CHUNK) as u64);
            return false;
        }
        *budget -= 1;
        arena.free(tx, offset, CHUNK);
    }
    if table.places > 0 {
        arena.free(tx, table.root, table.size());
    }
    true
}

/// Looks for what [`release`] uses.
pub(super) fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    let (arena, table) = (finder.arena, Table::of(finder.arena, obj));
    let places = chunks(arena, obj).min(table.places);
    let numbers = places.saturating_sub(*budget)..places;
    *budget -= numbers.len();
    if table.places > 0 {
        finder.look()(table.place(numbers.start), numbers.len() * PLACE as usize)?;
    }
    // A chunk itself is not read.
    numbers.filter_map(|number| table.chunk(arena, number)).for_each(|at| finder.go_on(finder.look()(at, 0)));
    Ok(())
}

/// Bytes allocated for its chunks and its table.
pub fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    let table = Table::of(arena, obj);
    let held = (0..chunks(arena, obj)).filter(|&number| table.chunk(arena, number).is_some()).count();
    let of_table = if table.places == 0 { 0 } else { Arena::usable_size(table.size()) };
    (of_table + held * CHUNK) as u64
}

/// Checks the structure and returns the length, or says what is wrong.
pub(super) fn check(arena: &Arena, obj: u64) -> Result<u64, String> {
    let (len, table) = (len(arena, obj), Table::of(arena, obj));
    if object::encoding(arena, obj) != Encoding::Chunks || table.places < chunks(arena, obj) {
        return Err(format!("a string of {len} bytes has {} places for chunks", table.places));
    }
    // I-15
    if (chunks(arena, obj)..table.places).any(|number| table.chunk(arena, number).is_some()) {
        return Err(format!("a string of {len} bytes has a chunk behind its end"));
    }
    let last = table.chunk(arena, len / CHUNK).filter(|_| len % CHUNK != 0);
    let behind = last.map_or(&[][..], |last| arena.bytes(last + (len % CHUNK) as u64, CHUNK - len % CHUNK));
    if behind.iter().any(|&byte| byte != 0) {
        return Err(format!("a string of {len} bytes is not zero behind its end"));
    }
    Ok(len as u64)
}

#[cfg(test)]
mod tests;
