//! Taking members from an end, or waiting for them.

use crate::{
    command::error::NOT_POSITIVE,
    commands::{blocking, prelude::*},
};
use holdfast_resp::Proto;
use holdfast_store::Type;

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
    blocking::pop(call, txn, Type::Zset, |call, txn, key| {
        call.out.array(3);
        call.out.bulk(key);
        txn.zset_pop(call.db(), key, highest, 1, |member, score| {
            call.out.bulk(member);
            call.out.double(score);
        })?;
        call.notify_taken(txn, Class::ZSET, popped(highest), key);
        Ok(())
    })
}

/// ZMPOP, BZMPOP.
pub fn multi_pop(call: &mut Call, txn: &mut Txn, waits: bool) -> Answer {
    blocking::multi_pop(call, txn, waits, (Type::Zset, ["min", "max"]), |call, txn, key, highest, count| {
        let db = call.db();
        let len = txn.zset_at(db, key)?.map_or(0, |zset| zset.len());
        call.out.array(count.min(len) as usize);
        txn.zset_pop(db, key, highest, count, |member, score| {
            call.out.array(2);
            call.out.bulk(member);
            call.out.double(score);
        })?;
        call.notify_taken(txn, Class::ZSET, popped(highest), key);
        Ok(())
    })
}
