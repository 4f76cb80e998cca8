//! Hashes: HSET and what else reads and writes fields. Their expiry: [`super::fields`].

use crate::{
    command::error::NOT_INTEGER,
    commands::{prelude::*, scan},
    util::extended::{Extended, NoNumber},
};
use holdfast_resp::{Proto, parse_int};
use holdfast_store::hash::{Expiry, Field, Hash, Value};

const READ: Command = Command {
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    categories: Categories::HASH,
    since: "2.0.0",
    group: "hash",
    ..Command::NEW
};
const READ_ALL: Command =
    Command { flags: Flags::READONLY, complexity: "O(N) where N is the size of the hash.", ..READ };
const LOOK: Command = Command { keys: &[KeySpec::one(KeyAccess::RO, 1)], ..READ };
const WRITE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
    ..READ
};
const INCREMENT: Command = Command {
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
    ..WRITE
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "hdel",
        syntax: "key field...",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::DELETE), 1)],
        summary: "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.",
        complexity: "O(N) where N is the number of fields to be removed.",
        ..WRITE
    }
    .by(Keyed(hdel))
    .using(uses::elements),
    Command {
        name: "hexists",
        syntax: "key field",
        summary: "Determines whether a field exists in a hash.",
        ..LOOK
    }
    .by(Keyed(hexists))
    .using(uses::element),
    Command {
        name: "hget",
        syntax: "key field",
        summary: "Returns the value of a field in a hash.",
        ..READ
    }
    .by(Keyed(hget))
    .using(uses::element),
    Command {
        name: "hgetall",
        syntax: "key",
        summary: "Returns all fields and values in a hash.",
        ..READ_ALL
    }
    .by(Keyed(|call, txn| list(call, txn, Shown::Both)))
    .using(uses::all),
    Command {
        name: "hincrby",
        syntax: "key field increment:i",
        summary: "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist.",
        ..INCREMENT
    }
    .by(Keyed(hincrby))
    .using(uses::element),
    Command {
        name: "hincrbyfloat",
        syntax: "key field increment:d",
        since: "2.6.0",
        summary: "Increments the floating point value of a field by a number. Uses 0 as initial value if the field doesn't exist.",
        ..INCREMENT
    }
    .by(Keyed(hincrbyfloat))
    .using(uses::element),
    Command {
        name: "hkeys",
        syntax: "key",
        summary: "Returns all fields in a hash.",
        ..READ_ALL
    }
    .by(Keyed(|call, txn| list(call, txn, Shown::Names)))
    .using(uses::all),
    Command {
        name: "hlen",
        syntax: "key",
        summary: "Returns the number of fields in a hash.",
        ..LOOK
    }
    .by(Keyed(hlen))
    .using(uses::length),
    Command {
        name: "hmget",
        syntax: "key field...",
        summary: "Returns the values of all fields in a hash.",
        complexity: "O(N) where N is the number of fields being requested.",
        ..READ
    }
    .by(Keyed(hmget))
    .using(uses::elements),
    Command {
        name: "hmset",
        syntax: "key data(field value)...",
        summary: "Sets the values of multiple fields.",
        complexity: "O(N) where N is the number of fields being set.",
        ..WRITE
    }
    .by(Keyed(|call, txn| {
        set(call, txn)?;
        call.reply_ok()
    }))
    .using(uses::pairs),
    Command {
        name: "hrandfield",
        syntax: "key [options(count:i [WITHVALUES])]",
        flags: Flags::READONLY,
        since: "6.2.0",
        summary: "Returns one or more random fields from a hash.",
        complexity: "O(N) where N is the number of fields returned",
        ..READ
    }
    .by(Keyed(hrandfield))
    .using(uses::random),
    Command {
        name: "hscan",
        syntax: "key cursor:i [MATCH=pattern:p] [COUNT=count:i] [NOVALUES]",
        flags: Flags::READONLY,
        since: "2.8.0",
        summary: "Iterates over fields and values of a hash.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        ..READ
    }
    .by(Keyed(hscan))
    .using(scan::uses),
    Command {
        name: "hset",
        syntax: "key data(field value)...",
        summary: "Creates or modifies the value of a field in a hash.",
        complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.",
        ..WRITE
    }
    .by(Keyed(|call, txn| {
        let new = set(call, txn)?;
        call.reply_int(new as i64)
    }))
    .using(uses::pairs),
    Command {
        name: "hsetnx",
        syntax: "key field value",
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1)],
        summary: "Sets the value of a field in a hash only when the field doesn't exist.",
        ..WRITE
    }
    .by(Keyed(hsetnx))
    .using(uses::element),
    Command {
        name: "hstrlen",
        syntax: "key field",
        since: "3.2.0",
        summary: "Returns the length of the value of a field.",
        ..LOOK
    }
    .by(Keyed(hstrlen))
    .using(uses::element),
    Command {
        name: "hvals",
        syntax: "key",
        summary: "Returns all values in a hash.",
        ..READ_ALL
    }
    .by(Keyed(|call, txn| list(call, txn, Shown::Values)))
    .using(uses::all),
];

