//! XREAD and XREADGROUP: reading several streams, and waiting for what comes to them.
//!
//! Who waits in XREAD is told of every entry; of those who wait in XREADGROUP for the same group, one after the other is.

use super::{arguments::parse_id, groups::notify_consumer, write_entries, write_entry, write_id};
use crate::{
    command::error::{NOT_INTEGER, UNBLOCKED},
    commands::prelude::*,
    server::mailbox::Wake,
    session::progress::Progress,
};
use holdfast_resp::{Proto, parse_int};
use holdfast_store::{
    Error, Turn, Type,
    stream::{Delivered, Id, Stream},
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

const BAD_TIMEOUT: Stop = Stop::new("ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: Stop = Stop::new("ERR timeout is negative");
const GROUP_IN_XREAD: Stop =
    Stop::new("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
const NOACK_IN_XREAD: Stop =
    Stop::new("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
const NO_GROUP: Stop = Stop::new("ERR Missing GROUP option for XREADGROUP");
const LAST_IN_GROUP: &str = "ERR The {} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The {} ID would just return an empty result set.";
const NEW_WITHOUT_GROUP: Stop = Stop::new(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);
const NOTHING_BEFORE: Stop = Stop::new("ERR the stream last element ID is 0-0");

/// The arguments of XREAD and XREADGROUP.
struct Read<'a> {
    /// How long to wait, if at all; `Some(None)`: for ever.
    block: Option<Option<Duration>>,
    /// Entries of each stream at most.
    count: u64,
    /// The group and the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    no_ack: bool,
    /// The keys, and behind them as many IDs.
    streams: Args<'a>,
}

impl<'a> Read<'a> {
    fn parse(call: &Call<'a>, in_group: bool) -> Result<Read<'a>, Stop> {
        let args = call.args;
        let mut read =
            Read { block: None, count: u64::MAX, group: None, no_ack: false, streams: args.from(args.len()) };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if call.is(at, "block") && more >= 1 {
                let ms = parse_int(args.at(at + 1)).ok_or(BAD_TIMEOUT)?;
                let ms = u64::try_from(ms).map_err(|_| NEGATIVE_TIMEOUT)?;
                read.block = Some(Some(Duration::from_millis(ms)).filter(|timeout| !timeout.is_zero()));
                at += 2;
            } else if call.is(at, "count") && more >= 1 {
                let count = parse_int(args.at(at + 1)).ok_or(NOT_INTEGER)?;
                read.count = if count > 0 { count as u64 } else { u64::MAX };
                at += 2;
            } else if call.is(at, "streams") && more >= 1 {
                read.streams = args.from(at + 1);
                break;
            } else if call.is(at, "group") && more >= 2 {
                if !in_group {
                    return Err(GROUP_IN_XREAD);
                }
                read.group = Some((args.at(at + 1), args.at(at + 2)));
                at += 3;
            } else if call.is(at, "noack") {
                if !in_group {
                    return Err(NOACK_IN_XREAD);
                }
                read.no_ack = true;
                at += 1;
            } else {
                return Err(SYNTAX);
            }
        }
        if read.streams.len() % 2 == 1 {
            let (name, symbol) = (call.command.name, if in_group { '>' } else { '$' });
            return Err(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
            )
            .into());
        }
        if read.streams.is_empty() {
            return Err(SYNTAX);
        }
        Ok(read)
    }

    fn len(&self) -> usize {
        self.streams.len() / 2
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.streams.iter().take(self.len())
    }

    fn ids(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.streams.iter().skip(self.len())
    }

    /// Waits, or replies that there is nothing.
    fn wait(&self, call: &mut Call, txn: &mut Txn, turn: Turn) -> Answer {
        match self.block {
            Some(timeout) if !call.session.in_exec && call.wake != Wake::Timeout => {
                call.wait_for(txn, self.keys(), turn, timeout)
            }
            _ => {
                call.out.null_array();
                Ok(Done)
            }
        }
    }
}

/// Writes the header of the reply about so many streams.
fn write_header(out: &mut Writer, streams: usize) {
    match out.proto() {
        Proto::Resp2 => out.array(streams),
        Proto::Resp3 => out.map(streams),
    }
}

/// Writes the key of a stream, whose entries follow.
fn write_key(out: &mut Writer, key: &[u8]) {
    if out.proto() == Proto::Resp2 {
        out.array(2);
    }
    out.bulk(key);
}

/// The stream at a key. Who has waited waits on when another type comes to the key.
fn stream_at<'t>(call: &Call, txn: &'t mut Txn, key: &[u8]) -> Result<Option<Stream<'t>>, Stop> {
    match txn.stream_at(call.db(), key) {
        Err(Error::WrongType) if call.wake != Wake::First => Ok(None),
        found => Ok(found?),
    }
}

