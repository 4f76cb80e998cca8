//! LZF: literals, and copies of what came before.
//!
//! A byte below 32 is followed by so many literals and one more. Else its upper three bits are the length of a copy less 2
//! (7: the next byte is added), and its lower five with the byte that follows are the distance less 1.

use crate::{Error, Result};

const BAD: Error = Error::Malformed("badly compressed string");

/// Puts the `len` bytes that were compressed into `out`, which is empty.
pub fn decompress(mut input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    // Grows with what is there: the length is only announced.
    out.reserve(len.min(input.len().saturating_mul(4)));
    while let [control, rest @ ..] = input {
        let control = usize::from(*control);
        if control < 32 {
            let (literals, rest) = rest.split_at_checked(control + 1).ok_or(BAD)?;
            out.extend_from_slice(literals);
            input = rest;
        } else {
            let (more, rest) = match (control >> 5, rest) {
                (7, [more, rest @ ..]) => (usize::from(*more), rest),
                (7, []) => return Err(BAD),
                (_, rest) => (0, rest),
            };
            let [low, rest @ ..] = rest else { return Err(BAD) };
            let distance = (control & 31) << 8 | usize::from(*low);
            let start = out.len().checked_sub(distance + 1).ok_or(BAD)?;
            let mut left = (control >> 5) + more + 2;
            // A copy may reach into itself: then what it has copied goes on in the same way.
            while left > 0 {
                let now = left.min(out.len() - start);
                out.extend_from_within(start..start + now);
                left -= now;
            }
            input = rest;
        }
        if out.len() > len {
            return Err(BAD);
        }
    }
    if out.len() == len { Ok(()) } else { Err(BAD) }
}

/// So many bytes that what was compressed begins with, if they stand there as they are. As a rule the first few do: there is nothing
/// before them that they could be a copy of.
pub fn start(input: &[u8], len: usize) -> Option<&[u8]> {
    let (control, rest) = input.split_first()?;
    if *control < 32 && usize::from(*control) + 1 >= len { rest.get(..len) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_told_where_it_was_not_compressed() {
        assert_eq!(start(b"\x02abc\x20\x02", 3), Some(&b"abc"[..]));
        assert_eq!(start(b"\x02abc\x20\x02", 2), Some(&b"ab"[..]));
        for not_there in [&b"\x02abc\x20\x02"[..], b"\x03abc", b"\x20\x02abcd", b""] {
            assert_eq!(start(not_there, 4), None);
        }
    }

    fn decompressed(input: &[u8], len: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        decompress(input, len, &mut out).map(|()| out)
    }

    #[test]
    fn copies_and_literals() {
        assert_eq!(decompressed(b"\x02abc", 3).unwrap(), b"abc");
        // Three bytes from three back, then nine from one back.
        assert_eq!(decompressed(b"\x02abc\x20\x02\xe0\x00\x00", 15).unwrap(), b"abcabcccccccccc");
        assert_eq!(decompressed(b"", 0).unwrap(), b"");
        for (bad, len) in [
            (&b"\x02abc"[..], 4),
            (b"\x02abc", 2),
            (b"\x02ab", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0", 4),
            (b"\x00a\xe0\xff", 4),
        ] {
            assert_eq!(decompressed(bad, len), Err(BAD), "{bad:?}");
        }
    }
}
