//! Publish/subscribe, between connections of several workers.

use crate::harness::{Client, Server, array, bulk, error, ok, show, text, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// What a client is told next, in short.
fn told(client: &mut Client) -> String {
    show(&client.reply())
}

#[test]
fn messages_reach_the_subscribers_of_channels_and_patterns() {
    let server = Server::start(&["--workers", "3"]);
    let (mut publisher, mut a, mut b) = (server.client(), server.client(), server.client());
    assert_eq!(show(&a.call("subscribe one two")), "[subscribe one :1]");
    assert_eq!(told(&mut a), "[subscribe two :2]");
    assert_eq!(show(&a.call("psubscribe o*")), "[psubscribe o* :3]");
    assert_eq!(show(&a.call("ssubscribe one")), "[ssubscribe one :1]");
    b.call("hello 3");
    assert_eq!(show(&b.call("subscribe one")), ">[subscribe one :1]");

    assert_eq!(publisher.call("publish one hello"), Reply::Int(3));
    assert_eq!(publisher.call("publish two hello"), Reply::Int(1));
    assert_eq!(publisher.call("publish other hello"), Reply::Int(1));
    assert_eq!(publisher.call("publish none hello"), Reply::Int(0));
    assert_eq!(publisher.call("spublish one shard"), Reply::Int(1));
    for expected in [
        "[message one hello]",
        "[pmessage o* one hello]",
        "[message two hello]",
        "[pmessage o* other hello]",
        "[smessage one shard]",
    ] {
        assert_eq!(told(&mut a), expected);
    }
    assert_eq!(told(&mut b), ">[message one hello]");
    assert!(a.is_silent() && b.is_silent());

    publisher.run_script(
        "pubsub numpat => :1
        pubsub numsub one two none => [one :2 two :1 none :0]
        pubsub shardnumsub one two => [one :1 two :0]
        pubsub channels t* => [two]
        pubsub shardchannels => [one]
        pubsub channels a b => -ERR unknown subcommand or wrong number of arguments for 'channels'. Try PUBSUB HELP.",
    );
    assert_eq!(publisher.info("pubsub_channels"), "2");
    assert_eq!(publisher.info("pubsub_patterns"), "1");
    assert_eq!(publisher.info("pubsubshard_channels"), "1");
    let list = text(&publisher.call("client list type pubsub"));
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("flags=P") && list.contains("sub=2 psub=1 ssub=1"), "{list}");

    assert_eq!(show(&a.call("unsubscribe two none")), "[unsubscribe two :2]");
    assert_eq!(told(&mut a), "[unsubscribe none :2]");
    assert_eq!(show(&a.call("punsubscribe")), "[punsubscribe o* :1]");
    assert_eq!(show(&a.call("sunsubscribe")), "[sunsubscribe one :0]");
    assert_eq!(show(&a.call("sunsubscribe")), "[sunsubscribe nil :0]");
    assert_eq!(publisher.call("publish one again"), Reply::Int(2));
    assert_eq!(told(&mut a), "[message one again]");
    drop(a);
    wait_until(
        || "it is gone".into(),
        || publisher.call("pubsub numsub one") == array([bulk("one"), Reply::Int(1)]),
    );
}

#[test]
fn resp2_clients_only_listen_while_they_are_subscribed() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ping => +PONG
        subscribe a => [subscribe a :1]
        ping => [pong ]
        ping hi => [pong hi]
        get a => -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
        client id => -ERR Can't execute 'client|id': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
        get => -ERR wrong number of arguments for 'get' command
        unsubscribe => [unsubscribe a :0]
        ping => +PONG
        ssubscribe a => [ssubscribe a :1]
        ping => [pong ]
        reset => +RESET
        ping => +PONG
        pubsub shardchannels => []",
    );
    client.call("hello 3");
    client.run_script(
        "subscribe a => >[subscribe a :1]
        ping => +PONG
        get a => nil",
    );
}

