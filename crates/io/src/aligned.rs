//! Memory that the kernel can transfer to and from a device without a copy.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::BLOCK;

/// A fixed number of bytes, at first zero, that starts at a multiple of [`BLOCK`] in memory.
pub struct AlignedBuf {
    /// Somewhat longer than the buffer; its length never changes, so it never moves.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Allocates `len` zero bytes. They take RAM where they are touched only: memory that is asked for with an alignment
    /// would be zeroed by hand, and a large buffer would be resident before its first use.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + BLOCK - 1];
        let start = memory.as_ptr().addr().next_multiple_of(BLOCK) - memory.as_ptr().addr();
        Self { memory, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_zero() {
        for len in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 7] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr() as usize % BLOCK, 0);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(0xA5);
            assert!(buf.iter().all(|&byte| byte == 0xA5));
        }
    }
}
