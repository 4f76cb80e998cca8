//! CLUSTER, ASKING, READONLY, READWRITE: a node of a cluster is told what to do, and tells what it knows.

mod changes;
mod keys;
mod migrations;
mod order;

use crate::{commands::prelude::*, server::cluster::View};
use changes::*;
pub use changes::{check_replicates, parse_meeting, take_over};
use keys::*;
use migrations::*;
pub use order::NO_SLOTS;
use order::{known, view};

const ROW: Command = Command {
    group: "cluster",
    since: "3.0.0",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    ..Command::NEW
};

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
    .by(Plain(read_only)),
    Command {
        name: "readwrite",
        summary: "Enables read-write queries for a connection to a Redis Cluster replica node.",
        ..ROW
    }
    .by(Plain(read_write)),
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

fn asking(call: &mut Call) -> Answer {
    view(call)?;
    // Its own end counts.
    call.session.asking = 2;
    call.reply_ok()
}

/// Reads at one that follows what its replica set has, from now on.
fn read_only(call: &mut Call) -> Answer {
    view(call)?;
    call.session.reads_replicas = true;
    call.reply_ok()
}

fn read_write(call: &mut Call) -> Answer {
    view(call)?;
    call.session.reads_replicas = false;
    call.reply_ok()
}

/// Replies with what the node knows.
fn told(call: &mut Call, tell: impl FnOnce(&View, &mut Writer)) -> Answer {
    let view = view(call)?;
    tell(&view, &mut call.out);
    Ok(Done)
}

fn my_id(call: &mut Call) -> Answer {
    told(call, |view, out| out.bulk(view.name.to_string()))
}

fn my_shard_id(call: &mut Call) -> Answer {
    told(call, |view, out| out.bulk(view.own_shard()))
}

fn nodes(call: &mut Call) -> Answer {
    told(call, View::tell_nodes)
}

fn info(call: &mut Call) -> Answer {
    told(call, View::tell_info)
}

fn slots(call: &mut Call) -> Answer {
    told(call, View::tell_slots)
}

fn shards(call: &mut Call) -> Answer {
    let offset = call.server().store.log().tail();
    told(call, |view, out| view.tell_shards(offset, out))
}

fn links(call: &mut Call) -> Answer {
    told(call, View::tell_links)
}

/// Nobody reports failures to anybody: they are decided on.
fn count_failure_reports(call: &mut Call) -> Answer {
    let view = view(call)?;
    known(call, &view, 2)?;
    call.reply_int(0)
}

fn replicas(call: &mut Call) -> Answer {
    let view = view(call)?;
    let of = known(call, &view, 2)?;
    view.tell_replicas(of, &mut call.out)?;
    Ok(Done)
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
