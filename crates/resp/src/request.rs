//! Finding commands in what a client sent: arrays of bulk strings, or inline lines.
//!
//! The limits and the texts of errors are those of Redis 7, and so is its leniency: the byte after a `\r` and the two
//! bytes after a bulk string are not looked at.

use crate::{
    args::{Args, Span},
    integer::parse_int,
    line::split_line,
};
use std::fmt;

/// The longest inline command and the longest length line, in bytes.
const LINE_MAX: usize = 64 * 1024;
/// Arguments that a client may send before it has authenticated.
const UNAUTHENTICATED_ARGS: i64 = 10;
/// Bytes that an argument may have before the client has authenticated.
const UNAUTHENTICATED_BULK: i64 = 16 * 1024;
/// A list of arguments that grew beyond this is given back after the command.
const SPANS_KEPT: usize = 1024;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest argument, in bytes (`proto-max-bulk-len`).
    pub max_bulk_len: i64,
    /// Whether the client still has to authenticate.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_bulk_len: 512 << 20, unauthenticated: false }
    }
}

/// The client does not speak RESP; it gets this as its last reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProtocolError {
    BigInlineRequest,
    UnbalancedQuotes,
    BigMultibulkCount,
    MultibulkLength,
    UnauthenticatedMultibulkLength,
    BigBulkCount,
    BulkLength,
    UnauthenticatedBulkLength,
    ExpectedDollar(u8),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            ProtocolError::BigInlineRequest => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::BigMultibulkCount => "too big mbulk count string",
            ProtocolError::MultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::BigBulkCount => "too big bulk count string",
            ProtocolError::BulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedDollar(got) => {
                return write!(f, "expected '$', got '{}'", char::from(*got));
            }
        })
    }
}

impl std::error::Error for ProtocolError {}

/// An incremental parser. It remembers how far it got in a command that is not complete yet, so that no byte is
/// looked at twice however the input is cut.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// Bytes of the command that are understood.
    pos: usize,
    /// Bytes, from `pos` on, that are known to hold no end of line.
    scanned: usize,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first byte of a command, or after one that is complete.
    #[default]
    Start,
    Inline,
    /// Expecting `*<count>`.
    Count,
    /// Expecting `$<length>` of the next of `left` arguments.
    Length {
        left: u32,
    },
    /// Expecting `len` bytes, the first of `left` arguments.
    Bulk {
        left: u32,
        len: usize,
    },
}

/// A line that should be a number after its first byte.
enum Number {
    /// The number and where the next line starts.
    Is(i64, usize),
    Incomplete,
    TooLong,
    Invalid,
}

impl Parser {
    /// A parser before its first command.
    pub fn new() -> Self {
        Parser::default()
    }

    /// Goes on parsing the command that starts at `buf[0]`, of which earlier calls may have seen a shorter prefix.
    /// Returns how many bytes it takes once it is complete, `None` if more are needed. The command may be empty (a
    /// blank line, `*0`); it is to be skipped. After an error the parser must not be used again.
    ///
    /// Inline commands are unescaped in place.
    #[inline]
    pub fn parse(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.state == State::Start {
            match buf.first() {
                None => return Ok(None),
                Some(b'*') => self.state = State::Count,
                Some(_) => self.state = State::Inline,
            }
            self.pos = 0;
            self.spans.clear();
            if self.spans.capacity() > SPANS_KEPT {
                self.spans.shrink_to(0);
            }
        }
        match self.state {
            State::Inline => self.inline(buf),
            _ => self.multibulk(buf, limits),
        }
    }

    /// The arguments of the command that [`Parser::parse`] has just completed at the start of `buf`.
    pub fn args<'a>(&'a self, buf: &'a [u8]) -> Args<'a> {
        Args::new(buf, &self.spans)
    }

    /// How many bytes the command has at least, as far as is known: where an announced argument ends.
    pub fn needed(&self) -> usize {
        match self.state {
            State::Bulk { len, .. } => self.pos + len + 2,
            State::Count | State::Length { .. } => self.pos + self.scanned + 2,
            State::Start | State::Inline => self.scanned + 1,
        }
    }

    /// How many bytes of the command are understood; once it is complete, its length.
    pub fn length(&self) -> usize {
        self.pos
    }

