//! RDB files, damaged in any way but with a good checksum: each is read to its end or refused, and none makes the reader
//! panic or say twice as much as there is.

use holdfast_fuzz::{Rng, fuzz};
use holdfast_rdb::{
    Value, crc64, encode,
    file::{Reader, Record},
    unread::{self, Content},
};
use std::io::Read;

/// Gives as few bytes at a time as it likes.
struct Dripping<'b, 'r>(&'b [u8], &'r mut Rng);

impl Read for Dripping<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = out.len().min(1 + self.1.index(50));
        self.0.read(&mut out[..len])
    }
}

/// What a value begins with, and the rest, as they stand around its key.
fn put_key(body: &mut Vec<u8>, name: &[u8], payload: &[u8]) {
    body.extend_from_slice(&[payload[0], name.len() as u8]);
    body.extend_from_slice(name);
    body.extend_from_slice(&payload[1..payload.len() - 10]);
}

fn body(rng: &mut Rng) -> Vec<u8> {
    let mut body = Vec::new();
    for at in 0..rng.below(6) {
        let strings: Vec<Vec<u8>> =
            (0..1 + rng.below(5)).map(|n| [vec![n as u8], rng.bytes(30)].concat()).collect();
        let count = strings.len() as u64;
        let payload = match rng.below(12) {
            0 => encode::string(&strings[0]),
            1 => encode::list(count, strings.iter().map(Vec::as_slice)),
            2 => encode::set(count, strings.iter().map(Vec::as_slice)),
            3 => encode::zset(count, strings.iter().map(|member| (&member[..], 1.0))),
            4 => {
                let field =
                    |name: &Vec<u8>| encode::Field { name: name.clone(), value: vec![1], expires: at };
                encode::hash(&strings.iter().map(field).collect::<Vec<_>>())
            }
            5 => {
                body.extend_from_slice(&[252]);
                body.extend_from_slice(&rng.draw().to_le_bytes());
                continue;
            }
            6 => {
                body.extend_from_slice(&[248, rng.below(64) as u8]);
                continue;
            }
            7 => {
                body.extend_from_slice(&[249, rng.below(256) as u8]);
                continue;
            }
            8 => {
                body.extend_from_slice(&[254, rng.below(16) as u8, 251, 1, 1]);
                continue;
            }
            9 => {
                body.extend_from_slice(&[244, 1, 2, 3, 245, 1, b'x', 250, 1, b'a', 1, b'b']);
                continue;
            }
            _ => {
                body.push(rng.below(256) as u8);
                body.extend_from_slice(&rng.bytes(40));
                continue;
            }
        };
        let name = rng.bytes(10);
        put_key(&mut body, &name, &payload);
    }
    body
}

fn elements_of(value: &Value) -> usize {
    match value {
        Value::String(_) | Value::Stream(_) => 1,
        Value::List(strings) | Value::Set(strings) => strings.len(),
        Value::Zset(members) => members.len(),
        Value::Hash(fields) => fields.len(),
    }
}

#[test]
fn files() {
    fuzz(|rng| {
        let magic = ["REDIS0011", "REDIS0012", "VALKEY080"][rng.index(3)];
        let mut bytes = [magic.as_bytes(), &body(rng)].concat();
        for _ in 0..rng.below(3) {
            rng.mutate(&mut bytes);
        }
        bytes.push(255);
        bytes.extend_from_slice(&crc64(0, &bytes).to_le_bytes());
        let (mut records, mut elements) = (0, 0);
        let input = bytes.clone();
        let finds = rng.below(2) == 0;
        let Ok(mut reader) = Reader::new(Dripping(&input, rng)) else { return };
        loop {
            while let Some(unread) = if finds { reader.next_unread() } else { None } {
                records += 2;
                if let Content::Serialized(kind, bytes) = unread.content
                    && let Ok(value) = unread::read(kind, bytes)
                {
                    elements += elements_of(&value);
                }
            }
            let Ok(Some(record)) = reader.next_record() else { break };
            records += 1;
            if let Record::Value { value, .. } = record {
                elements += elements_of(&value);
            }
            assert!(reader.position() <= bytes.len() as u64);
        }
        assert!(
            records <= bytes.len() && elements <= 300 * bytes.len(),
            "{records} records, {elements} elements"
        );
    });
}
