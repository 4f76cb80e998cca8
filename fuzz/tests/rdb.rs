//! Payloads of RESTORE, damaged in any way but with a good checksum: each is refused or makes a value that can be written
//! and read again, and none makes the decoder panic or take memory for what is not there. What it takes is counted.

use holdfast_fuzz::{Rng, fuzz};
use holdfast_rdb::{
    Result, Value, crc64, decode, encode,
    stream::{Consumer, Entry, Group, Pending, Stream},
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

/// Bytes that decoding may take for each byte of a payload with its strings decompressed, and besides.
const FACTOR: usize = 16;
const BESIDES: usize = 4 << 10;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    /// Bytes now, and the most since it was set.
    static TAKEN: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // Without it, the thread ends.
    let _ = TAKEN.try_with(|taken| {
        let (now, most) = taken.get();
        taken.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Decodes a payload whose strings are so many bytes longer when they are decompressed.
fn decode_in_bounds(payload: &[u8], longer: usize) -> Result<Value> {
    let before = TAKEN.get().0;
    TAKEN.set((before, before));
    let value = decode(payload);
    let taken = (TAKEN.get().1 - before) as usize;
    let limit = FACTOR * (payload.len() + longer) + BESIDES;
    assert!(taken <= limit, "{taken} bytes taken for a payload of {} and {longer}", payload.len());
    value
}

/// Types whose values begin with a string in which something is packed.
const PACKED: [u8; 8] = [9, 10, 11, 12, 13, 16, 17, 20];
const KINDS: u64 = 27;

fn write(value: &Value) -> Vec<u8> {
    match value {
        Value::String(value) => encode::string(value),
        Value::List(elements) => encode::list(elements.len() as u64, elements.iter()),
        Value::Set(members) => encode::set(members.len() as u64, members.iter()),
        Value::Zset(members) => encode::zset(members.len() as u64, members.iter()),
        Value::Stream(stream) => encode::stream(stream),
        Value::Hash(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|f| encode::Field { name: f.name, value: f.value, expires: f.expires });
            encode::hash(&fields.collect::<Vec<_>>())
        }
    }
}

fn stream(rng: &mut Rng) -> Stream {
    let entry = |at: u64, rng: &mut Rng| {
        let (names, values) = ([rng.bytes(5), rng.bytes(5)], [rng.bytes(20), rng.bytes(20)]);
        Entry { id: (1, at), names: Arc::new(names.iter().collect()), values: values.iter().collect() }
    };
    let consumer = |name| Consumer { name: vec![name], seen_ms: 1, active_ms: Some(1) };
    let pending = |at| Pending { id: (1, at), consumer: at as usize % 2, delivered_ms: at, deliveries: 1 };
    let group = |name| Group {
        name: vec![name],
        last: (1, 2),
        read: Some(2),
        consumers: vec![consumer(1), consumer(2)],
        pending: (1..4).map(pending).collect(),
    };
    Stream {
        entries: (1..1 + rng.below(4)).map(|at| entry(at, rng)).collect(),
        last: (2, 0),
        added: 9,
        deleted_max: (1, 0),
        groups: (0..rng.below(3) as u8).map(group).collect(),
    }
}

/// A payload that is sound, or nearly.
fn payload(rng: &mut Rng) -> Vec<u8> {
    let strings: Vec<Vec<u8>> =
        (0..1 + rng.below(6)).map(|at| [vec![at as u8], rng.bytes(40)].concat()).collect();
    let (count, slices) = (strings.len() as u64, || strings.iter().map(Vec::as_slice));
    match rng.below(9) {
        0 => encode::string(&strings[0]),
        1 => encode::list(count, slices()),
        2 => encode::set(count, slices()),
        3 => encode::zset(count, strings.iter().map(|member| (&member[..], member.len() as f64))),
        4 => {
            let field = |name: &Vec<u8>| encode::Field { name: name.clone(), value: vec![1], expires: 0 };
            encode::hash(&strings.iter().map(field).collect::<Vec<_>>())
        }
        5 | 6 => encode::stream(&stream(rng)),
        // A packed string with a sound header, filled with anything.
        _ => {
            let kind = PACKED[rng.index(PACKED.len())];
            let body = rng.bytes(60);
            let mut packed = match kind {
                9 => vec![rng.below(4) as u8],
                11 => [[2, 0, 0, 0], [body.len() as u8 / 2, 0, 0, 0]].concat(),
                10 | 12 | 13 => {
                    let total = body.len() as u8 + 11;
                    vec![total, 0, 0, 0, rng.below(u64::from(total)) as u8, 0, 0, 0, 255, 255]
                }
                _ => vec![body.len() as u8 + 7, 0, 0, 0, 255, 255],
            };
            packed.extend_from_slice(&body);
            if kind != 11 {
                packed.push(255);
            }
            let mut payload = encode::string(&packed);
            payload[0] = kind;
            payload
        }
    }
}

fn with_footer(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&9u16.to_le_bytes());
    bytes.extend_from_slice(&crc64(0, &bytes).to_le_bytes());
    bytes
}

/// A listpack.
fn listpack(entries: &[u8]) -> Vec<u8> {
    let total = entries.len() as u32 + 7;
    [&total.to_le_bytes()[..], &[255, 255], entries, &[255]].concat()
}

/// A string of a payload.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&[0x80][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// So many zeroes, compressed, as a string of a payload.
fn zeroes(count: usize) -> Vec<u8> {
    let copies = (count - 1) / 264;
    let body = [&[0, 0][..], &[0xe0, 255, 0].repeat(copies)].concat();
    let numbers = [body.len() as u32, 1 + copies as u32 * 264].map(u32::to_be_bytes);
    [&[0xc3, 0x80][..], &numbers[0], &[0x80], &numbers[1], &body].concat()
}

#[test]
fn small_payloads_do_not_take_much_memory() {
    const COUNT: usize = 100_000;
    // Empty strings, one by one in a listpack and numbers that follow each other.
    let empty = string(&listpack(&[0x80, 1].repeat(COUNT)));
    let numbers: Vec<u8> =
        (0..COUNT as u32).flat_map(|n| [&[0xf2][..], &n.to_le_bytes()[..3], &[4]].concat()).collect();
    let numbers = string(&listpack(&numbers));
    for kind in [16, 17, 20] {
        let _ = decode_in_bounds(&with_footer([&[kind][..], &empty].concat()), 0);
        let _ = decode_in_bounds(&with_footer([&[kind][..], &numbers].concat()), 0);
    }
    let list = with_footer([&[18, 1, 2][..], &empty].concat());
    assert!(matches!(decode_in_bounds(&list, 0), Ok(Value::List(list)) if list.len() == COUNT));
    let zeroes_only = zeroes(10 << 20);
    let longer = 10 << 20;
    assert!(decode_in_bounds(&with_footer([&[0][..], &zeroes_only].concat()), longer).is_ok());
    // Announced, and not there: the length of a compressed string, and the number of elements.
    let mut short = zeroes_only.clone();
    short[6..10].copy_from_slice(&(500u32 << 20).to_be_bytes());
    assert!(decode_in_bounds(&with_footer([&[0][..], &short].concat()), longer).is_err());
    assert!(decode_in_bounds(&with_footer([&[1, 0x80][..], &[127; 4]].concat()), 0).is_err());

    // A stream whose entries share a name that is long.
    for (name_len, is_sound) in [(100, true), (500_000, false)] {
        let name = [&[0xf0][..], &(name_len as u32).to_le_bytes(), &vec![b'n'; name_len]].concat();
        let behind = if name_len == 100 { vec![0x69] } else { vec![0x1e, 0xc2, 0xa5] };
        let count = 1000u16;
        let head = [&[0xf1][..], &count.to_le_bytes(), &[3, 0, 1, 1, 1], &name, &behind, &[0, 1]].concat();
        let entries: Vec<u8> = (0..count)
            .flat_map(|n| [&[2, 1, 0, 1, 0xf1][..], &n.to_le_bytes(), &[3, 0x80, 1, 4, 1]].concat())
            .collect();
        let node = string(&listpack(&[head, entries].concat()));
        let behind = [&[0x43, 0xe8][..], &[1, 0x47, 0xe7, 0]].concat();
        let key = string(&[&[0; 7][..], &[1], &[0; 8]].concat());
        let stream = with_footer([&[15, 1][..], &key, &node, &behind].concat());
        let value = decode_in_bounds(&stream, 0);
        assert_eq!(value.is_ok(), is_sound, "{:?}", value.err());
    }
}

#[test]
fn payloads() {
    fuzz(|rng| {
        let mut bytes = payload(rng);
        bytes.truncate(bytes.len() - 10);
        for _ in 0..rng.below(5) {
            rng.mutate(&mut bytes);
        }
        if rng.one_in(10) && !bytes.is_empty() {
            bytes[0] = rng.below(KINDS) as u8;
        }
        // A string may come to be a compressed one.
        let longer = 100 * bytes.len();
        if let Ok(value) = decode_in_bounds(&with_footer(bytes), longer) {
            assert_eq!(decode(&write(&value)), Ok(value));
        }
    });
}
