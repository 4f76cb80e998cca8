use std::collections::{HashMap, HashSet};

use super::*;
use crate::collections::testing::{self, Random};

struct Bench {
    arena: Arena,
    tx: Tx,
    table: Table,
    empty: u64,
}

impl Bench {
    fn new(max_bytes: u64) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let table = Table::at(arena.root());
        table.create(&mut arena, &mut tx).unwrap();
        Bench { arena, tx, table, empty }
    }

    fn find(&self, hash: u64, word: u64) -> Option<Found> {
        self.table.find(&self.arena, hash, |found| found == word)
    }

    fn insert(&mut self, hash: u64, word: u64) -> Result<(), Full> {
        self.tx.clear();
        let gap = self.table.gap(&self.arena, hash);
        self.table.insert(&mut self.arena, &mut self.tx, gap, word)
    }

    fn remove(&mut self, hash: u64, word: u64) {
        self.tx.clear();
        let found = self.find(hash, word).unwrap();
        assert_eq!((found.word, found.hash()), (word, hash));
        self.table.remove(&mut self.arena, &mut self.tx, found);
    }

    /// Releases the table in slices and returns its words.
    fn release(mut self) -> Vec<u64> {
        let mut words = Vec::new();
        let mut position = Some(0);
        while let Some(at) = position {
            self.tx.clear();
            position = self.table.release(&mut self.arena, &mut self.tx, at, &mut 5, |_, _, word, budget| {
                words.push(word);
                *budget = budget.saturating_sub(1);
            });
        }
        assert_eq!(self.arena.allocated_bytes(), self.empty);
        words
    }
}

/// Grows and shrinks a table by turns and compares it with a map from words to hashes.
fn behaves_like_a_map(seed: u64, hash: impl Fn(u64) -> u64) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(64 << 20);
    let mut model = HashMap::new();
    let mut words = Vec::new();
    for (round, target) in [1, 16, 300, 40, 5_000, 1_000, 1_500, 0, 200].into_iter().enumerate() {
        while words.len() != target {
            let growing = words.len() < target;
            if words.is_empty() || random.below(10) < if growing { 7 } else { 3 } {
                let word = random.next() | 1;
                let hash = hash(random.next());
                bench.insert(hash, word).unwrap();
                model.insert(word, hash);
                words.push(word);
            } else {
                let word = words.swap_remove(random.below(words.len() as u64) as usize);
                let hash = model.remove(&word).unwrap();
                bench.remove(hash, word);
                assert!(bench.find(hash, word).is_none());
            }
            if random.below(200) == 0 && !words.is_empty() {
                let word = &mut words[random.below(model.len() as u64) as usize];
                let hash = model.remove(word).unwrap();
                let found = bench.find(hash, *word).unwrap();
                *word = random.next() | 1;
                model.insert(*word, hash);
                bench.table.replace(&mut bench.arena, &mut bench.tx, found, *word);
                assert_eq!(bench.table.check(&bench.arena), Ok(words.len() as u64));
            }
        }
        assert_eq!(bench.table.check(&bench.arena), Ok(target as u64), "round {round}");
        assert!(model.iter().all(|(&word, &hash)| bench.find(hash, word).is_some()));
        assert_eq!(bench.table.words(&bench.arena).collect::<HashSet<_>>(), model.keys().copied().collect());
    }
    let mut released = bench.release();
    released.sort_unstable();
    words.sort_unstable();
    assert_eq!(released, words);
}

#[test]
fn behaves_like_a_map_of_even_hashes() {
    behaves_like_a_map(1, |hash| hash);
}

#[test]
fn behaves_like_a_map_of_clustered_hashes() {
    // Three hashes in four share their first 21 bits: nodes in nodes in nodes.
    behaves_like_a_map(2, |hash| if hash % 4 == 0 { hash } else { hash >> 21 | 0xABCD << 48 });
}

#[test]
fn a_shrunken_table_gives_its_memory_back() {
    let mut random = Random::new(3);
    let mut bench = Bench::new(64 << 20);
    let mut elements: Vec<(u64, u64)> = (1..=100_000).map(|word| (random.next(), word)).collect();
    elements.iter().for_each(|&(hash, word)| bench.insert(hash, word).unwrap());
    let full = bench.arena.allocated_bytes() - bench.empty;
    assert!(full < 100_000 * 30, "{full} bytes");
    elements.drain(100..).for_each(|(hash, word)| bench.remove(hash, word));
    let left = bench.arena.allocated_bytes() - bench.empty;
    assert!(left < 100 * 100, "{left} bytes");
    bench.release();
}

