//! The arithmetic of INCRBYFLOAT and HINCRBYFLOAT: that of C's `long double` on x86, in which Redis computes them.
//!
//! A number has 64 bits of mantissa, so that 0.1 and 0.2 make 0.3, and it is printed with up to 17 digits behind the
//! point. Computed in `f64`, results would differ from Redis's in what clients see.

use rustc_apfloat::{
    Float, Round, Status,
    ieee::{IeeeFloat, X87DoubleExtended, X87DoubleExtendedS},
};
use std::str;

/// Bytes of a text at most.
const TEXT_MAX: usize = 5 * 1024 - 1;
/// Digits of the greatest number.
const DIGITS_MAX: usize = 4933;
/// Digits that are printed behind the point.
const FRACTION_DIGITS: usize = 17;

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extended(X87DoubleExtended);

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
    pub const ZERO: Extended = Extended(IeeeFloat::<X87DoubleExtendedS>::ZERO);

    /// Reads decimal digits with an optional sign, point and exponent, without any space.
    pub fn parse(text: &[u8]) -> Result<Extended, NoNumber> {
        let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Err(NoNumber::Infinite);
        }
        // The library also takes NaN, hexadecimal numbers, a second sign, and an exponent without digits.
        let is_digit_or_point = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_digit() || *b == b'.');
        let is_number = is_digit_or_point(unsigned.first())
            && is_digit_or_point(unsigned.last())
            && unsigned.iter().all(|byte| b"0123456789.eE+-".contains(byte));
        if text.len() > TEXT_MAX || !is_number {
            return Err(NoNumber::Invalid);
        }
        let text = str::from_utf8(text).expect("only ASCII");
        let parsed = X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven);
        let parsed = parsed.map_err(|_| NoNumber::Invalid)?;
        let is_too_small = parsed.value.is_zero() && parsed.status != Status::OK;
        if is_too_small || parsed.value.is_infinite() {
            return Err(NoNumber::Invalid);
        }
        Ok(Extended(parsed.value))
    }

    /// The sum.
    pub fn add(self, other: Extended) -> Result<Extended, NoNumber> {
        let sum = (self.0 + other.0).value;
        if sum.is_infinite() { Err(NoNumber::Infinite) } else { Ok(Extended(sum)) }
    }

    /// The number in decimal, without an exponent, and without zeroes at the end of its fraction.
    pub fn to_text(self) -> String {
        let (number, bits) = (self.0.abs(), self.0.abs().to_bits());
        let (mantissa, exponent) = (bits as u64, (bits >> 64) as i32 - 16383 - 63);
        let mut text = if exponent >= 0 {
            // With room for as many zeroes it is printed without an exponent.
            format!("{number:DIGITS_MAX$.DIGITS_MAX$}")
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
        if self.0.is_negative() && text != "0" {
            text.insert(0, '-');
        }
        text
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
