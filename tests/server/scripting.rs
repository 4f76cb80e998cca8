//! EVAL and what belongs to it: conversions, errors, the sandbox, atomicity.

use crate::harness::{Client, EndOnDrop, Rng, Server, bulk, error, is_error, ok, seed, show, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

fn eval(client: &mut Client, script: &str, args: &[&str]) -> String {
    show(&client.call_args(&[&["eval", script], args].concat()))
}

/// Runs scripts without keys, each with the reply that it must have.
fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (script, expected) in cases {
        let reply = eval(client, script, &["0"]);
        // The name of the script is its digest.
        let reply = match reply.split_once(" script: ") {
            Some((text, place)) => format!("{text} @{}", place.split_once(':').unwrap().1),
            None => reply,
        };
        assert_eq!(reply, *expected, "{script}");
    }
}

#[test]
fn values_become_replies() {
    let server = Server::start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return 1.99", ":1"),
            ("return -1.99", ":-1"),
            ("return 1/0", ":-9223372036854775808"),
            ("return nil", "nil"),
            ("return false", "nil"),
            ("return true", ":1"),
            ("return 'abc'", "abc"),
            ("return {1,2,{3,'x'}}", "[:1 :2 [:3 x]]"),
            ("return {1,2,nil,4}", "[:1 :2]"),
            ("return {ok='fine'}", "+fine"),
            ("return {err='My Err'}", "-My Err"),
            ("return redis.error_reply('My Err')", "-My Err"),
            ("return redis.error_reply('Err')", "-ERR Err"),
            ("return redis.error_reply('-My Err')", "-My Err"),
            ("return redis.error_reply()", "-ERR wrong number or type of arguments"),
            ("return redis.status_reply('x')", "+x"),
            ("return {double=3.5}", "3.5"),
            ("return {map={a=1}}", "[a :1]"),
            ("return {set={a=true}}", "[a]"),
            ("return {big_number='12345'}", "12345"),
            ("return {verbatim_string={format='txt',string='hi'}}", "hi"),
        ],
    );
    assert_eq!(
        eval(&mut client, "return {KEYS[1],ARGV[1],#KEYS,#ARGV}", &["1", "a", "b", "c"]),
        "[a b :1 :2]"
    );
    client.call("hello 3");
    check(
        &mut client,
        &[
            ("return true", ":1"),
            ("return false", "nil"),
            ("redis.setresp(3) return {true, false}", "[#true #false]"),
            ("return {double=3.5}", ",3.5"),
            ("return {map={a=1}}", "{a :1}"),
            ("return {set={a=true}}", "<a>"),
            ("return {big_number='12345'}", "(12345"),
        ],
    );
}

#[test]
fn replies_become_values() {
    let server = Server::start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return redis.call('set', 'n', 10)", "+OK"),
            ("return redis.call('incr', 'n') + 1", ":12"),
            ("return redis.call('ping').ok", "PONG"),
            ("return redis.call('get', 'none') == false", ":1"),
            ("return type(redis.pcall('incr'))", "table"),
            ("redis.call('set', 'n', 1.5) return redis.call('get', 'n')", "1.5"),
            ("redis.call('set', 'n', 1e15) return redis.call('get', 'n')", "1000000000000000"),
            ("redis.call('rpush', 'l', 1, 2, 3) return redis.call('lrange', 'l', 0, -1)", "[1 2 3]"),
            ("redis.call('hset', 'h', 'a', 1) return redis.call('hgetall', 'h')", "[a 1]"),
            ("redis.setresp(3) return redis.call('hgetall', 'h').map.a", "1"),
            ("redis.setresp(3) return redis.call('get', 'none') == nil", ":1"),
            (
                "redis.call('zadd', 'z', 1.5, 'a') redis.setresp(3) return redis.call('zscore', 'z', 'a').double * 2",
                ":3",
            ),
            ("redis.call('sadd', 's', 'a') redis.setresp(3) return redis.call('smembers', 's').set.a", ":1"),
        ],
    );
}

