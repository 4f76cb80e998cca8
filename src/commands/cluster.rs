//! What a server that is in no cluster answers to those who ask for one: an error. The rows are there for COMMAND and access
//! control.

use crate::commands::prelude::*;

/// There is no cluster.
const NOWHERE: Handler = Handler::Plain(|_| Err(NO_CLUSTER));

const ROW: Command = Command {
    group: "cluster",
    since: "3.0.0",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::CONNECTION,
    ..Command::NEW
};

const NO_CLUSTER: Stop = Stop::new("ERR This instance has cluster support disabled");

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "asking",
        flags: Flags::FAST,
        summary: "Signals that a cluster client is following an -ASK redirect.",
        ..ROW
    }
    .by(NOWHERE),
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
    .by(NOWHERE),
    Command {
        name: "readwrite",
        summary: "Enables read-write queries for a connection to a Redis Cluster replica node.",
        ..ROW
    }
    .by(NOWHERE),
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
) -> Row {
    Command { name, syntax, since, flags, summary, complexity, categories: Categories::NONE, ..ROW }
        .by(NOWHERE)
}

#[rustfmt::skip]
static SUBCOMMANDS: &[Row] = &[
    sub("cluster|addslots", "slot:i...", "3.0.0", MANAGES, "Assigns new hash slots to a node.", "O(N) where N is the number of hash slots"),
    sub("cluster|addslotsrange", "range(start-slot:i end-slot:i)...", "7.0.0", MANAGES, "Assigns new hash slot ranges to a node.", "O(N) where N is the number of hash slots in the ranges"),
    sub("cluster|bumpepoch", "", "3.0.0", MANAGES, "Advances the cluster config epoch.", "O(1)"),
    sub("cluster|count-failure-reports", "node-id", "3.0.0", MANAGES, "Returns the number of active failure reports for a node.", "O(N) where N is the number of failure reports"),
    sub("cluster|countkeysinslot", "slot:i", "3.0.0", Flags::STALE, "Returns the number of keys in a hash slot.", "O(1)"),
    sub("cluster|delslots", "slot:i...", "3.0.0", MANAGES, "Sets hash slots as unbound for a node.", "O(N) where N is the number of hash slots"),
    sub("cluster|delslotsrange", "range(start-slot:i end-slot:i)...", "7.0.0", MANAGES, "Sets hash slot ranges as unbound for a node.", "O(N) where N is the number of hash slots in the ranges"),
    sub("cluster|failover", "[options<FORCE|TAKEOVER>]", "3.0.0", MANAGES, "Forces a replica to perform a manual failover of its master.", "O(1)"),
    sub("cluster|flushslots", "", "3.0.0", MANAGES, "Deletes all slots information from a node.", "O(1)"),
    sub("cluster|forget", "node-id", "3.0.0", MANAGES, "Removes a node from the nodes table.", "O(1)"),
    sub("cluster|getkeysinslot", "slot:i count:i", "3.0.0", Flags::STALE, "Returns the key names in a hash slot.", "O(N) where N is the number of requested keys"),
    sub("cluster|help", "", "5.0.0", TELLS, "Returns helpful text about the different subcommands.", "O(1)"),
    sub("cluster|info", "", "3.0.0", TELLS, "Returns information about the state of a node.", "O(1)"),
    sub("cluster|keyslot", "key:s", "3.0.0", Flags::STALE, "Returns the hash slot for a key.", "O(N) where N is the number of bytes in the key"),
    sub("cluster|links", "", "7.0.0", Flags::STALE, "Returns a list of all TCP links to and from peer nodes.", "O(N) where N is the number of nodes"),
    sub("cluster|meet", "ip port:i [cluster-bus-port:i@4.0.0]", "3.0.0", MANAGES, "Forces a node to handshake with another node.", "O(1)"),
    sub("cluster|myid", "", "3.0.0", TELLS, "Returns the ID of a node.", "O(1)"),
    sub("cluster|myshardid", "", "7.2.0", TELLS, "Returns the shard ID of a node.", "O(1)"),
    sub("cluster|nodes", "", "3.0.0", TELLS, "Returns the cluster configuration for a node.", "O(N) where N is the number of nodes"),
    sub("cluster|replicas", "node-id", "5.0.0", MANAGES, "Lists the replica nodes of a master node.", "O(N) where N is the number of replicas"),
    sub("cluster|replicate", "node-id", "3.0.0", MANAGES, "Configures a node as replica of a master node.", "O(1)"),
    sub("cluster|reset", "[reset-type<HARD|SOFT>]", "3.0.0", MANAGES.and(Flags::NOSCRIPT), "Resets a node.", "O(N) where N is the number of known nodes"),
    sub("cluster|saveconfig", "", "3.0.0", MANAGES, "Forces a node to save the cluster configuration to disk.", "O(1)"),
    sub("cluster|set-config-epoch", "config-epoch:i", "3.0.0", MANAGES, "Sets the configuration epoch for a new node.", "O(1)"),
    sub("cluster|setslot", "slot:i subcommand<IMPORTING=importing~node-id|MIGRATING=migrating~node-id|NODE=node~node-id|STABLE> [TIMEOUT=timeout:i]", "3.0.0", MANAGES, "Binds a hash slot to a node.", "O(1)"),
    sub("cluster|shards", "", "7.0.0", TELLS, "Returns the mapping of cluster slots to shards.", "O(N) where N is the number of nodes"),
    sub("cluster|slaves", "node-id", "3.0.0", MANAGES, "Lists the replica nodes of a master node.", "O(N) where N is the number of replicas"),
    sub("cluster|slots", "", "3.0.0", TELLS, "Returns the mapping of cluster slots to nodes.", "O(N) where N is the number of nodes"),
];
