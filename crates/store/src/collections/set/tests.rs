use std::collections::HashSet;

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
}

impl Bench {
    fn new(max_bytes: u64) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let obj = create(&mut arena, &mut tx, b"key").unwrap();
        Bench { arena, tx, hasher: Hasher::new([1, 2]), limits: Limits::default(), obj, empty }
    }

    fn cx(&self) -> Context<'_> {
        testing::context(&self.hasher, &self.limits)
    }

    fn writer(&mut self) -> Writer<'_> {
        self.tx.committed();
        self.tx.clear();
        let cx = testing::context(&self.hasher, &self.limits);
        Writer::new(&mut self.arena, &mut self.tx, self.obj, cx)
    }

    fn contains(&self, member: &[u8]) -> bool {
        contains(&self.arena, self.cx(), self.obj, member)
    }

    fn members(&self) -> HashSet<Vec<u8>> {
        let members: Vec<_> = members(&self.arena, self.obj).map(|member| member.to_vec()).collect();
        let distinct: HashSet<_> = members.iter().cloned().collect();
        assert_eq!(members.len(), distinct.len());
        distinct
    }

    fn encoding(&self) -> &'static str {
        object::encoding(&self.arena, self.obj).name()
    }

    fn check(&self) {
        assert_eq!(check(&self.arena, self.cx(), self.obj), Ok(len(&self.arena, self.obj)));
    }

    fn destroy(mut self) {
        testing::destroy(&mut self.arena, &mut self.tx, self.obj);
        assert_eq!(self.arena.allocated_bytes(), self.empty);
    }
}

fn integer(random: &mut Random) -> Vec<u8> {
    let shift = random.below(64);
    (random.next() as i64 >> shift).to_string().into_bytes()
}

fn text(random: &mut Random) -> Vec<u8> {
    let limit = if random.below(100) == 0 { 5_000 } else { 12 };
    let len = random.below(limit);
    (0..len).map(|_| b"01ab"[random.below(4) as usize]).collect()
}

