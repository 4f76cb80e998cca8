//! Taking members from an end, or waiting for them.

use crate::{
    command::error::{NOT_POSITIVE, SYNTAX, Stop},
    commands::blocking::MultiPop,
    exec::{
        answer::{Answer, Outcome::*},
        call::Call,
    },
    push::notify::Class,
};
use holdfast_resp::Proto;
use holdfast_store::{Txn, Type};

/// ZPOPMIN, ZPOPMAX.
pub fn pop(call: &mut Call, txn: &mut Txn, highest: bool) -> Answer {
    let counted = call.args.len() == 3;
    let count = match call.args.len() {
        2 => 1,
        3 => call.int_from(2, 0, NOT_POSITIVE)? as u64,
        _ => return Err(SYNTAX),
    };
    let (db, key) = (call.db(), call.args.at(1));
    let len = txn.zset_at(db, key)?.map_or(0, |zset| zset.len());
    let shown = count.min(len) as usize;
    let nested = counted && call.out.proto() == Proto::Resp3;
    call.out.array(if nested { shown } else { 2 * shown });
    let taken = txn.zset_pop(db, key, highest, count, |member, score| {
        if nested {
            call.out.array(2);
        }
        call.out.bulk(member);
        call.out.double(score);
    })?;
    if taken > 0 {
        call.notify_taken(txn, Class::ZSET, popped(highest), key);
    }
    Ok(Done)
}

/// The event of removing from an end.
fn popped(highest: bool) -> &'static str {
    if highest { "zpopmax" } else { "zpopmin" }
}

/// BZPOPMIN, BZPOPMAX.
pub fn blocking_pop(call: &mut Call, txn: &mut Txn, highest: bool) -> Answer {
    let last = call.args.len() - 1;
    let timeout = call.timeout(last)?;
    let keys = call.args.from(1).iter().take(last - 1);
    let Some(key) = call.first_of(txn, keys.clone(), Type::Zset)? else {
        return call.wait_or(txn, keys, timeout, |out| out.null_array());
    };
    call.out.array(3);
    call.out.bulk(key);
    txn.zset_pop(call.db(), key, highest, 1, |member, score| {
        call.out.bulk(member);
        call.out.double(score);
    })?;
    call.notify_taken(txn, Class::ZSET, popped(highest), key);
    Ok(Done)
}

pub fn zmpop(call: &mut Call, txn: &mut Txn) -> Answer {
    let pop = MultiPop::parse(call, 1, ["min", "max"])?;
    if !pop_from_first(call, txn, &pop)? {
        call.out.null_array();
    }
    Ok(Done)
}

pub fn bzmpop(call: &mut Call, txn: &mut Txn) -> Answer {
    let pop = MultiPop::parse(call, 2, ["min", "max"])?;
    let timeout = call.timeout(1)?;
    if pop_from_first(call, txn, &pop)? {
        return Ok(Done);
    }
    call.wait_or(txn, pop.keys(), timeout, |out| out.null_array())
}

fn pop_from_first(call: &mut Call, txn: &mut Txn, pop: &MultiPop) -> Result<bool, Stop> {
    let db = call.db();
    let Some(key) = call.first_of(txn, pop.keys(), Type::Zset)? else { return Ok(false) };
    let Some(len) = txn.zset_at(db, key)?.map(|zset| zset.len()) else { return Ok(false) };
    call.out.array(2);
    call.out.bulk(key);
    call.out.array(pop.count.min(len) as usize);
    txn.zset_pop(db, key, pop.second_end, pop.count, |member, score| {
        call.out.array(2);
        call.out.bulk(member);
        call.out.double(score);
    })?;
    call.notify_taken(txn, Class::ZSET, popped(pop.second_end), key);
    Ok(true)
}
