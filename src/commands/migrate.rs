//! MIGRATE: gives keys to another server.
//!
//! The values are sent from a thread of their own, with nothing locked. So they may change meanwhile: a key is removed
//! here only if its value is still what was sent; else the new value is sent too, in place of the old one.

use super::dump::serialize;
use crate::{
    command::{BeginSearch, Find},
    commands::prelude::*,
    exec::answer::Work,
    session::{
        migration::{Failure, Migration, Request, Sent, Target},
        progress::Progress,
    },
};
use holdfast_rdb::encode;
use std::time::Duration;

const ACCESS: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE);

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "migrate",
    syntax: r#"host port:i key-selector<key|""=empty-string:!> destination-db:i timeout:i [COPY@3.0.0] [REPLACE@3.0.0] [authentication<AUTH=auth~password@4.0.7|AUTH2=auth2@6.0.0(username password)>] [KEYS=keys:k1~key@3.0.6...]"#,
    group: "generic",
    categories: Categories::KEYSPACE.and(Categories::DANGEROUS),
    // It waits for another server, and that must not be while a transaction or a script keeps keys locked.
    flags: Flags::WRITE.and(Flags::MOVABLE_KEYS).and(Flags::NO_MULTI).and(Flags::NOSCRIPT),
    keys: &[
        KeySpec::one(ACCESS, 3),
        KeySpec {
            access: ACCESS.and(KeyAccess::INCOMPLETE),
            begin: BeginSearch::Keyword("KEYS", -2),
            find: Find::Range { last: -1, step: 1, limit: 0 },
        },
    ],
    find_keys: Some(find_keys),
    since: "2.6.0",
    summary: "Atomically transfers a key from one instance to another.",
    complexity: "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See the pages of these commands for time complexity. Also an O(N) data transfer between the two instances is performed.",
    ..Command::NEW
}
.by(Keyed(migrate))];

const KEY_AND_KEYS: Stop =
    Stop::new("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string");
const NOT_CONNECTED: Stop = Stop::new("IOERR error or timeout connecting to the client");
const NOT_WRITTEN: Stop = Stop::new("IOERR error or timeout writing to target instance");
const NOT_READ: Stop = Stop::new("IOERR error or timeout reading to target instance");
const RESTLESS: Stop =
    Stop::new("ERR The values kept changing while they were sent; the target instance has older ones");

/// How often values are sent that have changed while they were sent.
const ROUNDS_MAX: u32 = 10;
/// How long the other server may take for each thing, unless the command says so.
const TIMEOUT_MS: u64 = 1000;

