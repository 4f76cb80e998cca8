//! The keys of a database as a whole: DBSIZE, FLUSHALL, FLUSHDB, KEYS, RANDOMKEY, SCAN, SWAPDB.

use crate::{
    command::error::NO_DATABASE,
    commands::{prelude::*, scan},
    config::Opt,
    exec::{
        keyspace::{Keyspace, Name, Names},
        turn::Notification,
    },
    session::progress::Progress,
    util::glob,
};
use holdfast_resp::parse_int;
use holdfast_store::{DATABASES, Fetched, Type};
use std::{ops::Range, time::Duration};

const ROW: Command = Command { categories: Categories::KEYSPACE, ..Command::NEW };
const DANGEROUS: Categories = Categories::KEYSPACE.and(Categories::DANGEROUS);

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "dbsize",
        group: "server",
        flags: Flags::READONLY.and(Flags::FAST),
        summary: "Returns the number of keys in the database.",
        ..ROW
    }
    .by(Browsing(dbsize)),
    Command {
        name: "flushall",
        syntax: "[flush-type<ASYNC@4.0.0|SYNC@6.2.0>]",
        group: "server",
        flags: Flags::WRITE,
        categories: DANGEROUS,
        summary: "Removes all keys from all databases.",
        complexity: "O(1); then what was there is freed in the background",
        ..ROW
    }
    .by(Whole(flushall)),
    Command {
        name: "flushdb",
        syntax: "[flush-type<ASYNC@4.0.0|SYNC@6.2.0>]",
        group: "server",
        flags: Flags::WRITE,
        categories: DANGEROUS,
        summary: "Remove all keys from the current database.",
        complexity: "O(1); then what was there is freed in the background",
        ..ROW
    }
    .by(Whole(flushdb)),
    Command {
        name: "keys",
        syntax: "pattern:p",
        group: "generic",
        flags: Flags::READONLY,
        categories: DANGEROUS,
        summary: "Returns all key names that match a pattern.",
        complexity: "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.",
        ..ROW
    }
    .by(Browsing(keys)),
    Command {
        name: "randomkey",
        group: "generic",
        flags: Flags::READONLY,
        summary: "Returns a random key name from the database.",
        ..ROW
    }
    .by(Browsing(randomkey)),
    Command {
        name: "scan",
        syntax: "cursor:i [MATCH=pattern:p] [COUNT=count:i] [TYPE=type@6.0.0]",
        group: "generic",
        since: "2.8.0",
        flags: Flags::READONLY,
        summary: "Iterates over the key names in the database.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        ..ROW
    }
    .by(Browsing(scan)),
    Command {
        name: "swapdb",
        syntax: "index1:i index2:i",
        group: "server",
        since: "4.0.0",
        flags: Flags::WRITE.and(Flags::FAST),
        categories: DANGEROUS,
        summary: "Swaps two Redis databases.",
        complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
        ..ROW
    }
    .by(Whole(swapdb)),
];

/// Keys that SCAN looks at in one call at most, whatever its COUNT, and KEYS in one run.
const STEP_MAX: usize = 10_000;
/// Keys that are read from the medium at the same time at most.
const COLD_MAX: usize = 1000;
/// How long FLUSHALL waits for what is being freed until it looks again.
pub const FREED_RETRY: Duration = Duration::from_millis(5);
const BEING_FREED: Stop = Stop::new("ERR what was flushed before is still being freed. Try again later.");
const NO_FIRST: Stop = Stop::new("ERR invalid first DB index");
const NO_SECOND: Stop = Stop::new("ERR invalid second DB index");

fn dbsize(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let len = keyspace.len(call.db())?;
    call.reply_int(len as i64)
}

fn flushall(call: &mut Call, txn: &mut Txn) -> Answer {
    check_flush(call)?;
    flush(call, txn, 0..DATABASES as u8)
}

fn flushdb(call: &mut Call, txn: &mut Txn) -> Answer {
    check_flush(call)?;
    let db = call.session.db as u8;
    flush(call, txn, db..db + 1)
}

/// Waits, where it can, until enough is freed of what was flushed before.
fn flush(call: &mut Call, txn: &mut Txn, databases: Range<u8>) -> Answer {
    if !txn.can_flush(databases.clone()) {
        return if call.session.in_exec { Err(BEING_FREED) } else { Ok(Outcome::postpone(FREED_RETRY)) };
    }
    for database in databases {
        txn.flush(database);
    }
    call.turn.announce(Notification::Flushed);
    call.reply_ok()
}

