//! A script that runs: its commands become part of one transaction, and so of one batch of the log (I-2).

use crate::{
    acl::Context,
    admin::log::log,
    command::{
        Flags,
        error::{OUT_OF_MEMORY, Stop},
        keys::CallKeys,
        table::Lookup,
    },
    config::Opt,
    exec::{
        admit::{check_size, purpose, redo_of},
        answer::{
            Answer,
            Outcome::{self, *},
        },
        call::Call,
        dispatch::is_repeatable,
        handler::Handler,
        invocation::Invocation,
        locking::{PAGES_MAX, absent_pages},
        turn::Turn,
    },
    script::{
        busy::Running,
        engine::{Program, write_log},
        flags::ScriptFlags,
        stack::{self, Pause},
    },
    server::mailbox::Wake,
    session::Session,
};
use holdfast_io::Moment;
use holdfast_lua::{Host, LogLevel, NewFunction, Ref, Scratch};
use holdfast_resp::{Args, Proto, Writer};
use holdfast_store::{Cold, LockBusy, SMALL_BYTES, Txn, hash_slot};
use std::{
    borrow::Cow,
    process,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Bytes that the batch of one script may have.
const BATCH_MAX: usize = 1 << 30;

const UNKNOWN: &[u8] = b"ERR Unknown Redis command called from script";
const WRONG_ARITY: &[u8] = b"ERR Wrong number of args calling Redis command from script";
const NOT_ALLOWED: &[u8] = b"ERR This Redis command is not allowed from script";
const READ_ONLY: &[u8] = b"ERR Write commands are not allowed from read-only scripts.";
const TOO_LONG: &[u8] = b"ERR the script writes more than a batch of the log may hold";
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
const NO_CLUSTER: Stop = Stop::new("ERR Can not run script on cluster, 'no-cluster' flag is set.");
const RO_COMMAND: Stop = Stop::new("ERR Can not execute a script with write flag using *_ro command.");
const OOM_SCRIPT: Stop =
    Stop::new("OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'");

/// How long a script runs before others of its worker get to run.
const SLICE_NS: u64 = 1_000_000;
/// How long a script may have run that begins again with what it lacks: some of the time that reading takes.
const RESTART_NS: u64 = 100_000;
/// How often a script begins again, because what it had read was written while it had to unlock it, before it takes its turn
/// among those that unlock nothing.
const ATTEMPTS_MAX: u32 = 8;
/// How long a script that has written waits for a partition, while another one whose turn it is waits for it.
const DEADLOCK_NS: u64 = 1_000_000_000;
const AGAIN: &[u8] = b"ERR the script begins again";
const DEADLOCK: &[u8] =
    b"ERR the script has met a key that it has not named, and that a script holds which waits for this one";

struct Run<'r, 'a, 't> {
    turn: &'a Turn<'a>,
    session: &'r mut Session,
    txn: &'r mut Txn<'t>,
    /// The protocol of replies to it.
    proto: Proto,
    read_only: bool,
    /// Whether its commands may need memory that there is not.
    out_of_memory: bool,
    /// On a node of a cluster, the slot of its keys, once one is known, and whether it may use others too.
    slot: Option<u16>,
    is_across_slots: bool,
    /// Slots that were here when it had locked their partitions: until it unlocks them it may use them, since they wait for it before they
    /// go to another node.
    held_slots: Vec<u16>,
    wrote: bool,
    /// Whether the log has let in a write that makes data grow, since the script was last paused: as a small batch, all of it has room.
    is_let_in: bool,
    /// Whether nobody would see it if it was done again: it may unlock what it has locked.
    is_repeatable: bool,
    /// Whether it has locked what it did not name.
    has_grown: bool,
    /// Whether others can see that it has begun: what it calls is counted and shown to MONITOR.
    is_seen: bool,
    /// Whether it is to begin again, and what it calls until its end fails.
    begins_again: bool,
    /// What is to be fetched before.
    fetches_first: Vec<Cold>,
    /// When it last began to run.
    resumed: Moment,
    scratch: Scratch,
    program: &'r Program<'r>,
    args: Args<'r>,
    started: Moment,
    /// Itself, once it runs for long.
    running: Option<Arc<Running>>,
}

