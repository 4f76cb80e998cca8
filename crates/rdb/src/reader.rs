//! The footer; lengths, strings and numbers.

use crate::{Error, FOOTER, Result, VERSION_MAX, crc64, lzf};

/// Bytes of the longest string.
const STRING_MAX: usize = 512 << 20;
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
    /// Memory for strings.
    spares: Vec<Vec<u8>>,
}

/// Strings whose memory is kept, and bytes of one at most.
const SPARES: usize = 4;
const SPARE_BYTES: usize = 64 << 10;

/// What stands where a length stands.
enum Length {
    Plain(u64),
    /// A string in a special encoding.
    Special(u8),
}

impl<'p> Reader<&'p [u8]> {
    pub fn new(bytes: &'p [u8]) -> Self {
        Reader { input: bytes, room: bytes.len().saturating_mul(8).max(1 << 30), spares: Vec::new() }
    }

    pub fn is_at_end(&self) -> bool {
        self.input.is_empty()
    }
}

impl<I: Input> Reader<I> {
    /// Reads what somebody trusts as much as to decompress it to any size, which is less than 100 times as large.
    pub fn unlimited(input: I) -> Self {
        Reader { input, room: usize::MAX, spares: Vec::new() }
    }

    /// Takes the memory of a string that is not needed any more for another one.
    pub fn reuse(&mut self, spare: Vec<u8>) {
        if self.spares.len() < SPARES && spare.capacity() <= SPARE_BYTES {
            self.spares.push(spare);
        }
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

    pub fn string(&mut self) -> Result<Vec<u8>> {
        let mut string = self.spares.pop().unwrap_or_default();
        string.clear();
        match self.length_or_special()? {
            Length::Plain(len) => string.extend_from_slice(self.take(checked_len(len)?)?),
            Length::Special(0) => return Ok(i8::from_le_bytes(self.bytes()?).to_string().into_bytes()),
            Length::Special(1) => return Ok(i16::from_le_bytes(self.bytes()?).to_string().into_bytes()),
            Length::Special(2) => return Ok(i32::from_le_bytes(self.bytes()?).to_string().into_bytes()),
            Length::Special(3) => {
                let compressed = checked_len(self.length()?)?;
                let len = checked_len(self.length()?)?;
                self.room = self.room.checked_sub(len).ok_or(Error::Malformed("too much compressed"))?;
                lzf::decompress(self.take(compressed)?, len, &mut string)?;
            }
            Length::Special(_) => return Err(Error::Malformed("unknown encoding of a string")),
        }
        Ok(string)
    }

    /// What `read` makes of the next string.
    pub fn read_string<T>(&mut self, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let string = self.string()?;
        let made = read(&string);
        self.reuse(string);
        made
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
        .ok_or(Error::Malformed("a string of more than 512 MiB"))
}

/// A score in digits.
pub fn parse_score(digits: &[u8]) -> Result<f64> {
    let score = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    score.ok_or(Error::Malformed("a score that is no number"))
}
