//! Files are read record by record; what is damaged, cut or unknown is refused, and says where.

use holdfast_rdb::{
    Field, Strings, Value, crc64, encode,
    file::{Key, Reader, Record},
    unread::{self, Content, Unread},
    writer::{Newer, REDIS_7_2, Writer},
};

/// A file with its checksum.
fn file(magic: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = [magic.as_bytes(), body, &[255]].concat();
    bytes.extend_from_slice(&crc64(0, &bytes).to_le_bytes());
    bytes
}

/// All records of a file, or what is wrong with it. They are the same for who reads small values himself, but for the use of keys.
fn read(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let records = read_by(bytes, |_, _| Ok(false));
    let found = read_by(bytes, |reader, records| {
        let Some(Unread { name, expires_ms, content, .. }) = reader.next_unread() else { return Ok(false) };
        records.push(Record::Key(Key { name: name.into(), expires_ms, ..Key::default() }));
        records.push(value(match content {
            Content::Text(text) => Value::String(text.into()),
            Content::Serialized(kind, bytes) => unread::read(kind, bytes).map_err(|e| e.to_string())?,
        }));
        Ok(true)
    });
    assert_eq!(found.is_ok(), records.is_ok(), "{found:?} {records:?}");
    if let (Ok(records), Ok(found)) = (&records, found) {
        let without_use = |record: &Record| match record {
            Record::Key(key) => Record::Key(Key { idle_s: None, frequency: None, ..key.clone() }),
            record => record.clone(),
        };
        let all = |records: &[Record]| records.iter().map(without_use).collect::<Vec<_>>();
        assert_eq!(all(&found), all(records));
    }
    records
}

/// All records, of which `find` may find some, and says whether it has.
fn read_by<'b>(
    bytes: &'b [u8],
    find: impl Fn(&mut Reader<&'b [u8]>, &mut Vec<Record>) -> Result<bool, String>,
) -> Result<Vec<Record>, String> {
    let mut reader = Reader::new(bytes).map_err(|e| e.to_string())?;
    let mut records = Vec::new();
    loop {
        while find(&mut reader, &mut records)? {}
        match reader.next_record().map_err(|e| e.to_string())? {
            Some(record) => records.push(record),
            None => break,
        }
    }
    reader.end().map_err(|e| e.to_string())?;
    Ok(records)
}

/// A value that is read at once.
fn value(value: Value) -> Record {
    Record::Value { value, is_first: true, is_last: true }
}

fn key(name: &str) -> Record {
    Record::Key(Key { name: name.into(), ..Key::default() })
}

fn text(text: &str) -> Vec<u8> {
    let len = 0x4000 | text.len() as u16;
    [&len.to_be_bytes(), text.as_bytes()].concat()
}

/// A file with a record of each kind.
fn sample() -> (Vec<u8>, Vec<Record>) {
    let body = [
        &[250][..],
        &text("redis-ver"),
        &text("7.2.6"),
        &[245],
        &text("#!lua name=x"),
        &[254, 3, 251, 9, 2, 244, 5, 4, 2],
        // A string that expires at a millisecond, and a list that was not used for a minute and has an expiry in seconds.
        &[252],
        &5_000_000_000_123u64.to_le_bytes(),
        &[0],
        &text("s"),
        &[0xc0, 7, 248, 60, 253],
        &2_000_000_000u32.to_le_bytes(),
        &[1],
        &text("l"),
        &[2, 1, b'a', 1, b'b', 249, 200, 2],
        &text("f"),
        &[1, 1, b'm', 5],
        &text("z"),
        &[1, 1, b'm'],
        &1.5f64.to_le_bytes(),
        // Nothing in a set, as a version before 7 may have left it.
        &[2],
        &text("nothing"),
        &[0],
    ]
    .concat();
    let records = vec![
        Record::Aux("redis-ver".into(), "7.2.6".into()),
        Record::Library("#!lua name=x".into()),
        Record::Database(3),
        Record::Sizes(9, 2),
        Record::Key(Key { name: "s".into(), expires_ms: Some(5_000_000_000_123), ..Key::default() }),
        value(Value::String("7".into())),
        Record::Key(Key {
            name: "l".into(),
            expires_ms: Some(2_000_000_000_000),
            idle_s: Some(60),
            frequency: None,
        }),
        value(Value::List(["a", "b"].iter().collect())),
        Record::Key(Key { name: "f".into(), frequency: Some(200), ..Key::default() }),
        value(Value::Set(["m"].iter().collect())),
        key("z"),
        value(Value::Zset([("m", 1.5)].into_iter().collect())),
        key("nothing"),
        Record::Nothing,
    ];
    (file("REDIS0011", &body), records)
}

