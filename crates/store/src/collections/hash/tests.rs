use std::collections::{HashMap, HashSet};

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
    now_ms: u64,
    obj: u64,
    empty: u64,
}

impl Bench {
    fn new(max_bytes: u64) -> Bench {
        let mut arena = testing::arena(max_bytes);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        let obj = create(&mut arena, &mut tx, b"key").unwrap();
        let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
        Bench { arena, tx, hasher, limits, now_ms: 0, obj, empty }
    }

    fn cx(&self) -> Context<'_> {
        Context { expired_ms: self.now_ms, ..testing::context(&self.hasher, &self.limits) }
    }

    fn writer(&mut self) -> Writer<'_> {
        self.tx.committed();
        self.tx.clear();
        let cx = Context { expired_ms: self.now_ms, ..testing::context(&self.hasher, &self.limits) };
        Writer::new(&mut self.arena, &mut self.tx, self.obj, cx)
    }

    fn get(&self, name: &[u8]) -> Option<Field<'_>> {
        get(&self.arena, self.cx(), self.obj, name)
    }

    fn all(&self) -> HashMap<Vec<u8>, Stored> {
        let fields: Vec<_> = fields(&self.arena, self.cx(), self.obj).map(|field| stored(&field)).collect();
        let len = fields.len();
        let map: HashMap<_, _> = fields.into_iter().collect();
        assert_eq!(map.len(), len);
        map
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

/// Value and expiry.
type Stored = (Vec<u8>, u64);

fn stored(field: &Field) -> (Vec<u8>, Stored) {
    (field.name.to_vec(), (field.value.to_vec(), field.expires))
}

fn text(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        0..4 => (random.next() as i64 >> random.below(64)).to_string().into_bytes(),
        4 if random.below(30) == 0 => vec![b'z'; random.below(10_000) as usize],
        _ => {
            let len = random.below(30);
            (0..len).map(|_| b"01ab"[random.below(4) as usize]).collect()
        }
    }
}