#[test]
fn own_messages_come_behind_the_reply_and_before_the_next_one() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("hello 3");
    client.call("subscribe a");
    client.send(b"PUBLISH a 1\r\nPING\r\nMULTI\r\nPING x\r\nPUBLISH a 2\r\nSET k 1\r\nEXEC\r\nUNSUBSCRIBE a\r\nPUBLISH a 3\r\n");
    for expected in [
        ":1",
        ">[message a 1]",
        "+PONG",
        "+OK",
        "+QUEUED",
        "+QUEUED",
        "+QUEUED",
        "[x :1 +OK]",
        ">[message a 2]",
        ">[unsubscribe a :0]",
        ":0",
    ] {
        assert_eq!(told(&mut client), expected);
    }
    client.send(b"MULTI\r\nSUBSCRIBE b\r\nPUBLISH b x\r\nUNSUBSCRIBE b\r\nSSUBSCRIBE c\r\nEXEC\r\n");
    for _ in 0..5 {
        client.reply();
    }
    let reply = told(&mut client);
    assert_eq!(
        reply,
        "[>[subscribe b :1] :1 >[unsubscribe b :0] -ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client]"
    );
}

#[test]
fn silenced_clients_hear_messages() {
    let server = Server::start(&[]);
    let (mut client, mut publisher) = (server.client(), server.client());
    client.call("hello 3");
    client.send(b"CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nPING\r\n");
    assert_eq!(told(&mut client), ">[subscribe a :1]");
    publisher.call("publish a x");
    assert_eq!(told(&mut client), ">[message a x]");
    client.send(b"UNSUBSCRIBE a\r\nCLIENT REPLY ON\r\n");
    assert_eq!(told(&mut client), ">[unsubscribe a :0]");
    assert_eq!(client.reply(), ok());
}

#[test]
fn a_message_does_not_overtake_what_its_sender_wrote() {
    let server = Server::start(&["--workers", "2"]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    listener.call("subscribe done");
    for i in 0..50 {
        publisher.send(format!("SET k {i}\r\nPUBLISH done {i}\r\n").as_bytes());
        assert_eq!(told(&mut listener), format!("[message done {i}]"));
        let server_has = text(&server.client().call("get k"));
        assert_eq!(server_has, i.to_string());
        assert_eq!([publisher.reply(), publisher.reply()], [ok(), Reply::Int(1)]);
    }
}

#[test]
fn messages_of_a_publisher_keep_their_order() {
    const PUBLISHERS: usize = 3;
    const MESSAGES: usize = 2000;
    const LISTENERS: usize = 5;
    let server = Server::start(&["--workers", "3", "--appendfsync", "no"]);
    let mut listeners: Vec<Client> = (0..LISTENERS).map(|_| server.client()).collect();
    for listener in &mut listeners {
        listener.call("subscribe c");
    }
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let mut client = server.client();
            scope.spawn(move || {
                for i in 0..MESSAGES {
                    let mut request = Vec::new();
                    write_command(&mut request, &["PUBLISH", "c", &format!("{publisher} {i}")]);
                    client.send(&request);
                }
                (0..MESSAGES).for_each(|_| assert_eq!(client.reply(), Reply::Int(LISTENERS as i64)));
            });
        }
        for listener in &mut listeners {
            scope.spawn(move || {
                let mut next = [0; PUBLISHERS];
                for _ in 0..PUBLISHERS * MESSAGES {
                    let Reply::Array(parts) = listener.reply() else { panic!("no message") };
                    let message = text(&parts[2]);
                    let (publisher, number) = message.split_once(' ').expect("two numbers");
                    let publisher: usize = publisher.parse().expect("a number");
                    assert_eq!(number, next[publisher].to_string());
                    next[publisher] += 1;
                }
            });
        }
    });
}

