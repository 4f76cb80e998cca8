//! Reading payloads.

use crate::{
    Error, Field, Result, Value, kind,
    packed::{self, Entries},
    reader::{Reader, open, parse_score},
    stream,
};
use std::collections::HashSet;

const EMPTY: Error = Error::Malformed("a collection without elements");
const TWICE: Error = Error::Malformed("an element is there twice");
const ODD: Error = Error::Malformed("an element without its other half");
const BAD_TIME: Error = Error::Malformed("a time that is out of range");
const NOT_A_NUMBER: Error = Error::Malformed("a score that is no number");
/// The latest time at which a field can expire: Redis's.
const TIME_MAX: u64 = 0xffff_ffff_fffe;

/// The value that a payload is of.
pub fn decode(payload: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(open(payload)?);
    let kind = reader.u8()?;
    let value = read(&mut reader, kind)?;
    if reader.is_at_end() { Ok(value) } else { Err(Error::Malformed("bytes behind the value")) }
}

fn read(reader: &mut Reader, kind: u8) -> Result<Value> {
    match kind {
        kind::STRING => Ok(Value::String(reader.string()?)),
        kind::LIST => list(strings(reader, 1)?),
        kind::SET => set(strings(reader, 1)?),
        kind::HASH => hash(strings(reader, 2)?),
        kind::ZSET | kind::ZSET_2 => scored(reader, kind),
        kind::LIST_ZIPLIST => list(packed::ziplist(&reader.string()?)?),
        kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => quicklist(reader, kind),
        kind::SET_INTSET => set(packed::intset(&reader.string()?)?),
        kind::SET_LISTPACK => set(packed::listpack(&reader.string()?)?),
        kind::ZSET_ZIPLIST => zset(packed::ziplist(&reader.string()?)?),
        kind::ZSET_LISTPACK => zset(packed::listpack(&reader.string()?)?),
        kind::HASH_ZIPMAP => hash(packed::zipmap(&reader.string()?)?),
        kind::HASH_ZIPLIST => hash(packed::ziplist(&reader.string()?)?),
        kind::HASH_LISTPACK => hash(packed::listpack(&reader.string()?)?),
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => {
            Ok(Value::Stream(Box::new(stream::read(reader, kind)?)))
        }
        kind::HASH_METADATA => expiring_hash(reader),
        kind::HASH_LISTPACK_EX => {
            // When the first field expires; each says so itself.
            reader.bytes::<8>()?;
            expiring_listpack(packed::listpack(&reader.string()?)?)
        }
        _ => Err(Error::Malformed("unknown type of a value")),
    }
}

/// A number of elements, and as many times so many strings.
fn strings(reader: &mut Reader, of_each: u64) -> Result<Entries> {
    let count = reader.length()?.checked_mul(of_each).ok_or(ODD)?;
    // Not collected: memory is taken for what is there, not for what is announced.
    let mut strings = Entries::new();
    for _ in 0..count {
        strings.push(reader.string()?);
    }
    Ok(strings)
}

fn list(elements: Entries) -> Result<Value> {
    if elements.is_empty() { Err(EMPTY) } else { Ok(Value::List(elements)) }
}

fn set(members: Entries) -> Result<Value> {
    all_different(members.iter())?;
    Ok(Value::Set(members))
}

fn zset(entries: Entries) -> Result<Value> {
    let pairs = groups(entries)?;
    pairs
        .into_iter()
        .map(|[member, score]| Ok((member, parse_score(&score)?)))
        .collect::<Result<_>>()
        .and_then(sorted)
}

fn sorted(members: Vec<(Vec<u8>, f64)>) -> Result<Value> {
    if members.iter().any(|(_, score)| score.is_nan()) {
        return Err(NOT_A_NUMBER);
    }
    all_different(members.iter().map(|(member, _)| member))?;
    Ok(Value::Zset(members))
}

fn scored(reader: &mut Reader, kind: u8) -> Result<Value> {
    let mut members = Vec::new();
    for _ in 0..reader.length()? {
        let member = reader.string()?;
        let score = match kind {
            kind::ZSET => reader.score_text()?,
            _ => f64::from_le_bytes(reader.bytes()?),
        };
        members.push((member, score));
    }
    sorted(members)
}

fn hash(entries: Entries) -> Result<Value> {
    let field = |[name, value]: [Vec<u8>; 2]| Field { name, value, expires: 0 };
    fields(groups(entries)?.into_iter().map(field).collect())
}

fn fields(fields: Vec<Field>) -> Result<Value> {
    all_different(fields.iter().map(|field| &field.name))?;
    if fields.iter().any(|field| field.expires > TIME_MAX) {
        return Err(BAD_TIME);
    }
    Ok(Value::Hash(fields))
}

/// Fields whose expiry is counted from that of the first one to expire, plus 1; 0: none.
fn expiring_hash(reader: &mut Reader) -> Result<Value> {
    let first = u64::from_le_bytes(reader.bytes()?);
    let mut all = Vec::new();
    for _ in 0..reader.length()? {
        let expires = match reader.length()? {
            0 => 0,
            after => first.checked_add(after - 1).ok_or(BAD_TIME)?,
        };
        all.push(Field { name: reader.string()?, value: reader.string()?, expires });
    }
    fields(all)
}

/// Name, value and expiry in turn.
fn expiring_listpack(entries: Entries) -> Result<Value> {
    let time =
        |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(BAD_TIME);
    let field = |[name, value, expires]: [Vec<u8>; 3]| Ok(Field { name, value, expires: time(&expires)? });
    fields(groups(entries)?.into_iter().map(field).collect::<Result<_>>()?)
}

/// Nodes, each a string: one element, or a packed list of them.
fn quicklist(reader: &mut Reader, kind: u8) -> Result<Value> {
    const PLAIN: u64 = 1;
    const PACKED: u64 = 2;
    let mut elements = Entries::new();
    for _ in 0..reader.length()? {
        let container = if kind == kind::LIST_QUICKLIST { PACKED } else { reader.length()? };
        let node = reader.string()?;
        match container {
            PLAIN if !node.is_empty() => elements.push(node),
            PACKED if kind == kind::LIST_QUICKLIST => elements.append(&mut packed::ziplist(&node)?),
            PACKED => elements.append(&mut packed::listpack(&node)?),
            _ => return Err(Error::Malformed("unknown node of a list")),
        }
    }
    list(elements)
}

/// Entries by so many.
fn groups<const N: usize>(entries: Entries) -> Result<Vec<[Vec<u8>; N]>> {
    if entries.len() % N != 0 {
        return Err(ODD);
    }
    let mut entries = entries.into_iter();
    let mut group = || std::array::from_fn(|_| entries.next());
    let mut groups = Vec::new();
    loop {
        let next: [Option<Vec<u8>>; N] = group();
        if next[0].is_none() {
            return Ok(groups);
        }
        groups.push(next.map(|entry| entry.expect("a whole group")));
    }
}

fn all_different<'e>(elements: impl ExactSizeIterator<Item = &'e Vec<u8>>) -> Result<()> {
    if elements.len() == 0 {
        return Err(EMPTY);
    }
    let mut seen = HashSet::with_capacity(elements.len());
    if elements.into_iter().all(|element| seen.insert(element)) { Ok(()) } else { Err(TWICE) }
}
