//! Strings: GET, SET and their kin, counters, parts of strings.

use crate::{
    command::error::NOT_INTEGER,
    commands::{
        expire_time::{self, ExpireTime, Unit},
        lcs,
        prelude::*,
    },
    exec::handler::Direct,
    util::extended::{Extended, NoNumber},
};
use holdfast_resp::parse_int;
use holdfast_store::{Error, Use, string::StringValue};
use std::ops::Range;

const ROW: Command = Command { group: "string", categories: Categories::STRING, ..Command::NEW };
const READ: Command = Command {
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    ..ROW
};
const WRITE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 1)],
    ..ROW
};
const CHANGE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
    ..ROW
};
const INSERT: KeySpec = KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1);
const RANGE: Command = Command {
    flags: Flags::READONLY,
    complexity: "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.",
    ..READ
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "append",
        syntax: "key value",
        keys: &[INSERT],
        since: "2.0.0",
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        complexity: "O(N) where N is the length of the resulting value.",
        ..CHANGE
    }
    .by(Keyed(append)),
    Command {
        name: "decr",
        syntax: "key",
        summary: "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(|call, txn| add(call, txn, -1)))
    .directly(Direct::Adds(|_| Some(-1))),
    Command {
        name: "decrby",
        syntax: "key decrement:i",
        summary: "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(decr_by))
    .directly(Direct::Adds(|args| parse_int(args.at(2))?.checked_neg())),
    Command {
        name: "get",
        syntax: "key",
        summary: "Returns the string value of a key.",
        ..READ
    }
    .by(Keyed(get))
    .directly(Direct::Reads(|out, value| out.bulk(value)))
    .using(uses::bytes),
    Command {
        name: "getdel",
        syntax: "key",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE), 1)],
        since: "6.2.0",
        summary: "Returns the string value of a key after deleting the key.",
        ..ROW
    }
    .by(Keyed(get_del))
    .using(uses::bytes),
    Command {
        name: "getex",
        syntax: "key [expiration<EX=seconds:i|PX=milliseconds:i|EXAT=unix-time-seconds:t|PXAT=unix-time-milliseconds:t|PERSIST>]",
        flags: Flags::WRITE.and(Flags::FAST),
        since: "6.2.0",
        summary: "Returns the string value of a key after setting its expiration time.",
        ..CHANGE
    }
    .by(Keyed(get_ex))
    .using(uses::bytes),
    Command {
        name: "getrange",
        syntax: "key start:i end:i",
        since: "2.4.0",
        summary: "Returns a substring of the string stored at a key.",
        ..RANGE
    }
    .by(Keyed(get_range))
    .using(part),
    Command {
        name: "getset",
        syntax: "key value",
        summary: "Returns the previous string value of a key after setting it to a new value.",
        ..CHANGE
    }
    .by(Keyed(get_set))
    .using(uses::bytes),
    Command {
        name: "incr",
        syntax: "key",
        summary: "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(|call, txn| add(call, txn, 1)))
    .directly(Direct::Adds(|_| Some(1))),
    Command {
        name: "incrby",
        syntax: "key increment:i",
        summary: "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(incr_by))
    .directly(Direct::Adds(|args| parse_int(args.at(2)))),
    Command {
        name: "incrbyfloat",
        syntax: "key increment:d",
        since: "2.6.0",
        summary: "Increment the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(incr_by_float)),
    Command {
        name: "lcs",
        syntax: "key1:k key2:k [LEN] [IDX] [MINMATCHLEN=min-match-len:i] [WITHMATCHLEN]",
        flags: Flags::READONLY,
        keys: &[KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 1, 1, 1)],
        since: "7.0.0",
        summary: "Finds the longest common substring.",
        complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
        ..ROW
    }
    .by(Keyed(lcs::lcs))
    .using(uses::bytes),
    Command {
        name: "mget",
        syntax: "key...",
        keys: &[KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 1, -1, 1)],
        summary: "Atomically returns the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to retrieve.",
        ..READ
    }
    .by(Keyed(mget))
    .using(uses::bytes),
    Command {
        name: "mset",
        syntax: "data(key value)...",
        keys: &[KeySpec::range(KeyAccess::OW.and(KeyAccess::UPDATE), 1, -1, 2)],
        since: "1.0.1",
        summary: "Atomically creates or modifies the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to set.",
        ..WRITE
    }
    .by(Keyed(mset)),
    Command {
        name: "msetnx",
        syntax: "data(key value)...",
        keys: &[KeySpec::range(KeyAccess::OW.and(KeyAccess::INSERT), 1, -1, 2)],
        since: "1.0.1",
        summary: "Atomically modifies the string values of one or more keys only when all keys don't exist.",
        complexity: "O(N) where N is the number of keys to set.",
        ..WRITE
    }
    .by(Keyed(msetnx)),
    Command {
        name: "psetex",
        syntax: "key milliseconds:i value",
        since: "2.6.0",
        summary: "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist.",
        ..WRITE
    }
    .by(Keyed(|call, txn| set_expiring(call, txn, Unit::Milliseconds))),
    Command {
        name: "set",
        syntax: "key value [condition@2.6.12<NX|XX>] [GET@6.2.0] [expiration<EX=seconds:i@2.6.12|PX=milliseconds:i@2.6.12|EXAT=unix-time-seconds:t@6.2.0|PXAT=unix-time-milliseconds:t@6.2.0|KEEPTTL@6.0.0>]",
        keys: &[KeySpec::one(
            KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE).and(KeyAccess::VARIABLE_FLAGS),
            1,
        )],
        key_access: Some(|args| {
            if args.from(3).iter().any(|arg| arg.eq_ignore_ascii_case(b"get")) {
                KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE)
            } else {
                KeyAccess::OW.and(KeyAccess::UPDATE)
            }
        }),
        summary: "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        ..WRITE
    }
    .by(Keyed(set))
    .directly(Direct::Sets(|args| (args.len() == 3).then(|| args.at(2)))),
    Command {
        name: "setex",
        syntax: "key seconds:i value",
        since: "2.0.0",
        summary: "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.",
        ..WRITE
    }
    .by(Keyed(|call, txn| set_expiring(call, txn, Unit::Seconds))),
    Command {
        name: "setnx",
        syntax: "key value",
        keys: &[KeySpec::one(KeyAccess::OW.and(KeyAccess::INSERT), 1)],
        summary: "Set the string value of a key only when the key doesn't exist.",
        ..CHANGE
    }
    .by(Keyed(setnx)),
    Command {
        name: "setrange",
        syntax: "key offset:i value",
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
        since: "2.2.0",
        summary: "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.",
        complexity: "O(N) where N is the length of the resulting value.",
        ..WRITE
    }
    .by(Keyed(set_range))
    .using(changed_part),
    Command {
        name: "strlen",
        syntax: "key",
        keys: &[KeySpec::one(KeyAccess::RO, 1)],
        since: "2.2.0",
        summary: "Returns the length of a string value.",
        ..READ
    }
    .by(Keyed(strlen))
    .directly(Direct::Reads(|out, value| out.int(value.len() as i64))),
    Command {
        name: "substr",
        syntax: "key start:i end:i",
        summary: "Returns a substring from a string value.",
        ..RANGE
    }
    .by(Keyed(get_range))
    .using(part),
];

