//! CLUSTER, ASKING, READONLY, READWRITE: a node of a cluster is told what to do, and tells what it knows. Changes go to the node's
//! thread (`crate::cluster`), which has all nodes decide on them; the reply comes when they have.

use crate::{
    commands::{
        prelude::*,
        slot_migrations::{cancel_slot_migrations, get_slot_migrations, migrate_slots},
    },
    exec::{
        answer::Work,
        call::wrong_subcommand,
        keyspace::{Keyspace, Names},
    },
    server::cluster::{Order, View},
    session::progress::Progress,
};
use holdfast_cluster::{Change, Member, Name, SLOTS, Slots};
use holdfast_resp::parse_int;
use holdfast_store::hash_slot;
use std::{collections::BTreeSet, fmt::Write, ops::Range, sync::mpsc::sync_channel, time::Duration};

const ROW: Command = Command {
    group: "cluster",
    since: "3.0.0",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    ..Command::NEW
};

const NO_CLUSTER: Stop = Stop::new("ERR This instance has cluster support disabled");
const BAD_SLOT: Stop = Stop::new("ERR Invalid or out of range slot");
const BAD_ACTION: Stop =
    Stop::new("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP");
/// Keys whose names are fetched at once.
const STEP: usize = 256;
/// Keys of a slot that are looked at before others of the worker go on.
const LOOKED_MAX: usize = 20_000;

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "asking",
        flags: Flags::FAST,
        summary: "Signals that a cluster client is following an -ASK redirect.",
        ..ROW
    }
    .by(Plain(asking)),
    Command {
        name: "cluster",
        flags: Flags::NONE,
        categories: Categories::NONE,
        summary: "A container for Redis Cluster commands.",
        complexity: "O(1), depends on subcommand",
        ..ROW
    }
    .container(SUBCOMMANDS),
    Command {
        name: "readonly",
        summary: "Enables read-only queries for a connection to a Redis Cluster replica node.",
        ..ROW
    }
    .by(Plain(no_replica)),
    Command {
        name: "readwrite",
        summary: "Enables read-write queries for a connection to a Redis Cluster replica node.",
        ..ROW
    }
    .by(Plain(no_replica)),
];

const MANAGES: Flags = Flags::ADMIN.and(Flags::STALE);
const TELLS: Flags = Flags::LOADING.and(Flags::STALE);

const fn sub(
    name: &'static str,
    syntax: &'static str,
    since: &'static str,
    flags: Flags,
    summary: &'static str,
    complexity: &'static str,
    handler: Handler,
) -> Row {
    Command { name, syntax, since, flags, summary, complexity, categories: Categories::NONE, ..ROW }
        .by(handler)
}

