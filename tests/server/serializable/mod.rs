//! Clients execute transactions at random on keys that they share, by each of the ways that there are: single commands, pipelines, MGET, MULTI, WATCH
//! and scripts, on keys in and out of memory, while the server is killed; or the servers of a replica set, of which those that follow are read, too.
//! What they have found must have an order ([`history`]).
//!
//! `HOLDFAST_SERIALIZABLE_SECONDS=600` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its moments).

mod history;
mod plan;

use crate::harness::{
    Client, EndOnDrop, Folder, Rng, Server, Set, bulk, long_form, seed, wait_until, written::PAUSE,
};
use history::{Key, Op, Transaction};
use holdfast_resp::Reply;
use plan::{Form, Kind, Plan, Shape, is_refusal, kind, read, told};
use std::{
    cell::RefCell,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 6;
const CLIENTS: u64 = 6;
/// Transactions on one history: the graph of more takes much memory.
const TRANSACTIONS: usize = 60_000;
/// Elements that a key has in the end; then another one takes its place.
const ELEMENTS: u64 = 60;
/// Keys of each kind that are written at a time: few, of which many want each, or many, of which most are not in memory.
const KEYS: [usize; 2] = [3, 40];
/// Bytes that an element has more than it needs.
const PADS: [usize; 3] = [0, 300, 3000];
/// Transactions that are sent together, at most.
const PIPELINE: u64 = 12;
/// Parts that a transaction has, at most.
const OPS: u64 = 4;
/// Values beside the keys, which drive these from memory.
const OTHERS: u64 = 600;
const OTHER_BYTES: usize = 100_000;
/// How long a server runs until it is killed, at most.
const LIFE_MS: u64 = 2500;
/// How long a server of a set does not run, at most.
const AWAY_MS: u64 = 1000;
/// Milliseconds until another leader is elected.
const TIMEOUT: &str = "500";
/// Clients of a set that only read, of any server.
const READERS: u64 = 2;

/// What clients share.
struct Common {
    shape: Shape,
    /// Elements that were added to the keys of each place.
    added: Vec<AtomicU64>,
    connections: AtomicUsize,
    transactions: AtomicUsize,
    /// Of the servers.
    sockets: Vec<String>,
    begun: Instant,
    is_over: AtomicBool,
}

/// A client, and what it has done.
struct Actor<'c> {
    common: &'c Common,
    rng: Rng,
    /// It only reads, and of any server.
    is_reader: bool,
    done: Vec<Transaction>,
}

