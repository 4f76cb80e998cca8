//! What functions for scripts expect of their arguments.

use crate::interpreter::{Lua, Raise};

/// An argument that must be a string, or a number, which is then written as one.
pub fn string_argument(lua: &Lua, number: i32) -> Result<Vec<u8>, Raise> {
    lua.text(number).ok_or_else(|| wrong_kind(lua, number, "string"))
}

/// An argument that must be a number.
pub fn number_argument(lua: &Lua, number: i32) -> Result<f64, Raise> {
    lua.number(number).ok_or_else(|| wrong_kind(lua, number, "number"))
}

/// The error of an argument of a wrong type.
pub fn wrong_kind(lua: &Lua, number: i32, expected: &str) -> Raise {
    Raise::Argument(number, format!("{expected} expected, got {}", lua.kind_name(number)))
}