/// What a script does without.
#[derive(Clone, Copy)]
struct Limits {
    no_writes: bool,
    out_of_memory: bool,
    is_across_slots: bool,
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
    let out_of_memory = !allows_oom && !call.session.is_primary && store.is_out_of_memory();
    if flags.is_some() && out_of_memory && !no_writes {
        call.turn.count_refusal(&OUT_OF_MEMORY);
        return Err(OOM_SCRIPT);
    }
    if flags.is_some() && !no_writes {
        call.turn.check_role(call.session)?;
    }
    let is_cluster = call.server().cluster.is_on();
    if is_cluster && flags.is_some_and(|flags| flags.has(ScriptFlags::NO_CLUSTER)) {
        return Err(NO_CLUSTER);
    }
    // A script that declares nothing is of a time before there were declarations.
    let is_across_slots = flags.is_none_or(|flags| flags.has(ScriptFlags::ALLOW_CROSS_SLOT_KEYS));
    let limits = Limits { no_writes, out_of_memory, is_across_slots };
    if let Some(txn) = given {
        // What EXEC has done before cannot be done again.
        execute(call, txn, program, limits, count, false);
        return Ok(Done);
    }
    if !no_writes {
        // What is wrong for good is told to the command that writes.
        let later = if allows_oom { Ok(None) } else { call.turn.admit_growth(call.session) };
        if let Ok(Some(later)) = later {
            return Ok(later);
        }
        if let Ok(Some(later)) = call.turn.admit_log(redo_of(call.args), false) {
            return Ok(later);
        }
    }
    let (place, notifications, db) = (call.out.defer(), call.turn.notification_count(), call.session.db);
    let slot = slot_of_keys(call, count);
    for attempt in 0.. {
        let is_last = attempt == ATTEMPTS_MAX;
        let mut txn = match begin(call, count, is_last)? {
            Ok(txn) => txn,
            Err(later) => return Ok(later),
        };
        // Its slot was looked at when it began for the first time, and it has unlocked all since.
        if attempt > 0 && slot.is_some_and(|slot| !call.server().cluster.serves(slot)) {
            return Ok(Outcome::postpone(Duration::ZERO));
        }
        let Ended::BeginsAgain(fetches_first) = execute(call, &mut txn, program, limits, count, !is_last)
        else {
            call.turn.commit(call.session, &mut txn);
            break;
        };
        call.session.fetched = txn.take_fetched();
        // That of a command of the run that does not count.
        call.session.progress = None;
        drop(txn);
        call.turn.forget_notifications(notifications);
        call.out.rewind(place);
        call.session.db = db;
        if !fetches_first.is_empty() {
            return Ok(Fetch(fetches_first));
        }
    }
    Ok(Done)
}

/// Begins the transaction of a script, with what it has named at hand; or what is to be done before.
fn begin<'c>(call: &mut Call<'c>, count: usize, takes_turn: bool) -> Result<Result<Txn<'c>, Outcome>, Stop> {
    let (store, args) = (&call.server().store, call.args);
    let keys = || args.from(3).iter().take(count);
    let mut txn = if count == 1 {
        store.try_begin_growing_key(args.at(3), takes_turn)?
    } else {
        store.try_begin_growing(&store.partitions_of(keys()), takes_turn)?
    };
    if txn.keeps_any() && keys().any(|key| txn.is_kept(call.session.db as u8, key)) {
        return Ok(Err(WaiterFirst));
    }
    call.turn.set_expiry(call.session, &mut txn, true);
    let fetched = std::mem::take(&mut call.session.fetched);
    let is_first = fetched.is_empty();
    txn.supply(fetched);
    if is_first && count > 0 {
        // Together, and while nothing is locked.
        let cold = txn.cold(call.db(), keys());
        if !cold.is_empty() {
            call.turn.commit(call.session, &mut txn);
            return Ok(Err(Fetch(cold)));
        }
    }
    Ok(Ok(txn))
}