/// Random operations, at a time that goes on, on a hash and on its model.
fn behaves_like_a_map(seed: u64, largest: u64, limits: Limits, expiring: u64) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(64 << 20);
    bench.limits = limits;
    let mut model: HashMap<Vec<u8>, Stored> = HashMap::new();
    for step in 0..8 * largest {
        let growing = (step / largest).is_multiple_of(2);
        bench.now_ms += random.below(3);
        let now_ms = bench.now_ms;
        model.retain(|_, (_, expires)| *expires == 0 || *expires > now_ms);

        let name = if random.below(3) == 0 {
            model.keys().next().cloned().unwrap_or_default()
        } else {
            random.below(2 * largest).to_string().repeat(random.below(3) as usize + 1).into_bytes()
        };
        assert_eq!(bench.get(&name).map(|field| stored(&field).1), model.get(&name).cloned());
        match random.below(20) {
            0..9 if growing => {
                let value = text(&mut random);
                let (expiry, expires) = match random.below(100) {
                    draw if draw < expiring => {
                        let time = now_ms + 1 + random.below(2 * largest);
                        (Expiry::At(time), time)
                    }
                    draw if draw % 2 == 0 => (Expiry::Keep, model.get(&name).map_or(0, |(_, old)| *old)),
                    _ => (Expiry::Clear, 0),
                };
                let is_new = !model.contains_key(&name);
                model.insert(name.clone(), (value.clone(), expires));
                assert_eq!(bench.writer().set(&name, &value, expiry), Ok(is_new));
            }
            0..9 => {
                let Some(name) = model.keys().next().cloned() else { continue };
                assert!(bench.writer().remove(&name));
                model.remove(&name);
            }
            9..13 => assert_eq!(bench.writer().remove(&name), model.remove(&name).is_some()),
            13..16 if expiring > 0 => {
                let expires = if random.below(3) == 0 { 0 } else { now_ms + 1 + random.below(2 * largest) };
                assert_eq!(bench.writer().set_expiry(&name, expires), Ok(model.contains_key(&name)));
                model.entry(name).and_modify(|(_, old)| *old = expires);
            }
            16 => {
                let budget = 1 + random.below(5) as usize;
                let purged = bench.writer().purge(budget);
                let (next, len) = (next_expiry(&bench.arena, bench.obj), len(&bench.arena, bench.obj));
                assert!(purged <= budget);
                if purged < budget {
                    assert!(next == 0 || next > now_ms);
                    assert_eq!(len, model.len() as u64);
                }
            }
            _ => {
                let field = super::random(&bench.arena, bench.cx(), bench.obj, || random.next());
                match field {
                    Some(field) => assert_eq!(model.get(&*field.name), Some(&stored(&field).1)),
                    None => assert!(model.is_empty()),
                }
            }
        }
        if random.below(largest) < 20 {
            bench.check();
            assert_eq!(bench.all(), model);
            let count = random.below(model.len() as u64 + 3) as usize;
            let sample = sample(&bench.arena, bench.cx(), bench.obj, count, || random.next());
            let distinct: HashSet<_> = sample.iter().map(|field| field.name.to_vec()).collect();
            assert_eq!(distinct.len(), count.min(model.len()));
            assert!(distinct.iter().all(|name| model.contains_key(name)));
            let (mut scanned, mut cursor) = (HashMap::new(), 0);
            loop {
                cursor = scan(&bench.arena, bench.cx(), bench.obj, cursor, 10, |field| {
                    scanned.extend([stored(&field)]);
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

/// Limits between which random hashes go.
fn limits(entries: usize, value: usize) -> Limits {
    Limits { hash_max_listpack_entries: entries, hash_max_listpack_value: value, ..Limits::default() }
}

#[test]
fn behaves_like_a_map_without_expiries() {
    (0..4).for_each(|seed| behaves_like_a_map(seed, 1_500, Limits::default(), 0));
}

#[test]
fn behaves_like_a_map_when_small() {
    (0..4).for_each(|seed| behaves_like_a_map(seed, 100, limits(100_000, 100_000), 20));
}

#[test]
fn behaves_like_a_map_when_large() {
    (0..4).for_each(|seed| behaves_like_a_map(seed, 1_500, limits(0, 0), 40));
}

#[test]
fn behaves_like_a_map_when_it_grows_large() {
    (0..16).for_each(|seed| behaves_like_a_map(seed, 200, limits(128, 200), 10));
}

#[test]
fn small_hashes_keep_the_order_of_fields() {
    let mut bench = Bench::new(1 << 20);
    for name in ["c", "a", "b"] {
        bench.writer().set(name.as_bytes(), b"1", Expiry::Clear).unwrap();
    }
    bench.writer().set(b"a", b"another value", Expiry::At(5)).unwrap();
    bench.writer().set(b"c", b"2", Expiry::Clear).unwrap();
    let names = |bench: &Bench| -> Vec<u8> {
        fields(&bench.arena, bench.cx(), bench.obj).flat_map(|field| field.name.to_vec()).collect()
    };
    assert_eq!((&names(&bench)[..], bench.encoding()), (&b"cab"[..], "listpackex"));
    bench.now_ms = 5;
    assert_eq!(names(&bench), b"cb");
    assert_eq!(
        (len(&bench.arena, bench.obj), bench.writer().purge(9), next_expiry(&bench.arena, bench.obj)),
        (3, 1, 0)
    );
    assert_eq!(len(&bench.arena, bench.obj), 2);
    bench.destroy();
}

#[test]
fn names_its_encoding_as_redis_does() {
    let mut bench = Bench::new(1 << 20);
    for i in 0..128 {
        bench.writer().set(i.to_string().as_bytes(), &[b'x'; 64], Expiry::Clear).unwrap();
    }
    assert_eq!(bench.encoding(), "listpack");
    bench.writer().set(b"0", &[b'y'; 64], Expiry::Clear).unwrap();
    assert_eq!(bench.encoding(), "listpack");
    bench.writer().set(b"128", b"", Expiry::Clear).unwrap();
    assert_eq!(bench.encoding(), "hashtable");
    bench.destroy();
    let mut bench = Bench::new(1 << 20);
    bench.writer().set(b"name", &[b'x'; 65], Expiry::Clear).unwrap();
    assert_eq!(bench.encoding(), "hashtable");
    bench.destroy();
}

#[test]
fn a_full_arena_changes_nothing() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(holdfast_heap::EXTENT);
        bench.limits = [limits(128, 64), limits(1_000, 1_000)][seed as usize % 2].clone();
        let mut model = HashMap::new();
        let mut refused = 0;
        while refused < 300 {
            let name = random.below(1_000).to_string().into_bytes();
            let value = vec![b'x'; random.below(700) as usize];
            let expires = if random.below(2) == 0 { 0 } else { 1 + random.below(1_000) };
            if random.below(3) == 0 && model.contains_key(&name) {
                match bench.writer().set_expiry(&name, expires) {
                    Ok(found) => assert!(found),
                    Err(Full) => {
                        refused += 1;
                        continue;
                    }
                }
                model.entry(name).and_modify(|stored: &mut Stored| stored.1 = expires);
                continue;
            }
            let expiry = if expires == 0 { Expiry::Clear } else { Expiry::At(expires) };
            match bench.writer().set(&name, &value, expiry) {
                Ok(is_new) => assert_eq!(is_new, model.insert(name, (value, expires)).is_none()),
                Err(Full) => refused += 1,
            }
        }
        bench.check();
        assert_eq!(bench.all(), model);
        bench.now_ms = 500;
        while bench.writer().purge(7) == 7 {}
        bench.check();
        model.retain(|_, (_, expires)| *expires == 0 || *expires > 500);
        assert_eq!((bench.all(), len(&bench.arena, bench.obj)), (model.clone(), model.len() as u64));
        assert!(model.into_keys().all(|name| bench.writer().remove(&name)));
        bench.check();
        bench.destroy();
    }
}

#[test]
fn takes_little_memory_and_redo() {
    let mut bench = Bench::new(256 << 20);
    let count = 100_000u64;
    let (mut added, mut changed, mut counted, mut timed) = (0, 0, 0, 0);
    for i in 0..count {
        bench.writer().set(format!("field:{i:08}").as_bytes(), &[b'v'; 20], Expiry::Clear).unwrap();
        added += bench.tx.buf.len() as u64;
    }
    let memory = (bench.arena.allocated_bytes() - bench.empty) / count;
    for i in 0..count {
        bench.writer().set(format!("field:{i:08}").as_bytes(), &[b'w'; 22], Expiry::Clear).unwrap();
        changed += bench.tx.buf.len() as u64;
    }
    for i in 0..count {
        bench.writer().set(b"counter", (1_000 + i).to_string().as_bytes(), Expiry::Keep).unwrap();
        counted += bench.tx.buf.len() as u64;
    }
    for i in 0..count {
        bench.writer().set_expiry(format!("field:{i:08}").as_bytes(), 1_000 + i * 7919 % count).unwrap();
        timed += bench.tx.buf.len() as u64;
    }
    let expiry_memory = (bench.arena.allocated_bytes() - bench.empty) / count - memory;
    let [added, changed, counted, timed] = [added, changed, counted, timed].map(|bytes| bytes / count);
    eprintln!(
        "a field of 14 bytes, a value of 20: {memory} bytes of memory, {added} of redo to add, {changed} to change"
    );
    eprintln!(
        "a counter: {counted} bytes of redo; an expiry: {expiry_memory} bytes of memory, {timed} of redo"
    );
    assert!(memory < 90 && added < 170 && changed < 50 && counted < 20 && expiry_memory < 60 && timed < 250);
    bench.destroy();
}

#[test]
fn changes_of_a_small_hash_leave_little_redo() {
    let mut bench = Bench::new(1 << 20);
    let mut random = Random::new(1);
    let mut redo = [0; 4];
    for quarter in &mut redo {
        for _ in 0..5_000 {
            let name = format!("field:{}", random.below(100));
            let value = vec![b'v'; 10 + random.below(20) as usize];
            if random.below(10) == 0 {
                bench.writer().remove(name.as_bytes());
            } else {
                bench.writer().set(name.as_bytes(), &value, Expiry::Clear).unwrap();
            }
            *quarter += bench.tx.buf.len();
        }
        *quarter /= 5_000;
    }
    eprintln!("a change of a field among 90, in bytes of redo as time goes on: {redo:?}");
    assert_eq!(bench.encoding(), "listpack");
    assert!(redo[3] < 300);
    bench.destroy();
}

/// Each field that grows moves those behind it.
#[test]
fn a_change_of_all_fields_leaves_little_more_redo_than_they_have_bytes() {
    let (mut bench, mut before) = (Bench::new(1 << 20), 0);
    for len in [20, 21, 60, 59, 10, 11] {
        let mut writer = bench.writer();
        writer.tx.begin_change();
        for n in 0..128 {
            let (name, value) = (format!("field:{n}"), vec![b'v'; len]);
            writer.set(name.as_bytes(), &value, Expiry::Clear).unwrap();
        }
        writer.tx.end_change();
        let (redo, bytes) = (bench.tx.buf.len(), 128 * (10 + len.max(before)));
        eprintln!("{redo} bytes of redo for {bytes} bytes of fields");
        // At first it comes to be in many blocks, one after the other.
        assert!(redo < if before == 0 { 6 * bytes } else { 3 * bytes });
        before = len;
    }
    assert_eq!(bench.encoding(), "listpack");
    bench.destroy();
}

#[test]
fn filled_at_once_is_as_field_by_field() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let (mut filled, mut set) = (Bench::new(16 << 20), Bench::new(16 << 20));
        let wanted: HashMap<Vec<u8>, Stored> = (0..random.below([5, 200][round % 2]))
            .map(|_| {
                let expires = if round % 3 == 0 { random.below(2) * 1000 } else { 0 };
                (text(&mut random), (text(&mut random), expires))
            })
            .collect();
        let fields = || wanted.iter().map(|(name, (value, expires))| (&name[..], &value[..], *expires));
        filled.writer().fill(fields()).unwrap();
        for (name, value, expires) in fields() {
            let expiry = if expires == 0 { Expiry::Clear } else { Expiry::At(expires) };
            set.writer().set(name, value, expiry).unwrap();
        }
        filled.check();
        assert_eq!(filled.all(), wanted);
        assert_eq!(filled.encoding(), set.encoding());
        filled.destroy();
        set.destroy();
    }
}
