//! Replies of commands as values of Lua, and values as replies.

use crate::{
    host::{Host, push_error},
    interpreter::{Kind, Lua, PushError, Raise},
    number,
};
use holdfast_resp::{Proto, Writer, parse_double, parse_int};

/// Pushes the value of a reply, which must be one of this server's own.
pub fn push_reply(lua: &mut Lua, reply: &[u8]) -> Result<(), PushError> {
    push_value(lua, &mut Reader { rest: reply })
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| b == b'\r').expect("a whole reply");
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 2..];
        line
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let bytes = &self.rest[..len];
        self.rest = &self.rest[len + 2..];
        bytes
    }
}

fn push_value(lua: &mut Lua, reader: &mut Reader) -> Result<(), PushError> {
    let line = reader.line();
    let (kind, line) = line.split_first().expect("a type");
    let count = || parse_int(line).unwrap_or(-1);
    match kind {
        b'+' => push_field(lua, "ok", line)?,
        b'-' => match line.contains(&b' ') {
            true => push_error(lua, line, true)?,
            false => push_error(lua, &[b"ERR ", line].concat(), true)?,
        },
        b':' => lua.push_number(count() as f64)?,
        b'$' => match usize::try_from(count()) {
            Ok(len) => lua.push_bytes(reader.bytes(len))?,
            Err(_) => lua.push_bool(false)?,
        },
        b'*' | b'>' => match usize::try_from(count()) {
            Ok(len) => {
                lua.push_table(len, 0)?;
                for number in 1..=len {
                    push_value(lua, reader)?;
                    lua.set_element(-2, number as i32)?;
                }
            }
            Err(_) => lua.push_bool(false)?,
        },
        b'%' => {
            begin(lua)?;
            for _ in 0..count() {
                push_value(lua, reader)?;
                push_value(lua, reader)?;
                lua.raw_set(-3)?;
            }
            lua.set_field(-2, "map")?;
        }
        b'~' => {
            begin(lua)?;
            for _ in 0..count() {
                push_value(lua, reader)?;
                lua.push_bool(true)?;
                lua.raw_set(-3)?;
            }
            lua.set_field(-2, "set")?;
        }
        b'|' => {
            // Scripts do not see attributes, only what they belong to.
            for _ in 0..2 * count() {
                push_value(lua, reader)?;
                lua.pop(1);
            }
            push_value(lua, reader)?;
        }
        b'_' => lua.push_nil()?,
        b'#' => lua.push_bool(line == b"t")?,
        b',' => {
            lua.push_table(0, 1)?;
            lua.push_number(parse_double(line).unwrap_or(f64::NAN))?;
            lua.set_field(-2, "double")?;
        }
        b'(' => push_field(lua, "big_number", line)?,
        b'=' => {
            let text = reader.bytes(usize::try_from(count()).expect("a length"));
            begin(lua)?;
            lua.push_bytes(&text[..3])?;
            lua.set_field(-2, "format")?;
            lua.push_bytes(&text[4..])?;
            lua.set_field(-2, "string")?;
            lua.set_field(-2, "verbatim_string")?;
        }
        other => unreachable!("a reply of type {other}"),
    }
    Ok(())
}

/// Pushes a table with one string in it.
fn push_field(lua: &mut Lua, name: &str, text: &[u8]) -> Result<(), PushError> {
    lua.push_table(0, 1)?;
    lua.push_bytes(text)?;
    lua.set_field(-2, name)
}

/// Pushes a table and another one that is to become its field.
fn begin(lua: &mut Lua) -> Result<(), PushError> {
    lua.push_table(0, 1)?;
    lua.push_table(0, 0)
}

/// Writes the value on top as a reply, and takes it off. An error leaves a part of it, and values on the stack.
pub fn write_reply(lua: &mut Lua, host: &mut dyn Host, out: &mut Writer) -> Result<(), Raise> {
    let start = out.written().len();
    write_value(lua, host, out, &mut Progress { start, values: 0 })
}

/// How far a reply is written.
struct Progress {
    /// Where it begins.
    start: usize,
    values: usize,
}

/// Values of a reply between two ticks.
const TICK: usize = 10_000;

