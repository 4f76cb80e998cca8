use std::collections::BTreeSet;

use super::*;
use crate::collections::testing::{self, Random};

struct Bench {
    arena: Arena,
    tx: Tx,
    set: Ordered,
    model: BTreeSet<Key>,
}

impl Bench {
    fn new() -> Bench {
        let arena = testing::arena(64 << 20);
        let set = Ordered::at(arena.root());
        Bench { arena, tx: Tx::new(), set, model: BTreeSet::new() }
    }

    fn insert(&mut self, number: u64) {
        let key = key(number);
        if self.model.insert(key) {
            let place = self.set.place(&self.arena, |other| *other < key);
            self.set.insert(&mut self.arena, &mut self.tx, place, &key).unwrap();
        }
        self.tx.clear();
    }

    /// Removes up to `count` keys, from the least one that is not below `number` on, as far as its leaf goes.
    fn remove(&mut self, number: u64, count: usize) {
        let key = key(number);
        let found = self.set.find(&self.arena, |other| *other < key);
        assert_eq!(found.is_some(), self.model.range(key..).next().is_some());
        let Some(position) = found else { return };
        let keys: Vec<Key> = self.set.keys_in_leaf(&self.arena, position).take(count).copied().collect();
        assert!(self.model.range(key..).take(keys.len()).eq(&keys));
        keys.iter().for_each(|key| assert!(self.model.remove(key)));
        self.set.remove(&mut self.arena, &mut self.tx, &position, keys.len());
        self.tx.clear();
    }

    fn check(&self) {
        let len = self.model.len() as u64;
        assert_eq!(self.set.check(&self.arena, |a, b| a < b), Ok(len));
    }

    fn height(&self) -> usize {
        self.set.tree.height(&self.arena)
    }
}

fn key(number: u64) -> Key {
    u128::from(number).to_be_bytes()
}

/// Fills a deep set in an order given by `number`, then empties it by removals of up to `count` keys at places given
/// by `place`.
fn fill_and_empty(number: impl Fn(u64) -> u64, mut place: impl FnMut() -> u64, count: usize) {
    let mut bench = Bench::new();
    let empty = bench.arena.allocated_bytes();
    for i in 0..60_000 {
        bench.insert(number(i));
        if i % 4_000 == 0 {
            bench.check();
        }
    }
    bench.check();
    assert!(bench.height() >= 2);
    assert!(bench.set.iter(&bench.arena, 0..bench.model.len() as u64, false).eq(&bench.model));
    let mut removals = 0;
    while !bench.model.is_empty() {
        let from = place();
        bench.remove(from, count);
        if bench.model.range(key(from)..).next().is_none() {
            bench.remove(0, count);
        }
        removals += 1;
        if removals % 500 == 0 || bench.model.len() < 500 && removals % 20 == 0 {
            bench.check();
            assert!(
                bench.set.iter(&bench.arena, 0..bench.model.len() as u64, true).eq(bench.model.iter().rev())
            );
        }
    }
    assert_eq!(bench.arena.allocated_bytes(), empty);
}

#[test]
fn ascending_in_random_out() {
    let mut random = Random::new(1);
    fill_and_empty(|i| i, || random.below(60_000), 1);
}

#[test]
fn descending_in_from_the_front_out() {
    fill_and_empty(|i| 60_000 - i, || 0, 1);
}

#[test]
fn random_in_leaves_out() {
    let mut random = Random::new(2);
    fill_and_empty(|i| i * 7_919 % 60_000, || random.below(60_000), 30);
}

#[test]
fn random_in_from_the_back_out() {
    let mut next = 60_000;
    let back = || {
        next -= 1;
        next
    };
    fill_and_empty(|i| i * 7_919 % 60_000, back, 30);
}

#[test]
fn random_in_a_growing_hole_out() {
    let (mut low, mut high) = (30_000u64, 30_000u64);
    let hole = || {
        (low, high) = (low.saturating_sub(23), high + 17);
        if high % 2 == 0 { low } else { high }
    };
    fill_and_empty(|i| i * 7_919 % 60_000, hole, 30);
}

#[test]
fn release_frees_in_slices() {
    let mut bench = Bench::new();
    let empty = bench.arena.allocated_bytes();
    (0..10_000).for_each(|i| bench.insert(i));
    let mut freed = BTreeSet::new();
    let mut slices = 0;
    loop {
        let mut budget = 50;
        slices += 1;
        let free = |_: &mut Arena, _: &mut Tx, key: &Key| assert!(freed.insert(*key));
        if bench.set.release(&mut bench.arena, &mut bench.tx, &mut budget, free) {
            break;
        }
    }
    assert!(slices > 100);
    assert_eq!(freed, bench.model);
    assert_eq!(bench.arena.allocated_bytes(), empty);
}
