//! VEC: vectors of numbers and of strings, whose length is fixed. Redis has no such commands.
//!
//! A vector of numbers is a string: a header of eight bytes that names the type, then the elements, little-endian. So the
//! place of an element follows from its index. A vector of strings is a list.

use crate::{
    command::error::{NOT_DOUBLE, NOT_INTEGER, NOT_POSITIVE},
    commands::{
        lists::{INDEX_OUT_OF_RANGE, NO_SUCH_KEY},
        prelude::*,
        strings::TOO_LONG,
    },
};
use holdfast_resp::{parse_double, parse_int};
use holdfast_store::{
    Type,
    list::List,
    positions_between,
    string::{Change, StringValue},
};
use std::{borrow::Cow, ops::Range};

const VEC: Command = Command {
    categories: Categories::STRING.and(Categories::LIST),
    since: "7.2.0",
    group: "vector",
    ..Command::NEW
};
const READ: Command =
    Command { flags: Flags::READONLY, keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)], ..VEC };
const CHANGE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
    ..VEC
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "vec.create",
        syntax: "key type<INT32|INT64|FLOAT|DOUBLE|STRING> elements<LEN=length:i|VALUES=value...|BLOB=bytes>",
        keys: &[KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 1)],
        summary: "Makes a vector the value of a key, whatever it held: of zeroes or empty strings, or of elements given as text or as bytes.",
        complexity: "O(N) where N is the number of elements in the call. Numbers that are zeroes by LEN cost next to nothing.",
        ..CHANGE
    }
    .by(Keyed(create)),
    Command {
        name: "vec.get",
        syntax: "key index:i...",
        flags: Flags::READONLY.and(Flags::FAST),
        summary: "Returns one or more elements of a vector.",
        complexity: "O(1) for each number, O(log(N)) for each string of a vector of N.",
        ..READ
    }
    .by(Keyed(get))
    .using(|args| args.iter().skip(2).flat_map(|index| one(index)).collect()),
    Command {
        name: "vec.info",
        syntax: "key",
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Returns the type of a vector's elements, and how many they are.",
        ..READ
    }
    .by(Keyed(info))
    .using(|_| vec![Use::Bytes(0, HEADER)]),
    Command {
        name: "vec.range",
        syntax: "key start:i stop:i [BLOB]",
        summary: "Returns a range of elements of a vector, one by one or as bytes.",
        complexity: "O(M) for M numbers, O(log(N)+M) for M strings of a vector of N.",
        ..READ
    }
    .by(Keyed(range))
    .using(range_uses),
    Command {
        name: "vec.set",
        syntax: "key data(index:i value)...",
        summary: "Replaces one or more elements of a vector.",
        complexity: "O(1) for each number, O(log(N)) for each string of a vector of N. The first change of a vector of numbers that was made by VALUES or BLOB is O(N).",
        ..CHANGE
    }
    .by(Keyed(set))
    .using(|args| args.iter().skip(2).step_by(2).flat_map(|index| one(index)).collect()),
    Command {
        name: "vec.setrange",
        syntax: "key index:i elements<VALUES=value...|BLOB=bytes>",
        summary: "Replaces elements of a vector that follow each other.",
        complexity: "O(M) for M numbers, O(M*log(N)) for M strings of a vector of N. The first change of a vector of numbers that was made by VALUES or BLOB is O(N).",
        ..CHANGE
    }
    .by(Keyed(set_range)),
];

const NOT_A_VECTOR: Stop = Stop::new("WRONGTYPE Key is not a valid vector string value.");
const BAD_BLOB: Stop =
    Stop::new("ERR BLOB should have the bytes of one or more elements of the vector's type");
const STRINGS_HAVE_NO_BLOB: Stop = Stop::new("ERR a vector of strings has no BLOB");
const TOO_MANY_STRINGS: Stop = Stop::new("ERR LEN of a vector of strings should be at most 1048576");

/// The most empty strings that a call makes: how many is cheap for a client to say.
const STRINGS_MAX: i64 = 1 << 20;

/// Bytes before the first number.
const HEADER: usize = 8;
/// How a vector of numbers begins. The code of its type follows.
const MAGIC: [u8; HEADER - 1] = *b"\0VECTOR";

/// A type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Int32 = 1,
    Int64 = 2,
    Float = 3,
    Double = 4,
}

const NUMBERS: [(&str, Number); 4] = [
    ("INT32", Number::Int32),
    ("INT64", Number::Int64),
    ("FLOAT", Number::Float),
    ("DOUBLE", Number::Double),
];

impl Number {
    /// Bytes of an element; a chunk of a large string has a whole number of them.
    fn size(self) -> usize {
        match self {
            Number::Int32 | Number::Float => 4,
            Number::Int64 | Number::Double => 8,
        }
    }

