//! IDs of entries.

use std::fmt;

/// What an entry is found by: a time, and a number that tells entries of the same time apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Unix time in milliseconds, or what the client says.
    pub ms: u64,
    /// The number within this time.
    pub seq: u64,
}

impl Id {
    /// The least one, which no entry has.
    pub const MIN: Id = Id::new(0, 0);
    /// The greatest one.
    pub const MAX: Id = Id::new(u64::MAX, u64::MAX);

    /// The ID of these two parts.
    pub const fn new(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }

    /// The ID after this one.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// The ID before this one.
    pub fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Bytes whose order is that of the IDs.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The ID with these bytes.
    pub fn from_bytes(bytes: &[u8; 16]) -> Id {
        let number = u128::from_be_bytes(*bytes);
        Id::new((number >> 64) as u64, number as u64)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn ids_are_ordered_and_have_neighbours() {
        let ids = [Id::MIN, Id::new(0, 1), Id::new(0, u64::MAX), Id::new(1, 0), Id::new(256, 1), Id::MAX];
        assert!(ids.is_sorted());
        assert!(ids.map(Id::to_bytes).is_sorted());
        for id in ids {
            assert_eq!(Id::from_bytes(&id.to_bytes()), id);
            assert_eq!(id.next().and_then(Id::previous).unwrap_or(Id::MAX), id);
            assert_eq!(id.previous().and_then(Id::next).unwrap_or(Id::MIN), id);
        }
        assert_eq!((Id::MIN.previous(), Id::MAX.next()), (None, None));
        assert_eq!(Id::new(0, u64::MAX).next(), Some(Id::new(1, 0)));
    }
}
