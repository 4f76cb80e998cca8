use super::*;
use crate::collections::testing::{self, Random};
use layout::{BASE_PAGES, EXTRA_PAGES};
use std::collections::{HashMap, HashSet};

struct Bench {
    arena: Arena,
    batch: Batch,
    index: Index,
    /// Bytes that are allocated while the index is empty.
    empty: u64,
    /// By the entry's digest: its word and its handle.
    model: HashMap<u64, (u64, Handle)>,
}

fn digest(h0: u64) -> Digest {
    Digest { h0, h1: h0.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

impl Bench {
    fn new() -> Bench {
        let mut arena = testing::arena(64 << 20);
        let root = arena.root();
        let index = Index::open(&mut arena, root, false, Arc::default()).expect("an empty one");
        let empty = arena.allocated_bytes();
        Bench { arena, batch: Batch::default(), index, empty, model: HashMap::new() }
    }

    fn settle(&mut self) {
        self.batch.tx.committed();
        self.batch.tx.clear();
    }

    fn insert(&mut self, h0: u64) {
        let (word, handle) = (self.model.len() as u64 + 1, (h0 as u32 & !MARK).max(1));
        let Bench { arena, batch, index, .. } = self;
        let slot = index.insert(arena, batch, digest(h0)).expect("room");
        index.set_word(arena, batch, slot, EntryWord(word));
        index.set_handle(slot, handle);
        self.model.insert(h0, (word, handle));
    }

    fn remove(&mut self, h0: u64) {
        let slot = self.index.find(&self.arena, digest(h0)).expect("it is there");
        self.index.remove(&mut self.arena, &mut self.batch, slot);
        self.model.remove(&h0);
    }

    fn check(&mut self) {
        self.settle();
        assert_eq!(self.index.check(&self.arena), Ok(self.model.len() as u64));
        for (&h0, &(word, handle)) in &self.model {
            let (slot, found) = self.index.get(&self.arena, digest(h0)).expect("it is there");
            assert_eq!((found.0, self.index.handle(slot)), (word, handle));
        }
        assert_eq!(self.index.handles().count(), self.model.len());
        assert_eq!(self.arena.allocated_bytes(), self.empty + self.index.heap_bytes());
    }

    /// As after a start: the handles are gone.
    fn reopen(&mut self) {
        self.settle();
        let (root, len) = (self.index.root, self.index.len());
        self.index = Index::open(&mut self.arena, root, false, Arc::default()).expect("a sound one");
        assert_eq!(self.index.len(), len);
        for (&h0, &(word, handle)) in &self.model {
            let (slot, found) = self.index.get(&self.arena, digest(h0)).expect("it is there");
            assert_eq!(found.0, word);
            self.index.set_handle(slot, handle);
        }
    }

    /// Bytes of the heap that an entry takes.
    fn bytes_an_entry(&self) -> f64 {
        self.index.heap_bytes() as f64 / self.index.len() as f64
    }

    fn clear(mut self) {
        self.index.clear_all(&mut self.arena, &mut self.batch);
        self.settle();
        assert_eq!(self.arena.allocated_bytes(), self.empty);
    }
}

#[test]
fn entries_come_and_go_and_are_found() {
    for seed in 1..=3 {
        let (mut bench, mut random) = (Bench::new(), Random::new(seed));
        for round in 0..12 {
            for _ in 0..random.below(4000) {
                let key = random.next();
                if !bench.model.contains_key(&key) {
                    bench.insert(key);
                }
            }
            let gone = bench.model.len() as u64 * random.below(3) / 4;
            let keys: Vec<u64> = bench.model.keys().copied().take(gone as usize).collect();
            keys.into_iter().for_each(|key| bench.remove(key));
            bench.check();
            if round % 3 == 2 {
                bench.reopen();
                bench.check();
            }
        }
        assert!(bench.index.depth > 2, "it has grown");
        bench.clear();
    }
}

/// However many there are, an entry takes little: segments grow by a page at a time, and when they are full.
#[test]
fn segments_are_full() {
    let (mut bench, mut random) = (Bench::new(), Random::new(1));
    let (mut most, mut sum, mut looks) = (0.0f64, 0.0, 0);
    for number in 1..=60_000 {
        bench.insert(random.next());
        if number >= 5_000 && number % 500 == 0 {
            bench.settle();
            most = most.max(bench.bytes_an_entry());
            sum += bench.bytes_an_entry();
            looks += 1;
        }
    }
    let mean = sum / f64::from(looks);
    assert!(mean < 21.5 && most < 24.0, "{mean} bytes an entry, at most {most}");
    bench.check();
}

/// Entries that agree in more bits than others, as no hash gives them: those on one side only of each split, and those of a few
/// buckets only.
#[test]
fn entries_that_are_spread_unevenly_are_found() {
    for (mask, set) in [(!0 >> 9, 0), (!0 >> 9, !(!0 >> 9)), (!0 << 6, 5), (!0 << 4, 0)] {
        let (mut bench, mut random) = (Bench::new(), Random::new(7));
        while bench.model.len() < 3000 {
            let key = random.next() & mask | set;
            if !bench.model.contains_key(&key) {
                bench.insert(key);
            }
        }
        bench.check();
        bench.clear();
    }
}

/// A scan sees what is there all the time, though segments grow and split under it.
#[test]
fn a_scan_sees_what_is_there_while_the_index_grows() {
    for seed in 1..=4 {
        let (mut bench, mut random) = (Bench::new(), Random::new(seed));
        (0..1500 * seed).for_each(|_| bench.insert(random.next()));
        let there: HashSet<u64> = bench.model.keys().copied().collect();
        let (mut seen, mut cursor) = (HashMap::new(), Some(0));
        while let Some(at) = cursor {
            assert!(at < 1 << CURSOR_BITS);
            cursor = bench.index.scan(&bench.arena, at, |_, digest, _| {
                *seen.entry(digest.h0).or_insert(0) += 1;
            });
            (0..random.below(40)).for_each(|_| bench.insert(random.next()));
        }
        assert!(there.iter().all(|h0| seen.contains_key(h0)));
        let (mut seen, mut cursor) = (HashMap::new(), Some(0));
        while let Some(at) = cursor {
            cursor = bench.index.scan(&bench.arena, at, |_, digest, _| {
                *seen.entry(digest.h0).or_insert(0) += 1;
            });
        }
        assert!(
            seen.len() == bench.model.len() && seen.values().all(|&times| times == 1),
            "once, if nothing grows"
        );
    }
}

/// Where memory is scarce, few marks are kept; what is told of a key that has none is never less than its mark was, also after its
/// segment has grown and split.
#[test]
fn no_key_is_older_after_its_segment_has_split() {
    let (mut bench, mut random) = (Bench::new(), Random::new(5));
    bench.index.memory.set_scarce(true);
    let mut marks = HashMap::new();
    while bench.index.depth < 2 {
        let (h0, mark) = (random.next(), MARK + marks.len() as u32);
        bench.insert(h0);
        let slot = bench.index.find(&bench.arena, digest(h0)).expect("it was added");
        bench.index.set_handle(slot, mark);
        marks.insert(h0, mark);
    }
    for (&h0, &mark) in &marks {
        let slot = bench.index.find(&bench.arena, digest(h0)).expect("it is there");
        assert!(bench.index.handle_or_mark(slot) >= mark);
    }
    assert!(bench.index.memory.bytes() < marks.len() * 2, "few are kept");
}

/// A directory of a format before 7, which names the first of four pages that were allocated at once, is read, and goes on growing.
#[test]
fn an_index_of_an_older_format_grows() {
    let (mut bench, mut random) = (Bench::new(), Random::new(3));
    (0..300).for_each(|_| bench.insert(random.next()));
    let Bench { arena, batch, index, .. } = &mut bench;
    let run = arena.alloc(&mut batch.tx, BASE_PAGES * PAGE as usize).expect("room");
    let directory = arena.alloc(&mut batch.tx, 2 * OLD_NAME_BYTES).expect("room");
    let blocks: Vec<(u64, usize)> = index.segments[0].blocks().collect();
    for (number, &(page, bytes)) in blocks.iter().enumerate() {
        arena.copy(&mut batch.tx, page, run + number as u64 * PAGE, bytes);
        arena.free(&mut batch.tx, page, bytes);
    }
    arena.free(&mut batch.tx, arena.u64(index.root), NAME_BYTES);
    arena.write(&mut batch.tx, directory, &(run as u32 / PAGE as u32).to_le_bytes());
    arena.write_u64(&mut batch.tx, index.root, directory);
    arena.write_u64(&mut batch.tx, index.root + 8, 0);
    bench.reopen();
    bench.check();
    assert_eq!(bench.index.name_bytes, OLD_NAME_BYTES);
    while bench.index.depth < 2 {
        bench.insert(random.next());
    }
    bench.check();
    bench.reopen();
    bench.check();
    assert!(bench.index.segments.iter().any(|segment| segment.blocks().count() < segment.layout.pages()));
    bench.clear();
}

/// A heap that is full refuses the page, the segment or the directory, and the index is as before.
#[test]
fn an_index_that_cannot_grow_is_as_it_was() {
    for pages in 20..60 {
        let mut arena = testing::arena(1 << 20);
        let root = arena.root();
        let index = Index::open(&mut arena, root, false, Arc::default()).expect("an empty one");
        let empty = arena.allocated_bytes();
        let mut bench = Bench { arena, batch: Batch::default(), index, empty, model: HashMap::new() };
        let (mut random, mut others) = (Random::new(pages), Vec::new());
        // What the index may not take.
        while let Ok(page) = bench.arena.alloc(&mut bench.batch.tx, PAGE as usize) {
            others.push(page);
        }
        for page in others.split_off(others.len() - pages as usize) {
            bench.arena.free(&mut bench.batch.tx, page, PAGE as usize);
        }
        bench.settle();
        bench.empty = bench.arena.allocated_bytes();
        loop {
            let h0 = random.next();
            let before = bench.index.segments.iter().map(Segment::name).collect::<Vec<_>>();
            let Bench { arena, batch, index, .. } = &mut bench;
            if index.insert(arena, batch, digest(h0)).is_err() {
                assert_eq!(before, bench.index.segments.iter().map(Segment::name).collect::<Vec<_>>());
                break;
            }
            let slot = bench.index.find(&bench.arena, digest(h0)).expect("it was added");
            bench.index.remove(&mut bench.arena, &mut bench.batch, slot);
            bench.insert(h0);
        }
        bench.check();
        bench.clear();
    }
}

#[test]
fn a_directory_that_makes_no_sense_is_refused() {
    let name = |pages: &[u32]| {
        let words = pages.iter().copied().chain(std::iter::repeat(0)).take(NAME_BYTES / 4);
        words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
    };
    assert!(Segment::named(&name(&[1, 2, 3])).is_err());
    assert!(Segment::named(&name(&[1, 2, 0, 4, 5])).is_err());
    assert!(Segment::named(&0u32.to_le_bytes()).is_err());
    for extra in 0..=EXTRA_PAGES {
        let pages: Vec<u32> = (1..).take(BASE_PAGES + extra).collect();
        let segment = Segment::named(&name(&pages)).expect("a sound one");
        assert_eq!((segment.layout.extra as usize, segment.name().to_vec()), (extra, name(&pages)));
    }
}
