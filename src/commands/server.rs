//! MONITOR, TIME, SHUTDOWN, MODULE LIST.

use crate::{
    answer::{Answer, Outcome::*, SYNTAX, Stop},
    call::Call,
    command::{Command, Flags, Handler::Plain},
};
use std::time::{SystemTime, UNIX_EPOCH};

/// The rows.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "monitor",
        arity: 1,
        group: "server",
        flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
        summary: "Listens for all requests received by the server in real-time.",
        handler: Plain(monitor),
        ..Command::NEW
    },
    Command {
        name: "module",
        arity: -2,
        since: "4.0.0",
        group: "server",
        summary: "A container for module commands.",
        complexity: "O(1), depends on subcommand",
        subcommands: &[Command {
            name: "module|list",
            arity: 2,
            since: "4.0.0",
            group: "server",
            flags: Flags::ADMIN.and(Flags::NOSCRIPT),
            summary: "Returns all loaded modules.",
            complexity: "O(N) where N is the number of loaded modules.",
            // There are none.
            handler: Plain(|call| {
                call.out.array(0);
                Ok(Done)
            }),
            ..Command::NEW
        }],
        ..Command::NEW
    },
    Command {
        name: "shutdown",
        arity: -1,
        group: "server",
        flags: Flags::ADMIN
            .and(Flags::NOSCRIPT)
            .and(Flags::LOADING)
            .and(Flags::STALE)
            .and(Flags::NO_MULTI)
            .and(Flags::ALLOW_BUSY),
        summary: "Writes what is not durable yet and shuts down the server.",
        complexity: "O(N) when saving, where N is the number of bytes not yet durable",
        handler: Plain(shutdown),
        ..Command::NEW
    },
    Command {
        name: "time",
        arity: 1,
        group: "server",
        since: "2.6.0",
        flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        summary: "Returns the server time.",
        handler: Plain(time),
        ..Command::NEW
    },
];

const NOT_SHUTTING_DOWN: Stop = Stop::new("ERR No shutdown in progress.");

const MONITOR_IN_MULTI: Stop = Stop::new("ERR MONITOR isn't allowed for DENY BLOCKING client");

fn monitor(call: &mut Call) -> Answer {
    if call.session.in_exec {
        return Err(MONITOR_IN_MULTI);
    }
    call.server().push.monitors.begin(&call.session.client);
    call.out.ok();
    Ok(Done)
}

fn time(call: &mut Call) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
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
