//! Random choices.

/// How many random members are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Different ones.
    Different(u64),
    /// The same one may be drawn several times.
    Any(u64),
}

impl Wanted {
    /// As a number.
    pub fn count(self) -> u64 {
        let (Wanted::Different(count) | Wanted::Any(count)) = self;
        count
    }
}

/// What a command that chooses at random draws, by the seed that its [`Use::Random`](crate::Use::Random) names.
pub fn draws(seed: u64) -> impl FnMut() -> u64 {
    let mut draws = fastrand::Rng::with_seed(seed);
    move || draws.u64(..)
}

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
