//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use crate::{
    acl::{Context, Denied},
    command::{error::EXECABORT, table::Table},
    commands::{keyspace::FREED_RETRY, prelude::*},
    config::Opt,
    exec::{
        admit::{self, purpose},
        check::discarded,
        dispatch,
        handler::Rows,
        invocation::Invocation,
        locking::{self, PAGES_MAX, absent_pages, cold_values},
    },
    server::mailbox::Wake,
    session::{Multi, Orders, Queued, observe::Watched, progress::Progress},
};
use holdfast_resp::parse_int;
use holdfast_store::{Begun, Cold, DATABASES, Store};
use std::collections::BTreeMap;

const IMMEDIATE: Flags =
    Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY).and(Flags::IMMEDIATE);

const ROW: Command = Command {
    group: "transactions",
    categories: Categories::TRANSACTION,
    flags: IMMEDIATE.and(Flags::FAST),
    since: "1.2.0",
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "discard",
        since: "2.0.0",
        summary: "Discards a transaction.",
        complexity: "O(N), when N is the number of queued commands",
        ..ROW
    }
    .by(Plain(discard)),
    Command {
        name: "exec",
        flags: Flags::NOSCRIPT
            .and(Flags::LOADING)
            .and(Flags::STALE)
            .and(Flags::SKIP_SLOWLOG)
            .and(Flags::IMMEDIATE),
        summary: "Executes all commands in a transaction.",
        complexity: "O(N), when N is the number of queued commands",
        ..ROW
    }
    .by(Plain(exec)),
    Command { name: "multi", summary: "Starts a transaction.", ..ROW }.by(Plain(multi)),
    Command {
        name: "unwatch",
        since: "2.2.0",
        summary: "Forgets about watched keys of a transaction.",
        flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY).and(Flags::FAST),
        ..ROW
    }
    .by(Plain(unwatch)),
    Command {
        name: "watch",
        syntax: "key...",
        since: "2.2.0",
        summary: "Monitors changes to keys to determine the execution of a transaction.",
        complexity: "O(1) for every key",
        keys: &[KeySpec::range(KeyAccess::RO, 1, -1, 1)],
        ..ROW
    }
    .by(Keyed(watch)),
];

/// How often EXEC begins again at most before it reads with partitions locked: what a command leads to may be something else
/// each time.
const RESTARTS_MAX: u32 = 16;
const NESTED: Stop = Stop::new("ERR MULTI calls can not be nested");
const EXEC_WITHOUT_MULTI: Stop = Stop::new("ERR EXEC without MULTI");
const DISCARD_WITHOUT_MULTI: Stop = Stop::new("ERR DISCARD without MULTI");
const WATCH_IN_MULTI: Stop = Stop::new("ERR WATCH inside MULTI is not allowed");

fn multi(call: &mut Call) -> Answer {
    refuse_in_multi(call, NESTED)?;
    call.session.multi = Some(Multi::default());
    call.reply_ok()
}

/// Within MULTI this is an error, and EXEC refuses the queue then.
fn refuse_in_multi(call: &mut Call, error: Stop) -> Result<(), Stop> {
    match &mut call.session.multi {
        Some(multi) => {
            multi.aborted = true;
            Err(error)
        }
        None => Ok(()),
    }
}

fn discard(call: &mut Call) -> Answer {
    call.session.multi.take().ok_or(DISCARD_WITHOUT_MULTI)?;
    call.session.forget_watched(call.server());
    call.reply_ok()
}

fn watch(call: &mut Call, txn: &mut Txn) -> Answer {
    refuse_in_multi(call, WATCH_IN_MULTI)?;
    let db = call.session.db as u8;
    for key in call.args.from(1).iter() {
        call.session.watched.add(txn, db, key);
    }
    call.reply_ok()
}

fn unwatch(call: &mut Call) -> Answer {
    // Within EXEC nothing is watched any more.
    call.session.forget_watched(call.server());
    call.reply_ok()
}