/// A sum is no 64-bit number.
pub(super) const OVERFLOW: Stop = Stop::new("ERR increment or decrement would overflow");

/// What of the fields a reply shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Names,
    Values,
    Both,
}

/// The field that a command names after the key.
fn field<'t>(call: &Call, txn: &'t mut Txn) -> Result<Option<Value<'t>>, Stop> {
    Ok(txn.hash_get(call.db(), call.args.at(1), call.args.at(2))?)
}

fn write_value(out: &mut Writer, value: Option<Value>) {
    match value {
        Some(value) => out.bulk(&*value),
        None => out.null(),
    }
}

fn hget(call: &mut Call, txn: &mut Txn) -> Answer {
    let value = field(call, txn)?;
    write_value(&mut call.out, value);
    Ok(Done)
}

fn hexists(call: &mut Call, txn: &mut Txn) -> Answer {
    let exists = field(call, txn)?.is_some();
    call.reply_int(exists.into())
}

fn hstrlen(call: &mut Call, txn: &mut Txn) -> Answer {
    let len = field(call, txn)?.map_or(0, |value| value.len());
    call.reply_int(len as i64)
}

fn hmget(call: &mut Call, txn: &mut Txn) -> Answer {
    let hash = txn.hash_at(call.db(), call.args.at(1))?;
    let names = call.args.from(2);
    call.out.array(names.len());
    for name in names.iter() {
        let field = hash.and_then(|hash| hash.get(name));
        write_value(&mut call.out, field.map(|field| field.value));
    }
    Ok(Done)
}

fn hlen(call: &mut Call, txn: &mut Txn) -> Answer {
    let len = txn.hash_at(call.db(), call.args.at(1))?.map_or(0, Hash::len);
    call.reply_int(len as i64)
}

fn list(call: &mut Call, txn: &mut Txn, shown: Shown) -> Answer {
    let hash = txn.hash_at(call.db(), call.args.at(1))?;
    let len = hash.map_or(0, Hash::len) as usize;
    match shown {
        Shown::Both => call.out.map(len),
        Shown::Names | Shown::Values => call.out.array(len),
    }
    for field in hash.into_iter().flat_map(Hash::fields) {
        write_field(&mut call.out, &field, shown);
    }
    Ok(Done)
}

fn write_field(out: &mut Writer, field: &Field, shown: Shown) {
    if shown != Shown::Values {
        out.bulk(&*field.name);
    }
    if shown != Shown::Names {
        out.bulk(&*field.value);
    }
}

/// HSET and HMSET: how many fields are new.
fn set(call: &Call, txn: &mut Txn) -> Result<u64, Stop> {
    let mut args = call.args.from(2).iter();
    if args.len() % 2 == 1 {
        return Err(wrong_arity(call.command));
    }
    let fields = std::iter::from_fn(|| Some((args.next()?, args.next()?)));
    let new = txn.hash_set(call.db(), call.args.at(1), fields, Expiry::Clear)?;
    call.notify(Class::HASH, "hset", call.args.at(1));
    Ok(new)
}

fn hsetnx(call: &mut Call, txn: &mut Txn) -> Answer {
    let is_new = field(call, txn)?.is_none();
    if is_new {
        let field = (call.args.at(2), call.args.at(3));
        txn.hash_set(call.db(), call.args.at(1), [field], Expiry::Clear)?;
        call.notify(Class::HASH, "hset", call.args.at(1));
    }
    call.reply_int(is_new.into())
}

fn hdel(call: &mut Call, txn: &mut Txn) -> Answer {
    let removed = txn.hash_remove(call.db(), call.args.at(1), call.args.from(2).iter())?;
    if removed > 0 {
        call.notify_taken(txn, Class::HASH, "hdel", call.args.at(1));
    }
    call.reply_int(removed as i64)
}

/// A field's value as a number; 0 without one.
pub(super) fn counter(value: Option<Value>) -> Result<i64, Stop> {
    const NOT_A_NUMBER: Stop = Stop::new("ERR hash value is not an integer");
    value.map_or(Ok(0), |value| parse_int(&value).ok_or(NOT_A_NUMBER))
}

