//! Sets.

use crate::{
    collections::{
        Context,
        object::Encoding,
        packed::{Entries, Piece, Value},
        set::{self, Members, Writer},
    },
    format::entry_word::Type,
    txn::{Txn, error::Result, frozen::Located},
};
use holdfast_heap::Arena;
use std::collections::HashSet;

/// A set, to read.
#[derive(Clone, Copy)]
pub struct Set<'t> {
    pub(super) arena: &'t Arena,
    pub(super) context: Context<'t>,
    pub(super) obj: u64,
}

impl<'t> Set<'t> {
    /// The number of members, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u64 {
        set::len(self.arena, self.obj)
    }

    /// Whether `member` is in the set.
    pub fn contains(self, member: &[u8]) -> bool {
        set::contains(self.arena, self.context, self.obj, member)
    }

    /// All members.
    pub fn members(self) -> Members<'t> {
        set::members(self.arena, self.obj)
    }

    /// One step of a scan; see [`set::scan`].
    pub fn scan(self, cursor: u64, count: usize, each: impl FnMut(Value)) -> u64 {
        set::scan(self.arena, self.obj, cursor, count, each)
    }

    /// A random member.
    pub fn random(self, random: impl FnMut() -> u64) -> Value<'t> {
        set::random(self.arena, self.obj, random)
    }

    /// `count` different random members, all if there are no more.
    pub fn sample(self, count: usize, random: impl FnMut() -> u64) -> Vec<Value<'t>> {
        set::sample(self.arena, self.obj, count, random)
    }
}

/// How sets are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The members that all have.
    Intersection,
    /// The members that any has.
    Union,
    /// The members of the first that no other has.
    Difference,
}

impl Combine {
    /// The members of the combined set. `None` is a set without members.
    pub fn members<'t>(self, sets: &[Option<Set<'t>>]) -> Box<dyn Iterator<Item = Value<'t>> + 't> {
        let mut present: Vec<Set> = sets.iter().copied().flatten().collect();
        match self {
            Combine::Intersection if present.len() < sets.len() => Box::new(std::iter::empty()),
            Combine::Intersection => {
                present.sort_by_key(|set| set.len());
                let mut sets = present.into_iter();
                let members = sets.next().map(Set::members).into_iter().flatten();
                Box::new(members.filter(move |member| sets.as_slice().iter().all(|set| set.contains(member))))
            }
            Combine::Union if present.len() == 1 => Box::new(present[0].members()),
            Combine::Union => {
                let mut seen = HashSet::new();
                Box::new(
                    present.into_iter().flat_map(Set::members).filter(move |&member| seen.insert(member)),
                )
            }
            Combine::Difference => {
                let first = sets.first().copied().flatten();
                let others = present.split_off(usize::from(first.is_some()));
                let members = first.map(Set::members).into_iter().flatten();
                Box::new(members.filter(move |member| !others.iter().any(|set| set.contains(member))))
            }
        }
    }
}

