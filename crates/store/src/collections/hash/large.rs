//! Large hashes: a table of fields, and an ordered set of those that expire.
//!
//! A field is a block of two packed entries, its name and its value, and before them, if [`EXPIRES`] is set in the
//! table's word, its expiry as a `u64`, 0 for none. The ordered set has `expiry, hash of the name` for each field with
//! an expiry, both big-endian; so a purge looks at no field before its time.

use holdfast_heap::{Arena, Full, Tx};

use super::{
    super::{
        absent::{Absent, Finder, no_look},
        object,
        ordered::{Key, Ordered},
        packed::{Entry, Piece},
        table::{Found, Gap, Table},
    },
    Field,
};

const EXPIRES: u64 = 1 << 63;
const EXPIRY: u64 = 8;

/// A large hash.
#[derive(Clone, Copy)]
pub(super) struct Large {
    pub table: Table,
    expiries: Ordered,
}

/// A field to be put in.
#[derive(Clone, Copy)]
pub(super) struct Put<'a> {
    pub name: Piece<'a>,
    pub value: Piece<'a>,
    /// 0: never.
    pub expires: u64,
}

impl Large {
    pub fn of(obj: u64) -> Large {
        Large { table: Table::at(obj + object::ROOT), expiries: Ordered::at(obj + object::AUX2) }
    }

    /// The entry of the field with this name, whose hash is `hash`, or where it would go.
    pub fn search(self, arena: &Arena, hash: u64, name: &Piece) -> Result<Found, Gap> {
        self.table.search(arena, hash, |word| Block::of(word).name(arena).is(name))
    }

    /// The entry of the field with this name, whose hash is `hash`.
    pub fn find(self, arena: &Arena, hash: u64, name: &Piece) -> Option<Found> {
        self.search(arena, hash, name).ok()
    }

    /// Looks for what a search for the name with this hash will use; whether it will come upon a field.
    pub fn look(self, finder: &Finder, hash: u64) -> Result<bool, Absent> {
        let word = self.table.try_find(finder.arena, hash, finder.look())?;
        word.map_or(Ok(()), |word| Block::of(word).look(finder))?;
        Ok(word.is_some())
    }

    /// The same for what it takes to remove the field, if the command may do so.
    pub fn look_to_remove(self, finder: &Finder, hash: u64) -> Result<(), Absent> {
        let Some(word) = self.table.try_find(finder.arena, hash, finder.look())? else { return Ok(()) };
        finder.go_on(Block::of(word).look(finder));
        self.table.look_to_remove(finder, hash)
    }

    /// The same for so many fields that have expired, the first ones.
    pub fn look_to_purge(self, finder: &Finder, expired_ms: u64, count: u64) -> Result<(), Absent> {
        let has_expired = |key: &Key| Ok(decode(key).0 <= expired_ms);
        let ranks = self.expiries.look_between(finder, |_| Ok(false), has_expired, false, count)?;
        self.expiries.try_each(finder.arena, ranks.clone(), finder.look(), |key| {
            finder.go_on(self.look_to_remove(finder, decode(key).1));
        });
        if ranks.is_empty() { Ok(()) } else { self.expiries.look_to_remove_ranks(finder, ranks) }
    }

    /// The same for what it takes to set a field.
    pub fn look_to_set(self, finder: &Finder, hash: u64, name: &[u8], value: &[u8]) -> Result<(), Absent> {
        if !self.look(finder, hash)? {
            let put = Put { name: Piece::new(name), value: Piece::new(value), expires: 0 };
            finder.look_to_alloc(put.size(false));
        }
        Ok(())
    }

    /// Looks for random fields; see [`Table::look_at_random`].
    pub fn look_at_random(self, finder: &Finder, counts: (u64, u64), random: impl FnMut() -> u64) {
        self.table.look_at_random(finder, counts, random, |word| Block::of(word).look(finder));
    }

