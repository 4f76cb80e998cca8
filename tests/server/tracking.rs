//! Client-side caching: who is told that its copies of keys are not valid any more.

use crate::harness::{self, Client, EndOnDrop, Rng, Server, items, ok, seed, show, text, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// A client of RESP3 that tracks what it reads.
fn tracker(server: &Server, options: &str) -> Client {
    let mut client = server.client();
    client.call("hello 3");
    assert_eq!(client.call(&format!("client tracking on {options}")), ok());
    client
}

fn told(client: &mut Client) -> String {
    show(&client.reply())
}

/// Asserts that it is told nothing before a reply.
fn is_told_nothing(client: &mut Client) {
    assert_eq!(show(&client.call("echo nothing")), "nothing");
}

#[test]
fn who_has_read_a_key_is_told_once_that_it_changed() {
    let server = Server::start(&["--workers", "3"]);
    let (mut reader, mut writer) = (tracker(&server, ""), server.client());
    for (write, read, change) in [
        ("set a 1", "get a", "incr a"),
        ("set a 1", "mget a b", "del a"),
        ("set a 1", "ttl a", "expire a 100"),
        ("set a 1", "exists a", "rename a x"),
        ("rpush l 1 2 3", "lrange l 0 -1", "lpop l"),
        ("hset h a 1", "hget h a", "hset h b 2"),
        ("sadd s 1", "smembers s", "spop s"),
        ("zadd z 1 a", "zrange z 0 -1", "zincrby z 1 a"),
        ("zadd z 1 a", "zrange z 0 -1", "zunionstore z 1 none"),
    ] {
        writer.call("del a l h s z");
        writer.call(write);
        reader.call(read);
        writer.call(change);
        let key = change.split(' ').nth(1).expect("a key");
        assert_eq!(told(&mut reader), format!(">[invalidate [{key}]]"), "{change}");
        // Not again, before it is read again.
        writer.call(change);
        is_told_nothing(&mut reader);
    }
    writer.call("set a 1");
    reader.call("get a");
    for nothing in ["set a 2 nx", "getex a", "expire a 100 gt", "persist a", "lpushx none x", "flushdb nope"]
    {
        writer.call(nothing);
    }
    is_told_nothing(&mut reader);
    assert_eq!(writer.info("tracking_clients"), "1");
    assert_eq!(writer.info("tracking_total_keys"), "2");
    drop(reader);
    wait_until(|| "it is gone".into(), || writer.info("tracking_clients") == "0");
    writer.call("set a 3");
}

#[test]
fn who_has_waited_for_a_key_is_told_that_it_changed_since() {
    let server = Server::start(&["--workers", "2"]);
    let (mut reader, mut writer) = (tracker(&server, ""), server.client());
    reader.send(b"XREAD BLOCK 0 STREAMS s 0\r\n");
    wait_until(|| "it waits".into(), || writer.info("blocked_clients") == "1");
    writer.call("xadd s 1-1 n 1");
    assert_eq!(told(&mut reader), "{s [[1-1 [n 1]]]}");
    writer.call("xadd s 2-1 n 2");
    assert_eq!(told(&mut reader), ">[invalidate [s]]");
    // In vain.
    reader.send(b"XREAD BLOCK 1 STREAMS none 0\r\n");
    assert_eq!(told(&mut reader), "nil");
    writer.call("xadd none 1-1 n 1");
    assert_eq!(told(&mut reader), ">[invalidate [none]]");
}

#[test]
fn own_changes_are_told_behind_the_reply() {
    let server = Server::start(&[]);
    let mut client = tracker(&server, "");
    client.send(
        b"SET a 1\r\nGET a\r\nINCR a\r\nGET a\r\nMULTI\r\nINCR a\r\nGET a\r\nDEL a\r\nEXEC\r\nPING\r\n",
    );
    for expected in
        ["+OK", "1", ":2", ">[invalidate [a]]", "2", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "[:3 3 :1]"]
    {
        assert_eq!(told(&mut client), expected);
    }
    // Once for INCR, and once for DEL, since it was read between.
    assert_eq!(told(&mut client), ">[invalidate [a]]");
    assert_eq!(told(&mut client), ">[invalidate [a]]");
    assert_eq!(told(&mut client), "+PONG");

    let mut client = tracker(&server, "noloop");
    let mut other = server.client();
    client.call("get a");
    client.call("set a 1");
    is_told_nothing(&mut client);
    client.call("get a");
    other.call("set a 2");
    assert_eq!(told(&mut client), ">[invalidate [a]]");
}

#[test]
fn what_has_changed_before_a_command_is_told_before_its_reply() {
    let server = Server::start(&["--workers", "3", "--appendfsync", "no"]);
    let (mut reader, mut writer) = (tracker(&server, ""), server.client());
    for _ in 0..300 {
        reader.call("get a");
        writer.call("incr a");
        reader.send(b"PING\r\n");
        assert_eq!([told(&mut reader), told(&mut reader)], [">[invalidate [a]]", "+PONG"]);
    }
}

/// Also if that was after the command was sent: a copy is as new as what is read.
#[test]
fn what_has_changed_before_a_read_is_told_before_its_reply() {
    let server = Server::start(&["--workers", "2", "--appendfsync", "no"]);
    let (mut reader, is_over) = (tracker(&server, ""), AtomicBool::new(false));
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        scope.spawn(|| {
            let mut writer = server.client();
            for turn in (1..).take_while(|_| !is_over.load(Relaxed)) {
                writer.call(&format!("set first {turn}"));
                writer.call(&format!("set second {turn}"));
            }
        });
        let script = "eval return(redis.call('get','second')) 1 second";
        let reads = ["get second", script, "mget second third", "multi", "get second", "exec"];
        let mut request = Vec::new();
        for read in ["get first"].iter().chain(reads.repeat(5).iter()) {
            write_command(&mut request, &read.split(' ').collect::<Vec<_>>());
        }
        for _ in 0..500 {
            reader.send(&request);
            let mut first = None;
            let mut replies = 1 + 5 * 6;
            while replies > 0 {
                let reply = match reader.reply() {
                    Reply::Push(message) if text(&items(&message[1])[0]) == "first" => {
                        first = None;
                        continue;
                    }
                    Reply::Push(_) => continue,
                    Reply::Array(replies) => replies[0].clone(),
                    reply => reply,
                };
                replies -= 1;
                let Some(value) = harness::number(&reply) else { continue };
                if replies == 5 * 6 {
                    first = Some(value);
                } else if let Some(first) = first {
                    assert!(value <= first, "{first} was kept, and then {value} was read");
                }
            }
        }
    });
}

