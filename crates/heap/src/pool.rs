//! The extents that nobody owns.

/// Free extents, as bits; the lowest are taken first, so that the tables stay short.
pub(crate) struct Pool {
    free: Vec<u64>,
    count: u32,
    len: u32,
    /// No extent below is free.
    lowest: u32,
}

impl Pool {
    /// Extents `0..len`, none of which is free.
    pub(crate) fn new(len: u32) -> Pool {
        Pool { free: vec![0; len.div_ceil(64) as usize], count: 0, len, lowest: len }
    }

    /// How many extents are free.
    pub(crate) fn free_count(&self) -> u32 {
        self.count
    }

    fn is_free(&self, extent: u32) -> bool {
        self.free[extent as usize / 64] & 1 << (extent % 64) != 0
    }

    /// Makes an extent free.
    pub(crate) fn put(&mut self, extent: u32) {
        assert!(extent < self.len && !self.is_free(extent), "extent {extent} is free already");
        self.free[extent as usize / 64] |= 1 << (extent % 64);
        self.count += 1;
        self.lowest = self.lowest.min(extent);
    }

    /// Takes the first `n` adjacent free extents.
    pub(crate) fn take(&mut self, n: usize) -> Option<u32> {
        let (mut start, mut at) = (self.lowest, self.lowest);
        while (at - start) as usize != n {
            if at == self.len {
                return None;
            }
            if at % 64 == 0 && self.free[at as usize / 64] == 0 {
                at = (at + 64).min(self.len);
                start = at;
            } else if self.is_free(at) {
                at += 1;
            } else {
                at += 1;
                start = at;
            }
        }
        (start..at).for_each(|extent| self.free[extent as usize / 64] &= !(1 << (extent % 64)));
        self.count -= n as u32;
        if start == self.lowest {
            self.lowest = at;
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_first_fit() {
        let mut pool = Pool::new(200);
        assert_eq!(pool.take(1), None);
        (3..200).for_each(|extent| pool.put(extent));
        assert_eq!(pool.take(1), Some(3));
        assert_eq!(pool.take(150), Some(4));
        assert_eq!(pool.take(47), None);
        assert_eq!(pool.take(46), Some(154));
        pool.put(70);
        pool.put(72);
        assert_eq!(pool.take(2), None);
        pool.put(71);
        assert_eq!(pool.take(3), Some(70));
        assert_eq!(pool.take(1), None);
    }
}
