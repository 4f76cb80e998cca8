//! What is known of the uses of keys, and which keys are evicted.

use crate::harness::{
    Client, Server, array, assert_sound, bulk, error, is_error, number, ok, text, wait_until,
};
use holdfast_resp::{Reply, write_command};
use std::{collections::BTreeSet, ops::Range, thread::sleep, time::Duration};

const LIMIT: u64 = 4 << 20;
/// Bytes of a value, and what is counted for a key with such a one, about.
const VALUE: usize = 1000;
const COUNTED: u64 = 1048;
/// As many keys as there is room for, about.
const ROOM: u64 = LIMIT / COUNTED;

fn idle_s(client: &mut Client, key: &str) -> u64 {
    number(&client.call(&format!("object idletime {key}"))).expect("a time")
}

fn frequency(client: &mut Client, key: &str) -> u64 {
    number(&client.call(&format!("object freq {key}"))).expect("a count")
}

#[test]
fn idle_times_are_since_the_last_use_that_counts_as_one() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut client, mut untouching) = (server.client(), server.client());
    client.run_script(
        "mset looked v used v touched v shielded v listed v => +OK
         rpush list a => :1
         rpush usedlist a => :1
         rpush shieldedlist a => :1
         rpush source a => :1",
    );
    assert_eq!(untouching.call("client no-touch on"), ok());
    sleep(Duration::from_millis(2100));
    client.run_script(
        "type looked => +string
         exists looked list => :2
         ttl looked => :-1
         object encoding looked => embstr
         object encoding list => listpack
         get used => v
         expire listed 100 => :1
         llen usedlist => :1
         rename source renamed => +OK",
    );
    untouching.run_script(
        "get shielded => v
         lrange shieldedlist 0 -1 => [a]
         touch touched => :1",
    );
    assert!(number(&client.call("memory usage list")).is_some());
    assert!(matches!(client.call("debug object looked"), Reply::Simple(_)));
    for key in ["looked", "list", "shielded", "shieldedlist"] {
        assert!(idle_s(&mut client, key) >= 2, "{key}");
    }
    for key in ["used", "touched", "listed", "usedlist", "renamed"] {
        assert!(idle_s(&mut client, key) < 2, "{key}");
    }
    let Reply::Bulk(payload) = client.call("dump list") else { panic!("a payload") };
    let mut restore = |options: &[&str]| {
        let mut args = vec![
            b"restore".to_vec(),
            b"restored".to_vec(),
            b"0".to_vec(),
            payload.clone(),
            b"replace".to_vec(),
        ];
        args.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        assert_eq!(client.call_args(&args), ok());
    };
    restore(&["idletime", "100000"]);
    restore(&["freq", "9"]);
    restore(&["idletime", "1000"]);
    let idle = idle_s(&mut client, "restored");
    assert!((1000..1010).contains(&idle), "{idle}");
}

#[test]
fn uses_are_counted_under_a_policy_that_wants_it() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0"]);
    let mut client = server.client();
    client.run_script(
        "set string v => +OK
         rpush list a => :1
         object idletime string => -ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.
         object freq none => nil
         object freq string => :5
         object freq list => :5
         get string => v
         get string => v
         llen list => :1
         object freq string => :7
         object freq list => :6
         set string other => +OK
         object freq string => :8
         config set lfu-log-factor 1000000 => +OK
         get string => other
         object freq string => :8",
    );
    let payload = match client.call("dump string") {
        Reply::Bulk(payload) => payload,
        other => panic!("{other:?}"),
    };
    for (count, key) in [("200", "restored"), ("0", "string")] {
        let args = [b"restore", key.as_bytes(), b"0", &payload, b"replace", b"freq", count.as_bytes()];
        assert_eq!(client.call_args(&args), ok());
        assert_eq!(frequency(&mut client, key).to_string(), count);
    }
    client.run_script(
        "config set maxmemory-policy noeviction => +OK
         object freq string => -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    assert!(idle_s(&mut client, "string") < 2);
}

/// Sets keys with a prefix, by a command that ends with the value, some at a time; returns what was not accepted.
fn fill(client: &mut Client, prefix: &str, keys: Range<u64>, command: impl Fn(&str) -> String) -> Vec<Reply> {
    let keys: Vec<u64> = keys.collect();
    let mut refused = Vec::new();
    for chunk in keys.chunks(100) {
        let mut requests = Vec::new();
        for n in chunk {
            let command = command(&format!("{prefix}{n}"));
            let mut args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            let value = [b'v'; VALUE];
            args.push(&value);
            write_command(&mut requests, &args);
        }
        client.send(&requests);
        refused.extend(chunk.iter().map(|_| client.reply()).filter(|reply| *reply != ok()));
    }
    refused
}

fn set(key: &str) -> String {
    format!("set {key}")
}

fn keys(client: &mut Client, prefix: &str) -> BTreeSet<String> {
    match client.call(&format!("keys {prefix}*")) {
        Reply::Array(names) => names.iter().map(text).collect(),
        other => panic!("{other:?}"),
    }
}

