//! Values come back as they were written, and payloads of all encodings are read: of those that Redis writes today as it
//! has written them, of the older ones as their format says.

use holdfast_rdb::{
    Error, Field, Strings, VERSION_MAX, Value, crc64, decode, encode, functions,
    stream::{Consumer, Entry, Group, Id, Pending, Stream},
};

/// A payload with its footer.
fn payload(bytes: &[u8]) -> Vec<u8> {
    let mut payload = bytes.to_vec();
    payload.extend_from_slice(&9u16.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

fn read(bytes: &[u8]) -> Result<Value, Error> {
    decode(&payload(bytes))
}

/// A string of a payload.
fn string(bytes: &[u8]) -> Vec<u8> {
    let len = 0x4000 | bytes.len() as u16;
    [&len.to_be_bytes(), bytes].concat()
}

fn texts(texts: &[&str]) -> Strings {
    texts.iter().collect()
}

fn fields(pairs: &[(&str, &str)]) -> Value {
    let fields = pairs.iter().map(|(name, value)| Field {
        name: name.as_bytes(),
        value: value.as_bytes(),
        expires: 0,
    });
    Value::Hash(fields.collect())
}

fn scores(pairs: &[(&str, f64)]) -> Value {
    Value::Zset(pairs.iter().copied().collect())
}

#[test]
fn payloads_of_redis_are_read() {
    let string = |text: &str| Value::String(text.into());
    let x70 = "x".repeat(70);
    let cases: Vec<(&[u8], Value)> = vec![
        (b"\0\x05hello\x0a\0cr\xdfve4 \x0a", string("hello")),
        (b"\0\xc1\xc7\xcf\x0a\0g\xed\xa26\xb4\xdb&\xd0", string("-12345")),
        (
            b"\0\xc3\x0b$\x03abca\xe0\x15\x02\x01bc\x0a\0\x8e\x87\x91\xca\x11\0\x1e(",
            string(&"abc".repeat(12)),
        ),
        (
            b"\x12\x01\x02\xc3\x19@Y\x11Y\0\0\0\x04\0\x81a\x02\xc1,\x02\xdf\xfb\x02\xe0Fx\xe0<\0\x01H\xff\x0a\0@v\xb8\xf4\xae\xe0\x08\x94",
            Value::List(texts(&["a", "300", "-5", &x70])),
        ),
        (
            b"\x0b\x14\x04\0\0\0\x03\0\0\0\x90\xee\xfe\xff\x01\0\0\0\x02\0\0\0\x0a\0]\x9d\xf7\xda/C\xd0k",
            Value::Set(texts(&["-70000", "1", "2"])),
        ),
        (b"\x02\x01\x01a\x0a\0b\x96\xe9~D\xd2\x1am", Value::Set(texts(&["a"]))),
        // Of Valkey 8.0.
        (
            b"\x14\x0f\x0f\0\0\0\x03\0\x81a\x02\x0c\x01\xdf\xfd\x02\xff\x0b\0:\xbd\xdd\x96\x93\xcc\xc3\xf2",
            Value::Set(texts(&["a", "12", "-3"])),
        ),
        (
            b"\x11\x1d\x1d\0\0\0\x06\0\x81b\x02\x84-inf\x05\x81a\x02\x831.5\x04\x81c\x02\x03\x01\xff\x0a\0)p\xc5\x8f\xcd\xe6\xfc1",
            scores(&[("b", f64::NEG_INFINITY), ("a", 1.5), ("c", 3.0)]),
        ),
        (b"\x05\x01\x01a\0\0\0\0\0\0\xf8?\x0a\0E\xa3\xa8\x8fD\xe9Y\xda", scores(&[("a", 1.5)])),
        (b"\x04\x01\x01n\x01v\x0a\x006\x89\xe2\xd3\xbe\x8cp\x7f", fields(&[("n", "v")])),
        (
            b"\x1044\0\0\0\x0a\0\x81n\x02\x81v\x02\x0c\x01\xf2@B\x0f\x04\x81m\x02\xf4\0\0\0\0\0\0\0\x80\x09\x83big\x04\xf2\xff\xff\x7f\x04\x83low\x04\xf1\xff\xef\x03\xff\x0a\0D\xf3P\xe3\xc1\xd9\xff\xb0",
            fields(&[("n", "v"), ("12", "1000000"), ("m", "-9223372036854775808"), ("big", "8388607"), ("low", "-4097")]),
        ),
    ];
    for (payload, value) in cases {
        assert_eq!(decode(payload), Ok(value), "{}", payload.escape_ascii());
    }
}

/// A ziplist of entries with their encodings.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut tail, mut before) = (Vec::new(), 10, 0);
    for entry in entries {
        tail = 10 + body.len();
        let start = body.len();
        if before < 254 {
            body.push(before as u8);
        } else {
            body.push(254);
            body.extend_from_slice(&(before as u32).to_le_bytes());
        }
        body.extend_from_slice(entry);
        before = body.len() - start;
    }
    let total = 11 + body.len() as u32;
    let header =
        [&total.to_le_bytes()[..], &(tail as u32).to_le_bytes(), &(entries.len() as u16).to_le_bytes()];
    [&header.concat()[..], &body, &[255]].concat()
}

#[test]
fn older_encodings_are_read() {
    let long = [&[0x41, 0x2c][..], &[b'y'; 300]].concat();
    let list = ziplist(&[
        b"\x02ab",
        b"\xf1",
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x00\x80",
        b"\xf0\x00\x00\x80",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
        &long,
        b"\x80\x00\x00\x00\x01z",
    ]);
    let y300 = "y".repeat(300);
    let expected = texts(&[
        "ab",
        "0",
        "12",
        "-128",
        "-32768",
        "-8388608",
        "-2147483648",
        "-9223372036854775808",
        &y300,
        "z",
    ]);
    assert_eq!(read(&[&[10][..], &string(&list)].concat()), Ok(Value::List(expected.clone())));
    // A quicklist of two nodes, the first one empty.
    let quicklist = [&[14, 2][..], &string(&ziplist(&[])), &string(&list)].concat();
    assert_eq!(read(&quicklist), Ok(Value::List(expected)));

    let pairs = string(&ziplist(&[b"\x01a", b"\x031.5", b"\x01b", b"\xf3"]));
    assert_eq!(read(&[&[12][..], &pairs].concat()), Ok(scores(&[("a", 1.5), ("b", 2.0)])));
    assert_eq!(read(&[&[13][..], &pairs].concat()), Ok(fields(&[("a", "1.5"), ("b", "2")])));
    let zipmap = string(b"\x02\x01a\x02\x01vw?\x01b\x00\x00\xff");
    assert_eq!(read(&[&[9][..], &zipmap].concat()), Ok(fields(&[("a", "vw"), ("b", "")])));
    let zset = b"\x03\x04\x01a\x031.5\x01b\xfe\x01c\xff\x01d\x02-2";
    let expected = scores(&[("a", 1.5), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY), ("d", -2.0)]);
    assert_eq!(read(zset), Ok(expected));
    assert_eq!(
        read(b"\x01\x02\xc0\x80\xc2\x00\x00\x00\x80"),
        Ok(Value::List(texts(&["-128", "-2147483648"])))
    );
}

