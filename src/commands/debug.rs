//! DEBUG: what tests need.

use crate::{
    answer::{Answer, Outcome::*, Stop},
    call::Call,
    client::flag,
    command::{
        Command, Flags,
        Handler::{Keyed, Plain},
        KeyAccess, KeySpec,
    },
    commands::keys::{NO_KEY, encoding},
    config::Opt,
};
use holdfast_store::{Txn, Type, collections::serial};
use std::{thread, time::Duration};

const SUB: Command = Command {
    group: "server",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    complexity: "O(1)",
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Command] = &[Command {
    name: "debug",
    arity: -2,
    group: "server",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "A container for debugging commands.",
    complexity: "O(1), depends on subcommand",
    subcommands: &[
        Command {
            name: "debug|error",
            arity: 3,
            summary: "Returns the given text as an error.",
            handler: Plain(error),
            ..SUB
        },
        Command {
            name: "debug|help",
            arity: 2,
            summary: "Returns helpful text about the subcommands.",
            handler: Plain(help),
            ..SUB
        },
        Command {
            name: "debug|object",
            arity: 3,
            summary: "Tells how a value is stored.",
            keys: &[KeySpec::one(KeyAccess::RO, 2)],
            handler: Keyed(object),
            ..SUB
        },
        Command {
            name: "debug|protocol",
            arity: 3,
            summary: "Returns a test value of the given type.",
            handler: Plain(protocol),
            ..SUB
        },
        Command {
            name: "debug|set-active-expire",
            arity: 3,
            summary: "Says whether expired keys are removed that nobody looks at.",
            handler: Plain(set_active_expire),
            ..SUB
        },
        Command {
            name: "debug|sleep",
            arity: 3,
            summary: "Stops the worker for so many seconds.",
            handler: Plain(sleep),
            ..SUB
        },
    ],
    ..Command::NEW
}];

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
        "ERROR <string>",
        "    Return a Redis protocol error with <string> as message.",
        "OBJECT <key>",
        "    Show low level info about `key` and associated value.",
        "PROTOCOL <type>",
        "    Reply with a test value of the specified type. <type> can be: string,",
        "    integer, double, null, array, set, map, push, verbatim, true, false, bignum.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys in background when they are not",
        "    accessed (otherwise the Redis behavior). Setting it to 1 reenables back the",
        "    default.",
        "SLEEP <seconds>",
        "    Stop the worker for <seconds>. Decimals allowed.",
    ]);
    Ok(Done)
}

fn error(call: &mut Call) -> Answer {
    check(call)?;
    Err(call.args.at(2).to_vec().into())
}

/// Values have no fixed place and no times of use, so those fields are 0 for strings and for all, respectively.
fn object(call: &mut Call, txn: &mut Txn) -> Answer {
    check(call)?;
    let (db, key) = (call.db(), call.args.at(2));
    let ty = txn.type_of(db, key).ok_or(NO_KEY)?;
    let encoding = encoding(txn, db, key, ty)?;
    let (offset, len) = if ty == Type::String {
        (0, txn.get(db, key)?.map_or(0, <[u8]>::len))
    } else {
        let obj = txn.object(db, key, ty)?.ok_or(NO_KEY)?;
        let (arena, context) = txn.parts(key);
        let mut bytes = Vec::new();
        serial::export(arena, context, obj, &mut bytes);
        (obj, bytes.len())
    };
    call.out.simple(format!(
        "Value at:{offset:#x} refcount:1 encoding:{encoding} serializedlength:{len} lru:0 lru_seconds_idle:0"
    ));
    Ok(Done)
}

fn set_active_expire(call: &mut Call) -> Answer {
    check(call)?;
    call.server().store.set_active_expiry(call.args.at(2) != b"0");
    call.out.ok();
    Ok(Done)
}

fn sleep(call: &mut Call) -> Answer {
    check(call)?;
    let seconds = std::str::from_utf8(call.args.at(2)).ok().and_then(|text| text.parse().ok());
    let duration = Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    thread::sleep(duration);
    call.out.ok();
    Ok(Done)
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
