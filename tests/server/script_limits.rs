//! Scripts that go to the limits of their interpreter: its stack, its memory, its C stack, what they share. Each gets an
//! error, and the server goes on.

use crate::harness::{Client, Server, show};

fn eval(client: &mut Client, script: &str) -> String {
    show(&client.call_args(&["eval", script, "0"]))
}

/// The text of an error without the script's name, whose digest is in the way.
fn error_of(reply: &str) -> &str {
    reply.split(" script: ").next().expect("a text")
}

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (script, expected) in cases {
        assert_eq!(error_of(&eval(client, script)), *expected, "{script}");
    }
}

#[test]
fn a_stack_that_is_nearly_full_is_an_error_at_most() {
    let server = Server::start(&[]);
    let mut client = server.client();
    // With each number of values near the limit of 8,000, each kind of function, called under protection and without.
    let script = "local t, done, failed = {}, 0, 0
        for i = 1, 8010 do t[i] = 1 end
        local function try(n, f, ...)
            local results = {pcall(f, ...)}
            if results[1] then done = done + 1 else failed = failed + 1 end
        end
        local calls = {
            function(n) return unpack(t, 1, n) end,
            function(n) return {pcall(unpack, t, 1, n)} end,
            function(n) return {xpcall(function() return unpack(t, 1, n) end, type)} end,
            function(n) return redis.call('sadd', 'k', unpack(t, 1, n)) end,
            function(n) return redis.pcall('nosuch', unpack(t, 1, n)) end,
            function(n) return redis.call({}, unpack(t, 1, n)) end,
            function(n) return redis.acl_check_cmd('get', unpack(t, 1, n)) end,
            function(n) return redis.sha1hex(unpack(t, 1, n)) end,
            function(n) return redis.error_reply(unpack(t, 1, n)) end,
            function(n) return redis.log(redis.LOG_DEBUG, unpack(t, 1, n)) end,
            function(n) return redis.setresp(unpack(t, 1, n)) end,
            function(n) return getmetatable('', unpack(t, 1, n)) end,
            function(n) return setmetatable({}, {}, unpack(t, 1, n)) end,
            function(n) return rawget(string, 'x', unpack(t, 1, n)) end,
            function(n) return rawset({}, 1, unpack(t, 1, n)) end,
            function(n) return next(string, nil, unpack(t, 1, n)) end,
            function(n) return pairs(string, unpack(t, 1, n)) end,
            function(n) return loadstring('return 1', 'x', unpack(t, 1, n)) end,
            function(n) return load(function() end, 'x', unpack(t, 1, n)) end,
            function(n) return collectgarbage('count', 0, unpack(t, 1, n)) end,
            function(n) return bit.band(unpack(t, 1, n)) end,
            function(n) return bit.tohex(unpack(t, 1, n)) end,
            function(n) return struct.pack(('i'):rep(n), unpack(t, 1, n)) end,
            function(n) return struct.unpack(('b'):rep(n), ('x'):rep(n)) end,
            function(n) return struct.size('i', unpack(t, 1, n)) end,
            function(n) return cmsgpack.pack(unpack(t, 1, n)) end,
            function(n) return cmsgpack.unpack(('x'):rep(n)) end,
            function(n) return cjson.encode({}, unpack(t, 1, n)) end,
            function(n) return cjson.decode('[]', unpack(t, 1, n)) end,
            function(n) return string.find('x', 'x', 1, true, unpack(t, 1, n)) end,
            function(n) return ('x'):rep(n):byte(1, n) end,
            function(n) return table.insert({}, unpack(t, 1, n)) end,
            function(n) return coroutine.resume(coroutine.create(function(...) return ... end), unpack(t, 1, n)) end,
            function(n) return coroutine.wrap(function(...) return ... end)(unpack(t, 1, n)) end,
            function(n) return math.random(unpack(t, 1, n)) end,
            function(n) return nosuch, unpack(t, 1, n) end,
        }
        for _, f in ipairs(calls) do
            for n = 7970, 8005 do try(n, f, n) end
        end
        return {done > 500, failed > 100}";
    assert_eq!(eval(&mut client, script), "[:1 :1]");
    check(
        &mut client,
        &[
            ("local t={} for i=1,7999 do t[i]=1 end return #{pcall(unpack,t)}", ":8000"),
            (
                "local t={} for i=1,8000 do t[i]=1 end return {pcall(unpack,t)}",
                "[nil too many results to unpack]",
            ),
            ("return {xpcall(function() return 1, 2 end, type, 3)}", "[:1 :1 :2]"),
            ("return {xpcall(function() error('x', 0) end, function(e) return e .. '!', 2 end)}", "[nil x!]"),
            (
                "return {xpcall(function() error('x', 0) end, function(e) error(e) end)}",
                "[nil error in error handling]",
            ),
            ("return {xpcall(error, 1)}", "[nil error in error handling]"),
            ("return xpcall(error)", "-ERR user_script:1: bad argument #2 to 'xpcall' (value expected)"),
            ("local t={} for i=1,7000 do t[i]=i end return redis.call('sadd', 's', unpack(t))", ":7000"),
            (
                "return {struct.unpack(('b'):rep(9000), ('x'):rep(9000))}",
                "-ERR user_script:1: too many results",
            ),
            ("local function f() return f() + 1 end return f()", "-ERR user_script:1: stack overflow"),
            (
                "local s = 'return 1' for i = 1, 300 do s = 'return (function() ' .. s .. ' end)()' end
              return (loadstring(s))",
                "nil",
            ),
        ],
    );
    assert_eq!(show(&client.call("ping")), "+PONG");
}