impl Txn<'_> {
    /// The set at a key.
    pub fn set_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Set<'_>>> {
        let obj = self.object(db, key, Type::Set)?;
        Ok(obj.map(|obj| self.set_of(key, obj)))
    }

    /// The sets at some keys.
    pub fn sets_at<'k>(
        &mut self,
        db: u8,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Vec<Option<Set<'_>>>> {
        // Only once all are found, because looking for one may remove it.
        let mut found = Vec::new();
        for key in keys {
            found.push((key, self.object(db, key, Type::Set)?));
        }
        Ok(found.into_iter().map(|(key, obj)| obj.map(|obj| self.set_of(key, obj))).collect())
    }

    pub(super) fn set_of(&self, key: &[u8], located: Located) -> Set<'_> {
        let (arena, context) = self.parts(key, located);
        Set { arena, context, obj: located.obj }
    }

    /// Adds members and returns how many of them are new. Without room for all, those before are added.
    pub fn set_add<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<u64> {
        let added = self.change(db, key, Type::Set, Some(Encoding::Intset), |arena, tx, context, obj| {
            let mut set = Writer::new(arena, tx, obj, context);
            members.into_iter().try_fold(0, |added, member| Ok(added + u64::from(set.add(member)?)))
        })?;
        Ok(added.expect("an object that is made if it is missing"))
    }

    /// Makes a set of these members, all different, the value of a key, whatever it held; without members the key is removed. Without room
    /// for all, the key is as it was.
    pub fn set_replace<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = &'m [u8], IntoIter: Clone>,
    ) -> Result<()> {
        let members = members.into_iter();
        self.reserve_each(members.clone())?;
        let mut members = members.peekable();
        if members.peek().is_none() {
            self.remove(db, key);
            return Ok(());
        }
        self.replace(db, key, Type::Set, Encoding::Intset, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).fill(members)
        })
    }

    /// Removes members and returns how many of them were there.
    pub fn set_remove<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<u64> {
        let removed = self.change(db, key, Type::Set, None, |arena, tx, context, obj| {
            let mut set = Writer::new(arena, tx, obj, context);
            Ok(members.into_iter().filter(|member| set.remove(member)).count() as u64)
        })?;
        Ok(removed.unwrap_or(0))
    }

    /// Removes up to `count` random members, shows each to `popped` before, and returns how many they were.
    pub fn set_pop(
        &mut self,
        db: u8,
        key: &[u8],
        count: u64,
        mut random: impl FnMut() -> u64,
        mut popped: impl FnMut(&[u8]),
    ) -> Result<u64> {
        let Some(set) = self.set_at(db, key)?.filter(|_| count > 0) else { return Ok(0) };
        let len = set.len();
        if count >= len {
            set.members().for_each(|member| popped(&member));
            self.remove(db, key);
            return Ok(len);
        }
        self.reserve_elements(count, 0)?;
        self.change(db, key, Type::Set, None, |arena, tx, context, obj| {
            let mut set = Writer::new(arena, tx, obj, context);
            (0..count).for_each(|_| set.pop(&mut random, &mut popped));
            Ok(())
        })?;
        Ok(count)
    }

    /// Moves a member from one set to another; false if the first does not have it. If there is no room, nothing is
    /// changed.
    pub fn set_move(&mut self, db: u8, from: &[u8], to: &[u8], member: &[u8]) -> Result<bool> {
        if self.set_at(db, from)?.is_none() {
            return Ok(false);
        }
        let sets = self.sets_at(db, [from, to])?;
        if !sets[0].is_some_and(|set| set.contains(member)) {
            return Ok(false);
        }
        if from != to {
            self.warm(db, to, Type::Set)?;
            self.warm(db, from, Type::Set)?;
            // The addition comes first since it may fail.
            self.set_add(db, to, [member])?;
            self.set_remove(db, from, [member])?;
        }
        Ok(true)
    }

    /// Makes the combination of the sets at some keys the value of a key, whatever it held, and returns how many members
    /// it has; without members the key is removed. Without room for all, the key is as it was.
    pub fn set_store<'k>(
        &mut self,
        db: u8,
        to: &[u8],
        how: Combine,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        let sets = self.sets_at(db, keys)?;
        // A copy, because the members are read while arenas change, and the key may be one of the sets.
        let mut entries = Vec::new();
        let mut count = 0;
        for member in how.members(&sets) {
            Piece::new(&member).append_to(&mut entries);
            count += 1;
        }
        drop(sets);
        if count == 0 {
            self.remove(db, to);
            return Ok(0);
        }
        self.reserve_elements(count, entries.len())?;
        self.replace(db, to, Type::Set, Encoding::Intset, |arena, tx, context, obj| {
            let mut set = Writer::new(arena, tx, obj, context);
            Entries::new(&entries).try_for_each(|(_, entry)| set.add(&entry.value()).map(drop))
        })?;
        Ok(count)
    }
}
