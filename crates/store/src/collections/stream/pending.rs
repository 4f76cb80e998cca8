//! What is pending: entries that were delivered to a consumer and not acknowledged.
//!
//! A group has an ordered set of all its pending entries, of slots of 32 bytes: `ID 16, consumer's block u40, time of
//! delivery u48, deliveries u40`, the ID big-endian, the rest little-endian. Each consumer has an ordered set of the IDs
//! of its own.

use holdfast_heap::{Arena, Full, Tx};

use super::{
    Id,
    named::{PENDING, count_pending},
};
use crate::collections::{
    absent::{Absent, Finder},
    ordered::{Ordered, Position, Search},
};

/// The greatest number of deliveries that is counted.
const DELIVERIES_MAX: u64 = (1 << 40) - 1;
/// The latest time of a delivery that can be told, in milliseconds: some 8900 years.
const DELIVERED_MAX: u64 = (1 << 48) - 1;

/// A pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The entry's ID; the entry itself may be gone.
    pub id: Id,
    /// When it was delivered last: Unix time in milliseconds.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
    /// The block of the consumer.
    pub(super) consumer: u64,
}

impl Pending {
    fn encode(&self) -> [u8; 32] {
        let mut slot = [0; 32];
        slot[..16].copy_from_slice(&self.id.to_bytes());
        slot[16..21].copy_from_slice(&self.consumer.to_le_bytes()[..5]);
        slot[21..27].copy_from_slice(&self.delivered_ms.min(DELIVERED_MAX).to_le_bytes()[..6]);
        slot[27..].copy_from_slice(&self.deliveries.min(DELIVERIES_MAX).to_le_bytes()[..5]);
        slot
    }

