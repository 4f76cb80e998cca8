//! The library `cjson`: values as JSON, as lua-cjson has it. Its settings last for one script.

use crate::{
    arguments::string_argument,
    interpreter::{Function, Kind, Lua, PushError, Raise},
    number,
};
use std::{borrow::Cow, cell::Cell};

/// Its functions.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("decode", decode),
    ("decode_invalid_numbers", |lua| setting(lua, |s| &mut s.decode_invalid)),
    ("decode_max_depth", |lua| count_setting(lua, |s| &mut s.decode_depth, 1, i32::MAX)),
    ("encode", encode),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("encode_keep_buffer", |lua| setting(lua, |s| &mut s.keep_buffer)),
    ("encode_max_depth", |lua| count_setting(lua, |s| &mut s.encode_depth, 1, i32::MAX)),
    ("encode_number_precision", |lua| count_setting(lua, |s| &mut s.precision, 1, 14)),
    ("encode_sparse_array", encode_sparse_array),
];

#[derive(Clone, Copy)]
struct Settings {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_depth: i32,
    decode_depth: i32,
    precision: i32,
    encode_invalid: Invalid,
    decode_invalid: bool,
    keep_buffer: bool,
}

/// What becomes of numbers that JSON does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

const DEFAULT: Settings = Settings {
    sparse_convert: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth: 1000,
    decode_depth: 1000,
    precision: 14,
    encode_invalid: Invalid::Refused,
    decode_invalid: true,
    keep_buffer: true,
};

thread_local! {
    static SETTINGS: Cell<Settings> = const { Cell::new(DEFAULT) };
}

/// Forgets what a script has set.
pub fn reset() {
    SETTINGS.set(DEFAULT);
}

/// Adds what is no function to the table on top.
pub fn add_constants(lua: &mut Lua) -> Result<(), PushError> {
    lua.push_null_pointer()?;
    lua.set_field(-2, "null")?;
    for (name, text) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
        lua.push_bytes(text)?;
        lua.set_field(-2, name)?;
    }
    Ok(())
}

fn expect_args(lua: &Lua, most: i32) -> Result<(), Raise> {
    match lua.top() > most {
        true => Err(Raise::Argument(most + 1, "found too many arguments".into())),
        false => Ok(()),
    }
}

fn set_bool(lua: &Lua, index: i32, value: &mut bool) -> Result<(), Raise> {
    match lua.kind(index) {
        Kind::None | Kind::Nil => {}
        Kind::Bool => *value = lua.truth(index),
        _ => match lua.bytes(index) {
            Some(b"off") => *value = false,
            Some(b"on") => *value = true,
            _ => {
                let got = lua.text(index).unwrap_or_default();
                return Err(Raise::Argument(
                    index,
                    format!("invalid option '{}'", String::from_utf8_lossy(&got)),
                ));
            }
        },
    }
    Ok(())
}

fn set_count(lua: &Lua, index: i32, value: &mut i32, min: i32, max: i32) -> Result<(), Raise> {
    if matches!(lua.kind(index), Kind::None | Kind::Nil) {
        return Ok(());
    }
    let count = super::arguments::number_argument(lua, index)?;
    if count < min.into() || count > max.into() {
        return Err(Raise::Argument(index, format!("expected integer between {min} and {max}")));
    }
    *value = count as i32;
    Ok(())
}

fn setting(lua: &mut Lua, of: fn(&mut Settings) -> &mut bool) -> Result<i32, Raise> {
    expect_args(lua, 1)?;
    let mut settings = SETTINGS.get();
    set_bool(lua, 1, of(&mut settings))?;
    SETTINGS.set(settings);
    lua.push_bool(*of(&mut settings))?;
    Ok(1)
}

fn count_setting(lua: &mut Lua, of: fn(&mut Settings) -> &mut i32, min: i32, max: i32) -> Result<i32, Raise> {
    expect_args(lua, 1)?;
    let mut settings = SETTINGS.get();
    set_count(lua, 1, of(&mut settings), min, max)?;
    SETTINGS.set(settings);
    lua.push_number((*of(&mut settings)).into())?;
    Ok(1)
}

