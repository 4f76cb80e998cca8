//! MONITOR: what it shows, and what not.

use crate::harness::{self, Client, Server, error, ok, wait_until};
use holdfast_resp::Reply;

/// What is shown next, without the time: `[db source] "arg" …`.
fn shown(monitor: &mut Client) -> String {
    let Reply::Simple(line) = monitor.reply() else { panic!("not a line") };
    let line = String::from_utf8(line).expect("quoted bytes are ASCII");
    let (time, call) = line.split_once(' ').expect("a time and a call");
    let (seconds, micros) = time.split_once('.').expect("seconds and microseconds");
    assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{time}");
    call.to_owned()
}

#[test]
fn commands_are_shown_as_they_are_executed() {
    let server = Server::start(&["--workers", "3"]);
    let (mut monitor, mut client) = (server.client(), server.client());
    assert_eq!(monitor.call("monitor"), ok());
    let source = format!("unix:{}", server.folder().join("socket"));
    client.call("set a 1");
    client.call("select 3");
    client.call_args(&[&b"ECHO"[..], b"a\"b\r\n\x00\xff"]);
    client.call("get");
    client.call("nope");
    client.call("lpush a x y");
    client.call("incr a");
    client.call("config get timeout");
    client.call("client list");
    client.call("client id");
    for expected in [
        "[0 X] \"set\" \"a\" \"1\"",
        "[3 X] \"select\" \"3\"",
        "[3 X] \"ECHO\" \"a\\\"b\\r\\n\\x00\\xff\"",
        "[3 X] \"lpush\" \"a\" \"x\" \"y\"",
        // Failed, but was executed.
        "[3 X] \"incr\" \"a\"",
        "[3 X] \"client\" \"id\"",
    ] {
        assert_eq!(shown(&mut monitor), expected.replace('X', &source));
    }

    // Those of a transaction between MULTI and EXEC, at the time of EXEC.
    for command in
        ["multi", "ping", "set b 1", "exec", "auth me secret", "hello 2 auth me secret", "ping end"]
    {
        client.call(command);
    }
    for expected in [
        "\"multi\"",
        "\"ping\"",
        "\"set\" \"b\" \"1\"",
        "\"exec\"",
        "\"auth\" \"(redacted)\" \"(redacted)\"",
        "\"hello\" \"2\" \"auth\" \"(redacted)\" \"(redacted)\"",
        "\"ping\" \"end\"",
    ] {
        assert_eq!(shown(&mut monitor), format!("[3 {source}] {expected}"));
    }
    assert!(harness::text(&client.call("client list")).contains("flags=OU"));
}

#[test]
fn scripts_are_shown_before_what_they_call() {
    let server = Server::start(&[]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.call("monitor");
    client.call_args(&["eval", "redis.call('select', 2) return redis.call('set', KEYS[1], 'x')", "1", "a"]);
    for command in ["multi", "eval return(server.call('get','a')) 1 a", "exec"] {
        client.call(command);
    }
    let source = format!("unix:{}", server.folder().join("socket"));
    for expected in [
        "[0 X] \"eval\" \"redis.call('select', 2) return redis.call('set', KEYS[1], 'x')\" \"1\" \"a\"",
        "[2 lua] \"select\" \"2\"",
        "[2 lua] \"set\" \"a\" \"x\"",
        "[0 X] \"multi\"",
        "[0 X] \"eval\" \"return(server.call('get','a'))\" \"1\" \"a\"",
        "[0 lua] \"get\" \"a\"",
        "[0 X] \"exec\"",
    ] {
        assert_eq!(shown(&mut monitor), expected.replace('X', &source));
    }
}

#[test]
fn who_waits_is_shown_once() {
    let server = Server::start(&[]);
    let (mut monitor, mut waiting, mut client) = (server.client(), server.client(), server.client());
    monitor.call("monitor");
    waiting.send(b"BLPOP l 0\r\n");
    wait_until(|| "it waits".into(), || client.info("blocked_clients") == "1");
    client.call("rpush l a");
    waiting.reply();
    client.call("rpush l b");
    let mut calls = Vec::new();
    while calls.len() < 3 {
        let call = shown(&mut monitor);
        let call = call.split_once("] ").expect("a source").1.to_owned();
        if !call.starts_with("\"info\"") {
            calls.push(call);
        }
    }
    assert_eq!(calls, ["\"BLPOP\" \"l\" \"0\"", "\"rpush\" \"l\" \"a\"", "\"rpush\" \"l\" \"b\""]);
}

#[test]
fn who_watches_does_nothing_else() {
    let server = Server::start(&[]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.run_script(
        "multi => +OK\nmonitor => +QUEUED\nexec => [-ERR MONITOR isn't allowed for DENY BLOCKING client]",
    );
    monitor.call("monitor");
    assert_eq!(monitor.call("get a"), error("ERR Replica can't interact with the keyspace"));
    assert_eq!(monitor.call("reset"), Reply::Simple(b"RESET".to_vec()));
    client.call("set a 1");
    assert_eq!(monitor.call("get a"), harness::bulk("1"));
    // One that is gone disturbs nobody.
    monitor.call("monitor");
    drop(monitor);
    for _ in 0..10 {
        assert_eq!(client.call("set a 1"), ok());
    }
}
