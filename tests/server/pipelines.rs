//! Calls of a pipeline that do the same with the same key share a transaction. Two servers execute the same calls, one as pipelines, the other
//! one by one: nothing but the bytes of their logs tells them apart.

use crate::harness::{Client, Rng, Server, assert_sound, bulk, bulks, long_form, seed, text, wait_until};
use holdfast_resp::{Reply, write_command};

const KEYS: u64 = 6;
/// Different elements, `e0` and so on, besides long ones.
const ELEMENTS: u64 = 12;
/// Calls, whose `K`, `N`, `E` and `L` become a key, a small number, an element and a long one.
const CALLS: [&str; 52] = [
    "lpush K E",
    "lpush K E L",
    "rpush K E",
    "rpush K L",
    "lpushx K E",
    "lpop K",
    "rpop K",
    "rpop K N",
    "lset K N E",
    "linsert K before E E",
    "lrem K N E",
    "ltrim K 0 N",
    "lindex K N",
    "lrange K 0 N",
    "llen K",
    "lpos K E",
    "sadd K E",
    "sadd K E E L",
    "sadd K N",
    "srem K E",
    "sismember K E",
    "scard K",
    "smismember K E E",
    "hset K E N",
    "hset K E L",
    "hsetnx K E N",
    "hincrby K E N",
    "hdel K E",
    "hget K E",
    "hmget K E E",
    "hlen K",
    "hpexpireat K 9999999999999 fields 1 E",
    "zadd K N E",
    "zadd K nx N E",
    "zincrby K N E",
    "zrem K E",
    "zscore K E",
    "zrange K 0 -1",
    "zpopmin K",
    "zcount K 0 N",
    "append K E",
    "setrange K N E",
    "setbit K N 1",
    "incrby K N",
    "incrbyfloat K N.5",
    "set K N xx get",
    "set K E",
    "getdel K",
    "pfadd K E",
    "expireat K 99999999999",
    "persist K",
    "del K",
];

fn fill(rng: &mut Rng, template: &str, key: u64) -> Vec<String> {
    let mut word = |word: &str| match word {
        "K" => format!("key:{key}"),
        "N" => rng.below(10).to_string(),
        "E" => format!("e{}", rng.below(ELEMENTS)),
        "L" => "long".repeat(1 + rng.below(60) as usize),
        "N.5" => format!("{}.5", rng.below(10)),
        other => other.to_owned(),
    };
    template.split(' ').map(&mut word).collect()
}

/// Calls, of which many in a row are of one command on one key.
fn draw(rng: &mut Rng, count: usize) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    while calls.len() < count {
        let (template, key) = (CALLS[rng.below(CALLS.len() as u64) as usize], rng.below(KEYS));
        let times = if rng.one_in(3) { 1 } else { 1 + rng.below(40) };
        calls.extend((0..times).map(|_| fill(rng, template, key)));
        if rng.one_in(20) {
            // The name in another case, and too few arguments, in their midst.
            let call = calls.last_mut().expect("some");
            call[0].make_ascii_uppercase();
            let short = calls.last().expect("some")[..1].to_vec();
            calls.push(short);
        }
    }
    calls
}

fn pipeline(client: &mut Client, calls: &[Vec<String>]) -> Vec<Reply> {
    let mut request = Vec::new();
    calls.iter().for_each(|call| write_command(&mut request, call));
    client.send(&request);
    calls.iter().map(|_| client.reply()).collect()
}

/// What the keys hold, whatever the order of elements that have none, and when they and their fields expire.
fn state(client: &mut Client) -> Vec<[Reply; 4]> {
    let elements: String = (0..ELEMENTS).map(|n| format!(" e{n}")).collect();
    let of = |key: u64| {
        let call = |what: &str| client.call(&format!("{what} key:{key}"));
        let [value, ty, expires] = ["debug digest-value", "type", "pexpiretime"].map(call);
        let fields = client.call(&format!("hpexpiretime key:{key} fields {ELEMENTS}{elements}"));
        [value, ty, expires, fields]
    };
    (0..KEYS).map(of).collect()
}

