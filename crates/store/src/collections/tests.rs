//! Objects across a crash.

use std::sync::Arc;

use holdfast_heap::{Arena, Heap, HeapOptions, HeapRoot, Record, Tx};
use holdfast_io::{Io, SimIo};

use super::{
    Context, Hasher, Limits, any,
    hash::{self, Expiry},
    list, object, serial, set, stream, string,
    testing::{self, Random},
    zset,
};

const OPTIONS: HeapOptions = HeapOptions { max_bytes: 32 << 20, arenas: 1 };

/// One object of each type.
#[derive(Clone, Copy)]
struct Objects {
    list: u64,
    set: u64,
    zset: u64,
    hash: u64,
    stream: u64,
    string: u64,
}

impl Objects {
    fn create(arena: &mut Arena, tx: &mut Tx) -> Objects {
        Objects {
            list: list::create(arena, tx, b"list").unwrap(),
            set: set::create(arena, tx, b"set").unwrap(),
            zset: zset::create(arena, tx, b"zset").unwrap(),
            hash: hash::create(arena, tx, b"hash").unwrap(),
            stream: stream::create(arena, tx, b"stream").unwrap(),
            string: string::create(arena, tx, b"string").unwrap(),
        }
    }

    /// Does something to one of them; `growth` of 10 times it adds.
    fn change(self, arena: &mut Arena, tx: &mut Tx, cx: Context, random: &mut Random, growth: u64) {
        let name = random.below(1_000).to_string().repeat(1 + random.below(4) as usize).into_bytes();
        let adds = random.below(10) < growth;
        let number = random.below(1_000);
        match random.below(6) {
            0 if adds => list::Writer::new(arena, tx, self.list, cx).push(list::End::Back, &name).unwrap(),
            0 if list::len(arena, self.list) > 0 => {
                list::Writer::new(arena, tx, self.list, cx).pop(list::End::Front, 1, |_| ());
            }
            1 if adds => _ = set::Writer::new(arena, tx, self.set, cx).add(&name).unwrap(),
            1 if set::len(arena, self.set) > 0 => {
                set::Writer::new(arena, tx, self.set, cx).pop(|| random.next(), |_| ());
            }
            2 if adds => {
                _ = zset::Writer::new(arena, tx, self.zset, cx).insert(&name, number as f64).unwrap()
            }
            2 => _ = zset::Writer::new(arena, tx, self.zset, cx).remove(&name),
            3 if adds => {
                let expiry = if number < 100 { Expiry::At(1 + number) } else { Expiry::Clear };
                hash::Writer::new(arena, tx, self.hash, cx).set(&name, &name, expiry).unwrap();
            }
            3 => _ = hash::Writer::new(arena, tx, self.hash, cx).remove(&name),
            4 if adds => stream::testing::grow(arena, tx, cx, self.stream, random),
            4 => stream::testing::shrink(arena, tx, cx, self.stream, random),
            5 => {
                let change = string::Change { at: random.below(100_000) as usize, bytes: &name };
                string::write(arena, tx, self.string, change.end(), &[change]).unwrap();
            }
            _ => (),
        }
    }

    fn check(self, arena: &Arena, cx: Context) {
        list::check(arena, self.list).unwrap();
        set::check(arena, cx, self.set).unwrap();
        zset::check(arena, cx, self.zset).unwrap();
        hash::check(arena, cx, self.hash).unwrap();
        stream::check(arena, self.stream).unwrap();
        any::check(arena, cx, self.string).unwrap();
    }

    /// All that is in them, in the order in which it comes.
    fn content(self, arena: &Arena, cx: Context) -> Vec<Vec<u8>> {
        let list = list::iter(arena, self.list, 0..u64::MAX, false).map(<[u8]>::to_vec);
        let set = set::members(arena, self.set).map(|member| member.to_vec());
        let zset = zset::iter(arena, self.zset, 0..u64::MAX, false);
        let zset = zset.map(|(member, score)| [&member.to_vec()[..], &score.to_le_bytes()].concat());
        let hash = hash::fields(arena, cx, self.hash).map(|field| {
            [field.name.to_vec(), field.value.to_vec(), field.expires.to_le_bytes().to_vec()].concat()
        });
        let mut stream = Vec::new();
        serial::export(arena, cx, self.stream, &mut stream);
        let string = string::slices(arena, self.string, 0, string::len(arena, self.string));
        let string = string.map(<[u8]>::to_vec);
        list.chain(set).chain(zset).chain(hash).chain([stream]).chain(string).collect()
    }
}

/// Copies what is dirty in slices, between which the collections go on changing.
fn checkpoint(heap: &Arc<Heap>, arena: &mut Arena, mut change: impl FnMut(&mut Arena)) -> HeapRoot {
    let mut checkpoint = heap.begin_checkpoint();
    while checkpoint.copy(arena, 20) {
        checkpoint.write().unwrap();
        change(arena);
    }
    let finished = checkpoint.finish().unwrap();
    let root = *finished.root();
    finished.commit();
    root
}

#[test]
fn replay_restores_what_was_there() {
    let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
    let cx = testing::context(&hasher, &limits);
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let file = SimIo::new(seed).open("heap", true).unwrap();
        let (heap, mut arenas) = Heap::create(file.clone(), OPTIONS).unwrap();
        let mut arena = arenas.pop().unwrap();
        let empty = arena.allocated_bytes();
        let mut tx = Tx::new();
        let objects = Objects::create(&mut arena, &mut tx);

        let mut log = Vec::new();
        let mut root = None;
        for _ in 0..3 {
            for growth in [8, 4] {
                for _ in 0..random.below(3_000) {
                    objects.change(&mut arena, &mut tx, cx, &mut random, growth);
                    log.append(&mut tx.buf);
                    tx.committed();
                    tx.clear();
                }
            }
            // The redo from the start of the last checkpoint on is what a crash leaves.
            log.clear();
            root = Some(checkpoint(&heap, &mut arena, |arena| {
                for _ in 0..50 {
                    objects.change(arena, &mut tx, cx, &mut random, 6);
                    log.append(&mut tx.buf);
                    tx.committed();
                    tx.clear();
                }
            }));
        }
        objects.check(&arena, cx);

        let (_heap, mut recovery) = Heap::open(file, OPTIONS, &root.unwrap()).unwrap();
        for record in Record::all(&log) {
            recovery.apply(&record.unwrap()).unwrap();
        }
        let mut recovered = recovery.finish().unwrap().pop().unwrap();
        objects.check(&recovered, cx);
        assert_eq!(arena.image().first_difference(&recovered.image()), None);
        assert_eq!(objects.content(&recovered, cx), objects.content(&arena, cx));

        for obj in [objects.list, objects.set, objects.zset, objects.hash, objects.stream, objects.string] {
            assert_eq!(object::key(&recovered, obj), object::key(&arena, obj));
            testing::destroy(&mut recovered, &mut tx, obj);
        }
        assert_eq!(recovered.allocated_bytes(), empty);
    }
}