fn encode_sparse_array(lua: &mut Lua) -> Result<i32, Raise> {
    expect_args(lua, 3)?;
    let mut settings = SETTINGS.get();
    set_bool(lua, 1, &mut settings.sparse_convert)?;
    set_count(lua, 2, &mut settings.sparse_ratio, 0, i32::MAX)?;
    set_count(lua, 3, &mut settings.sparse_safe, 0, i32::MAX)?;
    SETTINGS.set(settings);
    lua.push_bool(settings.sparse_convert)?;
    lua.push_number(settings.sparse_ratio.into())?;
    lua.push_number(settings.sparse_safe.into())?;
    Ok(3)
}

fn encode_invalid_numbers(lua: &mut Lua) -> Result<i32, Raise> {
    expect_args(lua, 1)?;
    let mut settings = SETTINGS.get();
    settings.encode_invalid = if lua.bytes(1) == Some(b"null") {
        Invalid::Null
    } else {
        let mut written = settings.encode_invalid == Invalid::Written;
        set_bool(lua, 1, &mut written)?;
        match (lua.top(), written) {
            (0, _) => settings.encode_invalid,
            (_, true) => Invalid::Written,
            (_, false) => Invalid::Refused,
        }
    };
    SETTINGS.set(settings);
    match settings.encode_invalid {
        Invalid::Refused => lua.push_bool(false)?,
        Invalid::Written => lua.push_bool(true)?,
        Invalid::Null => lua.push_bytes("null")?,
    }
    Ok(1)
}

fn encode(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() != 1 {
        return Err(Raise::Argument(1, "expected 1 argument".into()));
    }
    let mut out = Vec::new();
    encode_value(lua, &mut out, &SETTINGS.get(), 0)?;
    lua.push_bytes(out)?;
    Ok(1)
}

fn cannot(lua: &Lua, index: i32, why: &str) -> Raise {
    format!("Cannot serialise {}: {why}", lua.kind_name(index)).into()
}

/// Encodes the value on top.
fn encode_value(lua: &mut Lua, out: &mut Vec<u8>, settings: &Settings, depth: i32) -> Result<(), Raise> {
    // A table may be in many places, and so be more than it seems.
    lua.step()?;
    lua.check_memory(out.len())?;
    match lua.kind(-1) {
        Kind::String => encode_string(out, lua.bytes(-1).expect("a string")),
        Kind::Number => encode_number(lua, -1, out, settings)?,
        Kind::Bool => out.extend_from_slice(if lua.truth(-1) { b"true" } else { b"false" }),
        Kind::Nil => out.extend_from_slice(b"null"),
        Kind::Table => {
            let depth = depth + 1;
            if depth > settings.encode_depth || lua.descend().is_err() {
                return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
            }
            match array_length(lua, settings)? {
                Some(length) if length > 0 => encode_array(lua, out, settings, depth, length)?,
                _ => encode_object(lua, out, settings, depth)?,
            }
        }
        _ if lua.is_null_pointer(-1) => out.extend_from_slice(b"null"),
        _ => return Err(cannot(lua, -1, "type not supported")),
    }
    Ok(())
}

/// The greatest key of the table on top, if all are whole numbers above 0.
fn array_length(lua: &mut Lua, settings: &Settings) -> Result<Option<i32>, Raise> {
    let (mut last, mut count) = (0, 0i32);
    lua.push_nil()?;
    while lua.next(-2)? {
        lua.pop(1);
        match lua.number(-1).filter(|_| lua.kind(-1) == Kind::Number) {
            Some(key) if key >= 1.0 && key.fract() == 0.0 && key <= f64::from(i32::MAX) => {
                last = last.max(key as i32);
                count += 1;
            }
            _ => {
                lua.pop(1);
                return Ok(None);
            }
        }
    }
    let is_sparse = settings.sparse_ratio > 0
        && i64::from(last) > i64::from(count) * i64::from(settings.sparse_ratio)
        && last > settings.sparse_safe;
    match (is_sparse, settings.sparse_convert) {
        (false, _) => Ok(Some(last)),
        (true, true) => Ok(None),
        (true, false) => Err(cannot(lua, -1, "excessively sparse array")),
    }
}

fn encode_array(
    lua: &mut Lua,
    out: &mut Vec<u8>,
    settings: &Settings,
    depth: i32,
    length: i32,
) -> Result<(), Raise> {
    out.push(b'[');
    for number in 1..=length {
        if number > 1 {
            out.push(b',');
        }
        lua.get_element(-1, number)?;
        encode_value(lua, out, settings, depth)?;
        lua.pop(1);
    }
    out.push(b']');
    Ok(())
}