    /// Looks for what a step of a scan passes; see [`Table::look_at_scan`].
    pub fn look_at_scan(self, finder: &Finder, cursor: u64, count: usize) {
        self.table.look_at_scan(finder, cursor, count, |word| Block::of(word).look(finder));
    }

    /// Looks for all expiries.
    pub fn look_at_expiries(self, finder: &Finder) {
        self.expiries.try_each(finder.arena, 0..u64::MAX, finder.look(), |_| ());
    }

    /// Looks for all fields.
    pub fn look_at_all(self, finder: &Finder) {
        self.table.try_each(finder.arena, finder.look(), |word| finder.go_on(Block::of(word).look(finder)));
    }

    /// Puts in a field that is not there. Fails without a change.
    pub fn insert(self, arena: &mut Arena, tx: &mut Tx, gap: Gap, put: Put) -> Result<(), Full> {
        self.schedule(arena, tx, gap.hash(), put.expires)?;
        let inserted = store(arena, tx, put, put.expires != 0).and_then(|word| {
            let inserted = self.table.insert(arena, tx, gap, word);
            if inserted.is_err() {
                Block::of(word).free(arena, tx);
            }
            inserted
        });
        if inserted.is_err() {
            self.unschedule(arena, tx, gap.hash(), put.expires);
        }
        inserted
    }

    /// Gives a field that was found another value and expiry. Fails without a change.
    pub fn replace(self, arena: &mut Arena, tx: &mut Tx, found: Found, put: Put) -> Result<(), Full> {
        let old = Block::of(found.word);
        let old_expires = old.expires(arena);
        if put.expires != old_expires {
            self.schedule(arena, tx, found.hash(), put.expires)?;
        }
        let old_size = old.size(arena);
        let has_expiry = old.has_expiry || put.expires != 0;
        if has_expiry == old.has_expiry
            && Arena::usable_size(old_size) == Arena::usable_size(put.size(has_expiry))
        {
            put.value.overwrite(arena, tx, old.entries() + put.name.encoded_len() as u64);
            old.set_expires(arena, tx, put.expires);
        } else {
            let stored = store(arena, tx, put, has_expiry);
            let word = stored.inspect_err(|_| {
                if put.expires != old_expires {
                    self.unschedule(arena, tx, found.hash(), put.expires);
                }
            })?;
            self.table.replace(arena, tx, found, word);
            old.free(arena, tx);
        }
        if put.expires != old_expires {
            self.unschedule(arena, tx, found.hash(), old_expires);
        }
        Ok(())
    }

    /// Gives a field that was found another expiry. Fails without a change.
    pub fn set_expiry(self, arena: &mut Arena, tx: &mut Tx, found: Found, expires: u64) -> Result<(), Full> {
        let hash = found.hash();
        let block = Block::of(found.word);
        let old_expires = block.expires(arena);
        if expires == old_expires {
            return Ok(());
        }
        self.schedule(arena, tx, hash, expires)?;
        if block.has_expiry {
            block.set_expires(arena, tx, expires);
        } else {
            let len = block.size(arena);
            let Ok(moved) = arena.alloc(tx, len + EXPIRY as usize) else {
                self.unschedule(arena, tx, hash, expires);
                return Err(Full);
            };
            arena.write_u64(tx, moved, expires);
            arena.copy(tx, block.at, moved + EXPIRY, len);
            self.table.replace(arena, tx, found, moved | EXPIRES);
            block.free(arena, tx);
        }
        self.unschedule(arena, tx, hash, old_expires);
        Ok(())
    }

    /// Removes a field that was found.
    pub fn remove(self, arena: &mut Arena, tx: &mut Tx, found: Found) {
        let block = Block::of(found.word);
        self.unschedule(arena, tx, found.hash(), block.expires(arena));
        self.table.remove(arena, tx, found);
        block.free(arena, tx);
    }

    /// The time at which a field expires first; 0 if none does.
    pub fn next_expiry(self, arena: &Arena) -> u64 {
        self.first_expiry(arena).map_or(0, |(expires, _)| expires)
    }

