//! The commands of HyperLogLogs.

use crate::harness::{Client, Server, bulk, show};

const NOT_ONE: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
const DAMAGED: &str = "-INVALIDOBJ Corrupted HLL object detected";

/// What Redis 7.0 makes of PFADD k a b c d, PFCOUNT k.
const FOUR: &[u8] = b"HYLL\x01\0\0\0\x04\0\0\0\0\0\0\0\\{\x80Dv\x80P\xb1\x84K\xfb\x80BZ";

fn add_numbers(client: &mut Client, key: &str, numbers: std::ops::Range<u32>) {
    let mut args = vec!["pfadd".to_owned(), key.to_owned()];
    args.extend(numbers.map(|number| number.to_string()));
    client.call_args(&args);
}

#[test]
fn elements_are_counted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "pfadd k => :1
         pfadd k => :0
         pfcount k => :0
         pfadd k a b c d => :1
         pfadd k a d => :0
         pfcount k => :4
         pfcount none => :0
         pfadd other c d e => :1
         pfcount k other none => :5
         expire k 100 => :1
         pfmerge k other => +OK
         pfcount k => :5
         ttl k => :100
         pfmerge new => +OK
         pfcount new => :0
         type k => +string
         pfselftest => +OK",
    );
    let server = server.restart(Server::kill);
    server.client().run_script("pfcount k => :5");
}

#[test]
fn strings_are_those_of_redis() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "pfadd k a b c d => :1
         getrange k 15 15 => \u{fffd}
         pfcount k => :4",
    );
    assert_eq!(client.call("get k"), bulk(FOUR));
    client.run_script(
        "pfadd k a => :0
         pfdebug decode k => Z:7292 v:1,1 Z:1143 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603",
    );
    client.call_args(&[&b"set"[..], b"copy", FOUR]);
    client.run_script(
        "pfcount copy => :4
         pfadd copy d => :0
         pfadd copy e => :1",
    );
    // Counts of Redis 7.0, which are not quite true.
    add_numbers(&mut client, "numbers", 0..1000);
    client.run_script(
        "pfcount numbers => :1001
         strlen numbers => :1923
         pfdebug encoding numbers => +sparse",
    );
    add_numbers(&mut client, "numbers", 0..100_000);
    client.run_script(
        "pfcount numbers => :99565
         strlen numbers => :12304
         pfdebug encoding numbers => +dense",
    );
}

#[test]
fn sparse_ones_become_dense() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "pfadd k a b => :1
         pfadd both a b => :1
         pfdebug encoding k => +sparse
         pfdebug todense k => :1
         pfdebug todense k => :0
         pfdebug encoding k => +dense
         pfdebug decode k => -ERR HLL encoding is not sparse
         pfcount k => :2
         pfmerge both k => +OK
         pfdebug encoding both => +dense
         config set hll-sparse-max-bytes 20 => +OK
         pfadd small a => :1
         pfdebug encoding small => +dense
         pfdebug encoding none => -ERR The specified key does not exist
         pfdebug other k => -ERR Unknown PFDEBUG subcommand 'other'
         pfcount small => :1",
    );
    let registers = show(&client.call("pfdebug getreg small"));
    assert_eq!(registers.matches(":0").count(), 16383);
}

#[test]
fn other_values_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "rpush list a => :1
         pfadd list a => -WRONGTYPE Operation against a key holding the wrong kind of value
         set text HYLL => +OK
         pfadd k a b c => :1
         pfcount k => :3",
    );
    for command in ["pfadd text a", "pfcount text", "pfcount k text", "pfmerge k text", "pfdebug getreg text"]
    {
        assert_eq!(show(&client.call(command)), NOT_ONE, "{command}");
    }
    client.run_script(
        "append k x => :28
         pfadd k d => :1",
    );
    for command in ["pfcount k", "pfcount k none", "pfmerge to k", "pfdebug getreg k", "pfdebug todense k"] {
        assert_eq!(show(&client.call(command)), DAMAGED, "{command}");
    }
    client.run_script("exists to => :0");
}
