//! Strings and parts of them. [`Txn::set`] and [`Txn::get`] are for whole ones.

pub use crate::collections::string::{Change, LARGE, LEN_MAX};
pub use crate::txn::string_value::StringValue;
use crate::{
    collections::{object::Encoding, string},
    format::entry_word::Type,
    txn::{
        Txn,
        error::{Error, Result},
    },
};

impl Txn<'_> {
    /// Appends bytes to a key's string and returns its length; `None` if it would be longer than `len_max`: then it is as it
    /// was. An expiry of the key stays.
    pub fn string_append(
        &mut self,
        db: u8,
        key: &[u8],
        tail: &[u8],
        len_max: usize,
    ) -> Result<Option<usize>> {
        let (target, found) = self.find_string_at(db, key)?;
        let value = self.string_in(target, found)?;
        let (is_new, at) = (value.is_none(), value.map_or(0, StringValue::len));
        let Some(len) = at.checked_add(tail.len()).filter(|&len| len <= len_max) else { return Ok(None) };
        if is_new || !tail.is_empty() {
            self.string_change_in(target, found, len, &[Change { at, bytes: tail }])?;
        }
        Ok(Some(len))
    }

    /// Writes bytes at a place in a key's string, which grows if it must, with zeroes before what is written behind its end,
    /// and returns its length. An expiry of the key stays.
    pub fn string_write(&mut self, db: u8, key: &[u8], at: usize, bytes: &[u8]) -> Result<usize> {
        self.string_change(db, key, 0, &[Change { at, bytes }])
    }
    /// Makes a string of `len` zero bytes with changes the value of a key, whatever it held, and takes away its expiry. Zeroes
    /// of a large one take no memory. Without room for it the key is as it was. Panics if it came to more than [`LEN_MAX`], or a
    /// change ends behind it.
    pub fn string_create(&mut self, db: u8, key: &[u8], len: usize, changes: &[Change]) -> Result<()> {
        assert!(len <= LEN_MAX, "a string of {len} bytes");
        assert!(changes.iter().all(|change| change.end() <= len), "a change ends behind {len} bytes");
        let changed = changes.iter().map(|change| change.bytes.len()).sum::<usize>();
        if len >= LARGE && changed < len {
            self.reserve(string::redo_max(changes.len(), changed, len))?;
            let made = self.replace(db, key, Type::String, Encoding::Chunks, |arena, tx, _, obj| {
                string::write(arena, tx, obj, len, changes)
            });
            // Where the heap has no room, the log may.
            if made != Err(Error::Full) {
                return made;
            }
        }
        let mut value = vec![0; len];
        for change in changes {
            value[change.at..change.end()].copy_from_slice(change.bytes);
        }
        self.set(db, key, &value, false)
    }
}