fn hincrby(call: &mut Call, txn: &mut Txn) -> Answer {
    let by = call.int(3)?;
    let new = counter(field(call, txn)?)?.checked_add(by).ok_or(OVERFLOW)?;
    let field = (call.args.at(2), &*Value::int(new));
    txn.hash_set(call.db(), call.args.at(1), [field], Expiry::Keep)?;
    call.notify(Class::HASH, "hincrby", call.args.at(1));
    call.reply_int(new)
}

fn hincrbyfloat(call: &mut Call, txn: &mut Txn) -> Answer {
    let by = Extended::parse(call.args.at(3)).map_err(|no| match no {
        NoNumber::Invalid => Stop::new("ERR value is not a valid float"),
        NoNumber::Infinite => Stop::new("ERR value is NaN or Infinity"),
    })?;
    let old = field(call, txn)?.map_or(Ok(Extended::ZERO), |value| Extended::parse(&value));
    let new = match old {
        Ok(old) => old.add(by),
        Err(NoNumber::Infinite) => Err(NoNumber::Infinite),
        Err(NoNumber::Invalid) => return Err(Stop::new("ERR hash value is not a float")),
    };
    let new = new.map_err(|_| Stop::new("ERR increment would produce NaN or Infinity"))?.to_text();
    let field = (call.args.at(2), new.as_bytes());
    txn.hash_set(call.db(), call.args.at(1), [field], Expiry::Keep)?;
    call.notify(Class::HASH, "hincrbyfloat", call.args.at(1));
    call.reply_bulk(new)
}

fn hrandfield(call: &mut Call, txn: &mut Txn) -> Answer {
    if call.args.len() == 2 {
        let hash = txn.hash_at(call.db(), call.args.at(1))?;
        let field = hash.and_then(|hash| hash.random(call.draws()));
        write_value(&mut call.out, field.map(|field| field.name));
        return Ok(Done);
    }
    let count = random_count(call)?;
    let shown = if call.args.len() == 3 {
        Shown::Names
    } else if call.args.len() == 4 && call.is(3, "withvalues") {
        Shown::Both
    } else {
        return Err(SYNTAX);
    };
    if shown == Shown::Both && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Stop::new("ERR value is out of range"));
    }
    let hash = txn.hash_at(call.db(), call.args.at(1))?.filter(|hash| !hash.is_empty());
    let Some(hash) = hash else {
        call.out.array(0);
        return Ok(Done);
    };
    let nested = shown == Shown::Both && call.out.proto() == Proto::Resp3;
    let flat = if shown == Shown::Both && !nested { 2 } else { 1 };
    let write = |out: &mut Writer, field: &Field| {
        if nested {
            out.array(2);
        }
        write_field(out, field, shown);
    };
    let mut draws = call.draws();
    if count < 0 {
        let count = count.unsigned_abs();
        call.out.array(count as usize * flat);
        call.repeat(count, |out| {
            write(out, &hash.random(&mut draws).expect("a hash that is not empty"));
        })?;
    } else {
        let fields = hash.sample(count as usize, draws);
        call.out.array(fields.len() * flat);
        fields.iter().for_each(|field| write(&mut call.out, field));
    }
    Ok(Done)
}

/// How many random elements are wanted: argument 2. Below zero: with repetition.
pub fn random_count(call: &Call) -> Result<i64, Stop> {
    match parse_int(call.args.at(2)).ok_or(NOT_INTEGER)? {
        i64::MIN => {
            let (min, max) = (-i64::MAX, i64::MAX);
            Err(format!("ERR value is out of range, value must between {min} and {max}").into())
        }
        count => Ok(count),
    }
}

fn hscan(call: &mut Call, txn: &mut Txn) -> Answer {
    let cursor = scan::parse_cursor(call.args.at(2))?;
    let Some(hash) = txn.hash_at(call.db(), call.args.at(1))? else {
        scan::reply(&mut call.out, |_| (0, 0));
        return Ok(Done);
    };
    let options = scan::Options::parse(call.command.name, call.args.from(3), |_, _| Ok(false))?;
    scan::reply(&mut call.out, |out| {
        let mut replies = 0;
        let next = hash.scan(cursor, options.count, |field| {
            if options.matches(&field.name) {
                write_field(out, &field, if options.only_names { Shown::Names } else { Shown::Both });
                replies += if options.only_names { 1 } else { 2 };
            }
        });
        (next, replies)
    });
    Ok(Done)
}
