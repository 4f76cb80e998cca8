//! How many bytes of each segment are still in use, counted by all threads without a lock.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use parking_lot::Mutex;

const FREE: u64 = u64::MAX;
/// Cells that are allocated together: a page of them.
const CHUNK: usize = 256;

/// A fixed table of counters. A counter stays where it was put until its segment is freed, so that look-ups need
/// no lock: a segment's cell is one of the `reach` cells from its home on. There may be a million segments, and mostly
/// there are few, so a part of the table takes memory only once one of its cells was used.
pub(crate) struct LiveBytes {
    chunks: Box<[OnceLock<Box<[Cell; CHUNK]>>]>,
    reach: AtomicU64,
    changing: Mutex<()>,
}

struct Cell {
    seq: AtomicU64,
    bytes: AtomicI64,
}

impl Cell {
    fn free() -> Cell {
        Cell { seq: AtomicU64::new(FREE), bytes: AtomicI64::new(0) }
    }
}

impl LiveBytes {
    /// Room for `segments` segments at once.
    pub fn new(segments: usize) -> Self {
        // Half full at most, so that `reach` stays small. Some more than `segments`, because bytes may be counted
        // in a segment that is not prepared yet.
        let cells = ((segments + 64).next_power_of_two() * 2).max(CHUNK);
        Self {
            chunks: (0..cells / CHUNK).map(|_| OnceLock::new()).collect(),
            reach: AtomicU64::new(0),
            changing: Mutex::new(()),
        }
    }

    fn cells(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// The chunk and the place in it of a cell, at a distance from a segment's home.
    fn place(&self, seq: u64, distance: usize) -> (&OnceLock<Box<[Cell; CHUNK]>>, usize) {
        let home = (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        let at = (home + distance) & (self.cells() - 1);
        (&self.chunks[at / CHUNK], at % CHUNK)
    }

    fn find(&self, seq: u64) -> Option<&Cell> {
        let reach = self.reach.load(Ordering::Acquire) as usize;
        (0..reach)
            .filter_map(|distance| {
                let (chunk, at) = self.place(seq, distance);
                Some(&chunk.get()?[at])
            })
            .find(|cell| cell.seq.load(Ordering::Acquire) == seq)
    }

    /// Adds to a segment's count; false if it has none.
    pub fn add(&self, seq: u64, bytes: i64) -> bool {
        self.find(seq).map(|cell| cell.bytes.fetch_add(bytes, Ordering::Relaxed)).is_some()
    }

    /// Starts to count for a segment, unless it is counted already.
    pub fn insert(&self, seq: u64) {
        let _changing = self.changing.lock();
        if self.find(seq).is_some() {
            return;
        }
        let (distance, cell) = (0..self.cells())
            .map(|distance| {
                let (chunk, at) = self.place(seq, distance);
                (distance, &chunk.get_or_init(|| Box::new(std::array::from_fn(|_| Cell::free())))[at])
            })
            .find(|(_, cell)| cell.seq.load(Ordering::Relaxed) == FREE)
            .expect("twice as many cells as segments");
        cell.bytes.store(0, Ordering::Relaxed);
        cell.seq.store(seq, Ordering::Release);
        self.reach.fetch_max(distance as u64 + 1, Ordering::Release);
    }

    /// Forgets a segment.
    pub fn remove(&self, seq: u64) {
        let _changing = self.changing.lock();
        if let Some(cell) = self.find(seq) {
            cell.seq.store(FREE, Ordering::Release);
        }
    }

    /// The counts of all segments together.
    pub fn total(&self) -> i64 {
        let cells = self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter());
        let counted = cells.filter(|cell| cell.seq.load(Ordering::Acquire) != FREE);
        counted.map(|cell| cell.bytes.load(Ordering::Relaxed)).sum()
    }

    /// A segment's count; never negative.
    pub fn get(&self, seq: u64) -> u64 {
        self.find(seq).map_or(0, |cell| cell.bytes.load(Ordering::Relaxed).max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_neighbours() {
        let live = LiveBytes::new(1000);
        for round in 0..20 {
            for i in 0..1000 {
                let seq = round * 1000 + i;
                live.insert(seq);
                assert!(live.add(seq, seq as i64));
                if seq >= 900 {
                    live.remove(seq - 900);
                    assert!(!live.add(seq - 900, 1));
                }
            }
        }
        for seq in 20_000 - 900..20_000 {
            live.insert(seq);
            assert_eq!(live.get(seq), seq);
        }
        assert!(live.reach.load(Ordering::Relaxed) < 64);
    }
}
