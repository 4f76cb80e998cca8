//! How scripts write numbers.

use holdfast_resp::write_double;

/// As C's `%.<digits>g` does.
pub fn to_significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{text}");
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("scientific notation");
    let exponent: i32 = exponent.parse().expect("an exponent");
    let without_zeroes = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeroes(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent) as usize;
    without_zeroes(&format!("{value:.decimals$}"))
}

/// As Lua does.
pub fn to_lua_text(value: f64) -> String {
    to_significant(value, 14)
}

/// As an argument of a command: whole numbers without a point or exponent, others as short as they stay exact.
pub fn write_argument(out: &mut Vec<u8>, value: f64) {
    match to_integer(value) {
        Some(integer) => out.extend_from_slice(integer.to_string().as_bytes()),
        None => write_double(out, value),
    }
}

/// The integer that a number is.
pub fn to_integer(value: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    (value.fract() == 0.0 && (-END..END).contains(&value)).then_some(value as i64)
}

/// As C converts a number to an integer on the processors that Redis runs on: without its fraction; the least integer, if
/// there is none.
pub fn truncate(value: f64) -> i64 {
    to_integer(value.trunc()).unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (-3.25, "-3.25"),
            (100000.0, "100000"),
            (1e14, "1e+14"),
            (123456789012345.0, "1.2345678901234e+14"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (0.00001, "1e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
            (99999999999999.9, "1e+14"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(to_lua_text(value), text);
        }
        assert_eq!(to_significant(0.1, 17), "0.10000000000000001");
    }

    #[test]
    fn integers() {
        assert_eq!(to_integer(3.0), Some(3));
        assert_eq!(to_integer(3.5), None);
        assert_eq!(to_integer(9_223_372_036_854_775_808.0), None);
        assert_eq!(truncate(-3.99), -3);
        assert_eq!(truncate(f64::NAN), i64::MIN);
        let mut out = Vec::new();
        write_argument(&mut out, 1e15);
        out.push(b' ');
        write_argument(&mut out, 0.1);
        assert_eq!(out, b"1000000000000000 0.1");
    }
}
