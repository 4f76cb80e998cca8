//! The commands of vectors: replies, errors that change nothing, both ways of a number, what they lie on, and a model over kills.

use crate::harness::{Client, Rng, Server, is_error, seed, show};
use holdfast_resp::Reply;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_VECTOR: &str = "-WRONGTYPE Key is not a valid vector string value.";

#[test]
fn elements_are_read_and_replaced() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "vec.create i int32 values 1 -2 2147483647 => +OK
         vec.get i 0 -2 2 0 => [:1 :-2 :2147483647 :1]
         vec.set i 0 7 -1 -2147483648 0 8 => +OK
         vec.range i 0 -1 => [:8 :-2 :-2147483648]
         vec.range i 1 1 => [:-2]
         vec.range i 2 1 => []
         vec.range i -100 100 => [:8 :-2 :-2147483648]
         vec.setrange i 1 values 5 6 => +OK
         vec.range i 0 -1 => [:8 :5 :6]
         vec.info i => [type INT32 length :3]
         vec.create l INT64 len 3 => +OK
         vec.set l 1 9223372036854775807 2 -9223372036854775808 => +OK
         vec.range l 0 -1 => [:0 :9223372036854775807 :-9223372036854775808]
         vec.info l => [type INT64 length :3]
         vec.create f float values 0.1 1e-45 -inf 16777217 => +OK
         vec.range f 0 -1 => [0.1 1e-45 -inf 16777216]
         vec.create d double values 0.1 1e300 0x1p-1 -0 => +OK
         vec.range d 0 -1 => [0.1 1e+300 0.5 -0]
         vec.create s string values a bc d => +OK
         vec.set s 0 x -1 y => +OK
         vec.get s 0 1 -1 => [x bc y]
         vec.setrange s 1 values m n => +OK
         vec.range s 0 -1 => [x m n]
         vec.info s => [type STRING length :3]
         vec.create s string len 2 => +OK
         vec.range s 0 -1 => [ ]",
    );
    client.call("hello 3");
    client.run_script("vec.get d 0 => [,0.1]\n vec.get i 0 => [:8]\n vec.info i => {type INT32, length :3}");
}

#[test]
fn an_error_changes_nothing() {
    let server = Server::start(&["--proto-max-bulk-len", "1mb"]);
    let mut client = server.client();
    client.run_script(&format!(
        "vec.create i int32 values 1 2 3 => +OK
         vec.create s string values a b => +OK
         set text hello => +OK
         sadd set a => :1
         vec.set i 0 9 3 9 => -ERR index out of range
         vec.set i 0 9 -4 9 => -ERR index out of range
         vec.set i 0 9 x 9 => -ERR value is not an integer or out of range
         vec.set i 0 9 1 2147483648 => -ERR value is not an integer or out of range
         vec.set i 0 9 1 1.5 => -ERR value is not an integer or out of range
         vec.set i 0 9 1 => -ERR wrong number of arguments for 'vec.set' command
         vec.setrange i 2 values 9 9 => -ERR index out of range
         vec.setrange i 3 values 9 => -ERR index out of range
         vec.setrange i 0 values 9 x => -ERR value is not an integer or out of range
         vec.setrange i 0 values => -ERR wrong number of arguments for 'vec.setrange' command
         vec.setrange i 0 len 2 => -ERR syntax error
         vec.setrange i 0 blob abc => -ERR BLOB should have the bytes of one or more elements of the vector's type
         vec.setrange i 0 blob abcd efgh => -ERR syntax error
         vec.get i 0 3 => -ERR index out of range
         vec.get i -9223372036854775808 => -ERR index out of range
         vec.range i 0 -1 bytes => -ERR syntax error
         vec.range i 0 -1 blob blob => -ERR syntax error
         vec.range i 0 -1 => [:1 :2 :3]
         vec.set s 0 x 2 y => -ERR index out of range
         vec.setrange s 1 values x y => -ERR index out of range
         vec.setrange s 0 blob x => -ERR a vector of strings has no BLOB
         vec.range s 0 -1 blob => -ERR a vector of strings has no BLOB
         vec.range s 0 -1 => [a b]
         vec.create i int32 len 0 => -ERR value is out of range, must be positive
         vec.create i int32 len -1 => -ERR value is out of range, must be positive
         vec.create i int32 len 262143 => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         vec.create i int64 len 9223372036854775807 => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         vec.create i int8 len 1 => -ERR syntax error
         vec.create i int32 len 1 2 => -ERR syntax error
         vec.create i int32 values 1 x => -ERR value is not an integer or out of range
         vec.create i float values nan => -ERR value is not a valid float
         vec.create i float values 1e39 => -ERR value is not a valid float
         vec.create i double values x => -ERR value is not a valid float
         vec.create i string len 1048577 => -ERR LEN of a vector of strings should be at most 1048576
         vec.create i string blob x => -ERR a vector of strings has no BLOB
         vec.range i 0 -1 => [:1 :2 :3]
         vec.get none 0 => -ERR no such key
         vec.set none 0 1 => -ERR no such key
         vec.info none => -ERR no such key
         exists none => :0
         vec.get text 0 => {NOT_A_VECTOR}
         vec.set text 0 1 => {NOT_A_VECTOR}
         vec.setrange set 0 values 1 => {WRONG_TYPE}
         vec.info set => {WRONG_TYPE}
         vec.create i int32 len 262142 => +OK
         vec.info i => [type INT32 length :262142]"
    ));
    // A string that only begins like a vector.
    for damaged in [&b"\0VECTOR"[..], b"\0VECTOR\x05", b"\0VECTOR\x01abc"] {
        client.call_args(&[&b"set"[..], b"damaged", damaged]);
        assert_eq!(show(&client.call("vec.info damaged")), NOT_A_VECTOR);
    }
}