    /// Whether a command has begun and is not complete.
    pub fn is_partial(&self) -> bool {
        self.state != State::Start
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    fn inline(&mut self, buf: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(newline) = buf[self.scanned..].iter().position(|&b| b == b'\n') else {
            self.scanned = buf.len();
            return if buf.len() > LINE_MAX { Err(ProtocolError::BigInlineRequest) } else { Ok(None) };
        };
        let newline = self.scanned + newline;
        split_line(&mut buf[..newline], &mut self.spans).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.scanned = 0;
        self.state = State::Start;
        self.pos = newline + 1;
        Ok(Some(self.pos))
    }

    fn multibulk(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let mut state = self.state;
        let mut pos = self.pos;
        loop {
            match state {
                State::Count => match self.number(buf, pos) {
                    Number::Is(count, next) => {
                        if count > i64::from(i32::MAX) {
                            return Err(ProtocolError::MultibulkLength);
                        }
                        if count > UNAUTHENTICATED_ARGS && limits.unauthenticated {
                            return Err(ProtocolError::UnauthenticatedMultibulkLength);
                        }
                        pos = next;
                        state = match count {
                            ..=0 => State::Start,
                            _ => State::Length { left: count as u32 },
                        };
                    }
                    Number::Incomplete => break,
                    Number::TooLong => return Err(ProtocolError::BigMultibulkCount),
                    Number::Invalid => return Err(ProtocolError::MultibulkLength),
                },
                State::Length { left } => match self.number(buf, pos) {
                    Number::TooLong => return Err(ProtocolError::BigBulkCount),
                    Number::Incomplete => break,
                    _ if buf[pos] != b'$' => return Err(ProtocolError::ExpectedDollar(buf[pos])),
                    Number::Is(len, next) => {
                        if len < 0 || len > limits.max_bulk_len {
                            return Err(ProtocolError::BulkLength);
                        }
                        if len > UNAUTHENTICATED_BULK && limits.unauthenticated {
                            return Err(ProtocolError::UnauthenticatedBulkLength);
                        }
                        pos = next;
                        state = State::Bulk { left, len: len as usize };
                    }
                    Number::Invalid => return Err(ProtocolError::BulkLength),
                },
                State::Bulk { left, len } => {
                    // Written so that no announced length can overflow.
                    if buf.len() - pos < 2 || buf.len() - pos - 2 < len {
                        break;
                    }
                    self.spans.push(Span { start: pos, end: pos + len });
                    pos += len + 2;
                    state = match left {
                        1 => State::Start,
                        _ => State::Length { left: left - 1 },
                    };
                }
                State::Start => {
                    self.state = State::Start;
                    self.pos = pos;
                    return Ok(Some(pos));
                }
                State::Inline => unreachable!("inline commands are not parsed here"),
            }
        }
        self.state = state;
        self.pos = pos;
        Ok(None)
    }

    /// The number after the byte at `pos`, up to `\r` and the byte after it.
    #[inline]
    fn number(&mut self, buf: &[u8], pos: usize) -> Number {
        // The common case, in one pass: up to nine digits without a leading zero.
        let line = &buf[pos..];
        let mut value = 0i64;
        let mut at = 1;
        while let Some(digit @ 0..=9) = line.get(at).map(|b| b.wrapping_sub(b'0')) {
            if at > 9 || (value == 0 && at > 1) {
                break;
            }
            value = value * 10 + i64::from(digit);
            at += 1;
        }
        if at > 1 && line.len() >= at + 2 && line[at] == b'\r' {
            self.scanned = 0;
            return Number::Is(value, pos + at + 2);
        }
        self.number_slow(line, pos)
    }

    #[cold]
    fn number_slow(&mut self, line: &[u8], pos: usize) -> Number {
        let Some(cr) = line[self.scanned..].iter().position(|&b| b == b'\r').map(|at| self.scanned + at)
        else {
            self.scanned = line.len();
            return if line.len() > LINE_MAX { Number::TooLong } else { Number::Incomplete };
        };
        if cr + 1 == line.len() {
            self.scanned = cr;
            return Number::Incomplete;
        }
        self.scanned = 0;
        match parse_int(line.get(1..cr).unwrap_or_default()) {
            Some(value) => Number::Is(value, pos + cr + 2),
            None => Number::Invalid,
        }
    }
}
