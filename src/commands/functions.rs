//! FCALL, FCALL_RO, FUNCTION. Libraries are part of the data: a change of them is a write like any other.

use super::scripting::key_count;
use crate::{
    commands::prelude::*,
    exec::{call::wrong_subcommand, keyspace::Keyspace, script},
    script::{
        engine::Program,
        flags::ScriptFlags,
        library::{Library, Set},
    },
    server::Server,
    util::glob,
};
use holdfast_rdb::{Error, functions};
use holdfast_store::SYSTEM_DATABASE;
use std::sync::Arc;

const ROW: Command = Command {
    group: "scripting",
    categories: Categories::SCRIPTING,
    since: "7.0.0",
    complexity: "Depends on the function that is executed.",
    ..Command::NEW
};
const FCALL: Command = Command {
    flags: RUNS.and(Flags::MAY_REPLICATE),
    keys: &[KeySpec::counted(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 2)],
    ..ROW
};
const RUNS: Flags = Flags::NOSCRIPT
    .and(Flags::SKIP_MONITOR)
    .and(Flags::STALE)
    .and(Flags::NO_MANDATORY_KEYS)
    .and(Flags::MOVABLE_KEYS);
const SUB: Command = Command { flags: Flags::NOSCRIPT, ..ROW };
const WRITE: Flags = Flags::NOSCRIPT.and(Flags::WRITE);

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "fcall",
        syntax: "function numkeys:i [key...] [arg...]",
        summary: "Invokes a function.",
        ..FCALL
    }
    .by(Script(|call, txn| fcall(call, txn, false)))
    .unless(fcall_writes_nothing),
    Command {
        name: "fcall_ro",
        syntax: "function numkeys:i [key...] [arg...]",
        flags: RUNS.and(Flags::READONLY),
        keys: &[KeySpec::counted(KeyAccess::RO.and(KeyAccess::ACCESS), 2)],
        summary: "Invokes a read-only function.",
        ..FCALL
    }
    .by(Script(|call, txn| fcall(call, txn, true))),
    Command {
        name: "function",
        summary: "A container for function commands.",
        complexity: "O(1), depends on subcommand",
        ..ROW
    }
    .container(SUBCOMMANDS),
];

static SUBCOMMANDS: &[Row] = &[
    Command {
        name: "function|delete",
        syntax: "library-name",
        flags: WRITE,
        summary: "Deletes a library and its functions.",
        complexity: "O(1)",
        ..SUB
    }
    .by(Whole(delete)),
    Command {
        name: "function|dump",
        summary: "Dumps all libraries into a serialized binary payload.",
        complexity: "O(N) where N is the number of functions",
        ..SUB
    }
    .by(Browsing(dump)),
    Command {
        name: "function|flush",
        syntax: "[flush-type<ASYNC|SYNC>]",
        flags: WRITE,
        summary: "Deletes all libraries and functions.",
        complexity: "O(N) where N is the number of functions deleted",
        ..SUB
    }
    .by(Whole(flush)),
    Command {
        name: "function|help",
        flags: Flags::LOADING.and(Flags::STALE),
        summary: "Returns helpful text about the different subcommands.",
        complexity: "O(1)",
        ..SUB
    }
    .by(Plain(help)),
    Command {
        name: "function|kill",
        flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
        summary: "Terminates a function during execution.",
        complexity: "O(1)",
        ..SUB
    }
    .by(Plain(kill)),
    Command {
        name: "function|list",
        syntax: "[LIBRARYNAME=library-name-pattern] [WITHCODE]",
        summary: "Returns information about all libraries.",
        complexity: "O(N) where N is the number of functions",
        ..SUB
    }
    .by(Browsing(list)),
    Command {
        name: "function|load",
        syntax: "[REPLACE] function-code",
        flags: WRITE.and(Flags::DENYOOM),
        summary: "Creates a library.",
        complexity: "O(1) (considering compilation time is redundant)",
        ..SUB
    }
    .by(Whole(load)),
    Command {
        name: "function|restore",
        syntax: "serialized-value [policy<FLUSH|APPEND|REPLACE>]",
        flags: WRITE.and(Flags::DENYOOM),
        summary: "Restores all libraries from a payload.",
        complexity: "O(N) where N is the number of functions on the payload",
        ..SUB
    }
    .by(Whole(restore)),
    Command {
        name: "function|stats",
        flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
        summary: "Returns information about a function during execution.",
        complexity: "O(1)",
        ..SUB
    }
    .by(Plain(stats)),
];

