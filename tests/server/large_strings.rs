//! Large strings that are changed in part: replies and data are those of any string, and a change costs what it changes.

use crate::harness::{Client, Rng, Server, assert_sound, bulk, bulks, number, ok, seed};
use holdfast_resp::{Reply, write_command};

const MIB: usize = 1 << 20;
/// Memory of a server beside what `maxmemory` limits; see `memory.rs`.
const BASE: usize = 96 * MIB;

/// Sends commands in a pipeline; the replies must be integers.
fn pipeline(client: &mut Client, times: usize, mut args: impl FnMut(usize) -> Vec<Vec<u8>>) {
    for first in (0..times).step_by(100) {
        let calls = first..times.min(first + 100);
        let mut requests = Vec::new();
        calls.clone().for_each(|i| write_command(&mut requests, &args(i)));
        client.send(&requests);
        calls.for_each(|_| {
            let reply = client.reply();
            assert!(number(&reply).is_some(), "{reply:?}");
        });
    }
}

#[test]
fn parts_are_read_and_written_as_of_any_string() {
    let server = Server::start(&["--appendfsync", "always", "--enable-debug-command", "yes"]);
    let (mut client, mut rng) = (server.client(), Rng(seed()));
    let mut model = vec![b'm'; 20_000];
    client.call_args(&[b"set", &b"s"[..], &model]);
    client.run_script(
        "expire s 1000 => :1
         append s tail => :20004
         getrange s 19998 -1 => mmtail
         getrange s -3 20010 => ail
         substr s 0 1 => mm
         setrange s 30000 end => :30003
         getrange s 29999 30001 => \0en
         strlen s => :30003
         getbit s 0 => :0
         getbit s 1 => :1
         getbit s 2000000 => :0
         bitfield s get u8 8 set u8 #1 65 get u8 8 => [:109 :109 :65]
         getrange s 0 2 => mAm
         type s => +string
         object encoding s => raw
         ttl s => :1000
         incr s => -ERR value is not an integer or out of range
         lpush s x => -WRONGTYPE Operation against a key holding the wrong kind of value
         pfadd s x => -WRONGTYPE Key is not a valid HyperLogLog string value.
         scan 0 type string => [0 [s]]
         scan 0 type list => [0 []]",
    );
    model[1] = b'A';
    model.extend_from_slice(b"tail");
    model.resize(30_000, 0);
    model.extend_from_slice(b"end");
    for _ in 0..300 {
        let at = if rng.one_in(4) { model.len() } else { rng.below(model.len() as u64 + 100) as usize };
        let bytes: Vec<u8> = (0..1 + rng.below(6000)).map(|i| (i % 251) as u8).collect();
        let reply = if at == model.len() {
            client.call_args(&[b"append", &b"s"[..], &bytes])
        } else {
            client.call_args(&[b"setrange", &b"s"[..], at.to_string().as_bytes(), &bytes])
        };
        model.resize(model.len().max(at + bytes.len()), 0);
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        assert_eq!(reply, Reply::Int(model.len() as i64));
    }
    // The same as a plain value, to compare with.
    client.call_args(&[b"set", &b"plain"[..], &model, b"ex", b"1000"]);
    let reads = [
        "bitcount KEY",
        "bitpos KEY 0 100",
        "get KEY",
        "dump KEY",
        "debug digest-value KEY",
        "mget KEY x KEY",
    ];
    for read in reads {
        let (plain, large) =
            (client.call(&read.replace("KEY", "plain")), client.call(&read.replace("KEY", "s")));
        assert!(plain == large, "{read}");
    }
    let usage = number(&client.call("memory usage s")).expect("a number") as usize;
    assert!((model.len()..model.len() + 10_000).contains(&usage), "{usage} bytes for {}", model.len());

    // To other places, within its partition and to others.
    let len = model.len();
    client.run_script(&format!(
        "rename s {{s}}moved => +OK
         copy {{s}}moved elsewhere => :1
         rename elsewhere there => +OK
         move there 1 => :1
         copy {{s}}moved s => :1
         setrange {{s}}moved 0 changed => :{len}
         bitop xor none s plain => :{len}
         bitcount none => :0"
    ));
    let dump = client.call("dump {s}moved");
    client.call_args(&[b"restore", &b"restored"[..], b"0", dump.as_bytes().expect("a payload")]);
    let mut changed = model.clone();
    changed[..7].copy_from_slice(b"changed");
    let server = server.restart(Server::kill);
    let mut client = server.client();
    assert!(client.call("mget s plain {s}moved restored") == bulks([&model, &model, &changed, &changed]));
    assert_eq!(client.call("ttl {s}moved"), client.call("ttl s"));
    // A new whole value, and an end.
    client.run_script(
        "unlink s => :1
         set {s}moved x keepttl => +OK
         get {s}moved => x
         append {s}moved y => :2
         select 1 => +OK",
    );
    assert!(client.call("getdel there") == bulk(&model));
    assert_eq!(client.call("dbsize"), Reply::Int(0));
    assert_sound(&server.kill());
}

