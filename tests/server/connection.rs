//! Connections: protocol, limits, the commands about clients, transactions, waiting.

use crate::harness::{Client, Server, bulk, error, is_error, ok, show, text, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

#[test]
fn protocol_errors_are_answered_and_end_the_connection() {
    let server = Server::start(&[]);
    for (input, message) in [
        (&b"*1\r\nx4\r\n"[..], "ERR Protocol error: expected '$', got 'x'"),
        (b"*99999999999\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"PING \"x\r\n", "ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send(b"PING\r\n");
        client.send(input);
        assert_eq!(client.reply(), Reply::Simple(b"PONG".to_vec()));
        assert_eq!(client.reply(), error(message));
        assert_eq!(client.try_reply(), None);
    }
    let mut client = server.client();
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.try_reply(), None);
}

#[test]
fn commands_may_arrive_in_any_pieces() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for byte in b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nPING a\n" {
        client.send(&[*byte]);
    }
    assert_eq!(client.reply(), bulk("hello"));
    assert_eq!(client.reply(), bulk("a"));
}

#[test]
fn large_values_and_long_pipelines() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    let value = vec![b'v'; 20 << 20];
    assert_eq!(client.call_args(&[b"SET", b"big", &value[..]]), ok());
    assert_eq!(client.call("get big"), Reply::Bulk(value));
    // All requests before the first reply is read: neither end may wait for the other.
    let count = 200_000;
    client.send(&b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n".repeat(count));
    for _ in 0..count {
        assert_eq!(client.reply(), bulk("abc"));
    }
}

/// What a client sends of these commands, one a line.
fn requests(commands: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands.lines() {
        write_command(&mut bytes, &command.split_whitespace().collect::<Vec<_>>());
    }
    bytes
}

#[test]
fn commands_of_a_pipeline_act_on_those_behind() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let keys: String = (0..40).map(|n| format!("set key:{n} {n}\nget key:{n}\nping\n")).collect();
    client.send(&requests("set a 1\nping\nget a\nselect 1\nget a\nselect 0\nblpop list 0\nget a\nget b"));
    wait_until_blocked(&mut other, 1);
    // While it waits more arrives, and what was to be there is not any more.
    client.send(&requests(&keys));
    other.send(&requests("del a\nset b 2\nrpush list x"));
    for reply in ["+OK", "+PONG", "1", "+OK", "nil", "+OK", "[list x]", "nil", "2"] {
        assert_eq!(show(&client.reply()), reply);
    }
    for n in 0..40 {
        let replies = [(); 3].map(|()| show(&client.reply()));
        assert_eq!(replies, ["+OK".to_owned(), n.to_string(), "+PONG".to_owned()]);
    }
}

#[test]
fn limits_hold_from_the_next_command_on() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.call("auth secret"), ok());
    client.send(&requests("ping\nreset\nmget 1 2 3 4 5 6 7 8 9 10"));
    assert_eq!(show(&client.reply()), "+PONG");
    assert_eq!(show(&client.reply()), "+RESET");
    assert_eq!(client.reply(), error("ERR Protocol error: unauthenticated multibulk length"));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn what_was_asked_before_a_half_close_is_answered() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send(b"SET a 1\r\nGET a\r\n");
    client.finish();
    assert_eq!([client.reply(), client.reply()], [ok(), bulk("1")]);
    assert_eq!(client.try_reply(), None);
    // What waits for others may wait for ever, and its client may be gone.
    let mut client = server.client();
    client.send(b"GET a\r\nBLPOP list 0\r\nSET a 2\r\n");
    client.finish();
    assert_eq!([client.try_reply(), client.try_reply()], [Some(bulk("1")), None]);
    assert_eq!(server.client().call("GET a"), bulk("1"));
}