/// Runs the queue in one transaction, so that it becomes one batch of the log (I-2).
fn exec(call: &mut Call) -> Answer {
    let mut multi = call.session.multi.take().ok_or(EXEC_WITHOUT_MULTI)?;
    if let Some(Progress::Ordered(outcome)) = call.session.progress.take() {
        multi.orders.outcomes.push(outcome);
    }
    let store = &call.server().store;
    if multi.aborted {
        call.session.forget_watched(call.server());
        return Err(EXECABORT);
    }
    let (redo, may_grow) = redo_of(call.table(), &multi);
    match admit(call, &multi, redo, may_grow) {
        Ok(None) => {}
        Ok(Some(later)) => {
            call.session.multi = Some(multi);
            return Ok(later);
        }
        Err(error) => return Err(refuse(call, error)),
    }

    let Ok(mut txn) = begin(store, call.rows(), &multi, &call.session.watched) else {
        call.session.multi = Some(multi);
        return Ok(LockBusy);
    };
    if txn.keeps_any() && touches_kept(call.rows(), &txn, call.session.db as u8, &multi) {
        call.session.multi = Some(multi);
        return Ok(WaiterFirst);
    }
    let flushes = |queued: &Queued| matches!(call.table().command(queued.id).name, "flushall" | "flushdb");
    if multi.queue.iter().any(flushes) && !txn.can_flush(0..DATABASES as u8) {
        call.session.multi = Some(multi);
        return Ok(Outcome::postpone(FREED_RETRY));
    }
    let writes = multi.writes(call.table()).next().is_some();
    if writes && let Err(refusal) = txn.expect(redo, purpose(may_grow), true) {
        drop(txn);
        return put_off(call, multi, refusal.into(), may_grow);
    }
    call.turn.set_expiry(call.session, &mut txn, writes);
    if call.session.watched.is_changed(&mut txn) {
        call.session.watched.clear(&mut txn);
        call.turn.commit(call.session, &mut txn);
        call.out.null_array();
        return Ok(Done);
    }
    txn.supply(std::mem::take(&mut call.session.fetched));
    let cold = cold(call, &mut txn, &multi);
    if !cold.is_empty() {
        return Ok(begin_again(call, txn, multi, Fetch(cold)));
    }
    if writes {
        let has_room = txn.reserve_for_all(|| written(call, &multi));
        if let Err(refusal) = has_room {
            call.session.fetched = txn.take_fetched();
            drop(txn);
            return put_off(call, multi, refusal.into(), may_grow);
        }
        txn.end_waiting();
    }

    // Within EXEC nothing is watched any more.
    let mut watched = std::mem::take(&mut call.session.watched);
    let (own_id, db, notifications) =
        (call.session.client.command(), call.session.db, call.turn.notification_count());
    let place = call.out.defer();
    let draws = call.session.draws.clone();
    call.out.array(multi.queue.len());
    call.session.in_exec = true;
    let mut result = Done;
    let (mut is_repeatable, may_fetch) = (true, multi.restarts < RESTARTS_MAX);
    call.session.orders = Orders { used: 0, ..std::mem::take(&mut multi.orders) };
    for queued in &multi.queue {
        call.session.orders.may_wait = is_repeatable && txn.is_clean();
        match run_one(call, &mut txn, queued, is_repeatable && may_fetch) {
            later @ (Fetch(_) | WaitFor(_)) => {
                result = later;
                break;
            }
            Close => result = Close,
            _ => {}
        }
        let command = call.table().command(queued.id);
        is_repeatable &= dispatch::is_repeatable(command) || command.name.starts_with("cluster|");
    }
    call.session.in_exec = false;
    multi.orders = std::mem::take(&mut call.session.orders);
    call.session.time = None;
    call.session.client.set_command(own_id);
    if matches!(result, Fetch(_) | WaitFor(_)) {
        // Nothing is done yet: it all runs again, with this.
        call.turn.forget_notifications(notifications);
        call.out.rewind(place);
        (call.session.db, call.session.watched) = (db, watched);
        call.session.draws = draws;
        return Ok(begin_again(call, txn, multi, result));
    }
    watched.clear(&mut txn);
    call.turn.commit(call.session, &mut txn);
    Ok(result)
}

/// Ends a run of EXEC that has done nothing yet, so that the next one has what is to be fetched or waited for `first`, and the values that
/// this one had: the cache may have no room for all.
fn begin_again(call: &mut Call, mut txn: Txn, mut multi: Multi, first: Outcome) -> Outcome {
    multi.restarts += u32::from(matches!(first, Fetch(_)));
    call.session.fetched = txn.take_fetched();
    call.turn.commit(call.session, &mut txn);
    call.session.multi = Some(multi);
    first
}

/// What becomes of a transaction that finds no room. It has unlocked its partitions, where the keys may be that are watched.
fn put_off(call: &mut Call, multi: Multi, why: Stop, may_grow: bool) -> Answer {
    match why {
        Stop::Busy => {
            call.session.multi = Some(multi);
            Ok(admit::busy(may_grow))
        }
        error => Err(refuse(call, error)),
    }
}

/// The keys of the commands that write, and how many of those that let data grow each is of. SELECT in the queue is not followed.
fn written<'q>(call: &Call, multi: &'q Multi) -> BTreeMap<(u8, &'q [u8]), usize> {
    let db = call.server().store.database(call.session.db as u8);
    let mut keys = BTreeMap::new();
    for queued in multi.writes(call.table()) {
        let invocation = invocation(call.rows(), queued);
        let grows = invocation.command().flags.has(Flags::DENYOOM);
        for (key, _) in invocation.all_keys() {
            *keys.entry((db, key)).or_default() += usize::from(grows);
        }
    }
    keys
}

