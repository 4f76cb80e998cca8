//! A script that runs: its commands become part of one transaction, and so of one batch of the log (I-2).

use super::{
    api::{NewFunction, Scratch},
    busy::Running,
    engine::Program,
    flags::ScriptFlags,
    host::Host,
    lua::Lua,
    stack,
};
use crate::{
    acl::Context,
    answer::{Answer, OUT_OF_MEMORY, Outcome, Outcome::*, Stop, Wake},
    call::Call,
    command::{Flags, Handler},
    config::Opt,
    dispatch::{Turn, WHILE_BUSY},
    keys::each_key,
    log::log,
    session::Session,
    table::{CommandId, Lookup, TABLE},
};
use holdfast_io::Moment;
use holdfast_resp::{Args, Proto, Writer};
use holdfast_store::{HeldUp, Txn};
use std::{
    borrow::Cow,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Bytes that the batch of one script may have.
const BATCH_MAX: usize = 1 << 30;

const UNKNOWN: &[u8] = b"ERR Unknown Redis command called from script";
const WRONG_ARITY: &[u8] = b"ERR Wrong number of args calling Redis command from script";
const NOT_ALLOWED: &[u8] = b"ERR This Redis command is not allowed from script";
const READ_ONLY: &[u8] = b"ERR Write commands are not allowed from read-only scripts.";
const TOO_LONG: &[u8] = b"ERR the script writes more than a batch of the log may hold";
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
const RO_COMMAND: Stop = Stop::new("ERR Can not execute a script with write flag using *_ro command.");
const OOM_SCRIPT: Stop =
    Stop::new("OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'");

struct Run<'r, 'a, 't> {
    turn: &'a Turn<'a>,
    session: &'r mut Session,
    txn: &'r mut Txn<'t>,
    /// The protocol of replies to it.
    proto: Proto,
    read_only: bool,
    /// Whether its commands may need memory that there is not.
    out_of_memory: bool,
    wrote: bool,
    scratch: Scratch,
    program: &'r Program<'r>,
    args: Args<'r>,
    started: Moment,
    /// Itself, once it runs for long.
    running: Option<Arc<Running>>,
}

/// Runs a script whose keys begin at argument 3; `count` of them. `flags` are those that it declares, if it does, and
/// `read_only` says that its caller wants no writes. `given` is the transaction of EXEC.
pub fn run(
    call: &mut Call,
    given: Option<&mut Txn>,
    program: &Program,
    flags: Option<ScriptFlags>,
    read_only: bool,
    count: usize,
) -> Answer {
    let store = &call.server().store;
    let no_writes = read_only || flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES));
    if flags.is_some() && read_only && !flags.is_some_and(|flags| flags.has(ScriptFlags::NO_WRITES)) {
        return Err(RO_COMMAND);
    }
    if given.is_none() && !no_writes {
        call.turn.make_room();
    }
    let allows_oom = flags.is_some_and(|flags| flags.has(ScriptFlags::ALLOW_OOM));
    let out_of_memory = !allows_oom && store.is_out_of_memory();
    if flags.is_some() && out_of_memory && !no_writes {
        return Err(OOM_SCRIPT);
    }
    if flags.is_some() && !no_writes {
        call.turn.check_replicas()?;
    }
    let run = |call: &mut Call, txn: &mut Txn| {
        let host = (no_writes, out_of_memory);
        execute(call, txn, program, host, count);
    };
    if let Some(txn) = given {
        run(call, txn);
        return Ok(Done);
    }
    if !no_writes {
        // What is wrong for good is told to the command that writes.
        let later = if allows_oom { Ok(None) } else { call.turn.admit_growth() };
        if let Ok(Some(later)) = later {
            return Ok(later);
        }
        if let Ok(Some(later)) = call.turn.admit_log(call.args.bytes(), false) {
            return Ok(later);
        }
    }
    let keys = call.args.from(3);
    let keys = || keys.iter().take(count);
    let begun = if count == 1 {
        store.try_begin_growing_key(call.args.at(3))
    } else {
        store.try_begin_growing_keys(keys())
    };
    let Ok(mut txn) = begun else { return Ok(Outcome::postpone(WHILE_BUSY)) };
    if txn.keeps_any() && keys().any(|key| txn.is_kept(call.session.db as u8, key)) {
        return Ok(Behind);
    }
    let fetched = std::mem::take(&mut call.session.fetched);
    let is_first = fetched.is_empty();
    txn.supply(fetched);
    if is_first && count > 0 {
        // Together, and while nothing is locked; what else it needs, it waits for.
        let cold = txn.cold(call.db(), keys());
        if !cold.is_empty() {
            call.turn.commit(txn);
            return Ok(Fetch(cold));
        }
    }
    run(call, &mut txn);
    call.turn.commit(txn);
    Ok(Done)
}

