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

pub use ExpireTime::After;

/// The option at argument `index` that says how a time, the next argument, is given: EX, PX, EXAT, PXAT. `None` if it is
/// another one, or the time is missing.
pub fn option(call: &Call, index: usize) -> Option<ExpireTime> {
    const OPTIONS: [(&str, ExpireTime); 4] = [
        ("ex", ExpireTime::After(Unit::Seconds)),
        ("px", ExpireTime::After(Unit::Milliseconds)),
        ("exat", ExpireTime::At(Unit::Seconds)),
        ("pxat", ExpireTime::At(Unit::Milliseconds)),
    ];
    let found = OPTIONS.iter().find(|(word, _)| call.is(index, word));
    found.filter(|_| index + 1 < call.args.len()).map(|(_, given)| *given)
}

/// The time at argument `index`, which must be above zero, as Unix time in milliseconds.
pub fn time(call: &Call, txn: &Txn, given: ExpireTime, index: usize) -> Result<u64, Stop> {
    if parse_int(call.args.at(index)).is_some_and(|number| number <= 0) {
        return Err(invalid(call));
    }
    Ok(any_time(call, txn, given, index)? as u64)
}

/// The time at argument `index`, which may be past, as Unix time in milliseconds.
pub fn any_time(call: &Call, txn: &Txn, given: ExpireTime, index: usize) -> Result<i64, Stop> {
    let number = parse_int(call.args.at(index)).ok_or(NOT_INTEGER)?;
    let (unit, from) = match given {
        ExpireTime::After(unit) => (unit, txn.now_ms() as i64),
        ExpireTime::At(unit) => (unit, 0),
    };
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    number.checked_mul(factor).and_then(|ms| ms.checked_add(from)).ok_or_else(|| invalid(call))
}

fn invalid(call: &Call) -> Stop {
    format!("ERR invalid expire time in '{}' command", call.command.name).into()
}
