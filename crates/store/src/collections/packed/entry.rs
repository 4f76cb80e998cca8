//! Entries of packed blobs.
//!
//! An entry is a tag byte and what it asks for:
//!
//! | tag | entry |
//! |---|---|
//! | 0x00 ..= 0x7F | the integer 0 ..= 127 |
//! | 0x80 ..= 0xBF | 0 ..= 63 bytes of text |
//! | 0xC0 ..= 0xC7 | an integer of 1 ..= 8 bytes, little-endian, two's complement |
//! | 0xC8 ..= 0xCB | text, its length in the next 1 ..= 4 bytes |
//! | 0xCC | a gap of 1 byte, this one |
//! | 0xCD, 0xCE | a gap whose length, from the tag on, is in the next 1 or 4 bytes |
//!
//! Text that is the decimal form of an `i64` is always stored as an integer, and an integer or a length in as few
//! bytes as hold it. So equal texts have equal encodings, and entries are compared without decoding them.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
};

use super::super::absent::no_look;
use holdfast_heap::{Arena, Tx};

const TEXT: u8 = 0x80;
const INT: u8 = 0xC0;
const LONG_TEXT: u8 = 0xC8;
const GAP: u8 = 0xCC;
const SHORT_GAP: u8 = 0xCD;
const LONG_GAP: u8 = 0xCE;
/// Digits and sign of the longest `i64`.
const INT_TEXT: usize = 20;

/// Parses the canonical decimal form of an `i64`: no plus sign, no leading zeroes, no `-0`.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (digits, negative) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) || digits.len() >= INT_TEXT {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Counted downwards, because i64::MIN has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// A text of at most 20 bytes, mostly that of an integer.
#[derive(Clone, Copy)]
pub struct Inline {
    /// Right-aligned.
    text: [u8; INT_TEXT],
    start: u8,
}

impl Inline {
    /// Copies a short text.
    pub fn new(short: &[u8]) -> Inline {
        let start = INT_TEXT - short.len();
        let mut text = [0; INT_TEXT];
        text[start..].copy_from_slice(short);
        Inline { text, start: start as u8 }
    }

    /// Formats an integer.
    pub fn int(value: i64) -> Inline {
        let mut text = [0; INT_TEXT];
        let mut start = INT_TEXT;
        let mut rest = value.unsigned_abs();
        loop {
            start -= 1;
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            start -= 1;
            text[start] = b'-';
        }
        Inline { text, start: start as u8 }
    }
}

impl Deref for Inline {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text[usize::from(self.start)..]
    }
}

/// A stored value as the client wrote it: bytes in the arena, or a short text that was stored otherwise.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Bytes in the arena.
    Bytes(&'a [u8]),
    /// Made up from what is stored.
    Inline(Inline),
}

impl Value<'_> {
    /// The text of an integer.
    pub fn int(value: i64) -> Self {
        Value::Inline(Inline::int(value))
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Inline(text) => text,
        }
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value<'_> {}

impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// An entry to be stored or looked for: its encoding, without a copy of its text.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    head: [u8; 9],
    head_len: u8,
    body: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Encodes a text.
    pub fn new(text: &'a [u8]) -> Piece<'a> {
        if let Some(value) = parse_int(text) {
            return Piece::int(value);
        }
        let mut head = [0; 9];
        let head_len = if text.len() < 64 {
            head[0] = TEXT | text.len() as u8;
            1
        } else {
            let bytes = bytes_for(text.len() as u64);
            head[0] = LONG_TEXT + bytes as u8 - 1;
            head[1..9].copy_from_slice(&(text.len() as u64).to_le_bytes());
            1 + bytes as u8
        };
        Piece { head, head_len, body: text }
    }

    /// Encodes an integer.
    pub fn int(value: i64) -> Piece<'static> {
        let mut head = [0; 9];
        if (0..128).contains(&value) {
            head[0] = value as u8;
            return Piece { head, head_len: 1, body: &[] };
        }
        // One bit more than the magnitude's, for the sign.
        let magnitude = if value < 0 { !value } else { value } as u64;
        let bytes = bytes_for(magnitude << 1);
        head[0] = INT + bytes as u8 - 1;
        head[1..].copy_from_slice(&value.to_le_bytes());
        Piece { head, head_len: 1 + bytes as u8, body: &[] }
    }

    /// Bytes that the entry takes.
    pub fn encoded_len(&self) -> usize {
        usize::from(self.head_len) + self.body.len()
    }

    /// Entries that are encoded already, taken as one piece.
    pub fn encoded(entries: &'a [u8]) -> Piece<'a> {
        Piece { head: [0; 9], head_len: 0, body: entries }
    }

    /// Appends the entry to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head());
        out.extend_from_slice(self.body);
    }

    /// Fills `out`, which is as long as the entry, with it.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) {
        let (head, body) = out.split_at_mut(usize::from(self.head_len));
        // Mostly a byte.
        head.iter_mut().zip(self.head).for_each(|(to, byte)| *to = byte);
        body.copy_from_slice(self.body);
    }

    /// Writes the entry at a heap offset.
    pub fn write(&self, arena: &mut Arena, tx: &mut Tx, offset: u64) {
        arena.write_by(tx, offset, self.encoded_len(), |out| self.encode(out));
    }

    /// Writes the entry over another one at a heap offset.
    pub fn overwrite(&self, arena: &mut Arena, tx: &mut Tx, offset: u64) {
        arena.write_changed(tx, offset, self.head());
        arena.write_changed(tx, offset + u64::from(self.head_len), self.body);
    }

    /// Whether `encoded`, an entry as long as this one, is this one.
    #[inline(always)]
    pub(super) fn equals(&self, encoded: &[u8]) -> bool {
        // Names that are compared mostly differ at their ends, if not in length.
        if encoded[0] != self.head[0] || self.body.last().is_some_and(|last| encoded.last() != Some(last)) {
            return false;
        }
        let (head, body) = encoded.split_at(usize::from(self.head_len));
        (head.len() == 1 || head == self.head()) && body == self.body
    }

    fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }
}

fn bytes_for(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8).max(1)
}

/// A stored entry, still encoded.
#[derive(Clone, Copy)]
pub struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    /// The entry at the start of `bytes`.
    pub fn first(bytes: &'a [u8]) -> Entry<'a> {
        Entry(&bytes[..encoded_len(bytes)])
    }

    /// The entry at a heap offset.
    #[inline]
    pub fn at(arena: &'a Arena, offset: u64) -> Entry<'a> {
        let Ok(entry) = Entry::try_at(arena, offset, no_look);
        entry
    }

    /// The same, unless `look` fails of some of its bytes before they are read.
    #[inline]
    pub fn try_at<E>(
        arena: &'a Arena,
        offset: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<Entry<'a>, E> {
        let len = Entry::try_len(arena, offset, &look)?;
        look(offset, len)?;
        Ok(Entry(arena.bytes(offset, len)))
    }

    /// How many bytes the entry at a heap offset takes, of which only the first ones are read.
    pub fn len_at(arena: &Arena, offset: u64) -> usize {
        let Ok(len) = Entry::try_len(arena, offset, no_look);
        len
    }

    /// The same, unless `look` fails of those before they are read.
    #[inline]
    pub fn try_len<E>(
        arena: &Arena,
        offset: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<usize, E> {
        look(offset, 1)?;
        let head = match arena.u8(offset) {
            LONG_TEXT.. => 5,
            _ => 1,
        };
        // An entry with a long length has 64 bytes behind it, so that reading 5 bytes stays within it.
        look(offset, head)?;
        Ok(encoded_len(arena.bytes(offset, head)))
    }

    /// The bytes that it takes.
    pub fn encoded(self) -> &'a [u8] {
        self.0
    }

    /// Whether it holds this text.
    pub fn is(self, piece: &Piece) -> bool {
        self.0.len() == piece.encoded_len() && piece.equals(self.0)
    }

    /// Its integer, if it is one.
    pub fn int(self) -> Option<i64> {
        match self.0[0] {
            small @ ..TEXT => Some(i64::from(small)),
            INT..LONG_TEXT => {
                let sign = if self.0[self.0.len() - 1] & 0x80 != 0 { 0xFF } else { 0 };
                let mut bytes = [sign; 8];
                bytes[..self.0.len() - 1].copy_from_slice(&self.0[1..]);
                Some(i64::from_le_bytes(bytes))
            }
            _ => None,
        }
    }

    /// Its text.
    pub fn value(self) -> Value<'a> {
        match self.int() {
            Some(value) => Value::int(value),
            None if self.0[0] < INT => Value::Bytes(&self.0[1..]),
            None => Value::Bytes(&self.0[2 + usize::from(self.0[0] - LONG_TEXT)..]),
        }
    }
}