/// Random operations on a set and on its model, with members made by `member`.
fn behaves_like_a_set(seed: u64, largest: usize, member: impl Fn(&mut Random) -> Vec<u8>) {
    let mut random = Random::new(seed);
    for round in 0..6 {
        let mut bench = Bench::new(64 << 20);
        let mut model: HashSet<Vec<u8>> = HashSet::new();
        let largest = largest / (round % 3 + 1);
        for step in 0..6 * largest {
            let growing = (step / largest).is_multiple_of(2);
            let member = member(&mut random);
            assert_eq!(bench.contains(&member), model.contains(&member));
            match random.below(10) {
                0..6 if growing => {
                    assert_eq!(bench.writer().add(&member), Ok(model.insert(member)));
                }
                0..6 => {
                    let Some(member) = model.iter().next().cloned() else { continue };
                    assert!(bench.writer().remove(&member));
                    model.remove(&member);
                }
                6..8 => assert_eq!(bench.writer().remove(&member), model.remove(&member)),
                8 if !model.is_empty() => {
                    let mut popped = Vec::new();
                    bench.writer().pop(|| random.next(), |member| popped.extend_from_slice(member));
                    assert!(model.remove(&popped));
                }
                _ if !model.is_empty() => {
                    let drawn = super::random(&bench.arena, bench.obj, || random.next());
                    assert!(model.contains(&*drawn));
                }
                _ => (),
            }
            assert_eq!(len(&bench.arena, bench.obj), model.len() as u64);
            if random.below(largest as u64) < 30 {
                bench.check();
                assert_eq!(bench.members(), model);
                let count = random.below(model.len() as u64 + 3) as usize;
                let sample = sample(&bench.arena, bench.obj, count, || random.next());
                let distinct: HashSet<_> = sample.iter().map(|member| member.to_vec()).collect();
                assert_eq!(distinct.len(), count.min(model.len()));
                assert!(distinct.is_subset(&model));
                let (mut scanned, mut cursor) = (HashSet::new(), 0);
                loop {
                    cursor = scan(&bench.arena, bench.obj, cursor, 10, |member| {
                        scanned.insert(member.to_vec());
                    });
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(scanned, model);
            }
        }
        bench.destroy();
    }
}

#[test]
fn behaves_like_a_set_of_integers() {
    behaves_like_a_set(1, 1_500, integer);
}

#[test]
fn behaves_like_a_set_of_texts() {
    behaves_like_a_set(2, 1_500, text);
}

#[test]
fn behaves_like_a_set_of_integers_and_few_texts() {
    behaves_like_a_set(3, 400, |random| if random.below(200) == 0 { text(random) } else { integer(random) });
}

#[test]
fn names_its_encoding_as_redis_does() {
    let mut bench = Bench::new(64 << 20);
    for value in 0..512 {
        bench.writer().add(value.to_string().as_bytes()).unwrap();
    }
    assert_eq!(bench.encoding(), "intset");
    let values: Vec<_> = members(&bench.arena, bench.obj).map(|member| member.to_vec()).collect();
    assert!(values.into_iter().eq((0..512).map(|value| value.to_string().into_bytes())));
    bench.writer().add(b"512").unwrap();
    assert_eq!(bench.encoding(), "hashtable");
    bench.destroy();

    let mut bench = Bench::new(64 << 20);
    bench.writer().add(b"1").unwrap();
    bench.writer().add(b"one").unwrap();
    assert_eq!(bench.encoding(), "listpack");
    for value in 0..126 {
        bench.writer().add(format!("member {value}").as_bytes()).unwrap();
    }
    assert_eq!((len(&bench.arena, bench.obj), bench.encoding()), (128, "listpack"));
    bench.writer().add(b"one too many").unwrap();
    assert_eq!(bench.encoding(), "hashtable");
    bench.check();
    bench.destroy();

    let mut bench = Bench::new(64 << 20);
    bench.writer().add(&[b'x'; 64]).unwrap();
    assert_eq!(bench.encoding(), "listpack");
    bench.writer().add(&[b'x'; 65]).unwrap();
    assert_eq!(bench.encoding(), "hashtable");
    bench.destroy();
}

#[test]
fn a_full_arena_changes_nothing() {
    for seed in 0..9 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(holdfast_heap::EXTENT);
        // It fills up as a table, as a packed blob, or while it is converted.
        let packed_max = [128, 100_000, 1_000][seed as usize % 3];
        bench.limits.set_max_listpack_entries = packed_max;
        bench.limits.set_max_listpack_value = 1_000;
        let mut model = HashSet::new();
        let mut refused = 0;
        while refused < 100 {
            let mut member = integer(&mut random);
            if random.below(30) == 0 {
                member.resize(if packed_max == 1_000 { 120 } else { 800 }, b'x');
            }
            match bench.writer().add(&member) {
                Ok(added) => assert_eq!(added, model.insert(member)),
                Err(Full) => refused += 1,
            }
        }
        bench.check();
        assert_eq!(bench.members(), model);
        assert!(model.into_iter().all(|member| bench.writer().remove(&member)));
        bench.check();
        bench.destroy();
    }
}

#[test]
fn takes_little_memory_and_redo() {
    let mut bench = Bench::new(256 << 20);
    let count = 100_000u64;
    let mut redo = 0;
    for i in 0..count {
        bench.writer().add(format!("member:{i:08}").as_bytes()).unwrap();
        redo += bench.tx.buf.len() as u64;
    }
    let memory = (bench.arena.allocated_bytes() - bench.empty) / count;
    let mut popped = 0;
    let mut random = Random::new(1);
    for _ in 0..count / 2 {
        bench.writer().pop(|| random.next(), |_| ());
        popped += bench.tx.buf.len() as u64;
    }
    let (redo, popped) = (redo / count, popped / (count / 2));
    eprintln!("a member of 15 bytes: {memory} bytes of memory, {redo} of redo to add, {popped} to pop");
    assert!(memory < 60 && redo < 150 && popped < 80);
    bench.destroy();
}

#[test]
fn filled_at_once_is_as_member_by_member() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let (mut filled, mut added) = (Bench::new(16 << 20), Bench::new(16 << 20));
        let member = if round % 3 == 0 { integer } else { text };
        let wanted: HashSet<Vec<u8>> =
            (0..random.below([5, 300][round % 2])).map(|_| member(&mut random)).collect();
        filled.writer().fill(wanted.iter().map(Vec::as_slice)).unwrap();
        for member in &wanted {
            added.writer().add(member).unwrap();
        }
        filled.check();
        assert_eq!(filled.members(), wanted);
        assert_eq!(filled.encoding(), added.encoding());
        filled.destroy();
        added.destroy();
    }
}