const NO_FUNCTION: Stop = Stop::new("ERR Function not found");
const NO_LIBRARY: Stop = Stop::new("ERR Library not found");
const BAD_KEY_COUNT: Stop = Stop::new("ERR Bad number of keys provided");
const BAD_POLICY: Stop =
    Stop::new("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.");
const BAD_FLUSH: Stop = Stop::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");

/// With the code ERR.
fn error(text: impl std::fmt::Display) -> Stop {
    format!("ERR {text}").into()
}

fn fcall(call: &mut Call, txn: Option<&mut Txn>, read_only: bool) -> Answer {
    let set = call.server().libraries.get();
    let (library, name) = set.function(call.args.at(1)).ok_or(NO_FUNCTION)?;
    let count = key_count(call, BAD_KEY_COUNT)?;
    let wait_lsn = match &txn {
        None => library.wait_lsn(&call.server().store)?,
        // EXEC's own batch may hold the library, or it is in the log.
        Some(_) => call.server().store.log().tail(),
    };
    call.turn.depend_on(wait_lsn);
    let flags = library.functions.get(name).ok_or(NO_FUNCTION)?.flags;
    let function = call.turn.worker.compiler().function(library, name).map_err(error)?;
    let names_keys = &library.functions[name].names_keys;
    let lua = holdfast_lua::Program { name, function, is_eval: false };
    let program = Program { lua, names_keys };
    script::run(call, txn, &program, Some(flags), read_only, count)
}

fn load(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut replace = false;
    for index in 2..call.args.len() - 1 {
        if !call.is(index, "replace") {
            return Err([b"ERR Unknown option given: ", call.args.at(index)].concat().into());
        }
        replace = true;
    }
    let source = call.args.at(call.args.len() - 1);
    let mut set = Set::clone(&call.server().libraries.get());
    let (name, _) = crate::script::flags::of_library(source).map_err(error)?;
    if !replace && set.libraries.contains_key(&name) {
        return Err(error(format_args!("Library '{name}' already exists")));
    }
    let library = call.turn.worker.compiler().load_library(source).map_err(error)?;
    set.add(library).map_err(error)?;
    txn.set(SYSTEM_DATABASE, name.as_bytes(), source, false)?;
    call.server().libraries.set(set);
    call.reply_bulk(name)
}

fn delete(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut set = Set::clone(&call.server().libraries.get());
    let name = call.args.at(2);
    if !std::str::from_utf8(name).is_ok_and(|name| set.remove(name)) {
        return Err(NO_LIBRARY);
    }
    txn.remove(SYSTEM_DATABASE, name);
    call.server().libraries.set(set);
    call.reply_ok()
}

fn flush(call: &mut Call, txn: &mut Txn) -> Answer {
    match call.args.len() {
        2 => {}
        3 if call.is(2, "sync") || call.is(2, "async") => {}
        3 => return Err(BAD_FLUSH),
        _ => return Err(wrong_subcommand(call.args)),
    }
    replace_all(call, txn, Set::default())
}

/// Makes these the libraries, here and in the store.
fn replace_all(call: &mut Call, txn: &mut Txn, set: Set) -> Answer {
    let old = call.server().libraries.get();
    let is_new = |library: &&Arc<Library>| {
        !old.libraries.get(&library.name).is_some_and(|known| Arc::ptr_eq(known, library))
    };
    for library in set.libraries.values().filter(is_new) {
        txn.set(SYSTEM_DATABASE, library.name.as_bytes(), &library.source, false)?;
    }
    for name in old.libraries.keys().filter(|name| !set.libraries.contains_key(*name)) {
        txn.remove(SYSTEM_DATABASE, name.as_bytes());
    }
    call.server().libraries.set(set);
    // What is not there others have removed, by what may not be durable yet.
    call.turn.depend_on(call.server().store.log().tail());
    call.reply_ok()
}

fn restore(call: &mut Call, txn: &mut Txn) -> Answer {
    let (mut flush, mut replace) = (false, false);
    match call.args.len() {
        3 => {}
        4 if call.is(3, "append") => {}
        4 if call.is(3, "replace") => replace = true,
        4 if call.is(3, "flush") => flush = true,
        4 => return Err(BAD_POLICY),
        _ => return Err(wrong_subcommand(call.args)),
    }
    let sources = functions::decode(call.args.at(2)).map_err(|what| match what {
        Error::Footer => error("DUMP payload version or checksum are wrong"),
        Error::Malformed(what) => error(what),
    })?;
    let mut new = Set::default();
    for source in &sources {
        let library = call.turn.worker.compiler().load_library(source).map_err(error)?;
        if new.libraries.contains_key(&library.name) {
            return Err(error(format_args!("Library '{}' already exists", library.name)));
        }
        new.add(library).map_err(error)?;
    }
    let mut set = if flush { Set::default() } else { Set::clone(&call.server().libraries.get()) };
    for name in new.libraries.keys() {
        if set.remove(name) && !replace {
            return Err(error(format_args!("Library {name} already exists")));
        }
    }
    for library in new.libraries.into_values() {
        set.add(library).map_err(error)?;
    }
    replace_all(call, txn, set)
}

