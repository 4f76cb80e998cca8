//! Keyspace notifications: which events are published, in which order, and when they may be seen.

use crate::harness::{self, Client, Server, ok, text, wait_until};
use holdfast_resp::Reply;

/// A client that listens to all events.
fn listener(server: &Server) -> Client {
    let mut listener = server.client();
    listener.call("psubscribe __key*__:*");
    listener
}

/// What a listener was told since the last call: `event key`, each once, or `db event key` of databases other than 0.
fn events(client: &mut Client, listener: &mut Client) -> Vec<String> {
    client.call("publish __keymark__: end");
    let mut events: Vec<String> = Vec::new();
    loop {
        let Reply::Array(parts) = listener.reply() else { panic!("no message") };
        let [_, _, channel, message] = &parts[..] else { panic!("{parts:?}") };
        let (channel, message) = (text(channel), text(message));
        let (place, name) = channel.split_once("__:").expect("a channel of events");
        let event = match place.split_once('@') {
            None => return events,
            Some(("__keyspace", db)) => (db, message.as_str(), name),
            Some((_, db)) => (db, name, message.as_str()),
        };
        let db = if event.0 == "0" { String::new() } else { format!("{} ", event.0) };
        let event = format!("{db}{} {}", event.1, event.2);
        match place.starts_with("__keyspace") {
            true => events.push(event),
            // The same event on the other kind of channel.
            false => assert_eq!(events.last(), Some(&event)),
        }
    }
}

