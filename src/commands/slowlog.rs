//! SLOWLOG.

use crate::commands::prelude::*;

const SUB: Command = Command {
    group: "server",
    since: "2.2.12",
    flags: Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "slowlog",
    since: "2.2.12",
    group: "server",
    summary: "A container for slow log commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "slowlog|get",
                syntax: "[count:i]",
                summary: "Returns the slow log's entries.",
                complexity: "O(N) where N is the number of entries returned",
                ..SUB
            }
            .by(Plain(get)),
            Command {
                name: "slowlog|help",
                since: "6.2.0",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command { name: "slowlog|len", summary: "Returns the number of entries in the slow log.", ..SUB }
                .by(Plain(len)),
            Command {
                name: "slowlog|reset",
                summary: "Clears all entries from the slow log.",
                complexity: "O(N) where N is the number of entries in the slowlog",
                ..SUB
            }
            .by(Plain(reset)),
        ]
    },
)];

const BAD_COUNT: Stop = Stop::new("ERR count should be greater than or equal to -1");
const COUNT_DEFAULT: usize = 10;

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ])
}

fn get(call: &mut Call) -> Answer {
    let count = match call.args.len() {
        2 => COUNT_DEFAULT,
        3 => match call.int_from(2, -1, BAD_COUNT)? {
            -1 => usize::MAX,
            count => count as usize,
        },
        _ => return Err(crate::exec::call::wrong_arity(call.command)),
    };
    let entries = call.server().slowlog.newest(count);
    let out = &mut call.out;
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.int(entry.id as i64);
        out.int(entry.time_s as i64);
        out.int(entry.duration.as_micros() as i64);
        out.array(entry.args.len());
        for arg in entry.args {
            out.bulk(arg);
        }
        out.bulk(entry.addr);
        out.bulk(entry.name);
    }
    Ok(Done)
}

fn len(call: &mut Call) -> Answer {
    let len = call.server().slowlog.len();
    call.reply_int(len as i64)
}

fn reset(call: &mut Call) -> Answer {
    call.server().slowlog.clear();
    call.reply_ok()
}
