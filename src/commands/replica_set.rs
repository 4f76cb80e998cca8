//! REPLICASET: which servers a replica set has, and how that is changed. Redis has no such command.

use crate::{
    commands::prelude::*, config::address::Address, server::replica_set::ReplicaSet,
    session::progress::Progress,
};
use holdfast_consensus::{Change, MemberId};
use holdfast_resp::parse_int;
use std::{str, sync::Arc, time::Duration};

/// How often it is looked whether a change is done.
const DONE_TICK: Duration = Duration::from_millis(1);

const NO_SET: Stop = Stop::new("ERR This server is not one of a replica set");
const NO_ADDRESS: Stop = Stop::new("ERR A server is named as host:port or host:port@bus-port");

const SUB: Command = Command {
    group: "server",
    since: "7.2.0",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI),
    ..Command::NEW
};

const TELLS: Flags = Flags::LOADING.and(Flags::STALE);

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "replicaset",
    group: "server",
    since: "7.2.0",
    summary: "A container for commands about the servers of a replica set.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "replicaset|add",
                syntax: "address",
                summary: "Makes a server that has no data yet one of the replica set. Returns its number.",
                ..SUB
            }
            .by(Plain(add)),
            Command {
                name: "replicaset|help",
                flags: TELLS,
                summary: "Returns helpful text about the different subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command {
                name: "replicaset|remove",
                syntax: "server",
                summary: "Has a server be one of the replica set no more. Returns its number.",
                ..SUB
            }
            .by(Plain(remove)),
            Command {
                name: "replicaset|status",
                flags: SUB.flags.and(TELLS),
                summary: "Returns the servers of the replica set, and how far each is.",
                ..SUB
            }
            .by(Plain(status)),
        ]
    },
)];

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "ADD <host:port[@bus-port]>",
        "    Make a server one of the replica set. It gets a copy of the data, and then counts",
        "    for a majority. Returns its number, which its own option replica-set must give it.",
        "REMOVE <number|host:port[@bus-port]>",
        "    Have a server be one of the replica set no more. Returns its number.",
        "STATUS",
        "    Return the servers of the replica set, and how far each is.",
    ])
}

fn set(call: &Call) -> Result<Arc<ReplicaSet>, Stop> {
    call.server().replica_set.clone().ok_or(NO_SET)
}

fn status(call: &mut Call) -> Answer {
    set(call)?.status(&mut call.out);
    Ok(Done)
}

fn address(call: &Call) -> Option<Address> {
    str::from_utf8(call.args.at(2)).ok()?.parse().ok()
}

fn add(call: &mut Call) -> Answer {
    let set = set(call)?;
    let address = address(call).ok_or(NO_ADDRESS)?;
    change(call, &set, Change::Add(address.to_string()), None)
}

fn remove(call: &mut Call) -> Answer {
    let set = set(call)?;
    let id = match (parse_int(call.args.at(2)), address(call)) {
        (Some(number), _) => MemberId::try_from(number).unwrap_or_default(),
        (None, Some(address)) => {
            let view = set.view();
            let is_there = |listed: &Address| (&listed.host, listed.port) == (&address.host, address.port);
            let mut found = view.servers.iter().filter(|(_, listed)| is_there(&listed.address));
            found.next().map_or(0, |(id, _)| *id)
        }
        (None, None) => return Err(NO_ADDRESS),
    };
    change(call, &set, Change::Remove(id), Some(id))
}

/// Replies with the number of the server that is meant, when the change is agreed on and all commands know of it.
fn change(call: &mut Call, set: &ReplicaSet, change: Change, id: Option<MemberId>) -> Answer {
    let (id, end) = match call.session.progress.take() {
        Some(Progress::Members(id, end)) => (id, end),
        _ => {
            let (members, end) = set.change(&change).map_err(|why| Stop::from(format!("ERR {why}")))?;
            (id.unwrap_or(members.next - 1), end)
        }
    };
    let (log, is_added) = (call.server().store.log(), matches!(change, Change::Add(_)));
    let is_done = log.durable() >= end && set.view().servers.contains_key(&id) == is_added;
    match log.failed() {
        _ if is_done => {
            call.out.int(id as i64);
            Ok(Done)
        }
        Some(why) => Err(format!("ERR {why}: whether the change is made, the next leader knows").into()),
        None => {
            call.session.progress = Some(Progress::Members(id, end));
            Ok(Outcome::postpone(DONE_TICK))
        }
    }
}
