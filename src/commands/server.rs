//! MONITOR, TIME, SHUTDOWN, MODULE.

use crate::commands::prelude::*;
use std::time::{SystemTime, UNIX_EPOCH};

const MODULE: Command =
    Command { since: "4.0.0", group: "server", flags: Flags::ADMIN.and(Flags::NOSCRIPT), ..Command::NEW };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "monitor",
        group: "server",
        flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
        summary: "Listens for all requests received by the server in real-time.",
        ..Command::NEW
    }
    .by(Plain(monitor)),
    Command {
        name: "module",
        since: "4.0.0",
        group: "server",
        summary: "A container for module commands.",
        complexity: "O(1), depends on subcommand",
        ..Command::NEW
    }
    .container(const { &[
        Command {
            name: "module|help",
            since: "5.0.0",
            flags: Flags::LOADING.and(Flags::STALE),
            summary: "Returns helpful text about the different subcommands.",
            ..MODULE
        }
        .by(Plain(|call| call.help(&["LIST", "    Return a list of loaded modules."]))),
        Command {
            name: "module|list",
            summary: "Returns all loaded modules.",
            complexity: "O(N) where N is the number of loaded modules.",
            ..MODULE
        }
        // There are none.
        .by(Plain(|call| {
            call.out.array(0);
            Ok(Done)
        })),
        Command {
            name: "module|load",
            syntax: "path [arg...]",
            summary: "Loads a module.",
            ..MODULE
        }
        .by(Plain(|_| Err(NO_MODULES))),
        Command {
            name: "module|loadex",
            syntax: "path [CONFIG=configs(name value)+...] [ARGS=args...]",
            since: "7.0.0",
            summary: "Loads a module using extended parameters.",
            ..MODULE
        }
        .by(Plain(|_| Err(NO_MODULES))),
        Command {
            name: "module|unload",
            syntax: "name",
            summary: "Unloads a module.",
            ..MODULE
        }
        .by(Plain(|_| Err(NO_MODULES))),
    ] }),
    Command {
        name: "shutdown",
        syntax: "[abort-selector<save-selector-block([save-selector<NOSAVE|SAVE>] [NOW@7.0.0] [FORCE@7.0.0])|ABORT@7.0.0>]",
        group: "server",
        flags: Flags::ADMIN
            .and(Flags::NOSCRIPT)
            .and(Flags::LOADING)
            .and(Flags::STALE)
            .and(Flags::NO_MULTI)
            .and(Flags::ALLOW_BUSY),
        summary: "Writes what is not durable yet and shuts down the server.",
        complexity: "O(N) when saving, where N is the number of bytes not yet durable",
        ..Command::NEW
    }
    .by(Plain(shutdown)),
    Command {
        name: "time",
        group: "server",
        since: "2.6.0",
        flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        summary: "Returns the server time.",
        ..Command::NEW
    }
    .by(Plain(time)),
];

const NO_MODULES: Stop = Stop::new("ERR Modules are not supported");
const NOT_SHUTTING_DOWN: Stop = Stop::new("ERR No shutdown in progress.");

const MONITOR_IN_MULTI: Stop = Stop::new("ERR MONITOR isn't allowed for DENY BLOCKING client");

fn monitor(call: &mut Call) -> Answer {
    if call.session.in_exec {
        return Err(MONITOR_IN_MULTI);
    }
    call.server().push.monitors.begin(&call.session.client);
    call.reply_ok()
}

fn time(call: &mut Call) -> Answer {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = match call.session.in_exec {
        true => *call.session.time.get_or_insert_with(now),
        false => now(),
    };
    call.out.array(2);
    call.out.bulk_int(now.as_secs() as i64);
    call.out.bulk_int(i64::from(now.subsec_micros()));
    Ok(Done)
}

/// All forms do the same: what was acknowledged is durable, and there is nothing else to save.
fn shutdown(call: &mut Call) -> Answer {
    let (mut abort, mut save, mut nosave) = (false, false, false);
    for at in 1..call.args.len() {
        match call.args.at(at).to_ascii_lowercase().as_slice() {
            b"nosave" => nosave = true,
            b"save" => save = true,
            b"now" | b"force" => {}
            b"abort" => abort = true,
            _ => return Err(SYNTAX),
        }
    }
    if (abort && call.args.len() > 2) || (save && nosave) {
        return Err(SYNTAX);
    }
    if abort {
        return Err(NOT_SHUTTING_DOWN);
    }
    call.server().shutdown.notify_one();
    // As in Redis there is no reply: the client sees the connection end.
    Ok(Close)
}