    fn header(self) -> [u8; HEADER] {
        let mut header = [self as u8; HEADER];
        header[..MAGIC.len()].copy_from_slice(&MAGIC);
        header
    }

    /// The bytes of a vector of so many elements, its header included, if a string may have so many.
    fn bytes_of(self, call: &Call, elements: u64) -> Result<usize, Stop> {
        let bytes =
            elements.checked_mul(self.size() as u64).and_then(|bytes| bytes.checked_add(HEADER as u64));
        let max = call.server().string_max() as u64;
        Ok(bytes.filter(|&bytes| bytes <= max).ok_or(TOO_LONG)? as usize)
    }

    /// Appends the number that a text is.
    fn parse(self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
        match self {
            Number::Int32 => {
                let number = parse_int(text).and_then(|number| i32::try_from(number).ok());
                out.extend(number.ok_or(NOT_INTEGER)?.to_le_bytes());
            }
            Number::Int64 => out.extend(parse_int(text).ok_or(NOT_INTEGER)?.to_le_bytes()),
            Number::Float => out.extend(parse_float(text).ok_or(NOT_DOUBLE)?.to_le_bytes()),
            Number::Double => out.extend(parse_double(text).ok_or(NOT_DOUBLE)?.to_le_bytes()),
        }
        Ok(())
    }

    /// Replies with an element.
    fn write(self, bytes: &[u8], out: &mut Writer) {
        let four = || *bytes.first_chunk().expect("four bytes");
        let eight = || *bytes.first_chunk().expect("eight bytes");
        match self {
            Number::Int32 => out.int(i32::from_le_bytes(four()).into()),
            Number::Int64 => out.int(i64::from_le_bytes(eight())),
            Number::Float => out.double(shortest(f32::from_le_bytes(four()))),
            Number::Double => out.double(f64::from_le_bytes(eight())),
        }
    }
}

/// A number of single precision, rounded once.
pub(super) fn parse_float(text: &[u8]) -> Option<f32> {
    let double = parse_double(text)?;
    // Hexadecimal digits are no text of a number in Rust.
    let float = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(double as f32);
    (float.is_finite() || double.is_infinite()).then_some(float)
}

/// The number of double precision with the fewest digits that tell the float.
fn shortest(float: f32) -> f64 {
    if float.is_finite() { format!("{float:e}").parse().expect("digits") } else { float.into() }
}

/// A vector, to read.
#[derive(Clone, Copy)]
enum Vector<'t> {
    Numbers(Number, StringValue<'t>),
    Strings(List<'t>),
}

impl<'t> Vector<'t> {
    /// The vector at a call's key.
    fn at(call: &Call, txn: &'t mut Txn) -> Result<Vector<'t>, Stop> {
        let (db, key) = (call.db(), call.args.at(1));
        if txn.type_of(db, key) == Some(Type::List) {
            return Ok(Vector::Strings(txn.list_at(db, key)?.ok_or(NO_SUCH_KEY)?));
        }
        let value = txn.string_at(db, key)?.ok_or(NO_SUCH_KEY)?;
        let mut header = [0; HEADER];
        value.copy_to(0, &mut header);
        let number = NUMBERS.iter().map(|(_, number)| *number).find(|number| number.header() == header);
        let number = number.filter(|number| (value.len() - HEADER).is_multiple_of(number.size()));
        Ok(Vector::Numbers(number.ok_or(NOT_A_VECTOR)?, value))
    }

    fn len(self) -> u64 {
        match self {
            Vector::Numbers(number, value) => ((value.len() - HEADER) / number.size()) as u64,
            Vector::Strings(list) => list.len(),
        }
    }

    fn type_name(self) -> &'static str {
        match self {
            Vector::Numbers(number, _) => {
                NUMBERS.iter().find(|(_, of)| *of == number).expect("one of four types").0
            }
            Vector::Strings(_) => "STRING",
        }
    }

    /// The index that an argument names; one below zero counts from the end.
    fn index(self, call: &Call, at: usize) -> Result<u64, Stop> {
        let index = call.int(at)?;
        let index = if index < 0 { index.saturating_add_unsigned(self.len()) } else { index };
        u64::try_from(index).ok().filter(|&index| index < self.len()).ok_or(INDEX_OUT_OF_RANGE)
    }

    /// Replies with an element, which must be there.
    fn write(self, index: u64, out: &mut Writer) {
        match self {
            Vector::Numbers(number, value) => {
                let mut bytes = [0; 8];
                value.copy_to(place(number, index), &mut bytes[..number.size()]);
                number.write(&bytes, out);
            }
            Vector::Strings(list) => out.bulk_or_null(list.get(index as i64)),
        }
    }
}

/// Where an element is in its string.
fn place(number: Number, index: u64) -> usize {
    HEADER + index as usize * number.size()
}

/// What a command uses of the elements from one index to another, both included. Before the vector is looked at, its type may be any.
fn between(first: i64, last: i64) -> Vec<Use<'static>> {
    let mut uses = vec![Use::Positions { first, last, reverse: false }, Use::Bytes(0, HEADER)];
    if let Ok(first) = usize::try_from(first) {
        // Of an end that counts from the last element all is said that may come before it.
        let end = usize::try_from(last).map_or(usize::MAX, |last| last.saturating_add(1));
        uses.extend([4usize, 8].map(|size| {
            let at = |index: usize| index.saturating_mul(size).saturating_add(HEADER);
            Use::Bytes(at(first), at(end))
        }));
    }
    uses
}

