//! Objects as bytes: for a copy in another arena, and for collections that leave the heap.
//!
//! The bytes say what is in a collection and nothing of how it was laid out; an import lays it out as the limits of its
//! time ask for. All numbers are little-endian; a *size* is a LEB128 number.
//!
//! | field | bytes |
//! |---|---|
//! | version: 1 | 1 |
//! | type ([`Type`]) | 1 |
//! | number of elements, at least 1 unless it is a stream | size |
//! | elements | by type |
//!
//! An element of a list or a set is `value`; of a sorted set `score f64, value`; of a hash `value, value, expiry`: name,
//! value, and the time in milliseconds since 1970 (a size; 0: never). A `value` is its length (a size) and its bytes.
//! Elements of lists and sorted sets are in their order. What there is of a stream is told in
//! [`stream::serial`](super::stream).

pub use super::bytes::ImportError;

use holdfast_heap::{Arena, Tx};

use super::{
    Context, any,
    bytes::{Reader, VERSION, header, put_size, put_value},
    hash::{self, Expiry},
    list,
    object::{self, Type},
    set, stream, zset,
};

/// Appends an object to `out`, fields that have expired included.
pub fn export(arena: &Arena, cx: Context, obj: u64, out: &mut Vec<u8>) {
    let ty = object::ty(arena, obj);
    out.extend(header(ty, object::count(arena, obj)));
    match ty {
        Type::List => list::iter(arena, obj, 0..u64::MAX, false).for_each(|value| put_value(out, value)),
        Type::Set => set::members(arena, obj).for_each(|member| put_value(out, &member)),
        Type::Zset => zset::iter(arena, obj, 0..u64::MAX, false).for_each(|(member, score)| {
            out.extend_from_slice(&score.to_le_bytes());
            put_value(out, member);
        }),
        Type::Hash => hash::fields(arena, always(cx), obj).for_each(|field| {
            put_value(out, &field.name);
            put_value(out, &field.value);
            put_size(out, field.expires);
        }),
        Type::Stream => stream::serial::export(arena, obj, out),
        Type::String => panic!("object at {obj:#x} is no collection"),
    }
}

/// Bytes of redo that the [`import`] of such bytes takes at most.
pub fn redo_max(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes.get(1..).unwrap_or_default());
    let ty = reader.u8().ok().and_then(Type::from_number);
    let elements = reader.size().unwrap_or(0).min(bytes.len() as u64) as usize;
    // What a stream's groups hold is not among its elements.
    let factor = if ty == Some(Type::Stream) { 8 } else { 2 };
    factor * super::redo_max(elements, bytes.len())
}

/// The type of the object that `bytes` tell of.
pub fn type_of(bytes: &[u8]) -> Option<Type> {
    Type::from_number(*bytes.get(1)?)
}

/// Makes the object that `bytes` tell of under a key, and returns its offset.
///
/// # Errors
/// Nothing is left of an object that could not be made. Bytes that [`export`] did not make are found out or make an
/// object that is sound; they never panic.
pub fn import(
    arena: &mut Arena,
    tx: &mut Tx,
    cx: Context,
    key: &[u8],
    bytes: &[u8],
) -> Result<u64, ImportError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(ImportError::Malformed("unknown version of an object"));
    }
    let ty = Type::from_number(reader.u8()?);
    let create = match ty {
        Some(Type::List) => list::create,
        Some(Type::Set) => set::create,
        Some(Type::Zset) => zset::create,
        Some(Type::Hash) => hash::create,
        Some(Type::Stream) => stream::create,
        Some(Type::String) | None => {
            return Err(ImportError::Malformed("unknown type of an object"));
        }
    };
    let count = reader.size()?;
    if count == 0 && ty != Some(Type::Stream) {
        return Err(ImportError::Malformed("an object without elements"));
    }
    let obj = create(arena, tx, key)?;
    let filled = fill(arena, tx, always(cx), obj, count, &mut reader);
    let filled = match filled {
        Ok(()) if reader.is_empty() => Ok(obj),
        Ok(()) => Err(ImportError::Malformed("bytes behind an object")),
        Err(error) => Err(error),
    };
    if filled.is_err() {
        any::destroy(arena, tx, obj);
    }
    filled
}

