//! Sets: an array of integers, a packed blob, or a hash table.
//!
//! In a table, a short member is the entry's word itself; the top byte of the word says how:
//!
//! | top byte | word |
//! |---|---|
//! | 0x00 | heap offset of a block with the member as a packed entry |
//! | 0x80 ..= 0x87 | 0 ..= 7 bytes of text, the first in the lowest byte |
//! | 0xC0 | an integer of 56 bits, whose text has more than 7 bytes |

use holdfast_heap::{Arena, Full, Tx};

use super::{
    Context, PACKED_BYTES_MAX,
    absent::{Absent, Finder},
    intset::{self, Intset},
    object::{self, Encoding, Type},
    packed::{self, Entries, Entry, Inline, Packed, Piece, Value, parse_int},
    sample::{below, choose},
    table::{Gap, Table, Words},
};

const INLINE_TEXT: u64 = 0x80;
const INLINE_INT: u64 = 0xC0;
const INLINE_TEXT_MAX: usize = 7;
const KIND_SHIFT: u32 = 56;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;

/// Makes an empty set and returns its offset.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::Set, Encoding::Intset)
}

/// The number of members.
pub fn len(arena: &Arena, obj: u64) -> u64 {
    object::count(arena, obj)
}

/// Whether `member` is in the set.
pub fn contains(arena: &Arena, cx: Context, obj: u64, member: &[u8]) -> bool {
    match object::encoding(arena, obj) {
        Encoding::Intset => {
            parse_int(member).is_some_and(|value| intset(obj).find(arena, count(arena, obj), value).is_some())
        }
        Encoding::Listpack => packed(obj).find(arena, &Piece::new(member), 1).is_some(),
        _ => {
            let sought = Sought::new(member);
            table(obj).find(arena, cx.hasher.hash(member), |word| sought.is(arena, word)).is_some()
        }
    }
}

/// Bytes of the block to which a set in a packed blob moves when these members come to it; `None`: they are in it, or have room where it is.
pub fn grown_size<'m>(arena: &Arena, obj: u64, members: impl Iterator<Item = &'m [u8]>) -> Option<usize> {
    let packed = packed(obj);
    if object::encoding(arena, obj) != Encoding::Listpack {
        return None;
    }
    let new = members.map(Piece::new).filter(|member| packed.find(arena, member, 1).is_none());
    packed.grown_size(arena, new.map(|member| member.encoded_len()).sum())
}

/// Looks for what a command that names this member will use of a large set.
pub fn look(finder: &Finder, cx: Context, obj: u64, member: &[u8]) -> Result<(), Absent> {
    let hash = cx.hasher.hash(member);
    if let Some(word) = table(obj).try_find(finder.arena, hash, finder.look())? {
        finder.go_on(look_at(finder, word));
        return table(obj).look_to_remove(finder, hash);
    }
    let sought = Sought::new(member);
    if sought.inline.is_none() {
        finder.look_to_alloc(sought.piece.encoded_len());
    }
    Ok(())
}

/// Looks for what so many random members of a large set are found by, and for them.
pub fn look_at_random(finder: &Finder, obj: u64, wanted: u64, random: impl FnMut() -> u64) {
    let counts = (len(finder.arena, obj), wanted);
    table(obj).look_at_random(finder, counts, random, |word| look_at(finder, word));
}

/// Looks for what a step of a [`scan`] of a large set passes.
pub fn look_at_scan(finder: &Finder, obj: u64, cursor: u64, count: usize) {
    table(obj).look_at_scan(finder, cursor, count, |word| look_at(finder, word));
}

/// Looks for all of a large set.
pub fn look_at_all(finder: &Finder, obj: u64) {
    table(obj).try_each(finder.arena, finder.look(), |word| finder.go_on(look_at(finder, word)));
}

/// Looks for what [`release`] uses of a large set.
pub(super) fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    let position = finder.arena.u64(obj + object::AUX2);
    table(obj).look_from(finder, position, budget, (1, 1), |word| {
        if is_block(word) { Entry::try_len(finder.arena, word, finder.look()).map(drop) } else { Ok(()) }
    });
    Ok(())
}

