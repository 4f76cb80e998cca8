//! What commands share that take something from the first key that has it, and those that wait for it.

use crate::{
    command::error::{UNBLOCKED, WRONG_TYPE},
    commands::prelude::*,
    server::mailbox::Wake,
};
use holdfast_resp::parse_double;
use holdfast_store::{Turn, Type};
use std::time::Duration;

/// The queue of those who take elements from a key.
const TAKERS: Turn = Turn::Queued(0);
const NO_TIMEOUT: Stop = Stop::new("ERR timeout is not a float or out of range");
const NEGATIVE_TIMEOUT: Stop = Stop::new("ERR timeout is negative");
const LONG_TIMEOUT: Stop = Stop::new("ERR timeout is out of range");
const NUMKEYS: Stop = Stop::new("ERR numkeys should be greater than 0");
const COUNT: Stop = Stop::new("ERR count should be greater than 0");

impl Call<'_> {
    /// An argument as the time to wait at most: seconds, 0 for ever.
    pub fn timeout(&self, index: usize) -> Result<Option<Duration>, Stop> {
        /// Milliseconds are counted in 63 bits.
        const SECONDS_MAX: f64 = (i64::MAX / 1000) as f64;
        let seconds = parse_double(self.args.at(index)).ok_or(NO_TIMEOUT)?;
        if seconds < 0.0 {
            return Err(NEGATIVE_TIMEOUT);
        }
        if seconds > SECONDS_MAX {
            return Err(LONG_TIMEOUT);
        }
        // However short it is, it is not 0.
        Ok((seconds > 0.0).then(|| Duration::from_millis((1000.0 * seconds).ceil() as u64)))
    }

    /// The first of `keys` that has a value, which must be of type `ty`. Who has waited goes on past other types until
    /// there is such a value.
    pub fn first_of<'k>(
        &self,
        txn: &mut Txn,
        keys: impl Iterator<Item = &'k [u8]>,
        ty: Type,
    ) -> Result<Option<&'k [u8]>, Stop> {
        if self.wake == Wake::Unblocked {
            return Err(UNBLOCKED);
        }
        let db = self.db();
        for key in keys {
            match txn.type_of(db, key) {
                Some(found) if found == ty => return Ok(Some(key)),
                Some(_) if self.wake == Wake::First => return Err(WRONG_TYPE),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits for one of `keys`, in the one queue that there is for those who take elements. If the time is over the reply is a null array, and within EXEC, where nobody waits, what
    /// `at_once` writes.
    pub fn wait_or<'k>(
        &mut self,
        txn: &mut Txn,
        keys: impl Iterator<Item = &'k [u8]>,
        timeout: Option<Duration>,
        at_once: fn(&mut Writer),
    ) -> Answer {
        if self.session.in_exec {
            at_once(&mut self.out);
        } else if self.wake == Wake::Timeout {
            self.out.null_array();
        } else {
            return self.wait_for(txn, keys, TAKERS, timeout);
        }
        Ok(Done)
    }
}

/// BLPOP and the like: `pop` takes an element from the first key that has one, and replies.
pub fn pop(
    call: &mut Call,
    txn: &mut Txn,
    ty: Type,
    pop: impl FnOnce(&mut Call, &mut Txn, &[u8]) -> Result<(), Stop>,
) -> Answer {
    let last = call.args.len() - 1;
    let timeout = call.timeout(last)?;
    let keys = call.args.from(1).iter().take(last - 1);
    let Some(key) = call.first_of(txn, keys.clone(), ty)? else {
        return call.wait_or(txn, keys, timeout, |out| out.null_array());
    };
    pop(call, txn, key).map(|()| Done)
}

/// LMPOP, ZMPOP, and their kind that waits: `[timeout] numkeys key … end [COUNT count]`, where the end is one of `ends`. `pop`
/// takes so many elements from the first key that has some, at the second of the ends or the first, and replies with them.
pub fn multi_pop(
    call: &mut Call,
    txn: &mut Txn,
    waits: bool,
    (ty, ends): (Type, [&str; 2]),
    pop: impl FnOnce(&mut Call, &mut Txn, &[u8], bool, u64) -> Result<(), Stop>,
) -> Answer {
    let wanted = MultiPop::parse(call, if waits { 2 } else { 1 }, ends)?;
    let timeout = if waits { Some(call.timeout(1)?) } else { None };
    match (call.first_of(txn, wanted.keys(), ty)?, timeout) {
        (Some(key), _) => {
            call.out.array(2);
            call.out.bulk(key);
            pop(call, txn, key, wanted.second_end, wanted.count)?;
        }
        (None, Some(timeout)) => return call.wait_or(txn, wanted.keys(), timeout, |out| out.null_array()),
        (None, None) => call.out.null_array(),
    }
    Ok(Done)
}

/// The arguments of such a command.
struct MultiPop<'a> {
    from_first_key: Args<'a>,
    numkeys: usize,
    /// Whether the second of the two words for an end was given.
    second_end: bool,
    /// How many elements to take at most.
    count: u64,
}

impl<'a> MultiPop<'a> {
    /// Reads them; `numkeys` is argument `at`.
    fn parse(call: &Call<'a>, at: usize, ends: [&str; 2]) -> Result<Self, Stop> {
        let numkeys = call.int_from(at, 1, NUMKEYS)?;
        let end_at = at.saturating_add(usize::try_from(numkeys).unwrap_or(usize::MAX)).saturating_add(1);
        if end_at >= call.args.len() {
            return Err(SYNTAX);
        }
        let end = ends.iter().position(|end| call.is(end_at, end)).ok_or(SYNTAX)?;
        let mut count = None;
        let mut option = end_at + 1;
        while option < call.args.len() {
            if count.is_some() || !call.is(option, "count") || option + 1 == call.args.len() {
                return Err(SYNTAX);
            }
            count = Some(call.int_from(option + 1, 1, COUNT)? as u64);
            option += 2;
        }
        Ok(MultiPop {
            from_first_key: call.args.from(at + 1),
            numkeys: numkeys as usize,
            second_end: end == 1,
            count: count.unwrap_or(1),
        })
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.from_first_key.iter().take(self.numkeys)
    }
}