#[test]
fn expired_and_flushed_keys_are_not_valid() {
    let server = Server::start(&[]);
    let (mut reader, mut writer) = (tracker(&server, "noloop"), server.client());
    for active in ["1", "0"] {
        writer.call(&format!("debug set-active-expire {active}"));
        writer.call("psetex a 500 1");
        writer.call("hset h x 1 y 2");
        writer.call("hpexpire h 400 fields 1 x");
        assert_eq!(show(&reader.call("get a")), "1");
        assert_eq!(show(&reader.call("hgetall h")), "{x 1, y 2}");
        if active == "0" {
            thread::sleep(Duration::from_millis(510));
            // By the reader's own look, but not by its will.
            reader.send(b"HGET h x\r\nGET a\r\n");
            assert_eq!([told(&mut reader), told(&mut reader)], ["nil", ">[invalidate [h]]"]);
            assert_eq!([told(&mut reader), told(&mut reader)], ["nil", ">[invalidate [a]]"]);
        } else {
            let mut heard = [told(&mut reader), told(&mut reader)];
            heard.sort();
            assert_eq!(heard, [">[invalidate [a]]", ">[invalidate [h]]"]);
        }
        writer.call("del h");
        if active == "0" {
            // It was read after its field had expired.
            assert_eq!(told(&mut reader), ">[invalidate [h]]");
        }
        reader.call("get a");
        writer.call("flushdb");
        assert_eq!(told(&mut reader), ">[invalidate nil]");
        writer.call("set a 1");
        is_told_nothing(&mut reader);
        reader.call("select 3");
        reader.call("get a");
        writer.call("multi");
        writer.call("flushall");
        writer.call("exec");
        assert_eq!(told(&mut reader), ">[invalidate nil]");
        reader.call("select 0");
    }
}