fn look_at(finder: &Finder, word: u64) -> Result<(), Absent> {
    if !is_block(word) {
        return Ok(());
    }
    Entry::try_at(finder.arena, word, finder.look()).map(drop)
}

/// All members; integers of the small encoding come in order.
pub fn members(arena: &Arena, obj: u64) -> Members<'_> {
    Members(match object::encoding(arena, obj) {
        Encoding::Intset => {
            let mut values: Vec<i64> = intset(obj).iter(arena, count(arena, obj)).collect();
            values.sort_unstable();
            Source::Intset(values.into_iter())
        }
        Encoding::Listpack => Source::Packed(packed(obj).entries(arena)),
        _ => Source::Table(arena, table(obj).words(arena)),
    })
}

/// Passes about `count` members from `cursor` on (all, if the set is small) to `each` and returns the next cursor, 0
/// at the end. A member that is there from the scan's start to its end is passed at least once.
pub fn scan(arena: &Arena, obj: u64, cursor: u64, count: usize, mut each: impl FnMut(Value)) -> u64 {
    if object::encoding(arena, obj) == Encoding::Hashtable {
        return table(obj).scan(arena, cursor, count, |word| each(member_of(arena, word)));
    }
    members(arena, obj).for_each(each);
    0
}

/// A random member of a set that is not empty.
pub fn random(arena: &Arena, obj: u64, mut random: impl FnMut() -> u64) -> Value<'_> {
    let count = count(arena, obj);
    match object::encoding(arena, obj) {
        Encoding::Intset => Value::int(intset(obj).get(arena, below(count, random()))),
        Encoding::Listpack => nth(arena, obj, below(count, random())).1.value(),
        _ => member_of(arena, table(obj).random(arena, count as u64, random).word),
    }
}

/// `sample` different random members, all if there are no more.
pub fn sample(arena: &Arena, obj: u64, sample: usize, random: impl FnMut() -> u64) -> Vec<Value<'_>> {
    if object::encoding(arena, obj) == Encoding::Hashtable {
        let words = table(obj).sample(arena, len(arena, obj), sample, random);
        return words.into_iter().map(|word| member_of(arena, word)).collect();
    }
    choose(members(arena, obj).collect(), sample, random)
}

/// The members of a set; see [`members`].
pub struct Members<'a>(Source<'a>);

enum Source<'a> {
    Intset(std::vec::IntoIter<i64>),
    Packed(Entries<'a>),
    Table(&'a Arena, Words<'a>),
}

impl<'a> Iterator for Members<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        match &mut self.0 {
            Source::Intset(values) => values.next().map(Value::int),
            Source::Packed(entries) => entries.next().map(|(_, entry)| entry.value()),
            Source::Table(arena, words) => words.next().map(|word| member_of(arena, word)),
        }
    }
}

/// Changes a set.
pub struct Writer<'a> {
    arena: &'a mut Arena,
    tx: &'a mut Tx,
    obj: u64,
    cx: Context<'a>,
}

impl<'a> Writer<'a> {
    /// Changes the set at `obj` within `tx`.
    pub fn new(arena: &'a mut Arena, tx: &'a mut Tx, obj: u64, cx: Context<'a>) -> Self {
        Writer { arena, tx, obj, cx }
    }

    /// Adds `member`; false if it is there already.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; the members are unchanged.
    pub fn add(&mut self, member: &[u8]) -> Result<bool, Full> {
        let added = match object::encoding(self.arena, self.obj) {
            Encoding::Intset => self.add_to_intset(member),
            Encoding::Listpack => self.add_to_packed(member),
            _ => self.add_to_table(member),
        };
        if added == Ok(true) {
            object::add_count(self.arena, self.tx, self.obj, 1);
        }
        added
    }

