//! Groups: XGROUP, XACK.

use super::arguments::{parse_bound, parse_id, parse_ids};
use crate::{commands::prelude::*, exec::call::wrong_subcommand};
use holdfast_store::stream::Id;

const NO_KEY: Stop = Stop::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);
const BUSY: Stop = Stop::new("BUSYGROUP Consumer Group name already exists");
const NEGATIVE_READ: Stop = Stop::new("ERR value for ENTRIESREAD must be positive or -1");

pub fn help(call: &mut Call) -> Answer {
    call.help(&[
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
    ])
}

/// The error about a group that a key does not have.
pub fn no_group(key: &[u8], group: &[u8]) -> Stop {
    [b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"].concat().into()
}

/// The error about a key or a group that is not there.
pub fn no_key_or_group(key: &[u8], group: &[u8]) -> Stop {
    [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"].concat().into()
}

/// Says that a group got a consumer, if it is new.
pub fn notify_consumer(call: &Call, key: &[u8], is_new: bool) {
    if is_new {
        call.notify(Class::STREAM, "xgroup-createconsumer", key);
    }
}

/// Makes sure that the key, and unless it is to be made the group, is there.
fn expect_group(call: &Call, txn: &mut Txn) -> Result<(), Stop> {
    let (key, group) = (call.args.at(2), call.args.at(3));
    let stream = txn.stream_at(call.db(), key)?.ok_or(NO_KEY)?;
    stream.group(group).map(drop).ok_or_else(|| no_group(key, group))
}

/// The options of CREATE and SETID.
#[derive(Default)]
struct Options {
    make_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(call: &Call, may_make: bool) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut at = 5;
        while at < call.args.len() {
            if may_make && call.is(at, "mkstream") {
                options.make_stream = true;
                at += 1;
            } else if call.is(at, "entriesread") && at + 1 < call.args.len() {
                options.entries_read = match call.int(at + 1)? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| NEGATIVE_READ)?),
                };
                at += 2;
            } else {
                return Err(wrong_subcommand(call.args));
            }
        }
        Ok(options)
    }
}

pub fn create(call: &mut Call, txn: &mut Txn) -> Answer {
    let options = Options::parse(call, true)?;
    let (db, key) = (call.db(), call.args.at(2));
    if txn.stream_at(db, key)?.is_none() && !options.make_stream {
        return Err(NO_KEY);
    }
    if call.args.len() > 8 {
        return Err(wrong_subcommand(call.args));
    }
    let after = match call.args.at(4) {
        b"$" => None,
        id => Some(parse_id(id, 0)?),
    };
    match txn.stream_add_group(db, key, call.args.at(3), after, options.entries_read, options.make_stream)? {
        Some(true) => call.notify(Class::STREAM, "xgroup-create", key),
        _ => return Err(BUSY),
    }
    call.reply_ok()
}

pub fn set_id(call: &mut Call, txn: &mut Txn) -> Answer {
    let options = Options::parse(call, false)?;
    expect_group(call, txn)?;
    if !matches!(call.args.len(), 5 | 7) {
        return Err(wrong_subcommand(call.args));
    }
    let after = match call.args.at(4) {
        b"$" => None,
        id => Some(parse_bound(id, 0)?),
    };
    txn.stream_set_group(call.db(), call.args.at(2), call.args.at(3), after, options.entries_read)?;
    call.notify(Class::STREAM, "xgroup-setid", call.args.at(2));
    call.reply_ok()
}

pub fn destroy(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(2));
    txn.stream_at(db, key)?.ok_or(NO_KEY)?;
    let removed = txn.stream_remove_group(db, key, call.args.at(3))?;
    if removed {
        call.notify(Class::STREAM, "xgroup-destroy", key);
    }
    call.reply_int(i64::from(removed))
}

pub fn create_consumer(call: &mut Call, txn: &mut Txn) -> Answer {
    expect_group(call, txn)?;
    let made = txn.stream_add_consumer(call.db(), call.args.at(2), call.args.at(3), call.args.at(4))?;
    notify_consumer(call, call.args.at(2), made == Some(true));
    call.reply_int(i64::from(made == Some(true)))
}

pub fn delete_consumer(call: &mut Call, txn: &mut Txn) -> Answer {
    expect_group(call, txn)?;
    let pending = txn.stream_remove_consumer(call.db(), call.args.at(2), call.args.at(3), call.args.at(4))?;
    if pending.is_some() {
        call.notify(Class::STREAM, "xgroup-delconsumer", call.args.at(2));
    }
    call.reply_int(pending.unwrap_or(0) as i64)
}

pub fn xack(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key, group) = (call.db(), call.args.at(1), call.args.at(2));
    if txn.stream_at(db, key)?.and_then(|stream| stream.group(group)).is_none() {
        call.out.int(0);
        return Ok(Done);
    }
    let ids: Vec<Id> = parse_ids(call.args.from(3))?;
    let acknowledged = txn.stream_acknowledge(db, key, group, &ids)?;
    call.reply_int(acknowledged as i64)
}