#[test]
fn errors_say_where() {
    let server = Server::start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("error('boom')", "-ERR user_script:1: boom @1."),
            ("\n\nerror('boom')", "-ERR user_script:3: boom @3."),
            ("error({err='MY boom'})", "-MY boom @1."),
            ("error()", "-ERR nil @1."),
            ("return redis.call('nosuch')", "-ERR Unknown Redis command called from script @1."),
            ("return server.call('nosuch')", "-ERR Unknown command called from script @1."),
            ("return server.pcall('get')", "-ERR Wrong number of args calling command from script"),
            ("return server.call()", "-ERR Please specify at least one argument for this call @1."),
            ("return server.call({})", "-ERR Command arguments must be strings or integers @1."),
            ("return redis.pcall('nosuch')", "-ERR Unknown Redis command called from script"),
            ("return redis.call('get')", "-ERR Wrong number of args calling Redis command from script @1."),
            ("return redis.call()", "-ERR Please specify at least one argument for this redis lib call @1."),
            ("return redis.call({})", "-ERR Lua redis lib command arguments must be strings or integers @1."),
            (
                "return redis.call('eval', 'return 1', 0)",
                "-ERR This Redis command is not allowed from script @1.",
            ),
            (
                "redis.call('set', 'a', 1) return redis.call('lpush', 'a', 1)",
                "-WRONGTYPE Operation against a key holding the wrong kind of value @1.",
            ),
            ("return {pcall(redis.call, 'nosuch')}", "[nil ERR Unknown Redis command called from script]"),
            ("return {pcall(error, 'x')}", "[nil x]"),
            ("local t = nil return t.x", "-ERR user_script:1: attempt to index local 't' (a nil value) @1."),
            (
                "return pairs(nil)",
                "-ERR user_script:1: bad argument #1 to 'pairs' (table expected, got nil) @1.",
            ),
            (
                "return 'x",
                "-ERR Error compiling script (new function): user_script:1: unfinished string near '<eof>'",
            ),
            ("#!lua flags=bad\n", "-ERR Unexpected flag in script shebang: bad"),
            (
                "#!lua flags=no-writes\nreturn redis.call('set', 'a', 1)",
                "-ERR Write commands are not allowed from read-only scripts. @2.",
            ),
        ],
    );
    client.run_script(
        "eval x => -ERR wrong number of arguments for 'eval' command
         eval x 1 => -ERR Number of keys can't be greater than number of args
         eval x -1 => -ERR Number of keys can't be negative
         eval x y => -ERR value is not an integer or out of range
         eval_ro return(redis.pcall('set','a',2)) 0 => -ERR Write commands are not allowed from read-only scripts.
         eval_ro return(redis.call('get','a')) 0 => 1",
    );
}

#[test]
fn globals_are_protected() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let unknown = |name: &str| {
        format!("-ERR user_script:1: Script attempted to access nonexistent global variable '{name}' @1.")
    };
    for name in ["print", "dofile", "loadfile", "require", "io", "debug", "newproxy", "foo"] {
        check(&mut client, &[(&format!("return {name}"), &unknown(name))]);
    }
    for change in [
        "a = 1",
        "redis.call = nil",
        "_G.x = 1",
        "string.x = 1",
        "KEYS = 1",
        "cjson.encode = 1",
        "getmetatable(_G).__index = 1",
        "getmetatable('').__index = nil",
    ] {
        let reply = eval(&mut client, change, &["0"]);
        assert!(reply.contains("Attempt to modify a readonly table"), "{change}: {reply}");
    }
    check(
        &mut client,
        &[
            ("rawset(redis, 'x', 1)", "-ERR Attempt to modify a readonly table @1."),
            ("setmetatable(_G, {})", "-ERR Attempt to modify a readonly table @1."),
            ("return type(rawget(_G, 'redis'))", "table"),
            ("local n = 0 for k in pairs(math) do n = n + 1 end return n > 20", ":1"),
            (
                "for _, t in pairs({redis, string}) do local f, s = pairs(t) rawset(s, 'x', 1) end",
                "-ERR Attempt to modify a readonly table @1.",
            ),
            ("return (loadstring(string.dump(function() end)))", "nil"),
            ("return loadstring('return 1 + 1')()", ":2"),
            (
                "return loadstring('return x')()",
                "-ERR [string \"return x\"]:1: Script attempted to access nonexistent global variable 'x' @1.",
            ),
            ("return {type(os.clock()), type(os.time)}", "[number nil]"),
        ],
    );
    // What a script leaves behind is not seen by the next.
    eval(&mut client, "setfenv(0, {}) return loadstring('y = 1')()", &["0"]);
    check(&mut client, &[("return redis.call('ping')", "+PONG"), ("return y", &unknown("y"))]);
}