pub fn xread(call: &mut Call, txn: &mut Txn) -> Answer {
    let read = Read::parse(call, false)?;
    let waited = match &call.session.progress {
        Some(Progress::Read(after)) if call.wake != Wake::First => Some(after.clone()),
        _ => None,
    };
    if call.wake == Wake::Unblocked {
        return Err(UNBLOCKED);
    }
    let mut after = Vec::with_capacity(read.len());
    let mut ready = 0;
    for (at, (key, id)) in read.keys().zip(read.ids()).enumerate() {
        let stream = stream_at(call, txn, key)?;
        let id = match (&waited, id) {
            // What the last entry is may have changed, but not which one was the last when the command came.
            (Some(waited), b"$") => waited[at],
            _ => id_to_read_after(stream, id)?,
        };
        ready += usize::from(stream.is_some_and(|stream| stream.last_entry_id() > id));
        after.push(id);
    }
    if ready == 0 {
        let answer = read.wait(call, txn, Turn::Always)?;
        if matches!(answer, Outcome::Wait(_)) {
            call.session.progress = Some(Progress::Read(after));
        }
        return Ok(answer);
    }
    write_header(&mut call.out, ready);
    for (key, after) in read.keys().zip(after) {
        let stream = stream_at(call, txn, key)?.filter(|stream| stream.last_entry_id() > after);
        let Some((stream, from)) = stream.zip(after.next()) else { continue };
        write_key(&mut call.out, key);
        let count = usize::try_from(read.count).unwrap_or(usize::MAX);
        write_entries(&mut call.out, stream.range(from, Id::MAX, false).take(count));
    }
    Ok(Done)
}

fn id_to_read_after(stream: Option<Stream>, id: &[u8]) -> Result<Id, Stop> {
    let last = stream.map(|stream| stream.last_id());
    match id {
        b"$" => Ok(last.unwrap_or(Id::MIN)),
        b"+" => match last {
            Some(last) => last.previous().ok_or(NOTHING_BEFORE),
            None => Ok(Id::MIN),
        },
        b">" => Err(NEW_WITHOUT_GROUP),
        id => parse_id(id, 0),
    }
}

pub fn xreadgroup(call: &mut Call, txn: &mut Txn) -> Answer {
    let read = Read::parse(call, true)?;
    let (group, consumer) = read.group.ok_or(NO_GROUP)?;
    if call.wake == Wake::Unblocked {
        return Err(UNBLOCKED);
    }
    let db = call.db();
    let mut from = Vec::with_capacity(read.len());
    for (key, id) in read.keys().zip(read.ids()) {
        if txn.stream_at(db, key)?.and_then(|stream| stream.group(group)).is_none() {
            return Err([
                b"NOGROUP No such key '",
                key,
                b"' or consumer group '",
                group,
                b"' in XREADGROUP with GROUP option",
            ]
            .concat()
            .into());
        }
        from.push(match id {
            b">" => None,
            b"$" => return Err(LAST_IN_GROUP.replace("{}", "$").into()),
            b"+" => return Err(LAST_IN_GROUP.replace("{}", "+").into()),
            // Redis takes the greatest ID for what is new, too.
            id => parse_id(id, 0)?.next(),
        });
    }
    for key in read.keys() {
        txn.warm(db, key, Type::Stream)?;
    }
    let place = call.out.defer();
    let mut streams = 0;
    for (key, from) in read.keys().zip(from) {
        let out = &mut call.out;
        let got = match from {
            None => read_new(out, txn, db, key, &read, (group, consumer))?,
            Some(from) => read_pending(out, txn, db, key, &read, (group, consumer), from)?,
        };
        streams += usize::from(got.entries > 0 || from.is_some());
        notify_consumer(call, key, got.is_new);
    }
    if streams == 0 {
        let mut hasher = DefaultHasher::new();
        group.hash(&mut hasher);
        return read.wait(call, txn, Turn::Queued(hasher.finish()));
    }
    match call.out.proto() {
        Proto::Resp2 => call.out.set_array(place, streams),
        Proto::Resp3 => call.out.set_map(place, streams),
    }
    Ok(Done)
}

/// Writes what is new to a group; nothing if nothing is.
fn read_new(
    out: &mut Writer,
    txn: &mut Txn,
    db: u8,
    key: &[u8],
    read: &Read,
    (group, consumer): (&[u8], &[u8]),
) -> Result<Delivered, Stop> {
    let start = out.defer();
    write_key(out, key);
    let place = out.defer();
    let got = txn.stream_read_new(db, key, group, consumer, read.count, read.no_ack, |entry| {
        write_entry(out, &entry);
    })?;
    let got = got.unwrap_or_default();
    if got.entries == 0 {
        out.rewind(start);
    } else {
        out.set_array(place, got.entries as usize);
    }
    Ok(got)
}

/// Writes what is pending for a consumer.
fn read_pending(
    out: &mut Writer,
    txn: &mut Txn,
    db: u8,
    key: &[u8],
    read: &Read,
    (group, consumer): (&[u8], &[u8]),
    from: Id,
) -> Result<Delivered, Stop> {
    write_key(out, key);
    let place = out.defer();
    let got =
        txn.stream_read_pending(db, key, group, consumer, from, read.count, |id, entry| match entry {
            Some(entry) => write_entry(out, &entry),
            None => {
                out.array(2);
                write_id(out, id);
                out.null_array();
            }
        })?;
    let got = got.unwrap_or_default();
    out.set_array(place, got.entries as usize);
    Ok(got)
}
