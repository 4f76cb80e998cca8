//! Looking at streams and groups: XINFO, XPENDING.

use super::{
    arguments::{parse_end, parse_start},
    groups::{no_group, no_key_or_group},
    write_entries, write_entry, write_id,
};
use crate::{commands::prelude::*, exec::call::wrong_subcommand};
use holdfast_store::stream::{Group, Id, Pending, Stream};

const NO_SUCH_KEY: Stop = Stop::new("ERR no such key");
/// Entries of each kind that XINFO STREAM FULL shows unless told otherwise.
const FULL_COUNT: usize = 10;

pub fn help(call: &mut Call) -> Answer {
    call.help(&[
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
    ])
}

fn optional_int(out: &mut Writer, value: Option<i64>) {
    match value {
        Some(value) => out.int(value),
        None => out.null(),
    }
}

/// Writes some of what comes, and their number before.
fn write_some<T>(out: &mut Writer, some: impl Iterator<Item = T>, write: impl Fn(&mut Writer, T)) {
    let place = out.defer();
    let count = some.map(|one| write(out, one)).count();
    out.set_array(place, count);
}

pub fn stream(call: &mut Call, txn: &mut Txn) -> Answer {
    let stream = txn.stream_at(call.db(), call.args.at(2))?.ok_or(NO_SUCH_KEY)?;
    let full = match call.args.len() {
        3 => None,
        4 if call.is(3, "full") => Some(FULL_COUNT),
        6 if call.is(3, "full") && call.is(4, "count") => match call.int(5)? {
            0 => Some(usize::MAX),
            count => Some(usize::try_from(count).unwrap_or(FULL_COUNT)),
        },
        _ => return Err(wrong_subcommand(call.args)),
    };
    let out = &mut call.out;
    out.map(if full.is_some() { 9 } else { 10 });
    let (leaves, inner) = stream.nodes();
    for (name, value) in
        [("length", stream.len()), ("radix-tree-keys", leaves), ("radix-tree-nodes", leaves + inner + 1)]
    {
        out.key(name).int(value as i64);
    }
    write_id(out.key("last-generated-id"), stream.last_id());
    write_id(out.key("max-deleted-entry-id"), stream.max_deleted_id());
    out.key("entries-added").int(stream.entries_added() as i64);
    write_id(out.key("recorded-first-entry-id"), stream.first_entry_id());
    match full {
        Some(count) => {
            write_entries(out.key("entries"), stream.range(Id::MIN, Id::MAX, false).take(count));
            out.bulk("groups");
            let groups = stream.groups();
            out.array(groups.len());
            groups.for_each(|group| write_full_group(out, group, count));
        }
        None => {
            out.key("groups").int(stream.groups().len() as i64);
            write_edge(out, "first-entry", stream, false);
            write_edge(out, "last-entry", stream, true);
        }
    }
    Ok(Done)
}

fn write_edge(out: &mut Writer, name: &str, stream: Stream, last: bool) {
    out.bulk(name);
    match stream.range(Id::MIN, Id::MAX, last).next() {
        Some(entry) => write_entry(out, &entry),
        None => out.null(),
    }
}

fn write_full_group(out: &mut Writer, group: Group, count: usize) {
    out.map(7);
    out.key("name").bulk(group.name());
    write_id(out.key("last-delivered-id"), group.last_id());
    optional_int(out.key("entries-read"), group.entries_read().map(|read| read as i64));
    optional_int(out.key("lag"), group.lag());
    out.key("pel-count").int(group.pending_len() as i64);
    write_some(out.key("pending"), group.pending(Id::MIN).take(count), |out, pending| {
        out.array(4);
        write_id(out, pending.id);
        out.bulk(group.owner(&pending).name());
        write_delivery(out, &pending);
    });
    out.bulk("consumers");
    let consumers = group.consumers();
    out.array(consumers.len());
    for consumer in consumers {
        out.map(5);
        out.key("name").bulk(consumer.name());
        out.key("seen-time").int(consumer.seen_ms() as i64);
        out.key("active-time").int(consumer.active_ms().map_or(-1, |active| active as i64));
        out.key("pel-count").int(consumer.pending_len() as i64);
        write_some(out.key("pending"), consumer.pending(Id::MIN).take(count), |out, pending| {
            out.array(3);
            write_id(out, pending.id);
            write_delivery(out, &pending);
        });
    }
}

fn write_delivery(out: &mut Writer, pending: &Pending) {
    out.int(pending.delivered_ms as i64);
    out.int(pending.deliveries as i64);
}

