//! The commands of lists: replies, errors and their order, waiting for elements.

use crate::harness::{Client, Server, show};

/// Sends a command that must wait.
fn waits(client: &mut Client, command: &str) {
    client.send(format!("{command}\r\n").as_bytes());
    assert!(client.is_silent(), "{command}");
}

#[test]
fn elements_come_and_go() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "rpush l b c d => :3
         lpush l a => :4
         lpushx none x => :0
         rpushx l e => :5
         lrange l 0 -1 => [a b c d e]
         lrange l -2 100 => [d e]
         lrange l 3 1 => []
         lrange none 0 -1 => []
         lindex l -1 => e
         lindex l 5 => nil
         lindex none x => nil
         lset l 0 A => +OK
         linsert l after c x => :6
         linsert l before A x => :7
         linsert l before none x => :-1
         linsert none before a x => :0
         lpos l x => :0
         lpos l x rank 2 => :4
         lpos l x rank -1 count 0 => [:4 :0]
         lpos l x rank 2 maxlen 3 => nil
         lpos none x count 1 => []
         lrem l 0 x => :2
         lrem l -9223372036854775808 x => -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
         ltrim l 1 -2 => +OK
         llen l => :3
         lmove l m left right => b
         rpoplpush l m => d
         lmove none m left right => nil
         lrange m 0 -1 => [d b]
         lmove m m left right => d
         lmpop 2 none m right count 5 => [m [d b]]
         lmpop 1 none left => nil
         lpop l 0 => []
         lpop l 7 => [c]
         lpop l => nil
         rpop l 2 => nil
         llen l => :0",
    );
}

#[test]
fn errors_change_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set string x => +OK
         rpush l a b => :2
         lindex l x => -ERR value is not an integer or out of range
         lpop l -1 => -ERR value is out of range, must be positive
         lpop l 1 2 => -ERR wrong number of arguments for 'lpop' command
         lset none 0 x => -ERR no such key
         lset l 2 x => -ERR index out of range
         linsert l beside a x => -ERR syntax error
         lmove l l up down => -ERR syntax error
         lpos l a count -1 => -ERR COUNT can't be negative
         lpos l a maxlen -1 => -ERR MAXLEN can't be negative
         lpos l a rank => -ERR syntax error
         lpos l a rank 0 => -ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list
         lmpop 0 l left => -ERR numkeys should be greater than 0
         lmpop 1 l left count 0 => -ERR count should be greater than 0
         lmpop 2 l left => -ERR syntax error
         blmpop x 0 l left => -ERR numkeys should be greater than 0
         blpop l -1 => -ERR timeout is negative
         blpop l inf => -ERR timeout is out of range
         lrange l 0 -1 => [a b]",
    );
    for command in [
        "lpush string x",
        "llen string",
        "lmove string none left left",
        "lmove l string left left",
        "lmpop 2 none string left",
        "blpop none string 0",
        "blmove l string left left 0",
    ] {
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(show(&client.call(command)), wrong_type, "{command}");
    }
}

#[test]
fn each_waiting_command_is_served() {
    let server = Server::start(&[]);
    let (mut waiting, mut other) = (server.client(), server.client());
    for (command, reply) in [
        ("blpop none l 0", "[l a]"),
        ("brpop l none 0", "[l b]"),
        ("blmove l to left right 0", "a"),
        ("brpoplpush l to 0", "b"),
        ("blmpop 0 2 none l left count 5", "[l [a b]]"),
    ] {
        waits(&mut waiting, command);
        other.run_script("rpush l a b => :2");
        assert_eq!(show(&waiting.reply()), reply, "{command}");
        other.call("del l");
    }
    other.run_script("lrange to 0 -1 => [b a]");
}

#[test]
fn an_element_goes_from_one_who_waits_to_the_next() {
    let server = Server::start(&[]);
    let mut clients = [(); 4].map(|()| server.client());
    let [a, b, c, other] = &mut clients;
    waits(a, "blmove first second left right 0");
    waits(b, "brpoplpush second third 0");
    waits(c, "blpop third 0");
    other.run_script("rpush first x => :1");
    assert_eq!([a, b, c].map(|client| show(&client.reply())), ["x", "x", "[third x]"]);
}

#[test]
fn who_came_first_is_served_first() {
    let server = Server::start(&[]);
    let mut clients = [(); 4].map(|()| server.client());
    let [a, b, c, other] = &mut clients;
    waits(a, "blpop l 0");
    waits(b, "blmpop 0 1 l right count 2");
    waits(c, "blpop l 0");
    other.run_script("rpush l 1 2 3 4 => :4");
    assert_eq!([a, b, c].map(|client| show(&client.reply())), ["[l 1]", "[l [4 3]]", "[l 2]"]);
}

#[test]
fn who_waits_sees_whole_transactions_and_lists_only() {
    let server = Server::start(&[]);
    let (mut waiting, mut other) = (server.client(), server.client());
    waits(&mut waiting, "blpop l 0");
    other.call("set l string");
    assert!(waiting.is_silent());
    other.run_script(
        "multi => +OK
         set l another => +QUEUED
         blmove none l left left 0 => +QUEUED
         exec => [+OK nil]
         multi => +OK
         del l => +QUEUED
         rpush l a b => +QUEUED
         lpop l => +QUEUED
         exec => [:1 :2 a]",
    );
    assert_eq!(show(&waiting.reply()), "[l b]");
}