/// Bytes of the entry or gap at the start of `bytes`, of which only its tag and length need be there.
#[inline]
pub(super) fn encoded_len(bytes: &[u8]) -> usize {
    match bytes[0] {
        ..TEXT => 1,
        tag @ TEXT..INT => 1 + usize::from(tag - TEXT),
        tag @ INT..LONG_TEXT => 2 + usize::from(tag - INT),
        tag => long_len(tag, &bytes[1..]),
    }
}

fn long_len(tag: u8, bytes: &[u8]) -> usize {
    let number = |width: usize| {
        let mut number = [0; 8];
        number[..width].copy_from_slice(&bytes[..width]);
        u64::from_le_bytes(number) as usize
    };
    match tag {
        GAP => 1,
        SHORT_GAP => number(1),
        LONG_GAP => number(4),
        _ => {
            let width = 1 + usize::from(tag - LONG_TEXT);
            1 + width + number(width)
        }
    }
}

/// Whether `bytes` start with a gap.
#[inline]
pub(super) fn is_gap(bytes: &[u8]) -> bool {
    bytes[0] >= GAP
}

/// Makes a gap of `len` bytes at a heap offset.
pub(super) fn write_gap(arena: &mut Arena, tx: &mut Tx, offset: u64, len: usize) {
    match len {
        0 => (),
        1 => arena.write_changed(tx, offset, &[GAP]),
        2..256 => arena.write_changed(tx, offset, &[SHORT_GAP, len as u8]),
        _ => {
            let [a, b, c, d] = (len as u32).to_le_bytes();
            arena.write_changed(tx, offset, &[LONG_GAP, a, b, c, d]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(piece: Piece) -> Vec<u8> {
        let mut entry = Vec::new();
        piece.append_to(&mut entry);
        entry
    }

    #[test]
    fn only_canonical_integers_are_integers() {
        for value in [0, 1, -1, 9, 10, 127, 128, -128, 999_999_999_999, i64::MAX, i64::MIN] {
            assert_eq!(parse_int(value.to_string().as_bytes()), Some(value));
            assert_eq!(Inline::int(value)[..], *value.to_string().as_bytes());
        }
        let others =
            ["", "-", "+1", "01", "-0", "-01", " 1", "1 ", "1.0", "0x1", "1e3", "9223372036854775808"];
        for text in others.into_iter().chain(["-9223372036854775809", "99999999999999999999", "１"]) {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn entries_are_as_long_as_the_format_says() {
        for (text, len) in [("", 1), ("0", 1), ("127", 1), ("128", 3), ("-1", 2), ("-129", 3), ("32768", 4)] {
            assert_eq!(Piece::new(text.as_bytes()).encoded_len(), len, "{text}");
        }
        for (len, encoded) in [(63, 64), (64, 66), (255, 257), (256, 259), (65_536, 65_540)] {
            assert_eq!(Piece::new(&vec![b'x'; len]).encoded_len(), encoded);
        }
        for shift in 0..63 {
            for value in [(1 << shift) - 1, 1 << shift, -(1 << shift), -(1 << shift) - 1, i64::MIN, i64::MAX]
            {
                let entry = encoded(Piece::int(value));
                assert_eq!(Entry::first(&entry).int(), Some(value));
                assert_eq!(entry, encoded(Piece::new(value.to_string().as_bytes())));
            }
        }
    }
}
