//! Many strings in little memory: one behind another, not each in a block of its own.

use crate::{Error, Result};
use std::hash::{BuildHasher, RandomState};

const TOO_MUCH: Error = Error::Malformed("a collection of more than 4 GiB");

/// Strings in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Strings {
    /// None so far, with room for so many of so many bytes together.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Strings {
        Strings { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    /// Has room for so many more of so many bytes together.
    pub(crate) fn reserve(&mut self, count: usize, bytes: usize) {
        self.bytes.reserve(bytes);
        self.ends.reserve(count);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// One of them. Panics if there are not so many.
    pub fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start as usize..self.ends[at] as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(crate) fn push(&mut self, string: &[u8]) -> Result<()> {
        let end = u32::try_from(self.bytes.len() + string.len()).map_err(|_| TOO_MUCH)?;
        self.bytes.extend_from_slice(string);
        self.ends.push(end);
        Ok(())
    }

    /// Whether no two of those in every `step`-th place are the same.
    pub(crate) fn are_different(&self, step: usize) -> bool {
        /// So few are compared with each other sooner than hashed.
        const FEW: usize = 24;
        if self.len().div_ceil(step) <= FEW {
            let places = || (0..self.len()).step_by(step);
            return places().all(|at| {
                let string = self.get(at);
                places().take_while(|before| *before < at).all(|before| self.get(before) != string)
            });
        }
        let mut table = vec![u32::MAX; (2 * self.len().div_ceil(step)).next_power_of_two()];
        let hasher = RandomState::new();
        (0..self.len()).step_by(step).all(|at| {
            let string = self.get(at);
            let mut place = hasher.hash_one(string) as usize % table.len();
            while table[place] != u32::MAX {
                if self.get(table[place] as usize) == string {
                    return false;
                }
                place = (place + 1) % table.len();
            }
            table[place] = at as u32;
            true
        })
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    /// Panics if they are more than 4 GiB.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut all = Strings::default();
        for string in strings {
            all.push(string.as_ref()).expect("less than 4 GiB");
        }
        all
    }
}

/// The members of a sorted set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    pub(crate) members: Strings,
    pub(crate) scores: Vec<f64>,
}

impl Members {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// All of them with their scores.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> + Clone {
        self.members.iter().zip(self.scores.iter().copied())
    }
}

impl<S: AsRef<[u8]>> FromIterator<(S, f64)> for Members {
    /// Panics if they are more than 4 GiB.
    fn from_iter<I: IntoIterator<Item = (S, f64)>>(members: I) -> Members {
        let (mut names, mut scores) = (Strings::default(), Vec::new());
        for (member, score) in members {
            names.push(member.as_ref()).expect("less than 4 GiB");
            scores.push(score);
        }
        Members { members: names, scores }
    }
}

/// The fields of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Names and values in turn.
    pub(crate) strings: Strings,
    /// When each expires; empty if none does.
    pub(crate) expires: Vec<u64>,
}

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'f> {
    /// Its name.
    pub name: &'f [u8],
    /// Its value.
    pub value: &'f [u8],
    /// When it expires: Unix time in milliseconds; 0: never.
    pub expires: u64,
}

impl Fields {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.strings.len() / 2
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        (0..self.len()).map(|at| Field {
            name: self.strings.get(2 * at),
            value: self.strings.get(2 * at + 1),
            expires: self.expires.get(at).copied().unwrap_or(0),
        })
    }
}

impl<'f> FromIterator<Field<'f>> for Fields {
    /// Panics if they are more than 4 GiB.
    fn from_iter<I: IntoIterator<Item = Field<'f>>>(fields: I) -> Fields {
        let (mut strings, mut expires) = (Strings::default(), Vec::new());
        for field in fields {
            [field.name, field.value].iter().for_each(|s| strings.push(s).expect("less than 4 GiB"));
            expires.push(field.expires);
        }
        Fields::new(strings, expires)
    }
}

impl Fields {
    /// Of names and values in turn, and of when each expires.
    pub(crate) fn new(strings: Strings, mut expires: Vec<u64>) -> Fields {
        if expires.iter().all(|at| *at == 0) {
            expires = Vec::new();
        }
        Fields { strings, expires }
    }
}