#[test]
fn by_prefix() {
    let server = Server::start(&["--workers", "2"]);
    let mut all = tracker(&server, "bcast");
    let mut some = tracker(&server, "bcast prefix a: prefix b:");
    let mut own = tracker(&server, "bcast noloop prefix a:");
    let mut writer = server.client();
    writer.call("mset a:1 1 b:1 1 c:1 1");
    assert_eq!(told(&mut all), ">[invalidate [a:1 b:1 c:1]]");
    assert_eq!([told(&mut some), told(&mut some)], [">[invalidate [a:1]]", ">[invalidate [b:1]]"]);
    assert_eq!(told(&mut own), ">[invalidate [a:1]]");
    own.call("set a:2 1");
    is_told_nothing(&mut own);
    assert_eq!(told(&mut some), ">[invalidate [a:2]]");
    assert_eq!(some.call("client tracking on bcast prefix c:"), ok());
    writer.call("set c:3 1");
    assert_eq!(told(&mut some), ">[invalidate [c:3]]");
    some.run_script(
        "client tracking on bcast prefix c:x => -ERR Prefix 'c:x' overlaps with an existing prefix 'c:'. Prefixes for a single client must not overlap.
        client tracking on bcast prefix d prefix dd => -ERR Prefix 'd' overlaps with another provided prefix 'dd'. Prefixes for a single client must not overlap.
        client tracking on => -ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.
        client trackinginfo => {flags <on bcast>, redirect :0, prefixes [a: b: c:]}
        client tracking off => +OK
        client trackinginfo => {flags <off>, redirect :-1, prefixes []}",
    );
    assert_eq!(writer.info("tracking_total_prefixes"), "2");
}

#[test]
fn another_client_may_be_told() {
    let server = Server::start(&["--workers", "3"]);
    let (mut listener, mut reader, mut writer) = (server.client(), server.client(), server.client());
    let Reply::Int(id) = listener.call("client id") else { panic!("no number") };
    assert_eq!(reader.call(&format!("client tracking on redirect {id}")), ok());
    assert_eq!(reader.call("client getredir"), Reply::Int(id));
    reader.call("get a");
    // Nobody listens in this protocol before it is subscribed.
    writer.call("set a 1");
    listener.call("subscribe __redis__:invalidate");
    reader.call("get a");
    writer.call("set a 2");
    assert_eq!(told(&mut listener), "[message __redis__:invalidate [a]]");
    writer.call("flushall");
    assert_eq!(told(&mut listener), "[message __redis__:invalidate nil]");
    reader.call("hello 3");
    reader.call("get a");
    listener.call("quit");
    assert_eq!(listener.try_reply(), None);
    wait_until(
        || "it is gone".into(),
        || writer.call(&format!("client list id {id}")).as_bytes() == Some(b""),
    );
    writer.call("set a 3");
    assert_eq!(told(&mut reader), format!(">[tracking-redir-broken :{id}]"));
    let info = reader.call("client trackinginfo");
    assert_eq!(show(&info), format!("{{flags <on broken_redirect>, redirect :{id}, prefixes []}}"));
    let list = text(&reader.call("client info"));
    assert!(list.contains(&format!("redir={id}")) && list.contains("flags=tRU"), "{list}");
    reader.run_script(
        "client tracking on redirect 99999 => -ERR The client ID you want redirect to does not exist
        client tracking on redirect x => -ERR value is not an integer or out of range
        client tracking on redirect => -ERR syntax error
        client tracking maybe => -ERR syntax error
        client tracking on prefix a => -ERR PREFIX option requires BCAST mode to be enabled",
    );
}

