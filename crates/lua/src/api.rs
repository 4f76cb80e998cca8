//! The tables `redis` and `server`: what scripts call the server by.

use crate::{
    host::{Host, LogLevel, NewFunction, Scratch, push_error, with_host},
    interpreter::{Function, Kind, Lua, PushError, Raise},
    number,
    reply::push_reply,
};
use data_encoding::HEXLOWER;
use holdfast_resp::{Args, Proto, Span};
use sha1::{Digest, Sha1};
use std::borrow::Cow;

/// What runs commands.
pub const COMMANDS: &[(&str, Function)] = &[("call", call), ("pcall", pcall)];

/// What EVAL and functions have beside.
pub const COMMON: &[(&str, Function)] = &[
    ("acl_check_cmd", acl_check_cmd),
    ("error_reply", error_reply),
    ("log", log),
    ("set_repl", set_repl),
    ("setresp", setresp),
    ("sha1hex", sha1hex),
    ("status_reply", status_reply),
];

/// What only EVAL has.
pub const EVAL_ONLY: &[(&str, Function)] =
    &[("breakpoint", no_debugger), ("debug", nothing), ("replicate_commands", replicate_commands)];

/// What a library has while it is loaded.
pub const LOADING: &[(&str, Function)] = &[("log", log), ("register_function", register_function)];

/// Adds the versions to the table on top.
pub fn add_versions(lua: &mut Lua, version: &str) -> Result<(), PushError> {
    let number = version.split('.').fold(0, |sum, part| sum << 8 | part.parse::<u32>().unwrap_or(0));
    for (text, num) in [("REDIS_VERSION", "REDIS_VERSION_NUM"), ("VALKEY_VERSION", "VALKEY_VERSION_NUM")] {
        lua.push_bytes(version)?;
        lua.set_field(-2, text)?;
        lua.push_number(number.into())?;
        lua.set_field(-2, num)?;
    }
    lua.push_bytes("redis")?;
    lua.set_field(-2, "SERVER_NAME")
}

/// Adds the levels of `redis.log` to the table on top.
pub fn add_log_levels(lua: &mut Lua) -> Result<(), PushError> {
    for (level, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"].iter().enumerate() {
        lua.push_number(level as f64)?;
        lua.set_field(-2, name)?;
    }
    Ok(())
}

/// Bits of `redis.set_repl`.
const REPL_ALL: i64 = 3;

/// Adds the flags of `redis.set_repl` to the table on top.
pub fn add_repl_flags(lua: &mut Lua) -> Result<(), PushError> {
    let flags =
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", REPL_ALL)];
    for (name, bits) in flags {
        lua.push_number(bits as f64)?;
        lua.set_field(-2, name)?;
    }
    Ok(())
}

/// What Redis says of `redis`, and Valkey of `server`.
const WORDS: &[(&str, &str)] = &[
    ("redis.", "server."),
    ("Lua redis lib command", "Command"),
    (" redis lib ", " "),
    ("Unknown Redis command", "Unknown command"),
    ("calling Redis command", "calling command"),
];