    /// The field that expires first.
    pub fn first_to_expire(self, arena: &Arena) -> Option<Found> {
        let (expires, hash) = self.first_expiry(arena)?;
        let found = self.table.find(arena, hash, |word| Block::of(word).expires(arena) == expires);
        Some(found.expect("a scheduled field is in the table"))
    }

    /// Whether all fields, of which there are so many, have expired.
    pub fn has_expired(self, arena: &Arena, count: u64, expired_ms: u64) -> bool {
        let last = count.checked_sub(1).and_then(|rank| self.expiries.by_rank(arena, rank));
        let last = last.and_then(|last| self.expiries.keys_in_leaf(arena, last).next());
        last.is_some_and(|key| decode(key).0 <= expired_ms)
    }

    /// Frees up to about `budget` blocks from `position` on; returns where to go on, none at the end.
    pub fn release(self, arena: &mut Arena, tx: &mut Tx, position: u64, budget: &mut usize) -> Option<u64> {
        self.table.release(arena, tx, position, budget, |arena, tx, word, budget| {
            Block::of(word).free(arena, tx);
            *budget = budget.saturating_sub(1);
        })
    }

    /// Frees up to about `budget` blocks of the ordered set; whether all are.
    pub fn release_expiries(self, arena: &mut Arena, tx: &mut Tx, budget: &mut usize) -> bool {
        self.expiries.release(arena, tx, budget, |_, _, _| ())
    }

    /// Looks for what [`Large::release`] uses.
    pub fn look_to_release(self, finder: &Finder, position: u64, budget: &mut usize) {
        let look_at = |word| Block::of(word).try_size(finder.arena, finder.look()).map(drop);
        self.table.look_from(finder, position, budget, (1, 1), look_at);
    }

    /// Looks for what [`Large::release_expiries`] uses.
    pub fn look_to_release_expiries(self, finder: &Finder, budget: &mut usize) -> Result<(), Absent> {
        self.expiries.look_to_release(finder, budget, |_, _| ())
    }

    /// Bytes allocated for table, fields and ordered set.
    pub fn heap_bytes(self, arena: &Arena) -> u64 {
        let fields = self.table.words(arena).map(|word| Arena::usable_size(Block::of(word).size(arena)));
        self.table.heap_bytes(arena) + self.expiries.heap_bytes(arena) + fields.sum::<usize>() as u64
    }

    /// Checks the structure and returns the number of fields, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<u64, String> {
        let scheduled = self.expiries.check(arena, |a, b| a < b)?;
        let expiring = self.table.words(arena).filter(|&word| Block::of(word).expires(arena) != 0).count();
        if scheduled != expiring as u64 {
            return Err(format!("{scheduled} fields are scheduled to expire, {expiring} expire"));
        }
        for key in self.expiries.iter(arena, 0..scheduled, false) {
            let (expires, hash) = decode(key);
            if self.table.find(arena, hash, |word| Block::of(word).expires(arena) == expires).is_none() {
                return Err(format!("no field of hash {hash:#x} expires at {expires}"));
            }
        }
        self.table.check(arena)
    }

    fn first_expiry(self, arena: &Arena) -> Option<(u64, u64)> {
        let first = self.expiries.by_rank(arena, 0)?;
        self.expiries.keys_in_leaf(arena, first).next().map(decode)
    }

    fn schedule(self, arena: &mut Arena, tx: &mut Tx, hash: u64, expires: u64) -> Result<(), Full> {
        if expires == 0 {
            return Ok(());
        }
        let key = encode(expires, hash);
        let place = self.expiries.place(arena, |other| *other < key);
        self.expiries.insert(arena, tx, place, &key)
    }

    fn unschedule(self, arena: &mut Arena, tx: &mut Tx, hash: u64, expires: u64) {
        if expires == 0 {
            return;
        }
        let key = encode(expires, hash);
        let position = self.expiries.find(arena, |other| *other < key).expect("an expiry that was scheduled");
        debug_assert_eq!(self.expiries.keys_in_leaf(arena, position).next(), Some(&key));
        self.expiries.remove(arena, tx, &position, 1);
    }
}

