//! Sorted sets.

pub use crate::collections::zset::Scored;
use crate::{
    collections::{
        Context,
        object::Encoding,
        zset::{self, Iter, Writer},
    },
    format::entry_word::Type,
    txn::{Txn, error::Result, frozen::Located, room::FEW_ELEMENTS},
};
use holdfast_heap::Arena;
use std::ops::{Bound, Range};

/// A sorted set, to read.
#[derive(Clone, Copy)]
pub struct Zset<'t> {
    pub(super) arena: &'t Arena,
    pub(super) context: Context<'t>,
    pub(super) obj: u64,
}

impl<'t> Zset<'t> {
    /// The number of members, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u64 {
        zset::len(self.arena, self.obj)
    }

    /// The score of a member.
    pub fn score(self, member: &[u8]) -> Option<f64> {
        zset::score(self.arena, self.context, self.obj, member)
    }

    /// How many members come before this one.
    pub fn rank(self, member: &[u8]) -> Option<u64> {
        zset::rank(self.arena, self.context, self.obj, member)
    }

    /// The ranks of the members with scores between two bounds.
    pub fn ranks_by_score(self, min: Bound<f64>, max: Bound<f64>) -> Range<u64> {
        zset::ranks_by_score(self.arena, self.obj, min, max)
    }

    /// The ranks of the members between two names; they mean nothing unless all members have the same score.
    pub fn ranks_by_name(self, min: Bound<&[u8]>, max: Bound<&[u8]>) -> Range<u64> {
        zset::ranks_by_name(self.arena, self.obj, min, max)
    }

    /// The members whose ranks are in `ranks`, which may reach beyond the set; backwards if `reverse`.
    pub fn iter(self, ranks: Range<u64>, reverse: bool) -> Iter<'t> {
        zset::iter(self.arena, self.obj, ranks, reverse)
    }

    /// A random member.
    pub fn random(self, random: impl FnMut() -> u64) -> Scored<'t> {
        zset::random(self.arena, self.obj, random)
    }

    /// `count` different random members, all if there are no more.
    pub fn sample(self, count: usize, random: impl FnMut() -> u64) -> Vec<Scored<'t>> {
        zset::sample(self.arena, self.obj, count, random)
    }

    /// One step of a scan; see [`zset::scan`].
    pub fn scan(self, cursor: u64, count: usize, each: impl FnMut(&[u8], f64)) -> u64 {
        zset::scan(self.arena, self.obj, cursor, count, each)
    }
}

/// Which members [`Txn::zset_add`] may touch, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Members that are there keep their scores (`NX`).
    pub only_new: bool,
    /// None is added (`XX`).
    pub only_existing: bool,
    /// Scores may grow (`GT`).
    pub only_greater: bool,
    /// Scores may shrink (`LT`).
    pub only_less: bool,
}

/// What [`Txn::zset_add`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// New members.
    pub added: u64,
    /// Members that have another score now.
    pub updated: u64,
}

/// What [`Txn::zset_increment`] did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Incremented {
    /// The member has this score now.
    To(f64),
    /// The options kept it from doing anything.
    Not,
    /// The sum is not a number (opposite infinities); nothing was done.
    NotANumber,
}

impl AddOptions {
    /// Whether a member with score `old` may get `new`.
    fn allow(self, old: Option<f64>, new: f64) -> bool {
        match old {
            None => !self.only_existing,
            Some(_) if self.only_new => false,
            Some(old) => (!self.only_greater || new > old) && (!self.only_less || new < old),
        }
    }
}

