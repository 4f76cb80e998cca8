//! A node's thread (`crate::cluster`) is told what to do, and the reply comes when it is done.

use crate::{
    commands::prelude::*,
    exec::{answer::Work, call::wrong_arity},
    server::cluster::{Order, View},
    session::{Session, progress::Progress},
};
use holdfast_cluster::{Change, Name, SLOTS, Slots};
use holdfast_resp::parse_int;
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
};

const NO_CLUSTER: Stop = Stop::new("ERR This instance has cluster support disabled");
/// The node follows in a replica set.
pub const NO_SLOTS: Stop =
    Stop::new("ERR the node does not lead its replica set: slots are given to the one that does");
const BAD_SLOT: Stop = Stop::new("ERR Invalid or out of range slot");
const NOT_IN_SCRIPTS: Stop = Stop::new("ERR scripts do not change the cluster: all its nodes decide on that");
const NOT_BEHIND_OTHERS: Stop = Stop::new(
    "ERR within MULTI what changes the cluster comes before commands that write or change the server: all its nodes decide on that",
);

/// What is known of the cluster; an error where there is none.
pub fn view(call: &Call) -> Result<Arc<View>, Stop> {
    let cluster = &call.server().cluster;
    if cluster.is_on() { Ok(cluster.view()) } else { Err(NO_CLUSTER) }
}

/// The same for what changes the node's own slots; an error where another one leads the replica set that has them.
pub fn leader_view(call: &Call) -> Result<Arc<View>, Stop> {
    let view = view(call)?;
    if call.server().replication.set().is_none() { Ok(view) } else { Err(NO_SLOTS) }
}

/// Has the cluster decide on a change, which is made of this node's number, and replies when it has.
pub fn change(call: &mut Call, change: impl FnOnce(u64) -> Change + Send + 'static) -> Answer {
    ordered(call, |answer| Order::Change(Box::new(change), answer))
}

/// Has something done by the thread that takes part in the cluster, and replies when it says so.
pub fn ordered(call: &mut Call, order: impl FnOnce(SyncSender<Result<(), String>>) -> Order) -> Answer {
    if let Some(outcome) = take_outcome(call) {
        outcome?;
        return call.reply_ok();
    }
    view(call)?;
    if call.session.in_script {
        return Err(NOT_IN_SCRIPTS);
    }
    if call.session.in_exec && !call.session.orders.may_wait {
        return Err(NOT_BEHIND_OTHERS);
    }
    let (sender, receiver) = sync_channel(1);
    if !call.server().cluster.order(order(sender)) {
        return Err(Stop::new("ERR the server ends"));
    }
    Ok(WaitFor(Work::new(move || {
        let ended = || Err("ERR the server ends".into());
        Progress::Ordered(receiver.recv().unwrap_or_else(|_| ended()))
    })))
}

/// Whether the command goes on after it has waited.
pub fn has_ordered(call: &Call) -> bool {
    let Session { in_exec, in_script, orders, progress, .. } = &*call.session;
    match in_exec {
        true => !in_script && orders.used < orders.outcomes.len(),
        false => matches!(progress, Some(Progress::Ordered(_))),
    }
}

/// What became of what the command has ordered, if it goes on after it has waited.
pub fn take_outcome(call: &mut Call) -> Option<Result<(), Stop>> {
    if !has_ordered(call) {
        return None;
    }
    let Session { in_exec, orders, progress, .. } = &mut *call.session;
    let outcome = match in_exec {
        true => {
            orders.used += 1;
            orders.outcomes[orders.used - 1].clone()
        }
        false => {
            let Some(Progress::Ordered(outcome)) = progress.take() else { unreachable!("it was looked at") };
            outcome
        }
    };
    Some(outcome.map_err(Stop::from))
}

/// The slot that an argument names.
pub fn slot(call: &Call, index: usize) -> Result<u16, Stop> {
    let slot = parse_int(call.args.at(index)).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| usize::from(*slot) < SLOTS).ok_or(BAD_SLOT)
}

/// The name that an argument is; if it is none, the node is `unknown`.
pub fn name(call: &Call, index: usize, unknown: &str) -> Result<Name, Stop> {
    let digits = call.args.at(index);
    Name::parse(digits).ok_or_else(|| [unknown.as_bytes(), b" ", digits].concat().into())
}

/// The name of the node that an argument names.
pub fn known(call: &Call, view: &View, index: usize) -> Result<Name, Stop> {
    let named = name(call, index, "ERR Unknown node")?;
    let unknown = || Stop::from(format!("ERR Unknown node {named}"));
    view.map.id_of(named).map(|_| named).ok_or_else(unknown)
}

/// The slots that some of the arguments name, each once.
pub fn named_slots(call: &Call, indices: Range<usize>, ranges: bool) -> Result<Slots, Stop> {
    let mut named = BTreeSet::new();
    let width = if ranges { 2 } else { 1 };
    if ranges && indices.len() % 2 == 1 {
        return Err(wrong_arity(call.command));
    }
    for index in indices.step_by(width) {
        let (first, last) = (slot(call, index)?, slot(call, index + width - 1)?);
        if first > last {
            return Err(
                format!("ERR start slot number {first} is greater than end slot number {last}").into()
            );
        }
        for slot in first..=last {
            if !named.insert(slot) {
                return Err(format!("ERR Slot {slot} specified multiple times").into());
            }
        }
    }
    Ok(Slots::collect(named.into_iter()))
}
