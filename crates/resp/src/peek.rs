//! A quick look at commands that are not yet their turn.

/// The second argument and the length of the command at the start of `input`, if it is there as a whole and an array
/// of at least two bulk strings. No judgement: what is wrong with other input is for the parser to say.
pub fn peek(input: &[u8]) -> Option<(&[u8], usize)> {
    let mut rest = input;
    let count = header(&mut rest, b'*')?;
    if count < 2 {
        return None;
    }
    let mut second = None;
    for index in 0..count {
        let len = header(&mut rest, b'$')?;
        if index == 1 {
            second = rest.get(..len);
        }
        rest = rest.get(len.checked_add(2)?..)?;
    }
    Some((second?, input.len() - rest.len()))
}

/// Takes `kind`, a length of at most nine digits, and the end of the line.
fn header(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let (&first, mut digits) = rest.split_first()?;
    if first != kind {
        return None;
    }
    let mut value = 0;
    for taken in 0.. {
        let (&byte, after) = digits.split_first()?;
        digits = after;
        match byte {
            b'0'..=b'9' if taken < 9 => value = value * 10 + usize::from(byte - b'0'),
            b'\r' if taken > 0 => break,
            _ => return None,
        }
    }
    *rest = digits.get(1..)?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_whole_commands_only() {
        let set = b"*3\r\n$3\r\nSET\r\n$5\r\nhello\r\n$1\r\nx\r\n";
        let more = [&set[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        assert_eq!(peek(&more), Some((&b"hello"[..], set.len())));
        (0..set.len()).for_each(|len| assert_eq!(peek(&set[..len]), None, "{len}"));
        for other in [
            &b"*1\r\n$4\r\nPING\r\n"[..],
            b"GET x\r\n",
            b"*2\r\n$-1\r\n",
            b"*2\r\n:1\r\n:2\r\n",
            b"*99999999999\r\n",
        ] {
            assert_eq!(peek(other), None);
        }
    }
}