fn encode_object(lua: &mut Lua, out: &mut Vec<u8>, settings: &Settings, depth: i32) -> Result<(), Raise> {
    out.push(b'{');
    let mut is_first = true;
    lua.push_nil()?;
    while lua.next(-2)? {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match lua.kind(-2) {
            Kind::Number => {
                out.push(b'"');
                encode_number(lua, -2, out, settings)?;
                out.push(b'"');
            }
            Kind::String => encode_string(out, lua.bytes(-2).expect("a string")),
            _ => return Err(cannot(lua, -2, "table key must be a number or string")),
        }
        out.push(b':');
        encode_value(lua, out, settings, depth)?;
        lua.pop(1);
    }
    out.push(b'}');
    Ok(())
}

fn encode_number(lua: &Lua, index: i32, out: &mut Vec<u8>, settings: &Settings) -> Result<(), Raise> {
    let value = lua.number(index).expect("a number");
    if !value.is_finite() {
        match settings.encode_invalid {
            Invalid::Refused => return Err(cannot(lua, index, "must not be NaN or Inf")),
            Invalid::Null => out.extend_from_slice(b"null"),
            Invalid::Written if value.is_nan() => out.extend_from_slice(b"nan"),
            Invalid::Written => out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" }),
        }
        return Ok(());
    }
    out.extend_from_slice(number::to_significant(value, settings.precision as usize).as_bytes());
    Ok(())
}

fn encode_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1F | 0x7F => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Cow<'a, [u8]>),
    Number(f64),
    Bool(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token<'_> {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Bool(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(what) => what,
        }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the last token begins.
    token_at: usize,
    settings: Settings,
    depth: i32,
}

fn decode(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() != 1 {
        return Err(Raise::Argument(1, "expected 1 argument".into()));
    }
    let text = string_argument(lua, 1)?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut parser = Parser { text: &text, at: 0, token_at: 0, settings: SETTINGS.get(), depth: 0 };
    let token = parser.next();
    parser.value(lua, token)?;
    match parser.next() {
        Token::End => Ok(1),
        other => Err(parser.expected("the end", &other)),
    }
}