#[test]
fn libraries() {
    let server = Server::start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return cjson.encode({1, {a='x/y'}, cjson.null})", r#"[1,{"a":"x\/y"},null]"#),
            ("return cjson.encode({})", "{}"),
            ("return cjson.decode('[1,\"\\\\u00e9\",{\"a\":[true]}]')[2]", "é"),
            (
                "return cjson.decode('[1,') ",
                "-ERR user_script:1: Expected value but found T_END at character 4 @1.",
            ),
            (
                "return cjson.encode({[1]=1,[100]=2})",
                "-ERR user_script:1: Cannot serialise table: excessively sparse array @1.",
            ),
            ("cjson.encode_sparse_array(true) return cjson.encode({[1]=1,[100]=2}) ~= nil", ":1"),
            ("return cjson.encode_sparse_array()", "nil"),
            ("return {cmsgpack.unpack(cmsgpack.pack(1, -1, 'a', {1,2}, {x='y'}))}", "[:1 :-1 a [:1 :2] []]"),
            ("return cmsgpack.unpack('\\193')", "-ERR user_script:1: Bad data format in input. @1."),
            ("return {struct.unpack('>hs', struct.pack('>hs', -2, 'ab'))}", "[:-2 ab :6]"),
            (
                "return {bit.band(0xff, 0x0f), bit.tohex(255, 4), bit.lshift(1, 31)}",
                "[:15 00ff :-2147483648]",
            ),
            ("math.randomseed(1) return {math.random(100), math.random(5, 10)}", "[:5 :7]"),
            ("return redis.sha1hex('')", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ],
    );
}

#[test]
fn scripts_are_cached_by_their_digest() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    client.run_script(&format!(
        "evalsha {sha} 0 => -NOSCRIPT No matching script. Please use EVAL.
         evalsha xyz 0 => -NOSCRIPT No matching script. Please use EVAL.
         script exists {sha} xyz => [:0 :0]"
    ));
    assert_eq!(client.call_args(&["script", "load", "return 1"]), bulk(sha));
    client.run_script(&format!(
        "evalsha {sha} 0 => :1
         evalsha {} 0 => :1
         evalsha_ro {sha} 0 => :1
         script exists {sha} => [:1]
         script show {sha} => return 1
         script flush nosuch => -ERR SCRIPT FLUSH only support SYNC|ASYNC option
         script flush async => +OK
         evalsha {sha} 0 => -NOSCRIPT No matching script. Please use EVAL.
         script show {sha} => -NOSCRIPT No matching script. Please use EVAL.",
        sha.to_uppercase()
    ));
    // Other workers know it, too, and more than are kept make no trouble.
    assert_eq!(eval(&mut client, "return 1", &["0"]), ":1");
    for _ in 0..4 {
        assert_eq!(server.client().call(&format!("evalsha {sha} 0")), Reply::Int(1));
    }
    for number in 2..700 {
        assert_eq!(eval(&mut client, &format!("return {number}"), &["0"]), format!(":{number}"));
    }
    assert!(is_error(&client.call(&format!("evalsha {sha} 0")), "NOSCRIPT"));
    assert_eq!(client.info("number_of_cached_scripts"), "500");
}

