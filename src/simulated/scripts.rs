//! Random Lua programs: every function that scripts have, with arguments of every kind and in any number up to a full
//! stack, under little memory. Nothing ends the process, each program has a reply, and the next script runs as if there
//! had been none before.
//!
//! `HOLDFAST_FUZZ_SECONDS=3600` runs the long form, `HOLDFAST_SEED=n` one seed.

use super::{World, random_commands};
use holdfast_fuzz::{Rng, fuzz};
use holdfast_resp::{Reply, skip_reply};
use holdfast_store::{Options, SimIo};
use std::{
    fmt::Write,
    time::{Duration, Instant},
};

/// Programs in a life of an interpreter.
const PROGRAMS: u64 = 50;
/// How long a program may take, on a machine that does much else and checks each access to memory.
const TIME_MAX: Duration = Duration::from_secs(240);
/// Values that a function's arguments and results may be, nearly.
const STACK: u64 = 8000;

/// What scripts can call, but for what matches patterns: that may take as long as it likes with long texts.
const FUNCTIONS: &str = "assert collectgarbage error gcinfo getfenv getmetatable ipairs load loadstring next pairs pcall \
    rawequal rawget rawset select setfenv setmetatable tonumber tostring type unpack xpcall \
    bit.arshift bit.band bit.bnot bit.bor bit.bswap bit.bxor bit.lshift bit.rol bit.ror bit.rshift bit.tobit bit.tohex \
    cjson.decode cjson.decode_invalid_numbers cjson.decode_max_depth cjson.encode cjson.encode_invalid_numbers \
    cjson.encode_keep_buffer cjson.encode_max_depth cjson.encode_number_precision cjson.encode_sparse_array \
    cmsgpack.pack cmsgpack.unpack cmsgpack.unpack_limit cmsgpack.unpack_one struct.pack struct.size struct.unpack \
    coroutine.create coroutine.resume coroutine.running coroutine.status coroutine.wrap coroutine.yield \
    math.abs math.ceil math.exp math.floor math.fmod math.frexp math.huge math.ldexp math.log math.max math.min \
    math.modf math.pow math.random math.randomseed os.clock \
    string.byte string.char string.dump string.format string.len string.lower string.rep string.reverse string.sub \
    string.upper table.concat table.foreach table.foreachi table.getn table.insert table.maxn table.remove table.setn \
    table.sort redis.acl_check_cmd redis.breakpoint redis.call redis.debug redis.error_reply redis.log redis.pcall \
    redis.replicate_commands redis.set_repl redis.setresp redis.sha1hex redis.status_reply redis.register_function";
const NUMBERS: [&str; 18] = [
    "0", "1", "-1", "2", "3", "16", "100", "0.5", "-0.5", "2^31", "-2^31", "2^31-1", "2^32", "2^53", "1e308",
    "1/0", "-1/0", "0/0",
];
const WORDS: [&str; 32] = [
    "''",
    "'a'",
    "'stop'",
    "'restart'",
    "'count'",
    "'step'",
    "'setpause'",
    "'setstepmul'",
    "'return 1'",
    "'return {...}, function() return x end'",
    "'[1,{\"a\":[true,null,1e5,\"\\\\u00e9\"]}]'",
    "'\\147\\001\\162ab\\129\\161k\\146\\192\\203'",
    "'>i4<I8!8hsdfbBc0x'",
    "'%5.2f %s %q %x %c %d'",
    "'%99.99f'",
    "'on'",
    "'off'",
    "'null'",
    "'\\27Lua'",
    "'k'",
    "'#'",
    "'err'",
    "'__index'",
    "'k'",
    "'v'",
    "('x'):rep(1000)",
    "('[1,'):rep(2000)",
    "('{\"a\":'):rep(500)",
    "('\\145'):rep(2000)",
    "('i'):rep(500)",
    "('x'):rep(2e5)",
    "('x'):rep(1e9)",
];
const OTHERS: [&str; 26] = [
    "nil",
    "true",
    "false",
    "{}",
    "string",
    "_G",
    "redis",
    "getmetatable('')",
    "cjson.null",
    "deep",
    "wide",
    "stop",
    "twice",
    "identity",
    "coroutine.create(stop)",
    "coroutine.wrap(deep)",
    "setmetatable({}, meta)",
    "meta",
    "full",
    "nested",
    "shared",
    "{1, 2, nil, 4}",
    "{map={a={1}}, set={b=true}}",
    "{err='MY error'}",
    "{double=1.5}",
    "{ok='fine'}",
];
/// What programs begin with. A function of Lua's that gives `load` its pieces does not do so for minutes.
const PRELUDE: &str = "local a, b, c, d
local full, nested, shared = {}, {}, {}
for i = 1, 8100 do full[i] = i % 256 end
for i = 1, 3000 do nested = {nested} end
for i = 1, 12 do shared = {shared, shared} end
local function deep(...) return deep(...) + 1 end
local function wide(...) return unpack(full, 1, 7900), ... end
local function stop(...) local x = coroutine.yield(...) return x, coroutine.yield() end
local function twice(f, ...) f(...) return f(...) end
local function identity(...) return ... end
local function load(f, ...)
    if type(f) ~= 'function' then return _G.load(f, ...) end
    local n = 0
    return _G.load(function() n = n + 1 if n < 100 then return f() end end, ...)
