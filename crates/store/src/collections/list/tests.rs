use std::collections::VecDeque;

use super::*;
use crate::collections::{
    Hasher,
    testing::{self, Random},
};

struct Bench {
    arena: Arena,
    tx: Tx,
    hasher: Hasher,
    limits: Limits,
    obj: u64,
    empty: u64,
}

impl Bench {
    fn new(max_bytes: u64, size: i32) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let obj = create(&mut arena, &mut tx, b"key").unwrap();
        let limits = Limits { list_max_listpack_size: size, ..Limits::default() };
        Bench { arena, tx, hasher: Hasher::new([1, 2]), limits, obj, empty }
    }

    fn writer(&mut self) -> Writer<'_> {
        self.tx.committed();
        self.tx.clear();
        let cx = testing::context(&self.hasher, &self.limits);
        Writer::new(&mut self.arena, &mut self.tx, self.obj, cx)
    }

    fn all(&self) -> Vec<Vec<u8>> {
        iter(&self.arena, self.obj, 0..u64::MAX, false).map(<[u8]>::to_vec).collect()
    }

    fn encoding(&self) -> &'static str {
        object::encoding(&self.arena, self.obj).name()
    }

    fn destroy(mut self) {
        testing::destroy(&mut self.arena, &mut self.tx, self.obj);
        assert_eq!(self.arena.allocated_bytes(), self.empty);
    }
}

fn element(random: &mut Random) -> Vec<u8> {
    let len = match random.below(100) {
        0 => 9_000 + random.below(20_000),
        1..=2 => 1_500 + random.below(4_000),
        3..=20 => random.below(300),
        _ => random.below(8),
    };
    vec![b'a' + random.below(3) as u8; len as usize]
}

/// One random operation on both; `growth` is the share of insertions in 100.
fn step(bench: &mut Bench, model: &mut VecDeque<Vec<u8>>, random: &mut Random, growth: u64) {
    let len = model.len() as u64;
    let end = if random.below(2) == 0 { End::Front } else { End::Back };
    if len == 0 || random.below(100) < growth {
        let value = element(random);
        if len == 0 || random.below(3) == 0 {
            bench.writer().push(end, &value).unwrap();
            if end == End::Front { model.push_front(value) } else { model.push_back(value) }
        } else {
            let index = random.below(len + 1);
            bench.writer().insert(index, &value).unwrap();
            model.insert(index as usize, value);
        }
        return;
    }
    let index = random.below(len);
    match random.below(6) {
        0 => {
            let value = element(random);
            bench.writer().set(index, &value).unwrap();
            model[index as usize] = value;
        }
        1 => {
            let count = 1 + random.below(4);
            let mut popped = Vec::new();
            bench.writer().pop(end, count, |value| popped.push(value.to_vec()));
            let expected: Vec<_> = (0..count.min(len))
                .filter_map(|_| if end == End::Front { model.pop_front() } else { model.pop_back() })
                .collect();
            assert_eq!(popped, expected);
        }
        2 | 3 => {
            let end = (index + 1 + random.below(3)).min(len);
            bench.writer().remove(index..end);
            model.drain(index as usize..end as usize);
        }
        4 if random.below(8) == 0 => {
            let reverse = random.below(2) == 0;
            let value = model[index as usize].clone();
            let count = 1 + random.below(40);
            let mut places: Vec<usize> = (0..model.len()).filter(|&i| model[i] == value).collect();
            if reverse {
                places.reverse();
            }
            places.truncate(count as usize);
            places.sort_unstable();
            places.iter().rev().for_each(|&i| drop(model.remove(i)));
            assert_eq!(bench.writer().remove_equal(&value, count, reverse), places.len() as u64);
        }
        _ => {
            assert_eq!(get(&bench.arena, bench.obj, index), Some(&model[index as usize][..]));
            let max_len = random.below(2 * len);
            let reverse = random.below(2) == 0;
            let value = &model[index as usize];
            let met: Vec<u64> = positions(&bench.arena, bench.obj, value, max_len, reverse).collect();
            let first = if reverse { len.saturating_sub(max_len) } else { 0 };
            let mut expected: Vec<u64> =
                (first..len.min(first + max_len)).filter(|&i| model[i as usize] == *value).collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(met, expected);
        }
    }
}

