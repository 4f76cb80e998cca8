//! What an extent's header page says. See docs/format.md, "Heap".

use crate::{
    EXTENT, PAGE, PAGES,
    class::{CLASSES, SLABS, SLOTS_MAX},
};

/// The unit in which the use of an extent is counted, in bytes.
pub(crate) const GRANULE: usize = 16;
/// All pages but the header.
pub(crate) const ALL_PAGES: u64 = !1;

/// A page that nothing uses. A page of a slab has its class + 1.
pub(crate) const UNUSED: u8 = 0;
/// A page of an allocation of whole pages.
pub(crate) const RUN: u8 = 253;
/// The page for the owner's roots.
pub(crate) const ROOT: u8 = 254;

/// Where the bitmaps start, and the bytes of one.
pub(crate) const BITMAPS: usize = 2048;
pub(crate) const BITMAP: usize = SLOTS_MAX as usize / 8;

/// Heap offset of an extent's header.
pub(crate) fn header(extent: u32) -> u64 {
    u64::from(extent) * EXTENT
}

/// Heap offset of a page's entry in the page map: its kind, and its index in its slab or run.
pub(crate) fn map_entry(extent: u32, page: usize) -> u64 {
    header(extent) + 2 * page as u64
}

/// Heap offset of the bitmap of the slab that starts at a page.
pub(crate) fn bitmap(extent: u32, page: usize) -> u64 {
    header(extent) + (BITMAPS + page * BITMAP) as u64
}

/// What is free in an extent, and what is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Free pages, as bits.
    pub(crate) free_pages: u64,
    /// Allocated granules.
    pub(crate) used: u16,
    /// First page and class of each slab with a free slot.
    pub(crate) partial: Vec<(usize, usize)>,
}

/// Reads a header, and says what is wrong with it if something is.
pub(crate) fn read(header: &[u8], is_home: bool) -> Result<Summary, String> {
    let mut summary = Summary { free_pages: ALL_PAGES, ..Summary::default() };
    let mut granules = 0;
    let mut page = 1;
    while page < PAGES {
        let kind = header[2 * page];
        let pages = match kind {
            UNUSED => 1,
            ROOT if page == 1 && is_home => 1,
            RUN => run_pages(header, page),
            class if (1..=CLASSES as u8).contains(&class) => SLABS[usize::from(class) - 1].pages,
            _ => return Err(format!("page {page} cannot be of kind {kind}")),
        };
        let is_whole = page + pages <= PAGES
            && (0..pages)
                .all(|i| header[2 * (page + i)] == kind && usize::from(header[2 * (page + i) + 1]) == i);
        if !is_whole {
            return Err(format!("the slab or run at page {page} is broken"));
        }
        let bits = &header[BITMAPS + page * BITMAP..][..pages * BITMAP];
        if kind != UNUSED {
            summary.free_pages &= !((!0 >> (PAGES - pages)) << page);
        }
        if kind == RUN {
            granules += pages * PAGE / GRANULE;
        }
        let slots = if (1..=CLASSES as u8).contains(&kind) {
            let slab = &SLABS[usize::from(kind) - 1];
            let taken: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
            granules += taken as usize * slab.size as usize / GRANULE;
            if taken < slab.slots {
                summary.partial.push((page, usize::from(kind) - 1));
            }
            slab.slots as usize
        } else {
            0
        };
        let beyond = &bits[slots / 8..];
        if beyond.first().is_some_and(|byte| byte >> (slots % 8) != 0)
            || beyond.iter().skip(1).any(|byte| *byte != 0)
        {
            return Err(format!("page {page} has allocated slots beyond its {slots}"));
        }
        page += pages;
    }
    if header[..2] != [0; 2] || (is_home && header[2] != ROOT) {
        return Err("the page map does not start as it should".into());
    }
    summary.used = granules as u16;
    Ok(summary)
}

fn run_pages(header: &[u8], first: usize) -> usize {
    let continues = |page: &usize| header[2 * page..][..2] == [RUN, (page - first) as u8];
    1 + (first + 1..PAGES).take_while(continues).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_beyond_the_slots_of_a_slab_is_refused() {
        for (class, slab) in SLABS.iter().enumerate() {
            for slot in 0..8 * BITMAP * slab.pages {
                let mut header = vec![0; PAGE];
                for i in 0..slab.pages {
                    header[2 * (1 + i)..][..2].copy_from_slice(&[class as u8 + 1, i as u8]);
                }
                header[BITMAPS + BITMAP + slot / 8] = 1 << (slot % 8);
                let found = read(&header, false).map(|summary| usize::from(summary.used) * GRANULE);
                let expected = (slot < slab.slots as usize).then_some(slab.size as usize);
                assert_eq!(found.ok(), expected, "slot {slot} of class {class}");
            }
        }
    }
}
