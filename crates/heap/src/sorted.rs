//! The redo of a part of the log, sorted by extent: what a start wants of it, in the order in which it wants it.
//!
//! What it says is what the records would say one after another. An extent that changes hands is zeroed, so of what came
//! before nothing is left.

use crate::{EXTENT, redo::Redo, tx::Record};

/// Redo records, sorted. `docs/format.md`, "Redo", is the reference for how they are encoded.
#[derive(Default)]
pub struct SortedRedo {
    /// Those that were changed, in the order in which they were met.
    changed: Vec<(u32, Changed)>,
    /// The place of each extent among them, and one more; 0: it was not changed.
    places: Vec<u32>,
}

/// What becomes of an extent.
#[derive(Default)]
struct Changed {
    owner: Option<NewOwner>,
    /// What is written behind that.
    redo: Redo,
}

/// The new owner of an extent, and granules of it that are allocated.
pub(crate) type NewOwner = (u16, u16);

/// What becomes of an extent, encoded.
#[derive(Debug, PartialEq)]
pub(crate) struct EncodedChange<'e> {
    pub extent: u32,
    pub owner: Option<NewOwner>,
    /// What is written behind that, for [`Redo::add_encoded`].
    pub writes: &'e [u8],
}

/// Bytes before an extent's writes: its number, its owner and what is used of it, and the length of the writes.
const HEAD: usize = 12;
/// What is added to the length if the extent has another owner.
const OWNED: u32 = 1 << 31;

impl SortedRedo {
    /// Adds a record behind those that were added before.
    pub fn add(&mut self, record: &Record) {
        match *record {
            Record::Write { offset, bytes } => self.write(offset, bytes),
            Record::Fill { offset, len, byte } => self.write(offset, &vec![byte; len]),
            Record::Owner { extent, owner, used } => {
                *self.change(extent) = Changed { owner: Some((owner, used)), redo: Redo::default() };
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (at % EXTENT) as usize;
            let (part, behind) = rest.split_at(rest.len().min(EXTENT as usize - within));
            self.change((at / EXTENT) as u32).redo.push(within, part);
            (at, rest) = (at + part.len() as u64, behind);
        }
    }

    #[inline]
    fn change(&mut self, extent: u32) -> &mut Changed {
        if self.places.len() <= extent as usize {
            self.places.resize(extent as usize + 1, 0);
        }
        let place = &mut self.places[extent as usize];
        if *place == 0 {
            self.changed.push((extent, Changed::default()));
            *place = self.changed.len() as u32;
        }
        &mut self.changed[*place as usize - 1].1
    }

    /// What becomes of the extents, one after another: its new owner, if it has one, and what is written behind that.
    pub(crate) fn into_changes(self) -> impl Iterator<Item = (u32, Option<NewOwner>, Redo)> {
        self.changed.into_iter().map(|(extent, Changed { owner, redo })| (extent, owner, redo))
    }

    /// Records that come to the same.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.changed.iter().flat_map(|(extent, Changed { owner, redo })| {
            let (extent, start) = (*extent, u64::from(*extent) * EXTENT);
            let owner = owner.map(|(owner, used)| Record::Owner { extent, owner, used });
            let writes = redo.writes();
            let writes = writes.map(move |(at, bytes)| Record::Write { offset: start + at as u64, bytes });
            owner.into_iter().chain(writes)
        })
    }

    /// Appends all of it to `out`.
    pub fn encode(mut self, out: &mut Vec<u8>) {
        self.changed.sort_unstable_by_key(|(extent, _)| *extent);
        for (extent, Changed { owner, redo }) in &self.changed {
            let (flag, (owner, used)) = (if owner.is_some() { OWNED } else { 0 }, owner.unwrap_or_default());
            let writes = redo.encoded();
            out.extend_from_slice(&extent.to_le_bytes());
            out.extend_from_slice(&owner.to_le_bytes());
            out.extend_from_slice(&used.to_le_bytes());
            out.extend_from_slice(&(writes.len() as u32 | flag).to_le_bytes());
            out.extend_from_slice(writes);
        }
    }
}

/// What becomes of the extents, one after another, as [`SortedRedo::encode`] has said it; `None`, at the end: it is cut short.
pub(crate) fn decode(mut encoded: &[u8]) -> impl Iterator<Item = Option<EncodedChange<'_>>> {
    std::iter::from_fn(move || {
        if encoded.is_empty() {
            return None;
        }
        let split = split(encoded);
        encoded = split.as_ref().map_or(&[], |(_, behind)| behind);
        Some(split.map(|(first, _)| first))
    })
}

fn split(encoded: &[u8]) -> Option<(EncodedChange<'_>, &[u8])> {
    let (head, rest) = encoded.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (extent, owner, len) = (word(0), word(4), word(8));
    let owner = (len & OWNED != 0).then_some((owner as u16, (owner >> 16) as u16));
    let (writes, behind) = rest.split_at_checked((len & !OWNED) as usize)?;
    Some((EncodedChange { extent, owner, writes }, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(records: &[Record]) -> Vec<u8> {
        let (mut sorted, mut bytes) = (SortedRedo::default(), Vec::new());
        records.iter().for_each(|record| sorted.add(record));
        sorted.encode(&mut bytes);
        bytes
    }

    fn writes(encoded: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut redo = Redo::default();
        redo.add_encoded(encoded).expect("what was encoded");
        redo.writes().map(|(at, bytes)| (at, bytes.to_vec())).collect()
    }

    #[test]
    fn records_come_back_by_extent() {
        let bytes = encoded(&[
            Record::Write { offset: 3 * EXTENT - 1, bytes: b"ab" },
            Record::Write { offset: 7, bytes: b"lost" },
            Record::Owner { extent: 0, owner: 5, used: 9 },
            Record::Fill { offset: 20, len: 3, byte: 1 },
            Record::Write { offset: 2 * EXTENT, bytes: b"cd" },
        ]);
        let found: Vec<_> = decode(&bytes).map(|one| one.expect("what was encoded")).collect();
        let found: Vec<_> = found.iter().map(|one| (one.extent, one.owner, writes(one.writes))).collect();
        let expected = [
            (0, Some((5, 9)), vec![(20, vec![1; 3])]),
            (2, None, vec![(EXTENT as usize - 1, b"a".to_vec()), (0, b"cd".to_vec())]),
            (3, None, vec![(0, b"b".to_vec())]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_not_encoded_so_is_refused() {
        let bytes = encoded(&[Record::Write { offset: 7, bytes: b"abc" }]);
        for len in 1..bytes.len() {
            assert!(decode(&bytes[..len]).any(|one| one.is_none()), "{len} bytes");
        }
        let (mut redo, writes) = (Redo::default(), &bytes[HEAD..]);
        for len in 1..writes.len() {
            assert!(redo.add_encoded(&writes[..len]).is_none(), "{len} bytes");
        }
        let mut beyond = writes.to_vec();
        beyond[..4].copy_from_slice(&((EXTENT as u32 - 1) | (3 << EXTENT.ilog2())).to_le_bytes());
        assert!(redo.add_encoded(&beyond).is_none(), "a write that reaches beyond its extent");
        assert!(redo.is_empty());
        assert!(redo.add_encoded(writes).is_some() && redo.pages() == 1);
    }
}
