//! The commands of keys and databases: replies and errors, also within MULTI and when the keys are not in memory.

use crate::harness::{Client, Server, assert_sound, ok, show, wait_until};
use holdfast_resp::{Reply, write_command};
use std::collections::BTreeSet;

/// Also of what is too large for a copy in memory.
#[test]
fn a_transaction_finds_the_names_of_what_it_writes() {
    let server = Server::start(&["--maxmemory", "24mb"]);
    let mut client = server.client();
    assert_eq!(client.call("MULTI"), ok());
    client.call_args(&["SET", "large", &"x".repeat(6 << 20)]);
    for command in ["SCAN 0", "RANDOMKEY", "KEYS *", "DEL large", "KEYS *"] {
        client.call(command);
    }
    assert_eq!(show(&client.call("EXEC")), "[+OK [0 [large]] large [large] :1 []]");
}

#[test]
fn keys_of_any_type() {
    let server = Server::start(&[]);
    server.client().run_script(
        "set string v => +OK
         rpush list a b => :2
         hset hash f v => :1
         type string => +string
         type list => +list
         type hash => +hash
         type none => +none
         exists string list none string => :3
         touch string list none => :2
         del none => :0
         del string none list string => :2
         unlink hash none => :1
         exists string list hash => :0
         object encoding none => nil
         set n 12 => +OK
         object encoding n => int
         object refcount n => :1
         object idletime n => :0
         object freq n => -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.
         object encoding => -ERR wrong number of arguments for 'object|encoding' command
         object nope n => -ERR unknown subcommand 'nope'. Try OBJECT HELP.
         debug object none => -ERR no such key",
    );
}

#[test]
fn the_last_of_several_times_counts_if_they_are_given_alike() {
    let server = Server::start(&[]);
    server.client().run_script(
        "set k 1 ex 100 EX 200 get => nil
         ttl k => :200
         set k 1 exat 9999999999 exat 9999999998 => +OK
         expiretime k => :9999999998
         set k 1 ex 100 px 100 => -ERR syntax error
         set k 1 ex 100 keepttl => -ERR syntax error
         getex k px 100000 px 900000000 => 1
         ttl k => :900000
         getex k px 100000 ex 100 => -ERR syntax error
         getex k persist px 100 => -ERR syntax error
         getex k px 100 persist => -ERR syntax error
         getex k ex => -ERR syntax error
         getex k persist persist => 1
         ttl k => :-1
         getex none ex 100 ex none => nil",
    );
}

#[test]
fn expiries() {
    let server = Server::start(&[]);
    server.client().run_script(
        "set a 1 => +OK
         ttl a => :-1
         ttl none => :-2
         pexpiretime none => :-2
         expire a 100 gt => :0
         expire a 100 xx => :0
         expire a 100 nx => :1
         expire a 200 nx => :0
         ttl a => :100
         expire a 50 gt => :0
         expire a 200 gt => :1
         expire a 300 lt => :0
         expire a 100 lt => :1
         ttl a => :100
         expire a 1 nx xx => -ERR NX and XX, GT or LT options at the same time are not compatible
         expire a 1 gt lt => -ERR GT and LT options at the same time are not compatible
         expire a x bad => -ERR Unsupported option bad
         expire a x => -ERR value is not an integer or out of range
         expire a 9223372036854775807 => -ERR invalid expire time in 'expire' command
         pexpire a 9223372036854775807 => -ERR invalid expire time in 'pexpire' command
         pexpireat a 33177117420499 => :1
         getex a ex 0 => -ERR invalid expire time in 'getex' command
         getex none ex 0 => nil
         getex a ex => -ERR syntax error
         expiretime a => :33177117420
         pexpiretime a => :33177117420499
         persist a => :1
         persist a => :0
         persist none => :0
         expire none 100 => :0
         expire a -1 => :1
         exists a => :0
         set a 1 => +OK
         expireat a 1 => :1
         exists a => :0",
    );
}

#[test]
fn renames_and_copies() {
    let server = Server::start(&[]);
    server.client().run_script(
        "rename none a => -ERR no such key
         renamenx none a => -ERR no such key
         rpush list a b c => :3
         expire list 1000 => :1
         rename list list => +OK
         renamenx list list => :0
         rename list l2 => +OK
         lrange l2 0 -1 => [a b c]
         ttl l2 => :1000
         exists list => :0
         set string v => +OK
         renamenx string l2 => :0
         rename string l2 => +OK
         get l2 => v
         ttl l2 => :-1
         sadd set 1 2 => :2
         copy set set => -ERR source and destination objects are the same
         copy none x => :0
         copy set l2 => :0
         copy set l2 replace => :1
         smembers l2 => [1 2]
         copy set set db 1 => :1
         copy set set db 16 => -ERR DB index is out of range
         copy set set db x => -ERR value is not an integer or out of range
         copy set set db => -ERR syntax error
         copy set x nope => -ERR syntax error
         move set 1 => :0
         move l2 1 => :1
         move l2 1 => :0
         move set 0 => -ERR source and destination objects are the same
         move set 16 => -ERR DB index is out of range
         move set 99999999999 => -ERR value is out of range, value must between -2147483648 and 2147483647
         exists l2 => :0
         swapdb 0 1 => +OK
         dbsize => :2
         smembers l2 => [1 2]
         swapdb 0 x => -ERR invalid second DB index
         swapdb 0 16 => -ERR DB index is out of range
         flushdb nope => -ERR syntax error
         flushdb async => +OK
         dbsize => :0
         flushall => +OK
         select 1 => +OK
         dbsize => :0
         randomkey => nil
         scan 0 => [0 []]",
    );
}

