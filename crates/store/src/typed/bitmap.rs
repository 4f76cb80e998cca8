//! Bitmaps: strings as sequences of bits. Bit 0 is the highest one of the first byte; bits beyond the end are 0.

use super::string::StringValue;
use crate::{
    collections::string::Change,
    txn::{Txn, error::Result},
};
use std::{collections::BTreeMap, ops::Range};

/// The bit at an offset.
pub fn bit(bytes: &[u8], offset: u64) -> bool {
    bytes.get((offset / 8) as usize).is_some_and(|byte| byte & mask(offset) != 0)
}

/// How many of some bits are set. The range must not reach beyond the end.
pub fn count(bytes: &[u8], bits: Range<u64>) -> u64 {
    let Some(Cut { first, middle, last }) = cut(bytes, bits, false) else { return 0 };
    let words = middle.chunks_exact(8);
    let ones = |byte: u8| u64::from(byte.count_ones());
    let rest: u64 = words.remainder().iter().copied().map(ones).sum();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    ones(first.1)
        + words.map(|bytes| u64::from(word(bytes).count_ones())).sum::<u64>()
        + rest
        + last.map_or(0, ones)
}

/// The offset of the first one of some bits that is as wanted. The range must not reach beyond the end.
pub fn position(bytes: &[u8], wanted: bool, bits: Range<u64>) -> Option<u64> {
    // What is not in the range, and what is not wanted, is 0.
    let flip = if wanted { 0 } else { u8::MAX };
    let Cut { first, middle, last } = cut(bytes, bits, !wanted)?;
    let found = |at: usize, byte: u8| at as u64 * 8 + u64::from(byte.leading_zeros());
    if first.1 ^ flip != 0 {
        return Some(found(first.0, first.1 ^ flip));
    }
    let skipped = middle.chunks_exact(8).take_while(|word| **word == [flip; 8]).count() * 8;
    if let Some(at) = middle[skipped..].iter().position(|byte| *byte != flip) {
        let at = skipped + at;
        return Some(found(first.0 + 1 + at, middle[at] ^ flip));
    }
    let last = last.filter(|last| last ^ flip != 0)?;
    Some(found(first.0 + 1 + middle.len(), last ^ flip))
}

/// The bytes of a range of bits. In the first and the last one, what is not in the range has a value of its own.
struct Cut<'b> {
    /// Where it is, and the byte.
    first: (usize, u8),
    middle: &'b [u8],
    last: Option<u8>,
}

/// `None` without a bit. Bits outside of the range read as `outside`.
fn cut(bytes: &[u8], bits: Range<u64>, outside: bool) -> Option<Cut<'_>> {
    if bits.is_empty() {
        return None;
    }
    let (start, end) = ((bits.start / 8) as usize, ((bits.end - 1) / 8) as usize);
    let outside = |byte: u8, kept: u8| if outside { byte | !kept } else { byte & kept };
    let after_start = u8::MAX >> (bits.start % 8);
    let before_end = u8::MAX << (7 - (bits.end - 1) % 8);
    Some(if start == end {
        let byte = outside(bytes[start], after_start & before_end);
        Cut { first: (start, byte), middle: &[], last: None }
    } else {
        let first = (start, outside(bytes[start], after_start));
        Cut { first, middle: &bytes[start + 1..end], last: Some(outside(bytes[end], before_end)) }
    })
}

impl<'t> StringValue<'t> {
    /// The bit at an offset.
    pub fn bit(self, offset: u64) -> bool {
        self.byte((offset / 8) as usize).is_some_and(|byte| byte & mask(offset) != 0)
    }

    /// How many of some bits are set. The range must not reach beyond the end.
    pub fn count_bits(self, bits: Range<u64>) -> u64 {
        self.bit_slices(bits).map(|(_, slice, bits)| count(slice, bits)).sum()
    }

