//! Reading payloads.

use crate::{
    Error, Fields, Members, Result, Strings, Value, kind, packed,
    reader::{Input, Reader, open, parse_score},
    stream,
};

pub const EMPTY: Error = Error::Malformed("a collection without elements");
const TWICE: Error = Error::Malformed("an element is there twice");
const ODD: Error = Error::Malformed("an element without its other half");
const BAD_TIME: Error = Error::Malformed("a time that is out of range");
const UNKNOWN: Error = Error::Malformed("unknown type of a value");
const NOT_A_NUMBER: Error = Error::Malformed("a score that is no number");
/// What stands before the node of a list that is a packed one.
pub const PACKED_NODE: u64 = 2;
/// The latest time at which a field can expire: Redis's.
const TIME_MAX: u64 = 0xffff_ffff_fffe;

/// The value that a payload is of.
pub fn decode(payload: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(open(payload)?);
    let kind = reader.u8()?;
    if kind == kind::HASH_VALKEY {
        return Err(UNKNOWN);
    }
    let value = read(&mut reader, kind)?;
    if reader.is_at_end() { Ok(value) } else { Err(Error::Malformed("bytes behind the value")) }
}

/// The value of a type that follows.
pub fn read(reader: &mut Reader<impl Input>, kind: u8) -> Result<Value> {
    const ALL: PieceLimit = PieceLimit { elements: usize::MAX, bytes: usize::MAX };
    match Elements::begin(reader, kind)? {
        Some(mut elements) => elements.next(reader, ALL),
        None => whole(reader, kind),
    }
}

/// A value that cannot be read in pieces: a string, a stream, or a collection that is packed into one string.
pub fn whole(reader: &mut Reader<impl Input>, kind: u8) -> Result<Value> {
    match kind {
        kind::STRING => Ok(Value::String(reader.string()?)),
        kind::LIST_ZIPLIST => list(reader.read_string(packed::ziplist)?),
        kind::SET_INTSET => set(reader.read_string(packed::intset)?),
        kind::SET_LISTPACK => set(reader.read_string(packed::listpack)?),
        kind::ZSET_LISTPACK => zset(reader.read_string(packed::listpack)?),
        kind::HASH_LISTPACK => hash(reader.read_string(packed::listpack)?),
        kind::ZSET_ZIPLIST => zset(reader.read_string(packed::ziplist)?),
        kind::HASH_ZIPMAP => hash(reader.read_string(packed::zipmap)?),
        kind::HASH_ZIPLIST => hash(reader.read_string(packed::ziplist)?),
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => {
            Ok(Value::Stream(Box::new(stream::read(reader, kind)?)))
        }
        kind::HASH_LISTPACK_EX => {
            // When the first field expires; each says so itself.
            reader.bytes::<8>()?;
            expiring_listpack(reader.read_string(packed::listpack)?)
        }
        kind::HASH_LISTPACK_EX_EARLY => expiring_listpack(reader.read_string(packed::listpack)?),
        _ => Err(UNKNOWN),
    }
}

/// How much of a collection is read at once, at least one element.
#[derive(Clone, Copy)]
pub struct PieceLimit {
    /// Elements.
    pub elements: usize,
    /// Bytes of their strings, after which no other is read.
    pub bytes: usize,
}

/// A collection whose elements, or nodes, are counted and follow one another, so that it can be read in pieces.
pub struct Elements {
    kind: u8,
    left: u64,
    /// What the times of fields are counted from.
    first_expiry: u64,
}

impl Elements {
    /// Begins with a value, if it is such a collection.
    pub fn begin(reader: &mut Reader<impl Input>, kind: u8) -> Result<Option<Elements>> {
        let first_expiry = match kind {
            kind::HASH_METADATA => u64::from_le_bytes(reader.bytes()?),
            kind::LIST | kind::SET | kind::HASH | kind::ZSET | kind::ZSET_2 => 0,
            kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => 0,
            // Times are absolute.
            kind::HASH_METADATA_EARLY | kind::HASH_VALKEY => 1,
            _ => return Ok(None),
        };
        Ok(Some(Elements { kind, left: reader.length()?, first_expiry }))
    }

    /// Whether all were read.
    pub fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// The elements that follow.
    pub fn next(&mut self, reader: &mut Reader<impl Input>, limit: PieceLimit) -> Result<Value> {
        match self.kind {
            kind::LIST => list(self.strings(reader, 1, limit)?),
            kind::SET => set(self.strings(reader, 1, limit)?),
            kind::HASH => hash(self.strings(reader, 2, limit)?),
            kind::ZSET | kind::ZSET_2 => self.scored(reader, limit),
            kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => self.nodes(reader, limit),
            _ => self.expiring(reader, limit),
        }
    }