impl Put<'_> {
    fn size(&self, has_expiry: bool) -> usize {
        let expiry = if has_expiry { EXPIRY as usize } else { 0 };
        expiry + self.name.encoded_len() + self.value.encoded_len()
    }
}

/// The field of a table's word.
pub(super) fn field(arena: &Arena, word: u64) -> Field<'_> {
    let block = Block::of(word);
    let name = block.name(arena);
    Field { name: name.value(), value: block.value(arena, name).value(), expires: block.expires(arena) }
}

/// Writes a field into a block of its own and returns the table's word for it.
fn store(arena: &mut Arena, tx: &mut Tx, put: Put, has_expiry: bool) -> Result<u64, Full> {
    let size = put.size(has_expiry);
    let block = Block { at: arena.alloc(tx, size)?, has_expiry };
    arena.write_by(tx, block.at, size, |out| {
        let (expiry, entries) = out.split_at_mut((block.entries() - block.at) as usize);
        if has_expiry {
            expiry.copy_from_slice(&put.expires.to_le_bytes());
        }
        let (name, value) = entries.split_at_mut(put.name.encoded_len());
        put.name.encode(name);
        put.value.encode(value);
    });
    Ok(if has_expiry { block.at | EXPIRES } else { block.at })
}

/// A field's block.
#[derive(Clone, Copy)]
struct Block {
    at: u64,
    has_expiry: bool,
}

impl Block {
    fn of(word: u64) -> Block {
        Block { at: word & !EXPIRES, has_expiry: word & EXPIRES != 0 }
    }

    /// Where its entries start.
    fn entries(self) -> u64 {
        if self.has_expiry { self.at + EXPIRY } else { self.at }
    }

    fn name(self, arena: &Arena) -> Entry<'_> {
        Entry::at(arena, self.entries())
    }

    fn value<'a>(self, arena: &'a Arena, name: Entry) -> Entry<'a> {
        Entry::at(arena, self.entries() + name.encoded().len() as u64)
    }

    fn look(self, finder: &Finder) -> Result<(), Absent> {
        finder.look()(self.at, 1)?;
        let name = Entry::try_at(finder.arena, self.entries(), finder.look())?;
        let value = self.entries() + name.encoded().len() as u64;
        Entry::try_at(finder.arena, value, finder.look()).map(drop)
    }

    fn expires(self, arena: &Arena) -> u64 {
        if self.has_expiry { arena.u64(self.at) } else { 0 }
    }

    fn set_expires(self, arena: &mut Arena, tx: &mut Tx, expires: u64) {
        if self.has_expiry {
            arena.write_changed_u64(tx, self.at, expires);
        }
    }

    fn size(self, arena: &Arena) -> usize {
        let Ok(size) = self.try_size(arena, no_look);
        size
    }

    /// The same, unless `look` fails of the bytes that tell it before they are read.
    fn try_size<E>(self, arena: &Arena, look: impl Fn(u64, usize) -> Result<(), E>) -> Result<usize, E> {
        look(self.at, 1)?;
        let name = Entry::try_len(arena, self.entries(), &look)?;
        let value = Entry::try_len(arena, self.entries() + name as u64, &look)?;
        Ok((self.entries() - self.at) as usize + name + value)
    }

    fn free(self, arena: &mut Arena, tx: &mut Tx) {
        let size = self.size(arena);
        arena.free(tx, self.at, size);
    }
}

fn encode(expires: u64, hash: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&expires.to_be_bytes());
    key[8..].copy_from_slice(&hash.to_be_bytes());
    key
}

fn decode(key: &Key) -> (u64, u64) {
    let (expires, hash) = key.split_at(8);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    (number(expires), number(hash))
}