#[test]
fn expiring_fields_are_read() {
    let field = |name: &'static str, expires| Field { name: name.as_bytes(), value: b"v", expires };
    let hash =
        [&[24][..], &1000u64.to_le_bytes(), b"\x03\x01\x01a\x01v\x06\x01b\x01v\x00\x01c\x01v"].concat();
    let expected = Value::Hash([field("a", 1000), field("b", 1005), field("c", 0)].into_iter().collect());
    assert_eq!(read(&hash), Ok(expected));
    // Name, value and time in a listpack.
    let packed = b"\x10\x00\x00\x00\x03\x00\x81a\x02\x81v\x02\xc3\xe8\x02\xff";
    let hash = [&[25][..], &1000u64.to_le_bytes(), &string(packed)].concat();
    assert_eq!(read(&hash), Ok(Value::Hash([field("a", 1000)].into_iter().collect())));
}

#[test]
fn values_come_back() {
    let mut state = 5u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % end
    };
    for count in [1, 2, 63, 64, 500, 20_000] {
        let mut string = |at: u64| {
            let len = [0, 3, 70, 300][below(4) as usize] + if below(500) == 0 { 20_000 } else { 0 };
            [at.to_string().into_bytes(), vec![below(256) as u8; len]].concat()
        };
        let strings: Vec<Vec<u8>> = (0..count).map(&mut string).collect();
        let slices = || strings.iter().map(Vec::as_slice);
        assert_eq!(decode(&encode::string(&strings[0])), Ok(Value::String(strings[0].clone())));
        assert_eq!(decode(&encode::list(count, slices())), Ok(Value::List(strings.iter().collect())));
        assert_eq!(decode(&encode::set(count, slices())), Ok(Value::Set(strings.iter().collect())));
        let members: Vec<(Vec<u8>, f64)> =
            strings.iter().map(|s| (s.clone(), s.len() as f64 / 7.0)).collect();
        let borrowed = members.iter().map(|(member, score)| (&member[..], *score));
        assert_eq!(
            decode(&encode::zset(count, borrowed)),
            Ok(Value::Zset(members.iter().cloned().collect()))
        );
        for times in [0, 3] {
            let field = |(at, name): (usize, _)| Field {
                name,
                value: strings[at / 2].as_slice(),
                expires: if times == 0 { 0 } else { at as u64 % times * (1 << 40) },
            };
            let fields: Vec<Field> = slices().enumerate().map(field).collect();
            let borrowed: Vec<_> = fields
                .iter()
                .map(|f| encode::Field { name: f.name, value: f.value, expires: f.expires })
                .collect();
            assert_eq!(decode(&encode::hash(&borrowed)), Ok(Value::Hash(fields.into_iter().collect())));
        }
    }
}