#[rustfmt::skip]
static SUBCOMMANDS: &[Row] = &[
    sub("cluster|addslots", "slot:i...", "3.0.0", MANAGES, "Assigns new hash slots to a node.", "O(N) where N is the number of hash slots", Plain(add_slots)),
    sub("cluster|addslotsrange", "range(start-slot:i end-slot:i)...", "7.0.0", MANAGES, "Assigns new hash slot ranges to a node.", "O(N) where N is the number of hash slots in the ranges", Plain(add_slots_range)),
    sub("cluster|bumpepoch", "", "3.0.0", MANAGES, "Advances the cluster config epoch.", "O(1)", Plain(bump_epoch)),
    sub("cluster|cancelslotmigrations", "", "9.0.0", MANAGES, "Cancels all migrations of slots that the node has begun.", "O(N) where N is the number of migrations", Plain(cancel_slot_migrations)),
    sub("cluster|count-failure-reports", "node-id", "3.0.0", MANAGES, "Returns the number of active failure reports for a node.", "O(N) where N is the number of failure reports", Plain(count_failure_reports)),
    sub("cluster|countkeysinslot", "slot:i", "3.0.0", Flags::STALE, "Returns the number of keys in a hash slot.", "O(1)", Browsing(count_keys_in_slot)),
    sub("cluster|delslots", "slot:i...", "3.0.0", MANAGES, "Sets hash slots as unbound for a node.", "O(N) where N is the number of hash slots", Plain(del_slots)),
    sub("cluster|delslotsrange", "range(start-slot:i end-slot:i)...", "7.0.0", MANAGES, "Sets hash slot ranges as unbound for a node.", "O(N) where N is the number of hash slots in the ranges", Plain(del_slots_range)),
    sub("cluster|failover", "[options<FORCE|TAKEOVER>]", "3.0.0", MANAGES, "Forces a replica to perform a manual failover of its master.", "O(1)", Plain(failover)),
    sub("cluster|flushslots", "", "3.0.0", MANAGES, "Deletes all slots information from a node.", "O(1)", Browsing(flush_slots)),
    sub("cluster|forget", "node-id", "3.0.0", MANAGES, "Removes a node from the nodes table.", "O(1)", Plain(forget)),
    sub("cluster|getkeysinslot", "slot:i count:i", "3.0.0", Flags::STALE, "Returns the key names in a hash slot.", "O(N) where N is the number of requested keys", Browsing(get_keys_in_slot)),
    sub("cluster|getslotmigrations", "", "9.0.0", Flags::STALE, "Returns the migrations of slots from the node and to it.", "O(N) where N is the number of migrations", Plain(get_slot_migrations)),
    sub("cluster|help", "", "5.0.0", TELLS, "Returns helpful text about the different subcommands.", "O(1)", Plain(help)),
    sub("cluster|info", "", "3.0.0", TELLS, "Returns information about the state of a node.", "O(1)", Plain(info)),
    sub("cluster|keyslot", "key:s", "3.0.0", Flags::STALE, "Returns the hash slot for a key.", "O(N) where N is the number of bytes in the key", Plain(key_slot)),
    sub("cluster|links", "", "7.0.0", Flags::STALE, "Returns a list of all TCP links to and from peer nodes.", "O(N) where N is the number of nodes", Plain(links)),
    sub("cluster|meet", "ip port:i [cluster-bus-port:i@4.0.0]", "3.0.0", MANAGES, "Forces a node to handshake with another node.", "O(1)", Plain(meet)),
    sub("cluster|migrateslots", "SLOTSRANGE=slots-range(start-slot:i end-slot:i)... NODE=node-id", "9.0.0", MANAGES, "Migrates slots to another node, with all that is in them.", "O(N) where N is the number of slots; the keys are sent later", Plain(migrate_slots)),
    sub("cluster|myid", "", "3.0.0", TELLS, "Returns the ID of a node.", "O(1)", Plain(my_id)),
    sub("cluster|myshardid", "", "7.2.0", TELLS, "Returns the shard ID of a node.", "O(1)", Plain(my_shard_id)),
    sub("cluster|nodes", "", "3.0.0", TELLS, "Returns the cluster configuration for a node.", "O(N) where N is the number of nodes", Plain(nodes)),
    sub("cluster|replicas", "node-id", "5.0.0", MANAGES, "Lists the replica nodes of a master node.", "O(N) where N is the number of replicas", Plain(replicas)),
    sub("cluster|replicate", "node-id", "3.0.0", MANAGES, "Configures a node as replica of a master node.", "O(1)", Plain(replicate)),
    sub("cluster|reset", "[reset-type<HARD|SOFT>]", "3.0.0", MANAGES.and(Flags::NOSCRIPT), "Resets a node.", "O(N) where N is the number of known nodes", Browsing(reset)),
    sub("cluster|saveconfig", "", "3.0.0", MANAGES, "Forces a node to save the cluster configuration to disk.", "O(1)", Plain(save_config)),
    sub("cluster|set-config-epoch", "config-epoch:i", "3.0.0", MANAGES, "Sets the configuration epoch for a new node.", "O(1)", Plain(set_config_epoch)),
    sub("cluster|setslot", "slot:i subcommand<IMPORTING=importing~node-id|MIGRATING=migrating~node-id|NODE=node~node-id|STABLE> [TIMEOUT=timeout:i]", "3.0.0", MANAGES, "Binds a hash slot to a node.", "O(1)", Browsing(set_slot)),
    sub("cluster|shards", "", "7.0.0", TELLS, "Returns the mapping of cluster slots to shards.", "O(N) where N is the number of nodes", Plain(shards)),
    sub("cluster|slaves", "node-id", "3.0.0", MANAGES, "Lists the replica nodes of a master node.", "O(N) where N is the number of replicas", Plain(replicas)),
    sub("cluster|slots", "", "3.0.0", TELLS, "Returns the mapping of cluster slots to nodes.", "O(N) where N is the number of nodes", Plain(slots)),
];

