//! The commands of streams: replies, errors and their order, groups, waiting for entries.

use crate::harness::{Client, Server, show};

/// Sends a command that must wait.
fn waits(client: &mut Client, command: &str) {
    client.send(format!("{command}\r\n").as_bytes());
    assert!(client.is_silent(), "{command}");
}

const NO_GROUP: &str = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn entries_come_and_go() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "xadd s nomkstream * f v => nil
         xadd s 1-1 f v => 1-1
         xadd s 1-* f w => 1-2
         xadd s 2 f x g y => 2-0
         xadd s 1-5 f v => -ERR The ID specified in XADD is equal or smaller than the target stream top item
         xadd new 0-* f v => 0-1
         type s => +stream
         object encoding s => stream
         xlen s => :3
         xlen none => :0
         xrange s - + => [[1-1 [f v]] [1-2 [f w]] [2-0 [f x g y]]]
         xrange s (1-1 1 => [[1-2 [f w]]]
         xrange s 1 (2 count 1 => [[1-1 [f v]]]
         xrange s - + count 0 => nil
         xrange none - + count 0 => []
         xrevrange s + - count 2 => [[2-0 [f x g y]] [1-2 [f w]]]
         xdel s 1-1 1-1 7 => :1
         xdel none 1-1 => :0
         xrange s - 1 => [[1-2 [f w]]]
         copy s t => :1
         xdel s 1-2 2-0 => :2
         exists s => :1
         xrange s - + => []
         xadd s 2-0 f v => -ERR The ID specified in XADD is equal or smaller than the target stream top item
         xinfo stream s => [length :0 radix-tree-keys :0 radix-tree-nodes :1 last-generated-id 2-0 max-deleted-entry-id 2-0 entries-added :3 recorded-first-entry-id 0-0 groups :0 first-entry nil last-entry nil]
         xinfo stream t => [length :2 radix-tree-keys :1 radix-tree-nodes :2 last-generated-id 2-0 max-deleted-entry-id 1-1 entries-added :3 recorded-first-entry-id 1-2 groups :0 first-entry [1-2 [f w]] last-entry [2-0 [f x g y]]]
         xsetid t 5 entriesadded 9 maxdeletedid 4 => +OK
         xadd t 5-* f v => 5-1
         del s t => :2",
    );
}

#[test]
fn errors_come_in_redis_order_and_change_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set string x => +OK
         xadd s * f => -ERR wrong number of arguments for 'xadd' command
         xadd s * f v g => -ERR wrong number of arguments for 'xadd' command
         xadd s 0-0 f v => -ERR The ID specified in XADD must be greater than 0-0
         xadd s x f v => -ERR Invalid stream ID specified as stream command argument
         xadd s maxlen -1 * f v => -ERR The MAXLEN argument must be >= 0.
         xadd s maxlen 1 minid 1 * f v => -ERR syntax error, MAXLEN and MINID options at the same time are not compatible
         xadd s limit 5 * f v => -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy
         xadd s maxlen 1 limit 5 * f v => -ERR syntax error, LIMIT cannot be used without the special ~ option
         xtrim s limit 0 => -ERR syntax error, XTRIM must be called with a trimming strategy
         exists s => :0
         xadd s 5-18446744073709551615 f v => 5-18446744073709551615
         xadd s 5-* f v => -ERR The ID specified in XADD is equal or smaller than the target stream top item
         xrange s (18446744073709551615-18446744073709551615 + => -ERR invalid start ID for the interval
         xrange s - (0-0 => -ERR invalid end ID for the interval
         xread count 1 streams s => -ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.
         xread count 1 block 0 => -ERR syntax error
         xread block -1 streams s 0 => -ERR timeout is negative
         xread streams s > => -ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.
         xreadgroup noack streams s s s > > > => -ERR Missing GROUP option for XREADGROUP
         xgroup create none g 0 => -ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.
         xgroup create s g x => -ERR Invalid stream ID specified as stream command argument
         xgroup create s g 0 nope => -ERR unknown subcommand or wrong number of arguments for 'create'. Try XGROUP HELP.
         xgroup create s g 0 => +OK
         xgroup create s g 0 => -BUSYGROUP Consumer Group name already exists
         xgroup setid s none 0 => -NOGROUP No such consumer group 'none' for key name 's'
         xinfo stream none => -ERR no such key
         xinfo consumers s none => -NOGROUP No such consumer group 'none' for key name 's'
         xpending s none => -NOGROUP No such key 's' or consumer group 'none'
         xclaim s g c x 1 => -ERR Invalid min-idle-time argument for XCLAIM
         xclaim s g c 0 1 nope => -ERR Unrecognized XCLAIM option 'nope'
         xautoclaim s g c 0 0 count 0 => -ERR COUNT must be > 0
         xsetid s 1 => -ERR The ID specified in XSETID is smaller than the target stream top item
         xsetid s 6 entriesadded 0 => -ERR The entries_added specified in XSETID is smaller than the target stream length
         xsetid s 6 maxdeletedid 7 => -ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id
         xadd top 18446744073709551615-18446744073709551615 f v => 18446744073709551615-18446744073709551615
         xadd top * f v => -ERR The stream has exhausted the last possible ID, unable to add more items
         xlen s => :1",
    );
    for command in [
        "xadd string * f v",
        "xlen string",
        "xrange string - +",
        "xdel string 1",
        "xtrim string maxlen 0",
        "xread streams string 0",
        "xread block 0 streams string 0",
        "xreadgroup group g c streams string >",
        "xgroup create string g 0 mkstream",
        "xack string g 1",
        "xpending string g",
        "xclaim string g c 0 1",
        "xautoclaim string g c 0 0",
        "xinfo stream string",
        "xsetid string 1",
    ] {
        assert_eq!(show(&client.call(command)), WRONG_TYPE, "{command}");
    }
}

