//! Hashes: a packed blob or a hash table, with an expiry per field.
//!
//! A field whose expiry has passed counts as absent for everything but [`len`], until [`Writer::purge`] removes it.
//! The object's first word is a lower bound of all expiries, and 0 if no field has one; in a table it is 0 only then.
//! All times are in milliseconds since 1970.

mod large;
mod small;

use holdfast_heap::{Arena, Full, Tx};
use large::{Large, Put};
use small::{Placed, Small};

use super::{
    Context, PACKED_BYTES_MAX,
    absent::{Absent, Finder},
    object::{self, AUX, AUX2, Encoding, Type},
    packed::{self, Piece, Value},
    sample::{below, choose},
    table::Words,
};

/// What a write does to the expiry that the field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The field will not expire.
    Clear,
    /// It stays as it is.
    Keep,
    /// The field will expire at this time, not 0.
    At(u64),
}

/// A field as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: Value<'a>,
    /// Its value.
    pub value: Value<'a>,
    /// When it expires; 0 is never.
    pub expires: u64,
}

impl Field<'_> {
    fn is_alive(&self, expired_ms: u64) -> bool {
        self.expires == 0 || self.expires > expired_ms
    }
}

/// Makes an empty hash and returns its offset.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::Hash, Encoding::Listpack)
}

/// The number of fields, with those that have expired but are not purged yet.
pub fn len(arena: &Arena, obj: u64) -> u64 {
    object::count(arena, obj)
}

/// A time before which no field expires; 0 if none ever will.
pub fn next_expiry(arena: &Arena, obj: u64) -> u64 {
    arena.u64(obj + AUX)
}

/// The field with this name.
pub fn get<'a>(arena: &'a Arena, cx: Context, obj: u64, name: &[u8]) -> Option<Field<'a>> {
    let piece = Piece::new(name);
    let field = if is_large(arena, obj) {
        let found = Large::of(obj).find(arena, cx.hasher.hash(name), &piece)?;
        large::field(arena, found.word)
    } else {
        let small = Small::of(arena, obj);
        small.field(arena, small.find(arena, &piece)?)
    };
    field.is_alive(cx.expired_ms).then_some(field)
}

/// Bytes of the block to which a small hash moves when these fields are set to these values; `None`: they have room where it is.
pub fn grown_size<'f>(
    arena: &Arena,
    obj: u64,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> Option<usize> {
    Small::of(arena, obj).grown_size(arena, fields)
}

/// Looks for what a command that names this field will use of a large hash.
pub fn look(finder: &Finder, cx: Context, obj: u64, name: &[u8]) -> Result<(), Absent> {
    Large::of(obj).look_to_remove(finder, cx.hasher.hash(name))
}

/// The same for one that sets it to a value.
pub fn look_to_set(finder: &Finder, cx: Context, obj: u64, name: &[u8], value: &[u8]) -> Result<(), Absent> {
    Large::of(obj).look_to_set(finder, cx.hasher.hash(name), name, value)
}

/// Looks for what so many random fields of a large hash are found by, and for them.
pub fn look_at_random(finder: &Finder, obj: u64, wanted: u64, random: impl FnMut() -> u64) {
    Large::of(obj).look_at_random(finder, (len(finder.arena, obj), wanted), random);
}

/// Looks for what it takes to remove so many expired fields of a large hash.
pub fn look_to_purge(finder: &Finder, obj: u64, expired_ms: u64, count: u64) -> Result<(), Absent> {
    Large::of(obj).look_to_purge(finder, expired_ms, count)
}

/// Whether fields of a hash have expired, as far as its header tells: none may be left of them.
pub fn may_have_expired(arena: &Arena, obj: u64, expired_ms: u64) -> bool {
    (1..=expired_ms).contains(&next_expiry(arena, obj))
}

/// Whether all fields have expired.
pub fn has_expired(arena: &Arena, obj: u64, expired_ms: u64) -> bool {
    match is_large(arena, obj) {
        true => Large::of(obj).has_expired(arena, len(arena, obj), expired_ms),
        false => Small::of(arena, obj).fields(arena).all(|placed| !placed.field.is_alive(expired_ms)),
    }
}