/// The bytes between two places; all, if one counts from the end.
fn part(args: Args) -> Vec<Use> {
    let place = |index| parse_int(args.at(index)).and_then(|place| usize::try_from(place).ok());
    match place(2).zip(place(3)) {
        Some((first, last)) => vec![Use::Bytes(first, last.saturating_add(1))],
        None => uses::bytes(args),
    }
}

/// The bytes that SETRANGE replaces.
fn changed_part(args: Args) -> Vec<Use> {
    let begin = parse_int(args.at(2)).and_then(|begin| usize::try_from(begin).ok());
    begin.map(|begin| Use::Bytes(begin, begin.saturating_add(args.at(3).len()))).into_iter().collect()
}

const NOT_FLOAT: Stop = Stop::new("ERR value is not a valid float");
const NOT_FINITE: Stop = Stop::new("ERR increment would produce NaN or Infinity");
/// A string would have more bytes than `proto-max-bulk-len` says.
pub(super) const TOO_LONG: Stop = Stop::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

fn get(call: &mut Call, txn: &mut Txn) -> Answer {
    write_value(call, txn)?;
    Ok(Done)
}

/// Replies with the value of argument 1.
fn write_value(call: &mut Call, txn: &mut Txn) -> Result<(), Stop> {
    match txn.string_at(call.db(), call.args.at(1))? {
        Some(value) => write_part(call, value, 0..value.len()),
        None => {
            call.out.null();
            // Of commands that only read, dispatch sees to this.
            if call.command.flags.has(Flags::WRITE) {
                call.notify(Class::KEYMISS, "keymiss", call.args.at(1));
            }
        }
    }
    Ok(())
}

