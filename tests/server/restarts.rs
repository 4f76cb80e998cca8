//! What the ends of a server keep of its data: expiries, databases, and what each `appendfsync` promises.

use crate::harness::{Client, Server, bulk, number, ok, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{thread, time::Duration};

#[test]
fn deadlines_are_kept_over_restarts() {
    for stop in [Server::kill, Server::stop] {
        let server = Server::start(&[]);
        let mut client = server.client();
        for command in [
            "SET late v EX 1000",
            "SET soon v PX 300",
            "SET never v EX 1000",
            "HSET hash late 1 soon 1 never 1",
            "RPUSH list a b c",
        ] {
            client.call(command);
        }
        assert_eq!(client.call("PERSIST never"), Reply::Int(1));
        assert_eq!(client.call("EXPIRE list 1000"), Reply::Int(1));
        client.call("HEXPIRE hash 1000 FIELDS 1 late");
        client.call("HPEXPIRE hash 300 FIELDS 1 soon");
        let deadlines = |client: &mut Client| {
            ["PEXPIRETIME late", "PEXPIRETIME list", "HPEXPIRETIME hash FIELDS 1 late"]
                .map(|c| client.call(c))
        };
        let before = deadlines(&mut client);
        assert!(number(&before[0]).is_some_and(|at| at > 1_000_000_000_000), "{before:?}");

        let folder = stop(server);
        // It passes while no server runs.
        thread::sleep(Duration::from_millis(350));
        let server = Server::start_in(folder, &[]);
        let mut client = server.client();
        assert_eq!(deadlines(&mut client), before);
        assert_eq!(client.call("GET soon"), Reply::Null);
        assert_eq!(client.call("HGET hash soon"), Reply::Null);
        assert_eq!(client.call("PTTL never"), Reply::Int(-1));
        assert_eq!(client.call("HLEN hash"), Reply::Int(2));
        assert_eq!(client.call("DBSIZE"), Reply::Int(4));
    }
}

#[test]
fn expired_keys_go_without_being_asked_for() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..1000 {
        client.send(format!("SET key:{n} value PX 200\r\n").as_bytes());
    }
    (0..1000).for_each(|_| assert_eq!(client.reply(), ok()));
    let server = server.restart(Server::kill);
    let mut client = server.client();
    wait_until(|| "all keys expire".into(), || client.call("DBSIZE") == Reply::Int(0));
    assert_eq!(server.restart(Server::kill).client().call("DBSIZE"), Reply::Int(0));
}

#[test]
fn databases_stay_apart_and_exchanged() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for command in
        ["SET where zero", "SELECT 9", "SET where nine", "SWAPDB 0 9", "SELECT 15", "SET where last"]
    {
        assert_eq!(client.call(command), ok());
    }
    for stop in [Server::kill, Server::stop] {
        let server = Server::start_in(stop(Server::start(&[])), &[]);
        drop(server);
    }
    let server = server.restart(Server::kill).restart(Server::stop);
    let mut client = server.client();
    for (database, value) in [(0, "nine"), (9, "zero"), (15, "last")] {
        assert_eq!(client.call(&format!("SELECT {database}")), ok());
        assert_eq!(client.call("GET where"), bulk(value));
    }
}

/// Sets `key:from` to `key:to`, and waits for the replies.
fn fill(client: &mut Client, from: u64, to: u64) {
    let mut requests = Vec::new();
    for n in from..to {
        write_command(&mut requests, &["SET", &format!("key:{n}"), &n.to_string()]);
    }
    client.send(&requests);
    (from..to).for_each(|_| assert_eq!(client.reply(), ok()));
}

/// How many keys there are; they must be the first ones.
fn first_keys(server: &Server) -> u64 {
    let mut client = server.client();
    let count = number(&client.call("DBSIZE")).expect("a number");
    for n in 0..count {
        assert_eq!(client.call(&format!("GET key:{n}")), bulk(n.to_string()));
    }
    count
}

#[test]
fn an_orderly_end_keeps_everything_in_every_mode() {
    for mode in ["always", "everysec", "no"] {
        let server = Server::start(&["--appendfsync", mode]);
        fill(&mut server.client(), 0, 2000);
        assert_eq!(first_keys(&server.restart(Server::stop)), 2000, "{mode}");
    }
}

#[test]
fn everysec_keeps_what_is_older_than_a_second() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let mut client = server.client();
    fill(&mut client, 0, 2000);
    thread::sleep(Duration::from_millis(1500));
    fill(&mut client, 2000, 4000);
    assert!(first_keys(&server.restart(Server::kill)) >= 2000);
}

#[test]
fn no_mode_loses_anything_but_the_newest_writes() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    fill(&mut client, 0, 3000);
    // Whatever was written before is durable too: the log has one order.
    assert_eq!(client.call("CONFIG SET appendfsync always"), ok());
    fill(&mut client, 3000, 3100);
    assert_eq!(client.call("CONFIG SET appendfsync no"), ok());
    fill(&mut client, 3100, 5000);
    let kept = first_keys(&server.restart(Server::kill));
    assert!((3100..=5000).contains(&kept), "{kept}");
}
