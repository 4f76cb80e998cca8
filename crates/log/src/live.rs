//! How many bytes of each segment are still in use, counted by all threads without a lock.

use std::sync::OnceLock;

use crate::sync::{AtomicI64, AtomicU64, Mutex, Ordering};

const FREE: u64 = u64::MAX;
/// Cells that are allocated together: a page of them.
const CHUNK: usize = if cfg!(loom) { 2 } else { 256 };

/// A fixed table of counters. A counter stays where it was put until its segment is freed, so that look-ups need
/// no lock: a segment's cell is one of the `reach` cells from its home on. There may be a million segments, and mostly
/// there are few, so a part of the table takes memory only once one of its cells was used.
pub(crate) struct LiveBytes {
    chunks: Box<[OnceLock<Box<[Cell; CHUNK]>>]>,
    reach: AtomicU64,
    /// The number after the newest segment that was inserted; locked while a segment gets a cell or loses it.
    next: Mutex<u64>,
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
        let spare = if cfg!(loom) { 0 } else { 64 };
        let cells = ((segments + spare).next_power_of_two() * 2).max(CHUNK);
        Self {
            chunks: (0..cells / CHUNK).map(|_| OnceLock::new()).collect(),
            reach: AtomicU64::new(0),
            next: Mutex::new(0),
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

    /// Adds to a segment's count. A segment that was not inserted yet counts from now on; one that was removed does not.
    #[inline]
    pub fn add(&self, seq: u64, bytes: i64) {
        if !self.add_to_cell(seq, bytes) {
            self.add_to_none(seq, bytes);
        }
    }

    #[cold]
    fn add_to_none(&self, seq: u64, bytes: i64) {
        let next = self.next.lock();
        // Looked up again: the segment may have got its cell before we had the lock, and is not newer than `next` then.
        if !self.add_to_cell(seq, bytes) && seq >= *next {
            self.occupy(seq, bytes);
        }
    }

    #[inline]
    fn add_to_cell(&self, seq: u64, bytes: i64) -> bool {
        self.find(seq).map(|cell| cell.bytes.fetch_add(bytes, Ordering::Relaxed)).is_some()
    }

    /// Has all counts be none.
    pub fn clear(&self) {
        let cells = self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter());
        cells.for_each(|cell| cell.bytes.store(0, Ordering::Relaxed));
    }

    /// Starts to count for a segment, unless it is counted already.
    pub fn insert(&self, seq: u64) {
        let mut next = self.next.lock();
        *next = (*next).max(seq + 1);
        if self.find(seq).is_none() {
            self.occupy(seq, 0);
        }
    }

    /// Gives a segment a cell. The caller holds the lock and has found none.
    fn occupy(&self, seq: u64, bytes: i64) {
        let (distance, cell) = (0..self.cells())
            .map(|distance| {
                let (chunk, at) = self.place(seq, distance);
                (distance, &chunk.get_or_init(|| Box::new(std::array::from_fn(|_| Cell::free())))[at])
            })
            .find(|(_, cell)| cell.seq.load(Ordering::Relaxed) == FREE)
            .expect("twice as many cells as segments");
        cell.bytes.store(bytes, Ordering::Relaxed);
        cell.seq.store(seq, Ordering::Release);
        self.reach.fetch_max(distance as u64 + 1, Ordering::Release);
    }

    /// Forgets a segment, of which nothing is live: nobody adds to it any more.
    pub fn remove(&self, seq: u64) {
        let _changing = self.next.lock();
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

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Nothing that is counted while the segment is prepared may be missing later: the segment would look dead.
    #[test]
    fn what_is_added_while_a_segment_is_inserted_is_counted() {
        crate::sync::model(|| {
            let live = Arc::new(LiveBytes::new(2));
            live.insert(0);
            let add = {
                let live = live.clone();
                thread::spawn(move || {
                    live.add(1, 64);
                    live.add(1, -16);
                })
            };
            let other = {
                let live = live.clone();
                thread::spawn(move || live.add(1, 32))
            };
            live.insert(1);
            add.join().expect("it adds");
            other.join().expect("it adds");
            assert_eq!((live.get(0), live.get(1), live.total()), (0, 80, 80));
        });
    }

    /// A cell changes hands while others are looked up.
    #[test]
    fn a_segment_that_is_removed_takes_nothing_of_the_others_along() {
        crate::sync::model(|| {
            let live = Arc::new(LiveBytes::new(2));
            live.insert(0);
            live.insert(1);
            let add = {
                let live = live.clone();
                thread::spawn(move || live.add(1, 64))
            };
            live.remove(0);
            live.insert(2);
            live.add(0, 16);
            add.join().expect("it adds");
            assert_eq!((live.get(0), live.get(1), live.get(2)), (0, 64, 0));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_neighbours() {
        let live = LiveBytes::new(1000);
        for round in 0..20 {
            for i in 0..1000 {
                let seq = round * 1000 + i;
                live.insert(seq);
                live.add(seq, seq as i64);
                if seq >= 900 {
                    live.remove(seq - 900);
                    live.add(seq - 900, 1);
                    assert_eq!(live.get(seq - 900), 0);
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