/// Looks for what a step of a [`scan`] of a large hash passes.
pub fn look_at_scan(finder: &Finder, obj: u64, cursor: u64, count: usize) {
    Large::of(obj).look_at_scan(finder, cursor, count);
}

/// Looks for what says when fields of a large hash expire.
pub fn look_at_expiries(finder: &Finder, obj: u64) {
    Large::of(obj).look_at_expiries(finder);
}

/// Looks for all fields of a large hash.
pub fn look_at_all(finder: &Finder, obj: u64) {
    Large::of(obj).look_at_all(finder);
}

/// All fields; those of a small hash in the order in which they were added.
pub fn fields<'a>(arena: &'a Arena, cx: Context, obj: u64) -> Fields<'a> {
    let source = if is_large(arena, obj) {
        Source::Large(arena, Large::of(obj).table.words(arena))
    } else {
        Source::Small(Small::of(arena, obj).fields(arena))
    };
    Fields { source, expired_ms: cx.expired_ms }
}

/// Passes about `count` fields from `cursor` on (all, if the hash is small) to `each` and returns the next cursor, 0
/// at the end. A field that is there from the scan's start to its end is passed at least once.
pub fn scan(
    arena: &Arena,
    cx: Context,
    obj: u64,
    cursor: u64,
    count: usize,
    mut each: impl FnMut(Field),
) -> u64 {
    if !is_large(arena, obj) {
        fields(arena, cx, obj).for_each(each);
        return 0;
    }
    Large::of(obj).table.scan(arena, cursor, count, |word| {
        let field = large::field(arena, word);
        if field.is_alive(cx.expired_ms) {
            each(field);
        }
    })
}

/// A random field; none if there is none.
pub fn random<'a>(
    arena: &'a Arena,
    cx: Context,
    obj: u64,
    mut random: impl FnMut() -> u64,
) -> Option<Field<'a>> {
    /// Draws before it is assumed that nearly all fields have expired.
    const DRAWS: usize = 32;
    let count = len(arena, obj);
    if is_large(arena, obj) && count > 0 {
        let table = Large::of(obj).table;
        let draw = || large::field(arena, table.random(arena, count, &mut random).word);
        let drawn = std::iter::repeat_with(draw).take(DRAWS).find(|field| field.is_alive(cx.expired_ms));
        if drawn.is_some() {
            return drawn;
        }
    }
    let alive = fields(arena, cx, obj).count();
    fields(arena, cx, obj).nth(below(alive, random()))
}

/// `sample` different random fields, all if there are no more.
pub fn sample<'a>(
    arena: &'a Arena,
    cx: Context,
    obj: u64,
    sample: usize,
    random: impl FnMut() -> u64,
) -> Vec<Field<'a>> {
    if is_large(arena, obj) && !may_have_expired(arena, obj, cx.expired_ms) {
        let words = Large::of(obj).table.sample(arena, len(arena, obj), sample, random);
        return words.into_iter().map(|word| large::field(arena, word)).collect();
    }
    choose(fields(arena, cx, obj).collect(), sample, random)
}

/// The fields of a hash; see [`fields`].
pub struct Fields<'a> {
    source: Source<'a>,
    expired_ms: u64,
}

enum Source<'a> {
    Small(small::Fields<'a>),
    Large(&'a Arena, Words<'a>),
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            let field = match &mut self.source {
                Source::Small(fields) => fields.next()?.field,
                Source::Large(arena, words) => large::field(arena, words.next()?),
            };
            if field.is_alive(self.expired_ms) {
                return Some(field);
            }
        }
    }
}

/// Changes a hash.
pub struct Writer<'a> {
    arena: &'a mut Arena,
    tx: &'a mut Tx,
    obj: u64,
    cx: Context<'a>,
}

impl<'a> Writer<'a> {
    /// Changes the hash at `obj` within `tx`.
    pub fn new(arena: &'a mut Arena, tx: &'a mut Tx, obj: u64, cx: Context<'a>) -> Self {
        Writer { arena, tx, obj, cx }
    }

