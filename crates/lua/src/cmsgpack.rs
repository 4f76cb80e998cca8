//! The library `cmsgpack`: values as MessagePack, as lua-cmsgpack has it.

use crate::{
    arguments::string_argument,
    interpreter::{Function, Kind, Lua, PushError, Raise},
    number,
};

/// Its functions.
pub const FUNCTIONS: &[(&str, Function)] =
    &[("pack", pack), ("unpack", unpack_all), ("unpack_limit", unpack_limit), ("unpack_one", unpack_one)];

/// Tables within tables that are packed; what lies deeper is nil.
const PACK_DEPTH_MAX: usize = 16;
/// Levels that are unpacked.
const UNPACK_DEPTH_MAX: usize = 1000;

const BAD: &str = "Bad data format in input.";
const MISSING: &str = "Missing bytes in input.";

/// Adds what is no function to the table on top.
pub fn add_constants(lua: &mut Lua) -> Result<(), PushError> {
    let texts = [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ];
    for (name, text) in texts {
        lua.push_bytes(text)?;
        lua.set_field(-2, name)?;
    }
    Ok(())
}

fn pack(lua: &mut Lua) -> Result<i32, Raise> {
    let count = lua.top();
    if count == 0 {
        return Err(Raise::Argument(0, "MessagePack pack needs input.".into()));
    }
    lua.descend().map_err(|_| "Too many arguments for MessagePack pack.")?;
    let mut out = Vec::new();
    for index in 1..=count {
        lua.push_copy(index)?;
        pack_value(lua, &mut out, 0)?;
        lua.pop(1);
    }
    lua.push_bytes(out)?;
    Ok(1)
}

/// Packs the value on top.
fn pack_value(lua: &mut Lua, out: &mut Vec<u8>, depth: usize) -> Result<(), Raise> {
    // A table may be in many places, and so be more than it seems.
    lua.step()?;
    lua.check_memory(out.len())?;
    match lua.kind(-1) {
        Kind::String => pack_bytes(out, lua.bytes(-1).expect("a string")),
        Kind::Bool => out.push(if lua.truth(-1) { 0xC3 } else { 0xC2 }),
        Kind::Number => pack_number(out, lua.number(-1).expect("a number")),
        Kind::Table if depth < PACK_DEPTH_MAX && lua.descend().is_ok() => pack_table(lua, out, depth)?,
        _ => out.push(0xC0),
    }
    Ok(())
}

