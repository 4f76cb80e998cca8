//! Finding commands in what a client sent: arrays of bulk strings, or inline lines.
//!
//! The limits and the texts of errors are those of Redis 7, and so is its leniency: the byte after a `\r` and the two
//! bytes after a bulk string are not looked at.

use crate::{
    args::{Args, Span},
    integer::parse_int,
    line::split_line,
};
use std::{fmt, ops::Range};

/// The longest inline command and the longest length line, in bytes.
const LINE_MAX: usize = 64 * 1024;
/// Arguments that a client may send before it has authenticated.
const UNAUTHENTICATED_ARGS: i64 = 10;
/// Bytes that an argument may have before the client has authenticated.
const UNAUTHENTICATED_BULK: i64 = 16 * 1024;
/// A list of arguments that grew beyond this is given back after the command.
const SPANS_KEPT: usize = 1024;
/// At most so many commands are found in one pass. What they need of the medium is read together; more would cost those that need nothing.
const AHEAD: usize = 32;
/// A pass ends once its commands have so many arguments: usually early enough that the list is kept.
const AHEAD_SPANS: usize = SPANS_KEPT / 2;

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An incremental parser. It finds several commands in one pass if they have arrived as a whole, as those of a pipeline do.
/// Of one that has not, it remembers how far it got, so that no byte is looked at again and again however the input is cut.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// Bytes of the command that are understood.
    pos: usize,
    /// Bytes, from `pos` on, that are known to hold no end of line.
    scanned: usize,
    /// Of the command that is not complete, or of `commands`; each argument is counted from where its own command starts.
    spans: Vec<Span>,
    /// Complete commands that were found in one pass.
    commands: Vec<Whole>,
    /// How many of them have been returned.
    taken: usize,
    /// The spans of the one that was returned last.
    current: Range<usize>,
    /// What they were found to keep to.
    limits: Limits,
}

/// Commands, one behind another, that are known to be complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upcoming<'a> {
    buf: &'a [u8],
    commands: &'a [Whole],
    spans: &'a [Span],
    /// Where the spans of the first one begin.
    first: usize,
}

impl<'a> Iterator for Upcoming<'a> {
    type Item = Args<'a>;

    #[inline]
    fn next(&mut self) -> Option<Args<'a>> {
        let (command, behind) = self.commands.split_first()?;
        let args = Args::new(self.buf, &self.spans[self.first..command.spans]);
        (self.buf, self.commands, self.first) = (&self.buf[command.length..], behind, command.spans);
        Some(args)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.commands.len(), Some(self.commands.len()))
    }
}

impl ExactSizeIterator for Upcoming<'_> {}

/// A complete command.
#[derive(Clone, Copy, Debug)]
struct Whole {
    length: usize,
    /// Where its spans end.
    spans: usize,
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
    /// The bytes of a command that was returned have to be gone from the start of `buf` at the next call, and those behind
    /// them unchanged: they may have been parsed already.
    ///
    /// Inline commands are unescaped in place.
    #[inline]
    pub fn parse(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        // What was a command need not be one under other limits.
        if self.taken < self.commands.len() && self.limits == *limits {
            return Ok(Some(self.take()));
        }
        self.find(buf, limits)
    }

    /// The length of the next of `commands`.
    #[inline]
    fn take(&mut self) -> usize {
        let Whole { length, spans } = self.commands[self.taken];
        self.taken += 1;
        self.current = self.current.end..spans;
        self.pos = length;
        length
    }