    /// Gives a field a value; whether there was no such field.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; the fields are unchanged.
    pub fn set(&mut self, name: &[u8], value: &[u8], expiry: Expiry) -> Result<bool, Full> {
        let (piece, value_piece) = (Piece::new(name), Piece::new(value));
        if !is_large(self.arena, self.obj) {
            let small = Small::of(self.arena, self.obj);
            let at = small.find(self.arena, &piece);
            let limits = self.cx.limits;
            let fields = len(self.arena, self.obj) as usize + usize::from(at.is_none());
            let bytes = small.entries(self.arena).len() + name.len() + value.len();
            if fields <= limits.hash_max_listpack_entries
                && name.len().max(value.len()) <= limits.hash_max_listpack_value
                && bytes <= PACKED_BYTES_MAX
            {
                return self.set_small(at, piece, value_piece, expiry);
            }
            self.convert()?;
        }
        self.set_large(self.cx.hasher.hash(name), piece, value_piece, expiry)
    }

    /// Gives an empty hash fields of different names, each with its value and expiry (0: none): by one write, if they are few and none
    /// expires.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; some fields may be there then.
    pub fn fill<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8], u64)> + Clone,
    ) -> Result<(), Full> {
        let limits = self.cx.limits;
        let is_small = |(name, value, expires): (&[u8], &[u8], u64)| {
            expires == 0 && name.len().max(value.len()) <= limits.hash_max_listpack_value
        };
        let few = fields.clone().take(limits.hash_max_listpack_entries + 1);
        let (count, bytes) = few
            .clone()
            .fold((0, 0), |(n, bytes), (name, value, _)| (n + 1, bytes + name.len() + value.len()));
        let fits = count <= limits.hash_max_listpack_entries && bytes <= PACKED_BYTES_MAX;
        if !fits {
            self.convert()?;
        }
        if !fits || !few.clone().all(is_small) {
            return fields.into_iter().try_for_each(|(name, value, expires)| {
                let expiry = if expires == 0 { Expiry::Clear } else { Expiry::At(expires) };
                self.set(name, value, expiry).map(drop)
            });
        }
        let pieces: Vec<Piece> =
            few.flat_map(|(name, value, _)| [Piece::new(name), Piece::new(value)]).collect();
        Small::of(self.arena, self.obj).fill(self.arena, self.tx, &pieces)?;
        object::add_count(self.arena, self.tx, self.obj, count as i64);
        Ok(())
    }

    /// Removes a field; false if it is not there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Writer { arena, tx, obj, cx } = self;
        let piece = Piece::new(name);
        let expires;
        if is_large(arena, *obj) {
            let large = Large::of(*obj);
            let Some(found) = large.find(arena, cx.hasher.hash(name), &piece) else { return false };
            expires = large::field(arena, found.word).expires;
            large.remove(arena, tx, found);
        } else {
            let small = Small::of(arena, *obj);
            let Some(at) = small.find(arena, &piece) else { return false };
            expires = small.field(arena, at).expires;
            small.remove(arena, tx, at);
        }
        object::add_count(self.arena, self.tx, self.obj, -1);
        self.settle_bound(expires);
        expires == 0 || expires > self.cx.expired_ms
    }

    /// Gives a field another expiry, 0 for none; false if there is no such field.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; the fields are unchanged.
    pub fn set_expiry(&mut self, name: &[u8], expires: u64) -> Result<bool, Full> {
        let Writer { arena, tx, obj, cx } = self;
        let piece = Piece::new(name);
        let before;
        if is_large(arena, *obj) {
            let large = Large::of(*obj);
            let hash = cx.hasher.hash(name);
            let Some(found) = large.find(arena, hash, &piece) else { return Ok(false) };
            let field = large::field(arena, found.word);
            if !field.is_alive(cx.expired_ms) {
                return Ok(false);
            }
            before = field.expires;
            large.set_expiry(arena, tx, found, expires)?;
        } else {
            let small = Small::of(arena, *obj);
            let Some(at) = small.find(arena, &piece) else { return Ok(false) };
            let field = small.field(arena, at);
            if !field.is_alive(cx.expired_ms) {
                return Ok(false);
            }
            before = field.expires;
            if before != expires {
                let small = small.with_expiries(arena, tx, *obj)?;
                let at = small.find(arena, &piece).expect("a field that was there");
                small.set_expiry(arena, tx, at, expires)?;
            }
        }
        self.lower_bound(expires);
        self.settle_bound(before);
        Ok(true)
    }

    /// Removes up to `budget` fields that have expired, and returns how many. There may be more if it was that many.
    pub fn purge(&mut self, budget: usize) -> usize {
        let Writer { arena, tx, obj, cx } = self;
        if !may_have_expired(arena, *obj, cx.expired_ms) {
            return 0;
        }
        let mut purged = 0;
        let mut next;
        if is_large(arena, *obj) {
            let large = Large::of(*obj);
            next = large.next_expiry(arena);
            while next != 0 && next <= cx.expired_ms && purged < budget {
                let found = large.first_to_expire(arena).expect("a field with the next expiry");
                large.remove(arena, tx, found);
                next = large.next_expiry(arena);
                purged += 1;
            }
        } else {
            let small = Small::of(arena, *obj);
            let expired = |placed: &Placed| !placed.field.is_alive(cx.expired_ms);
            while let Some(at) = small.fields(arena).find(expired).map(|placed| placed.at) {
                if purged == budget {
                    break;
                }
                small.remove(arena, tx, at);
                purged += 1;
            }
            let expiries = small.fields(arena).map(|placed| placed.field.expires);
            next = expiries.filter(|&time| time != 0).min().unwrap_or(0);
        }
        arena.write_changed_u64(tx, *obj + AUX, next);
        object::add_count(arena, tx, *obj, -(purged as i64));
        purged
    }

    fn set_small(
        &mut self,
        at: Option<usize>,
        name: Piece,
        value: Piece,
        expiry: Expiry,
    ) -> Result<bool, Full> {
        let Writer { arena, tx, obj, cx } = self;
        let mut small = Small::of(arena, *obj);
        let mut at = at;
        let old = at.map(|at| small.field(arena, at));
        let alive = old.filter(|field| field.is_alive(cx.expired_ms)).map(|field| field.expires);
        let (is_new, existed) = (alive.is_none(), old.is_some());
        let expires = expiry.after(alive);
        if expires != 0 {
            small = small.with_expiries(arena, tx, *obj)?;
            at = at.and_then(|_| small.find(arena, &name));
        }
        small.put(arena, tx, at, &name, &value, expires)?;
        self.count_in(existed, expires);
        Ok(is_new)
    }

    fn set_large(&mut self, hash: u64, name: Piece, value: Piece, expiry: Expiry) -> Result<bool, Full> {
        let Writer { arena, tx, obj, cx } = self;
        let large = Large::of(*obj);
        let found = large.search(arena, hash, &name);
        let old = found.ok().map(|found| large::field(arena, found.word));
        let alive = old.filter(|field| field.is_alive(cx.expired_ms)).map(|field| field.expires);
        let (is_new, before) = (alive.is_none(), old.map_or(0, |field| field.expires));
        let expires = expiry.after(alive);
        let put = Put { name, value, expires };
        match found {
            Ok(found) => large.replace(arena, tx, found, put)?,
            Err(gap) => large.insert(arena, tx, gap, put)?,
        }
        self.count_in(found.is_ok(), expires);
        self.settle_bound(before);
        Ok(is_new)
    }

    /// Accounts for a field that was put in.
    fn count_in(&mut self, existed: bool, expires: u64) {
        if !existed {
            object::add_count(self.arena, self.tx, self.obj, 1);
        }
        self.lower_bound(expires);
    }

    /// Keeps the bound below an expiry that was set.
    fn lower_bound(&mut self, expires: u64) {
        let bound = next_expiry(self.arena, self.obj);
        if expires != 0 && (bound == 0 || expires < bound) {
            self.arena.write_changed_u64(self.tx, self.obj + AUX, expires);
        }
    }

    /// Raises the bound after an expiry was taken away, where the next one is known.
    fn settle_bound(&mut self, taken: u64) {
        if taken != 0 && is_large(self.arena, self.obj) {
            let next = Large::of(self.obj).next_expiry(self.arena);
            self.arena.write_changed_u64(self.tx, self.obj + AUX, next);
        }
    }

    /// Turns a small hash into a table.
    fn convert(&mut self) -> Result<(), Full> {
        let Writer { arena, tx, obj, cx } = self;
        // A copy, because the fields are read while the arena changes.
        let small = Small::of(arena, *obj);
        let entries = small.entries(arena).to_vec();
        let root = *obj + object::ROOT;
        let old = arena.u64(root);
        let large = Large::of(*obj);
        let mut built = large.table.create(arena, tx);
        let mut next = 0;
        if built.is_ok() {
            for Field { name, value, expires } in small.fields_of(&entries).map(|placed| placed.field) {
                let (hash, name, value) = (cx.hasher.hash(&name), Piece::new(&name), Piece::new(&value));
                let gap = large.table.gap(arena, hash);
                built = large.insert(arena, tx, gap, Put { name, value, expires });
                if built.is_err() {
                    large.release(arena, tx, 0, &mut { usize::MAX });
                    large.release_expiries(arena, tx, &mut { usize::MAX });
                    break;
                }
                if expires != 0 && (next == 0 || expires < next) {
                    next = expires;
                }
            }
        }
        if built.is_err() {
            arena.write_u64(tx, root, old);
            return built;
        }
        object::set_encoding(arena, tx, *obj, Encoding::Hashtable);
        arena.write_changed_u64(tx, *obj + AUX, next);
        if old != 0 {
            packed::free(arena, tx, old);
        }
        Ok(())
    }
}