    /// Counts one element, unless there is none or the piece is full.
    fn take_one(&mut self, so_far: &Strings, of_each: usize, limit: PieceLimit) -> bool {
        let goes_on =
            self.left > 0 && so_far.len() / of_each < limit.elements && so_far.bytes() < limit.bytes;
        self.left -= u64::from(goes_on);
        goes_on
    }

    fn strings(
        &mut self,
        reader: &mut Reader<impl Input>,
        of_each: usize,
        limit: PieceLimit,
    ) -> Result<Strings> {
        let mut strings = Strings::default();
        while self.take_one(&strings, of_each, limit) {
            for _ in 0..of_each {
                reader.read_string(|string| strings.push(string))?;
            }
        }
        Ok(strings)
    }

    fn scored(&mut self, reader: &mut Reader<impl Input>, limit: PieceLimit) -> Result<Value> {
        let mut all = Members::default();
        while self.take_one(&all.members, 1, limit) {
            reader.read_string(|member| all.members.push(member))?;
            all.scores.push(match self.kind {
                kind::ZSET => reader.score_text()?,
                _ => f64::from_le_bytes(reader.bytes()?),
            });
        }
        sorted(all)
    }

    /// Nodes, each a string: one element, or a packed list of them.
    fn nodes(&mut self, reader: &mut Reader<impl Input>, limit: PieceLimit) -> Result<Value> {
        const PLAIN: u64 = 1;
        let mut elements = Strings::default();
        while self.take_one(&elements, 1, limit) {
            let is_old = self.kind == kind::LIST_QUICKLIST;
            let container = if is_old { PACKED_NODE } else { reader.length()? };
            reader.read_string(|node| match container {
                PLAIN if !node.is_empty() => elements.push(node),
                PACKED_NODE if is_old => {
                    packed::ziplist(node)?.iter().try_for_each(|entry| elements.push(entry))
                }
                PACKED_NODE => packed::listpack_into(node, &mut elements),
                _ => Err(Error::Malformed("unknown node of a list")),
            })?;
        }
        list(elements)
    }

    /// Fields, each with its expiry, if it has one: Redis counts that from one less than the first one's, 0 is none;
    /// Valkey writes the time behind the value, -1 is none.
    fn expiring(&mut self, reader: &mut Reader<impl Input>, limit: PieceLimit) -> Result<Value> {
        let (mut strings, mut times) = (Strings::default(), Vec::new());
        while self.take_one(&strings, 2, limit) {
            let is_redis = self.kind != kind::HASH_VALKEY;
            let mut expires = if is_redis { reader.length()? } else { 0 };
            reader.read_string(|string| strings.push(string))?;
            reader.read_string(|string| strings.push(string))?;
            if !is_redis {
                // Without a sign it is the greatest number, and 1 more is 0.
                expires = u64::from_le_bytes(reader.bytes()?).wrapping_add(1);
            }
            times.push(match expires {
                0 => 0,
                after if is_redis => self.first_expiry.checked_add(after - 1).ok_or(BAD_TIME)?,
                after => after - 1,
            });
        }
        fields(strings, times)
    }
}

fn list(elements: Strings) -> Result<Value> {
    if elements.is_empty() { Err(EMPTY) } else { Ok(Value::List(elements)) }
}

fn set(members: Strings) -> Result<Value> {
    all_different(&members, 1)?;
    Ok(Value::Set(members))
}

fn zset(entries: Strings) -> Result<Value> {
    let count = entries.len() / 2;
    let mut all = Members {
        members: Strings::with_capacity(count, entries.bytes()),
        scores: Vec::with_capacity(count),
    };
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

fn hash(entries: Strings) -> Result<Value> {
    fields(entries, Vec::new())
}

/// Names and values in turn, and when each expires, if any does.
fn fields(strings: Strings, expires: Vec<u64>) -> Result<Value> {
    if !strings.len().is_multiple_of(2) {
        return Err(ODD);
    }
    all_different(&strings, 2)?;
    if expires.iter().any(|expires| *expires > TIME_MAX) {
        return Err(BAD_TIME);
    }
    Ok(Value::Hash(Fields::new(strings, expires)))
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

/// Entries by so many.
fn groups<const N: usize>(entries: &Strings) -> Result<impl Iterator<Item = [&[u8]; N]>> {
    if !entries.len().is_multiple_of(N) {
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