#[test]
fn ranges_that_overflow_are_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let wrong = "-ERR user_script:1: too many results to unpack";
    check(
        &mut client,
        &[
            ("return {unpack({1, 2, 3})}", "[:1 :2 :3]"),
            ("return {unpack({1, 2, 3}, 2)}", "[:2 :3]"),
            ("return {unpack({1, 2, 3}, -1, 1)}", "[]"),
            ("return select('#', unpack({1, 2, 3}, -1, 1))", ":3"),
            ("return select('#', unpack({}, 2, 1))", ":0"),
            ("return select('#', unpack({}, 2147483647, 2147483647))", ":1"),
            ("return unpack({}, 0, 2147483647)", wrong),
            ("return unpack({}, -2147483648, 2147483647)", wrong),
            ("return unpack({}, -2147483648, -1)", wrong),
            // As many as there can be at all.
            ("return unpack({}, 1, 2147483647)", wrong),
            ("return unpack({}, -2147483648, -2)", wrong),
            ("return unpack({}, 1, 2147483640)", wrong),
            ("return unpack({}, 1, 1e9)", wrong),
            (
                "return unpack(1)",
                "-ERR user_script:1: bad argument #1 to 'unpack' (table expected, got number)",
            ),
            (
                "table.insert({}, -2147483648, 1)",
                "-ERR user_script:1: bad argument #2 to 'insert' (position out of bounds)",
            ),
            ("local t = {1, 2} table.insert(t, 0, 3) return t[0]", ":3"),
        ],
    );
}