#[test]
fn elements_come_and_go_as_bytes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let doubles: Vec<f64> = (0..5000).map(|number| f64::from(number) / 7.0).chain([f64::NAN]).collect();
    let bytes: Vec<u8> = doubles.iter().flat_map(|double| double.to_le_bytes()).collect();
    client.call_args(&[&b"vec.create"[..], b"v", b"double", b"blob", &bytes]);
    assert_eq!(client.call("vec.range v 0 -1 blob"), Reply::Bulk(bytes.clone()));
    assert_eq!(show(&client.call("vec.get v 7 -1")), "[1 nan]");
    // From here on it lies in chunks.
    assert_eq!(show(&client.call("vec.set v 7 2.5")), "+OK");
    client.call_args(&[&b"vec.setrange"[..], b"v", b"510", b"blob", &bytes[..40]]);
    let mut expected = bytes.clone();
    expected[56..64].copy_from_slice(&2.5f64.to_le_bytes());
    expected[4080..4120].copy_from_slice(&bytes[..40]);
    assert_eq!(client.call("vec.range v 0 -1 blob"), Reply::Bulk(expected.clone()));
    assert_eq!(client.call("vec.range v 509 515 blob"), Reply::Bulk(expected[509 * 8..516 * 8].to_vec()));
    let Reply::Array(each) = client.call("vec.range v 0 -1") else { panic!("an array") };
    assert_eq!(show(&Reply::Array(each[509..512].to_vec())), "[72.71428571428571 0 0.14285714285714285]");
    assert_eq!(each.len(), doubles.len());
}

#[test]
fn vectors_are_strings_and_lists() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "sadd v member => :1
         vec.create v int32 values 1 2 => +OK
         type v => +string
         strlen v => :16
         expire v 1000 => :1
         vec.set v 0 5 => +OK
         ttl v => :1000
         vec.create v string values a b => +OK
         ttl v => :-1
         type v => +list
         lrange v 0 -1 => [a b]
         rpush v c => :3
         vec.get v 2 => [c]
         vec.create v int64 len 10 => +OK
         copy v w => :1
         vec.set w 0 7 => +OK
         vec.get v 0 => [:0]
         acl setuser reader on nopass ~v +@read => +OK
         auth reader x => +OK
         vec.get v 0 => [:0]
         vec.info v => [type INT64 length :10]",
    );
    for refused in ["vec.set v 0 1", "vec.create v int32 len 1", "vec.get w 0"] {
        assert!(is_error(&client.call(refused), "NOPERM"), "{refused}");
    }
}

