//! MIGRATE: between two servers, and to one that is slow, breaks off or says no.

use crate::harness::{Client, Server, show};
use holdfast_resp::{Reply, write_command};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

#[test]
fn keys_go_to_another_server() {
    let (target, port) = Server::start_with_port(&[]);
    let server = Server::start(&[]);
    let (mut client, mut there) = (server.client(), target.client());
    let migrate =
        |client: &mut Client, rest: &str| show(&client.call(&format!("migrate 127.0.0.1 {port} {rest}")));
    client.run_script(
        "set a 1 => +OK
         expire a 100 => :1
         rpush b x y => :2
         set c 3 => +OK
         hset h f v => :1
         set busy here => +OK",
    );
    there.run_script("set busy there => +OK");
    assert_eq!(migrate(&mut client, "a 0 5000"), "+OK");
    assert_eq!(migrate(&mut client, "a 0 5000"), "+NOKEY");
    assert_eq!(migrate(&mut client, "c 3 5000 copy"), "+OK");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(migrate(&mut client, "busy 0 5000"), busy);
    client.run_script("exists a c busy => :2");
    there.run_script(
        "ttl a => :100
         get busy => there
         select 3 => +OK
         get c => 3
         select 0 => +OK",
    );
    // What went well is moved, also if something else did not.
    let keys = ["migrate", "127.0.0.1", &port.to_string(), "", "0", "5000", "keys", "b", "busy", "none", "h"];
    assert_eq!(show(&client.call_args(&keys)), busy);
    client.run_script("exists b busy h => :1");
    assert_eq!(migrate(&mut client, "busy 0 5000 replace"), "+OK");
    there.run_script(
        "lrange b 0 -1 => [x y]
         hget h f => v
         get busy => here",
    );
    client.run_script("dbsize => :1");
}

#[test]
fn passwords_are_given() {
    let (target, port) = Server::start_with_port(&["--requirepass", "secret"]);
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut there = target.client();
    there.run_script(
        "auth secret => +OK
         acl setuser me on >mine ~* +@all => +OK",
    );
    for (options, expected) in [
        ("", "-ERR Target instance replied with error: NOAUTH Authentication required."),
        (
            "auth wrong",
            "-ERR Target instance replied with error: WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("auth secret", "+OK"),
        ("auth2 me mine replace", "+OK"),
    ] {
        client.run_script("set k v => +OK");
        let reply = show(&client.call(&format!("migrate 127.0.0.1 {port} k 0 5000 {options}")));
        assert_eq!(reply, expected, "{options}");
        client.run_script(if expected == "+OK" { "exists k => :0" } else { "exists k => :1" });
    }
}

#[test]
fn what_is_wrong_with_a_call() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set k v => +OK
         migrate h 1 k x 1 => -ERR value is not an integer or out of range
         migrate h 1 k 0 x => -ERR value is not an integer or out of range
         migrate h 1 k 0 1 auth => -ERR syntax error
         migrate h 1 k 0 1 auth2 u => -ERR syntax error
         migrate h 1 k 0 1 other => -ERR syntax error
         migrate h 1 k 0 1 keys a => -ERR When using MIGRATE KEYS option, the key argument must be set to the empty string
         migrate h 1 none 0 1 => +NOKEY
         migrate 127.0.0.1 0 k 0 100 => -IOERR error or timeout connecting to the client
         migrate 127.0.0.1 x k 0 100 => -IOERR error or timeout connecting to the client
         get k => v
         command getkeys migrate h 1 k 0 1 copy => [k]
         command getkeys migrate h 1 keys 0 1 auth keys => [keys]
         multi => +OK
         migrate h 1 k 0 1 => -ERR Command not allowed inside a transaction",
    );
}

/// Reads so many commands.
fn read_commands(stream: &mut TcpStream, count: usize) -> Vec<Vec<String>> {
    let (mut input, mut commands) = (Vec::new(), Vec::new());
    while commands.len() < count {
        if let Some((Reply::Array(args), len)) = Reply::parse(&input).expect("RESP") {
            input.drain(..len);
            let text = |arg: &Reply| String::from_utf8_lossy(arg.as_bytes().expect("a bulk")).into_owned();
            commands.push(args.iter().map(text).collect());
            continue;
        }
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).expect("commands");
        assert!(read > 0, "the server breaks off");
        input.extend_from_slice(&chunk[..read]);
    }
    commands
}

#[test]
fn values_that_change_meanwhile_are_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().unwrap().port();
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.run_script("mset same 1 new 1 gone 1 => +OK");
    let target = thread::spawn(move || {
        let mut names = Vec::new();
        for (count, change) in [(4, Some("set new 2")), (3, Some("append new 3")), (2, None)] {
            let (mut stream, _) = listener.accept().expect("a connection");
            for command in read_commands(&mut stream, count) {
                let replaces = command.last().is_some_and(|last| last == "REPLACE");
                names.push(format!("{} {}{}", command[0], command[1], if replaces { " again" } else { "" }));
            }
            // Nothing waits for this one.
            if let Some(change) = change {
                other.call(change);
                other.call("del gone");
            }
            stream.write_all(&b"+OK\r\n".repeat(count)).expect("replies");
        }
        names
    });
    let mut request = Vec::new();
    let port = port.to_string();
    let args = ["migrate", "127.0.0.1", &port, "", "0", "5000", "keys", "same", "new", "gone"];
    write_command(&mut request, &args);
    client.send(&request);
    assert_eq!(show(&client.reply()), "+OK");
    let expected = "SELECT 0, RESTORE same, RESTORE new, RESTORE gone, \
                    SELECT 0, RESTORE new again, DEL gone, \
                    SELECT 0, RESTORE new again";
    assert_eq!(target.join().expect("the target").join(", "), expected);
    client.run_script("exists same new gone => :0");
}

#[test]
fn nothing_is_removed_that_did_not_arrive() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("mset a 1 b 2 => +OK");
    for (replies, expected, left) in [
        ("", "-IOERR error or timeout reading to target instance", ":2"),
        ("+OK\r\n", "-IOERR error or timeout reading to target instance", ":2"),
        (
            "-ERR no such DB\r\n+OK\r\n+OK\r\n",
            "-ERR Target instance replied with error: ERR no such DB",
            ":2",
        ),
        ("+OK\r\n+OK\r\n", "-IOERR error or timeout reading to target instance", ":1"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().unwrap().port().to_string();
        let target = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_commands(&mut stream, 3);
            stream.write_all(replies.as_bytes()).expect("replies");
        });
        let args = ["migrate", "127.0.0.1", &port, "", "0", "5000", "keys", "a", "b"];
        assert_eq!(show(&client.call_args(&args)), expected, "{replies}");
        target.join().expect("the target");
        client.run_script(&format!("exists a b => {left}"));
    }
}
