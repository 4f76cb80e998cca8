//! SCM: what is written to storage-class memory. Redis has no such command; the one that this is made after counts what a Redis
//! stores there (Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM, 2016).

use crate::{
    admin::scm::{Executed, OfCommand},
    commands::prelude::*,
    config::Opt,
    server::Server,
};
use holdfast_io::{Scm, ScmStats};

const SUB: Command = Command {
    group: "server",
    since: "7.2.0",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "scm",
    group: "server",
    since: "7.2.0",
    summary: "A container for commands about storage-class memory.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "scm|commands",
                complexity: "O(N), with N commands",
                summary: "Returns what each command has written to storage-class memory while it was counted.",
                ..SUB
            }
            .by(Plain(commands)),
            Command {
                name: "scm|help",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the different subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command { name: "scm|reset", summary: "Counts from nothing again.", ..SUB }.by(Plain(reset)),
            Command {
                name: "scm|start",
                summary: "Counts what is written to storage-class memory, from nothing.",
                ..SUB
            }
            .by(Plain(start)),
            Command {
                name: "scm|stats",
                summary: "Returns what was written to storage-class memory while it was counted.",
                ..SUB
            }
            .by(Plain(stats)),
            Command { name: "scm|stop", summary: "Counts no longer, and keeps what was counted.", ..SUB }
                .by(Plain(stop)),
        ]
    },
)];

const BLOCK: Stop =
    Stop::new("ERR The data folder does not lie on storage-class memory (see the option medium)");

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "COMMANDS",
        "    Return, for each command, how often it was a transaction of its own, or nested in that of EXEC or a",
        "    script, and what its own transactions wrote. Only with the method cow do they write by themselves;",
        "    with the others that is done when a loop turn ends, for all commands of it: see (commits).",
        "RESET",
        "    Count from nothing again.",
        "START",
        "    Count what is written to storage-class memory, from nothing. It is counted from the start on.",
        "STATS",
        "    Return what was written while it was counted: loads, stores, streams, bytes, lines of 64 bytes,",
        "    and fences, each of which made some of it durable; how long an emulation has waited; and, since",
        "    the start, what scm-method has done.",
        "STOP",
        "    Count no longer, and keep what was counted.",
    ])
}

fn scm<'c>(call: &Call<'c>) -> Result<&'c Scm, Stop> {
    call.server().store.scm().ok_or(BLOCK)
}

/// Counts from nothing again.
fn count_anew(call: &Call) -> Result<(), Stop> {
    scm(call)?.reset();
    call.server().workers.iter().for_each(|worker| worker.scm.reset());
    Ok(())
}

fn start(call: &mut Call) -> Answer {
    count_anew(call)?;
    scm(call)?.count(true);
    call.reply_ok()
}

fn stop(call: &mut Call) -> Answer {
    scm(call)?.count(false);
    call.reply_ok()
}

fn reset(call: &mut Call) -> Answer {
    count_anew(call)?;
    call.reply_ok()
}

fn stats(call: &mut Call) -> Answer {
    let scm = scm(call)?;
    let stats = scm.stats();
    let (medium, method) = {
        let config = &call.server().config;
        (config.choice(Opt::Medium), config.choice(Opt::ScmMethod))
    };
    let home = call.server().store.home_stats().unwrap_or_default();
    let executed = executed(call.server());
    let sum = |count: fn(&OfCommand) -> u64| executed.commands.values().map(count).sum::<u64>();
    let closed = sum(|command| command.transactions);
    let figures = [
        ("counting", u64::from(scm.is_counting())),
        ("transactions_opened", closed + executed.open),
        ("transactions_closed", closed),
        ("nested_commands", sum(|command| command.nested)),
        ("loads", stats.loads),
        ("stores", stats.stores),
        ("streams", stats.streams),
        ("bytes", stats.bytes),
        ("lines", stats.lines),
        ("fences", stats.fences),
        ("delay_ns", stats.delay_ns),
        ("overshoot_ns", stats.overshoot_ns),
        ("overshoot_ns_max", stats.overshoot_ns_max),
        ("home_transactions", home.transactions),
        ("home_stores", home.stores),
        ("home_undo_bytes_max", home.undo_bytes_max),
    ];
    let out = &mut call.out;
    out.map(3 + figures.len());
    out.key("medium").bulk(medium);
    out.key("method").bulk(method);
    out.key("write_back").bulk(scm.options().write_back.name());
    figures.iter().for_each(|&(name, figure)| out.key(name).int(figure as i64));
    Ok(Done)
}

/// What all workers have executed.
fn executed(server: &Server) -> Executed {
    let mut all = Executed::default();
    server.workers.iter().for_each(|worker| worker.scm.add_to(&mut all));
    all
}

fn commands(call: &mut Call) -> Answer {
    scm(call)?;
    let server = call.server();
    let executed = executed(server);
    let out = &mut call.out;
    out.map(executed.commands.len() + 1);
    let written = |stats: &ScmStats| {
        [
            ("loads", stats.loads),
            ("stores", stats.stores),
            ("streams", stats.streams),
            ("bytes", stats.bytes),
            ("lines", stats.lines),
            ("fences", stats.fences),
        ]
    };
    for (&id, command) in &executed.commands {
        let written = written(&command.written);
        out.key(server.table.command(id).name).map(2 + written.len());
        let executed = [("transactions", command.transactions), ("nested", command.nested)];
        executed.iter().chain(&written).for_each(|&(name, figure)| out.key(name).int(figure as i64));
    }
    let written = written(&executed.commits);
    out.key("(commits)").map(written.len());
    written.iter().for_each(|&(name, figure)| out.key(name).int(figure as i64));
    Ok(Done)
}