fn one(index: &[u8]) -> Vec<Use<'static>> {
    let index = parse_int(index).filter(|index| *index >= 0);
    index.map(|index| between(index, index)).unwrap_or_default()
}

fn range_uses(args: Args) -> Vec<Use> {
    let bounds = parse_int(args.at(2)).zip(parse_int(args.at(3)));
    bounds.map(|(start, stop)| between(start, stop)).unwrap_or_default()
}

/// The elements that `VALUES value...` or `BLOB bytes` from an argument on are, as a vector of a type has them.
fn elements<'a>(call: &Call<'a>, at: usize, number: Number) -> Result<Cow<'a, [u8]>, Stop> {
    let args = call.args;
    if call.is(at, "values") && args.len() > at + 1 {
        let mut bytes = Vec::with_capacity((args.len() - at - 1) * number.size());
        args.from(at + 1).iter().try_for_each(|text| number.parse(text, &mut bytes))?;
        Ok(Cow::Owned(bytes))
    } else if call.is(at, "blob") && args.len() == at + 2 {
        let blob = args.at(at + 1);
        let is_whole = !blob.is_empty() && blob.len().is_multiple_of(number.size());
        is_whole.then_some(Cow::Borrowed(blob)).ok_or(BAD_BLOB)
    } else {
        Err(SYNTAX)
    }
}

/// The same of a vector of strings.
fn strings<'a>(call: &Call<'a>, at: usize) -> Result<Args<'a>, Stop> {
    if call.is(at, "values") && call.args.len() > at + 1 {
        Ok(call.args.from(at + 1))
    } else if call.is(at, "blob") && call.args.len() == at + 2 {
        Err(STRINGS_HAVE_NO_BLOB)
    } else {
        Err(SYNTAX)
    }
}

fn create(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let len = match call.is(3, "len") && call.args.len() == 5 {
        true => Some(call.int_from(4, 1, NOT_POSITIVE)?),
        false => None,
    };
    if call.is(2, "string") {
        match len {
            Some(len) if len > STRINGS_MAX => return Err(TOO_MANY_STRINGS),
            Some(len) => txn.list_replace(db, key, (0..len).map(|_| &b""[..]))?,
            None => txn.list_replace(db, key, strings(call, 3)?.iter())?,
        }
        call.notify(Class::LIST, "rpush", key);
        return call.reply_ok();
    }
    let number = NUMBERS.iter().find(|(name, _)| call.is(2, name)).ok_or(SYNTAX)?.1;
    let header = number.header();
    match len {
        Some(len) => {
            let bytes = number.bytes_of(call, len as u64)?;
            txn.string_create(db, key, bytes, &[Change { at: 0, bytes: &header }])?;
        }
        None => {
            let elements = elements(call, 3, number)?;
            number.bytes_of(call, (elements.len() / number.size()) as u64)?;
            txn.set(db, key, &[&header, &*elements].concat(), false)?;
        }
    }
    call.notify(Class::STRING, "set", key);
    call.reply_ok()
}

fn get(call: &mut Call, txn: &mut Txn) -> Answer {
    let vector = Vector::at(call, txn)?;
    let indices = (2..call.args.len()).map(|at| vector.index(call, at));
    let indices: Vec<u64> = indices.collect::<Result<_, _>>()?;
    call.out.array(indices.len());
    indices.into_iter().for_each(|index| vector.write(index, &mut call.out));
    Ok(Done)
}

fn info(call: &mut Call, txn: &mut Txn) -> Answer {
    let vector = Vector::at(call, txn)?;
    call.out.map(2);
    call.out.key("type").bulk(vector.type_name());
    call.out.key("length").int(vector.len() as i64);
    Ok(Done)
}

