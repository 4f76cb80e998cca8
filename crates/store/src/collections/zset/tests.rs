use super::*;
use crate::collections::{
    Hasher, Limits,
    testing::{self, Random},
};

struct Bench {
    arena: Arena,
    tx: Tx,
    hasher: Hasher,
    limits: Limits,
    obj: u64,
    empty: u64,
    /// In order.
    model: Vec<(Vec<u8>, f64)>,
}

impl Bench {
    fn new(max_bytes: u64, small: usize) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let obj = create(&mut arena, &mut tx, b"key").unwrap();
        let limits = Limits { zset_max_listpack_entries: small, ..Limits::default() };
        Bench { arena, tx, hasher: Hasher::new([1, 2]), limits, obj, empty, model: Vec::new() }
    }

    fn writer(&mut self) -> Writer<'_> {
        self.tx.committed();
        self.tx.clear();
        let cx = testing::context(&self.hasher, &self.limits);
        Writer::new(&mut self.arena, &mut self.tx, self.obj, cx)
    }

    fn cx(&self) -> Context<'_> {
        testing::context(&self.hasher, &self.limits)
    }

    fn place(&self, scored: Scored) -> usize {
        self.model.partition_point(|(member, score)| precedes((member, *score), scored))
    }

    fn insert(&mut self, member: &[u8], score: f64) -> Result<(), Full> {
        let old = self.writer().insert(member, score)?;
        let at = self.model.iter().position(|scored| scored.0 == member);
        assert_eq!(old, at.map(|at| self.model[at].1));
        if let Some(at) = at {
            self.model.remove(at);
        }
        let at = self.place((member, score));
        self.model.insert(at, (member.to_vec(), score));
        Ok(())
    }

    fn check(&self) {
        assert_eq!(check(&self.arena, self.cx(), self.obj), Ok(self.model.len() as u64));
    }

    fn scored(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = Scored<'_>> {
        self.model[range].iter().map(|(member, score)| (&member[..], *score))
    }

    fn check_ranges(&self, random: &mut Random) {
        let len = self.model.len();
        let range = random.below(len as u64 + 1)..random.below(len as u64 + 5);
        let end = len.min(range.end as usize);
        let part = (range.start as usize).min(end)..end;
        assert!(iter(&self.arena, self.obj, range.clone(), false).eq(self.scored(part.clone())));
        assert!(iter(&self.arena, self.obj, range, true).eq(self.scored(part).rev()));

        let (low, high) = (random.below(12) as f64 - 1.0, random.below(12) as f64 - 1.0);
        let ranks = ranks_by_score(&self.arena, self.obj, Bound::Included(low), Bound::Excluded(high));
        let inside = |score: f64| low <= score && score < high;
        assert_eq!(
            ranks.end - ranks.start,
            self.model.iter().filter(|scored| inside(scored.1)).count() as u64
        );
        assert!(iter(&self.arena, self.obj, ranks, false).all(|scored| inside(scored.1)));
        let ranks = ranks_by_score(&self.arena, self.obj, Bound::Excluded(low), Bound::Included(high));
        let inside = |score: f64| low < score && score <= high;
        assert_eq!(
            ranks.end - ranks.start,
            self.model.iter().filter(|scored| inside(scored.1)).count() as u64
        );
        assert!(iter(&self.arena, self.obj, ranks, true).all(|scored| inside(scored.1)));

        if let Some(at) = (random.next() as usize).checked_rem(len) {
            let (member, member_score) = &self.model[at];
            assert_eq!(score(&self.arena, self.cx(), self.obj, member), Some(*member_score));
            assert_eq!(rank(&self.arena, self.cx(), self.obj, member), Some(at as u64));
        }
        assert_eq!(rank(&self.arena, self.cx(), self.obj, b"none"), None);
    }

    fn destroy(mut self) {
        testing::destroy(&mut self.arena, &mut self.tx, self.obj);
        assert_eq!(self.arena.allocated_bytes(), self.empty);
    }
}