fn write_part(call: &mut Call, value: StringValue, range: Range<usize>) {
    match value {
        StringValue::Whole(bytes) => call.out.bulk(&bytes[range]),
        StringValue::Chunks { .. } => call.out.bulk_of(range.len(), value.slices(range)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Missing,
    Present,
}

fn set(call: &mut Call, txn: &mut Txn) -> Answer {
    let (key, value) = (call.args.at(1), call.args.at(2));
    if call.args.len() == 3 {
        txn.set(call.db(), key, value, false)?;
        call.notify(Class::STRING, "set", key);
        call.out.ok();
        return Ok(Done);
    }
    let (mut condition, mut wants_old, mut keep) = (None, false, false);
    let mut expires = None;
    let mut next = 3;
    while next < call.args.len() {
        let is = |word| call.is(next, word);
        if is("nx") && condition != Some(Condition::Present) {
            condition = Some(Condition::Missing);
        } else if is("xx") && condition != Some(Condition::Missing) {
            condition = Some(Condition::Present);
        } else if is("get") {
            wants_old = true;
        } else if is("keepttl") && expires.is_none() {
            keep = true;
        } else if let Some(given) = expire_time::option(call, next, expires).filter(|_| !keep) {
            expires = Some(given);
            next += 1;
        } else {
            return Err(SYNTAX);
        }
        next += 1;
    }
    let expires = expires.map(|given| expire_time::time(call, txn, given)).transpose()?;
    let db = call.db();
    if wants_old {
        write_value(call, txn)?;
    }
    let passes = match condition {
        Some(condition) => txn.exists(db, key) == (condition == Condition::Present),
        None => true,
    };
    if passes {
        txn.set(db, key, value, keep)?;
        call.notify(Class::STRING, "set", key);
        if expires.is_some() {
            txn.set_expiry(db, key, expires)?;
            call.notify(Class::GENERIC, "expire", key);
        }
    }
    match (wants_old, passes) {
        (true, _) => {}
        (false, true) => call.out.ok(),
        (false, false) => call.out.null(),
    }
    Ok(Done)
}

fn setnx(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let missing = !txn.exists(db, key);
    if missing {
        txn.set(db, key, call.args.at(2), false)?;
        call.notify(Class::STRING, "set", key);
    }
    call.reply_int(missing.into())
}

fn set_expiring(call: &mut Call, txn: &mut Txn, unit: Unit) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let at = expire_time::time(call, txn, (ExpireTime::After(unit), 2))?;
    txn.set(db, key, call.args.at(3), false)?;
    txn.set_expiry(db, key, Some(at))?;
    call.notify(Class::STRING, "set", key);
    call.notify(Class::GENERIC, "expire", key);
    call.reply_ok()
}

fn get_set(call: &mut Call, txn: &mut Txn) -> Answer {
    write_value(call, txn)?;
    txn.set(call.db(), call.args.at(1), call.args.at(2), false)?;
    call.notify(Class::STRING, "set", call.args.at(1));
    Ok(Done)
}

fn get_del(call: &mut Call, txn: &mut Txn) -> Answer {
    write_value(call, txn)?;
    if txn.remove(call.db(), call.args.at(1)) {
        call.notify(Class::GENERIC, "del", call.args.at(1));
    }
    Ok(Done)
}

fn get_ex(call: &mut Call, txn: &mut Txn) -> Answer {
    let (mut persists, mut expires) = (false, None);
    let mut next = 2;
    while next < call.args.len() {
        if call.is(next, "persist") && expires.is_none() {
            persists = true;
        } else if let Some(given) = expire_time::option(call, next, expires).filter(|_| !persists) {
            expires = Some(given);
            next += 1;
        } else {
            return Err(SYNTAX);
        }
        next += 1;
    }
    write_value(call, txn)?;
    if call.args.len() == 2 {
        return Ok(Done);
    }
    let (db, key) = (call.db(), call.args.at(1));
    // Without a key it does not matter which time was given.
    let Some(old) = txn.expiry(db, key) else { return Ok(Done) };
    let event = match expires.map(|given| expire_time::time(call, txn, given)).transpose()? {
        Some(at) if txn.has_expired(at) => txn.remove(db, key).then_some("del"),
        Some(at) => txn.set_expiry(db, key, Some(at))?.then_some("expire"),
        None => (old.is_some() && txn.set_expiry(db, key, None)?).then_some("persist"),
    };
    if let Some(event) = event {
        call.notify(Class::GENERIC, event, key);
    }
    Ok(Done)
}

fn mget(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, keys) = (call.db(), call.args.from(1));
    call.out.array(keys.len());
    for key in keys.iter() {
        match txn.string_at(db, key) {
            Ok(Some(value)) => write_part(call, value, 0..value.len()),
            Ok(None) | Err(Error::WrongType) => call.out.null(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Done)
}

fn pairs<'a>(call: &Call<'a>) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>, Stop> {
    let args = call.args;
    if args.len().is_multiple_of(2) {
        return Err(crate::exec::call::wrong_arity(call.command));
    }
    Ok((1..args.len()).step_by(2).map(move |key| (args.at(key), args.at(key + 1))))
}

fn mset(call: &mut Call, txn: &mut Txn) -> Answer {
    let pairs = pairs(call)?;
    txn.set_all(call.db(), pairs.clone())?;
    pairs.for_each(|(key, _)| call.notify(Class::STRING, "set", key));
    call.reply_ok()
}

fn msetnx(call: &mut Call, txn: &mut Txn) -> Answer {
    let db = call.db();
    let pairs = pairs(call)?;
    let missing = pairs.clone().all(|(key, _)| !txn.exists(db, key));
    if missing {
        txn.set_all(db, pairs.clone())?;
        pairs.for_each(|(key, _)| call.notify(Class::STRING, "set", key));
    }
    call.reply_int(missing.into())
}

fn add(call: &mut Call, txn: &mut Txn, by: i64) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let (mut new, mut digits) = (0, itoa::Buffer::new());
    let (result, digits) = (&mut new, &mut digits);
    txn.update(db, key, |old| {
        let old = old.map_or(Some(0), parse_int).ok_or(NOT_INTEGER)?;
        *result = old.checked_add(by).ok_or(Stop::new("ERR increment or decrement would overflow"))?;
        Ok::<_, Stop>(digits.format(*result))
    })?;
    call.notify(Class::STRING, "incrby", key);
    call.reply_int(new)
}