impl Actor<'_> {
    fn place(&mut self) -> usize {
        self.rng.below(self.common.added.len() as u64) as usize
    }

    fn add(&mut self) -> Op {
        let place = self.place();
        let element = self.common.added[place].fetch_add(1, Relaxed);
        let key = self.common.shape.key(place, element / ELEMENTS);
        if kind(key) == Kind::Value {
            Op::Set(key, element % ELEMENTS)
        } else {
            Op::Add(key, element % ELEMENTS)
        }
    }

    /// A key that is written now, or was before.
    fn key(&mut self, place: usize) -> Key {
        let nth = self.common.added[place].load(Relaxed) / ELEMENTS;
        self.common.shape.key(place, if self.rng.one_in(4) { self.rng.below(nth + 1) } else { nth })
    }

    fn read(&mut self) -> Op {
        let place = self.place();
        let key = self.key(place);
        if kind(key).can_look() && self.rng.one_in(2) {
            // One of those that were added last, or are next.
            let last = self.common.added[place].load(Relaxed) % ELEMENTS;
            return Op::Look(key, last.saturating_sub(self.rng.below(6)), false);
        }
        read(key)
    }

    fn op(&mut self) -> Op {
        if !self.is_reader && self.rng.one_in(2) { self.add() } else { self.read() }
    }

    fn plan(&mut self) -> Plan {
        let count = 1 + self.rng.below(OPS);
        let (form, ops) = match self.rng.below(5) {
            0 | 1 => (Form::Single, vec![self.op()]),
            2 => {
                let places: Vec<usize> =
                    (0..self.common.added.len()).filter(|place| kind(*place).is_string()).collect();
                let ops = (0..count).map(|_| {
                    let place = places[self.rng.below(places.len() as u64) as usize];
                    read(self.key(place))
                });
                (Form::Mget, ops.collect())
            }
            3 => (Form::Multi, (0..count).map(|_| self.op()).collect()),
            _ => (Form::Script, (0..count).map(|_| self.op()).collect()),
        };
        Plan { form, ops, shape: self.common.shape }
    }

    /// Notes a transaction that has ended now; or whose reply was lost, if it may have been executed.
    fn note(&mut self, connection: usize, began: Duration, plan: &Plan, ops: Option<Vec<Op>>) {
        let ended = ops.is_some().then(|| self.common.begun.elapsed());
        // Of a counter it is not known what was added.
        let is_known = |op: &&Op| match op {
            Op::Add(key, _) => kind(*key) != Kind::Counter,
            op => matches!(op, Op::Set(..)),
        };
        let adds = || plan.ops.iter().filter(is_known).cloned().collect();
        let (is_current, ops) = (!self.is_reader, ops.unwrap_or_else(adds));
        if ops.is_empty() {
            return;
        }
        self.done.push(Transaction { began, ended, connection, is_current, ops });
        if self.common.transactions.fetch_add(1, Relaxed) >= TRANSACTIONS {
            self.common.is_over.store(true, SeqCst);
        }
    }

    /// A connection to a server that leads, or to any if it only reads.
    fn connect(&mut self) -> Option<Client> {
        let sockets = &self.common.sockets;
        let mut client = Client::connect(&sockets[self.rng.below(sockets.len() as u64) as usize]).ok()?;
        let Reply::Array(role) = client.try_call("ROLE")? else { return None };
        (self.is_reader || role[0] == bulk("master")).then_some(client)
    }

    /// Executes transactions until that is over.
    fn run(&mut self) {
        let common = self.common;
        let _end = EndOnDrop(&common.is_over);
        while !common.is_over.load(Relaxed) {
            let Some(mut client) = self.connect() else {
                thread::sleep(PAUSE);
                continue;
            };
            let connection = common.connections.fetch_add(1, Relaxed);
            while !common.is_over.load(Relaxed) {
                let goes_on = match !self.is_reader && self.rng.one_in(5) {
                    true => self.watch(&mut client, connection),
                    false => self.send(&mut client, connection),
                };
                if goes_on.is_none() {
                    thread::sleep(PAUSE);
                    break;
                }
            }
        }
    }

    /// Sends some transactions together; `None`: the connection is lost.
    fn send(&mut self, client: &mut Client, connection: usize) -> Option<()> {
        let plans: Vec<Plan> = (0..1 + self.rng.below(PIPELINE)).map(|_| self.plan()).collect();
        let mut request = Vec::new();
        plans.iter().for_each(|plan| plan.write(&mut request));
        let began = self.common.begun.elapsed();
        let mut is_there = client.try_send(&request).is_ok();
        for plan in &plans {
            let ops = if is_there { plan.read(client) } else { None };
            is_there = ops.is_some();
            self.note(connection, began, plan, ops);
        }
        is_there.then_some(())
    }

    /// Reads keys, and then adds elements to some if those that were read have not changed.
    fn watch(&mut self, client: &mut Client, connection: usize) -> Option<()> {
        let began = self.common.begun.elapsed();
        let reads: Vec<Op> = (0..1 + self.rng.below(OPS)).map(|_| self.read()).collect();
        let mut found = Vec::new();
        for read in &reads {
            let command = self.common.shape.command(read);
            client.try_call(&format!("WATCH {}", command.split_whitespace().nth(1).expect("a name")))?;
        }
        for read in &reads {
            let reply =
                client.try_call(&self.common.shape.command(read)).filter(|reply| !is_refusal(reply))?;
            found.push(told(read, &reply));
        }
        let ops: Vec<Op> = (0..1 + self.rng.below(OPS)).map(|_| self.op()).collect();
        let plan = Plan { form: Form::Multi, ops, shape: self.common.shape };
        let mut request = Vec::new();
        plan.write(&mut request);
        let ops = client.try_send(&request).ok().and_then(|()| plan.read(client));
        if ops.as_ref().is_some_and(Vec::is_empty) {
            return Some(());
        }
        let ops = ops.map(|ops| [found, ops].concat());
        let is_there = ops.is_some();
        self.note(connection, began, &plan, ops);
        is_there.then_some(())
    }
}