    /// The offset of the first one of some bits that is as wanted. The range must not reach beyond the end.
    pub fn find_bit(self, wanted: bool, bits: Range<u64>) -> Option<u64> {
        let mut slices = self.bit_slices(bits);
        slices.find_map(|(before, slice, bits)| position(slice, wanted, bits).map(|at| before + at))
    }

    /// Slices with the bits of a range: how many bits are before the slice, the slice, and which bits of it are meant.
    fn bit_slices(self, bits: Range<u64>) -> impl Iterator<Item = (u64, &'t [u8], Range<u64>)> {
        let bytes = match bits.is_empty() {
            true => 0..0,
            false => (bits.start / 8) as usize..bits.end.div_ceil(8) as usize,
        };
        let mut before = bytes.start as u64 * 8;
        self.slices(bytes).map(move |slice| {
            let start = before;
            before += slice.len() as u64 * 8;
            (start, slice, bits.start.max(start) - start..bits.end.min(before) - start)
        })
    }
}

fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// An integer that some bits of a string are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    signed: bool,
    bits: u32,
}

/// What becomes of a number that does not fit a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Its higher bits are cut off.
    #[default]
    Wrap,
    /// It becomes the highest or the lowest one that fits.
    Saturate,
    /// Nothing is done.
    Fail,
}

/// Bytes that a field of 64 bits can touch.
const FIELD_BYTES: usize = 9;

impl Field {
    /// An integer of up to 64 bits, or 63 if it has no sign.
    pub fn new(signed: bool, bits: u32) -> Option<Field> {
        let max = if signed { 64 } else { 63 };
        (1..=max).contains(&bits).then_some(Field { signed, bits })
    }

    /// Its size.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Whether it can be below zero.
    pub fn is_signed(self) -> bool {
        self.signed
    }

    /// Its value at an offset.
    pub fn get(self, bytes: &[u8], offset: u64) -> i64 {
        let start = (offset / 8) as usize;
        let mut window = [0; 16];
        for (to, from) in window.iter_mut().zip(bytes.iter().skip(start).take(FIELD_BYTES)) {
            *to = *from;
        }
        let shifted = u128::from_be_bytes(window) << (offset % 8);
        let unused = 128 - self.bits;
        if self.signed { (shifted as i128 >> unused) as i64 } else { (shifted >> unused) as i64 }
    }

    /// Writes a value that fits at an offset. The bytes must be there.
    pub fn set(self, bytes: &mut [u8], offset: u64, value: i64) {
        for bit in 0..u64::from(self.bits) {
            let at = offset + bit;
            let is_set = value >> (u64::from(self.bits) - 1 - bit) & 1 == 1;
            set_bit(bytes, at, is_set);
        }
    }

    /// A number as the field can hold it.
    pub fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = if self.signed {
            (-1i128 << (self.bits - 1), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1i128 << self.bits) - 1)
        };
        if (min..=max).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some((min + (number - min).rem_euclid(max - min + 1)) as i64),
            Overflow::Saturate => Some(number.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }
}

fn set_bit(bytes: &mut [u8], offset: u64, value: bool) {
    let byte = &mut bytes[(offset / 8) as usize];
    *byte = if value { *byte | mask(offset) } else { *byte & !mask(offset) };
}

/// Fields of a string that are read and written one after the other, before the string itself is changed.
pub struct Draft<'v> {
    value: Option<StringValue<'v>>,
    /// The bytes that were written, by their places.
    changed: BTreeMap<usize, u8>,
}