#[test]
fn who_does_not_read_is_disconnected_and_disturbs_nobody() {
    let options = ["--client-output-buffer-limit", "normal", "8mb", "0", "0", "--workers", "1"];
    let server = Server::start(&options);
    let mut slow = server.client();
    slow.call_args(&[b"SET", b"big", &vec![b'v'; 1 << 20][..]]);
    slow.send(&b"GET big\r\n".repeat(100));
    let mut other = server.client();
    assert_eq!(other.call("ping"), Reply::Simple(b"PONG".to_vec()));
    thread::sleep(Duration::from_millis(200));
    let replies = std::iter::from_fn(|| slow.try_reply()).count();
    assert!(replies < 100, "{replies}");
    assert!(server.log().contains("output buffer limit"), "{}", server.log());
}

#[test]
fn query_buffer_limit() {
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.client();
    client.send(b"*2\r\n$4\r\nECHO\r\n$5000000\r\n");
    let chunk = vec![b'x'; 2 << 20];
    // The server may close before it has read all.
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.send(&chunk)));
            assert_eq!(client.try_reply(), None);
        });
    });
}

#[test]
fn authentication() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.call("ping"), error("NOAUTH Authentication required."));
    assert_eq!(
        client.call("auth wrong"),
        error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    assert!(matches!(client.call("hello 3"), Reply::Error(e) if e.starts_with(b"NOAUTH HELLO")));
    assert!(matches!(client.call("hello 3 auth default secret"), Reply::Map(_)));
    assert_eq!(client.call("ping"), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(client.call("reset"), Reply::Simple(b"RESET".to_vec()));
    assert_eq!(client.call("ping"), error("NOAUTH Authentication required."));
    assert_eq!(client.call("auth secret"), ok());

    let mut stranger = server.client();
    stranger.send(b"*2\r\n$4\r\nECHO\r\n$20000\r\n");
    assert_eq!(stranger.reply(), error("ERR Protocol error: unauthenticated bulk length"));
}

#[test]
fn errors_are_worded_as_in_redis() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (command, message) in [
        ("nope a b", "ERR unknown command 'nope', with args beginning with: 'a' 'b' "),
        ("get", "ERR wrong number of arguments for 'get' command"),
        ("client nope", "ERR unknown subcommand 'nope'. Try CLIENT HELP."),
        ("client setname", "ERR wrong number of arguments for 'client|setname' command"),
        ("hello 4", "NOPROTO unsupported protocol version"),
        ("hello 3 auth a", "ERR Syntax error in HELLO option 'auth'"),
        ("select 16", "ERR DB index is out of range"),
        ("select a", "ERR value is not an integer or out of range"),
        ("exec", "ERR EXEC without MULTI"),
        ("config set nope 1", "ERR Unknown option or number of arguments for CONFIG SET - 'nope'"),
        (
            "config set databases 1",
            "ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
        (
            "config set timeout 1 timeout 2",
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        (
            "config set TIMEOUT x",
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        ),
        ("config set timeout 1 save", "ERR syntax error"),
        ("client list id x", "ERR Invalid client ID"),
        ("slowlog get x", "ERR count should be greater than or equal to -1"),
        ("slowlog get -2", "ERR count should be greater than or equal to -1"),
        ("command getkeys get", "ERR Invalid number of arguments specified for command"),
        ("command getkeys ping", "ERR The command has no key arguments"),
        ("blpop a x", "ERR timeout is not a float or out of range"),
    ] {
        assert_eq!(client.call(command), error(message), "{command}");
    }
}

#[test]
fn a_server_moves_to_other_addresses() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let mut client = server.client();
    let mut set = |options: &str| show(&client.call(&format!("config set {options}")));
    let serves = |port: u16| {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        stream.write_all(b"PING\r\n").expect("it is sent");
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).is_ok_and(|()| reply == *b"+PONG\r\n")
    };
    let listener = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let port_of = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let (taken, free) = (listener(), listener());
    let (first, second) = (port_of(&free), port_of(&listener()));
    drop(free);
    assert_eq!(set(&format!("port {first}")), "+OK");
    assert!(serves(first));
    assert_eq!(set(&format!("maxclients 200 port {second}")), "+OK");
    assert!(serves(second) && !serves(first));
    // What fails leaves all as it was.
    for (wrong, option, what) in [
        (
            format!("maxclients 300 port {}", port_of(&taken)),
            "port",
            "Unable to listen on this port. Check server logs.",
        ),
        ("maxclients 300 bind 192.0.2.1".to_owned(), "bind", "Failed to bind to specified addresses."),
    ] {
        let error = format!("-ERR CONFIG SET failed (possibly related to argument '{option}') - {what}");
        assert_eq!(set(&wrong), error);
        assert!(serves(second));
    }
    assert_eq!(set("bind *"), "+OK");
    assert!(serves(second));
    assert_eq!(set("port 0"), "+OK");
    assert!(!serves(second));
    client.run_script(
        "config get maxclients => [maxclients 200]
         config get maxClients => [maxClients 200]",
    );
}

