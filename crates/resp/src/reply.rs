//! The client's side: writing commands, reading replies.

use crate::integer::parse_int;
use std::fmt;

/// Aggregates in aggregates deeper than this are refused.
const DEPTH_MAX: usize = 64;

/// A reply of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Simple(Vec<u8>),
    /// `-ERR …`.
    Error(Vec<u8>),
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// No value, in any of its three spellings.
    Null,
    /// A truth value.
    Bool(bool),
    /// A floating-point number.
    Double(f64),
    /// Decimal digits.
    BigNumber(Vec<u8>),
    /// A text with its three letters of format.
    Verbatim([u8; 3], Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// Pairs in the order sent.
    Map(Vec<(Reply, Reply)>),
    /// A set.
    Set(Vec<Reply>),
    /// A message that answers no command.
    Push(Vec<Reply>),
}

/// What the server sent is not RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadReply;

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server's reply is not RESP")
    }
}

impl std::error::Error for BadReply {}

impl Reply {
    /// Reads the reply at the start of `buf`; returns it and its length in bytes, or `None` if it is not complete.
    pub fn parse(buf: &[u8]) -> Result<Option<(Reply, usize)>, BadReply> {
        let mut cursor = Cursor { buf, pos: 0 };
        Ok(cursor.reply(0)?.map(|reply| (reply, cursor.pos)))
    }

    /// The text of a string of any kind.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(text) | Reply::Bulk(text) | Reply::BigNumber(text) | Reply::Verbatim(_, text) => {
                Some(text)
            }
            _ => None,
        }
    }
}

/// The length in bytes of the reply at the start of `buf`, or `None` if it is not complete. Allocates nothing.
pub fn skip_reply(buf: &[u8]) -> Result<Option<usize>, BadReply> {
    let mut cursor = Cursor { buf, pos: 0 };
    let mut left: u64 = 1;
    while left > 0 {
        let Some((kind, line)) = cursor.line()? else { return Ok(None) };
        left -= 1;
        match kind {
            b'$' | b'=' | b'!' => {
                if let Some(len) = length(line)?
                    && cursor.take(len)?.is_none()
                {
                    return Ok(None);
                }
            }
            b'*' | b'~' | b'>' => left += length(line)?.unwrap_or(0) as u64,
            b'%' => left += 2 * length(line)?.unwrap_or(0) as u64,
            b'|' => left += 2 * length(line)?.unwrap_or(0) as u64 + 1,
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            _ => return Err(BadReply),
        }
    }
    Ok(Some(cursor.pos))
}

/// Appends a command as an array of bulk strings.
pub fn write_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(b"\r\n$");
        out.extend_from_slice(digits.format(arg.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
    }
    out.extend_from_slice(b"\r\n");
}

struct Cursor<'a> {
    buf: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    /// The type byte and the rest of the next line, if it is complete.
    fn line(&mut self) -> Result<Option<(u8, &'a [u8])>, BadReply> {
        let rest = &self.buf[self.pos..];
        let Some(end) = rest.iter().position(|&b| b == b'\n') else { return Ok(None) };
        let [kind, line @ .., b'\r', b'\n'] = &rest[..=end] else { return Err(BadReply) };
        self.pos += end + 1;
        Ok(Some((*kind, line)))
    }

    /// The next `len` bytes and their line break, if they are complete.
    fn take(&mut self, len: usize) -> Result<Option<&'a [u8]>, BadReply> {
        let rest = &self.buf[self.pos..];
        if rest.len() < 2 || rest.len() - 2 < len {
            return Ok(None);
        }
        if rest[len..len + 2] != *b"\r\n" {
            return Err(BadReply);
        }
        self.pos += len + 2;
        Ok(Some(&rest[..len]))
    }

    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, BadReply> {
        if depth > DEPTH_MAX {
            return Err(BadReply);
        }
        let Some((kind, line)) = self.line()? else { return Ok(None) };
        Ok(Some(match kind {
            b'+' => Reply::Simple(line.to_vec()),
            b'-' => Reply::Error(line.to_vec()),
            b':' => Reply::Int(parse_int(line).ok_or(BadReply)?),
            b'(' => Reply::BigNumber(line.to_vec()),
            b'_' => Reply::Null,
            b'#' => match line {
                b"t" => Reply::Bool(true),
                b"f" => Reply::Bool(false),
                _ => return Err(BadReply),
            },
            b',' => {
                let text = std::str::from_utf8(line).map_err(|_| BadReply)?;
                Reply::Double(text.parse().map_err(|_| BadReply)?)
            }
            b'$' | b'=' | b'!' => {
                let Some(len) = length(line)? else { return Ok(Some(Reply::Null)) };
                let Some(text) = self.take(len)? else { return Ok(None) };
                match (kind, text) {
                    (b'$', _) => Reply::Bulk(text.to_vec()),
                    (b'!', _) => Reply::Error(text.to_vec()),
                    (_, [a, b, c, b':', text @ ..]) => Reply::Verbatim([*a, *b, *c], text.to_vec()),
                    _ => return Err(BadReply),
                }
            }
            b'*' | b'~' | b'>' => {
                let Some(len) = length(line)? else { return Ok(Some(Reply::Null)) };
                let Some(items) = self.replies(len, depth)? else { return Ok(None) };
                match kind {
                    b'*' => Reply::Array(items),
                    b'~' => Reply::Set(items),
                    _ => Reply::Push(items),
                }
            }
            b'%' => {
                let len = length(line)?.ok_or(BadReply)?;
                let Some(pairs) = self.pairs(len, depth)? else { return Ok(None) };
                Reply::Map(pairs)
            }
            b'|' => {
                // Attributes may be ignored; the reply itself follows.
                let len = length(line)?.ok_or(BadReply)?;
                let Some(_) = self.pairs(len, depth)? else { return Ok(None) };
                return self.reply(depth + 1);
            }
            _ => return Err(BadReply),
        }))
    }

    fn replies(&mut self, len: usize, depth: usize) -> Result<Option<Vec<Reply>>, BadReply> {
        // An announced length reserves no memory: elements are pushed as they are found.
        let mut items = Vec::new();
        for _ in 0..len {
            let Some(item) = self.reply(depth + 1)? else { return Ok(None) };
            items.push(item);
        }
        Ok(Some(items))
    }

    fn pairs(&mut self, len: usize, depth: usize) -> Result<Option<Vec<(Reply, Reply)>>, BadReply> {
        let mut pairs = Vec::new();
        for _ in 0..len {
            let Some(key) = self.reply(depth + 1)? else { return Ok(None) };
            let Some(value) = self.reply(depth + 1)? else { return Ok(None) };
            pairs.push((key, value));
        }
        Ok(Some(pairs))
    }
}

/// An announced length; `None` for RESP2's null, -1.
fn length(line: &[u8]) -> Result<Option<usize>, BadReply> {
    match parse_int(line) {
        Some(-1) => Ok(None),
        Some(len) => u32::try_from(len).map(|len| Some(len as usize)).map_err(|_| BadReply),
        None => Err(BadReply),
    }
}
