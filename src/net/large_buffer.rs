//! The buffer of large replies: memory that comes fresh from the system costs a page fault for each of its pages, which takes longer
//! than the reply's copy. So a worker keeps one such buffer as long as it is in use.

use crate::clients::client::BUFFER_SIZE;

/// Replies from this length on are large. Buffers of others are kept by [`super::shared::Shared`].
pub const LARGE: usize = 4 * BUFFER_SIZE;
/// Longer buffers are not kept.
const LENGTH_MAX: usize = 32 << 20;

/// A buffer that may be there.
#[derive(Default)]
pub struct LargeBuffer {
    /// Without capacity there is none.
    kept: Vec<u8>,
    /// Whether it was asked for since the last tick.
    is_wanted: bool,
}

impl LargeBuffer {
    /// Takes the buffer for replies that will likely have so many bytes.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if len <= LARGE {
            return None;
        }
        self.is_wanted = true;
        let kept = std::mem::take(&mut self.kept);
        (kept.capacity() > 0).then_some(kept)
    }

    /// Keeps a buffer whose replies were sent, if it is the largest that there is.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if (LARGE + 1..=LENGTH_MAX).contains(&buffer.capacity()) && buffer.capacity() > self.kept.capacity() {
            buffer.clear();
            self.kept = buffer;
        }
    }

    /// Gives it back to the system, if nobody has asked for it since the last tick.
    pub fn tick(&mut self) {
        if !std::mem::take(&mut self.is_wanted) {
            self.kept = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_kept_as_long_as_it_is_in_use() {
        const LEN: usize = 1 << 20;
        let mut large = LargeBuffer::default();
        assert!(large.take(LEN).is_none());
        large.give(vec![1; LEN]);
        large.give(vec![2; LEN / 2]);
        large.tick();
        assert!(large.take(LARGE).is_none(), "for small replies");
        let buffer = large.take(LEN).expect("it was asked for since the last tick but one");
        assert!(buffer.is_empty() && buffer.capacity() == LEN);
        assert!(large.take(LEN).is_none(), "it is in use");
        large.give(buffer);
        large.tick();
        large.tick();
        assert!(large.take(LEN).is_none(), "nobody has asked for it");
        large.give(vec![1; LENGTH_MAX + 1]);
        assert!(large.take(LEN).is_none(), "it is too large");
    }
}
