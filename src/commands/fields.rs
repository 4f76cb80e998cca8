//! The expiry of a hash's fields: HEXPIRE and its kin, of Redis 7.4.

use crate::commands::prelude::*;
use holdfast_resp::parse_int;
use holdfast_store::hash::{ExpireIf, Expired};

/// The latest time at which a field can expire: Redis's, in milliseconds since 1970.
const TIME_MAX: i64 = 0xFFFF_FFFF_FFFE >> 2;
/// The reply about a field that is not there.
const MISSING: i64 = -2;
/// The reply about a field without an expiry.
const LASTING: i64 = -1;

const ROW: Command = Command {
    categories: Categories::HASH,
    since: "7.4.0",
    group: "hash",
    complexity: "O(N) where N is the number of specified fields",
    ..Command::NEW
};
const EXPIRE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
    ..ROW
};
const TIME: Command = Command {
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    ..ROW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "hexpire",
        syntax: "key seconds:i [condition<NX|XX|GT|LT>] FIELDS=fields(numfields:i field...)",
        summary: "Set expiry for hash field using relative time to expire (seconds).",
        ..EXPIRE
    }
    .by(Keyed(|call, txn| expire(call, txn, SECONDS, From::Now)))
    .using(named),
    Command {
        name: "hexpireat",
        syntax: "key unix-time-seconds:t [condition<NX|XX|GT|LT>] FIELDS=fields(numfields:i field...)",
        summary: "Set expiry for hash field using an absolute Unix timestamp (seconds).",
        ..EXPIRE
    }
    .by(Keyed(|call, txn| expire(call, txn, SECONDS, From::Epoch)))
    .using(named),
    Command {
        name: "hexpiretime",
        syntax: "key FIELDS=fields(numfields:i field...)",
        summary: "Returns the expiration time of a hash field as a Unix timestamp, in seconds.",
        ..TIME
    }
    .by(Keyed(|call, txn| time(call, txn, SECONDS, From::Epoch)))
    .using(named),
    Command {
        name: "hpersist",
        syntax: "key FIELDS=fields(numfields:i field...)",
        flags: Flags::WRITE.and(Flags::FAST),
        keys: EXPIRE.keys,
        summary: "Removes the expiration time for each specified field.",
        ..TIME
    }
    .by(Keyed(persist))
    .using(named),
    Command {
        name: "hpexpire",
        syntax: "key milliseconds:i [condition<NX|XX|GT|LT>] FIELDS=fields(numfields:i field...)",
        summary: "Set expiry for hash field using relative time to expire (milliseconds).",
        ..EXPIRE
    }
    .by(Keyed(|call, txn| expire(call, txn, MILLISECONDS, From::Now)))
    .using(named),
    Command {
        name: "hpexpireat",
        syntax: "key unix-time-milliseconds:t [condition<NX|XX|GT|LT>] FIELDS=fields(numfields:i field...)",
        summary: "Set expiry for hash field using an absolute Unix timestamp (milliseconds).",
        ..EXPIRE
    }
    .by(Keyed(|call, txn| expire(call, txn, MILLISECONDS, From::Epoch)))
    .using(named),
    Command {
        name: "hpexpiretime",
        syntax: "key FIELDS=fields(numfields:i field...)",
        summary: "Returns the expiration time of a hash field as a Unix timestamp, in msec.",
        ..TIME
    }
    .by(Keyed(|call, txn| time(call, txn, MILLISECONDS, From::Epoch)))
    .using(named),
    Command {
        name: "hpttl",
        syntax: "key FIELDS=fields(numfields:i field...)",
        summary: "Returns the TTL in milliseconds of a hash field.",
        ..TIME
    }
    .by(Keyed(|call, txn| time(call, txn, MILLISECONDS, From::Now)))
    .using(named),
    Command {
        name: "httl",
        syntax: "key FIELDS=fields(numfields:i field...)",
        summary: "Returns the TTL in seconds of a hash field.",
        ..TIME
    }
    .by(Keyed(|call, txn| time(call, txn, SECONDS, From::Now)))
    .using(named),
];

/// Units of time, in milliseconds.
const SECONDS: i64 = 1000;
const MILLISECONDS: i64 = 1;

/// Where times are counted from.
#[derive(Clone, Copy)]
enum From {
    Now,
    Epoch,
}