    /// Gives an empty set different members: by one write, if they are few and not all integers.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; some members may be there then.
    pub fn fill<'m>(&mut self, members: impl Iterator<Item = &'m [u8]> + Clone) -> Result<(), Full> {
        let few = members.clone().take(self.cx.limits.set_max_listpack_entries + 1);
        let (count, longest, bytes) = few
            .clone()
            .fold((0, 0, 0), |(n, len, bytes), member| (n + 1, member.len().max(len), bytes + member.len()));
        let fits = self.fits_packed(count, longest, bytes);
        let are_ints = few.clone().all(|member| parse_int(member).is_some());
        if !fits || are_ints {
            if !are_ints {
                self.convert(Encoding::Hashtable)?;
            }
            return members.into_iter().try_for_each(|member| self.add(member).map(drop));
        }
        let pieces: Vec<Piece> = few.map(Piece::new).collect();
        packed(self.obj).splice(self.arena, self.tx, 0, 0, &pieces)?;
        object::set_encoding(self.arena, self.tx, self.obj, Encoding::Listpack);
        object::add_count(self.arena, self.tx, self.obj, count as i64);
        Ok(())
    }

    /// Removes `member`; false if it is not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Writer { arena, tx, obj, cx } = self;
        let count = count(arena, *obj);
        match object::encoding(arena, *obj) {
            Encoding::Intset => {
                let found = parse_int(member).and_then(|value| intset(*obj).find(arena, count, value));
                let Some(index) = found else { return false };
                intset(*obj).remove(arena, tx, count, index);
            }
            Encoding::Listpack => {
                let piece = Piece::new(member);
                let Some(at) = packed(*obj).find(arena, &piece, 1) else { return false };
                cut(arena, tx, *obj, at, piece.encoded_len());
            }
            _ => {
                let sought = Sought::new(member);
                let hash = cx.hasher.hash(member);
                let found = table(*obj).find(arena, hash, |word| sought.is(arena, word));
                let Some(found) = found else { return false };
                table(*obj).remove(arena, tx, found);
                free_member(arena, tx, found.word);
            }
        }
        object::add_count(arena, tx, *obj, -1);
        true
    }

    /// Removes a random member of a set that is not empty, after it was shown to `taken`.
    pub fn pop(&mut self, mut random: impl FnMut() -> u64, taken: impl FnOnce(&[u8])) {
        let Writer { arena, tx, obj, .. } = self;
        let count = count(arena, *obj);
        match object::encoding(arena, *obj) {
            Encoding::Intset => {
                let index = below(count, random());
                taken(&Inline::int(intset(*obj).get(arena, index)));
                intset(*obj).remove(arena, tx, count, index);
            }
            Encoding::Listpack => {
                let (at, entry) = nth(arena, *obj, below(count, random()));
                let len = entry.encoded().len();
                taken(&entry.value());
                cut(arena, tx, *obj, at, len);
            }
            _ => {
                let found = table(*obj).random(arena, count as u64, random);
                taken(&member_of(arena, found.word));
                table(*obj).remove(arena, tx, found);
                free_member(arena, tx, found.word);
            }
        }
        object::add_count(arena, tx, *obj, -1);
    }

    fn add_to_intset(&mut self, member: &[u8]) -> Result<bool, Full> {
        let count = count(self.arena, self.obj);
        let ints = intset(self.obj);
        if let Some(value) = parse_int(member) {
            if ints.find(self.arena, count, value).is_some() {
                return Ok(false);
            }
            if count < self.cx.limits.set_max_intset_entries {
                return ints.add(self.arena, self.tx, count, value).map(|()| true);
            }
        }
        let longest = ints.iter(self.arena, count).map(|value| Inline::int(value).len()).max();
        let longest = longest.unwrap_or(0);
        if self.fits_packed(count + 1, member.len().max(longest), count * longest + member.len()) {
            self.convert(Encoding::Listpack)?;
            self.add_to_packed(member)
        } else {
            self.convert(Encoding::Hashtable)?;
            self.add_to_table(member)
        }
    }

    fn add_to_packed(&mut self, member: &[u8]) -> Result<bool, Full> {
        let piece = Piece::new(member);
        let packed = packed(self.obj);
        if packed.find(self.arena, &piece, 1).is_some() {
            return Ok(false);
        }
        let end = packed.bytes(self.arena).len();
        if !self.fits_packed(count(self.arena, self.obj) + 1, member.len(), end + member.len()) {
            self.convert(Encoding::Hashtable)?;
            return self.add_to_table(member);
        }
        packed.splice(self.arena, self.tx, end, 0, &[piece])?;
        Ok(true)
    }

    fn add_to_table(&mut self, member: &[u8]) -> Result<bool, Full> {
        let hash = self.cx.hasher.hash(member);
        let sought = Sought::new(member);
        let table = table(self.obj);
        match table.search(self.arena, hash, |word| sought.is(self.arena, word)) {
            Ok(_) => Ok(false),
            Err(gap) => insert(self.arena, self.tx, table, gap, &sought).map(|()| true),
        }
    }

    /// Whether so many members fit into a packed set, the longest of which and all together have so many bytes.
    fn fits_packed(&self, members: usize, longest: usize, bytes: usize) -> bool {
        let limits = self.cx.limits;
        members <= limits.set_max_listpack_entries
            && longest <= limits.set_max_listpack_value
            && bytes <= PACKED_BYTES_MAX
    }

    /// Lays the members out anew.
    fn convert(&mut self, to: Encoding) -> Result<(), Full> {
        let Writer { arena, tx, obj, cx } = self;
        let from = object::encoding(arena, *obj);
        let mut entries = Vec::new();
        match from {
            Encoding::Intset => {
                members(arena, *obj).for_each(|value| Piece::new(&value).append_to(&mut entries));
            }
            _ => entries.extend_from_slice(packed(*obj).bytes(arena)),
        }
        let root = *obj + object::ROOT;
        let old = arena.u64(root);
        arena.write_u64(tx, root, 0);
        let built = match to {
            Encoding::Listpack => packed(*obj).splice(arena, tx, 0, 0, &[Piece::encoded(&entries)]),
            _ => fill(arena, tx, *cx, table(*obj), &entries),
        };
        if built.is_err() {
            arena.write_u64(tx, root, old);
            return built;
        }
        object::set_encoding(arena, tx, *obj, to);
        match from {
            _ if old == 0 => (),
            Encoding::Intset => intset::free(arena, tx, old),
            _ => packed::free(arena, tx, old),
        }
        Ok(())
    }
}

