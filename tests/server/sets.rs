//! The commands of sets: replies in both protocols, errors and their order.

use crate::harness::{Server, show};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_are_added_and_removed() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "sadd s 3 1 2 1 => :3
         sadd s 2 => :0
         smembers s => [1 2 3]
         sadd s a => :1
         smembers s => [1 2 3 a]
         smembers none => []
         scard s => :4
         scard none => :0
         sismember s a => :1
         sismember s b => :0
         sismember none a => :0
         smismember s a b 1 => [:1 :0 :1]
         smismember none a b => [:0 :0]
         sscan s 0 => [0 [1 2 3 a]]
         sscan s 0 match [0-2] count 100 => [0 [1 2]]
         sscan s x => -ERR invalid cursor
         sscan s 0 type set => -ERR syntax error
         sscan none 0 count x => [0 []]
         smove s t a => :1
         smove s t a => :0
         smove s s 1 => :1
         smove none t 1 => :0
         smembers t => [a]
         srem s 1 1 none => :1
         srem none 1 => :0
         srem s 2 3 => :2
         scard s => :0",
    );
}

#[test]
fn sets_are_combined() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "sadd a 1 2 3 4 => :4
         sadd b 3 4 5 => :3
         sadd c 4 x => :2
         sinter a b => [3 4]
         sinter a b c => [4]
         sinter a none => []
         sinter a => [1 2 3 4]
         sunion a b => [1 2 3 4 5]
         sunion none a a => [1 2 3 4]
         sdiff a b => [1 2]
         sdiff none a => []
         sdiff a none c => [1 2 3]
         sdiff a a => []
         sintercard 2 a b => :2
         sintercard 2 a b limit 1 => :1
         sintercard 2 a b limit 0 => :2
         sintercard 2 a none => :0
         sintercard 0 a => -ERR numkeys should be greater than 0
         sintercard x a => -ERR numkeys should be greater than 0
         sintercard 3 a b => -ERR Number of keys can't be greater than number of args
         sintercard 2 a b limit -1 => -ERR LIMIT can't be negative
         sintercard 2 a b limit => -ERR syntax error
         sintercard 1 a b => -ERR syntax error
         set string v => +OK
         sinterstore string a b => :2
         smembers string => [3 4]
         sunionstore a a b => :5
         smembers a => [1 2 3 4 5]
         sdiffstore a a a => :0
         smembers a => []",
    );
}

#[test]
fn random_members() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "sadd s 1 => :1
         srandmember none => nil
         srandmember none 2 => []
         srandmember s => 1
         srandmember s 0 => []
         srandmember s 5 => [1]
         srandmember s -3 => [1 1 1]
         srandmember s x => -ERR value is not an integer or out of range
         srandmember s 1 2 => -ERR syntax error
         srandmember s -9223372036854775808 => -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
         spop none => nil
         spop none 2 => []
         spop s 0 => []
         spop s -1 => -ERR value is out of range, must be positive
         spop s x => -ERR value is out of range, must be positive
         spop s 1 2 => -ERR syntax error
         spop s => 1
         spop s => nil
         sadd s 1 2 3 => :3
         spop s 5 => [1 2 3]
         scard s => :0",
    );
    let all: Vec<String> = (0..1000).map(|number| format!("member{number}")).collect();
    client.call(&format!("sadd s {}", all.join(" ")));
    let mut popped: Vec<String> = Vec::new();
    for count in [1, 10, 300, 689] {
        let reply = show(&client.call(&format!("spop s {count}")));
        popped.extend(reply.trim_matches(['[', ']']).split(' ').map(str::to_owned));
    }
    popped.sort();
    let mut expected = all;
    expected.sort();
    assert_eq!(popped, expected);
}

#[test]
fn other_values_are_of_the_wrong_type() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("set s v => +OK");
    client.run_script("sadd x a => :1");
    for command in [
        "sadd s a",
        "srem s a",
        "smembers s",
        "sismember s a",
        "smismember s a",
        "scard s",
        "spop s",
        "spop s 1",
        "srandmember s",
        "srandmember s 1",
        "sscan s 0",
        "smove s x a",
        "smove x s none",
        "sinter none s",
        "sunion x s",
        "sdiff none s",
        "sintercard 2 none s",
        "sinterstore to none s",
        "sunionstore to x s",
        "sdiffstore to none s",
    ] {
        assert_eq!(show(&client.call(command)), WRONG_TYPE, "{command}");
    }
    client.run_script("smove none s a => :0");
}

#[test]
fn replies_over_resp3() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("hello 3");
    client.run_script(
        "sadd s 1 2 => :2
         smembers s => <1 2>
         smembers none => <>
         sinter s s => <1 2>
         sunion s none => <1 2>
         sdiff s none => <1 2>
         srandmember s 0 => []
         smismember s 1 3 => [:1 :0]
         sscan s 0 => [0 [1 2]]
         spop s 0 => <>
         spop s 2 => <1 2>
         spop s => nil
         spop s 1 => <>",
    );
}
