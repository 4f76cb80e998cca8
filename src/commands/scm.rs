//! SCM: what is written to storage-class memory. Redis has no such command; the one that this is made after counts what a Redis
//! stores there (Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM, 2016).

use crate::{commands::prelude::*, config::Opt};
use holdfast_io::Scm;

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

fn start(call: &mut Call) -> Answer {
    let scm = scm(call)?;
    scm.reset();
    scm.count(true);
    call.reply_ok()
}

fn stop(call: &mut Call) -> Answer {
    scm(call)?.count(false);
    call.reply_ok()
}

fn reset(call: &mut Call) -> Answer {
    scm(call)?.reset();
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
    let figures = [
        ("counting", u64::from(scm.is_counting())),
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