#[test]
fn records_come_in_their_order() {
    let (bytes, records) = sample();
    assert_eq!(read(&bytes).unwrap(), records);
    // Without a checksum, as the option rdbchecksum makes it, and before there was one.
    let mut unsummed = bytes.clone();
    let end = unsummed.len() - 8;
    unsummed[end..].fill(0);
    assert_eq!(read(&unsummed).unwrap(), records);
    assert_eq!(read(b"REDIS0004\x00\x01k\x01v\xff").unwrap(), [key("k"), value(Value::String("v".into()))]);
}

#[test]
fn small_values_are_found_without_being_read() {
    // A set in a listpack that says how many members there are, and a string that is compressed: "abcabcabc" and so on.
    let listpack = |members: &[&[u8; 2]]| {
        let entries: Vec<u8> =
            members.iter().flat_map(|text| [0x82, text[0], text[1], 3]).chain([255]).collect();
        let (total, count) = (6 + entries.len() as u32, members.len() as u16);
        [&total.to_le_bytes()[..], &count.to_le_bytes(), &entries].concat()
    };
    let packed = |string: &[u8]| [&[string.len() as u8][..], string].concat();
    let compressed = [0xc3, 7, 30, 2, b'a', b'b', b'c', 0xe0, 18, 2];
    let (set, twice, none) = (listpack(&[b"aa", b"bb"]), listpack(&[b"aa", b"aa"]), listpack(&[]));
    let expiry = [&[252][..], &5_000_000_000_123u64.to_le_bytes()].concat();
    let names = |from: &[u8]| [&[20][..], from].concat();
    let body = [
        names(&[1, b's']),
        packed(&set),
        names(&[1, b't']),
        packed(&twice),
        [&expiry[..], &[0, 0xc1, 0x39, 0x30, 1, b'v']].concat(),
        [&[248, 60, 249, 200, 0][..], &compressed, &[0xc0, 7]].concat(),
        [&[2][..], &text("members"), &[2, 1, b'a'], &compressed].concat(),
        [&[18][..], &text("list"), &[2, 1, 1, b'a', 2], &packed(&set)].concat(),
        [&[0][..], &text("last"), &compressed].concat(),
        // These are not for here: there is nothing in it, and it has too many bytes.
        [&names(&[1, b'n'])[..], &packed(&none)].concat(),
        [&[0, 1, b'l', 0x80, 0, 1, 0, 1][..], &[b'x'; 0x10001]].concat(),
    ];
    let bytes = file("REDIS0011", &body.concat());
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut next = |name: &str, expires_ms, content, elements, bytes| {
        let expected = Unread { name: name.as_bytes(), expires_ms, content, elements, bytes };
        assert_eq!(reader.next_unread(), Some(expected));
    };
    let long = "abc".repeat(10);
    let (packed_set, packed_twice, members) =
        (packed(&set), packed(&twice), [&[2, 1, b'a'][..], &compressed].concat());
    next("s", None, Content::Serialized(20, &packed_set), 2, set.len() + 40);
    next("t", None, Content::Serialized(20, &packed_twice), 2, twice.len() + 40);
    next("12345", Some(5_000_000_000_123), Content::Text(b"v"), 1, 1);
    next(&long, None, Content::Serialized(0, &[0xc0, 7]), 1, 11);
    next("members", None, Content::Serialized(2, &members), 2, 31);
    let list = [&[2, 1, 1, b'a', 2][..], &packed(&set)].concat();
    next("list", None, Content::Serialized(18, &list), 3, 1 + set.len() + 40);
    next("last", None, Content::Serialized(0, &compressed), 1, 30);
    assert_eq!(reader.next_unread(), None);
    assert_eq!(reader.next_record().unwrap(), Some(key("n")));
    assert_eq!(reader.next_unread(), None, "half of the key was read");
    assert_eq!(reader.next_record().unwrap(), Some(Record::Nothing));
    assert_eq!(reader.next_unread(), None);
    assert_eq!(reader.next_record().unwrap(), Some(key("l")));
    assert!(matches!(reader.next_record().unwrap(), Some(Record::Value { .. })));
    assert_eq!(reader.next_record().unwrap(), None);
    reader.end().unwrap();
    // Who reads a value finds out what is damaged.
    assert_eq!(unread::read(20, &packed(&set)).unwrap(), Value::Set(["aa", "bb"].iter().collect()));
    assert_eq!(unread::read(0, &compressed).unwrap(), Value::String(long.into()));
    assert!(unread::read(20, &packed(&twice)).is_err() && unread::read(0, &set).is_err());
}