/// Sends SETs of numbered keys.
fn fill(client: &mut Client, keys: usize, value: &str) {
    let mut requests = Vec::new();
    (0..keys).for_each(|n| write_command(&mut requests, &["SET", &format!("key:{n}"), value]));
    client.send(&requests);
    (0..keys).for_each(|_| assert_eq!(show(&client.reply()), "+OK"));
}

fn names(reply: Reply) -> Vec<String> {
    let Reply::Array(items) = reply else { panic!("{reply:?}") };
    items.iter().map(show).collect()
}

fn scan(client: &mut Client, options: &str) -> BTreeSet<String> {
    let (mut seen, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let Reply::Array(reply) = client.call(&format!("SCAN {cursor} {options}")) else { panic!() };
        seen.extend(names(reply[1].clone()));
        cursor = show(&reply[0]);
        assert!(cursor.parse::<u64>().expect("a cursor") < 1 << 53, "a cursor fits a double");
        if cursor == "0" {
            return seen;
        }
    }
}

/// Looks at all keys in all ways; the keys are `key:0`, `key:1`, … and a list.
fn look(client: &mut Client, keys: usize) {
    let all: BTreeSet<String> = (0..keys).map(|n| format!("key:{n}")).chain(["list".into()]).collect();
    assert_eq!(client.call("DBSIZE"), Reply::Int(all.len() as i64));
    let found: BTreeSet<String> = names(client.call("KEYS *")).into_iter().collect();
    assert_eq!(found, all);
    let some: BTreeSet<String> = all.iter().filter(|key| key.starts_with("key:1")).cloned().collect();
    assert_eq!(names(client.call("KEYS key:1*")).into_iter().collect::<BTreeSet<_>>(), some);
    for count in [1, 10, 1000, 1_000_000] {
        assert_eq!(scan(client, &format!("COUNT {count}")), all);
    }
    assert_eq!(scan(client, "MATCH key:1* COUNT 100"), some);
    assert_eq!(scan(client, "TYPE list COUNT 1000"), BTreeSet::from(["list".to_owned()]));
    assert_eq!(scan(client, "TYPE string COUNT 1000").len(), keys);
    assert_eq!(scan(client, "TYPE stream COUNT 1000").len(), 0);
    client.run_script("scan 0 type nope => -ERR unknown type name 'nope'");
    for _ in 0..20 {
        assert!(all.contains(&show(&client.call("RANDOMKEY"))));
    }
    for command in ["MULTI", "KEYS *", "DBSIZE", "RANDOMKEY", "SCAN 0 COUNT 10", "INFO keyspace", "LASTSAVE"]
    {
        client.call(command);
    }
    let Reply::Array(replies) = client.call("EXEC") else { panic!() };
    assert_eq!(names(replies[0].clone()).into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(replies[1], Reply::Int(all.len() as i64));
    assert!(all.contains(&show(&replies[2])));
    assert!(show(&replies[4]).contains(&format!("db0:keys={},expires=0", all.len())), "{:?}", replies[4]);
}

#[test]
fn all_keys_are_found_wherever_they_are() {
    let keys = 5000;
    let server = Server::start(&[]);
    let mut client = server.client();
    fill(&mut client, keys, &"v".repeat(1000));
    client.call("RPUSH list a b");
    look(&mut client, keys);
    // Then no value is in memory, and a look at the keys brings none back.
    let server = server.restart(Server::kill);
    let mut client = server.client();
    look(&mut client, keys);
    client.run_script(
        "rename key:1 key:x => +OK
         exists key:1 => :0
         strlen key:x => :1000
         copy key:2 key:y => :1
         strlen key:y => :1000
         move key:3 1 => :1
         expire key:4 0 => :1
         flushall => +OK
         keys * => []
         dbsize => :0",
    );
}

#[test]
fn checkpoints_are_taken_when_asked_for() {
    let server = Server::start(&[]);
    let mut client = server.client();
    fill(&mut client, 100, "value");
    client.run_script(
        "save => +OK
         save now => -ERR wrong number of arguments for 'save' command
         bgsave => +Background saving started
         bgsave schedule => +Background saving started
         bgsave nope => -ERR syntax error
         bgrewriteaof => +Background append only file rewriting started
         multi => +OK
         save => -ERR Command not allowed inside a transaction
         discard => +OK",
    );
    let Reply::Int(at) = client.call("LASTSAVE") else { panic!() };
    assert!(at > 1_700_000_000);
    let info = show(&client.call("INFO persistence"));
    let line = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {info}")).to_owned()
    };
    assert_ne!(line("checkpoints"), "0");
    assert_eq!(line("rdb_last_bgsave_status"), "ok");
    assert_ne!(line("log_batches"), "0");
    let server = server.restart(Server::kill);
    assert_eq!(server.client().call("DBSIZE"), Reply::Int(100));
}

