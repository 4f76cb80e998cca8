//! Strings and parts of them. [`Txn::set`] and [`Txn::get`] are for whole ones.

pub use crate::collections::string::{Change, LARGE, LEN_MAX};
pub use crate::txn::string_value::StringValue;
use crate::txn::{Txn, error::Result};

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
}
