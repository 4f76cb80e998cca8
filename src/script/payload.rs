//! Libraries in the form of FUNCTION DUMP: as in a file of Redis's, one after another, and behind them the version of that
//! form and a checksum.

/// What comes before each library.
const LIBRARY: u8 = 245;
/// What came before one in a version that was never released.
const EARLY_LIBRARY: u8 = 246;
/// The version of the form, which Redis 7.2 writes.
const VERSION: u16 = 11;
/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// The libraries of these sources.
pub fn dump<'s>(sources: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(LIBRARY);
        match source.len() {
            len @ ..0x40 => out.push(len as u8),
            len @ ..0x4000 => out.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
            len => {
                out.push(0x80);
                out.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
        out.extend_from_slice(source);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// The sources of the libraries, or what is wrong.
pub fn parse(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    const WRONG: &str = "DUMP payload version or checksum are wrong";
    let (body, footer) = payload.split_at_checked(payload.len().wrapping_sub(FOOTER)).ok_or(WRONG)?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let sum = u64::from_le_bytes(footer[2..].try_into().expect("eight bytes"));
    if version > VERSION || sum != crc64(&payload[..payload.len() - 8]) {
        return Err(WRONG);
    }
    let mut reader = Reader { rest: body };
    let mut sources = Vec::new();
    while let Some(&kind) = reader.rest.first() {
        reader.rest = &reader.rest[1..];
        match kind {
            LIBRARY => sources.push(reader.string().ok_or("failed loading the given functions payload")?),
            EARLY_LIBRARY => return Err("Pre-GA function format not supported"),
            _ => return Err("given type is not a function"),
        }
    }
    Ok(sources)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, len: usize) -> Option<usize> {
        Some(self.take(len)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// A length, or the number of an encoding (`Err`).
    fn length(&mut self) -> Option<Result<usize, u8>> {
        let first = self.number(1)?;
        Some(Ok(match first >> 6 {
            0 => first,
            1 => (first & 0x3F) << 8 | self.number(1)?,
            2 if first == 0x80 => self.number(4)?,
            2 if first == 0x81 => self.number(8)?,
            2 => return None,
            _ => return Some(Err(first as u8 & 0x3F)),
        }))
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        const COMPRESSED: u8 = 3;
        match self.length()? {
            Ok(len) => self.take(len).map(<[u8]>::to_vec),
            Err(COMPRESSED) => {
                let (packed, len) = (self.length()?.ok()?, self.length()?.ok()?);
                decompress(self.take(packed)?, len)
            }
            Err(_) => None,
        }
    }
}

/// LZF: a byte below 32 stands before one literal more; others are a length and a distance back.
fn decompress(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut reader = Reader { rest: packed };
    let mut out = Vec::new();
    while !reader.rest.is_empty() {
        let control = reader.number(1)?;
        if control < 32 {
            out.extend_from_slice(reader.take(control + 1)?);
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += reader.number(1)?;
            }
            let distance = ((control & 31) << 8 | reader.number(1)?) + 1;
            let from = out.len().checked_sub(distance)?;
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// The checksum of Redis's files: CRC-64 by Jones, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95AC_9329_AC4B_C9B5;
    const TABLE: [u64; 256] = {
        let (mut table, mut byte) = ([0; 256], 0);
        while byte < 256 {
            let (mut crc, mut bit) = (byte as u64, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, &byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum() {
        assert_eq!(crc64(b"123456789"), 0xE9C6_D914_C4B8_D9CA);
    }

    #[test]
    fn dumps_are_read_back() {
        let sources = [&b"short"[..], &[b'x'; 100], &[b'y'; 70_000]];
        let payload = dump(sources.into_iter());
        assert_eq!(parse(&payload).unwrap(), sources);
        for at in [0, 50, payload.len() - 1] {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_err());
        }
        assert!(parse(b"").is_err() && parse(&payload[..9]).is_err());
        assert_eq!(parse(&dump([].into_iter())), Ok(vec![]));
    }

    #[test]
    fn compressed_sources() {
        assert_eq!(decompress(b"\x01ab\x60\x01", 7).as_deref(), Some(&b"abababa"[..]));
        for bad in [&b"\x01a"[..], b"\x60\x01", b"\x01ab\x60\x01\x00x"] {
            assert_eq!(decompress(bad, 7), None);
        }
    }
}