/// Frees the payload; see [`any::destroy`](super::any::destroy).
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    match object::encoding(arena, obj) {
        Encoding::Intset => intset(obj).clear(arena, tx),
        Encoding::Listpack => packed(obj).clear(arena, tx),
        _ => {
            // The second word of a set is used for nothing else.
            let position = arena.u64(obj + object::AUX2);
            let next = table(obj).release(arena, tx, position, budget, |arena, tx, word, budget| {
                free_member(arena, tx, word);
                *budget = budget.saturating_sub(1);
            });
            let Some(next) = next else { return true };
            arena.write_u64(tx, obj + object::AUX2, next);
            return false;
        }
    }
    *budget = budget.saturating_sub(1);
    true
}

/// Bytes allocated for the payload; see [`any::heap_bytes`](super::any::heap_bytes).
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    match object::encoding(arena, obj) {
        Encoding::Intset => intset(obj).heap_bytes(arena),
        Encoding::Listpack => packed(obj).heap_bytes(arena),
        _ => {
            let blocks = table(obj).words(arena).filter(|&word| is_block(word));
            let size = |word| Arena::usable_size(Entry::len_at(arena, word)) as u64;
            table(obj).heap_bytes(arena) + blocks.map(size).sum::<u64>()
        }
    }
}

/// Checks the structure and returns the number of members, or says what is wrong.
pub fn check(arena: &Arena, cx: Context, obj: u64) -> Result<u64, String> {
    let counted = match object::encoding(arena, obj) {
        Encoding::Intset => count(arena, obj) as u64,
        Encoding::Listpack => packed(obj).check(arena)?,
        _ => table(obj).check(arena)?,
    };
    if counted != len(arena, obj) {
        return Err(format!("set at {obj:#x} counts {} members and has {counted}", len(arena, obj)));
    }
    match members(arena, obj).find(|member| !contains(arena, cx, obj, member)) {
        Some(lost) => Err(format!("set at {obj:#x} does not find its member {lost:?}")),
        None => Ok(counted),
    }
}

