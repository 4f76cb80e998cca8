//! DEBUG: what tests need.

mod digest;

use crate::{
    admin::log::log,
    clients::client::flag,
    command::error::NOT_POSITIVE,
    commands::{
        keys::{NO_KEY, encoding},
        persistence,
        prelude::*,
    },
    config::Opt,
};
use holdfast_resp::{Proto, parse_int};
use holdfast_store::{Type, string::StringValue};
use std::{process, thread, time::Duration};

const SUB: Command = Command {
    group: "server",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    complexity: "O(1)",
    ..Command::NEW
};

const RELOAD: Command = Command {
    flags: SUB.flags.and(Flags::NO_MULTI),
    complexity: "O(N) where N is the number of keys",
    ..SUB
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "debug",
    group: "server",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "A container for debugging commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "debug|dict-resizing",
                syntax: "enabled:i",
                summary: "Accepted for Redis's tests: no table here is resized as a whole.",
                ..SUB
            }
            .by(Plain(no_effect)),
            Command {
                name: "debug|digest",
                summary: "Returns a digest of all data, as Redis computes it.",
                complexity: "O(N) where N is the size of all data",
                ..SUB
            }
            .by(Whole(digest_all)),
            Command {
                name: "debug|digest-value",
                syntax: "[key...]",
                summary: "Returns the digests of the values of keys.",
                complexity: "O(N) where N is the size of the values",
                keys: const { &[KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 2, -1, 1)] },
                ..SUB
            }
            .by(Keyed(digest_values)),
            Command {
                name: "debug|error",
                syntax: "message",
                summary: "Returns the given text as an error.",
                ..SUB
            }
            .by(Plain(error)),
            Command { name: "debug|help", summary: "Returns helpful text about the subcommands.", ..SUB }
                .by(Plain(help)),
            Command { name: "debug|loadaof", summary: "As RELOAD.", ..RELOAD }.by(Plain(reload)),
            Command {
                name: "debug|log",
                syntax: "message",
                summary: "Writes a message to the server's log.",
                ..SUB
            }
            .by(Plain(log_message)),
            Command {
                name: "debug|object",
                syntax: "key",
                summary: "Tells how a value is stored.",
                keys: const { &[KeySpec::one(KeyAccess::RO, 2)] },
                ..SUB
            }
            .by(Keyed(object)),
            Command { name: "debug|panic", summary: "As SEGFAULT.", ..SUB }.by(Plain(crash)),
            Command {
                name: "debug|pause-cron",
                syntax: "enabled:i",
                summary: "Accepted for Redis's tests: what its cron does is not done by one task here.",
                ..SUB
            }
            .by(Plain(no_effect)),
            Command {
                name: "debug|populate",
                syntax: "count:i [prefix] [size:i]",
                flags: SUB.flags.and(Flags::WRITE).and(Flags::DENYOOM),
                summary: "Makes keys with string values.",
                complexity: "O(N) where N is the number of keys",
                ..SUB
            }
            .by(Whole(populate)),
            Command {
                name: "debug|protocol",
                syntax: "type",
                summary: "Returns a test value of the given type.",
                ..SUB
            }
            .by(Plain(protocol)),
            Command {
                name: "debug|quicklist-packed-threshold",
                syntax: "size",
                summary: "Accepted for Redis's tests: large elements of lists are stored as all others are.",
                ..SUB
            }
            .by(Plain(no_effect)),
            Command {
                name: "debug|reload",
                syntax: "[option...]",
                summary: "Writes everything to the medium, and forgets what is in memory only.",
                ..RELOAD
            }
            .by(Plain(reload)),
            Command { name: "debug|segfault", summary: "Ends the server at once, as a crash does.", ..SUB }
                .by(Plain(crash)),
            Command {
                name: "debug|set-active-expire",
                syntax: "enabled:i",
                summary: "Says whether expired keys are removed that nobody looks at.",
                ..SUB
            }
            .by(Plain(set_active_expire)),
            Command {
                name: "debug|set-disable-deny-scripts",
                syntax: "enabled:i",
                summary: "Says whether scripts may call what is for administrators.",
                ..SUB
            }
            .by(Plain(set_disable_deny_scripts)),
            Command {
                name: "debug|sleep",
                syntax: "seconds:d",
                summary: "Stops the worker for so many seconds.",
                ..SUB
            }
            .by(Plain(sleep)),
        ]
    },
)];