fn member(random: &mut Random, names: u64) -> Vec<u8> {
    let name = random.below(names);
    format!("{name:0width$}", width = 1 + (name % 60) as usize).into_bytes()
}

#[test]
fn behaves_like_a_sorted_vector() {
    for (seed, small) in (1..).zip([128, 0, 1000, 0, 4]) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(64 << 20, small);
        let names = if seed % 2 == 0 { 4_000 } else { 300 };
        for round in 0..6_000 {
            let growing = round / 1_500 % 2 == 0;
            if random.below(10) < if growing { 7 } else { 3 } {
                let name = member(&mut random, names);
                let score = match random.below(3) {
                    0 => random.below(10) as f64,
                    1 => round as f64,
                    _ => random.next() as f64 / 1e18,
                };
                bench.insert(&name, score).unwrap();
            } else if random.below(3) > 0 {
                let mut name = member(&mut random, names);
                if random.below(2) == 0 {
                    let at = (random.next() as usize).checked_rem(bench.model.len());
                    name = at.map_or(name, |at| bench.model[at].0.clone());
                }
                let at = bench.model.iter().position(|scored| scored.0 == name);
                assert_eq!(bench.writer().remove(&name), at.is_some());
                at.map(|at| bench.model.remove(at));
            } else {
                let start = random.below(bench.model.len() as u64 + 1) as usize;
                let end =
                    (start + random.below(if growing { 4 } else { 70 }) as usize).min(bench.model.len());
                bench.writer().remove_ranks(start as u64..end as u64);
                bench.model.drain(start..end);
            }
            if round % 8 == 0 {
                bench.check();
            }
            bench.check_ranges(&mut random);
        }
        assert!(iter(&bench.arena, bench.obj, 0..u64::MAX, false).eq(bench.scored(0..bench.model.len())));
        bench.destroy();
    }
}

#[test]
fn equal_scores_are_ordered_by_name() {
    for small in [1_000, 0] {
        let mut bench = Bench::new(16 << 20, small);
        let mut random = Random::new(3);
        for _ in 0..500 {
            let name = member(&mut random, 1_000);
            bench.insert(&name, 0.0).unwrap();
        }
        bench.check();
        for _ in 0..300 {
            let (low, high) = (member(&mut random, 1_000), member(&mut random, 1_000));
            let ranks = ranks_by_name(&bench.arena, bench.obj, Bound::Excluded(&low), Bound::Included(&high));
            let inside = |name: &[u8]| &low[..] < name && name <= &high[..];
            let expected = bench.scored(0..bench.model.len()).filter(|scored| inside(scored.0));
            assert!(iter(&bench.arena, bench.obj, ranks, false).eq(expected));
        }
        let all = ranks_by_name(&bench.arena, bench.obj, Bound::Unbounded, Bound::Unbounded);
        assert_eq!(all, 0..bench.model.len() as u64);
        bench.destroy();
    }
}

#[test]
fn a_scan_meets_what_stays() {
    let mut bench = Bench::new(64 << 20, 0);
    let mut random = Random::new(5);
    (0..1_000).for_each(|i| bench.insert(format!("stays {i}").as_bytes(), i as f64).unwrap());
    let mut met = std::collections::HashSet::new();
    let mut cursor = 0;
    loop {
        cursor = scan(&bench.arena, bench.obj, cursor, 10, |member, _| {
            met.insert(member.to_vec());
        });
        if cursor == 0 {
            break;
        }
        for _ in 0..30 {
            let name = member(&mut random, 9_000);
            bench.writer().insert(&name, 1.0).unwrap();
        }
    }
    assert_eq!(met.iter().filter(|name| name.starts_with(b"stays")).count(), 1_000);
}