impl Txn<'_> {
    /// The sorted set at a key.
    pub fn zset_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Zset<'_>>> {
        let obj = self.object(db, key, Type::Zset)?;
        Ok(obj.map(|obj| self.zset_of(key, obj)))
    }

    pub(super) fn zset_of(&self, key: &[u8], located: Located) -> Zset<'_> {
        let (arena, context) = self.parts(key, located);
        Zset { arena, context, obj: located.obj }
    }

    /// Gives members their scores, as far as the options allow. Without room for all, those before are added. Scores are
    /// numbers, not NaN.
    pub fn zset_add<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        options: AddOptions,
        members: impl IntoIterator<Item = (&'m [u8], f64)>,
    ) -> Result<Added> {
        let make = (!options.only_existing).then_some(Encoding::Listpack);
        let added = self.change(db, key, Type::Zset, make, |arena, tx, context, obj| {
            let mut done = Added::default();
            for (member, score) in members {
                if options != AddOptions::default()
                    && !options.allow(zset::score(arena, context, obj, member), score)
                {
                    continue;
                }
                match Writer::new(arena, tx, obj, context).insert(member, score)? {
                    None => done.added += 1,
                    Some(old) => done.updated += u64::from(old != score),
                }
            }
            Ok(done)
        })?;
        Ok(added.unwrap_or_default())
    }

    /// Adds to the score of a member, which is 0 if it is not there, as far as the options allow.
    pub fn zset_increment(
        &mut self,
        db: u8,
        key: &[u8],
        options: AddOptions,
        member: &[u8],
        by: f64,
    ) -> Result<Incremented> {
        let old = self.zset_at(db, key)?.and_then(|zset| zset.score(member));
        if old.is_some() && options.only_new {
            return Ok(Incremented::Not);
        }
        let score = old.unwrap_or(0.0) + by;
        if score.is_nan() {
            return Ok(Incremented::NotANumber);
        }
        if !options.allow(old, score) {
            return Ok(Incremented::Not);
        }
        self.zset_add(db, key, AddOptions::default(), [(member, score)])?;
        Ok(Incremented::To(score))
    }

    /// Removes members and returns how many of them were there.
    pub fn zset_remove<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<u64> {
        let removed = self.change(db, key, Type::Zset, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            Ok(members.into_iter().filter(|member| writer.remove(member)).count() as u64)
        })?;
        Ok(removed.unwrap_or(0))
    }

    /// Removes the members whose ranks are in `ranks`, which must be within the set.
    pub fn zset_remove_ranks(&mut self, db: u8, key: &[u8], ranks: Range<u64>) -> Result<()> {
        self.reserve_elements(ranks.end.saturating_sub(ranks.start), 0)?;
        self.change(db, key, Type::Zset, None, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).remove_ranks(ranks);
            Ok(())
        })?;
        Ok(())
    }

    /// Removes up to `count` members from the end with the lowest scores, or, if `highest`, from the other, shows each to
    /// `popped` before, and returns how many they were.
    pub fn zset_pop(
        &mut self,
        db: u8,
        key: &[u8],
        highest: bool,
        count: u64,
        mut popped: impl FnMut(&[u8], f64),
    ) -> Result<u64> {
        if count > FEW_ELEMENTS {
            let len = self.zset_at(db, key)?.map_or(0, Zset::len);
            self.reserve_elements(count.min(len), 0)?;
        }
        let count = self.change(db, key, Type::Zset, None, |arena, tx, context, obj| {
            let len = zset::len(arena, obj);
            let count = count.min(len);
            let ranks = if highest { len - count..len } else { 0..count };
            zset::iter(arena, obj, ranks.clone(), highest).for_each(|(member, score)| popped(member, score));
            Writer::new(arena, tx, obj, context).remove_ranks(ranks);
            Ok(count)
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Makes these members, all different, the value of a key, whatever it held; without members the key is removed. Without room for
    /// all, the key is as it was.
    pub fn zset_replace<M: AsRef<[u8]>>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = (M, f64)>,
    ) -> Result<()> {
        let members: Vec<(M, f64)> = members.into_iter().collect();
        if members.is_empty() {
            self.remove(db, key);
            return Ok(());
        }
        let bytes = members.iter().map(|(member, _)| member.as_ref().len()).sum();
        self.reserve_elements(2 * members.len() as u64, bytes)?;
        self.replace(db, key, Type::Zset, Encoding::Listpack, |arena, tx, context, obj| {
            let members = members.iter().map(|(member, score)| (member.as_ref(), *score));
            Writer::new(arena, tx, obj, context).fill(members)
        })
    }
}