/// What is known of the cluster; an error where there is none.
pub fn view(call: &Call) -> Result<std::sync::Arc<View>, Stop> {
    let cluster = &call.server().cluster;
    if cluster.is_on() { Ok(cluster.view()) } else { Err(NO_CLUSTER) }
}

fn asking(call: &mut Call) -> Answer {
    view(call)?;
    // Its own end counts.
    call.session.asking = 2;
    call.reply_ok()
}

/// No node is a replica, so there is no other way to read.
fn no_replica(call: &mut Call) -> Answer {
    view(call)?;
    call.reply_ok()
}

/// Has the cluster decide on a change, which is made of this node's number, and replies when it has.
fn change(call: &mut Call, change: impl FnOnce(u64) -> Change + Send + 'static) -> Answer {
    ordered(call, |answer| Order::Change(Box::new(change), answer))
}

/// Has something done by the thread that takes part in the cluster, and replies when it says so.
pub fn ordered(
    call: &mut Call,
    order: impl FnOnce(std::sync::mpsc::SyncSender<Result<(), String>>) -> Order,
) -> Answer {
    if let Some(Progress::Ordered(outcome)) = call.session.progress.take() {
        return match outcome {
            Ok(()) => call.reply_ok(),
            Err(why) => Err(why.into()),
        };
    }
    view(call)?;
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
fn has_ordered(call: &Call) -> bool {
    matches!(call.session.progress, Some(Progress::Ordered(_)))
}

fn slot(call: &Call, index: usize) -> Result<u16, Stop> {
    let slot = parse_int(call.args.at(index)).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| usize::from(*slot) < SLOTS).ok_or(BAD_SLOT)
}

fn name(call: &Call, index: usize, unknown: &str) -> Result<Name, Stop> {
    let digits = call.args.at(index);
    Name::parse(digits).ok_or_else(|| [unknown.as_bytes(), b" ", digits].concat().into())
}