#[test]
fn behaves_like_a_deque() {
    for (seed, size) in (1..).zip([-2, -1, 1, 3, 128, -2, 0, 3]) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(256 << 20, size);
        let mut model = VecDeque::new();
        for round in 0..4_000 {
            let growth = if round / 1_000 % 2 == 0 { 75 } else { 30 };
            step(&mut bench, &mut model, &mut random, growth);
            assert_eq!(check(&bench.arena, bench.obj), Ok(model.len() as u64), "round {round}");
            if round % 64 == 0 {
                let range = random.below(model.len() as u64 + 1)..random.below(model.len() as u64 + 9);
                let end = (range.end as usize).min(model.len());
                let part = model.range((range.start as usize).min(end)..end);
                assert!(iter(&bench.arena, bench.obj, range.clone(), false).eq(part.clone()));
                assert!(iter(&bench.arena, bench.obj, range, true).eq(part.rev()));
            }
        }
        assert_eq!(bench.all(), Vec::from(model));
        bench.destroy();
    }
}

#[test]
fn deep_trees_grow_and_shrink() {
    let mut bench = Bench::new(256 << 20, 1);
    let mut random = Random::new(7);
    let mut model = VecDeque::new();
    for i in 0..20_000u64 {
        let value = i.to_le_bytes().to_vec();
        let index = if i % 2 == 0 { random.below(i + 1) } else { i };
        if i == 0 {
            bench.writer().push(End::Back, &value).unwrap();
        } else {
            bench.writer().insert(index, &value).unwrap();
        }
        model.insert(index as usize, value);
    }
    assert!(tree(bench.obj).height(&bench.arena) >= 2);
    assert_eq!(check(&bench.arena, bench.obj), Ok(20_000));
    while model.len() > 3 {
        let index = random.below(model.len() as u64);
        bench.writer().remove(index..index + 1);
        model.remove(index as usize);
        if model.len() % 100 == 0 {
            assert_eq!(check(&bench.arena, bench.obj), Ok(model.len() as u64));
            assert_eq!(get(&bench.arena, bench.obj, 7), model.get(7).map(|value| &value[..]));
        }
    }
    assert_eq!(bench.all(), Vec::from(model));
    bench.destroy();
}

#[test]
fn takes_little_memory_and_redo() {
    let mut bench = Bench::new(256 << 20, -2);
    let count = 1_000_000;
    let (mut redo, mut most) = (0, 0);
    for _ in 0..count {
        bench.writer().push(End::Back, &[b'x'; 100]).unwrap();
        redo += bench.tx.buf.len();
        most = most.max(bench.tx.buf.len());
    }
    let each = (bench.arena.allocated_bytes() - bench.empty) as f64 / count as f64;
    let redo = redo as f64 / count as f64 - 100.0;
    assert!(each < 106.0, "{each} bytes an element");
    assert!(redo < 60.0, "{redo} bytes of redo a push beside the element, {most} at most");
    let mut redo = 0;
    for _ in 0..count {
        bench.writer().pop(End::Front, 1, |_| {});
        redo += bench.tx.buf.len();
    }
    let redo = redo as f64 / count as f64;
    assert!(redo < 60.0, "{redo} bytes of redo a pop");
    bench.destroy();
}

#[test]
fn a_queue_costs_little_redo_at_any_length() {
    for len in [1u64, 3, 30, 300] {
        let mut bench = Bench::new(16 << 20, -2);
        let mut redo = 0;
        for i in 0..20_000 {
            bench.writer().push(End::Back, &[b'x'; 40]).unwrap();
            redo += bench.tx.buf.len();
            if i >= len {
                bench.writer().pop(End::Front, 1, |_| {});
                redo += bench.tx.buf.len();
            }
        }
        let redo = redo / 20_000;
        assert!(redo < 240, "{redo} bytes of redo for each element through a queue of {len}");
        bench.destroy();
    }
}

