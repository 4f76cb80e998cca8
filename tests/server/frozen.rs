//! Collections that are not in use leave memory, and nobody can tell.

use crate::harness::{
    self, Client, Rng, Server, assert_sound, bulk, bulks, long_form, noise, number, ok, seed, show, text,
};
use holdfast_resp::{Reply, write_command};
use std::{
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// Memory of a server beside what `maxmemory` limits; see `memory.rs`.
const BASE: u64 = 96 * MIB;

/// What is at a key, told by the key's number: how it is made, and how it is read.
struct Made {
    make: Vec<Vec<u8>>,
    read: Vec<Vec<u8>>,
    is_sorted: bool,
    reply: Vec<Vec<u8>>,
    bytes: u64,
}

fn made(n: u64) -> Made {
    let (elements, len): (u64, usize) = match n % 50 {
        0 => (400, 60),
        1..25 => (20, 50),
        _ => (10, 400),
    };
    let element = |i: u64| {
        let mut element = format!("{i}:").into_bytes();
        element.extend_from_slice(&noise(n << 32 | i, len - element.len()));
        element
    };
    let key = key(n).into_bytes();
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let (mut reply, mut items) = (Vec::new(), Vec::new());
    for i in 0..elements {
        let element = element(i);
        match n % 4 {
            0 => items.extend([i.to_string().into_bytes(), element.clone()]),
            1 => items.extend([i.to_string().into_bytes(), element.clone()]),
            _ => items.push(element.clone()),
        }
        match n % 4 {
            1 => reply.extend([element, i.to_string().into_bytes()]),
            0 => reply.extend([i.to_string().into_bytes(), element]),
            _ => reply.push(element),
        }
    }
    let (verb, read, is_sorted) = match n % 4 {
        0 => ("HSET", words(&["HGETALL", ""]), true),
        1 => ("ZADD", words(&["ZRANGE", "", "0", "-1", "WITHSCORES"]), false),
        2 => ("RPUSH", words(&["LRANGE", "", "0", "-1"]), false),
        _ => ("SADD", words(&["SMEMBERS", ""]), true),
    };
    if is_sorted {
        reply.sort();
    }
    let mut make = words(&[verb]);
    make.push(key.clone());
    make.extend(items);
    let mut read = read;
    read[1] = key;
    let bytes = make.iter().map(|arg| arg.len() as u64).sum();
    Made { make, read, is_sorted, reply, bytes }
}

fn key(n: u64) -> String {
    format!("collection:{n}")
}

/// Reads keys and compares every element.
fn read(client: &mut Client, keys: &[u64]) {
    for chunk in keys.chunks(50) {
        let expected: Vec<Made> = chunk.iter().map(|&n| made(n)).collect();
        let mut requests = Vec::new();
        expected.iter().for_each(|made| write_command(&mut requests, &made.read));
        client.send(&requests);
        for (made, n) in expected.iter().zip(chunk) {
            let Reply::Array(elements) = client.reply() else { panic!("{} is no array", key(*n)) };
            let mut elements: Vec<Vec<u8>> = elements
                .into_iter()
                .map(|element| match element {
                    Reply::Bulk(bytes) => bytes,
                    other => panic!("{other:?}"),
                })
                .collect();
            if made.is_sorted {
                elements.sort();
            }
            assert!(elements == made.reply, "{}", key(*n));
        }
    }
}

/// Replies a second to HGET on these hashes.
fn hget_rate(client: &mut Client, keys: &[u64]) -> u64 {
    let started = Instant::now();
    for chunk in keys.chunks(16) {
        let mut requests = Vec::new();
        chunk.iter().for_each(|&n| write_command(&mut requests, &["HGET", &key(n), "7"]));
        client.send(&requests);
        chunk.iter().for_each(|_| assert!(matches!(client.reply(), Reply::Bulk(_))));
    }
    (keys.len() as f64 / started.elapsed().as_secs_f64()) as u64
}

#[test]
fn collections_may_be_larger_than_memory() {
    let limit = 64 * MIB;
    let wanted = long_form("HOLDFAST_FROZEN_MIB", 80) * MIB;
    let server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    let mut client = server.client();
    let (mut bytes, mut keys, mut resident) = (0, 0, 0);
    while bytes < wanted {
        let mut requests = Vec::new();
        let chunk: Vec<Made> = (keys..keys + 100).map(made).collect();
        chunk.iter().for_each(|made| write_command(&mut requests, &made.make));
        client.send(&requests);
        for made in &chunk {
            let reply = client.reply();
            assert!(number(&reply).is_some(), "{reply:?} after {bytes} bytes");
            bytes += made.bytes;
        }
        keys += 100;
        resident = server.resident_bytes().max(resident);
    }
    assert_eq!(number(&client.call("DBSIZE")), Some(keys));
    let frozen: u64 = client.info("mem_frozen_keys").parse().expect("a number");
    assert!(frozen > keys / 20, "{frozen} of {keys} are frozen");

    let mut rng = Rng(seed());
    let mut order: Vec<u64> = (0..keys).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    // All of them after the restart, too.
    read(&mut client, &order[..order.len() / 3]);
    resident = server.resident_bytes().max(resident);
    // Hashes of 20 fields.
    let small: Vec<u64> =
        order.iter().copied().filter(|n| n % 4 == 0 && (1..25).contains(&(n % 50))).collect();
    let (cold, hot) = (&small[..small.len() / 2], &small[..200]);
    let cold_rate = hget_rate(&mut client, cold);
    let hot: Vec<u64> = hot.iter().copied().cycle().take(20_000).collect();
    hget_rate(&mut client, &hot);
    let hot_rate = hget_rate(&mut client, &hot);
    eprintln!(
        "{keys} collections of {} MiB, {frozen} frozen after writing, {} MiB resident; HGET/s: {cold_rate} of cold hashes, \
         {hot_rate} of hot ones; {} freezes, {} thaws",
        bytes / MIB,
        resident / MIB,
        client.info("collection_freezes"),
        client.info("collection_thaws"),
    );
    assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}");

    assert_eq!(client.call("CONFIG SET appendfsync always"), ok());
    assert_eq!(client.call("SET last 1"), ok());
    let server = server.restart(Server::kill);
    let mut client = server.client();
    assert_eq!(number(&client.call("DBSIZE")), Some(keys + 1));
    read(&mut client, &order);
    resident = server.resident_bytes();
    assert!(resident < limit + BASE, "{resident} bytes with a limit of {limit}, after a restart");
    let text = assert_sound(&server.stop());
    assert!(!text.contains(" 0 of them frozen"), "{text}");
}