#[test]
fn trimming_by_nodes_removes_what_it_does_in_redis() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("config set stream-node-max-entries 10");
    let fill = |key: &str, client: &mut Client| {
        for i in 1..=100 {
            client.call(&format!("xadd {key} {i} item {i}"));
        }
    };
    fill("a", &mut client);
    client.run_script(
        "xtrim a maxlen ~ 85 => :10
         xlen a => :90
         xtrim a maxlen ~ 55 limit 15 => :10
         xtrim a maxlen ~ 55 limit 0 => :20
         xtrim a minid ~ 50 => :0
         xtrim a minid ~ 51 => :10
         xtrim a minid 55 => :4
         xdel a 60 61 62 => :3
         xtrim a maxlen ~ 40 => :0
         xtrim a maxlen = 40 => :3
         xrange a - + count 2 => [[58-0 [item 58]] [59-0 [item 59]]]
         xadd a maxlen ~ 30 101 item 101 => 101-0
         xlen a => :31
         xadd a maxlen 5 102 item 102 => 102-0
         xlen a => :5
         xtrim a maxlen 0 => :5
         xlen a => :0",
    );
    // A node that lost entries in its middle does not take others in their place.
    fill("b", &mut client);
    client.run_script(
        "xdel b 95 96 97 => :3
         xadd b 101 item 101 => 101-0
         xtrim b maxlen ~ 2 => :90
         xtrim b maxlen ~ 1 => :7
         xlen b => :1",
    );
}

#[test]
fn groups_share_the_entries() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "xgroup create s g $ mkstream => +OK
         xreadgroup group g alice streams s > => nil
         xadd s 1 f a => 1-0
         xadd s 2 f b => 2-0
         xadd s 3 f c => 3-0
         xreadgroup group g alice count 1 streams s > => [[s [[1-0 [f a]]]]]
         xreadgroup group g bob streams s > => [[s [[2-0 [f b]] [3-0 [f c]]]]]
         xreadgroup group g bob streams s > => nil
         xreadgroup group g alice streams s 0 => [[s [[1-0 [f a]]]]]
         xreadgroup group g carl streams s 0 => [[s []]]
         xpending s g => [:3 1-0 3-0 [[alice 1] [bob 2]]]
         xdel s 2 => :1
         xreadgroup group g bob streams s 0 => [[s [[2-0 nil] [3-0 [f c]]]]]
         xack s g 1 1 9 => :1
         xack s none 1 => :0
         xclaim s g alice 0 2 3 => [[3-0 [f c]]]
         xpending s g => [:1 3-0 3-0 [[alice 1]]]
         xclaim s g carl 0 1 => []
         xclaim s g carl 0 1 force justid => [1-0]
         xclaim s g carl 100000 1 3 => []
         xautoclaim s g dora 0 - count 1 justid => [3-0 [1-0] []]
         xdel s 3 => :1
         xautoclaim s g dora 0 (1 => [0-0 [] [3-0]]
         xgroup createconsumer s g eve => :1
         xgroup createconsumer s g eve => :0
         xgroup delconsumer s g dora => :1
         xgroup delconsumer s g dora => :0
         xpending s g => [:0 nil nil nil]
         xpending s g - + 10 none => []
         xinfo groups s => [[name g consumers :4 pending :0 last-delivered-id 3-0 entries-read :3 lag :0]]
         xgroup setid s g 0 => +OK
         xinfo groups s => [[name g consumers :4 pending :0 last-delivered-id 0-0 entries-read nil lag nil]]
         xreadgroup group g eve noack streams s > => [[s [[1-0 [f a]]]]]
         xpending s g => [:0 nil nil nil]
         xgroup destroy s g => :1
         xgroup destroy s g => :0
         xinfo stream s full => [length :1 radix-tree-keys :1 radix-tree-nodes :2 last-generated-id 3-0 max-deleted-entry-id 3-0 entries-added :3 recorded-first-entry-id 1-0 entries [[1-0 [f a]]] groups []]",
    );
}