/// Ends a transaction that is refused.
fn refuse(call: &mut Call, error: Stop) -> Stop {
    call.turn.count_refusal(&error);
    call.session.forget_watched(call.server());
    discarded(error)
}

/// Whether the log takes what the queue may write.
fn admit(call: &Call, multi: &Multi, redo: usize, may_grow: bool) -> Result<Option<Outcome>, Stop> {
    if multi.writes(call.table()).next().is_none() {
        return Ok(None);
    }
    call.turn.admit(call.session, redo, may_grow)
}

/// Bytes of log that the arguments of the queue come to at most, and whether data may grow by it.
fn redo_of(table: &Table, multi: &Multi) -> (usize, bool) {
    let may_grow = multi.writes(table).any(|call| table.command(call.id).flags.has(Flags::DENYOOM));
    (multi.writes(table).map(|call| admit::redo_of(call.args.args())).sum(), may_grow)
}

fn invocation<'q>(rows: &Rows, queued: &'q Queued) -> Invocation<'q> {
    let Queued { id, args, keys } = queued;
    Invocation { id: *id, row: rows.row(*id), args: args.args(), keys, expected: None }
}

/// A transaction over all keys of the queue, and those that are watched.
fn begin<'s>(store: &'s Store, rows: &Rows, multi: &Multi, watched: &Watched) -> Begun<'s> {
    let mut partitions: Vec<u16> = watched.keys().map(|key| store.partition_of(key)).collect();
    let mut grows = false;
    for queued in &multi.queue {
        let invocation = invocation(rows, queued);
        if invocation.row.locks_all(invocation.args) {
            return store.try_begin_all();
        }
        grows |= matches!(invocation.row.handler, Script(_));
        partitions.extend(invocation.all_keys().map(|(key, _)| store.partition_of(key)));
    }
    if partitions.is_empty() && !grows {
        partitions.push(0);
    }
    partitions.sort_unstable();
    partitions.dedup();
    if grows { store.try_begin_growing(&partitions, true) } else { store.try_begin(&partitions) }
}

/// Whether a key of the queue is kept for a client whose turn it is. SELECT in the queue is not followed.
fn touches_kept(rows: &Rows, txn: &Txn, db: u8, multi: &Multi) -> bool {
    let touches = |queued: &Queued| locking::touches_kept(txn, db, &invocation(rows, queued));
    multi.queue.iter().any(touches)
}

/// The values that the queue may look at and that have to be fetched first. What a command leads to by its result is fetched
/// when it is met.
fn cold(call: &Call, txn: &mut Txn, multi: &Multi) -> Vec<Cold> {
    let databases = call.server().config.number(Opt::Databases);
    let mut logical = call.session.db as u8;
    let (mut cold, mut draws) = (Vec::<Cold>::new(), call.session.draws.clone());
    for queued in &multi.queue {
        let invocation = invocation(call.rows(), queued);
        if invocation.command().name == "select" {
            let selected = parse_int(invocation.args.at(1)).filter(|number| (0..databases).contains(number));
            logical = selected.map_or(logical, |number| number as u8);
        }
        let db = call.server().store.database(logical);
        cold.extend(cold_values(txn, db, &invocation));
        let room = PAGES_MAX.saturating_sub(cold.len());
        // The command that meets a damaged page replies with the error.
        cold.extend(absent_pages(txn, db, &invocation, &mut draws, room).unwrap_or_default());
    }
    cold.dedup();
    cold
}

/// Runs a command of the queue. What it finds cold is for the caller to fetch if all so far can be done again.
fn run_one(call: &mut Call, txn: &mut Txn, queued: &Queued, is_repeatable: bool) -> Outcome {
    let invocation = invocation(call.rows(), queued);
    let Invocation { id, args, keys, .. } = invocation;
    if let Err(denied) = call.session.user.may_run(id, args, keys) {
        call.session.publish();
        let session = &*call.session;
        let server = call.server();
        server.acl.refuse(&server.config, denied, (id, args), &session.user, &session.client, Context::Multi);
        let why = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        };
        let error = format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
             is no longer allowed for the following reason: {why}"
        );
        call.server().errors.count(error.as_bytes());
        call.out.error(error);
        return Done;
    }
    loop {
        let out = &mut call.out.reborrow();
        match call.turn.call(call.session, &invocation, out, Wake::First, Some(txn)) {
            Fetch(cold) if is_repeatable && txn.is_clean() => return Fetch(cold),
            // Nothing can be undone, and nothing may come between. It is rare: what the keys of the queue need was fetched
            // before.
            Fetch(cold) => call.turn.fetch_under_lock(txn, cold),
            Wait(_) | Partial | Postpone(_) | Busy | Queue | OnStack | WaiterFirst | LockBusy => {
                unreachable!("commands do not wait within EXEC")
            }
            over => return over,
        }
    }
}