#[test]
fn options_change_within_exec_too() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "multi => +OK
         set a 1 => +QUEUED
         config set maxmemory 100mb appendfsync everysec maxclients 100 => +QUEUED
         config set maxmemory bad => +QUEUED
         get a => +QUEUED",
    );
    let Reply::Array(replies) = client.call("exec") else { panic!("an array") };
    assert!(is_error(&replies[2], "ERR CONFIG SET failed"), "{replies:?}");
    assert_eq!(replies[3], bulk("1"));
    client.run_script("config get maxmemory => [maxmemory 104857600]");
}

#[test]
fn config_changes_are_all_or_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let get = |client: &mut Client| client.call("config get timeout slowlog-max-len");
    let before = get(&mut client);
    let refused = client.call("config set timeout 5 slowlog-max-len 5 hash-max-listpack-entries x");
    assert!(matches!(refused, Reply::Error(_)));
    assert_eq!(get(&mut client), before);
    assert_eq!(client.call("config set timeout 5 slowlog-max-len 5"), ok());
    assert_ne!(get(&mut client), before);
    assert_eq!(client.call("config rewrite"), error("ERR The server is running without a config file"));
}

#[test]
fn both_protocols() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let pair = |n, b| (Reply::Int(n), Reply::Bool(b));
    let ints = |n: &[i64]| n.iter().map(|n| Reply::Int(*n)).collect::<Vec<_>>();
    assert_eq!(client.call("debug protocol map"), Reply::Array(ints(&[0, 0, 1, 1, 2, 0])));
    assert_eq!(client.call("debug protocol double"), bulk("3.141"));
    client.call("hello 3");
    assert_eq!(
        client.call("debug protocol map"),
        Reply::Map(vec![pair(0, false), pair(1, true), pair(2, false)])
    );
    assert_eq!(client.call("debug protocol double"), Reply::Double("3.141".parse().unwrap()));
    assert_eq!(client.call("debug protocol set"), Reply::Set(ints(&[0, 1, 2])));
    assert_eq!(client.call("debug protocol null"), Reply::Null);
}

#[test]
fn clients_list_and_kill_each_other() {
    let server = Server::start(&[]);
    let mut a = server.client();
    let mut b = server.client();
    assert_eq!(a.call("client setname first"), ok());
    assert_eq!(a.call("client setinfo lib-name test"), ok());
    let Reply::Int(id) = a.call("client id") else { panic!("an integer") };
    let list = text(&b.call("client list"));
    assert!(list.lines().any(|line| line.contains("name=first") && line.contains("cmd=client|id")), "{list}");
    assert!(list.contains("lib-name=test") && list.contains("cmd=client|list"), "{list}");
    assert_eq!(b.call(&format!("client kill id {id}")), Reply::Int(1));
    assert_eq!(a.try_reply(), None);
    assert_eq!(b.call("client kill type normal skipme no"), Reply::Int(1));
    assert_eq!(b.try_reply(), None);
}

#[test]
fn replies_can_be_switched_off() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send(b"CLIENT REPLY SKIP\r\nECHO no\r\nECHO yes\r\n");
    assert_eq!(client.reply(), bulk("yes"));
    client.send(b"CLIENT REPLY OFF\r\nECHO no\r\nNOPE\r\nCLIENT REPLY ON\r\n");
    assert_eq!(client.reply(), ok());
}