#[test]
fn what_follows_the_end_is_left() {
    let (mut bytes, _) = sample();
    bytes.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    let mut reader = Reader::new(&bytes[..]).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut reader.into_rest(), &mut rest).unwrap();
    assert_eq!(rest, "*1\r\n$4\r\nPING\r\n");
    assert!(read(&bytes).unwrap_err().contains("something follows the end"));
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unseen() {
    let (bytes, _) = sample();
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).unwrap_err();
        assert!(error.contains("cut short") || error.contains("too short"), "{len}: {error}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let result = read(&damaged);
        assert!(result.is_err(), "bit {bit}: {result:?}");
    }
}

#[test]
fn large_collections_come_in_pieces() {
    const COUNT: usize = 10_000;
    let strings: Vec<String> = (0..COUNT).map(|n| format!("element {n}")).collect();
    let count = [&[0x80][..], &(COUNT as u32).to_be_bytes()].concat();
    let half = [&[0x80][..], &(COUNT as u32 / 2).to_be_bytes()].concat();
    let all: Vec<u8> = strings.iter().flat_map(|string| text(string)).collect();
    let scored: Vec<u8> =
        strings.iter().flat_map(|s| [text(s), 2f64.to_le_bytes().to_vec()].concat()).collect();
    let timed: Vec<u8> =
        strings.chunks(2).flat_map(|pair| [vec![8], text(&pair[0]), text(&pair[1])].concat()).collect();
    let nodes: Vec<u8> = strings.iter().flat_map(|string| [vec![1], text(string)].concat()).collect();
    let bodies = [
        (1, [&count[..], &all].concat()),
        (2, [&count[..], &all].concat()),
        (4, [&half[..], &all].concat()),
        (5, [&count[..], &scored].concat()),
        (18, [&count[..], &nodes].concat()),
        (24, [&1000u64.to_le_bytes()[..], &half, &timed].concat()),
    ];
    for (kind, body) in bodies {
        let records = read(&file("REDIS0012", &[&[kind, 1, b'k'], &body[..]].concat())).unwrap();
        assert_eq!(records[0], key("k"));
        let (mut found, mut pieces) = (Vec::new(), 0);
        for (at, record) in records[1..].iter().enumerate() {
            let Record::Value { value, is_first, is_last } = record else { panic!("{record:?}") };
            assert_eq!((*is_first, *is_last), (at == 0, at == records.len() - 2));
            let mut add = |string: &[u8]| found.push(String::from_utf8(string.to_vec()).unwrap());
            match value {
                Value::List(strings) | Value::Set(strings) => strings.iter().for_each(add),
                Value::Zset(members) => members.iter().for_each(|(member, score)| {
                    assert_eq!(score, 2.0);
                    add(member);
                }),
                Value::Hash(fields) => fields.iter().for_each(|field| {
                    assert_eq!(field.expires, if kind == 24 { 1007 } else { 0 });
                    add(field.name);
                    add(field.value);
                }),
                _ => panic!("{value:?}"),
            }
            pieces += 1;
        }
        assert!(pieces > 2, "type {kind} in {pieces} pieces");
        assert_eq!(found, strings, "type {kind}");
    }
}

