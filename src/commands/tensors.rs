//! AI.TENSOR…: tensors in the commands of RedisAI, on which SmartRedis builds.
//!
//! A tensor is a string: eight bytes that name the type of its elements, the number of its dimensions, each dimension, all
//! in eight bytes, little-endian, and then what BLOB has: the elements, or, of strings, each with a zero byte behind it.

use crate::{
    command::error::WRONG_TYPE,
    commands::{prelude::*, strings::TOO_LONG, vectors::parse_float},
};
use holdfast_resp::{parse_double, parse_int};
use holdfast_store::string::{Change, StringValue};
use std::ops::RangeInclusive;

const TENSOR: Command =
    Command { categories: Categories::STRING, since: "7.2.0", group: "tensor", ..Command::NEW };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "ai.tensorget",
        syntax: "key [META] [format<BLOB|VALUES>]",
        flags: Flags::READONLY,
        keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
        summary: "Returns a tensor: its type and shape, and its elements as bytes or one by one.",
        complexity: "O(N) where N is the number of elements.",
        ..TENSOR
    }
    .by(Keyed(get))
    .using(uses::bytes),
    Command {
        name: "ai.tensorset",
        syntax: "key type<FLOAT|DOUBLE|INT8|INT16|INT32|INT64|UINT8|UINT16|BOOL|STRING> dimension:i... [elements<BLOB=bytes|VALUES=value...>]",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
        summary: "Makes a tensor the value of a key, of elements given as bytes or as text, or of zeroes.",
        complexity: "O(N) where N is the number of elements in the call. Zeroes of a large tensor cost next to nothing.",
        ..TENSOR
    }
    .by(Keyed(set))
    .using(|_| vec![Use::Bytes(0, FIXED)]),
];

const NO_TENSOR: Stop = Stop::new("ERR tensor key is empty or in a different shard");
const BAD_TYPE: Stop = Stop::new("ERR invalid data type");
const BAD_SHAPE: Stop = Stop::new("ERR invalid or negative value found in tensor shape");
const BAD_VALUE: Stop = Stop::new("ERR invalid value");
const ONE_BLOB: Stop =
    Stop::new("ERR a single binary string should come after the BLOB argument in 'AI.TENSORSET' command");
const VALUES_MISSING: Stop = Stop::new("ERR wrong number of values was given in 'AI.TENSORSET' command");
const BAD_LENGTH: Stop = Stop::new("ERR data length does not match tensor shape and type");
const NOT_BOOLEAN: Stop = Stop::new("ERR BOOL tensor elements must be 0 or 1");
const ZERO_IN_STRING: Stop = Stop::new("ERR C-string value contains null character");
const STRINGS_MISSING: Stop =
    Stop::new("ERR Number of string elements in data blob does not match tensor length");
const BAD_FORMAT: Stop = Stop::new("ERR unsupported data format");
const BOTH_FORMATS: Stop = Stop::new("ERR both BLOB and VALUES specified");

/// How a tensor begins. The code of its type follows.
const MAGIC: [u8; WORD - 1] = *b"\0TENSOR";
/// Bytes of each word before the elements. No element lies across a multiple of it, and so across chunks of a large string.
const WORD: usize = 8;
/// Bytes before the dimensions.
const FIXED: usize = 2 * WORD;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Float = 1,
    Double = 2,
    Int8 = 3,
    Int16 = 4,
    Int32 = 5,
    Int64 = 6,
    Uint8 = 7,
    Uint16 = 8,
    Bool = 9,
    String = 10,
}

const ELEMENTS: [(&str, Element); 10] = [
    ("FLOAT", Element::Float),
    ("DOUBLE", Element::Double),
    ("INT8", Element::Int8),
    ("INT16", Element::Int16),
    ("INT32", Element::Int32),
    ("INT64", Element::Int64),
    ("UINT8", Element::Uint8),
    ("UINT16", Element::Uint16),
    ("BOOL", Element::Bool),
    ("STRING", Element::String),
];

