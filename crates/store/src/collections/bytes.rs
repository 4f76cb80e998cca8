//! What the bytes of an object are made of (see [`serial`](super::serial)): sizes and values, written and read.

use holdfast_heap::Full;

use super::object::Type;

/// The version of the bytes.
pub const VERSION: u8 = 1;
/// Bytes of the longest value that a client can send.
const VALUE_MAX: u64 = 512 << 20;

/// Why an import failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The arena has no room.
    Full,
    /// The bytes are no object; says in what.
    Malformed(&'static str),
}

impl From<Full> for ImportError {
    fn from(_: Full) -> ImportError {
        ImportError::Full
    }
}

/// What an object of so many elements begins with.
pub fn header(ty: Type, count: u64) -> Vec<u8> {
    let mut out = vec![VERSION, ty as u8];
    put_size(&mut out, count);
    out
}

/// Appends a size.
pub fn put_size(out: &mut Vec<u8>, size: u64) {
    let mut rest = size;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a value.
pub fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    put_size(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// What is left of an object's bytes.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ImportError> {
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or(ImportError::Malformed("an object cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, ImportError> {
        Ok(self.take(1)?[0])
    }

    pub fn size(&mut self) -> Result<u64, ImportError> {
        let mut size = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            size |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(size);
            }
        }
        Err(ImportError::Malformed("a number of more than 64 bits"))
    }

    pub fn value(&mut self) -> Result<&'a [u8], ImportError> {
        let len = self.size()?;
        if len > VALUE_MAX {
            return Err(ImportError::Malformed("a value of more than 512 MiB"));
        }
        self.take(len as usize)
    }

    pub fn score(&mut self) -> Result<f64, ImportError> {
        let score = f64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes"));
        if score.is_nan() { Err(ImportError::Malformed("a score that is no number")) } else { Ok(score) }
    }
}
