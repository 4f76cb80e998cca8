//! Hashes.
//!
//! A field that has expired is not there: looking at a key purges its hash of expired fields, and removes it with the
//! last one.

pub use crate::collections::{
    hash::{Expiry, Field},
    packed::Value,
};
use crate::{
    collections::{
        Context,
        hash::{self, Fields, Writer},
        object::{self, Encoding},
    },
    format::entry_word::Type,
    txn::{Txn, error::Result},
};
use holdfast_heap::Arena;

/// A hash, to read.
#[derive(Clone, Copy)]
pub struct Hash<'t> {
    arena: &'t Arena,
    context: Context<'t>,
    obj: u64,
}

impl<'t> Hash<'t> {
    /// The number of fields.
    pub fn len(self) -> u64 {
        if hash::may_have_expired(self.arena, self.obj, self.context.expired_ms) {
            // Too many have expired to be purged at once.
            return self.fields().count() as u64;
        }
        hash::len(self.arena, self.obj)
    }

    /// Whether all fields have expired.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The field with this name.
    pub fn get(self, name: &[u8]) -> Option<Field<'t>> {
        hash::get(self.arena, self.context, self.obj, name)
    }

    /// All fields.
    pub fn fields(self) -> Fields<'t> {
        hash::fields(self.arena, self.context, self.obj)
    }

    /// One step of a scan; see [`hash::scan`].
    pub fn scan(self, cursor: u64, count: usize, each: impl FnMut(Field)) -> u64 {
        hash::scan(self.arena, self.context, self.obj, cursor, count, each)
    }

    /// A random field; none if there is none.
    pub fn random(self, random: impl FnMut() -> u64) -> Option<Field<'t>> {
        hash::random(self.arena, self.context, self.obj, random)
    }

    /// `count` different random fields, all if there are no more.
    pub fn sample(self, count: usize, random: impl FnMut() -> u64) -> Vec<Field<'t>> {
        hash::sample(self.arena, self.context, self.obj, count, random)
    }
}

/// When a field may get another expiry, or lose the one that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpireIf {
    /// Always.
    #[default]
    Always,
    /// If it has none (`NX`).
    None,
    /// If it has one (`XX`).
    Some,
    /// If the new one is later (`GT`); no expiry is the latest.
    Later,
    /// If the new one is earlier (`LT`).
    Earlier,
}

impl ExpireIf {
    fn allows(self, old: u64, new: u64) -> bool {
        let time = |expiry| if expiry == 0 { u64::MAX } else { expiry };
        match self {
            ExpireIf::Always => true,
            ExpireIf::None => old == 0,
            ExpireIf::Some => old != 0,
            ExpireIf::Later => time(new) > time(old),
            ExpireIf::Earlier => time(new) < time(old),
        }
    }
}

/// What [`Txn::hash_expire`] did with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// It is not there.
    Missing,
    /// The condition was not met.
    Refused,
    /// It has the new expiry.
    Set,
    /// The time has come already: it is removed.
    Removed,
}

impl Txn<'_> {
    /// The hash at a key.
    pub fn hash_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Hash<'_>>> {
        let Some(located) = self.object(db, key, Type::Hash)? else { return Ok(None) };
        let (arena, context) = self.parts(key, located);
        Ok(Some(Hash { arena, context, obj: located.obj }))
    }

    /// The value of a field.
    pub fn hash_get(&mut self, db: u8, key: &[u8], name: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.hash_at(db, key)?.and_then(|hash| hash.get(name)).map(|field| field.value))
    }

    /// Gives fields their values and returns how many of them are new. Without room for all, those before are set.
    pub fn hash_set<'f>(
        &mut self,
        db: u8,
        key: &[u8],
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        expiry: Expiry,
    ) -> Result<u64> {
        let make = Some(Encoding::Listpack);
        let new = self.change(db, key, Type::Hash, make, |arena, tx, context, obj| {
            let mut hash = Writer::new(arena, tx, obj, context);
            fields
                .into_iter()
                .try_fold(0, |new, (name, value)| Ok(new + u64::from(hash.set(name, value, expiry)?)))
        })?;
        Ok(new.expect("an object that is made if it is missing"))
    }

    /// Makes a hash of these fields of different names, with their values and expiries (0: none), the value of a key, whatever it held;
    /// without fields the key is removed. Without room for all, the key is as it was.
    pub fn hash_replace<'f>(
        &mut self,
        db: u8,
        key: &[u8],
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8], u64), IntoIter: Clone>,
    ) -> Result<()> {
        let fields = fields.into_iter();
        self.reserve_each(fields.clone().flat_map(|(name, value, _)| [name, value]))?;
        let mut fields = fields.peekable();
        if fields.peek().is_none() {
            self.remove(db, key);
            return Ok(());
        }
        self.replace(db, key, Type::Hash, Encoding::Listpack, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).fill(fields)
        })
    }

    /// Removes fields and returns how many of them were there.
    pub fn hash_remove<'f>(
        &mut self,
        db: u8,
        key: &[u8],
        names: impl IntoIterator<Item = &'f [u8]>,
    ) -> Result<u64> {
        let removed = self.change(db, key, Type::Hash, None, |arena, tx, context, obj| {
            let mut hash = Writer::new(arena, tx, obj, context);
            Ok(names.into_iter().filter(|name| hash.remove(name)).count() as u64)
        })?;
        Ok(removed.unwrap_or(0))
    }

    /// Gives fields the expiry `at_ms` (Unix time in milliseconds), or takes it away if that is 0, and tells `each` in
    /// turn what was done. Without room for all, this is done to those before. False without the key.
    pub fn hash_expire<'f>(
        &mut self,
        db: u8,
        key: &[u8],
        names: impl IntoIterator<Item = &'f [u8], IntoIter: Clone>,
        at_ms: u64,
        condition: ExpireIf,
        mut each: impl FnMut(Expired),
    ) -> Result<bool> {
        let names = names.into_iter();
        // A field of a large hash moves when it gets its first expiry, with its value.
        let large = self.hash_at(db, key)?.filter(|hash| !object::is_packed(hash.arena, hash.obj));
        let moved = large.map_or(0, |hash| {
            let fields = names.clone().filter_map(|name| hash.get(name)).filter(|field| field.expires == 0);
            fields.map(|field| field.name.len() + field.value.len()).sum()
        });
        self.reserve_besides(moved)?;
        let found = self.change(db, key, Type::Hash, None, |arena, tx, context, obj| {
            for name in names {
                let old = hash::get(arena, context, obj, name).map(|field| field.expires);
                each(match old {
                    None => Expired::Missing,
                    Some(old) if !condition.allows(old, at_ms) => Expired::Refused,
                    Some(_) if at_ms != 0 && at_ms <= context.expired_ms => {
                        Writer::new(arena, tx, obj, context).remove(name);
                        Expired::Removed
                    }
                    Some(old) => {
                        if old != at_ms {
                            Writer::new(arena, tx, obj, context).set_expiry(name, at_ms)?;
                        }
                        Expired::Set
                    }
                });
            }
            Ok(())
        })?;
        Ok(found.is_some())
    }
}