const FORBIDDEN: Stop = Stop::new(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);
const BAD_TYPE: Stop = Stop::new(
    "ERR Wrong protocol type name. Please use one of the following: \
     string|integer|double|null|array|set|map|attrib|push|verbatim|true|false",
);

/// Whether the option `enable-debug-command` lets this client in.
fn check(call: &Call) -> Result<(), Stop> {
    let client = &call.session.client;
    let is_local =
        client.has_flag(flag::UNIX) || client.addr.starts_with("127.") || client.addr.starts_with("[::1]");
    match call.server().config.choice(Opt::EnableDebugCommand).as_str() {
        "yes" => Ok(()),
        "local" if is_local => Ok(()),
        _ => Err(FORBIDDEN),
    }
}

fn help(call: &mut Call) -> Answer {
    check(call)?;
    call.help(&[
        "DIGEST",
        "    Output a hex signature representing the current DB content.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Output a hex signature of the values of all the specified keys.",
        "ERROR <string>",
        "    Return a Redis protocol error with <string> as message.",
        "LOADAOF",
        "    As RELOAD.",
        "LOG <message>",
        "    Write <message> to the server log.",
        "OBJECT <key>",
        "    Show low level info about `key` and associated value.",
        "PANIC",
        "    As SEGFAULT.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Create <count> string keys named key:<num>. If <prefix> is specified then",
        "    it is used instead of the 'key' prefix. These are not propagated to",
        "    replicas. Existing keys are not changed. Values are 'value:<num>', padded",
        "    with zeroes to <size> bytes.",
        "PROTOCOL <type>",
        "    Reply with a test value of the specified type. <type> can be: string,",
        "    integer, double, null, array, set, map, attrib, push, verbatim, true, false,",
        "    bignum.",
        "RELOAD [option ...]",
        "    Take a checkpoint, freeze all collections that can be, and forget the copies of",
        "    values in memory, so that they are read from disk again. The options NOSAVE,",
        "    NOFLUSH and MERGE make no difference: what is on disk is always complete.",
        "SEGFAULT",
        "    Crash the server.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys in background when they are not",
        "    accessed (otherwise the Redis behavior). Setting it to 1 reenables back the",
        "    default.",
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        "    Setting it to 1 lets scripts call commands for administrators.",
        "SLEEP <seconds>",
        "    Stop the worker for <seconds>. Decimals allowed.",
    ])
}

fn error(call: &mut Call) -> Answer {
    check(call)?;
    Err(call.args.at(2).to_vec().into())
}

/// Shows a key that has expired too, if nobody has looked since.
fn object(call: &mut Call, txn: &mut Txn) -> Answer {
    check(call)?;
    let now_ms = txn.now_ms();
    txn.expire_nothing(true);
    txn.note_uses(false);
    let shown = describe(txn, call.db(), call.args.at(2), now_ms);
    txn.expire_nothing(false);
    call.out.simple(shown?);
    Ok(Done)
}

/// Strings have no fixed place, so theirs is 0.
fn describe(txn: &mut Txn, db: u8, key: &[u8], now_ms: u64) -> Result<String, Stop> {
    let ty = txn.type_of(db, key).ok_or(NO_KEY)?;
    let encoding = encoding(txn, db, key, ty)?;
    let (offset, len) = if ty == Type::String {
        (0, txn.string_at(db, key)?.map_or(0, StringValue::len))
    } else {
        txn.serialized(db, key, ty)?.ok_or(NO_KEY)?
    };
    let idle_s = u64::from(txn.idle_s(db, key).unwrap_or(0));
    // As Redis keeps it in 24 bits: the second of the last use, or the minute and the count of uses.
    let lru = match txn.uses(db, key) {
        Some(count) => (now_ms / 60_000) << 8 | u64::from(count),
        None => now_ms / 1000 - idle_s,
    } & 0xff_ffff;
    Ok(format!(
        "Value at:{offset:#x} refcount:1 encoding:{encoding} serializedlength:{len} lru:{lru} lru_seconds_idle:{idle_s}"
    ))
}

fn digest_all(call: &mut Call, txn: &mut Txn) -> Answer {
    check(call)?;
    txn.note_uses(false);
    let digest = digest::of_everything(call, txn)?;
    call.out.simple(digest.hex());
    Ok(Done)
}

fn digest_values(call: &mut Call, txn: &mut Txn) -> Answer {
    check(call)?;
    txn.note_uses(false);
    let db = call.db();
    let keys = call.args.from(2);
    call.out.array(keys.len());
    for key in keys.iter() {
        let digest = digest::of_value(txn, db, key)?;
        call.out.simple(digest.hex());
    }
    Ok(Done)
}

