//! Numbers and byte strings in the order in which they were put, as in the journal and in messages: little-endian, a byte string
//! behind its length.

use bytes::Bytes;

/// What was read is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A byte string of so many bytes is shared, not copied.
const SHARED_BYTES: usize = 16 << 10;

/// Writes.
#[derive(Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// Long byte strings, and before which of the others each of them comes.
    shared: Vec<(usize, Bytes)>,
}

impl Encoder {
    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.shared.is_empty() { self.bytes } else { self.into_pieces().concat() }
    }

    /// The same in pieces.
    pub fn into_pieces(self) -> Vec<Bytes> {
        let (mut rest, mut taken) = (Bytes::from(self.bytes), 0);
        let mut pieces = Vec::with_capacity(2 * self.shared.len() + 1);
        for (at, bytes) in self.shared {
            pieces.extend([rest.split_to(at - taken), bytes]);
            taken = at;
        }
        pieces.push(rest);
        pieces
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.shared.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// Bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// A byte string.
    ///
    /// # Panics
    /// There are 4 GiB of them or more.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).expect("less than 4 GiB")).raw(bytes)
    }

    /// The same; a long one is not copied.
    ///
    /// # Panics
    /// There are 4 GiB of them or more.
    pub fn shared(&mut self, bytes: &Bytes) -> &mut Self {
        if bytes.len() < SHARED_BYTES {
            return self.bytes(bytes);
        }
        self.u32(u32::try_from(bytes.len()).expect("less than 4 GiB"));
        self.shared.push((self.bytes.len(), bytes.clone()));
        self
    }

    /// A byte string that is written where it is to be.
    ///
    /// # Panics
    /// There are 4 GiB of them or more.
    pub fn nested(&mut self, write: impl FnOnce(&mut Encoder)) -> &mut Self {
        let at = self.bytes.len();
        let start = self.u32(0).len();
        write(self);
        let len = u32::try_from(self.len() - start).expect("less than 4 GiB");
        self.bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
        self
    }

    /// Numbers of eight bytes, behind how many there are.
    pub fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        self.u32(numbers.len() as u32);
        for &number in numbers {
            self.u64(number);
        }
        self
    }
}

/// Reads what [`Encoder`] wrote, or finds that it did not.
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A byte.
    ///
    /// # Errors
    /// There is less.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// A byte that is 0 or 1: no or yes.
    ///
    /// # Errors
    /// There is none, or another one.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Four bytes.
    ///
    /// # Errors
    /// There is less.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// There is less.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    /// A byte string.
    ///
    /// # Errors
    /// There is less.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// Numbers of eight bytes.
    ///
    /// # Errors
    /// There is less.
    pub fn numbers(&mut self) -> Result<Vec<u64>, Malformed> {
        let count = self.u32()? as usize;
        let bytes = self.take(count.checked_mul(8).ok_or(Malformed)?)?;
        Ok(bytes
            .chunks_exact(8)
            .map(|number| u64::from_le_bytes(number.try_into().expect("eight")))
            .collect())
    }

    /// That was all.
    ///
    /// # Errors
    /// There is more.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
