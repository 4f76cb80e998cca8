//! The arithmetic of INCRBYFLOAT and HINCRBYFLOAT: that of C's `long double` on x86, in which Redis computes them.
//!
//! A number has 64 bits of mantissa, so that 0.1 and 0.2 make 0.3, and it is printed with up to 17 digits behind the
//! point. Computed in `f64`, results would differ from Redis's in what clients see.

use std::cmp::Ordering;

/// Binary exponents of the mantissa's lowest bit.
const EXPONENT_MIN: i32 = -16445;
const EXPONENT_MAX: i32 = 16383 - 63;
/// Bytes of a text at most.
const TEXT_MAX: usize = 5 * 1024 - 1;
/// Digits that are printed behind the point.
const FRACTION_DIGITS: usize = 17;

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    /// The highest bit is set unless the number is 0 or the exponent is the least.
    mantissa: u64,
    /// Of the mantissa's lowest bit.
    exponent: i32,
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNumber {
    /// The text is not a number, or one that is too large or too small.
    Invalid,
    /// It, or the result, is infinite.
    Infinite,
}

impl Extended {
    /// Zero.
    pub const ZERO: Extended = Extended { negative: false, mantissa: 0, exponent: EXPONENT_MIN };

    /// Reads decimal digits with an optional sign, point and exponent, without any space.
    pub fn parse(text: &[u8]) -> Result<Extended, NoNumber> {
        if text.len() > TEXT_MAX {
            return Err(NoNumber::Invalid);
        }
        let (negative, text) = match text {
            [b'-', text @ ..] => (true, text),
            [b'+', text @ ..] | text => (false, text),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Err(NoNumber::Infinite);
        }
        let decimal = Decimal::parse(text).ok_or(NoNumber::Invalid)?;
        let number = decimal.to_extended(negative).filter(|number| number.mantissa != 0 || decimal.is_zero());
        number.ok_or(NoNumber::Invalid)
    }

    /// The sum.
    pub fn add(self, other: Extended) -> Result<Extended, NoNumber> {
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        // 63 bits below the lowest one keep all that a rounding can depend on but whether there is any more.
        let distance = (high.exponent - low.exponent) as u32;
        let (a, whole) = (u128::from(high.mantissa) << 63, u128::from(low.mantissa) << 63);
        let b = whole.checked_shr(distance).unwrap_or(0);
        let more = b.checked_shl(distance).unwrap_or(0) != whole;
        let (negative, sum) = if high.negative == low.negative {
            (high.negative, a + b)
        } else {
            match a.cmp(&b) {
                Ordering::Less => (low.negative, b - a),
                Ordering::Equal => (false, 0),
                // What is below the lowest bit is taken away too.
                Ordering::Greater => (high.negative, a - b - u128::from(more)),
            }
        };
        Extended::round(negative, sum, more, high.exponent - 63).ok_or(NoNumber::Infinite)
    }

    /// The number nearest to `value * 2^exponent`, or, if `more`, to one that is greater by less than `2^exponent`; the one
    /// with an even mantissa if two are as near. `None`: it is infinite.
    fn round(negative: bool, value: u128, more: bool, exponent: i32) -> Option<Extended> {
        if value == 0 {
            return Some(Extended { negative, ..Extended::ZERO });
        }
        let bits = 128 - value.leading_zeros() as i32;
        let shift = (bits - 64).max(EXPONENT_MIN - exponent);
        let mut rounded = match shift {
            ..=0 => value << -shift,
            1..=127 => {
                let kept = value >> shift;
                let half = 1 << (shift - 1);
                let rest = value & ((half << 1) - 1);
                let up = rest > half || rest == half && (more || kept & 1 == 1);
                kept + u128::from(up)
            }
            _ => 0,
        };
        let mut exponent = exponent + shift;
        if rounded > u128::from(u64::MAX) {
            rounded >>= 1;
            exponent += 1;
        }
        let number = Extended { negative, mantissa: rounded as u64, exponent };
        (exponent <= EXPONENT_MAX).then_some(number)
    }

