//! DUMP and RESTORE.

use crate::harness::{Client, Server, show};
use holdfast_resp::Reply;

/// DUMP of a key.
fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&format!("dump {key}")) {
        Reply::Bulk(payload) => payload,
        other => panic!("DUMP {key}: {other:?}"),
    }
}

/// RESTORE of a payload with what comes before and behind it.
fn restore(client: &mut Client, key: &str, ttl: &str, payload: &[u8], options: &str) -> String {
    let mut args: Vec<&[u8]> = vec![b"restore", key.as_bytes(), ttl.as_bytes(), payload];
    args.extend(options.split_whitespace().map(str::as_bytes));
    show(&client.call_args(&args))
}

#[test]
fn values_of_all_types_come_back() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    let many: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    client.call(&format!("set long {}", "x".repeat(100_000)));
    client.call(&format!("rpush list {}", many.join(" ")));
    client.call(&format!("sadd set {}", many.join(" ")));
    client.call(&format!("hset hash {} v", many.join(" v ")));
    client.call(&format!(
        "zadd zset {}",
        many.iter().map(|m| format!("1.5 {m}")).collect::<Vec<_>>().join(" ")
    ));
    client.run_script(
        "set text hello => +OK
         set number -12345 => +OK
         setbit empty 0 0 => :0
         setrange empty 0 a => :1
         pfadd sketch a b c => :1
         rpush small a 1 -70000 => :3
         sadd numbers 1 2 300 => :3
         sadd few a 1 => :2
         zadd few-scored -inf a 0.1 b 1e300 c => :3
         hset fields a 1 b 2 => :2
         hset expiring a 1 b 2 c 3 => :3
         hpexpireat expiring 70000000000000 fields 1 b => [:1]
         xadd stream 1-1 a 1 b 2 => 1-1
         xadd stream 1-2 c 3 => 1-2
         xdel stream 1-1 => :1
         xgroup create stream g 0 => +OK
         xreadgroup group g c count 1 streams stream > => [[stream [[1-2 [c 3]]]]]
         geoadd geo 13.361389 38.115556 Palermo => :1
         expire text 100 => :1
         dump none => nil",
    );
    let looks = [
        ("long", "get"),
        ("text", "get"),
        ("number", "get"),
        ("empty", "get"),
        ("sketch", "get"),
        ("list", "lrange * 0 -1"),
        ("small", "lrange * 0 -1"),
        ("set", "sort * alpha"),
        ("numbers", "smembers"),
        ("few", "smembers"),
        ("zset", "zrange * 0 -1 withscores"),
        ("few-scored", "zrange * 0 -1 withscores"),
        ("geo", "geopos * Palermo"),
        ("stream", "xrange * - +"),
        ("stream", "xpending * g"),
        ("hash", "hlen"),
        ("fields", "hgetall"),
        ("expiring", "hgetall"),
        ("expiring", "hpexpiretime * fields 3 a b c"),
    ];
    let look = |client: &mut Client, key: &str, how: &str| {
        let command = if how.contains('*') { how.replace('*', key) } else { format!("{how} {key}") };
        show(&client.call(&command))
    };
    for (key, how) in looks {
        let payload = dump(&mut client, key);
        // Over values of any type.
        assert_eq!(restore(&mut client, "copy", "0", &payload, "replace"), "+OK", "{key}");
        assert_eq!(look(&mut client, "copy", how), look(&mut client, key, how), "{key}");
        let encodings = [key, "copy"].map(|key| show(&client.call(&format!("object encoding {key}"))));
        assert_eq!(encodings[0], encodings[1], "{key}");
        assert_eq!(show(&client.call("ttl copy")), ":-1");
        assert_eq!(restore(&mut client, &format!("{key}.kept"), "0", &payload, "replace"), "+OK");
    }
    let before: Vec<String> = looks.map(|(key, how)| look(&mut client, key, how)).to_vec();
    let server = server.restart(Server::stop);
    let mut client = server.client();
    for ((key, how), before) in looks.into_iter().zip(before) {
        assert_eq!(look(&mut client, &format!("{key}.kept"), how), before, "{key}");
    }
}

#[test]
fn options_of_restore() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("set k v => +OK");
    let payload = dump(&mut client, "k");
    let mut restore = |key: &str, ttl: &str, options: &str| restore(&mut client, key, ttl, &payload, options);
    assert_eq!(restore("k", "0", ""), "-BUSYKEY Target key name already exists.");
    assert_eq!(restore("k", "x", ""), "-BUSYKEY Target key name already exists.");
    assert_eq!(restore("k", "x", "replace"), "-ERR value is not an integer or out of range");
    assert_eq!(restore("a", "-1", ""), "-ERR Invalid TTL value, must be >= 0");
    assert_eq!(restore("a", "100000", "idletime 5"), "+OK");
    assert_eq!(restore("b", "70000000000000", "absttl freq 255"), "+OK");
    assert_eq!(restore("c", "1", "ABSTTL"), "+OK");
    assert_eq!(restore("k", "1", "absttl replace"), "+OK");
    assert_eq!(restore("d", "0", "absttl"), "+OK");
    assert_eq!(restore("x", "0", "idletime -1"), "-ERR Invalid IDLETIME value, must be >= 0");
    assert_eq!(restore("x", "0", "idletime x"), "-ERR value is not an integer or out of range");
    assert_eq!(restore("x", "0", "freq 256"), "-ERR Invalid FREQ value, must be >= 0 and <= 255");
    for bad in ["freq", "idletime 1 freq 1", "freq 1 idletime 1", "other"] {
        assert_eq!(restore("x", "0", bad), "-ERR syntax error", "{bad}");
    }
    let asking: [&[u8]; 4] = [b"restore-asking", b"asked", b"0", &payload];
    assert_eq!(show(&client.call_args(&asking)), "+OK");
    client.run_script(
        "ttl a => :100
         pexpiretime b => :70000000000000
         exists c k => :0
         ttl d => :-1
         exists x => :0",
    );
}

#[test]
fn bad_payloads_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("rpush k a b c => :3");
    let payload = dump(&mut client, "k");
    for at in 0..payload.len() {
        let mut bad = payload.clone();
        bad[at] ^= 0x10;
        let reply = restore(&mut client, "x", "0", &bad, "");
        assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong", "{at}");
    }
    assert_eq!(restore(&mut client, "x", "0", b"", ""), "-ERR DUMP payload version or checksum are wrong");
    // A list of one element that is missing, with a good checksum.
    let bad = b"\x01\x01\x09\0\x35\x32\x34\xce\x11\xc0\x32\x13";
    assert_eq!(restore(&mut client, "k", "0", bad, "replace"), "-ERR Bad data format");
    client.run_script(
        "exists x => :0
         lrange k 0 -1 => [a b c]",
    );
}
