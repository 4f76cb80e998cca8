//! What an arena holds, to be compared with what a replay makes of it (I-14).

use std::collections::BTreeMap;

use crate::{
    Arena, EXTENT, PAGE,
    class::{CLASSES, SLABS},
    header::{BITMAP, BITMAPS, ROOT, RUN, UNUSED},
};

/// All bytes of an arena's extents, those included in which nothing is allocated.
pub struct Image {
    /// By extent: whether it is raw, and its bytes.
    extents: BTreeMap<u32, (bool, Vec<u8>)>,
}

impl Arena {
    /// A copy of all that the arena's extents hold. It takes as much memory, and brings in what is absent: for tests.
    pub fn image(&self) -> Image {
        let copy = |number: u32| self.bytes(u64::from(number) * EXTENT, EXTENT as usize).to_vec();
        let extents =
            self.space.extents.iter().map(|extent| (extent.number, (extent.raw, copy(extent.number))));
        Image { extents: extents.collect() }
    }
}

impl Image {
    /// Says where `other` is different from this one for the first time, and how.
    pub fn first_difference(&self, other: &Image) -> Option<String> {
        let numbers = |image: &Image| {
            image.extents.iter().map(|(&number, (raw, _))| (number, *raw)).collect::<Vec<_>>()
        };
        let (ours, others) = (numbers(self), numbers(other));
        if let Some(extent) = ours.iter().find(|extent| !others.contains(extent)) {
            return Some(format!("extent {} (raw: {}) is missing", extent.0, extent.1));
        }
        if let Some(extent) = others.iter().find(|extent| !ours.contains(extent)) {
            return Some(format!("there is an extent {} (raw: {}) more", extent.0, extent.1));
        }
        for (number, (raw, bytes)) in &self.extents {
            let found = &other.extents[number].1;
            let Some(at) = bytes.iter().zip(found).position(|(ours, other)| ours != other) else { continue };
            let near = at & !15..(at & !15) + 32;
            let near = near.start..near.end.min(bytes.len());
            let place = if *raw { "raw extent".to_owned() } else { place(bytes, at) };
            return Some(format!(
                "extent {number}, page {}, byte {} (heap offset {}), {place}: from byte {} on it is {:02x?} instead of {:02x?}",
                at / PAGE,
                at % PAGE,
                u64::from(*number) * EXTENT + at as u64,
                near.start % PAGE,
                &found[near.clone()],
                &bytes[near],
            ));
        }
        None
    }
}

/// Says what lies at a place in an extent that is not raw.
fn place(extent: &[u8], at: usize) -> String {
    let page = at / PAGE;
    let (kind, index) = (extent[2 * page], usize::from(extent[2 * page + 1]));
    match kind {
        _ if page == 0 => "header".into(),
        UNUSED => "free page".into(),
        ROOT => "root page".into(),
        RUN => format!("run of pages from {}", page - index),
        kind if usize::from(kind) <= CLASSES => {
            let (first, size) = (page - index, SLABS[usize::from(kind) - 1].size as usize);
            let (slot, within) = ((at - first * PAGE) / size, (at - first * PAGE) % size);
            let is_taken = extent[BITMAPS + first * BITMAP + slot / 8] & 1 << (slot % 8) != 0;
            let state = if is_taken { "allocated" } else { "free" };
            format!("byte {within} of an {state} block of {size} bytes")
        }
        kind => format!("page of kind {kind}"),
    }
}
