//! Keys of any type: DEL, UNLINK, EXISTS, TOUCH, TYPE, RENAME, RENAMENX, COPY, MOVE, OBJECT.

use crate::commands::prelude::*;
use holdfast_store::{Type, string::StringValue};

const ROW: Command = Command { group: "generic", categories: Categories::KEYSPACE, ..Command::NEW };
const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);

const DELETING: Command =
    Command { keys: &[KeySpec::range(KeyAccess::RM.and(KeyAccess::DELETE), 1, -1, 1)], ..ROW };
const COUNTING: Command =
    Command { flags: READ_FAST, keys: &[KeySpec::range(KeyAccess::RO, 1, -1, 1)], ..ROW };
const RENAMED: KeySpec = KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE), 1);
const OBJECT: Command =
    Command { flags: Flags::READONLY, keys: &[KeySpec::one(KeyAccess::RO, 2)], since: "2.2.3", ..ROW };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "copy",
        syntax: "source:k destination:k1 [DB=destination-db:i] [REPLACE]",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1),
            KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 2),
        ],
        since: "6.2.0",
        summary: "Copies the value of a key to a new key.",
        complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
        ..ROW
    }
    .by(Keyed(copy))
    .using(uses::all),
    Command {
        name: "del",
        syntax: "key...",
        flags: Flags::WRITE,
        summary: "Deletes one or more keys.",
        complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
        ..DELETING
    }
    .by(Keyed(delete))
    .using(uses::removal),
    Command {
        name: "exists",
        syntax: "key...",
        summary: "Determines whether one or more keys exist.",
        complexity: "O(N) where N is the number of keys to check.",
        ..COUNTING
    }
    .by(Keyed(|call, txn| count(call, |db, key| txn.exists(db, key)))),
    Command {
        name: "move",
        syntax: "key db:i",
        flags: WRITE_FAST,
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
        summary: "Moves a key to another database.",
        ..ROW
    }
    .by(Keyed(move_))
    .using(uses::removal),
    Command {
        name: "object",
        since: "2.2.3",
        summary: "A container for object introspection commands.",
        group: "generic",
        complexity: "O(1), depends on subcommand",
        ..Command::NEW
    }
    .container(const { &[
        Command {
            name: "object|encoding",
            syntax: "key",
            summary: "Returns the internal encoding of a Redis object.",
            ..OBJECT
        }
        .by(Keyed(object))
        .using(uses::length),
        Command {
            name: "object|freq",
            syntax: "key",
            since: "4.0.0",
            summary: "Returns the logarithmic access frequency counter of a Redis object.",
            ..OBJECT
        }
        .by(Keyed(object)),
        Command {
            name: "object|help",
            since: "6.2.0",
            flags: Flags::LOADING.and(Flags::STALE),
            summary: "Returns helpful text about the different subcommands.",
            keys: &[],
            ..OBJECT
        }
        .by(Plain(object_help)),
        Command {
            name: "object|idletime",
            syntax: "key",
            summary: "Returns the time since the last access to a Redis object.",
            ..OBJECT
        }
        .by(Keyed(object)),
        Command {
            name: "object|refcount",
            syntax: "key",
            summary: "Returns the reference count of a value of a key.",
            ..OBJECT
        }
        .by(Keyed(object)),
    ] }),
    Command {
        name: "rename",
        syntax: "key newkey:k1",
        flags: Flags::WRITE,
        keys: &[RENAMED, KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 2)],
        summary: "Renames a key and overwrites the destination.",
        ..ROW
    }
    .by(Keyed(rename))
    .using(uses::removal),
    Command {
        name: "renamenx",
        syntax: "key newkey:k1",
        flags: WRITE_FAST,
        keys: &[RENAMED, KeySpec::one(KeyAccess::OW.and(KeyAccess::INSERT), 2)],
        summary: "Renames a key only when the target key name doesn't exist.",
        ..ROW
    }
    .by(Keyed(rename))
    .using(uses::removal),
    Command {
        name: "touch",
        syntax: "key...",
        since: "3.2.1",
        summary: "Returns the number of existing keys out of those specified after updating the time they were last accessed.",
        complexity: "O(N) where N is the number of keys that will be touched.",
        ..COUNTING
    }
    .by(Keyed(touch)),
    Command {
        name: "type",
        syntax: "key",
        flags: READ_FAST,
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Determines the type of value stored at a key.",
        ..ROW
    }
    .by(Keyed(type_)),
    Command {
        name: "unlink",
        syntax: "key...",
        flags: WRITE_FAST,
        since: "4.0.0",
        summary: "Asynchronously deletes one or more keys.",
        complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.",
        ..DELETING
    }
    .by(Keyed(delete))
    .using(uses::removal),
];

/// There is no such key.
pub const NO_KEY: Stop = Stop::new("ERR no such key");
const SAME: Stop = Stop::new("ERR source and destination objects are the same");
const NO_FREQUENCY: Stop = Stop::new(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
     between policies at runtime LRU and LFU data will take some time to adjust.",
);
const NO_IDLE_TIME: Stop = Stop::new(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies \
     at runtime LRU and LFU data will take some time to adjust.",
);