#[test]
fn a_script_is_one_transaction() {
    let server = Server::start(&[]);
    let mut client = server.client();
    // Effects of a script that fails stay, as in Redis; a database that it selects is its own.
    let reply = eval(&mut client, "redis.call('select', 3) redis.call('set', 'a', 1) error('x')", &["0"]);
    assert!(reply.starts_with("-ERR"));
    client.run_script("get a => nil\n select 3 => +OK\n get a => 1\n select 0 => +OK");
    // All keys there are, and nothing that waits.
    check(
        &mut client,
        &[
            ("redis.call('mset', 'a', 1, 'b', 2) return redis.call('dbsize')", ":2"),
            ("return #redis.call('keys', '*')", ":2"),
            ("return redis.call('scan', 0, 'count', 100)[1]", "0"),
            ("return redis.call('blpop', 'none', 0)", "nil"),
            ("return redis.call('bzpopmin', 'none', 0)", "nil"),
            ("redis.call('flushall') return redis.call('dbsize')", ":0"),
        ],
    );
    // In MULTI.
    assert_eq!(client.call("multi"), ok());
    for script in ["return redis.call('incr', 'x')", "redis.call('flushdb') return redis.call('incr', 'x')"] {
        assert_eq!(eval(&mut client, script, &["0"]), "+QUEUED");
    }
    assert_eq!(show(&client.call("exec")), "[:1 :1]");
    // WATCH sees what a script writes.
    assert_eq!(client.call("watch x"), ok());
    eval(&mut server.client(), "redis.call('set', KEYS[1], 2)", &["1", "x"]);
    client.run_script("multi => +OK\n get x => +QUEUED\n exec => nil");
}

/// Scripts that move between accounts whose keys they name or do not name, beside transactions over several of them.
#[test]
fn scripts_of_many_clients_are_atomic_and_none_waits_for_ever() {
    const MOVE: &str = "local from, to = 'account:' .. ARGV[1], 'account:' .. ARGV[2]
        redis.call('decrby', from, ARGV[3]) redis.call('incrby', to, ARGV[3]) return 1";
    let server = Arc::new(Server::start(&[]));
    let threads: Vec<_> = (0..6usize)
        .map(|thread| {
            let server = server.clone();
            thread::spawn(move || {
                let mut client = server.client();
                for round in 0..200usize {
                    let (from, to) = ((round * 7 + thread) % 16, (round * 5 + thread * 3) % 16);
                    let [from, to, amount] = [from, to, round].map(|number| number.to_string());
                    let keys = [format!("account:{from}"), format!("account:{to}")];
                    let reply = match thread % 3 {
                        0 => client.call_args(&["eval", MOVE, "0", &from, &to, &amount]),
                        1 => client.call_args(&["eval", MOVE, "2", &keys[0], &keys[1], &from, &to, &amount]),
                        _ => {
                            client.call("multi");
                            client.call_args(&["decrby", &keys[0], &amount]);
                            client.call_args(&["eval", "return redis.call('incrby', KEYS[1], ARGV[1])", "1", &keys[1], &amount]);
                            match client.call("exec") {
                                Reply::Array(_) => Reply::Int(1),
                                other => other,
                            }
                        }
                    };
                    assert_eq!(reply, Reply::Int(1));
                    if round % 20 == 0 {
                        let sum = "local sum = 0 for i = 0, 15 do sum = sum + (redis.call('get', 'account:' .. i) or 0) end return sum";
                        assert_eq!(eval(&mut client, sum, &["0"]), ":0");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread fails");
    }
}

#[test]
fn what_a_script_wrote_is_durable_as_one_batch() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let script = "for i = 1, ARGV[1] do redis.call('set', 'key:' .. i, string.rep('x', 1000)) end
                  redis.call('hset', 'h', 'f', 'v') return 'done'";
    assert_eq!(eval(&mut client, script, &["0", "2000"]), "done");
    let batches = client.info("log_batches");
    assert_eq!(eval(&mut client, script, &["0", "100"]), "done");
    wait_until(|| "the log is idle".into(), || client.info("log_bytes_pending") == "0");
    let more = client.info("log_batches").parse::<u64>().unwrap() - batches.parse::<u64>().unwrap();
    // One, and perhaps the empty ones that follow when the log falls idle.
    assert!((1..=3).contains(&more), "{more} batches");
    let server = server.restart(Server::kill);
    let mut client = server.client();
    client.run_script("dbsize => :2001\n hget h f => v");
    // Scripts are not kept over a restart.
    assert_eq!(client.info("number_of_cached_scripts"), "0");
    assert_eq!(client.call("strlen key:1500"), Reply::Int(1000));
}

#[test]
fn values_on_the_medium_only_are_fetched() {
    let server = Server::start(&["--maxmemory", "24mb", "--workers", "1"]);
    let mut client = server.client();
    let value = "x".repeat(1 << 20);
    for number in 0..60 {
        assert_eq!(client.call_args(&["set", &format!("big:{number}"), &value]), ok());
    }
    let sum = "local sum = 0 for i = 0, 59 do sum = sum + #redis.call('get', 'big:' .. i) end return sum";
    assert_eq!(eval(&mut client, sum, &["0"]), format!(":{}", 60 << 20));
    // Whatever scripts wait for, and others for their turn, what they call they call once.
    assert_eq!(client.call("config resetstat"), ok());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                (0..3).for_each(|_| assert_eq!(eval(&mut client, sum, &["0"]), format!(":{}", 60 << 20)));
            });
        }
    });
    let calls = client.info("cmdstat_get");
    assert!(calls.starts_with("calls=720,"), "{calls}");
    let declared = "return #redis.call('get', KEYS[1]) + #redis.call('get', KEYS[2])";
    assert_eq!(eval(&mut client, declared, &["2", "big:0", "big:1"]), format!(":{}", 2 << 20));
}