fn log_message(call: &mut Call) -> Answer {
    check(call)?;
    log!(Warning, "DEBUG LOG: {}", String::from_utf8_lossy(call.args.at(2)));
    call.reply_ok()
}

/// There is nothing to load: the log is the data. What can differ from it is what is in RAM only.
fn reload(call: &mut Call) -> Answer {
    check(call)?;
    let is_option = |option: &[u8]| {
        ["merge", "noflush", "nosave"].iter().any(|o| option.eq_ignore_ascii_case(o.as_bytes()))
    };
    if !call.args.from(2).iter().all(is_option) {
        return Err(Stop::new("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."));
    }
    if let Some(later) = persistence::checkpoint(call)? {
        return Ok(later);
    }
    // A script of this very thread may hold a partition.
    call.server().store.try_stats()?;
    call.server().store.freeze(u64::MAX).map_err(|e| Stop::from(format!("ERR {e}")))?;
    call.server().store.forget_copies();
    call.reply_ok()
}

fn populate(call: &mut Call, txn: &mut Txn) -> Answer {
    /// Keys that one transaction makes at most, so that its batch stays within what the log takes at once.
    const KEYS_MAX: i64 = 10_000;
    const BYTES_MAX: i64 = 64 << 20;
    const TOO_MANY: Stop =
        Stop::new("ERR DEBUG POPULATE makes up to 10000 keys and 64 MB at once; change the prefix for more");
    check(call)?;
    if call.args.len() > 5 {
        return Err(call.unknown_subcommand());
    }
    let count = call.int_from(2, 0, NOT_POSITIVE)?;
    let prefix = call.args.get(3).unwrap_or(b"key");
    let size = call
        .args
        .get(4)
        .map(|size| parse_int(size).filter(|size| *size >= 0).ok_or(NOT_POSITIVE))
        .transpose()?;
    if count > KEYS_MAX || count.saturating_mul(size.unwrap_or_default()) > BYTES_MAX {
        return Err(TOO_MANY);
    }
    let db = call.db();
    for number in 0..count {
        let key = [prefix, b":", number.to_string().as_bytes()].concat();
        if txn.exists(db, &key) {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size.filter(|size| *size > 0) {
            value.resize(size as usize, 0);
        }
        txn.set(db, &key, &value, false)?;
    }
    call.reply_ok()
}

fn no_effect(call: &mut Call) -> Answer {
    check(call)?;
    call.reply_ok()
}

fn set_active_expire(call: &mut Call) -> Answer {
    check(call)?;
    call.server().store.set_active_expiry(call.args.at(2) != b"0");
    call.reply_ok()
}

fn set_disable_deny_scripts(call: &mut Call) -> Answer {
    check(call)?;
    call.server().scripts.let_all_in(call.args.at(2) != b"0");
    call.reply_ok()
}

fn crash(call: &mut Call) -> Answer {
    check(call)?;
    log!(Warning, "crashing as DEBUG asks for");
    process::abort()
}

fn sleep(call: &mut Call) -> Answer {
    check(call)?;
    let seconds = std::str::from_utf8(call.args.at(2)).ok().and_then(|text| text.parse().ok());
    let duration = Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    thread::sleep(duration);
    call.reply_ok()
}

fn protocol(call: &mut Call) -> Answer {
    check(call)?;
    let out = &mut call.out;
    match call.args.at(2).to_ascii_lowercase().as_slice() {
        b"string" => out.bulk("Hello World"),
        b"integer" => out.int(12345),
        b"double" => out.double(3141.0 / 1000.0),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|n| out.int(n));
        }
        b"set" => {
            out.set(3);
            (0..3).for_each(|n| out.int(n));
        }
        b"map" => {
            out.map(3);
            for n in 0..3 {
                out.int(n);
                out.bool(n == 1);
            }
        }
        b"attrib" => {
            if out.proto() == Proto::Resp3 {
                out.attribute(1);
                out.key("key-popularity").array(2);
                out.key("key:123").int(90);
            }
            out.bulk("Some real reply following the attribute");
        }
        b"push" => {
            out.push(2);
            out.bulk("server-cpu-usage");
            out.int(42);
        }
        b"verbatim" => out.verbatim("txt", "This is a verbatim\nstring"),
        b"true" => out.bool(true),
        b"false" => out.bool(false),
        b"bignum" => out.big_number("1234567999999999999999999999999999999"),
        _ => return Err(BAD_TYPE),
    }
    Ok(Done)
}