/// On a node of a cluster, the slot of the keys that a script has named: it is one.
fn slot_of_keys(call: &Call, count: usize) -> Option<u16> {
    let is_node = count > 0 && call.server().cluster.is_on();
    is_node.then(|| hash_slot(call.args.at(3)))
}

/// How a run of a script has ended.
enum Ended {
    Done,
    /// Nothing of it counts: it is to begin again, with these.
    BeginsAgain(Vec<Cold>),
}

/// Runs a script in a transaction. It begins again only if it `is_repeatable`.
fn execute(
    call: &mut Call,
    txn: &mut Txn,
    program: &Program,
    Limits { no_writes, out_of_memory, is_across_slots }: Limits,
    count: usize,
    is_repeatable: bool,
) -> Ended {
    let turn = call.turn;
    let mut engine = turn.worker.engine();
    let scratch = std::mem::take(&mut engine.scratch);
    let (db, was_in_exec, draws) = (call.session.db, call.session.in_exec, call.session.draws.clone());
    let slot = slot_of_keys(call, count);
    let start = turn.now();
    call.session.in_exec = true;
    call.session.in_script = true;
    let (keys, args) = (call.args.from(3).first(count), call.args.from(3 + count));
    let mut host = Run {
        turn,
        session: call.session,
        txn,
        proto: Proto::Resp2,
        read_only: no_writes,
        out_of_memory,
        slot,
        is_across_slots,
        held_slots: slot.into_iter().collect(),
        wrote: false,
        is_let_in: false,
        is_repeatable,
        has_grown: false,
        is_seen: false,
        begins_again: false,
        fetches_first: Vec::new(),
        resumed: start,
        scratch,
        program,
        args: call.args,
        started: start,
        running: None,
    };
    engine.run(program, keys, args, &mut host, &mut call.out);
    if let Some(running) = &host.running {
        turn.worker.server.busy.end(running);
    }
    // EXEC has locked what others of its queue need, too.
    if host.wrote && !host.has_grown && !host.begins_again && !was_in_exec {
        program.names_keys.confirm();
    }
    let (begins_again, fetches_first) = (host.begins_again, host.fetches_first);
    engine.scratch = host.scratch;
    turn.worker.stats().interpreter_bytes.store(engine.bytes(), Relaxed);
    call.session.db = db;
    call.session.in_exec = was_in_exec;
    call.session.in_script = false;
    if !was_in_exec {
        call.session.time = None;
        if begins_again {
            call.session.draws = draws;
        }
    }
    // The time that its commands took is its own.
    turn.set_now(start);
    if begins_again { Ended::BeginsAgain(fetches_first) } else { Ended::Done }
}

type Failed = Cow<'static, [u8]>;