#[test]
fn expired_keys_stay_until_somebody_looks_if_told_so() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "debug set-active-expire 0 => +OK
         set a v px 20 => +OK
         debug sleep 0.3 => +OK
         dbsize => :1
         keys * => []
         scan 0 => [0 []]
         get a => nil
         dbsize => :0
         debug set-active-expire 1 => +OK",
    );
}

#[test]
fn what_is_flushed_or_unlinked_is_freed_in_the_background_also_after_a_kill() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let allocated = |client: &mut Client| client.info("mem_heap_allocated").parse::<u64>().expect("a number");
    let empty = allocated(&mut client);
    for (key, remove) in [("large", "UNLINK large"), ("flushed", "FLUSHALL")] {
        for chunk in 0..20 {
            let fields: Vec<String> = (0..1000).map(|n| format!("field:{chunk}:{n} {n:080}")).collect();
            client.call(&format!("HSET {key} {}", fields.join(" ")));
        }
        fill(&mut client, 1000, "value");
        assert!(allocated(&mut client) > empty + 2_000_000);
        client.call(remove);
        assert_eq!(client.call(&format!("EXISTS {key}")), Reply::Int(0));
    }
    assert_eq!(client.call("DBSIZE"), Reply::Int(0));
    let server = server.restart(Server::kill);
    let mut client = server.client();
    assert_eq!(client.call("DBSIZE"), Reply::Int(0));
    wait_until(|| "the memory is freed".into(), || allocated(&mut client) < empty + 200_000);
    server.client().run_script(
        "set a 1 => +OK
         flushall sync => +OK
         dbsize => :0",
    );
    assert_sound(&server.stop());
}

/// However often all databases are flushed: who asks waits until enough is freed.
#[test]
fn all_databases_can_be_flushed_again_and_again() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for round in 0..6 {
        let mut requests = Vec::new();
        for db in 0..16 {
            write_command(&mut requests, &["SELECT", &db.to_string()]);
            for key in 0..200 {
                write_command(
                    &mut requests,
                    &["HSET", &format!("key:{key}"), "f", "v", "g", &"v".repeat(200)],
                );
            }
        }
        client.send(&requests);
        for _ in 0..16 * 201 {
            assert!(!matches!(client.reply(), Reply::Error(_)));
        }
        match round % 3 {
            0 | 1 => assert_eq!(client.call("FLUSHALL"), ok()),
            _ => client.run_script(
                "multi => +OK
                 flushall => +QUEUED
                 set a 1 => +QUEUED
                 exec => [+OK +OK]
                 del a => :1",
            ),
        }
        for db in 0..16 {
            client.call(&format!("SELECT {db}"));
            assert_eq!(client.call("DBSIZE"), Reply::Int(0));
        }
    }
    // A script cannot wait.
    let script = "local done = redis.pcall('flushall') return done.ok or done.err";
    match client.call_args(&["EVAL", script, "0"]) {
        Reply::Bulk(text) => {
            assert!(text == b"OK" || text.ends_with(b"Try again later."), "{}", text.escape_ascii())
        }
        other => panic!("{other:?}"),
    }
    assert_sound(&server.stop());
}

#[test]
fn who_waits_follows_a_database_that_is_exchanged() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for exchange in ["SWAPDB 0 1", "FLUSHALL"] {
        let mut waiting = server.client();
        waiting.send(b"BLPOP list 0\r\n");
        wait_until(|| "the client waits".into(), || client.info("blocked_clients") == "1");
        client.call("SET key value");
        assert_eq!(show(&client.call(exchange)), "+OK");
        assert_eq!(client.call("RPUSH list element"), Reply::Int(1));
        assert_eq!(show(&waiting.reply()), "[list element]");
    }
}

#[test]
fn options_may_be_set_within_a_transaction() {
    let server = Server::start(&[]);
    server.client().run_script(
        "multi => +OK
         hset a f v => +QUEUED
         config set hash-max-listpack-entries 1 => +QUEUED
         exec => [:1 +OK]
         hset b f v g w => :2
         object encoding b => hashtable",
    );
}