/// Waits until who changes the libraries has done so: then the log holds what is shown.
fn settle(keyspace: &mut Keyspace) -> Result<(), Stop> {
    if let Keyspace::Open { store, .. } = keyspace {
        drop(store.try_begin(&[0])?);
    }
    Ok(())
}

fn dump(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let set = call.server().libraries.get();
    settle(keyspace)?;
    call.reply_bulk(functions::encode(set.libraries.values().map(|library| &*library.source)))
}

fn list(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let (mut with_code, mut pattern, mut index) = (false, None, 2);
    while index < call.args.len() {
        if !with_code && call.is(index, "withcode") {
            with_code = true;
        } else if pattern.is_none() && call.is(index, "libraryname") {
            index += 1;
            let given = call.args.get(index);
            pattern = Some(given.ok_or(Stop::new("ERR library name argument was not given"))?);
        } else {
            return Err([b"ERR Unknown argument ", call.args.at(index)].concat().into());
        }
        index += 1;
    }
    let set = call.server().libraries.get();
    settle(keyspace)?;
    let is_wanted = |library: &&Arc<Library>| match pattern {
        Some(pattern) => glob::matches_any_case(pattern, library.name.as_bytes()),
        None => true,
    };
    let wanted: Vec<_> = set.libraries.values().filter(is_wanted).collect();
    call.out.array(wanted.len());
    for library in wanted {
        call.out.map(if with_code { 4 } else { 3 });
        call.out.key("library_name").bulk(&library.name);
        call.out.key("engine").bulk("LUA");
        call.out.key("functions").array(library.functions.len());
        for (name, function) in &library.functions {
            call.out.map(3);
            call.out.key("name").bulk(name);
            call.out.key("description").bulk_or_null(function.description.as_ref());
            call.out.key("flags").set(function.flags.names().count());
            function.flags.names().for_each(|name| call.out.simple(name));
        }
        if with_code {
            call.out.key("library_code").bulk(&library.source);
        }
    }
    Ok(Done)
}

fn kill(call: &mut Call) -> Answer {
    call.server().busy.kill(false)?;
    call.reply_ok()
}

fn stats(call: &mut Call) -> Answer {
    let (set, busy) = (call.server().libraries.get(), &call.server().busy);
    let running = busy.first();
    if running.as_ref().is_some_and(|running| running.is_eval) {
        return Err(busy.error().unwrap_or(NO_FUNCTION));
    }
    call.out.map(2);
    call.out.bulk("running_script");
    match running {
        None => call.out.null(),
        Some(running) => {
            call.out.map(3);
            call.out.key("name").bulk(&running.name);
            call.out.bulk("command");
            let command = running.command.args();
            call.out.array(command.len());
            command.iter().for_each(|arg| call.out.bulk(arg));
            call.out.key("duration_ms").int(running.started.elapsed().as_millis() as i64);
        }
    }
    call.out.key("engines").map(1);
    call.out.key("LUA").map(2);
    call.out.key("libraries_count").int(set.libraries.len() as i64);
    call.out.bulk("functions_count");
    call.reply_int(set.functions_len() as i64)
}

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return information about the libraries: name, engine, functions,",
        "    and the code if WITHCODE is given; only of libraries that match a pattern.",
        "STATS",
        "    Return information about the function that runs, and the engines.",
        "KILL",
        "    Kill the function that runs.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "DUMP",
        "    Return a payload of the libraries for FUNCTION RESTORE.",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries of a payload (default APPEND):",
        "    * FLUSH: delete all existing libraries.",
        "    * APPEND: keep the existing libraries, fail on a collision.",
        "    * REPLACE: keep the existing libraries, and replace those of the same name.",
    ])
}

/// Whether a call runs a function that says of itself that it does not write.
fn fcall_writes_nothing(server: &Server, args: Args) -> bool {
    let libraries = server.libraries.get();
    let function = libraries.function(args.at(1)).and_then(|(library, name)| library.functions.get(name));
    function.is_some_and(|function| function.flags.has(ScriptFlags::NO_WRITES))
}