#[test]
fn a_script_without_memory_fails_alone() {
    let server = Server::start(&["--script-max-memory", "4mb", "--workers", "1"]);
    let mut client = server.client();
    let fill = "local t = {} for i = 1, 1e9 do t[i] = 'value ' .. i end";
    for script in [
        fill,
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local t = {} for i = 1, 1e9 do t['key' .. i] = i end",
        "local t = {} for i = 1, 1e9 do t[i] = function() return t end end",
        "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "return ('x'):rep(1e5):gsub('x', ('y'):rep(1000))",
        "return string.format(('%s'):rep(100), unpack((function() local t = {} for i = 1, 100 do t[i] = ('x'):rep(1e5) end return t end)()))",
        "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(10000) end while true do t[1] = table.concat(t) end",
        "return assert(loadstring('return {' .. ('1,'):rep(4e5) .. '}'))",
        "return cjson.decode('[' .. ('[],'):rep(3e5) .. '1]')",
        "return cmsgpack.unpack('\\221\\000\\064\\000\\000' .. ('\\144'):rep(1e6))",
        "local t = {} for i = 1, 30 do t = {t, t} end return cjson.encode(t)",
        "local t = {} for i = 1, 15 do local u = {} for j = 1, 100 do u[j] = t end t = u end return cmsgpack.pack(t)",
        "local t = {} for i = 1, 30 do t = {t, t} end return t",
        "local s = ('x'):rep(1e5) local t = {} for i = 1, 100 do t[i] = s end return redis.call('sadd', 'k', unpack(t))",
        "local function f(n) return f(n + 1) + 1 end return pcall(f, 1) and 1 or f(1)",
        "local co = coroutine.wrap(function() local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t coroutine.yield() end end)
         while true do co() end",
    ] {
        let reply = eval(&mut client, script);
        let is_refused = ["not enough memory", "stack overflow", "too many"].iter().any(|text| reply.contains(text));
        assert!(reply.starts_with("-ERR") && is_refused, "{script}: {reply}");
        assert_eq!(eval(&mut client, "return #('x'):rep(1e5)"), ":100000", "after {script}");
    }
    // It can be caught, and what was held is free then.
    let caught = format!(
        "local ok, error = pcall(function() {fill} end) collectgarbage() return {{ok, error, collectgarbage('count') < 2048}}"
    );
    assert_eq!(eval(&mut client, &caught), "[nil not enough memory :1]");
    // Garbage is no reason.
    assert_eq!(
        eval(&mut client, "local s for i = 1, 3000 do s = ('x'):rep(1e5) .. i end return #s"),
        ":100004"
    );
    // What a library holds is limited, too, and given back with it.
    let library = "#!lua name=hoard\nlocal t = {} redis.register_function('hoard', function() for i = 1, 1e9 do t[#t + 1] = 'value ' .. i end end)";
    assert_eq!(show(&client.call_args(&["function", "load", library])), "hoard");
    let reply = show(&client.call("fcall hoard 0"));
    assert!(reply.contains("not enough memory"), "{reply}");
    assert!(show(&client.call("fcall hoard 0")).contains("not enough memory"));
    assert_eq!(show(&client.call("function flush")), "+OK");
    let used = |client: &mut Client| client.info("used_memory_vm_eval").parse::<u64>().expect("a number");
    // Of libraries that are deleted, or were refused, nothing is left.
    let source = |n: usize, function: &str| {
        format!(
            "#!lua name=l{n}\nlocal t = {{}} for i = 1, 10000 do t[i] = {{i}} end redis.register_function('{function}', function() return #t end)"
        )
    };
    for n in 0..40 {
        let library = client.call_args(&["function", "load", &source(n, "f")]);
        assert_eq!(show(&library), format!("l{n}"));
        assert_eq!(show(&client.call("fcall f 0")), ":10000");
        assert_eq!(show(&client.call(&format!("function delete l{n}"))), "+OK");
    }
    client.call_args(&["function", "load", &source(0, "f")]);
    for n in 1..40 {
        let refused = client.call_args(&["function", "load", &source(n, "f")]);
        assert_eq!(show(&refused), "-ERR Function f already exists");
    }
    assert_eq!(eval(&mut client, "local t = {} for i = 1, 20000 do t[i] = {i} end return #t"), ":20000");
    assert_eq!(show(&client.call("set x 1")), "+OK");
    assert!(used(&mut client) < 16 << 20, "{}", used(&mut client));
}

#[test]
fn what_a_script_sets_of_the_collector_ends_with_it() {
    let server = Server::start(&["--script-max-memory", "8mb", "--workers", "1"]);
    let mut client = server.client();
    for stop in [
        "collectgarbage('stop')",
        "collectgarbage('setpause', 1000000)",
        "collectgarbage('setstepmul', 1) collectgarbage('setpause', 2000000000)",
    ] {
        assert_eq!(eval(&mut client, stop), "nil");
        let reply = eval(&mut client, "for i = 1, 3000 do local s = ('x'):rep(1e5) .. i end return 1");
        assert_eq!(reply, ":1", "after {stop}");
    }
    check(
        &mut client,
        &[
            ("return collectgarbage('count') > 10", ":1"),
            ("return collectgarbage()", ":0"),
            ("return collectgarbage('setpause', 150)", ":200"),
            ("return collectgarbage('setpause', 200)", ":200"),
            ("return type(collectgarbage('step', 10))", "boolean"),
            (
                "collectgarbage('x')",
                "-ERR user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'x')",
            ),
        ],
    );
}

#[test]
fn patterns_do_not_exhaust_the_stack() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for script in [
        "return string.find(('a'):rep(1e6), ('a?'):rep(1e6))",
        "return string.match(('a'):rep(1e6), ('a-'):rep(1e6))",
        "return ('a'):rep(1e6):gsub(('a*'):rep(1e6), '')",
        "for x in string.gmatch(('a'):rep(1e6), ('a+'):rep(1e6)) do end",
        "return string.gfind(('a'):rep(1e6), ('a?'):rep(1e6))()",
        "return string.match('', ('()'):rep(1e6))",
    ] {
        assert_eq!(
            error_of(&eval(&mut client, script)),
            "-ERR user_script:1: pattern too complex",
            "{script}"
        );
    }
    check(
        &mut client,
        &[
            ("return {string.find(('a?'):rep(1e5), ('a?'):rep(1e4), 1, true)}", "[:1 :20000]"),
            ("return #string.match(('a'):rep(400), ('a?'):rep(400))", ":400"),
            ("return {string.gsub('hello world', '(o)', '<%1>')}", "[hell<o> w<o>rld :2]"),
            (
                "local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end return t",
                "[a1 b2]",
            ),
            ("return string.match('x', 1)", "nil"),
            (
                "return string.find('x')",
                "-ERR user_script:1: bad argument #2 to 'find' (string expected, got no value)",
            ),
            ("return ('x'):match('(')", "-ERR user_script:1: unfinished capture"),
            ("return ('x'):rep(-1)", ""),
            ("return ('ab'):rep(3)", "ababab"),
        ],
    );
}

