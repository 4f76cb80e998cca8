//! Sets of an extent's pages, as the bits of a word.

use crate::PAGES;

/// The runs of adjacent bits that are set: the first one's number, and how many they are.
pub(crate) fn runs(mut set: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as usize)?;
        let count = (set >> first).trailing_ones() as usize;
        set &= !page_mask(first, first + count - 1);
        Some((first, count))
    })
}

/// The pages from `first` to `last`, as bits.
pub(crate) fn page_mask(first: usize, last: usize) -> u64 {
    (!0 >> (PAGES - 1 - (last - first))) << first
}

/// The first of `n` adjacent set bits.
pub(crate) fn adjacent(mask: u64, n: usize) -> Option<usize> {
    let (mut starts, mut have) = (mask, 1);
    while have < n {
        let step = have.min(n - have);
        starts &= starts >> step;
        have += step;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}