/// A length, in the shortest form that there is for it: within the first byte, or in bytes behind it.
fn pack_length(out: &mut Vec<u8>, length: usize, fixed: (u8, usize), byte: Option<u8>, half: u8, word: u8) {
    if length < fixed.1 {
        out.push(fixed.0 | length as u8);
    } else if let (Some(byte), Ok(length)) = (byte, u8::try_from(length)) {
        out.extend_from_slice(&[byte, length]);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(half);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(word);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

fn pack_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    pack_length(out, bytes.len(), (0xA0, 32), Some(0xD9), 0xDA, 0xDB);
    out.extend_from_slice(bytes);
}

fn pack_number(out: &mut Vec<u8>, value: f64) {
    let Some(integer) = number::to_integer(value) else {
        if f64::from(value as f32) == value {
            out.push(0xCA);
            out.extend_from_slice(&(value as f32).to_be_bytes());
        } else {
            out.push(0xCB);
            out.extend_from_slice(&value.to_be_bytes());
        }
        return;
    };
    let bytes = integer.to_be_bytes();
    let (kind, len) = match integer {
        -32..=127 => return out.push(integer as u8),
        128..=0xFF => (0xCC, 1),
        0x100..=0xFFFF => (0xCD, 2),
        0x1_0000..=0xFFFF_FFFF => (0xCE, 4),
        0x1_0000_0000.. => (0xCF, 8),
        -0x80..=-33 => (0xD0, 1),
        -0x8000..=-0x81 => (0xD1, 2),
        -0x8000_0000..=-0x8001 => (0xD2, 4),
        _ => (0xD3, 8),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[8 - len..]);
}

fn pack_table(lua: &mut Lua, out: &mut Vec<u8>, depth: usize) -> Result<(), Raise> {
    let (mut count, mut is_array, mut last) = (0usize, true, 0.0f64);
    lua.push_nil()?;
    while lua.next(-2)? {
        lua.pop(1);
        count += 1;
        match lua.number(-1).filter(|_| lua.kind(-1) == Kind::Number) {
            Some(key) if key >= 1.0 && key.fract() == 0.0 => last = last.max(key),
            _ => is_array = false,
        }
    }
    if is_array && last == count as f64 {
        pack_length(out, count, (0x90, 16), None, 0xDC, 0xDD);
        for number in 1..=count {
            lua.get_element(-1, number as i32)?;
            pack_value(lua, out, depth + 1)?;
            lua.pop(1);
        }
        return Ok(());
    }
    pack_length(out, count, (0x80, 16), None, 0xDE, 0xDF);
    lua.push_nil()?;
    while lua.next(-2)? {
        lua.push_copy(-2)?;
        pack_value(lua, out, depth + 1)?;
        lua.pop(1);
        pack_value(lua, out, depth + 1)?;
        lua.pop(1);
    }
    Ok(())
}

fn unpack_all(lua: &mut Lua) -> Result<i32, Raise> {
    unpack(lua, 0.0, 0.0)
}

fn unpack_one(lua: &mut Lua) -> Result<i32, Raise> {
    let offset = lua.number(2).unwrap_or(0.0);
    unpack(lua, 1.0, offset)
}

fn unpack_limit(lua: &mut Lua) -> Result<i32, Raise> {
    let limit = super::arguments::number_argument(lua, 2)?;
    let offset = lua.number(3).unwrap_or(0.0);
    unpack(lua, limit, offset)
}

/// Unpacks up to `limit` values from `offset` on (0: all), and returns in front of them where it has stopped, or -1 at the
/// end, if there is a limit.
fn unpack(lua: &mut Lua, limit: f64, offset: f64) -> Result<i32, Raise> {
    let input = string_argument(lua, 1)?;
    let (limit, offset) = (limit.trunc(), offset.trunc());
    if offset < 0.0 || limit < 0.0 {
        return Err(format!("Invalid request to unpack with offset of {offset} and limit of {limit}.").into());
    }
    let mut rest = input
        .get(offset as usize..)
        .ok_or_else(|| format!("Start offset {offset} greater than input length {}.", input.len()))?;
    lua.clear();
    let mut count = 0;
    while !rest.is_empty() && (limit == 0.0 || f64::from(count) < limit) {
        unpack_value(lua, &mut rest, 0)?;
        count += 1;
        lua.descend().map_err(|_| "Too many values in input.")?;
    }
    if limit > 0.0 {
        let at = if rest.is_empty() { -1.0 } else { (input.len() - rest.len()) as f64 };
        lua.push_number(at)?;
        lua.insert(1);
        count += 1;
    }
    Ok(count)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Raise> {
    let (taken, left) = rest.split_at_checked(len).ok_or(MISSING)?;
    *rest = left;
    Ok(taken)
}

/// An unsigned number of so many bytes.
fn take_number(rest: &mut &[u8], len: usize) -> Result<u64, Raise> {
    Ok(take(rest, len)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn unpack_value(lua: &mut Lua, rest: &mut &[u8], depth: usize) -> Result<(), Raise> {
    if depth > UNPACK_DEPTH_MAX || lua.descend().is_err() {
        return Err("Too many nested values in input.".into());
    }
    let kind = take(rest, 1)?[0];
    match kind {
        0x00..=0x7F => lua.push_number(kind.into())?,
        0xE0..=0xFF => lua.push_number((kind as i8).into())?,
        0xC0 => lua.push_nil()?,
        0xC2 | 0xC3 => lua.push_bool(kind == 0xC3)?,
        0xCA => lua.push_number(f32::from_bits(take_number(rest, 4)? as u32).into())?,
        0xCB => lua.push_number(f64::from_bits(take_number(rest, 8)?))?,
        0xCC..=0xCF => {
            let value = take_number(rest, 1 << (kind - 0xCC))?;
            // As in Redis, one of 64 bits is signed, too.
            lua.push_number(value as i64 as f64)?;
        }
        0xD0..=0xD3 => {
            let len = 1 << (kind - 0xD0);
            let unused = 64 - 8 * len as u32;
            let value = take_number(rest, len)?;
            lua.push_number(((value << unused) as i64 >> unused) as f64)?;
        }
        0xA0..=0xBF | 0xC4..=0xC6 | 0xD9..=0xDB => {
            let len = match kind {
                0xC4 | 0xD9 => take_number(rest, 1)?,
                0xC5 | 0xDA => take_number(rest, 2)?,
                0xC6 | 0xDB => take_number(rest, 4)?,
                _ => u64::from(kind & 0x1F),
            };
            lua.push_bytes(take(rest, len as usize)?)?;
        }
        0x90..=0x9F | 0xDC | 0xDD => {
            let len = match kind {
                0xDC => take_number(rest, 2)?,
                0xDD => take_number(rest, 4)?,
                _ => u64::from(kind & 0x0F),
            };
            lua.push_table(0, 0)?;
            for number in 1..=len {
                unpack_value(lua, rest, depth + 1)?;
                lua.set_element(-2, number as i32)?;
            }
        }
        0x80..=0x8F | 0xDE | 0xDF => {
            let len = match kind {
                0xDE => take_number(rest, 2)?,
                0xDF => take_number(rest, 4)?,
                _ => u64::from(kind & 0x0F),
            };
            lua.push_table(0, 0)?;
            for _ in 0..len {
                unpack_value(lua, rest, depth + 1)?;
                unpack_value(lua, rest, depth + 1)?;
                match lua.number(-2) {
                    _ if lua.kind(-2) == Kind::Nil => return Err(BAD.into()),
                    Some(key) if key.is_nan() => return Err(BAD.into()),
                    _ => lua.raw_set(-3)?,
                }
            }
        }
        _ => return Err(BAD.into()),
    }
    Ok(())
}
