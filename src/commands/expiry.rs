//! When keys expire: EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST.

use crate::commands::{
    expire_time::{ExpireTime, Unit, any_time},
    prelude::*,
};

const ROW: Command = Command { group: "generic", categories: Categories::KEYSPACE, ..Command::NEW };
const SETTING: Command = Command {
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)],
    ..ROW
};
const ASKING: Command = Command {
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    ..ROW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "expire",
        syntax: "key seconds:i [condition@7.0.0<NX|XX|GT|LT>]",
        summary: "Sets the expiration time of a key in seconds.",
        ..SETTING
    }
    .by(Keyed(|call, txn| set(call, txn, ExpireTime::After(Unit::Seconds)))),
    Command {
        name: "expireat",
        syntax: "key unix-time-seconds:t [condition@7.0.0<NX|XX|GT|LT>]",
        since: "1.2.0",
        summary: "Sets the expiration time of a key to a Unix timestamp.",
        ..SETTING
    }
    .by(Keyed(|call, txn| set(call, txn, ExpireTime::At(Unit::Seconds)))),
    Command {
        name: "expiretime",
        syntax: "key",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix timestamp.",
        ..ASKING
    }
    .by(Keyed(|call, txn| ask(call, txn, ExpireTime::At(Unit::Seconds)))),
    Command {
        name: "persist",
        syntax: "key",
        since: "2.2.0",
        summary: "Removes the expiration time of a key.",
        ..SETTING
    }
    .by(Keyed(persist)),
    Command {
        name: "pexpire",
        syntax: "key milliseconds:i [condition@7.0.0<NX|XX|GT|LT>]",
        since: "2.6.0",
        summary: "Sets the expiration time of a key in milliseconds.",
        ..SETTING
    }
    .by(Keyed(|call, txn| set(call, txn, ExpireTime::After(Unit::Milliseconds)))),
    Command {
        name: "pexpireat",
        syntax: "key unix-time-milliseconds:t [condition@7.0.0<NX|XX|GT|LT>]",
        since: "2.6.0",
        summary: "Sets the expiration time of a key to a Unix milliseconds timestamp.",
        ..SETTING
    }
    .by(Keyed(|call, txn| set(call, txn, ExpireTime::At(Unit::Milliseconds)))),
    Command {
        name: "pexpiretime",
        syntax: "key",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix milliseconds timestamp.",
        ..ASKING
    }
    .by(Keyed(|call, txn| ask(call, txn, ExpireTime::At(Unit::Milliseconds)))),
    Command {
        name: "pttl",
        syntax: "key",
        since: "2.6.0",
        summary: "Returns the expiration time in milliseconds of a key.",
        ..ASKING
    }
    .by(Keyed(|call, txn| ask(call, txn, ExpireTime::After(Unit::Milliseconds)))),
    Command {
        name: "ttl",
        syntax: "key",
        summary: "Returns the expiration time in seconds of a key.",
        ..ASKING
    }
    .by(Keyed(|call, txn| ask(call, txn, ExpireTime::After(Unit::Seconds)))),
];

const WITH_NX: Stop = Stop::new("ERR NX and XX, GT or LT options at the same time are not compatible");
const GT_AND_LT: Stop = Stop::new("ERR GT and LT options at the same time are not compatible");

/// On what condition a new expiry is set.
#[derive(Default)]
struct Condition {
    /// There is none.
    nx: bool,
    /// There is one.
    xx: bool,
    /// It is later; no expiry is the latest of all.
    gt: bool,
    /// It is earlier.
    lt: bool,
}

impl Condition {
    fn parse(options: Args) -> Result<Condition, Stop> {
        let mut condition = Condition::default();
        for option in options.iter() {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => condition.nx = true,
                b"xx" => condition.xx = true,
                b"gt" => condition.gt = true,
                b"lt" => condition.lt = true,
                _ => return Err([b"ERR Unsupported option ", option].concat().into()),
            }
        }
        let Condition { nx, xx, gt, lt } = condition;
        if nx && (xx || gt || lt) {
            return Err(WITH_NX);
        }
        if gt && lt {
            return Err(GT_AND_LT);
        }
        Ok(condition)
    }

    fn holds(&self, old: Option<u64>, new: i64) -> bool {
        let new = u64::try_from(new).unwrap_or(0);
        match old {
            None => !self.xx && !self.gt,
            Some(old) => !self.nx && (!self.gt || new > old) && (!self.lt || new < old),
        }
    }
}

fn set(call: &mut Call, txn: &mut Txn, given: ExpireTime) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let condition = Condition::parse(call.args.from(3))?;
    let time = any_time(call, txn, (given, 2))?;
    txn.use_key(db, key);
    let set = txn.expiry(db, key).is_some_and(|old| condition.holds(old, time));
    if set {
        match u64::try_from(time).ok().filter(|&time| !txn.has_expired(time)) {
            Some(time) => {
                txn.set_expiry(db, key, Some(time))?;
                call.notify(Class::GENERIC, "expire", key);
            }
            None => {
                txn.remove(db, key);
                call.notify(Class::GENERIC, "del", key);
            }
        }
    }
    call.reply_int(set.into())
}

fn persist(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    txn.use_key(db, key);
    let expires = txn.expiry(db, key).flatten().is_some();
    if expires {
        txn.set_expiry(db, key, None)?;
        call.notify(Class::GENERIC, "persist", key);
    }
    call.reply_int(expires.into())
}

fn ask(call: &mut Call, txn: &mut Txn, given: ExpireTime) -> Answer {
    let expiry = txn.expiry(call.db(), call.args.at(1));
    let (unit, from) = match given {
        ExpireTime::After(unit) => (unit, txn.now_ms()),
        ExpireTime::At(unit) => (unit, 0),
    };
    call.out.int(match expiry {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let time = at.saturating_sub(from) as i64;
            if unit == Unit::Seconds { (time + 500) / 1000 } else { time }
        }
    });
    Ok(Done)
}
