//! Sorted sets.

use crate::{
    Arena, Result, Txn, Type,
    collections::{
        Context,
        object::Encoding,
        zset::{self, Writer},
    },
};
use std::ops::Range;

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
            Some(old) => {
                !self.only_new && !(self.only_greater && new <= old) && !(self.only_less && new >= old)
            }
        }
    }
}

impl Txn<'_> {
    fn zset(&mut self, db: u8, key: &[u8]) -> Result<Option<(&Arena, Context<'_>, u64)>> {
        let obj = self.object(db, key, Type::Zset)?;
        Ok(obj.map(|obj| {
            let (arena, context) = self.parts(key);
            (arena, context, obj)
        }))
    }

    /// The number of members of a sorted set; 0 without the key.
    pub fn zset_len(&mut self, db: u8, key: &[u8]) -> Result<u64> {
        Ok(self.zset(db, key)?.map_or(0, |(arena, _, obj)| zset::len(arena, obj)))
    }

    /// The score of a member.
    pub fn zset_score(&mut self, db: u8, key: &[u8], member: &[u8]) -> Result<Option<f64>> {
        let zset = self.zset(db, key)?;
        Ok(zset.and_then(|(arena, context, obj)| zset::score(arena, context, obj, member)))
    }

    /// How many members come before this one, and its score.
    pub fn zset_rank(&mut self, db: u8, key: &[u8], member: &[u8]) -> Result<Option<(u64, f64)>> {
        let Some((arena, context, obj)) = self.zset(db, key)? else { return Ok(None) };
        let Some(rank) = zset::rank(arena, context, obj, member) else { return Ok(None) };
        Ok(zset::score(arena, context, obj, member).map(|score| (rank, score)))
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
        let mut done = Added::default();
        let obj = match self.object(db, key, Type::Zset)? {
            Some(obj) => obj,
            None if options.only_existing => return Ok(done),
            None => self.create(db, key, Type::Zset, Encoding::Listpack)?,
        };
        let (arena, tx, context) = self.parts_mut(db, key);
        let free = options == AddOptions::default();
        let added = members.into_iter().try_for_each(|(member, score)| {
            if !free && !options.allow(zset::score(arena, context, obj, member), score) {
                return Ok(());
            }
            match Writer::new(arena, tx, obj, context).insert(member, score)? {
                None => done.added += 1,
                Some(old) => done.updated += u64::from(old != score),
            }
            Ok(())
        });
        if let Err(full) = added {
            self.remove_if_empty(db, key, obj);
            return Err(full);
        }
        Ok(done)
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
        let old = self.zset_score(db, key, member)?;
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
        let Some(obj) = self.object(db, key, Type::Zset)? else { return Ok(0) };
        let (arena, tx, context) = self.parts_mut(db, key);
        let mut writer = Writer::new(arena, tx, obj, context);
        let removed = members.into_iter().filter(|member| writer.remove(member)).count();
        self.remove_if_empty(db, key, obj);
        Ok(removed as u64)
    }

    /// Removes the members whose ranks are in `ranks`, which must be within the set.
    pub fn zset_remove_ranks(&mut self, db: u8, key: &[u8], ranks: Range<u64>) -> Result<()> {
        let Some(obj) = self.object(db, key, Type::Zset)?.filter(|_| !ranks.is_empty()) else {
            return Ok(());
        };
        let (arena, tx, context) = self.parts_mut(db, key);
        Writer::new(arena, tx, obj, context).remove_ranks(ranks);
        self.remove_if_empty(db, key, obj);
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
        let Some((arena, _, obj)) = self.zset(db, key)? else { return Ok(0) };
        let len = zset::len(arena, obj);
        let count = count.min(len);
        let ranks = if highest { len - count..len } else { 0..count };
        zset::iter(arena, obj, ranks.clone(), highest).for_each(|(member, score)| popped(member, score));
        self.zset_remove_ranks(db, key, ranks)?;
        Ok(count)
    }

    /// Makes these members the value of a key, whatever it held; without members the key is removed. Without room for
    /// all, the key is as it was.
    pub fn zset_replace(&mut self, db: u8, key: &[u8], members: &[(Vec<u8>, f64)]) -> Result<()> {
        if members.is_empty() {
            self.remove(db, key);
            return Ok(());
        }
        self.replace(db, key, Type::Zset, Encoding::Listpack, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            members.iter().try_for_each(|(member, score)| writer.insert(member, *score).map(drop))
        })
    }
}