/// A script that begins again has found no names yet, whatever it has looked for before.
#[test]
fn names_on_the_medium_only_are_those_that_were_asked_for() {
    const NAMES: usize = 3000;
    let server = Server::start(&["--maxmemory", "24mb", "--workers", "1"]);
    let value = "x".repeat(5000);
    let mut client = server.client();
    for number in 0..NAMES {
        let mut sent = Vec::new();
        ["x", "y"].iter().for_each(|prefix| {
            write_command(&mut sent, &["SET", &format!("{prefix}:{number}"), &value]);
        });
        client.send(&sent);
        assert_eq!([client.reply(), client.reply()], [ok(), ok()]);
    }
    let script = "local found, wrong = {}, 0
        for _, prefix in ipairs{'x', 'y'} do
            found[#found + 1] = redis.call('keys', prefix .. ':*')
            for _, name in ipairs(found[#found]) do wrong = wrong + (name:sub(1, 1) == prefix and 0 or 1) end
        end
        return {#found[1], #found[2], wrong}";
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&over);
        scope.spawn(|| {
            let (mut client, mut rng) = (server.client(), Rng(seed()));
            while !over.load(Relaxed) {
                client.call("set w 1");
                thread::sleep(Duration::from_millis(rng.below(300)));
            }
        });
        let looks = || {
            let mut client = server.client();
            for _ in 0..3 {
                assert_eq!(eval(&mut client, script, &["0"]), format!("[:{NAMES} :{NAMES} :0]"));
            }
        };
        [scope.spawn(looks), scope.spawn(looks)].into_iter().for_each(|look| look.join().expect("it looks"));
    });
}

#[test]
fn rights_are_checked() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script("acl setuser someone on nopass +@all -set ~a* => +OK\n auth someone x => +OK");
    let reply = eval(&mut client, "return redis.pcall('set', 'a', 1)", &["0"]);
    assert!(reply.starts_with("-ERR ACL failure in script: "), "{reply}");
    let reply = eval(&mut client, "return redis.pcall('get', 'b')", &["0"]);
    assert_eq!(reply, "-ERR ACL failure in script: No permissions to access a key");
    check(
        &mut client,
        &[
            ("return {redis.acl_check_cmd('get', 'a'), redis.acl_check_cmd('set', 'a', 1)}", "[:1 nil]"),
            (
                "return redis.acl_check_cmd('nosuch')",
                "-ERR Invalid command passed to redis.acl_check_cmd() @1.",
            ),
            (
                "return server.acl_check_cmd('nosuch')",
                "-ERR Invalid command passed to server.acl_check_cmd() @1.",
            ),
        ],
    );
    assert_eq!(client.call("eval return(1) 1 b"), error("NOPERM No permissions to access a key"));
}

