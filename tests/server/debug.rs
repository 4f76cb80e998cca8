//! DEBUG, as tests of clients and of Redis use it.

use crate::harness::{self, Server, show};

#[test]
fn digests_are_those_of_redis() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "debug digest => +0000000000000000000000000000000000000000
         set s text => +OK
         set n 12 => +OK
         rpush l a b a => :3
         sadd m x y 7 => :3
         zadd z 1.5 a -inf b 0.1 c => :3
         hset h f v g 2 => :2
         expire h 1000 => :1
         select 3 => +OK
         set other 1 => +OK
         select 0 => +OK
         debug digest => +26b2a351c992474d5fe96e4708deac5bf12e6267
         debug digest-value s => [+2ce3f57ae020966eb041fa6a47e5221ee0d42d6b]
         debug digest-value n => [+655ac46b180ad2f61a3cee25f0b1780fa2ec879a]
         debug digest-value l => [+e92cf40ff90b137729488530c6870deed6c55138]
         debug digest-value m => [+a6afcc473373536adb071da403abcb70a693d104]
         debug digest-value z => [+233e3dc8de55c910ba2aa919aacf450acd20ed58]
         debug digest-value h => [+7b421f128557669e75aff6fcfd5bb05341c668c9]
         xadd x 1-2 a b c d => 1-2
         xadd x 3-4 e f => 3-4
         debug digest-value x => [+8ff9f3344fecf0551b9bc47389d46eb78be7b800]
         debug digest-value none => [+0000000000000000000000000000000000000000]",
    );
    // Neither what is only in RAM nor the order of keys counts.
    let before = show(&client.call("debug digest"));
    for reload in ["debug reload", "debug loadaof", "debug reload nosave noflush merge"] {
        assert_eq!(show(&client.call(reload)), "+OK");
        assert_eq!(show(&client.call("debug digest")), before, "{reload}");
    }
    client.run_script(
        "get s => text
         debug reload nope => -ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.
         multi => +OK
         debug reload => -ERR Command not allowed inside a transaction
         discard => +OK",
    );
}

#[test]
fn keys_are_made() {
    let server = Server::start(&[]);
    server.client().run_script(
        "set key:1 mine => +OK
         debug populate 3 => +OK
         mget key:0 key:1 key:2 key:3 => [value:0 mine value:2 nil]
         debug populate 2 p 20 => +OK
         strlen p:1 => :20
         debug populate -1 => -ERR value is out of range, must be positive
         debug populate 1000000 => -ERR DEBUG POPULATE makes up to 10000 keys and 64 MB at once; change the prefix for more
         dbsize => :5",
    );
}

#[test]
fn scripts_are_let_in_if_debug_says_so() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let script = |client: &mut harness::Client, call: &str| {
        show(&client.call_args(&["eval", &format!("return redis.pcall({call})"), "0"]))
    };
    let refused = "-ERR This Redis command is not allowed from script";
    assert_eq!(script(&mut client, "'debug', 'protocol', 'integer'"), refused);
    client.run_script("debug set-disable-deny-scripts 1 => +OK");
    assert_eq!(script(&mut client, "'debug', 'protocol', 'integer'"), ":12345");
    // Not what waits or runs scripts.
    for call in ["'eval', 'return 1', 0", "'save'", "'multi'", "'monitor'"] {
        assert!(script(&mut client, call).starts_with('-'), "{call}");
    }
    assert_eq!(
        script(&mut client, "'debug', 'protocol', 'attrib'"),
        "Some real reply following the attribute"
    );
    let attribute = "redis.setresp(3) return redis.call('debug', 'protocol', 'attrib')";
    let reply = client.call_args(&["eval", attribute, "0"]);
    assert_eq!(show(&reply), "Some real reply following the attribute");
    client.run_script("debug set-disable-deny-scripts 0 => +OK");
    assert_eq!(script(&mut client, "'debug', 'protocol', 'integer'"), refused);
}

#[test]
fn a_key_that_has_expired_is_shown_until_somebody_looks() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("debug set-active-expire 0 => +OK\n set a 1 px 1 => +OK");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(show(&client.call("debug object a")).starts_with("+Value at:"));
    client.run_script("get a => nil\n debug object a => -ERR no such key");
}

#[test]
fn a_crash_on_request_loses_nothing() {
    for how in ["segfault", "panic"] {
        let mut server = Server::start(&[]);
        let mut client = server.client();
        client.run_script("set a 1 => +OK");
        client.send(format!("debug {how}\r\n").as_bytes());
        assert_eq!(client.try_reply(), None);
        assert!(!server.wait().success());
        server.restart(Server::kill).client().run_script("get a => 1");
    }
}
