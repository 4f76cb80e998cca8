//! Payloads of RESTORE, damaged in any way but with a good checksum: each is refused or makes a value that can be written
//! and read again, and none makes the decoder panic or take memory for what is not there.

use holdfast_fuzz::{Rng, fuzz};
use holdfast_rdb::{
    Field, Value, crc64, decode, encode,
    stream::{Consumer, Entry, Group, Pending, Stream},
};

/// Types whose values begin with a string in which something is packed.
const PACKED: [u8; 8] = [9, 10, 11, 12, 13, 16, 17, 20];
const KINDS: u64 = 27;

fn write(value: &Value) -> Vec<u8> {
    match value {
        Value::String(value) => encode::string(value),
        Value::List(elements) => encode::list(elements.len() as u64, elements.iter().map(Vec::as_slice)),
        Value::Set(members) => encode::set(members.len() as u64, members.iter().map(Vec::as_slice)),
        Value::Zset(members) => {
            encode::zset(members.len() as u64, members.iter().map(|(member, score)| (&member[..], *score)))
        }
        Value::Stream(stream) => encode::stream(stream),
        Value::Hash(fields) => {
            let field = |f: &Field| encode::Field {
                name: f.name.clone(),
                value: f.value.clone(),
                expires: f.expires,
            };
            encode::hash(&fields.iter().map(field).collect::<Vec<_>>())
        }
    }
}

fn stream(rng: &mut Rng) -> Stream {
    let entry =
        |at: u64, rng: &mut Rng| Entry { id: (1, at), fields: vec![(rng.bytes(5), rng.bytes(20)); 2] };
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
        bytes.extend_from_slice(&9u16.to_le_bytes());
        bytes.extend_from_slice(&crc64(0, &bytes).to_le_bytes());
        if let Ok(value) = decode(&bytes) {
            assert_eq!(decode(&write(&value)), Ok(value));
        }
    });
}