fn execute(
    call: &mut Call,
    txn: &mut Txn,
    program: &Program,
    (read_only, out_of_memory): (bool, bool),
    count: usize,
) {
    let turn = call.turn;
    let mut engine = turn.worker.engine();
    let scratch = std::mem::take(&mut engine.scratch);
    let (db, was_in_exec) = (call.session.db, call.session.in_exec);
    let start = turn.now();
    call.session.in_exec = true;
    call.session.in_script = true;
    let (keys, args) = (call.args.from(3).first(count), call.args.from(3 + count));
    let mut host = Run {
        turn,
        session: call.session,
        txn,
        proto: Proto::Resp2,
        read_only,
        out_of_memory,
        wrote: false,
        scratch,
        program,
        args: call.args,
        started: start,
        running: None,
    };
    engine.run(program, keys, args, &mut host, &mut call.out);
    if let Some(running) = &host.running {
        let server = &turn.worker.server;
        server.busy.end(&server.store, running);
    }
    engine.scratch = host.scratch;
    turn.worker.stats().interpreter_bytes.store(engine.bytes(), Relaxed);
    call.session.db = db;
    call.session.in_exec = was_in_exec;
    call.session.in_script = false;
    if !was_in_exec {
        call.session.time = None;
    }
    // The time that its commands took is its own.
    turn.set_now(start);
}

impl Run<'_, '_, '_> {
    /// From now on others are refused, and may kill it.
    #[cold]
    fn become_busy(&self) -> Arc<Running> {
        let Program { name, is_eval, .. } = *self.program;
        log!(
            Warning,
            "Slow script detected: still in execution after {} milliseconds. You can try killing the script using the {} \
             command. Script name is: {name}.",
            self.started.elapsed().as_millis(),
            if is_eval { "SCRIPT KILL" } else { "FUNCTION KILL" }
        );
        let running = Arc::new(Running {
            name: name.into(),
            is_eval,
            command: self.args.to_owned(),
            started: self.started,
            wrote: AtomicBool::new(self.wrote),
            killed: AtomicBool::new(false),
        });
        let server = &self.turn.worker.server;
        server.busy.begin(&server.store, running.clone());
        running
    }

    /// Locks what a command needs.
    fn lock(&mut self, id: CommandId, args: Args) -> Result<(), HeldUp> {
        let command = TABLE.command(id);
        if command.locks_all(args) {
            return self.txn.include_all();
        }
        if TABLE.first_is_key(id) {
            return self.txn.include(args.at(1));
        }
        let (mut any, mut locked) = (false, Ok(()));
        // What does not tell its keys fails before it looks at one.
        let _ = each_key(command, args, |index, _| {
            any = true;
            if locked.is_ok() {
                locked = self.txn.include(args.at(index));
            }
        });
        locked?;
        if !any && matches!(command.handler, Handler::Keyed(_)) {
            self.txn.include(b"")?;
        }
        Ok(())
    }

    fn check(&mut self, id: CommandId, args: Args) -> Result<(), Cow<'static, [u8]>> {
        let command = TABLE.command(id);
        if !command.accepts(args.len()) {
            return Err(WRONG_ARITY.into());
        }
        let is_let_in = || {
            // What waits, or runs scripts, cannot be.
            let may_be = command.flags.has(Flags::ADMIN) && !command.flags.has(Flags::NO_MULTI);
            may_be && self.turn.worker.server.scripts.lets_all_in()
        };
        if command.flags.has(Flags::NOSCRIPT) && !is_let_in() {
            return Err(NOT_ALLOWED.into());
        }
        if let Err(denied) = self.session.user.may_run(id, args) {
            let client = &self.session.client;
            denied.log(&self.turn.worker.server, client, Context::Lua, id, args);
            let message = denied.message(&self.session.user, id, args);
            return Err([b"ERR ACL failure in script: ", &message[..]].concat().into());
        }
        if self.read_only && (command.flags.has(Flags::WRITE) || command.flags.has(Flags::MAY_REPLICATE)) {
            return Err(READ_ONLY.into());
        }
        if command.flags.has(Flags::WRITE) {
            let may_grow = command.flags.has(Flags::DENYOOM);
            // A script that has written is not stopped half-way, unless there is no room at all.
            if self.out_of_memory && may_grow && !self.wrote {
                return Err(text(OUT_OF_MEMORY));
            }
            self.turn.check_replicas().map_err(text)?;
            if self.txn.batch_bytes() > BATCH_MAX {
                return Err(TOO_LONG.into());
            }
            // A log that is busy takes it all the same: it cannot be waited for here.
            self.turn.admit_log(args.bytes(), may_grow).map_err(text)?;
            self.wrote = true;
            if let Some(running) = &self.running {
                running.wrote.store(true, Relaxed);
            }
        }
        Ok(())
    }
}