/// The slots that some of the arguments name, each once.
pub fn named_slots(call: &Call, indices: Range<usize>, ranges: bool) -> Result<Slots, Stop> {
    let mut named = BTreeSet::new();
    let width = if ranges { 2 } else { 1 };
    if ranges && indices.len() % 2 == 1 {
        return Err(wrong_subcommand(call.args));
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

fn add(call: &mut Call, ranges: bool) -> Answer {
    view(call)?;
    let slots = named_slots(call, 2..call.args.len(), ranges)?;
    change(call, |id| Change::AddSlots { id, slots })
}

fn remove(call: &mut Call, ranges: bool) -> Answer {
    view(call)?;
    let slots = named_slots(call, 2..call.args.len(), ranges)?;
    change(call, |_| Change::RemoveSlots { slots })
}

fn add_slots(call: &mut Call) -> Answer {
    add(call, false)
}

fn add_slots_range(call: &mut Call) -> Answer {
    add(call, true)
}

fn del_slots(call: &mut Call) -> Answer {
    remove(call, false)
}

fn del_slots_range(call: &mut Call) -> Answer {
    remove(call, true)
}

fn flush_slots(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    if !has_ordered(call) && keyspace.len(0)? > 0 {
        return Err(Stop::new("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."));
    }
    change(call, |id| Change::FlushSlots { id })
}

fn bump_epoch(call: &mut Call) -> Answer {
    let view = view(call)?;
    if has_ordered(call) {
        let Some(Progress::Ordered(outcome)) = call.session.progress.take() else {
            unreachable!("it was looked at")
        };
        outcome.map_err(Stop::from)?;
        let epoch = view.map.members().get(&view.id).map_or(0, |me| me.epoch);
        call.out.simple(format!("BUMPED {epoch}"));
        return Ok(Done);
    }
    change(call, |id| Change::BumpEpoch { id })
}

fn set_config_epoch(call: &mut Call) -> Answer {
    view(call)?;
    let epoch = call.int(2)?;
    let epoch = u64::try_from(epoch)
        .map_err(|_| Stop::from(format!("ERR Invalid config epoch specified: {epoch}")))?;
    change(call, move |id| Change::SetEpoch { id, epoch })
}

fn forget(call: &mut Call) -> Answer {
    let view = view(call)?;
    let name = name(call, 2, "ERR Unknown node")?;
    if name == view.name {
        return Err(Stop::new("ERR I tried hard but I can't forget myself..."));
    }
    change(call, move |_| Change::Forget { name })
}

fn meet(call: &mut Call) -> Answer {
    view(call)?;
    let port = |index: usize| {
        let text = call.args.at(index);
        let port = parse_int(text).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        port.ok_or_else(|| Stop::from([b"ERR Invalid base port specified: ", text].concat()))
    };
    let bus_port = match call.args.len() {
        4 => port(3)?.checked_add(10000),
        5 => Some(port(4)?),
        _ => return Err(wrong_subcommand(call.args)),
    };
    let host = std::str::from_utf8(call.args.at(2)).ok().filter(|host| !host.is_empty());
    let (Some(host), Some(bus_port)) = (host, bus_port) else {
        let (host, port) = (call.args.at(2), call.args.at(3));
        return Err([b"ERR Invalid node address specified: ", host, b":", port].concat().into());
    };
    call.server().cluster.order(Order::Meet(host.to_owned(), bus_port));
    call.reply_ok()
}

fn reset(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let is_hard = match call.args.len() {
        2 => false,
        3 if call.is(2, "hard") => true,
        3 if call.is(2, "soft") => false,
        _ => return Err(SYNTAX),
    };
    if !has_ordered(call) && keyspace.len(0)? > 0 {
        return Err(Stop::new("ERR CLUSTER RESET can't be called with master nodes containing keys"));
    }
    ordered(call, |answer| Order::Reset(is_hard, answer))
}

fn set_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let view = view(call)?;
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
            if view.map.owner(slot) == Some(view.id) && to != view.name {
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

/// What a look at the keys of a slot comes to.
enum Looked {
    /// These.
    Found(Vec<Vec<u8>>),
    /// Run again after that.
    Later(Outcome),
}

/// Keys of a slot, up to so many.
fn keys_in(call: &mut Call, keyspace: &mut Keyspace, slot: u16, count: usize) -> Result<Looked, Stop> {
    let store = &call.server().store;
    let (first, end) = store.cursors_of(slot);
    let (mut cursor, mut found) = match call.session.progress.take() {
        Some(Progress::Keys { cursor, found }) => (cursor, found),
        _ => (first, Vec::new()),
    };
    let mut looked = 0;
    while found.len() < count {
        let Ok(step) = keyspace.scan(0, cursor, STEP) else {
            call.session.progress = Some(Progress::Keys { cursor, found });
            return Ok(Looked::Later(Outcome::LockBusy));
        };
        let next = step.next;
        let names = match keyspace.names(step)? {
            Names::Known(names) => names,
            Names::Cold(cold) => {
                call.session.progress = Some(Progress::Keys { cursor, found });
                return Ok(Looked::Later(Fetch(cold)));
            }
        };
        looked += names.len();
        found.extend(names.into_iter().map(|(key, _)| key).filter(|key| hash_slot(key) == slot));
        if next == 0 || next >= end {
            break;
        }
        cursor = next;
        if looked >= LOOKED_MAX && !keyspace.is_locked() {
            call.session.progress = Some(Progress::Keys { cursor, found });
            return Ok(Looked::Later(Outcome::postpone(Duration::ZERO)));
        }
    }
    found.truncate(count);
    Ok(Looked::Found(found))
}

fn count_keys_in_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let slot = slot(call, 2).map_err(|_| Stop::new("ERR Invalid slot"))?;
    match keys_in(call, keyspace, slot, usize::MAX)? {
        Looked::Found(keys) => call.reply_int(keys.len() as i64),
        Looked::Later(outcome) => Ok(outcome),
    }
}

fn get_keys_in_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let bad = Stop::new("ERR Invalid slot or number of keys");
    let (slot, count) =
        (slot(call, 2), parse_int(call.args.at(3)).and_then(|count| usize::try_from(count).ok()));
    let (Ok(slot), Some(count)) = (slot, count) else { return Err(bad) };
    match keys_in(call, keyspace, slot, count)? {
        Looked::Found(keys) => {
            call.out.array(keys.len());
            keys.iter().for_each(|key| call.out.bulk(key));
            Ok(Done)
        }
        Looked::Later(outcome) => Ok(outcome),
    }
}

fn key_slot(call: &mut Call) -> Answer {
    view(call)?;
    let slot = hash_slot(call.args.at(2));
    call.reply_int(slot.into())
}

fn my_id(call: &mut Call) -> Answer {
    let view = view(call)?;
    call.out.bulk(view.name.to_string());
    Ok(Done)
}

/// A shard is a node: there are no replicas.
fn my_shard_id(call: &mut Call) -> Answer {
    my_id(call)
}

fn port(member: &Member) -> u16 {
    if member.address.port > 0 { member.address.port } else { member.address.tls_port }
}

/// A node as a line of CLUSTER NODES.
fn line(view: &View, id: u64, member: &Member) -> String {
    let (mut flags, address) = (Vec::new(), &member.address);
    if id == view.id {
        flags.push("myself");
    }
    flags.push("master");
    if member.has_failed {
        flags.push("fail");
    }
    let link = if id == view.id || !member.has_failed { "connected" } else { "disconnected" };
    let mut line = format!(
        "{} {}:{}@{} {} - 0 0 {} {link}",
        member.name,
        address.host,
        port(member),
        address.bus_port,
        flags.join(","),
        member.epoch
    );
    for range in view.map.slots_of(id).0 {
        let _ = match (range.start(), range.end()) {
            (first, last) if first == last => write!(line, " {first}"),
            (first, last) => write!(line, " {first}-{last}"),
        };
    }
    if id == view.id {
        for (slot, way) in view.map.moves() {
            let name = |id: u64| view.map.members().get(&id).map(|member| member.name).unwrap_or_default();
            if let Some(to) = way.to.filter(|_| view.map.owner(*slot) == Some(id)) {
                let _ = write!(line, " [{slot}->-{}]", name(to));
            }
            if let Some((_, from)) = way.from.filter(|(by, _)| *by == id) {
                let _ = write!(line, " [{slot}-<-{}]", name(from));
            }
        }
    }
    line.push('\n');
    line
}

fn nodes(call: &mut Call) -> Answer {
    let view = view(call)?;
    let lines: String = view.map.members().iter().map(|(&id, member)| line(&view, id, member)).collect();
    call.out.verbatim("txt", lines.as_bytes());
    Ok(Done)
}

fn info(call: &mut Call) -> Answer {
    let view = view(call)?;
    let (map, mut ok, mut failed) = (&view.map, 0, 0);
    let mut owners = BTreeSet::new();
    for slot in 0..SLOTS as u16 {
        let Some(owner) = map.owner(slot) else { continue };
        owners.insert(owner);
        match map.members().get(&owner).is_some_and(|member| member.has_failed) {
            true => failed += 1,
            false => ok += 1,
        }
    }
    let mut text = String::new();
    let mut tell = |name: &str, value: &dyn std::fmt::Display| {
        write!(text, "{name}:{value}\r\n").expect("a string takes all")
    };
    tell("cluster_state", &if view.is_ok { "ok" } else { "fail" });
    tell("cluster_slots_assigned", &map.assigned());
    tell("cluster_slots_ok", &ok);
    tell("cluster_slots_pfail", &0);
    tell("cluster_slots_fail", &failed);
    tell("cluster_known_nodes", &map.members().len());
    tell("cluster_size", &owners.len());
    tell("cluster_current_epoch", &map.epoch());
    tell("cluster_my_epoch", &map.members().get(&view.id).map_or(0, |me| me.epoch));
    tell("cluster_stats_messages_sent", &view.frames.0);
    tell("cluster_stats_messages_received", &view.frames.1);
    tell("total_cluster_links_buffer_limit_exceeded", &0);
    tell("cluster_map_version", &map.version());
    tell("cluster_majority", &if view.is_connected { "reachable" } else { "unreachable" });
    let leader = map.members().get(&view.leader).map(|leader| leader.name.to_string()).unwrap_or_default();
    tell("cluster_leader", &leader);
    tell("cluster_term", &view.term);
    call.out.verbatim("txt", text.as_bytes());
    Ok(Done)
}

fn slots(call: &mut Call) -> Answer {
    let view = view(call)?;
    let mut ranges: Vec<_> = Vec::new();
    for (&id, member) in view.map.members() {
        ranges.extend(view.map.slots_of(id).0.into_iter().map(|range| (range, member)));
    }
    ranges.sort_by_key(|(range, _)| *range.start());
    call.out.array(ranges.len());
    for (range, member) in ranges {
        call.out.array(3);
        call.out.int((*range.start()).into());
        call.out.int((*range.end()).into());
        call.out.array(4);
        call.out.bulk(&member.address.host);
        call.out.int(port(member).into());
        call.out.bulk(member.name.to_string());
        call.out.array(0);
    }
    Ok(Done)
}

fn shards(call: &mut Call) -> Answer {
    let view = view(call)?;
    call.out.array(view.map.members().len());
    for (&id, member) in view.map.members() {
        let (slots, address) = (view.map.slots_of(id).0, &member.address);
        call.out.map(2);
        call.out.bulk("slots");
        call.out.array(2 * slots.len());
        for range in slots {
            call.out.int((*range.start()).into());
            call.out.int((*range.end()).into());
        }
        call.out.bulk("nodes");
        call.out.array(1);
        call.out.map(6 + usize::from(address.port > 0) + usize::from(address.tls_port > 0));
        call.out.bulk("id");
        call.out.bulk(member.name.to_string());
        for (name, port) in [("port", address.port), ("tls-port", address.tls_port)] {
            if port > 0 {
                call.out.bulk(name);
                call.out.int(port.into());
            }
        }
        for name in ["ip", "endpoint"] {
            call.out.bulk(name);
            call.out.bulk(&address.host);
        }
        call.out.bulk("role");
        call.out.bulk("master");
        call.out.bulk("replication-offset");
        call.out.int(if id == view.id { call.server().store.log().tail() as i64 } else { 0 });
        call.out.bulk("health");
        call.out.bulk(if member.has_failed { "fail" } else { "online" });
    }
    Ok(Done)
}

/// The ways to the other nodes, and from them.
fn links(call: &mut Call) -> Answer {
    let view = view(call)?;
    let others: Vec<_> = view.map.members().iter().filter(|(id, _)| **id != view.id).collect();
    call.out.array(2 * others.len());
    for (_, member) in others {
        for direction in ["to", "from"] {
            call.out.map(6);
            call.out.bulk("direction");
            call.out.bulk(direction);
            call.out.bulk("node");
            call.out.bulk(member.name.to_string());
            for (name, value) in [("create-time", 0), ("send-buffer-allocated", 0), ("send-buffer-used", 0)] {
                call.out.bulk(name);
                call.out.int(value);
            }
            call.out.bulk("events");
            call.out.bulk(if direction == "to" { "w" } else { "r" });
        }
    }
    Ok(Done)
}

/// The node that an argument names.
fn known(call: &Call, view: &View, index: usize) -> Result<Name, Stop> {
    let named = name(call, index, "ERR Unknown node")?;
    let unknown = || Stop::from(format!("ERR Unknown node {named}"));
    view.map.id_of(named).map(|_| named).ok_or_else(unknown)
}

/// Nobody reports failures to anybody: they are decided on.
fn count_failure_reports(call: &mut Call) -> Answer {
    let view = view(call)?;
    known(call, &view, 2)?;
    call.reply_int(0)
}

fn replicas(call: &mut Call) -> Answer {
    let view = view(call)?;
    known(call, &view, 2)?;
    call.out.array(0);
    Ok(Done)
}

fn replicate(call: &mut Call) -> Answer {
    let view = view(call)?;
    if known(call, &view, 2)? == view.name {
        return Err(Stop::new("ERR Can't replicate myself"));
    }
    Err(Stop::new("ERR nodes of this cluster have no replicas"))
}

fn failover(call: &mut Call) -> Answer {
    view(call)?;
    Err(Stop::new("ERR You should send CLUSTER FAILOVER to a replica"))
}

/// It is saved whenever it changes.
fn save_config(call: &mut Call) -> Answer {
    view(call)?;
    call.reply_ok()
}

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "ADDSLOTS <slot> [<slot> ...]",
        "    Assign slots to current node.",
        "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
        "    Assign slots which are between <start-slot> and <end-slot> to current node.",
        "BUMPEPOCH",
        "    Advance the cluster config epoch.",
        "CANCELSLOTMIGRATIONS",
        "    Cancel all migrations of slots that this node has begun.",
        "COUNTKEYSINSLOT <slot>",
        "    Return the number of keys in <slot>.",
        "DELSLOTS <slot> [<slot> ...]",
        "    Delete slots information from current node.",
        "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
        "    Delete slots information which are between <start-slot> and <end-slot> from current node.",
        "FLUSHSLOTS",
        "    Delete current node own slots information.",
        "FORGET <node-id>",
        "    Remove a node from the cluster.",
        "GETKEYSINSLOT <slot> <count>",
        "    Return key names stored by current node in a slot.",
        "GETSLOTMIGRATIONS",
        "    Return the migrations of slots from this node and to it.",
        "INFO",
        "    Return information about the cluster.",
        "KEYSLOT <key>",
        "    Return the hash slot for <key>.",
        "LINKS",
        "    Return information about all network links between this node and its peers.",
        "MEET <ip> <port> [<bus-port>]",
        "    Connect nodes into a working cluster.",
        "MIGRATESLOTS SLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...] NODE <node-id>",
        "    Migrate slots to another node as a whole.",
        "MYID",
        "    Return the node id.",
        "MYSHARDID",
        "    Return the node's shard id.",
        "NODES",
        "    Return cluster configuration seen by node.",
        "RESET [HARD|SOFT]",
        "    Reset current node (default: soft).",
        "SET-CONFIG-EPOCH <epoch>",
        "    Set config epoch of current node.",
        "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
        "    Set slot state.",
        "SHARDS",
        "    Return information about slot range mappings and the nodes associated with them.",
        "SLOTS",
        "    Return information about slots range mappings.",
    ])
}
