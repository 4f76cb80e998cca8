//! The subcommands of CLUSTER that change the cluster: all its nodes decide on that.

use super::{
    keys::{Looked, data_of, keys_in},
    order::{change, has_ordered, known, leader_view, name, named_slots, ordered, slot, take_outcome, view},
};
use crate::{
    commands::prelude::*,
    exec::{
        call::wrong_subcommand,
        cluster::{NO_LEADER, is_of_set},
        keyspace::Keyspace,
    },
    server::{
        cluster::{Order, View},
        replica_set::ReplicaSet,
    },
};
use holdfast_cluster::{Change, Name};
use holdfast_resp::parse_int;

const REPLICATES_ITSELF: Stop = Stop::new("ERR Can't replicate myself");
const BAD_ACTION: Stop =
    Stop::new("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP");

fn add(call: &mut Call, ranges: bool) -> Answer {
    leader_view(call)?;
    let slots = named_slots(call, 2..call.args.len(), ranges)?;
    change(call, |id| Change::AddSlots { id, slots })
}

fn remove(call: &mut Call, ranges: bool) -> Answer {
    leader_view(call)?;
    let slots = named_slots(call, 2..call.args.len(), ranges)?;
    change(call, |_| Change::RemoveSlots { slots })
}

pub fn add_slots(call: &mut Call) -> Answer {
    add(call, false)
}

pub fn add_slots_range(call: &mut Call) -> Answer {
    add(call, true)
}

pub fn del_slots(call: &mut Call) -> Answer {
    remove(call, false)
}

pub fn del_slots_range(call: &mut Call) -> Answer {
    remove(call, true)
}

pub fn flush_slots(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    leader_view(call)?;
    if !has_ordered(call) && keyspace.len(data_of(call))? > 0 {
        return Err(Stop::new("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."));
    }
    change(call, |id| Change::FlushSlots { id })
}

pub fn bump_epoch(call: &mut Call) -> Answer {
    let view = leader_view(call)?;
    if let Some(outcome) = take_outcome(call) {
        outcome?;
        let epoch = view.map.members().get(&view.id).map_or(0, |me| me.epoch);
        call.out.simple(format!("BUMPED {epoch}"));
        return Ok(Done);
    }
    change(call, |id| Change::BumpEpoch { id })
}

pub fn set_config_epoch(call: &mut Call) -> Answer {
    leader_view(call)?;
    let epoch = call.int(2)?;
    let epoch = u64::try_from(epoch)
        .map_err(|_| Stop::from(format!("ERR Invalid config epoch specified: {epoch}")))?;
    change(call, move |id| Change::SetEpoch { id, epoch })
}

pub fn forget(call: &mut Call) -> Answer {
    let view = view(call)?;
    let name = name(call, 2, "ERR Unknown node")?;
    if name == view.name {
        return Err(Stop::new("ERR I tried hard but I can't forget myself..."));
    }
    change(call, move |_| Change::Forget { name })
}

/// Where the node is that CLUSTER MEET names, by host and port of its bus.
///
/// # Errors
/// It is nowhere, in Redis's words.
pub fn parse_meeting(args: Args) -> Result<(String, u16), Stop> {
    let port = |index: usize| {
        let text = args.at(index);
        let port = parse_int(text).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        port.ok_or_else(|| Stop::from([b"ERR Invalid base port specified: ", text].concat()))
    };
    let bus_port = match args.len() {
        4 => port(3)?.checked_add(10000),
        5 => Some(port(4)?),
        _ => return Err(wrong_subcommand(args)),
    };
    let host = std::str::from_utf8(args.at(2)).ok().filter(|host| !host.is_empty());
    let (Some(host), Some(bus_port)) = (host, bus_port) else {
        let (host, port) = (args.at(2), args.at(3));
        return Err([b"ERR Invalid node address specified: ", host, b":", port].concat().into());
    };
    Ok((host.to_owned(), bus_port))
}

pub fn meet(call: &mut Call) -> Answer {
    view(call)?;
    let (host, bus_port) = parse_meeting(call.args)?;
    call.server().cluster.order(Order::Meet(host, bus_port));
    call.reply_ok()
}