impl From {
    fn ms(self, txn: &Txn) -> i64 {
        match self {
            From::Now => txn.now_ms() as i64,
            From::Epoch => 0,
        }
    }
}

/// The fields that a call names.
fn named(args: Args) -> Vec<Use> {
    let words = args.iter().skip_while(|word| !word.eq_ignore_ascii_case(b"fields"));
    words.skip(2).map(Use::Element).collect()
}

fn expire(call: &mut Call, txn: &mut Txn, unit_ms: i64, from: From) -> Answer {
    // Redis looks at the key's type first.
    txn.hash_at(call.db(), call.args.at(1))?;
    let time = call.int(2)?;
    if time < 0 {
        return Err(Stop::new("ERR invalid expire time, must be >= 0"));
    }
    let from_ms = from.ms(txn);
    let at_ms =
        time.checked_mul(unit_ms).filter(|time| *time <= TIME_MAX - from_ms).ok_or_else(|| {
            Stop::from(format!("ERR invalid expire time in '{}' command", call.command.name))
        })? + from_ms;
    const CONDITIONS: [(&str, ExpireIf); 4] =
        [("nx", ExpireIf::None), ("xx", ExpireIf::Some), ("gt", ExpireIf::Later), ("lt", ExpireIf::Earlier)];
    let condition = CONDITIONS.iter().find(|(word, _)| call.is(3, word)).map(|(_, condition)| *condition);
    let first = 3 + usize::from(condition.is_some());
    let names = names(call, first, "ERR Parameter `numFields` should be greater than 0")?;
    // 0 would be no expiry; it has passed like 1 has.
    let at_ms = at_ms.max(1) as u64;
    change(call, txn, names, at_ms, condition.unwrap_or_default(), |done| match done {
        Expired::Missing => MISSING,
        Expired::Refused => 0,
        Expired::Set => 1,
        Expired::Removed => 2,
    })
}

fn persist(call: &mut Call, txn: &mut Txn) -> Answer {
    txn.hash_at(call.db(), call.args.at(1))?;
    let names = names(call, 2, NOT_POSITIVE)?;
    change(call, txn, names, 0, ExpireIf::Some, |done| match done {
        Expired::Missing | Expired::Removed => MISSING,
        Expired::Refused => LASTING,
        Expired::Set => 1,
    })
}

fn change(
    call: &mut Call,
    txn: &mut Txn,
    names: Args,
    at_ms: u64,
    condition: ExpireIf,
    reply: fn(Expired) -> i64,
) -> Answer {
    call.out.array(names.len());
    let (db, key) = (call.db(), call.args.at(1));
    let (mut set, mut removed) = (false, false);
    let found = txn.hash_expire(db, key, names.iter(), at_ms, condition, |expired| {
        set |= expired == Expired::Set;
        removed |= expired == Expired::Removed;
        call.out.int(reply(expired));
    })?;
    if set {
        call.notify(Class::HASH, if at_ms == 0 { "hpersist" } else { "hexpire" }, key);
    }
    if removed {
        call.notify_taken(txn, Class::HASH, "hdel", key);
    }
    if !found {
        names.iter().for_each(|_| call.out.int(MISSING));
    }
    Ok(Done)
}

fn time(call: &mut Call, txn: &mut Txn, unit_ms: i64, from: From) -> Answer {
    let from_ms = from.ms(txn);
    let hash = txn.hash_at(call.db(), call.args.at(1))?;
    let names = names(call, 2, NOT_POSITIVE)?;
    call.out.array(names.len());
    for name in names.iter() {
        call.out.int(match hash.and_then(|hash| hash.get(name)) {
            None => MISSING,
            Some(field) if field.expires == 0 => LASTING,
            // Rounded up.
            Some(field) => (field.expires as i64 + unit_ms - 1 - from_ms) / unit_ms,
        });
    }
    Ok(Done)
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// The names in `FIELDS count name …`, which begins at an argument and ends the command.
fn names<'a>(call: &Call<'a>, at: usize, not_positive: &'static str) -> Result<Args<'a>, Stop> {
    if !call.is(at, "fields") {
        return Err(Stop::new("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = call.args.get(at + 1).and_then(parse_int).filter(|&count| count > 0);
    let count = count.ok_or(Stop::new(not_positive))?;
    let names = call.args.from(at + 2);
    if names.len() as i64 != count {
        return Err(Stop::new("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(names)
}
