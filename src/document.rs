//! `holdfast commands`: the page docs/commands.md, made from the command table.

use crate::{command::Command, commands::ROWS, util::version::REDIS_VERSION};
use std::fmt::Write;

/// What differs from Redis, by command or container. All else is as there.
const DIFFERENCES: &[(&str, &str)] = &[
    ("ai.config", "Of RedisAI, without BACKENDSPATH; the size is the option `ai-model-chunk-size`."),
    ("ai.info", "Of RedisAI."),
    ("ai.modeldel", "Of RedisAI."),
    ("ai.modelexecute", "Of RedisAI; an error, since models are stored only."),
    ("ai.modelget", "Of RedisAI."),
    ("ai.modelrun", "Of RedisAI; an error, since models are stored only."),
    ("ai.modelstore", "Of RedisAI; whether it is a model is not looked at."),
    ("ai.scriptdel", "Of RedisAI."),
    ("ai.scriptexecute", "Of RedisAI; an error, since scripts are stored only."),
    ("ai.scriptget", "Of RedisAI."),
    ("ai.scriptrun", "Of RedisAI; an error, since scripts are stored only."),
    ("ai.scriptset", "Of RedisAI; whether it is a script is not looked at."),
    ("ai.scriptstore", "Of RedisAI; whether it is a script is not looked at."),
    ("ai.tensorget", "Of RedisAI."),
    ("ai.tensorset", "Of RedisAI."),
    ("backup", "Redis has no such command; `holdfast backup` uses it."),
    ("bgrewriteaof", "Takes a checkpoint."),
    ("bgsave", "Takes a checkpoint."),
    (
        "cluster",
        "All nodes decide on changes; replicas are the other servers of a replica set. See docs/cluster.md.",
    ),
    ("debug", "What tests need; see DEBUG HELP."),
    ("endurance", "Redis has no such command."),
    ("failover", "Has another server of the replica set lead; an error on a server that is in none."),
    ("graph.addedge", "Redis has no such command."),
    ("graph.addhalf", "Redis has no such command."),
    ("graph.degree", "Redis has no such command."),
    ("graph.isconnected", "Redis has no such command."),
    ("graph.neighbors", "Redis has no such command."),
    ("graph.predecessors", "Redis has no such command."),
    ("graph.removeedge", "Redis has no such command."),
    ("graph.removehalf", "Redis has no such command."),
    ("graph.removevertex", "Redis has no such command."),
    ("graph.scan", "Redis has no such command."),
    ("latency", "The events are `command` and `fast-command`."),
    ("lolwut", "Another picture."),
    ("memory|malloc-stats", "The allocator tells nothing."),
    ("memory|usage", "Bytes of key, value and index entry; all elements are counted, whatever SAMPLES says."),
    ("module", "There are no modules."),
    ("ngram.get", "Redis has no such command."),
    ("ngram.incr", "Redis has no such command."),
    ("ngram.incrby", "Redis has no such command."),
    (
        "psync",
        "Sends a snapshot to a client that wants nothing more (`REPLCONF rdb-only 1`), whatever offset it names; no other one is a replica of Redis's kind.",
    ),
    (
        "replconf",
        "Takes `rdb-only`, `rdb-filter-only` and `capa`, which say what SYNC sends; `listening-port`, `ip-address` and `version` mean nothing.",
    ),
    ("replicaof", "Of a Redis or Valkey, over restarts too. Not within MULTI."),
    ("replicaset", "Redis has no such command. See docs/replica-sets.md."),
    ("save", "Takes a checkpoint. What was acknowledged is durable without it."),
    (
        "shutdown",
        "All options do the same: what was acknowledged is durable, and there is nothing else to save.",
    ),
    ("slaveof", "As REPLICAOF."),
    (
        "sync",
        "Sends a snapshot to a client that wants nothing more (`REPLCONF rdb-only 1 capa eof`), as `redis-cli --rdb` does; no other one is a replica of Redis's kind.",
    ),
    ("vec.create", "Redis has no such command."),
    ("vec.get", "Redis has no such command."),
    ("vec.info", "Redis has no such command."),
    ("vec.range", "Redis has no such command."),
    ("vec.set", "Redis has no such command."),
    ("vec.setrange", "Redis has no such command."),
    (
        "wait",
        "Counts the other servers of the replica set that have it durably; on a server that is in none it waits in vain.",
    ),
    ("waitaof", "Makes the log durable, under every `appendfsync`; counts other servers as WAIT does."),
];

/// The page.
pub fn commands() -> String {
    let mut text = format!(
        "# Commands\n\n\
         What there is of Redis {REDIS_VERSION}, and what differs. This page is made from the command table by\n\
         `holdfast commands`, and a test compares the two.\n"
    );
    let mut groups: Vec<&str> = ROWS.table.top_level().map(|id| ROWS.table.command(id).group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        write!(text, "\n## {group}\n\n| command | since | complexity | what it does |\n|---|---|---|---|\n")
            .expect(STRING);
        for id in ROWS.table.top_level().filter(|id| ROWS.table.command(*id).group == group) {
            write_row(&mut text, ROWS.table.command(id));
            ROWS.table.subcommands(id).for_each(|sub| write_row(&mut text, ROWS.table.command(sub)));
        }
    }
    text
}

const STRING: &str = "writing to a string cannot fail";

fn write_row(text: &mut String, command: &Command) {
    let name = command.name.replace('|', " ").to_uppercase();
    let summary = command.summary.trim_end_matches('.').replace('|', "\\|");
    let difference = DIFFERENCES.iter().find(|(of, _)| *of == command.name);
    let difference = difference.map(|(_, what)| format!(" *{what}*")).unwrap_or_default();
    let complexity = command.complexity.replace('|', "\\|");
    writeln!(text, "| {name} | {} | {complexity} | {summary}.{difference} |", command.since).expect(STRING);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_those_of_commands() {
        for (name, _) in DIFFERENCES {
            assert!(ROWS.table.find_full(name.as_bytes()).is_some(), "{name}");
        }
        assert!(DIFFERENCES.is_sorted());
    }

    #[test]
    fn the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == commands(), "make docs/commands.md anew: cargo run -- commands > docs/commands.md");
    }
}
