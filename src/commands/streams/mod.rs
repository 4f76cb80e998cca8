//! Streams.

mod arguments;
mod claims;
mod entries;
mod groups;
mod info;
mod reading;

use crate::{
    command::{BeginSearch, Find},
    commands::prelude::*,
};
use holdfast_store::stream::{Entry, Id};

const READ_KEY: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);

const READ: Command = Command {
    group: "stream",
    categories: Categories::STREAM,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(READ_KEY, 1)],
    since: "5.0.0",
    ..Command::NEW
};
const WRITE: Command = Command {
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
    ..READ
};
const DELETE: Command = Command { keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 1)], ..WRITE };
const CONTAINER: Command =
    Command { complexity: "O(1), depends on subcommand", group: "stream", since: "5.0.0", ..Command::NEW };
const GROUP: Command =
    Command { flags: Flags::WRITE, keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 2)], ..READ };
const NEW_IN_GROUP: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 2)],
    ..GROUP
};
const INFO: Command = Command { keys: &[KeySpec::one(READ_KEY, 2)], ..READ };
const HELP: Command = Command {
    flags: Flags::LOADING.and(Flags::STALE),
    keys: &[],
    summary: "Returns helpful text about the different subcommands.",
    ..READ
};

const fn after_streams(from: i32) -> KeySpec {
    KeySpec {
        access: READ_KEY,
        begin: BeginSearch::Keyword("STREAMS", from),
        find: Find::Range { last: -1, step: 1, limit: 2 },
    }
}

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "xack",
        syntax: "key group id...",
        summary: "Returns the number of messages that were successfully acknowledged by the consumer group member of a stream.",
        complexity: "O(1) for each message ID processed.",
        ..WRITE
    }
    .by(Keyed(groups::xack))
    .using(arguments::acknowledged),
    Command {
        name: "xadd",
        syntax: r#"key [NOMKSTREAM@6.2.0] [trim(strategy<MAXLEN|MINID@6.2.0> [operator<"="=equal:!|"~"=approximately:!>] threshold [LIMIT=count:i@6.2.0])] id-selector<"*"=auto-id:!|id> data(field value)..."#,
        flags: WRITE.flags.and(Flags::DENYOOM),
        summary: "Appends a new message to a stream. Creates the key if it doesn't exist.",
        complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
        ..WRITE
    }
    .by(Keyed(entries::xadd))
    .using(arguments::last),
    Command {
        name: "xautoclaim",
        syntax: "key group consumer min-idle-time start [COUNT=count:i] [JUSTID]",
        since: "6.2.0",
        summary: "Changes, or acquires, ownership of messages in a consumer group, as if the messages were delivered to as consumer group member.",
        complexity: "O(1) if COUNT is small.",
        ..DELETE
    }
    .by(Keyed(claims::xautoclaim))
    .using(arguments::claimed_from),
    Command {
        name: "xclaim",
        syntax: "key group consumer min-idle-time id... [IDLE=ms:i] [TIME=unix-time-milliseconds:t] [RETRYCOUNT=count:i] [FORCE] [JUSTID] [LASTID=lastid]",
        summary: "Changes, or acquires, ownership of a message in a consumer group, as if the message was delivered a consumer group member.",
        complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
        ..WRITE
    }
    .by(Keyed(claims::xclaim))
    .using(arguments::claimed),
    Command {
        name: "xdel",
        syntax: "key id...",
        summary: "Returns the number of messages after removing them from a stream.",
        complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
        ..DELETE
    }
    .by(Keyed(entries::xdel))
    .using(arguments::each),
    Command {
        name: "xgroup",
        summary: "A container for consumer groups commands.",
        ..CONTAINER
    }
    .container(const { &[
        Command {
            name: "xgroup|create",
            syntax: r#"key group id-selector<id|"$"=new-id:!> [MKSTREAM] [ENTRIESREAD=entriesread:i~entries-read]"#,
            summary: "Creates a consumer group.",
            ..NEW_IN_GROUP
        }
        .by(Keyed(groups::create)),
        Command {
            name: "xgroup|createconsumer",
            syntax: "key group consumer",
            since: "6.2.0",
            summary: "Creates a consumer in a consumer group.",
            ..NEW_IN_GROUP
        }
        .by(Keyed(groups::create_consumer)),
        Command {
            name: "xgroup|delconsumer",
            syntax: "key group consumer",
            summary: "Deletes a consumer from a consumer group.",
            ..GROUP
        }
        .by(Keyed(groups::delete_consumer)),
        Command {
            name: "xgroup|destroy",
            syntax: "key group",
            summary: "Destroys a consumer group.",
            complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
            ..GROUP
        }
        .by(Keyed(groups::destroy)),
        Command { name: "xgroup|help", ..HELP }
        .by(Plain(groups::help)),
        Command {
            name: "xgroup|setid",
            syntax: r#"key group id-selector<id|"$"=new-id:!> [ENTRIESREAD=entriesread:i~entries-read]"#,
            keys: const { &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 2)] },
            summary: "Sets the last-delivered ID of a consumer group.",
            ..GROUP
        }
        .by(Keyed(groups::set_id)),
    ] }),
    Command {
        name: "xinfo",
        summary: "A container for stream introspection commands.",
        ..CONTAINER
    }
    .container(const { &[
        Command {
            name: "xinfo|consumers",
            syntax: "key group",
            summary: "Returns a list of the consumers in a consumer group.",
            ..INFO
        }
        .by(Keyed(info::consumers)),
        Command {
            name: "xinfo|groups",
            syntax: "key",
            summary: "Returns a list of the consumer groups of a stream.",
            ..INFO
        }
        .by(Keyed(info::groups)),
        Command { name: "xinfo|help", ..HELP }
        .by(Plain(info::help)),
        Command {
            name: "xinfo|stream",
            syntax: "key [full-block(FULL [COUNT=count:i])]",
            summary: "Returns information about a stream.",
            ..INFO
        }
        .by(Keyed(info::stream)),
    ] }),
    Command {
        name: "xlen",
        syntax: "key",
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Return the number of messages in a stream.",
        ..READ
    }
    .by(Keyed(entries::xlen))
    .using(uses::length),
    Command {
        name: "xpending",
        syntax: "key group [filters([IDLE=min-idle-time:i@6.2.0] start end count:i [consumer])]",
        summary: "Returns the information and entries from a stream consumer group's pending entries list.",
        complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
        ..READ
    }
    .by(Keyed(info::xpending))
    .using(arguments::pending),
    Command {
        name: "xrange",
        syntax: "key start end [COUNT=count:i]",
        summary: "Returns the messages from a stream within a range of IDs.",
        complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        ..READ
    }
    .by(Keyed(|call, txn| entries::range(call, txn, false)))
    .using(|args| arguments::range(args, 2, 3)),
    Command {
        name: "xread",
        syntax: "[COUNT=count:i] [BLOCK=milliseconds:i] STREAMS=streams(key... id...)",
        flags: Flags::READONLY.and(Flags::BLOCKING).and(Flags::MOVABLE_KEYS),
        keys: &[after_streams(1)],
        find_keys: Some(find_keys),
        summary: "Returns messages from multiple streams with IDs greater than the ones requested. Blocks until a message is available otherwise.",
        complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.",
        ..READ
    }
    .by(Keyed(reading::xread))
    .using(arguments::read),
    Command {
        name: "xreadgroup",
        syntax: "GROUP=group-block(group consumer) [COUNT=count:i] [BLOCK=milliseconds:i] [NOACK] STREAMS=streams(key... id...)",
        flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLE_KEYS),
        keys: &[after_streams(4)],
        find_keys: Some(find_keys),
        summary: "Returns new or historical messages from a stream for a consumer in a group. Blocks until a message is available otherwise.",
        complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
        ..READ
    }
    .by(Keyed(reading::xreadgroup))
    .using(arguments::read),
    Command {
        name: "xrevrange",
        syntax: "key end start [COUNT=count:i]",
        summary: "Returns the messages from a stream within a range of IDs in reverse order.",
        complexity: "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        ..READ
    }
    .by(Keyed(|call, txn| entries::range(call, txn, true)))
    .using(|args| arguments::range(args, 3, 2)),
    Command {
        name: "xsetid",
        syntax: "key last-id [ENTRIESADDED=entries-added:i@7.0.0] [MAXDELETEDID=max-deleted-id@7.0.0]",
        flags: WRITE.flags.and(Flags::DENYOOM),
        summary: "An internal command for replicating stream values.",
        ..WRITE
    }
    .by(Keyed(entries::xsetid)),
    Command {
        name: "xtrim",
        syntax: r#"key trim(strategy<MAXLEN|MINID@6.2.0> [operator<"="=equal:!|"~"=approximately:!>] threshold [LIMIT=count:i@6.2.0])"#,
        flags: Flags::WRITE,
        summary: "Deletes messages from the beginning of a stream.",
        complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
        ..DELETE
    }
    .by(Keyed(entries::xtrim))
    .using(arguments::first),
];

