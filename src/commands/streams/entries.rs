//! The entries of a stream: XADD, XDEL, XLEN, XRANGE, XREVRANGE, XSETID, XTRIM.

use super::{
    arguments::{Adding, parse_end, parse_id, parse_ids, parse_start},
    write_entries, write_id,
};
use crate::commands::prelude::*;
use holdfast_store::stream::{Id, NewId, Refused};

const NO_SUCH_KEY: Stop = Stop::new("ERR no such key");
const ZERO_ID: Stop = Stop::new("ERR The ID specified in XADD must be greater than 0-0");
const EXHAUSTED: Stop =
    Stop::new("ERR The stream has exhausted the last possible ID, unable to add more items");
const NOT_GREATER: Stop =
    Stop::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const TOO_LARGE: Stop = Stop::new("ERR Elements are too large to be stored");
const NEGATIVE_ADDED: Stop = Stop::new("ERR entries_added must be positive");
const BELOW_GIVEN_DELETED: Stop =
    Stop::new("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
const BELOW_DELETED: Stop =
    Stop::new("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
const BELOW_TOP: Stop =
    Stop::new("ERR The ID specified in XSETID is smaller than the target stream top item");
const ADDED_BELOW_LEN: Stop =
    Stop::new("ERR The entries_added specified in XSETID is smaller than the target stream length");

pub fn xadd(call: &mut Call, txn: &mut Txn) -> Answer {
    let adding = Adding::parse(call, true)?;
    let fields = call.args.from(adding.fields_at);
    if fields.is_empty() || fields.len() % 2 == 1 {
        return Err(wrong_arity(call.command));
    }
    if adding.id == NewId::Exactly(Id::MIN) {
        return Err(ZERO_ID);
    }
    let names = fields.iter().step_by(2);
    let pairs = names.zip(fields.from(1).iter().step_by(2));
    let (db, key) = (call.db(), call.args.at(1));
    match txn.stream_add(db, key, adding.id, pairs, adding.trim.as_ref(), adding.create)? {
        None => call.out.null(),
        Some(Ok(added)) => {
            write_id(&mut call.out, added.id);
            call.notify(Class::STREAM, "xadd", key);
            if added.trimmed > 0 {
                call.notify(Class::STREAM, "xtrim", key);
            }
        }
        Some(Err(Refused::Exhausted)) => return Err(EXHAUSTED),
        Some(Err(Refused::NotGreater)) => return Err(NOT_GREATER),
        Some(Err(Refused::TooLarge)) => return Err(TOO_LARGE),
    }
    Ok(Done)
}

pub fn xlen(call: &mut Call, txn: &mut Txn) -> Answer {
    let len = txn.stream_at(call.db(), call.args.at(1))?.map_or(0, |stream| stream.len());
    call.reply_int(len as i64)
}

/// XRANGE, XREVRANGE.
pub fn range(call: &mut Call, txn: &mut Txn, reverse: bool) -> Answer {
    let (start_at, end_at) = if reverse { (3, 2) } else { (2, 3) };
    let start = parse_start(call.args.at(start_at))?;
    let end = parse_end(call.args.at(end_at))?;
    let mut count = usize::MAX;
    let mut option = 4;
    while option < call.args.len() {
        if !call.is(option, "count") || option + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        count = usize::try_from(call.int(option + 1)?).unwrap_or(0);
        option += 2;
    }
    match txn.stream_at(call.db(), call.args.at(1))? {
        None => call.out.array(0),
        Some(_) if count == 0 => call.out.null_array(),
        Some(stream) => write_entries(&mut call.out, stream.range(start, end, reverse).take(count)),
    }
    Ok(Done)
}

pub fn xdel(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if txn.stream_at(db, key)?.is_none() {
        call.out.int(0);
        return Ok(Done);
    }
    let ids = parse_ids(call.args.from(2))?;
    let deleted = txn.stream_delete(db, key, &ids)?;
    if deleted > 0 {
        call.notify(Class::STREAM, "xdel", key);
    }
    call.reply_int(deleted as i64)
}

pub fn xtrim(call: &mut Call, txn: &mut Txn) -> Answer {
    let trim = Adding::parse(call, false)?.trim.ok_or(SYNTAX)?;
    let key = call.args.at(1);
    let trimmed = txn.stream_trim(call.db(), key, &trim)?;
    if trimmed > 0 {
        call.notify(Class::STREAM, "xtrim", key);
    }
    call.reply_int(trimmed as i64)
}

pub fn xsetid(call: &mut Call, txn: &mut Txn) -> Answer {
    let id = parse_id(call.args.at(2), 0)?;
    let (mut added, mut deleted_max) = (None, None);
    let mut option = 3;
    while option < call.args.len() {
        if option + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        if call.is(option, "entriesadded") {
            added = Some(u64::try_from(call.int(option + 1)?).map_err(|_| NEGATIVE_ADDED)?);
        } else if call.is(option, "maxdeletedid") {
            let max = parse_id(call.args.at(option + 1), 0)?;
            if id < max {
                return Err(BELOW_GIVEN_DELETED);
            }
            deleted_max = Some(max).filter(|&max| max != Id::MIN);
        } else {
            return Err(SYNTAX);
        }
        option += 2;
    }
    let (db, key) = (call.db(), call.args.at(1));
    let stream = txn.stream_at(db, key)?.ok_or(NO_SUCH_KEY)?;
    if id < stream.max_deleted_id() {
        return Err(BELOW_DELETED);
    }
    if id < stream.last_entry_id() {
        return Err(BELOW_TOP);
    }
    if added.is_some_and(|added| added < stream.len()) {
        return Err(ADDED_BELOW_LEN);
    }
    txn.stream_set_ids(db, key, id, added, deleted_max)?;
    call.notify(Class::STREAM, "xsetid", key);
    call.reply_ok()
}