#[test]
fn empty_nodes_of_a_list_are_passed_over() {
    // An empty listpack: its length, its number of entries, its end.
    let empty = [&[2, 7][..], &[7, 0, 0, 0, 0, 0, 255]].concat();
    let plain = |string: &str| [vec![1], text(string)].concat();
    let list = |nodes: &[Vec<u8>]| {
        let count = [&[0x80][..], &(nodes.len() as u32).to_be_bytes()].concat();
        read(&file("REDIS0011", &[&[18, 1, b'k'], &count[..], &nodes.concat()].concat())).unwrap()
    };
    let several = || value(Value::List(["a", "b"].iter().collect()));
    // More of them in front than a piece has elements: the value begins with the first element all the same.
    let in_front = [vec![empty.clone(); 5000], vec![plain("a"), empty.clone(), plain("b")]].concat();
    assert_eq!(list(&in_front), [key("k"), several()]);
    assert_eq!(list(&[plain("a"), plain("b"), empty.clone()]), [key("k"), several()]);
    assert_eq!(list(&vec![empty.clone(); 5000]), [key("k"), Record::Nothing]);
    // Behind a full piece, nothing of the value is left but that it ends.
    let behind = list(&[vec![plain("x"); 2048], vec![empty; 3]].concat());
    let Record::Value { is_first: true, is_last: false, .. } = &behind[1] else { panic!("{behind:?}") };
    let end = Record::Value { value: Value::List(Strings::default()), is_first: false, is_last: true };
    assert_eq!(behind[2..], [end]);
}

#[test]
fn fields_expire_in_each_format() {
    let body = |kind: u8, value: &[u8]| [&[kind, 1, b'h'], value].concat();
    let field = |name, value, expires| Field { name, value, expires };
    let expected = || {
        let fields = [field(&b"a"[..], &b"1"[..], 2_000_000_000_000), field(b"b", b"2", 0)];
        vec![key("h"), value(Value::Hash(fields.into_iter().collect()))]
    };
    let time = 2_000_000_000_000u64;
    // Valkey 9: the time behind each value, or -1.
    let valkey = [&[2, 1, b'a', 1, b'1'][..], &time.to_le_bytes(), &[1, b'b', 1, b'2'], &[255; 8]].concat();
    assert_eq!(read(&file("VALKEY080", &body(22, &valkey))).unwrap(), expected());
    // Redis 7.4, and its release candidates, which wrote the time as it is.
    let redis = [&time.to_le_bytes()[..], &[2, 1, 1, b'a', 1, b'1', 0, 1, b'b', 1, b'2']].concat();
    assert_eq!(read(&file("REDIS0012", &body(24, &redis))).unwrap(), expected());
    let early = [&[2, 0x81][..], &time.to_be_bytes(), &[1, b'a', 1, b'1', 0, 1, b'b', 1, b'2']].concat();
    assert_eq!(read(&file("REDIS0012", &body(22, &early))).unwrap(), expected());
}