const SETUP: &[&str] = &[
    "HSET hash f1 v1 f2 22 f3 v3",
    "RPUSH list a b c 10 d",
    "RPUSH other x",
    "SADD set 1 2 3",
    "SADD words one two three",
    "ZADD zset 1 a 2 b 3 c",
    "XADD stream 1-1 name value",
    "XADD stream 2-1 name value2",
    "XGROUP CREATE stream group 0",
    "XADD stream2 1-1 a b",
    "XGROUP CREATE stream2 group 0",
    "HSET h:a weight 3",
    "HSET h:b weight 1",
    "HSET h:c weight 2",
    "HSET volatile f v",
    "PEXPIREAT volatile 99999999999999",
    "RPUSH letters a b c",
];

/// What is done to frozen collections, each on its own.
const CALLS: &[&str] = &[
    "TYPE hash",
    "EXISTS hash list set zset stream",
    "OBJECT ENCODING hash",
    "OBJECT ENCODING set",
    "OBJECT ENCODING stream",
    "MEMORY USAGE zset",
    "PEXPIRETIME volatile",
    "PERSIST volatile",
    "EXPIRE hash 1000",
    "HGET volatile f",
    "HGETALL hash",
    "HGET hash nothing",
    "HSET hash f2 new f4 v4",
    "HINCRBY hash f2 5",
    "HDEL hash f1 f2 f3",
    "HEXPIRE hash 1000 FIELDS 1 f1",
    "HSCAN hash 0",
    "LRANGE list 0 -1",
    "LPOP list 2",
    "LMOVE list other LEFT RIGHT",
    "LMOVE list list LEFT RIGHT",
    "RPOPLPUSH list new",
    "LINSERT list BEFORE c x",
    "LPOS list 10",
    "LTRIM list 1 2",
    "LMPOP 3 nothing list other LEFT COUNT 3",
    "BLPOP nothing list 1",
    "BLMOVE list other LEFT LEFT 1",
    "SMISMEMBER set 1 9",
    "SADD set 4",
    "SPOP set 3",
    "SMOVE set words 1",
    "SMOVE set words 9",
    "SUNIONSTORE set set words",
    "SINTERCARD 2 set words",
    "SORT set DESC",
    "SORT letters BY h:*->weight GET # GET h:*->weight",
    "SORT letters BY h:*->weight STORE set",
    "ZRANGE zset 0 -1 WITHSCORES",
    "ZINCRBY zset 10 a",
    "ZPOPMIN zset 2",
    "BZPOPMAX nothing zset 1",
    "ZADD zset XX 5 c",
    "ZUNION 2 zset set WITHSCORES",
    "ZRANGESTORE list zset 0 1",
    "XRANGE stream - +",
    "XADD stream 3-1 name value3",
    "XREAD STREAMS stream stream2 0 0",
    "XREADGROUP GROUP group me STREAMS stream stream2 > >",
    "XINFO STREAM stream",
    "XDEL stream 1-1",
    "DUMP list",
    "DUMP zset",
    "COPY hash copied",
    "COPY hash list REPLACE",
    "COPY stream copied DB 1",
    "RENAME hash renamed",
    "RENAME list hash",
    "RENAME volatile set",
    "RENAMENX list set",
    "MOVE zset 1",
    "SWAPDB 0 1",
    "DEL hash list set zset stream",
    "UNLINK zset",
    "SET hash string",
    "SET volatile string KEEPTTL",
    "GET hash",
    "APPEND list x",
    "LPUSH hash x",
    "HSET list f v",
    "GETDEL set",
    "FLUSHDB",
    "SCAN 0 COUNT 1000 TYPE hash",
    "SCAN 0 COUNT 1000 TYPE stream",
    "SCAN 0 COUNT 1000 TYPE string",
    "DEBUG DIGEST-VALUE hash list set zset stream",
    "EVAL \"return {redis.call('HGET',KEYS[1],'f1'), redis.call('LPOP','list'), redis.call('SCARD','set')}\" 1 hash",
];

