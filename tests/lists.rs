//! Lists: replies, errors, waiting for elements.

mod harness;

use harness::{Client, Server, array, bulk, bulks, error, ok};
use holdfast_resp::Reply::{Int, Null};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Sends a command that must wait.
fn waits(client: &mut Client, command: &str) {
    client.send(format!("{command}\r\n").as_bytes());
    assert!(client.is_silent(), "{command}");
}

#[test]
fn replies() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let none = || bulks::<&str>([]);
    for (command, reply) in [
        ("rpush l b c d", Int(3)),
        ("lpush l a", Int(4)),
        ("lpushx none x", Int(0)),
        ("rpushx l e", Int(5)),
        ("lrange l 0 -1", bulks(["a", "b", "c", "d", "e"])),
        ("lrange l -2 100", bulks(["d", "e"])),
        ("lrange l 3 1", none()),
        ("lrange none 0 -1", none()),
        ("lindex l -1", bulk("e")),
        ("lindex l 5", Null),
        ("lindex none x", Null),
        ("lset l 0 A", ok()),
        ("linsert l after c x", Int(6)),
        ("linsert l before A x", Int(7)),
        ("linsert l before none x", Int(-1)),
        ("linsert none before a x", Int(0)),
        ("lpos l x", Int(0)),
        ("lpos l x rank 2", Int(4)),
        ("lpos l x rank -1 count 0", array([Int(4), Int(0)])),
        ("lpos l x rank 2 maxlen 3", Null),
        ("lpos none x count 1", none()),
        ("lrem l 0 x", Int(2)),
        ("ltrim l 1 -2", ok()),
        ("llen l", Int(3)),
        ("lmove l m left right", bulk("b")),
        ("rpoplpush l m", bulk("d")),
        ("lmove none m left right", Null),
        ("lrange m 0 -1", bulks(["d", "b"])),
        ("lmove m m left right", bulk("d")),
        ("lmpop 2 none m right count 5", array([bulk("m"), bulks(["d", "b"])])),
        ("lmpop 1 none left", Null),
        ("lpop l 0", none()),
        ("lpop l 7", bulks(["c"])),
        ("lpop l", Null),
        ("llen l", Int(0)),
    ] {
        assert_eq!(client.call(command), reply, "{command}");
    }
}

#[test]
fn errors() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("set string x");
    client.call("rpush l a b");
    for (command, message) in [
        ("lpush string x", WRONG_TYPE),
        ("llen string", WRONG_TYPE),
        ("lmove string none left left", WRONG_TYPE),
        ("lmove l string left left", WRONG_TYPE),
        ("lmpop 2 none string left", WRONG_TYPE),
        ("blpop none string 0", WRONG_TYPE),
        ("blmove l string left left 0", WRONG_TYPE),
        ("lindex l x", "ERR value is not an integer or out of range"),
        ("lpop l -1", "ERR value is out of range, must be positive"),
        ("lpop l 1 2", "ERR wrong number of arguments for 'lpop' command"),
        ("lset none 0 x", "ERR no such key"),
        ("lset l 2 x", "ERR index out of range"),
        ("linsert l beside a x", "ERR syntax error"),
        ("lmove l l up down", "ERR syntax error"),
        ("lpos l a count -1", "ERR COUNT can't be negative"),
        ("lpos l a maxlen -1", "ERR MAXLEN can't be negative"),
        ("lpos l a rank", "ERR syntax error"),
        (
            "lpos l a rank 0",
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
        ),
        ("lmpop 0 l left", "ERR numkeys should be greater than 0"),
        ("lmpop 1 l left count 0", "ERR count should be greater than 0"),
        ("lmpop 2 l left", "ERR syntax error"),
        ("blmpop x 0 l left", "ERR numkeys should be greater than 0"),
        ("blpop l -1", "ERR timeout is negative"),
        ("blpop l inf", "ERR timeout is out of range"),
    ] {
        assert_eq!(client.call(command), error(message), "{command}");
    }
    assert_eq!(client.call("lrange l 0 -1"), bulks(["a", "b"]), "errors change nothing");
}

#[test]
fn each_waiting_command_is_served() {
    let server = Server::start(&[]);
    let (mut waiting, mut other) = (server.client(), server.client());
    for (command, reply) in [
        ("blpop none l 0", bulks(["l", "a"])),
        ("brpop l none 0", bulks(["l", "b"])),
        ("blmove l to left right 0", bulk("a")),
        ("brpoplpush l to 0", bulk("b")),
        ("blmpop 0 2 none l left count 5", array([bulk("l"), bulks(["a", "b"])])),
    ] {
        waits(&mut waiting, command);
        assert_eq!(other.call("rpush l a b"), Int(2), "{command}");
        assert_eq!(waiting.reply(), reply, "{command}");
        other.call("ltrim l 1 0");
    }
    assert_eq!(other.call("lrange to 0 -1"), bulks(["b", "a"]));
}

#[test]
fn an_element_goes_from_one_who_waits_to_the_next() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let [a, b, c, other] = &mut clients[..] else { unreachable!() };
    waits(a, "blmove first second left right 0");
    waits(b, "brpoplpush second third 0");
    waits(c, "blpop third 0");
    assert_eq!(other.call("rpush first x"), Int(1));
    assert_eq!(a.reply(), bulk("x"));
    assert_eq!(b.reply(), bulk("x"));
    assert_eq!(c.reply(), bulks(["third", "x"]));
    // Elements that one push brings are for all who wait, in the order in which they came.
    waits(a, "blpop l 0");
    waits(b, "blmpop 0 1 l right count 2");
    waits(c, "blpop l 0");
    assert_eq!(other.call("rpush l 1 2 3 4"), Int(4));
    assert_eq!(a.reply(), bulks(["l", "1"]));
    assert_eq!(b.reply(), array([bulk("l"), bulks(["4", "3"])]));
    assert_eq!(c.reply(), bulks(["l", "2"]));
}

#[test]
fn who_waits_sees_whole_transactions_and_lists_only() {
    let server = Server::start(&[]);
    let (mut waiting, mut other) = (server.client(), server.client());
    waits(&mut waiting, "blpop l 0");
    other.call("set l string");
    assert!(waiting.is_silent());
    other.call("multi");
    other.call("set l another");
    other.call("blmove none l left left 0");
    assert_eq!(other.call("exec"), array([ok(), Null]));
    other.call("multi");
    other.call("del l");
    other.call("rpush l a b");
    other.call("lpop l");
    other.call("exec");
    assert_eq!(waiting.reply(), bulks(["l", "b"]));
}
