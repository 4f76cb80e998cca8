//! What Lua's own libraries do too freely for a server: functions that take the place of theirs, and checks before theirs
//! are called.

use crate::{
    arguments::{number_argument, string_argument, wrong_kind},
    interpreter::{Collector, Guard, Kind, Lua, PushError, Raise, Ref},
    number,
};

/// What is said of a change of what scripts must not change.
pub const READ_ONLY: &str = "Attempt to modify a readonly table";

/// Items of a pattern at each of which Lua's matching may recurse, and captures: with more of them it could run out of
/// its stack.
const PATTERN_ITEMS_MAX: usize = 1000;

/// How far before the beginning of a table `table.insert` may move elements, one by one.
const BEFORE_MAX: f64 = 1e6;

/// Adds them to the libraries in the table at `to`.
pub fn add(lua: &mut Lua, to: i32, stand_ins: Ref) -> Result<(), PushError> {
    lua.get_field(to, "string")?;
    lua.push_function(string_rep)?;
    lua.set_field(-2, "rep")?;
    for name in ["find", "gfind", "gmatch", "gsub", "match"] {
        let guard: Guard = if name == "find" { check_find } else { check_pattern };
        lua.get_field(-1, name)?;
        lua.push_nil()?;
        lua.guard(guard)?;
        lua.set_field(-2, name)?;
    }
    lua.pop(1);
    lua.get_field(to, "table")?;
    for name in ["insert", "remove", "sort"] {
        let guard: Guard = match name {
            "insert" => check_insert,
            "sort" => check_sort,
            _ => check_change,
        };
        lua.get_field(-1, name)?;
        lua.push_ref(stand_ins)?;
        lua.guard(guard)?;
        lua.set_field(-2, name)?;
    }
    lua.pop(1);
    lua.get_field(to, "coroutine")?;
    lua.get_field(-1, "resume")?;
    lua.guard_resume()?;
    lua.set_field(-2, "resume")?;
    lua.get_field(-1, "wrap")?;
    lua.guard_wrap();
    lua.set_field(-2, "wrap")?;
    lua.pop(1);
    Ok(())
}

/// Bytes of a text, and elements of a table, from which on what is done with all of it counts as a long step.
const LONG_TEXT: usize = 64 << 10;
const LONG_TABLE: usize = 10_000;

fn step_over_text(lua: &mut Lua) -> Result<(), Raise> {
    let is_long = lua.bytes(1).is_some_and(|text| text.len() > LONG_TEXT);
    if is_long { lua.long_step() } else { Ok(()) }
}

fn check_pattern(lua: &mut Lua) -> Result<(), Raise> {
    step_over_text(lua)?;
    match lua.bytes(2) {
        Some(pattern) if is_too_complex(pattern) => Err("pattern too complex".into()),
        _ => Ok(()),
    }
}

fn check_find(lua: &mut Lua) -> Result<(), Raise> {
    let is_plain = lua.kind(4) != Kind::None && lua.truth(4);
    if is_plain { step_over_text(lua) } else { check_pattern(lua) }
}

/// Whether a pattern may have too many items at which matching recurses. Those within a set count, too.
fn is_too_complex(pattern: &[u8]) -> bool {
    let (mut items, mut bytes) = (0, pattern.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => drop(bytes.next()),
            b'?' | b'*' | b'+' | b'-' | b'(' | b')' => items += 1,
            _ => {}
        }
    }
    items > PATTERN_ITEMS_MAX
}

/// Refuses to change what scripts must not: see [`super::sandbox`].
fn check_change(lua: &mut Lua) -> Result<(), Raise> {
    if lua.kind(1) != Kind::Table {
        return Ok(());
    }
    lua.push_guarded()?;
    lua.push_copy(1)?;
    lua.raw_get(-2);
    let is_stand_in = lua.kind(-1) == Kind::Table;
    lua.pop(2);
    if is_stand_in { Err(read_only_error(lua)) } else { Ok(()) }
}

fn check_sort(lua: &mut Lua) -> Result<(), Raise> {
    if lua.kind(1) == Kind::Table && lua.table_len(1) > LONG_TABLE {
        lua.long_step()?;
    }
    check_change(lua)
}

fn check_insert(lua: &mut Lua) -> Result<(), Raise> {
    if lua.top() == 3 && lua.number(2).is_some_and(|position| position < -BEFORE_MAX) {
        return Err(Raise::Argument(2, "position out of bounds".into()));
    }
    check_change(lua)
}

/// An argument that must be a number of 32 bits, or may be left out.
fn int_argument(lua: &Lua, number: i32, default: i32) -> Result<i32, Raise> {
    match lua.kind(number) {
        Kind::None | Kind::Nil => Ok(default),
        _ => Ok(number::truncate(number_argument(lua, number)?) as i32),
    }
}

fn string_rep(lua: &mut Lua) -> Result<i32, Raise> {
    let text = string_argument(lua, 1)?;
    let count = number::truncate(number_argument(lua, 2)?) as i32;
    let count = usize::try_from(count).unwrap_or(0);
    let bytes = text.len().saturating_mul(count);
    lua.check_memory(bytes.saturating_mul(2))?;
    if bytes > LONG_TEXT {
        lua.long_step()?;
    }
    lua.push_bytes(text.repeat(count))?;
    Ok(1)
}

/// As Lua's, whose check of the range relies on what C leaves undefined.
pub fn unpack(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.kind(1) != Kind::Table {
        return Err(wrong_kind(lua, 1, "table"));
    }
    let first = int_argument(lua, 2, 1)?;
    let last = match lua.kind(3) {
        Kind::None | Kind::Nil => lua.table_len(1) as i32,
        _ => int_argument(lua, 3, 0)?,
    };
    let count = i64::from(last) - i64::from(first) + 1;
    if count <= 0 {
        return Ok(0);
    }
    let count = i32::try_from(count).map_err(|_| "too many results to unpack")?;
    lua.get_elements(1, first, count).map_err(|_| "too many results to unpack")?;
    Ok(count)
}

/// As Lua's; what it sets lasts for one script.
pub fn collectgarbage(lua: &mut Lua) -> Result<i32, Raise> {
    let option = match lua.kind(1) {
        Kind::None | Kind::Nil => b"collect".to_vec(),
        _ => string_argument(lua, 1)?,
    };
    let what = match option.as_slice() {
        b"stop" => Collector::Stop,
        b"restart" => Collector::Restart,
        b"collect" => Collector::Collect,
        b"count" => Collector::Count,
        b"step" => Collector::Step,
        b"setpause" => Collector::SetPause,
        b"setstepmul" => Collector::SetSpeed,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(Raise::Argument(1, format!("invalid option '{other}'")));
        }
    };
    let value = int_argument(lua, 2, 0)?;
    if matches!(what, Collector::Collect | Collector::Step) {
        lua.long_step()?;
    }
    let result = lua.collector(what, value);
    match what {
        Collector::Step => lua.push_bool(result != 0)?,
        Collector::Count => {
            let rest = lua.collector(Collector::CountRest, 0);
            lua.push_number(f64::from(result) + f64::from(rest) / 1024.0)?;
        }
        _ => lua.push_number(result.into())?,
    }
    Ok(1)
}

/// The same without a place.
pub fn read_only_error(lua: &mut Lua) -> Raise {
    lua.push_bytes(READ_ONLY).map_or_else(Raise::from, |()| Raise::Value)
}