/// Writes and reads values, which drive others from memory.
fn drive_out(common: &Common, rng: Rng) {
    let _end = EndOnDrop(&common.is_over);
    let (mut actor, value) =
        (Actor { common, rng, is_reader: false, done: Vec::new() }, "v".repeat(OTHER_BYTES));
    while !common.is_over.load(Relaxed) {
        thread::sleep(PAUSE);
        let Some(mut client) = actor.connect() else { continue };
        while !common.is_over.load(Relaxed) {
            let nth = actor.rng.below(OTHERS);
            let (set, get) = (format!("SET other:{nth} {value}"), format!("GET other:{nth}"));
            if client.try_call(if actor.rng.one_in(2) { &set } else { &get }).is_none() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How a server is started, with one of these limits of its memory.
fn options(rng: &mut Rng, maxmemory: [&'static str; 2]) -> [&'static str; 6] {
    let workers = ["1", "2", "4"][rng.below(3) as usize];
    let io_uring = ["yes", "no"][rng.below(2) as usize];
    ["--workers", workers, "--io-uring", io_uring, "--maxmemory", maxmemory[rng.below(2) as usize]]
}

/// A history of clients, of which so many only read, of servers with these sockets. `ail` does something to these, and `last` is a connection to one
/// that leads in the end.
fn run(
    sockets: Vec<String>,
    readers: u64,
    length: Duration,
    rng: &mut Rng,
    mut ail: impl FnMut(&mut Rng),
    last: impl Fn() -> Client,
) -> Vec<Transaction> {
    let shape = Shape { keys: KEYS[rng.below(2) as usize], pad: PADS[rng.below(3) as usize] };
    let common = Common {
        shape,
        added: (0..shape.places()).map(|_| AtomicU64::new(0)).collect(),
        connections: AtomicUsize::new(0),
        transactions: AtomicUsize::new(0),
        sockets,
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
    };
    let actor = |nth: u64| Actor {
        common: &common,
        rng: Rng(rng.draw()),
        is_reader: nth < readers,
        done: Vec::new(),
    };
    let mut actors: Vec<Actor> = (0..readers + CLIENTS).map(actor).collect();
    thread::scope(|scope| {
        let _end = EndOnDrop(&common.is_over);
        let other = Rng(rng.draw());
        scope.spawn(|| drive_out(&common, other));
        for actor in &mut actors {
            scope.spawn(|| actor.run());
        }
        while common.begun.elapsed() < length && !common.is_over.load(Relaxed) {
            ail(rng);
        }
    });
    let mut history: Vec<Transaction> = actors.into_iter().flat_map(|actor| actor.done).collect();
    let keys = common.added.iter().enumerate().flat_map(|(place, added)| {
        (0..=added.load(Relaxed) / ELEMENTS).map(move |nth| shape.key(place, nth))
    });
    let reads: Vec<Op> = keys.map(read).collect();
    let (mut began, mut found) = (common.begun.elapsed(), None);
    wait_until(
        || "all is read".into(),
        || {
            // Who leads may be about to lead no more.
            let mut client = last();
            let mut call =
                |read: &Op| client.try_call(&shape.command(read)).filter(|reply| !is_refusal(reply));
            began = common.begun.elapsed();
            found = reads.iter().map(|read| Some(told(read, &call(read)?))).collect::<Option<Vec<Op>>>();
            found.is_some()
        },
    );
    let ops = found.expect("it was waited for");
    let (ended, connection) = (Some(common.begun.elapsed()), common.connections.load(Relaxed));
    history.push(Transaction { began, ended, connection, is_current: true, ops });
    history
}

/// Histories one after another, for as long as the test takes.
fn check(mut history: impl FnMut(Duration, &mut Rng) -> Vec<Transaction>) {
    let mut rng = Rng(seed());
    let length = Duration::from_secs(long_form("HOLDFAST_SERIALIZABLE_SECONDS", SECONDS));
    let begun = Instant::now();
    while begun.elapsed() < length {
        let history = history(length - begun.elapsed(), &mut rng);
        let ops: usize = history.iter().map(|transaction| transaction.ops.len()).sum();
        let lost = history.iter().filter(|transaction| transaction.ended.is_none()).count();
        println!("{} transactions of {ops} parts, {lost} of which were not answered", history.len());
        if let Err(why) = history::check(&history, |key| kind(key).rule()) {
            panic!("{why}");
        }
    }
}

#[test]
fn transactions_have_an_order() {
    check(|length, rng| {
        let server = RefCell::new(Some(Server::start_in(Folder::new(), &options(rng, ["64mb", "0"]))));
        let running = || server.borrow_mut().take().expect("it runs");
        let socket = server.borrow().as_ref().expect("it runs").folder().join("socket");
        let ail = |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS)));
            let folder = running().kill();
            server.replace(Some(Server::start_in(folder, &options(rng, ["64mb", "0"]))));
        };
        run(vec![socket], 0, length, rng, ail, || server.borrow().as_ref().expect("it runs").client())
    });
}

#[test]
fn transactions_of_a_replica_set_have_an_order() {
    check(|length, rng| {
        let mut set = Set::new(3);
        for at in 0..3 {
            set.options[at].extend(["--replica-set-timeout", TIMEOUT].map(str::to_owned));
            set.options[at].extend(options(rng, ["128mb", "0"]).map(str::to_owned));
            set.start_in(at, Folder::new());
        }
        let sockets = set.servers.iter().flatten().map(|server| server.folder().join("socket")).collect();
        set.leader();
        let set = RefCell::new(set);
        let ail = |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS)));
            let (at, away) = (rng.below(3) as usize, Duration::from_millis(rng.below(AWAY_MS)));
            let mut set = set.borrow_mut();
            match rng.below(3) {
                0 => {
                    let folder = set.kill(at);
                    thread::sleep(away);
                    set.start_in(at, folder);
                }
                1 => {
                    let server = set.servers[at].as_ref().expect("it runs");
                    server.signal("STOP");
                    thread::sleep(away);
                    server.signal("CONT");
                }
                _ => {
                    if let Some((_, mut leader)) = set.leading(0..3) {
                        // It may lead no more.
                        let _ = leader.try_call("FAILOVER");
                    }
                }
            }
        };
        run(sockets, READERS, length, rng, ail, || set.borrow().leader().1)
    });
}
