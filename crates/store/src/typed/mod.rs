//! What a transaction does with collections and parts of strings: one file per type.
//!
//! An operation makes the key's object when it is missing, removes the key when its object becomes empty, and fails
//! with [`Error::WrongType`](crate::txn::error::Error::WrongType) before it changes anything. One that fails with
//! [`Error::Full`](crate::txn::error::Error::Full) may have changed what it says, and never leaves an empty object; none fails so
//! for which [`Txn::expect`] has found room. Only streams may be empty.

pub mod bitmap;
pub mod geo;
pub mod graph;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod set;
pub mod stream;
pub mod string;
pub mod zset;
pub mod zset_algebra;

use crate::{
    collections::{object, serial},
    format::entry_word::Type,
    txn::{Txn, error::Result},
};

impl Txn<'_> {
    /// How a key's collection of a type is laid out, by the name that `OBJECT ENCODING` replies.
    pub fn encoding(&mut self, db: u8, key: &[u8], ty: Type) -> Result<Option<&'static str>> {
        let located = self.object(db, key, ty)?;
        Ok(located.map(|located| object::encoding(self.parts(key, located).0, located.obj).name()))
    }

    /// The heap offset of a key's collection of a type, and how many bytes it takes where it is serialized.
    pub fn serialized(&mut self, db: u8, key: &[u8], ty: Type) -> Result<Option<(u64, usize)>> {
        let Some(located) = self.object(db, key, ty)? else { return Ok(None) };
        let (arena, context) = self.parts(key, located);
        let mut bytes = Vec::new();
        serial::export(arena, context, located.obj, &mut bytes);
        Ok(Some((located.obj, bytes.len())))
    }
}