impl Run<'_, '_, '_> {
    /// From now on others are refused, and may kill it.
    #[cold]
    fn become_busy(&self) -> Arc<Running> {
        let holdfast_lua::Program { name, is_eval, .. } = self.program.lua;
        log!(
            Warning,
            "Slow script detected: still in execution after {} milliseconds. You can try killing the script using the {} \
             command. Script name is: {name}.",
            self.started.elapsed().as_millis(),
            if is_eval { "SCRIPT KILL" } else { "FUNCTION KILL" }
        );
        let running = Running::new(name.into(), is_eval, self.args.to_owned(), self.started);
        if self.wrote {
            running.begin_to_write();
        }
        let running = Arc::new(running);
        self.turn.worker.server.busy.begin(running.clone());
        running
    }

    /// Lets others run, with what it has locked locked.
    fn pause(&mut self, why: Pause) {
        self.txn.hold_long();
        stack::pause(why);
        self.resume();
    }

    fn resume(&mut self) {
        self.turn.resume();
        self.resumed = self.turn.now();
        // What others have written has taken the room that there was, unless it has kept some.
        self.is_let_in = self.txn.keeps_room();
    }

    /// Whether it can unlock what it has locked, as if it had not begun.
    fn may_step_aside(&self) -> bool {
        self.is_repeatable && self.txn.is_clean() && stack::is_on_stack() && !stack::is_abandoned()
    }

    /// Waits with nothing locked, and locks all again. If a key was written there meanwhile, the script begins again.
    fn step_aside<R>(&mut self, wait: impl FnOnce() -> R) -> Result<R, Failed> {
        let held_long = self.txn.holds_long();
        let released = self.txn.release_locks();
        if held_long {
            self.turn.worker.server.released.notify_waiters();
        }
        let result = wait();
        let is_as_before = loop {
            match self.txn.reacquire_locks(&released) {
                Ok(is_as_before) => break is_as_before,
                Err(LockBusy) if stack::is_abandoned() => break false,
                Err(LockBusy) => {
                    self.txn.hold_long();
                    stack::pause(Pause::LockBusy);
                }
            }
        };
        self.resume();
        let cluster = &self.turn.worker.server.cluster;
        if is_as_before && self.held_slots.iter().all(|slot| cluster.serves(*slot)) {
            return Ok(result);
        }
        self.begins_again = true;
        Err(AGAIN.into())
    }

    /// Waits until others have unlocked what it needs; `since` is when it has begun to.
    fn wait_for_others(&mut self, since: Moment) -> Result<(), Failed> {
        if self.is_repeatable
            && self.running.is_none()
            && let Some(busy) = self.turn.worker.server.busy.error()
        {
            return Err(text(busy));
        }
        if self.may_step_aside() {
            return self.step_aside(|| drop(stack::pause(Pause::LockBusy)));
        }
        if !self.txn.try_take_turn() && self.txn.is_wanted() && self.turn.ns_since(since) > DEADLOCK_NS {
            return Err(DEADLOCK.into());
        }
        self.pause(Pause::LockBusy);
        Ok(())
    }

    /// Locks what a command needs.
    fn lock(&mut self, invocation: &Invocation) -> Result<(), Failed> {
        let before = self.txn.partitions_len();
        if !self.try_lock(invocation) {
            let since = self.turn.now();
            while !self.try_lock(invocation) {
                self.wait_for_others(since)?;
            }
        }
        if self.txn.partitions_len() > before {
            self.has_grown = true;
            self.program.names_keys.deny();
        }
        Ok(())
    }

    /// The same as far as it takes no waiting; whether all is locked.
    fn try_lock(&mut self, invocation: &Invocation) -> bool {
        let Invocation { id, row, args, .. } = *invocation;
        if row.locks_all(args) {
            return self.txn.try_include_all();
        }
        if self.turn.worker.server.table.first_is_key(id) {
            return self.txn.try_include(args.at(1));
        }
        let keys = invocation.known_keys();
        if keys.is_empty() && matches!(row.handler, Handler::Keyed(_)) {
            return self.txn.try_include(b"");
        }
        keys.iter().all(|&(index, _)| self.txn.try_include(args.at(index)))
    }

    /// Before it writes for the first time, a script that may meet more keys waits for its turn: two that have written, and
    /// each of which wants what the other one has, would wait for ever.
    fn begin_to_write(&mut self) -> Result<(), Failed> {
        if !self.program.names_keys.is_known() {
            let since = self.turn.now();
            while !self.txn.try_take_turn() && self.may_step_aside() {
                self.wait_for_others(since)?;
            }
        }
        if self.running.as_ref().is_some_and(|running| !running.begin_to_write()) {
            return Err(KILLED.as_bytes().into());
        }
        self.wrote = true;
        Ok(())
    }

    /// Reads what a command has found cold. A script that has just begun leaves the interpreter meanwhile to those who wait for it.
    fn fetch(&mut self, cold: Vec<Cold>) -> Result<(), Failed> {
        if self.may_step_aside() {
            let is_wanted = self.turn.worker.scripts_waiting.get() > 0;
            if is_wanted && !self.is_seen && self.turn.ns_since(self.started) < RESTART_NS {
                self.fetches_first = cold;
                self.begins_again = true;
                return Err(AGAIN.into());
            }
            let fetched = self.step_aside(|| stack::pause(Pause::Fetch(cold)))?;
            self.txn.supply(fetched);
        } else {
            self.turn.fetch_under_lock(self.txn, cold);
            self.resume();
        }
        Ok(())
    }

    /// Reads the pages that a command will use, as far as its arguments tell.
    fn fetch_absent(&mut self, invocation: &Invocation) -> Result<(), Failed> {
        if !matches!(invocation.row.handler, Handler::Keyed(_)) {
            return Ok(());
        }
        loop {
            let db = self.turn.worker.server.store.database(self.session.db as u8);
            let mut draws = self.session.draws.clone();
            // The command that meets a damaged page fails.
            let absent = absent_pages(self.txn, db, invocation, &mut draws, PAGES_MAX).unwrap_or_default();
            if absent.is_empty() {
                return Ok(());
            }
            self.fetch(absent)?;
        }
    }

    fn check(&mut self, invocation: &Invocation) -> Result<(), Failed> {
        let Invocation { id, args, keys, .. } = *invocation;
        let command = invocation.command();
        if self.begins_again {
            return Err(AGAIN.into());
        }
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
        if let Err(denied) = self.session.user.may_run(id, args, keys) {
            let (server, session) = (&self.turn.worker.server, &*self.session);
            let message = server.acl.refuse(
                &server.config,
                denied,
                (id, args),
                &session.user,
                &session.client,
                Context::Lua,
            );
            return Err([b"ERR ACL failure in script: ", &message[..]].concat().into());
        }
        if self.read_only && (command.flags.has(Flags::WRITE) || command.flags.has(Flags::MAY_REPLICATE)) {
            return Err(READ_ONLY.into());
        }
        if command.flags.has(Flags::WRITE) {
            let may_grow = command.flags.has(Flags::DENYOOM);
            // A script that has written is not stopped half-way, unless there is no room at all.
            if self.out_of_memory && may_grow && !self.wrote {
                return Err(self.refused(OUT_OF_MEMORY));
            }
            self.turn.check_role(self.session).map_err(text)?;
            if self.txn.batch_bytes() > BATCH_MAX {
                return Err(TOO_LONG.into());
            }
            // A log that is busy takes it all the same: it cannot be waited for here.
            let redo = redo_of(args);
            check_size(redo, &self.turn.worker.server.store).map_err(text)?;
            // What has begun may use room that others may not: it is reserved below.
            if !self.is_let_in || (self.txn.is_clean() && redo > SMALL_BYTES) {
                self.turn.admit_log(redo, may_grow).map_err(|stop| self.refused(stop))?;
                self.is_let_in |= may_grow;
            }
            let expected = self.txn.expect(redo, purpose(may_grow), false);
            expected.map_err(|error| self.refused(error.into()))?;
        }
        self.lock(invocation)?;
        if self.turn.worker.server.cluster.is_on() && !self.session.is_primary {
            // With its partition locked, so that it does not go to another node behind this look.
            let (slot, across, held) = (&mut self.slot, self.is_across_slots, &mut self.held_slots);
            self.turn.script_may_use(self.session, invocation, slot, across, held).map_err(text)?;
        }
        if command.flags.has(Flags::WRITE) && !self.wrote {
            self.begin_to_write()?;
        }
        Ok(())
    }

    /// The error of a command that is refused.
    fn refused(&self, stop: Stop) -> Failed {
        self.turn.count_refusal(&stop);
        text(stop)
    }

    /// Does what is to be done from time to time; fails if the script is to end.
    fn look_around(&mut self) -> Result<(), String> {
        if self.begins_again {
            return Err(String::from_utf8_lossy(AGAIN).into_owned());
        }
        let server = &self.turn.worker.server;
        let threshold_ms = server.config.number(Opt::BusyReplyThreshold) as u128;
        let is_late = || threshold_ms > 0 && self.started.elapsed().as_millis() >= threshold_ms;
        if self.running.is_none() && is_late() {
            self.running = Some(self.become_busy());
        }
        self.pause(Pause::Turn);
        if stack::is_abandoned() {
            if !self.wrote {
                return Err(KILLED.into());
            }
            if self.running.is_some() {
                // Its batch must not be cut in two. What was acknowledged is durable, so that it may be given up like this.
                log!(Warning, "ending in the middle of a script, whose writes are lost");
                process::exit(0);
            }
        }
        if self.running.as_ref().is_some_and(|running| running.is_killed()) {
            log!(Notice, "Lua script killed by user with SCRIPT KILL.");
            return Err(KILLED.into());
        }
        Ok(())
    }
}