#[test]
fn takes_little_memory_and_redo() {
    let mut bench = Bench::new(256 << 20, 128);
    let mut random = Random::new(9);
    let count = 300_000;
    let mut redo = 0;
    for i in 0..count {
        let score = random.next() as f64;
        bench.writer().insert(format!("member:{i:013}").as_bytes(), score).unwrap();
        redo += bench.tx.buf.len();
    }
    let each = (bench.arena.allocated_bytes() - bench.empty) / count;
    let redo = redo as u64 / count;
    assert!(each < 100, "{each} bytes a member");
    assert!(redo < 240, "{redo} bytes of redo an insertion");
    let mut redo = 0;
    for left in (0..count).rev() {
        bench.writer().remove_ranks(0..1);
        redo += bench.tx.buf.len();
        assert_eq!(len(&bench.arena, bench.obj), left);
    }
    let redo = redo as u64 / count;
    assert!(redo < 200, "{redo} bytes of redo a removal of the least");
    bench.destroy();
}

#[test]
fn a_small_set_takes_little_memory_and_redo() {
    let mut bench = Bench::new(4 << 20, 128);
    let mut random = Random::new(11);
    let mut redo = 0;
    for i in 0..128 {
        bench.writer().insert(format!("member:{i:013}").as_bytes(), random.next() as f64).unwrap();
        redo += bench.tx.buf.len();
    }
    assert!(redo < 128 * 400, "{} bytes of redo an insertion", redo / 128);
    let each = (bench.arena.allocated_bytes() - bench.empty) / 128;
    assert!(each < 45, "{each} bytes a member");
    let mut redo = 0;
    for i in 0..10_000 {
        let score = random.next() as f64;
        bench.writer().insert(format!("member:{:013}", i % 128).as_bytes(), score).unwrap();
        redo += bench.tx.buf.len();
    }
    assert!(redo < 10_000 * 130, "{} bytes of redo an update", redo / 10_000);
    let mut redo = 0;
    for i in 128..10_000 {
        let score = random.next() as f64;
        bench.writer().insert(format!("member:{i:013}").as_bytes(), score).unwrap();
        redo += bench.tx.buf.len();
        bench.writer().remove_ranks(0..1);
        redo += bench.tx.buf.len();
        assert_eq!(object::encoding(&bench.arena, bench.obj), Encoding::Skiplist);
    }
    assert!(redo < 10_000 * 330, "{} bytes of redo an insertion and a removal", redo / 10_000);
    bench.destroy();
}

#[test]
fn a_full_arena_changes_nothing() {
    for (seed, small) in [(1, 128), (2, 0), (3, 100_000)] {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(2 << 20, small);
        let mut full = 0;
        while full < 20 {
            let name = member(&mut random, 30_000);
            let name = if random.below(100) == 0 { vec![b'x'; random.below(60_000) as usize] } else { name };
            let score = random.below(100) as f64;
            if bench.insert(&name, score).is_err() {
                full += 1;
                bench.check();
                let count = bench.model.len() / 20;
                bench.writer().remove_ranks(0..count as u64);
                bench.model.drain(..count);
            }
        }
        bench.check();
        bench.destroy();
    }
}

#[test]
fn filled_at_once_is_as_member_by_member() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let (mut filled, mut inserted) = (Bench::new(16 << 20, 128), Bench::new(16 << 20, 128));
        for n in 0..random.below([5, 200][round % 2]) {
            let len = if random.below(200) == 0 { 100 } else { random.below(20) };
            let member = format!("{}{n}", "m".repeat(len as usize)).into_bytes();
            inserted.insert(&member, [-0.0, 0.0, 1.5, f64::INFINITY][random.below(4) as usize]).unwrap();
        }
        let mut wanted = inserted.model.clone();
        for at in (1..wanted.len()).rev() {
            wanted.swap(at, random.below(at as u64 + 1) as usize);
        }
        filled.writer().fill(wanted.iter().map(|(member, score)| (&member[..], *score))).unwrap();
        filled.model.clone_from(&inserted.model);
        filled.check();
        filled.check_ranges(&mut random);
        assert!(iter(&filled.arena, filled.obj, 0..u64::MAX, false).eq(inserted.scored(0..wanted.len())));
        let encoding = |bench: &Bench| object::encoding(&bench.arena, bench.obj);
        assert_eq!(encoding(&filled), encoding(&inserted));
        for bench in [filled, inserted] {
            bench.destroy();
        }
    }
}
