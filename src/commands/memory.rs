//! MEMORY: where memory goes.

use crate::{
    commands::prelude::*, config::Opt, exec::keyspace::Keyspace, figures::memory::MemoryParts,
    util::allocator,
};
use holdfast_store::{Type, string::StringValue};

const SUB: Command = Command { group: "server", since: "4.0.0", ..Command::NEW };

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "memory",
    group: "server",
    since: "4.0.0",
    summary: "A container for memory diagnostics commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command { name: "memory|doctor", summary: "Outputs a memory problems report.", ..SUB }
                .by(Browsing(doctor)),
            Command {
                name: "memory|help",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the different subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command { name: "memory|malloc-stats", summary: "Returns the allocator statistics.", ..SUB }
                .by(Plain(malloc_stats)),
            Command { name: "memory|purge", summary: "Asks the allocator to release memory.", ..SUB }
                .by(Plain(purge)),
            Command { name: "memory|stats", summary: "Returns details about memory usage.", ..SUB }
                .by(Browsing(stats)),
            Command {
                name: "memory|usage",
                syntax: "key [SAMPLES=count:i]",
                flags: Flags::READONLY,
                keys: const { &[KeySpec::one(KeyAccess::RO, 2)] },
                summary: "Estimates the memory usage of a key.",
                complexity: "O(N) where N is the number of elements.",
                ..SUB
            }
            .by(Keyed(usage)),
        ]
    },
)];

/// Bytes of a key's entry in the index, and of the header of its copy in the cache.
const ENTRY_BYTES: usize = 24;

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Attempt to purge dirty pages for reclamation by the allocator.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value. Nested values are",
        "    sampled up to <count> times (default: 5, 0 means sample all).",
    ])
}

/// Bytes of key and value, all elements of a collection counted, whatever SAMPLES says, and of the index entry.
fn usage(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut at = 3;
    while at < call.args.len() {
        if !call.is(at, "samples") || at + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        if call.int(at + 1)? < 0 {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let (db, key) = (call.db(), call.args.at(2));
    txn.note_uses(false);
    let bytes = match txn.type_of(db, key) {
        None => {
            call.out.null();
            return Ok(Done);
        }
        Some(Type::String) => txn.string_at(db, key)?.map_or(0, StringValue::memory_bytes),
        Some(ty) => txn.serialized(db, key, ty)?.map_or(0, |(_, bytes)| bytes),
    };
    call.reply_int((bytes + key.len() + ENTRY_BYTES) as i64)
}

fn stats(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let server = call.server();
    let parts = MemoryParts::new(server, &keyspace.stats(&server.store)?);
    let keys: u64 = (0..holdfast_store::DATABASES as u8).map(|db| keyspace.len(db)).sum::<Result<_, _>>()?;
    let (used, data) = (parts.used(), parts.data());
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let out = &mut call.out;
    let numbers = [
        ("peak.allocated", parts.peak),
        ("total.allocated", used),
        ("startup.allocated", parts.log_buffers),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", parts.clients),
        ("cluster.links", 0),
        ("aof.buffer", parts.log_buffers),
        ("index.bytes", parts.index),
        ("cache.bytes", parts.cache),
        ("heap.bytes", parts.heap),
        ("overhead.total", used - data),
        ("keys.count", keys),
        ("keys.bytes-per-key", data.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", data),
    ];
    out.map(numbers.len() + 3);
    for (name, value) in numbers {
        out.key(name).int(value as i64);
    }
    for (name, value) in [
        ("dataset.percentage", share(data, used)),
        ("peak.percentage", share(used, parts.peak)),
        ("fragmentation", parts.resident as f64 / used.max(1) as f64),
    ] {
        out.bulk(name);
        out.double(value);
    }
    Ok(Done)
}

fn doctor(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let server = call.server();
    let parts = MemoryParts::new(server, &keyspace.stats(&server.store)?);
    let limit = server.config.number(Opt::MaxMemory) as u64;
    let used = parts.used();
    let mut text = String::new();
    if parts.clients > used / 2 && parts.clients > 64 << 20 {
        text.push_str(" * Clients: more than half of the memory holds their requests and replies. CLIENT LIST tells whose.\n");
    }
    if parts.resident > 2 * used && parts.resident > 256 << 20 {
        text.push_str(
            " * Resident memory is more than twice what is in use: the allocator keeps the rest for later.\n",
        );
    }
    // Not what it takes: it may have nothing to hold yet.
    let left = limit.saturating_sub(used.saturating_sub(parts.cache));
    if limit > 0 && left < limit / 20 {
        text.push_str(" * Cache: less than a twentieth of 'maxmemory' is left for it, so that most reads go to the disk.\n");
    }
    if text.is_empty() {
        text.push_str("Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n");
    } else {
        text.insert_str(0, "Sam, I detected a few issues in this instance:\n\n");
    }
    call.out.verbatim("txt", &text);
    Ok(Done)
}

fn malloc_stats(call: &mut Call) -> Answer {
    call.out.verbatim("txt", "Stats not supported for the current allocator");
    Ok(Done)
}

fn purge(call: &mut Call) -> Answer {
    allocator::give_back();
    call.reply_ok()
}
