//! Lines of words in Redis's quoting: inline commands, the configuration file.

use crate::args::Span;
use std::fmt;

/// A quote that is never closed, or closed in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl fmt::Display for UnbalancedQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// Splits `line` at white space and appends where its words lie to `words`. Words in double quotes know the escapes
/// `\n \r \t \b \a \xHH` and `\` before any other byte; in single quotes only `\'`. A NUL byte ends the line.
///
/// Words are unescaped in place, which never makes them longer; so a line can be split only once.
pub fn split_line(line: &mut [u8], words: &mut Vec<Span>) -> Result<(), UnbalancedQuotes> {
    let length = line.iter().position(|&b| b == 0).unwrap_or(line.len());
    let line = &mut line[..length];
    let mut read = 0;
    loop {
        while line.get(read).is_some_and(|&b| is_space(b)) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = read;
        let mut write = read;
        while let Some(&byte) = line.get(read) {
            match byte {
                b'"' | b'\'' => {
                    (read, write) = unquote(line, read + 1, write, byte)?;
                    break;
                }
                _ if is_space(byte) => break,
                _ => {
                    line[write] = byte;
                    read += 1;
                    write += 1;
                }
            }
        }
        words.push(Span { start, end: write });
    }
}

/// Moves the quoted text at `read` to `write`; returns where both end. The word ends with the closing quote.
fn unquote(
    line: &mut [u8],
    mut read: usize,
    mut write: usize,
    quote: u8,
) -> Result<(usize, usize), UnbalancedQuotes> {
    loop {
        let rest = &line[read..];
        let (byte, used) = match *rest {
            [] => return Err(UnbalancedQuotes),
            [b, ref after @ ..] if b == quote => {
                return match after.first() {
                    Some(&next) if !is_space(next) => Err(UnbalancedQuotes),
                    _ => Ok((read + 1, write)),
                };
            }
            [b'\\', b'\'', ..] if quote == b'\'' => (b'\'', 2),
            [b'\\', b'x', high, low, ..] if quote == b'"' && both_hex(high, low).is_some() => {
                (both_hex(high, low).unwrap_or_default(), 4)
            }
            [b'\\', escaped, ..] if quote == b'"' => (unescape(escaped), 2),
            [b, ..] => (b, 1),
        };
        line[write] = byte;
        write += 1;
        read += used;
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn both_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, UnbalancedQuotes> {
        let mut line = line.as_bytes().to_vec();
        let mut spans = Vec::new();
        split_line(&mut line, &mut spans)?;
        Ok(spans.iter().map(|s| line[s.start..s.end].escape_ascii().to_string()).collect())
    }

    #[test]
    fn splits_and_unescapes() {
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(words(" set  a\tb\r\n").unwrap(), ["set", "a", "b"]);
        assert_eq!(words(r#"a "b c" '' "" d"#).unwrap(), ["a", "b c", "", "", "d"]);
        assert_eq!(words(r#""\x41\n\t\"\q\x4" 'it\'s \n'"#).unwrap(), [r#"A\n\t\"qx4"#, r"it\'s \\n"]);
        assert_eq!(words("ab\"c d\" e").unwrap(), ["abc d", "e"]);
        assert_eq!(words("a b\0c").unwrap(), ["a", "b"]);
    }

    #[test]
    fn refuses_unbalanced_quotes() {
        for line in ["\"", "'", "a \"b", "\"a\"b", "'a'b", "\"a\\", "'a\\'", "\"a\0\""] {
            assert_eq!(words(line), Err(UnbalancedQuotes), "{line}");
        }
    }
}