/// Lets a script run until others are refused.
fn keep_busy(server: &Server, call: &[&str], error: &str) -> Client {
    let mut runner = server.client();
    let mut request = Vec::new();
    holdfast_resp::write_command(&mut request, call);
    runner.send(&request);
    let mut client = server.client();
    wait_until(|| "a script is busy".into(), || is_error(&client.call("ping"), "BUSY"));
    assert!(is_error(&client.call("get x"), error));
    runner
}

const SCRIPT_BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL";

#[test]
fn a_script_that_runs_for_long_can_be_killed() {
    // One worker serves both the script and who kills it.
    for workers in ["1", "2"] {
        let server = Server::start(&["--workers", workers, "--busy-reply-threshold", "50"]);
        let mut client = server.client();
        client.run_script("script kill => -NOTBUSY No scripts in execution right now.\n set x 1 => +OK");
        let mut watcher = server.client();
        assert_eq!(watcher.call("watch x"), ok());
        for script in [
            "while true do end",
            "redis.call('get', KEYS[1]) while true do end",
            "while true do pcall(function() while true do end end) end",
            "local co = coroutine.wrap(function() while true do end end) co()",
            // Of these hardly anything is the script's own code.
            "load(collectgarbage)",
            "local t = {} for i = 1, 1e5 do t[i] = {} end while true do collectgarbage() end",
            "local s = ('x'):rep(1e6) while true do s:rep(30) end",
            "local s = ('x'):rep(1e7) while true do s:find('y', 1, true) end",
            "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t) end",
        ] {
            let mut runner = keep_busy(&server, &["eval", script, "1", "x"], SCRIPT_BUSY);
            assert!(is_error(&client.call("eval return(1) 0"), "BUSY"));
            assert!(is_error(&client.call("function kill"), "BUSY"));
            assert_eq!(client.call("multi"), ok());
            assert!(is_error(&client.call("get x"), "BUSY"));
            assert_eq!(client.call("discard"), ok());
            assert!(is_error(&watcher.call("unwatch"), "BUSY"));
            // Who goes away meanwhile leaves nothing that waits for the script.
            let mut leaver = server.client();
            leaver.send(b"quit\r\n");
            assert_eq!(client.call("script kill"), ok());
            let reply = show(&runner.reply());
            assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{reply}");
            client.run_script("get x => 1\n script kill => -NOTBUSY No scripts in execution right now.");
            assert_eq!(runner.call("get x"), bulk("1"));
        }
    }
}

#[test]
fn who_has_waited_for_a_script_before_it_was_busy_is_told_so() {
    let server = Server::start(&["--workers", "2", "--busy-reply-threshold", "500"]);
    let mut runner = server.client();
    runner.run_script("set x 1 => +OK");
    let mut watcher = server.client();
    watcher.run_script("watch x => +OK");
    let requests: [&[&str]; 10] = [
        &["get", "x"],
        &["set", "x", "2"],
        &["mget", "y", "x"],
        &["info"],
        &["dbsize"],
        &["scan", "0"],
        &["flushall"],
        &["eval", "return redis.call('get', KEYS[1])", "1", "x"],
        &["eval", "return redis.call('get', 'y')", "0"],
        &["blpop", "x", "0"],
    ];
    // Twice, since a worker serves every second client, and the script's does nothing until it is busy.
    let mut clients: Vec<_> = requests.iter().chain(&requests).map(|_| server.client()).collect();
    let mut in_multi = [server.client(), server.client()];
    in_multi.iter_mut().for_each(|client| client.run_script("multi => +OK\n get x => +QUEUED"));
    let mut request = Vec::new();
    write_command(&mut request, &["eval", "redis.call('get', KEYS[1]) while true do end", "1", "x"]);
    runner.send(&request);
    thread::sleep(Duration::from_millis(100));
    for (client, words) in clients.iter_mut().zip(requests.iter().chain(&requests)) {
        let mut request = Vec::new();
        write_command(&mut request, words);
        client.send(&request);
    }
    in_multi.iter_mut().for_each(|client| client.send(b"EXEC\r\n"));
    drop(watcher);
    for (client, words) in clients.iter_mut().zip(requests.iter().chain(&requests)) {
        let reply = show(&client.reply());
        assert!(reply.contains("BUSY Redis is busy"), "{words:?}: {reply}");
    }
    for client in &mut in_multi {
        let reply = client.reply();
        assert!(is_error(&reply, "EXECABORT Transaction discarded because of: BUSY "), "{}", show(&reply));
    }
    for client in &mut clients {
        let reply = client.call("script kill");
        assert!(reply == ok() || is_error(&reply, "NOTBUSY"), "{}", show(&reply));
    }
    assert!(show(&runner.reply()).starts_with("-ERR Script killed by user"));
    clients.iter_mut().chain(&mut in_multi).for_each(|client| client.run_script("get x => 1"));
}