impl Element {
    fn name(self) -> &'static str {
        ELEMENTS.iter().find(|(_, element)| *element == self).expect("one of ten types").0
    }

    /// Bytes of an element; of a string its zero byte.
    fn size(self) -> usize {
        match self {
            Element::Int8 | Element::Uint8 | Element::Bool | Element::String => 1,
            Element::Int16 | Element::Uint16 => 2,
            Element::Float | Element::Int32 => 4,
            Element::Double | Element::Int64 => 8,
        }
    }

    /// What an integer may be.
    fn range(self) -> RangeInclusive<i64> {
        match self {
            Element::Int8 => i8::MIN.into()..=i8::MAX.into(),
            Element::Int16 => i16::MIN.into()..=i16::MAX.into(),
            Element::Int32 => i32::MIN.into()..=i32::MAX.into(),
            Element::Uint8 => 0..=u8::MAX.into(),
            Element::Uint16 => 0..=u16::MAX.into(),
            Element::Bool => 0..=1,
            _ => i64::MIN..=i64::MAX,
        }
    }

    /// Appends the element that a text is.
    fn parse(self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
        match self {
            Element::Float => out.extend(parse_float(text).ok_or(BAD_VALUE)?.to_le_bytes()),
            Element::Double => out.extend(parse_double(text).ok_or(BAD_VALUE)?.to_le_bytes()),
            Element::String => {
                let text = text.strip_suffix(b"\0").unwrap_or(text);
                if text.contains(&0) {
                    return Err(ZERO_IN_STRING);
                }
                out.extend_from_slice(text);
                out.push(0);
            }
            _ => {
                let number = parse_int(text).filter(|number| self.range().contains(number));
                out.extend_from_slice(&number.ok_or(BAD_VALUE)?.to_le_bytes()[..self.size()]);
            }
        }
        Ok(())
    }

    /// Replies with a number.
    fn write(self, bytes: &[u8], out: &mut Writer) {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match self {
            Element::Float => out.double(f32::from_bits(word as u32).into()),
            Element::Double => out.double(f64::from_bits(word)),
            Element::Int8 => out.int((word as i8).into()),
            Element::Int16 => out.int((word as i16).into()),
            Element::Int32 => out.int((word as i32).into()),
            _ => out.int(word as i64),
        }
    }

    /// Whether bytes are so many elements.
    fn check(self, bytes: &[u8], count: u64) -> Result<(), Stop> {
        if self == Element::String {
            let ends = bytes.iter().filter(|&&byte| byte == 0).count() as u64;
            return if ends == count && bytes.ends_with(b"\0") { Ok(()) } else { Err(STRINGS_MISSING) };
        }
        if count.checked_mul(self.size() as u64) != Some(bytes.len() as u64) {
            return Err(BAD_LENGTH);
        }
        let is_bool = self != Element::Bool || bytes.iter().all(|&byte| byte <= 1);
        if is_bool { Ok(()) } else { Err(NOT_BOOLEAN) }
    }
}

/// What a tensor begins with.
fn header(element: Element, shape: &[u64]) -> Vec<u8> {
    let mut header = [&MAGIC[..], &[element as u8]].concat();
    header.extend((shape.len() as u64).to_le_bytes());
    header.extend(shape.iter().flat_map(|dimension| dimension.to_le_bytes()));
    header
}

/// A tensor, to read.
struct Tensor<'t> {
    element: Element,
    shape: Vec<u64>,
    /// How many elements the shape has.
    count: u64,
    value: StringValue<'t>,
    /// Where the elements begin.
    start: usize,
}

impl<'t> Tensor<'t> {
    /// The tensor at a call's key.
    fn at(call: &Call, txn: &'t mut Txn) -> Result<Tensor<'t>, Stop> {
        let value = txn.string_at(call.db(), call.args.at(1))?.ok_or(NO_TENSOR)?;
        Self::parse(value).ok_or(WRONG_TYPE)
    }

    /// The tensor that a string is. Other commands may have written the string.
    fn parse(value: StringValue<'t>) -> Option<Tensor<'t>> {
        let word = |at: usize| {
            let mut word = [0; WORD];
            value.copy_to(at, &mut word);
            word
        };
        let element = element_of(word(0))?;
        let dimensions = usize::try_from(u64::from_le_bytes(word(WORD))).ok()?;
        let start = dimensions.checked_mul(WORD)?.checked_add(FIXED).filter(|&start| start <= value.len())?;
        let shape: Vec<u64> = (FIXED..start).step_by(WORD).map(|at| u64::from_le_bytes(word(at))).collect();
        let count = count(&shape)?;
        let bytes = (value.len() - start) as u64;
        let fits = match element {
            Element::String => count <= bytes,
            element => count.checked_mul(element.size() as u64) == Some(bytes),
        };
        fits.then_some(Tensor { element, shape, count, value, start })
    }

    /// Replies with the elements as bytes.
    fn write_blob(&self, out: &mut Writer) {
        let bytes = self.start..self.value.len();
        out.bulk_of(bytes.len(), self.value.slices(bytes));
    }

    /// Replies with the elements one by one.
    fn write_values(&self, call: &mut Call) -> Result<(), Stop> {
        let slices = self.value.slices(self.start..self.value.len());
        if self.element == Element::String {
            let bytes = slices.collect::<Vec<_>>().concat();
            self.element.check(&bytes, self.count).map_err(|_| WRONG_TYPE)?;
            let mut texts = bytes.split(|&byte| byte == 0);
            call.out.array(self.count as usize);
            return call.repeat(self.count, |out| out.bulk(texts.next().expect("as many as were counted")));
        }
        let mut elements = slices.flat_map(|slice| slice.chunks_exact(self.element.size()));
        call.out.array(self.count as usize);
        call.repeat(self.count, |out| {
            self.element.write(elements.next().expect("as many as were counted"), out);
        })
    }
}

/// The type of elements that a tensor's first word names.
fn element_of(word: [u8; WORD]) -> Option<Element> {
    let code = *word.strip_prefix(&MAGIC)?.first()?;
    ELEMENTS.iter().map(|(_, element)| *element).find(|element| *element as u8 == code)
}

/// How many elements a shape has.
fn count(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1, |count: u64, &dimension| count.checked_mul(dimension))
}

fn set(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, args) = (call.db(), call.args);
    let key = args.at(1);
    if let Some(old) = txn.string_at(db, key)? {
        let mut word = [0; WORD];
        old.copy_to(0, &mut word);
        element_of(word).ok_or(WRONG_TYPE)?;
    }
    let element = ELEMENTS.iter().find(|(name, _)| call.is(2, name)).ok_or(BAD_TYPE)?.1;
    let mut shape = Vec::new();
    let mut at = 3;
    while at < args.len() && !call.is(at, "blob") && !call.is(at, "values") {
        let dimension = parse_int(args.at(at)).filter(|&dimension| dimension > 0);
        shape.push(dimension.ok_or(BAD_SHAPE)? as u64);
        at += 1;
    }
    let count = count(&shape).ok_or(TOO_LONG)?;
    let max = call.server().string_max() as u64;
    let fits = |bytes: usize| if bytes as u64 <= max { Ok(()) } else { Err(TOO_LONG) };
    let mut value = header(element, &shape);
    if call.is(at, "blob") {
        let [blob] = args.from(at + 1).iter().collect::<Vec<_>>()[..] else { return Err(ONE_BLOB) };
        element.check(blob, count)?;
        fits(value.len() + blob.len())?;
        value.reserve_exact(blob.len());
        value.extend_from_slice(blob);
        txn.set(db, key, &value, false)?;
    } else if at < args.len() {
        let texts = args.from(at + 1);
        if texts.len() as u64 != count {
            return Err(VALUES_MISSING);
        }
        texts.iter().try_for_each(|text| element.parse(text, &mut value))?;
        fits(value.len())?;
        txn.set(db, key, &value, false)?;
    } else {
        let zeroes = count.checked_mul(element.size() as u64);
        let len = zeroes.and_then(|zeroes| usize::try_from(zeroes).ok()?.checked_add(value.len()));
        let len = len.ok_or(TOO_LONG)?;
        fits(len)?;
        txn.string_create(db, key, len, &[Change { at: 0, bytes: &value }])?;
    }
    call.notify(Class::STRING, "set", key);
    call.reply_ok()
}

