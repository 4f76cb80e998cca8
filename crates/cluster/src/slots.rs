//! Hash slots.

use holdfast_consensus::code::{Decoder, Encoder, Malformed};
use std::{fmt, ops::RangeInclusive};

/// Hash slots, as in Redis Cluster.
pub const SLOTS: usize = 16384;

/// Hash slots, as ranges in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(pub Vec<RangeInclusive<u16>>);

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            write!(f, "{separator}{}-{}", range.start(), range.end())?;
        }
        Ok(())
    }
}

impl Slots {
    /// These slots, which are in their order.
    pub fn collect(slots: impl Iterator<Item = u16>) -> Slots {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for slot in slots {
            match ranges.last_mut() {
                Some(last) if last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        Slots(ranges)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().cloned().flatten()
    }

    /// Whether a slot is one of them.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.iter().any(|range| range.contains(&slot))
    }

    /// These and those.
    pub(crate) fn and(&self, more: &Slots) -> Slots {
        Slots::collect((0..SLOTS as u16).filter(|slot| self.contains(*slot) || more.contains(*slot)))
    }

    /// These without those.
    pub(crate) fn without(&self, less: &Slots) -> Slots {
        Slots::collect(self.iter().filter(|slot| !less.contains(*slot)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.u32(self.0.len() as u32);
        for range in &self.0 {
            out.u32((*range.start()).into()).u32((*range.end()).into());
        }
    }

    pub(crate) fn decode(bytes: &mut Decoder) -> Result<Slots, Malformed> {
        let count = bytes.u32()?;
        let mut ranges = Vec::new();
        for _ in 0..count {
            let (first, last) = (bytes.u32()?, bytes.u32()?);
            if first > last || last >= SLOTS as u32 {
                return Err(Malformed);
            }
            ranges.push(first as u16..=last as u16);
        }
        Ok(Slots(ranges))
    }
}