#[test]
fn exec_while_a_script_is_busy_ends_the_transaction() {
    let server = Server::start(&["--workers", "2", "--busy-reply-threshold", "50"]);
    let mut client = server.client();
    client.run_script("set x 1 => +OK\n watch x => +OK\n multi => +OK\n incr x => +QUEUED");
    let mut killer = server.client();
    let mut runner =
        keep_busy(&server, &["eval", "redis.call('get', KEYS[1]) while true do end", "1", "x"], SCRIPT_BUSY);
    let reply = client.call("exec");
    assert!(is_error(&reply, "EXECABORT Transaction discarded because of: BUSY "), "{}", show(&reply));
    assert_eq!(killer.call("script kill"), ok());
    runner.reply();
    client.run_script("exec => -ERR EXEC without MULTI\n get x => 1");
    // Nothing is watched any more.
    client.call("multi");
    assert_eq!(killer.call("set x 2"), ok());
    client.run_script("get x => +QUEUED\n exec => [2]");
}

#[test]
fn the_time_stands_still_within_a_script_and_exec() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let script = "local a = redis.call('time') for i = 1, 100000 do end local b = redis.call('time')
                  return {a[1] == b[1] and a[2] == b[2], b[1], b[2]}";
    let first = show(&client.call_args(&["eval", script, "0"]));
    assert!(first.starts_with("[:1 "), "{first}");
    assert_ne!(show(&client.call_args(&["eval", script, "0"])), first);
    client.run_script("multi => +OK\n time => +QUEUED\n time => +QUEUED");
    client.call_args(&["eval", "return redis.call('time')", "0"]);
    let Reply::Array(times) = client.call("exec") else { panic!("an array") };
    assert!(times.len() == 3 && times.iter().all(|time| *time == times[0]), "{times:?}");
    assert_ne!(client.call("time"), times[0]);
}

#[test]
fn what_a_script_returns_as_an_error_is_counted_once() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (script, code) in [
        ("return redis.error_reply('MINE here')", "MINE"),
        ("error({err='OURS here'})", "OURS"),
        ("return redis.pcall('hget', KEYS[1], 'a')", "WRONGTYPE"),
        ("return redis.call('hget', KEYS[1], 'a')", "WRONGTYPE"),
    ] {
        client.run_script("config resetstat => +OK\n set a 1 => +OK");
        assert!(is_error(&client.call_args(&["eval", script, "1", "a"]), code), "{script}");
        assert_eq!(client.info(&format!("errorstat_{code}")), "count=1", "{script}");
    }
}

#[test]
fn a_script_that_has_written_comes_to_its_end_or_is_lost_whole() {
    let mut server = Server::start(&["--workers", "1", "--busy-reply-threshold", "50"]);
    let mut client = server.client();
    let slow = "local function now() return os.clock() * 1000 end
        redis.call('set', 'x', 1) local stop = now() + ARGV[1]
        repeat for i = 1, 1000 do end until now() > stop
        redis.call('set', 'y', 1)";
    let mut runner = keep_busy(&server, &["eval", slow, "0", "500"], SCRIPT_BUSY);
    assert!(is_error(&client.call("script kill"), "UNKILLABLE"));
    assert_eq!(runner.reply(), Reply::Null);
    client.run_script("mget x y => [1 1]\n del x y => :2");
    keep_busy(&server, &["eval", slow, "0", "1e9"], SCRIPT_BUSY);
    client.send(b"shutdown nosave\r\n");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    let server = server.restart(Server::kill);
    server.client().run_script("mget x y => [nil nil]");
}