fn delete(call: &mut Call, txn: &mut Txn) -> Answer {
    let db = call.db();
    let mut removed = 0;
    for key in call.args.from(1).iter().filter(|key| txn.remove(db, key)) {
        call.notify(Class::GENERIC, "del", key);
        removed += 1;
    }
    call.reply_int(removed)
}

/// Replies how many keys are there, which `is_there` tells.
fn count(call: &mut Call, mut is_there: impl FnMut(u8, &[u8]) -> bool) -> Answer {
    let db = call.db();
    let there = call.args.from(1).iter().filter(|key| is_there(db, key)).count();
    call.reply_int(there as i64)
}

fn touch(call: &mut Call, txn: &mut Txn) -> Answer {
    // Also for a client whose other commands are no uses.
    txn.note_uses(true);
    count(call, |db, key| txn.touch(db, key))
}

fn type_(call: &mut Call, txn: &mut Txn) -> Answer {
    let ty = txn.type_of(call.db(), call.args.at(1));
    call.out.simple(ty.map_or("none", Type::name));
    Ok(Done)
}

fn rename(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, from, to) = (call.db(), call.args.at(1), call.args.at(2));
    let only_if_new = call.command.name == "renamenx";
    if !txn.exists(db, from) {
        return Err(NO_KEY);
    }
    if only_if_new && txn.exists(db, to) {
        call.out.int(0);
        return Ok(Done);
    }
    let replaces = replaces(call, txn, db, to);
    txn.rename(db, from, db, to)?;
    if from != to {
        if replaces {
            call.notify(Class::NEW, "new", to);
        }
        call.notify(Class::GENERIC, "rename_from", from);
        call.notify(Class::GENERIC, "rename_to", to);
    }
    match only_if_new {
        true => call.out.int(1),
        false => call.out.ok(),
    }
    Ok(Done)
}

/// Whether a key is told to be new though there is one already: another one takes its place.
fn replaces(call: &Call, txn: &mut Txn, db: u8, key: &[u8]) -> bool {
    call.notifies(Class::NEW) && txn.exists(db, key)
}

fn copy(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, from, to) = (call.db(), call.args.at(1), call.args.at(2));
    let (mut to_number, mut to_db, mut replace) = (call.session.db as u8, db, false);
    let mut at = 3;
    while at < call.args.len() {
        if call.is(at, "replace") {
            replace = true;
        } else if call.is(at, "db") && at + 1 < call.args.len() {
            at += 1;
            to_number = call.database_number(at)?;
            if to_number != 0 && call.server().cluster.is_on() {
                return Err(Stop::new("ERR Copying to another database is not allowed in cluster mode"));
            }
            to_db = call.server().store.database(to_number);
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    if (db, from) == (to_db, to) {
        return Err(SAME);
    }
    let replaces = replaces(call, txn, to_db, to);
    let copied = (replace || !txn.exists(to_db, to)) && txn.copy(db, from, to_db, to)?;
    if copied {
        if replaces {
            call.notify_in(to_number, Class::NEW, "new", to);
        }
        call.notify_in(to_number, Class::GENERIC, "copy_to", to);
    }
    call.reply_int(copied.into())
}

fn move_(call: &mut Call, txn: &mut Txn) -> Answer {
    if call.server().cluster.is_on() {
        return Err(Stop::new("ERR MOVE is not allowed in cluster mode"));
    }
    let (db, key) = (call.db(), call.args.at(1));
    let to_number = call.database_number(2)?;
    let to_db = call.server().store.database(to_number);
    if db == to_db {
        return Err(SAME);
    }
    let moved = !txn.exists(to_db, key) && txn.rename(db, key, to_db, key)?;
    if moved {
        call.notify(Class::GENERIC, "move_from", key);
        call.notify_in(to_number, Class::GENERIC, "move_to", key);
    }
    call.reply_int(moved.into())
}

fn object_help(call: &mut Call) -> Answer {
    call.help(&[
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
    ])
}

fn object(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(2));
    txn.note_uses(false);
    let Some(ty) = txn.type_of(db, key) else {
        call.out.null();
        return Ok(Done);
    };
    match call.command.short_name() {
        "encoding" => {
            let encoding = encoding(txn, db, key, ty)?;
            call.out.bulk(encoding);
        }
        "freq" => {
            let count = txn.uses(db, key).ok_or(NO_FREQUENCY)?;
            call.out.int(count.into());
        }
        "idletime" => {
            let idle_s = txn.idle_s(db, key).ok_or(NO_IDLE_TIME)?;
            call.out.int(idle_s.into());
        }
        _ => call.out.int(1),
    }
    Ok(Done)
}

/// The name of how a value is laid out.
pub fn encoding(txn: &mut Txn, db: u8, key: &[u8], ty: Type) -> Result<&'static str, Stop> {
    /// Bytes up to which Redis keeps a string together with its header.
    const EMBEDDED_MAX: usize = 44;
    if ty != Type::String {
        return Ok(txn.encoding(db, key, ty)?.expect("a key that is there"));
    }
    Ok(match txn.string_at(db, key)? {
        Some(StringValue::Whole(value)) if holdfast_resp::parse_int(value).is_some() => "int",
        Some(StringValue::Whole(value)) if value.len() <= EMBEDDED_MAX => "embstr",
        _ => "raw",
    })
}