impl Expiry {
    /// The expiry after a write, 0 for none, of a field that had the expiry `old`, or that was not there.
    fn after(self, old: Option<u64>) -> u64 {
        match self {
            Expiry::Clear => 0,
            Expiry::Keep => old.unwrap_or(0),
            Expiry::At(time) => time,
        }
    }
}

/// Frees the payload; see [`any::destroy`](super::any::destroy).
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    if !is_large(arena, obj) {
        Small::of(arena, obj).clear(arena, tx);
        *budget = budget.saturating_sub(1);
        return true;
    }
    let large = Large::of(obj);
    if arena.u64(obj + AUX2) != 0 {
        if !large.release_expiries(arena, tx, budget) {
            return false;
        }
        // From here on the bound is the table's position, and until here it was not 0.
        arena.write_u64(tx, obj + AUX, 0);
    }
    let position = arena.u64(obj + AUX);
    match large.release(arena, tx, position, budget) {
        Some(next) => {
            arena.write_u64(tx, obj + AUX, next);
            false
        }
        None => true,
    }
}

/// Looks for what [`release`] uses of a large hash.
pub(super) fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    let has_expiries = finder.arena.u64(obj + AUX2) != 0;
    let large = Large::of(obj);
    large.look_to_release_expiries(finder, budget)?;
    let position = if has_expiries { 0 } else { finder.arena.u64(obj + AUX) };
    large.look_to_release(finder, position, budget);
    Ok(())
}