pub fn groups(call: &mut Call, txn: &mut Txn) -> Answer {
    let stream = txn.stream_at(call.db(), call.args.at(2))?.ok_or(NO_SUCH_KEY)?;
    let (out, groups) = (&mut call.out, stream.groups());
    out.array(groups.len());
    for group in groups {
        out.map(6);
        out.key("name").bulk(group.name());
        out.key("consumers").int(group.consumers().len() as i64);
        out.key("pending").int(group.pending_len() as i64);
        write_id(out.key("last-delivered-id"), group.last_id());
        optional_int(out.key("entries-read"), group.entries_read().map(|read| read as i64));
        optional_int(out.key("lag"), group.lag());
    }
    Ok(Done)
}

pub fn consumers(call: &mut Call, txn: &mut Txn) -> Answer {
    let (key, name) = (call.args.at(2), call.args.at(3));
    let now_ms = txn.now_ms();
    let stream = txn.stream_at(call.db(), key)?.ok_or(NO_SUCH_KEY)?;
    let group = stream.group(name).ok_or_else(|| no_group(key, name))?;
    let (out, consumers) = (&mut call.out, group.consumers());
    out.array(consumers.len());
    for consumer in consumers {
        out.map(4);
        out.key("name").bulk(consumer.name());
        out.key("pending").int(consumer.pending_len() as i64);
        out.key("idle").int(now_ms.saturating_sub(consumer.seen_ms()) as i64);
        out.key("inactive")
            .int(consumer.active_ms().map_or(-1, |active| now_ms.saturating_sub(active) as i64));
    }
    Ok(Done)
}

pub fn xpending(call: &mut Call, txn: &mut Txn) -> Answer {
    let args = call.args;
    if args.len() != 3 && !(6..=9).contains(&args.len()) {
        return Err(SYNTAX);
    }
    let range = if args.len() == 3 { None } else { Some(PendingRange::parse(call)?) };
    let (key, name, now_ms) = (args.at(1), args.at(2), txn.now_ms());
    let group = txn.stream_at(call.db(), key)?.and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_key_or_group(key, name))?;
    let out = &mut call.out;
    match range {
        None => write_summary(out, group),
        Some(range) => match range.consumer.map(|name| group.consumer(name)) {
            None => range.write(out, group, group.pending(range.start), now_ms),
            Some(Some(consumer)) => range.write(out, group, consumer.pending(range.start), now_ms),
            Some(None) => out.array(0),
        },
    }
    Ok(Done)
}

fn write_summary(out: &mut Writer, group: Group) {
    out.array(4);
    out.int(group.pending_len() as i64);
    let (Some(first), Some(last)) = (group.pending(Id::MIN).next(), group.last_pending()) else {
        out.null();
        out.null();
        return out.null_array();
    };
    write_id(out, first.id);
    write_id(out, last.id);
    write_some(out, group.consumers().filter(|consumer| consumer.pending_len() > 0), |out, consumer| {
        out.array(2);
        out.bulk(consumer.name());
        out.bulk_int(consumer.pending_len() as i64);
    });
}

/// Which pending entries XPENDING tells of.
struct PendingRange<'a> {
    idle_min_ms: u64,
    start: Id,
    end: Id,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingRange<'a> {
    fn parse(call: &Call<'a>) -> Result<PendingRange<'a>, Stop> {
        let args = call.args;
        let (mut at, mut idle_min_ms) = (3, 0);
        if call.is(3, "idle") {
            idle_min_ms = u64::try_from(call.int(4)?).unwrap_or(0);
            at = 5;
            if args.len() < 8 {
                return Err(SYNTAX);
            }
        }
        let count = usize::try_from(call.int(at + 2)?).unwrap_or(0);
        let (start, end) = (parse_start(args.at(at))?, parse_end(args.at(at + 1))?);
        Ok(PendingRange { idle_min_ms, start, end, count, consumer: args.get(at + 3) })
    }

    fn write(&self, out: &mut Writer, group: Group, from_start: impl Iterator<Item = Pending>, now_ms: u64) {
        let idle = |pending: &Pending| now_ms.saturating_sub(pending.delivered_ms);
        let wanted = from_start
            .take_while(|pending| pending.id <= self.end)
            .filter(|pending| idle(pending) >= self.idle_min_ms)
            .take(self.count);
        write_some(out, wanted, |out, pending| {
            out.array(4);
            write_id(out, pending.id);
            out.bulk(group.owner(&pending).name());
            out.int(idle(&pending) as i64);
            out.int(pending.deliveries as i64);
        });
    }
}
