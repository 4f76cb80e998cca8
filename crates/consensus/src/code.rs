//! Numbers and byte strings in the order in which they were put, as in the journal and in messages: little-endian, a byte string
//! behind its length.

/// What was read is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Writes.
#[derive(Default)]
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    /// A byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A byte string.
    ///
    /// # Panics
    /// There are 4 GiB of them or more.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).expect("less than 4 GiB"));
        self.0.extend_from_slice(bytes);
        self
    }

    /// A byte string that is written where it is to be.
    ///
    /// # Panics
    /// There are 4 GiB of them or more.
    pub fn nested(&mut self, write: impl FnOnce(&mut Encoder)) -> &mut Self {
        let start = self.u32(0).0.len();
        write(self);
        let len = u32::try_from(self.0.len() - start).expect("less than 4 GiB");
        self.0[start - 4..start].copy_from_slice(&len.to_le_bytes());
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