fn text(stop: Stop) -> Failed {
    match stop {
        Stop::Error(text) => text,
        Stop::Cold(_) | Stop::LockBusy | Stop::Busy => {
            unreachable!("nothing was read, and nothing can be waited for")
        }
    }
}

impl Host for Run<'_, '_, '_> {
    fn call(&mut self, args: Args, reply: &mut Vec<u8>) -> Result<(), Cow<'static, [u8]>> {
        let errors = &self.turn.worker.server.errors;
        let Lookup::Found(id) = self.turn.worker.server.table.lookup(args) else {
            errors.count(UNKNOWN);
            return Err(UNKNOWN.into());
        };
        let (keys, row) = (CallKeys::default(), self.turn.worker.rows.row(id));
        let invocation = Invocation { id, row, args, keys: &keys, expected: None };
        if let Err(text) = self.check(&invocation) {
            if !self.begins_again {
                self.turn.worker.stats().command(id).rejected.add(1);
                errors.count(&text);
                self.is_seen = true;
            }
            return Err(text);
        }
        let mut waited = false;
        loop {
            self.fetch_absent(&invocation)?;
            let mut out = Writer::new(reply, self.proto);
            match self.turn.call(self.session, &invocation, &mut out, Wake::First, Some(self.txn)) {
                Outcome::Fetch(cold) => {
                    self.fetch(cold)?;
                    waited = true;
                }
                Wait(_)
                | WaitFor(_)
                | Partial
                | Postpone(_)
                | Busy
                | Queue
                | OnStack
                | WaiterFirst
                | SendSnapshot(_)
                | Outcome::LockBusy => {
                    unreachable!("commands do not wait within a script")
                }
                Done | Close => break,
            }
        }
        self.is_seen = true;
        self.is_repeatable &= is_repeatable(&row.command);
        if waited {
            // A script may look at more than there is memory for.
            self.txn.take_fetched();
        }
        self.txn.forget_views();
        self.txn.forget_pages();
        // Calls take much longer than the instructions between them.
        if self.turn.now().ns_since(self.resumed) >= SLICE_NS {
            return self.look_around().map_err(|what| what.into_bytes().into());
        }
        Ok(())
    }

    fn may_run(&mut self, args: Args) -> Option<bool> {
        match self.turn.worker.server.table.lookup(args) {
            Lookup::Found(id) => Some(self.session.user.may_run(id, args, &CallKeys::default()).is_ok()),
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
        if !self.begins_again {
            self.turn.worker.server.errors.count(text);
        }
    }

    fn register(&mut self, _: NewFunction, _: Ref) -> Result<(), String> {
        Err("redis.register_function can only be called on FUNCTION LOAD command".into())
    }

    fn log(&mut self, level: LogLevel, message: &str) {
        self.is_seen = true;
        write_log(level, message);
    }

    fn tick(&mut self) -> Result<(), String> {
        if self.begins_again || self.running.is_some() || self.turn.ns_since(self.resumed) >= SLICE_NS {
            return self.look_around();
        }
        Ok(())
    }

    fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}