/// What is counted of commands, and of keys that were looked for; without the time that they took.
fn counted(client: &mut Client) -> Vec<String> {
    let all = [client.call("info commandstats"), client.call("info stats"), client.call("info persistence")];
    let texts = all.map(|reply| text(&reply));
    let is_wanted = |line: &&str| {
        ["keyspace_", "rdb_changes"].iter().any(|begin| line.starts_with(begin))
            || line.starts_with("cmdstat_")
                && !["info", "debug", "type", "expiretime"].iter().any(|name| line.contains(name))
    };
    let untimed =
        |line: &str| line.split(',').filter(|part| !part.starts_with("usec")).collect::<Vec<_>>().join(",");
    texts.iter().flat_map(|text| text.lines().filter(is_wanted).map(untimed)).collect()
}

#[test]
fn calls_alike_do_what_they_do_one_by_one() {
    let mut rng = Rng(seed());
    for _ in 0..long_form("HOLDFAST_PIPELINES", 6) {
        // Large collections and packed ones, and such as turn from one into the other.
        let options = "--list-max-listpack-size 20 --hash-max-listpack-entries 8 --enable-debug-command yes";
        let options: Vec<&str> = options.split(' ').collect();
        let [mut piped, single] = [Server::start(&options), Server::start(&options)];
        let mut clients = [piped.client(), single.client()];
        for _ in 0..40 {
            let calls = draw(&mut rng, 120);
            let [piped, single] = &mut clients;
            let replies = pipeline(piped, &calls);
            for (call, reply) in calls.iter().zip(replies) {
                assert_eq!(reply, single.call_args(call), "{call:?}");
            }
        }
        let [ours, theirs] = clients.each_mut().map(|client| (state(client), counted(client)));
        assert_eq!(ours.0, theirs.0);
        ours.1.iter().zip(&theirs.1).for_each(|(ours, theirs)| assert_eq!(ours, theirs));
        let headers = clients
            .map(|mut client| client.info("endurance_bytes_batch_headers").parse::<u64>().expect("a number"));
        assert!(headers[0] * 3 < headers[1] * 2, "no transactions were shared: {headers:?}");
        piped = piped.restart(Server::kill);
        assert_eq!(state(&mut piped.client()), ours.0, "after kill -9");
        assert_sound(&piped.stop());
    }
}

#[test]
fn who_waits_for_a_key_is_served_between_calls_alike() {
    let server = Server::start(&[]);
    let (mut client, mut waiting) = (server.client(), server.client());
    waiting.send(b"blpop list 0\r\n");
    wait_until(|| "it waits".into(), || client.info("blocked_clients") == "1");
    let pushes: Vec<_> = ["1", "2", "3"].map(|n| ["lpush", "list", n].map(String::from).to_vec()).into();
    let lengths = pipeline(&mut client, &pushes);
    assert_eq!(waiting.reply(), bulks(["list", "1"]));
    assert_eq!(client.call("lrange list 0 -1"), bulks(["3", "2"]), "{lengths:?}");
}

#[test]
fn who_listens_hears_of_each_of_calls_alike_before_the_next_reply() {
    let server = Server::start(&["--notify-keyspace-events", "El"]);
    let mut client = server.client();
    client.call("hello 3");
    client.call("subscribe __keyevent@0__:lpush");
    let pushes: Vec<_> = ["1", "2", "3"].map(|n| ["lpush", "list", n].map(String::from).to_vec()).into();
    let mut request = Vec::new();
    pushes.iter().for_each(|push| write_command(&mut request, push));
    client.send(&request);
    for n in 1..=3 {
        assert_eq!(client.reply(), Reply::Int(n));
        let Reply::Push(event) = client.reply() else { panic!("an event") };
        assert_eq!(event[1..], [bulk("__keyevent@0__:lpush"), bulk("list")]);
    }
}
