//! EVAL, EVALSHA, their read-only forms, SCRIPT.

use crate::{
    command::{
        Categories, Command, Flags, KeyAccess, KeySpec,
        error::{NOT_INTEGER, Stop},
    },
    exec::{
        answer::{Answer, Outcome::*},
        call::Call,
        handler::{
            Handler::{Plain, Script},
            Row,
        },
        script::run,
    },
    script::{
        cache::{Script as CachedScript, Sha},
        engine::Program,
        flags::{self, ScriptFlags},
    },
    server::Server,
};
use data_encoding::HEXLOWER_PERMISSIVE;
use holdfast_lua::{Ref, sha1};
use holdfast_resp::{Args, parse_int};
use holdfast_store::Txn;

const ROW: Command = Command {
    group: "scripting",
    categories: Categories::SCRIPTING,
    complexity: "Depends on the script that is executed.",
    ..Command::NEW
};

const RUNS: Flags = Flags::NOSCRIPT.and(Flags::SKIP_MONITOR).and(Flags::STALE).and(Flags::NO_MANDATORY_KEYS);
const EVAL: Command = Command {
    flags: RUNS.and(Flags::MAY_REPLICATE).and(Flags::MOVABLE_KEYS),
    keys: &[KeySpec::counted(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 2)],
    since: "2.6.0",
    ..ROW
};
const EVAL_RO: Command = Command {
    flags: RUNS.and(Flags::READONLY).and(Flags::MOVABLE_KEYS),
    keys: &[KeySpec::counted(KeyAccess::RO.and(KeyAccess::ACCESS), 2)],
    since: "7.0.0",
    ..EVAL
};
const SUB: Command = Command { flags: Flags::NOSCRIPT, since: "2.6.0", complexity: "O(1)", ..ROW };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "eval",
        syntax: "script numkeys:i [key...] [arg...]",
        summary: "Executes a server-side Lua script.",
        ..EVAL
    }
    .by(Script(|call, txn| eval(call, txn, false)))
    .unless(eval_writes_nothing),
    Command {
        name: "eval_ro",
        syntax: "script numkeys:i [key...] [arg...]",
        summary: "Executes a read-only server-side Lua script.",
        ..EVAL_RO
    }
    .by(Script(|call, txn| eval(call, txn, true))),
    Command {
        name: "evalsha",
        syntax: "sha1 numkeys:i [key...] [arg...]",
        summary: "Executes a server-side Lua script by SHA1 digest.",
        ..EVAL
    }
    .by(Script(|call, txn| evalsha(call, txn, false)))
    .unless(evalsha_writes_nothing),
    Command {
        name: "evalsha_ro",
        syntax: "sha1 numkeys:i [key...] [arg...]",
        summary: "Executes a read-only server-side Lua script by SHA1 digest.",
        ..EVAL_RO
    }
    .by(Script(|call, txn| evalsha(call, txn, true))),
    Command {
        name: "script",
        since: "2.6.0",
        summary: "A container for Lua scripts management commands.",
        complexity: "O(1), depends on subcommand",
        ..ROW
    }
    .container(SUBCOMMANDS),
];

static SUBCOMMANDS: &[Row] = &[
    Command {
        name: "script|debug",
        syntax: "mode<YES|SYNC|NO>",
        since: "3.2.0",
        summary: "Sets the debug mode of server-side Lua scripts.",
        ..SUB
    }
    .by(Plain(debug)),
    Command {
        name: "script|exists",
        syntax: "sha1...",
        summary: "Determines whether server-side Lua scripts exist in the script cache.",
        complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
        ..SUB
    }
    .by(Plain(exists)),
    Command {
        name: "script|flush",
        syntax: "[flush-type@6.2.0<ASYNC|SYNC>]",
        summary: "Removes all server-side Lua scripts from the script cache.",
        complexity: "O(N) with N being the number of scripts in cache",
        ..SUB
    }
    .by(Plain(flush)),
    Command {
        name: "script|help",
        since: "5.0.0",
        flags: Flags::LOADING.and(Flags::STALE),
        summary: "Returns helpful text about the different subcommands.",
        ..SUB
    }
    .by(Plain(help)),
    Command {
        name: "script|kill",
        flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
        summary: "Terminates a server-side Lua script during execution.",
        ..SUB
    }
    .by(Plain(kill)),
    Command {
        name: "script|load",
        syntax: "script",
        flags: Flags::NOSCRIPT.and(Flags::STALE),
        summary: "Loads a server-side Lua script to the script cache.",
        complexity: "O(N) with N being the length in bytes of the script body.",
        ..SUB
    }
    .by(Plain(load)),
    Command {
        name: "script|show",
        syntax: "sha1",
        since: "8.0.0",
        summary: "Show server-side Lua script in the script cache.",
        ..SUB
    }
    .by(Plain(show)),
];