#[test]
fn replies_are_maps_over_resp3() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("hello 3");
    client.run_script(
        "xadd s 1 f v => 1-0
         xread streams none s 0 0 => {s [[1-0 [f v]]]}
         xgroup create s g 0 => +OK
         xreadgroup group g c streams s > => {s [[1-0 [f v]]]}
         xread streams s 1 => nil
         xinfo groups s => [{name g, consumers :1, pending :1, last-delivered-id 1-0, entries-read :1, lag :0}]",
    );
}

#[test]
fn all_who_read_are_told_of_an_entry() {
    let server = Server::start(&[]);
    let mut clients = [(); 4].map(|()| server.client());
    let [a, b, c, other] = &mut clients;
    other.call("xadd s 1 f v");
    waits(a, "xread block 0 streams s none $ $");
    waits(b, "xread block 0 count 1 streams s $");
    waits(c, "xread block 20000 streams s 5");
    other.run_script(
        "multi => +OK
         xadd s 2 f a => +QUEUED
         xadd s 3 f b => +QUEUED
         exec => [2-0 3-0]",
    );
    assert_eq!(show(&a.reply()), "[[s [[2-0 [f a]] [3-0 [f b]]]]]");
    assert_eq!(show(&b.reply()), "[[s [[2-0 [f a]]]]]");
    assert!(c.is_silent());
    // What is no stream is not waited for, and nothing else is.
    other.run_script(
        "del s => :1
         lpush s x => :1
         del s => :1
         xadd s 9 f c => 9-0",
    );
    assert_eq!(show(&c.reply()), "[[s [[9-0 [f c]]]]]");
    a.run_script("xread block 10 streams s $ => nil");
    a.run_script("xread count 1 streams s + => [[s [[9-0 [f c]]]]]");
}

#[test]
fn who_waits_in_a_group_is_served_in_turn() {
    let server = Server::start(&[]);
    let mut clients = [(); 5].map(|()| server.client());
    let [a, b, c, d, other] = &mut clients;
    other.run_script(
        "xgroup create s g 0 mkstream => +OK
         xgroup create s h 0 => +OK",
    );
    waits(a, "xreadgroup group g a block 0 count 1 streams s >");
    waits(b, "xreadgroup group g b block 0 count 1 streams s >");
    waits(c, "xreadgroup group h c block 0 count 1 streams s >");
    waits(d, "xreadgroup group g d block 0 count 1 streams s >");
    other.call("xadd s 1 f v");
    assert_eq!(show(&a.reply()), "[[s [[1-0 [f v]]]]]");
    assert_eq!(show(&c.reply()), "[[s [[1-0 [f v]]]]]");
    assert!(b.is_silent());
    other.call("xadd s 2 f v");
    assert_eq!(show(&b.reply()), "[[s [[2-0 [f v]]]]]");
    // Whoever waits learns that the group is gone, and that the key is.
    waits(b, "xreadgroup group g b block 0 streams s >");
    other.call("xgroup destroy s g");
    assert_eq!([d, b].map(|client| show(&client.reply())), [NO_GROUP, NO_GROUP]);
    other.call("xgroup create s g $");
    waits(a, "xreadgroup group g a block 0 streams s >");
    other.call("del s");
    assert_eq!(show(&a.reply()), NO_GROUP);
    other.call("xgroup create s g $ mkstream");
    waits(a, "xreadgroup group g a block 0 streams s >");
    other.call("set s x");
    assert_eq!(show(&a.reply()), WRONG_TYPE);
}

#[test]
fn names_may_be_words_of_the_command() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "xgroup create key streams 0 mkstream => +OK
         xadd key 1 f v => 1-0
         xreadgroup noack group streams streams streams key > => [[key [[1-0 [f v]]]]]
         command getkeys xreadgroup noack group streams streams streams key > => [key]",
    );
}

#[test]
fn streams_outlive_a_restart() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for i in 1..=300 {
        client.call(&format!("xadd s {i} field {i}"));
    }
    client.run_script(
        "xgroup create s g 5 => +OK
         xreadgroup group g alice count 1 streams s > => [[s [[6-0 [field 6]]]]]
         xdel s 7 => :1",
    );
    let before = show(&client.call("xinfo stream s full count 0"));
    let server = server.restart(Server::kill);
    assert_eq!(show(&server.client().call("xinfo stream s full count 0")), before);
}