/// ASYNC and SYNC are told apart by what Redis does meanwhile: here neither stops others for long.
fn check_flush(call: &Call) -> Result<(), Stop> {
    match call.args.len() {
        1 => Ok(()),
        2 if call.is(1, "async") || call.is(1, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

fn swapdb(call: &mut Call, txn: &mut Txn) -> Answer {
    if call.server().cluster.is_on() {
        return Err(Stop::new("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |index: usize, error: Stop| {
        parse_int(call.args.at(index)).and_then(|number| i32::try_from(number).ok()).ok_or(error)
    };
    let (first, second) = (number(1, NO_FIRST)?, number(2, NO_SECOND)?);
    let databases = call.server().config.number(Opt::Databases);
    if ![first, second].iter().all(|&number| (0..databases).contains(&number.into())) {
        return Err(NO_DATABASE);
    }
    if first != second {
        txn.swap(first as u8, second as u8);
    }
    call.reply_ok()
}

fn scan(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let cursor = scan::parse_cursor(call.args.at(1))?;
    let mut wanted = None;
    let options = scan::Options::parse(call.command.name, call.args.from(2), |name, value| {
        let is_type = name.eq_ignore_ascii_case(b"type");
        if is_type {
            let known = (0..)
                .map_while(Type::from_number)
                .find(|ty| value.eq_ignore_ascii_case(ty.name().as_bytes()));
            wanted = Some(known.ok_or_else(|| [b"ERR unknown type name '", value, b"'"].concat())?);
        }
        Ok(is_type)
    })?;
    let mut step = keyspace.scan(call.db(), cursor, options.count.min(STEP_MAX))?;
    let is_wanted = |ty: Type| wanted.is_none_or(|wanted| wanted == ty);
    step.cold.retain(|cold| is_wanted(cold.ty()));
    let next = step.next;
    let names = match keyspace.names(step)? {
        Names::Known(names) => names,
        Names::Cold(cold) => return Ok(Fetch(cold)),
    };
    let shown = |(key, ty): &&Name| is_wanted(*ty) && options.matches(key);
    scan::reply(&mut call.out, |out| {
        let names = names.iter().filter(shown);
        (next, names.map(|(key, _)| out.bulk(key)).count())
    });
    Ok(Done)
}

/// Goes from one run to the next when keys must be fetched, and now and then to let others of its worker go on.
fn keys(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let (mut cursor, mut found) = match call.session.progress.take() {
        Some(Progress::Keys { cursor, found }) => (cursor, found),
        _ => (0, Vec::new()),
    };
    let (db, pattern) = (call.db(), call.args.at(1));
    let all = pattern == b"*";
    let later = |call: &mut Call, cursor, found, outcome: Outcome| {
        call.session.progress = Some(Progress::Keys { cursor, found });
        Ok(outcome)
    };
    let mut looked = 0;
    loop {
        let Ok(step) = keyspace.scan(db, cursor, COLD_MAX) else {
            return later(call, cursor, found, Outcome::LockBusy);
        };
        let next = step.next;
        let names = match keyspace.names(step)? {
            Names::Known(names) => names,
            Names::Cold(cold) => return later(call, cursor, found, Fetch(cold)),
        };
        looked += names.len();
        let matching = names.into_iter().map(|(key, _)| key).filter(|key| all || glob::matches(pattern, key));
        found.extend(matching);
        cursor = next;
        if cursor == 0 {
            break;
        }
        if looked >= STEP_MAX && !keyspace.is_locked() {
            return later(call, cursor, found, Outcome::postpone(Duration::ZERO));
        }
    }
    call.out.array(found.len());
    found.iter().for_each(|key| call.out.bulk(key));
    Ok(Done)
}

fn randomkey(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    if let Keyspace::Open { fetched, .. } = keyspace {
        // What was drawn in the run before. If it has moved meanwhile, another one is drawn.
        if let Some(Ok(key)) = fetched.first().map(Fetched::key) {
            call.out.bulk(key);
            return Ok(Done);
        }
    }
    let mut draws = call.session.draws.clone();
    let step = keyspace.random_key(call.db(), || draws.u64(..))?;
    match keyspace.names(step)? {
        Names::Known(names) => match names.first() {
            Some((key, _)) => call.out.bulk(key),
            None => call.out.null(),
        },
        Names::Cold(cold) => return Ok(Fetch(cold)),
    }
    call.session.draws = draws;
    Ok(Done)
}
