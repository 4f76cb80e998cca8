//! Small collections in one string: listpacks, and what older versions had in their place.

use crate::{Error, Result, strings::Strings};

const LISTPACK: Error = Error::Malformed("unsound listpack");
const ZIPLIST: Error = Error::Malformed("unsound ziplist");
const ZIPMAP: Error = Error::Malformed("unsound zipmap");
const INTSET: Error = Error::Malformed("unsound intset");

/// An entry.
enum Item<'b> {
    Text(&'b [u8]),
    Number(i64),
}

/// Adds an entry; numbers are in digits.
fn add(entries: &mut Strings, item: Item) -> Result<()> {
    match item {
        Item::Text(text) => entries.push(text),
        Item::Number(number) => entries.push(number.to_string().as_bytes()),
    }
}

/// Takes bytes off the front.
fn take<'b>(rest: &mut &'b [u8], len: usize, error: Error) -> Result<&'b [u8]> {
    let (taken, left) = rest.split_at_checked(len).ok_or(error)?;
    *rest = left;
    Ok(taken)
}

fn take_array<const N: usize>(rest: &mut &[u8], error: Error) -> Result<[u8; N]> {
    Ok(take(rest, N, error)?.try_into().expect("as many as were taken"))
}

/// A little-endian number of up to 8 bytes with a sign.
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte));
    number << unused >> unused
}

/// A listpack: its length in bytes (4) and in entries (2; 65535: unknown), the entries, and 255. An entry is followed by
/// its length, to be read backwards.
pub fn listpack(bytes: &[u8]) -> Result<Strings> {
    let mut entries = Strings::default();
    listpack_into(bytes, &mut entries)?;
    Ok(entries)
}

/// How many entries a listpack says that it has, if it does.
pub fn listpack_count(bytes: &[u8]) -> Option<usize> {
    let count = u16::from_le_bytes(bytes.get(4..6)?.try_into().expect("two bytes"));
    (count != u16::MAX).then_some(count.into())
}

/// How many integers an intset says that it has.
pub fn intset_count(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(4..8)?.try_into().expect("four bytes")) as usize)
}

/// Puts the entries of a listpack behind others.
pub fn listpack_into(bytes: &[u8], entries: &mut Strings) -> Result<()> {
    let mut rest = bytes;
    let total = u32::from_le_bytes(take_array(&mut rest, LISTPACK)?);
    let count = u16::from_le_bytes(take_array(&mut rest, LISTPACK)?);
    if total as usize != bytes.len() {
        return Err(LISTPACK);
    }
    let len_before = entries.len();
    entries.reserve(usize::from(count).min(bytes.len()), bytes.len());
    while rest.len() > 1 {
        let before = rest.len();
        add(entries, listpack_entry(&mut rest)?)?;
        let len = before - rest.len();
        let (expected, size) = backwards(len);
        if take(&mut rest, size, LISTPACK)? != &expected[..size] {
            return Err(LISTPACK);
        }
    }
    let is_counted = count == u16::MAX || usize::from(count) == entries.len() - len_before;
    if rest == [255] && is_counted { Ok(()) } else { Err(LISTPACK) }
}

fn listpack_entry<'b>(rest: &mut &'b [u8]) -> Result<Item<'b>> {
    let first = take(rest, 1, LISTPACK)?[0];
    let low = |bits: u8| usize::from(first & (0xff >> (8 - bits)));
    let mut bytes = |len: usize| take(rest, len, LISTPACK);
    Ok(match first {
        0..0x80 => Item::Number(first.into()),
        0x80..0xc0 => Item::Text(bytes(low(6))?),
        0xc0..0xe0 => {
            let number = (low(5) << 8 | usize::from(bytes(1)?[0])) as i64;
            // 13 bits with a sign.
            Item::Number(number << 51 >> 51)
        }
        0xe0..0xf0 => {
            let len = low(4) << 8 | usize::from(bytes(1)?[0]);
            Item::Text(bytes(len)?)
        }
        0xf0 => {
            let len = u32::from_le_bytes(bytes(4)?.try_into().expect("four bytes"));
            Item::Text(bytes(len as usize)?)
        }
        0xf1 => Item::Number(signed(bytes(2)?)),
        0xf2 => Item::Number(signed(bytes(3)?)),
        0xf3 => Item::Number(signed(bytes(4)?)),
        0xf4 => Item::Number(signed(bytes(8)?)),
        _ => return Err(LISTPACK),
    })
}