/// An error in the words that belong to the table from which the running function was taken.
fn in_words(lua: &mut Lua, text: Cow<'static, [u8]>) -> Result<Cow<'static, [u8]>, PushError> {
    lua.push_kept(1)?;
    let is_server = lua.bytes(-1) == Some(b"server");
    lua.pop(1);
    Ok(match std::str::from_utf8(&text) {
        Ok(words) if is_server => {
            let replace =
                |words: String, (of_redis, of_server): &(&str, &str)| words.replace(of_redis, of_server);
            WORDS.iter().fold(words.to_owned(), replace).into_bytes().into()
        }
        _ => text,
    })
}

/// Raises an error with the code ERR.
fn error(lua: &mut Lua, text: &str) -> Raise {
    lua.clear();
    let text = in_words(lua, format!("ERR {text}").into_bytes().into());
    match text.and_then(|text| push_error(lua, &text, false)) {
        Ok(()) => Raise::Value,
        Err(error) => error.into(),
    }
}

fn call(lua: &mut Lua) -> Result<i32, Raise> {
    if run_command(lua)? { Ok(1) } else { Err(Raise::Value) }
}

fn pcall(lua: &mut Lua) -> Result<i32, Raise> {
    run_command(lua)?;
    Ok(1)
}

/// Runs a command and leaves its reply; false: an error.
fn run_command(lua: &mut Lua) -> Result<bool, PushError> {
    let done = with_host(lua, |lua, host| {
        let mut scratch = std::mem::take(host.scratch());
        let done = run_command_with(lua, host, &mut scratch);
        scratch.trim();
        *host.scratch() = scratch;
        done
    });
    done.unwrap_or_else(|| {
        lua.clear();
        push_error(lua, b"ERR Recursive call of a command", false)?;
        Ok(false)
    })
}

fn run_command_with(lua: &mut Lua, host: &mut dyn Host, scratch: &mut Scratch) -> Result<bool, PushError> {
    if let Err(text) = read_args(lua, scratch) {
        let text = in_words(lua, text.as_bytes().into())?;
        push_error(lua, &text, false)?;
        return Ok(false);
    }
    scratch.reply.clear();
    let args = Args::new(&scratch.bytes, &scratch.spans);
    match host.call(args, &mut scratch.reply) {
        Ok(()) => {
            push_reply(lua, &scratch.reply)?;
            Ok(scratch.reply.first() != Some(&b'-'))
        }
        Err(text) => {
            let text = in_words(lua, text)?;
            push_error(lua, &text, true)?;
            Ok(false)
        }
    }
}

/// Takes the arguments off the stack.
fn read_args(lua: &mut Lua, scratch: &mut Scratch) -> Result<(), &'static str> {
    scratch.bytes.clear();
    scratch.spans.clear();
    let count = lua.top();
    if count == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for index in 1..=count {
        let start = scratch.bytes.len();
        if let Some(bytes) = lua.bytes(index) {
            scratch.bytes.extend_from_slice(bytes);
        } else if let Some(value) = lua.number(index) {
            number::write_argument(&mut scratch.bytes, value);
        } else {
            lua.clear();
            return Err("ERR Lua redis lib command arguments must be strings or integers");
        }
        // The same string may be given many times.
        if lua.check_memory(scratch.bytes.len()).is_err() {
            lua.clear();
            return Err("ERR not enough memory");
        }
        scratch.spans.push(Span { start, end: scratch.bytes.len() });
    }
    lua.clear();
    Ok(())
}

fn acl_check_cmd(lua: &mut Lua) -> Result<i32, Raise> {
    let mut scratch = Scratch::default();
    if let Err(text) = read_args(lua, &mut scratch) {
        let text = in_words(lua, text.as_bytes().into())?;
        push_error(lua, &text, false)?;
        return Err(Raise::Value);
    }
    let args = Args::new(&scratch.bytes, &scratch.spans);
    match with_host(lua, |_, host| host.may_run(args)).flatten() {
        Some(may) => {
            lua.push_bool(may)?;
            Ok(1)
        }
        None => Err(error(lua, "Invalid command passed to redis.acl_check_cmd()")),
    }
}

/// Lets `change` make a table of the one string that is the argument.
fn reply_table(lua: &mut Lua, make: impl Fn(&mut Lua, &[u8]) -> Result<(), PushError>) -> Result<i32, Raise> {
    match lua.bytes(1).filter(|_| lua.top() == 1).map(<[u8]>::to_vec) {
        Some(text) => make(lua, &text)?,
        None => {
            lua.clear();
            push_error(lua, b"ERR wrong number or type of arguments", false)?;
        }
    }
    Ok(1)
}

fn error_reply(lua: &mut Lua) -> Result<i32, Raise> {
    reply_table(lua, |lua, text| {
        let text = text.strip_prefix(b"-").unwrap_or(text);
        let text = text.strip_suffix(b"\r\n").unwrap_or(text);
        match text.contains(&b' ') {
            true => push_error(lua, text, false),
            false => push_error(lua, &[b"ERR ", text].concat(), false),
        }
    })
}

fn status_reply(lua: &mut Lua) -> Result<i32, Raise> {
    reply_table(lua, |lua, text| {
        lua.push_table(0, 1)?;
        lua.push_bytes(text)?;
        lua.set_field(-2, "ok")
    })
}

fn sha1hex(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() != 1 {
        return Err(error(lua, "wrong number of arguments"));
    }
    let text = lua.text(1).unwrap_or_default();
    lua.push_bytes(HEXLOWER.encode(&sha1(&text)))?;
    Ok(1)
}

/// The SHA-1 digest of a script, by which it is known.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    Sha1::digest(bytes).into()
}

/// What a script logs.
fn log(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() < 2 {
        return Err(error(lua, "redis.log() requires two arguments or more."));
    }
    let Some(level) = lua.number(1) else {
        return Err(error(lua, "First argument must be a number (log level)."));
    };
    let level = match number::truncate(level) {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(error(lua, "Invalid debug level.")),
    };
    let words: Vec<Vec<u8>> = (2..=lua.top()).filter_map(|index| lua.text(index)).collect();
    with_host(lua, |_, host| host.log(level, &String::from_utf8_lossy(&words.join(&b' '))));
    Ok(0)
}