fn size(client: &mut Client) -> u64 {
    number(&client.call("dbsize")).expect("a number")
}

fn evicted(client: &mut Client) -> u64 {
    client.info("evicted_keys").parse().expect("a number")
}

fn assert_counted(client: &mut Client) {
    let counted: u64 = client.info("used_memory").parse().expect("a number");
    assert!(counted <= LIMIT + LIMIT / 50 && counted > LIMIT * 9 / 10, "{counted} bytes");
}

/// A server that evicts by a policy.
fn server(policy: &str) -> Server {
    let limit = LIMIT.to_string();
    let options = ["--maxmemory", &limit, "--maxmemory-policy", policy, "--appendfsync", "no"];
    Server::start(&[&options[..], &["--maxmemory-samples", "10", "--lfu-log-factor", "0"]].concat())
}

/// Half of the keys that there is room for are old, and half of those are used; then come new ones. Returns how many old ones
/// are left: used ones and others.
fn survivors(server: &Server, use_again: impl Fn(&mut Client, &str)) -> (usize, usize) {
    let mut client = server.client();
    assert_eq!(fill(&mut client, "old:", 0..ROOM / 2, set), []);
    sleep(Duration::from_millis(2100));
    for n in 0..ROOM / 4 {
        use_again(&mut client, &format!("old:{n}"));
    }
    assert_eq!(fill(&mut client, "new:", 0..ROOM * 5 / 8, set), []);
    let written = ROOM / 2 + ROOM * 5 / 8;
    wait_until(
        || "all keys are there or counted".into(),
        || evicted(&mut client) + size(&mut client) == written,
    );
    let (used, others): (Vec<String>, Vec<String>) = keys(&mut client, "old:")
        .into_iter()
        .partition(|name| name["old:".len()..].parse::<u64>().expect("a number") < ROOM / 4);
    (used.len(), others.len())
}

#[test]
fn keys_that_were_not_used_for_long_go_first() {
    let server = server("allkeys-lru");
    let (used, others) = survivors(&server, |client, key| {
        client.call(&format!("get {key}"));
    });
    // Samples of ten are not always right.
    let quarter = ROOM as usize / 4;
    assert!(others < quarter * 9 / 10, "{others} of {quarter}");
    assert!((quarter - used) * 5 < quarter - others, "{used} and {others} of {quarter}");
}

#[test]
fn keys_that_are_used_seldom_go_first() {
    let server = server("allkeys-lfu");
    let (used, others) = survivors(&server, |client, key| {
        (0..3).for_each(|_| drop(client.call(&format!("get {key}"))));
    });
    let quarter = ROOM as usize / 4;
    assert!(used > quarter * 98 / 100, "{used} of {quarter}");
    // What is new was not used more often.
    assert!(others < quarter, "{others} of {quarter}");
}

#[test]
fn as_many_keys_stay_as_there_is_room_for_and_survive_a_restart() {
    let server = server("allkeys-random");
    let mut client = server.client();
    let mut sizes = Vec::new();
    for tenth in 0..30 {
        let from = tenth * ROOM / 10;
        assert_eq!(fill(&mut client, "key:", from..from + ROOM / 10, set), []);
        sizes.push(size(&mut client));
    }
    for (tenth, size) in sizes.iter().enumerate().skip(12) {
        assert!(size.abs_diff(sizes[29]) < ROOM / 20, "{size} keys after {tenth} tenths, {sizes:?}");
    }
    assert!(sizes[29].abs_diff(ROOM) < ROOM / 10, "{} keys of {ROOM}", sizes[29]);
    assert_counted(&mut client);
    assert!(client.info("total_eviction_exceeded_time").parse::<u64>().is_ok());

    // Collections count as well, and go as well.
    for n in 0..2000 {
        let key = format!("hash:{n}");
        let fields: Vec<String> = (0..20).map(|field| format!("field:{field}")).collect();
        let mut args = vec!["hset", &key];
        fields.iter().for_each(|field| args.extend([field.as_str(), "some value of a field"]));
        assert_eq!(client.call_args(&args), Reply::Int(20));
    }
    assert!(keys(&mut client, "hash:").len() > 1000);
    assert_counted(&mut client);
    assert_eq!(client.call("config set appendfsync always"), ok());
    assert_eq!(client.call("set last v"), ok());
    assert_eq!(client.call("config set maxmemory 1gb"), ok());
    let before = keys(&mut client, "");
    let server = server.restart(Server::kill);
    // It has its limit again.
    let mut client = server.client();
    let after = keys(&mut client, "");
    assert!(after.is_subset(&before));
    assert!((before.len() - after.len()) as u64 <= evicted(&mut client));
    assert!(after.len() > before.len() * 9 / 10);
    assert_sound(&server.stop());
}

