//! What clients may know of a command that send it to several nodes, or compare replies: COMMAND's tips
//! (<https://redis.io/docs/latest/develop/reference/command-tips/>). Most clients have such a list of their own.

const UNSURE: &str = "nondeterministic_output";
const UNSURE_ORDER: &str = "nondeterministic_output_order";
const ALL_NODES: &str = "request_policy:all_nodes";
const ALL_SHARDS: &str = "request_policy:all_shards";
const MULTI_SHARD: &str = "request_policy:multi_shard";
const SPECIAL: &str = "response_policy:special";
const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
const ONE_SUCCEEDED: &str = "response_policy:one_succeeded";
const SUM: &str = "response_policy:agg_sum";
const LEAST: &str = "response_policy:agg_min";

/// The tips of a command, by its name in lower case.
pub fn of(name: &str) -> &'static [&'static str] {
    match name {
        "flushall" | "flushdb" | "function|delete" | "function|flush" | "function|load"
        | "function|restore" | "memory|purge" | "ping" => &[ALL_SHARDS, ALL_SUCCEEDED],
        "config|set" | "latency|reset" | "script|flush" | "script|load" | "slowlog|reset" => {
            &[ALL_NODES, ALL_SUCCEEDED]
        }
        "latency|doctor" | "latency|graph" | "latency|histogram" | "latency|history" | "latency|latest" => {
            &[UNSURE, ALL_NODES, SPECIAL]
        }
        "function|stats" | "info" | "memory|doctor" | "memory|malloc-stats" | "memory|stats" => {
            &[UNSURE, ALL_SHARDS, SPECIAL]
        }
        "del" | "exists" | "touch" | "unlink" => &[MULTI_SHARD, SUM],
        "function|kill" | "script|kill" => &[ALL_SHARDS, ONE_SUCCEEDED],
        "mset" => &[MULTI_SHARD, ALL_SUCCEEDED],
        "msetnx" => &[MULTI_SHARD, LEAST],
        "mget" => &[MULTI_SHARD],
        "wait" | "waitaof" => &[ALL_SHARDS, LEAST],
        "dbsize" => &[ALL_SHARDS, SUM],
        "keys" => &[ALL_SHARDS, UNSURE_ORDER],
        "randomkey" => &[ALL_SHARDS, UNSURE],
        "scan" => &[UNSURE, "request_policy:special"],
        "script|exists" => &[ALL_SHARDS, "response_policy:agg_logical_and"],
        "slowlog|get" => &[ALL_NODES, UNSURE],
        "slowlog|len" => &[ALL_NODES, SUM, UNSURE],
        "client|info"
        | "client|list"
        | "cluster|bumpepoch"
        | "cluster|count-failure-reports"
        | "cluster|getkeysinslot"
        | "cluster|info"
        | "cluster|links"
        | "cluster|nodes"
        | "cluster|replicas"
        | "cluster|shards"
        | "cluster|slaves"
        | "cluster|slots"
        | "dump"
        | "hrandfield"
        | "hscan"
        | "lastsave"
        | "migrate"
        | "object|encoding"
        | "object|freq"
        | "object|idletime"
        | "object|refcount"
        | "pttl"
        | "spop"
        | "srandmember"
        | "sscan"
        | "time"
        | "ttl"
        | "xadd"
        | "xautoclaim"
        | "xclaim"
        | "xinfo|consumers"
        | "xpending"
        | "xtrim"
        | "zrandmember"
        | "zscan" => &[UNSURE],
        "command" | "command|docs" | "command|info" | "command|list" | "function|list" | "hgetall"
        | "hkeys" | "hvals" | "module|list" | "sdiff" | "sinter" | "smembers" | "sunion" => &[UNSURE_ORDER],
        _ => &[],
    }
}