fn entry(id: Id, pairs: &[(&str, &str)]) -> Entry {
    let names: Strings = pairs.iter().map(|(name, _)| name).collect();
    Entry { id, names: names.into(), values: pairs.iter().map(|(_, value)| value).collect() }
}

#[test]
fn streams_of_redis_are_read() {
    // Of Redis 7.0, and the same but for its consumers' times of Valkey 8.0.
    let payloads: [&[u8]; 2] = [
        b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xc3@L@R\x12R\x00\x00\x00 \x00\x03\x01\x01\x01\x02\x01\x81a\x02\x81b\x02\x00 \x09\x00\x00 \x01\x09\x01\x01\x83two\x04\x05\x01\x03`\x0c\x04\x03\x01\x04\x01\x05 \x09\x0d\x04\x01\xdf\xff\x02\x01\x01\x81c\x02\xc3\xe8\x02\x06 \x10\x00\x05\xa0\x10 <\x00x \x10\x00\xff\x03\x06\x00\x01\x01\x01\x02\x04\x02\x01g\x05\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xe8\x03\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x08\x02\x02c1o\xf5A\xfc\xa1\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x02c2o\xf5A\xfc\xa1\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x05other\x06\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x0a\x00\xcb\x02iK\x84w\xc65",
        b"\x15\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xc3@L@R\x12R\x00\x00\x00 \x00\x03\x01\x01\x01\x02\x01\x81a\x02\x81b\x02\x00 \x09\x00\x00 \x01\x09\x01\x01\x83two\x04\x05\x01\x03`\x0c\x04\x03\x01\x04\x01\x05 \x09\x0d\x04\x01\xdf\xff\x02\x01\x01\x81c\x02\xc3\xe8\x02\x06 \x10\x00\x05\xa0\x10 <\x00x \x10\x00\xff\x03\x06\x00\x01\x01\x01\x02\x04\x02\x01g\x05\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xe8\x03\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x08\x02\x02c1\xba\xf5A\xfc\xa1\x01\x00\x00\xba\xf5A\xfc\xa1\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x02c2\xba\xf5A\xfc\xa1\x01\x00\x00\xba\xf5A\xfc\xa1\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x05other\x06\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x0b\x00\xdcW\xf2\x1f\x81\x89\xd0\x8d",
    ];
    for (payload, seen_ms) in payloads.into_iter().zip([0x1a1_fc41_f56f, 0x1a1_fc41_f5ba]) {
        let consumer = |name: &str| Consumer { name: name.into(), seen_ms, active_ms: Some(seen_ms) };
        let expected = Stream {
            entries: vec![
                entry((1, 1), &[("a", "1"), ("b", "two")]),
                entry((5, 0), &[("c", "1000")]),
                entry((6, 0), &[("a", "x")]),
            ],
            last: (6, 0),
            added: 4,
            deleted_max: (1, 2),
            groups: vec![
                Group {
                    name: b"g".into(),
                    last: (5, 0),
                    read: None,
                    consumers: vec![consumer("c1"), consumer("c2")],
                    pending: vec![
                        Pending { id: (1, 1), consumer: 0, delivered_ms: 1000, deliveries: 7 },
                        Pending { id: (5, 0), consumer: 1, delivered_ms: 2000, deliveries: 8 },
                    ],
                },
                Group { name: b"other".into(), last: (6, 0), read: None, consumers: vec![], pending: vec![] },
            ],
        };
        assert_eq!(decode(payload), Ok(Value::Stream(Box::new(expected.clone()))));
        assert_eq!(decode(&encode::stream(&expected)), Ok(Value::Stream(Box::new(expected))));
    }
}

