//! Lists.

use crate::{
    Arena, Result, Txn, Type,
    collections::{
        list::{self, End, Iter, Writer},
        object::Encoding,
    },
};

use super::positions_between;

impl Txn<'_> {
    fn list(&mut self, db: u8, key: &[u8]) -> Result<Option<(&Arena, u64)>> {
        let obj = self.object(db, key, Type::List)?;
        Ok(obj.map(|obj| (self.parts(key).0, obj)))
    }

    /// The number of elements of a list; 0 without the key.
    pub fn list_len(&mut self, db: u8, key: &[u8]) -> Result<u64> {
        Ok(self.list(db, key)?.map_or(0, |(arena, obj)| list::len(arena, obj)))
    }

    /// The element at an index; below zero it counts from the end.
    pub fn list_get(&mut self, db: u8, key: &[u8], index: i64) -> Result<Option<&[u8]>> {
        let Some((arena, obj)) = self.list(db, key)? else { return Ok(None) };
        Ok(position(index, list::len(arena, obj)).and_then(|index| list::get(arena, obj, index)))
    }

    /// The elements from index `first` to `last`, both included; see [`positions_between`]. `None` without the key.
    pub fn list_range(&mut self, db: u8, key: &[u8], first: i64, last: i64) -> Result<Option<Iter<'_>>> {
        let Some((arena, obj)) = self.list(db, key)? else { return Ok(None) };
        let range = positions_between(first, last, list::len(arena, obj));
        Ok(Some(list::iter(arena, obj, range, false)))
    }

    /// The positions of the elements equal to `element`; see [`list::positions`]. `None` without the key.
    pub fn list_positions<'t>(
        &'t mut self,
        db: u8,
        key: &[u8],
        element: &'t [u8],
        max_len: u64,
        reverse: bool,
    ) -> Result<Option<impl Iterator<Item = u64> + use<'t>>> {
        let list = self.list(db, key)?;
        Ok(list.map(|(arena, obj)| list::positions(arena, obj, element, max_len, reverse)))
    }

    /// Adds elements at an end, one after the other, and returns the length. A list that is missing is made only if
    /// `create` says so. Without room for all, none is added.
    pub fn list_push<'e>(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        elements: impl IntoIterator<Item = &'e [u8]>,
        create: bool,
    ) -> Result<u64> {
        let obj = match self.object(db, key, Type::List)? {
            Some(obj) => obj,
            None if create => self.create(db, key, Type::List, Encoding::Listpack)?,
            None => return Ok(0),
        };
        let (arena, tx, context) = self.parts_mut(db, key);
        let before = list::len(arena, obj);
        let mut writer = Writer::new(arena, tx, obj, context);
        let pushed = elements.into_iter().try_for_each(|element| writer.push(end, element));
        let len = list::len(arena, obj);
        if let Err(full) = pushed {
            Writer::new(arena, tx, obj, context).pop(end, len - before, |_| {});
            self.remove_if_empty(db, key, obj);
            return Err(full.into());
        }
        Ok(len)
    }

    /// Removes up to `count` elements from an end, shows each to `popped` before, and returns how many they were.
    pub fn list_pop(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        count: u64,
        popped: impl FnMut(&[u8]),
    ) -> Result<u64> {
        let Some(obj) = self.object(db, key, Type::List)?.filter(|_| count > 0) else { return Ok(0) };
        let (arena, tx, context) = self.parts_mut(db, key);
        let before = list::len(arena, obj);
        Writer::new(arena, tx, obj, context).pop(end, count, popped);
        let after = list::len(arena, obj);
        if after == 0 {
            self.remove(db, key);
        }
        Ok(before - after)
    }

    /// Inserts an element so that it has position `index`, which is at most the length, and returns the new length; 0
    /// without the key.
    pub fn list_insert(&mut self, db: u8, key: &[u8], index: u64, element: &[u8]) -> Result<u64> {
        let Some(obj) = self.object(db, key, Type::List)? else { return Ok(0) };
        let (arena, tx, context) = self.parts_mut(db, key);
        Writer::new(arena, tx, obj, context).insert(index, element)?;
        Ok(list::len(arena, obj))
    }

    /// Replaces the element at an index, which below zero counts from the end; false if there is none. `None` without
    /// the key.
    pub fn list_set(&mut self, db: u8, key: &[u8], index: i64, element: &[u8]) -> Result<Option<bool>> {
        let Some((arena, obj)) = self.list(db, key)? else { return Ok(None) };
        let Some(index) = position(index, list::len(arena, obj)) else { return Ok(Some(false)) };
        let (arena, tx, context) = self.parts_mut(db, key);
        Writer::new(arena, tx, obj, context).set(index, element)?;
        Ok(Some(true))
    }

    /// Removes all but the elements from index `first` to `last`, both included.
    pub fn list_trim(&mut self, db: u8, key: &[u8], first: i64, last: i64) -> Result<()> {
        let Some((arena, obj)) = self.list(db, key)? else { return Ok(()) };
        let len = list::len(arena, obj);
        let keep = positions_between(first, last, len);
        if keep.is_empty() {
            self.remove(db, key);
        } else if keep != (0..len) {
            let (arena, tx, context) = self.parts_mut(db, key);
            let mut writer = Writer::new(arena, tx, obj, context);
            writer.remove(keep.end..len);
            writer.remove(0..keep.start);
        }
        Ok(())
    }

    /// Removes up to `count` elements equal to `element`, the first ones, or, if `reverse`, the last ones, and returns
    /// how many they were.
    pub fn list_remove(
        &mut self,
        db: u8,
        key: &[u8],
        element: &[u8],
        count: u64,
        reverse: bool,
    ) -> Result<u64> {
        let Some(obj) = self.object(db, key, Type::List)? else { return Ok(0) };
        let (arena, tx, context) = self.parts_mut(db, key);
        let removed = Writer::new(arena, tx, obj, context).remove_equal(element, count, reverse);
        self.remove_if_empty(db, key, obj);
        Ok(removed)
    }

    /// Moves the element at one end of a list to an end of another one or of the same, and returns it.
    pub fn list_move(&mut self, db: u8, from: (&[u8], End), to: (&[u8], End)) -> Result<Option<Vec<u8>>> {
        let index = if from.1 == End::Front { 0 } else { -1 };
        let Some(element) = self.list_get(db, from.0, index)?.map(<[u8]>::to_vec) else { return Ok(None) };
        // The push comes first since it may fail. In the same list it does not hide the element: it is a copy of it that
        // is then removed, from the same place.
        self.list_push(db, to.0, to.1, [&element[..]], true)?;
        self.list_pop(db, from.0, from.1, 1, |_| {})?;
        Ok(Some(element))
    }
}

/// The position that an index means in a list of `len` elements, if there is one.
fn position(index: i64, len: u64) -> Option<u64> {
    let at = if index < 0 { len.checked_add_signed(index)? } else { index as u64 };
    (at < len).then_some(at)
}