#[test]
fn a_change_is_logged_alone() {
    let server = Server::start(&["--appendfsync", "no"]);
    let (mut client, mut rng) = (server.client(), Rng(seed()));
    client.call_args(&[b"set", &b"bits"[..], &vec![0x55; 12 * MIB]]);
    client.call_args(&[b"set", &b"log"[..], &vec![b'x'; 10 * MIB]]);
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let calls = |name: &str, rng: &mut Rng| match name {
        "setbit" => words(&["setbit", "bits", &rng.below(96 << 20).to_string(), "1"]),
        "setrange" => words(&["setrange", "bits", &rng.below(12 << 20).to_string(), "12345678"]),
        _ => words(&["append", "log", &"y".repeat(100)]),
    };
    // The first change brings it to the heap.
    client.run_script(&format!("setrange bits 0 x => :{}\nappend log x => :{}", 12 * MIB, 10 * MIB + 1));
    for name in ["setbit", "append", "setrange"] {
        let bytes = |client: &mut Client| client.info("log_bytes_appended").parse::<u64>().expect("a number");
        let before = bytes(&mut client);
        pipeline(&mut client, 2000, |_| calls(name, &mut rng));
        let a_change = (bytes(&mut client) - before) / 2000;
        assert!(a_change < 200, "{a_change} bytes of log for one {name}");
    }
}

#[test]
fn what_was_never_written_takes_no_memory() {
    let server = Server::start(&["--maxmemory", "64mb"]);
    let mut client = server.client();
    for key in 0..20 {
        client.run_script(&format!(
            "setbit sparse:{key} 4294967295 1 => :0
             strlen sparse:{key} => :536870912
             getbit sparse:{key} 4294967295 => :1
             getrange sparse:{key} 536870910 -1 => \0\u{1}
             bitcount sparse:{key} 536000000 -1 => :1"
        ));
    }
    client.run_script("bitpos sparse:0 1 536000000 => :4294967295\nbitpos sparse:0 0 => :0");
    let usage = number(&client.call("memory usage sparse:0")).expect("a number") as usize;
    assert!(usage < MIB, "{usage} bytes");
    let resident = server.resident_bytes() as usize;
    assert!(resident < BASE + 64 * MIB, "{resident} bytes");
    let server = server.restart(Server::kill);
    server.client().run_script("bitcount sparse:7 536000000 -1 => :1\nflushall => +OK");
}

#[test]
fn none_is_longer_than_an_item_can_be() {
    let server = Server::start(&["--proto-max-bulk-len", "10gb"]);
    let mut client = server.client();
    client.run_script(
        "setrange s 4194303999 x => :4194304000
         append s x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         setrange s 4194304000 x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         setbit s 33554431999 1 => :0
         setbit s 33554432000 1 => -ERR bit offset is not an integer or out of range
         getrange s 4194303998 -1 => \0y
         strlen s => :4194304000
         unlink s => :1",
    );
}

#[test]
fn they_outgrow_memory_as_other_strings_do() {
    const KEYS: usize = 80;
    let limit = 32 * MIB;
    let server = Server::start(&["--maxmemory", &limit.to_string(), "--appendfsync", "no"]);
    let mut client = server.client();
    let value = |key: usize| vec![key as u8; MIB];
    for key in 0..KEYS {
        let name = format!("key:{key}");
        assert_eq!(client.call_args(&[b"set", name.as_bytes(), &value(key)]), ok());
        assert_eq!(client.call(&format!("append {name} end")), Reply::Int(MIB as i64 + 3));
    }
    let resident = server.resident_bytes() as usize;
    assert!(resident < BASE + limit, "{resident} bytes with a limit of {limit}");
    for key in 0..KEYS {
        let expected = [value(key), b"end".to_vec()].concat();
        assert!(client.call(&format!("get key:{key}")) == bulk(&expected), "key:{key}");
        assert_eq!(client.call(&format!("setrange key:{key} {MIB} END")), Reply::Int(MIB as i64 + 3));
        assert_eq!(
            client.call(&format!("getrange key:{key} -4 -1")).as_bytes(),
            Some(&[key as u8, b'E', b'N', b'D'][..])
        );
    }
    // Those in the heap are freed in slices, some of which may still be to come when the server ends.
    for key in (0..KEYS).step_by(2) {
        client.run_script(&format!("del key:{key} => :1"));
    }
    assert_sound(&server.stop());
}
