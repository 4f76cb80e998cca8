//! The commands about clients: what they see of each other, pausing and killing.

use crate::harness::{Client, Server, array, bulk, bulks, ok, show, text, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{mem, thread, time::Duration};

#[test]
fn pauses_stop_what_may_write() {
    let server = Server::start(&["--workers", "3"]);
    let (mut client, mut other, mut admin) = (server.client(), server.client(), server.client());
    let blocked = |admin: &mut Client, count: &str| {
        wait_until(|| format!("{count} wait"), || admin.info("blocked_clients") == count);
    };
    client.call("set a 1");
    client.call("set short 1 px 700");
    assert_eq!(admin.call("client pause 100000 write"), ok());
    client.run_script(
        "get a => 1
        set a => -ERR wrong number of arguments for 'set' command
        multi => +OK
        get a => +QUEUED
        exec => [1]",
    );
    // What expires is not there, but is not removed.
    wait_until(|| "time passes".into(), || client.call("get short") == Reply::Null);
    thread::sleep(Duration::from_millis(150));
    assert_eq!([admin.info("expired_keys"), admin.info("blocked_clients")], ["0", "0"]);
    let script = "#!lua flags=no-writes\n return redis.call('get', KEYS[1])";
    assert_eq!(client.call_args(&["eval", script, "1", "a"]), bulk("1"));
    client.send(b"SET a 2\r\n");
    other.send(b"PUBLISH c x\r\n");
    blocked(&mut admin, "2");
    assert_eq!(admin.call("get a"), bulk("1"));
    assert_eq!(admin.call("client unpause"), ok());
    assert_eq!([client.reply(), other.reply()], [ok(), Reply::Int(0)]);
    blocked(&mut admin, "0");
    assert_eq!(client.call("get short"), Reply::Null);
    wait_until(|| "it is removed".into(), || admin.info("expired_keys") == "1");

    // Within a transaction a pause begins at the end; what is queued decides whether EXEC waits.
    other.send(b"MULTI\r\nSET a 4\r\n");
    assert_eq!([other.reply(), other.reply()], [ok(), Reply::Simple(b"QUEUED".to_vec())]);
    client.run_script(
        "multi => +OK
        client pause 300 write => +QUEUED
        set a 3 => +QUEUED
        exec => [+OK +OK]
        get a => 3",
    );
    other.send(b"EXEC\r\n");
    blocked(&mut admin, "1");
    assert_eq!(admin.call("get a"), bulk("3"));
    assert_eq!(other.reply(), array([ok()]));

    let error = "-ERR timeout is out of range";
    assert_eq!(show(&admin.call("client pause 9223372036854775807")), error);
    // Who has waited is served with what came before the pause, for others wait for that; and its time goes on.
    client.send(b"BLPOP list 0\r\n");
    blocked(&mut admin, "1");
    other.send(b"BLPOP nothing 0.3\r\n");
    blocked(&mut admin, "2");
    admin.send(b"RPUSH list element\r\nCLIENT PAUSE 100000 WRITE\r\n");
    assert_eq!([admin.reply(), admin.reply()], [Reply::Int(1), ok()]);
    assert_eq!(client.reply(), bulks(["list", "element"]));
    assert_eq!([admin.call("llen list"), other.reply()], [Reply::Int(0), Reply::Null]);
    other.send(b"CLIENT ID\r\n");
    let Reply::Int(id) = other.reply() else { panic!("no number") };
    assert_eq!(admin.call("client unpause"), ok());
    other.send(b"BLPOP nothing 0\r\n");
    blocked(&mut admin, "1");
    assert_eq!(admin.call("client pause 100000 write"), ok());
    assert_eq!(admin.call(&format!("client unblock {id}")), Reply::Int(1));
    assert_eq!(other.reply(), Reply::Null);
}

#[test]
fn what_others_see_of_a_client() {
    let server = Server::start(&["--workers", "3"]);
    let (mut client, mut other) = (server.client(), server.client());
    let Reply::Int(id) = client.call("client id") else { panic!("no number") };
    let mut field = |name: &str| {
        let list = text(&other.call(&format!("client list id {id}")));
        let value = list.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name}: {list}")).to_owned()
    };
    client.call("watch a b");
    assert_eq!([field("watch"), field("flags"), field("cmd")], ["2", "U", "watch"]);
    client.call("multi");
    client.call("set a 1");
    assert_eq!([field("multi"), field("flags"), field("cmd")], ["1", "xU", "multi"]);
    assert_ne!(field("multi-mem"), "0");
    client.call("discard");
    assert_eq!([field("multi"), field("watch")], ["-1", "0"]);
    let counts = |field: &mut dyn FnMut(&str) -> String| {
        ["tot-net-in", "tot-net-out", "tot-cmds"].map(|name| field(name).parse::<u64>().expect("a number"))
    };
    // A reply may arrive before its worker has counted its bytes.
    let mut before = counts(&mut field);
    wait_until(
        || "what was sent is counted".into(),
        || {
            thread::sleep(Duration::from_millis(10));
            mem::replace(&mut before, counts(&mut field)) == before
        },
    );
    client.call("ping");
    // *1\r\n$4\r\nping\r\n and +PONG\r\n
    let after = [before[0] + 14, before[1] + 7, before[2] + 1];
    wait_until(|| format!("{after:?} are counted"), || counts(&mut field) == after);
    let big = "v".repeat(1 << 20);
    client.call_args(&["set", "big", &big]);
    // As long as it does not read, the reply waits.
    client.send(&b"GET big\r\n".repeat(20));
    wait_until(|| "output waits".into(), || field("omem") != "0" && field("oll") == "1");
    (0..20).for_each(|_| assert_eq!(client.reply(), bulk(&big)));
    wait_until(|| "output is sent".into(), || field("omem") == "0" && field("obl") == "0");
}

