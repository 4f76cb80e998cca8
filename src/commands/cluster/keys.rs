//! The keys of a slot.

use super::order::{slot, view};
use crate::{
    commands::prelude::*,
    exec::keyspace::{Keyspace, Names},
    session::progress::Progress,
};
use holdfast_resp::parse_int;
use holdfast_store::hash_slot;
use std::time::Duration;

/// Keys whose names are fetched at once.
const STEP: usize = 256;

/// Keys of a slot that are looked at before others of the worker go on.
const LOOKED_MAX: usize = 20_000;

/// What a look at the keys of a slot comes to.
pub enum Looked {
    /// These.
    Found(Vec<Vec<u8>>),
    /// Run again after that.
    Later(Outcome),
}

/// Where a node has its keys. FLUSHALL puts another database in the place of the first.
pub fn data_of(call: &Call) -> u8 {
    call.server().store.database(0)
}

/// Keys of a slot, up to so many.
pub fn keys_in(call: &mut Call, keyspace: &mut Keyspace, slot: u16, count: usize) -> Result<Looked, Stop> {
    let store = &call.server().store;
    let (db, (first, end)) = (data_of(call), store.cursors_of(slot));
    let (mut cursor, mut found) = match call.session.progress.take() {
        Some(Progress::Keys { cursor, found }) => (cursor, found),
        _ => (first, Vec::new()),
    };
    let mut looked = 0;
    while found.len() < count {
        let Ok(step) = keyspace.scan(db, cursor, STEP) else {
            call.session.progress = Some(Progress::Keys { cursor, found });
            return Ok(Looked::Later(Outcome::LockBusy));
        };
        let next = step.next;
        let names = match keyspace.names(step)? {
            Names::Known(names) => names,
            Names::Cold(cold) => {
                call.session.progress = Some(Progress::Keys { cursor, found });
                return Ok(Looked::Later(Fetch(cold)));
            }
        };
        looked += names.len();
        found.extend(names.into_iter().map(|(key, _)| key).filter(|key| hash_slot(key) == slot));
        if next == 0 || next >= end {
            break;
        }
        cursor = next;
        if looked >= LOOKED_MAX && !keyspace.is_locked() {
            call.session.progress = Some(Progress::Keys { cursor, found });
            return Ok(Looked::Later(Outcome::postpone(Duration::ZERO)));
        }
    }
    found.truncate(count);
    Ok(Looked::Found(found))
}

pub fn count_keys_in_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let slot = slot(call, 2).map_err(|_| Stop::new("ERR Invalid slot"))?;
    match keys_in(call, keyspace, slot, usize::MAX)? {
        Looked::Found(keys) => call.reply_int(keys.len() as i64),
        Looked::Later(outcome) => Ok(outcome),
    }
}

pub fn get_keys_in_slot(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    view(call)?;
    let bad = Stop::new("ERR Invalid slot or number of keys");
    let (slot, count) =
        (slot(call, 2), parse_int(call.args.at(3)).and_then(|count| usize::try_from(count).ok()));
    let (Ok(slot), Some(count)) = (slot, count) else { return Err(bad) };
    match keys_in(call, keyspace, slot, count)? {
        Looked::Found(keys) => {
            call.out.array(keys.len());
            keys.iter().for_each(|key| call.out.bulk(key));
            Ok(Done)
        }
        Looked::Later(outcome) => Ok(outcome),
    }
}

pub fn key_slot(call: &mut Call) -> Answer {
    view(call)?;
    let slot = hash_slot(call.args.at(2));
    call.reply_int(slot.into())
}