#[test]
fn a_volatile_policy_takes_only_keys_that_expire() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let server = server(policy);
        let mut client = server.client();
        assert_eq!(fill(&mut client, "keep:", 0..ROOM / 4, set), [], "{policy}");
        let late = |key: &str| format!("setex {key} 10000");
        assert_eq!(fill(&mut client, "late:", 0..ROOM / 4, late), [], "{policy}");
        let soon = |key: &str| format!("setex {key} 1000");
        assert_eq!(fill(&mut client, "soon:", 0..ROOM / 4, soon), [], "{policy}");
        assert_eq!(fill(&mut client, "more:", 0..ROOM / 2, set), [], "{policy}");
        let (late, soon) = (keys(&mut client, "late:").len(), keys(&mut client, "soon:").len());
        assert!(late + soon < ROOM as usize / 3, "{policy}: {late} {soon}");
        if policy == "volatile-ttl" {
            // Of each it had a quarter, and sees a sample when it takes one.
            assert!(late > ROOM as usize / 5 && soon < ROOM as usize / 10, "{late} {soon}");
        }
        // When there are no more such keys, nothing more is taken in.
        let refused = fill(&mut client, "most:", 0..ROOM / 2, set);
        assert!(refused.iter().all(|reply| is_error(reply, "OOM ")) && !refused.is_empty(), "{policy}");
        assert_eq!(keys(&mut client, "late:").len() + keys(&mut client, "soon:").len(), 0, "{policy}");
        assert_eq!(
            keys(&mut client, "keep:").len() + keys(&mut client, "more:").len(),
            (ROOM / 4 + ROOM / 2) as usize
        );
        // What clients take changes from one second to the next.
        wait_until(
            || format!("{policy}: scripts are refused, too"),
            || {
                fill(&mut client, "extra:", 0..20, set);
                is_error(&client.call("eval return(redis.call('set',KEYS[1],'v')) 1 x"), "OOM ")
            },
        );
        for n in 0..ROOM / 2 {
            client.call(&format!("unlink more:{n}"));
        }
        assert_eq!(client.call("set x v"), ok(), "{policy}");
        assert_eq!(evicted(&mut client), ROOM / 4 * 2, "{policy}");
    }
}

#[test]
fn who_wants_to_know_is_told_of_evicted_keys() {
    let server = Server::start(&["--notify-keyspace-events", "Ee", "--workers", "2", "--appendfsync", "no"]);
    let (mut client, mut watching) = (server.client(), server.client());
    let (mut listener, mut tracking) = (server.client(), server.client());
    client.run_script("set watched v => +OK\nset tracked v => +OK\nset cold v => +OK\nrpush list v => :1");
    assert_eq!(watching.call("watch watched"), ok());
    tracking.call("hello 3");
    assert_eq!(tracking.call("client tracking on"), ok());
    assert_eq!(tracking.call("get tracked"), bulk("v"));
    listener.call("subscribe __keyevent@0__:evicted");
    client.run_script(
        "config set maxmemory-policy allkeys-lru => +OK
         multi => +OK
         set other v => +QUEUED
         config set maxmemory 1 => +QUEUED
         set another v => +QUEUED
         exec => [+OK +OK +OK]",
    );
    wait_until(|| "all keys are evicted".into(), || size(&mut client) == 0);
    assert_eq!(evicted(&mut client), 6);
    let mut told: Vec<Reply> = (0..6).map(|_| listener.reply()).collect();
    let mut expected: Vec<Reply> = ["another", "cold", "list", "other", "tracked", "watched"]
        .iter()
        .map(|key| array(["message", "__keyevent@0__:evicted", key].map(bulk)))
        .collect();
    told.sort_by_key(|reply| format!("{reply:?}"));
    expected.sort_by_key(|reply| format!("{reply:?}"));
    assert_eq!(told, expected);
    assert_eq!(tracking.reply(), Reply::Push(vec![bulk("invalidate"), array([bulk("tracked")])]));
    // Clients alone take more than that.
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    wait_until(|| "nothing is taken in".into(), || client.call("set key v") == error(OOM));
    client.run_script(
        "config set maxmemory 100mb => +OK
         set key v => +OK",
    );
    watching.run_script("multi => +OK\nget watched => +QUEUED\nexec => nil");
    client.run_script(
        "config set maxmemory-policy noeviction => +OK
         config set maxmemory 1 => +OK
         set key v => -OOM command not allowed when used memory > 'maxmemory'.",
    );
}

#[test]
fn what_is_being_freed_makes_room_before_keys_are_evicted() {
    let server = server("allkeys-lru");
    let mut client = server.client();
    for round in 0..3 {
        for large in 0..3 {
            let members: Vec<String> =
                (0..6000).map(|n| format!("member of a large set {round}:{n}")).collect();
            let key = format!("large:{large}");
            let args = [vec!["sadd", &key], members.iter().map(String::as_str).collect()].concat();
            assert_eq!(client.call_args(&args), Reply::Int(6000));
        }
        assert_eq!(client.call("flushall"), ok());
        let prefix = format!("key:{round}:");
        assert_eq!(fill(&mut client, &prefix, 0..ROOM / 2, set), []);
        assert_eq!(keys(&mut client, &prefix).len(), ROOM as usize / 2);
        assert_eq!(client.call("flushall"), ok());
    }
}
