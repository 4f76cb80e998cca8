//! Random choices.

/// Maps a random word to `0..limit`, evenly for any limit that matters.
pub(super) fn below(limit: usize, random: u64) -> usize {
    ((u128::from(random) * limit as u128) >> 64) as usize
}

/// Keeps `count` of the items, each with the same chance, in random order; all of them, if there are no more.
pub(super) fn choose<T>(mut items: Vec<T>, count: usize, mut random: impl FnMut() -> u64) -> Vec<T> {
    let count = count.min(items.len());
    for i in 0..count {
        let other = i + below(items.len() - i, random());
        items.swap(i, other);
    }
    items.truncate(count);
    items
}