/// Bytes allocated for the payload; see [`any::heap_bytes`](super::any::heap_bytes).
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    if is_large(arena, obj) {
        Large::of(obj).heap_bytes(arena)
    } else {
        Small::of(arena, obj).heap_bytes(arena)
    }
}

/// Checks the structure and returns the number of fields, or says what is wrong.
pub fn check(arena: &Arena, cx: Context, obj: u64) -> Result<u64, String> {
    let large = Large::of(obj);
    let counted =
        if is_large(arena, obj) { large.check(arena)? } else { Small::of(arena, obj).check(arena)? };
    let wrong = |what: String| Err(format!("hash at {obj:#x} {what}"));
    if counted != len(arena, obj) {
        return wrong(format!("counts {} fields and has {counted}", len(arena, obj)));
    }
    let bound = next_expiry(arena, obj);
    if is_large(arena, obj) && bound != large.next_expiry(arena) {
        return wrong(format!("has {bound} as its next expiry, not {}", large.next_expiry(arena)));
    }
    let always = Context { expired_ms: 0, ..cx };
    for field in fields(arena, always, obj) {
        if field.expires != 0 && (bound == 0 || field.expires < bound) {
            return wrong(format!("expects no expiry before {bound}, but {:?} has one", field.name));
        }
        if get(arena, always, obj, &field.name) != Some(field) {
            return wrong(format!("does not find its field {:?}", field.name));
        }
    }
    Ok(counted)
}

fn is_large(arena: &Arena, obj: u64) -> bool {
    object::encoding(arena, obj) == Encoding::Hashtable
}

#[cfg(test)]
mod tests;