fn count(arena: &Arena, obj: u64) -> usize {
    object::count(arena, obj) as usize
}

fn intset(obj: u64) -> Intset {
    Intset::at(obj + object::ROOT)
}

fn packed(obj: u64) -> Packed {
    Packed::at(obj + object::ROOT)
}

fn table(obj: u64) -> Table {
    Table::at(obj + object::ROOT)
}

fn nth(arena: &Arena, obj: u64, index: usize) -> (usize, Entry<'_>) {
    packed(obj).entries(arena).nth(index).expect("an index below the count")
}

fn cut(arena: &mut Arena, tx: &mut Tx, obj: u64, at: usize, len: usize) {
    packed(obj).splice(arena, tx, at, len, &[]).expect("a blob that does not grow");
}

/// Makes a table of the members in `entries`.
fn fill(arena: &mut Arena, tx: &mut Tx, cx: Context, table: Table, entries: &[u8]) -> Result<(), Full> {
    table.create(arena, tx)?;
    for (_, entry) in Entries::new(entries) {
        let member = entry.value();
        let gap = table.gap(arena, cx.hasher.hash(&member));
        let inserted = insert(arena, tx, table, gap, &Sought::new(&member));
        if inserted.is_err() {
            table.release(arena, tx, 0, &mut { usize::MAX }, |arena, tx, word, _| {
                free_member(arena, tx, word)
            });
            return inserted;
        }
    }
    Ok(())
}

/// Adds a member that is not in the table.
fn insert(arena: &mut Arena, tx: &mut Tx, table: Table, gap: Gap, member: &Sought) -> Result<(), Full> {
    let word = match member.inline {
        Some(word) => word,
        None => {
            let block = arena.alloc(tx, member.piece.encoded_len())?;
            member.piece.write(arena, tx, block);
            block
        }
    };
    let inserted = table.insert(arena, tx, gap, word);
    if inserted.is_err() {
        free_member(arena, tx, word);
    }
    inserted
}

fn is_block(word: u64) -> bool {
    word >> KIND_SHIFT == 0
}

fn free_member(arena: &mut Arena, tx: &mut Tx, word: u64) {
    if is_block(word) {
        let size = Entry::len_at(arena, word);
        arena.free(tx, word, size);
    }
}

fn member_of(arena: &Arena, word: u64) -> Value<'_> {
    match word >> KIND_SHIFT {
        0 => Entry::at(arena, word).value(),
        INLINE_INT => Value::int((word << 8) as i64 >> 8),
        text => Value::Inline(Inline::new(&word.to_le_bytes()[..(text - INLINE_TEXT) as usize])),
    }
}

/// A member as a table would hold it.
struct Sought<'a> {
    /// The word, if it needs no block.
    inline: Option<u64>,
    piece: Piece<'a>,
}

impl<'a> Sought<'a> {
    fn new(member: &'a [u8]) -> Sought<'a> {
        let inline = if member.len() <= INLINE_TEXT_MAX {
            let mut word = [0; 8];
            word[..member.len()].copy_from_slice(member);
            Some(u64::from_le_bytes(word) | (INLINE_TEXT + member.len() as u64) << KIND_SHIFT)
        } else {
            let value = parse_int(member).filter(|value| value << 8 >> 8 == *value);
            value.map(|value| value as u64 & PAYLOAD | INLINE_INT << KIND_SHIFT)
        };
        Sought { inline, piece: Piece::new(member) }
    }

    fn is(&self, arena: &Arena, word: u64) -> bool {
        match self.inline {
            Some(inline) => word == inline,
            None => is_block(word) && Entry::at(arena, word).is(&self.piece),
        }
    }
}

#[cfg(test)]
mod tests;