fn write_value(
    lua: &mut Lua,
    host: &mut dyn Host,
    out: &mut Writer,
    progress: &mut Progress,
) -> Result<(), Raise> {
    // A table may be in many places, and so be more than it seems.
    progress.values += 1;
    if progress.values.is_multiple_of(TICK) {
        host.tick().map_err(Raise::from)?;
    }
    lua.check_memory(out.written().len() - progress.start)?;
    if lua.descend().is_err() {
        lua.pop(1);
        out.error("ERR reached lua stack limit");
        return Ok(());
    }
    match lua.kind(-1) {
        Kind::String => out.bulk(lua.bytes(-1).expect("a string")),
        Kind::Number => out.int(number::truncate(lua.number(-1).expect("a number"))),
        Kind::Bool => match (host.proto(), lua.truth(-1)) {
            (Proto::Resp3, value) => out.bool(value),
            (Proto::Resp2, true) => out.int(1),
            (Proto::Resp2, false) => out.null(),
        },
        Kind::Table => write_table(lua, host, out, progress)?,
        _ => out.null(),
    }
    lua.pop(1);
    Ok(())
}

/// Counts the error at an index, unless it is one of a command that the script has called: that is counted.
pub fn count_error(lua: &mut Lua, index: i32, host: &mut dyn Host) -> Result<(), PushError> {
    lua.get_field(index, "ignore_error_stats_update")?;
    let is_counted = lua.truth(-1);
    lua.pop(1);
    lua.get_field(index, "err")?;
    if !is_counted {
        host.count_error(lua.bytes(-1).unwrap_or_default());
    }
    lua.pop(1);
    Ok(())
}

/// Without line breaks.
fn on_one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }).collect()
}

fn write_table(
    lua: &mut Lua,
    host: &mut dyn Host,
    out: &mut Writer,
    progress: &mut Progress,
) -> Result<(), Raise> {
    let top = lua.top();
    lua.get_field(-1, "err")?;
    if let Some(text) = lua.bytes(-1) {
        out.error(text);
        count_error(lua, -2, host)?;
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    lua.get_field(-1, "ok")?;
    if let Some(text) = lua.bytes(-1) {
        out.simple(on_one_line(text));
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    lua.get_field(-1, "double")?;
    if lua.kind(-1) == Kind::Number {
        out.double(lua.number(-1).expect("a number"));
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    lua.get_field(-1, "big_number")?;
    if let Some(text) = lua.bytes(-1) {
        out.big_number(on_one_line(text));
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    lua.get_field(-1, "verbatim_string")?;
    if lua.kind(-1) == Kind::Table {
        lua.get_field(-1, "format")?;
        lua.get_field(-2, "string")?;
        if let (Some(format), Some(text)) = (lua.bytes(-2), lua.bytes(-1)) {
            let letters = format.iter().filter(|b| b.is_ascii_graphic()).map(|&b| char::from(b));
            let format: String = letters.chain([' '; 3]).take(3).collect();
            out.verbatim(&format, text);
            lua.pop(3);
            return Ok(());
        }
        lua.pop(2);
    }
    lua.pop(1);
    lua.get_field(-1, "map")?;
    if lua.kind(-1) == Kind::Table {
        let (place, mut len) = (out.defer(), 0);
        lua.push_nil()?;
        while lua.next(-2)? {
            lua.push_copy(-2)?;
            write_value(lua, host, out, progress)?;
            write_value(lua, host, out, progress)?;
            len += 1;
        }
        out.set_map(place, len);
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    lua.get_field(-1, "set")?;
    if lua.kind(-1) == Kind::Table {
        let (place, mut len) = (out.defer(), 0);
        lua.push_nil()?;
        while lua.next(-2)? {
            lua.pop(1);
            lua.push_copy(-1)?;
            write_value(lua, host, out, progress)?;
            len += 1;
        }
        out.set_set(place, len);
        lua.pop(1);
        return Ok(());
    }
    lua.pop(1);
    debug_assert_eq!(lua.top(), top);
    write_array(lua, host, out, progress)
}

fn write_array(
    lua: &mut Lua,
    host: &mut dyn Host,
    out: &mut Writer,
    progress: &mut Progress,
) -> Result<(), Raise> {
    // Up to the first element that is not there.
    let mut len = 0;
    loop {
        lua.get_element(-1, len + 1)?;
        let is_end = lua.kind(-1) == Kind::Nil;
        lua.pop(1);
        if is_end {
            break;
        }
        len += 1;
    }
    out.array(len as usize);
    for number in 1..=len {
        lua.get_element(-1, number)?;
        write_value(lua, host, out, progress)?;
    }
    Ok(())
}
