//! Floating-point numbers in Redis's form.

use std::io::Write;

/// Appends `value` as Redis 7.2 prints it: integers without a fraction, `inf`, `-inf`, `nan`, and otherwise the
/// shortest digits that read back as the same number, with an exponent (`1e+20`, `1.5e-7`) only when it is far from zero.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= (i64::MAX / 2) as f64 && value.trunc() == value {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        write_shortest(out, value);
    }
}

/// A finite number that is not zero, by its shortest digits.
fn write_shortest(out: &mut Vec<u8>, value: f64) {
    // "-d.ddddddddddddddddde-xxx" is at most 24 bytes.
    let mut text = [0u8; 32];
    let mut rest = &mut text[..];
    write!(rest, "{:e}", value.abs()).expect("a double has at most 17 digits");
    let unused = rest.len();
    let text = &text[..text.len() - unused];
    let e = text.iter().position(|&b| b == b'e').expect("LowerExp writes an exponent");
    let exponent: i32 = std::str::from_utf8(&text[e + 1..])
        .ok()
        .and_then(|s| s.parse().ok())
        .expect("LowerExp writes an exponent");

    let mut digits = [0u8; 20];
    let mut count = 0;
    for &byte in text[..e].iter().filter(|b| b.is_ascii_digit()) {
        digits[count] = byte;
        count += 1;
    }
    let digits = &digits[..count];
    let zeroes = |out: &mut Vec<u8>, n: i32| out.extend(std::iter::repeat_n(b'0', n as usize));
    // The number is digits * 10^scale.
    let scale = exponent - (count as i32 - 1);

    if value < 0.0 {
        out.push(b'-');
    }
    if scale >= 0 && exponent.abs() < count as i32 + 7 {
        out.extend_from_slice(digits);
        zeroes(out, scale);
    } else if scale < 0 && (scale > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            zeroes(out, -exponent - 1);
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

/// Reads a floating-point number as Redis does, which is as C does: `1.5`, `-.5e3`, `0x1.8p3`, `inf`, `infinity` in any
/// case. `None` for NaN, for spaces, and for a number too large, or too close to zero, for a double.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1.0, digits),
        [b'+', digits @ ..] | digits => (1.0, digits),
    };
    if let [b'0', b'x' | b'X', digits @ ..] = digits {
        return parse_hex(digits).map(|value| sign * value);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mut mantissa = text.iter().take_while(|b| !b.eq_ignore_ascii_case(&b'e'));
    let in_range = if value == 0.0 {
        mantissa.all(|b| !matches!(b, b'1'..=b'9'))
    } else {
        value.is_finite() || !mantissa.any(u8::is_ascii_digit)
    };
    (in_range && !value.is_nan()).then_some(value)
}

/// Reads what follows `0x`: digits with a point among them, and an exponent of 2.
fn parse_hex(text: &[u8]) -> Option<f64> {
    let exponent_at = text.iter().position(|b| b.eq_ignore_ascii_case(&b'p')).unwrap_or(text.len());
    let (digits, exponent) = text.split_at(exponent_at);
    let mut exponent: i64 = match exponent {
        [] => 0,
        [_, number @ ..] => {
            let number = std::str::from_utf8(number).ok()?;
            // Far beyond what a double holds, and yet far from the end of the integers.
            number.parse::<i64>().ok()?.clamp(-1 << 32, 1 << 32)
        }
    };
    let (mut mantissa, mut any, mut point) = (0u64, false, false);
    for &byte in digits {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        any = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if point { 4 } else { 0 };
        } else {
            // Too far right to count, except that something is there: it decides how a tie is rounded.
            mantissa |= u64::from(digit != 0);
            exponent += if point { 0 } else { 4 };
        }
    }
    if mantissa == 0 {
        return any.then_some(0.0);
    }
    // In two steps, since the smallest doubles are further from 1 than the largest ones.
    let half = (exponent / 2).clamp(-2000, 2000) as i32;
    let rest = (exponent - i64::from(half)).clamp(-2000, 2000) as i32;
    let value = mantissa as f64 * 2f64.powi(half) * 2f64.powi(rest);
    (value != 0.0 && value.is_finite()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{parse_double, write_double};

    fn print(value: f64) -> String {
        let mut out = Vec::new();
        write_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prints_as_redis_does() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-17.0, "-17"),
            (0.1, "0.1"),
            (3.1, "3.1"),
            (-1.5, "-1.5"),
            (0.001, "0.001"),
            (0.000001, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (123456789.125, "123456789.125"),
            (1e18, "1000000000000000000"),
            (1e20, "1e+20"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(print(value), text);
        }
    }

    #[test]
    fn reads_what_is_a_number() {
        for (text, value) in [
            ("0", 0.0),
            ("-0", 0.0),
            ("0e999", 0.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1E3", 1000.0),
            ("5e-324", 5e-324),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0X.8", -0.5),
            ("0x1.8p3", 12.0),
            ("0x1p-1", 0.5),
            ("0x0p99999999999", 0.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p-1074", 5e-324),
            ("0x20000000000001", 9007199254740992.0),
            ("0x200000000000010000000001", 9.903520314283044e27),
        ] {
            assert_eq!(parse_double(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "-nan",
            "1e999",
            "-1e999",
            "1e-999",
            "e5",
            "1,5",
            "(1",
            "\u{661}",
            "0x",
            "0xg",
            "0x1p",
            "0x1p+-1",
            "0x.p1",
            "0x1p1024",
            "0x1p-1076",
        ] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn reads_back_as_the_same_number() {
        let mut bits: u64 = 0x9E37_79B9_7F4A_7C15;
        for _ in 0..20_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(parse_double(print(value).as_bytes()), Some(value));
            }
        }
    }
}