#[test]
fn pauses_delay_and_end() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.call("client pause 60000 write"), ok());
    assert_eq!(a.call("get k"), Reply::Null);
    b.send(b"SET k 1\r\n");
    assert!(b.is_silent());
    assert!(text(&a.call("info clients")).contains("blocked_clients:1\r\n"));
    assert_eq!(a.call("client unpause"), ok());
    assert_eq!(b.reply(), ok());
    assert_eq!(a.call("client pause 150 all"), ok());
    assert_eq!(b.call("get k"), bulk("1"));
}

#[test]
fn transactions() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let queued = Reply::Simple(b"QUEUED".to_vec());
    assert_eq!(a.call("multi"), ok());
    assert_eq!(a.call("set k 1"), queued);
    assert_eq!(a.call("lpush k x"), queued);
    assert_eq!(b.call("get k"), Reply::Null);
    let wrong_type = error("WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(a.call("exec"), Reply::Array(vec![ok(), wrong_type]));
    assert_eq!(b.call("get k"), bulk("1"));

    let aborted = error("EXECABORT Transaction discarded because of previous errors.");
    for (refused, why) in [
        ("nope", "ERR unknown command 'nope', with args beginning with: "),
        ("multi", "ERR MULTI calls can not be nested"),
        ("watch k", "ERR WATCH inside MULTI is not allowed"),
    ] {
        a.call("multi");
        assert_eq!(a.call(refused), error(why));
        assert_eq!(a.call("exec"), aborted, "{refused}");
    }

    // The queue takes memory, so nothing more goes into it, whatever it is.
    a.call("multi");
    b.call("config set maxmemory 1");
    assert_eq!(a.call("get k"), error("OOM command not allowed when used memory > 'maxmemory'."));
    b.call("config set maxmemory 0");
    assert_eq!(a.call("exec"), aborted);

    for (change, applied) in [("set k 2", false), ("set other 2", true)] {
        assert_eq!(a.call("watch k"), ok());
        a.call("multi");
        a.call("set k 3");
        b.call(change);
        assert_eq!(matches!(a.call("exec"), Reply::Array(_)), applied, "{change}");
    }
    a.call("watch k");
    b.call("set k 4");
    assert_eq!(a.call("unwatch"), ok());
    a.call("multi");
    assert_eq!(a.call("exec"), Reply::Array(vec![]));

    // EXEC that is refused ends what it could have executed, if there is something.
    let refused =
        error("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
    a.call("multi");
    a.call("set k 5");
    assert_eq!(a.call("exec now"), refused);
    assert_eq!(a.call("exec now"), refused);
    assert_eq!(a.call("exec"), error("ERR EXEC without MULTI"));
    assert_eq!(a.call("get k"), bulk("4"));
}

#[test]
fn blocking_commands_wait_in_turn() {
    let server = Server::start(&[]);
    let (mut a, mut b, mut c) = (server.client(), server.client(), server.client());
    a.send(b"SET before 1\r\nBLPOP q r 0\r\nECHO after\r\n");
    assert_eq!(a.reply(), ok(), "what comes before is answered at once");
    assert!(a.is_silent());
    b.send(b"BLPOP q 0\r\n");
    assert!(b.is_silent());
    let info = text(&c.call("info clients"));
    assert!(info.contains("blocked_clients:2"), "{info}");
    assert_eq!(c.call("rpush q one two three"), Reply::Int(3));
    assert_eq!(a.reply(), Reply::Array(vec![bulk("q"), bulk("one")]));
    assert_eq!(a.reply(), bulk("after"));
    assert_eq!(b.reply(), Reply::Array(vec![bulk("q"), bulk("two")]));
    assert_eq!(c.call("llen q"), Reply::Int(1));
    assert_eq!(c.call("blpop q 0"), Reply::Array(vec![bulk("q"), bulk("three")]));
}

#[test]
fn waiting_ends_by_time_by_others_and_by_leaving() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!([a.call("blpop q 0.05"), a.call("blpop q 1e-10")], [Reply::Null, Reply::Null]);
    let Reply::Int(id) = a.call("client id") else { panic!("an integer") };
    assert_eq!(b.call(&format!("client unblock {id}")), Reply::Int(0));
    for (how, reply) in [
        ("", Reply::Null),
        ("timeout", Reply::Null),
        ("error", error("UNBLOCKED client unblocked via CLIENT UNBLOCK")),
    ] {
        a.send(b"BLPOP q 0\r\n");
        assert!(a.is_silent());
        assert_eq!(b.call(&format!("client unblock {id} {how}")), Reply::Int(1));
        assert_eq!(a.reply(), reply);
    }
    // One that has gone away takes nothing.
    a.send(b"BLPOP q 0\r\n");
    assert!(a.is_silent());
    drop(a);
    thread::sleep(Duration::from_millis(50));
    b.call("rpush q x");
    assert_eq!(b.call("llen q"), Reply::Int(1));
    // However much it has sent before.
    let mut gone = server.client();
    let mut sent = b"BLPOP r 0\r\n".to_vec();
    write_command(&mut sent, &["ECHO".into(), "x".repeat(300_000)]);
    gone.send(&sent);
    wait_until_blocked(&mut b, 1);
    drop(gone);
    wait_until_blocked(&mut b, 0);
    b.call("rpush r x");
    assert_eq!(b.call("llen r"), Reply::Int(1));
    assert_eq!(b.call("multi"), ok());
    b.call("blpop none 0");
    assert_eq!(b.call("exec"), Reply::Array(vec![Reply::Null]), "nothing waits within EXEC");
}

