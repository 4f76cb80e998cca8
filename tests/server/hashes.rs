//! The commands of hashes: replies in both protocols, errors and their order, the expiry of fields.

use crate::harness::{Server, show, wait_until};
use std::{thread, time::Duration};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn fields_are_read_and_written() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hset h a 1 b two => :2
         hset h a 3 c x c y => :1
         hset h a => -ERR wrong number of arguments for 'hset' command
         hset h a 1 b => -ERR wrong number of arguments for 'hset' command
         hmset h d 4 => +OK
         hmset h d 4 e => -ERR wrong number of arguments for 'hmset' command
         hsetnx h a 9 => :0
         hsetnx h e 5 => :1
         hget h a => 3
         hget h none => nil
         hget none a => nil
         hmget h a none c => [3 nil y]
         hmget none a b => [nil nil]
         hgetall h => [a 3 b two c y d 4 e 5]
         hkeys h => [a b c d e]
         hvals h => [3 two y 4 5]
         hgetall none => []
         hlen h => :5
         hlen none => :0
         hstrlen h b => :3
         hstrlen h none => :0
         hexists h a => :1
         hexists h none => :0
         hscan h 0 => [0 [a 3 b two c y d 4 e 5]]
         hscan h 0 match [ab] count 100 => [0 [a 3 b two]]
         hscan h 0 novalues match [ab] => [0 [a b]]
         hscan h 0 noscores => -ERR NOSCORES option can only be used in ZSCAN
         hscan h x => -ERR invalid cursor
         hscan h 0 count 0 => -ERR syntax error
         hscan h 0 count x => -ERR value is not an integer or out of range
         hscan h 0 type hash => -ERR syntax error
         hscan none 0 count x => [0 []]
         hdel h a a none => :1
         hdel none a => :0
         hdel h b c d e => :4
         hlen h => :0",
    );
}

#[test]
fn values_are_incremented() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hincrby h n 5 => :5
         hincrby h n -7 => :-2
         hincrby h n x => -ERR value is not an integer or out of range
         hincrby h n 9223372036854775807 => :9223372036854775805
         hincrby h n 9223372036854775807 => -ERR increment or decrement would overflow
         hset h t abc => :1
         hincrby h t 1 => -ERR hash value is not an integer
         hincrbyfloat h t 1 => -ERR hash value is not a float
         hincrbyfloat h f 0.1 => 0.1
         hincrbyfloat h f 0.2 => 0.3
         hincrbyfloat h f -5.03e2 => -502.70000000000000001
         hincrbyfloat h f x => -ERR value is not a valid float
         hincrbyfloat h f inf => -ERR value is NaN or Infinity
         hset h i inf => :1
         hincrbyfloat h i 1 => -ERR increment would produce NaN or Infinity
         hget h f => -502.70000000000000001",
    );
}

#[test]
fn random_fields() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hset h a 1 => :1
         hrandfield none => nil
         hrandfield none 2 => []
         hrandfield h => a
         hrandfield h 0 => []
         hrandfield h 5 => [a]
         hrandfield h -3 => [a a a]
         hrandfield h 5 withvalues => [a 1]
         hrandfield h -2 withvalues => [a 1 a 1]
         hrandfield h x => -ERR value is not an integer or out of range
         hrandfield h 1 other => -ERR syntax error
         hrandfield h 1 withvalues x => -ERR syntax error
         hrandfield h -9223372036854775808 => -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
         hrandfield h -9223372036854775807 withvalues => -ERR value is out of range",
    );
}

#[test]
fn other_values_are_of_the_wrong_type() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("set s v => +OK");
    for command in [
        "hset s a 1",
        "hmset s a 1",
        "hsetnx s a 1",
        "hget s a",
        "hmget s a",
        "hgetall s",
        "hkeys s",
        "hvals s",
        "hlen s",
        "hstrlen s a",
        "hexists s a",
        "hdel s a",
        "hincrby s a 1",
        "hincrbyfloat s a 1",
        "hrandfield s",
        "hrandfield s 1",
        "hscan s 0",
        // Before the other arguments are looked at.
        "hexpire s x fields 1 a",
        "hpersist s x x a",
        "httl s x x a",
    ] {
        assert_eq!(show(&client.call(command)), WRONG_TYPE, "{command}");
    }
}

#[test]
fn replies_over_resp3() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("hello 3");
    client.run_script(
        "hset h a 1 b 2 => :2
         hgetall h => {a 1, b 2}
         hgetall none => {}
         hkeys h => [a b]
         hget none a => nil
         hrandfield h 0 => []
         hset one a 1 => :1
         hrandfield one 2 withvalues => [[a 1]]
         hrandfield one -2 withvalues => [[a 1] [a 1]]
         hscan h 0 => [0 [a 1 b 2]]",
    );
}

