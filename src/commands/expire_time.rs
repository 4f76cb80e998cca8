//! Times at which keys expire, as commands give them.

use crate::{command::error::NOT_INTEGER, commands::prelude::*};
use holdfast_resp::parse_int;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// When a key expires, counted from now or from the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireTime {
    /// From now on.
    After(Unit),
    /// Since 1970.
    At(Unit),
}

/// How a time is given, and at which argument.
pub type Given = (ExpireTime, usize);

/// The time that the option at argument `index` says, EX, PX, EXAT or PXAT: it is the next argument. `None` if it is another option, or
/// the time is missing, or one was given `before` in another way; in the same way it may be given again, and the last one counts.
pub fn option(call: &Call, index: usize, before: Option<Given>) -> Option<Given> {
    const OPTIONS: [(&str, ExpireTime); 4] = [
        ("ex", ExpireTime::After(Unit::Seconds)),
        ("px", ExpireTime::After(Unit::Milliseconds)),
        ("exat", ExpireTime::At(Unit::Seconds)),
        ("pxat", ExpireTime::At(Unit::Milliseconds)),
    ];
    let (_, how) = OPTIONS.iter().find(|(word, _)| call.is(index, word))?;
    let may_follow = before.is_none_or(|(before, _)| before == *how) && index + 1 < call.args.len();
    may_follow.then_some((*how, index + 1))
}

/// A time, which must be above zero, as Unix time in milliseconds.
pub fn time(call: &Call, txn: &Txn, given: Given) -> Result<u64, Stop> {
    if parse_int(call.args.at(given.1)).is_some_and(|number| number <= 0) {
        return Err(invalid(call));
    }
    Ok(any_time(call, txn, given)? as u64)
}

/// A time, which may be past, as Unix time in milliseconds.
pub fn any_time(call: &Call, txn: &Txn, (how, index): Given) -> Result<i64, Stop> {
    let number = parse_int(call.args.at(index)).ok_or(NOT_INTEGER)?;
    let (unit, from) = match how {
        ExpireTime::After(unit) => (unit, txn.now_ms() as i64),
        ExpireTime::At(unit) => (unit, 0),
    };
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    number.checked_mul(factor).and_then(|ms| ms.checked_add(from)).ok_or_else(|| invalid(call))
}

fn invalid(call: &Call) -> Stop {
    format!("ERR invalid expire time in '{}' command", call.command.name).into()
}