#[test]
fn what_is_written_is_for_who_has_waited() {
    let server = Server::start(&["--workers", "4"]);
    let mut waiting: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let mut writer = server.client();
    for round in 0..50 {
        let first = &mut waiting[round % 4];
        first.send(b"BLPOP q 0\r\n");
        wait_until_blocked(&mut writer, 1);
        // Neither is the element taken away, nor one put before it.
        writer.send(b"RPUSH q a\r\nLPOP q\r\nMULTI\r\nLPOP q\r\nEXEC\r\nLPUSH q b\r\nDEL q\r\n");
        let replies: Vec<String> = (0..7).map(|_| show(&writer.reply())).collect();
        assert_eq!(replies, [":1", "nil", "+OK", "+QUEUED", "[nil]", ":1", ":1"]);
        assert_eq!(show(&first.reply()), "[q a]");
    }
    // All are served before anybody else, in the order in which they came, and the last one waits on.
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(b"BLMOVE q taken left right 0\r\n");
        wait_until_blocked(&mut writer, number + 1);
    }
    writer.send(b"RPUSH q a b c\r\nLLEN q\r\nLRANGE taken 0 -1\r\n");
    let replies: Vec<String> = (0..3).map(|_| show(&writer.reply())).collect();
    assert_eq!(replies, [":3", ":0", "[a b c]"]);
    // What one cannot take is for the next one.
    waiting[0].send(b"BZPOPMIN q 0\r\n");
    wait_until_blocked(&mut writer, 2);
    writer.send(b"ZADD q 1 m\r\nEXISTS q\r\n");
    assert_eq!([writer.reply(), writer.reply()], [Reply::Int(1), Reply::Int(0)]);
    assert_eq!(show(&waiting[0].reply()), "a", "the reply to BLMOVE");
    assert_eq!(show(&waiting[0].reply()), "[q m 1]");
}

fn wait_until_blocked(client: &mut Client, clients: usize) {
    let line = format!("blocked_clients:{clients}\r\n");
    wait_until(|| line.clone(), || text(&client.call("info clients")).contains(&line));
}