#[test]
fn names_its_encoding_as_redis_does() {
    let mut bench = Bench::new(16 << 20, 3);
    for _ in 0..3 {
        bench.writer().push(End::Back, b"x").unwrap();
        assert_eq!(bench.encoding(), "listpack");
    }
    bench.writer().push(End::Back, b"x").unwrap();
    assert_eq!(bench.encoding(), "quicklist");
    bench.writer().pop(End::Back, 3, |_| {});
    assert_eq!(bench.encoding(), "listpack");

    let mut bench = Bench::new(16 << 20, -2);
    bench.writer().push(End::Back, &[b'x'; 9_000]).unwrap();
    assert_eq!(bench.encoding(), "quicklist");
    bench.writer().set(0, b"x").unwrap();
    assert_eq!(bench.encoding(), "listpack");
    for _ in 0..80 {
        bench.writer().push(End::Back, &[b'x'; 90]).unwrap();
        assert_eq!(bench.encoding(), "listpack");
    }
    for _ in 0..20 {
        bench.writer().push(End::Back, &[b'x'; 90]).unwrap();
    }
    assert_eq!(bench.encoding(), "quicklist");
}

#[test]
fn a_full_arena_changes_nothing() {
    for seed in 1..=4 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(2 << 20, if seed % 2 == 0 { 2 } else { -2 });
        let mut model = VecDeque::new();
        let mut full = 0;
        while full < 200 {
            let value = element(&mut random);
            let index = random.below(model.len() as u64 + 1);
            let done = if model.is_empty() {
                bench.writer().push(End::Back, &value)
            } else if random.below(4) > 0 {
                bench.writer().insert(index, &value)
            } else {
                let index = index.min(model.len() as u64 - 1);
                let done = bench.writer().set(index, &value);
                if done.is_ok() {
                    model.remove(index as usize);
                    model.insert(index as usize, value.clone());
                    continue;
                }
                done
            };
            match done {
                Ok(()) => model.insert(index as usize, value),
                Err(Full) => {
                    full += 1;
                    assert_eq!(check(&bench.arena, bench.obj), Ok(model.len() as u64));
                    let count = model.len() as u64 / 40;
                    bench.writer().pop(End::Front, count, |_| {});
                    model.drain(..count as usize);
                }
            }
        }
        assert_eq!(bench.all(), Vec::from(model));
        bench.destroy();
    }
}

#[test]
fn elements_may_be_larger_than_extents() {
    let mut bench = Bench::new(64 << 20, -2);
    let large: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    for _ in 0..2 {
        bench.writer().push(End::Back, b"small").unwrap();
        bench.writer().push(End::Back, &large).unwrap();
    }
    bench.writer().insert(1, &large[..300_000]).unwrap();
    bench.writer().set(0, &large[1..]).unwrap();
    assert_eq!(check(&bench.arena, bench.obj), Ok(5));
    assert_eq!(bench.all(), [&large[1..], &large[..300_000], &large, b"small", &large]);
    bench.destroy();
}

#[test]
fn filled_at_once_is_as_element_by_element() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let size = [-2, -1, 3, 128][round % 4];
        let (mut filled, mut pushed) = (Bench::new(16 << 20, size), Bench::new(16 << 20, size));
        let wanted: Vec<Vec<u8>> =
            (0..random.below([5, 300][round % 2])).map(|_| element(&mut random)).collect();
        filled.writer().fill(wanted.iter().map(Vec::as_slice)).unwrap();
        for element in &wanted {
            pushed.writer().push(End::Back, element).unwrap();
        }
        assert_eq!(check(&filled.arena, filled.obj), Ok(wanted.len() as u64));
        assert_eq!(filled.all(), wanted);
        assert_eq!(filled.encoding(), pushed.encoding());
        filled.destroy();
        pushed.destroy();
    }
}
