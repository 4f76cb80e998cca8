//! Size classes: what a request is rounded up to.
//!
//! Up to 128 bytes in steps of 16, then eight steps a doubling, so that above 128 bytes less than an eighth is lost.
//! Objects of a class lie in *slabs* of one or more pages; every multiple of [`PAGE`] up to [`SLOT_MAX`] is a class,
//! so such objects are page-aligned. Larger ones take whole pages, and what does not fit into an extent takes
//! extents.

use crate::{EXTENT, PAGE, PAGES};

/// Number of classes.
pub(crate) const CLASSES: usize = 72;
/// The largest size that lies in a slab; above it, rounding to pages loses less than an eighth.
const SLOT_MAX: usize = 32768;
/// Objects in a slab at most: what the bitmap of its first page can tell.
pub(crate) const SLOTS_MAX: u32 = 256;
/// Words of that bitmap.
pub(crate) const WORDS: usize = SLOTS_MAX as usize / 64;

/// How a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// A slot in a slab of this class.
    Slot(usize),
    /// So many pages of one extent.
    Pages(usize),
    /// So many pages from the start of an extent on.
    Extents(usize),
}

impl Fit {
    /// How `size` bytes are served; 0 as if it were 1.
    #[inline]
    pub(crate) fn of(size: usize) -> Fit {
        if size <= 128 {
            return Fit::Slot(size.saturating_sub(1) / 16);
        }
        if size <= SLOT_MAX {
            let last = size - 1;
            let doubling = last.ilog2() as usize;
            return Fit::Slot(8 + (doubling - 7) * 8 + (last >> (doubling - 3) & 7));
        }
        match size.div_ceil(PAGE) {
            pages if pages < PAGES => Fit::Pages(pages),
            pages => Fit::Extents(pages),
        }
    }

    /// Bytes that are really taken.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Fit::Slot(class) => SLABS[class].size as usize,
            Fit::Pages(pages) | Fit::Extents(pages) => pages * PAGE,
        }
    }
}

/// The shape of a class's slabs.
#[derive(Clone, Copy)]
pub(crate) struct Slab {
    /// Bytes of an object.
    pub(crate) size: u32,
    /// Objects in a slab.
    pub(crate) slots: u32,
    /// The bitmap when none of them is free.
    pub(crate) full: [u64; WORDS],
    /// Pages of a slab.
    pub(crate) pages: usize,
}

impl Slab {
    const fn of(class: usize) -> Slab {
        let size = if class < 8 { (class + 1) * 16 } else { (class % 8 + 9) << ((class - 8) / 8 + 4) };
        // The fewest pages that leave at most a sixteenth of them unused.
        let mut pages = 1;
        while pages * PAGE < size || pages * PAGE % size * 16 > pages * PAGE {
            pages += 1;
        }
        let slots = pages * PAGE / size;
        let mut full = [0; WORDS];
        let mut slot = 0;
        while slot < slots {
            full[slot / 64] |= 1 << (slot % 64);
            slot += 1;
        }
        Slab { size: size as u32, slots: slots as u32, full, pages }
    }
}

/// The slabs of all classes.
pub(crate) static SLABS: [Slab; CLASSES] = {
    let mut slabs = [Slab { size: 0, slots: 0, full: [0; WORDS], pages: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        slabs[class] = Slab::of(class);
        assert!(slabs[class].slots <= SLOTS_MAX && slabs[class].pages < PAGES);
        class += 1;
    }
    slabs
};

/// Pages of the largest slab.
pub(crate) const SLAB_PAGES_MAX: usize = pages_of(0..CLASSES).1;
/// Pages of a slab of each class whose blocks have less than half a page. What is larger takes no more than a few times its own size.
pub(crate) const SMALL_SLABS_PAGES: usize = pages_of(0..SMALL_CLASSES).0;
const SMALL_CLASSES: usize = 40;

/// The pages of a slab of each of some classes together, and of the largest one.
const fn pages_of(classes: std::ops::Range<usize>) -> (usize, usize) {
    let (mut sum, mut largest, mut class) = (0, 0, classes.start);
    while class < classes.end {
        let pages = Slab::of(class).pages;
        sum += pages;
        if pages > largest {
            largest = pages;
        }
        class += 1;
    }
    (sum, largest)
}

const _: () = assert!(EXTENT as usize == PAGES * PAGE && PAGES == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_loses_less_than_an_eighth() {
        for size in 1..=300_000 {
            let bytes = Fit::of(size).bytes();
            assert!(bytes >= size && bytes.is_multiple_of(16), "{size} -> {bytes}");
            let loss = bytes - size;
            assert!(loss < 16 || loss * 8 < bytes, "{size} -> {bytes}");
            assert_eq!(Fit::of(bytes), Fit::of(size));
        }
    }

    #[test]
    fn multiples_of_a_page_are_page_aligned() {
        for pages in 1..=8 {
            let Fit::Slot(class) = Fit::of(pages * PAGE) else { panic!() };
            assert_eq!(SLABS[class].size as usize, pages * PAGE);
        }
    }

    /// What a transaction may take of pages is told by the bytes that it writes.
    #[test]
    fn slabs_take_few_times_what_they_are_taken_for() {
        assert_eq!(SLABS[SMALL_CLASSES - 1].size as usize, PAGE / 2);
        for slab in &SLABS[SMALL_CLASSES..] {
            assert!(slab.pages * PAGE <= 9 * slab.size as usize, "{} pages for {}", slab.pages, slab.size);
        }
    }

    #[test]
    fn classes_ascend() {
        assert!(SLABS.windows(2).all(|w| w[0].size < w[1].size));
        assert_eq!(SLABS[CLASSES - 1].size as usize, SLOT_MAX);
        assert_eq!(Fit::of(0), Fit::Slot(0));
        assert_eq!(Fit::of(63 * PAGE), Fit::Pages(63));
        assert_eq!(Fit::of(63 * PAGE + 1), Fit::Extents(64));
    }
}