#[test]
fn zeroes_take_no_memory_and_numbers_little_more_than_their_bytes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let usage = |client: &mut Client| match client.call("memory usage v") {
        Reply::Int(bytes) => bytes as f64,
        other => panic!("{other:?}"),
    };
    client.run_script("vec.create v double len 1000000 => +OK");
    assert!(usage(&mut client) < 100_000.0);
    let bytes = vec![1u8; 8_000_000];
    client.call_args(&[&b"vec.setrange"[..], b"v", b"0", b"blob", &bytes]);
    assert!(usage(&mut client) <= 1.05 * 8e6, "{}", usage(&mut client));
    client.run_script("vec.get v 999999 => [7.748604185489348e-304]");
}

/// A vector as a program would have it.
#[derive(Clone)]
enum Model {
    Numbers(&'static str, Vec<i32>),
    Strings(Vec<String>),
}

/// Calls a command on `v`, whose words the model chooses.
fn step(rng: &mut Rng, client: &mut Client, model: &mut Model) {
    let len = match model {
        Model::Numbers(_, numbers) => numbers.len(),
        Model::Strings(strings) => strings.len(),
    };
    let mut words: Vec<String> = vec!["vec.set".into(), "v".into()];
    match rng.below(12) {
        0 => {
            let most = if rng.one_in(2) { 20 } else { 6000 };
            let len = 1 + rng.below(most) as usize;
            let ty = ["INT32", "INT64", "FLOAT", "DOUBLE", "STRING"][rng.below(5) as usize];
            words = ["vec.create", "v", ty, "len", &len.to_string()].map(String::from).into();
            *model = match ty {
                "STRING" => Model::Strings(vec![String::new(); len]),
                _ => Model::Numbers(ty, vec![0; len]),
            };
        }
        choice => {
            // A FLOAT has 24 bits.
            let values: Vec<i32> =
                (0..1 + rng.below(30)).map(|_| rng.below(1 << 24) as i32 - (1 << 23)).collect();
            let begin = rng.below(len as u64) as usize;
            let in_a_row = choice < 4 && begin + values.len() <= len;
            if in_a_row {
                words = ["vec.setrange", "v", &begin.to_string(), "values"].map(String::from).into();
            }
            for (nth, value) in values.into_iter().enumerate() {
                let index = if in_a_row { begin + nth } else { rng.below(len as u64) as usize };
                match model {
                    Model::Numbers(_, numbers) => numbers[index] = value,
                    Model::Strings(strings) => strings[index] = value.to_string(),
                }
                if !in_a_row {
                    words.push(index.to_string());
                }
                words.push(value.to_string());
            }
        }
    }
    assert_eq!(show(&client.call_args(&words)), "+OK", "{words:?}");
}

fn compare(client: &mut Client, model: &Model) {
    let (ty, elements): (_, Vec<String>) = match model {
        Model::Numbers(ty, numbers) => {
            let sign = if ty.starts_with("INT") { ":" } else { "" };
            (*ty, numbers.iter().map(|number| format!("{sign}{number}")).collect())
        }
        Model::Strings(strings) => ("STRING", strings.clone()),
    };
    let info = format!("[type {ty} length :{}]", elements.len());
    assert_eq!(show(&client.call("vec.info v")), info);
    assert_eq!(show(&client.call("vec.range v 0 -1")), format!("[{}]", elements.join(" ")));
    let last = elements.last().expect("an element");
    assert_eq!(show(&client.call("vec.get v -1")), format!("[{last}]"));
}

#[test]
fn vectors_are_as_a_model_has_them_over_kills() {
    let mut rng = Rng(seed());
    let mut server = Server::start(&["--appendfsync", "always"]);
    let mut model = Model::Numbers("INT32", vec![0; 3]);
    server.client().run_script("vec.create v int32 len 3 => +OK");
    for _ in 0..4 {
        let mut client = server.client();
        for _ in 0..150 {
            step(&mut rng, &mut client, &mut model);
            if rng.one_in(10) {
                compare(&mut client, &model);
            }
        }
        drop(client);
        server = server.restart(Server::kill);
        compare(&mut server.client(), &model);
    }
}