pub fn reset(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let is_hard = match call.args.len() {
        2 => false,
        3 if call.is(2, "hard") => true,
        3 if call.is(2, "soft") => false,
        _ => return Err(SYNTAX),
    };
    // What one that follows has is its replica set's, and stays.
    let leads = call.server().replication.set().is_none();
    if leads && !has_ordered(call) && keyspace.len(data_of(call))? > 0 {
        return Err(Stop::new("ERR CLUSTER RESET can't be called with master nodes containing keys"));
    }
    ordered(call, |answer| Order::Reset(is_hard, answer))
}

pub fn set_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let view = leader_view(call)?;
    let slot = slot(call, 2)?;
    // A time limit is only of use where replicas are waited for.
    let len = if call.args.len() >= 6 && call.is(call.args.len() - 2, "timeout") {
        call.args.len() - 2
    } else {
        call.args.len()
    };
    match len {
        5 if call.is(3, "migrating") => {
            let to = name(call, 4, "ERR I don't know about node")?;
            if to == view.name {
                return Err(Stop::new("ERR I'm already the owner of hash slot"));
            }
            change(call, move |id| Change::Migrating { id, slot, to })
        }
        5 if call.is(3, "importing") => {
            let from = name(call, 4, "ERR I don't know about node")?;
            change(call, move |id| Change::Importing { id, slot, from })
        }
        4 if call.is(3, "stable") => change(call, move |_| Change::Stable { slot }),
        5 if call.is(3, "node") => {
            let to = name(call, 4, "ERR Unknown node")?;
            if has_ordered(call) {
                return change(call, move |_| Change::Assign { slot, to });
            }
            if view.owns(slot) && to != view.name {
                match keys_in(call, keyspace, slot, 1)? {
                    Looked::Found(keys) if keys.is_empty() => {}
                    Looked::Found(_) => {
                        return Err(format!(
                            "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
                        )
                        .into());
                    }
                    Looked::Later(outcome) => return Ok(outcome),
                }
            }
            change(call, move |_| Change::Assign { slot, to })
        }
        _ => Err(BAD_ACTION),
    }
}

pub fn replicate(call: &mut Call) -> Answer {
    let view = view(call)?;
    let master = known(call, &view, 2)?;
    if let Some(set) = call.server().replication.set() {
        check_replicates(set, &view, master)?;
        return call.reply_ok();
    }
    if master == view.name {
        return Err(REPLICATES_ITSELF);
    }
    Err(Stop::new("ERR nodes of this cluster have no replicas"))
}

/// Whether one that follows in a replica set is a replica of a node. Which data it has follows from the set: it can be told so, and not be told
/// otherwise.
///
/// # Errors
/// It is not.
pub fn check_replicates(set: &ReplicaSet, view: &View, master: Name) -> Result<(), Stop> {
    if master == view.name {
        return Err(REPLICATES_ITSELF);
    }
    match view.map.id_of(master).is_some_and(|master| is_of_set(set, view, master)) {
        true => Ok(()),
        false => Err(Stop::new(
            "ERR the node is of a replica set, and a replica of the one that leads that: to have it in another one, REPLICASET REMOVE it, and \
             REPLICASET ADD it there",
        )),
    }
}

/// Has one that follows in a replica set lead it.
///
/// # Errors
/// Nobody leads it now who could have it do so.
pub fn take_over(set: &ReplicaSet) -> Result<(), Stop> {
    let own = set.seat().ok_or(NO_LEADER)?.server;
    set.view().leader().ok_or(NO_LEADER)?;
    set.hand_over(own);
    Ok(())
}

pub fn failover(call: &mut Call) -> Answer {
    view(call)?;
    if let Some(set) = call.server().replication.set() {
        take_over(set)?;
        return call.reply_ok();
    }
    Err(Stop::new("ERR You should send CLUSTER FAILOVER to a replica"))
}

/// It is saved whenever it changes.
pub fn save_config(call: &mut Call) -> Answer {
    view(call)?;
    call.reply_ok()
}
