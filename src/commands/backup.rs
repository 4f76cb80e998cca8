//! BACKUP: has the server keep one moment of its data folder, for `holdfast backup` to copy. Redis has no such command.

use crate::{commands::prelude::*, config::Opt, server::Server, session::progress::Progress};
use holdfast_store::Begin;
use std::{path, time::Duration};

const SUB: Command = Command {
    group: "server",
    since: "7.2.0",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "backup",
    group: "server",
    since: "7.2.0",
    summary: "A container for commands that holdfast backup uses.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "backup|begin",
                summary: "Keeps the data folder as it is now, until this connection ends, and returns what of it is to be copied.",
                complexity: "O(N) where N is the number of pages of the heap",
                ..SUB
            }
            .by(Plain(begin)),
            Command {
                name: "backup|end",
                summary: "Returns whether all was kept until now, and keeps it no longer.",
                ..SUB
            }
            .by(Plain(end)),
            Command {
                name: "backup|help",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the different subcommands.",
                ..SUB
            }
            .by(Plain(help)),
        ]
    },
)];

/// How often it is looked whether it can begin.
const TICK: Duration = Duration::from_millis(2);

const AT_HOME: Stop = Stop::new(
    "ERR With this scm-method there are no checkpoints to back up: stop the server, and copy its folder",
);
const FOLLOWS: Stop =
    Stop::new("ERR The server follows another one of its replica set: the leader gives copies of the data");
const IN_USE: Stop = Stop::new("ERR Another backup is under way");
const NONE: Stop = Stop::new("ERR This connection has begun no backup");

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "BEGIN",
        "    Keep the data folder as it is now, until this connection ends. Return its path,",
        "    and a plan of what is to be copied, for holdfast backup.",
        "END",
        "    Return whether all was kept until now. Keep it no longer.",
    ])
}

/// Refuses where no moment of the data can be kept.
pub(super) fn check_possible(server: &Server) -> Result<(), Stop> {
    if let Some(why) = server.store.log().failed() {
        return Err(format!("ERR Writing to the log has failed: {why}").into());
    }
    if server.store.home_stats().is_some() {
        return Err(AT_HOME);
    }
    if server.replication.set().is_some() {
        return Err(FOLLOWS);
    }
    Ok(())
}

fn begin(call: &mut Call) -> Answer {
    let server = call.server();
    check_possible(server)?;
    match call.session.progress.take() {
        Some(Progress::Backup) => {}
        _ if call.session.backup.is_some() => return Err(IN_USE),
        _ => {}
    }
    if call.session.backup.is_none() {
        match server.store.begin_backup() {
            Begin::Leased(lease) => call.session.backup = Some(lease),
            Begin::NotNow => {}
            Begin::InUse => return Err(IN_USE),
        }
    }
    // Until the moment is durable.
    let plan = call.session.backup.as_ref().map_or(Ok(None), |lease| lease.plan());
    match plan {
        Ok(None) => {
            call.session.progress = Some(Progress::Backup);
            Ok(Outcome::postpone(TICK))
        }
        Ok(Some(plan)) => {
            let dir = server.config.text(Opt::Dir);
            let dir = path::absolute(&dir).map_or(dir, |path| path.display().to_string());
            call.out.array(2);
            call.out.bulk(dir);
            call.out.bulk(plan.encode());
            Ok(Done)
        }
        Err(error) => {
            call.session.backup = None;
            Err(format!("ERR {error}").into())
        }
    }
}

fn end(call: &mut Call) -> Answer {
    let lease = call.session.backup.take().ok_or(NONE)?;
    lease.end().map_err(|error| format!("ERR {error}"))?;
    call.reply_ok()
}