fn setresp(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() != 1 {
        return Err(error(lua, "redis.setresp() requires one argument."));
    }
    let proto = match lua.number(1).map(number::truncate) {
        Some(2) => Proto::Resp2,
        Some(3) => Proto::Resp3,
        _ => return Err(error(lua, "RESP version must be 2 or 3.")),
    };
    with_host(lua, |_, host| host.set_proto(proto));
    Ok(0)
}

/// What a script writes is one batch of the log; there is nothing to choose.
fn set_repl(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.top() != 1 {
        return Err(error(lua, "redis.set_repl() requires two arguments."));
    }
    let flags = lua.number(1).map_or(0, number::truncate);
    if flags & !REPL_ALL != 0 {
        return Err(error(
            lua,
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    Ok(0)
}

fn replicate_commands(lua: &mut Lua) -> Result<i32, Raise> {
    lua.push_bool(true)?;
    Ok(1)
}

fn no_debugger(lua: &mut Lua) -> Result<i32, Raise> {
    lua.push_bool(false)?;
    Ok(1)
}

fn nothing(_: &mut Lua) -> Result<i32, Raise> {
    Ok(0)
}

fn register_function(lua: &mut Lua) -> Result<i32, Raise> {
    let function = match lua.top() {
        1 => named_arguments(lua),
        2 => positional_arguments(lua),
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    let function = match function {
        Ok(function) => function,
        Err(text) => return Err(error(lua, text)),
    };
    let callback = lua.keep();
    match with_host(lua, |_, host| host.register(function, callback)) {
        Some(Ok(())) => Ok(0),
        Some(Err(text)) => {
            lua.forget(callback);
            Err(error(lua, &text))
        }
        None => {
            lua.forget(callback);
            Err(error(lua, "redis.register_function can only be called on FUNCTION LOAD command"))
        }
    }
}

fn positional_arguments(lua: &mut Lua) -> Result<NewFunction, &'static str> {
    let name = lua.text(1).ok_or("first argument to redis.register_function must be a string")?;
    if lua.kind(2) != Kind::Function {
        return Err("second argument to redis.register_function must be a function");
    }
    Ok(NewFunction { name, description: None, flags: Vec::new() })
}

fn named_arguments(lua: &mut Lua) -> Result<NewFunction, &'static str> {
    if lua.kind(1) != Kind::Table {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua table \
                    (representing named arguments).",
        );
    }
    let (mut name, mut description, mut flags) = (None, None, Vec::new());
    // Where the callback is to be.
    lua.push_nil()?;
    let callback = lua.top();
    lua.push_nil()?;
    while lua.next(1)? {
        let key = match lua.kind(-2) {
            Kind::String | Kind::Number => lua.text(-2).unwrap_or_default(),
            _ => return Err("named argument key given to redis.register_function is not a string"),
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => {
                let text = lua.text(-1);
                name = Some(
                    text.ok_or("function_name argument given to redis.register_function must be a string")?,
                );
            }
            b"description" => {
                let text = lua.text(-1);
                description = Some(
                    text.ok_or("description argument given to redis.register_function must be a string")?,
                );
            }
            b"callback" => {
                if lua.kind(-1) != Kind::Function {
                    return Err("callback argument given to redis.register_function must be a function");
                }
                lua.push_copy(-1)?;
                lua.insert(callback);
                lua.remove(callback + 1);
            }
            b"flags" => flags = read_flags(lua)?,
            _ => return Err("unknown argument given to redis.register_function"),
        }
        lua.pop(1);
    }
    let name = name.ok_or("redis.register_function must get a function name argument")?;
    if lua.kind(callback) != Kind::Function {
        return Err("redis.register_function must get a callback argument");
    }
    Ok(NewFunction { name, description, flags })
}

/// The names in the table on top.
fn read_flags(lua: &mut Lua) -> Result<Vec<Vec<u8>>, &'static str> {
    if lua.kind(-1) != Kind::Table {
        return Err("flags argument to redis.register_function must be a table representing function flags");
    }
    let mut flags = Vec::new();
    loop {
        lua.get_element(-1, flags.len() as i32 + 1)?;
        let (kind, text) = (lua.kind(-1), lua.text(-1));
        lua.pop(1);
        match text {
            _ if kind == Kind::Nil => return Ok(flags),
            Some(flag) => flags.push(flag),
            None => return Err("unknown flag given"),
        }
    }
}
