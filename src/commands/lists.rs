//! Lists: LPUSH, RPUSH, LLEN, BLPOP, BRPOP.

use crate::{
    answer::{Answer, Outcome::*, Stop, UNBLOCKED, Wake},
    call::Call,
    command::{Categories, Command, Flags, Handler::Keyed, KeyAccess, KeySpec},
};
use holdfast_store::{
    Txn, Type,
    collections::{
        list::{self, End},
        object::Encoding,
    },
};
use std::time::Duration;

const ROW: Command = Command { group: "list", categories: Categories::LIST, ..Command::NEW };
const PUSH: Command = Command {
    arity: -3,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1)],
    complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
    ..ROW
};
const BLOCKING_POP: Command = Command {
    arity: -3,
    flags: Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
    keys: &[KeySpec::range(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE), 1, -2, 1)],
    since: "2.0.0",
    complexity: "O(N) where N is the number of provided keys.",
    ..ROW
};

/// The rows.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "blpop",
        summary: "Removes and returns the first element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        handler: Keyed(|call, txn| blocking_pop(call, txn, End::Front)),
        ..BLOCKING_POP
    },
    Command {
        name: "brpop",
        summary: "Removes and returns the last element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        handler: Keyed(|call, txn| blocking_pop(call, txn, End::Back)),
        ..BLOCKING_POP
    },
    Command {
        name: "llen",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        summary: "Returns the length of a list.",
        handler: Keyed(llen),
        ..ROW
    },
    Command {
        name: "lpush",
        summary: "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
        handler: Keyed(|call, txn| push(call, txn, End::Front)),
        ..PUSH
    },
    Command {
        name: "rpush",
        summary: "Appends one or more elements to a list. Creates the key if it doesn't exist.",
        handler: Keyed(|call, txn| push(call, txn, End::Back)),
        ..PUSH
    },
];

fn llen(call: &mut Call, txn: &mut Txn) -> Answer {
    let key = call.args.at(1);
    let len = match txn.object(call.db(), key, Type::List)? {
        Some(obj) => list::len(txn.parts(key).0, obj),
        None => 0,
    };
    call.out.int(len as i64);
    Ok(Done)
}

fn push(call: &mut Call, txn: &mut Txn, end: End) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let obj = match txn.object(db, key, Type::List)? {
        Some(obj) => obj,
        None => txn.create(db, key, Type::List, Encoding::Listpack)?,
    };
    let (arena, tx, context) = txn.parts_mut(db, key);
    let mut list = list::Writer::new(arena, tx, obj, context);
    for element in call.args.from(2).iter() {
        list.push(end, element).map_err(holdfast_store::Error::from)?;
    }
    call.out.int(list::len(arena, obj) as i64);
    Ok(Done)
}

fn blocking_pop(call: &mut Call, txn: &mut Txn, end: End) -> Answer {
    let timeout = timeout(call.args.at(call.args.len() - 1))?;
    if call.wake == Wake::Unblocked {
        return Err(UNBLOCKED);
    }
    let db = call.db();
    let args = call.args;
    let keys = args.from(1).iter().take(args.len() - 2);
    for key in keys.clone() {
        let obj = match txn.object(db, key, Type::List) {
            Ok(Some(obj)) => obj,
            Ok(None) => continue,
            // Who waits already goes on waiting until there is a list.
            Err(holdfast_store::Error::WrongType) if call.wake != Wake::First => continue,
            Err(error) => return Err(error.into()),
        };
        call.out.array(2);
        call.out.bulk(key);
        let (arena, tx, context) = txn.parts_mut(db, key);
        list::Writer::new(arena, tx, obj, context).pop(end, 1, |element| call.out.bulk(element));
        if list::len(arena, obj) == 0 {
            txn.remove(db, key);
        }
        return Ok(Done);
    }
    if call.session.in_exec || call.wake == Wake::Timeout {
        call.out.null_array();
        return Ok(Done);
    }
    call.wait_for(txn, keys, timeout)
}

/// The time that a blocking command waits at most: seconds, 0 for ever.
fn timeout(text: &[u8]) -> Result<Option<Duration>, Stop> {
    let seconds: f64 = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|seconds: &f64| seconds.is_finite())
        .ok_or(Stop::new("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(Stop::new("ERR timeout is negative"));
    }
    let timeout =
        Duration::try_from_secs_f64(seconds).map_err(|_| Stop::new("ERR timeout is out of range"))?;
    Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
}