fn text(stop: Stop) -> Cow<'static, [u8]> {
    match stop {
        Stop::Error(text) => text,
        Stop::Cold(_) => unreachable!("nothing was read"),
    }
}

impl Host for Run<'_, '_, '_> {
    fn call(&mut self, args: Args, reply: &mut Vec<u8>) -> Result<(), Cow<'static, [u8]>> {
        let errors = &self.turn.worker.server.errors;
        let Lookup::Found(id) = TABLE.lookup(args) else {
            errors.count(UNKNOWN);
            return Err(UNKNOWN.into());
        };
        if let Err(text) = self.check(id, args) {
            self.turn.worker.stats().command(id).rejected.add(1);
            errors.count(&text);
            return Err(text);
        }
        while self.lock(id, args).is_err() {
            // It has not done anything yet, and may fail. If there is no such error, what it waited for has ended.
            if let Some(busy) = self.turn.worker.server.busy.error() {
                return Err(text(busy));
            }
        }
        let mut waited = false;
        loop {
            let mut out = Writer::new(reply, self.proto);
            match self.turn.call(self.session, id, args, &mut out, Wake::First, Some(self.txn)) {
                // Nothing can be undone and nothing may come between, so this read is waited for here.
                Outcome::Fetch(cold) => {
                    let store = &self.turn.worker.server.store;
                    self.txn.supply(cold.into_iter().map(|cold| store.fetch(cold)).collect());
                    waited = true;
                }
                Wait(_) | WaitFor(_) | Postpone(_) | OnStack | Behind => {
                    unreachable!("commands do not wait within a script")
                }
                Done | Close => break,
            }
        }
        if waited {
            // A script may look at more than there is memory for.
            self.txn.take_fetched();
        }
        self.txn.forget_views();
        Ok(())
    }

    fn may_run(&mut self, args: Args) -> Option<bool> {
        match TABLE.lookup(args) {
            Lookup::Found(id) => Some(self.session.user.may_run(id, args).is_ok()),
            _ => None,
        }
    }

    fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    fn proto(&self) -> Proto {
        self.proto
    }

    fn count_error(&mut self, text: &[u8]) {
        self.turn.worker.server.errors.count(text);
    }

    fn register(&mut self, _: &mut Lua, _: NewFunction) -> Result<(), String> {
        Err("redis.register_function can only be called on FUNCTION LOAD command".into())
    }

    fn tick(&mut self) -> Result<(), String> {
        let server = &self.turn.worker.server;
        let threshold_ms = server.config.number(Opt::BusyReplyThreshold) as u128;
        let is_late = || threshold_ms > 0 && self.started.elapsed().as_millis() >= threshold_ms;
        if self.running.is_none() && is_late() {
            self.running = Some(self.become_busy());
        }
        let Some(running) = &self.running else { return Ok(()) };
        stack::pause();
        if stack::is_abandoned() {
            if self.wrote {
                // Its batch must not be cut in two. What was acknowledged is durable, so that it may be given up like this.
                log!(Warning, "ending in the middle of a script, whose writes are lost");
                process::exit(0);
            }
            return Err(KILLED.into());
        }
        if running.killed.load(Relaxed) {
            log!(Notice, "Lua script killed by user with SCRIPT KILL.");
            return Err(KILLED.into());
        }
        Ok(())
    }

    fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}
