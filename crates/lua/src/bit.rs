//! The library `bit`: operations on 32 bits, as LuaBitOp has them.

use crate::{
    arguments::number_argument,
    interpreter::{Function, Kind, Lua, Raise},
};

/// Its functions.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("arshift", |lua| shift(lua, |bits, by| bits >> by)),
    ("band", |lua| fold(lua, |a, b| a & b)),
    ("bnot", |lua| unary(lua, |bits| !bits)),
    ("bor", |lua| fold(lua, |a, b| a | b)),
    ("bswap", |lua| unary(lua, i32::swap_bytes)),
    ("bxor", |lua| fold(lua, |a, b| a ^ b)),
    ("lshift", |lua| shift(lua, |bits, by| ((bits as u32) << by) as i32)),
    ("rol", |lua| shift(lua, i32::rotate_left)),
    ("ror", |lua| shift(lua, i32::rotate_right)),
    ("rshift", |lua| shift(lua, |bits, by| (bits as u32 >> by) as i32)),
    ("tobit", |lua| unary(lua, |bits| bits)),
    ("tohex", tohex),
];

fn bits(lua: &Lua, number: i32) -> Result<i32, Raise> {
    let value = number_argument(lua, number)?.round_ties_even();
    Ok(value.rem_euclid(4_294_967_296.0) as u64 as u32 as i32)
}

fn unary(lua: &mut Lua, f: fn(i32) -> i32) -> Result<i32, Raise> {
    let result = f(bits(lua, 1)?);
    lua.push_number(result.into())?;
    Ok(1)
}

fn fold(lua: &mut Lua, f: fn(i32, i32) -> i32) -> Result<i32, Raise> {
    let mut result = bits(lua, 1)?;
    for number in 2..=lua.top() {
        result = f(result, bits(lua, number)?);
    }
    lua.clear();
    lua.push_number(result.into())?;
    Ok(1)
}

fn shift(lua: &mut Lua, f: fn(i32, u32) -> i32) -> Result<i32, Raise> {
    let result = f(bits(lua, 1)?, bits(lua, 2)? as u32 & 31);
    lua.push_number(result.into())?;
    Ok(1)
}

fn tohex(lua: &mut Lua) -> Result<i32, Raise> {
    let value = bits(lua, 1)?;
    let digits = if lua.kind(2) == Kind::None { 8 } else { bits(lua, 2)? };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let count = digits.unsigned_abs().min(8) as usize;
    lua.push_bytes(&text[8 - count..])?;
    Ok(1)
}