end
local function short(s) return type(s) == 'string' and s:sub(1, 12) or s end
local meta = {__index = identity, __newindex = identity, __call = identity, __concat = twice, __eq = deep, __lt = wide,
    __le = identity, __len = identity, __unm = deep, __add = identity, __tostring = identity, __mode = 'kv', __gc = deep}
";

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.index(from.len())]
}

/// Any bytes as a string of Lua's.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    bytes.iter().for_each(|byte| write!(text, "\\{byte:03}").expect("a string"));
    text + "'"
}

fn function(rng: &mut Rng) -> &'static str {
    let all: Vec<&str> = FUNCTIONS.split_whitespace().collect();
    pick(rng, &all)
}

/// Arguments of a function, or results: sometimes as many as the stack holds, or nearly.
fn list(rng: &mut Rng, depth: u64) -> String {
    let mut values: Vec<String> = (0..rng.below(5)).map(|_| value(rng, depth + 1)).collect();
    if rng.one_in(12) {
        values.push(format!("unpack(full, 1, {})", STACK - 40 + rng.below(60)));
    }
    values.join(", ")
}

fn value(rng: &mut Rng, depth: u64) -> String {
    match rng.below(if depth > 3 { 6 } else { 12 }) {
        0 => pick(rng, &NUMBERS).into(),
        1 => pick(rng, &WORDS).into(),
        2 => pick(rng, &OTHERS).into(),
        3 => pick(rng, &["a", "b", "c", "d"]).into(),
        4 => quoted(&rng.bytes(40)),
        5 => function(rng).into(),
        6 => format!("{{{}}}", list(rng, depth)),
        7 => format!("{}({})", function(rng), list(rng, depth)),
        8 => matching(rng, depth),
        9 => command(rng),
        10 => {
            let operator = pick(rng, &["+", "-", "*", "/", "%", "^", "..", "==", "<", "<=", "and", "or"]);
            format!("({} {operator} {})", value(rng, depth + 1), value(rng, depth + 1))
        }
        _ => format!("function(...) return {} end", list(rng, depth)),
    }
}

/// A function that matches a pattern, with a short text.
fn matching(rng: &mut Rng, depth: u64) -> String {
    let pieces = [
        "a", "%a", ".", "[^%]x-z]", "(", ")", "()", "%b()", "%f[%w]", "%1", "%", "[", "^", "$", "%w*", "x-",
        "y?", "%s+",
    ];
    let pattern = match rng.below(8) {
        0 => value(rng, depth + 1),
        1 => format!("('{}'):rep({})", pick(rng, &["a?", "a-", "(", "()", "%%", "[a"]), 10 + rng.below(2000)),
        _ => format!("'{}'", (0..rng.below(6)).map(|_| pick(rng, &pieces)).collect::<String>()),
    };
    let text = value(rng, depth + 1);
    let name = pick(rng, &["find", "match", "gmatch", "gsub", "gfind"]);
    format!("string.{name}(short({text}), short({pattern}), {})", value(rng, depth + 1))
}

fn command(rng: &mut Rng) -> String {
    let words: Vec<String> = random_commands::any(rng).iter().map(|word| quoted(word)).collect();
    format!("redis.{}({})", pick(rng, &["call", "pcall"]), words.join(", "))
}