/// All data, and what a call replied; lists of keys in order.
fn outcome(client: &mut Client, call: &str) -> (String, String) {
    // Inline, so that quotes mean what they mean there.
    client.send(format!("{call}\r\n").as_bytes());
    let mut reply = client.reply();
    if call.starts_with("SCAN") {
        let Reply::Array(parts) = &mut reply else { panic!("{reply:?}") };
        let Reply::Array(keys) = &mut parts[1] else { panic!("{parts:?}") };
        keys.sort_by_key(text);
    }
    if call.starts_with("SPOP") || call.starts_with("SMEMBERS") {
        let Reply::Array(members) = &mut reply else { panic!("{reply:?}") };
        members.sort_by_key(text);
    }
    (show(&reply), text(&client.call("DEBUG DIGEST")))
}

#[test]
fn what_is_frozen_answers_as_what_is_not() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    for call in CALLS {
        let mut outcomes = Vec::new();
        for freeze in [false, true] {
            assert_eq!(client.call("FLUSHALL"), ok());
            for command in SETUP {
                let reply = client.call(command);
                assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
            }
            if freeze {
                assert_eq!(client.call("DEBUG RELOAD"), ok());
                // Those of the time before are counted until they are freed.
                harness::wait_until(
                    || "others are frozen than the 13 collections".into(),
                    || client.info("mem_frozen_keys") == "13",
                );
            }
            outcomes.push(outcome(&mut client, call));
        }
        assert_eq!(outcomes[0], outcomes[1], "{call}");
    }
    assert_sound(&server.stop());
}

