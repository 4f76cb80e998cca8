//! REPLICAOF and ROLE, and what a server that has no replicas answers to those who ask for them: WAIT, WAITAOF and their kin.

use crate::{
    command::error::{NOT_INTEGER, NOT_POSITIVE, UNBLOCKED},
    commands::prelude::*,
    server::{mailbox::Wake, replication::Primary},
    session::progress::Progress,
};
use holdfast_resp::parse_int;
use holdfast_store::Turn;
use std::{io, str, time::Duration};
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
    .by(Plain(|_| Err(NO_REPLICATION))),
    Command {
        name: "replconf",
        arity: -1,
        since: "3.0.0",
        flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
        summary: "An internal command for configuring the replication stream.",
        ..ADMIN
    }
    .by(Plain(|_| Err(NO_REPLICATION))),
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
        name: "slaveof",
        syntax: "args<host-port(host port:i)|no-one(NO ONE)>",
        summary: "Sets a Redis server as a replica of another, or promotes it to being a master.",
        ..FOLLOW
    }
    .by(Plain(replicaof)),
    Command { name: "sync", summary: "An internal command used in replication.", ..SYNC }
    .by(Plain(|_| Err(NO_REPLICATION))),
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

const NO_REPLICATION: Stop = Stop::new("ERR Replication is not supported");
const WAIT_ON_REPLICA: Stop = Stop::new(
    "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be \
     writable (which is not the default) writes to replicas are just local and are not propagated.",
);
const WAITAOF_ON_REPLICA: Stop = Stop::new(
    "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not \
     propagated.",
);
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
    call.out.array(0);
    Ok(Done)
}

fn replicaof(call: &mut Call) -> Answer {
    let server = call.server();
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

fn refuse_on_replica(call: &Call, error: Stop) -> Result<(), Stop> {
    if call.server().replication.is_replica() { Err(error) } else { Ok(()) }
}

fn failover(call: &mut Call) -> Answer {
    refuse_on_replica(call, Stop::new("ERR FAILOVER is not valid when server is a replica."))?;
    if call.args.len() == 2 && call.is(1, "abort") {
        return Err(Stop::new("ERR No failover in progress."));
    }
    let mut at = 1;
    while at < call.args.len() {
        let more = call.args.len() - at - 1;
        at += if call.is(at, "timeout") && more >= 1 {
            if call.int(at + 1)? <= 0 {
                return Err(Stop::new("ERR FAILOVER timeout must be greater than 0"));
            }
            2
        } else if call.is(at, "to") && more >= 2 {
            call.int(at + 2)?;
            3
        } else if call.is(at, "force") {
            1
        } else {
            return Err(SYNTAX);
        };
    }
    Err(Stop::new("ERR FAILOVER requires connected replicas."))
}

fn timeout(call: &Call, index: usize) -> Result<Option<Duration>, Stop> {
    let ms = parse_int(call.args.at(index)).ok_or(BAD_TIMEOUT)?;
    let ms = u64::try_from(ms).map_err(|_| NEGATIVE_TIMEOUT)?;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// No replica ever tells that it has what was written.
fn wait(call: &mut Call) -> Answer {
    refuse_on_replica(call, WAIT_ON_REPLICA)?;
    let replicas = call.int(1)?;
    let timeout = timeout(call, 2)?;
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
        return Err(Stop::new("ERR value is out of range, must be between 0 and 1"));
    }
    let replicas = parse_int(call.args.at(2)).ok_or(NOT_INTEGER)?;
    if replicas < 0 {
        return Err(NOT_POSITIVE);
    }
    let timeout = timeout(call, 3)?;
    let log = call.server().store.log();
    let (lsn, until) = match call.session.progress.take() {
        Some(Progress::Durable { lsn, until }) => (lsn, until),
        _ => {
            let lsn = log.tail();
            log.request_durable(lsn);
            (lsn, timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
        }
    };
    let is_durable = log.durable() >= lsn;
    let is_late = until.is_some_and(|until| until <= Instant::now());
    let missing = local > i64::from(is_durable);
    if missing && !is_late && !call.session.in_exec && log.failed().is_none() {
        call.session.progress = Some(Progress::Durable { lsn, until });
        return Ok(Outcome::postpone(DURABLE_TICK));
    }
    let reply = move |call: &mut Call| {
        call.out.array(2);
        call.out.int(i64::from(is_durable));
        call.out.int(0);
    };
    if missing || replicas == 0 || call.session.in_exec {
        reply(call);
        return Ok(Done);
    }
    wait_in_vain(call, timeout, reply)
}

/// Waits for replicas, of which there are none, until the time is over.
fn wait_in_vain(call: &mut Call, timeout: Option<Duration>, reply: impl Fn(&mut Call)) -> Answer {
    let store = &call.server().store;
    if call.wake == Wake::First || call.wake == Wake::Signal {
        let mut txn = store.try_begin(&[0])?;
        let outcome = call.wait_for(&mut txn, std::iter::empty(), Turn::Always, timeout);
        call.turn.commit(&mut txn);
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
