//! Strings: items in the log, or, if they are large and were changed in part, objects in the heap.

use super::{
    REDO_OF_KEY, REMOVAL_BYTES, Txn,
    error::{Error, Result},
    target::Target,
};
use crate::{
    collections::{
        any,
        string::{self, Change, LARGE, LEN_MAX},
    },
    format::{entry_word::Type, item},
    partition::Found,
    txn::{scratch::Scratch, string_value::StringValue},
};

impl Txn<'_> {
    /// The string value of a key, as a whole: that of an object is a copy. [`Txn::string_at`] reads parts.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Result<Option<&[u8]>> {
        let target = self.target(db, key);
        match self.find_string(target)? {
            Some(found) => self.whole(target, found),
            None => Ok(None),
        }
    }

    /// Makes values the strings of some keys, as [`Txn::set`] does without keeping expiries: of all of them, or of none.
    pub fn set_all<'k>(
        &mut self,
        db: u8,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
    ) -> Result<()> {
        // The new keys come first: only the index can lack room for them, and they can go again.
        let (mut new, mut redo, lookups) = (Vec::new(), 0, self.lookups);
        let mut made = Ok(());
        for (number, (key, value)) in pairs.clone().enumerate() {
            let target = self.target(db, key);
            let found = self.find(target);
            if let Some(found) = found {
                let removal = if found.word.in_heap() { REMOVAL_BYTES } else { 0 };
                redo += item::record_len(key.len(), value.len()) + REDO_OF_KEY + removal;
                continue;
            }
            made = self.set_found(target, None, value, false);
            if made.is_err() {
                break;
            }
            new.push((number, key));
        }
        self.lookups = lookups;
        // From here on nothing lacks room.
        if let Err(error) = made.and_then(|()| self.reserve(redo)) {
            new.iter().for_each(|(_, key)| self.take_back_new(db, key));
            return Err(error);
        }
        let mut new = new.into_iter().map(|(number, _)| number).peekable();
        for (number, (key, value)) in pairs.enumerate() {
            let target = self.target(db, key);
            if new.next_if_eq(&number).is_none() {
                let found = self.find(target);
                self.set_found(target, found, value, false)
                    .inspect_err(|error| debug_assert!(false, "{error}"))?;
            }
        }
        Ok(())
    }

    /// Removes a key that this operation has made, as if it had never been there.
    #[cold]
    fn take_back_new(&mut self, db: u8, key: &[u8]) {
        let target = self.target(db, key);
        let part = self.locks.get(target.partition);
        let found = part.find(&self.engine.shared, db, target.digest).expect("it was just made");
        part.remove(&self.engine.shared, &mut self.batch, db, target.digest, found);
        self.changes.forget_written(db, key);
    }

    /// Makes the string value of a key what `f` makes of it, of none if there is none. An expiry of the key stays.
    pub fn update<T: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        db: u8,
        key: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> std::result::Result<T, E>,
    ) -> std::result::Result<(), E> {
        let target = self.target(db, key);
        let found = self.find_string(target)?;
        let new = match found {
            Some(found) => f(self.whole(target, found)?)?,
            None => f(None)?,
        };
        Ok(self.set_found(target, found, new.as_ref(), true)?)
    }

    /// The string of an entry.
    fn whole(&mut self, target: Target<'_>, found: Found) -> Result<Option<&[u8]>> {
        if found.word.in_heap() {
            let arena = &self.locks.read(target.partition).arena;
            let scratch = self.scratch.get_or_insert_with(Scratch::take);
            let obj = found.word.offset();
            return Ok(Some(scratch.copy_together(string::slices(arena, obj, 0, string::len(arena, obj)))));
        }
        self.value(target, found)
    }

    /// The string at a key, to read any part of it.
    pub fn string_at(&mut self, db: u8, key: &[u8]) -> Result<Option<StringValue<'_>>> {
        let (target, found) = self.find_string_at(db, key)?;
        self.string_in(target, found)
    }

    /// Finds the entry of a key, which must be a string's, once for all that is done to it. Is a use of it.
    pub(crate) fn find_string_at<'k>(
        &mut self,
        db: u8,
        key: &'k [u8],
    ) -> Result<(Target<'k>, Option<Found>)> {
        let target = self.target(db, key);
        let found = self.find_string(target)?;
        Ok((target, found))
    }

    /// The string of a key whose entry was found so.
    pub(crate) fn string_in(
        &mut self,
        target: Target<'_>,
        found: Option<Found>,
    ) -> Result<Option<StringValue<'_>>> {
        let Some(found) = found else { return Ok(None) };
        if found.word.in_heap() {
            let arena = &self.locks.read(target.partition).arena;
            return Ok(Some(StringValue::Chunks { arena, obj: found.word.offset() }));
        }
        Ok(self.value(target, found)?.map(StringValue::Whole))
    }

    fn find_string(&mut self, target: Target<'_>) -> Result<Option<Found>> {
        let Some(found) = self.find(target) else { return Ok(None) };
        if found.word.ty() != Type::String {
            return Err(Error::WrongType);
        }
        if found.word.in_heap() {
            self.note_use(target, found);
        } else if self.notes_uses {
            // Without a copy there is one only once the value was fetched.
            self.locks.get(target.partition).touch_copy(target.db, found.slot);
        }
        Ok(Some(found))
    }

    /// Makes the string at a key at least `len` bytes long, by zeroes, and makes changes to it, for which it grows, too; returns
    /// its length. An expiry of the key stays. Without a string there an empty one is changed. This costs what is changed, but
    /// for strings that are small or have not been changed in part before. Panics if it came to more than [`LEN_MAX`].
    pub fn string_change(&mut self, db: u8, key: &[u8], len: usize, changes: &[Change]) -> Result<usize> {
        let (target, found) = self.find_string_at(db, key)?;
        self.string_change_in(target, found, len, changes)
    }

    /// The same of a key of which nothing has changed since its entry was found.
    pub(crate) fn string_change_in(
        &mut self,
        target: Target<'_>,
        found: Option<Found>,
        len: usize,
        changes: &[Change],
    ) -> Result<usize> {
        let len = changes.iter().map(Change::end).fold(len, usize::max);
        assert!(len <= LEN_MAX, "a string of {len} bytes");
        let changed = changes.iter().map(|change| change.bytes.len()).sum::<usize>();
        if let Some(obj) = found.filter(|found| found.word.in_heap()).map(|found| found.word.offset()) {
            self.reserve(string::redo_max(changes.len(), changed, len))?;
            let part = self.locks.get(target.partition);
            if string::write(&mut part.arena, &mut self.batch.tx, obj, len, changes).is_ok() {
                let len = string::len(&part.arena, obj);
                self.written(target);
                return Ok(len);
            }
        }
        let value = match found {
            Some(found) if found.word.in_heap() => self.get(target.db, target.key)?,
            Some(found) => self.value(target, found)?,
            None => None,
        };
        let mut value = value.unwrap_or_default().to_vec();
        let len = len.max(value.len());
        if len >= LARGE && changed < len {
            self.reserve(string::redo_max(1 + changes.len(), value.len() + changed, len))?;
            if self.cut(target, found, &value, len, changes) {
                return Ok(len);
            }
        }
        // It is small, or there is no room in the heap.
        value.resize(len, 0);
        for change in changes {
            value[change.at..change.end()].copy_from_slice(change.bytes);
        }
        self.set(target.db, target.key, &value, true)?;
        Ok(len)
    }

    /// Makes an object of a string of this value, with changes; false if there is no room for it.
    fn cut(
        &mut self,
        target: Target<'_>,
        found: Option<Found>,
        value: &[u8],
        len: usize,
        changes: &[Change],
    ) -> bool {
        if found.is_some_and(|found| found.word.in_heap()) {
            return false;
        }
        self.make_way(target, found);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let expiry = found.and_then(|found| part.expiry(target.db, target.digest, found.word));
        let all = [&[Change { at: 0, bytes: value }], changes].concat();
        let installed = part.install(
            shared,
            &mut self.batch,
            target.db,
            target.digest,
            found,
            Type::String,
            expiry,
            |arena, tx| {
                let obj = string::create(arena, tx, target.key)?;
                string::write(arena, tx, obj, len, &all).inspect_err(|_| {
                    any::destroy(arena, tx, obj);
                })?;
                Ok(obj)
            },
        );
        if installed.is_ok() {
            self.put(target, found.is_none());
        }
        installed.is_ok()
    }
}