/// The options.
struct Options<'a> {
    copy: bool,
    replace: bool,
    user: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
    /// Where the keys begin that KEYS names.
    keys_at: Option<usize>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, Stop> {
        let mut options = Options { copy: false, replace: false, user: None, password: None, keys_at: None };
        let mut at = 6;
        while at < args.len() {
            let is = |word: &str, values: usize| {
                args[at].eq_ignore_ascii_case(word.as_bytes()) && at + values < args.len()
            };
            if is("copy", 0) {
                options.copy = true;
            } else if is("replace", 0) {
                options.replace = true;
            } else if is("auth", 1) {
                options.password = Some(args.at(at + 1));
                at += 1;
            } else if is("auth2", 2) {
                (options.user, options.password) = (Some(args.at(at + 1)), Some(args.at(at + 2)));
                at += 2;
            } else if is("keys", 0) {
                if !args[3].is_empty() {
                    return Err(KEY_AND_KEYS);
                }
                options.keys_at = Some(at + 1);
                break;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The indices of the keys among the arguments.
    fn keys(&self, args: Args) -> Vec<usize> {
        self.keys_at.map_or_else(|| vec![3], |at| (at..args.len()).collect())
    }
}

fn find_keys(args: Args, found: &mut dyn FnMut(usize, KeyAccess)) {
    if let Ok(options) = Options::parse(args) {
        options.keys(args).into_iter().for_each(|index| found(index, ACCESS));
    }
}

fn migrate(call: &mut Call, txn: &mut Txn) -> Answer {
    let options = Options::parse(call.args)?;
    let (timeout, db) = (call.int(5)?, call.int(4)?);
    let timeout =
        Duration::from_millis(u64::try_from(timeout).ok().filter(|ms| *ms > 0).unwrap_or(TIMEOUT_MS));
    match call.session.progress.take() {
        Some(Progress::Migrate(migration)) => go_on(call, txn, &options, timeout, db, migration),
        _ => {
            let mut sent = Vec::new();
            for index in options.keys(call.args) {
                if let Some(value) = value(call, txn, index)? {
                    sent.push((index, Some(value)));
                }
            }
            if sent.is_empty() {
                call.out.simple("NOKEY");
                return Ok(Done);
            }
            Ok(send(call, txn, &options, timeout, db, sent, 1))
        }
    }
}

/// What is to be sent of a key, if it is there.
fn value(call: &Call, txn: &mut Txn, index: usize) -> Result<Option<Sent>, Stop> {
    let (database, key) = (call.db(), call.args.at(index));
    let payload = serialize(txn, database, key, encode::stream)?;
    let expires = txn.expiry(database, key).flatten();
    Ok(payload.map(|payload| Sent { payload, expires }))
}

/// Looks at what the other server has done, and sends again what has changed here meanwhile.
fn go_on(
    call: &mut Call,
    txn: &mut Txn,
    options: &Options,
    timeout: Duration,
    db: i64,
    migration: Box<Migration>,
) -> Answer {
    let (mut moved, mut changed) = (Vec::new(), Vec::new());
    if !options.copy {
        for ((index, sent), _) in migration.sent.iter().zip(&migration.done).filter(|(_, done)| **done) {
            match value(call, txn, *index) {
                Ok(value) if value != *sent => changed.push((*index, value)),
                Ok(_) => moved.push(*index),
                Err(stop) => {
                    // When what is missing has been fetched, it goes on from here.
                    call.session.progress = Some(Progress::Migrate(migration));
                    return Err(stop);
                }
            }
        }
    }
    for index in moved {
        if txn.remove(call.db(), call.args.at(index)) {
            call.notify(Class::GENERIC, "del", call.args.at(index));
        }
    }
    match migration.failure {
        Some(Failure::Here(why)) => Err(why.into()),
        Some(Failure::Connect) => Err(NOT_CONNECTED),
        Some(Failure::Write) => Err(NOT_WRITTEN),
        Some(Failure::Read) => Err(NOT_READ),
        Some(Failure::Refused(why)) => {
            call.out.error([b"ERR Target instance replied with error: ", &why[..]].concat());
            Ok(Done)
        }
        None if changed.is_empty() => call.reply_ok(),
        None if migration.rounds == ROUNDS_MAX => Err(RESTLESS),
        None => Ok(send(call, txn, options, timeout, db, changed, migration.rounds + 1)),
    }
}

/// Has values sent.
fn send(
    call: &Call,
    txn: &Txn,
    options: &Options,
    timeout: Duration,
    db: i64,
    sent: Vec<(usize, Option<Sent>)>,
    rounds: u32,
) -> crate::exec::answer::Outcome {
    let mut request = Request::new(options.user, options.password, db, call.server().cluster.is_on());
    for (index, value) in &sent {
        let key = call.args.at(*index);
        match value {
            Some(Sent { payload, expires }) => {
                let ttl = expires.map_or(0, |at| at.saturating_sub(txn.now_ms()).max(1));
                // What was sent in a round before is ours to replace.
                request.restore(key, ttl, payload, options.replace || rounds > 1);
            }
            None => request.delete(key),
        }
    }
    let target = Target::new(call.args.at(1), call.args.at(2), timeout);
    let server = call.server().clone();
    WaitFor(Work::new(move || {
        let (done, failure) = match server.say_that_keys_go() {
            Ok(()) => request.send(&target),
            Err(why) => (Vec::new(), Some(Failure::Here(why))),
        };
        Progress::Migrate(Box::new(Migration { sent, rounds, done, failure }))
    }))
}
