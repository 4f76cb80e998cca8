//! Decimal integers in Redis's strict form.

/// Reads a decimal 64-bit integer as Redis does: an optional `-`, then digits without a leading zero, and nothing
/// else. `None` if it is not one, or does not fit.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits always fit in a u64.
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::parse_int;

    #[test]
    fn accepts_the_canonical_form_only() {
        for value in [0, 1, -1, 9, 10, i64::MAX, i64::MIN, 1_000_000_000_000_000_000] {
            assert_eq!(parse_int(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text}");
        }
    }
}
