//! The footer; lengths, strings and numbers.

use crate::{Error, FOOTER, Result, VERSION_MAX, crc64, lzf};
use std::io::Write;

/// Bytes of the longest string: that is what a store may hold.
const STRING_MAX: usize = 4000 << 20;
pub const CUT: Error = Error::Malformed("cut short");

/// What a payload has before its footer, which is checked.
pub fn open(payload: &[u8]) -> Result<&[u8]> {
    let footer_at = payload.len().checked_sub(FOOTER).ok_or(Error::Footer)?;
    let (bytes, footer) = payload.split_at(footer_at);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let checksum = u64::from_le_bytes(footer[2..].try_into().expect("eight bytes"));
    if version > VERSION_MAX || crc64(0, &payload[..footer_at + 2]) != checksum {
        return Err(Error::Footer);
    }
    Ok(bytes)
}

/// Where a reader takes its bytes from.
pub trait Input {
    /// The next bytes.
    fn take(&mut self, len: usize) -> Result<&[u8]>;
}

impl Input for &[u8] {
    fn take(&mut self, len: usize) -> Result<&[u8]> {
        let (taken, rest) = self.split_at_checked(len).ok_or(CUT)?;
        *self = rest;
        Ok(taken)
    }
}

/// What is left to read.
pub struct Reader<I> {
    pub input: I,
    /// Bytes that compressed strings may still come to, so that a small payload cannot fill the memory.
    room: usize,
}

/// What stands before a string.
#[derive(Clone, Copy)]
enum Form {
    /// So many bytes follow.
    Plain(usize),
    /// The number whose digits it is: nothing follows.
    Number(i32),
    /// So many bytes follow, which were compressed from so many.
    Compressed(usize, usize),
}

impl Form {
    /// Bytes that follow.
    fn len(self) -> usize {
        match self {
            Form::Plain(len) | Form::Compressed(len, _) => len,
            Form::Number(_) => 0,
        }
    }

    /// The string, of the bytes that follow.
    fn text(self, bytes: &[u8]) -> Text<'_> {
        match self {
            Form::Plain(_) => Text::Plain(bytes),
            Form::Number(number) => Text::Number(number),
            Form::Compressed(_, len) => Text::Compressed(bytes, len),
        }
    }
}

/// A string as it is serialized.
#[derive(Clone, Copy)]
pub enum Text<'b> {
    /// As it is.
    Plain(&'b [u8]),
    /// Its digits say this number.
    Number(i32),
    /// Compressed from so many bytes.
    Compressed(&'b [u8], usize),
}

impl Text<'_> {
    /// Bytes that it has, or a number at most.
    pub fn len(&self) -> usize {
        /// Of the smallest number.
        const DIGITS: usize = 11;
        match self {
            Text::Plain(text) => text.len(),
            Text::Number(_) => DIGITS,
            Text::Compressed(_, len) => *len,
        }
    }

    /// Puts its bytes into `out`, which is empty.
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Text::Plain(text) => out.extend_from_slice(text),
            Text::Number(number) => write!(out, "{number}").expect("memory takes everything"),
            Text::Compressed(bytes, len) => lzf::decompress(bytes, *len, out)?,
        }
        Ok(())
    }
}

/// What stands where a length stands.
enum Length {
    Plain(u64),
    /// A string in a special encoding.
    Special(u8),
}

impl<'p> Reader<&'p [u8]> {
    pub fn new(bytes: &'p [u8]) -> Self {
        Reader { input: bytes, room: bytes.len().saturating_mul(8).max(1 << 30) }
    }

    pub fn is_at_end(&self) -> bool {
        self.input.is_empty()
    }

    /// The next string, as [`Reader::text`] tells it, for as long as the bytes are there.
    #[inline(always)]
    pub fn lasting_text(&mut self) -> Result<Text<'p>> {
        let form = self.form()?;
        let (bytes, rest) = self.input.split_at_checked(form.len()).ok_or(CUT)?;
        self.input = rest;
        Ok(form.text(bytes))
    }
}

impl<I: Input> Reader<I> {
    /// Reads what somebody trusts as much as to decompress it to any size, which is less than 100 times as large.
    pub fn unlimited(input: I) -> Self {
        Reader { input, room: usize::MAX }
    }

    pub fn take(&mut self, len: usize) -> Result<&[u8]> {
        self.input.take(len)
    }

    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes::<1>()?[0])
    }

    /// The two highest bits of a byte say how a length goes on.
    // In place: a result in memory, written in parts and read as a whole, would have to wait for all writes before it.
    #[inline(always)]
    fn length_or_special(&mut self) -> Result<Length> {
        let first = self.u8()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Length::Plain(low.into()),
            1 => Length::Plain(u64::from(low) << 8 | u64::from(self.u8()?)),
            2 => match first {
                0x80 => Length::Plain(u32::from_be_bytes(self.bytes()?).into()),
                0x81 => Length::Plain(u64::from_be_bytes(self.bytes()?)),
                _ => return Err(Error::Malformed("unknown form of a length")),
            },
            _ => Length::Special(low),
        })
    }

    pub fn length(&mut self) -> Result<u64> {
        match self.length_or_special()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(Error::Malformed("a string where a length belongs")),
        }
    }

    /// What stands before a string.
    #[inline(always)]
    fn form(&mut self) -> Result<Form> {
        Ok(match self.length_or_special()? {
            Length::Plain(len) => Form::Plain(checked_len(len)?),
            Length::Special(0) => Form::Number(i8::from_le_bytes(self.bytes()?).into()),
            Length::Special(1) => Form::Number(i16::from_le_bytes(self.bytes()?).into()),
            Length::Special(2) => Form::Number(i32::from_le_bytes(self.bytes()?)),
            Length::Special(3) => {
                let compressed = checked_len(self.length()?)?;
                let len = checked_len(self.length()?)?;
                self.room = self.room.checked_sub(len).ok_or(Error::Malformed("too much compressed"))?;
                Form::Compressed(compressed, len)
            }
            Length::Special(_) => return Err(Error::Malformed("unknown encoding of a string")),
        })
    }

    /// The next string, as it is serialized.
    fn text(&mut self) -> Result<Text<'_>> {
        let form = self.form()?;
        Ok(form.text(self.take(form.len())?))
    }

    pub fn string(&mut self) -> Result<Vec<u8>> {
        let mut string = Vec::new();
        self.text()?.read_into(&mut string)?;
        Ok(string)
    }

    /// What `read` makes of the next string.
    pub fn read_string<T>(&mut self, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        match self.text()? {
            Text::Plain(text) => read(text),
            text => {
                let mut string = Vec::new();
                text.read_into(&mut string)?;
                read(&string)
            }
        }
    }

    /// A score in the form of old versions: a length, and as many digits.
    pub fn score_text(&mut self) -> Result<f64> {
        match self.u8()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => parse_score(self.take(len.into())?),
        }
    }
}

fn checked_len(len: u64) -> Result<usize> {
    usize::try_from(len)
        .ok()
        .filter(|len| *len <= STRING_MAX)
        .ok_or(Error::Malformed("a string of more than 4000 MiB"))
}

/// A score in digits.
pub fn parse_score(digits: &[u8]) -> Result<f64> {
    let score = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    score.ok_or(Error::Malformed("a score that is no number"))
}
