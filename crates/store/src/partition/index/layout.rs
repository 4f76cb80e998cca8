//! Which bucket of its segment an entry belongs to (`docs/format.md`, "Index"; partial expansions after Larson, "Linear hashing with
//! partial expansions", VLDB 1980).
//!
//! A segment has four pages, and up to three *extra* ones: so it grows by a fifth at most, where doubling would leave half of all
//! segments' places free. Only entries whose next bit in the directory is set move to extra pages. So the entries without it are where
//! they would be in a segment of four pages, and stay there when the segment splits by this bit.

use super::bucket::{PAGE_BUCKETS, PAGE_PLACES};

/// Pages of a segment without extra ones.
pub const BASE_PAGES: usize = 4;
/// Extra pages that a segment has at most.
pub const EXTRA_PAGES: usize = 3;
/// Pages of a segment, at most.
pub const PAGES_MAX: usize = BASE_PAGES + EXTRA_PAGES;
/// Buckets of the pages that are not extra.
const BASE_BUCKETS: usize = BASE_PAGES * PAGE_BUCKETS;
/// Parts of the entries that may move, by bits 6 to 12 of `h0`.
const PARTS: usize = 128;

/// By the number of extra pages: which of them, counted from 1, a part is in; 0: it has not moved.
static EXTRA_OF: [[u8; PARTS]; EXTRA_PAGES + 1] = {
    let mut table = [[0; PARTS]; EXTRA_PAGES + 1];
    let mut extra = 1;
    while extra <= EXTRA_PAGES {
        // What each page has then. The new one takes from each what is more, and no other gets anything.
        let share = 2 * PARTS / (BASE_PAGES + extra);
        let mut kept = [share; EXTRA_PAGES + 1];
        kept[0] = PARTS - share * extra;
        let mut part = 0;
        while part < PARTS {
            let old = table[extra - 1][part];
            if kept[old as usize] > 0 {
                kept[old as usize] -= 1;
                table[extra][part] = old;
            } else {
                table[extra][part] = extra as u8;
            }
            part += 1;
        }
        extra += 1;
    }
    table
};

/// How the entries of a segment are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of the digest that all of them agree in.
    pub depth: u8,
    pub extra: u8,
}

impl Layout {
    /// How segments are laid out that have so many entries together, one for each value of `depth` bits: of their places, two in ten are
    /// to be free, since entries that lie near each other need some.
    pub fn for_entries(entries: u64) -> Layout {
        let pages = (entries / 4).saturating_mul(5).div_ceil(PAGE_PLACES as u64);
        let depth = pages.div_ceil(PAGES_MAX as u64).next_power_of_two().ilog2();
        let of_each = (pages >> depth) + u64::from(pages & ((1 << depth) - 1) != 0);
        Layout { depth: depth as u8, extra: of_each.saturating_sub(BASE_PAGES as u64) as u8 }
    }

    pub fn pages(self) -> usize {
        BASE_PAGES + self.extra as usize
    }

    pub fn buckets(self) -> usize {
        self.pages() * PAGE_BUCKETS
    }

    /// Whether an entry goes to the new segment when this one splits.
    #[inline]
    pub fn is_upper(self, h0: u64) -> bool {
        h0 << self.depth >> 63 == 1
    }

    /// The bucket that an entry belongs to.
    #[inline]
    pub fn home(self, h0: u64) -> usize {
        if self.extra != 0 && self.is_upper(h0) {
            let extra = EXTRA_OF[self.extra as usize][(h0 >> 6) as usize % PARTS] as usize;
            if extra != 0 {
                return (BASE_PAGES + extra - 1) * PAGE_BUCKETS + h0 as usize % PAGE_BUCKETS;
            }
        }
        h0 as usize % BASE_BUCKETS
    }

    /// The bucket where an entry lies for which its own has no room. The base pages are a ring, and each extra one is.
    #[inline]
    pub fn next(self, bucket: usize) -> usize {
        step(bucket, 1)
    }

    /// The bucket of which this is the next one.
    pub fn previous(self, bucket: usize) -> usize {
        step(bucket, !0)
    }
}

#[inline]
fn step(bucket: usize, by: usize) -> usize {
    let ring = if bucket < BASE_BUCKETS { BASE_BUCKETS } else { PAGE_BUCKETS };
    bucket & !(ring - 1) | bucket.wrapping_add(by) & (ring - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts(depth: u8) -> [Layout; EXTRA_PAGES + 1] {
        std::array::from_fn(|extra| Layout { depth, extra: extra as u8 })
    }

    proptest! {
        /// What does not move to a new page stays in its bucket, and what stays at a split is where it is without extra pages.
        #[test]
        fn entries_move_to_new_pages_only(h0 in any::<u64>(), depth in 0..32u8) {
            let layouts = layouts(depth);
            for pair in layouts.windows(2) {
                let (before, after) = (pair[0].home(h0), pair[1].home(h0));
                prop_assert!(before == after || after / PAGE_BUCKETS == pair[0].pages());
            }
            for layout in layouts {
                prop_assert!(layout.home(h0) < layout.buckets());
                let split = Layout { depth: depth + 1, extra: 0 };
                prop_assert!(layout.is_upper(h0) || layout.home(h0) == split.home(h0));
            }
        }
    }

    #[test]
    fn segments_for_many_entries_have_room_for_them_and_little_more() {
        for entries in [0, 1, 500, 2_000, 47_000, 1_000_000, 1 << 40] {
            let layout = Layout::for_entries(entries);
            let places = ((layout.pages() * PAGE_PLACES) as u64) << layout.depth;
            assert!(places * 4 / 5 + 4 >= entries, "{layout:?} for {entries}");
            assert!(
                layout.depth == 0 || places * 4 / 5 < entries * 5 / 4 + 1_000,
                "{layout:?} for {entries}"
            );
        }
    }

    #[test]
    fn the_next_buckets_are_rings_that_stay_when_a_segment_grows() {
        for layout in layouts(0) {
            for bucket in 0..layout.buckets() {
                let next = layout.next(bucket);
                assert_eq!(layout.previous(next), bucket);
                assert_eq!(next / PAGE_BUCKETS < BASE_PAGES, bucket / PAGE_BUCKETS < BASE_PAGES);
                assert!(next < layout.buckets() && (next == bucket + 1 || next < bucket));
            }
        }
    }

    #[test]
    fn entries_are_spread_evenly() {
        for layout in layouts(7) {
            let mut pages = vec![0; layout.pages()];
            let entries = 1 << 14;
            for i in 0..entries as u64 {
                pages[layout.home((i.reverse_bits() >> 7) | (i % (1 << 13))) / PAGE_BUCKETS] += 1;
            }
            let even = entries / layout.pages();
            assert!(pages.iter().all(|&page| page * 20 > even * 19 && page * 20 < even * 21), "{pages:?}");
        }
    }
}