impl<'v> Draft<'v> {
    /// Of a string, or of none.
    pub fn new(value: Option<StringValue<'v>>) -> Draft<'v> {
        Draft { value, changed: BTreeMap::new() }
    }

    /// The value of a field at an offset.
    pub fn get(&self, field: Field, offset: u64) -> i64 {
        field.get(&self.window(offset), offset % 8)
    }

    /// Writes a value that fits.
    pub fn set(&mut self, field: Field, offset: u64, value: i64) {
        let (start, mut window) = ((offset / 8) as usize, self.window(offset));
        field.set(&mut window, offset % 8, value);
        let touched = (offset % 8 + u64::from(field.bits)).div_ceil(8) as usize;
        self.changed.extend((start..).zip(window).take(touched));
    }

    /// The bytes that were written, by their places.
    pub fn into_changed(self) -> BTreeMap<usize, u8> {
        self.changed
    }

    /// The bytes that a field at an offset can touch.
    fn window(&self, offset: u64) -> [u8; FIELD_BYTES] {
        let (start, mut window) = ((offset / 8) as usize, [0; FIELD_BYTES]);
        self.value.inspect(|value| value.copy_to(start, &mut window));
        self.changed.range(start..start + FIELD_BYTES).for_each(|(at, byte)| window[at - start] = *byte);
        window
    }
}

/// How strings are combined bit by bit. A shorter one is followed by zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// Set in all.
    And,
    /// Set in one at least.
    Or,
    /// Set in an odd number of them.
    Xor,
    /// Not set; of one string.
    Not,
}

impl BitOp {
    /// Combines what was combined before with one string more.
    fn add(self, result: &mut Vec<u8>, value: &[u8]) {
        if result.len() < value.len() {
            result.resize(value.len(), 0);
        }
        let (both, beyond) = result.split_at_mut(value.len());
        let pairs = both.iter_mut().zip(value);
        match self {
            BitOp::And => {
                pairs.for_each(|(to, from)| *to &= from);
                beyond.fill(0);
            }
            BitOp::Or => pairs.for_each(|(to, from)| *to |= from),
            BitOp::Xor => pairs.for_each(|(to, from)| *to ^= from),
            BitOp::Not => pairs.for_each(|(to, from)| *to = !from),
        }
    }
}

