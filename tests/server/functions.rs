//! FUNCTION and FCALL: libraries are data, which survive like any other.

use crate::harness::{self, Client, Server, assert_sound, bulk, error, is_error, ok, show};
use holdfast_resp::Reply;

const SET: &str = "#!lua name=lib\n
    redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)
    redis.register_function{function_name='take', description='reads', flags={'no-writes'},
        callback=function(keys, args) return redis.call('get', keys[1]) end}";

fn load(client: &mut Client, source: &str) -> String {
    show(&client.call_args(&["function", "load", source]))
}

#[test]
fn functions_are_loaded_and_called() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(load(&mut client, SET), "lib");
    assert_eq!(load(&mut client, SET), "-ERR Library 'lib' already exists");
    assert_eq!(client.call_args(&["function", "load", "replace", SET]), bulk("lib"));
    client.run_script(
        "fcall put 1 a 5 => +OK
         fcall PUT 1 a 6 => +OK
         fcall_ro take 1 a => 6
         fcall take 1 a => 6
         fcall_ro put 1 a 7 => -ERR Can not execute a script with write flag using *_ro command.
         fcall none 0 => -ERR Function not found
         fcall take x => -ERR Bad number of keys provided
         fcall take 1 => -ERR Number of keys can't be greater than number of args
         fcall take -1 => -ERR Number of keys can't be negative
         fcall put 0 => -ERR Lua redis lib command arguments must be strings or integers script: put, on @user_function:3.
         function list => [[library_name lib engine LUA functions [[name put description nil flags []] [name take description reads flags [+no-writes]]]]]
         function list libraryname none => []
         function list nosuch => -ERR Unknown argument nosuch
         function stats => [running_script nil engines [LUA [libraries_count :1 functions_count :2]]]
         function delete none => -ERR Library not found
         function delete lib => +OK
         fcall put 1 a 5 => -ERR Function not found
         function list => []",
    );
    // Every worker calls them.
    assert_eq!(load(&mut client, SET), "lib");
    for _ in 0..4 {
        assert_eq!(server.client().call("fcall put 1 a 5"), ok());
    }
    // In a transaction, also right after loading.
    assert_eq!(client.call("multi"), ok());
    load(&mut client, "#!lua name=two\nredis.register_function('two', function() return 2 end)");
    client.call("fcall two 0");
    assert_eq!(show(&client.call("exec")), "[two :2]");
}

#[test]
fn faulty_libraries_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    load(&mut client, SET);
    for (body, what) in [
        ("return 1", "No functions registered"),
        ("x = 1", "Error registering functions: ERR user_function:2: Attempt to modify a readonly table"),
        (
            "redis.call('get', 'x')",
            "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        (
            "redis.register_function('a-b', function() end)",
            "Error registering functions: ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        ("redis.register_function('put', function() end)", "Function put already exists"),
        (
            "redis.register_function{callback=function() end}",
            "Error registering functions: ERR redis.register_function must get a function name argument",
        ),
        (
            "server.register_function('a', 1)",
            "Error registering functions: ERR second argument to server.register_function must be a function",
        ),
        (
            "redis.register_function{function_name='a', callback=function() end, flags={'bad'}}",
            "Error registering functions: ERR unknown flag given",
        ),
        ("local a = 1 +", "Error compiling function: user_function:2: unexpected symbol near '<eof>'"),
        ("while true do end", "Error registering functions: ERR FUNCTION LOAD timeout"),
    ] {
        assert_eq!(load(&mut client, &format!("#!lua name=bad\n{body}")), format!("-ERR {what}"), "{body}");
    }
    assert_eq!(load(&mut client, "return 1"), "-ERR Missing library metadata");
    assert_eq!(load(&mut client, "#!sh name=x\n"), "-ERR Engine 'sh' not found");
    client.run_script("fcall put 1 a 5 => +OK\n function list libraryname bad => []");
}

#[test]
fn libraries_survive() {
    let server = Server::start(&[]);
    let mut client = server.client();
    load(&mut client, SET);
    load(&mut client, "#!lua name=gone\nredis.register_function('gone', function() return 1 end)");
    client.run_script("function delete gone => +OK\n fcall put 1 a 5 => +OK");
    let server = server.restart(Server::kill);
    let mut client = server.client();
    client.run_script("fcall take 1 a => 5\n fcall gone 0 => -ERR Function not found");
    // No other command sees or removes them, however often databases are flushed and exchanged.
    for number in 0..40 {
        client.run_script(&format!(
            "select {} => +OK\n set k v => +OK\n flushall => +OK\n swapdb 0 15 => +OK",
            number % 16
        ));
    }
    client.run_script("select 0 => +OK\n dbsize => :0\n randomkey => nil\n keys * => []\n scan 0 => [0 []]");
    assert!(!show(&client.call("info keyspace")).contains("db"));
    let server = server.restart(Server::stop);
    let mut client = server.client();
    client.run_script(
        "fcall put 1 a 6 => +OK\n function flush => +OK\n fcall put 1 a 6 => -ERR Function not found",
    );
    let server = server.restart(Server::kill);
    assert_eq!(server.client().call("function list"), Reply::Array(vec![]));
    let folder = server.stop();
    assert_sound(&folder);
}

#[test]
fn libraries_are_dumped_and_restored() {
    let server = Server::start(&[]);
    let mut client = server.client();
    load(&mut client, SET);
    let dump = client.call("function dump").as_bytes().expect("a payload").to_vec();
    let mut restore =
        |policy: &str| client.call_args(&[b"function", &b"restore"[..], &dump, policy.as_bytes()]);
    assert_eq!(restore("append"), error("ERR Library lib already exists"));
    assert_eq!(restore("replace"), ok());
    assert_eq!(restore("flush"), ok());
    assert!(is_error(&restore("nosuch"), "ERR Wrong restore policy"));
    client.run_script(
        "function flush => +OK
         function restore x => -ERR DUMP payload version or checksum are wrong",
    );
    assert_eq!(client.call_args(&[b"function", &b"restore"[..], &dump]), ok());
    client.run_script("fcall put 1 a 5 => +OK");
}

#[test]
fn a_function_that_runs_for_long_can_be_killed() {
    let server = Server::start(&["--workers", "1", "--busy-reply-threshold", "50"]);
    let (mut client, mut runner) = (server.client(), server.client());
    load(&mut client, "#!lua name=slow\nredis.register_function('slow', function() while true do end end)");
    runner.send(b"fcall slow 0 a\r\n");
    harness::wait_until(|| "the function is busy".into(), || is_error(&client.call("ping"), "BUSY"));
    assert!(is_error(
        &client.call("script kill"),
        "BUSY Redis is busy running a script. You can only call FUNCTION KILL"
    ));
    let stats = show(&client.call("function stats"));
    assert!(
        stats.starts_with("[running_script [name slow command [fcall slow 0 a] duration_ms :"),
        "{stats}"
    );
    assert_eq!(client.call("function kill"), ok());
    assert!(is_error(&runner.reply(), "ERR Script killed by user"));
    client.run_script("function kill => -NOTBUSY No scripts in execution right now.");
}