#[test]
fn what_is_not_known_is_named() {
    // The module "ReJSON-RL" in its encoding of a name.
    let name = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id = b"ReJSON-RL"
        .iter()
        .fold(0u64, |id, c| id << 6 | name.iter().position(|known| known == c).unwrap() as u64)
        << 10;
    let id = [&[0x81][..], &id.to_be_bytes()].concat();
    for (bytes, error) in [
        (file("REDIS0013", b""), "version REDIS0013 of the format is not known"),
        (file("REDIS0000", b""), "version REDIS0000 of the format is not known"),
        (file("VALKEY081", b""), "version VALKEY081 of the format is not known"),
        (file("REDIS00x1", b""), "version REDIS00x1 of the format is not known"),
        (file("SQLite format 3", b""), "begins with neither REDIS nor VALKEY"),
        (file("REDIS0011", b"\x08\x01k"), "at byte 12: the key \"k\" is of a type that is not known: 8"),
        (file("REDIS0012", b"\x1a\x01k"), "the key \"k\" is of a type that is not known: 26"),
        (file("VALKEY080", b"\x18\x01k"), "the key \"k\" is of a type that is not known: 24"),
        (file("REDIS0011", &[b"\x07\x01k", &id[..]].concat()), "the key \"k\" is of the module ReJSON-RL"),
        (file("REDIS0011", &[b"\xf7", &id[..]].concat()), "data of the module ReJSON-RL"),
        (file("REDIS0011", b"\xf6"), "functions of a release candidate of Redis 7.0"),
        (file("VALKEY080", b"\xf3"), "a slot migration of Valkey"),
        (file("REDIS0011", b"\xf8\x01\xfe\x00"), "an expiry or a use of no key"),
        (
            file("REDIS0011", b"\x02\x01k\x02\x01a\x01a"),
            "an element is there twice, in the value of the key \"k\"",
        ),
        (
            file("REDIS0011", b"\x00\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff"),
            "a string of more than 4000 MiB",
        ),
    ] {
        let text = read(&bytes).unwrap_err();
        assert!(text.contains(error), "{text}");
    }
}

/// Reads what it has, and then fails.
struct Failing<'b>(&'b [u8]);

impl std::io::Read for Failing<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(std::io::Error::other("the medium is worn out")),
            len => Ok(len),
        }
    }
}

#[test]
fn what_the_system_says_is_told() {
    let (bytes, _) = sample();
    let error = Reader::new(Failing(&bytes)).err().unwrap().to_string();
    assert_eq!(error, "the medium is worn out");
}

#[test]
fn what_is_written_is_read() {
    let list = encode::list(1, [&b"element"[..]]);
    let long = vec![b'x'; 1 << 20];
    let mut writer = Writer::new(Vec::new(), REDIS_7_2);
    writer.aux("redis-ver", "7.2.4").unwrap();
    writer.library(b"#!lua name=x").unwrap();
    assert_eq!(writer.key(3, b"l", Some(5_000_000_000_123), &list).unwrap(), Ok(()));
    assert_eq!(writer.key(3, b"s", None, &encode::string(&long)).unwrap(), Ok(()));
    // A hash whose fields expire has no place in it.
    let field = encode::Field { name: &b"f"[..], value: &b"v"[..], expires: 5 };
    assert_eq!(writer.key(4, b"h", Some(1), &encode::hash(&[field])).unwrap(), Err(Newer(12)));
    assert_eq!(writer.key(0, b"t", None, &encode::string(b"")).unwrap(), Ok(()));
    let bytes = writer.finish().unwrap();
    assert!(bytes.starts_with(b"REDIS0011"));
    let (body, sum) = bytes.split_at(bytes.len() - 8);
    assert_eq!(sum, crc64(0, body).to_le_bytes());
    let expires =
        Record::Key(Key { name: b"l".into(), expires_ms: Some(5_000_000_000_123), ..Key::default() });
    let expected = vec![
        Record::Aux(b"redis-ver".into(), b"7.2.4".into()),
        Record::Library(b"#!lua name=x".into()),
        Record::Database(3),
        expires,
        value(Value::List([&b"element"[..]].into_iter().collect())),
        key("s"),
        value(Value::String(long)),
        Record::Database(0),
        key("t"),
        value(Value::String(Vec::new())),
    ];
    assert_eq!(read(&bytes).unwrap(), expected);
}