#[test]
fn streams_come_back() {
    for count in [0, 1, 99, 100, 101, 1000] {
        let long = "x".repeat(300);
        let fields = |at: u64| match at % 5 {
            0 => vec![("name", "value"), ("", &long)],
            1 => vec![("12", "-70000")],
            _ => vec![("name", ""), ("", "1")],
        };
        let id = |at: u64| {
            if at.is_multiple_of(7) { (at << 50, 0) } else { ((at / 7 * 7) << 50, u64::MAX - 10 + at % 7) }
        };
        let stream = Stream {
            entries: (0..count).map(|at| entry(id(at + 1), &fields(at))).collect(),
            last: (u64::MAX, u64::MAX),
            added: u64::MAX - 1,
            deleted_max: (3, u64::MAX),
            groups: vec![Group {
                name: b"g".into(),
                last: (1, 2),
                read: Some(5),
                consumers: vec![Consumer { name: b"c".into(), seen_ms: 5, active_ms: Some(5) }],
                pending: (1..count)
                    .map(|at| Pending { id: (at, 0), consumer: 0, delivered_ms: at, deliveries: at })
                    .collect(),
            }],
        };
        assert_eq!(decode(&encode::stream(&stream)), Ok(Value::Stream(Box::new(stream))), "{count}");
    }
}

