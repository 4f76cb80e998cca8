//! Collections that are larger than `maxmemory`: all is there, memory stays within the limit, a crash takes nothing, and who looks
//! for elements that are not in memory holds up nobody meanwhile.

use crate::harness::{Client, Folder, Rng, Server, array, bulk, ok, seed, text};
use holdfast_resp::{Reply, write_command};
use std::{collections::HashMap, ops::Range};

const LIMIT: u64 = 64 << 20;
const OPTIONS: &[&str] = &["--maxmemory", "64mb", "--workers", "2"];
const FIELDS: u64 = 400_000;
/// Elements of a set, a sorted set and a list, each.
const ELEMENTS: u64 = 120_000;

fn field(n: u64) -> String {
    format!("field:{n:08}")
}

/// Fields are written again and again; their last round is in their value.
fn value(n: u64, round: u64) -> String {
    format!("{round}:{n}:{}", "x".repeat((n % 400) as usize))
}

/// Sends commands at once; their replies.
fn pipeline(client: &mut Client, calls: &[Vec<String>]) -> Vec<Reply> {
    let mut requests = Vec::new();
    calls.iter().for_each(|call| write_command(&mut requests, call));
    client.send(&requests);
    calls.iter().map(|_| client.reply()).collect()
}

fn set(client: &mut Client, fields: impl Iterator<Item = (u64, u64)>) {
    let calls: Vec<_> =
        fields.map(|(n, round)| vec!["HSET".into(), "huge".into(), field(n), value(n, round)]).collect();
    for reply in pipeline(client, &calls) {
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

/// Sets fields that are not there yet, together.
fn fill(client: &mut Client, fields: Range<u64>) {
    let count = fields.end - fields.start;
    let words = ["HSET".to_owned(), "huge".into()];
    let call: Vec<String> = words.into_iter().chain(fields.flat_map(|n| [field(n), value(n, 0)])).collect();
    assert_eq!(pipeline(client, &[call]), [Reply::Int(count as i64)]);
}

fn element(n: u64) -> String {
    format!("an element of some length, which is not in memory and has the number {n}")
}

fn add_elements(client: &mut Client, numbers: impl Iterator<Item = u64>) {
    let (mut set, mut zset, mut list) = (vec!["SADD", "set"], vec!["ZADD", "zset"], vec!["RPUSH", "list"]);
    let elements: Vec<_> = numbers.map(|n| (n.to_string(), element(n))).collect();
    for (number, element) in &elements {
        set.push(element);
        zset.extend([&number[..], element]);
        list.push(element);
    }
    for call in [set, zset, list] {
        assert!(matches!(client.call_args(&call), Reply::Int(_)));
    }
}

fn check_elements(client: &mut Client, numbers: &[u64]) {
    let calls = numbers.iter().flat_map(|&n| {
        [
            vec!["SISMEMBER".to_owned(), "set".into(), element(n)],
            vec!["SISMEMBER".to_owned(), "set".into(), element(n + ELEMENTS)],
            vec!["ZSCORE".to_owned(), "zset".into(), element(n)],
            vec!["ZRANGE".to_owned(), "zset".into(), n.to_string(), n.to_string()],
            vec!["LINDEX".to_owned(), "list".into(), n.to_string()],
            vec!["LINDEX".to_owned(), "list".into(), (n as i64 - ELEMENTS as i64).to_string()],
        ]
    });
    let replies = pipeline(client, &calls.collect::<Vec<_>>());
    for (&n, replies) in numbers.iter().zip(replies.chunks(6)) {
        let (found, at) = (bulk(element(n)), array([bulk(element(n))]));
        let expected = [Reply::Int(1), Reply::Int(0), bulk(n.to_string()), at, found.clone(), found];
        assert_eq!(replies, expected, "element {n}");
    }
}

/// Fields have the values of their last rounds.
fn assert_values(rounds: &HashMap<u64, u64>, fields: &[u64], found: &[Reply]) {
    assert_eq!(found.len(), fields.len());
    for (&n, found) in fields.iter().zip(found) {
        assert_eq!(*found, bulk(value(n, rounds.get(&n).copied().unwrap_or(0))), "field {n}");
    }
}

fn check(client: &mut Client, rounds: &HashMap<u64, u64>, fields: &[u64]) {
    let calls: Vec<_> = fields.iter().map(|&n| vec!["HGET".into(), "huge".into(), field(n)]).collect();
    assert_values(rounds, fields, &pipeline(client, &calls));
}

/// The same of many, by one command.
fn check_at_once(client: &mut Client, rounds: &HashMap<u64, u64>, fields: &[u64]) {
    let words = ["HMGET".to_owned(), "huge".into()];
    let call: Vec<String> = words.into_iter().chain(fields.iter().map(|&n| field(n))).collect();
    let [Reply::Array(found)] = &pipeline(client, &[call])[..] else { panic!("no values") };
    assert_values(rounds, fields, found);
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().expect("a number")
}

/// What the program may hold beside data, in bytes, until data may be less for it.
const BESIDE: u64 = 32 << 20;

/// The RAM of the whole process.
fn assert_within(client: &mut Client) {
    let resident = number(client, "used_memory_rss");
    assert!(resident < LIMIT + LIMIT / 4 + BESIDE, "{} MiB are resident", resident >> 20);
}

#[test]
fn collections_outgrow_memory_and_survive_a_kill() {
    let mut rng = Rng(seed());
    let mut rounds = HashMap::new();
    let mut folder: Option<Folder> = None;
    for life in 0..2 {
        let server = match folder.take() {
            None => Server::start(OPTIONS),
            Some(folder) => Server::start_in(folder, OPTIONS),
        };
        let mut client = server.client();
        if life == 0 {
            for first in (0..FIELDS).step_by(500) {
                fill(&mut client, first..first + 500);
            }
            for first in (0..ELEMENTS).step_by(1000) {
                add_elements(&mut client, first..first + 1000);
            }
            let heap = number(&mut client, "mem_heap_allocated");
            assert!(heap > 2 * LIMIT, "{heap} bytes are no more than memory");
        }
        assert_eq!(client.call("HLEN huge"), Reply::Int(FIELDS as i64));
        // Who looks for elements waits without holding up others.
        let waits =
            |client: &mut Client| (number(client, "heap_pages_fetched"), number(client, "heap_page_faults"));
        let before = waits(&mut client);
        for _ in 0..10 {
            let some: Vec<u64> = (0..50).map(|_| rng.below(ELEMENTS)).collect();
            check_elements(&mut client, &some);
            let some: Vec<u64> = (0..100).map(|_| rng.below(FIELDS)).collect();
            check(&mut client, &rounds, &some);
        }
        let after = waits(&mut client);
        let (fetched, faults) = (after.0 - before.0, after.1 - before.1);
        assert!(fetched > 500, "{fetched} pages have come");
        assert!(faults * 50 <= fetched, "{faults} pages were waited for under a lock, {fetched} without");
        // Reads and writes all over it, while pages leave and come back.
        for round in 0..20 {
            let some: Vec<u64> = (0..200).map(|_| rng.below(FIELDS)).collect();
            check(&mut client, &rounds, &some);
            let changed: Vec<(u64, u64)> =
                (0..200).map(|_| (rng.below(FIELDS), life * 100 + round)).collect();
            rounds.extend(changed.iter().copied());
            set(&mut client, changed.into_iter());
            assert_within(&mut client);
        }
        let evicted = number(&mut client, "heap_pages_evicted");
        assert!(life > 0 || evicted > 5000, "{evicted} pages have left memory");
        assert!(number(&mut client, "mem_heap_absent") > LIMIT, "most of it is not in memory");
        // What does not fit into memory can be used whole all the same.
        let Reply::Array(fields) = client.call("HKEYS huge") else { panic!("no fields") };
        assert_eq!(fields.len() as u64, FIELDS);
        assert_within(&mut client);
        folder = Some(server.kill());
    }
    let server = Server::start_in(folder.expect("the last server's"), OPTIONS);
    let mut client = server.client();
    let all: Vec<u64> = (0..FIELDS).collect();
    all.chunks(500).for_each(|some| check_at_once(&mut client, &rounds, some));
    let all: Vec<u64> = (0..ELEMENTS).collect();
    all.chunks(100).step_by(50).for_each(|some| check_elements(&mut client, some));
    assert_within(&mut client);
}

/// Adds what is looked at by [`commands_find_what_they_use_before_they_run`]: the collections named above, a stream, and the same
/// number as score, position and ID; a sorted set in which names alone have an order; some small sets with members of these; and a group
/// that has some of the stream's entries pending.
fn add_all(client: &mut Client) {
    for first in (0..ELEMENTS).step_by(1000) {
        add_elements(client, first..first + 1000);
        fill(client, first..first + 1000);
        let named = (first..first + 1000).flat_map(|n| ["0".into(), element(n)]);
        let call: Vec<String> = ["ZADD".into(), "names".into()].into_iter().chain(named).collect();
        assert_eq!(pipeline(client, &[call]), [Reply::Int(1000)]);
        let entry =
            |n: u64| vec!["XADD".into(), "stream".into(), format!("{}-1", n + 1), "f".into(), element(n)];
        let entries: Vec<_> = (first..first + 1000).map(entry).collect();
        pipeline(client, &entries);
    }
    for n in 0..50 {
        let members = (0..5).map(|nth| element((ELEMENTS / 5 * nth + n * 97) % ELEMENTS));
        let call: Vec<String> = ["SADD".into(), format!("few{n}")].into_iter().chain(members).collect();
        pipeline(client, &[call]);
    }
    assert_eq!(client.call("XGROUP CREATE stream group 0"), ok());
    for part in 0..20 {
        let read = format!("XREADGROUP GROUP group c{} COUNT 3000 STREAMS stream >", part % 2);
        assert!(matches!(client.call(&read), Reply::Array(_)));
    }
}

/// A call by a script that has not named its keys.
fn in_script(call: impl Iterator<Item = String>) -> Vec<String> {
    ["EVAL", "return redis.call(unpack(ARGV))", "0"].map(str::to_owned).into_iter().chain(call).collect()
}

/// Calls a command some hundred times, with other arguments each time: how many pages were fetched before it ran. It has waited for
/// nearly none while it ran.
fn fetched_by(client: &mut Client, command: &str, mut arguments: impl FnMut() -> Vec<String>) -> u64 {
    let waits =
        |client: &mut Client| (number(client, "heap_pages_fetched"), number(client, "heap_page_faults"));
    let before = waits(client);
    for _ in 0..6 {
        let calls: Vec<_> = (0..50).map(|_| arguments()).collect();
        for reply in pipeline(client, &calls) {
            assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        }
    }
    let after = waits(client);
    let (fetched, faults) = (after.0 - before.0, after.1 - before.1);
    println!("{command}: {fetched} pages fetched, {faults} waited for under a lock");
    // Besides, threads of the background wait for some.
    assert!(faults <= 15 + fetched / 100, "{command}: {faults} pages were waited for, {fetched} fetched");
    fetched
}

#[test]
fn commands_find_what_they_use_before_they_run() {
    // A number for each `#`, from some distance of the end, its element for each `@`, another one for each `&`, and one of the small sets for
    // each `%`.
    const CALLS: &[&[&str]] = &[
        &[
            "HGET huge field",
            "HMGET huge field field field",
            "HTTL huge FIELDS 1 field",
            "HRANDFIELD huge",
            "HRANDFIELD huge 5 WITHVALUES",
            "HRANDFIELD huge -5",
        ],
        &[
            "HSET huge field new",
            "HSET huge # new:@",
            "HSCAN huge cursor COUNT 30",
            "HDEL huge field",
            "SISMEMBER set @",
            "SREM set @",
        ],
        &[
            "SADD set new:@",
            "SRANDMEMBER set",
            "SRANDMEMBER set 5",
            "SRANDMEMBER set -5",
            "SPOP set",
            "SPOP set 5",
        ],
        &[
            "SSCAN set cursor COUNT 30",
            "SMOVE set other @",
            "ZSCORE zset @",
            "ZMSCORE zset @ @",
            "ZRANK zset @",
            "ZRANDMEMBER zset",
        ],
        // Scores are positions, all near one corner of the map.
        &[
            "ZRANDMEMBER zset 5",
            "ZRANDMEMBER zset -5 WITHSCORES",
            "GEOSEARCH zset FROMMEMBER @ BYRADIUS 5 m",
            "GEOSEARCH zset FROMMEMBER @ BYBOX 5 5 m",
            "GEORADIUSBYMEMBER_RO zset @ 0.005 km",
            "GEORADIUS_RO zset -179.9995 -85.0511 1 m",
        ],
        &[
            "ZREVRANK zset @",
            "ZRANGE zset # #",
            "ZREVRANGE zset # #",
            "ZCOUNT zset # +inf",
            "ZRANGEBYSCORE zset (# +inf LIMIT 0 40",
            "ZREVRANGEBYSCORE zset # -inf LIMIT 3 40",
        ],
        &[
            "ZRANGE zset # -inf BYSCORE REV LIMIT 0 5",
            "ZADD zset XX # @",
            "ZADD zset # new:@",
            "ZADD zset INCR # @",
            "ZINCRBY zset -# @",
            "ZSCAN zset cursor",
        ],
        &[
            "ZREM zset & & & &",
            "ZRANK names @",
            "ZADD names 0 new@",
            "ZREM names @",
            "ZLEXCOUNT names (@ +",
            "ZRANGEBYLEX names [@ + LIMIT 2 30",
        ],
        &[
            "ZREVRANGEBYLEX names (@ - LIMIT 0 5",
            "ZRANGE names [@ - BYLEX REV LIMIT 3 3",
            "ZREMRANGEBYLEX names [@ [@",
            "ZREMRANGEBYRANK zset # #",
            "ZREMRANGEBYSCORE zset # #",
            "ZPOPMIN names 3",
        ],
        &[
            "ZMPOP 1 names MAX COUNT 20",
            "LINDEX list #",
            "LRANGE list # #",
            "LSET list # @",
            "LPOP list 20",
            "LMPOP 2 none list RIGHT COUNT 50",
        ],
        &[
            "XRANGE stream # + COUNT 100",
            "XREVRANGE stream # - COUNT 100",
            "XREAD COUNT 20 STREAMS stream #",
            "XREADGROUP GROUP group c0 COUNT 100 STREAMS stream >",
            "XREADGROUP GROUP group c1 COUNT 20 STREAMS stream #",
            "XPENDING stream group # + 20",
        ],
        &[
            "XPENDING stream group IDLE 1 # + 20 c0",
            "XCLAIM stream group c1 0 #-1",
            "XAUTOCLAIM stream group c0 0 # COUNT 3",
            "XACK stream group #-1",
            "XDEL stream #-1",
        ],
        &["SINTER few% set", "SINTERCARD 2 set few% LIMIT 3", "SINTERSTORE other set few%"],
        &["SDIFF few% set"],
        &["ZINTER 2 zset few%", "ZDIFFSTORE other 2 few% zset"],
    ];
    let mut rng = Rng(seed());
    let server = Server::start(OPTIONS);
    let mut client = server.client();
    add_all(&mut client);
    let mut folder = Some(server.kill());
    for calls in CALLS {
        let server = Server::start_in(folder.take().expect("the last server's"), OPTIONS);
        let mut client = server.client();
        let mut fetched_in_all = 0;
        for call in *calls {
            let fetched = fetched_by(&mut client, call, || {
                let (n, by_script) = (1000 + rng.below(ELEMENTS - 2000), rng.one_in(2));
                let fill = |word: &str| match word {
                    "field" => field(n),
                    "cursor" => (rng.draw() >> 16).to_string(),
                    word => word
                        .replace('#', &n.to_string())
                        .replace('@', &element(n))
                        .replace('&', &element(1000 + rng.below(ELEMENTS - 2000)))
                        .replace('%', &(n % 50).to_string()),
                };
                let call = call.split(' ').map(fill);
                if by_script { in_script(call) } else { call.collect() }
            });
            fetched_in_all += fetched;
            let is_of_few = call.contains('%');
            assert!(
                !is_of_few || fetched < 1500,
                "{call}: {fetched} pages for what few members have in common"
            );
        }
        assert!(fetched_in_all > 50, "most of it was in memory");
        folder = Some(server.kill());
    }
}

/// Also what is told by the header of a hash, and what looks only for whether there is one: a field may have expired.
#[test]
fn small_hashes_are_found_before_they_are_used() {
    const KEYS: u64 = 100_000;
    // A number for each `#`.
    const CALLS: &[&str] = &[
        "TTL hash#",
        "HLEN hash#",
        "EXISTS hash#",
        "TYPE hash#",
        "PERSIST hash#",
        "HGET hash# f1",
        "HGETALL hash#",
        "HSTRLEN hash# f1",
        "OBJECT ENCODING hash#",
        "UNLINK hash#",
        "DEL hash#",
    ];
    let mut rng = Rng(seed());
    let server = Server::start(OPTIONS);
    let mut client = server.client();
    for first in (0..KEYS).step_by(500) {
        // Since fields of them expire, they are not frozen. Half of them lie in one block.
        let make = |n: u64| {
            let words = ["HSET".into(), format!("hash{n}")];
            let value = |field: u64| element(field).split_off(if n.is_multiple_of(2) { 0 } else { 20 });
            words.into_iter().chain((0..6).flat_map(|field| [format!("f{field}"), value(field)])).collect()
        };
        let expire =
            |n: u64| format!("HEXPIRE hash{n} 100000 FIELDS 1 f2").split(' ').map(str::to_owned).collect();
        for reply in pipeline(&mut client, &(first..first + 500).map(make).collect::<Vec<_>>()) {
            assert_eq!(reply, Reply::Int(6));
        }
        for reply in pipeline(&mut client, &(first..first + 500).map(expire).collect::<Vec<_>>()) {
            assert_eq!(reply, array([Reply::Int(1)]));
        }
    }
    let folder = server.kill();
    let server = Server::start_in(folder, OPTIONS);
    let mut client = server.client();
    let fetched = CALLS.iter().map(|call| {
        fetched_by(&mut client, call, || {
            let n = rng.below(KEYS).to_string();
            call.split(' ').map(|word| word.replace('#', &n)).collect()
        })
    });
    let fetched: u64 = fetched.sum();
    assert!(fetched > 500, "most of it was in memory: {fetched} pages were fetched");
}

#[test]
fn large_collections_are_found_whole_before_they_are_used() {
    let server = Server::start(OPTIONS);
    add_all(&mut server.client());
    let mut folder = server.kill();
    let pairs = |key: fn(u64) -> String, value: fn(u64) -> String| {
        (0..ELEMENTS).flat_map(|n| [key(n), value(n)]).collect::<Vec<_>>()
    };
    let elements: Vec<String> = (0..ELEMENTS).map(element).collect();
    let few = elements[50..90_000].to_vec();
    // Whether the order is told, too.
    let cases = [
        ("SMEMBERS set", false, elements),
        ("ZRANGE zset 0 -1 WITHSCORES", true, pairs(element, |n| n.to_string())),
        ("ZRANGE zset 50 (90000 BYSCORE", true, few.clone()),
        ("LRANGE list 50 89999", true, few),
        ("HGETALL huge", false, pairs(field, |n| value(n, 0))),
    ];
    // So much that half of it, which one call may fetch, is more than each of them takes, though nothing was loaded yet.
    let options = &["--maxmemory", "96mb", "--workers", "2"];
    for (call, is_ordered, mut expected) in cases {
        let server = Server::start_in(folder, options);
        let mut client = server.client();
        let before = number(&mut client, "heap_page_faults");
        let Reply::Array(found) = client.call(call) else { panic!("{call}") };
        let mut found: Vec<String> = found.iter().map(text).collect();
        if !is_ordered {
            found.sort_unstable();
            expected.sort_unstable();
        }
        assert!(found == expected, "{call}: {} elements of {}", found.len(), expected.len());
        let faults = number(&mut client, "heap_page_faults") - before;
        let fetched = number(&mut client, "heap_pages_fetched");
        println!("{call}: {fetched} pages fetched, {faults} waited for under a lock");
        assert!(fetched > 1000 && faults * 50 <= fetched, "{call}: {fetched} fetched, {faults} waited for");
        folder = server.kill();
    }
    let server = Server::start_in(folder, OPTIONS);
    let mut client = server.client();
    let before = number(&mut client, "heap_page_faults");
    let Reply::Array(entries) = client.call("XRANGE stream 1001 + COUNT 100000") else {
        panic!("no entries")
    };
    assert_eq!(entries.len(), 100_000);
    assert_eq!(entries[0], array([bulk("1001-1"), array([bulk("f"), bulk(element(1000))])]));
    let faults = number(&mut client, "heap_page_faults") - before;
    let fetched = number(&mut client, "heap_pages_fetched");
    assert!(fetched > 1000 && faults * 50 <= fetched, "XRANGE: {fetched} fetched, {faults} waited for");
}