#[test]
fn what_is_looked_at_twice_or_changed_comes_back() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.call("HSET hash f v");
    client.call("RPUSH list a b");
    let frozen = |client: &mut Client| client.info("mem_frozen_keys").parse::<u64>().expect("a number");
    assert_eq!(client.call("DEBUG RELOAD"), ok());
    assert_eq!(frozen(&mut client), 2);
    // A first look writes nothing.
    assert_eq!(client.call("HGET hash f"), bulk("v"));
    assert_eq!((frozen(&mut client), client.info("collection_thaws")), (2, "0".into()));
    assert_eq!(client.call("HGET hash f"), bulk("v"));
    assert_eq!((frozen(&mut client), client.info("collection_thaws")), (1, "1".into()));
    assert_eq!(client.call("RPUSH list c"), Reply::Int(3));
    assert_eq!((frozen(&mut client), client.info("collection_thaws")), (0, "2".into()));
    assert_eq!(client.call("LRANGE list 0 -1"), bulks(["a", "b", "c"]));
    // Fields that expire are looked for in memory.
    client.call("HSET hash g v");
    client.call("HPEXPIRE hash 50 FIELDS 1 g");
    assert_eq!(client.call("DEBUG RELOAD"), ok());
    assert_eq!(frozen(&mut client), 1);
    harness::wait_until(|| "the field is there".into(), || client.call("HLEN hash") == Reply::Int(1));
    // WATCH sees no change in this, and clients that wait are served.
    client.call("WATCH list");
    assert_eq!(server.client().call("DEBUG RELOAD"), ok());
    client.call("MULTI");
    client.call("RPOP list");
    assert_eq!(client.call("EXEC"), bulks(["c"]));
    let mut waiting = server.client();
    waiting.send(b"BLMOVE source list LEFT LEFT 0\r\n");
    harness::wait_until(|| "nobody waits".into(), || client.info("blocked_clients") == "1");
    assert_eq!(client.call("DEBUG RELOAD"), ok());
    client.call("RPUSH source x");
    assert_eq!(waiting.reply(), bulk("x"));
    assert_eq!(client.call("LRANGE list 0 -1"), bulks(["x", "a", "b"]));
}

/// What is frozen is written with its key, which may be far longer than the value.
#[test]
fn long_keys_do_not_fill_the_log() {
    let server = Server::start(&["--log-max-size", "64mb", "--maxmemory", "400mb"]);
    let mut client = server.client();
    let keys: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(|letter| letter.repeat(8 << 20)).into();
    for key in &keys {
        for (place, byte) in [("20000", "x"), ("5", "y")] {
            assert_eq!(client.call_args(&["setrange", key, place, byte]), Reply::Int(20_001));
        }
    }
    let value = "v".repeat(4000);
    let mut request = Vec::new();
    for number in 0..8000 {
        write_command(&mut request, &["SET", &number.to_string(), &value]);
    }
    client.send(&request);
    (0..8000).for_each(|_| assert_eq!(client.reply(), ok()));
    for memory in ["50mb", "24mb"] {
        assert_eq!(client.call_args(&["config", "set", "maxmemory", memory]), ok());
        thread::sleep(Duration::from_millis(500));
        let mut probe = server.client();
        assert_eq!(probe.call(&format!("del {}", &memory[..2])), Reply::Int(1));
        assert_eq!(probe.info("loading"), "0");
    }
    assert_eq!(client.call_args(&["getrange", &keys[0], "0", "5"]), bulk("\0\0\0\0\0y"));
}