fn statement(rng: &mut Rng) -> String {
    let variable = pick(rng, &["a", "b", "c", "d"]);
    match rng.below(8) {
        0..3 => format!("{variable} = {}", value(rng, 0)),
        3 => format!("{variable}[{}] = {}", value(rng, 1), value(rng, 1)),
        4 => format!("for i = 1, {} do {variable} = {{{variable}, {}}} end", rng.below(200), value(rng, 2)),
        5 => format!(
            "local n = 0 for x, y in {} do {variable} = y n = n + 1 if n > 99 then break end end",
            value(rng, 1)
        ),
        6 => format!("{variable} = {{pcall({})}}", list(rng, 0)),
        _ => format!("return {}", list(rng, 0)),
    }
}

fn program(rng: &mut Rng) -> String {
    let mut text = PRELUDE.to_owned();
    for _ in 0..1 + rng.below(8) {
        // What goes wrong does not hinder what comes behind.
        writeln!(text, "pcall(function(...) {} end)", statement(rng)).expect("a string");
    }
    write!(text, "return {}", value(rng, 0)).expect("a string");
    text
}

/// A program with mistakes in it, which is compiled and not run: it might not end.
fn broken(rng: &mut Rng) -> Vec<u8> {
    let mut source = program(rng).split_off(PRELUDE.len()).into_bytes();
    for _ in 0..1 + rng.below(6) {
        rng.mutate(&mut source);
    }
    if rng.one_in(4) {
        let piece =
            pick(rng, &["(", "{", "[", "[==[", "--[[", "a.", "a=", "not ", "function() ", "do ", "-", "'"]);
        source.extend(piece.repeat(rng.index(3000)).into_bytes());
    }
    source
}

fn life(rng: &mut Rng) {
    let options = Options {
        partitions: 2,
        segment_size: Some(64 << 10),
        log_bytes_max: 64 << 20,
        heap_bytes_max: 64 << 20,
        memory_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    };
    let memory_max = (4 << 20) << rng.below(4);
    let settings = [("script-max-memory", memory_max.to_string())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut world = World::start(&SimIo::new(rng.draw()), &options, &settings).expect("the power is on");
    for _ in 0..PROGRAMS {
        let (source, words): (Vec<u8>, [&[u8]; 4]) = match rng.below(4) {
            0 => (broken(rng), [b"script", b"load", b"", b""]),
            1 => {
                let function = format!("local function f(...) {} end", program(rng));
                let library = format!("#!lua name=l\n{function} redis.register_function('f', f)");
                (library.into_bytes(), [b"function", b"load", b"replace", b""])
            }
            _ => (program(rng).into_bytes(), [b"eval", b"", b"1", b"k"]),
        };
        let words: Vec<&[u8]> = match words[0] {
            b"eval" => vec![words[0], &source, words[2], words[3]],
            b"script" => vec![words[0], words[1], &source],
            _ => vec![words[0], words[1], words[2], &source],
        };
        check(&mut world, &words, memory_max);
        if words[0] == b"function" {
            check(&mut world, &[b"fcall", b"f", b"1", b"k", b"v"], memory_max);
        }
        let after = "return {type(string.rep), #string + #table + #redis, #KEYS}";
        let (reply, _) = world.call(&["eval", after, "1", "k"]).expect("the power is on");
        let expected = [Reply::Bulk(b"function".into()), Reply::Int(0), Reply::Int(1)];
        assert_eq!(reply, Reply::Array(expected.into()), "after {}", source.escape_ascii());
        if rng.one_in(10) {
            world.maintain().expect("the power is on");
        }
    }
    world.store().check().expect("a sound store");
}

fn check(world: &mut World, words: &[&[u8]], memory_max: usize) {
    let shown = || words.iter().map(|word| String::from_utf8_lossy(word) + " ").collect::<String>();
    let started = Instant::now();
    let (out, _) = world.run(words).expect("the power is on");
    assert!(started.elapsed() < TIME_MAX, "{:?} for {}", started.elapsed(), shown());
    let end = out[out.len().saturating_sub(300)..].escape_ascii();
    assert_eq!(skip_reply(&out), Ok(Some(out.len())), "the reply ends {end}, to {}", shown());
    let bytes = world.worker.engine().bytes();
    assert!(bytes < 2 * memory_max, "{bytes} bytes after {}", shown());
}

#[test]
fn no_script_does_harm() {
    fuzz(life);
}