    /// The number in decimal, without an exponent, and without zeroes at the end of its fraction.
    pub fn to_text(self) -> String {
        let Extended { negative, mantissa, exponent } = self;
        let mut text = if exponent >= 0 {
            let mut whole = Natural::from(mantissa);
            whole.shift_left(exponent as u32);
            whole.to_decimal()
        } else {
            // 121 bits at most.
            let scaled = u128::from(mantissa) * 10u128.pow(FRACTION_DIGITS as u32);
            let digits = match exponent.unsigned_abs() {
                shift @ 1..=127 => {
                    let (kept, half) = (scaled >> shift, 1 << (shift - 1));
                    let rest = scaled & ((half << 1) - 1);
                    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
                }
                _ => 0,
            };
            let digits = format!("{digits:0width$}", width = FRACTION_DIGITS + 1);
            let (whole, fraction) = digits.split_at(digits.len() - FRACTION_DIGITS);
            format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// A decimal number that is not negative: digits and a power of ten.
struct Decimal {
    digits: Natural,
    exponent: i64,
    /// Without zeroes at the start.
    digit_count: i64,
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Decimal> {
        let mark = text.iter().position(|&b| b == b'e' || b == b'E');
        let (text, exponent) = match mark {
            Some(mark) => (&text[..mark], parse_exponent(&text[mark + 1..])?),
            None => (text, 0),
        };
        let point = text.iter().position(|&b| b == b'.');
        let (whole, fraction) = match point {
            Some(point) => (&text[..point], &text[point + 1..]),
            None => (text, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut decimal =
            Decimal { digits: Natural::from(0), exponent: exponent - fraction.len() as i64, digit_count: 0 };
        for &byte in whole.iter().chain(fraction) {
            if !byte.is_ascii_digit() {
                return None;
            }
            decimal.digits.multiply_add(10, u32::from(byte - b'0'));
            decimal.digit_count += i64::from(!decimal.is_zero());
        }
        Some(decimal)
    }

    fn is_zero(&self) -> bool {
        self.digits.is_zero()
    }

    /// `None`: it is too large. One that is too small becomes 0.
    fn to_extended(&self, negative: bool) -> Option<Extended> {
        let zero = Extended { negative, ..Extended::ZERO };
        let magnitude = self.exponent + self.digit_count;
        if self.is_zero() || magnitude < -4960 {
            return Some(zero);
        }
        if magnitude > 4940 {
            return None;
        }
        let (mut over, mut under) = (self.digits.clone(), Natural::from(1));
        let scaled = if self.exponent >= 0 { &mut over } else { &mut under };
        (0..self.exponent.unsigned_abs()).for_each(|_| scaled.multiply_add(10, 0));
        // With as many bits, their quotient is between 1/2 and 2.
        let scale = over.bits() as i32 - under.bits() as i32;
        let shifted = if scale >= 0 { &mut under } else { &mut over };
        shifted.shift_left(scale.unsigned_abs());
        let mut quotient = 0u128;
        for _ in 0..66 {
            let fits = over.cmp(&under) != Ordering::Less;
            if fits {
                over.subtract(&under);
            }
            quotient = quotient << 1 | u128::from(fits);
            over.shift_left(1);
        }
        Extended::round(negative, quotient, !over.is_zero(), scale - 65)
    }
}

/// The exponent of ten; one that is too far from zero to matter is cut off.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    const FAR: i64 = 100_000;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits.iter().fold(0, |all, &byte| FAR.min(all * 10 + i64::from(byte - b'0')));
    Some(if negative { -exponent } else { exponent })
}

/// A natural number of any size.
#[derive(Clone)]
struct Natural {
    /// Lowest first; the highest is not 0.
    words: Vec<u32>,
}

impl From<u64> for Natural {
    fn from(value: u64) -> Natural {
        let mut number = Natural { words: vec![value as u32, (value >> 32) as u32] };
        number.trim();
        number
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.words.is_empty()
    }

    fn bits(&self) -> u32 {
        self.words.last().map_or(0, |high| self.words.len() as u32 * 32 - high.leading_zeros())
    }

    fn cmp(&self, other: &Natural) -> Ordering {
        let length = self.words.len().cmp(&other.words.len());
        length.then_with(|| self.words.iter().rev().cmp(other.words.iter().rev()))
    }

    fn multiply_add(&mut self, factor: u32, carry: u32) {
        let mut carry = u64::from(carry);
        for word in &mut self.words {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.words.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        self.words.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
    }

    /// Takes away a number that is not greater.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = 0;
        for (at, word) in self.words.iter_mut().enumerate() {
            let taken = i64::from(other.words.get(at).copied().unwrap_or(0)) + borrow;
            let rest = i64::from(*word) - taken;
            *word = rest as u32;
            borrow = i64::from(rest < 0);
        }
        self.trim();
    }

    fn to_decimal(&self) -> String {
        const STEP: u64 = 1_000_000_000;
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            let mut remainder = 0;
            for word in rest.words.iter_mut().rev() {
                let value = remainder << 32 | u64::from(*word);
                *word = (value / STEP) as u32;
                remainder = value % STEP;
            }
            rest.trim();
            groups.push(remainder);
        }
        let Some(first) = groups.pop() else { return "0".into() };
        groups.iter().rev().fold(first.to_string(), |text, group| format!("{text}{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Result<String, NoNumber> {
        Extended::parse(a.as_bytes())?.add(Extended::parse(b.as_bytes())?).map(Extended::to_text)
    }

    /// What Redis 7 replies on x86-64.
    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0", "0", "0"),
            ("-0.0", "-0.0", "0"),
            (".5", "5.", "5.5"),
            ("1e30", "0", "1000000000000000000024696061952"),
            ("18446744073709551615", "0", "18446744073709551615"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "0", "0"),
            ("1e-4940", "1", "1"),
            ("-1e-18", "0", "0"),
            ("1", "-1e-17", "0.99999999999999999"),
            ("1.23456789012345678901", "0", "1.23456789012345679"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Ok(expected), "{a} + {b}");
            assert_eq!(sum(b, a).as_deref(), Ok(expected), "{b} + {a}");
        }
    }

    #[test]
    fn whole_numbers_are_exact() {
        let mut bits: u64 = 0x9E37_79B9_7F4A_7C15;
        for _ in 0..20_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let (a, b) = (bits as i32 as i64, (bits >> 17) as i64 >> (bits & 31));
            assert_eq!(sum(&a.to_string(), &b.to_string()), Ok((a + b).to_string()), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for text in
            ["", "-", ".", "e5", "1e", "1e+", " 1", "1 ", "1x", "nan", "--1", "1e5000", "1e-5000", "1.2.3"]
        {
            assert_eq!(Extended::parse(text.as_bytes()), Err(NoNumber::Invalid), "{text}");
        }
        assert_eq!(Extended::parse(b"-Inf"), Err(NoNumber::Infinite));
        assert_eq!(sum("1e4932", "1e4932"), Err(NoNumber::Infinite));
        assert_eq!(Extended::parse(&[b'1'; 6000]), Err(NoNumber::Invalid));
    }
}
