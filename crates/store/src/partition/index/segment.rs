//! A segment of the index: where its pages lie, and what is known of it in memory.

use super::{
    PAGE,
    bucket::{BUCKET_BYTES, Bucket, PAGE_BUCKETS, SLOTS},
    handles::{HandleMemory, Handles},
    layout::{BASE_PAGES, Layout, PAGES_MAX},
};
use crate::util::probe;
use holdfast_heap::Arena;

/// Bytes of an entry of the directory.
pub const NAME_BYTES: usize = 32;
/// Bytes of an entry of a directory that a format before 7 wrote: the number of the first of four pages.
pub const OLD_NAME_BYTES: usize = 4;
/// In the last word of an entry of the directory: the pages that are not extra were allocated as one run.
const IS_RUN: u32 = 1;

pub struct Segment {
    /// Numbers of its pages in the heap.
    pages: [u32; PAGES_MAX],
    pub layout: Layout,
    /// Whether the pages that are not extra were allocated as one run.
    is_run: bool,
    pub is_attached: bool,
    pub handles: Handles,
}

impl Segment {
    /// A segment of pages that were allocated one by one.
    pub fn new(pages: &[u32], layout: Layout) -> Segment {
        let mut segment = Segment {
            pages: [0; PAGES_MAX],
            layout,
            is_run: false,
            is_attached: true,
            handles: Handles::new(layout.pages()),
        };
        segment.pages[..pages.len()].copy_from_slice(pages);
        segment
    }

    /// The segment that an entry of the directory names; its depth is not in there.
    pub fn named(name: &[u8]) -> Result<Segment, String> {
        let word = |i: usize| u32::from_le_bytes(name[4 * i..][..4].try_into().expect("four bytes"));
        let is_old = name.len() == OLD_NAME_BYTES;
        let pages: [u32; PAGES_MAX] = match is_old {
            true => std::array::from_fn(|i| if i < BASE_PAGES { word(0).wrapping_add(i as u32) } else { 0 }),
            false => std::array::from_fn(word),
        };
        let is_run = is_old || word(PAGES_MAX) & IS_RUN != 0;
        let count = pages.iter().position(|&page| page == 0).unwrap_or(PAGES_MAX);
        if count < BASE_PAGES || pages[count..].iter().any(|&page| page != 0) {
            return Err(format!("names pages {pages:?}"));
        }
        let layout = Layout { depth: 0, extra: (count - BASE_PAGES) as u8 };
        Ok(Segment { is_run, is_attached: false, ..Segment::new(&pages, layout) })
    }

    /// What the directory says of it.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        let words = self.pages.iter().copied().chain([if self.is_run { IS_RUN } else { 0 }]);
        for (bytes, word) in name.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        name
    }

    /// Heap offsets and bytes of what was allocated for it.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, usize)> {
        let run = if self.is_run { BASE_PAGES } else { 0 };
        let first = (run > 0).then(|| (u64::from(self.pages[0]) * PAGE, run * PAGE as usize));
        let single = self.pages[run..self.layout.pages()].iter();
        first.into_iter().chain(single.map(|&page| (u64::from(page) * PAGE, PAGE as usize)))
    }

    /// Names one more page, in which nothing is yet.
    pub fn add_page(&mut self, memory: &HandleMemory, page: u32) {
        self.pages[self.layout.pages()] = page;
        self.layout.extra += 1;
        self.handles.set_pages(memory, self.layout.pages());
    }

    /// Takes off the extra pages, in which nothing is any more, and goes one bit deeper; the heap offsets of these pages.
    pub fn end_split(&mut self, memory: &HandleMemory) -> impl Iterator<Item = u64> + use<> {
        let (pages, count) = (self.pages, self.layout.pages());
        self.pages[BASE_PAGES..].fill(0);
        self.layout = Layout { depth: self.layout.depth + 1, extra: 0 };
        self.handles.set_pages(memory, self.layout.pages());
        (BASE_PAGES..count).map(move |page| u64::from(pages[page]) * PAGE)
    }

    pub fn bucket_offset(&self, number: usize) -> u64 {
        let page = u64::from(self.pages[number / PAGE_BUCKETS]) * PAGE;
        page + (number % PAGE_BUCKETS) as u64 * BUCKET_BYTES
    }

    pub fn bucket<'a>(&self, arena: &'a Arena, number: usize) -> &'a Bucket {
        let bytes = arena.bytes(self.bucket_offset(number), BUCKET_BYTES as usize);
        bytes.try_into().expect("a bucket's length")
    }

    /// A bucket, and the next one.
    #[inline]
    pub fn two_buckets<'a>(&self, arena: &'a Arena, number: usize) -> [&'a Bucket; 2] {
        const BYTES: usize = BUCKET_BYTES as usize;
        if number % PAGE_BUCKETS + 1 < PAGE_BUCKETS {
            let bytes = arena.bytes(self.bucket_offset(number), 2 * BYTES);
            let bucket = |at| bytes[at..].first_chunk().expect("a bucket's length");
            return [bucket(0), bucket(BYTES)];
        }
        [self.bucket(arena, number), self.bucket(arena, self.layout.next(number))]
    }

    /// Asks for the memory of a bucket and of the handles of its entries.
    #[inline]
    pub fn prefetch(&self, bucket: &Bucket, number: usize) {
        probe::prefetch(bucket);
        if let Some(handles) = self.handles.in_array(number * SLOTS..(number + 1) * SLOTS) {
            probe::prefetch(handles);
        }
    }
}
