//! Pending entries that go to another consumer: XCLAIM, XAUTOCLAIM.

use super::{
    arguments::{AUTO_COUNT, parse_id, parse_start},
    groups::{no_key_or_group, notify_consumer},
    write_entry, write_id,
};
use crate::commands::prelude::*;
use holdfast_resp::parse_int;
use holdfast_store::stream::{Claim, Entry, Id};

const BAD_IDLE_MIN: Stop = Stop::new("ERR Invalid min-idle-time argument for XCLAIM");
const BAD_AUTO_IDLE_MIN: Stop = Stop::new("ERR Invalid min-idle-time argument for XAUTOCLAIM");
const BAD_IDLE: Stop = Stop::new("ERR Invalid IDLE option argument for XCLAIM");
const BAD_TIME: Stop = Stop::new("ERR Invalid TIME option argument for XCLAIM");
const BAD_RETRYCOUNT: Stop = Stop::new("ERR Invalid RETRYCOUNT option argument for XCLAIM");
const BAD_COUNT: Stop = Stop::new("ERR COUNT must be > 0");

/// The most that it can be told.
const AUTO_COUNT_MAX: i64 = i64::MAX / 16;

/// Argument `index` as the time, in milliseconds, that an entry must have been pending; below zero is none.
fn idle_min_ms(call: &Call, index: usize, error: Stop) -> Result<u64, Stop> {
    let idle = parse_int(call.args.at(index)).ok_or(error)?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

fn expect_group(call: &Call, txn: &mut Txn) -> Result<(), Stop> {
    let (key, group) = (call.args.at(1), call.args.at(2));
    let found = txn.stream_at(call.db(), key)?.and_then(|stream| stream.group(group));
    found.map(drop).ok_or_else(|| no_key_or_group(key, group))
}

fn write_claimed(out: &mut Writer, entry: &Entry, just_id: bool) {
    if just_id {
        write_id(out, entry.id);
    } else {
        write_entry(out, entry);
    }
}

pub fn xclaim(call: &mut Call, txn: &mut Txn) -> Answer {
    expect_group(call, txn)?;
    let args = call.args;
    let now_ms = txn.now_ms();
    let idle_min_ms = idle_min_ms(call, 4, BAD_IDLE_MIN)?;
    let mut claim = Claim { idle_min_ms, delivered_ms: now_ms, ..Claim::default() };
    // The first argument that is no ID begins the options.
    let ids: Vec<Id> = args.from(5).iter().map_while(|arg| parse_id(arg, 0).ok()).collect();
    let mut last = Id::MIN;
    // A time that is not in the past is as good as none.
    let past =
        |time: Option<i64>| time.and_then(|time| u64::try_from(time).ok()).filter(|&time| time <= now_ms);
    let mut option = 5 + ids.len();
    while option < args.len() {
        let value = args.get(option + 1);
        let number = |error: Stop| value.and_then(parse_int).ok_or(error);
        match () {
            () if call.is(option, "force") => claim.force = true,
            () if call.is(option, "justid") => claim.keep_deliveries = true,
            () if value.is_none() => return Err(unrecognized(args.at(option))),
            () => {
                if call.is(option, "idle") {
                    let delivered = (now_ms as i64).checked_sub(number(BAD_IDLE)?);
                    claim.delivered_ms = past(delivered).unwrap_or(now_ms);
                } else if call.is(option, "time") {
                    claim.delivered_ms = past(Some(number(BAD_TIME)?)).unwrap_or(now_ms);
                } else if call.is(option, "retrycount") {
                    claim.deliveries = u64::try_from(number(BAD_RETRYCOUNT)?).ok();
                } else if call.is(option, "lastid") {
                    last = parse_id(value.unwrap_or_default(), 0)?;
                } else {
                    return Err(unrecognized(args.at(option)));
                }
                option += 1;
            }
        }
        option += 1;
    }
    let (db, out) = (call.db(), &mut call.out);
    let place = out.defer();
    let just_id = claim.keep_deliveries;
    let got = txn.stream_claim(db, args.at(1), args.at(2), args.at(3), &claim, last, &ids, |entry| {
        write_claimed(out, &entry, just_id);
    })?;
    let got = got.unwrap_or_default();
    out.set_array(place, got.entries as usize);
    notify_consumer(call, args.at(1), got.is_new);
    Ok(Done)
}

fn unrecognized(option: &[u8]) -> Stop {
    [b"ERR Unrecognized XCLAIM option '", option, b"'"].concat().into()
}

pub fn xautoclaim(call: &mut Call, txn: &mut Txn) -> Answer {
    let args = call.args;
    let idle_min_ms = idle_min_ms(call, 4, BAD_AUTO_IDLE_MIN)?;
    let start = parse_start(args.at(5))?;
    let (mut count, mut just_id) = (AUTO_COUNT, false);
    let mut option = 6;
    while option < args.len() {
        if call.is(option, "count") && option + 1 < args.len() {
            let number = call.int_from(option + 1, 1, BAD_COUNT)?;
            if number > AUTO_COUNT_MAX {
                return Err(BAD_COUNT);
            }
            count = number as u64;
            option += 2;
        } else if call.is(option, "justid") {
            just_id = true;
            option += 1;
        } else {
            return Err(SYNTAX);
        }
    }
    expect_group(call, txn)?;
    let delivered_ms = txn.now_ms();
    let claim = Claim { idle_min_ms, delivered_ms, keep_deliveries: just_id, ..Claim::default() };
    let (db, out) = (call.db(), &mut call.out);
    let place = out.defer();
    let done =
        txn.stream_autoclaim(db, args.at(1), args.at(2), args.at(3), &claim, start, count, |entry| {
            write_claimed(out, &entry, just_id);
        })?;
    let done = done.unwrap_or_default();
    out.set_array(place, done.delivered.entries as usize);
    // What is before it in the reply is known only now.
    out.set_id(place, done.next.ms, done.next.seq);
    out.set_array(place, 3);
    out.array(done.gone.len());
    done.gone.iter().for_each(|&id| write_id(out, id));
    notify_consumer(call, args.at(1), done.delivered.is_new);
    Ok(Done)
}