/// A time at which nothing has expired.
fn always(cx: Context) -> Context {
    Context { expired_ms: 0, ..cx }
}

fn fill(
    arena: &mut Arena,
    tx: &mut Tx,
    cx: Context,
    obj: u64,
    count: u64,
    reader: &mut Reader,
) -> Result<(), ImportError> {
    const TWICE: ImportError = ImportError::Malformed("an element is there twice");
    let ty = object::ty(arena, obj);
    if ty == Type::Stream {
        return stream::serial::fill(arena, tx, cx, obj, count, reader);
    }
    for _ in 0..count {
        let is_new = match ty {
            Type::List => {
                list::Writer::new(arena, tx, obj, cx).push(list::End::Back, reader.value()?)?;
                true
            }
            Type::Set => set::Writer::new(arena, tx, obj, cx).add(reader.value()?)?,
            Type::Zset => {
                let score = reader.score()?;
                zset::Writer::new(arena, tx, obj, cx).insert(reader.value()?, score)?.is_none()
            }
            Type::Hash => {
                let (name, value) = (reader.value()?, reader.value()?);
                let expiry = match reader.size()? {
                    0 => Expiry::Clear,
                    time => Expiry::At(time),
                };
                hash::Writer::new(arena, tx, obj, cx).set(name, value, expiry)?
            }
            Type::String | Type::Stream => unreachable!("import makes collections only"),
        };
        if !is_new {
            return Err(TWICE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::{
        Hasher, Limits,
        testing::{self, Random},
    };

    /// What is in an object, as `check` has found it sound.
    fn content(arena: &Arena, cx: Context, obj: u64) -> Vec<u8> {
        match object::ty(arena, obj) {
            Type::List => list::check(arena, obj),
            Type::Set => set::check(arena, cx, obj),
            Type::Zset => zset::check(arena, cx, obj),
            Type::Stream => {
                stream::check(arena, obj).unwrap();
                let mut content = Vec::new();
                export(arena, cx, obj, &mut content);
                return content;
            }
            _ => hash::check(arena, always(cx), obj),
        }
        .unwrap();
        let mut elements: Vec<Vec<u8>> = Vec::new();
        let mut add = |element: &[u8]| elements.push(element.to_vec());
        match object::ty(arena, obj) {
            Type::List => list::iter(arena, obj, 0..u64::MAX, false).for_each(add),
            Type::Set => set::members(arena, obj).for_each(|member| add(&member)),
            Type::Zset => zset::iter(arena, obj, 0..u64::MAX, false)
                .for_each(|(member, score)| add(format!("{score} {}", member.escape_ascii()).as_bytes())),
            _ => hash::fields(arena, always(cx), obj).for_each(|field| add(format!("{field:?}").as_bytes())),
        }
        if matches!(object::ty(arena, obj), Type::Set | Type::Hash) {
            elements.sort();
        }
        elements.join(&b'\n')
    }

    fn random_object(
        arena: &mut Arena,
        tx: &mut Tx,
        cx: Context,
        random: &mut Random,
        ty: Type,
        size: u64,
    ) -> u64 {
        let create = match ty {
            Type::List => list::create,
            Type::Set => set::create,
            Type::Zset => zset::create,
            Type::Stream => stream::create,
            _ => hash::create,
        };
        let obj = create(arena, tx, b"old").unwrap();
        if ty == Type::Stream {
            stream::testing::fill(arena, tx, cx, obj, random, size);
            return obj;
        }
        for i in 0..size {
            let number = random.next() as i64 >> random.below(60);
            let text = match random.below(3) {
                0 => number.to_string().into_bytes(),
                1 => vec![number as u8; random.below(200) as usize],
                _ => format!("{i}:{number}").into_bytes(),
            };
            match ty {
                Type::List => list::Writer::new(arena, tx, obj, cx).push(list::End::Back, &text).unwrap(),
                Type::Set => _ = set::Writer::new(arena, tx, obj, cx).add(&text).unwrap(),
                Type::Zset => _ = zset::Writer::new(arena, tx, obj, cx).insert(&text, number as f64).unwrap(),
                _ => {
                    let expiry = if number % 3 == 0 { Expiry::At(1 + i) } else { Expiry::Clear };
                    hash::Writer::new(arena, tx, obj, cx).set(&text, &text, expiry).unwrap();
                }
            }
        }
        obj
    }

    #[test]
    fn objects_come_back_and_bad_bytes_do_no_harm() {
        let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
        let cx = testing::context(&hasher, &limits);
        let mut random = Random::new(1);
        let mut arena = testing::arena(64 << 20);
        let mut tx = Tx::new();
        let empty = arena.allocated_bytes();
        for round in 0..15 {
            for ty in [Type::List, Type::Set, Type::Zset, Type::Hash, Type::Stream] {
                let size = 1 + random.below([3, 100, 3000][round % 3]);
                let obj = random_object(&mut arena, &mut tx, cx, &mut random, ty, size);
                assert_eq!(arena.allocated_bytes() - empty, any::heap_bytes(&arena, obj), "{ty:?} of {size}");
                let mut bytes = Vec::new();
                export(&arena, cx, obj, &mut bytes);
                let before = content(&arena, cx, obj);
                testing::destroy(&mut arena, &mut tx, obj);

                let copy = import(&mut arena, &mut tx, cx, b"new key", &bytes).unwrap();
                assert_eq!(object::key(&arena, copy), b"new key");
                assert_eq!(content(&arena, cx, copy), before);
                assert_eq!(
                    arena.allocated_bytes() - empty,
                    any::heap_bytes(&arena, copy),
                    "{ty:?} of {size}"
                );
                testing::destroy(&mut arena, &mut tx, copy);

                let cut = random.below(bytes.len() as u64) as usize;
                let cut = import(&mut arena, &mut tx, cx, b"k", &bytes[..cut]);
                assert!(matches!(cut, Err(ImportError::Malformed(_))));
                for _ in 0..20 {
                    let mut bad = bytes.clone();
                    let at = random.below(bad.len().min(40) as u64) as usize;
                    bad[at] ^= 1 << random.below(8);
                    if let Ok(made) = import(&mut arena, &mut tx, cx, b"k", &bad) {
                        content(&arena, cx, made);
                        testing::destroy(&mut arena, &mut tx, made);
                    }
                }
                assert_eq!(arena.allocated_bytes(), empty);
            }
        }
    }

    #[test]
    fn without_room_nothing_is_left() {
        let (hasher, limits) = (Hasher::new([1, 2]), Limits::default());
        let cx = testing::context(&hasher, &limits);
        let mut random = Random::new(2);
        let mut arena = testing::arena(4 << 20);
        let mut tx = Tx::new();
        for ty in [Type::List, Type::Set, Type::Zset, Type::Hash, Type::Stream] {
            let obj = random_object(&mut arena, &mut tx, cx, &mut random, ty, 2000);
            let mut bytes = Vec::new();
            export(&arena, cx, obj, &mut bytes);
            let mut copies = Vec::new();
            let full = loop {
                let before = arena.allocated_bytes();
                match import(&mut arena, &mut tx, cx, b"copy", &bytes) {
                    Ok(copy) => copies.push(copy),
                    Err(why) => break (why, before),
                }
                tx.clear();
            };
            assert_eq!(full, (ImportError::Full, arena.allocated_bytes()));
            assert!(!copies.is_empty());
            for obj in copies.into_iter().chain([obj]) {
                testing::destroy(&mut arena, &mut tx, obj);
            }
        }
    }
}
