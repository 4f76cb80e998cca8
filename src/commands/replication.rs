//! REPLICAOF and ROLE; SYNC, which sends a snapshot; and what a server that has no replicas answers to those who ask for them: WAIT, WAITAOF
//! and their kin.

use crate::{
    command::error::{NOT_INTEGER, NOT_POSITIVE, UNBLOCKED},
    commands::{backup::check_possible, prelude::*},
    config::address::Address,
    server::{mailbox::Wake, replica_set::CONNECTED, replication::Primary},
    session::{progress::Progress, snapshot::SnapshotRequest},
};
use holdfast_resp::parse_int;
use holdfast_store::Turn;
use std::{io, str, sync::atomic::Ordering::Relaxed, time::Duration};
use tokio::time::Instant;

const WAIT: Command = Command {
    group: "generic",
    categories: Categories::CONNECTION,
    since: "3.0.0",
    flags: Flags::BLOCKING,
    ..Command::NEW
};

const ADMIN: Command =
    Command { group: "server", flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::STALE), ..Command::NEW };

const SYNC: Command = Command { flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI), ..ADMIN };

/// It may have to wait, so not within MULTI; and another primary may have what this one has not sent.
const FOLLOW: Command = Command { flags: ADMIN.flags.and(Flags::LOADING).and(Flags::NO_MULTI), ..ADMIN };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "failover",
        syntax: "[TO=target(host port:i [FORCE])] [ABORT] [TIMEOUT=milliseconds:i]",
        since: "6.2.0",
        summary: "Starts a coordinated failover from a server to one of its replicas.",
        ..ADMIN
    }
    .by(Plain(failover)),
    Command {
        name: "psync",
        syntax: "replicationid offset:i",
        arity: -3,
        since: "2.8.0",
        summary: "An internal command used in replication.",
        ..SYNC
    }
    .by(Plain(sync)),
    Command {
        name: "replconf",
        arity: -1,
        since: "3.0.0",
        flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
        summary: "An internal command for configuring the replication stream.",
        ..ADMIN
    }
    .by(Plain(replconf)),
    Command {
        name: "replicaof",
        syntax: "args<host-port(host port:i)|no-one(NO ONE)>",
        since: "5.0.0",
        summary: "Configures a server as replica of another, or promotes it to a master.",
        ..FOLLOW
    }
    .by(Plain(replicaof)),
    Command {
        name: "role",
        group: "server",
        since: "2.8.12",
        flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
        categories: Categories::ADMIN.and(Categories::DANGEROUS),
        summary: "Returns the replication role.",
        ..Command::NEW
    }
    .by(Plain(role)),
    Command {
        name: "sentinel",
        syntax: "question [master-name]",
        since: "2.8.4",
        summary: "Tells clients that look for the leader of a replica set which server it is.",
        flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
        ..ADMIN
    }
    .by(Plain(sentinel)),
    Command {
        name: "slaveof",
        syntax: "args<host-port(host port:i)|no-one(NO ONE)>",
        summary: "Sets a Redis server as a replica of another, or promotes it to being a master.",
        ..FOLLOW
    }
    .by(Plain(replicaof)),
    Command { name: "sync", summary: "An internal command used in replication.", ..SYNC }
    .by(Plain(sync)),
    Command {
        name: "wait",
        syntax: "numreplicas:i timeout:i",
        summary: "Blocks until the asynchronous replication of all preceding write commands sent by the connection is completed.",
        ..WAIT
    }
    .by(Plain(wait)),
    Command {
        name: "waitaof",
        syntax: "numlocal:i numreplicas:i timeout:i",
        since: "7.2.0",
        summary: "Blocks until all of the preceding write commands sent by the connection are written to the append-only file of the master and/or replicas.",
        ..WAIT
    }
    .by(Plain(waitaof)),
];