/// An entry's length as it follows the entry, seven bits a byte with the lowest last, and how many bytes that takes.
fn backwards(len: usize) -> ([u8; 5], usize) {
    let size = match len {
        0..=127 => 1,
        128..16383 => 2,
        16383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (place, byte) in bytes[..size].iter_mut().rev().enumerate() {
        *byte = (len >> (7 * place) & 127) as u8 | 128;
    }
    bytes[0] &= 127;
    (bytes, size)
}

/// Writes a listpack.
#[derive(Default)]
pub struct PackedWriter {
    body: Vec<u8>,
    count: usize,
}

impl PackedWriter {
    pub fn number(&mut self, number: i64) {
        match u8::try_from(number) {
            Ok(small) if small < 0x80 => self.entry(&[small], &[]),
            _ => self.entry(&[0xf4], &number.to_le_bytes()),
        }
    }

    pub fn text(&mut self, text: &[u8]) {
        match text.len() {
            len @ ..0x40 => self.entry(&[0x80 | len as u8], text),
            len @ 0x40..0x1000 => self.entry(&(0xe000 | len as u16).to_be_bytes(), text),
            len => {
                let len = (len as u32).to_le_bytes();
                self.entry(&[0xf0, len[0], len[1], len[2], len[3]], text);
            }
        }
    }

    fn entry(&mut self, head: &[u8], data: &[u8]) {
        self.body.extend_from_slice(head);
        self.body.extend_from_slice(data);
        let (len, size) = backwards(head.len() + data.len());
        self.body.extend_from_slice(&len[..size]);
        self.count += 1;
    }

    pub fn finish(self) -> Vec<u8> {
        let total = self.body.len() as u32 + 7;
        let count = self.count.min(u16::MAX.into()) as u16;
        [&total.to_le_bytes()[..], &count.to_le_bytes(), &self.body, &[255]].concat()
    }
}

/// A ziplist: its length in bytes (4), where the last entry begins (4), the number of entries (2; 65535: unknown), the
/// entries, and 255. An entry begins with the length of the one before.
pub fn ziplist(bytes: &[u8]) -> Result<Strings> {
    let mut rest = bytes;
    let total = u32::from_le_bytes(take_array(&mut rest, ZIPLIST)?);
    let tail = u32::from_le_bytes(take_array(&mut rest, ZIPLIST)?);
    let count = u16::from_le_bytes(take_array(&mut rest, ZIPLIST)?);
    if total as usize != bytes.len() {
        return Err(ZIPLIST);
    }
    let mut entries = Strings::with_capacity(usize::from(count).min(bytes.len()), bytes.len());
    let (mut last, mut len) = (bytes.len() - rest.len(), 0);
    while rest.len() > 1 {
        last = bytes.len() - rest.len();
        let len_before = match take(&mut rest, 1, ZIPLIST)?[0] {
            254 => u32::from_le_bytes(take_array(&mut rest, ZIPLIST)?) as usize,
            255 => return Err(ZIPLIST),
            len => len.into(),
        };
        if len_before != len {
            return Err(ZIPLIST);
        }
        add(&mut entries, ziplist_entry(&mut rest)?)?;
        len = bytes.len() - rest.len() - last;
    }
    let is_counted = count == u16::MAX || usize::from(count) == entries.len();
    if rest == [255] && is_counted && tail as usize == last { Ok(entries) } else { Err(ZIPLIST) }
}

fn ziplist_entry<'b>(rest: &mut &'b [u8]) -> Result<Item<'b>> {
    let first = take(rest, 1, ZIPLIST)?[0];
    let low = usize::from(first & 0x3f);
    let mut bytes = |len: usize| take(rest, len, ZIPLIST);
    Ok(match first {
        0..0x40 => Item::Text(bytes(low)?),
        0x40..0x80 => {
            let len = low << 8 | usize::from(bytes(1)?[0]);
            Item::Text(bytes(len)?)
        }
        0x80 => {
            let len = u32::from_be_bytes(bytes(4)?.try_into().expect("four bytes"));
            Item::Text(bytes(len as usize)?)
        }
        0xc0 => Item::Number(signed(bytes(2)?)),
        0xd0 => Item::Number(signed(bytes(4)?)),
        0xe0 => Item::Number(signed(bytes(8)?)),
        0xf0 => Item::Number(signed(bytes(3)?)),
        0xfe => Item::Number(signed(bytes(1)?)),
        0xf1..=0xfd => Item::Number(i64::from(first & 15) - 1),
        _ => return Err(ZIPLIST),
    })
}

/// A zipmap: the number of fields (1; from 254 on: unknown), names and values in turn, and 255. A value is followed by
/// unused bytes, as many as the byte behind its length says.
pub fn zipmap(bytes: &[u8]) -> Result<Strings> {
    let mut rest = bytes;
    let count = take(&mut rest, 1, ZIPMAP)?[0];
    let mut entries = Strings::default();
    while rest.len() > 1 {
        for is_value in [false, true] {
            let len = match take(&mut rest, 1, ZIPMAP)?[0] {
                254 => u32::from_le_bytes(take_array(&mut rest, ZIPMAP)?) as usize,
                255 => return Err(ZIPMAP),
                len => len.into(),
            };
            let unused = if is_value { take(&mut rest, 1, ZIPMAP)?[0] } else { 0 };
            entries.push(take(&mut rest, len, ZIPMAP)?)?;
            take(&mut rest, unused.into(), ZIPMAP)?;
        }
    }
    let is_counted = count >= 254 || usize::from(count) * 2 == entries.len();
    if rest == [255] && is_counted { Ok(entries) } else { Err(ZIPMAP) }
}

/// An intset: the size of an integer (4), how many there are (4), and the integers in their order.
pub fn intset(bytes: &[u8]) -> Result<Strings> {
    let mut rest = bytes;
    let size = u32::from_le_bytes(take_array(&mut rest, INTSET)?) as usize;
    let count = u32::from_le_bytes(take_array(&mut rest, INTSET)?) as usize;
    if !matches!(size, 2 | 4 | 8) || count.checked_mul(size) != Some(rest.len()) {
        return Err(INTSET);
    }
    let numbers = || rest.chunks_exact(size).map(signed);
    if !numbers().is_sorted_by(|a, b| a < b) {
        return Err(INTSET);
    }
    let mut entries = Strings::default();
    numbers().try_for_each(|number| add(&mut entries, Item::Number(number)))?;
    Ok(entries)
}