/// Whichever worker serves it, and however often it is tried.
#[test]
fn who_is_unblocked_is_not_counted_any_more() {
    let server = Server::start(&["--workers", "3"]);
    let (mut client, mut admin) = (server.client(), server.client());
    let Reply::Int(id) = client.call("client id") else { panic!("no number") };
    for _ in 0..50 {
        client.send(b"BLPOP list 0\r\n");
        wait_until(|| "it waits".into(), || admin.info("blocked_clients") == "1");
        let unblock = format!("client unblock {id}\r\n");
        admin.send(format!("{unblock}{unblock}").as_bytes());
        assert_eq!([admin.reply(), admin.reply()], [Reply::Int(1), Reply::Int(0)]);
        assert_eq!([admin.info("blocked_clients"), admin.info("total_blocking_keys")], ["0", "0"]);
        assert_eq!(client.reply(), Reply::Null);
    }
}

#[test]
fn clients_are_killed_by_what_they_are() {
    let server = Server::start(&["--workers", "2"]);
    let mut admin = server.client();
    let mut listener = server.client();
    listener.call("subscribe a");
    let mut plain = server.client();
    let Reply::Int(id) = plain.call("client id") else { panic!("no number") };
    for (command, reply) in [
        ("client kill type pubsub id 99999", ":0"),
        ("client kill type pubsub", ":1"),
        ("client kill type replica", ":0"),
        ("client kill maxage 1000", ":0"),
    ] {
        assert_eq!(show(&admin.call(command)), reply, "{command}");
    }
    assert_eq!(listener.try_reply(), None);
    assert_eq!(admin.call(&format!("client kill id {id} skipme no user default")), Reply::Int(1));
    assert_eq!(plain.try_reply(), None);
    wait_until(|| "one is left".into(), || admin.info("connected_clients") == "1");
    assert_eq!(admin.call("client kill skipme no"), Reply::Int(1));
    assert_eq!(admin.try_reply(), None);
}

#[test]
fn the_memory_of_all_clients_is_limited() {
    let server = Server::start(&["--maxmemory-clients", "4mb", "--workers", "2", "--appendfsync", "no"]);
    let (mut small, mut protected, mut admin) = (server.client(), server.client(), server.client());
    assert_eq!(protected.call("client no-evict on"), ok());
    // It sends a large value, and may be the largest for a moment.
    assert_eq!(admin.call("client no-evict on"), ok());
    small.call("ping");
    // Input that does not end, a transaction that grows, output that is not read: each is the largest in its turn.
    let mut input = server.client();
    input.send(b"*2\r\n$4\r\nECHO\r\n$9000000\r\n");
    assert!(input.try_send(&vec![b'x'; 6 << 20]).is_err() || input.try_reply().is_none());
    let mut queue = server.client();
    queue.call("multi");
    let mut command = Vec::new();
    write_command(&mut command, &["SET", "a", &"v".repeat(500_000)]);
    while queue.try_send(&command).is_ok() && queue.try_reply().is_some() {}
    admin.call_args(&["set", "big", &"v".repeat(1 << 20)]);
    let mut output = server.client();
    // What is sent may be lost when the connection ends, so not even this is sure to be read.
    let _ = output.try_send(&b"GET big\r\n".repeat(10));
    thread::sleep(Duration::from_millis(100));
    wait_until(|| "three are gone".into(), || admin.info("evicted_clients") == "3");
    assert_eq!(small.call("ping"), Reply::Simple(b"PONG".to_vec()));

    protected.send(b"*2\r\n$4\r\nECHO\r\n$6000000\r\n");
    protected.send(&vec![b'x'; 6_000_000]);
    protected.send(b"\r\n");
    assert_eq!(protected.reply().as_bytes().map(<[u8]>::len), Some(6_000_000));
    for (value, shown) in [("0", "0"), ("1mb", "1048576"), ("50%", "50%")] {
        assert_eq!(admin.call(&format!("config set maxmemory-clients {value}")), ok());
        assert_eq!(show(&admin.call("config get maxmemory-clients")), format!("[maxmemory-clients {shown}]"));
    }
    // With a mistyped limit the server can still be told another one.
    let server = Server::start(&["--maxmemory-clients", "1"]);
    let mut client = server.client();
    client.call("ping");
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(client.call("config set maxmemory-clients 0"), ok());
}