impl<'a> Parser<'a> {
    fn expected(&self, what: &str, found: &Token) -> Raise {
        format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1).into()
    }

    /// Pushes the value that begins with a token.
    fn value(&mut self, lua: &mut Lua, token: Token) -> Result<(), Raise> {
        match token {
            Token::String(text) => lua.push_bytes(text)?,
            Token::Number(value) => lua.push_number(value)?,
            Token::Bool(value) => lua.push_bool(value)?,
            Token::Null => lua.push_null_pointer()?,
            Token::ObjectBegin => self.object(lua)?,
            Token::ArrayBegin => self.array(lua)?,
            other => return Err(self.expected("value", &other)),
        }
        Ok(())
    }

    fn descend(&mut self, lua: &mut Lua) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth > self.settings.decode_depth || lua.descend().is_err() {
            return Err(format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            )
            .into());
        }
        Ok(lua.push_table(0, 0)?)
    }

    fn object(&mut self, lua: &mut Lua) -> Result<(), Raise> {
        self.descend(lua)?;
        let mut token = self.next();
        if token != Token::ObjectEnd {
            loop {
                let Token::String(key) = token else {
                    return Err(self.expected("object key string", &token));
                };
                lua.push_bytes(key)?;
                match self.next() {
                    Token::Colon => {}
                    other => return Err(self.expected("colon", &other)),
                }
                let value = self.next();
                self.value(lua, value)?;
                lua.raw_set(-3)?;
                match self.next() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, lua: &mut Lua) -> Result<(), Raise> {
        self.descend(lua)?;
        let mut token = self.next();
        if token != Token::ArrayEnd {
            for number in 1.. {
                self.value(lua, token)?;
                lua.set_element(-2, number)?;
                match self.next() {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn next(&mut self) -> Token<'a> {
        let spaces = self.text[self.at..].iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        self.at += spaces.count();
        self.token_at = self.at;
        let text = self.text;
        let rest = &text[self.at..];
        let (token, len) = match rest.first() {
            None => (Token::End, 0),
            Some(b'{') => (Token::ObjectBegin, 1),
            Some(b'}') => (Token::ObjectEnd, 1),
            Some(b'[') => (Token::ArrayBegin, 1),
            Some(b']') => (Token::ArrayEnd, 1),
            Some(b':') => (Token::Colon, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'"') => return self.string(),
            _ if rest.starts_with(b"true") => (Token::Bool(true), 4),
            _ if rest.starts_with(b"false") => (Token::Bool(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ => match scan_number(rest, self.settings.decode_invalid) {
                Some((value, len)) => (Token::Number(value), len),
                None if matches!(rest[0], b'-' | b'0'..=b'9') => (Token::Wrong("invalid number"), 0),
                None => (Token::Wrong("invalid token"), 0),
            },
        };
        self.at += len;
        token
    }

    fn string(&mut self) -> Token<'a> {
        let start = self.at + 1;
        let text = self.text;
        let plain = text[start..].iter().take_while(|&&b| b != b'"' && b != b'\\').count();
        if text.get(start + plain) == Some(&b'"') {
            self.at = start + plain + 1;
            return Token::String(Cow::Borrowed(&text[start..start + plain]));
        }
        let mut out = text[start..start + plain].to_vec();
        let mut at = start + plain;
        loop {
            let Some(&byte) = text.get(at) else {
                self.token_at = at;
                return Token::Wrong("unexpected end of string");
            };
            match byte {
                b'"' => {
                    self.at = at + 1;
                    return Token::String(Cow::Owned(out));
                }
                b'\\' => {
                    let escaped = match text.get(at + 1) {
                        Some(b'b') => 0x08,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 0x0C,
                        Some(b'r') => b'\r',
                        Some(&same @ (b'"' | b'\\' | b'/')) => same,
                        Some(b'u') => match unicode_escape(&text[at..]) {
                            Some((c, len)) => {
                                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                                at += len;
                                continue;
                            }
                            None => {
                                self.token_at = at;
                                return Token::Wrong("invalid unicode escape code");
                            }
                        },
                        _ => {
                            self.token_at = at;
                            return Token::Wrong("invalid escape code");
                        }
                    };
                    out.push(escaped);
                    at += 2;
                }
                other => {
                    out.push(other);
                    at += 1;
                }
            }
        }
    }
}

/// The character of `\uXXXX`, or of two of them that are a pair of surrogates, and the length.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Some((char::from_u32(first)?, 6));
    }
    let second = unit(6).filter(|second| (0xDC00..0xE000).contains(second))?;
    Some((char::from_u32(0x10000 + ((first & 0x3FF) << 10) + (second & 0x3FF))?, 12))
}

/// The number that a text begins with, as C's `strtod` reads it, and its length. Only `invalid` numbers are not JSON's.
fn scan_number(text: &[u8], invalid: bool) -> Option<(f64, usize)> {
    let signed = text.iter().take(1).filter(|b| matches!(b, b'-' | b'+')).count();
    let body = &text[signed..];
    let negative = text.first() == Some(&b'-');
    let sign = |value: f64| if negative { -value } else { value };
    let digits = |from: usize, is_digit: fn(&u8) -> bool| {
        body.get(from..).unwrap_or_default().iter().take_while(|b| is_digit(b)).count()
    };
    let lower: Vec<u8> = body.iter().take(8).map(u8::to_ascii_lowercase).collect();
    if invalid {
        for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
            if lower.starts_with(word.as_bytes()) {
                return Some((sign(value), signed + word.len()));
            }
        }
        if lower.starts_with(b"0x") {
            let count = digits(2, u8::is_ascii_hexdigit);
            if count > 0 {
                let hex = body[2..2 + count].iter().fold(0.0, |value, &digit| {
                    value * 16.0 + f64::from(char::from(digit).to_digit(16).expect("a digit"))
                });
                return Some((sign(hex), signed + 2 + count));
            }
        }
    } else if text.first() == Some(&b'+')
        || (body.len() > 1 && body[0] == b'0' && matches!(body[1], b'0'..=b'9' | b'x' | b'X'))
    {
        return None;
    }
    let whole = digits(0, u8::is_ascii_digit);
    let mut len = whole;
    if body.get(whole) == Some(&b'.') {
        let fraction = digits(whole + 1, u8::is_ascii_digit);
        if whole + fraction > 0 {
            len = whole + 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(body.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(body.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits(len + 1 + sign, u8::is_ascii_digit);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let value = std::str::from_utf8(&body[..len]).ok()?.parse().ok()?;
    Some((sign(value), signed + len))
}
