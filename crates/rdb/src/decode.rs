//! Reading payloads.

use crate::{
    Error, Fields, Members, Result, Strings, Value, kind, packed,
    reader::{Reader, open, parse_score},
    stream,
};

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
fn strings(reader: &mut Reader, of_each: u64) -> Result<Strings> {
    let count = reader.length()?.checked_mul(of_each).ok_or(ODD)?;
    let mut strings = Strings::default();
    for _ in 0..count {
        strings.push(&reader.string()?)?;
    }
    Ok(strings)
}

fn list(elements: Strings) -> Result<Value> {
    if elements.is_empty() { Err(EMPTY) } else { Ok(Value::List(elements)) }
}

fn set(members: Strings) -> Result<Value> {
    all_different(&members, 1)?;
    Ok(Value::Set(members))
}

fn zset(entries: Strings) -> Result<Value> {
    let mut all = Members::default();
    for [member, score] in groups(&entries)? {
        all.members.push(member)?;
        all.scores.push(parse_score(score)?);
    }
    sorted(all)
}

fn sorted(all: Members) -> Result<Value> {
    if all.scores.iter().any(|score| score.is_nan()) {
        return Err(NOT_A_NUMBER);
    }
    all_different(&all.members, 1)?;
    Ok(Value::Zset(all))
}

fn scored(reader: &mut Reader, kind: u8) -> Result<Value> {
    let mut all = Members::default();
    for _ in 0..reader.length()? {
        all.members.push(&reader.string()?)?;
        all.scores.push(match kind {
            kind::ZSET => reader.score_text()?,
            _ => f64::from_le_bytes(reader.bytes()?),
        });
    }
    sorted(all)
}

fn hash(entries: Strings) -> Result<Value> {
    fields(entries, Vec::new())
}

/// Names and values in turn, and when each expires, if any does.
fn fields(strings: Strings, expires: Vec<u64>) -> Result<Value> {
    if strings.len() % 2 != 0 {
        return Err(ODD);
    }
    all_different(&strings, 2)?;
    if expires.iter().any(|expires| *expires > TIME_MAX) {
        return Err(BAD_TIME);
    }
    Ok(Value::Hash(Fields::new(strings, expires)))
}

/// Fields whose expiry is counted from that of the first one to expire, plus 1; 0: none.
fn expiring_hash(reader: &mut Reader) -> Result<Value> {
    let first = u64::from_le_bytes(reader.bytes()?);
    let (mut strings, mut times) = (Strings::default(), Vec::new());
    for _ in 0..reader.length()? {
        times.push(match reader.length()? {
            0 => 0,
            after => first.checked_add(after - 1).ok_or(BAD_TIME)?,
        });
        strings.push(&reader.string()?)?;
        strings.push(&reader.string()?)?;
    }
    fields(strings, times)
}

/// Name, value and expiry in turn.
fn expiring_listpack(entries: Strings) -> Result<Value> {
    let (mut strings, mut times) = (Strings::default(), Vec::new());
    for [name, value, expires] in groups(&entries)? {
        strings.push(name)?;
        strings.push(value)?;
        let time = std::str::from_utf8(expires).ok().and_then(|text| text.parse().ok());
        times.push(time.ok_or(BAD_TIME)?);
    }
    fields(strings, times)
}

/// Nodes, each a string: one element, or a packed list of them.
fn quicklist(reader: &mut Reader, kind: u8) -> Result<Value> {
    const PLAIN: u64 = 1;
    const PACKED: u64 = 2;
    let mut elements = Strings::default();
    for _ in 0..reader.length()? {
        let container = if kind == kind::LIST_QUICKLIST { PACKED } else { reader.length()? };
        let node = reader.string()?;
        let entries = match container {
            PLAIN if !node.is_empty() => {
                elements.push(&node)?;
                continue;
            }
            PACKED if kind == kind::LIST_QUICKLIST => packed::ziplist(&node)?,
            PACKED => packed::listpack(&node)?,
            _ => return Err(Error::Malformed("unknown node of a list")),
        };
        entries.iter().try_for_each(|entry| elements.push(entry))?;
    }
    list(elements)
}

/// Entries by so many.
fn groups<const N: usize>(entries: &Strings) -> Result<impl Iterator<Item = [&[u8]; N]>> {
    if entries.len() % N != 0 {
        return Err(ODD);
    }
    Ok((0..entries.len()).step_by(N).map(|at| std::array::from_fn(|i| entries.get(at + i))))
}

/// Checks that there are elements, and none in every `step`-th place is there twice.
fn all_different(elements: &Strings, step: usize) -> Result<()> {
    if elements.is_empty() {
        return Err(EMPTY);
    }
    if elements.are_different(step) { Ok(()) } else { Err(TWICE) }
}
