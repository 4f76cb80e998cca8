use super::*;
use crate::collections::{
    any::{self, Destroyed},
    testing::{self, Random},
};

struct Bench {
    arena: Arena,
    tx: Tx,
    obj: u64,
    empty: u64,
    model: Vec<u8>,
}

impl Bench {
    fn new(max_bytes: u64) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let (mut tx, empty) = (Tx::new(), arena.allocated_bytes());
        let obj = create(&mut arena, &mut tx, b"key").unwrap();
        Bench { arena, tx, obj, empty, model: Vec::new() }
    }

    /// Writes to string and model, if there is room.
    fn write(&mut self, len: usize, changes: &[Change]) -> Result<(), Full> {
        self.tx.clear();
        let before = self.arena.allocated_bytes();
        let written = write(&mut self.arena, &mut self.tx, self.obj, len, changes);
        match written {
            Ok(()) => {
                self.model.resize(len.max(self.model.len()), 0);
                for change in changes {
                    self.model[change.at..change.end()].copy_from_slice(change.bytes);
                }
            }
            Err(Full) => assert_eq!(self.arena.allocated_bytes(), before),
        }
        written
    }

    fn read(&self, start: usize, end: usize) -> Vec<u8> {
        slices(&self.arena, self.obj, start, end).collect::<Vec<_>>().concat()
    }

    fn check(&self) {
        let (arena, obj) = (&self.arena, self.obj);
        assert_eq!(check(arena, obj), Ok(self.model.len() as u64));
        assert!(self.read(0, len(arena, obj)) == self.model);
        assert_eq!(arena.allocated_bytes() - self.empty, any::heap_bytes(arena, obj));
    }

    fn destroy(mut self) {
        testing::destroy(&mut self.arena, &mut self.tx, self.obj);
        assert_eq!(self.arena.allocated_bytes(), self.empty);
    }
}

#[test]
fn behaves_like_a_vector() {
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(32 << 20);
        let reach = [5_000, 50_000, 300_000][random.below(3) as usize];
        for _ in 0..300 {
            let contents: Vec<_> = (0..random.below(4))
                .map(|_| {
                    let len = [1, 10, 5_000, 20_000][random.below(4) as usize];
                    // Zeroes, which leave a hole, too.
                    let byte = random.below(2) * random.below(256);
                    (random.below(reach) as usize, vec![byte as u8; random.below(len) as usize])
                })
                .collect();
            let changes: Vec<_> = contents.iter().map(|(at, bytes)| Change { at: *at, bytes }).collect();
            let end = changes.iter().map(Change::end).max().unwrap_or(0);
            bench.write(end + random.below(2) as usize * 100, &changes).unwrap();
            let len = bench.model.len() as u64;
            let start = random.below(len + 1) as usize;
            let end = start + random.below(len + 1 - start as u64) as usize;
            assert!(bench.read(start, end) == bench.model[start..end]);
        }
        bench.check();
        bench.destroy();
    }
}

#[test]
fn a_change_costs_what_it_changes() {
    let mut bench = Bench::new(64 << 20);
    let bytes = vec![1; 12 << 20];
    bench.write(bytes.len(), &[Change { at: 0, bytes: &bytes }]).unwrap();
    assert!(bench.tx.buf.len() < bytes.len() / 100 * 102, "{} bytes of redo", bench.tx.buf.len());
    bench.write(0, &[Change { at: 5_000_000, bytes: &[2] }]).unwrap();
    assert_eq!(bench.tx.buf.len(), 9);
    let mut most = 0;
    let appended = 2_000;
    let total: usize = (0..appended)
        .map(|_| {
            let at = bench.model.len();
            bench.write(at + 100, &[Change { at, bytes: &[3; 100] }]).unwrap();
            most = most.max(bench.tx.buf.len());
            bench.tx.buf.len()
        })
        .sum();
    assert!(total / appended < 125 && most < 250, "{total} bytes of redo, once {most}");
    bench.check();
    bench.destroy();
}

#[test]
fn holes_take_no_memory() {
    let mut bench = Bench::new(4 << 20);
    bench.write(512 << 20, &[Change { at: (512 << 20) - 1, bytes: &[1] }]).unwrap();
    assert!(bench.tx.buf.len() < 500);
    bench.write(0, &[Change { at: 100 << 20, bytes: &[0; 10_000] }]).unwrap();
    let (arena, obj) = (&bench.arena, bench.obj);
    assert_eq!(heap_bytes(arena, obj), (512 << 10) + CHUNK as u64);
    assert_eq!(check(arena, obj), Ok(512 << 20));
    assert!(slices(arena, obj, 99 << 20, 101 << 20).all(|slice| slice == &ZEROES[..slice.len()]));
    // To free it, only its one chunk counts.
    assert_eq!(any::destroy_some(&mut bench.arena, &mut bench.tx, obj, &mut 1), Destroyed::Done);
    assert_eq!(bench.arena.allocated_bytes(), bench.empty);
}

#[test]
fn without_room_nothing_changes() {
    let mut bench = Bench::new(1 << 20);
    let mut refused = 0;
    for i in 0..600 {
        let (at, bytes) = (bench.model.len(), vec![i as u8 | 1; 3_000]);
        let changes = [Change { at: 0, bytes: &bytes }, Change { at, bytes: &bytes }];
        refused += usize::from(bench.write(at + bytes.len(), &changes).is_err());
    }
    // The table of what is so long has no room, while there is room for the chunk.
    assert_eq!(bench.write(2 << 30, &[Change { at: (2 << 30) - 1, bytes: &[1] }]), Err(Full));
    assert!(refused > 100 && bench.model.len() > 500_000, "{refused} refused");
    bench.check();
    bench.destroy();
}

#[test]
fn what_should_be_zero_is_checked() {
    let mut bench = Bench::new(4 << 20);
    bench.write(10_000, &[Change { at: 0, bytes: &[1; 10_000] }]).unwrap();
    let last = Table::of(&bench.arena, bench.obj).chunk(&bench.arena, 2).unwrap();
    bench.arena.write(&mut bench.tx, last + 2_000, &[1]);
    assert!(check(&bench.arena, bench.obj).unwrap_err().contains("not zero"));
    bench.arena.write(&mut bench.tx, last + 2_000, &[0]);
    let place = Table::of(&bench.arena, bench.obj).place(3);
    bench.arena.write_u32(&mut bench.tx, place, 7);
    assert!(check(&bench.arena, bench.obj).unwrap_err().contains("behind its end"));
}