#[test]
fn fields_expire() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hset h a 1 b 2 c 3 d 4 => :4
         hexpire h 100 fields 2 a none => [:1 :-2]
         httl h fields 3 a b none => [:100 :-1 :-2]
         hexpire h 200 nx fields 2 a b => [:0 :1]
         hexpire h 300 xx fields 2 a c => [:1 :0]
         hexpire h 150 gt fields 3 a b c => [:0 :0 :0]
         hexpire h 400 lt fields 3 a b c => [:0 :0 :1]
         hpersist h fields 3 a a none => [:1 :-1 :-2]
         hpexpireat h 70368744177663 fields 1 a => [:1]
         hpexpiretime h fields 2 a d => [:70368744177663 :-1]
         hexpiretime h fields 1 a => [:70368744178]
         hexpireat h 1 fields 2 c none => [:2 :-2]
         hpexpireat h 0 lt fields 1 a => [:2]
         hkeys h => [b d]
         hset h b 5 => :0
         httl h fields 1 b => [:-1]
         hexpire h 100 fields 1 b => [:1]
         hincrby h b 1 => :6
         httl h fields 1 b => [:100]
         hexpire none 1 fields 2 a b => [:-2 :-2]
         httl none fields 1 a => [:-2]
         hpersist none fields 1 a => [:-2]",
    );
    client.run_script("hpexpire h 50 fields 2 b d => [:1 :1]");
    thread::sleep(Duration::from_millis(60));
    client.run_script(
        "hgetall h => []
         hlen h => :0
         hset h b 1 => :1
         hpexpireat h 70000000000000 fields 1 b => [:1]",
    );
    let server = server.restart(Server::kill);
    let mut client = server.client();
    client.run_script(
        "hpexpiretime h fields 1 b => [:70000000000000]
         hpexpireat h 1 fields 1 b => [:2]
         sadd h member => :1",
    );
}

#[test]
fn fields_expire_that_nobody_looks_at() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let fields: Vec<String> = (0..3000).map(|number| format!("f{number}")).collect();
    client.call(&format!("hset large {} v", fields.join(" v ")));
    client.call(&format!("hpexpire large 20 fields 3000 {}", fields.join(" ")));
    client.run_script(
        "hset small a 1 b 2 => :2
         hpexpire small 20 fields 2 a b => [:1 :1]
         hset other a 1 b 2 => :2
         hpexpire other 20 fields 1 a => [:1]",
    );
    wait_until(|| "expired hashes go".into(), || show(&client.call("dbsize")) == ":1");
    client.run_script("hgetall other => [b 2]");
}

#[test]
fn a_hash_goes_with_its_last_field_however_many_there_were() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.run_script("debug set-active-expire 0 => +OK");
    let fields: Vec<String> = (0..3000).map(|number| format!("f{number}")).collect();
    for key in ["a", "b", "c", "d"] {
        client.call(&format!("hset {key} {} v", fields.join(" v ")));
    }
    client.run_script("hset d alive v => :1");
    for key in ["a", "b", "c", "d"] {
        client.call(&format!("hpexpire {key} 1 fields 3000 {}", fields.join(" ")));
    }
    thread::sleep(Duration::from_millis(10));
    client.run_script(
        "exists a => :0
         dump b => nil
         set c string nx => +OK
         hkeys d => [alive]
         dbsize => :2",
    );
}

#[test]
fn what_is_wrong_with_an_expiry() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hset h a 1 => :1
         hexpire h 1 fields 1 => -ERR wrong number of arguments for 'hexpire' command
         hexpire h x fields 1 a => -ERR value is not an integer or out of range
         hexpire h -1 fields 1 a => -ERR invalid expire time, must be >= 0
         hexpire h 70368744177 fields 1 a => -ERR invalid expire time in 'hexpire' command
         hpexpireat h 70368744177664 fields 1 a => -ERR invalid expire time in 'hpexpireat' command
         hexpire h 1 other fields 1 a => -ERR Mandatory argument FIELDS is missing or not at the right position
         hexpire h 1 fields 0 a => -ERR Parameter `numFields` should be greater than 0
         hexpire h 1 fields x a => -ERR Parameter `numFields` should be greater than 0
         hexpire h 1 fields 2 a => -ERR The `numfields` parameter must match the number of arguments
         httl h other 1 a => -ERR Mandatory argument FIELDS is missing or not at the right position
         httl h fields 0 a => -ERR Number of fields must be a positive integer
         hpersist h fields 1 a b => -ERR The `numfields` parameter must match the number of arguments
         hexpire none 1 fields 2 a => -ERR The `numfields` parameter must match the number of arguments
         hgetall h => [a 1]",
    );
}