const NO_REPLICAS: Stop = Stop::new(
    "ERR This server has no replicas. It sends a snapshot to who asks for no more than that by REPLCONF rdb-only 1, as redis-cli --rdb \
     does",
);
const NO_MARK: Stop = Stop::new(
    "ERR The length of a snapshot is not known before its end, so it goes to clients only that know a mark there: REPLCONF capa eof",
);
const WAIT_ON_REPLICA: Stop = Stop::new(
    "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be \
     writable (which is not the default) writes to replicas are just local and are not propagated.",
);
const WAITAOF_ON_REPLICA: Stop = Stop::new(
    "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not \
     propagated.",
);
const NO_SET: Stop = Stop::new("ERR This server is no Sentinel, and not one of a replica set");
const ELECTED: Stop =
    Stop::new("ERR The server is one of a replica set, which elects its leader by itself: see FAILOVER");
const BAD_TIMEOUT: Stop = Stop::new("ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: Stop = Stop::new("ERR timeout is negative");

/// How often REPLICAOF NO ONE looks whether anything of the primary is at work.
const LEAVE_TICK: Duration = Duration::from_millis(1);
/// How often WAITAOF looks whether the log is durable. A reply that waits for durability could not be given up in time.
const DURABLE_TICK: Duration = Duration::from_millis(1);

fn role(call: &mut Call) -> Answer {
    if let Some(status) = call.server().replication.status() {
        call.out.array(5);
        call.out.bulk("slave");
        call.out.bulk(&status.primary.host);
        call.out.int(status.primary.port.into());
        call.out.bulk(status.link.name());
        call.out.int(status.offset as i64);
        return Ok(Done);
    }
    let offset = call.server().store.log().tail();
    call.out.array(3);
    call.out.bulk("master");
    call.out.int(offset as i64);
    let Some(set) = call.server().replica_set.clone() else {
        call.out.array(0);
        return Ok(Done);
    };
    let view = set.view();
    let others: Vec<_> =
        view.others.iter().filter_map(|other| Some((other, view.address(other.id)?))).collect();
    call.out.array(others.len());
    for (other, address) in others {
        call.out.array(3);
        call.out.bulk(&address.host);
        call.out.bulk(address.port.to_string());
        call.out.bulk(other.end.to_string());
    }
    Ok(Done)
}

fn sentinel(call: &mut Call) -> Answer {
    let set = call.server().replica_set.clone().ok_or(NO_SET)?;
    let args: Vec<&[u8]> = call.args.from(1).iter().collect();
    set.sentinel(&args, &mut call.out)?;
    Ok(Done)
}

fn replicaof(call: &mut Call) -> Answer {
    let server = call.server();
    if server.replica_set.is_some() {
        return Err(ELECTED);
    }
    let failed = |error: io::Error| Stop::from(format!("ERR REPLICAOF is not carried out: {error}"));
    if call.is(1, "no") && call.is(2, "one") {
        // What the primary has begun here comes to its end.
        return match server.leave_primary().map_err(failed)? {
            true => call.reply_ok(),
            false => Ok(Outcome::postpone(LEAVE_TICK)),
        };
    }
    let port = parse_int(call.args.at(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Stop::new("ERR Invalid master port"))?;
    let host = str::from_utf8(call.args.at(1))
        .ok()
        .filter(|host| !host.is_empty() && !host.contains(char::is_whitespace));
    let host = host.ok_or(Stop::new("ERR Invalid master host"))?;
    let primary = Primary { host: host.to_owned(), port };
    if server.replication.status().is_some_and(|status| status.primary == primary) {
        call.out.simple("OK Already connected to specified master");
        return Ok(Done);
    }
    server.follow(primary).map_err(failed)?;
    call.reply_ok()
}

/// What the client wants of a snapshot, for SYNC or PSYNC later on.
fn replconf(call: &mut Call) -> Answer {
    if call.args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let mut snapshot = call.session.snapshot;
    for at in (1..call.args.len()).step_by(2) {
        if call.is(at, "rdb-only") {
            let value = call.int(at + 1)?;
            if !(0..=1).contains(&value) {
                return Err(Stop::new("ERR value is out of range, value must between 0 and 1"));
            }
            snapshot.is_only = value == 1;
        } else if call.is(at, "rdb-filter-only") {
            (snapshot.keys, snapshot.functions) = (false, false);
            for part in call.args.at(at + 1).split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()) {
                if !part.eq_ignore_ascii_case(b"functions") {
                    let part = String::from_utf8_lossy(part);
                    return Err(format!("ERR Unsupported rdb-filter-only option: {part}").into());
                }
                snapshot.functions = true;
            }
        } else if call.is(at, "capa") {
            snapshot.knows_mark |= call.is(at + 1, "eof");
        } else if !["listening-port", "ip-address", "version"].iter().any(|known| call.is(at, known)) {
            let option = String::from_utf8_lossy(call.args.at(at));
            return Err(format!("ERR Unrecognized REPLCONF option: {option}").into());
        }
    }
    call.session.snapshot = snapshot;
    call.reply_ok()
}

/// SYNC and PSYNC.
fn sync(call: &mut Call) -> Answer {
    let is_psync = call.args.len() > 1;
    let snapshot = SnapshotRequest { is_psync, ..call.session.snapshot };
    if !snapshot.is_only {
        return Err(NO_REPLICAS);
    }
    if !snapshot.knows_mark {
        return Err(NO_MARK);
    }
    check_possible(call.server())?;
    if is_psync && call.args.at(1) != b"?" {
        call.server().partial_syncs_refused.fetch_add(1, Relaxed);
    }
    Ok(Outcome::SendSnapshot(snapshot))
}

fn refuse_on_replica(call: &Call, error: Stop) -> Result<(), Stop> {
    if call.server().replication.is_replica() { Err(error) } else { Ok(()) }
}

fn failover(call: &mut Call) -> Answer {
    refuse_on_replica(call, Stop::new("ERR FAILOVER is not valid when server is a replica."))?;
    let view = call.server().replica_set.as_ref().map(|set| set.view());
    let hands_over = view.as_ref().is_some_and(|view| view.hands_over);
    if call.args.len() == 2 && call.is(1, "abort") {
        return Err(Stop::new(match hands_over {
            // Once another one is told to lead, it may do so at any time.
            true => "ERR FAILOVER can't be aborted once it has begun.",
            false => "ERR No failover in progress.",
        }));
    }
    let (mut at, mut to) = (1, None);
    while at < call.args.len() {
        let more = call.args.len() - at - 1;
        at += if call.is(at, "timeout") && more >= 1 {
            if call.int(at + 1)? <= 0 {
                return Err(Stop::new("ERR FAILOVER timeout must be greater than 0"));
            }
            2
        } else if call.is(at, "to") && more >= 2 {
            to = Some((call.args.at(at + 1), call.int(at + 2)?));
            3
        } else if call.is(at, "force") {
            1
        } else {
            return Err(SYNTAX);
        };
    }
    if hands_over {
        return Err(Stop::new("ERR FAILOVER already in progress."));
    }
    let (Some(set), Some(view)) = (call.server().replica_set.clone(), view) else {
        return Err(Stop::new("ERR FAILOVER requires connected replicas."));
    };
    let is_meant = |address: &Address| {
        to.is_none_or(|(host, port)| address.host.as_bytes() == host && i64::from(address.port) == port)
    };
    let can_lead = |id| view.servers.get(&id).is_some_and(|listed| listed.votes && is_meant(&listed.address));
    let connected = view.heard_within(CONNECTED).filter(|other| can_lead(other.id));
    let to = match (connected.max_by_key(|other| other.end), to) {
        (Some(other), _) => other.id,
        (None, Some(_)) => return Err(Stop::new("ERR FAILOVER target HOST and PORT is not a replica.")),
        (None, None) => return Err(Stop::new("ERR FAILOVER requires connected replicas.")),
    };
    set.hand_over(to);
    call.reply_ok()
}

fn timeout(call: &Call, index: usize) -> Result<Option<Duration>, Stop> {
    let ms = parse_int(call.args.at(index)).ok_or(BAD_TIMEOUT)?;
    let ms = u64::try_from(ms).map_err(|_| NEGATIVE_TIMEOUT)?;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

fn wait(call: &mut Call) -> Answer {
    refuse_on_replica(call, WAIT_ON_REPLICA)?;
    let replicas = call.int(1)?;
    let timeout = timeout(call, 2)?;
    if call.server().replica_set.is_some() {
        return wait_for_others(call, (0, replicas), timeout, |call, _, count| call.out.int(count));
    }
    if replicas <= 0 || call.session.in_exec {
        call.out.int(0);
        return Ok(Done);
    }
    wait_in_vain(call, timeout, |call| call.out.int(0))
}

fn waitaof(call: &mut Call) -> Answer {
    refuse_on_replica(call, WAITAOF_ON_REPLICA)?;
    let local = call.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Stop::new("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = parse_int(call.args.at(2)).ok_or(NOT_INTEGER)?;
    if replicas < 0 {
        return Err(NOT_POSITIVE);
    }
    let timeout = timeout(call, 3)?;
    let reply = |call: &mut Call, is_durable: bool, count: i64| {
        call.out.array(2);
        call.out.int(i64::from(is_durable));
        call.out.int(count);
    };
    wait_for_others(call, (local, replicas), timeout, reply)
}

/// Waits until what is written so far is durable here, if `local` is 1, and on so many other servers of the set, or the time is over.
fn wait_for_others(
    call: &mut Call,
    (local, replicas): (i64, i64),
    timeout: Option<Duration>,
    reply: impl Fn(&mut Call, bool, i64),
) -> Answer {
    let log = call.server().store.log();
    let (lsn, until) = match call.session.progress.take() {
        Some(Progress::Durable { lsn, until }) => (lsn, until),
        _ => {
            let lsn = log.tail();
            log.request_durable(lsn);
            (lsn, timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
        }
    };
    let set = call.server().replica_set.as_ref();
    let (is_durable, is_agreed) = (log.durable_here() >= lsn, log.durable() >= lsn);
    // A majority has what is agreed on, and one of them is this server.
    let count = set.map_or(0, |set| {
        let view = set.view();
        let least = if is_agreed { view.majority() - 1 } else { 0 };
        view.count_with(lsn).max(least)
    }) as i64;
    let is_late = until.is_some_and(|until| until <= Instant::now());
    let lacks_local = local > i64::from(is_durable);
    let is_missing = lacks_local || (set.is_some() && replicas > count);
    if is_missing && !is_late && !call.session.in_exec && log.failed().is_none() {
        call.session.progress = Some(Progress::Durable { lsn, until });
        return Ok(Outcome::postpone(DURABLE_TICK));
    }
    if set.is_none() && replicas > 0 && !lacks_local && !call.session.in_exec {
        return wait_in_vain(call, timeout, |call| reply(call, is_durable, 0));
    }
    reply(call, is_durable, count);
    Ok(Done)
}

/// Waits for replicas, of which there are none, until the time is over.
fn wait_in_vain(call: &mut Call, timeout: Option<Duration>, reply: impl Fn(&mut Call)) -> Answer {
    let store = &call.server().store;
    if call.wake == Wake::First || call.wake == Wake::Signal {
        let mut txn = store.try_begin(&[0])?;
        let outcome = call.wait_for(&mut txn, std::iter::empty(), Turn::Always, timeout);
        call.turn.commit(call.session, &mut txn);
        return outcome;
    }
    // It waited at no key.
    call.session.waiting = None;
    if call.wake == Wake::Unblocked {
        return Err(UNBLOCKED);
    }
    reply(call);
    Ok(Done)
}