#[test]
fn what_is_not_sound_is_refused() {
    let good = encode::string(b"hello");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(decode(&bad), Err(Error::Footer), "{at}");
        assert!(decode(&good[..at]).is_err());
    }
    let mut newer = good[..good.len() - 10].to_vec();
    newer.extend_from_slice(&(VERSION_MAX + 1).to_le_bytes());
    newer.extend_from_slice(&crc64(0, &newer).to_le_bytes());
    assert_eq!(decode(&newer), Err(Error::Footer));
    let list = ziplist(&[b"\x01a", b"\x01b"]);
    let changed = |at: usize, byte: u8| {
        let mut list = list.clone();
        list[at] = byte;
        [&[10][..], &string(&list)].concat()
    };
    let stream = Stream { entries: vec![entry((1, 1), &[("a", "b")])], last: (1, 1), ..Stream::default() };
    let good_stream = encode::stream(&stream);
    let empty_stream = b"\x13\0\0\0\0\0\0\0\0\0";
    assert!(read(&[&empty_stream[..], b"\0"].concat()).is_ok());
    for bad in [
        b"".to_vec(),
        b"\x00\x05hell".to_vec(),
        b"\x00\x01ab".to_vec(),
        b"\x00\xc4\x00".to_vec(),
        b"\x00\x82\x00".to_vec(),
        b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
        b"\x06\x00".to_vec(),
        // Announced and not there, or too much for a memory.
        b"\x01\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00".to_vec(),
        b"\x04\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00".to_vec(),
        b"\x00\xc3\x01\x80\x20\x00\x00\x00\x00".to_vec(),
        // Without elements, with one twice, with a half of one, with no number.
        b"\x01\x00".to_vec(),
        b"\x02\x00".to_vec(),
        b"\x02\x02\x01a\x01a".to_vec(),
        b"\x04\x02\x01a\x01v\x01a\x01w".to_vec(),
        [&[13][..], &string(&ziplist(&[b"\x01a"]))].concat(),
        [&[12][..], &string(&list)].concat(),
        [&[5, 1, 1, b'a'][..], &f64::NAN.to_le_bytes()].concat(),
        b"\x03\x01\x01a\xfd".to_vec(),
        b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x02\0\x01\0".to_vec(),
        b"\x0b\x0a\x03\0\0\0\x01\0\0\0\x02\0".to_vec(),
        b"\x12\x01\x03\x01a".to_vec(),
        // Streams: a node missing, a node damaged, a pending entry of nobody, an entry of a consumer only.
        b"\x13\0\x01\0\0\0\0\0\0\0\0".to_vec(),
        [&good_stream[..26], b"\xff", &good_stream[27..]].concat(),
        [&empty_stream[..], b"\x01\x01g\0\0\0\x01", &[0; 16], &[0; 8], b"\x01\0"].concat(),
        [&empty_stream[..], b"\x01\x01g\0\0\0\0\x01\x01c", &[0; 8], b"\x01", &[0; 16]].concat(),
        // Each field of the header, the length before an entry, an encoding, the end.
        changed(0, 9),
        changed(4, 10),
        changed(8, 3),
        changed(13, 4),
        changed(14, 0x90),
        changed(16, 0),
    ] {
        assert!(matches!(read(&bad), Err(Error::Malformed(_))), "{}", bad.escape_ascii());
    }
}

#[test]
fn libraries_of_functions() {
    let sources = [&b"short"[..], &[b'x'; 100], &[b'y'; 70_000]];
    let good = functions::encode(sources.into_iter());
    assert_eq!(functions::decode(&good).unwrap(), sources);
    assert_eq!(functions::decode(&functions::encode([].into_iter())), Ok(vec![]));
    for at in [0, 50, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(functions::decode(&bad), Err(Error::Footer), "{at}");
    }
    assert_eq!(functions::decode(b""), Err(Error::Footer));
    let compressed = b"\xf5\xc3\x05\x07\x01ab\x60\x01";
    assert_eq!(functions::decode(&payload(compressed)).unwrap(), [b"abababa"]);
    for (bad, what) in [
        (&b"\xf5\x05four"[..], "failed loading the given functions payload"),
        (b"\xf6\x01a", "Pre-GA function format not supported"),
        (b"\x00\x01a", "given type is not a function"),
    ] {
        assert_eq!(functions::decode(&payload(bad)), Err(Error::Malformed(what)));
    }
}