fn get(call: &mut Call, txn: &mut Txn) -> Answer {
    if call.args.len() > 4 {
        return Err(wrong_arity(call.command));
    }
    let tensor = Tensor::at(call, txn)?;
    let has = |word| (2..call.args.len()).any(|at| call.is(at, word));
    let (mut meta, mut blob, values) = (has("meta"), has("blob"), has("values"));
    if !(2..call.args.len()).all(|at| ["meta", "blob", "values"].iter().any(|word| call.is(at, word))) {
        return Err(BAD_FORMAT);
    }
    if blob && values {
        return Err(BOTH_FORMATS);
    }
    if call.args.len() == 2 {
        (meta, blob) = (true, true);
    }
    if meta {
        call.out.array(if blob || values { 6 } else { 4 });
        call.out.key("dtype").bulk(tensor.element.name());
        call.out.bulk("shape");
        call.out.array(tensor.shape.len());
        tensor.shape.iter().for_each(|&dimension| call.out.int(dimension as i64));
    }
    if blob {
        if meta {
            call.out.bulk("blob");
        }
        tensor.write_blob(&mut call.out);
    } else if values {
        if meta {
            call.out.bulk("values");
        }
        tensor.write_values(call)?;
    }
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_type_and_shape() {
        let expected = [&b"\0TENSOR\x06"[..], &2u64.to_le_bytes(), &3u64.to_le_bytes(), &4u64.to_le_bytes()];
        assert_eq!(header(Element::Int64, &[3, 4]), expected.concat());
        for (nth, (_, element)) in ELEMENTS.into_iter().enumerate() {
            assert_eq!(element as usize, nth + 1);
            assert_eq!(element_of(*header(element, &[]).first_chunk().unwrap()), Some(element));
        }
    }

    #[test]
    fn what_is_no_tensor_is_not_taken_for_one() {
        let tensor = [&header(Element::Int16, &[2, 3])[..], &[0; 12]].concat();
        let parse = |bytes: &[u8]| Tensor::parse(StringValue::Whole(bytes)).map(|tensor| tensor.shape);
        assert_eq!(parse(&tensor), Some(vec![2, 3]));
        for len in 0..tensor.len() {
            assert_eq!(parse(&tensor[..len]), None, "the first {len} bytes");
        }
        assert_eq!(parse(&[&tensor[..], b"x"].concat()), None);
        for dimensions in [u64::MAX, u64::MAX / 8, 3] {
            let mut other = tensor.clone();
            other[WORD..FIXED].copy_from_slice(&dimensions.to_le_bytes());
            assert_eq!(parse(&other), None, "{dimensions} dimensions");
        }
        let overflow = [&header(Element::Int16, &[1 << 63, 6])[..], &[0; 12]].concat();
        assert_eq!(parse(&overflow), None);
    }
}
