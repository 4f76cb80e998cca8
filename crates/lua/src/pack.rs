//! The library `struct`: values packed into strings by a format, as Roberto Ierusalimschy's library has it.

use crate::{
    arguments::{number_argument, string_argument},
    interpreter::{Function, Kind, Lua, Raise},
    number,
};

/// Its functions.
pub const FUNCTIONS: &[(&str, Function)] = &[("pack", pack), ("size", size), ("unpack", unpack)];

/// Bytes of the largest integer.
const INTEGER_MAX: usize = 32;
/// The natural alignment.
const ALIGN: usize = 8;

/// One option of a format.
struct Item {
    option: u8,
    size: usize,
    /// Bytes before it.
    padding: usize,
    big: bool,
}

/// Reads a format.
struct Format {
    text: Vec<u8>,
    at: usize,
    big: bool,
    align: usize,
}

impl Format {
    fn of(lua: &Lua) -> Result<Format, Raise> {
        Ok(Format { text: string_argument(lua, 1)?, at: 0, big: cfg!(target_endian = "big"), align: 1 })
    }

    /// The number at this place, or what it is if there is none.
    fn count(&mut self, default: usize) -> Result<usize, Raise> {
        let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).expect("digits");
        self.at += digits;
        text.parse::<i32>().map(|count| count as usize).map_err(|_| "integral size overflow".into())
    }

    /// The next option that stands for a value, `len` bytes behind the beginning.
    fn next(&mut self, len: usize) -> Result<Option<Item>, Raise> {
        while let Some(&option) = self.text.get(self.at) {
            self.at += 1;
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b's' => 0,
                b'c' => self.count(1)?,
                b'i' | b'I' => self.integer_size()?,
                _ => {
                    self.control(option)?;
                    continue;
                }
            };
            let unit = size.min(self.align);
            let padding =
                if size == 0 || option == b'c' { 0 } else { (unit - (len & (unit - 1))) & (unit - 1) };
            return Ok(Some(Item { option, size, padding, big: self.big }));
        }
        Ok(None)
    }

    fn integer_size(&mut self) -> Result<usize, Raise> {
        let size = self.count(4)?;
        if size > INTEGER_MAX {
            return Err(format!("integral size {size} is larger than limit of {INTEGER_MAX}").into());
        }
        Ok(size)
    }

    fn control(&mut self, option: u8) -> Result<(), Raise> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let align = self.count(ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(format!("alignment {align} is not a power of 2").into());
                }
                self.align = align;
            }
            _ => return Err(Raise::Argument(1, format!("invalid format option '{}'", char::from(option)))),
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, little: &[u8], big: bool) {
    out.extend_from_slice(little);
    if big {
        let start = out.len() - little.len();
        out[start..].reverse();
    }
}

fn pack(lua: &mut Lua) -> Result<i32, Raise> {
    let mut format = Format::of(lua)?;
    let (mut out, mut arg) = (Vec::new(), 1);
    while let Some(Item { option, size, padding, big }) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        arg += i32::from(option != b'x');
        match option {
            b'x' => out.push(0),
            b'f' => put(&mut out, &(number_argument(lua, arg)? as f32).to_le_bytes(), big),
            b'd' => put(&mut out, &number_argument(lua, arg)?.to_le_bytes(), big),
            b'c' | b's' => {
                let text = string_argument(lua, arg)?;
                let size = if size == 0 { text.len() } else { size };
                if text.len() < size {
                    return Err(Raise::Argument(arg, "string too short".into()));
                }
                out.extend_from_slice(&text[..size]);
                if option == b's' {
                    out.push(0);
                }
            }
            _ => {
                let value = number_argument(lua, arg)?;
                let value = if value < 0.0 { value as i64 as u64 } else { value as u64 };
                let mut little = [0; INTEGER_MAX];
                little[..8].copy_from_slice(&value.to_le_bytes());
                put(&mut out, &little[..size], big);
            }
        }
    }
    lua.push_bytes(out)?;
    Ok(1)
}

fn unpack(lua: &mut Lua) -> Result<i32, Raise> {
    const TOO_SHORT: &str = "data string too short";
    let mut format = Format::of(lua)?;
    let data = string_argument(lua, 2)?;
    let from = if matches!(lua.kind(3), Kind::None | Kind::Nil) { 1.0 } else { number_argument(lua, 3)? };
    if from < 1.0 {
        return Err(Raise::Argument(3, "offset must be 1 or greater".into()));
    }
    let mut at = number::truncate(from) as usize - 1;
    let mut results = 0;
    let take = |at: usize, size: usize| {
        let bytes = at.checked_add(size).and_then(|end| data.get(at..end));
        bytes.ok_or_else(|| Raise::Argument(2, TOO_SHORT.into()))
    };
    while let Some(Item { option, size, padding, big }) = format.next(at)? {
        at = at.saturating_add(padding);
        let bytes = take(at, size)?;
        lua.descend().map_err(|_| "too many results")?;
        at += size;
        let mut little = [0; INTEGER_MAX];
        if !matches!(option, b'c' | b's' | b'x') {
            little[..size].copy_from_slice(bytes);
            if big {
                little[..size].reverse();
            }
        }
        let word: [u8; 8] = little[..8].try_into().expect("eight bytes");
        match option {
            b'x' => continue,
            b'f' => lua.push_number(f32::from_le_bytes(word[..4].try_into().expect("four bytes")).into())?,
            b'd' => lua.push_number(f64::from_le_bytes(word))?,
            b'c' if size == 0 => {
                let length = if results > 0 { lua.number(-1) } else { None };
                let length = length.ok_or("format 'c0' needs a previous size")?;
                lua.pop(1);
                results -= 1;
                let bytes = take(at, length.max(0.0) as usize)?;
                at += bytes.len();
                lua.push_bytes(bytes)?;
            }
            b'c' => lua.push_bytes(bytes)?,
            b's' => {
                let rest = take(at, data.len().saturating_sub(at))?;
                let end = rest.iter().position(|&b| b == 0);
                let end = end.ok_or("unfinished string in data")?;
                lua.push_bytes(&rest[..end])?;
                at += end + 1;
            }
            _ => {
                let unused = 64 - 8 * size.min(8) as u32;
                let value = u64::from_le_bytes(word);
                if option.is_ascii_uppercase() || unused == 64 {
                    lua.push_number(value as f64)?;
                } else {
                    lua.push_number(((value << unused) as i64 >> unused) as f64)?;
                }
            }
        }
        results += 1;
    }
    lua.push_number(at as f64 + 1.0)?;
    Ok(results + 1)
}

fn size(lua: &mut Lua) -> Result<i32, Raise> {
    let mut format = Format::of(lua)?;
    let mut len = 0;
    while let Some(item) = format.next(len)? {
        match item.option {
            b's' => return Err(Raise::Argument(1, "option 's' has no fixed size".into())),
            b'c' if item.size == 0 => {
                return Err(Raise::Argument(1, "option 'c0' has no fixed size".into()));
            }
            _ => len = len.saturating_add(item.padding + item.size),
        }
    }
    lua.push_number(len as f64)?;
    Ok(1)
}
