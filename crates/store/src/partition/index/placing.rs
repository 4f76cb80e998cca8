//! How a place becomes free for an entry whose bucket and next one are full, and how many entries are laid out at once.

use super::{
    bucket::{BUCKET_BYTES, Bucket, OVERFLOW, SLOTS, entry_bytes, free, h0_of},
    layout::Layout,
};

/// Entries that are moved, at most. With eight an entry takes 20.8 bytes of index on average, with one 23.5.
const CHAIN: usize = 8;

/// An entry of bucket `from` that belongs to bucket `of` is moved to bucket `to`.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub from: usize,
    pub of: usize,
    pub to: usize,
}

impl Move {
    /// The entry of bucket `from` to be moved.
    pub fn entry(self, layout: Layout, bucket: &Bucket) -> Option<usize> {
        (0..SLOTS).find(|&i| bucket[i] != 0 && layout.home(h0_of(bucket, i)) == self.of)
    }
}

/// The moves, one after the other, that make room for an entry in its home bucket or in the next one, which are both full:
/// entries of the next one move on, or entries that overflowed move back.
pub fn moves<'a>(layout: Layout, home: usize, bucket: impl Fn(usize) -> &'a Bucket) -> Option<Vec<Move>> {
    let chain = |first: usize, step: fn(Layout, usize) -> Move| {
        let mut moves = Vec::new();
        let mut from = first;
        for _ in 0..CHAIN {
            let one = step(layout, from);
            one.entry(layout, bucket(from))?;
            moves.push(one);
            if free(bucket(one.to)) != 0 {
                moves.reverse();
                return Some(moves);
            }
            from = one.to;
        }
        None
    };
    chain(layout.next(home), |layout, from| Move { from, of: from, to: layout.next(from) }).or_else(|| {
        chain(home, |layout, from| Move { from, of: layout.previous(from), to: layout.previous(from) })
    })
}

/// New buckets of a segment, from `first` on, before they are written. Entries are named by the place that they come from.
pub struct Draft {
    layout: Layout,
    first: usize,
    buckets: Vec<Bucket>,
    sources: Vec<[u16; SLOTS]>,
}

impl Draft {
    /// All buckets of a layout from `first` on, empty.
    pub fn new(layout: Layout, first: usize) -> Draft {
        let count = layout.buckets() - first;
        let (buckets, sources) = (vec![[0; BUCKET_BYTES as usize]; count], vec![[0; SLOTS]; count]);
        Draft { layout, first, buckets, sources }
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Adds an entry that lies in a bucket; `None`: there is no room.
    pub fn add(&mut self, bucket: &Bucket, entry: usize, source: u16) -> Option<()> {
        let home = self.layout.home(h0_of(bucket, entry));
        let to = self.room(home)?;
        self.copy(bucket, entry, source, to);
        if to != home {
            self.buckets[home - self.first][OVERFLOW] += 1;
        }
        Some(())
    }

    /// A bucket with a free place for an entry.
    fn room(&mut self, home: usize) -> Option<usize> {
        for number in [home, self.layout.next(home)] {
            if free(&self.buckets[number - self.first]) != 0 {
                return Some(number);
            }
        }
        let moves = moves(self.layout, home, |number| &self.buckets[number - self.first])?;
        for one in &moves {
            let from = one.from - self.first;
            let bucket = self.buckets[from];
            let entry = one.entry(self.layout, &bucket).expect("a move of an entry that is there");
            self.copy(&bucket, entry, self.sources[from][entry], one.to);
            self.buckets[from][entry] = 0;
            let overflow = &mut self.buckets[one.of - self.first][OVERFLOW];
            *overflow = if one.to == one.of { *overflow - 1 } else { *overflow + 1 };
        }
        moves.last().map(|last| last.from)
    }

    fn copy(&mut self, bucket: &Bucket, entry: usize, source: u16, to: usize) {
        let target = &mut self.buckets[to - self.first];
        let place = free(target).trailing_zeros() as usize;
        target[place] = bucket[entry];
        target[entry_bytes(place)].copy_from_slice(&bucket[entry_bytes(entry)]);
        self.sources[to - self.first][place] = source;
    }

    /// Numbers of the buckets, and their bytes up to the last entry.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, &[u8])> {
        (self.first..).zip(&self.buckets).map(|(number, bucket)| {
            let used = (0..SLOTS).rposition(|i| bucket[i] != 0).map_or(0, |last| last + 1);
            (number, &bucket[..entry_bytes(used).start])
        })
    }

    /// What was added: the place that it comes from, the one where it is to be, and `h0`.
    pub fn entries(&self) -> impl Iterator<Item = (u16, u16, u64)> {
        (self.first..).zip(&self.buckets).zip(&self.sources).flat_map(|((number, bucket), sources)| {
            let used = (0..SLOTS).filter(|&i| bucket[i] != 0);
            used.map(move |i| (sources[i], (number * SLOTS + i) as u16, h0_of(bucket, i)))
        })
    }
}