#[test]
fn every_change_has_its_event() {
    let server = Server::start(&["--notify-keyspace-events", "KEA", "--appendfsync", "no"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    for line in "
        set s 1 => set s
        set s 1 ex 100 => set s, expire s
        setex s 100 1 => set s, expire s
        get s =>
        incr s => incrby s
        decrby s 2 => incrby s
        incrbyfloat s 0.5 => incrbyfloat s
        append s x => append s
        setrange s 0 y => setrange s
        setrange s 0  =>
        getset s 1 => set s
        expire s 100 => expire s
        getex s persist => persist s
        getex s persist =>
        getex s ex 100 => expire s
        getex s exat 1 => del s
        setnx s 1 => set s
        setnx s 1 =>
        set s 2 nx =>
        mset s 1 t 2 => set s, set t
        msetnx u 1 v 2 => set u, set v
        msetnx u 1 w 2 =>
        setbit p 9 1 => setbit p
        setbit p 9 1 =>
        setbit p 20 0 => setbit p
        bitop not q p => set q
        bitop and q none => del q
        bitop and q none =>
        bitfield p set u8 0 1 get u8 0 => setbit p
        bitfield p set u8 0 1 =>
        pfadd q 1 2 => pfadd q
        pfadd q 1 =>
        pfmerge r q => pfadd r
        getdel u => del u
        getdel u =>
        del s t nothing => del s, del t
        unlink v => del v
        set s 1 => set s
        expire s 100 => expire s
        expire s 10 gt =>
        persist s => persist s
        persist s =>
        rename s t => rename_from s, rename_to t
        renamenx t s => rename_from t, rename_to s
        copy s t => copy_to t
        copy s t =>
        copy s t db 3 => 3 copy_to t
        move t 4 => move_from t, 4 move_to t
        pexpire s -1 => del s
        vec.create v int32 len 3 => set v
        vec.set v 0 1 => setrange v
        vec.setrange v 0 values 1 2 => setrange v
        vec.create v string len 3 => rpush v
        vec.set v 0 a => lset v
        vec.setrange v 0 values a b => lset v
        ai.tensorset tensor int8 1 => set tensor
        ai.tensorset tensor int8 1 values 5 => set tensor
        ai.modelstore model onnx cpu blob x => set model
        ai.modeldel model => del model
        ai.scriptset script cpu source x => set script
        ai.scriptdel script => del script
        hset h a 1 b 2 => hset h
        hsetnx h a 1 =>
        hsetnx h c 1 => hset h
        hincrby h a 1 => hincrby h
        hincrbyfloat h a 1 => hincrbyfloat h
        ngram.incr h a a => hincrby h
        ngram.incrby h a 1 => hincrby h
        graph.addedge gv gw => zadd gv, zadd gw
        graph.addedge gv gw =>
        graph.addhalf gv out x y => zadd gv
        graph.removehalf gv out x none => zrem gv
        graph.removeedge gv gw gw gv => zrem gv, zrem gw, del gw
        graph.addedge gv gw gu gv => zadd gu, zadd gv, zadd gw
        graph.removevertex gv => zrem gu, del gu, zrem gw, del gw, zrem gv, del gv
        hdel h a x => hdel h
        hdel h x =>
        hdel h b c => hdel h, del h
        hset h a 1 b 2 => hset h
        hexpire h 100 fields 1 a => hexpire h
        hpersist h fields 1 a => hpersist h
        hpersist h fields 1 a =>
        hpexpire h 0 fields 1 a => hdel h
        hpexpire h 0 fields 1 b => hdel h, del h
        rpush l a b c => rpush l
        lpush l d => lpush l
        lpushx none d =>
        linsert l before a x => linsert l
        linsert l before none x =>
        lset l 0 y => lset l
        lrem l 0 y => lrem l
        lrem l 0 y =>
        ltrim l 0 2 => ltrim l
        lpop l => lpop l
        rpop l 1 => rpop l
        rpop l 0 =>
        lmove l m left right => rpush m, lpop l, del l
        lmpop 2 l m left => lpop m, del m
        rpush l a => rpush l
        blpop l 1 => lpop l, del l
        rpush l a => rpush l
        ltrim l 5 6 => ltrim l, del l
        ltrim l 5 6 =>
        sadd a 1 2 3 => sadd a
        sadd a 1 =>
        srem a 1 9 => srem a
        smove a b 2 => srem a, sadd b
        smove a b 9 =>
        smove a b 3 => srem a, del a, sadd b
        smove b b 3 =>
        sadd a 2 => sadd a
        smove a b 2 => srem a, del a
        spop b => spop b
        spop b 0 =>
        spop b 5 => spop b, del b
        sadd a 1 2 => sadd a
        sunionstore u a => sunionstore u
        sinterstore u a none => del u
        sdiffstore u none =>
        zadd z 1 a 2 b 3 c 4 d 5 e 6 f => zadd z
        zadd z 1 a =>
        zadd z ch 2 a => zadd z
        zadd z incr 1 a => zincr z
        zincrby z 1 a => zincr z
        zincrby z 0 a =>
        zrem z a x => zrem z
        zremrangebyrank z 0 0 => zremrangebyrank z
        zremrangebyscore z 3 3 => zremrangebyscore z
        zremrangebylex z [d [d => zremrangebylex z
        zremrangebyscore z 30 30 =>
        zrangestore y z 0 -1 => zrangestore y
        zunionstore x 1 z => zunionstore x
        zinterstore x 2 z none => del x
        zdiffstore x 1 z => zdiffstore x
        zrangestore y none 0 -1 => del y
        zpopmin z => zpopmin z
        zpopmax z => zpopmax z, del z
        bzmpop 1 1 x min count 5 => zpopmin x, del x
        geoadd g 1 1 m => zadd g
        geoadd g 1 1 m =>
        geosearchstore h g frommember m byradius 1 m => geosearchstore h
        georadius g 1 1 1 km store h => georadiusstore h
        georadius g 50 1 1 km store h => del h
        sort g by none store h => sortstore h
        sort none store h => del h
        sort none store h =>
        flushall =>
    "
    .lines()
    .map(str::trim)
    .filter(|line| !line.is_empty())
    {
        let (command, expected) = line.split_once(" =>").expect("a command and its events");
        let args: Vec<&str> = command.split(' ').collect();
        let reply = client.call_args(&args);
        assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        assert_eq!(events(&mut client, &mut listener).join(", "), expected.trim(), "{command}");
    }
}

#[test]
fn what_is_done_before_a_command_waits_is_told() {
    let server = Server::start(&["--notify-keyspace-events", "KEA"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    client.call("xgroup create s g $ mkstream");
    assert_eq!(events(&mut client, &mut listener), ["xgroup-create s"]);
    assert_eq!(client.call("xreadgroup group g new block 10 streams s >"), Reply::Null);
    assert_eq!(events(&mut client, &mut listener), ["xgroup-createconsumer s"]);
    assert_eq!(client.call("xreadgroup group g new block 10 streams s >"), Reply::Null);
    assert_eq!(client.call("blpop none 0.01"), Reply::Null);
    assert_eq!(events(&mut client, &mut listener), Vec::<String>::new());
}

#[test]
fn classes_are_chosen_by_letters() {
    let server = Server::start(&["--appendfsync", "no"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    client.call("set a 1");
    assert!(events(&mut client, &mut listener).is_empty());
    let error = text_of_error(&client.call("config set notify-keyspace-events KEq"));
    assert!(error.ends_with("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."), "{error}");
    for (letters, shown, expected) in [
        ("K$lshzxegtd", "AK", "set a, del a"),
        ("K$", "$K", "set a"),
        ("Kg", "gK", "del a"),
        ("$g", "g$", ""),
        ("Kmn", "nKm", "new a, keymiss a"),
        ("", "", ""),
    ] {
        assert_eq!(client.call_args(&["config", "set", "notify-keyspace-events", letters]), ok());
        let value = client.call("config get notify-keyspace-events");
        assert_eq!(harness::show(&value), format!("[notify-keyspace-events {shown}]"));
        for command in ["set a 1", "incr a", "del a", "get a", "incr b", "del b", "type b"] {
            client.call(command);
        }
        let heard: Vec<String> = events(&mut client, &mut listener)
            .into_iter()
            .filter(|event| event.ends_with(" a") && !event.starts_with("incrby"))
            .collect();
        assert_eq!(heard.join(", "), expected, "{letters}");
    }
}

fn text_of_error(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_takes_another_ones_place_is_new() {
    let server = Server::start(&["--notify-keyspace-events", "KAn", "--appendfsync", "no"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    client.call("mset a 1 b 2 c 3");
    events(&mut client, &mut listener);
    for (command, expected) in [
        ("rename a b", "new b, rename_from a, rename_to b"),
        ("rename b a", "new a, rename_from b, rename_to a"),
        ("renamenx a c", ""),
        ("rename a a", ""),
        ("copy a c", ""),
        ("copy a c replace", "new c, copy_to c"),
        ("copy a d replace", "new d, copy_to d"),
        ("set a 2", "set a"),
    ] {
        client.call(command);
        assert_eq!(events(&mut client, &mut listener).join(", "), expected, "{command}");
    }
}

#[test]
fn who_listens_changes_no_reply() {
    let server = Server::start(&["--notify-keyspace-events", "KA", "--appendfsync", "no"]);
    // There is nothing to be moved, so it does not matter where.
    server.client().run_script("set string v => +OK\n smove none string a => :0");
}

#[test]
fn misses_are_those_of_reads() {
    let server = Server::start(&["--notify-keyspace-events", "Km", "--appendfsync", "no"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    for (command, expected) in [
        ("get a", "keymiss a"),
        ("mget a b", "keymiss a, keymiss b"),
        ("exists a", "keymiss a"),
        ("ttl a", "keymiss a"),
        ("getex a", "keymiss a"),
        ("getset a 1", "keymiss a"),
        ("getdel a", ""),
        ("set a 1 xx get", "keymiss a"),
        ("lpop a", ""),
        ("rpush a 1", ""),
        ("del a b", ""),
        ("object encoding a", ""),
        ("sinterstore a b c", "keymiss b, keymiss c"),
    ] {
        client.call(command);
        assert_eq!(events(&mut client, &mut listener).join(", "), expected, "{command}");
    }
}

#[test]
fn expired_keys_and_fields_are_told_whoever_removes_them() {
    let options = ["--notify-keyspace-events", "KA", "--appendfsync", "no", "--maxmemory", "4mb"];
    let server = Server::start(&options);
    let (mut client, mut listener) = (server.client(), listener(&server));
    client.call("debug set-active-expire 0");
    client.call("select 5");
    client.call("psetex a 1 1");
    client.call("psetex b 1 1");
    client.call("hset h x 1 y 2");
    client.call("hpexpire h 1 fields 1 x");
    wait_until(|| "time passes".into(), || client.call("exists a b") == Reply::Int(0));
    wait_until(|| "time passes".into(), || client.call("hget h x") == Reply::Null);
    let heard = events(&mut client, &mut listener);
    assert_eq!(heard[6..], ["5 expired a", "5 expired b", "5 hexpired h"], "{heard:?}");

    // Before the event of what is done to it then.
    client.call("psetex c 1 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    client.call("rpush c x");
    assert_eq!(events(&mut client, &mut listener)[2..], ["5 expired c", "5 rpush c"]);

    // By nobody's doing, also where the name is not in RAM.
    let long = "v".repeat(100_000);
    for i in 0..50 {
        assert_eq!(client.call_args(&["set", &format!("k{i}"), &long, "px", "1"]), ok());
    }
    client.call("hset h z 1");
    client.call("hpexpire h 1 fields 2 z y");
    client.call("debug set-active-expire 1");
    let mut heard = Vec::new();
    wait_until(
        || "all keys expire".into(),
        || {
            heard.extend(events(&mut client, &mut listener));
            let count = |word: &str| heard.iter().filter(|event: &&String| event.contains(word)).count();
            count(" expired k") == 50 && count("5 hexpired h") == 1 && count("5 del h") == 1
        },
    );
}

#[test]
fn a_transaction_tells_all_in_order_at_its_end() {
    let server = Server::start(&["--notify-keyspace-events", "KEA"]);
    let (mut client, mut listener) = (server.client(), listener(&server));
    for command in
        ["multi", "set a 1", "publish __keyother__: x", "select 2", "lpush l 1", "incr l", "lpop l"]
    {
        client.call(command);
    }
    assert!(listener.is_silent());
    client.call("exec");
    client.call("select 0");
    let mut heard = Vec::new();
    for _ in 0..9 {
        let Reply::Array(parts) = listener.reply() else { panic!("no message") };
        heard.push(text(&parts[2]));
    }
    assert_eq!(
        heard,
        [
            "__keyspace@0__:a",
            "__keyevent@0__:set",
            "__keyother__:",
            "__keyspace@2__:l",
            "__keyevent@2__:lpush",
            "__keyspace@2__:l",
            "__keyevent@2__:lpop",
            "__keyspace@2__:l",
            "__keyevent@2__:del",
        ]
    );
}

#[test]
fn events_of_a_key_come_in_the_order_of_the_writes() {
    let server = Server::start(&["--notify-keyspace-events", "K$g", "--workers", "3"]);
    let mut listener = server.client();
    listener.call("subscribe __keyspace@0__:n");
    const WRITES: usize = 500;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client();
                client.send(&b"SETNX n 1\r\nDEL n\r\n".repeat(WRITES));
                (0..2 * WRITES).for_each(|_| drop(client.reply()));
            });
        }
    });
    server.client().call("publish __keyspace@0__:n end");
    let mut heard = Vec::new();
    loop {
        let Reply::Array(parts) = listener.reply() else { panic!("no message") };
        match text(&parts[2]).as_str() {
            "end" => break,
            event => heard.push(event.to_owned()),
        }
    }
    // Only what is not there is set, and only what is there is deleted.
    for (at, event) in heard.iter().enumerate() {
        assert_eq!(event, ["set", "del"][at % 2], "{at}");
    }
    assert!(heard.len() >= WRITES, "{}", heard.len());
}
