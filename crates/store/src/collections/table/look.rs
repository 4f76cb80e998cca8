//! Looks for what commands will use of a table.

use holdfast_heap::Arena;

use super::{
    Ahead, BUCKET, CURSOR_SHIFT, Draw, ENTRIES, NODE, OFFSET, Ones, TRIES, Table, entry_at, in_use, merges,
    node_size, range_end, slot_bits,
};
use crate::collections::absent::{Absent, Finder};

impl Table {
    /// The word of an element with this hash that a search will come upon first, unless `look` fails of something on the way there,
    /// by its place and length.
    pub fn try_find<E>(
        self,
        arena: &Arena,
        hash: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let (bucket, _) = self.try_bucket(arena, hash, &look)?;
        look(bucket, BUCKET)?;
        Ok(Ahead { hash, bucket }.word(arena))
    }

    /// Passes the word of each element to `each`, but those of buckets of which, or of a node on the way to which, `look` fails.
    pub fn try_each<E>(
        self,
        arena: &Arena,
        look: impl Fn(u64, usize) -> Result<(), E>,
        mut each: impl FnMut(u64),
    ) {
        let mut slots = vec![arena.u64(self.root)];
        while let Some(word) = slots.pop() {
            let (at, bits) = (word & OFFSET, slot_bits(word));
            if word & NODE != 0 {
                if look(at, node_size(bits)).is_ok() {
                    // Several slots in a row may name one bucket.
                    slots.extend((0..1u64 << bits).map(|index| arena.u64(at + index * 8)));
                    slots.dedup();
                }
            } else if at != 0 && look(at, BUCKET).is_ok() {
                Ones(in_use(arena, at)).for_each(|index| each(arena.u64(entry_at(at, index))));
            }
        }
    }

    /// Looks for what it takes to remove an entry with this hash, beside its element, if the command may do so.
    pub fn look_to_remove(self, finder: &Finder, hash: u64) -> Result<(), Absent> {
        if !finder.writes {
            return Ok(());
        }
        let (arena, look) = (finder.arena, finder.look());
        let (bucket, _) = self.try_bucket(arena, hash, &look)?;
        look(bucket, BUCKET)?;
        if !merges((in_use(arena, bucket).count_ones() as usize).saturating_sub(1)) {
            return Ok(());
        }
        let place = self.descend(arena, hash);
        look(place.node, node_size(place.node_bits))?;
        place.sibling(arena, hash).map_or(Ok(()), |sibling| look(sibling, BUCKET))
    }

    /// Looks for the buckets that `wanted` calls of [`Table::random`] will use, of a table with `count` entries, and for the elements that they will
    /// find, by `look_at` and their words. Whether a bucket that is not in memory is accepted is not known: as many are looked for as are
    /// tried on average.
    pub fn look_at_random(
        self,
        finder: &Finder,
        (count, wanted): (u64, u64),
        mut random: impl FnMut() -> u64,
        look_at: impl Fn(u64) -> Result<(), Absent>,
    ) {
        let (arena, look) = (finder.arena, finder.look());
        let mut left = wanted.saturating_mul(TRIES);
        while left > 0 && !finder.is_full() {
            let draw = Draw::new(&mut random);
            let Ok((bucket, depth)) = self.try_bucket(arena, draw.hash, &look) else {
                left -= 1;
                continue;
            };
            if look(bucket, BUCKET).is_err() {
                left -= 1;
            } else if let Some(index) = draw.accept(in_use(arena, bucket), depth, count) {
                finder.go_on(look_at(arena.u64(entry_at(bucket, index))));
                finder.go_on(self.look_to_remove(finder, draw.hash));
                left = left.saturating_sub(TRIES);
            }
        }
    }

    /// Looks for the buckets that a [`Table::scan`] passes, and for their elements, by `look_at` and their words. Of a bucket that is not in
    /// memory is not known how many it has.
    pub fn look_at_scan(
        self,
        finder: &Finder,
        cursor: u64,
        count: usize,
        look_at: impl Fn(u64) -> Result<(), Absent>,
    ) {
        self.look_from(finder, cursor << CURSOR_SHIFT, &mut { count }, (0, 1), look_at);
    }

    /// The same for a [`Table::release`] from a position on: each bucket and each element takes so much off the budget.
    pub fn look_from(
        self,
        finder: &Finder,
        position: u64,
        budget: &mut usize,
        (of_bucket, of_element): (usize, usize),
        look_at: impl Fn(u64) -> Result<(), Absent>,
    ) {
        let (arena, look) = (finder.arena, finder.look());
        let mut next = Some(position);
        while let Some(at) = next.filter(|_| *budget > 0 && !finder.is_full()) {
            let Ok((bucket, depth)) = self.try_bucket(arena, at, &look) else { return };
            let mut elements = ENTRIES / 2;
            if look(bucket, BUCKET).is_ok() {
                let used = Ones(in_use(arena, bucket));
                used.clone().for_each(|index| finder.go_on(look_at(arena.u64(entry_at(bucket, index)))));
                elements = used.count();
            }
            *budget = budget.saturating_sub(of_bucket + elements * of_element);
            next = range_end(at, depth);
        }
    }
}