fn range(call: &mut Call, txn: &mut Txn) -> Answer {
    let (first, last) = (call.int(2)?, call.int(3)?);
    let wants_blob = call.is(4, "blob");
    if call.args.len() > 4 && !(wants_blob && call.args.len() == 5) {
        return Err(SYNTAX);
    }
    let vector = Vector::at(call, txn)?;
    let Range { start, end } = positions_between(first, last, vector.len());
    match vector {
        Vector::Numbers(number, value) => {
            let bytes = place(number, start)..place(number, end);
            if wants_blob {
                call.out.bulk_of(bytes.len(), value.slices(bytes));
                return Ok(Done);
            }
            call.out.array((end - start) as usize);
            let mut elements = value.slices(bytes).flat_map(|slice| slice.chunks_exact(number.size()));
            call.repeat(end - start, |out| {
                number.write(elements.next().expect("as many as were counted"), out);
            })?;
        }
        Vector::Strings(_) if wants_blob => return Err(STRINGS_HAVE_NO_BLOB),
        Vector::Strings(list) => {
            let elements = list.range(first, last);
            call.out.array(elements.len());
            elements.for_each(|element| call.out.bulk(element));
        }
    }
    Ok(Done)
}

fn set(call: &mut Call, txn: &mut Txn) -> Answer {
    let args = call.args;
    if args.len() % 2 == 1 {
        return Err(wrong_arity(call.command));
    }
    let vector = Vector::at(call, txn)?;
    let pairs = (2..args.len()).step_by(2).map(|at| Ok((vector.index(call, at)?, args.at(at + 1))));
    let pairs: Vec<(u64, &[u8])> = pairs.collect::<Result<_, Stop>>()?;
    if let Vector::Numbers(number, _) = vector {
        let mut elements = Vec::with_capacity(pairs.len() * number.size());
        pairs.iter().try_for_each(|(_, text)| number.parse(text, &mut elements))?;
        let each = elements.chunks_exact(number.size());
        let changes: Vec<Change> = pairs
            .iter()
            .zip(each)
            .map(|((index, _), bytes)| Change { at: place(number, *index), bytes })
            .collect();
        write_numbers(call, txn, &changes)
    } else {
        write_strings(call, txn, &pairs)
    }
}

fn set_range(call: &mut Call, txn: &mut Txn) -> Answer {
    let vector = Vector::at(call, txn)?;
    let index = vector.index(call, 2)?;
    let fits = |count: usize| match count as u64 <= vector.len() - index {
        true => Ok(()),
        false => Err(INDEX_OUT_OF_RANGE),
    };
    if let Vector::Numbers(number, _) = vector {
        let elements = elements(call, 3, number)?;
        fits(elements.len() / number.size())?;
        write_numbers(call, txn, &[Change { at: place(number, index), bytes: &elements }])
    } else {
        let elements = strings(call, 3)?;
        fits(elements.len())?;
        write_strings(call, txn, &(index..).zip(elements.iter()).collect::<Vec<_>>())
    }
}

fn write_numbers(call: &mut Call, txn: &mut Txn, changes: &[Change]) -> Answer {
    let key = call.args.at(1);
    txn.string_change(call.db(), key, 0, changes)?;
    call.notify(Class::STRING, "setrange", key);
    call.reply_ok()
}

fn write_strings(call: &mut Call, txn: &mut Txn, elements: &[(u64, &[u8])]) -> Answer {
    let key = call.args.at(1);
    if txn.list_set_each(call.db(), key, elements)? != Some(true) {
        return Err(INDEX_OUT_OF_RANGE);
    }
    call.notify(Class::LIST, "lset", key);
    call.reply_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_read_and_shown_as_they_are() {
        for (text, float) in [
            (&b"0.1"[..], 0.1f32),
            (b"16777217", 16_777_216.0),
            (b"-3.4028235e38", f32::MIN),
            (b"1e-45", f32::from_bits(1)),
            (b"0x1p-1", 0.5),
            (b"inf", f32::INFINITY),
            // Between two floats, nearer to the upper one by less than a double can tell.
            (b"1.00000005960464477540", f32::from_bits(0x3f80_0001)),
        ] {
            assert_eq!(parse_float(text), Some(float), "{}", text.escape_ascii());
            assert_eq!(shortest(float) as f32, float);
        }
        assert_eq!([parse_float(b"1e39"), parse_float(b"nan"), parse_float(b"x")], [None; 3]);
        assert_eq!(shortest(0.1f32), 0.1f64);
        assert!(shortest(f32::NAN).is_nan());
    }

    #[test]
    fn headers_tell_their_types() {
        let headers = NUMBERS.map(|(_, number)| number.header());
        assert_eq!(headers[0], *b"\0VECTOR\x01");
        assert_eq!(headers.map(|header| header[HEADER - 1]), [1, 2, 3, 4]);
    }
}
