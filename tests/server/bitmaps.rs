//! The commands of bitmaps.

use crate::harness::{Server, bulk, show};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn bits_are_read_and_written() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "setbit b 7 1 => :0
         setbit b 7 1 => :1
         setbit b 23 0 => :0
         strlen b => :3
         getbit b 7 => :1
         getbit b 8 => :0
         getbit b 4000000000 => :0
         getbit none 0 => :0
         setbit b 1 2 => -ERR bit is not an integer or out of range
         setbit b 1 x => -ERR bit is not an integer or out of range
         setbit b -1 1 => -ERR bit offset is not an integer or out of range
         setbit b #1 1 => -ERR bit offset is not an integer or out of range
         setbit b 4294967296 x => -ERR bit offset is not an integer or out of range
         getbit b 4294967296 => -ERR bit offset is not an integer or out of range
         config set proto-max-bulk-len 1mb => +OK
         setbit b 8388608 1 => -ERR bit offset is not an integer or out of range
         expire b 100 => :1
         setbit b 0 1 => :0
         ttl b => :100",
    );
    assert_eq!(client.call("get b"), bulk(b"\x81\0\0"));
    let server = server.restart(Server::kill);
    assert_eq!(server.client().call("get b"), bulk(b"\x81\0\0"));
}

#[test]
fn bits_are_counted_and_found() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set s foobar => +OK
         bitcount s => :26
         bitcount s 1 => :22
         bitcount s 0 0 => :4
         bitcount s 1 1 byte => :6
         bitcount s 5 30 bit => :17
         bitcount s -2 -1 => :7
         bitcount s -1 -2 => :0
         bitcount none => :0
         bitcount s 0 1 other => -ERR syntax error
         bitcount s 0 1 bit x => -ERR syntax error
         bitcount none x 1 => -ERR value is not an integer or out of range
         bitpos s 1 => :1
         bitpos s 0 => :0
         bitpos s 1 1 => :9
         bitpos s 1 -1 -1 => :41
         bitpos s 1 4 20 bit => :5
         bitpos none 1 => :-1
         bitpos none 0 => :0
         bitpos s 2 => -ERR The bit argument must be 1 or 0.
         bitpos s x => -ERR value is not an integer or out of range
         bitpos s 1 x => -ERR value is not an integer or out of range
         bitpos s 1 0 1 x => -ERR syntax error
         bitpos s 1 9 => :-1",
    );
    client.call_args(&[&b"set"[..], b"ones", b"\xff\xff"]);
    client.run_script(
        "bitpos ones 0 => :16
         bitpos ones 0 1 => :16
         bitpos ones 0 0 -1 => :-1
         bitpos ones 0 5 => :-1",
    );
}

#[test]
fn strings_are_combined() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call_args(&[&b"mset"[..], b"a", b"\xf0\xff\x01", b"b", b"\x3c"]);
    client.run_script("rpush list x => :1");
    for (command, len, result) in [
        ("bitop and to a b", ":3", &b"\x30\0\0"[..]),
        ("bitop or to b a none", ":3", b"\xfc\xff\x01"),
        ("bitop xor to a b", ":3", b"\xcc\xff\x01"),
        ("bitop not to b", ":1", b"\xc3"),
        ("bitop or list b", ":1", b"\x3c"),
        ("bitop not b b", ":1", b"\xc3"),
    ] {
        assert_eq!(show(&client.call(command)), len, "{command}");
        let to = command.split(' ').nth(2).unwrap();
        assert_eq!(client.call(&format!("get {to}")), bulk(result), "{command}");
    }
    client.run_script(
        "expire to 100 => :1
         bitop not to none => :0
         exists to => :0
         bitop nand to a => -ERR syntax error
         bitop not to a b => -ERR BITOP NOT must be called with a single source key.",
    );
}

#[test]
fn fields_of_bits() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "bitfield f => []
         bitfield f get u8 0 => [:0]
         exists f => :0
         bitfield f set u8 0 255 incrby u8 #1 10 get i8 0 get u4 4 => [:0 :10 :-1 :15]
         bitfield f incrby u8 0 1 => [:0]
         bitfield f set i5 3 -1 get u5 3 get u8 0 => [:0 :31 :31]
         bitfield f overflow sat incrby i8 0 1000 incrby i8 0 -1000 => [:127 :-128]
         bitfield f overflow fail incrby u2 0 4 overflow wrap incrby u2 0 1 => [nil :3]
         bitfield f set u8 0 -1 get u8 0 => [:192 :255]
         bitfield f overflow fail set i8 0 128 => [nil]
         bitfield f set i64 0 -9223372036854775808 incrby i64 0 -1 => [:-69242844270821376 :9223372036854775807]
         bitfield g overflow fail incrby u2 100 5 => [nil]
         strlen g => :13
         bitfield_ro f get u8 0 get u63 1 => [:127 :9223372036854775807]
         bitfield_ro f get u8 0 set u8 0 1 => -ERR BITFIELD_RO only supports the GET subcommand
         bitfield f get u64 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
         bitfield f get x8 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
         bitfield f get u8 -1 => -ERR bit offset is not an integer or out of range
         bitfield f get u8 #9223372036854775807 => -ERR bit offset is not an integer or out of range
         bitfield f set u8 0 x => -ERR value is not an integer or out of range
         bitfield f overflow none get u8 0 => -ERR Invalid OVERFLOW type specified
         bitfield f set u8 0 => -ERR syntax error
         bitfield f other => -ERR syntax error
         strlen f => :8",
    );
}

#[test]
fn other_values_are_of_the_wrong_type() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("rpush list a => :1");
    for command in [
        "setbit list 0 1",
        "getbit list 0",
        "bitcount list",
        "bitpos list 1",
        "bitop or to list",
        "bitfield list get u8 0",
        "bitfield list set u8 0 1",
        "bitfield_ro list",
    ] {
        assert_eq!(show(&client.call(command)), WRONG_TYPE, "{command}");
    }
}