/// Finds the keys of XREAD and XREADGROUP: the first half of what is behind STREAMS.
fn find_keys(args: Args, found: &mut dyn FnMut(usize, KeyAccess)) {
    if let Some(options) = arguments::ReadOptions::find(args) {
        let first = options.streams_at + 1;
        (first..first + (args.len() - first) / 2).for_each(|index| found(index, READ_KEY));
    }
}

fn write_id(out: &mut Writer, id: Id) {
    out.bulk_id(id.ms, id.seq);
}

fn write_entry(out: &mut Writer, entry: &Entry) {
    let fields = entry.fields();
    out.array(2);
    write_id(out, entry.id);
    out.array(2 * fields.len());
    for (name, value) in fields {
        out.bulk(name);
        out.bulk(value);
    }
}

/// Writes as many entries as there are.
fn write_entries<'e>(out: &mut Writer, entries: impl Iterator<Item = Entry<'e>>) {
    let place = out.defer();
    let count = entries.inspect(|entry| write_entry(out, entry)).count();
    out.set_array(place, count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_resp::OwnedArgs;

    #[test]
    fn keys_are_found_behind_names_like_the_word_before_them() {
        let found = |text: &str| {
            let args: OwnedArgs = text.split(' ').collect();
            let mut found = Vec::new();
            find_keys(args.args(), &mut |index, _| found.push(index));
            found
        };
        assert_eq!(found("xread streams a 0"), [2]);
        assert_eq!(found("xread count 1 block 0 STREAMS a b 0 0"), [6, 7]);
        assert_eq!(found("xreadgroup noack group streams streams streams a >"), [6]);
        assert!(found("xread count streams").is_empty());
        assert!(found("xread nonsense streams a 0").is_empty());
        assert!(found("xread streams").is_empty());
    }
}