const NO_SCRIPT: Stop = Stop::new("NOSCRIPT No matching script. Please use EVAL.");
const TOO_MANY_KEYS: Stop = Stop::new("ERR Number of keys can't be greater than number of args");
const NEGATIVE_KEYS: Stop = Stop::new("ERR Number of keys can't be negative");

/// How many of the arguments from the fourth on are keys.
pub fn key_count(call: &Call, not_integer: Stop) -> Result<usize, Stop> {
    let count = parse_int(call.args.at(2)).ok_or(not_integer)?;
    if count > call.args.len() as i64 - 3 {
        return Err(TOO_MANY_KEYS);
    }
    usize::try_from(count).map_err(|_| NEGATIVE_KEYS)
}

/// Whether a call of EVAL runs a script that says of itself that it does not write.
fn eval_writes_nothing(_: &Server, args: Args) -> bool {
    let flags = flags::of_script(args.at(1)).ok().and_then(|(flags, _)| flags);
    flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES))
}

/// The same of EVALSHA.
fn evalsha_writes_nothing(server: &Server, args: Args) -> bool {
    let flags = parse_sha(args.at(1)).and_then(|sha| server.scripts.get(&sha)?.flags);
    flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES))
}

/// A digest from its hexadecimal digits.
fn parse_sha(text: &[u8]) -> Option<Sha> {
    let mut sha = [0; 20];
    let is_as_long = text.len() == 2 * sha.len();
    (is_as_long && HEXLOWER_PERMISSIVE.decode_mut(text, &mut sha).is_ok()).then_some(sha)
}

fn program_of(script: &CachedScript, function: Ref) -> Program<'_> {
    let lua = holdfast_lua::Program { name: &script.name, function, is_eval: true };
    Program { lua, names_keys: &script.names_keys }
}

fn eval(call: &mut Call, txn: Option<&mut Txn>, read_only: bool) -> Answer {
    let count = key_count(call, NOT_INTEGER)?;
    let source = call.args.at(1);
    let (shared, mut engine) = (&call.server().scripts, call.turn.worker.compiler());
    let (script, function) = match engine.script(shared, &sha1(source))? {
        Some(found) => found,
        None => engine.add(shared, source, false)?,
    };
    drop(engine);
    let program = program_of(&script, function);
    run(call, txn, &program, script.flags, read_only, count)
}

fn evalsha(call: &mut Call, txn: Option<&mut Txn>, read_only: bool) -> Answer {
    let sha = parse_sha(call.args.at(1)).ok_or(NO_SCRIPT)?;
    let count = key_count(call, NOT_INTEGER)?;
    let found = call.turn.worker.compiler().script(&call.server().scripts, &sha)?;
    let (script, function) = found.ok_or(NO_SCRIPT)?;
    let program = program_of(&script, function);
    run(call, txn, &program, script.flags, read_only, count)
}

fn load(call: &mut Call) -> Answer {
    let source = call.args.at(2);
    let (script, _) = call.turn.worker.compiler().add(&call.server().scripts, source, true)?;
    call.reply_bulk(&script.name)
}

fn exists(call: &mut Call) -> Answer {
    let shas = call.args.from(2);
    call.out.array(shas.len());
    for sha in shas.iter() {
        let found = parse_sha(sha).is_some_and(|sha| call.server().scripts.get(&sha).is_some());
        call.out.int(found.into());
    }
    Ok(Done)
}

fn show(call: &mut Call) -> Answer {
    let sha = parse_sha(call.args.at(2)).ok_or(NO_SCRIPT)?;
    let script = call.server().scripts.get(&sha).ok_or(NO_SCRIPT)?;
    call.reply_bulk(&script.source)
}

fn flush(call: &mut Call) -> Answer {
    match call.args.len() {
        2 => {}
        3 if call.is(2, "sync") || call.is(2, "async") => {}
        _ => return Err(Stop::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    call.server().scripts.flush();
    call.reply_ok()
}

fn kill(call: &mut Call) -> Answer {
    call.server().busy.kill(true)?;
    call.reply_ok()
}

/// There is no debugger; scripts run as always.
fn debug(call: &mut Call) -> Answer {
    if call.is(2, "no") {
        call.out.ok();
        return Ok(Done);
    }
    if call.is(2, "yes") || call.is(2, "sync") {
        return Err(Stop::new("ERR The Lua debugger is not available"));
    }
    Err(Stop::new("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "DEBUG (YES|SYNC|NO)",
        "    Set the debug mode for subsequent scripts executed.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "SHOW <sha1>",
        "    Show a script from the scripts cache.",
    ])
}
