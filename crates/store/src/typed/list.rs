//! Lists.

pub use crate::collections::list::End;
use crate::{
    collections::{
        list::{self, Iter, Writer},
        object::Encoding,
        positions_between,
    },
    format::entry_word::Type,
    txn::{Txn, error::Result, room::FEW_ELEMENTS},
};
use holdfast_heap::Arena;

/// Bytes of a list's block that are written anew when something within goes.
const REWRITTEN_BYTES: usize = 8 << 10;

/// A list, to read.
#[derive(Clone, Copy)]
pub struct List<'t> {
    arena: &'t Arena,
    obj: u64,
}

impl<'t> List<'t> {
    /// The number of elements, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u64 {
        list::len(self.arena, self.obj)
    }

    /// The element at an index; below zero it counts from the end.
    pub fn get(self, index: i64) -> Option<&'t [u8]> {
        list::get(self.arena, self.obj, position(index, self.len())?)
    }

    /// The elements from index `first` to `last`, both included; see [`positions_between`].
    pub fn range(self, first: i64, last: i64) -> Iter<'t> {
        list::iter(self.arena, self.obj, positions_between(first, last, self.len()), false)
    }

    /// The positions of the elements equal to `element`; see [`list::positions`].
    pub fn positions(
        self,
        element: &'t [u8],
        max_len: u64,
        reverse: bool,
    ) -> impl Iterator<Item = u64> + use<'t> {
        list::positions(self.arena, self.obj, element, max_len, reverse)
    }
}

impl Txn<'_> {
    /// The list at a key.
    pub fn list_at(&mut self, db: u8, key: &[u8]) -> Result<Option<List<'_>>> {
        let obj = self.object(db, key, Type::List)?;
        Ok(obj.map(|located| List { arena: self.parts(key, located).0, obj: located.obj }))
    }

    /// Adds elements at an end, one after the other, and returns the length. A list that is missing is made only if
    /// `create` says so; else the length is 0. Without room for all, none is added.
    pub fn list_push<'e>(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        elements: impl IntoIterator<Item = &'e [u8]>,
        create: bool,
    ) -> Result<u64> {
        let make = create.then_some(Encoding::Listpack);
        let len = self.change(db, key, Type::List, make, |arena, tx, context, obj| {
            let before = list::len(arena, obj);
            let mut writer = Writer::new(arena, tx, obj, context);
            let pushed = elements.into_iter().try_for_each(|element| writer.push(end, element));
            let len = list::len(arena, obj);
            if pushed.is_err() {
                Writer::new(arena, tx, obj, context).pop(end, len - before, |_| {});
            }
            pushed.map(|()| len)
        })?;
        Ok(len.unwrap_or(0))
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
        if count > FEW_ELEMENTS {
            let len = self.list_at(db, key)?.map_or(0, List::len);
            self.reserve_elements(count.min(len), 0)?;
        }
        let count = self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            let before = list::len(arena, obj);
            Writer::new(arena, tx, obj, context).pop(end, count, popped);
            Ok(before - list::len(arena, obj))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Inserts an element so that it has position `index`, which is at most the length, and returns the new length; 0
    /// without the key.
    pub fn list_insert(&mut self, db: u8, key: &[u8], index: u64, element: &[u8]) -> Result<u64> {
        let len = self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).insert(index, element)?;
            Ok(list::len(arena, obj))
        })?;
        Ok(len.unwrap_or(0))
    }

    /// Replaces the element at an index, which below zero counts from the end; false if there is none. `None` without
    /// the key.
    pub fn list_set(&mut self, db: u8, key: &[u8], index: i64, element: &[u8]) -> Result<Option<bool>> {
        self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            let Some(index) = position(index, list::len(arena, obj)) else { return Ok(false) };
            Writer::new(arena, tx, obj, context).set(index, element).map(|()| true)
        })
    }

    /// Replaces the elements at some indices, one after the other; false, and none is replaced, if one of these is beyond the
    /// end. `None` without the key. Without room for all, those before are replaced.
    pub fn list_set_each(&mut self, db: u8, key: &[u8], elements: &[(u64, &[u8])]) -> Result<Option<bool>> {
        let bytes = elements.iter().map(|(_, element)| element.len()).sum();
        let redo = list::replaced_redo_max(self.limits(key), elements.len(), bytes);
        self.reserve(redo)?;
        // This brings a frozen list back, which takes room of its own.
        let len = self.change(db, key, Type::List, None, |arena, _, _, obj| Ok(list::len(arena, obj)))?;
        let Some(len) = len else { return Ok(None) };
        if elements.iter().any(|(index, _)| *index >= len) {
            return Ok(Some(false));
        }
        let conversion = self.conversion_max(db, key);
        self.reserve(redo + conversion)?;
        self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            elements.iter().try_for_each(|(index, element)| writer.set(*index, element)).map(|()| true)
        })
    }

    /// Removes all but the elements from index `first` to `last`, both included.
    pub fn list_trim(&mut self, db: u8, key: &[u8], first: i64, last: i64) -> Result<()> {
        let Some(len) = self.list_at(db, key)?.map(List::len) else { return Ok(()) };
        let keep = positions_between(first, last, len);
        if keep.is_empty() {
            self.remove(db, key);
            return Ok(());
        }
        self.reserve_elements(len - (keep.end - keep.start), REWRITTEN_BYTES)?;
        self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            writer.remove(keep.end..len);
            writer.remove(0..keep.start);
            Ok(())
        })?;
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
        if count > 1 {
            let most = usize::try_from(count).unwrap_or(usize::MAX);
            let list = self.list_at(db, key)?;
            let equal = list.map_or(0, |list| list.positions(element, u64::MAX, reverse).take(most).count());
            self.reserve(equal.saturating_mul(REWRITTEN_BYTES))?;
        }
        let removed = self.change(db, key, Type::List, None, |arena, tx, context, obj| {
            Ok(Writer::new(arena, tx, obj, context).remove_equal(element, count, reverse))
        })?;
        Ok(removed.unwrap_or(0))
    }

    /// Makes these elements the value of a key, whatever it held; without elements the key is removed. Without room for
    /// all, the key is as it was.
    pub fn list_replace<'e>(
        &mut self,
        db: u8,
        key: &[u8],
        elements: impl IntoIterator<Item = &'e [u8], IntoIter: Clone>,
    ) -> Result<()> {
        let elements = elements.into_iter();
        self.reserve_each(elements.clone())?;
        let mut elements = elements.peekable();
        if elements.peek().is_none() {
            self.remove(db, key);
            return Ok(());
        }
        self.replace(db, key, Type::List, Encoding::Listpack, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).fill(elements)
        })
    }

    /// Moves the element at one end of a list to an end of another one or of the same, and returns it.
    pub fn list_move(&mut self, db: u8, from: (&[u8], End), to: (&[u8], End)) -> Result<Option<Vec<u8>>> {
        let index = if from.1 == End::Front { 0 } else { -1 };
        let list = self.list_at(db, from.0)?;
        let Some(element) = list.and_then(|list| list.get(index)).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.warm(db, to.0, Type::List)?;
        self.warm(db, from.0, Type::List)?;
        // The push comes first since it may fail. Where it is in the way, in the same list at the same end, it is the
        // copy that is then removed.
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