#[test]
fn watched_keys_are_those_of_a_database_number() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    b.run_script("debug set-active-expire 0 => +OK\nselect 1 => +OK\nset there 1 => +OK\nselect 0 => +OK");
    let mut applies = |watched: &str, changes: &[&str]| {
        b.call("flushdb");
        b.call("set k 1");
        b.call("set stale 1 px 1");
        thread::sleep(Duration::from_millis(2));
        a.call(&format!("watch {watched}"));
        for change in changes {
            assert!(!matches!(b.call(change), Reply::Error(_)), "{change}");
        }
        a.call("multi");
        matches!(a.call("exec"), Reply::Array(_))
    };
    for (watched, changes, applied) in [
        ("none", &["flushdb"][..], true),
        ("k", &["flushdb"], false),
        ("none", &["swapdb 0 1", "swapdb 0 1"], true),
        ("there", &["swapdb 0 1", "swapdb 0 1"], false),
        ("k", &["swapdb 0 1", "swapdb 0 1"], false),
        ("none", &["swapdb 0 1", "set none 1", "del none", "swapdb 0 1"], false),
        ("none", &["flushall", "set none 1"], false),
        ("stale", &[], true),
        ("stale", &["exists stale"], true),
        ("stale", &["flushall"], true),
    ] {
        assert_eq!(applies(watched, changes), applied, "{watched}: {changes:?}");
        if changes.contains(&"flushall") {
            server.client().run_script("select 1 => +OK\nset there 1 => +OK");
        }
    }
}

#[test]
fn slow_commands_are_logged() {
    let server = Server::start(&["--slowlog-log-slower-than", "10000"]);
    let mut client = server.client();
    client.call("debug sleep 0.02");
    client.call("ping");
    assert_eq!(client.call("slowlog len"), Reply::Int(1));
    let Reply::Array(entries) = client.call("slowlog get") else { panic!("an array") };
    let Reply::Array(entry) = &entries[0] else { panic!("an array") };
    assert_eq!(entry[3], Reply::Array(vec![bulk("debug"), bulk("sleep"), bulk("0.02")]));
    assert_eq!(client.call("slowlog reset"), ok());
    assert_eq!(client.call("slowlog len"), Reply::Int(0));
}

#[test]
fn commands_have_tips_for_clients_of_several_nodes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut tips = |name: &str| {
        let Reply::Array(infos) = client.call_args(&["command", "info", name]) else { panic!("no array") };
        let Reply::Array(info) = &infos[0] else { panic!("{name} is no command") };
        show(&info[7])
    };
    for (name, expected) in [
        ("get", "[]"),
        ("mget", "[request_policy:multi_shard]"),
        ("dbsize", "[request_policy:all_shards response_policy:agg_sum]"),
        ("config|set", "[request_policy:all_nodes response_policy:all_succeeded]"),
        ("scan", "[nondeterministic_output request_policy:special]"),
        ("smembers", "[nondeterministic_output_order]"),
    ] {
        assert_eq!(tips(name), expected, "{name}");
    }
}

#[test]
fn idle_clients_time_out() {
    let server = Server::start(&["--timeout", "1"]);
    let mut client = server.client();
    let mut other = server.client();
    client.call("ping");
    // Who waits for the server is not idle.
    assert_eq!(other.call("client pause 2500"), ok());
    assert_eq!(other.call("get k"), Reply::Null);
    assert_eq!(client.try_reply(), None);
}

#[test]
fn who_takes_nothing_is_idle_and_who_takes_little_is_not() {
    let server = Server::start(&["--timeout", "1"]);
    let value = "v".repeat(4 << 20);
    server.client().call_args(&["set", "key", &value]);
    let [mut gone, mut slow] = [(); 2].map(|()| server.client());
    gone.call("client setname gone");
    slow.call("client setname slow");
    gone.send(&b"GET key\r\n".repeat(5));
    slow.send(&b"GET key\r\n".repeat(5));
    let is_there = |name: &str| text(&server.client().call("client list")).contains(&format!("name={name} "));
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(700));
        assert_eq!(slow.reply().as_bytes().map(<[u8]>::len), Some(value.len()));
    }
    assert!(!is_there("gone"), "{}", server.log());
    assert_eq!(slow.call("ping"), Reply::Simple(b"PONG".to_vec()));
}

#[test]
fn many_idle_clients_cost_little() {
    let server = Server::start(&["--maxclients", "2000"]);
    let mut first = server.client();
    first.call("set key value");
    let before = server.settled_bytes();
    let mut clients: Vec<Client> = (0..900).map(|_| server.client()).collect();
    for client in &mut clients {
        client.call("set key value");
    }
    let each = (server.resident_bytes() - before) / clients.len() as u64;
    assert!(each < 6000, "{each} bytes each");
    drop(clients);
}