#[test]
fn subscriptions_may_come_and_go_amid_messages() {
    let server = Server::start(&["--workers", "3", "--appendfsync", "no"]);
    let left = AtomicUsize::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                for round in 0..100 {
                    client.call("subscribe c");
                    for _ in 0..round % 3 {
                        assert!(told(&mut client).starts_with("[message c "));
                    }
                    client.send(b"UNSUBSCRIBE\r\nGET x\r\n");
                    // What is still on its way comes first, and nothing comes later.
                    while told(&mut client) != "[unsubscribe c :0]" {}
                    assert_eq!(client.reply(), Reply::Null);
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        let mut publisher = server.client();
        for i in 0.. {
            publisher.call(&format!("publish c {i}"));
            if left.load(Relaxed) == 0 {
                break;
            }
        }
    });
}

#[test]
fn who_does_not_read_messages_is_disconnected_and_holds_up_nobody() {
    let server = Server::start(&["--client-output-buffer-limit", "pubsub", "1mb", "0", "0"]);
    let (mut slow, mut quick, mut publisher) = (server.client(), server.client(), server.client());
    slow.call("subscribe c");
    quick.call("subscribe c");
    let message = "m".repeat(10_000);
    for _ in 0..300 {
        publisher.call_args(&["publish", "c", &message]);
        assert_eq!(quick.reply(), array([bulk("message"), bulk("c"), bulk(&message)]));
    }
    assert_eq!(publisher.call("publish c last"), Reply::Int(1));
    assert!(server.log().contains("output buffer limit"), "{}", server.log());

    // At once, if it is too much for any limit at once.
    let mut slow = server.client();
    slow.call("subscribe d");
    let huge = "m".repeat(3 << 20);
    assert_eq!(publisher.call_args(&["publish", "d", &huge]), Reply::Int(1));
    assert_eq!(slow.try_reply(), None);

    // By the soft limit, some time later.
    assert_eq!(
        publisher.call_args(&["config", "set", "client-output-buffer-limit", "pubsub 0 100kb 1"]),
        ok()
    );
    let mut slow = server.client();
    slow.call("subscribe e");
    for _ in 0..100 {
        publisher.call_args(&["publish", "e", &message]);
    }
    thread::sleep(Duration::from_millis(200));
    assert_eq!(publisher.call("publish e x"), Reply::Int(1));
    wait_until(|| "it is closed".into(), || publisher.call("publish e x") == Reply::Int(0));

    // No time is a second. What it holds until then is shown.
    let set_limit = |limit: &str| {
        assert_eq!(server.client().call_args(&["config", "set", "client-output-buffer-limit", limit]), ok());
    };
    set_limit("pubsub 0 100kb 60");
    let mut slow = server.client();
    slow.call("client setname slow");
    slow.call("subscribe f");
    assert_eq!(publisher.call_args(&["publish", "f", &huge]), Reply::Int(1));
    let held = || {
        let list = text(&server.client().call("client list"));
        let line = list.lines().find(|line| line.contains("name=slow")).map(str::to_owned);
        line.and_then(|line| line.split(" tot-mem=").nth(1)?.split(' ').next()?.parse::<usize>().ok())
    };
    wait_until(|| format!("all is counted: {:?}", held()), || held().is_some_and(|held| held > 1 << 20));
    set_limit("pubsub 0 100kb 0");
    wait_until(|| "it is closed".into(), || publisher.call("publish f x") == Reply::Int(0));
}

#[test]
fn wrong_calls() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (command, message) in [
        ("subscribe", "ERR wrong number of arguments for 'subscribe' command"),
        ("publish a", "ERR wrong number of arguments for 'publish' command"),
        ("pubsub nope", "ERR unknown subcommand 'nope'. Try PUBSUB HELP."),
        ("pubsub numpat a", "ERR wrong number of arguments for 'pubsub|numpat' command"),
    ] {
        assert_eq!(client.call(command), error(message), "{command}");
    }
}