impl Txn<'_> {
    /// Sets or clears a bit of a key's string, which grows if it must, and returns what the bit was, and whether this has
    /// changed the string.
    pub fn bit_set(&mut self, db: u8, key: &[u8], offset: u64, is_set: bool) -> Result<(bool, bool)> {
        let ((target, found), at) = (self.find_string_at(db, key)?, (offset / 8) as usize);
        let byte = self.string_in(target, found)?.and_then(|value| value.byte(at));
        let mut new = [byte.unwrap_or(0)];
        let old = bit(&new, offset % 8);
        let changed = old != is_set || byte.is_none();
        if changed {
            set_bit(&mut new, offset % 8, is_set);
            self.string_change_in(target, found, at + 1, &[Change { at, bytes: &new }])?;
        }
        Ok((old, changed))
    }

    /// Writes what was drafted to a key's string, which becomes at least `len` bytes long.
    pub fn bit_fields_write(
        &mut self,
        db: u8,
        key: &[u8],
        len: usize,
        changed: &BTreeMap<usize, u8>,
    ) -> Result<usize> {
        let bytes = changed.iter();
        let changes: Vec<_> =
            bytes.map(|(&at, byte)| Change { at, bytes: std::slice::from_ref(byte) }).collect();
        self.string_change(db, key, len, &changes)
    }

    /// Makes the combination of the strings at some keys the value of a key, whatever it held, and returns its length;
    /// without a byte the key is removed.
    pub fn bit_combine<'k>(
        &mut self,
        db: u8,
        to: &[u8],
        op: BitOp,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<usize> {
        let mut result: Option<Vec<u8>> = None;
        for key in keys {
            let value = self.get(db, key)?.unwrap_or_default();
            match &mut result {
                None if op == BitOp::Not => op.add(result.insert(Vec::new()), value),
                None => result = Some(value.to_vec()),
                Some(result) => op.add(result, value),
            }
        }
        let result = result.unwrap_or_default();
        if result.is_empty() {
            self.remove(db, to);
        } else {
            self.set(db, to, &result, false)?;
        }
        Ok(result.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn ranges_of_bits_are_counted_and_searched() {
        // Long runs of equal bits, with noise between them.
        let mut bytes = [vec![0; 20], noise(1, 5), vec![u8::MAX; 30], noise(2, 3)].concat();
        bytes.push(0);
        let all = bytes.len() as u64 * 8;
        for start in (0..all).step_by(3).chain(all - 20..all) {
            for end in (start..=all).step_by(7).chain([start, all]) {
                let bits = || (start..end).map(|at| (at, bit(&bytes, at)));
                assert_eq!(count(&bytes, start..end), bits().filter(|bit| bit.1).count() as u64);
                for wanted in [false, true] {
                    let first = bits().find(|bit| bit.1 == wanted).map(|bit| bit.0);
                    assert_eq!(position(&bytes, wanted, start..end), first, "{start}..{end}");
                }
            }
        }
        assert!(!bit(&bytes, all) && !bit(&bytes, u64::MAX));
    }

    #[test]
    fn fields_are_read_as_they_were_written() {
        for (signed, bits) in (1..=64).flat_map(|bits| [(false, bits), (true, bits)]) {
            let Some(field) = Field::new(signed, bits) else {
                assert!(bits == 64 && !signed);
                continue;
            };
            for offset in 0..17 {
                let before = noise(offset, 20);
                let mut bytes = before.clone();
                let number = i128::from(i64::from_le_bytes(*noise(offset + 100, 8).first_chunk().unwrap()));
                let value = field.fit(number, Overflow::Wrap).unwrap();
                field.set(&mut bytes, offset, value);
                assert_eq!(field.get(&bytes, offset), value);
                let others = (0..160).filter(|at| !(offset..offset + u64::from(bits)).contains(at));
                assert!(others.into_iter().all(|at| bit(&bytes, at) == bit(&before, at)));
            }
        }
        assert_eq!(Field::new(false, 8).unwrap().get(b"\xff", 4), 0xf0);
        assert_eq!(Field::new(true, 8).unwrap().get(b"", u64::MAX), 0);
    }

    #[test]
    fn what_does_not_fit_is_cut_or_clamped_or_refused() {
        let (byte, small) = (Field::new(false, 8).unwrap(), Field::new(true, 4).unwrap());
        let wide = Field::new(true, 64).unwrap();
        for (field, number, wrapped, saturated) in [
            (byte, 256, 0, 255),
            (byte, -1, 255, 0),
            (byte, u64::MAX.into(), 255, 255),
            (small, 8, -8, 7),
            (small, -9, 7, -8),
            (wide, i128::from(i64::MAX) + 1, i64::MIN, i64::MAX),
            (wide, i128::from(i64::MIN) * 2, 0, i64::MIN),
        ] {
            assert_eq!(field.fit(number, Overflow::Wrap), Some(wrapped));
            assert_eq!(field.fit(number, Overflow::Saturate), Some(saturated));
            assert_eq!(field.fit(number, Overflow::Fail), None);
        }
        assert_eq!(small.fit(-8, Overflow::Fail), Some(-8));
        assert_eq!(byte.fit(255, Overflow::Fail), Some(255));
    }

    #[test]
    fn strings_of_different_lengths_are_combined() {
        let combined = |op: BitOp, values: &[&[u8]]| {
            let mut result = values[0].to_vec();
            values[1..].iter().for_each(|value| op.add(&mut result, value));
            result
        };
        assert_eq!(combined(BitOp::And, &[b"\xf0\xff\x01", b"\x3c"]), b"\x30\0\0");
        assert_eq!(combined(BitOp::And, &[b"\x3c", b"\xf0\xff\x01"]), b"\x30\0\0");
        assert_eq!(combined(BitOp::Or, &[b"\x01", b"\x02\x03", b""]), b"\x03\x03");
        assert_eq!(combined(BitOp::Xor, &[b"\x01\x01", b"\x03", b"\x03"]), b"\x01\x01");
        assert_eq!(combined(BitOp::Not, &[b"", b"\x0f\xff"]), b"\xf0\0");
    }
}