    fn decode(slot: &[u8; 32]) -> Pending {
        let number = |from: usize, to: usize| {
            slot[from..to].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        Pending {
            id: Id::from_bytes(slot.first_chunk().expect("16 bytes of 32")),
            consumer: number(16, 21),
            delivered_ms: number(21, 27),
            deliveries: number(27, 32),
        }
    }
}

fn of_group(group: u64) -> Ordered<32> {
    Ordered::at(group + PENDING)
}

fn of_consumer(consumer: u64) -> Ordered {
    Ordered::at(consumer + PENDING)
}

fn from<const SLOT: usize>(set: Ordered<SLOT>, arena: &Arena, id: Id) -> Option<Position> {
    let id = id.to_bytes();
    set.find(arena, |key| *key < id)
}

/// A group's pending entries from an ID on.
pub(super) fn all(arena: &Arena, group: u64, id: Id) -> impl Iterator<Item = Pending> {
    let set = of_group(group);
    set.iter_from(arena, from(set, arena, id), false).map(Pending::decode)
}

/// Looks for a group's pending entries.
pub(super) fn look_at_all(finder: &Finder, group: u64) {
    of_group(group).try_each(finder.arena, 0..u64::MAX, finder.look(), |_| ());
}

/// Looks for so many of a group's pending entries, from one ID to another, and passes those to `each` that are in memory.
pub(super) fn look_in_group(
    finder: &Finder,
    group: u64,
    ids: (Id, Id),
    count: u64,
    mut each: impl FnMut(Pending),
) -> Result<(), Absent> {
    look_in(finder, of_group(group), ids, count, |id| {
        each(get(finder.arena, group, id).expect("what was found a moment ago"));
    })
}

/// The same for a consumer's, of which there are only the IDs.
pub(super) fn look_in_consumer(
    finder: &Finder,
    consumer: u64,
    ids: (Id, Id),
    count: u64,
    each: impl FnMut(Id),
) -> Result<(), Absent> {
    look_in(finder, of_consumer(consumer), ids, count, each)
}

fn look_in<const SLOT: usize>(
    finder: &Finder,
    set: Ordered<SLOT>,
    (from, to): (Id, Id),
    count: u64,
    mut each: impl FnMut(Id),
) -> Result<(), Absent> {
    let (from, to) = (from.to_bytes(), to.to_bytes());
    let ranks = set.look_between(finder, |key| Ok(*key < from), |key| Ok(*key <= to), false, count)?;
    set.try_each(finder.arena, ranks, finder.look(), |key| each(Id::from_bytes(key)));
    Ok(())
}

/// The last one.
pub(super) fn last(arena: &Arena, group: u64) -> Option<Pending> {
    of_group(group).last(arena).map(|place| Pending::decode(of_group(group).slot(arena, place)))
}

/// The IDs of a consumer's pending entries from an ID on.
pub(super) fn ids(arena: &Arena, consumer: u64, id: Id) -> impl Iterator<Item = Id> {
    let set = of_consumer(consumer);
    set.iter_from(arena, from(set, arena, id), false).map(Id::from_bytes)
}

/// The pending entry with an ID.
pub(super) fn get(arena: &Arena, group: u64, id: Id) -> Option<Pending> {
    let Search::At(place) = of_group(group).search(arena, &id.to_bytes()) else { return None };
    Some(Pending::decode(of_group(group).slot(arena, place)))
}

/// Makes an entry pending, or changes how it is; it may have been another consumer's.
///
/// # Errors
/// [`Full`] if the arena has no room; nothing has changed.
pub(super) fn put(arena: &mut Arena, tx: &mut Tx, group: u64, new: &Pending) -> Result<(), Full> {
    let id = new.id.to_bytes();
    let old = match of_group(group).search(arena, &id) {
        Search::At(place) => Some(Pending::decode(of_group(group).slot(arena, place)).consumer),
        Search::Missing(_) => None,
    };
    if old != Some(new.consumer) {
        let Search::Missing(place) = of_consumer(new.consumer).search(arena, &id) else {
            panic!("a pending entry of two consumers");
        };
        of_consumer(new.consumer).insert(arena, tx, place, &id)?;
        count_pending(arena, tx, new.consumer, 1);
    }
    match of_group(group).search(arena, &id) {
        Search::At(place) => of_group(group).write(arena, tx, place, &new.encode()),
        Search::Missing(place) => {
            if let Err(full) = of_group(group).insert(arena, tx, place, &new.encode()) {
                take_id(arena, tx, new.consumer, new.id);
                return Err(full);
            }
            count_pending(arena, tx, group, 1);
        }
    }
    if let Some(old) = old.filter(|&old| old != new.consumer) {
        take_id(arena, tx, old, new.id);
    }
    Ok(())
}

/// Takes a pending entry away; false if there is none.
pub(super) fn remove(arena: &mut Arena, tx: &mut Tx, group: u64, id: Id) -> bool {
    let Search::At(place) = of_group(group).search(arena, &id.to_bytes()) else { return false };
    let consumer = Pending::decode(of_group(group).slot(arena, place)).consumer;
    of_group(group).remove(arena, tx, &place, 1);
    count_pending(arena, tx, group, -1);
    take_id(arena, tx, consumer, id);
    true
}

fn take_id(arena: &mut Arena, tx: &mut Tx, consumer: u64, id: Id) {
    let Search::At(place) = of_consumer(consumer).search(arena, &id.to_bytes()) else {
        panic!("a pending entry that its consumer does not know");
    };
    of_consumer(consumer).remove(arena, tx, &place, 1);
    count_pending(arena, tx, consumer, -1);
}

/// Frees a group's set, until `budget` is spent or it is gone (true).
pub(super) fn release_group(arena: &mut Arena, tx: &mut Tx, group: u64, budget: &mut usize) -> bool {
    of_group(group).release(arena, tx, budget, |_, _, _| ())
}

/// Frees a consumer's set, until `budget` is spent or it is gone (true).
pub(super) fn release_consumer(arena: &mut Arena, tx: &mut Tx, consumer: u64, budget: &mut usize) -> bool {
    of_consumer(consumer).release(arena, tx, budget, |_, _, _| ())
}

/// Looks for what [`release_group`] uses.
pub(super) fn look_to_release_group(finder: &Finder, group: u64, budget: &mut usize) -> Result<(), Absent> {
    of_group(group).look_to_release(finder, budget, |_, _| ())
}

/// Looks for what [`release_consumer`] uses.
pub(super) fn look_to_release_consumer(
    finder: &Finder,
    consumer: u64,
    budget: &mut usize,
) -> Result<(), Absent> {
    of_consumer(consumer).look_to_release(finder, budget, |_, _| ())
}

/// Bytes allocated for a group's set.
pub(super) fn group_bytes(arena: &Arena, group: u64) -> u64 {
    of_group(group).heap_bytes(arena)
}

/// Bytes allocated for a consumer's set.
pub(super) fn consumer_bytes(arena: &Arena, consumer: u64) -> u64 {
    of_consumer(consumer).heap_bytes(arena)
}

/// Checks a group's set, and returns how many entries are in it.
pub(super) fn check_group(arena: &Arena, group: u64) -> Result<u64, String> {
    of_group(group).check(arena, |a, b| a < b)
}

/// Checks a consumer's set, and returns how many IDs are in it.
pub(super) fn check_consumer(arena: &Arena, consumer: u64) -> Result<u64, String> {
    of_consumer(consumer).check(arena, |a, b| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_what_is_put_in() {
        let pending = Pending {
            id: Id::new(u64::MAX - 1, 7),
            consumer: (1 << 40) - 16,
            delivered_ms: DELIVERED_MAX,
            deliveries: 1,
        };
        assert_eq!(Pending::decode(&pending.encode()), pending);
        let beyond = Pending { deliveries: u64::MAX, delivered_ms: u64::MAX, ..pending };
        let kept = Pending { deliveries: DELIVERIES_MAX, ..pending };
        assert_eq!(Pending::decode(&beyond.encode()), kept);
    }
}