    /// [`Parser::parse`] for a command that is not known yet.
    fn find(&mut self, buf: &mut [u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.state == State::Start {
            self.commands.clear();
            self.taken = 0;
            self.current = 0..0;
            self.spans.clear();
            if self.spans.capacity() > SPANS_KEPT {
                self.spans.shrink_to(0);
            }
            self.pos = 0;
            self.state = match buf.first() {
                None => return Ok(None),
                Some(b'*') => {
                    self.find_whole(buf, limits);
                    if !self.commands.is_empty() {
                        return Ok(Some(self.take()));
                    }
                    State::Count
                }
                Some(_) => State::Inline,
            };
        }
        match self.state {
            State::Inline => self.inline(buf),
            _ => self.multibulk(buf, limits),
        }
    }

    /// Finds commands that `buf` starts with and holds as a whole.
    fn find_whole(&mut self, mut buf: &[u8], limits: &Limits) {
        if limits.unauthenticated {
            return;
        }
        self.limits = *limits;
        while !buf.is_empty() && self.commands.len() < AHEAD && self.spans.len() < AHEAD_SPANS {
            let Some(length) = whole(buf, limits, &mut self.spans) else { break };
            self.commands.push(Whole { length, spans: self.spans.len() });
            buf = &buf[length..];
        }
    }

    /// The arguments of the command that [`Parser::parse`] has just completed at the start of `buf`.
    #[inline]
    pub fn args<'a>(&'a self, buf: &'a [u8]) -> Args<'a> {
        Args::new(buf, &self.spans[self.current.clone()])
    }

    /// Whether commands behind that one are known to be complete.
    #[inline]
    pub fn has_ahead(&self) -> bool {
        self.taken < self.commands.len()
    }

    /// That command and those behind it that are known to be complete, at most 32.
    #[inline]
    pub fn upcoming<'a>(&'a self, buf: &'a [u8]) -> Upcoming<'a> {
        let commands = &self.commands[self.taken.saturating_sub(1)..];
        Upcoming { buf, commands, spans: &self.spans, first: self.current.start }
    }

    /// Goes on to the command that is `count` behind that one, and is known to be complete. Returns the bytes of those before it, which
    /// have to be gone at the next call.
    pub fn pass(&mut self, count: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..count {
            bytes += self.pos;
            self.take();
        }
        bytes
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
        self.spans.capacity() * size_of::<Span>() + self.commands.capacity() * size_of::<Whole>()
    }

    fn inline(&mut self, buf: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(newline) = buf[self.scanned..].iter().position(|&b| b == b'\n') else {
            self.scanned = buf.len();
            return if buf.len() > LINE_MAX { Err(ProtocolError::BigInlineRequest) } else { Ok(None) };
        };
        let newline = self.scanned + newline;
        split_line(&mut buf[..newline], &mut self.spans).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.scanned = 0;
        Ok(Some(self.complete(newline + 1)))
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
                State::Start => return Ok(Some(self.complete(pos))),
                State::Inline => unreachable!("inline commands are not parsed here"),
            }
        }
        self.state = state;
        self.pos = pos;
        Ok(None)
    }

    /// The one command in `spans` is complete and has `length` bytes.
    fn complete(&mut self, length: usize) -> usize {
        self.state = State::Start;
        self.commands.push(Whole { length, spans: self.spans.len() });
        self.take()
    }

    /// The number after the byte at `pos`, up to `\r` and the byte after it.
    fn number(&mut self, buf: &[u8], pos: usize) -> Number {
        let line = &buf[pos..];
        if let Some((value, length)) = short_number(line) {
            self.scanned = 0;
            return Number::Is(value, pos + length);
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

/// Adds the arguments of the command at the start of `buf` to `spans` and returns its length, if it is there as a whole,
/// and an array that keeps to the limits of authenticated clients. Of all else it says nothing: that is for the parser.
fn whole(buf: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Option<usize> {
    let before = spans.len();
    let length = array(buf, limits, spans);
    if length.is_none() {
        spans.truncate(before);
    }
    length
}

/// [`whole`], but that what it has added may be part of a command only.
#[inline]
fn array(buf: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Option<usize> {
    if *buf.first()? != b'*' {
        return None;
    }
    let (count, length) = short_number(buf)?;
    let mut rest = buf.get(length..)?;
    for _ in 0..count {
        let (len, header) = short_number(rest)?;
        let end = header + len as usize;
        if rest[0] != b'$' || len > limits.max_bulk_len || rest.len() < end + 2 {
            return None;
        }
        let pos = buf.len() - rest.len();
        spans.push(Span { start: pos + header, end: pos + end });
        rest = &rest[end + 2..];
    }
    Some(buf.len() - rest.len())
}

/// The number after the first byte of `line` and how many bytes the line takes, if that has arrived as a whole and is as
/// clients write it: of one to nine digits, the first of which is no zero that could be left out.
#[inline(always)]
fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    match *line {
        [_, ones @ b'0'..=b'9', b'\r', _, ..] => Some((digit(ones), 4)),
        [_, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', _, ..] => {
            Some((digit(tens) * 10 + digit(ones), 5))
        }
        _ => longer_number(line),
    }
}

fn longer_number(line: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0;
    for (at, &byte) in line.get(1..)?.iter().enumerate() {
        match byte {
            b'0'..=b'9' if at == 0 || (value > 0 && at < 9) => value = value * 10 + digit(byte),
            b'\r' if at > 0 && line.len() >= at + 3 => return Some((value, at + 3)),
            _ => break,
        }
    }
    None
}

#[inline]
fn digit(byte: u8) -> i64 {
    i64::from(byte - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_those_that_clients_write() {
        for digits in 1..=9 {
            for value in [10i64.pow(digits - 1), 10i64.pow(digits) - 1] {
                let line = format!("${value}\r\n");
                assert_eq!(short_number(line.as_bytes()), Some((value, line.len())));
                let cut = &line.as_bytes()[..line.len() - 1];
                assert_eq!(short_number(cut), None);
                assert_eq!(
                    short_number(&[cut, b"x"].concat()),
                    Some((value, line.len())),
                    "as lenient as Redis"
                );
            }
        }
        assert_eq!(short_number(b"$0\r\n"), Some((0, 4)));
        for other in [
            "",
            "$",
            "$\r\n",
            "$00\r\n",
            "$01\r\n",
            "$001\r\n",
            "$1234567890\r\n",
            "$-1\r\n",
            "$1x\r\n",
            "$12x\r\n",
            "$123x\r\n",
        ] {
            assert_eq!(short_number(other.as_bytes()), None, "{other}");
        }
    }
}