#[test]
fn a_full_arena_changes_nothing() {
    let mut random = Random::new(4);
    let mut bench = Bench::new(EXTENT_BYTES);
    let mut elements = Vec::new();
    let mut refused = 0;
    while refused < 1000 {
        let (hash, word) = (random.next(), random.next() | 1);
        match bench.insert(hash, word) {
            Ok(()) => elements.push((hash, word)),
            Err(Full) => refused += 1,
        }
    }
    assert!(elements.len() > 5_000);
    assert_eq!(bench.table.check(&bench.arena), Ok(elements.len() as u64));
    for (hash, word) in elements {
        bench.remove(hash, word);
    }
    assert_eq!(bench.table.check(&bench.arena), Ok(0));
    bench.release();
}

const EXTENT_BYTES: u64 = holdfast_heap::EXTENT;

#[test]
fn a_scan_returns_what_stays_while_the_table_changes() {
    let mut random = Random::new(5);
    for round in 0..20 {
        let mut bench = Bench::new(64 << 20);
        let stays: Vec<(u64, u64)> = (1..=2_000).map(|word| (random.next(), word)).collect();
        let mut others: Vec<(u64, u64)> = Vec::new();
        stays.iter().for_each(|&(hash, word)| bench.insert(hash, word).unwrap());
        let mut seen = HashSet::new();
        let mut cursor = 0;
        let mut passed = 0;
        loop {
            cursor = bench.table.scan(&bench.arena, cursor, 10, |word| {
                passed += 1;
                seen.insert(word);
            });
            if cursor == 0 {
                break;
            }
            // Twice as many others come and go in waves.
            for _ in 0..random.below(200) {
                if others.is_empty() || (cursor >> 40) % 4 < 2 {
                    let other = (random.next(), random.next() | 1 << 63);
                    bench.insert(other.0, other.1).unwrap();
                    others.push(other);
                } else {
                    let (hash, word) = others.swap_remove(random.below(others.len() as u64) as usize);
                    bench.remove(hash, word);
                }
            }
        }
        assert!(stays.iter().all(|(_, word)| seen.contains(word)), "round {round}");
        assert!(passed < 20_000, "{passed} passed");
    }
}

#[test]
fn a_scan_of_an_unchanged_table_returns_each_entry_once() {
    let mut random = Random::new(6);
    let mut bench = Bench::new(64 << 20);
    (1..=3_000).for_each(|word| bench.insert(random.next(), word).unwrap());
    let mut words = Vec::new();
    let mut cursor = 0;
    let mut calls = 0;
    loop {
        cursor = bench.table.scan(&bench.arena, cursor, 7, |word| words.push(word));
        calls += 1;
        if cursor == 0 {
            break;
        }
        assert!(cursor < 1 << 48);
    }
    words.sort_unstable();
    assert!(words.into_iter().eq(1..=3_000));
    assert!((100..=3_000 / 7).contains(&calls), "{calls} calls");
    // A cursor that no scan returned is harmless.
    bench.table.scan(&bench.arena, u64::MAX, 10, |_| ());
}

#[test]
fn random_entries_are_even() {
    let mut random = Random::new(7);
    for entries in [1, 2, 15, 16, 1_000] {
        let mut bench = Bench::new(64 << 20);
        (1..=entries).for_each(|word| bench.insert(random.next(), word).unwrap());
        let draws = entries * 1_000;
        let mut drawn = vec![0f64; entries as usize];
        for _ in 0..draws {
            let found = bench.table.random(&bench.arena, entries, || random.next());
            drawn[found.word as usize - 1] += 1.0;
        }
        // Pearson's statistic has mean n - 1 and deviation sqrt(2n): this is about six deviations.
        let statistic: f64 = drawn.iter().map(|count| (count - 1_000.0).powi(2) / 1_000.0).sum();
        let n = entries as f64;
        assert!(statistic < n + 10.0 * n.sqrt(), "{statistic} for {entries}");

        for sample in [0, 1, entries / 4, entries - 1, entries, entries + 1] {
            let words = bench.table.sample(&bench.arena, entries, sample as usize, || random.next());
            assert_eq!(words.len() as u64, sample.min(entries));
            assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
        }
    }
}

#[test]
fn an_insertion_leaves_little_redo() {
    let mut random = Random::new(8);
    let mut bench = Bench::new(64 << 20);
    let (mut sum, mut worst) = (0, 0);
    let count = 100_000;
    for word in 1..=count {
        bench.insert(random.next(), word).unwrap();
        sum += bench.tx.buf.len();
        worst = worst.max(bench.tx.buf.len());
    }
    let mean = sum / count as usize;
    eprintln!("redo of an insertion: {mean} bytes, at most {worst}");
    assert!(mean < 80 && worst < 5_000);
}