#[test]
fn only_what_is_asked_for() {
    let server = Server::start(&[]);
    let mut writer = server.client();
    let mut touch = || drop(writer.call("mset a 1 b 1"));
    let mut client = tracker(&server, "optin");
    client.call("get a");
    touch();
    is_told_nothing(&mut client);
    client.run_script("client caching yes => +OK\nclient trackinginfo => {flags <on optin caching-yes>, redirect :0, prefixes []}\nget a => 1\nget b => 1");
    touch();
    assert_eq!(told(&mut client), ">[invalidate [a]]");
    client.run_script("client caching yes => +OK\nmulti => +OK\nget a => +QUEUED\nget b => +QUEUED\nexec => [1 1]\nget c => nil");
    touch();
    assert_eq!([told(&mut client), told(&mut client)], [">[invalidate [a]]", ">[invalidate [b]]"]);
    client.run_script(
        "client caching no => -ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.
        client caching x => -ERR syntax error
        client tracking on optout => -ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.
        client tracking on optin optout => -ERR You can't specify both OPTIN mode and OPTOUT mode
        client tracking off => +OK
        client caching yes => -ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled
        client tracking on optout => +OK
        client caching no => +OK
        get a => 1
        get b => 1",
    );
    touch();
    assert_eq!(told(&mut client), ">[invalidate [b]]");
    is_told_nothing(&mut client);
}

#[test]
fn scripts_remember_what_they_read_and_tell_what_they_write() {
    let server = Server::start(&[]);
    let (mut client, mut writer) = (tracker(&server, ""), server.client());
    client.call("eval return(redis.call('set','a',1)) 2 a b");
    client.call("eval_ro return(1) 1 a");
    writer.call("mset a 1 b 1");
    is_told_nothing(&mut client);
    client.call("eval return(redis.call('get','a')) 2 a b");
    writer.call("eval redis.call('incr','a')redis.call('incr','b') 0");
    assert_eq!(told(&mut client), ">[invalidate [a]]");
    is_told_nothing(&mut client);
}

#[test]
fn the_table_is_limited() {
    let server = Server::start(&["--tracking-table-max-keys", "10"]);
    let mut reader = tracker(&server, "");
    for i in 0..30 {
        reader.send(format!("GET k{i}\r\n").as_bytes());
    }
    let replies: Vec<String> = (0..50).map(|_| told(&mut reader)).collect();
    assert_eq!(replies.iter().filter(|reply| reply.starts_with(">[invalidate [k")).count(), 20);
    assert_eq!(reader.info("tracking_total_keys"), "10");
    let mut other = server.client();
    assert_eq!(other.call("config set tracking-table-max-keys 3"), ok());
    (0..7).for_each(|_| assert!(told(&mut reader).starts_with(">[invalidate [k")));
    is_told_nothing(&mut reader);
}

/// Drops the copy that a message is about.
fn forget(cache: &mut HashMap<String, Reply>, message: &[Reply]) {
    let Reply::Array(keys) = &message[1] else { panic!("{message:?}") };
    cache.remove(&text(&keys[0]));
}

/// Copies that are dropped when they are said to be not valid are never older than what was read before.
#[test]
fn a_cache_is_never_stale_for_long() {
    const KEYS: u64 = 5;
    let server = Server::start(&["--workers", "3", "--appendfsync", "no"]);
    let seed = seed();
    thread::scope(|scope| {
        for writer in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let (mut client, mut rng) = (server.client(), Rng(seed + writer));
                for _ in 0..2000 {
                    client.call(&format!("incr k{}", rng.below(KEYS)));
                }
            });
        }
        scope.spawn(|| {
            let (mut client, mut rng) = (tracker(&server, ""), Rng(seed));
            let mut cache = HashMap::new();
            for _ in 0..2000 {
                let key = format!("k{}", rng.below(KEYS));
                if cache.contains_key(&key) && !rng.one_in(3) {
                    continue;
                }
                client.send(format!("GET {key}\r\n").as_bytes());
                let value = loop {
                    match client.reply() {
                        Reply::Push(parts) => forget(&mut cache, &parts),
                        value => break value,
                    }
                };
                cache.insert(key, value);
            }
            // All is written; what is then still thought valid is.
            let mut writer = server.client();
            wait_until(
                || "the writers end".into(),
                || {
                    let sum: i64 = (0..KEYS)
                        .map(|n| harness::number(&writer.call(&format!("get k{n}"))).unwrap_or(0) as i64)
                        .sum();
                    sum == 4000
                },
            );
            client.send(b"PING\r\n");
            while let Reply::Push(parts) = client.reply() {
                forget(&mut cache, &parts);
            }
            for (key, value) in cache {
                assert_eq!(writer.call(&format!("get {key}")), value, "{key}");
            }
        });
    });
}