fn incr_by(call: &mut Call, txn: &mut Txn) -> Answer {
    let by = call.int(2)?;
    add(call, txn, by)
}

fn decr_by(call: &mut Call, txn: &mut Txn) -> Answer {
    let by = call.int(2)?.checked_neg().ok_or(Stop::new("ERR decrement would overflow"))?;
    add(call, txn, by)
}

fn incr_by_float(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let by = Extended::parse(call.args.at(2));
    let mut text = String::new();
    txn.update(db, key, |old| {
        let new = match (old.map_or(Ok(Extended::ZERO), Extended::parse), by) {
            (Ok(old), Ok(by)) => old.add(by).map_err(|_| NOT_FINITE)?,
            (Err(NoNumber::Invalid), _) | (_, Err(NoNumber::Invalid)) => return Err(NOT_FLOAT),
            _ => return Err(NOT_FINITE),
        };
        text = new.to_text();
        Ok::<_, Stop>(text.clone())
    })?;
    call.notify(Class::STRING, "incrbyfloat", key);
    call.reply_bulk(text)
}

fn strlen(call: &mut Call, txn: &mut Txn) -> Answer {
    let len = txn.string_at(call.db(), call.args.at(1))?.map_or(0, StringValue::len);
    call.reply_int(len as i64)
}

fn append(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key, tail) = (call.db(), call.args.at(1), call.args.at(2));
    let len = txn.string_append(db, key, tail, call.server().string_max() as usize)?.ok_or(TOO_LONG)?;
    call.notify(Class::STRING, "append", key);
    call.reply_int(len as i64)
}

fn set_range(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key, part) = (call.db(), call.args.at(1), call.args.at(3));
    let offset = call.int(2)?;
    let offset = usize::try_from(offset).map_err(|_| Stop::new("ERR offset is out of range"))?;
    let max = call.server().string_max() as usize;
    let fits = offset.checked_add(part.len()).is_some_and(|end| end <= max);
    if part.is_empty() || !fits {
        let len = txn.string_at(db, key)?.map_or(0, StringValue::len);
        if !part.is_empty() {
            return Err(TOO_LONG);
        }
        call.out.int(len as i64);
        return Ok(Done);
    }
    let len = txn.string_write(db, key, offset, part)?;
    call.notify(Class::STRING, "setrange", key);
    call.reply_int(len as i64)
}

fn get_range(call: &mut Call, txn: &mut Txn) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    match txn.string_at(call.db(), call.args.at(1))? {
        Some(value) => write_part(call, value, range(start, end, value.len())),
        None => call.out.bulk(""),
    }
    Ok(Done)
}

/// The bytes from `start` to `end`, both included and counted from the end if below zero, of a string of `len`.
fn range(start: i64, end: i64, len: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_start = |index: i64| if index < 0 { index.saturating_add(len as i64).max(0) } else { index };
    let (start, end) = (from_start(start), from_start(end).min(len as i64 - 1));
    if len == 0 || start > end { 0..0 } else { start as usize..end as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_string() {
        for ((start, end, len), expected) in [
            ((0, -1, 5), 0..5),
            ((1, 3, 5), 1..4),
            ((-3, -2, 5), 2..4),
            ((-100, 100, 5), 0..5),
            ((3, 1, 5), 0..0),
            ((-1, -3, 5), 0..0),
            ((5, 9, 5), 0..0),
            ((0, 0, 0), 0..0),
            ((-5, -9, 3), 0..0),
            ((-9, -5, 3), 0..1),
            ((i64::MIN, i64::MAX, 2), 0..2),
        ] {
            assert_eq!(range(start, end, len), expected, "{start} {end} {len}");
        }
    }
}