#[test]
fn coroutines_are_as_in_lua() {
    let server = Server::start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "local co = coroutine.create(function(a, b) local c = coroutine.yield(a + b) return c * 2 end)
                 local _, x = coroutine.resume(co, 1, 2) local _, y = coroutine.resume(co, 10)
                 return {x, y, {coroutine.resume(co)}, coroutine.status(co)}",
                "[:3 :20 [nil cannot resume dead coroutine] dead]",
            ),
            ("local f = coroutine.wrap(function(...) coroutine.yield(...) end) return {f(1, 2, 3)}", "[:1 :2 :3]"),
            ("local f = coroutine.wrap(function() end) f() f()", "-ERR user_script:1: cannot resume dead coroutine"),
            ("coroutine.wrap(1)", "-ERR user_script:1: bad argument #1 to 'wrap' (Lua function expected)"),
            ("coroutine.resume(1)", "-ERR user_script:1: bad argument #1 to 'resume' (coroutine expected)"),
        ],
    );
    let deep = "local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(1)";
    assert!(eval(&mut client, deep).contains("C stack overflow"));
}

#[test]
fn nothing_that_scripts_share_can_be_changed() {
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.client();
    for library in [
        "string",
        "table",
        "math",
        "redis",
        "server",
        "bit",
        "cjson",
        "struct",
        "coroutine",
        "os",
        "_G",
        "getmetatable('')",
    ] {
        for change in [
            "table.insert(T, 1)",
            "table.insert(T, 1, 1)",
            "rawset(T, 1, 1)",
            "T[1] = 1",
            "table.sort(T)",
            "table.remove(T)",
        ] {
            let script = change.replace('T', library);
            let reply = eval(&mut client, &script);
            assert!(reply.contains("Attempt to modify a readonly table"), "{script}: {reply}");
        }
    }
    check(
        &mut client,
        &[
            ("return {#string, #table, #redis}", "[:0 :0 :0]"),
            (
                "local t = {3, 1, 2} table.sort(t) table.insert(t, 4) table.insert(t, 1, 0) table.remove(t) return t",
                "[:0 :1 :2 :3]",
            ),
            (
                "table.insert(nil, 1)",
                "-ERR user_script:1: bad argument #1 to 'insert' (table expected, got nil)",
            ),
        ],
    );
}

#[test]
fn source_is_text_and_has_a_limit() {
    let server = Server::start(&["--script-max-memory", "1gb"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("return {loadstring('\\27Lua')}", "[]"),
            ("return select(2, loadstring('\\27Lua', '=x'))", "x: bytecode is not allowed"),
            ("return select(2, loadstring(string.dump(function() end), '=x'))", "x: bytecode is not allowed"),
            (
                "local n = 0 return select(2, load(function() n = n + 1 return n == 1 and '\\27' or n == 2 and 'Lua' or nil end, '=x'))",
                "x: bytecode is not allowed",
            ),
            ("return select(2, loadstring(('='):rep(2^26 + 1), '=x'))", "x: the source is too long"),
            (
                "return select(2, loadstring('[' .. ('='):rep(1e7) .. '[', '=x')):sub(1, 40)",
                "x:1: unfinished long string near '<eof>'",
            ),
            ("return #loadstring('return [' .. ('='):rep(1000) .. '[x]' .. ('='):rep(1000) .. ']')()", ":1"),
        ],
    );
    assert!(show(&client.call_args(&["eval", "\x1bLua", "0"])).contains("bytecode is not allowed"));
    // The name of a source outlasts the collector while that is compiled.
    let names = "collectgarbage('setpause', 0) collectgarbage('setstepmul', 1000000)
        for i = 1, 300 do
            local source = 'local a = {}' .. (' a.field' .. i .. ' = \"text ' .. i .. '\"'):rep(50) .. ' error()'
            local f = loadstring(source, '@name of ' .. i .. ('x'):rep(i))
            local _, error = pcall(f)
            if loadstring(source .. ' x x', '@other ' .. i) then return i end
        end
        return 'all'";
    assert_eq!(eval(&mut client, names), "all");
}
